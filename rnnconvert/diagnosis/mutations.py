"""The mutation score: which wrong conventions these very inputs and weights would have caught.

A comparison that passes proves little if it would have passed with the biases dropped as well. So every fault is planted
in turn, and counts as caught if it is off by at least MARGIN times what is allowed, in some output of some case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.cached import cached_property
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.diagnosis.faults import FAULTS, IN_EVERY_LAYER, Fault
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import solved
from rnnconvert.judging.measure import Deviation, Measure, narrowed, settled

MARGIN = 10
"""How many times what is allowed a fault must be off to count as caught."""

CLEAR = 100
"""How many times the rounding of float32 a fault must be off to be judged by a run in float32, which is twice as fast."""

BUDGET = 2_000_000
"""How many products of a weight and a value one run may take; a larger case is cut to fewer sequences and steps."""


@dataclass(frozen=True)
class CaughtFault:
    """A fault that would have been caught: how far off, how many times what is allowed, and in which case."""

    name: str
    error: float
    times_allowed: float
    case: str


@dataclass(frozen=True)
class MissedFault:
    """A fault that would have passed, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Score:
    """Which faults these inputs and weights reveal.

    caught        faults that they catch, those that show best first
    missed        faults that a layer like this can have, and that they do not catch
    inapplicable  faults that it cannot have, or that no case can show, and what would be needed
    """

    caught: tuple[CaughtFault, ...]
    missed: tuple[MissedFault, ...]
    inapplicable: tuple[MissedFault, ...]

    def __str__(self) -> str:
        total = len(self.caught) + len(self.missed)
        return f"{len(self.caught)} of {total} wrong conventions would have been caught"


@np.errstate(all="ignore")  # a fault may make numbers that are not finite: that is caught like any other
def score(
    stack: Recurrent, cases: Sequence[Case], dtype: Any = None, progress: Callable[[int, int], None] = lambda done, total: None
) -> Score:
    """Return the mutation score of a layer and its cases.

    dtype     element type that a model of it computes in, the weights' own if None: the rounding allowed depends on it
    progress  receives how many wrong conventions are done, of how many
    """
    stack = settled(stack)
    measures = _Screened.of_all(stack, [capped(stack, case) for case in cases], dtype or stack.dtype)
    caught: list[CaughtFault] = []
    missed: list[MissedFault] = []
    inapplicable: list[MissedFault] = []
    for number, fault in enumerate(FAULTS.values()):
        progress(number, len(FAULTS))
        effect = _effect(fault, stack, measures)
        if effect is None:
            inapplicable.append(MissedFault(fault.name, f"needs {fault.needs}"))
        elif effect[0].ratio >= MARGIN:
            caught.append(CaughtFault(fault.name, effect[0].error, effect[0].ratio, effect[1]))
        else:
            missed.append(MissedFault(fault.name, _why(fault, stack, effect[0])))
    caught.sort(key=lambda entry: -entry.times_allowed)
    return Score(tuple(caught), tuple(missed), tuple(inapplicable))


@dataclass(frozen=True)
class _Screened:
    """A measure, and what float32 gives for its case: a fault that is far beyond its rounding needs no float64.

    exact  the measure, around the truth in float64
    quick  the same around what float32 gives
    floor  how far the two are apart at most
    """

    exact: Measure
    quick: Measure
    floor: float

    @classmethod
    def of_all(cls, stack: Recurrent, cases: Sequence[Case], dtype: Any) -> list[_Screened]:
        """Return the measures of several cases, which run together."""
        truths, single = solved(stack, cases), solved(stack, cases, np.float32)
        kinds = {np.dtype(np.float64): truths, np.dtype(np.float32): single}
        if np.dtype(dtype) not in kinds:
            kinds[np.dtype(dtype)] = solved(stack, cases, dtype)
        exact = [
            Measure(case, dtype, lambda kind, number=number: kinds[np.dtype(kind)][number])  # type: ignore[misc]
            for number, case in enumerate(cases)
        ]
        return [cls(measure, measure.around(outputs), measure.worst(outputs).error) for measure, outputs in zip(exact, single, strict=True)]

    def at_once(self, planted: _Planted) -> Deviation | None:
        """Return how far the final states of the first direction or layer are off, which cost least; None if not clearly."""
        for state in planted.first_states(self.exact.case, self.quick.truth):
            off = self.quick.worst(state)
            if self._is_clear(off):
                return off
        return None

    def off(self, planted: _Planted) -> Deviation | None:
        """Return how far a fault is off; None where it does not apply to the case. In float64 only if it is not clear before."""
        case = self.exact.case
        quick = planted.outputs(case, np.float32)
        if quick is None:
            return None
        off = self.quick.worst(quick)
        if self._is_clear(off):
            return off
        exact = planted.outputs(case, np.float64)
        return None if exact is None else self.exact.worst(exact)

    def _is_clear(self, off: Deviation) -> bool:
        far = off.ratio >= CLEAR * MARGIN and off.error >= CLEAR * self.floor
        return far and bool(np.isfinite(off.error))


