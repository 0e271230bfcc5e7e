"""Sums and means of directions folded into the layer above."""

from __future__ import annotations

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.weights import Key, Layer, Recurrent
from rnnconvert.rewrites.arrays import mixed
from rnnconvert.rewrites.rewrite import Rewrite, always
from rnnconvert.rewrites.write_identity import WRITE_IDENTITY


def summed_below(stack: Recurrent) -> bool:
    """Return whether a layer below the last gives the sum or the mean of its directions."""
    below = stack.layers[:-1] if stack.join == "layer" else ()
    return any(layer.merge in ("sum", "ave") and len(layer.directions) == 2 for layer in below)


def _change(stack: Recurrent) -> Recurrent:
    """Let every layer below the last concatenate, and fold its sums and means into the weights above."""
    layers = list(stack.layers)
    for index in range(len(layers) - 1 if stack.join == "layer" else 0):
        merge, size = layers[index].merge, layers[index].output_size
        if merge not in ("sum", "ave") or len(layers[index].directions) == 1:
            continue
        factor = 0.5 if merge == "ave" else 1.0

        def doubled(weight: Array, columns: slice, factor: float = factor) -> Array:
            both: Array = np.concatenate([weight, weight], axis=1)[:, columns] * weight.dtype.type(factor)
            return both

        above = []
        for direction in map(WRITE_IDENTITY.apply, layers[index + 1].directions):
            arrays: dict[Key, Source | None] = {
                ("input", gate): mixed(direction.arrays["input", gate], doubled, 2 * size) for gate in direction.cell.gates
            }
            above.append(direction.with_arrays(arrays))
        layers[index] = Layer(layers[index].directions, "concat")
        layers[index + 1] = Layer(tuple(above), layers[index + 1].merge)
    return stack.replace(layers=tuple(layers))


FOLD_MERGE = Rewrite(
    "fold the sum of directions",
    "W (x_f + x_b) = [W W] [x_f; x_b], and W (x_f + x_b) / 2 = [W/2 W/2] [x_f; x_b] in the layer above.",
    False,
    "directions summed or averaged below the last layer",
    always,
    _change,
)
"""Of a stack; directions that are multiplied or concatenated stay unchanged."""
