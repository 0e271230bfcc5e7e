"""Dense layers, embeddings, functions and norms as basic operations. Source: onnx/docs/Operators.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Rules, on
from rnnconvert.scaffolding.graph.composed import centred
from rnnconvert.scaffolding.graph.writer import GraphWriter


def _dense(g: GraphWriter, node: Node[kinds.Kind]) -> None:
    g.give(node.y, product(g, g.label(node), g(node.x), g.parts(node, "dense")))


def product(g: GraphWriter, label: str, x: str, parts: Mapping[str, Array]) -> str:
    """Add what a dense layer gives."""
    output = g.add("MatMul", [x, g.constant(f"{label}/kernel", parts["weight"].T)], f"{label}/product" if "bias" in parts else label)
    if "bias" not in parts:
        return output
    return g.add("Add", [output, g.constant(f"{label}/bias", parts["bias"])], label)


def _embedding(g: GraphWriter, node: Node[kinds.Kind]) -> None:
    table = g.constant(f"{g.label(node)}/table", g.parts(node, "embedding")["weight"])
    # A number that is no index is cut off, as frameworks do it.
    g.put(node, "Gather", [table, g(node.x) if node.x.dtype in ("int32", "int64") else g.cast(g(node.x), "int64", g.label(node))])


# Functions

PLAIN = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exponential": "Exp", "selu": "Selu", "softplus": "Softplus",
    "softsign": "Softsign", "abs": "Abs", "sqrt": "Sqrt", "log": "Log", "neg": "Neg", "hard_swish": "HardSwish",
}  # fmt: skip
_ALPHA = {"elu": "Elu", "leaky_relu": "LeakyRelu", "celu": "Celu"}


def _activation(g: GraphWriter, node: Node[kinds.Activation]) -> None:
    name, x, label = node.kind.name, g(node.x), g.label(node)
    if name in PLAIN:
        g.put(node, PLAIN[name], [x])
    elif name in _ALPHA:
        g.put(node, _ALPHA[name], [x], alpha=1.0 if node.kind.alpha is None else float(node.kind.alpha))
    elif name in ("softmax", "log_softmax"):
        g.put(node, "Softmax" if name == "softmax" else "LogSoftmax", [x], axis=node.kind.axis)
    elif name == "hard_sigmoid":
        g.put(node, "HardSigmoid", [x], alpha=1 / 6, beta=0.5)
    elif name in _COMPOSED:
        g.give(node.y, _COMPOSED[name](g, node, x, label))
    else:
        raise g.refused(node, f"the activation {name!r}", g.unknown)


def _gelu_tanh(g: GraphWriter, node: Node[kinds.Kind], x: str, label: str) -> str:
    cube = g.add("Mul", [g.add("Mul", [x, x], f"{label}/square"), x], f"{label}/cube")
    inner = g.add("Add", [x, g.add("Mul", [cube, g.number(0.044715)], f"{label}/small")], f"{label}/inner")
    bent = g.add("Tanh", [g.add("Mul", [inner, g.number(math.sqrt(2 / math.pi))], f"{label}/scaled")], f"{label}/tanh")
    share = g.add("Mul", [g.add("Add", [bent, g.number(1)], f"{label}/sum"), g.number(0.5)], f"{label}/share")
    return g.add("Mul", [x, share], label)


def _mish(g: GraphWriter, node: Node[kinds.Kind], x: str, label: str) -> str:
    bent = g.add("Tanh", [g.add("Softplus", [x], f"{label}/softplus")], f"{label}/tanh")
    return g.add("Mul", [x, bent], label)


def _bounded_relu(g: GraphWriter, node: Node[kinds.Activation], x: str, label: str) -> str:
    """Add Keras's ReLU: zero or sloped below a threshold, bounded above."""
    slope, threshold, highest = node.kind.alpha, node.kind.threshold, node.kind.highest
    above = x if highest is None else g.add("Min", [x, g.number(highest)], f"{label}/bounded")
    below = g.zero()
    if slope:
        moved = g.add("Sub", [x, g.number(threshold)], f"{label}/moved") if threshold else x
        below = g.add("Mul", [moved, g.number(slope)], f"{label}/sloped")
    reaches = g.add("GreaterOrEqual", [x, g.number(threshold)], f"{label}/reaches")
    return g.add("Where", [reaches, above, below], label)


