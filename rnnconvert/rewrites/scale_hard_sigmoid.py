"""One hard_sigmoid written for another."""

from __future__ import annotations

import math

import numpy as np

from rnnconvert.core.arrays import Source
from rnnconvert.core.cells import Activation
from rnnconvert.core.weights import Direction, Key
from rnnconvert.rewrites.arrays import deferred
from rnnconvert.rewrites.fold_constants import FOLD_CONSTANTS
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite
from rnnconvert.rewrites.write_identity import WRITE_IDENTITY


def _obstacle(direction: Direction, wanted: Activation, role: str) -> Obstacle | None:
    function: Activation = getattr(direction.cell, role)
    if function == wanted:
        return None
    gates = {"gate_activation": "its gates", "activation": "its candidate"}.get(role)
    if gates is None or not function.name == wanted.name == "hard_sigmoid":
        return Obstacle(
            f"{gates or role} through {function}",
            f"only a hard_sigmoid can be rewritten, and only for another hard_sigmoid, not for {wanted}",
        )
    constants = (function.alpha, function.beta, wanted.alpha, wanted.beta)
    if not wanted.alpha or not all(value is not None and math.isfinite(value) for value in constants):
        return Obstacle(f"{gates} through {function}", f"no weights turn it into {wanted}")
    for clip in direction.cell.clips:
        if clip.kind == "gates" and np.isfinite([clip.low, clip.high]).any():
            return Obstacle(f"{gates} through {function}", f"scaled weights would reach the bound at other values: {clip}")
    return None


def _change(direction: Direction, wanted: Activation, role: str) -> Direction:
    """Return the gates (`role` "gate_activation") or the candidate ("activation") through another hard_sigmoid."""
    if getattr(direction.cell, role) == wanted:
        return direction
    direction = WRITE_IDENTITY.apply(direction)  # an input without weights cannot be scaled
    cell = direction.cell
    function: Activation = getattr(cell, role)
    gates = cell.sigmoid_gates if role == "gate_activation" else tuple(set(cell.gates) - set(cell.sigmoid_gates))
    assert function.alpha is not None and function.beta is not None and wanted.alpha and wanted.beta is not None
    factor = function.alpha / wanted.alpha
    arrays: dict[Key, Source | None] = {
        (part, gate): deferred(source, lambda array: array * array.dtype.type(factor))
        for (part, gate), source in direction.arrays.items()
        if gate in gates
    }
    constants = {gate: value * (factor if gate in gates else 1) for gate, value in cell.constants.items()}
    changed = direction.with_arrays(arrays)
    shift = (function.beta - wanted.beta) / wanted.alpha
    changed = changed.replace(cell=cell.replace(**{role: wanted, "constants": constants}))
    if abs(shift) > 1e-12:
        offsets = {gate: constants.get(gate, 0.0) + shift for gate in gates}
        changed = changed.replace(cell=changed.cell.replace(constants={**constants, **offsets}))
        changed = FOLD_CONSTANTS.apply(changed, constants)
    return changed


SCALE_HARD_SIGMOID = Rewrite(
    "scale for the other hard_sigmoid",
    "clip(alpha a + beta) = clip(alpha' (k a + s) + beta') with k = alpha / alpha' and s = (beta - beta') / alpha': the "
    "gates' weights and biases are multiplied by k (1.2 from 0.2 x + 0.5 to x / 6 + 0.5), and s is added to the bias.",
    False,
    "no clip on the gates",
    _obstacle,
    _change,
)
"""Of a direction; wanted: the other function; role: "gate_activation" or "activation"."""
