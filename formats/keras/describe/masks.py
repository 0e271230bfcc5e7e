"""Masks of Keras 3: where they come from, and which layers hand them on.

A mask is a tensor of truths that Keras keeps beside a tensor; here it is a tensor of the description, so that every mask is right:
padding at either end, gaps, sequences without a single step.

Sources: keras 3.15 keras/src/layers/layer.py (Layer.__call__), compute_mask of every layer, layers/merging/*.py,
layers/core/masking.py, layers/rnn/*.py and keras/src/backend/tensorflow/rnn.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.describe.settings import joined
from rnnconvert.formats.keras.model.entries import Entry
from rnnconvert.formats.keras.model.masks import MaskRules
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Shape, Value

if TYPE_CHECKING:
    from rnnconvert.formats.keras.describe.writer import Writer


def masks_on(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value | None]:
    """Return the mask on each of a layer's inputs: those that the call names, or those that Keras hands on."""
    named: list[Any] = list(facts.named.get("mask", ()))
    if not named:
        return [w.masks.get(value.name) for value in values]
    facts.used.add("call mask")
    if len(named) != len(values) and len(named) != 1:
        raise refuse(facts.name, f"{len(named)} masks", f"the layer reads {len(values)} tensors")
    if any(mask is not None and w.dtypes.get(mask.name) != "bool" for mask in named):
        raise refuse(facts.name, "a mask of numbers", "only one of truths is known here")
    return [*named, *[None] * (len(values) - len(named))]


def mask_on(w: Writer, facts: LayerFacts, x: Value) -> Value | None:
    """Return the mask on a layer's only input: all of its axes but the last. Raises RefusedError for a mask of another form."""
    mask = masks_on(w, facts, [x])[0]
    if mask is not None and len(mask.shape) != len(x.shape) - 1:
        raise refuse(facts.name, f"a mask of {len(mask.shape)} axes on a tensor of {len(x.shape)}", "the layer spreads it over other axes")
    return mask


def attention_masks(w: Writer, facts: LayerFacts, tensors: Sequence[Value]) -> tuple[dict[str, Value | None], list[Value]]:
    """Return the masks of a MultiHeadAttention: over the steps of its query, its value and its key, and over pairs of steps.

    Raises RefusedError for other masks.
    """
    masks: dict[str, Value | None] = {}
    for word, tensor in zip(("query", "value", "key"), tensors, strict=False):
        named: Sequence[Any] = [] if word == "query" else facts.tensors(f"{word}_mask")
        mask = named[0] if named else w.masks.get(tensor.name)
        if mask is not None and (len(mask.shape) != 2 or w.dtypes.get(mask.name) != "bool"):
            raise refuse(facts.name, f"the mask of its {word}", "only truths over time are known here")
        masks[word] = mask
    pairs: list[Any] = [*facts.tensors("attention_mask")]
    if any(len(mask.shape) != 3 or w.dtypes.get(mask.name) != "bool" for mask in pairs):
        raise refuse(facts.name, "its attention_mask", "only truths over (batch, query, key) are known here")
    facts.tensors("query_mask")  # Keras takes that of the tensor instead
    return masks, pairs


class TensorMasks(MaskRules[Value]):
    """Masks as tensors of the description.

    values  the tensors that the layer reads
    """

    def __init__(self, w: Writer, facts: LayerFacts, values: Sequence[Value]) -> None:
        super().__init__(3)
        self.w, self.facts, self.values = w, facts, values

    def new_mask(self, layer: Entry) -> Value | None:
        """Return nothing: a layer that makes a mask notes it itself."""

    def joined(self, layer: Entry, masks: Sequence[Value | None]) -> Value | None:
        """Return the masks as one: those of a Concatenate one behind the other, or joined along the last axis."""
        rank = len(self.values[0].shape)
        if layer.class_name != "Concatenate":
            return either(self.w, self.facts, masks)
        if any(mask is not None and len(mask.shape) != rank - 1 for mask in masks):
            raise refuse(self.facts.name, "masks with other numbers of axes than its inputs", "Keras spreads them over the wrong ones")
        axis, _ = joined(self.facts, self.values)
        if axis == rank - 1:
            return either(self.w, self.facts, masks)  # an input without a mask makes every step count
        return _behind_one_another(self.w, self.values, masks, axis)


def hand_on(w: Writer, facts: LayerFacts, values: Sequence[Value], outputs: Sequence[Value]) -> None:
    """Note the masks on what a layer gave, where Keras sets them and the layer itself did not."""
    if values and outputs and outputs[0].name not in w.masks:
        masks = TensorMasks(w, facts, values).after(facts.old.entry, masks_on(w, facts, values))
        w.masks |= {output.name: mask for output, mask in zip(outputs, masks, strict=False) if mask is not None}


def either(w: Writer, facts: LayerFacts, masks: Sequence[Value | None]) -> Value | None:
    """Return the mask on a merge: a step counts if it counts in one of its inputs; none if one of them has none."""
    there = [mask for mask in masks if mask is not None]
    if len(there) != len(masks):
        return None
    together = there[0]
    for other in there[1:]:
        if len(other.shape) != len(together.shape):
            raise refuse(facts.name, "masks with other numbers of axes", "Keras joins them over the wrong ones")
        if other.name != together.name:
            shape = tuple(m if n == 1 else n for n, m in zip(together.shape, other.shape, strict=True))
            together = w.truth("Or", [together.name, other.name], f"{facts.name}/mask", shape)
    return together


def _behind_one_another(w: Writer, values: Sequence[Value], masks: Sequence[Value | None], axis: int) -> Value:
    """Return the masks on tensors, one behind the other along an axis."""
    parts = []
    for value, mask in zip(values, masks, strict=True):
        if mask is None:
            mask = w.node(kinds.Mask(operation="all true"), "mask", [value], value.shape[:-1], "bool")
        parts.append(mask)
    lengths = [mask.shape[axis] for mask in parts]
    shape: Shape = (*parts[0].shape[:axis], None if None in lengths else sum(n or 0 for n in lengths), *parts[0].shape[axis + 1 :])
    return w.node(kinds.Concatenate(axis=axis), "mask", parts, shape, "bool")
