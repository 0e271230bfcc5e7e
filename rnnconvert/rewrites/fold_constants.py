"""Constants that a cell adds to a gate at run time, moved into the bias."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rnnconvert.core.arrays import Source
from rnnconvert.core.weights import Direction, Key
from rnnconvert.rewrites.rewrite import Rewrite, always
from rnnconvert.rewrites.zero_biases import ZERO_BIASES


def in_force(constants: Mapping[str, float]) -> dict[str, float]:
    """Return the constants that are not zero."""
    return {gate: value for gate, value in constants.items() if value}


def _change(direction: Direction, wanted: Mapping[str, float]) -> Direction:
    """Return the cell with `wanted` added at run time, the difference moved into the input bias."""
    changed = direction.replace(cell=direction.cell.replace(constants=dict(wanted)))
    if in_force(direction.cell.constants) == in_force(wanted):
        return changed
    changed = ZERO_BIASES.apply(changed, ["input_bias"])
    arrays: dict[Key, Source | None] = {}
    for gate in direction.cell.gates:
        difference = direction.cell.constants.get(gate, 0.0) - wanted.get(gate, 0.0)
        bias = changed.get("input_bias", gate)
        if difference and bias is not None:
            arrays["input_bias", gate] = (bias.astype(np.float64) + difference).astype(direction.dtype)
    return changed.with_arrays(arrays)


FOLD_CONSTANTS = Rewrite(
    "fold run-time constants",
    "gate(a + constant) with a = W x + b + R h is gate(W x + (b + constant) + R h): forget_bias goes into the bias.",
    False,
    "",
    always,
    _change,
)
"""Of a direction; wanted: the constants that the target adds."""
