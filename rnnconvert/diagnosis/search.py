"""Which faults explain the outputs found: single ones, then those of one direction, then two at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis.faults import ACROSS, FAULTS, Fault
from rnnconvert.diagnosis.first_difference import place
from rnnconvert.diagnosis.mutations import cost
from rnnconvert.judging.cases import Case
from rnnconvert.judging.measure import Measure, Off, rows_of, settled

Answers = Sequence[tuple[Case, Outputs]]
"""The outputs found for each case."""

_WORK = 4_000_000_000
"""How many products of a weight and a value the search for two faults may take; it is cut short at the likelier ones."""

_START = 30
"""The cost of preparing a stack for a run, in steps of one sequence."""

_TOGETHER = 2
"""How many sequences sift the faults before all sequences are run."""


@dataclass(frozen=True)
class Met:
    """Faults that explain all answers, and how far their outputs are from those found."""

    faults: tuple[Fault, ...]
    off: Off

    @property
    def name(self) -> str:
        """The faults by name."""
        return " and ".join(fault.name for fault in self.faults)

    @property
    def sentence(self) -> str:
        """What completes "equal if"."""
        return " and ".join(fault.sentence for fault in self.faults)


Planted = tuple[Recurrent, Fault | None]
"""A stack with faults of weights, and a fault of the run."""


class Search:
    """A stack, what it should have given and what was found.

    two  the sentence about pairs when none was found: how many were tried
    """

    def __init__(self, stack: Recurrent, measures: Sequence[Measure], answers: Answers) -> None:
        self.stack, self.two = stack, "no two of them"
        self._all = list(zip(measures, (found for _, found in answers), strict=True))
        wrong = [(m, found) for m, found in self._all if not m.fits(found) or m.worst(found).ratio > 1]
        # The least work among those that differ; a single step can tell little.
        measure, found = min(wrong, key=lambda one: (len(one[0].case.x) < 3, one[0].case.x[..., 0].size))
        self._few = measure.narrowed(_TOGETHER), rows_of(found, _TOGETHER, measure.case.x.shape[1])

    def explained(self) -> list[Met]:
        """Return every single fault that explains all answers; else those in one direction only; else the first two
        together.
        """
        found = self._meeting((fault,) for fault in FAULTS.values())
        found = found or self._meeting((fault,) for fault in self._in_one_direction())
        return found or self._pair()

    def _meeting(self, candidates: Iterator[tuple[Fault, ...]]) -> list[Met]:
        return [met for faults in candidates if (met := self._meets(faults)) is not None]

    def _in_one_direction(self) -> Iterator[Fault]:
        """Yield faults in the first direction that is off, or in each where that is unknown."""
        stack = self.stack
        if stack.num_layers * stack.num_directions == 1:
            return
        first = self._first_off()
        for fault in FAULTS.values():
            for index, number, _ in stack.directions():
                if first is None or (index, number) in first:
                    one = fault.at(index, number, place(stack, index, number))
                    if one is not None:
                        yield one

    def _first_off(self) -> list[tuple[int, int]] | None:
        """Return the directions that are off in the first layer whose final state is off; None without final states."""
        order = [(index, number) for index, number, _ in self.stack.directions()]
        off = {
            int(name.partition("[")[2].rstrip("]") or 0)
            for measure, found in self._all
            for name, one in measure.off(found).items()
            if name.startswith(("h_n", "c_n")) and one.ratio > 1
        }
        if not off or max(off) >= len(order):
            return None
        places = [order[number] for number in sorted(off)]
        return [one for one in places if one[0] == places[0][0]]

    def _planted(self, faults: tuple[Fault, ...]) -> Planted | None:
        """Return the stack with all faults of weights, and the fault of runs among them; None if one does not apply."""
        stack, run = self.stack, None
        for fault in faults:
            if fault.change is None:
                run = fault
                continue
            changed = fault.change(stack)
            if changed is None:
                return None
            stack = changed
        return stack, run

    def _meets(self, faults: tuple[Fault, ...]) -> Met | None:
        """Return the faults, if they explain every answer."""
        planted = self._planted(faults)
        if planted is None:
            return None
        measure, found = self._few
        alone = planted[1] is None or planted[1].name not in ACROSS
        if alone and not measure.around(_outputs(planted, measure.case)).near(found):
            return None
        faulty = settled(planted[0]), planted[1]
        worst = Off(0.0, 0.0)
        for measure, found in self._all:
            # Quickly away with what is far off; what is near is judged by what rounding explains of the faulty model.
            if not measure.around(_outputs(faulty, measure.case)).near(found):
                return None
            own = Measure(measure.case, measure.dtype, functools.partial(_outputs, faulty, measure.case)).worst(found)
            if own.ratio > 1:
                return None
            worst = max(worst, own, key=lambda off: off.error)
        return Met(faults, worst)

    def _pair(self) -> list[Met]:
        """Return two faults that explain every answer together, trying first those that come nearest by themselves."""
        ranked = self._ranked()
        rank = {fault.name: number for number, fault in enumerate(ranked)}
        pairs = [both for both in itertools.combinations(ranked, 2) if both[0].change or both[1].change]
        pairs.sort(key=lambda both: rank[both[0].name] + rank[both[1].name])
        time, batch = self._few[0].case.x.shape[:2]
        limit = max(20, _WORK // (cost(self.stack) * (time * batch + _START)))
        if limit < len(pairs):
            self.two = f"none of the {limit} nearest pairs"
        for both in pairs[:limit]:
            # The order counts where both change weights; a fault of runs comes last in any.
            for faults in (both, both[::-1]) if both[0].change and both[1].change else (both,):
                met = self._meets(faults)
                if met is not None:
                    return [met]
        return []

    def _ranked(self) -> list[Fault]:
        """Return the faults that apply, those first whose outputs are nearest to those found."""
        measure, found = self._few
        made = []
        for fault in FAULTS.values():
            planted = self._planted((fault,))
            if planted is not None:
                offs = measure.around(_outputs(planted, measure.case)).off(found).values()
                made.append((sum(float(np.log10(np.clip(off.ratio, 1, 1e12))) for off in offs), fault))
        return [fault for _, fault in sorted(made, key=lambda entry: entry[0])]


def _outputs(planted: Planted, case: Case, dtype: Any = np.float64) -> Outputs:
    """Return what a model with these faults gives for a case; a fault of runs may not apply to it."""
    stack, run = planted
    found = None if run is None else run.run(stack, case, dtype)
    return case.solve(stack, dtype) if found is None else found
