"""Which faults explain the outputs found: single ones, then faults of some layers, directions or arrays, then two at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.diagnosis.by_arrays import Place, grouped, likeliest, placed, words_of
from rnnconvert.diagnosis.comparing import Way, of_directions
from rnnconvert.diagnosis.fault_runs import merged
from rnnconvert.diagnosis.faults import ACROSS, ARRAYS, FAULTS, Fault, of_stack
from rnnconvert.diagnosis.first_difference import place
from rnnconvert.diagnosis.mutations import cost
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.measure import FAR, Deviation, Measure, distance, rows_of, settled

Answers = Sequence[tuple[Case, Outputs]]
"""The outputs found for each case."""

_WORK = 4_000_000_000
"""How many products of a weight and a value the search for two faults may take; it is cut short at the likelier ones."""

_START = 30
"""The cost of preparing a stack for a run, in steps of one sequence."""

_CLOSE = 30
"""How many times what is allowed the final state of a direction may be off, given what is wrong below it, and count as explained."""

_NEAREST = 6
"""How many of the conventions that come nearest are tried with each other one."""

_TOGETHER = 2
"""How many sequences sift the faults before all sequences are run."""


Planted = tuple[Recurrent, Fault | None]
"""A stack with faults of weights, and a fault of the run."""


class FaultSearch:
    """A stack, what it should have given and what was found instead, for at least one case.

    tried   how many conventions were tried, and `places`, where, in words
    two     the sentence about pairs when none was found: how many were tried
    stuck   the first direction whose final state no convention explains, in words; "" if that is unknown
    """

    def __init__(self, stack: Recurrent, measures: Sequence[Measure], answers: Answers) -> None:
        self.stack, self.two, self.stuck = stack, "no two of them", ""
        self.tried, self.places = len(FAULTS), "in the whole stack"
        self._last = stack.num_layers - 1
        self._all = list(zip(measures, (outputs for _, outputs in answers), strict=True))
        wrong = [(each, outputs) for each, outputs in self._all if not each.explains(outputs)]
        # The least work among those that differ; a single step can tell little.
        measure, answer = min(wrong, key=lambda pair: (len(pair[0].case.x) < 3, pair[0].case.x[..., 0].size))
        self._few = measure.narrowed(_TOGETHER), rows_of(answer, _TOGETHER, measure.case.x.shape[1])

    def explained(self) -> list[Explanation]:
        """Return every single fault that explains all answers; else those in some layers, directions or arrays; else the
        first two together.
        """
        explanations = self._meeting((fault,) for fault in FAULTS.values())
        if explanations:
            return explanations
        more = [*ARRAYS.values(), *of_stack(self.stack)]
        self.tried += len(more)
        self.places += ", its matrices and gates"
        explanations = self._meeting((fault,) for fault in more)
        if not explanations and len(self._order) > 1:
            self.places += ", and in each layer and direction"
            explanations = (self._by_final_states() if self._states_known else []) or self._in_places()
        return explanations or self._pair()

    def nothing(self) -> str:
        """Return the sentence on what was searched without success."""
        text = f"none of the {self.tried} known wrong conventions explains it, tried {self.places}, and {self.two}"
        if self.stuck:
            text += f". Up to {self.stuck} every final state is explained; there, none of them explains it"
        return text

    def _meeting(self, candidates: Iterator[Way]) -> list[Explanation]:
        explanations = []
        for faults in candidates:
            if len(faults) == 1 and not self._may_begin(faults[0]):
                continue
            explanation = self._meets(faults)
            if explanation is not None:
                explanations.append(Explanation(tuple(placed(self.stack, fault) for fault in faults), explanation.off))
        return explanations

    # The final state of each direction is an output: it judges that direction without running the others.

    @cached_property
    def _order(self) -> list[Place]:
        return [(index, number) for index, number, _ in self.stack.directions()]

    @property
    def _states_known(self) -> bool:
        answer = self._few[1]
        states = [answer.hidden, *([answer.cell] if self.stack.cell.kind == "lstm" else [])]
        return all(len(state or ()) == len(self._order) for state in states)

    def _may_begin(self, fault: Fault) -> bool:
        """Return whether a fault of each direction may explain the final state of the first one."""
        if fault.direction is None or not self._states_known or len(self._order) < 2:
            return True
        changed = fault.direction(self.stack.first)
        if changed is None:
            return True
        off = self._state_off(0, self._alone(0, changed, self._few[0].case.x))
        return off <= self._far

    @cached_property
    def _far(self) -> float:
        """The error that rounding may explain in any model of this size."""
        allowed = self._few[0].allowed.values()
        return FAR * max((float(np.max(array, initial=0.0)) for array in allowed), default=0.0)

    def _alone(self, order: int, direction: Direction, x: Array) -> Outputs:
        """Return the outputs of one direction for an input."""
        case = self._few[0].case
        hidden, cell = (states and states[order : order + 1] for states in (case.hidden, case.cell))
        return reference.run(Recurrent("", (Layer((direction,)),)), x, hidden or None, cell or None, case.lengths)

    def _state_off(self, order: int, outputs: Outputs) -> float:
        """Return how far the final states of a direction are from those found."""
        answer = self._few[1]
        pairs = [(outputs.hidden[0], answer.hidden[order])]
        pairs += [(outputs.cell[0], answer.cell[order])] if outputs.cell else []
        return max(float(distance(state, left, None).max(initial=0.0)) for left, state in pairs)

    def _by_final_states(self) -> list[Explanation]:
        """Explain the final state of one direction after the other, each with what is wrong below it."""
        small = self._far / FAR * _CLOSE
        ways_by_place: dict[Place, list[Way]] = {}
        below: list[Array] = [self._few[0].case.x] * 2
        for index, layer in enumerate(self.stack.layers):
            outputs = []
            for number, direction in enumerate(layer.directions):
                order = self._order.index((index, number))
                x = below[number] if self.stack.join == "end" else below[0]
                outputs_of_direction = self._alone(order, direction, x)
                if self._state_off(order, outputs_of_direction) > small:
                    ways = self._ways(order, direction, x, small)
                    if not ways:
                        self.stuck, self._last = place(self.stack, index, number), index
                        return []
                    ways_by_place[index, number] = ways
                    outputs_of_direction = self._alone(order, _with(direction, ways[0]), x)
                outputs.append(outputs_of_direction.y)
            below = outputs if self.stack.join == "end" else [merged(outputs, layer.merge)] * 2
        return self._together(ways_by_place)

    def _ways(self, order: int, direction: Direction, x: Array, small: float) -> list[Way]:
        """Return the conventions that explain a direction's final state, or else the first two together."""
        near: list[tuple[float, Fault]] = []
        fits: list[Way] = []
        for fault in of_directions():
            changed = _with(direction, (fault,))
            if changed is direction:
                continue
            off = self._state_off(order, self._alone(order, changed, x))
            near.append((off, fault))
            if off <= small:
                fits.append((fault,))
        if fits:
            return fits
        near.sort(key=lambda entry: entry[0])
        for _, first in near[:_NEAREST]:
            for _, second in near:
                for way in ((first, second), (second, first)):
                    changed = _with(direction, way)
                    if self._state_off(order, self._alone(order, changed, x)) <= small:
                        return [way]
        return []

    def _together(self, ways_by_place: Mapping[Place, list[Way]]) -> list[Explanation]:
        """Return the explanations of every direction, judged by all answers."""
        if not ways_by_place:
            return []
        best = likeliest(ways_by_place)
        tries = [best]
        for at, ways in ways_by_place.items():
            tries += [{**best, at: way} for way in ways if way != best[at]][:_NEAREST]
        attempts = (self._meets(tuple(grouped(self.stack, attempt))) for attempt in tries)
        return [explanation for explanation in attempts if explanation is not None]

    def _in_places(self) -> list[Explanation]:
        """Try each fault in each layer, then in each direction, by running the whole stack."""
        # What is wrong above the first layer that is off cannot be the reason alone.
        layers = self.stack.layers[: self._last + 1]
        places = [
            *([(index, number) for number in range(len(layer.directions))] for index, layer in enumerate(layers)),
            *([at] for at in self._order if at[0] <= self._last and len(self.stack.layers[at[0]].directions) > 1),
        ]
        tries = [
            placed_fault
            for fault in of_directions()
            for some in places
            if (placed_fault := fault.at_places(some, words_of(self.stack, some))) is not None
        ]
        limit = self._limit()
        if limit < len(tries):
            self.places += f" (the first {limit:,} of {len(tries):,})"
        return self._meeting((fault,) for fault in tries[:limit])

    def _limit(self) -> int:
        """Return how many runs of the whole stack the search may take."""
        time, batch = self._few[0].case.x.shape[:2]
        limit: int = max(20, _WORK // (cost(self.stack) * (time * batch + _START)))
        return limit

    def _planted(self, faults: Way) -> Planted | None:
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

    def _meets(self, faults: Way) -> Explanation | None:
        """Return the faults, if they explain every answer."""
        planted = self._planted(faults)
        if planted is None:
            return None
        measure, answer = self._few
        alone = planted[1] is None or planted[1].name not in ACROSS
        if alone and not measure.around(_outputs(planted, measure.case)).near(answer):
            return None
        faulty = settled(planted[0]), planted[1]
        worst = Deviation(0.0, 0.0)
        for measure, answer in self._all:
            # Quickly away with what is far off; what is near is judged by what rounding explains of the faulty model.
            if not measure.around(_outputs(faulty, measure.case)).near(answer):
                return None
            own_off = Measure(measure.case, measure.dtype, functools.partial(_outputs, faulty, measure.case)).worst(answer)
            if own_off.ratio > 1:
                return None
            worst = max(worst, own_off, key=lambda off: off.error)
        return Explanation(faults, worst)

    def _pair(self) -> list[Explanation]:
        """Return two faults that explain every answer together, trying first those that come nearest by themselves."""
        ranked = self._ranked()
        rank = {fault.name: number for number, fault in enumerate(ranked)}
        pairs = [both for both in itertools.combinations(ranked, 2) if both[0].change or both[1].change]
        pairs.sort(key=lambda both: rank[both[0].name] + rank[both[1].name])
        limit = self._limit()
        if limit < len(pairs):
            self.two = f"none of the {limit:,} nearest pairs"
        for both in pairs[:limit]:
            # The order counts where both change weights; a fault of runs comes last in any.
            for faults in (both, both[::-1]) if both[0].change and both[1].change else (both,):
                explanation = self._meets(faults)
                if explanation is not None:
                    return [explanation]
        return []

    def _ranked(self) -> list[Fault]:
        """Return the faults that apply, those first whose outputs are nearest to those found."""
        measure, answer = self._few
        ranked = []
        for fault in FAULTS.values():
            planted = self._planted((fault,))
            if planted is not None:
                offs = measure.around(_outputs(planted, measure.case)).off(answer).values()
                ranked.append((sum(float(np.log10(np.clip(off.ratio, 1, 1e12))) for off in offs), fault))
        return [fault for _, fault in sorted(ranked, key=lambda entry: entry[0])]


def _with(direction: Direction, way: Way) -> Direction:
    """Return a direction with these faults; those that do not apply change nothing."""
    for fault in way:
        assert fault.direction is not None
        direction = fault.direction(direction) or direction
    return direction


def _outputs(planted: Planted, case: Case, dtype: Any = np.float64) -> Outputs:
    """Return the outputs of a model with these faults for a case; a fault of runs may not apply to it."""
    stack, run = planted
    outputs = None if run is None else run.run(stack, case, dtype)
    return case.solve(stack, dtype) if outputs is None else outputs


# A fault that explains the outputs found, in words.


@dataclass(frozen=True)
class Explanation:
    """Faults that explain all answers, and how far their outputs are from those found."""

    faults: Way
    off: Deviation

    @property
    def name(self) -> str:
        """The faults by name."""
        return " and ".join(fault.name for fault in self.faults)

    @property
    def sentence(self) -> str:
        """The completion of "equal if"."""
        return " and ".join(fault.sentence for fault in self.faults)
