"""Changes to files that keep what a reader checks first: checksums, lengths of messages, offsets of entries.

Every mutator takes bytes and a `random.Random`, and returns bytes. Hypothesis and atheris come as such a `Random`, too, so
that they steer the same changes (fuzz.steering).
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import PurePath
from random import Random
from typing import Any

Mutator = Callable[[bytes, Random], bytes]

INTEGERS = (0, 1, 2, 3, 7, 8, 16, 64, 127, 128, 255, 256, 4096, 0x7FFF, 0xFFFF, 1 << 16, 1 << 24, 0x7FFFFFFF,
            0x80000000, 0xFFFFFFFF, 1 << 32, (1 << 53) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
"""Numbers at which sizes, signs and widths turn."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1 << 31, 1 << 63, 1 << 80, 0.5, 1e308, "", "x", "lstm", "GRU", "../x", "\0", "é", [], {}, [[]],
    [1], {"a": 1}, ["tanh"], "9" * 400, [0] * 50, -(1 << 63),
)  # fmt: skip
"""What may stand where JSON or a pickle has something else."""


# Plain bytes --------------------------------------------------------------------------------------------


def number(data: bytes, rng: Random, at: int | None = None) -> bytes:
    """Put an integer of 1, 2, 4 or 8 bytes somewhere."""
    width = rng.choice((1, 2, 4, 8))
    if len(data) < width:
        return data
    if at is None:
        at = rng.randrange(len(data) - width + 1)
        at -= at % rng.choice((1, width))
    old = int.from_bytes(data[at : at + width], "little")
    new = rng.choice((rng.choice(INTEGERS), old + 1, old - 1, len(data) - at, len(data), old * 2, old ^ 1 << rng.randrange(8 * width)))
    order = "little" if rng.random() < 0.8 else "big"
    return data[:at] + (new & (1 << 8 * width) - 1).to_bytes(width, order) + data[at + width :]  # type: ignore[arg-type]


def flip(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] if rng.random() < 0.5 else data[:at] + data[at + 1 + rng.randrange(min(64, len(data) - at)) :]


