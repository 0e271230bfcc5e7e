"""Outputs of whole models: rounding explains as much as they move when every weight is about one unit in the last place off.

The meaning of their axes is unknown. So no index of any axis excuses another: a unit, a time step or a row that is large by far. If zeros
would still pass, or an element is not finite once weights are moved, passing does not prove it: `left_open` names the elements for which
that is so on every input. Integers and truths do not round: they must be the same in every place where moved weights leave them the same. A
value that is not finite must be so in both models, and of one kind, unless values are about to overflow: then rounding decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Allowance, Output, Tolerance, compare, tolerance

SHAKES = 2
"""How often the weights of one of the models are moved: the largest difference counts."""

IMMENSE = 1e30
"""What kernels give, beside infinity and NaN, where an exponential overflows: single precision's largest number, or parts of it."""

_GROWING = 1e12
"""Numbers whose cube nearly overflows in single precision: the next step of an unbounded cell may."""

_FEW = 0.05
"""The share of elements that may be open: values near zero, which are as small as their rounding."""


@dataclass(frozen=True)
class WholeJudge:
    """Compares what two models gave.

    dtype       the coarser element type of their weights
    tolerances  a user's own, by output
    coarse      how many units in the last place of 1 functions of a framework are off, however small their values are; moved weights are
                one unit off
    """

    dtype: np.dtype[Any]
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    coarse: float = 0.0

    def compare(
        self,
        output: Output,
        value: Array,
        truth: Array,
        *,
        moved: Sequence[Array] = (),
        truth_moved: Sequence[Array] = (),
        overflows: bool = False,
    ) -> OutputComparison:
        """Compare an output with what the other model gave there.

        moved        what it was with other weights, several times
        truth_moved  the same of the other model
        overflows    whether the inputs are so large that both may overflow: then they need not do it in one way, or at one place

        Raises UsageError if the shapes differ.
        """
        if any(array.dtype.kind == "c" for array in (value, truth)):
            value, truth = _parts(value), _parts(truth)
            moved, truth_moved = [_parts(each) for each in moved], [_parts(each) for each in truth_moved]
            output = Output(output.case, output.name, ("part", *output.axes), output.mask)
        if value.shape == truth.shape:
            mask = _decided(value, truth, moved, truth_moved, overflows)
            if not mask.all():
                output = Output(output.case, output.name, output.axes, mask if output.mask is None else mask & output.mask)
        # What the model that is judged moves by is brought to where the truth is.
        floors = [*truth_moved, *(truth + _moves(each, value) for each in moved)]
        if self.coarse > 1 and truth.dtype.kind == "f":
            floors = [_farther(floor, truth, self.coarse) for floor in floors]
        # The functions in a model may be followed by a small factor: what its outputs show is as small as they are.
        least = min(float(np.abs(np.nan_to_num(truth.astype(np.float64))).max(initial=0.0)), 1.0)
        least = max(least, self.coarse)
        allowance = Allowance(floors, self.dtype, tolerance(output.name, self.tolerances), least, by_index=True, kinds=not overflows)
        return compare(output, value, truth, allowance)


def left_open(comparisons: Iterable[OutputComparison]) -> str:
    """Return the words for what passing does not prove on any input, from the comparisons of one output on several; "" for nothing."""
    judged = [comparison for comparison in comparisons if comparison.open_shares]
    if not judged:
        return ""
    shares = [np.asarray(comparison.open_shares) for comparison in judged]
    if len({len(each) for each in shares}) > 1:  # the last axis is no axis of units
        shares = [each.mean(keepdims=True) for each in shares]
    least = np.min(shares, axis=0)
    count = int((least > _FEW).sum())
    if not count:
        return ""
    where = f"{least.mean():.0%} of {judged[0].output}" if len(least) == 1 else f"{count} of {len(least)} units of {judged[0].output}"
    return f"{where}: rounding may be as large as these values, or decides whether they are numbers"


def _parts(array: Array) -> Array:
    """Return the real and the imaginary parts of numbers, which are compared each by itself, on a first axis."""
    return np.stack([array.real, array.imag])


def _decided(value: Array, truth: Array, moved: Sequence[Array], truth_moved: Sequence[Array], overflows: bool) -> Array:
    """Return where rounding does not decide what overflows, and to which kind.

    overflows  whether both may overflow: then, and where what both give grows that far, rounding decides where they do
    """
    off, other_off = ~np.isfinite(value), ~np.isfinite(truth)
    undecided = np.zeros(truth.shape, bool)
    for array, several in ((value, moved), (truth, truth_moved)):
        for each in several:
            undecided |= off & other_off & (_kind(each) != _kind(array))
    size, other_size = (np.abs(np.where(np.isfinite(array), array, 0.0)) for array in (value, truth))
    growing, other_growing = size.max(initial=0.0) >= _GROWING, other_size.max(initial=0.0) >= _GROWING
    both = (off.any() or growing) and (other_off.any() or other_growing)
    if both and (overflows or growing or other_growing):
        return np.asarray(_kind(value) == _kind(truth))
    return np.asarray(~(undecided | ((off != other_off) & (np.maximum(size, other_size) >= IMMENSE))))


def _kind(array: Array) -> Array:
    """Return whether numbers are finite, infinite of which sign, or none."""
    return np.where(np.isnan(array), 3, np.where(np.isfinite(array), 0, np.where(array > 0, 1, 2)))


def _farther(floor: Array, truth: Array, times: float) -> Array:
    """Return a floor that is so many times as far from the truth, where both are finite."""
    with np.errstate(all="ignore"):
        gap = floor.astype(np.float64) - truth.astype(np.float64)
    return np.where(np.isfinite(gap), truth + times * gap, floor)


def _moves(moved: Array, value: Array) -> Array:
    """Return by how much an output moves; not at all where it is not finite either way: rounding does not make it so."""
    with np.errstate(all="ignore"):
        gap = moved.astype(np.float64) - value.astype(np.float64)
    return np.where(np.isfinite(moved) | np.isfinite(value), gap, 0.0)
