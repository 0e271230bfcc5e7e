"""Attention of Keras 3 as ONNX nodes.

Sources: keras 3.15 keras/src/layers/attention/{attention,additive_attention,multi_head_attention}.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import EmitAll, GraphBuilder
from rnnconvert.formats.keras.export.masks import attention_masks, masks_on
from rnnconvert.formats.keras.settings import attended, query_value_key


def _number(build: GraphBuilder, name: str, value: float) -> str:
    return build.constant(name, np.array(value, np.float32))


def _earlier(build: GraphBuilder, name: str, scores: str) -> str:
    """Add whether a step of the query, the last axis but one, may see a step of the key: those up to its own."""
    size = build.add("Shape", [scores], f"{name}/sizes")
    zero, step = (build.constant(f"{name}/{word}", np.array(n, np.int64)) for word, n in (("from", 0), ("by", 1)))
    ranges = []
    for axis in (-2, -1):
        length = build.add("Squeeze", [build.add("Gather", [size, build.integers(axis)], f"{name}/length")], f"{name}/steps")
        ranges.append(build.add("Range", [zero, length, step], f"{name}/range"))
    rows = build.add("Unsqueeze", [ranges[0], build.integers(1)], f"{name}/rows")
    return build.add("GreaterOrEqual", [rows, ranges[1]], f"{name}/earlier")


def _every(build: GraphBuilder, name: str, truths: Sequence[str]) -> str:
    """Add whether all of some truths hold."""
    result, *others = truths
    for other in others:
        result = build.add("And", [result, other], f"{name}/visible")
    return result


def _weighed(build: GraphBuilder, facts: LayerFacts, scores: str, value: str, visible: Sequence[str]) -> tuple[str, str]:
    """Add the softmax of scores, and the sum of the values weighed so.

    visible  which steps each step of the query may see; where it may see none, it sees all in the same way
    """
    name = facts.name
    if visible:
        hidden = build.add("Sub", [scores, _number(build, f"{name}/far", 1e9)], f"{name}/hidden")
        scores = build.add("Where", [_every(build, name, visible), scores, hidden], f"{name}/masked")
    weights = build.add("Softmax", [scores], f"{name}/weights", axis=-1)
    return build.add("MatMul", [weights, value], f"{name}/attended"), weights


def _wide(build: GraphBuilder, name: str, mask: ModelTensor | None, axis: int) -> list[str]:
    """Add a mask over the steps of the query (axis 2) or of the key (axis 1) as one over both."""
    return [] if mask is None else [build.add("Unsqueeze", [mask.name, build.integers(axis)], f"{name}/wide")]


def _masks(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> list[ModelTensor | None]:
    """Return the masks over time. Raises RefusedError for others."""
    masks = masks_on(build, facts, values)
    if any(mask is not None and len(mask.shape) != 2 for mask in masks):
        raise refuse(facts.name, "a mask over other axes than time", "the layer spreads it over the wrong ones")
    return masks


def _looked(
    build: GraphBuilder, facts: LayerFacts, tensors: Sequence[ModelTensor], scores: tuple[str, Sequence[int | None]]
) -> list[ModelTensor]:
    """Return what Attention and AdditiveAttention give for their scores: zeros at masked steps of the query."""
    (query, value, _), name = query_value_key(facts, tensors), facts.name
    masks = _masks(build, facts, tensors)
    facts.get("dropout")
    visible = _wide(build, name, masks[1], 1)
    if facts.flag("use_causal_mask"):
        visible.append(_earlier(build, name, scores[0]))
    output, weights = _weighed(build, facts, scores[0], value.name, visible)
    for asked in _wide(build, name, masks[0], 2):
        output = build.add("Where", [asked, output, build.zero()], f"{name}/asked")
    return _results(facts, (output, weights), (*query.shape[:2], value.shape[2]), scores[1])


def _pairs(build: GraphBuilder, name: str, query: ModelTensor, key: ModelTensor) -> str:
    """Add the sum of each step of the query with each of the key."""
    rows = build.add("Unsqueeze", [query.name, build.integers(2)], f"{name}/rows")
    columns = build.add("Unsqueeze", [key.name, build.integers(1)], f"{name}/columns")
    return build.add("Add", [rows, columns], f"{name}/pairs")


def _results(facts: LayerFacts, outputs: tuple[str, str], out: Sequence[int | None], scores: Sequence[int | None]) -> list[ModelTensor]:
    """Return the output, and the weights where the call asks for them."""
    results = [ModelTensor(outputs[0], tuple(out))]
    return [*results, ModelTensor(outputs[1], tuple(scores))] if facts.flag("return_attention_scores") else results


def _attention(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> list[ModelTensor]:
    query, _, key = query_value_key(facts, values)
    name, scale = facts.name, facts.array("scale")
    facts.get("use_scale")
    factor = [build.constant(f"{name}/scale", scale)] if scale is not None else []
    if facts.get("score_mode", "dot") == "dot":
        scores = build.add("MatMul", [query.name, build.transposed(key.name, [0, 2, 1], f"{name}/key")], f"{name}/scores")
        scores = build.add("Mul", [scores, *factor], f"{name}/scaled") if factor else scores
    else:
        facts.need("score_mode", "dot", "concat")
        pairs = _pairs(build, name, query, key)
        bent = build.add("Tanh", [build.add("Mul", [pairs, *factor], f"{name}/scaled") if factor else pairs], f"{name}/tanh")
        summed = build.add("ReduceSum", [bent, build.integers(-1)], f"{name}/summed", keepdims=0)
        weight = build.constant(f"{name}/concat", facts.weight("concat_score_weight"))
        scores = build.add("Mul", [summed, weight], f"{name}/scores")
    return _looked(build, facts, values, (scores, (*query.shape[:2], key.shape[1])))


def _additive(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> list[ModelTensor]:
    query, _, key = query_value_key(facts, values)
    name, scale = facts.name, facts.array("scale")
    facts.get("use_scale")
    bent = build.add("Tanh", [_pairs(build, name, query, key)], f"{name}/tanh")
    if scale is not None:
        bent = build.add("Mul", [bent, build.constant(f"{name}/scale", scale)], f"{name}/scaled")
    scores = build.add("ReduceSum", [bent, build.integers(-1)], f"{name}/scores", keepdims=0)
    return _looked(build, facts, values, (scores, (*query.shape[:2], key.shape[1])))


def _heads(build: GraphBuilder, facts: LayerFacts, x: ModelTensor, word: str, order: Sequence[int]) -> str:
    """Add a projection to all heads, its axes (batch, time, heads, size) in an order."""
    kernel, bias = facts.weight(f"{word}_kernel"), facts.array(f"{word}_bias")
    name, (width, heads, size) = f"{facts.name}/{word}", kernel.shape
    output = build.add("MatMul", [x.name, build.constant(f"{name}/kernel", kernel.reshape(width, heads * size))], f"{name}/product")
    output = _plus(build, name, output, None if bias is None else bias.reshape(heads * size))
    output = build.add("Reshape", [output, build.integers(0, 0, heads, size)], f"{name}/heads")
    return build.transposed(output, order, name)


def _plus(build: GraphBuilder, name: str, value: str, bias: Array | None) -> str:
    return value if bias is None else build.add("Add", [value, build.constant(f"{name}/bias", bias)], f"{name}/sum")


def _seen(build: GraphBuilder, facts: LayerFacts, tensors: Sequence[ModelTensor], scores: str) -> list[str]:
    """Return which steps each step of the query may see, with masks, as the call says or as Keras hands them on."""
    name, visible = facts.name, []
    masks, pairs = attention_masks(build, facts, tensors)
    for word, mask in masks.items():
        visible += _wide(build, f"{name}/{word}", mask, 2 if word == "query" else 1)
    visible += [mask.name for mask in pairs]
    if facts.flag("use_causal_mask"):
        visible.append(_earlier(build, name, scores))
    return visible


def _multi_head(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> list[ModelTensor]:
    name, tensors = facts.name, attended(facts, values)
    query, value, key = query_value_key(facts, tensors)
    for word in ("num_heads", "value_dim", "use_bias", "output_shape"):
        facts.get(word)
    facts.need("use_gate", False)
    facts.need("sliding_window", None)
    facts.need("attention_axes", None, [1], 1)
    rows = _heads(build, facts, query, "query", [0, 2, 1, 3])
    rows = build.add("Mul", [rows, _number(build, f"{name}/scale", 1 / math.sqrt(facts.get("key_dim")))], f"{name}/scaled")
    scores = build.add("MatMul", [rows, _heads(build, facts, key, "key", [0, 2, 3, 1])], f"{name}/scores")
    visible = _seen(build, facts, tensors, scores)
    zeroed, visible_steps = bool(facts.get("dropout", 0)) or facts.flag("return_attention_scores"), ""
    if visible:
        # Where a step may see nothing, Keras gives the mean of all; with scores or dropout it gives zeros.
        visible_steps = build.add("Unsqueeze", [_every(build, name, visible), build.integers(-3)], f"{name}/shown")
        far = _number(build, f"{name}/far", -1e9 if zeroed else -0.7 * 3.38953e38)
        scores = build.add("Where", [visible_steps, scores, far], f"{name}/masked")
    weights = build.add("Softmax", [scores], f"{name}/weights", axis=-1)
    if visible and zeroed:
        weights = build.add("Where", [visible_steps, weights, build.zero()], f"{name}/kept")
    output = build.add("MatMul", [weights, _heads(build, facts, value, "value", [0, 2, 1, 3])], f"{name}/attended")
    kernel = facts.weight("output_kernel")
    heads, size = kernel.shape[:2]
    if kernel.ndim != 3:
        raise refuse(name, f"output_shape = {facts.get('output_shape')!r}", "only an output of one axis is known here")
    output = build.add("Reshape", [build.transposed(output, [0, 2, 1, 3], name), build.integers(0, 0, heads * size)], f"{name}/joined")
    kernel = kernel.reshape(heads * size, -1)
    output = build.add("MatMul", [output, build.constant(f"{name}/output/kernel", kernel)], f"{name}/output/product")
    output = _plus(build, f"{name}/output", output, facts.array("output_bias"))
    size_of = (query.shape[0], heads, query.shape[1], key.shape[1])
    results = _results(facts, (output, weights), (*query.shape[:2], kernel.shape[1]), size_of)
    if (mask := build.masks.get(query.name)) is not None:
        build.masks[results[0].name] = mask
    for tensor in tensors:
        build.masks.pop(tensor.name, None)  # Keras takes the masks off the tensors themselves: what reads them later finds none
    return results


ATTENTION: Mapping[str, EmitAll] = {"Attention": _attention, "AdditiveAttention": _additive, "MultiHeadAttention": _multi_head}
"""Attention, by its classes."""
