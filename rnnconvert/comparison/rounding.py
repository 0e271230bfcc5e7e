"""Whether two arrays differ by rounding alone."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import BIAS_PARTS, Direction
from rnnconvert.judging.measure import distance

ROUNDING = 4
"""How many units in the last place of the largest value arrays may be apart in the search for a cause: nothing is proved by it."""


def sum_rounds(ours: Direction, theirs: Direction, gate: str) -> Array:
    """Return the rounding of each sum of biases: one unit in the last place of the largest term, in the coarser type."""
    terms = [or_zeros(d, part, gate).astype(np.float64) for d in (ours, theirs) for part in BIAS_PARTS]
    constants = [np.full_like(terms[0], d.cell.constants.get(gate, 0.0)) for d in (ours, theirs)]
    largest = np.abs([*terms, *constants, total_bias(ours, gate), total_bias(theirs, gate)]).max(axis=0)
    return np.asarray(np.max([spacing(largest, d.dtype) for d in (ours, theirs)], axis=0))


def close(first: Array, other: Array, eps: float) -> bool:
    """Return whether two arrays of one shape may be the same for the search for a cause: as far apart as rounding of their largest value.

    eps  of the coarser element type
    """
    largest = float(np.abs(first[np.isfinite(first)]).max(initial=0.0))
    return float(distance(other, first, None).max(initial=0.0)) <= ROUNDING * eps * largest


def or_zeros(d: Direction, part: str, gate: str) -> Array:
    array = d.get(part, gate)
    return np.zeros(d.hidden_size, d.dtype) if array is None else array


def total_bias(d: Direction, gate: str) -> Array:
    """Return the sum of a gate's biases as exactly as possible: rounding in the element type is judged elsewhere."""
    total: Array = sum((or_zeros(d, part, gate).astype(np.float64) for part in BIAS_PARTS), np.zeros(d.hidden_size))
    return total + d.cell.constants.get(gate, 0.0)


def spacing(values: Array, dtype: Any) -> Array:
    """Return the distance from each number to the next one of a type, subnormal numbers included."""
    info = ml_dtypes.finfo(dtype)
    size = np.maximum(np.abs(values.astype(np.float64)), float(info.smallest_normal))
    step: Array = np.exp2(np.floor(np.log2(size))) * float(info.eps)
    return step


def rounding_of(first: Array, other: Array) -> Array | float:
    """Return how far each number may be off its counterpart because it is held in another type: one unit in the last place."""
    if first.dtype.newbyteorder("=") == other.dtype.newbyteorder("="):
        return 0.0
    larger = np.maximum(np.abs(first.astype(np.float64)), np.abs(other.astype(np.float64)))
    return np.asarray(np.max([spacing(larger, array.dtype) for array in (first, other)], axis=0))
