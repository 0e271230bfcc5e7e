"""Masks of Keras 3 as ONNX nodes: where they come from, which layers hand them on, and how recurrent layers skip steps.

A mask is a tensor of truths that Keras keeps beside a tensor; here it is a value of the graph, so that every mask is right: padding at
either end, gaps, sequences without a single step. formats/onnx/masked_steps.py makes a recurrent operator skip steps.

Sources: keras 3.15 keras/src/layers/layer.py (Layer.__call__), compute_mask of every layer, layers/merging/*.py,
layers/core/masking.py, layers/rnn/*.py and keras/src/backend/tensorflow/rnn.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import onnx

from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import Emit, GraphBuilder, one_input
from rnnconvert.formats.keras.flow import MERGES
from rnnconvert.formats.keras.model.operators import PASS_MASKS
from rnnconvert.formats.keras.settings import joined

_RECURRENT = {"LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional"}


class NamedTensor(Protocol):
    """A tensor of a model, with a name and its axes."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int | None, ...]: ...


T = TypeVar("T", bound=NamedTensor)


class MaskedTensors(Protocol[T]):
    """What keeps masks beside tensors: a graph of ONNX under construction, or a model on its way into a description.

    masks   the masks by the tensors' names
    dtypes  the types of tensors that are not float32, likewise
    """

    masks: dict[str, T]
    dtypes: dict[str, str]

    def truth(self, operator: str, inputs: Sequence[str], wanted: str, shape: Sequence[int | None]) -> T:
        """Add what gives truths."""
        ...


Behind = Callable[[Any, LayerFacts, Sequence[Any], Sequence[Any], int], Any]
"""Makes the mask on tensors that are concatenated along an axis other than the last."""


def masks_on(build: MaskedTensors[T], facts: LayerFacts, values: Sequence[T]) -> list[T | None]:
    """Return the mask on each of a layer's inputs: those that the call names, or those that Keras hands on."""
    named: list[Any] = list(facts.named.get("mask", ()))
    if not named:
        return [build.masks.get(value.name) for value in values]
    facts.used.add("call mask")
    if len(named) != len(values) and len(named) != 1:
        raise refuse(facts.name, f"{len(named)} masks", f"the layer reads {len(values)} tensors")
    if any(mask is not None and build.dtypes.get(mask.name) != "bool" for mask in named):
        raise refuse(facts.name, "a mask of numbers", "only one of truths is known here")
    return [*named, *[None] * (len(values) - len(named))]


def mask_on(build: MaskedTensors[T], facts: LayerFacts, x: T) -> T | None:
    """Return the mask on a layer's only input: all of its axes but the last. Raises RefusedError for a mask of another form."""
    mask = masks_on(build, facts, [x])[0]
    if mask is not None and len(mask.shape) != len(x.shape) - 1:
        raise refuse(facts.name, f"a mask of {len(mask.shape)} axes on a tensor of {len(x.shape)}", "the layer spreads it over other axes")
    return mask


def attention_masks(build: MaskedTensors[T], facts: LayerFacts, tensors: Sequence[T]) -> tuple[dict[str, T | None], list[T]]:
    """Return the masks of a MultiHeadAttention: over the steps of its query, its value and its key, and over pairs of steps.

    Raises RefusedError for other masks.
    """
    masks: dict[str, T | None] = {}
    for word, tensor in zip(("query", "value", "key"), tensors, strict=False):
        named: Sequence[Any] = [] if word == "query" else facts.tensors(f"{word}_mask")
        mask = named[0] if named else build.masks.get(tensor.name)
        if mask is not None and (len(mask.shape) != 2 or build.dtypes.get(mask.name) != "bool"):
            raise refuse(facts.name, f"the mask of its {word}", "only truths over time are known here")
        masks[word] = mask
    pairs: list[Any] = [*facts.tensors("attention_mask")]
    if any(len(mask.shape) != 3 or build.dtypes.get(mask.name) != "bool" for mask in pairs):
        raise refuse(facts.name, "its attention_mask", "only truths over (batch, query, key) are known here")
    facts.tensors("query_mask")  # Keras takes that of the tensor instead
    return masks, pairs


