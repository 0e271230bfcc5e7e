"""MXNet's lists of arrays (`.params`, `mx.nd.save`), read as views of the mapped file and written piece by piece.

Source: src/ndarray/ndarray.cc (1.9.1), NDArray::Save, Load, LegacyLoad and LegacyTShapeLoad; include/mxnet/tuple.h,
TShape::Save; 3rdparty/mshadow/mshadow/base.h, TypeFlag. Everything is little-endian.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from rnnconvert.containers.files import map_file, replacing, view, write_pieces
from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import BFLOAT16, Array, PiecewiseArray
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.limits import AXES
from rnnconvert.core.names import named

MAGIC = struct.pack("<Q", 0x112)
"""The beginning of a list."""

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
"""The words that arrays begin with; the oldest arrays begin with the number of their axes instead."""
_TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("<f4"),
    1: np.dtype("<f8"),
    2: np.dtype("<f2"),
    3: np.dtype("u1"),
    4: np.dtype("<i4"),
    5: np.dtype("i1"),
    6: np.dtype("<i8"),
    7: np.dtype(np.bool_),
    8: np.dtype("<i2"),
    9: np.dtype("<u2"),
    10: np.dtype("<u4"),
    11: np.dtype("<u8"),
    12: BFLOAT16,
}
_FLAGS = {dtype: flag for flag, dtype in _TYPES.items()}
_DENSE = 0
_SPARSE = {1: ("row_sparse", 1), 2: ("csr", 2)}
"""Storage types that are not dense: their name, and how many arrays of indices accompany the values."""


class _ParamsReader:
    """A file's content from `at` on; every number is read only where the file has it."""

    def __init__(self, path: object) -> None:
        self.path = path
        self.data = map_file(str(path))
        self.at = 0
        self.spent = charging(self.data.size)

    def numbers(self, form: str) -> tuple[int, ...]:
        """Read the next numbers, as struct spells them."""
        size = struct.calcsize("<" + form)
        if size > self.data.size - self.at:
            self.fail(f"it ends at byte {self.data.size}, in the middle of the values that begin at byte {self.at}")
        values = struct.unpack("<" + form, bytes(self.data[self.at : self.at + size]))
        self.at += size
        return values

    def number(self, form: str) -> int:
        """Read the next number."""
        return self.numbers(form)[0]

    def shape(self, axes: int, form: str = "q") -> tuple[int, ...]:
        """Read the next shape of so many axes."""
        if not 0 <= axes <= AXES:
            self.fail(f"an array of {axes} axes begins before byte {self.at}")
        shape = self.numbers(f"{axes}{form}")
        if min(shape, default=0) < 0 or math.prod(max(length, 1) for length in shape) > 1 << 56:
            self.fail(f"an array before byte {self.at} has the shape {shape}")
        return shape

    def dtype(self) -> np.dtype[Any]:
        """Read the next element type."""
        flag = self.number("i")
        if flag not in _TYPES:
            self.fail(f"an array before byte {self.at} has elements of the unknown type {flag}")
        return _TYPES[flag]

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
        """Read the next numbers, as a view."""
        array = view(self.data, self.at, shape, dtype, self.path, name)
        self.at += math.prod(shape) * dtype.itemsize
        return array

    def fail(self, problem: str) -> None:
        """Raise UnreadableError."""
        raise UnreadableError(self.path, problem, "The file is truncated or damaged; fetch it again.")


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a list of arrays does."""
    return head[: len(MAGIC)] == MAGIC


def read(path: str | os.PathLike[str]) -> Stored:
    """Return every array by its name, with "arg:" and "aux:" before it where the file has them; by its number in a plain list.

    metadata has "unreadable" (why an array is left out: sparse ones, and those that hold nothing).

    Raises UnreadableError.
    """
    reader = _ParamsReader(path)
    if not looks_like(bytes(reader.data[: len(MAGIC)])):
        raise UnreadableError(path, "it does not begin as a list of MXNet's arrays does")
    _, _, count = reader.numbers("3Q")
    result: list[Array | None] = []
    unreadable: dict[int, str] = {}
    while len(result) < count:  # each takes bytes, so a false count ends with the file
        try:
            result.append(_array(reader, f"array {len(result)}"))
        except _LeftOutError as error:
            unreadable[len(result)] = str(error)
            result.append(None)
    names = [str(number) for number in range(len(result))]
    name_count = reader.number("Q")
    if name_count:
        if name_count != count:
            reader.fail(f"it has {count} arrays and {name_count} names")
        names = [_name(reader) for _ in result]
    if reader.at != reader.data.size:
        reader.fail(f"its names end at byte {reader.at}, but it has {reader.data.size} bytes")
    values = named(zip(names, result, strict=True), path)
    return Stored(
        {name: array for name, array in values.items() if array is not None},
        FileMetadata(unreadable={names[place]: why for place, why in unreadable.items()}),
    )


class _LeftOutError(Exception):
    """An array whose place is known cannot be read; never leaves this module."""


def _name(reader: _ParamsReader) -> str:
    length = reader.number("Q")
    if length > reader.data.size - reader.at:
        reader.fail(f"a name at byte {reader.at} should have {length} bytes")
    raw = bytes(reader.data[reader.at : reader.at + length])
    reader.at += length
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise UnreadableError(reader.path, f"a name in it is not valid text: {raw[:80]!r}") from None


def _array(reader: _ParamsReader, name: str) -> Array:
    """Return the next array. Raises _LeftOutError after one that cannot be read."""
    reader.spent.work(20, reader.path)
    magic = reader.number("I")
    if magic in (_V2, _V3):
        storage = reader.number("i")
        if storage in _SPARSE:
            _skip_sparse(reader, name, *_SPARSE[storage])
        if storage != _DENSE:
            reader.fail(f"{name} is stored as the unknown type {storage}")
        axes = reader.number("i")
        # Without numpy's shapes no axes mean no array, with them a scalar; there -1 means none.
        if axes == (-1 if magic == _V3 else 0):
            raise _LeftOutError("it was saved before it had a shape")
        shape = reader.shape(axes)
    else:
        axes = reader.number("i") if magic == _V1 else magic
        if axes == 0:
            raise _LeftOutError("it was saved before it had a shape")
        shape = reader.shape(axes, "q" if magic == _V1 else "I")
    reader.numbers("ii")  # the device that it was on
    return reader.array(shape, reader.dtype(), name)


def _skip_sparse(reader: _ParamsReader, name: str, kind: str, dense_arrays: int) -> NoReturn:
    """Read past an array that holds only some of its elements. Raises _LeftOutError."""
    stored = reader.shape(reader.number("i"))
    reader.shape(reader.number("i"))
    reader.numbers("ii")
    parts = [(stored, reader.dtype())]
    indices = []
    for _ in range(dense_arrays):
        dtype = reader.dtype()
        indices.append((reader.shape(reader.number("i")), dtype))
    for shape, dtype in [*parts, *indices]:
        reader.array(shape, dtype, name)
    raise _LeftOutError(f"it is sparse ({kind}). Make it dense in MXNet with array.tostype('default')")


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Write a file that mx.nd.load reads, with the headers that MXNet writes since 1.0; equal arrays give equal bytes.

    Where an array has no axes or no elements, all have the headers of numpy's shapes, which MXNet reads since 1.6.

    Raises UsageError if an element type or a name cannot be written, or the path cannot.
    """
    magic = _V3 if any(0 in array.shape or not array.shape for array in arrays.values()) else _V2
    heads = []
    for name, array in arrays.items():
        dtype = BFLOAT16 if array.dtype == BFLOAT16 else array.dtype.newbyteorder("<")
        if dtype not in _FLAGS:
            raise UsageError(f"{path}: a list of MXNet's arrays cannot hold {name!r} of type {array.dtype}")
        axes = len(array.shape)
        heads.append(struct.pack(f"<Iii{axes}qiii", magic, _DENSE, axes, *array.shape, 1, 0, _FLAGS[dtype]))
    try:
        names = [name.encode() for name in arrays]
    except UnicodeEncodeError as error:
        raise UsageError(f"{path}: a name is not valid text: {error.object[:80]!r}") from None
    with replacing(path) as file:
        file.write(MAGIC + struct.pack("<QQ", 0, len(heads)))
        for head, array in zip(heads, arrays.values(), strict=True):
            file.write(head)
            write_pieces(file, array)
        file.write(struct.pack("<Q", len(names)))
        for encoded in names:
            file.write(struct.pack("<Q", len(encoded)) + encoded)
