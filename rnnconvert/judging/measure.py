"""How far outputs are from what a stack gives for a case, in units of what judging allows."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import solved
from rnnconvert.judging.comparison import parts
from rnnconvert.judging.judging import Allowance, Output, allowed
from rnnconvert.judging.rounding import Arithmetic, floors, of_functions
from rnnconvert.rewrites import each

FAR = 1000
"""An error this many times the allowed one is too large for rounding in any model of the same size."""


@dataclass(frozen=True)
class Deviation:
    """How far one output is off: the largest error, and that in units of what is allowed."""

    error: float
    ratio: float


class Measure:
    """The truth of one case, and what is allowed for each output; found outputs are measured against it.

    solve  computes the truth of the case in an arithmetic: the stack's own outputs, or those after a fault
    """

    def __init__(self, case: Case, dtype: Any, solve: Callable[[Any], Outputs]) -> None:
        self.case, self.dtype = case, np.dtype(dtype)
        with np.errstate(all="ignore"):
            self.truth = solve(np.float64)
            rough = solve(self.dtype)
        rough_by_name = {name: values for name, values, *_ in parts(rough, case.lengths)}
        self.masks: dict[str, Array | None] = {}
        self.allowed: dict[str, Array] = {}
        for name, values, mask, axes in parts(self.truth, case.lengths):
            self.masks[name] = mask
            allowance = Allowance([rough_by_name[name]], self.dtype)
            self.allowed[name] = allowed(Output(case.name, name, axes, mask), values, allowance)

    @classmethod
    def of(cls, stack: Recurrent, case: Case, dtype: Any) -> Measure:
        """Return the measure for the outputs of a stack."""
        return cls.of_all(stack, [case], dtype)[0]

    @classmethod
    def of_all(cls, stack: Recurrent, cases: Sequence[Case], dtype: Any) -> list[Measure]:
        """Return the measures for several cases, which run together."""
        kinds = {np.dtype(np.float64), np.dtype(dtype)}
        with np.errstate(all="ignore"):
            solutions = {kind: solved(stack, cases, kind) for kind in kinds}
            if np.dtype(dtype) != np.float64:
                arithmetic = Arithmetic(np.dtype(dtype))
                off = of_functions(stack, cases, arithmetic)
                solutions[np.dtype(dtype)] = floors(
                    stack, cases, arithmetic, solutions[np.dtype(np.float64)], off, solutions[np.dtype(dtype)]
                )

        def of(number: int) -> Callable[[Any], Outputs]:
            return lambda arithmetic: solutions[np.dtype(arithmetic)][number]

        return [cls(case, dtype, of(number)) for number, case in enumerate(cases)]

    def around(self, truth: Outputs) -> Measure:
        """Return a measure with the same allowance around another truth."""
        moved = copy.copy(self)
        moved.truth = truth
        return moved

    def narrowed(self, batch: int) -> Measure:
        """Return the measure for some of the sequences only."""
        narrow = copy.copy(self)
        time, size = self.case.x.shape[:2]
        narrow.case = narrowed(self.case, batch, time)
        narrow.truth = rows_of(self.truth, batch, size)
        lengths = narrow.case.lengths
        narrow.masks = {name: mask for name, _, mask, _ in parts(narrow.truth, lengths)}
        return narrow

    def off(self, outputs: Outputs) -> dict[str, Deviation]:
        """Return how far each output is off, by name, without those that are missing or have another shape."""
        arrays = {name: values for name, values, *_ in parts(_listed(outputs), self.case.lengths)}
        offs = {}
        for name, values, mask, _ in parts(self.truth, self.case.lengths):
            if name in self.allowed and name in arrays and arrays[name].shape == values.shape:
                error = distance(arrays[name], values, mask)
                with np.errstate(all="ignore"):
                    ratio = np.where(error == 0, 0.0, error / self.allowed[name])
                    ratio = np.where(np.isnan(ratio), np.inf, ratio)
                offs[name] = Deviation(float(error.max(initial=0.0)), float(ratio.max(initial=0.0)))
        return offs

    def fits(self, outputs: Outputs) -> bool:
        """Return whether the outputs found have the shapes that they should have, as far as both are known."""
        pairs = [(outputs.y, self.truth.y)]
        for states_given, states in ((outputs.hidden, self.truth.hidden), (outputs.cell, self.truth.cell)):
            if states_given and states:
                pairs += list(itertools.zip_longest(states_given, states))
        return all(array is not None and other is not None and array.shape == other.shape for array, other in pairs)

    def explains(self, outputs: Outputs) -> bool:
        """Return whether the outputs found are right, but for rounding."""
        return self.fits(outputs) and self.worst(outputs).ratio <= 1

    def near(self, outputs: Outputs) -> bool:
        """Return whether rounding, in any model of this size, may explain the error."""
        if not self.fits(outputs):
            return False
        most = max((float(np.max(allowed, initial=0.0)) for allowed in self.allowed.values()), default=0.0)
        return all(off.error <= FAR * most for off in self.off(outputs).values())

    def worst(self, outputs: Outputs) -> Deviation:
        """Return the output with the largest error."""
        return max(self.off(outputs).values(), key=lambda off: off.ratio, default=Deviation(0.0, 0.0))


def _listed(outputs: Outputs) -> Outputs:
    """Return the outputs with states as tuples: a framework that gives none has None."""
    return replace(outputs, hidden=tuple(outputs.hidden or ()), cell=tuple(outputs.cell or ()))


def distance(values: Array, truth: Array, mask: Array | None) -> Array:
    """Return |found - truth| where it counts; infinite where only one is finite."""
    values, truth = np.asarray(values, np.float64), np.asarray(truth, np.float64)
    with np.errstate(all="ignore"):
        gap = np.abs(values - truth)
    same = (values == truth) | (np.isnan(values) & np.isnan(truth))
    gap = np.where(same, 0.0, np.where(np.isfinite(gap), gap, np.inf))
    return gap if mask is None else np.where(mask, gap, 0.0)


def settled(stack: Recurrent) -> Recurrent:
    """Return the stack with every array computed, so that many runs do not compute it each time."""
    return each(stack, lambda d: d.with_arrays({key: np.asarray(source) for key, source in d.arrays.items()}))


def narrowed(case: Case, batch: int, time: int) -> Case:
    """Return the case cut to some sequences, including the last, and to some steps."""
    rows = np.unique([*range(min(batch, case.x.shape[1]) - 1), case.x.shape[1] - 1])
    changes: Mapping[str, Any] = {
        "x": case.x[:time, rows],
        "hidden": None if case.hidden is None else tuple(state[rows] for state in case.hidden),
        "cell": None if case.cell is None else tuple(state[rows] for state in case.cell),
        "lengths": None if case.lengths is None else np.minimum(case.lengths[rows], time),
        "cotangents": None,
    }
    return replace(case, **changes)


def rows_of(outputs: Outputs, batch: int, size: int) -> Outputs:
    """Return the outputs of the sequences that `narrowed` keeps, at every step."""
    rows = np.unique([*range(min(batch, size) - 1), size - 1])
    listed = _listed(outputs)
    return Outputs(listed.y[:, rows], tuple(state[rows] for state in listed.hidden), tuple(state[rows] for state in listed.cell))
