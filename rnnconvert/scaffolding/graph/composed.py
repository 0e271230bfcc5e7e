"""Operations of which a framework may lack one, in others that every framework has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.errors import RefusedError

if TYPE_CHECKING:
    from rnnconvert.scaffolding.graph.writer import GraphWriter

Composition = Callable[["GraphWriter", Sequence[str], str, Mapping[str, Any]], str]
"""Adds what an operation gives: the graph, its inputs, what its output should be called, its attributes; returns that output."""


def _sum(g: GraphWriter, label: str, above: str, below: str) -> str:
    return g.add("Add", [above, below], label)


def _above(g: GraphWriter, x: str, label: str) -> str:
    return g.add("Max", [x, g.number(0)], f"{label}/above")


def _below(g: GraphWriter, x: str, label: str) -> str:
    return g.add("Min", [x, g.number(0)], f"{label}/below")


def _less_one(g: GraphWriter, x: str, label: str) -> str:
    """Add the exponential less one of numbers that are not above zero."""
    return g.add("Sub", [g.add("Exp", [x], f"{label}/exp"), g.number(1)], f"{label}/bent")


def _gelu(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    (x,) = inputs
    error = g.add("Erf", [g.add("Div", [x, g.number(math.sqrt(2))], f"{label}/scaled")], f"{label}/erf")
    share = g.add("Mul", [g.add("Add", [error, g.number(1)], f"{label}/sum"), g.number(0.5)], f"{label}/share")
    return g.add("Mul", [x, share], label)


def _celu(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    alpha = attributes.get("alpha", 1.0)
    scaled = g.add("Div", [_below(g, inputs[0], label), g.number(alpha)], f"{label}/scaled")
    return _sum(g, label, _above(g, inputs[0], label), g.add("Mul", [_less_one(g, scaled, label), g.number(alpha)], f"{label}/sloped"))


def _elu(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    bent = _less_one(g, _below(g, inputs[0], label), label)
    below = g.add("Mul", [bent, g.number(attributes.get("alpha", 1.0))], f"{label}/sloped")
    return _sum(g, label, _above(g, inputs[0], label), below)


def _selu(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    both = _elu(g, inputs, f"{label}/elu", {"alpha": 1.6732632423543772})
    return g.add("Mul", [both, g.number(1.0507009873554805)], label)


def _leaky_relu(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    return _prelu(g, [inputs[0], g.number(attributes.get("alpha", 0.01))], label, {})


def _prelu(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    x, slope = inputs
    return _sum(g, label, _above(g, x, label), g.add("Mul", [_below(g, x, label), slope], f"{label}/sloped"))


def _hard_sigmoid(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    scaled = g.add("Mul", [inputs[0], g.number(attributes.get("alpha", 0.2))], f"{label}/scaled")
    moved = g.add("Add", [scaled, g.number(attributes.get("beta", 0.5))], f"{label}/moved")
    return g.add("Min", [g.add("Max", [moved, g.number(0)], f"{label}/positive"), g.number(1)], label)


def _hard_swish(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    return g.add("Mul", [inputs[0], _hard_sigmoid(g, inputs, f"{label}/share", {"alpha": 1 / 6})], label)


def _softplus(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    """Add max(x, 0) + log(1 + exp(-|x|)), which no number makes infinite."""
    far = g.add("Exp", [g.add("Neg", [g.add("Abs", [inputs[0]], f"{label}/size")], f"{label}/less")], f"{label}/exp")
    return _sum(g, label, _above(g, inputs[0], label), g.add("Log", [g.add("Add", [far, g.number(1)], f"{label}/sum")], f"{label}/log"))


def _softsign(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    size = g.add("Add", [g.add("Abs", [inputs[0]], f"{label}/size"), g.number(1)], f"{label}/sum")
    return g.add("Div", [inputs[0], size], label)


def _reciprocal(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    return g.add("Div", [g.number(1), inputs[0]], label)


def _clip(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    x = inputs[0]
    for operator, bound in zip(("Max", "Min"), inputs[1:], strict=False):
        x = g.add(operator, [x, bound], label) if bound else x
    return x


def _reduce_l2(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    square = g.add("Mul", [inputs[0], inputs[0]], f"{label}/square")
    axes = g.integers(*attributes["axes"])
    return g.add("Sqrt", [g.add("ReduceSum", [square, axes], f"{label}/sum", keepdims=attributes["keepdims"])], label)


def centred(g: GraphWriter, x: str, axes: Sequence[int], epsilon: float, label: str) -> str:
    """Add a tensor with the mean zero and the variance one over some axes."""
    less = g.add("Sub", [x, g.add("ReduceMean", [x], f"{label}/mean", axes=list(axes), keepdims=1)], f"{label}/centred")
    square = g.add("Mul", [less, less], f"{label}/square")
    variance = g.add("ReduceMean", [square], f"{label}/variance", axes=list(axes), keepdims=1)
    root = g.add("Sqrt", [g.add("Add", [variance, g.number(epsilon)], f"{label}/safe")], f"{label}/root")
    return g.add("Mul", [less, g.add("Reciprocal", [root], f"{label}/inverse")], f"{label}/normal")


def _layer_norm(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    axes = range(attributes["axis"], 0)
    x = centred(g, inputs[0], axes, attributes["epsilon"], label)
    for operator, numbers in zip(("Mul", "Add"), inputs[1:], strict=False):
        x = g.add(operator, [x, numbers], label)
    return x


def _instance_norm(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    x, *numbers = inputs
    rank = len(g.values[x].shape)
    x = centred(g, x, range(2, rank), attributes["epsilon"], label)
    for operator, name in zip(("Mul", "Add"), numbers, strict=True):
        wide = g.constant(f"{label}/{operator.lower()}", np.asarray(g.arrays[name]).reshape(-1, *[1] * (rank - 2)))
        x = g.add(operator, [x, wide], label)
    return x


def _placed(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    """Add numbers put at places that are a permutation of the last axis of two: each place sums up what is put there."""
    _, places, numbers = inputs
    length = g.add("Squeeze", [g.add("Shape", [places], f"{label}/length", start=1, end=2)], f"{label}/count")
    every = g.add("Range", [g.index(0), length, g.index(1)], f"{label}/every")
    rows = g.add("Unsqueeze", [every, g.integers(1)], f"{label}/rows")
    columns = g.add("Unsqueeze", [places, g.integers(1)], f"{label}/columns")
    hits = g.cast(g.add("Equal", [columns, rows], f"{label}/hits"), "int64", label)
    put = g.add("Mul", [hits, g.add("Unsqueeze", [numbers, g.integers(1)], f"{label}/put")], f"{label}/kept")
    return g.add("ReduceSum", [put, g.integers(2)], label, keepdims=0)


def _triangle(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    """Add a tensor with zeros below a diagonal, or above it."""
    x, diagonal = inputs
    places = []
    for axis in (-2, -1):
        size = g.add("Shape", [x], f"{label}/size", start=axis, **({"end": -1} if axis == -2 else {}))
        bounds = [g.index(0), g.add("Squeeze", [size], f"{label}/length"), g.index(1)]
        places.append(g.add("Range", bounds, f"{label}/places"))
    rows = g.add("Add", [g.add("Unsqueeze", [places[0], g.integers(1)], f"{label}/rows"), diagonal], f"{label}/diagonal")
    inside = g.add("GreaterOrEqual" if attributes["upper"] else "LessOrEqual", [places[1], rows], f"{label}/kept")
    dtype = g.values[x].dtype if x in g.values else "int64"  # of truths, which are cast
    return g.add("Where", [inside, x, g.number(0, dtype)], label)


def _log_softmax(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    """Add logarithms of a softmax, of numbers less their largest, which no number makes infinite."""
    (x,), axis = inputs, attributes["axis"]
    less = g.add("Sub", [x, g.add("ReduceMax", [x], f"{label}/most", axes=[axis], keepdims=1)], f"{label}/less")
    total = g.add("ReduceSum", [g.add("Exp", [less], f"{label}/exp"), g.integers(axis)], f"{label}/sum", keepdims=1)
    return g.add("Sub", [less, g.add("Log", [total], f"{label}/log")], label)


def _tangent(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    return g.add("Div", [g.add("Sin", inputs, f"{label}/sin"), g.add("Cos", inputs, f"{label}/cos")], label)


def _is_infinite(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    return g.add("Equal", [g.add("Abs", inputs, f"{label}/size"), g.number(math.inf)], label)


def _is_no_number(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    return g.add("Not", [g.add("Equal", [inputs[0], inputs[0]], f"{label}/same")], label)


def _einsum(g: GraphWriter, inputs: Sequence[str], label: str, attributes: Mapping[str, Any]) -> str:
    """Add sums of products of two values whose axes have letters."""
    operands, _, result = attributes["equation"].replace(" ", "").partition("->")
    words = operands.split(",")
    if len(words) != 2 or any(len(set(word)) < len(word) for word in (*words, result)):
        raise RefusedError(f"a product {attributes['equation']!r}", g.title, "it is not of two values of axes apart", "", label)
    every = [*result, *sorted(set("".join(words)) - set(result))]
    factors = []
    for name, word in zip(inputs, words, strict=True):
        factor = g.transposed(name, [word.index(letter) for letter in every if letter in word], f"{label}/turned")
        new = [axis for axis, letter in enumerate(every) if letter not in word]
        factors.append(g.add("Unsqueeze", [factor, g.integers(*new)], f"{label}/wide") if new else factor)
    if len(every) == len(result):
        return g.add("Mul", factors, label)
    summed = g.integers(*range(len(result), len(every)))
    return g.add("ReduceSum", [g.add("Mul", factors, f"{label}/products"), summed], label, keepdims=0)


COMPOSED: Mapping[str, Composition] = {
    "Gelu": _gelu, "Celu": _celu, "Elu": _elu, "Selu": _selu, "LeakyRelu": _leaky_relu, "PRelu": _prelu, "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish, "Softplus": _softplus, "Softsign": _softsign, "Reciprocal": _reciprocal, "ReduceL2": _reduce_l2,
    "LayerNormalization": _layer_norm, "InstanceNormalization": _instance_norm, "ScatterElements": _placed, "Trilu": _triangle,
    "Clip": _clip, "LogSoftmax": _log_softmax, "Einsum": _einsum, "Tan": _tangent, "IsInf": _is_infinite, "IsNaN": _is_no_number,
}  # fmt: skip
"""The operations that are not needed."""
