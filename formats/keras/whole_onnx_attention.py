"""Attention of Keras 3 as ONNX nodes.

Sources: keras 3.15 keras/src/layers/attention/{attention,additive_attention,multi_head_attention}.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.whole_onnx_layers import Builder, EmitAll, Facts, Value, refuse, unmasked


def _number(b: Builder, name: str, value: float) -> str:
    return b.constant(name, np.array(value, np.float32))


def _three(facts: Facts, values: Sequence[Value]) -> tuple[Value, Value, Value]:
    """Return query, value and key. Raises RefusedError for a mask, or other tensors than sequences."""
    facts.get("dropout")
    if not 2 <= len(values) <= 3 or any(len(value.shape) != 3 for value in values):
        raise refuse(
            facts.name, "attention to other than two or three sequences", "only (batch, time, features) is known here"
        )
    unmasked(facts, *values)
    query, value, key = (*values, values[1])[:3]
    return query, value, key


def _earlier(b: Builder, name: str, scores: str) -> str:
    """Add whether a step of the query, the last axis but one, may see a step of the key: those up to its own."""
    size = b.add("Shape", [scores], f"{name}/sizes")
    zero, one = (b.constant(f"{name}/{word}", np.array(n, np.int64)) for word, n in (("from", 0), ("by", 1)))
    ranges = []
    for axis in (-2, -1):
        length = b.add("Squeeze", [b.add("Gather", [size, b.integers(axis)], f"{name}/length")], f"{name}/steps")
        ranges.append(b.add("Range", [zero, length, one], f"{name}/range"))
    rows = b.add("Unsqueeze", [ranges[0], b.integers(1)], f"{name}/rows")
    return b.add("GreaterOrEqual", [rows, ranges[1]], f"{name}/earlier")


def _weighed(b: Builder, facts: Facts, scores: str, value: str) -> tuple[str, str]:
    """Add the softmax of scores, and the sum of the values weighed so."""
    name = facts.name
    if facts.flag("use_causal_mask"):
        hidden = b.add("Sub", [scores, _number(b, f"{name}/far", 1e9)], f"{name}/hidden")
        scores = b.add("Where", [_earlier(b, name, scores), scores, hidden], f"{name}/causal")
    weights = b.add("Softmax", [scores], f"{name}/weights", axis=-1)
    return b.add("MatMul", [weights, value], f"{name}/attended"), weights


def _pairs(b: Builder, name: str, query: Value, key: Value) -> str:
    """Add the sum of each step of the query with each of the key."""
    rows = b.add("Unsqueeze", [query.name, b.integers(2)], f"{name}/rows")
    columns = b.add("Unsqueeze", [key.name, b.integers(1)], f"{name}/columns")
    return b.add("Add", [rows, columns], f"{name}/pairs")


def _results(
    facts: Facts, made: tuple[str, str], out: Sequence[int | None], scores: Sequence[int | None]
) -> list[Value]:
    """Return the output, and the weights where the call asks for them."""
    found = [Value(made[0], tuple(out))]
    return [*found, Value(made[1], tuple(scores))] if facts.flag("return_attention_scores") else found


def _attention(b: Builder, facts: Facts, values: Sequence[Value]) -> list[Value]:
    query, value, key = _three(facts, values)
    name, scale = facts.name, facts.array("scale")
    facts.get("use_scale")
    factor = [b.constant(f"{name}/scale", scale)] if scale is not None else []
    if facts.get("score_mode", "dot") == "dot":
        scores = b.add("MatMul", [query.name, b.transposed(key.name, [0, 2, 1], f"{name}/key")], f"{name}/scores")
        scores = b.add("Mul", [scores, *factor], f"{name}/scaled") if factor else scores
    else:
        facts.need("score_mode", "dot", "concat")
        pairs = _pairs(b, name, query, key)
        bent = b.add("Tanh", [b.add("Mul", [pairs, *factor], f"{name}/scaled") if factor else pairs], f"{name}/tanh")
        summed = b.add("ReduceSum", [bent, b.integers(-1)], f"{name}/summed", keepdims=0)
        weight = b.constant(f"{name}/concat", facts.weight("concat_score_weight"))
        scores = b.add("Mul", [summed, weight], f"{name}/scores")
    made = _weighed(b, facts, scores, value.name)
    return _results(facts, made, (*query.shape[:2], value.shape[2]), (*query.shape[:2], key.shape[1]))


def _additive(b: Builder, facts: Facts, values: Sequence[Value]) -> list[Value]:
    query, value, key = _three(facts, values)
    name, scale = facts.name, facts.array("scale")
    facts.get("use_scale")
    bent = b.add("Tanh", [_pairs(b, name, query, key)], f"{name}/tanh")
    if scale is not None:
        bent = b.add("Mul", [bent, b.constant(f"{name}/scale", scale)], f"{name}/scaled")
    made = _weighed(b, facts, b.add("ReduceSum", [bent, b.integers(-1)], f"{name}/scores", keepdims=0), value.name)
    return _results(facts, made, (*query.shape[:2], value.shape[2]), (*query.shape[:2], key.shape[1]))


def _heads(b: Builder, facts: Facts, x: Value, word: str, order: Sequence[int]) -> str:
    """Add a projection to all heads, its axes (batch, time, heads, size) in an order."""
    kernel, bias = facts.weight(f"{word}_kernel"), facts.array(f"{word}_bias")
    name, (width, heads, size) = f"{facts.name}/{word}", kernel.shape
    made = b.add(
        "MatMul", [x.name, b.constant(f"{name}/kernel", kernel.reshape(width, heads * size))], f"{name}/product"
    )
    made = _plus(b, name, made, None if bias is None else bias.reshape(heads * size))
    made = b.add("Reshape", [made, b.integers(0, 0, heads, size)], f"{name}/heads")
    return b.transposed(made, order, name)


def _plus(b: Builder, name: str, value: str, bias: Array | None) -> str:
    return value if bias is None else b.add("Add", [value, b.constant(f"{name}/bias", bias)], f"{name}/sum")


def _multi_head(b: Builder, facts: Facts, values: Sequence[Value]) -> list[Value]:
    name = facts.name
    given = [*values]
    for word in ("query", "value", "key"):
        given += facts.tensors(word)
    if len(values) + sum(map(len, facts.named.values())) > 3 or (
        len(values) == 2 and facts.named and "key" not in facts.named
    ):
        raise refuse(name, "a call with masks, or in an unknown order", "only query, value and key are known here")
    query, value, key = _three(facts, given)
    for word in ("num_heads", "value_dim", "use_bias", "output_shape"):
        facts.get(word)
    facts.need("use_gate", False)
    facts.need("sliding_window", None)
    facts.need("attention_axes", None, [1], 1)
    rows = _heads(b, facts, query, "query", [0, 2, 1, 3])
    rows = b.add("Mul", [rows, _number(b, f"{name}/scale", 1 / math.sqrt(facts.get("key_dim")))], f"{name}/scaled")
    scores = b.add("MatMul", [rows, _heads(b, facts, key, "key", [0, 2, 3, 1])], f"{name}/scores")
    made, weights = _weighed(b, facts, scores, _heads(b, facts, value, "value", [0, 2, 1, 3]))
    kernel = facts.weight("output_kernel")
    heads, size = kernel.shape[:2]
    if kernel.ndim != 3:
        raise refuse(name, f"output_shape = {facts.get('output_shape')!r}", "only an output of one axis is known here")
    made = b.add("Reshape", [b.transposed(made, [0, 2, 1, 3], name), b.integers(0, 0, heads * size)], f"{name}/joined")
    kernel = kernel.reshape(heads * size, -1)
    made = b.add("MatMul", [made, b.constant(f"{name}/output/kernel", kernel)], f"{name}/output/product")
    made = _plus(b, f"{name}/output", made, facts.array("output_bias"))
    return _results(
        facts,
        (made, weights),
        (*query.shape[:2], kernel.shape[1]),
        (query.shape[0], heads, query.shape[1], key.shape[1]),
    )


ATTENTION: Mapping[str, EmitAll] = {
    "Attention": _attention,
    "AdditiveAttention": _additive,
    "MultiHeadAttention": _multi_head,
}
"""Attention, by its classes."""
