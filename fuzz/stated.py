"""What a file states, exchanged: every number, list of numbers and name of a type for what no array has.

A file's form decides where such statements stand; `variants` yields the file once for each place and each value. Lengths and checksums
around them are right, so that the reader meets the statement itself. `python -m fuzz.stated` tries all of them, for files of every kind.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import pickletools
import re
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import rnnconvert as rc
from fuzz.execution import put
from fuzz.mutators import _fields, _message, suffix
from fuzz.seeds import Seed
from rnnconvert.core.errors import RnnConvertError

NUMBERS: tuple[object, ...] = (0, -1, 1 << 31, (1 << 63) - 1, 1 << 64, 10**400, 1.5, 1e308, None, True, "3", "float31", [], [3], [[3]], {})
"""What may stand in place of a number, where a file can say it."""
LISTS: tuple[object, ...] = (
    [],
    [0],
    [0, 0, 0],
    [-1, -1],
    [1] * 100,
    [1 << 62, 1 << 62, 4],
    [0, 1 << 62],
    [10**400],
    [1.5, 2],
    [[2], 3],
    ["3", "4"],
    [None, None],
    7,
)
"""What may stand in place of a shape."""
TYPES: tuple[object, ...] = (
    "float31", "O", "|O", "V8", "<U4", "f16", "complex64", "bool", "datetime64", "", "F8_E4M3", "I4", "object", "str", 5, None, [], {},
)  # fmt: skip
"""What may stand in place of the name of a type, or of any word."""
LONGEST = 40
"""Of a longer list only the first and the last element are exchanged."""

Variants = Callable[[bytes], Iterator[bytes]]


def values(tree: Any) -> Iterator[Any]:
    """Yield a tree of dictionaries and lists with one statement exchanged in each."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from ({**tree, key: changed} for changed in values(value))
    elif isinstance(tree, list):
        if tree and all(isinstance(item, (int, float)) for item in tree):
            yield from LISTS
        places = range(len(tree)) if len(tree) <= LONGEST else (0, len(tree) - 1)
        for at in places:
            yield from ([*tree[:at], changed, *tree[at + 1 :]] for changed in values(tree[at]))
    elif isinstance(tree, str):
        yield from TYPES
    elif isinstance(tree, (int, float)):
        yield from NUMBERS