class _Planted:
    """A stack with a fault in it; the whole stack is made only when it is needed."""

    def __init__(self, fault: Fault, stack: Recurrent) -> None:
        self.fault, self._stack = fault, stack

    @property
    def possible(self) -> bool:
        """Whether the fault applies to the stack, if it is one of weights."""
        if self.fault.direction is not None:
            return any(self.fault.direction(d) is not None for *_, d in self._stack.directions())
        return self.fault.change is None or self._planted_stack is not None

    @cached_property
    def _planted_stack(self) -> Recurrent | None:
        planted = None if self.fault.change is None else self.fault.change(self._stack)
        return None if planted is None else settled(planted)

    @cached_property
    def _first(self) -> tuple[int, Recurrent] | None:
        """The first direction of the first layer that can have the fault: its number, and with the fault, alone."""
        for number, direction in enumerate(self._stack.layers[0].directions):
            changed = None if self.fault.direction is None else self.fault.direction(direction)
            if changed is not None:
                return number, settled(Recurrent("", (Layer((changed,)),)))
        return None

    def first_states(self, case: Case, right: Outputs) -> Iterator[Outputs]:
        """Yield the final states of the first direction, or layer, alone, in float32, as outputs without steps.

        right  what the stack gives without the fault
        """
        if self._stack.num_layers * self._stack.num_directions == 1:
            return
        outputs: Outputs | None = None
        if self.fault.direction is not None:
            if self._first is not None:
                number, alone = self._first
                outputs = _cut(case, number, number + 1).solve(alone, np.float32)
                outputs = replace(outputs, hidden=(*right.hidden[:number], *outputs.hidden), cell=(*right.cell[:number], *outputs.cell))
        elif self.fault.change is None and self.fault.name in IN_EVERY_LAYER:
            layer = self._stack.replace(layers=self._stack.layers[:1], readout=(), output_order="time")
            outputs = self.fault.run(layer, _cut(case, 0, len(layer.layers[0].directions)), np.float32)
        if outputs is not None:
            yield replace(outputs, y=np.zeros((*case.x.shape[:2], 0), np.float32))

    def outputs(self, case: Case, dtype: Any) -> Outputs | None:
        """Return the outputs of the faulty model; None if a fault of runs does not apply to the case."""
        if self.fault.change is None:
            return self.fault.run(self._stack, case, dtype)
        return None if self._planted_stack is None else case.solve(self._planted_stack, dtype)


def _cut(case: Case, start: int, stop: int) -> Case:
    """Return the case with the states of some directions only."""
    hidden, cell = (None if states is None else states[start:stop] for states in (case.hidden, case.cell))
    return replace(case, hidden=hidden, cell=cell)


def _effect(fault: Fault, stack: Recurrent, measures: Sequence[_Screened]) -> tuple[Deviation, str] | None:
    """Return how far a fault is off, in the first case that catches it or else where it is off most; None if none can show it."""
    best: tuple[Deviation, str] | None = None
    planted = _Planted(fault, stack)
    if not planted.possible:
        return None
    for measure in measures:
        clear = measure.at_once(planted)
        if clear is not None:
            return clear, measure.exact.case.name
    for measure in measures:
        off = measure.off(planted)
        if off is None:
            continue
        if best is None or off.ratio > best[0].ratio:
            best = off, measure.exact.case.name
        if off.ratio >= MARGIN:
            break
    return best


def _why(fault: Fault, stack: Recurrent, off: Deviation) -> str:
    """Return why a fault does not show."""
    planted = fault.change(stack) if fault.change is not None else None
    if planted is not None and same_numbers(stack, planted):
        return "it changes none of these weights: what it moves or drops is zero, or equal"
    if off.error == 0:
        return "these inputs give the same outputs with it, to the last digit"
    return f"off by {off.error:.2g}, {off.ratio:.2g} times what rounding explains: too little to be distinguished from it"


def same_numbers(first_stack: Recurrent, other: Recurrent) -> bool:
    """Return whether two stacks have the same cells and numbers; an array absent in one may be zero in the other."""
    if first_stack.join != other.join or first_stack.output_order != other.output_order:
        return False
    pairs = list(zip(first_stack.directions(), other.directions(), strict=False))
    for (*_, first), (*_, second) in pairs:
        if first.cell != second.cell or first.reverse != second.reverse:
            return False
        for key in {*first.arrays, *second.arrays}:
            a, b = first.get(*key), second.get(*key)
            if a is None or b is None:
                present = a if a is not None else b
                if present is not None and present.any():
                    return False
            elif a.shape != b.shape or not np.array_equal(a, b):
                return False
    return [layer.merge for layer in first_stack.layers] == [layer.merge for layer in other.layers]


def cost(stack: Recurrent) -> int:
    """Return the products of a weight and a value for one step of one sequence."""
    return sum(int(np.prod(s.shape)) for *_, d in stack.directions() for s in d.arrays.values() if len(s.shape) == 2)


def capped(stack: Recurrent, case: Case) -> Case:
    """Return the case, cut until one run of it takes no more than BUDGET products; at least 2 sequences of 4 steps are left."""
    time, batch = case.x.shape[:2]
    steps = max(1, BUDGET // cost(stack))
    if time * batch <= steps:
        return case
    remaining = max(4, min(time, steps // 2))
    return narrowed(case, max(2, steps // remaining), remaining)
