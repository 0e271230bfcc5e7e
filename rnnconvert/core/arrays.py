"""Arrays that are copied once: from a memory map, through a small buffer, into a file.

A checkpoint may be far larger than memory. So nothing here holds a whole matrix unless it must: an array that is still to be assembled is
anything with `shape`, `dtype` and `pieces()`, and a numpy array becomes one through `pieces`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import ml_dtypes
import numpy as np

try:
    from numpy.lib.array_utils import byte_bounds as byte_bounds
except ImportError:  # before numpy 2
    from numpy import byte_bounds as byte_bounds  # type: ignore[attr-defined,no-redef]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
FLOATS: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": BFLOAT16,
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
"""The element types that weights may have, by the name every framework gives them."""

PIECE_BYTES = 2 << 20
"""The bytes of a piece of a small array."""

_LARGE_PIECE_BYTES = 16 << 20
"""The bytes of a piece of a large array: a piece of a transposed one is read in runs of this fraction of its rows."""


def piece_bytes(total: int) -> int:
    """Return the bytes of a piece of an array of `total` bytes: several threads share even a small one.

    Measured on 1.4 GB that are transposed, by medians: pieces of 16 MiB take 1.3 s, of 8 MiB 1.6 s, of 4 MiB 1.9 s, of 32 MiB 1.6 s.
    """
    return min(_LARGE_PIECE_BYTES, max(PIECE_BYTES, total // 4))


def widest(dtypes: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the narrowest element type that holds every number of these types exactly."""
    distinct = set(dtypes)
    if len(distinct) == 1:
        return distinct.pop()
    native = {dtype.newbyteorder("=") for dtype in distinct}
    if len(native) == 1:
        return native.pop()
    # numpy knows no common type of float16 and bfloat16: float32 holds both.
    return FLOATS["float64" if FLOATS["float64"] in native else "float32"]


