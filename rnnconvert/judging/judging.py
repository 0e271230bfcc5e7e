"""How far an output may be from the truth: as far as rounding explains.

The truth is the float64 reference on the same numbers. What rounding explains, the floor, is the error that the reference makes in the
model's own element type, or with each weight one unit in the last place off (Case.rough), and the error of the source in its own framework,
once that has itself passed; if a recurrence amplifies errors, also the amplified errors of functions (rnnconvert.judging.rounding). A
unit of an output passes at a time step if its error there is at most

    FACTOR * max(floor at this step, mean of the floor) + eps * max(ULPS * max |truth|, 1)

with eps of the element type, the floor and the truth of this unit and of all that are at most PEERS times as large:
one large unit excuses no other. The mean, since at a single step the reference may be lucky; the last term, since all of
it may be; the 1 in it, since libraries take tanh to within a unit in the last place of 1, however small its value is
(onnxruntime's by a polynomial); for gradients the largest slope, from which a slope of that tanh comes. Elements at which the floor itself
is not finite, as after an overflow of the element type, are not judged: anything would pass. And if rounding leads as far as the values
themselves, passing proves nothing (`Comparison.telling`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.errors import UsageError
from rnnconvert.judging.comparison import OutputComparison, Steps, Worst, explained

FACTOR = 8
"""How many times the floor is allowed: sums in another order, functions of another library."""

ULPS = 4
"""How many units in the last place of the largest value are allowed in addition."""

PEERS = 10
"""How many times larger than a unit others may be whose rounding is allowed to it, too: it may itself have been lucky. What
is larger by far is another matter, and hides nothing."""

NEAR = 0.01
"""How many parts of its value an element may be off to be evidence although zero would pass, too: most often the tail of a softmax."""

FEWEST = 4
"""Of how many elements the floors are enough that not all of them are small by luck."""


@dataclass(frozen=True)
class Tolerance:
    """A user's own tolerance, as in torch.testing.assert_close: |found - expected| <= atol + rtol * |expected|."""

    atol: float = 0.0
    rtol: float = 0.0


def tolerance(output: str, tolerances: Mapping[str, Tolerance]) -> Tolerance | None:
    """Return the user's own tolerance for an output: by its name, by its first word ("gradient"), or for all."""
    for name in (output, output.partition(" ")[0].rstrip(",")):
        if name in tolerances:
            return tolerances[name]
    return tolerances.get("")


@dataclass(frozen=True, eq=False)
class Output:
    """An output of a case.

    axes  their names; a first axis "time" is judged step by step
    mask  which elements count; None for all
    """

    case: str
    name: str
    axes: tuple[str, ...] = ()
    mask: Array | None = None


@dataclass(frozen=True, eq=False)
class Allowance:
    """How far an output may be off.

    floors     other results for it that may be as far off: the reference in the element type, the source's own
    dtype      the element type of the weights that were run
    tolerance  a user's own, in place of what rounding explains
    least      the size of a value below which its rounding is no smaller: that of what libraries' functions give
    by_index   whether the axes are of an unknown kind, so that no index of any of them may excuse another
    kinds      whether what is not finite has to be of one kind: infinite of one sign, or no number
    """

    floors: Sequence[Array]
    dtype: np.dtype[Any]
    tolerance: Tolerance | None = None
    least: float = 1.0
    by_index: bool = False
    kinds: bool = False


def compare(output: Output, values: Array, truth: Array, allowance: Allowance) -> OutputComparison:
    """Compare one output with the truth. Raises UsageError if the shapes differ."""
    if values.shape != truth.shape:
        raise UsageError(f"{output.name} has the shape {values.shape}, expected {truth.shape}")
    axes, tolerance = output.axes, allowance.tolerance
    with np.errstate(all="ignore"):
        counts, floor, size = _rough(output, truth, allowance)
        error = np.where(counts, _distance(values, truth, allowance.kinds), 0.0)
        by_step = bool(axes) and axes[0] == "time"
        if tolerance is not None:
            allowed = tolerance.atol + tolerance.rtol * np.abs(truth)
        else:
            allowed = np.broadcast_to(_limits(output, floor, size, allowance, _integers(values, truth)), truth.shape)
        # Where nothing is allowed and nothing is off, 0 / 0 is no fault.
        ratio = np.where(error == 0, 0.0, error / allowed)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        relative = np.where(error == 0, 0.0, error / np.abs(truth))
        ulps = np.where(error == 0, 0.0, error / _spacing(truth, allowance.dtype))
        # Zeros are told from the truth; or they are the truth.
        telling = counts & np.isfinite(truth) & ((size > allowed) | (size.max(initial=0.0) == 0))
    at = np.unravel_index(int(ratio.argmax()), ratio.shape) if ratio.size else ()
    comparison = OutputComparison(
        output.case,
        output.name,
        bool((ratio <= 1).all()),
        _largest(error),
        _largest(relative),
        _largest(ulps),
        float(allowed[at]) if at else 0.0,
        _largest(ratio),
        _largest(floor),
        Worst(tuple(map(int, at)), axes, float(values[at]) if at else 0.0, float(truth[at]) if at else 0.0),
        int((ratio > 1).sum()),
        int(counts.sum()),
        _steps(error, allowed, floor) if by_step else None,
        telling=bool(telling.any()),
        open_shares=_open_shares(counts, error, size, allowed, _integers(values, truth))
        if allowance.by_index and tolerance is None
        else (),
    )
    return comparison if comparison.passed else explained(comparison)


