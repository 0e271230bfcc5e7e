"""What PyTorch's operators that move elements do, on arrays.

Source: aten/src/ATen/native/native_functions.yaml for their arguments, TensorShape.cpp and TensorTransformations.cpp for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs import Applied, ChangesError, Computes, UnfitError, moves
from rnnconvert.graphs.operators import Formula


def number(applied: Applied, index: int, default: int | None = None) -> int:
    """Return an argument that is a whole number. Raises UnfitError where it is left out and has no default."""
    if index >= len(applied.inputs) or applied.inputs[index] is None:
        if default is None:
            raise UnfitError(f"{applied.kind} lacks argument {index}")
        return default
    return int(applied.input(index).reshape(-1)[0])


def attribute(applied: Applied, name: str, default: int = 0) -> int:
    """Return a whole number that the code states. Raises ChangesError for one that is computed."""
    value = applied.attributes.get(name, default)
    if value is None:
        return default
    if not isinstance(value, int):
        raise ChangesError(f"{applied.kind} with a {name} that is computed")
    return int(value)


def _axes(applied: Applied, index: int, array: Array) -> tuple[int, ...]:
    return tuple(axis % array.ndim for axis in applied.integers(index)) if array.ndim else ()


def axis_of(applied: Applied, index: int, array: Array, default: int = 0) -> int:
    axis = number(applied, index, default)
    if not -array.ndim <= axis < array.ndim:
        raise UnfitError(f"{applied.kind} of axis {axis} of {array.ndim}")
    return axis % array.ndim


def transpose(applied: Applied) -> Array:
    """Return elements with two axes exchanged."""
    array = applied.input(0)
    return array.swapaxes(axis_of(applied, 1, array), axis_of(applied, 2, array))


def movedim(applied: Applied) -> Array:
    """Return elements with axes at other places."""
    return np.moveaxis(applied.input(0), applied.integers(1), applied.integers(2))


def t(applied: Applied) -> Array:
    """Return the transpose of a matrix."""
    if applied.input(0).ndim > 2:
        raise UnfitError("t of more than two axes")
    return applied.input(0).T


def matrix_transpose(applied: Applied) -> Array:
    """Return elements with their last two axes exchanged."""
    return applied.input(0).swapaxes(-1, -2)


def reshape(applied: Applied) -> Array:
    """Return elements in another shape."""
    return applied.input(0).reshape(applied.integers(1))


def like(applied: Applied) -> Array:
    """Return elements in the shape of another tensor."""
    return applied.input(0).reshape(applied.input(1).shape)


def flatten(applied: Applied) -> Array:
    """Return elements with some axes made one."""
    array = applied.input(0)
    first, last = axis_of(applied, 1, array, 0), axis_of(applied, 2, array, -1)
    if first > last:
        raise UnfitError("flatten from a later axis to an earlier one")
    return array.reshape(*array.shape[:first], -1, *array.shape[last + 1 :])


def unflatten(applied: Applied) -> Array:
    """Return elements with one axis made several."""
    array = applied.input(0)
    axis = axis_of(applied, 1, array)
    return array.reshape(*array.shape[:axis], *applied.integers(2), *array.shape[axis + 1 :])


def squeeze(applied: Applied) -> Array:
    """Return elements without axes of length 1; PyTorch leaves a longer one that is named."""
    array = applied.input(0)
    every = len(applied.inputs) < 2 or applied.inputs[1] is None
    axes = range(array.ndim) if every else _axes(applied, 1, array)
    return np.squeeze(array, tuple(axis for axis in axes if array.shape[axis] == 1))


def unsqueeze(applied: Applied) -> Array:
    """Return elements with one more axis."""
    return np.expand_dims(applied.input(0), number(applied, 1))


def expand(applied: Applied) -> Array:
    """Return elements repeated along axes of length 1; -1 keeps a length."""
    array, sizes = applied.input(0), applied.integers(1)
    if len(sizes) < array.ndim:
        raise UnfitError("expand to fewer axes")
    shape = (1,) * (len(sizes) - array.ndim) + array.shape
    return np.broadcast_to(array, [old if new == -1 else new for old, new in zip(shape, sizes, strict=True)])


def expand_as(applied: Applied) -> Array:
    """Return elements repeated to the shape of another tensor."""
    return np.broadcast_to(applied.input(0), applied.input(1).shape)


def tile(applied: Applied) -> Array:
    """Return elements repeated as blocks."""
    array, times = applied.input(0), applied.integers(1)
    if np.prod(times, dtype=float) * array.size > 1 << 25:
        raise UnfitError("repeat to too many elements")
    return np.tile(array, times)


def repeat_interleave(applied: Applied) -> Array:
    """Return each element repeated."""
    array, times = applied.input(0), applied.integers(1)
    if sum(times) * array.size > 1 << 25 or min(times) < 0:
        raise UnfitError("repeat to too many elements")
    if len(applied.inputs) < 3 or applied.inputs[2] is None:
        return np.repeat(array.reshape(-1), times if len(times) > 1 else times[0])
    return np.repeat(array, times if len(times) > 1 else times[0], axis_of(applied, 2, array))


def flip(applied: Applied) -> Array:
    """Return elements in reverse along axes."""
    return np.flip(applied.input(0), _axes(applied, 1, applied.input(0)))


def roll(applied: Applied) -> Array:
    """Return elements moved along axes."""
    array, shifts = applied.input(0), applied.integers(1)
    axes = _axes(applied, 2, array) if len(applied.inputs) > 2 and applied.inputs[2] is not None else ()
    if any(shift and shift % array.shape[axis] == 0 for shift, axis in zip(shifts, axes, strict=False)):
        raise UnfitError("roll by the whole length, which shows nothing")
    return np.roll(array, shifts, axes) if axes else np.roll(array, shifts[0])


def rot90(applied: Applied) -> Array:
    """Return elements turned in a plane."""
    first, second = (*_axes(applied, 2, applied.input(0)), 0, 0)[:2]
    return np.rot90(applied.input(0), number(applied, 1, 1), (first, second))


def pad(applied: Applied) -> Array:
    """Return padded elements; what is put there comes from no source."""
    if applied.attributes.get("mode", "constant") != "constant":
        raise ChangesError(f"{applied.kind} by {applied.attributes['mode']}")
    array, widths = applied.input(0), applied.integers(1)
    if len(widths) % 2 or len(widths) > 2 * array.ndim or max(map(abs, widths), default=0) > 1 << 12:
        raise UnfitError("pad of other axes")
    for place in range(len(widths) // 2):
        axis = array.ndim - 1 - place
        before, after = widths[2 * place], widths[2 * place + 1]
        end = array.shape[axis] + min(after, 0)
        array = array[(slice(None),) * axis + (slice(max(-before, 0), end),)]
        moves.bounded([*array.shape, max(1, before + after)])
        array = np.pad(array, [(max(before, 0), max(after, 0)) if at == axis else (0, 0) for at in range(array.ndim)])
    return array


def dropout(applied: Applied) -> Array:
    """Return elements. Raises ChangesError where dropout is on."""
    train, rate = (applied.inputs[place] if place < len(applied.inputs) else None for place in (2, 1))
    if train is None or train.size != 1 or (train.any() and (rate is None or rate.size != 1 or rate.any())):
        raise ChangesError("Dropout that is on")
    return applied.input(0)


def measured(applied: Applied) -> Array:
    """Return the lengths of axes, or of one."""
    shape = applied.input(0).shape
    if len(applied.attributes.get("axes", ())) == 1:
        return np.asarray(shape[applied.attributes["axes"][0]])
    return np.asarray(shape, np.int64)


def length(applied: Applied) -> Array:
    """Return the length of the first axis."""
    return np.asarray(applied.input(0).shape[0])


def batches(applied: Applied) -> Array:
    """Return the sizes of the batches of a packed sequence whose lengths are all the whole."""
    time, batch = applied.input(0).shape[:2][:: -1 if applied.attributes["batch_first"] else 1]
    return np.full(time, batch)


def pack(applied: Applied) -> Array:
    """Return the data of a packed sequence whose lengths are all the whole: steps one after the other.

    Source: aten/src/ATen/native/PackedSequence.cpp, _pack_padded_sequence.
    """
    array = applied.input(0)
    array = array.swapaxes(0, 1) if applied.attributes["batch_first"] else array
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])


def steps(applied: Applied) -> Array:
    """Return a packed sequence's data as (time, batch, values)."""
    array, sizes = applied.input(0), applied.integers(1)
    return array.reshape(len(sizes), sizes[0], *array.shape[1:])


