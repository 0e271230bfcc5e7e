"""Biases and states of zeros, where a target needs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.core.arrays import Source
from rnnconvert.core.weights import Direction, Key
from rnnconvert.rewrites.arrays import zeros
from rnnconvert.rewrites.rewrite import Rewrite, always


def _change(direction: Direction, parts: Sequence[str]) -> Direction:
    """Write the bias vectors named as zeros where they are absent."""
    arrays: dict[Key, Source | None] = {
        (part, gate): zeros(direction) for part in parts for gate in direction.cell.gates if (part, gate) not in direction.arrays
    }
    return direction.with_arrays(arrays)


ZERO_BIASES = Rewrite("add zero biases", "a + 0 = a: a bias vector that the target needs is written as zeros.", True, "", always, _change)
"""Of a direction; parts: the bias vectors that it needs."""


def zero_state(direction: Direction, part: str) -> Direction:
    """Return the direction with an initial state of zeros if it has none."""
    size = direction.output_size if part == "initial_hidden" else direction.hidden_size
    return direction.with_arrays({(part, ""): direction.arrays.get((part, ""), np.zeros(size, direction.dtype))})
