"""A layer whose arrays are of several element types, written in one that holds them all."""

from __future__ import annotations

from rnnconvert.core.arrays import Array, Deferred, Source
from rnnconvert.core.weights import Direction
from rnnconvert.rewrites.rewrite import Rewrite, always


def _change(direction: Direction) -> Direction:
    """Write every array in the direction's widest element type; byte orders do not count as types."""
    if len(direction.dtypes) == 1:
        return direction
    dtype = direction.dtype

    def widened(source: Source) -> Source:
        def of(numbers: Array) -> Array:
            return numbers.astype(dtype, copy=False)

        return Deferred(tuple(source.shape), dtype, lambda: of(source.__array__()), lambda rows, columns: of(source[rows, columns]))

    return direction.with_arrays({key: widened(source) for key, source in direction.arrays.items()})


WIDEN = Rewrite(
    "widen to one element type",
    "Every float16 and every bfloat16 number is a float32 number, and every float32 number a float64 number: arrays of "
    "several element types are written in the narrowest one that holds them all.",
    True,
    "",
    always,
    _change,
)
"""Of a direction."""
