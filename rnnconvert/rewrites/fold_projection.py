"""A projection folded into the matrices that read it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Direction, Key, Layer, Recurrent
from rnnconvert.language import registry
from rnnconvert.rewrites.arrays import mixed
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite
from rnnconvert.rewrites.write_identity import WRITE_IDENTITY


def _projecting() -> str:
    return registry.conversion(lambda layout: "projection" in layout.part_names, "whose LSTM has projections")


def _obstacle(stack: Recurrent) -> Obstacle | None:
    every = [direction for _, _, direction in stack.directions()]
    projected = [direction for direction in every if direction.projection_size]
    if not projected:
        return None
    if len(projected) != len(every):
        return Obstacle("a projection in some layers only", "folding needs a projection in each layer", "Split the stack.")
    if stack.readout:
        return Obstacle(
            "a projection and a matrix after the last layer", "folding leaves a matrix there, but there is one already", _projecting()
        )
    for direction in projected:
        learned = direction.get("initial_hidden")
        # To leave it to the caller would not help: there is no state to pass to the folded cell either.
        if learned is not None and learned.any():
            return Obstacle(
                "a projection with a learned initial state",
                "folding needs an m_0 with P m_0 = h_0, which may not exist",
                f"Pass the state yourself, and confirm with {Setting('initial_state', 'call')}.",
            )
        for clip in direction.cell.clips:
            if clip.kind == "projection" and np.isfinite([clip.low, clip.high]).any():
                return Obstacle(
                    f"a clip ({clip})",
                    "it computes h' = clip(P m), and a bound on P m is not a bound on m",
                    f"If your activations never reach the bound, confirm with {Setting('clip', 'none')}.",
                )
    below = [layer for layer in stack.layers[:-1] if stack.join == "layer" and len(layer.directions) == 2]
    for layer in below:
        if layer.merge == "mul":
            return Obstacle(
                "projected directions joined by mul",
                "a product of projections is not a matrix times a product, as folding into the layer above requires",
                f"Split the stack into layers: {Setting('stack', 'split')}.",
            )
        if layer.merge in ("sum", "ave"):
            return Obstacle(
                f"projected directions joined by {layer.merge}",
                "folding needs the layer above to read them side by side",
                f"Split the stack into layers: {Setting('stack', 'split')}.",
            )
    return None


def _change(stack: Recurrent) -> Recurrent:
    """Return a stack without projections, with the last layer's as its readout."""
    if not stack.first.projection_size:
        return stack
    layers: list[Layer] = []
    below: list[Source] = []
    for layer in stack.layers:
        changed = []
        for number, direction in enumerate(layer.directions):
            feeds = below if stack.join == "layer" else below[number : number + 1]
            changed.append(_fold_direction(direction, feeds))
        layers.append(Layer(tuple(changed), layer.merge))
        below = [d.arrays["projection", ""] for d in layer.directions]
    return stack.replace(layers=tuple(layers), readout=tuple(below))


def _fold_direction(direction: Direction, feeds: Sequence[Source]) -> Direction:
    if feeds:
        direction = WRITE_IDENTITY.apply(direction)  # an input without weights takes no matrix in
    projection = direction.arrays["projection", ""]
    hidden = direction.hidden_size
    # A state of zeros before the projection is one after it.
    arrays: dict[Key, Source | None] = {("projection", ""): None, ("initial_hidden", ""): None}
    for gate in direction.cell.gates:
        recurrent = direction.arrays["recurrent", gate]
        arrays["recurrent", gate] = mixed(recurrent, lambda r, columns: _through(r, [projection], columns), hidden)
        weight = direction.arrays.get(("input", gate))
        if feeds and weight is not None:
            width = sum(feed.shape[1] for feed in feeds)
            arrays["input", gate] = mixed(weight, lambda w, columns: _through(w, feeds, columns), width)
    clips = tuple(clip for clip in direction.cell.clips if clip.kind != "projection")
    return direction.with_arrays(arrays).replace(cell=direction.cell.replace(clips=clips))


def _through(weight: Array, feeds: Sequence[Source], columns: slice) -> Array:
    """Return some columns of a weight times the matrices, side by side, that its input has gone through."""
    first, last, _ = columns.indices(sum(feed.shape[1] for feed in feeds))
    blocks, row, column = [], 0, 0
    for feed in feeds:
        inside = slice(max(first - column, 0), max(last - column, 0))
        right = feed[:, inside].astype(weight.dtype, copy=False)
        blocks.append(weight[:, row : row + feed.shape[0]] @ right)
        row, column = row + feed.shape[0], column + feed.shape[1]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


FOLD_PROJECTION = Rewrite(
    "fold the projection",
    "With h = P m, R h = (R P) m, and W h = (W P) m in the layer above: a cell without projection gives m, and P is left "
    "as a matrix on the last layer's output and on its final states.",
    False,
    "a projection in each layer, no clip on it, no learned initial state, directions side by side below the last layer",
    _obstacle,
    _change,
)
"""Of a stack."""
