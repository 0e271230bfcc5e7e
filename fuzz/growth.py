"""Files in which one thing is there n times: an element repeated, a text made long, a value nested.

A grower takes bytes, a `random.Random` that chooses the place and the way, and n. The same `Random` gives the same place, so that
files of n and 2 n differ in n alone. Checksums and lengths are right; what the file then says need not be.
"""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz.mutators import _fields, _message, suffix

Grower = Callable[[bytes, Random, int], bytes]

DEEPEST = 4000
"""More than this nothing is nested: every reader ends long before, and the writers of these files at all."""


def value(tree: Any, rng: Random, n: int) -> Any:
    """Grow one place of a tree of dictionaries and lists: an element or an entry repeated, a text or a number long, a value nested."""
    if isinstance(tree, (dict, list)) and tree and rng.random() < 0.7:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = rng.choice(keys)
        grown = value(tree[key], rng, n)
        return {**tree, key: grown} if isinstance(tree, dict) else [*tree[:key], grown, *tree[key + 1 :]]
    if rng.random() < 0.1:
        for _ in range(min(n, DEEPEST)):
            tree = [tree]
        return tree
    if isinstance(tree, dict):
        copied = rng.choice(list(tree.values())) if tree else 0
        return {**tree, **{f"more{number}": copied for number in range(n)}}
    if isinstance(tree, list):
        return tree + [rng.choice(tree) if tree else 0] * n
    if isinstance(tree, bytes):
        return tree + b"1" * n
    if isinstance(tree, (int, float)) and not isinstance(tree, bool):
        return [tree] * n
    return str(tree) + rng.choice(("1", "/a", ".a", "_", " ", "a,")) * n


def text(data: bytes, rng: Random, n: int) -> bytes:
    """Grow JSON at one of its values, XML and any other text at an element, a line or a word."""
    try:
        return json.dumps(value(json.loads(data), rng, n)).encode()
    except (ValueError, RecursionError):
        pass
    elements = [match.span() for match in re.finditer(rb"<(\w+)[^<>]*(/>|>[^<>]*</\1>)", data)]
    lines = [match.span() for match in re.finditer(rb"[^\n]+\n", data)]
    words = [match.span() for match in re.finditer(rb"[^\s,]+[\s,]", data)]
    begin, end = rng.choice(rng.choice([spans for spans in (elements, lines, words) if spans] or [[(0, len(data))]]))
    part = data[begin:end]
    if rng.random() < 0.3:  # a longer word in place of more of them
        letters = [at for at in range(begin, end) if data[at : at + 1].isalnum()] or [begin]
        at = rng.choice(letters)
        return data[:at] + data[at : at + 1] * n + data[at:]
    return data[:end] + part * n + data[end:]


def protobuf(data: bytes, rng: Random, n: int) -> bytes:
    """Grow one field of a message, or of a message inside it."""
    fields = _fields(data)
    if not fields:
        return data + b"1" * n
    at = rng.randrange(len(fields))
    tag, content = fields[at]
    how = rng.random()
    if isinstance(content, bytes) and tag & 7 == 2 and how < 0.6:
        fields[at] = (tag, protobuf(content, rng, n))
    elif isinstance(content, bytes) and tag & 7 == 2 and how < 0.65:
        for _ in range(min(n, DEEPEST)):
            content = _message([(tag, content)])
        fields[at] = (tag, content)
    else:
        fields[at:at] = [fields[at]] * n
    return _message(fields)