_COMPOSED: Mapping[str, Callable[[GraphWriter, Node[kinds.Activation], str, str], str]] = {
    "silu": lambda g, node, x, label: g.add("Mul", [x, g.add("Sigmoid", [x], f"{label}/sigmoid")], label),
    "gelu": lambda g, node, x, label: g.add("Gelu", [x], label),
    "gelu_tanh": _gelu_tanh,
    "mish": _mish,
    "relu6": lambda g, node, x, label: g.add("Clip", [x, g.number(0), g.number(6)], label),
    "square": lambda g, node, x, label: g.add("Mul", [x, x], label),
    "bounded_relu": _bounded_relu,
}
"""The functions that are several operators."""


def _prelu(g: GraphWriter, node: Node[kinds.PReLU]) -> None:
    """Add slopes for the axes behind the batch, in the file's own shape if there is not one per channel."""
    slopes = g.weights.numbers(g.path(node))
    if math.prod(node.kind.slopes) != slopes.size:
        shape = " x ".join(map(str, node.kind.slopes))
        raise g.refused(node, f"{slopes.size} slopes", f"the axes behind the batch would take {shape}")
    g.put(node, "PRelu", [g(node.x), g.constant(f"{g.label(node)}/slopes", slopes.reshape(node.kind.slopes))])


# Norms


def _scaled(g: GraphWriter, label: str, x: str, parts: Mapping[str, Array], shape: Sequence[int]) -> str:
    """Add a scale and a shift, spread over a shape, where there are such."""
    for operator, word in (("Mul", "scale"), ("Add", "shift")):
        if word in parts:
            x = g.add(operator, [x, g.constant(f"{label}/{word}", parts[word].reshape(shape))], f"{label}/{word}d")
    return x


def _spread(node: Node[kinds.Kind], axis: int) -> list[int]:
    """Return the shape in which a number for each channel spreads over a tensor whose channels are an axis."""
    return [-1, *[1] * (len(node.x.shape) - 1 - axis)]


def _batch_norm(g: GraphWriter, node: Node[kinds.BatchNorm]) -> None:
    parts = g.parts(node, "batch_norm")
    mean, variance = (parts[word].astype(np.float64) for word in ("mean", "variance"))
    scale = parts.get("scale", np.ones_like(mean)) / np.sqrt(variance + node.kind.epsilon)
    folded = {"scale": scale, "shift": parts.get("shift", np.zeros_like(mean)) - mean * scale}
    rounded = {word: array.astype(parts["mean"].dtype) for word, array in folded.items()}
    g.give(node.y, _scaled(g, g.label(node), g(node.x), rounded, _spread(node, node.kind.axis)))


def _layer_norm(g: GraphWriter, node: Node[kinds.LayerNorm]) -> None:
    label, parts = g.label(node), g.parts(node, "layer_norm") if node.kind.scale or node.kind.shift else {}
    scale = parts.get("scale", np.ones(node.kind.sizes, np.float32))
    inputs = [g(node.x), g.constant(f"{label}/scale", scale)]
    inputs += [g.constant(f"{label}/shift", parts["shift"])] if "shift" in parts else []
    g.put(node, "LayerNormalization", inputs, axis=-len(node.kind.sizes), epsilon=float(node.kind.epsilon))


def _inverse_root(g: GraphWriter, label: str, square: str, epsilon: float) -> str:
    """Add one over the root of a variance."""
    return g.add(
        "Reciprocal", [g.add("Sqrt", [g.add("Add", [square, g.number(epsilon)], f"{label}/safe")], f"{label}/root")], f"{label}/inverse"
    )


