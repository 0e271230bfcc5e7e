"""Directions that meet only at the end, joined at every layer."""

from __future__ import annotations

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.weights import Direction, Key, Layer, Recurrent
from rnnconvert.rewrites.arrays import mixed
from rnnconvert.rewrites.rewrite import Rewrite, always
from rnnconvert.rewrites.write_identity import WRITE_IDENTITY


def _change(stack: Recurrent) -> Recurrent:
    """Return a stack whose directions join at every layer, from one whose directions join at the end."""
    if stack.join != "end":
        return stack
    layers = [Layer(stack.layers[0].directions, "concat")]
    for layer in stack.layers[1:]:
        sizes = [d.output_size for d in layers[-1].directions]
        changed = [
            _widen(WRITE_IDENTITY.apply(direction), sum(sizes[:number]), sum(sizes)) for number, direction in enumerate(layer.directions)
        ]
        layers.append(Layer(tuple(changed), "concat"))
    layers[-1] = Layer(layers[-1].directions, stack.layers[-1].merge)
    return stack.replace(layers=tuple(layers), join="layer")


def _widen(direction: Direction, start: int, width: int) -> Direction:
    def widened(weight: Array, columns: slice) -> Array:
        wide = np.zeros((weight.shape[0], width), weight.dtype)
        wide[:, start : start + weight.shape[1]] = weight
        return wide[:, columns]

    arrays: dict[Key, Source | None] = {
        ("input", gate): mixed(direction.arrays["input", gate], widened, width) for gate in direction.cell.gates
    }
    return direction.with_arrays(arrays)


JOIN_WITH_ZEROS = Rewrite(
    "write independent directions with zeros",
    "Two stacks that meet only at the end are one stack that joins at every layer, whose weights on the other "
    "direction's outputs are zero: W x_f = [W 0] [x_f; x_b].",
    True,
    "finite outputs in the lower layers",
    always,
    _change,
)
"""Of a stack."""
