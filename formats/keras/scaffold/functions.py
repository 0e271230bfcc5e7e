"""Functions as Keras 3: behind layers, as layers, as operations. Sources: keras 3.15 keras/src/activations and keras/src/ops."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.keras.scaffold.configured import layer
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import number

_OPS = {
    **{word: f"ops.{name}({{x}})" for word, name in (
        ("abs", "absolute"), ("sqrt", "sqrt"), ("log", "log"), ("square", "square"), ("neg", "negative"))},
    "gelu_tanh": "ops.gelu({x}, approximate=True)", "hard_swish": "ops.hard_silu({x})", "celu": "ops.celu({x}, {alpha})",
    "mish": "{x} * ops.tanh(ops.softplus({x}))",
}  # fmt: skip
"""The functions that are operations alone, by their names."""


def words(*parts: str) -> str:
    """Return the arguments of a call, without empty ones."""
    return ", ".join(word for word in parts if word)


def ended(m: Any, node: Node[kinds.Conv | kinds.ConvTransposed | kinds.Dense]) -> dict[str, Any]:
    """Return the settings of what is behind a layer's product: a bias, and the function that comes next, where Keras takes it by name."""
    following = m.joins(node)
    name = None
    if following is not None and _by_name(following) and not m.shared(node.layer):
        m.join(node, following)
        name = following.kind.name
    return {"activation": name, "use_bias": None if node.kind.bias else False}


def _by_name(node: Node[kinds.Activation]) -> bool:
    """Return whether Keras has a function under its name alone."""
    alone = node.kind.name not in ("leaky_relu", "bounded_relu", *_OPS) and not (node.kind.name == "elu" and node.kind.alpha != 1)
    return alone and (node.kind.axis in (-1, len(node.x.shape) - 1) or "softmax" not in node.kind.name)


def activation(m: Any, node: Node[kinds.Activation]) -> str:
    name = node.kind.name
    if name in _OPS:
        return _OPS[name].format(x=m(node.x), alpha="" if node.kind.alpha is None else number(node.kind.alpha))
    if name == "leaky_relu":
        called = layer("LeakyReLU", 1, negative_slope=node.kind.alpha)
    elif name == "bounded_relu":
        called = layer("ReLU", max_value=node.kind.highest, negative_slope=node.kind.alpha, threshold=node.kind.threshold)
    elif name == "elu" and node.kind.alpha != 1:
        called = layer("ELU", 1, alpha=node.kind.alpha)
    elif not _by_name(node):
        if name == "log_softmax":
            return f"ops.log_softmax({m(node.x)}, axis={node.kind.axis})"
        called = layer("Softmax", axis=node.kind.axis)
    else:
        called = layer("Activation", 1, activation=name)
    return str(m.called(called, node.x))
