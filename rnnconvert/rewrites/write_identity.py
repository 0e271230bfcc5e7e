"""An input that is read unweighted, written with identity matrices."""

from __future__ import annotations

import numpy as np

from rnnconvert.core.arrays import Array, Deferred, Source
from rnnconvert.core.weights import Direction, Key
from rnnconvert.rewrites.rewrite import Rewrite, always


def _change(direction: Direction) -> Direction:
    """Write identity matrices for an input that is read unweighted."""
    if not direction.skip_input:
        return direction
    size, dtype = direction.hidden_size, direction.dtype

    def identity(rows: slice, columns: slice) -> Array:
        numbers = np.arange(size)
        return np.equal.outer(numbers[rows], numbers[columns]).astype(dtype)

    arrays: dict[Key, Source | None] = {
        ("input", gate): Deferred((size, size), dtype, lambda: np.eye(size, dtype=dtype), identity) for gate in direction.cell.gates
    }
    return direction.with_arrays(arrays)


WRITE_IDENTITY = Rewrite("write the skipped input as identity", "x = I x for every gate of the layer.", True, "", always, _change)
"""Of a direction."""
