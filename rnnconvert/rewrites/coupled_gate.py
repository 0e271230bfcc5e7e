"""A coupled gate written out as an independent gate."""

from __future__ import annotations

import numpy as np

from rnnconvert.core.arrays import Source
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import GATE_PARTS, Direction, Key
from rnnconvert.language import registry
from rnnconvert.rewrites.arrays import deferred
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite
from rnnconvert.rewrites.write_identity import WRITE_IDENTITY


def _obstacle(direction: Direction) -> Obstacle | None:
    if not direction.cell.coupled:
        return None
    gate = direction.cell.gate_activation
    if not (gate.name == "sigmoid" or (gate.name == "hard_sigmoid" and gate.beta == 0.5)):
        return Obstacle(
            "coupled gates",
            f"1 - act(a) = act(-a) holds for sigmoid, not for {gate}",
            registry.conversion(lambda layout: bool(layout.holds.coupled), "whose LSTM has coupled gates"),
        )
    uneven = [clip for clip in direction.cell.clips if clip.kind == "gates" and clip.low != -clip.high]
    if uneven:
        return Obstacle(
            "coupled gates",
            f"1 - act(clip(a)) = act(clip(-a)) holds for symmetric bounds, not for {uneven[0]}",
            f"If your activations never reach the bound, confirm with {Setting('clip', 'none')}.",
        )
    return None


def _change(direction: Direction) -> Direction:
    """Write two gates with weights of their own in place of a coupled pair."""
    if not direction.cell.coupled:
        return direction
    direction = WRITE_IDENTITY.apply(direction)  # an input without weights cannot be negated
    cell = direction.cell
    stored_gate, written = ("i", "f") if cell.coupled == "f" else ("f", "i")
    arrays: dict[Key, Source | None] = {}
    for part in GATE_PARTS:
        source = direction.arrays.get((part, stored_gate))
        arrays[part, written] = None if source is None else deferred(source, np.negative)
    constants = {gate: value for gate, value in cell.constants.items() if gate != written}
    if constants.get(stored_gate):
        constants[written] = -constants[stored_gate]
    return direction.with_arrays(arrays).replace(cell=cell.replace(coupled="", constants=constants))


COUPLED_GATE = Rewrite(
    "write out the coupled gate",
    "1 - sigmoid(a) = sigmoid(-a), and likewise for hard_sigmoid with beta 0.5: the gate f = 1 - i becomes a gate of its "
    "own whose weights, biases and peephole are the negatives of i's.",
    False,
    "sigmoid, or hard_sigmoid with beta 0.5; a clip on the gates has symmetric bounds",
    _obstacle,
    _change,
)
"""Of a direction."""
