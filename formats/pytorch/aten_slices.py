"""What PyTorch's operators that cut and join do, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.pytorch.aten_moves import attribute, axis_of, number
from rnnconvert.graphs import Applied, ChangesError, UnfitError, moves


def _bounds(applied: Applied, index: int) -> int | None:
    return None if index >= len(applied.inputs) or applied.inputs[index] is None else number(applied, index)


def sliced(applied: Applied) -> Array:
    """Return a slice along an axis."""
    array = applied.input(0)
    axis, step = axis_of(applied, 1, array, 0), number(applied, 4, 1)
    if step < 1:
        raise UnfitError("slice with a step below 1")
    start, end, size = _bounds(applied, 2), _bounds(applied, 3), array.shape[axis]
    moves.check_range(size, start, end)
    return array[(slice(None),) * axis + (slice(start, end, step),)]


def slice_list(applied: Applied) -> Array:
    """Return a slice of a list of numbers."""
    return applied.input(0)[_bounds(applied, 1) : _bounds(applied, 2) : number(applied, 3, 1)]


def narrow(applied: Applied) -> Array:
    """Return some elements along an axis."""
    array = applied.input(0)
    axis, start, length = axis_of(applied, 1, array), number(applied, 2), number(applied, 3)
    start += array.shape[axis] if start < 0 else 0
    if not 0 <= start <= start + length <= array.shape[axis]:
        raise UnfitError("narrow beyond the end")
    return array[(slice(None),) * axis + (slice(start, start + length),)]


def select(applied: Applied) -> Array:
    """Return the elements at one place of an axis."""
    return np.asarray(np.take(applied.input(0), number(applied, 2), axis_of(applied, 1, applied.input(0))))


def index_select(applied: Applied) -> Array:
    """Return the elements at some places of an axis."""
    return np.take(applied.input(0), applied.integers(2), axis_of(applied, 1, applied.input(0)))


def gather(applied: Applied) -> Array:
    """Return the elements at places of an axis that differ by element."""
    array, index = applied.input(0), applied.input(2)
    axis = axis_of(applied, 1, array)
    if index.ndim != array.ndim:
        raise UnfitError("gather of other axes")
    cut = tuple(slice(None) if dimension == axis else slice(length) for dimension, length in enumerate(index.shape))
    return np.take_along_axis(array[cut], index, axis)


def indexed(applied: Applied) -> Array:
    """Return elements at places by axis. PyTorch moves axes where indices stand apart."""
    places = applied.inputs[1:]
    if any(place is not None and place.dtype.kind not in "iub" for place in places):
        raise UnfitError("indices of another type than whole numbers")
    indexed_axes = [number for number, place in enumerate(places) if place is not None]
    if indexed_axes != list(range(indexed_axes[0], indexed_axes[-1] + 1)) if indexed_axes else False:
        raise ChangesError("index by several axes that are apart")
    where: Any = tuple(slice(None) if place is None else place for place in places)
    return np.asarray(applied.input(0)[where])


def cat(applied: Applied) -> Array:
    """Return tensors one behind the other."""
    parts = applied.arrays
    return np.concatenate(parts, attribute(applied, "dim"))


def stack(applied: Applied) -> Array:
    """Return tensors along a new axis."""
    return np.stack(applied.arrays, attribute(applied, "dim"))


def joined(join: Callable[[Sequence[Array]], Array]) -> Callable[[Applied], Array]:
    """Return the operator that joins tensors as one of numpy's functions does."""
    return lambda applied: join(applied.arrays)


def _cut(array: Array, axis: int, ends: Sequence[int]) -> list[Array]:
    return [np.asarray(part) for part in np.split(array, list(ends), axis)]


def chunk(applied: Applied) -> list[Array]:
    """Return elements cut into so many parts."""
    array, count = applied.input(0), number(applied, 1)
    axis = axis_of(applied, 2, array, 0)
    if count < 1:
        raise UnfitError("no chunks")
    size = -(-array.shape[axis] // count) or 1
    return _cut(array, axis, range(size, array.shape[axis], size))


def split(applied: Applied) -> list[Array]:
    """Return elements cut into parts of a length, or of these lengths."""
    array, sizes = applied.input(0), applied.integers(1)
    axis = axis_of(applied, 2, array, 0)
    if applied.input(1).ndim == 0:
        if sizes[0] < 1:
            raise UnfitError("split into parts of no length")
        return _cut(array, axis, range(sizes[0], array.shape[axis], sizes[0]))
    if sum(sizes) != array.shape[axis] or min(sizes) < 0:
        raise UnfitError("split into lengths that are not its own")
    return _cut(array, axis, np.cumsum(sizes)[:-1].tolist())


def tensor_split(applied: Applied) -> list[Array]:
    """Return elements cut into so many parts, or at these places."""
    array, sections = applied.input(0), applied.integers(1)
    axis = axis_of(applied, 2, array, 0)
    if applied.input(1).ndim == 0:
        if not 0 < sections[0] <= 1 << 16:
            raise UnfitError("tensor_split into no parts")
        return [np.asarray(part) for part in np.array_split(array, sections[0], axis)]
    return _cut(array, axis, sections)


def unbind(applied: Applied) -> list[Array]:
    """Return the parts along an axis."""
    return list(np.moveaxis(applied.input(0), axis_of(applied, 1, applied.input(0), 0), 0))
