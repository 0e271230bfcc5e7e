"""The torch modules of ours (rnnconvert.modules.torch) as a transplant sees them: each direction's arrays by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rnnconvert.modules import outline
from rnnconvert.transplant.model import Group, Unit, single_layers
from rnnconvert.weights import Direction, Recurrent

ASIDE = "which cell the layer is of"
"""What the buffer `outline` is, which is no weight."""


def units(stack: Recurrent, prefix: str, facts: Mapping[str, Any]) -> Iterator[Unit]:
    """The layers of one module.

    prefix  what its arrays' names begin with
    """
    for number, layer in enumerate(single_layers(stack)):
        groups = tuple(
            _group(direction, way, prefix, outline.suffix(number, way))
            for way, direction in enumerate(layer.layers[0].directions)
        )
        # A readout stands behind the whole stack, and is of no direction of one layer.
        yield Unit(
            layer.name,
            stack=layer,
            groups=() if stack.readout or layer.num_layers > 1 else groups,
            facts=facts,
            made=f"a module of rnnconvert's own, {outline.words(stack)}",
        )


def _group(direction: Direction, way: int, prefix: str, suffix: str) -> Group:
    layout = replace(outline.layout(direction, outline.TORCH), reset_after=direction.cell.reset_after)
    parts = {part for part, _ in direction.arrays}
    names = {one.name: prefix + one.name + suffix for one in layout.tensors if one.part_names <= parts}
    return Group(layout, (way,), names)
