"""Operators that move elements, on arrays: frameworks differ in names and attributes, and rarely in what they do.

All raise UnfitError, ValueError or IndexError for arrays of other shapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import PUSHED_ELEMENTS
from rnnconvert.graphs.operators import ChangesError, UnfitError

END = 1_000_000
"""From where on the end of a range stands for the end of any sequence."""


def axis_of(axis: int, rank: int) -> int:
    """Return the number of an axis that may be counted from the end."""
    if not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise UnfitError(f"there is no axis {axis} of {rank}")
    return int(axis) % rank


def bounded(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that is small enough to be made."""
    if min(shape, default=0) < 0 or math.prod(int(length) for length in shape) > PUSHED_ELEMENTS:
        raise UnfitError(f"a result of the shape {list(shape)}")
    return tuple(int(length) for length in shape)


def reshape(array: Array, shape: Sequence[int], keep_zeros: bool = False) -> Array:
    """Return an array in another shape, of which one length may be -1.

    keep_zeros  whether a length of 0 stands for that of the array's own axis
    """
    if keep_zeros:
        shape = [length or array.shape[axis] for axis, length in enumerate(shape)]
    fixed = math.prod(length for length in shape if length != -1)
    if min(shape, default=0) < -1 or (array.size % (fixed or 1) if -1 in shape else array.size != fixed):
        raise UnfitError(f"{array.size} elements in the shape {list(shape)}", shape)
    return array.reshape(tuple(shape))


def squeeze(array: Array, axes: Sequence[int]) -> Array:
    """Return an array without axes of length 1: these, or all."""
    return array.squeeze(tuple(axis_of(axis, array.ndim) for axis in axes)) if axes else array.squeeze()


def unsqueeze(array: Array, axes: Sequence[int]) -> Array:
    """Return an array with further axes of length 1, counted in the result."""
    return np.expand_dims(array, tuple(axes))


def flatten(array: Array, first: int, last: int = -1) -> Array:
    """Return an array whose axes from one to another are a single one."""
    first, last = axis_of(first, array.ndim), axis_of(last, array.ndim)
    return array.reshape(*array.shape[:first], math.prod(array.shape[first : last + 1]), *array.shape[last + 1 :])


def concatenate(arrays: Sequence[Array], axis: int) -> Array:
    """Return arrays side by side along an axis."""
    return np.concatenate(arrays, axis_of(axis, arrays[0].ndim))


def split(array: Array, axis: int, parts: int | Sequence[int]) -> list[Array]:
    """Return the parts of an array along an axis: so many equal ones, or of these lengths, of which one may be -1."""
    axis = axis_of(axis, array.ndim)
    if isinstance(parts, int):
        if parts < 1 or array.shape[axis] % parts:
            raise UnfitError(f"{parts} parts of {array.shape[axis]}", (parts,))
        return np.split(array, parts, axis)
    rest = array.shape[axis] - sum(length for length in parts if length >= 0)
    lengths = [rest if length == -1 else length for length in parts]
    if min(lengths, default=0) < 0 or sum(lengths) != array.shape[axis]:
        raise UnfitError(f"parts of {list(parts)} of {array.shape[axis]}", (*parts, sum(parts)))
    return np.split(array, np.cumsum(lengths)[:-1], axis)


def take(array: Array, indices: Array, axis: int) -> Array:
    """Return the elements at places along an axis; the places' own axes stand in its stead."""
    axis = axis_of(axis, array.ndim)
    bounded([*array.shape[:axis], *indices.shape, *array.shape[axis + 1 :]])
    return np.take(array, indices.astype(np.int64), axis)


def check_range(length: int, start: int | None, end: int | None) -> None:
    """Raise ChangesError for a range that holds all elements of this axis, but not of a longer one."""
    if end is not None and length < end < END:
        raise ChangesError(f"a range that cuts what is longer than {end}")
    for bound, last in ((start, -length), (end, -length - 1)):
        if bound is not None and -END < bound < last:
            raise ChangesError(f"a range that cuts what is longer than {-bound}")


def cut(
    array: Array, starts: Sequence[int | None], ends: Sequence[int | None], steps: Sequence[int] = (), axes: Sequence[int] = ()
) -> Array:
    """Return ranges along axes, the first ones if none are named; None for the end of an axis."""
    if len(starts) != len(ends) or len(axes or starts) != len(starts) or len(steps or starts) != len(starts):
        raise UnfitError("ranges that are not stated alike")
    index = [slice(None)] * array.ndim
    for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = axis_of(axes[place] if axes else place, array.ndim)
        check_range(array.shape[axis], start, end)
        index[axis] = slice(start, end, steps[place] if steps else 1)
    return array[tuple(index)]


def reverse(array: Array, axes: Sequence[int]) -> Array:
    """Return an array turned around along axes."""
    return np.flip(array, tuple(axis_of(axis, array.ndim) for axis in axes))


def reverse_sequences(array: Array, lengths: Array, time: int, batch: int) -> Array:
    """Return each sequence turned around up to its length."""
    time, batch = axis_of(time, array.ndim), axis_of(batch, array.ndim)
    rows = np.moveaxis(array, (batch, time), (0, 1)).copy()
    if lengths.dtype.kind not in "iu" or lengths.shape != rows.shape[:1] or (lengths < 0).any() or (lengths > rows.shape[1]).any():
        raise UnfitError(f"{lengths.size} lengths of {rows.shape[0]} sequences")
    for row, length in zip(rows, lengths.tolist(), strict=True):
        row[:length] = row[:length][::-1].copy()
    return np.moveaxis(rows, (0, 1), (batch, time))


def tile(array: Array, repeats: Sequence[int]) -> Array:
    """Return an array several times along its axes."""
    if len(repeats) != array.ndim:
        raise UnfitError("it repeats other axes than there are")
    bounded([length * repeat for length, repeat in zip(array.shape, repeats, strict=True)])
    return np.tile(array, tuple(repeats))


def pad(array: Array, before: Sequence[int], after: Sequence[int]) -> Array:
    """Return an array with constants around it; negative numbers cut it."""
    if not len(before) == len(after) == array.ndim:
        raise UnfitError(f"{len(before)} paddings of {array.ndim} axes")
    widths = [(max(left, 0), max(right, 0)) for left, right in zip(before, after, strict=True)]
    bounded([length + left + right for length, (left, right) in zip(array.shape, widths, strict=True)])
    # numpy pads by no negative number: these elements are cut off first.
    cutting = tuple(slice(max(-left, 0), length - max(-right, 0)) for length, left, right in zip(array.shape, before, after, strict=True))
    return np.pad(array[cutting], widths)