def padded(applied: Applied) -> Array:
    """Return a padded sequence of packed data."""
    sequence = steps(applied)
    return sequence.swapaxes(0, 1) if applied.attributes["batch_first"] else sequence


def to(applied: Applied) -> np.dtype[Any]:
    """Return an element type. Raises ChangesError for one that is computed."""
    dtype = applied.attributes.get("dtype")
    if not isinstance(dtype, np.dtype):
        raise ChangesError(f"{applied.kind}, another element type that is computed,")
    return dtype


def on_numbers(function: Callable[..., Any], formula: Formula | None = None) -> Computes:
    """Return the operator that computes numbers of numbers."""

    def compute(applied: Applied) -> Array:
        try:
            return np.asarray(function(*applied.arrays))
        except (ArithmeticError, AttributeError) as error:
            raise UnfitError(str(error)) from None

    return Computes(compute, formula=formula)


def equal(first: Array, other: Array) -> bool:
    """Return whether numbers, or lists of them, are the same."""
    if max(first.ndim, other.ndim) > 1:
        raise UnfitError("comparison of tensors")
    return np.array_equal(first, other)


def divided(dividend: Array, other: Array) -> Array:
    """Return quotients, rounded down. Raises UnfitError for zero."""
    if not np.all(other):
        raise UnfitError("division by zero")
    return np.floor_divide(dividend, other)
