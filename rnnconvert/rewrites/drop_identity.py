"""Identity matrices of the input left out."""

from __future__ import annotations

import numpy as np

from rnnconvert.core.weights import Direction
from rnnconvert.rewrites.arrays import drop
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite


def _obstacle(direction: Direction) -> Obstacle | None:
    for gate in () if direction.skip_input else direction.cell.gates:
        matrix = np.asarray(direction.arrays["input", gate])
        square = matrix.shape[0] == matrix.shape[1]
        if not square or not np.array_equal(matrix, np.eye(len(matrix), dtype=matrix.dtype)):
            return Obstacle(
                "weights of the input",
                f"it computes a = x + R h, but W of gate {gate}, of shape {matrix.shape}, is not the identity",
                "Multiply the input by W before the layer, or convert to another format.",
            )
    return None


DROP_IDENTITY = Rewrite(
    "leave out identity matrices of the input",
    "I x = x: a cell that adds its input unweighted computes the same.",
    True,
    "every gate's input matrix is the identity",
    _obstacle,
    lambda direction: drop(direction, "input"),
)
"""Of a direction."""
