"""Random stacks in canonical form, for tests that do not care where weights come from."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Cell
from rnnconvert.core.weights import BIAS_PARTS, Key, Recurrent, Source, gates_of
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble

PLAIN = frozenset({"input", "recurrent"})
BOTH = PLAIN | frozenset(BIAS_PARTS)


def random_stack(
    form: Sizes, seed: int, dtype: Any = np.float64, cell: Cell | None = None, scale: float = 1
) -> Recurrent:
    """A stack of that form with random numbers, biases and all, small enough not to saturate."""
    rng = np.random.default_rng(seed)
    found: dict[tuple[int, int], dict[Key, Source]] = {}
    for layer in range(form.num_layers):
        for direction in range(form.num_directions):
            arrays: dict[Key, Source] = {}
            for part in sorted(form.parts):
                shape = form.shape(layer, part)
                if shape is not None:
                    spread = 1 / np.sqrt(shape[-1]) if len(shape) == 2 else 0.5
                    for gate in gates_of(form.kind, part):
                        arrays[part, gate] = (rng.uniform(-1, 1, shape) * spread * scale).astype(dtype)
            found[layer, direction] = arrays
    plain = Cell(form.kind, True if form.kind == "gru" else None)  # type: ignore[arg-type]
    return assemble("random", cell or plain, found, form.num_directions)


def random_states(
    form: Sizes, batch: int, seed: int, dtype: Any = np.float64
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Random initial states of such a stack: hidden, and cell."""
    rng = np.random.default_rng(seed)
    count = form.num_layers * form.num_directions
    hidden = tuple(rng.uniform(-1, 1, (batch, form.output_size)).astype(dtype) for _ in range(count))
    return hidden, tuple(rng.uniform(-1, 1, (batch, form.hidden_size)).astype(dtype) for _ in range(count))


def cell_of(layout: Layout) -> Cell:
    """The cell that a layout's arrays are of where nothing else is said."""
    return layout.cell
