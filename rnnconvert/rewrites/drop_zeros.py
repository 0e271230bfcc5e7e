"""Parts of zeros left out."""

from __future__ import annotations

import numpy as np

from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import BIAS_PARTS, Direction
from rnnconvert.language import registry
from rnnconvert.rewrites.arrays import drop
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite, largest

_DROPPED = ("peephole", *BIAS_PARTS, "initial_hidden", "initial_cell")
"""The parts that are added to something, so that zeros may be left out."""


def _obstacle(direction: Direction, part: str) -> Obstacle | None:
    for (name, gate), source in direction.arrays.items():
        if name == part and (part not in _DROPPED or np.any(np.asarray(source))):
            return _in_words(part, gate, *largest(np.asarray(source)))
    return None


def _in_words(part: str, gate: str, value: float, index: tuple[int, ...]) -> Obstacle:
    if part == "peephole":
        return Obstacle(
            "peepholes",
            f"gate {gate} adds p * c to its pre-activation, p is as large as {value:.6g} (unit {index[0]}), but the target's "
            "equations have no such term",
            registry.conversion(lambda layout: "peephole" in layout.part_names, "whose LSTM has peepholes"),
        )
    if part in BIAS_PARTS:
        return Obstacle(
            "biases",
            f"it adds none, but {part} of gate {gate} is as large as {value:.6g}",
            f"Convert to a format that has them, or choose another mode of biases ({Setting('bias_mode', 'double')}).",
        )
    if part in _DROPPED:
        return Obstacle(
            "a learned initial state",
            f"{part} is as large as {value:.6g}, but the target starts from zero unless the call gives a state",
            f"Pass it at every call, and confirm with {Setting('initial_state', 'call')}.",
        )
    return Obstacle(part, "a matrix that is left out does not count as zeros")


DROP_ZEROS = Rewrite(
    "drop zeros", "A peephole, a bias or an initial state of zeros adds nothing.", True, "every value is zero", _obstacle, drop
)
"""Of a direction; part: what is left out."""
