"""Functions as Keras 3: behind layers, as layers, as operations. Sources: keras 3.15 keras/src/activations and keras/src/ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import number

Constructor = Callable[[Any, Node], str]
"""Returns the constructor of a layer, called on one tensor."""
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


def bias(node: Node) -> str:
    return "" if node["bias"] else "use_bias=False"


def function(m: Any, node: Node) -> str:
    """Return the function behind a layer as an argument of its constructor, where Keras takes it so."""
    following = m.joins(node, "activation")
    if following is None or not _by_name(following) or m.shared(node.layer):
        return ""
    m.join(node, following)
    return f'activation="{following["name"]}"'


def _by_name(node: Node) -> bool:
    """Return whether Keras has a function under its name alone."""
    alone = node["name"] not in ("leaky_relu", "bounded_relu", *_OPS) and not (node["name"] == "elu" and node["alpha"] != 1)
    return alone and (node["axis"] in (-1, len(node.x.shape) - 1) or "softmax" not in node["name"])


def activation(m: Any, node: Node) -> str:
    name = node["name"]
    if name in _OPS:
        return _OPS[name].format(x=m(node.x), alpha="" if node["alpha"] is None else number(node["alpha"]))
    if name == "leaky_relu":
        layer = f"layers.LeakyReLU({number(node['alpha'])})"
    elif name == "bounded_relu":
        high = "" if node["highest"] is None else f"max_value={number(node['highest'])}"
        slope, threshold = (f"{key}={number(node[word])}" for key, word in (("negative_slope", "alpha"), ("threshold", "threshold")))
        layer = f"layers.ReLU({words(high, slope, threshold)})"
    elif name == "elu" and node["alpha"] != 1:
        layer = f"layers.ELU({number(node['alpha'])})"
    elif not _by_name(node):
        if name == "log_softmax":
            return f"ops.log_softmax({m(node.x)}, axis={node['axis']})"
        layer = f"layers.Softmax(axis={node['axis']})"
    else:
        layer = f'layers.Activation("{name}")'
    return str(m.called(layer, node.x))
