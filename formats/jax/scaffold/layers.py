"""Each kind of layer as Flax nnx: its submodule and its line. Sources: flax 0.12 flax/nnx/nn, jax 0.10 jax/nn, jax/numpy and jax/lax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnnconvert.formats.jax.scaffold.convolving import conv_lstm
from rnnconvert.formats.jax.scaffold.recurrent import FUNCTIONS, recurrent
from rnnconvert.formats.jax.scaffold.space import SPACE, bias, constructed
from rnnconvert.scaffolding import rules
from rnnconvert.scaffolding.attention import attention, multi_head
from rnnconvert.scaffolding.description import Length, Node
from rnnconvert.scaffolding.operators import Library, length, operator_rules
from rnnconvert.scaffolding.spelling import last, letters, number
from rnnconvert.scaffolding.writer import Rule


def _activation(m: Any, node: Node) -> str:
    name, x = node["name"], m(node.x)
    if name == "bounded_relu":
        least, slope = number(node["threshold"]), number(node["alpha"])
        high = x if node["highest"] is None else f"jnp.minimum({x}, {number(node['highest'])})"
        return f"jnp.where({x} >= {least}, {high}, {slope} * ({x} - {least}))"
    pattern = FUNCTIONS.get(name)
    if pattern is None:
        raise m.refused(node, f"the activation {name!r}", "JAX has no such function")
    axis = "" if node["axis"] in (-1, len(node.x.shape) - 1) else f", axis={node['axis']}"
    return str(pattern.format(x, alpha="" if node["alpha"] is None else f"{node['alpha']:.9g}", axis=axis))


def _dense(m: Any, node: Node) -> str:
    return constructed(m, node, "Linear", str(node.x.shape[-1]), str(node["units"]), bias(node))


def _embedding(m: Any, node: Node) -> str:
    part = m.part(node.layer, f"nnx.Embed({node['input_size']}, {node['output_size']}, rngs=rngs)")
    indices = m(node.x) if node.x.dtype in ("int32", "int64") else f"{m(node.x)}.astype(int)"
    return f"{part}({indices})"


def _reduce(m: Any, node: Node) -> str:
    x, axes, keep = m(node.x), node["axes"], ", keepdims=True" if node["keep"] else ""
    if node.named.get("mask"):
        mask = f"{m(node.named['mask'][0])}[..., None]"
        return f"jnp.where({mask}, {x}, 0.0).sum(1{keep}) / {mask}.sum(1{keep})"
    return f"{x}.{node['operation']}({axes[0] if len(axes) == 1 else axes}{keep})"


def _prelu(m: Any, node: Node) -> str:
    if any(size != 1 for size in node["slopes"]):
        raise m.refused(node, "a PReLU with several slopes", "nnx.PReLU has one")
    return f"{m.part(node.layer, 'nnx.PReLU()')}({m(node.x)})"


def _dropout(m: Any, node: Node) -> str:
    shared = "broadcast_dims=(1,), " if node["name"].endswith("1D") else ""
    if node["name"] not in ("Dropout", "SpatialDropout1D"):
        return str(m(node.x))  # nnx has no such layer, and it acts in training alone
    part = m.part(node.layer, f"nnx.Dropout({node['rate']:g}, {shared}rngs=rngs)")
    return f"{part}({m(node.x)})"


def _joined(m: Any, node: Node) -> str:
    word = "stack" if node.kind == "stack" else "concatenate"
    return f"jnp.{word}([{', '.join(m(value) for value in node.inputs)}], axis={last(node['axis'], len(node.y.shape))})"


def _dot(m: Any, node: Node) -> str:
    operands = [m(value) for value in node.inputs]
    if node["normalize"]:
        operands = [normalized(x, axis, 1e-7) for x, axis in zip(operands, node["axes"], strict=True)]
    equation = letters(node)
    return f'jnp.einsum("{equation}", {operands[0]}, {operands[1]})' + ("[:, None]" if equation.endswith(">b") else "")


_MASKS = {
    **rules.MASKS,
    "widened": "{0}[..., None]",
    "ones": "jnp.ones_like({0}, dtype=bool)",
    "zeros": "jnp.zeros_like({0}, dtype=bool)",
    "all true": "jnp.ones_like({0}[..., 0], dtype=bool)",
    "lengths": "jnp.arange({1}.shape[1]) < {0}[:, None]",
}


def _where(m: Any, node: Node) -> str:
    other = m(node.inputs[1]) if len(node.inputs) > 1 else repr(float(node.settings.get("value", 0)))
    return f"jnp.where({m(node.named['mask'][0])}[..., None], {m(node.x)}, {other})"


_ATTENTION = {
    "dot": "{q} @ {k}.swapaxes(1, 2)",
    "additive": "({each}jnp.tanh({q}[:, :, None] + {k}[:, None])).sum(-1)",
    "weight": "nnx.Param(jnp.ones({sizes}))",
    "weighed": "{part}[...]",
    "hidden": "jnp.where({mask}, {s}, {s} - 1e9)",
    "causal": "jnp.tril(jnp.ones_like({s}[0], dtype=bool))",
    "softmax": "nnx.softmax({s})",
    "wide": "{mask}[:, None]",
    "tall": "{mask}[..., None]",
    "where": "jnp.where({mask}, {x}, 0.0)",
}


def _multi_head(m: Any, node: Node) -> str:
    return multi_head(m, node, _ATTENTION, "MultiHeadAttention({words}, rngs=rngs)")


def _parameter(m: Any, node: Node) -> str:
    part = m.part(node.layer, f"nnx.Param(jnp.zeros({tuple(node['sizes'])}))")
    return f"{part}[...]"


def _weight(m: Any, node: Node) -> str:
    rows, width = node["sizes"]
    if node["of"] == "embedding":
        return f"{m.part(node.layer, f'nnx.Embed({rows}, {width}, rngs=rngs)')}.embedding[...]"
    words = ", ".join(word for word in (str(width), str(rows), bias(node), "rngs=rngs") if word)
    return f"{m.part(node.layer, f'nnx.Linear({words})')}.{'kernel[...].T' if node['array'] == 'weight' else 'bias[...]'}"


def _model(m: Any, node: Node) -> str:
    part = m.part(node.layer, f"{m.file.classes[id(node['scope'])]}(rngs)")
    return rules.submodel(m, node, f"{part}({', '.join(m(value) for value in node.inputs)})")


# Norms as Flax nnx. Sources: flax 0.12 flax/nnx/nn/normalization.py.


def _affine(node: Node) -> list[str]:
    return ["" if node["scale"] else "use_scale=False", "" if node["shift"] else "use_bias=False"]


def _epsilon(node: Node) -> str:
    return f"epsilon={number(node['epsilon'])}"


def _batch_norm(m: Any, node: Node) -> str:
    axis = "" if node["axis"] == len(node.x.shape) - 1 else f"axis={node['axis']}"
    return constructed(
        m, node, "BatchNorm", str(node["size"]), axis, f"momentum={number(round(node['momentum'], 12))}", _epsilon(node), *_affine(node)
    )


def _norm(kind: str) -> Rule:
    def rule(m: Any, node: Node) -> str:
        if len(node["sizes"]) != 1:
            words = [m.helper("NormOverAxes"), str(tuple(node["sizes"])), _epsilon(node), *_affine(node)]
            words = words if kind == "LayerNorm" else [*words[:4], "use_bias=False", "centered=False"]
            part = m.part(node.layer, f"{words[0]}({', '.join(filter(None, words[1:]))})")
            return f"{part}({m(node.x)})"
        affine = _affine(node) if kind == "LayerNorm" else _affine(node)[:1]
        return constructed(m, node, kind, str(node["sizes"][0]), _epsilon(node), *affine, "use_fast_variance=False")

    return rule


def _group_norm(m: Any, node: Node) -> str:
    return constructed(
        m, node, "GroupNorm", str(node["size"]), f"num_groups={node['groups']}", _epsilon(node), *_affine(node), "use_fast_variance=False"
    )


def _unit_norm(m: Any, node: Node) -> str:
    return normalized(m(node.x), node["axes"] if len(node["axes"]) > 1 else node["axes"][0], node["epsilon"])


def normalized(x: str, axis: Any, epsilon: float) -> str:
    return f"{x} / jnp.maximum(jnp.linalg.norm({x}, axis={axis}, keepdims=True), {number(epsilon)})"


# Operators on tensors as jax.numpy's functions. Source: jax 0.10 jax/numpy, jax/lax and jax/nn.


def _lengths(m: Any, node: Node, values: Sequence[Length | int]) -> list[str]:
    return [length(m, node, value) for value in values]


def _reshape(m: Any, node: Node, values: Sequence[Length | int]) -> str:
    return f"{m(node.x)}.reshape({', '.join(_lengths(m, node, values))})"


def _expand(m: Any, node: Node) -> str:
    shape = _lengths(m, node, node["lengths"])
    return f"jnp.broadcast_to({m(node.x)}, ({', '.join(shape)}{',' * (len(shape) == 1)}))"


TYPES = {"int64": "int", "float64": "float"}
"""Without jax_enable_x64 these are of 32 bits, and naming them warns."""
_OPERATORS = operator_rules(
    Library(
        "jnp",
        _reshape,
        _expand,
        _lengths,
        {
            "erf": "jax.lax.erf({0})",
            "rsqrt": "jax.lax.rsqrt({0})",
            "remainder towards zero": "jnp.fmod({0}, {1})",
            "divide towards zero": "jax.lax.div({0}, {1})",
            "top_k": "jax.lax.top_k({0}, {1})",
            "one_hot": "jax.nn.one_hot({0}{more})",
        },
        types=TYPES,
    )
)


RULES: dict[str, Rule] = {
    "loop": rules.loop(lambda: RULES, "jnp.stack({})"),
    **rules.RULES, **SPACE, **_OPERATORS, "dense": _dense, "embedding": _embedding, "activation": _activation, "reduce": _reduce,
    "prelu": _prelu, "dropout": _dropout, "flatten": lambda m, node: f"{m(node.x)}.reshape(len({m(node.x)}), -1)",
    "transpose": lambda m, node: f"{m(node.x)}.transpose({', '.join(map(str, node['order']))})",
    "repeat": lambda m, node: f"{m(node.x)}[:, None].repeat({node['count']}, axis=1)",
    "arithmetic": rules.arithmetic("jnp", "{}[:, None]"), "concatenate": _joined, "stack": _joined, "dot": _dot,
    "mask": rules.masks(_MASKS), "zero masked": _where, "where": _where, "attention": lambda m, node: attention(m, node, _ATTENTION),
    "multi_head": _multi_head, "model": _model, "batch_norm": _batch_norm, "layer_norm": _norm("LayerNorm"), "rms_norm": _norm("RMSNorm"),
    "group_norm": _group_norm, "unit_norm": _unit_norm,
    "recurrent": recurrent, "conv_lstm": conv_lstm, "clip": rules.clipped("clip"), "parameter": _parameter, "layer's weight": _weight,
    "flip": lambda m, node: f"jnp.flip({m(node.x)}, {node['axes']})",
    "unsqueeze": lambda m, node: f"jnp.expand_dims({m(node.x)}, {last(node['axis'], len(node.y.shape))})",
    "cast": lambda m, node: f"{m(node.x)}.astype({TYPES.get(node['dtype']) or 'jnp.' + node['dtype']})",
    "steps to batch": lambda m, node: f"{m(node.x)}.reshape(-1, *{m(node.x)}.shape[2:])",
    "batch to steps": lambda m, node: f"{m(node.x)}.reshape(*{m(node.inputs[1])}.shape[:2], *{m(node.x)}.shape[1:])",
}  # fmt: skip
"""The kinds that are known."""