def hand_on(build: MaskedTensors[T], facts: LayerFacts, values: Sequence[T], outputs: Sequence[T], behind: Behind) -> None:
    """Note the masks on what a layer gave, where Keras sets them and the layer itself did not."""
    kind = facts.old.kind
    if not values or not outputs or outputs[0].name in build.masks:
        return
    masks = masks_on(build, facts, values)
    mask: T | None = None
    if kind in PASS_MASKS:
        mask = masks[0]
    elif kind in _RECURRENT:
        layer = facts.old.inside[0] if kind == "Bidirectional" else facts.old
        mask = masks[0] if layer.entry.config.get("return_sequences", False) else None
        if kind == "Bidirectional" and facts.config.get("merge_mode", "concat") is None and mask is not None:
            build.masks[outputs[1].name] = mask
    elif kind in MERGES:
        mask = either(build, facts, masks)
    elif kind == "Concatenate":
        mask = _concatenated(build, facts, values, masks, behind)
    if mask is not None:
        build.masks[outputs[0].name] = mask


def either(build: MaskedTensors[T], facts: LayerFacts, masks: Sequence[T | None]) -> T | None:
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
            together = build.truth("Or", [together.name, other.name], f"{facts.name}/mask", shape)
    return together


def _concatenated(build: MaskedTensors[T], facts: LayerFacts, values: Sequence[T], masks: Sequence[T | None], behind: Behind) -> T | None:
    """Return the mask on a Concatenate: those of its inputs, one behind the other, or joined along the last axis."""
    if all(mask is None for mask in masks):
        return None
    rank = len(values[0].shape)
    if any(mask is not None and len(mask.shape) != rank - 1 for mask in masks):
        raise refuse(facts.name, "masks with other numbers of axes than its inputs", "Keras spreads them over the wrong ones")
    axis, _ = joined(facts, values)
    if axis == rank - 1:
        return either(build, facts, masks)  # an input without a mask makes every step count
    mask: T = behind(build, facts, values, masks, axis)
    return mask


def behind_one_another(
    build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor], masks: Sequence[ModelTensor | None], axis: int
) -> ModelTensor:
    """Return the masks on tensors, one behind the other along an axis."""
    names, name = [], f"{facts.name}/mask"
    for value, mask in zip(values, masks, strict=True):
        if mask is None:
            size = build.add(
                "Slice", [build.add("Shape", [value.name], f"{name}/size"), build.integers(0), build.integers(-1)], f"{name}/steps"
            )
            yes = build.constant(f"{name}/yes", np.array(True))
            mask = build.truth("Expand", [yes, size], f"{name}/all", value.shape[:-1])
        names.append(mask.name)
    return build.truth("Concat", names, f"{name}/joined", joined(facts, values)[1][:-1], axis=axis)


def differs(build: GraphBuilder, name: str, value: ModelTensor, number: str) -> ModelTensor:
    """Add whether a tensor differs from a number."""
    same = build.truth("Equal", [value.name, number], f"{name}/equal", value.shape)
    return build.truth("Not", [same.name], f"{name}/differs", value.shape)


def some(build: GraphBuilder, name: str, value: ModelTensor, axis: int, keep: bool, operator: str = "ReduceMax") -> ModelTensor:
    """Add whether one of the truths along an axis holds, or with ReduceMin whether all of them do."""
    axis %= len(value.shape)
    numbers = build.add("Cast", [value.name], f"{name}/numbers", to=onnx.TensorProto.FLOAT)
    most = build.add(operator, [numbers], f"{name}/most", axes=[axis], keepdims=int(keep))
    shape = (*value.shape[:axis], *([1] if keep else []), *value.shape[axis + 1 :])
    return build.truth("Cast", [most], f"{name}/any", shape, to=onnx.TensorProto.BOOL)


def _masking(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, name, number = one_input(facts, values), facts.name, facts.get("mask_value", 0.0)
    number = number.get("config", {}).get("value") if isinstance(number, Mapping) else number
    if isinstance(number, bool) or not isinstance(number, (int, float)) or len(x.shape) < 2:
        raise refuse(name, f"mask_value = {str(number)[:60]}", "only one number, for tensors with features, is known here")
    differing = differs(build, name, x, build.constant(f"{name}/value", np.array(number, np.float32)))
    wide = some(build, name, differing, -1, True)
    output = build.add("Where", [wide.name, x.name, build.zero()], f"{name}/masked")
    build.masks[output] = build.truth("Squeeze", [wide.name, build.integers(len(x.shape) - 1)], f"{name}/mask", x.shape[:-1])
    return ModelTensor(output, x.shape)


MASKS: Mapping[str, Emit] = {"Masking": _masking}
"""The layers that mask, by their classes."""