def zipped(data: bytes, rng: Random, n: int) -> bytes:
    """Grow an entry of a zip archive, or the list of its entries."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(entries))
    name, content = entries[at]
    how = rng.random()
    if how < 0.6:
        entries[at] = (name, _grower(name, content)(content, rng, n))
    elif how < 0.7:
        entries[at] = (("a/" * (n // 2) + name)[-60_000:], content)
    else:
        entries += [(name if how < 0.75 else f"{name}{number}", content) for number in range(n)]
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for entry, inside in entries:
            archive.writestr(zipfile.ZipInfo(entry), inside)
    return out.getvalue()


def safetensors(data: bytes, rng: Random, n: int) -> bytes:
    """Grow the header: a value of it, or n empty tensors."""
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    if rng.random() < 0.5:
        head = value(head, rng, n)
    else:
        end = len(data) - 8 - length
        more = rng.choice(("more{}", "rnn{}.weight_ih_l0", "rnn.weight_ih_l{}", "a/{}/kernel"))
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}
        head |= {more.format(number): empty for number in range(n)}
    written = json.dumps(head).encode()
    return len(written).to_bytes(8, "little") + written + data[8 + length :]


def msgpack(data: bytes, rng: Random, n: int) -> bytes:
    import msgpack as library

    tree = library.unpackb(data, strict_map_key=False, raw=False)
    return library.packb(value(tree, rng, n))


def pickle(data: bytes, rng: Random, n: int) -> bytes:
    """Repeat an instruction, or lengthen what it carries."""
    import pickletools

    try:
        parsed = list(pickletools.genops(data))
    except ValueError:  # joblib puts the bytes of arrays between the instructions
        return plain(data, rng, n)
    places = [at for _, _, at in parsed]
    parts = [data[at:to] for at, to in zip(places, [*places[1:], len(data)], strict=True)]
    texts = [number for number, (op, _, _) in enumerate(parsed) if op.name == "BINUNICODE"]
    if texts and rng.random() < 0.3:
        at = rng.choice(texts)
        content = parts[at][5:] + b"a" * n
        parts[at] = b"X" + len(content).to_bytes(4, "little") + content
    else:
        at = rng.randrange(len(parts) - 1)
        parts[at:at] = [parts[at]] * n
    return b"".join(parts)


def hdf5(data: bytes, rng: Random, n: int) -> bytes:
    """Give a group n more groups, datasets, attributes or levels, or a long name."""
    import h5py

    held = io.BytesIO(data)
    with h5py.File(held, "r+") as file:
        groups: list[Any] = [file]
        file.visititems(lambda _, item: groups.append(item) if isinstance(item, h5py.Group) else None)
        group, how = rng.choice(groups), rng.randrange(5)
        if how == 0:
            for number in range(n):
                group.create_group(f"more{number}")
        elif how == 1:
            for number in range(n):
                group[f"more{number}"] = 0.0
        elif how == 2:
            for number in range(n):
                group.attrs[f"more{number}"] = 0.0
        elif how == 3:
            for _ in range(min(n, DEEPEST)):
                group = group.create_group("a")
        else:
            group.create_group("a" * min(n, 60_000))
    return held.getvalue()


def npy(data: bytes, rng: Random, n: int) -> bytes:
    """Repeat an array, or lengthen its header."""
    if rng.random() < 0.5:
        return data * n
    length = int.from_bytes(data[8:10], "little")
    head = data[10 : 10 + length].rstrip()
    head = (head[:-1] + b" " * n + b"}\n")[:60_000]
    return data[:8] + len(head).to_bytes(2, "little") + head + data[10 + length :]


def table(data: bytes, rng: Random, n: int) -> bytes:
    """Give a table of TensorFlow's n more entries, or grow a value of it."""
    from rnnconvert.containers import sorted_table

    entries = {name: bytes(value) for name, value in dict(sorted_table.read(memoryview(data), "table")).items()}
    key = rng.choice(sorted(entries))
    if rng.random() < 0.5:
        entries |= {key + b"/%08d" % number: entries[key] for number in range(n)}
    else:
        entries[key] = protobuf(entries[key], rng, n)
    return sorted_table.build(sorted(entries.items()))


def plain(data: bytes, rng: Random, n: int) -> bytes:
    """Repeat some of the bytes."""
    begin = rng.randrange(max(1, len(data)))
    end = begin + rng.choice((1, 4, 8, 16, 64))
    return data[:end] + data[begin:end] * n + data[end:]


BY_SUFFIX: dict[str, Grower] = {
    ".json": text, ".xml": text, ".param": text, ".h": text, ".nam": text, ".aidax": text, ".onnxtxt": text, ".onnx": protobuf,
    ".pb": protobuf, ".mlmodel": protobuf, ".msgpack": msgpack, ".index": table, ".pdmodel": protobuf,
    ".zip": zipped, ".h5": hdf5, ".npy": npy, ".safetensors": safetensors, ".pkl": pickle,
}  # fmt: skip


def _grower(name: str, data: bytes) -> Grower:
    return BY_SUFFIX.get(suffix(name, data), plain)


def grown(files: dict[str, bytes], seed: int, n: int) -> dict[str, bytes]:
    """Return the files of a checkpoint with one thing in one of them there n times: which, a seed decides."""
    rng = Random(seed)
    name = rng.choice(sorted(files))
    return {**files, name: _grower(name, files[name])(files[name], rng, n)}
