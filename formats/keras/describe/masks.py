"""The mask on concatenated tensors of Keras, as a description has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnnconvert.formats.keras.export.layer_facts import LayerFacts
from rnnconvert.scaffolding.description import Shape, Value

if TYPE_CHECKING:
    from rnnconvert.formats.keras.describe.writer import Writer


def behind_one_another(w: Writer, facts: LayerFacts, values: Sequence[Value], masks: Sequence[Value | None], axis: int) -> Value:
    """Return the masks on tensors, one behind the other along an axis: as formats/keras/export/masks.py does it in ONNX."""
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
