"""The mask on concatenated tensors of Keras, as a description has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnnconvert.formats.keras.export.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.export.masks import either
from rnnconvert.scaffolding.description import Shape, Value

if TYPE_CHECKING:
    from rnnconvert.formats.keras.describe.writer import Writer


def joined(w: Writer, facts: LayerFacts, values: Sequence[Value], masks: Sequence[Value | None]) -> Value | None:
    """Return the mask on a Concatenate: see formats/keras/export/masks.py."""
    if all(mask is None for mask in masks):
        return None
    rank = len(values[0].shape)
    axis = int(facts.get("axis")) % rank
    if any(mask is not None and len(mask.shape) != rank - 1 for mask in masks):
        raise refuse(facts.name, "masks with other numbers of axes than its inputs", "Keras spreads them over the wrong ones")
    if axis == rank - 1:
        return either(w, facts, masks)  # type: ignore[arg-type,return-value]
    parts = []
    for value, mask in zip(values, masks, strict=True):
        if mask is None:
            mask = w.value("mask", value.shape[:-1], "bool")
            w.scope.add("mask", "", [value], [mask], operation="all true")
        parts.append(mask)
    lengths = [mask.shape[axis] for mask in parts]
    shape: Shape = (*parts[0].shape[:axis], None if None in lengths else sum(n or 0 for n in lengths), *parts[0].shape[axis + 1 :])
    output = w.value("mask", shape, "bool")
    w.scope.add("concatenate", "", parts, [output], axis=axis)
    return output
