"""Change every array or direction of a stack: the tools that the rewrites are written with.

Matrices are rewritten lazily: never more than one gate's is computed at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rnnconvert.core.arrays import Array, Deferred, Source
from rnnconvert.core.weights import Direction, Layer, Recurrent

Change = Callable[[Direction], Direction]


def each(stack: Recurrent, change: Change) -> Recurrent:
    """Return the stack with every direction changed."""
    layers = tuple(Layer(tuple(change(d) for d in layer.directions), layer.merge) for layer in stack.layers)
    return stack.replace(layers=layers)


def deferred(source: Source, change: Callable[[Array], Array]) -> Deferred:
    """Return a source changed by `change`, computed in at least single precision when it is read."""

    def of(numbers: Array) -> Array:
        return change(_wide(numbers)).astype(source.dtype, copy=False)

    return Deferred(tuple(source.shape), source.dtype, lambda: of(np.asarray(source)), lambda rows, columns: of(source[rows, columns]))


Mix = Callable[[Array, slice], Array]
"""Makes some columns of another matrix's rows from the same rows of a matrix."""


def mixed(source: Source, mix: Mix, width: int) -> Deferred:
    """Return a matrix of that width whose rows come from the rows of another, in at least single precision."""

    def part(rows: slice, columns: slice) -> Array:
        return mix(_wide(source[rows, :]), columns).astype(source.dtype, copy=False)

    return Deferred((source.shape[0], width), source.dtype, lambda: part(slice(None), slice(None)), part)


def _wide(numbers: Array) -> Array:
    return numbers if numbers.dtype.itemsize == 8 else numbers.astype(np.float32, copy=False)


def zeros(direction: Direction) -> Array:
    """Return a bias of zeros."""
    return np.zeros(direction.hidden_size, direction.dtype)


def drop(direction: Direction, part: str) -> Direction:
    """Return the direction without a part, even if its numbers are not zero: DROP_ZEROS checks that first."""
    return direction.with_arrays({key: None for key in direction.arrays if key[0] == part})