def _rms_norm(g: GraphWriter, node: Node[kinds.RMSNorm]) -> None:
    label, x, axes = g.label(node), g(node.x), list(range(-len(node.kind.sizes), 0))
    mean = g.add("ReduceMean", [g.add("Mul", [x, x], f"{label}/square")], f"{label}/mean", axes=axes, keepdims=1)
    output = g.add("Mul", [x, _inverse_root(g, label, mean, node.kind.epsilon)], f"{label}/normal")
    parts = g.parts(node, "rms_norm") if node.kind.scale else {}
    g.give(node.y, _scaled(g, label, output, parts, node.kind.sizes))


def _group_norm(g: GraphWriter, node: Node[kinds.GroupNorm]) -> None:
    """Add a norm over groups of channels, which are behind the batch or at the end."""
    label, groups, size = g.label(node), node.kind.groups, node.kind.size
    sizes, axes = ((0, groups, -1), [2]) if node.kind.axis == 1 else ((0, -1, groups, size // groups), [1, 3])
    parted = g.add("Reshape", [g(node.x), g.integers(*sizes)], f"{label}/groups")
    output = g.add("Reshape", [centred(g, parted, axes, node.kind.epsilon, label), g.shape_of(node.x)], f"{label}/together")
    parts = g.parts(node, "group_norm") if node.kind.scale or node.kind.shift else {}
    g.give(node.y, _scaled(g, label, output, parts, _spread(node, node.kind.axis)))


def _instance_norm(g: GraphWriter, node: Node[kinds.InstanceNorm]) -> None:
    label, parts = g.label(node), g.parts(node, "instance_norm")
    numbers = {
        word: parts.get(word, default(node.kind.size, dtype=np.float32)) for word, default in (("scale", np.ones), ("shift", np.zeros))
    }
    inputs = [g(node.x), *(g.constant(f"{label}/{word}", array) for word, array in numbers.items())]
    g.put(node, "InstanceNormalization", inputs, epsilon=float(node.kind.epsilon))


def unit(g: GraphWriter, label: str, x: str, axes: Sequence[int], epsilon: float) -> str:
    """Add what gives vectors the length one; a length below the epsilon counts as that."""
    length = g.add("ReduceL2", [x], f"{label}/length", axes=list(axes), keepdims=1)
    return g.add("Div", [x, g.add("Max", [length, g.number(epsilon)], f"{label}/safe")], f"{label}/unit")


def _unit_norm(g: GraphWriter, node: Node[kinds.UnitNorm]) -> None:
    g.give(node.y, unit(g, g.label(node), g(node.x), node.kind.axes, node.kind.epsilon))


def _rescale(g: GraphWriter, node: Node[kinds.Rescale]) -> None:
    label, x = g.label(node), g.typed(node.x, "float32")
    x = g.add("Mul", [x, g.number(node.kind.scale)], f"{label}/scaled")
    g.give(node.y, g.add("Add", [x, g.number(node.kind.shift)], label) if node.kind.shift else x)


LAYERS: Rules = {
    **on(kinds.Dense, _dense),
    **on(kinds.Embedding, _embedding),
    **on(kinds.Activation, _activation),
    **on(kinds.PReLU, _prelu),
    **on(kinds.Dropout, lambda g, node: g.give(node.y, g(node.x))),
    **on(kinds.BatchNorm, _batch_norm),
    **on(kinds.LayerNorm, _layer_norm),
    **on(kinds.RMSNorm, _rms_norm),
    **on(kinds.GroupNorm, _group_norm),
    **on(kinds.InstanceNorm, _instance_norm),
    **on(kinds.UnitNorm, _unit_norm),
    **on(kinds.Rescale, _rescale),
}
"""The kinds that are known."""
