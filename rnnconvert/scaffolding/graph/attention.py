"""Attention as basic operations. What each form computes: keras 3.15 keras/src/layers/attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Rules, Value, on
from rnnconvert.scaffolding.graph.layers import product
from rnnconvert.scaffolding.graph.writer import GraphWriter

_FAR = 1e9
"""The number that is taken from scores of steps that are not seen."""


def _earlier(g: GraphWriter, label: str, query: Value, key: Value) -> str:
    """Add whether a step of the query (rows) may see a step of the key (columns): those up to its own."""
    bounds = [g.index(0), g.index(1)]
    counts = [g.add("Squeeze", [g.size(value, 1)], f"{label}/steps") for value in (query, key)]
    rows, columns = (g.add("Range", [bounds[0], count, bounds[1]], f"{label}/range") for count in counts)
    return g.add("GreaterOrEqual", [g.add("Unsqueeze", [rows, g.integers(1)], f"{label}/rows"), columns], f"{label}/earlier")


def _wide(g: GraphWriter, label: str, masks: Sequence[Value], axis: int) -> list[str]:
    """Add masks over the steps of the query (axis 2) or of the key (axis 1) as such over both."""
    return [g.add("Unsqueeze", [g(mask), g.integers(axis)], f"{label}/wide") for mask in masks]


def _attention(g: GraphWriter, node: Node[kinds.Attention]) -> None:
    query, value, key = node.inputs
    label, scale = g.label(node), [g.constant(f"{g.label(node)}/scale", g.weights.numbers(g.path(node)))] if node.layer else []
    if node.kind.mode == "dot":
        scores = g.add("MatMul", [g(query), g.transposed(g(key), [0, 2, 1], f"{label}/key")], f"{label}/scores")
    else:
        rows = g.add("Unsqueeze", [g(query), g.integers(2)], f"{label}/rows")
        columns = g.add("Unsqueeze", [g(key), g.integers(1)], f"{label}/columns")
        pairs = g.add("Add", [rows, columns], f"{label}/pairs")
        if node.kind.scale:
            pairs = g.add(
                "Mul", [pairs, g.constant(f"{label}/factor", g.weights.numbers(g.scope.inside(node.kind.scale)))], f"{label}/factored"
            )
        bent = g.add("Tanh", [pairs], f"{label}/tanh")
        if scale and not node.kind.concat:
            bent = g.add("Mul", [bent, *scale], f"{label}/scaled")
        scores = g.add("ReduceSum", [bent, g.integers(-1)], f"{label}/scores", keepdims=0)
    if scale and (node.kind.concat or node.kind.mode == "dot"):
        scores = g.add("Mul", [scores, *scale], f"{label}/weighed")
    visible = _wide(g, label, node.named.get("seen", ()), 1)
    visible += [_earlier(g, label, query, key)] if node.kind.causal else []
    if visible:  # a step that may see none sees all in the same way
        hidden = g.add("Sub", [scores, g.number(_FAR)], f"{label}/hidden")
        scores = g.add("Where", [g.folded("And", visible, f"{label}/visible"), scores, hidden], f"{label}/masked")
    weights = g.add("Softmax", [scores], f"{label}/weights", axis=-1)
    output = g.add("MatMul", [weights, g(value)], f"{label}/attended")
    for asked in _wide(g, label, node.named.get("asked", ()), 2):
        output = g.add("Where", [asked, output, g.zero()], f"{label}/asked")
    for output_value, name in zip(node.outputs, (output, weights), strict=False):
        g.give(output_value, name)


def _heads(g: GraphWriter, node: Node[kinds.MultiHead], x: Value, word: str, size: int, order: Sequence[int]) -> str:
    """Add a projection to all heads, its axes (batch, time, heads, size) in an order."""
    label = f"{g.label(node)}/{word}"
    output = product(g, label, g(x), g.parts(node, "dense", word))
    output = g.add("Reshape", [output, g.integers(0, 0, node.kind.heads, size)], f"{label}/heads")
    return g.transposed(output, order, label)


def _multi_head(g: GraphWriter, node: Node[kinds.MultiHead]) -> None:
    query, value, key = node.inputs
    label, size, value_size = g.label(node), node.kind.size, node.kind.value_size
    rows = _heads(g, node, query, "query", size, [0, 2, 1, 3])
    rows = g.add("Mul", [rows, g.number(1 / math.sqrt(size))], f"{label}/scaled")
    scores = g.add("MatMul", [rows, _heads(g, node, key, "key", size, [0, 2, 3, 1])], f"{label}/scores")
    visible = _wide(g, label, node.named.get("query", ()), 2)
    for word in ("value", "key"):
        visible += _wide(g, label, node.named.get(word, ()), 1)
    visible += [g(mask) for mask in node.named.get("pairs", ())]
    visible += [_earlier(g, label, query, key)] if node.kind.causal else []
    seen = ""
    if visible:
        seen = g.folded("And", visible, f"{label}/visible")
        # Without batch or heads, truths over pairs of steps spread over both.
        seen = g.add("Unsqueeze", [seen, g.integers(-3)], f"{label}/seen")
        scores = g.add("Where", [seen, scores, g.number(-_FAR if node.kind.zeros else -0.7 * 3.38953e38)], f"{label}/masked")
    weights = g.add("Softmax", [scores], f"{label}/weights", axis=-1)
    if seen and node.kind.zeros:
        weights = g.add("Where", [seen, weights, g.zero()], f"{label}/kept")
    output = g.add("MatMul", [weights, _heads(g, node, value, "value", value_size, [0, 2, 1, 3])], f"{label}/attended")
    output = g.add("Transpose", [output], f"{label}/by_step", perm=[0, 2, 1, 3])
    output = g.add("Reshape", [output, g.integers(0, 0, node.kind.heads * value_size)], f"{label}/joined")
    output = product(g, f"{label}/output", output, g.parts(node, "dense", "attention_output"))
    for output_value, name in zip(node.outputs, (output, weights), strict=False):
        g.give(output_value, name)


ATTENTION: Rules = {**on(kinds.Attention, _attention), **on(kinds.MultiHead, _multi_head)}
"""The kinds that are known."""