def text(data: bytes) -> Iterator[bytes]:
    """Exchange the values of JSON; the numbers and quoted words of any other text."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        for match in re.finditer(rb"-?\d+(?:\.\d+)?|(?<=\")\w+(?=\")", data):
            for value in (*NUMBERS[:8], "1," * 99 + "1", *TYPES[:4]):
                yield data[: match.start()] + str(value).encode() + data[match.end() :]
        return
    yield from (json.dumps(changed).encode() for changed in values(tree))


def safetensors(data: bytes) -> Iterator[bytes]:
    length = int.from_bytes(data[:8], "little")
    for head in text(data[8 : 8 + length]):
        yield len(head).to_bytes(8, "little") + head + data[8 + length :]


def npy(data: bytes) -> Iterator[bytes]:
    start = 12 if data[6] > 1 else 10
    length = int.from_bytes(data[8:start], "little")
    head = data[start : start + length]
    shape = re.search(rb"'shape': (\(.*?\))", head)
    element = re.search(rb"'descr': ('.*?')", head)
    if shape is None or element is None:
        return
    for match, ones in ((shape, [tuple(value) if isinstance(value, list) else value for value in LISTS]), (element, TYPES)):
        for value in ones:
            changed = head[: match.start(1)] + repr(value).encode() + head[match.end(1) :]
            yield data[:8] + len(changed).to_bytes(start - 8, "little") + changed + data[start + length :]


def protobuf(data: bytes) -> Iterator[bytes]:
    """Exchange the numbers of a message and of those inside it, and let a field be there a hundred times."""
    fields = _fields(data) or []
    places = range(len(fields)) if len(fields) <= LONGEST else (*range(LONGEST // 2), *range(len(fields) - LONGEST // 2, len(fields)))
    for at in places:
        tag, content = fields[at]
        if isinstance(content, int):
            changed: Iterator[Any] = iter((0, -1, 1 << 31, (1 << 63) - 1, 255))
        elif tag & 7 == 2:
            changed = protobuf(content) if len(content) < 4096 else iter(())
        else:
            changed = iter((b"\0" * len(content), b"\xff" * len(content)))
        yield from (_message([*fields[:at], (tag, value), *fields[at + 1 :]]) for value in changed)
        yield _message([*fields[:at], *[fields[at]] * 100, *fields[at + 1 :]])


def zipped(data: bytes) -> Iterator[bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    for at, (name, content) in enumerate(entries):
        for changed in variants(name, content):
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w") as archive:
                for number, (entry, inside) in enumerate(entries):
                    archive.writestr(zipfile.ZipInfo(entry), changed if number == at else inside)
            yield out.getvalue()


def msgpack(data: bytes) -> Iterator[bytes]:
    """Exchange values, those of the arrays that Flax puts into extensions, too."""
    import msgpack as library

    def opened(code: int, content: bytes) -> Any:
        return {"extension": code, "content": library.unpackb(content, strict_map_key=False, raw=False)}

    def closed(tree: Any) -> Any:
        if isinstance(tree, dict) and [*tree] == ["extension", "content"]:
            code = tree["extension"] if tree["extension"] in range(128) else 1
            return library.ExtType(code, library.packb(closed(tree["content"])))
        if isinstance(tree, dict):
            return {key: closed(value) for key, value in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [closed(item) for item in tree]
        return 2.0**70 if isinstance(tree, int) and not -(1 << 63) <= tree < 1 << 64 else tree

    tree = library.unpackb(data, strict_map_key=False, raw=False, ext_hook=opened)
    yield from (library.packb(closed(changed)) for changed in values(tree))


PICKLED = (b"K\0", b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"\x8a\xa7" + b"\x01" * 167, b"G?\xf8" + bytes(6), b"N",
           b"\x88", b"X\1\0\0\x003", b"]", b"}", b")", b"(" + b"K\1" * 100 + b"t")  # fmt: skip
"""Instructions of a pickle in place of one that makes a number."""


def pickle(data: bytes) -> Iterator[bytes]:
    try:
        parsed = [(op, argument, at or 0) for op, argument, at in pickletools.genops(data)]
    except ValueError:  # joblib puts the bytes of arrays between the instructions
        return
    places = [at for _, _, at in parsed] + [parsed[-1][2] + 1]
    for (op, argument, at), end in zip(parsed, places[1:], strict=True):
        ones: Sequence[bytes] = ()
        if op.name in ("BININT", "BININT1", "BININT2", "LONG1", "INT", "LONG"):
            ones = PICKLED
        elif op.name in ("BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINSTRING") and re.fullmatch(r"[<>|=]?[a-zA-Z]?\d?", str(argument)):
            texts = [kind.encode() for kind in TYPES if isinstance(kind, str)]
            ones = [b"X" + len(text).to_bytes(4, "little") + text for text in texts] + [b"N", b"K\5", b"]"]
        yield from (data[:at] + stated + data[end:] for stated in ones)


def table(data: bytes) -> Iterator[bytes]:
    from rnnconvert.containers import sorted_table

    entries = {name: bytes(value) for name, value in dict(sorted_table.read(memoryview(data), "table")).items()}
    for key, content in entries.items():
        for changed in protobuf(content):
            yield sorted_table.build(sorted({**entries, key: changed}.items()))


def hdf5(data: bytes) -> Iterator[bytes]:
    """Exchange a dataset for others, and the value of an attribute."""
    import h5py
    import numpy as np

    kinds: list[Any] = [np.zeros(shape, np.float32) for shape in ((), (0,), (0, 5), (2,) * 10, (1,) * 32, (7,))]
    kinds += [h5py.Empty("f4"), "text", np.zeros(3, "S5"), np.zeros(3, bool), np.zeros(3, np.complex64), np.zeros(3, "V8")]
    kinds += [np.zeros(3, [("a", "f4"), ("b", "i4")]), np.zeros((3, 3), np.longdouble), np.zeros((3, 3), ">f2")]

    def paths(file: Any) -> list[tuple[str, str]]:
        places: list[tuple[str, str]] = [("/", name) for name in file.attrs]

        def visit(path: str, item: Any) -> None:
            places.extend((path, name) for name in item.attrs)
            if isinstance(item, h5py.Dataset):
                places.append((path, ""))

        file.visititems(visit)
        return places

    with h5py.File(io.BytesIO(data), "r") as file:
        places = paths(file)
    for (path, attribute), kind in itertools.product(places, kinds):
        held = io.BytesIO(data)
        with h5py.File(held, "r+") as file:
            if attribute:
                file[path].attrs[attribute] = kind
            else:
                attributes = dict(file[path].attrs)
                del file[path]
                file[path] = kind
                file[path].attrs.update(attributes)
        yield held.getvalue()


def words(data: bytes) -> Iterator[bytes]:
    """Exchange each small integer of four or eight bytes that is not among the numbers of an array."""
    places = itertools.chain(range(0, min(len(data), 1024)), range(max(1024, len(data) - 1024), len(data) - 3))
    for at in places:
        for width in (4, 8):
            old = int.from_bytes(data[at : at + width], "little")
            if old < 256 and at + width <= len(data) and data[at]:
                for number in (0, -1, 1 << 31, (1 << 63) - 1):
                    yield data[:at] + (number & (1 << 8 * width) - 1).to_bytes(width, "little") + data[at + width :]


BY_SUFFIX: dict[str, Variants] = {
    ".json": text, ".xml": text, ".param": text, ".h": text, ".nam": text, ".aidax": text, ".onnxtxt": text, ".yaml": text,
    ".onnx": protobuf, ".pb": protobuf, ".mlmodel": protobuf, ".pdmodel": protobuf, ".meta": protobuf, ".msgpack": msgpack, ".mpk": msgpack,
    ".index": table, ".zip": zipped, ".h5": hdf5, ".hdf5": hdf5, ".jld2": words, ".npy": npy, ".eqx": npy, ".safetensors": safetensors,
    ".pkl": pickle, ".pdparams": pickle,
}  # fmt: skip


def variants(name: str, data: bytes) -> Iterator[bytes]:
    """Yield a file with one statement exchanged in each; of a form that is not known, its integers."""
    try:
        yield from BY_SUFFIX.get(suffix(name, data), words)(data)
    except (ValueError, IndexError, KeyError, OverflowError):  # the form of another file under that name
        yield from words(data)


def cases(seed: Seed) -> Iterator[dict[str, bytes]]:
    """Yield the files of a checkpoint with one statement exchanged in one of them."""
    for name, data in seed.files.items():
        yield from ({**seed.files, name: changed} for changed in variants(name, data))


def ended(seed: Seed, files: dict[str, bytes], folder: Path) -> str:
    """Read a case as a user does; return its documented end. Raises whatever else happens."""
    path = put(folder / "case", files, seed.entry)
    try:
        str(rc.inspect(path))
        checkpoint = rc.load(path, seed.format)
    except RnnConvertError as error:
        assert error.exit_code in (2, 3, 4, 5), error.exit_code
        return error.kind
    return "read" if checkpoint.layers else "no layers"


def main(arguments: Sequence[str] | None = None) -> int:
    from fuzz import seeds
    from rnnconvert.containers import apart

    parser = argparse.ArgumentParser(prog="python -m fuzz.stated", description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=[], help="only these kinds")
    parser.add_argument("--each", type=int, default=1, help="try one case of so many")
    chosen = parser.parse_args(arguments)
    apart.is_possible = lambda: False  # a process for each of the HDF5 files takes longer than the rest
    ends: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "seeds").mkdir()
        for seed in seeds.build(folder / "seeds", corpus=False, kinds=chosen.kinds):
            for files in itertools.islice(cases(seed), 0, None, chosen.each):
                try:
                    ends[f"{seed.kind}: {ended(seed, files, folder)}"] += 1
                except Exception as error:
                    place = traceback.extract_tb(error.__traceback__)[-1]
                    where = f"{Path(place.filename).name}:{place.lineno}"
                    what = f"{seed.kind} {seed.entry}: {type(error).__name__}: {str(error)[:80]} at {where}"
                    faults[what] += 1
                    if faults[what] == 1:
                        print(what, traceback.format_exc()[-1500:], flush=True)
    for what, count in [*sorted(ends.items()), *faults.items()]:
        print(f"{count:7} {what}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