def repeat(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    part = data[at : at + 1 + rng.randrange(64)]
    to = rng.randrange(len(data))
    return data[:to] + part * rng.choice((1, 1, 2, 20)) + data[to:]


def overwrite(data: bytes, rng: Random) -> bytes:
    at, of = rng.randrange(len(data)), rng.randrange(len(data))
    part = data[of : of + 1 + rng.randrange(32)]
    return data[:at] + part + data[at + len(part) :]


def plain(data: bytes, rng: Random) -> bytes:
    """Change bytes without regard to what they mean."""
    if not data:
        return b"\0"
    return rng.choice((number, number, number, flip, flip, cut, repeat, overwrite))(data, rng)


# Values -------------------------------------------------------------------------------------------------


def value(tree: Any, rng: Random, depth: int = 0) -> Any:
    """Change one place of a tree of dictionaries and lists."""
    inside = tree and isinstance(tree, (dict, list))
    if not inside or depth > 40 or rng.random() < 0.15:
        which = rng.randrange(4)
        if inside and which == 0:
            return [tree] if rng.random() < 0.5 else {"a": tree}
        if isinstance(tree, (int, float)) and not isinstance(tree, bool) and which < 3:
            return rng.choice((tree + 1, tree - 1, -tree, rng.choice(INTEGERS), -rng.choice(INTEGERS)))
        if isinstance(tree, str) and tree and which < 2:
            return plain(tree.encode(), rng).decode("utf-8", "replace")
        if which == 3 and rng.random() < 0.02:
            deep: Any = 1
            for _ in range(rng.choice((100, 1100))):
                deep = [deep]
            return deep
        return rng.choice(VALUES)
    if isinstance(tree, dict):
        keys = list(tree)
        key = rng.choice(keys)
        how = rng.random()
        if how < 0.1:
            return {name: value for name, value in tree.items() if name != key}
        if how < 0.2:
            return {**tree, plain(str(key).encode(), rng).decode("utf-8", "replace"): tree[key]}
        if how < 0.25:
            return {**tree, key: tree[rng.choice(keys)]}
        return {**tree, key: value(tree[key], rng, depth + 1)}
    at = rng.randrange(len(tree))
    how = rng.random()
    if how < 0.1:
        return tree[:at] + tree[at + 1 :]
    if how < 0.2:
        return tree[:at] + [tree[at]] * rng.choice((2, 2, 30)) + tree[at + 1 :]
    return [*tree[:at], value(tree[at], rng, depth + 1), *tree[at + 1 :]]


def text(data: bytes, rng: Random) -> bytes:
    """Change JSON at one of its values, or any text at its words."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        words = data.split(b" ")
        at = rng.randrange(len(words))
        words[at] = rng.choice((b"", words[rng.randrange(len(words))], str(rng.choice(INTEGERS)).encode(), plain(words[at] or b"0", rng)))
        return b" ".join(words) if rng.random() < 0.8 else plain(data, rng)
    return plain(data, rng) if rng.random() < 0.1 else json.dumps(value(tree, rng)).encode()


# Containers ---------------------------------------------------------------------------------------------


def npy(data: bytes, rng: Random) -> bytes:
    """Change the header of an array: its text, with its length made right."""
    if data[:6] != b"\x93NUMPY" or rng.random() < 0.1:
        return plain(data, rng)
    wide = data[6] > 1
    start = 12 if wide else 10
    length = int.from_bytes(data[8:start], "little")
    head = data[start : start + length]
    if rng.random() < 0.5:
        old = rng.choice((b"<f4", b"False", b"(", b",", b"'shape'", b"'descr'", b")"))
        new = rng.choice((b"<f8", b"|O", b">f4", b"True", b"((", b",,", b"<f2", b"|V2", b"<U9", b"-1", str(rng.choice(INTEGERS)).encode()))
        head = head.replace(old, new, 1)
    else:
        head = plain(head, rng)
    return data[:8] + len(head).to_bytes(start - 8, "little", signed=False) + head + data[start + length :] if len(head) < 65536 else data


def pickle(data: bytes, rng: Random) -> bytes:
    """Drop, repeat, exchange or alter instructions."""
    try:
        places = [at for _, _, at in pickletools.genops(data)]
    except Exception:  # damaged before, by another change
        return plain(data, rng)
    end = next((at + 1 for op, _, at in pickletools.genops(data) if op.name == "STOP" and at is not None), len(data))
    parts = [data[at:to] for at, to in zip(places, [*places[1:], end], strict=True)]
    at = rng.randrange(len(parts))
    how = rng.randrange(6)
    if how == 0:
        del parts[at]
    elif how == 1:
        parts[at:at] = [parts[at]] * rng.choice((1, 2, 50))
    elif how == 2:
        other = rng.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
    elif how == 3:
        parts[at] = rng.choice((b"N", b"\x88", b")", b"]", b"}", b"R", b"b", b"0", b"2", b"t", b"s", b"u", b"a", b"e",
            b"(", b"\x85", b"\x86",
                                b"K\x07", b"J\xff\xff\xff\x7f", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"X\1\0\0\0x",
                                    b"Q", b"\x81", b"."))  # fmt: skip
    elif how == 4:
        wanted = [place for place, part in enumerate(parts) if part[:1] in b"KMJ\x8aXB\x8cqhrjc"]
        at = rng.choice(wanted) if wanted else at
        parts[at] = parts[at][:1] + plain(parts[at][1:], rng)
    else:
        parts[at] = rng.choice(parts)
    return b"".join(parts) + data[end:]


def zipped(data: bytes, rng: Random) -> bytes:
    """Change an entry of a zip archive, or the list of its entries; checksums are right again after it."""
    if rng.random() < 0.1:
        return plain(data, rng)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(info, archive.read(info)) for info in archive.infolist()]
    except Exception:  # damaged before, by another change
        return plain(data, rng)
    if not entries:
        return plain(data, rng)
    at = rng.randrange(len(entries))
    small = [place for place, (_, inside) in enumerate(entries) if not inside[:1].isdigit() and len(inside) != 4]
    if small and rng.random() < 0.5:
        at = rng.choice(small)
    info, content = entries[at]
    name, how = info.filename, rng.random()
    if how < 0.7:
        content = BY_SUFFIX.get(suffix(name, content), plain)(content, rng)
    elif how < 0.8:
        name = (
            plain(name.encode(), rng).decode("utf-8", "replace") if rng.random() < 0.7 else entries[rng.randrange(len(entries))][0].filename
        )
    elif how < 0.85:
        entries.append((info, content))
    elif how < 0.9:
        content = rng.choice(entries)[1]
    out = io.BytesIO()
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for place, (entry, inside) in enumerate(entries):
            if place == at and how >= 0.95:
                continue
            mine = place == at
            written = zipfile.ZipInfo(name if mine else entry.filename)
            packed = entry.compress_type if not mine or how < 0.9 else rng.choice((0, 8))
            archive.writestr(written, content if mine else inside, packed if packed in (0, 8) else 0)
    return out.getvalue()


def safetensors(data: bytes, rng: Random) -> bytes:
    """Change the header, with its length made right."""
    length = int.from_bytes(data[:8], "little")
    if rng.random() < 0.15 or length > len(data) - 8:
        return plain(data, rng)
    head = text(data[8 : 8 + length], rng)
    return len(head).to_bytes(8, "little") + head + data[8 + length :]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError


def _unsigned(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _fields(data: bytes) -> list[tuple[int, Any]] | None:
    """Return the fields of a message, as (tag, number or bytes); None for bytes that are not a message."""
    fields: list[tuple[int, Any]] = []
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            kind = tag & 7
            if not tag >> 3 or tag >> 3 > 5000:
                return None
            if kind == 0:
                number, at = _varint(data, at)
                fields.append((tag, number))
                continue
            if kind not in (1, 2, 5):
                return None
            size = 8 if kind == 1 else 4
            if kind == 2:
                size, at = _varint(data, at)
            if at + size > len(data):
                return None
            fields.append((tag, data[at : at + size]))
            at += size
    except (IndexError, ValueError):
        return None
    return fields


def _message(fields: list[tuple[int, Any]]) -> bytes:
    out = bytearray()
    for tag, value in fields:
        out += _unsigned(tag)
        if isinstance(value, int):
            out += _unsigned(value)
        else:
            out += _unsigned(len(value)) + value if tag & 7 == 2 else value
    return bytes(out)


def protobuf(data: bytes, rng: Random, depth: int = 0) -> bytes:
    """Change one field of a message or of a message inside it; the lengths around it are right again."""
    fields = _fields(data) if len(data) < 1 << 20 else None
    if not fields or depth > 12 or (depth == 0 and rng.random() < 0.05):
        return plain(data, rng) if data else b"x"
    at = rng.randrange(len(fields))
    tag, value = fields[at]
    how = rng.random()
    if how < 0.08:
        del fields[at]
    elif how < 0.18:
        fields[at:at] = [fields[at]] * rng.choice((1, 1, 40))
    elif how < 0.24:
        other = rng.randrange(len(fields))
        fields[at], fields[other] = ((tag, fields[other][1]) if type(fields[other][1]) is type(value) else fields[other], fields[at])
    elif how < 0.28:
        fields[at] = (tag & 7 | rng.randrange(1, 32) << 3, value)
    elif how < 0.31 and isinstance(value, bytes) and tag & 7 == 2:
        for _ in range(rng.choice((3, 120))):
            value = _message([(tag, value)])
        fields[at] = (tag, value)
    elif isinstance(value, int):
        fields[at] = (tag, rng.choice((rng.choice(INTEGERS), value + 1, -1, value ^ 1 << rng.randrange(64))))
    else:
        fields[at] = (tag, protobuf(value, rng, depth + 1) if tag & 7 == 2 else plain(value, rng)[: len(value)].ljust(len(value), b"\0"))
    return _message(fields)


_SIGNS = (b"TREE", b"HEAP", b"SNOD", b"GCOL", b"OHDR", b"FRHP", b"FHDB", b"BTHD", b"BTLF", b"FSHD", b"OCHK")


def hdf5(data: bytes, rng: Random) -> bytes:
    """Change numbers where the library keeps its own: near signatures, addresses, sizes, messages of object headers."""
    how = rng.random()
    if how < 0.15:
        return plain(data, rng)
    if how < 0.4:
        places = []
        for sign in _SIGNS:
            at = data.find(sign)
            while at >= 0:
                places.append(at)
                at = data.find(sign, at + 1)
        if places:
            at = rng.choice(places) + rng.randrange(64)
            return number(data, rng, at) if at + 8 <= len(data) else data
    # An address or a size: eight bytes of which the upper ones are zero.
    for _ in range(50):
        at = rng.randrange(max(1, len(data) - 8)) & ~7
        old = int.from_bytes(data[at : at + 8], "little")
        if 0 < old < 1 << 20:
            new = rng.choice(
                (rng.choice(INTEGERS), rng.randrange(len(data)) & ~7, old + 8, old - 8, len(data), old ^ 1 << rng.randrange(24))
            )
            return data[:at] + (new & (1 << 64) - 1).to_bytes(8, "little") + data[at + 8 :]
    return number(data, rng)


_CODES = bytes((0x80, 0x81, 0x8F, 0x90, 0x9F, 0xA0, 0xA1, 0xBF, 0xC0, 0xC1, 0xC2, 0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9,
    0xCA, 0xCB, 0xCC, 0xCF,
                0xD0, 0xD3, 0xD4, 0xD5, 0xD8, 0xD9, 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF, 0xE0, 0xFF, 0x00, 0x7F))  # fmt: skip


def msgpack(data: bytes, rng: Random) -> bytes:
    """Put heads of values where others are, in the first part of the file and anywhere."""
    if rng.random() < 0.4 or len(data) < 4:
        return plain(data, rng)
    at = rng.randrange(min(len(data), rng.choice((16, 200, len(data)))))
    code = bytes([rng.choice(_CODES)])
    if rng.random() < 0.3:
        code += rng.choice(INTEGERS).to_bytes(8, "big")[-rng.choice((1, 2, 4)) :]
    return data[:at] + code * rng.choice((1, 1, 1, 100)) + data[at + (len(code) if rng.random() < 0.5 else 0) :]


def bson(data: bytes, rng: Random) -> bytes:
    """Change bytes, and make the length of the document right again."""
    data = plain(data, rng)
    return struct.pack("<i", len(data)) + data[4:] if len(data) > 4 and rng.random() < 0.8 else data


def words(data: bytes, rng: Random) -> bytes:
    """Change one of the aligned integers that such files are made of, preferably a small one."""
    if rng.random() < 0.3 or len(data) < 8:
        return plain(data, rng)
    for _ in range(20):
        width = rng.choice((4, 8))
        at = rng.randrange(len(data) - width + 1)
        old = int.from_bytes(data[at : at + width], "little")
        if old < 4096:
            new = rng.choice((rng.choice(INTEGERS), old + 1, old - 1, -1, rng.randrange(12)))
            return data[:at] + (new & (1 << 8 * width) - 1).to_bytes(width, "little") + data[at + width :]
    return plain(data, rng)


def table(data: bytes, rng: Random) -> bytes:
    """Change a value of a table of TensorFlow's; its blocks and checksums are made anew."""
    from rnnconvert.containers import sorted_table

    if rng.random() < 0.2:
        return plain(data, rng)
    try:
        entries = dict(sorted_table.read(memoryview(data), "table"))
    except Exception:  # damaged before, by another change
        return plain(data, rng)
    key = rng.choice(list(entries))
    if rng.random() < 0.15:
        entries[plain(key, rng)] = entries.pop(key)
    else:
        entries[key] = memoryview(protobuf(bytes(entries[key]), rng))
    return sorted_table.build([(name, bytes(value)) for name, value in sorted(entries.items())])


BY_SUFFIX: dict[str, Mutator] = {
    ".npy": npy, ".pkl": pickle, ".json": text, ".h5": hdf5, ".keras": zipped, ".npz": zipped, ".zip": zipped,
    ".safetensors": safetensors, ".onnx": protobuf, ".pb": protobuf, ".meta": protobuf, ".msgpack": msgpack, ".bson": bson,
    ".t7": words, ".params": words, ".pdparams": pickle, ".onnxtxt": text, ".index": table, ".hdf5": hdf5, ".jld2": hdf5, ".eqx": npy,
}  # fmt: skip


_BEGINNINGS = {
    ".zip": re.compile(rb"PK"),
    ".h5": re.compile(rb"\x89HDF\r\n\x1a\n"),
    ".npy": re.compile(rb"\x93NUMPY"),
    ".safetensors": re.compile(rb".{4}\0{4}\{", re.S),
    ".pkl": re.compile(rb"\x80[\0-\x05]"),
    ".json": re.compile(rb"[{\[]"),
}
"""How files begin, by the ending of their form; the surest first."""


def suffix(name: str, data: bytes) -> str:
    """Return the ending of the form that bytes have, whatever their name; for others that of the name."""
    return next((end for end, begins in _BEGINNINGS.items() if begins.match(data)), PurePath(name).suffix)


def mutated(name: str, data: bytes, rng: Random) -> bytes:
    """Return the file after one to four changes, most often one."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 4))):
        try:
            data = BY_SUFFIX.get(suffix(name, data), plain)(data, rng) or b"\0"
        except (ValueError, IndexError, OverflowError, RecursionError, struct.error):  # nothing left of that structure
            data = plain(data, rng) or b"\0"
    return data