def allowed(output: Output, truth: Array, allowance: Allowance) -> Array:
    """Return how far each element may be off, as an array that is broadcast to the output's shape."""
    with np.errstate(all="ignore"):
        _, floor, size = _rough(output, truth, allowance)
        return _limits(output, floor, size, allowance)


def _rough(output: Output, truth: Array, allowance: Allowance) -> tuple[Array, Array, Array]:
    """Return which elements count, and the floor and the magnitude of each, zero where it does not count."""
    counts = np.ones(truth.shape, bool) if output.mask is None else output.mask
    rough = [_distance(floor, truth) for floor in allowance.floors]
    if allowance.tolerance is None:
        counts = counts & np.isfinite([np.zeros(truth.shape), *rough]).all(axis=0)
    floor = np.max([np.zeros(truth.shape), *(np.where(counts, gap, 0.0) for gap in rough)], axis=0)
    return counts, floor, np.where(counts & np.isfinite(truth), np.abs(truth), 0.0)


def _limits(output: Output, floor: Array, size: Array, allowance: Allowance, integers: bool = False) -> Array:
    """Return how far each element may be off, as an array that is broadcast to the output's shape.

    floor, size  of each element, zero where it does not count
    integers     whether these are integers or truths: then they do not round, and one may only be off where its own floor is
    """
    if integers:
        return FACTOR * floor
    limits = _by_unit(output, floor, size, allowance)
    for axis, length in enumerate(floor.shape if allowance.by_index else ()):
        if length > 1 and floor.size >= FEWEST * length:
            axes = tuple("unit" if each == axis else "" for each in range(floor.ndim))
            limits = np.minimum(limits, _by_unit(replace(output, axes=axes), floor, size, allowance))
    return limits


def _integers(*arrays: Array) -> bool:
    return all(array.dtype.kind in "biu" for array in arrays)


def _by_unit(output: Output, floor: Array, size: Array, allowance: Allowance) -> Array:
    """Return how far each unit may be off at each step: what rounding explains of it, and of those that are not much larger.

    floor, size  of each element, zero where it does not count
    """
    axes = output.axes
    steps = {0} if axes[:1] == ("time",) else set()
    unit = {axes.index("unit")} if "unit" in axes else set()
    shape = [length if axis in steps | unit else 1 for axis, length in enumerate(floor.shape)]
    rest = tuple(axis for axis in range(floor.ndim) if axis not in steps | unit)
    at = floor.max(axis=rest, initial=0.0, keepdims=True)
    at = at.reshape(shape[0] if steps else 1, int(np.prod(shape[1:] if steps else shape)))  # (time, unit)
    sizes = size.max(axis=tuple(axis for axis in range(size.ndim) if axis not in unit), initial=0.0).reshape(-1)
    order = np.argsort(sizes, kind="stable")
    peers = np.searchsorted(sizes[order], PEERS * sizes, side="right") - 1
    at = np.maximum.accumulate(at[:, order], axis=1)[:, peers]
    typical = np.maximum(at, at.mean(axis=0, keepdims=True) if at.size else 0.0)
    # What comes out of tanh is as exact as numbers of 1 are, and slopes as those of the largest one.
    least = float(sizes.max(initial=0.0)) if output.name.startswith("gradient") else allowance.least
    limits = FACTOR * typical + epsilon(allowance.dtype) * np.maximum(ULPS * sizes[order][peers], least)
    return np.asarray(limits.reshape(shape))


def _distance(values: Array, truth: Array, kinds: bool = False) -> Array:
    """Return |found - truth|; zero where neither is finite, infinite where only one is.

    kinds  whether both have to be infinite of one sign, or no number

    Of what overflowed, the order of sums and the width of the type decide the sign, and whether it is infinite or undefined.
    Integers are compared in their own type: neighbours beyond 2^53 are one number in float64.
    """
    if _integers(values, truth):
        gap = np.abs(values.astype(np.float64) - truth.astype(np.float64))
        return np.where(values == truth, 0.0, np.maximum(gap, 1.0))
    values, truth = values.astype(np.float64), truth.astype(np.float64)
    alike = np.isnan(values) & np.isnan(truth) if kinds else ~(np.isfinite(values) | np.isfinite(truth))
    same = (values == truth) | alike
    gap = np.abs(values - truth)
    return np.where(same, 0.0, np.where(np.isfinite(gap), gap, np.inf))


def _open_shares(counts: Array, error: Array, size: Array, allowed: Array, integers: bool) -> tuple[float, ...]:
    """Return which share of the elements at each index of the last axis passing does not prove.

    They do not count; or zeros would pass for them, and they are not the same or nearly so; or they are other integers.
    """
    unproved = ~counts | (error > 0 if integers else (size <= allowed) & (error > NEAR * size))
    if not unproved.size:
        return ()
    return tuple(map(float, unproved.mean(axis=tuple(range(unproved.ndim - 1))).reshape(-1)))


def _spacing(truth: Array, dtype: np.dtype[Any]) -> Array:
    """Return the distance to the next number of this type."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.floor(np.log2(np.maximum(np.abs(truth), float(info.smallest_normal))))
    value: Array = float(info.eps) * np.exp2(exponent)
    return value


def _largest(values: Array) -> float:
    return float(values.max(initial=0.0))


def _steps(error: Array, allowed: Array, floor: Array) -> Steps:
    rest = tuple(range(1, error.ndim))
    return Steps(*(tuple(map(float, values.max(axis=rest, initial=0.0))) for values in (error, allowed, floor)))