def epsilon(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of an element type."""
    return float(ml_dtypes.finfo(dtype).eps)


def is_float(array: Array) -> bool:
    """Return whether an array's elements are of a type that weights may have, in either byte order."""
    return str(array.dtype.newbyteorder("=")) in FLOATS


def identical(first: Array, other: Array) -> bool:
    """Return whether two arrays are of one type and shape and equal in every bit."""
    return (first.dtype, first.shape) == (other.dtype, other.shape) and first.tobytes() == other.tobytes()


@runtime_checkable
class PiecewiseArray(Protocol):
    """An array that can be written out in order without being held in memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def pieces(self) -> Iterator[Array]:
        """Yield the elements in C order, as contiguous one-dimensional arrays; joined, they are the array.

        A piece may be a view of a memory map, or of a buffer that the next piece but one overwrites.
        """
        ...


class Stretch(NamedTuple):
    """A stretch of an array in C order, which can be made before or after any other one.

    size  its number of elements
    make  gives them, as a contiguous one-dimensional array: a view of where they lie, or of a buffer. It is called with
          what gives a buffer of so many elements, and calls that only if it needs one.
    """

    size: int
    make: Callable[[Callable[[int], Array]], Array]


@runtime_checkable
class Runs(Protocol):
    """An array whose stretches can be made by several threads, in any order."""

    dtype: np.dtype[Any]

    def runs(self) -> Iterator[Stretch] | None:
        """Yield the stretches in C order; None if they have to be made one after the other (see PiecewiseArray)."""
        ...


def in_order(runs: Iterable[Stretch], dtype: np.dtype[Any]) -> Iterator[Array]:
    """Make one stretch after the other: a buffer is used again for the next but one."""
    buffers = [np.empty(0, dtype), np.empty(0, dtype)]
    turn = 0

    def room(size: int) -> Array:
        if buffers[turn].size < size:
            buffers[turn] = np.empty(size, dtype)
        return buffers[turn][:size]

    for run in runs:
        yield run.make(room)
        turn = 1 - turn


Part: TypeAlias = Callable[[slice, slice], Array]
"""Computes some rows and columns of a matrix."""


class Deferred:
    """A matrix that is computed when it is asked for, and not kept.

    A rewrite (a scaled gate, a folded projection) puts one of these in place of the source's
    view, so that never more than one gate's matrix is in memory.

    compute  gives all of it
    part     gives some rows and columns of a matrix, where these cost less than all of it
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], compute: Callable[[], Array], part: Part | None = None) -> None:
        self.shape = shape
        self.dtype = dtype
        self._compute = compute
        self._part = part if len(shape) == 2 else None

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def by_parts(self) -> bool:
        """Return whether a part costs less than all of it."""
        return self._part is not None

    def __getitem__(self, window: tuple[slice, ...]) -> Array:
        """Compute a part of the numbers now."""
        if self._part is None or len(window) != 2:
            return np.asarray(self)[window]
        return self._part(*window)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._compute(), dtype=dtype) if copy else np.asarray(self._compute(), dtype=dtype)

    def pieces(self) -> Iterator[Array]:
        if self._part is None:
            yield from pieces(np.asarray(self))
            return
        rows = max(1, piece_bytes(nbytes(self)) // max(1, self.shape[1] * self.dtype.itemsize))
        for start in range(0, self.shape[0], rows):
            yield from pieces(self._part(slice(start, start + rows), slice(None)))

    def __repr__(self) -> str:
        return f"Deferred(shape={self.shape}, dtype={self.dtype})"


def read_once(shape: tuple[int, ...], dtype: np.dtype[Any], read: Callable[[], Array]) -> Deferred:
    """Return an array whose numbers lie elsewhere, on another device: all are read when the first is asked for, and kept."""
    numbers = functools.cache(read)
    return Deferred(shape, dtype, numbers, lambda rows, columns: numbers()[rows, columns])


Source: TypeAlias = "Array | Deferred"
"""An array of the canonical form or of a model: numbers at hand, or numbers to be computed or read."""


def nbytes(array: Array | PiecewiseArray) -> int:
    """Return the size of an array in bytes, whether or not it is in memory."""
    return int(np.prod(array.shape, dtype=np.int64)) * array.dtype.itemsize


def pieces(array: Array | PiecewiseArray) -> Iterator[Array]:
    """Yield any array in C order, piece by piece; a contiguous one is not copied.

    A piece may be a view of a buffer that the next piece but one overwrites: while a piece is being written, the next one can be made.
    """
    if isinstance(array, np.ndarray):
        yield from in_order(runs_of(array), array.dtype)
    else:
        yield from array.pieces()


def runs_of(array: Array) -> Iterator[Stretch]:
    """Yield the stretches of an array in memory, in C order; stretches of a contiguous array are views of it."""
    if array.size == 0:
        return
    step = max(1, piece_bytes(array.nbytes) // array.dtype.itemsize)
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            yield Stretch(part.size, lambda room, part=part: part)  # type: ignore[misc]
        return
    rows = max(1, step // max(1, array[0].size))
    for start in range(0, len(array), rows):
        block = array[start : start + rows]

        def make(room: Callable[[int], Array], block: Array = block) -> Array:
            buffer = room(block.size)
            copy_tiled(buffer.reshape(block.shape), block)
            return buffer

        yield Stretch(block.size, make)


_TILE = (256, 256)
_SMALL = 1 << 14
_PAD = 16
# Measured in warm memory on a transposed float32 matrix whose rows are a power of two: numpy's own runs at
# 0.4 GB/s, the same in tiles at 3 GB/s, and at 7 GB/s if each tile is brought near first. Rows that
# far apart fall on the same lines of the cache and drive each other out; the padding keeps them apart.
# Tiles half as wide or twice as long took two threads a fifth longer: for the small ones they wait for one another, and
# the large ones do not stay in a cache of 512 KiB.


def copy_tiled(target: Array, source: Array) -> None:
    """Copy `source` into `target`, of the same shape; a transposed matrix goes tile by tile."""
    if target.ndim == 2 and abs(target.strides[0]) < abs(target.strides[1]):
        target, source = target.T, source.T
    small = target.ndim != 2 or target.size <= _SMALL
    if small or abs(source.strides[1]) <= abs(source.strides[0]):
        target[...] = source
        return
    near = np.empty((_TILE[1], _TILE[0] + _PAD), source.dtype).T
    rows, columns = target.shape
    for top in range(0, rows, _TILE[0]):
        for left in range(0, columns, _TILE[1]):
            window = (slice(top, top + _TILE[0]), slice(left, left + _TILE[1]))
            tile = source[window]
            staged = near[: tile.shape[0], : tile.shape[1]]
            staged[...] = tile
            target[window] = staged


def as_written(value: float) -> float:
    """Return a number that is stored in single precision as the decimal number that was meant: 0.2 is stored as the nearest float32."""
    return float(str(np.float32(value)))
