"""Why outputs differ: the wrong convention that explains them, and where the difference begins."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.equivalence import beginning
from rnnconvert.equivalence.cases import Case
from rnnconvert.equivalence.difference import differences
from rnnconvert.equivalence.faults import FAULTS, Fault
from rnnconvert.equivalence.measure import Measure, Off, rows_of, settled
from rnnconvert.equivalence.mutations import BUDGET, cost
from rnnconvert.executors.reference import Outputs
from rnnconvert.weights import Recurrent

Answers = Sequence[tuple[Case, Outputs]]
"""What was found for each case."""

_PAIRS = 600
"""How many pairs of faults are tried at most, the likelier ones first."""


@dataclass(frozen=True)
class Diagnosis:
    """Why outputs differ.

    sentences  for people: what explains it, where it begins, what differs
    fault      name of the fault that explains it, two joined by " and "; "" if none does, or nothing differs
    """

    sentences: tuple[str, ...]
    fault: str = ""


@dataclass(frozen=True)
class _Met:
    """A fault, or two, and how far what they give is from what was found, over all answers."""

    faults: tuple[Fault, ...]
    off: Off

    @property
    def name(self) -> str:
        return " and ".join(fault.name for fault in self.faults)

    @property
    def sentence(self) -> str:
        return " and ".join(fault.sentence for fault in self.faults)


@np.errstate(all="ignore")
def diagnose(stack: Recurrent, answers: Answers, dtype: Any = None, counterpart: Recurrent | None = None) -> Diagnosis:
    """Why what was found for some cases is not what a stack gives.

    dtype        element type that they were computed in, the weights' own if None
    counterpart  the layer of the other file in canonical form, where the outputs come from one
    """
    stack = settled(stack)
    dtype = np.dtype(dtype or stack.dtype)
    measures = [Measure.of(stack, case, dtype) for case, _ in answers]
    offs = [measure.off(found) for measure, (_, found) in zip(measures, answers, strict=True)]
    shapes = list(beginning.shapes(measures, answers))
    if all(off.ratio <= 1 for by_output in offs for off in by_output.values()) and not shapes:
        error = max((off.error for by_output in offs for off in by_output.values()), default=0.0)
        return Diagnosis((_equal(error),))
    explained = _explained(stack, measures, answers)
    sentences = [*_reason(explained), *shapes, *beginning.where(stack, measures, offs, answers)]
    if counterpart is not None:
        sentences += _weights(stack, counterpart, answers, dtype)
    return Diagnosis(tuple(sentences), explained[0].name if explained else "")


def _equal(error: float) -> str:
    return f"equal to {error:.2g}" if error else "exactly equal"


def _reason(explained: Sequence[_Met]) -> Iterator[str]:
    if not explained:
        yield "no wrong convention that is known here explains it, and no two of them"
        return
    first, *others = explained
    yield f"{_equal(first.off.error)} if {first.sentence}"
    if others:
        shown = "; ".join(other.sentence for other in others[:3])
        yield f"these inputs and weights cannot tell that from: {shown}" + ("; ..." if len(others) > 3 else "")


def _explained(stack: Recurrent, measures: Sequence[Measure], answers: Answers) -> list[_Met]:
    """The faults that explain every answer: single ones, then those in one direction only, then pairs."""
    found = _search([(fault,) for fault in FAULTS.values()], stack, measures, answers)
    several = stack.num_layers * stack.num_directions > 1
    if not found and several:
        singles = (
            one
            for fault in FAULTS.values()
            for index, number, _ in stack.directions()
            if (one := fault.at(index, number, beginning.place(stack, index, number))) is not None
        )
        found = _search([(one,) for one in singles], stack, measures, answers)
    return found or _pairs(stack, measures, answers)


def _search(
    candidates: Sequence[tuple[Fault, ...]], stack: Recurrent, measures: Sequence[Measure], answers: Answers
) -> list[_Met]:
    return [met for faults in candidates if (met := _meets(faults, stack, measures, answers)) is not None]


def _planted(faults: tuple[Fault, ...], stack: Recurrent) -> tuple[Recurrent, Fault | None] | None:
    """The stack with all faults of weights, and the fault of runs among them; None if one does not apply."""
    run = None
    for fault in faults:
        if fault.change is None:
            run = fault
            continue
        changed = fault.change(stack)
        if changed is None:
            return None
        stack = changed
    return stack, run


def _outputs(planted: tuple[Recurrent, Fault | None], case: Case, dtype: Any = np.float64) -> Outputs:
    """What a model with these faults gives for a case; a fault of runs may have nothing to do with it."""
    stack, run = planted
    found = None if run is None else run.run(stack, case, dtype)
    return case.solve(stack, dtype) if found is None else found


def _meets(faults: tuple[Fault, ...], stack: Recurrent, measures: Sequence[Measure], answers: Answers) -> _Met | None:
    """The faults, if they explain every answer."""
    planted = _planted(faults, stack)
    if planted is None:
        return None
    faulty = settled(planted[0]), planted[1]
    worst = Off(0.0, 0.0)
    for measure, (case, found) in zip(measures, answers, strict=True):
        # Quickly away with what is far off; what is near is judged by what rounding explains of the faulty model itself.
        if not measure.around(_outputs(faulty, case)).near(found):
            return None
        own = Measure(case, measure.dtype, functools.partial(_outputs, faulty, case)).worst(found)
        if own.ratio > 1:
            return None
        worst = max(worst, own, key=lambda off: off.error)
    return _Met(faults, worst)


def _pairs(stack: Recurrent, measures: Sequence[Measure], answers: Answers) -> list[_Met]:
    """Two faults that explain every answer together: those that come nearest by themselves first, and a bounded number."""
    rough = [_Rough(measure, found) for measure, (_, found) in zip(measures, answers, strict=True)]
    rough.sort(key=lambda one: -one.measure.worst(one.found).ratio)
    first = rough[:1]
    ranked = []
    for fault in FAULTS.values():
        planted = _planted((fault,), stack)
        if planted is not None:
            ranked.append((sum(one.distance(_outputs(planted, one.measure.case)) for one in first), fault))
    ranked.sort(key=lambda entry: entry[0])
    candidates = [
        (one, other)
        for one, other in itertools.combinations([fault for _, fault in ranked], 2)
        if one.change is not None or other.change is not None
    ]
    place = {fault.name: number for number, (_, fault) in enumerate(ranked)}
    candidates.sort(key=lambda pair: place[pair[0].name] + place[pair[1].name])
    limit = min(_PAIRS, max(60, 50 * BUDGET // max(1, cost(stack) * first[0].measure.case.x[..., 0].size)))
    return next(([met] for pair in candidates[:limit] if (met := _both(pair, stack, first, measures, answers))), [])


def _both(
    pair: tuple[Fault, Fault], stack: Recurrent, first: Sequence[_Rough], measures: Sequence[Measure], answers: Answers
) -> _Met | None:
    """Two faults in either order, if they explain every answer."""
    for faults in (pair, pair[::-1]):
        planted = _planted(faults, stack)
        if planted is not None and all(one.near(_outputs(planted, one.measure.case)) for one in first):
            met = _meets(faults, stack, measures, answers)
            if met is not None:
                return met
        if None in (pair[0].change, pair[1].change):
            break
    return None


class _Rough:
    """Two sequences of one answer, by which faults are looked through."""

    def __init__(self, measure: Measure, found: Outputs) -> None:
        self.measure = measure.narrowed(2)
        self.found = rows_of(found, 2, measure.case.x.shape[1])

    def distance(self, truth: Outputs) -> float:
        """How far, as a sum of logarithms over the outputs."""
        offs = self.measure.around(truth).off(self.found).values()
        return float(sum(np.log10(np.clip(off.ratio, 1, 1e12)) for off in offs))

    def near(self, truth: Outputs) -> bool:
        """Whether it may be explained."""
        return self.measure.around(truth).near(self.found)


def _weights(stack: Recurrent, counterpart: Recurrent, answers: Answers, dtype: np.dtype[Any]) -> Iterator[str]:
    """What the other file's own weights say of it."""
    found_in = differences(stack, counterpart)
    yield from beginning.gates(found_in)
    try:
        own = [Measure.of(settled(counterpart), case, dtype).worst(found) for case, found in answers]
    except (ValueError, KeyError, IndexError):  # a counterpart of other sizes cannot be given these cases
        return
    error = max((off.error for off in own), default=0.0)
    if all(off.ratio <= 1 for off in own):
        yield f"the other file's own weights give what was found, to {error:.2g}: it is the conversion, not the run"
    elif all(one.equal for one in found_in):
        yield "the weights are the same in both files: it is the run, not the conversion"
