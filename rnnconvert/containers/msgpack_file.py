"""Flax's msgpack files: trees of arrays, read as views of the mapped file and written piece by piece.

Our own code, because the library's reader copies each array and holds the whole file.
Source: flax/serialization.py (0.12.8), msgpack_serialize, and https://github.com/msgpack/msgpack, spec.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np

from rnnconvert.containers.files import map_file, replacing, view, write_pieces
from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import BFLOAT16, Array, nbytes
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.limits import NESTING
from rnnconvert.core.malformed import malformed
from rnnconvert.core.names import checked_name, named

MAX_ARRAY = 2**31 - 1
"""The most bytes of one array that flax's own writer puts in one piece."""

_ARRAY, _SCALAR = 1, 3  # flax/serialization.py, _MsgpackExtType
_CHUNKED = "__msgpack_chunked_array__"
_NAMES = (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex64", "complex128",
)  # fmt: skip
_TYPES = {**{name: np.dtype(name).newbyteorder("<") for name in _NAMES}, "bfloat16": BFLOAT16}


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a dictionary whose first key is text."""
    skip = {0xDE: 3, 0xDF: 5}.get(head[0] if head else 0, 1)
    return (
        head[:1] > b"\x80"
        and (head[0] <= 0x8F or skip > 1)
        and head[skip : skip + 1] != b""
        and (0xA1 <= head[skip] <= 0xBF or head[skip] in (0xD9, 0xDA))
    )


def read(path: str | os.PathLike[str]) -> Stored:
    """Return the arrays of a tree, by their paths; metadata "unreadable" gives the reason for each one that is left out.

    Raises UnreadableError.
    """
    data = map_file(path)
    reader = _MsgpackReader(data, path)
    tree = reader.value()
    if not isinstance(tree, dict) or reader.at != data.size:
        raise UnreadableError(path, f"it is not a msgpack file with one dictionary: the first value ends at byte {reader.at}")
    return Stored(named(_leaves(tree, path), path), FileMetadata(unreadable=reader.unreadable))


def plain(path: str | os.PathLike[str]) -> tuple[Array, Any]:
    """Return the bytes of a file and the value in it: bytes are their place and length, lists are dictionaries by place.

    Raises UnreadableError.
    """
    data = map_file(path)
    reader = _MsgpackReader(data, path)
    tree = reader.value()
    if reader.at != data.size:
        raise UnreadableError(path, f"its first value ends at byte {reader.at}, but it has {data.size} bytes")
    return data, tree


def _leaves(tree: Any, path: object, above: str = "") -> Iterator[tuple[str, Array]]:
    for key, value in tree.items():
        name = checked_name(f"{above}/{key}" if above else str(key), path)
        if isinstance(value, dict):
            if _CHUNKED in value:
                yield name, _joined(value, path, name)
            else:
                yield from _leaves(value, path, name)
        elif isinstance(value, np.ndarray):
            yield name, value


def _joined(parts: Mapping[str, Any], path: object, name: str) -> Array:
    """Return a large array, which flax writes in chunks. Source: flax/serialization.py, _unchunk."""
    with malformed(lambda what: UnreadableError(path, f"the chunks of {name!r} do not fit together: {what}")):
        shape = tuple(int(parts["shape"][str(index)]) for index in range(len(parts["shape"])))
        chunks = [parts["chunks"][str(index)] for index in range(len(parts["chunks"]))]
        return np.concatenate(chunks).reshape(shape)


class _MsgpackReader:
    """One value after another; what is neither a dictionary, text, a number nor an array is passed over as None."""

    def __init__(self, data: Array, path: object) -> None:
        self.at = 0
        self.unreadable: dict[str, str] = {}
        self._data = data.data
        self._path = path
        self._reading = charging(data.size)

    def _fail(self, problem: str) -> UnreadableError:
        return UnreadableError(self._path, f"{problem} at byte {self.at}", "It is truncated, damaged or not a msgpack file.")

    def _take(self, size: int) -> bytes:
        start = self._skip(size)
        return bytes(self._data[start : self.at])

    def _skip(self, size: int) -> int:
        start = self.at
        if size > len(self._data) - start:
            raise self._fail(f"{size} bytes are announced, but only {len(self._data) - start} are there")
        self.at += size
        return start

    def _number(self, form: str) -> Any:
        return struct.unpack(">" + form, self._take(struct.calcsize(form)))[0]

    def value(self, depth: int = 0) -> Any:
        """Read the value that begins here."""
        if depth > NESTING:
            raise self._fail(f"values are nested more than {NESTING} deep")
        code = self._data[self._skip(1)]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code <= 0x9F:
            return self._many(code & 0x0F, code <= 0x8F, depth)
        if code <= 0xBF:
            return self._text(code & 0x1F)
        if code in _SIMPLE:
            return _SIMPLE[code]
        if code in _FIXED:
            return self._number(_FIXED[code])
        if code not in _SIZED:
            raise self._fail(f"unknown kind of value 0x{code:02x}")
        kind, form = _SIZED[code]
        size = self._number(form) if form else 1 << (code - 0xD4)
        if kind in ("list", "map"):
            return self._many(size, kind == "map", depth)
        if kind == "text":
            return self._text(size)
        if kind == "bytes":
            return self._bytes(size)
        return self._array(size)

    def _many(self, count: int, pairs: bool, depth: int) -> Any:
        result: dict[Any, Any] = {}
        values = 2 * count if pairs else count
        if values > len(self._data) - self.at:  # no value is shorter than a byte
            raise self._fail(f"{values} values are announced, but only {len(self._data) - self.at} bytes are there")
        self._reading.work(2 * values, self._path)
        for index in range(count):
            key = self.value(depth + 1) if pairs else str(index)
            if not isinstance(key, str | int):
                raise self._fail("a key is neither text nor a number")
            if key in result:
                raise self._fail(f"the key {key!r} appears twice")
            result[key] = self.value(depth + 1)
        return result

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise self._fail("text is not UTF-8") from None

    def _bytes(self, size: int) -> tuple[int, int]:
        return self._skip(size), size

    def _array(self, size: int) -> Any:
        """Read an extension: an array, packed as its shape, the name of its type and its bytes."""
        kind = self._number("b")
        end = self.at + size
        if kind not in (_ARRAY, _SCALAR):
            self._skip(size)
            return None
        self._skip(size)
        self._reading.work(20, self._path)
        everything, self._data, self.at = self._data, self._data[:end], end - size
        packed = self.value(NESTING - 2)
        inside, self._data, self.at = self.at, everything, end
        try:
            lengths, name, (start, length) = (packed[str(index)] for index in range(3))
            shape = tuple(lengths[str(index)] for index in range(len(lengths)))
        except (TypeError, LookupError, ValueError):
            raise self._fail("an array does not consist of a shape, a type and bytes") from None
        if not all(type(extent) is int for extent in shape) or inside != end:
            raise self._fail("an array does not consist of a shape, a type and bytes")
        dtype = _TYPES.get(name if isinstance(name, str) else "")
        where = f"the array at byte {start}"
        if dtype is None:
            self.unreadable[where] = f"elements of type {name} are not supported"
            return None
        raw = np.frombuffer(self._data[start : start + length], np.uint8)
        array = view(raw, 0, shape, dtype, self._path, where)
        if array.nbytes != length:
            raise self._fail(f"an array of {name} {shape[:8]} cannot have {length} bytes")
        return array


_SIMPLE: dict[int, Any] = {0xC0: None, 0xC2: False, 0xC3: True}
_FIXED = {0xCA: "f", 0xCB: "d", 0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q", 0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q"}
_SIZED = {
    0xC4: ("bytes", "B"),
    0xC5: ("bytes", "H"),
    0xC6: ("bytes", "I"),
    0xC7: ("array", "B"),
    0xC8: ("array", "H"),
    0xC9: ("array", "I"),
    **{code: ("array", "") for code in range(0xD4, 0xD9)},
    0xD9: ("text", "B"),
    0xDA: ("text", "H"),
    0xDB: ("text", "I"),
    0xDC: ("list", "H"),
    0xDD: ("list", "I"),
    0xDE: ("map", "H"),
    0xDF: ("map", "I"),
}


def write(path: str | os.PathLike[str], tree: Mapping[str, Any]) -> None:
    """Write a file that flax.serialization.msgpack_restore reads: nested dictionaries and arrays.

    Raises UsageError for an element type or an array that it cannot hold, or if nothing can be written there.
    """
    _check(path, tree, "")
    with replacing(path) as file:
        _put(file, tree)


def _check(path: object, tree: Mapping[str, Any], above: str) -> None:
    for key, value in tree.items():
        name = f"{above}/{key}" if above else key
        if isinstance(value, Mapping):
            _check(path, value, name)
        elif str(value.dtype.newbyteorder("=")) not in _TYPES:
            raise UsageError(f"{path}: a msgpack file of arrays cannot hold {name!r} of type {value.dtype}")
        elif nbytes(value) > MAX_ARRAY:
            raise UsageError(f"{path}: {name!r} is larger than {MAX_ARRAY} bytes, the limit for one array. Write a .npz instead")


def _put(file: IO[bytes], value: Any) -> None:
    if isinstance(value, Mapping):
        file.write(_head("map", len(value)))
        for key, inner in value.items():
            file.write(_text(key))
            _put(file, inner)
        return
    shape = b"".join([_head("list", len(value.shape)), *(_head("number", length) for length in value.shape)])
    about = _head("list", 3) + shape + _text(str(value.dtype.newbyteorder("="))) + _head("bytes", nbytes(value))
    size = len(about) + nbytes(value)
    if size in (1, 2, 4, 8, 16):
        file.write(bytes([0xD4 + size.bit_length() - 1]))
    else:
        file.write(_head("array", size))
    file.write(struct.pack("b", _ARRAY) + about)
    write_pieces(file, value)


def _text(text: str) -> bytes:
    raw = text.encode()
    return _head("text", len(raw)) + raw


_SHORTEST: dict[str, tuple[tuple[int, str], ...]] = {
    "number": ((0xCC, "B"), (0xCD, "H"), (0xCE, "I"), (0xCF, "Q")),
    "bytes": ((0xC4, "B"), (0xC5, "H"), (0xC6, "I")),
    "array": ((0xC7, "B"), (0xC8, "H"), (0xC9, "I")),
    "text": ((0xD9, "B"), (0xDA, "H"), (0xDB, "I")),
    "list": ((0xDC, "H"), (0xDD, "I")),
    "map": ((0xDE, "H"), (0xDF, "I")),
}
_INSIDE = {"number": (0x00, 0x80), "text": (0xA0, 32), "list": (0x90, 16), "map": (0x80, 16)}
"""Kinds whose small sizes stand in the first byte itself: where they begin, and how many there are."""


def _head(kind: str, size: int) -> bytes:
    """Return how a value of that kind and size begins, in as few bytes as msgpack takes."""
    first, count = _INSIDE.get(kind, (0, 0))
    if size < count:
        return bytes([first + size])
    code, form = next((code, form) for code, form in _SHORTEST[kind] if size < 1 << 8 * struct.calcsize(form))
    return struct.pack(f">B{form}", code, size)
