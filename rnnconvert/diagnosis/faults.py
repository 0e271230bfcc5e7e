"""The wrong conventions that people ship, each as what it does to weights (fault_weights) or to a run (fault_runs).

A fault of weights makes another stack; one of runs gives other outputs for the right stack. Either gives None where it
does not apply: a layer without peepholes cannot lose them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis import fault_stacks
from rnnconvert.diagnosis import fault_weights as weights
from rnnconvert.diagnosis.fault_runs import Run
from rnnconvert.diagnosis.fault_stacks import StackChange
from rnnconvert.diagnosis.fault_tables import ARRAY_ROWS, DIRECTION_ROWS, RUN_ROWS, STACK_ROWS
from rnnconvert.diagnosis.fault_weights import Change
from rnnconvert.judging.case_kinds import Case


@dataclass(frozen=True)
class Fault:
    """A wrong convention.

    name       what reports call it
    sentence   what completes "equal if ..."
    needs      what a layer or a case must have to show it, in words
    change     what it does to a stack's weights; None for a fault of runs
    direction  what it does to one direction's weights; None where it concerns several, or a run
    wrong      what a run with it gives; None for a fault of weights
    """

    name: str
    sentence: str
    needs: str
    change: StackChange | None = None
    direction: Change | None = None
    wrong: Run | None = None

    def run(self, stack: Recurrent, case: Case, dtype: Any = np.float64) -> Outputs | None:
        """Return the outputs of a model with this fault for a case; None if the fault does not apply."""
        if self.wrong is not None:
            return self.wrong(stack, case, dtype)
        assert self.change is not None
        changed = self.change(stack)
        return None if changed is None else case.solve(changed, dtype)

    def at(self, layer: int, number: int, words: str) -> Fault | None:
        """Return this fault in one direction of one layer only; None if it concerns several."""
        return self.at_places([(layer, number)], words)

    def at_places(self, places: Sequence[tuple[int, int]], words: str) -> Fault | None:
        """Return this fault in some directions only, each given by its layer and its number; None if it concerns several.

        words  the places as a report names them
        """
        change = self.direction
        if change is None:
            return None

        def only(stack: Recurrent) -> Recurrent | None:
            changed = stack
            for layer, number in places:
                direction = change(stack[layer, number])
                if direction is not None:
                    changed = weights.with_direction(changed, layer, number, direction)
            return None if changed is stack else changed

        return Fault(f"{self.name}, {words} only", f"{self.sentence} in {words} only", self.needs, only)


_ALL = (
    *(Fault(name, sentence, needs, fault_stacks.everywhere(change), change) for name, sentence, needs, change in DIRECTION_ROWS),
    *(Fault(name, sentence, needs, change) for name, sentence, needs, change in STACK_ROWS),
    *(Fault(name, sentence, needs, wrong=wrong) for name, sentence, needs, wrong in RUN_ROWS),
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}
"""Every fault by its name, the likelier explanation first."""

IN_EVERY_LAYER = frozenset(
    {
        "lengths ignored",
        "final states at the padded end",
        "initial states ignored",
        "initial states of ones",
        "initial cell state ignored",
        "h_0 and c_0 swapped",
        "final states are the initial ones",
        "state not carried over",
        "backward direction reads the padding",
    }
)
"""Faults of runs that concern the first layer of a stack as they do one of that layer alone."""

ACROSS = frozenset({"batch and time exchanged"})
"""Faults that mix sequences: their outputs for some sequences are not part of those for all."""


ARRAYS: dict[str, Fault] = {
    name: Fault(name, sentence, needs, fault_stacks.everywhere(change), change) for name, sentence, needs, change in ARRAY_ROWS
}
"""Faults of one matrix, one bias or one gate of it, and other functions: searched for, but not scored, as the faults above show the same
about inputs."""


def of_stack(stack: Recurrent) -> Iterator[Fault]:
    """Yield the faults that concern whole layers of a stack: two layers exchanged, the directions of one layer exchanged."""
    for number, other in itertools.combinations(range(stack.num_layers), 2):
        pair = f"layers {number} and {other}"
        yield Fault(f"{pair} exchanged", f"{pair} are exchanged", "two layers of equal sizes", fault_stacks.layers_exchanged(number, other))
    for layer in range(stack.num_layers if stack.num_layers > 1 else 0):
        yield Fault(
            f"directions swapped, layer {layer} only",
            f"the two directions' weights are exchanged in layer {layer} only",
            "two directions",
            fault_stacks.directions_exchanged(layer),
        )
