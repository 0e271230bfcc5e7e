"""Weights that are another file's but for their numbers: rounded to a shorter type or to a few steps, or simply near.

No convention leads from the one to the other then, and none has to: each number stands in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rnnconvert.comparison.common_form import to_common_form
from rnnconvert.comparison.difference import same_features
from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.verdict import OTHER_NUMBERS, ROUNDED
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis.comparing import Comparing

_SHORTER = ("float16", "bfloat16")
_STEPS = 255
"""The most steps on either side of zero: integers of 8 bits have 127, or 255 without a sign."""
_FEWEST_STEPS = 7
"""Integers of 4 bits have 7 steps on either side of zero; to fewer nobody rounds, and any number is near a multiple of itself."""
_FEWEST = 3
"""So many numbers have to share a step."""
_FEW = 24
"""Of so many numbers every count of steps is tried."""
_NEAR = 0.1
"""How far off, in parts of the weights' root mean square, numbers may be that are called near."""
_MOST = 0.5
"""The part of all numbers that has to differ: a few that do are an error, and no rounding."""

Pair = tuple[Array, Array]


@dataclass(frozen=True)
class ElementDifferences:
    """How numbers differ that stand in the same places.

    name      what reports call it
    sentence  what completes "In B, ..."
    """

    name: str
    sentence: str


def near(a: Recurrent, b: Recurrent) -> ElementDifferences | None:
    """Return how the numbers of one stack differ from another's, if nothing but numbers differs."""
    for first, other in ((a, b), to_common_form(a, b)[:2]):
        pairs = _unlike(first, other)
        if pairs:
            return _named(pairs)
    return None


def _unlike(a: Recurrent, b: Recurrent) -> list[Pair]:
    """Return the arrays that are unlike, side by side; none where two stacks differ in more than numbers."""
    if a.num_layers != b.num_layers or a.num_directions != b.num_directions:
        return []
    compare, pairs = Comparing(), []
    for (*_, ours), (*_, other) in zip(a.directions(), b.directions(), strict=True):
        if not same_features(ours, other):
            return []
        for key in compare.unlike(ours, other):
            first, second = ours.arrays.get(key), other.arrays.get(key)
            if first is None or second is None or first.shape != second.shape:
                return []
            pairs.append((np.asarray(first, np.float64), np.asarray(second, np.float64)))
    return pairs


@np.errstate(all="ignore")
def _named(exact: list[Pair]) -> ElementDifferences | None:
    """Return how the arrays that differ do so."""
    count = sum(first.size for first, _ in exact)
    if sum(int((first != second).sum()) for first, second in exact) < _MOST * count:
        return None
    for name in _SHORTER:
        dtype = FLOATS[name]
        if all(np.array_equal(first.astype(dtype).astype(np.float64), second) for first, second in exact):
            return ElementDifferences(f"{ROUNDED} {name}", f"the weights are rounded to {name}")
    if all(_stepped(first, second) for first, second in exact):
        return ElementDifferences(f"{ROUNDED} 8-bit integers", "the weights are rounded to 8-bit integers with a scale")
    total = np.sqrt(sum(float(np.square(second - first).sum()) for first, second in exact))
    size = np.sqrt(sum(float(np.square(first).sum()) for first, _ in exact))
    if 0 < total < _NEAR * size and all(_is_near(first, second) for first, second in exact):
        return ElementDifferences(
            OTHER_NUMBERS,
            f"all weights differ slightly, by {total / size:.1%} (root mean square), as after another training step or with added noise",
        )
    return None


def _is_near(first: Array, second: Array) -> bool:
    return bool(np.square(second - first).sum() <= np.square(3 * _NEAR * first).sum() + 1e-12)


def _stepped(first: Array, second: Array) -> bool:
    """Return whether numbers are others, rounded to multiples of a step, which all have or each row or column has."""
    ways = [(second.reshape(1, -1), first.reshape(1, -1))]
    ways += [(second, first), (second.T, first.T)] if second.ndim == 2 else []
    return any(stepped.shape[1] >= _FEWEST and all(map(_of_one_step, stepped, exact)) for stepped, exact in ways)


def _of_one_step(stepped: Array, exact: Array) -> bool:
    values = np.unique(np.abs(stepped))
    if not values[-1]:
        return not exact.any()
    if len(values) > _STEPS + 1:
        return False
    steps = values[-1] / _counts(values)
    counts = values / steps[:, None]
    fits = (np.abs(counts - np.round(counts)) < 1e-3).all(axis=1)
    return any(bool((np.abs(stepped - exact) <= 0.501 * step).all()) for step in steps[fits])


def _counts(values: Array) -> Array:
    """Return how many steps the largest of some numbers may be: of many numbers two stand one step apart."""
    if len(values) <= _FEW:
        return np.arange(_FEWEST_STEPS, _STEPS + 1)
    gap = float(np.diff(values, prepend=0.0)[1:].min())
    return np.array([round(float(values[-1]) / gap)])
