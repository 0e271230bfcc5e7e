"""Each kind of layer as Flax nnx: its submodule and its line. Sources: flax 0.12 flax/nnx/nn, jax 0.10 jax/nn, jax/numpy and jax/lax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnnconvert.formats.jax.scaffold.convolving import conv_lstm
from rnnconvert.formats.jax.scaffold.recurrent import FUNCTIONS, recurrent
from rnnconvert.formats.jax.scaffold.space import SPACE, bias, constructed
from rnnconvert.scaffolding import kinds, rules
from rnnconvert.scaffolding.attention import attention, multi_head
from rnnconvert.scaffolding.description import Length, Node, on
from rnnconvert.scaffolding.operators import Library, length, operator_rules
from rnnconvert.scaffolding.spelling import last, letters, number
from rnnconvert.scaffolding.writer import Rule


def _activation(m: Any, node: Node[kinds.Activation]) -> str:
    name, x = node.kind.name, m(node.x)
    if name == "bounded_relu":
        least, slope = number(node.kind.threshold), number(node.kind.alpha or 0.0)
        high = x if node.kind.highest is None else f"jnp.minimum({x}, {number(node.kind.highest)})"
        return f"jnp.where({x} >= {least}, {high}, {slope} * ({x} - {least}))"
    pattern = FUNCTIONS.get(name)
    if pattern is None:
        raise m.refused(node, f"the activation {name!r}", "JAX has no such function")
    axis = "" if node.kind.axis in (-1, len(node.x.shape) - 1) else f", axis={node.kind.axis}"
    return str(pattern.format(x, alpha="" if node.kind.alpha is None else f"{node.kind.alpha:.9g}", axis=axis))


def _dense(m: Any, node: Node[kinds.Dense]) -> str:
    return constructed(m, node, "Linear", str(node.x.shape[-1]), str(node.kind.units), bias(node))


def _embedding(m: Any, node: Node[kinds.Embedding]) -> str:
    part = m.part(node.layer, f"nnx.Embed({node.kind.input_size}, {node.kind.output_size}, rngs=rngs)")
    indices = m(node.x) if node.x.dtype in ("int32", "int64") else f"{m(node.x)}.astype(int)"
    return f"{part}({indices})"


def _reduce(m: Any, node: Node[kinds.Reduce]) -> str:
    x, axes, keep = m(node.x), node.kind.axes, ", keepdims=True" if node.kind.keep else ""
    if node.named.get("mask"):
        mask = f"{m(node.named['mask'][0])}[..., None]"
        return f"jnp.where({mask}, {x}, 0.0).sum(1{keep}) / {mask}.sum(1{keep})"
    return f"{x}.{node.kind.operation}({axes[0] if len(axes) == 1 else axes}{keep})"


def _prelu(m: Any, node: Node[kinds.PReLU]) -> str:
    if node.kind.axes:
        raise m.refused(node, "a PReLU with several slopes", "nnx.PReLU has one")
    return f"{m.part(node.layer, 'nnx.PReLU()')}({m(node.x)})"


def _dropout(m: Any, node: Node[kinds.Dropout]) -> str:
    shared = "broadcast_dims=(1,), " if node.kind.name.endswith("1D") else ""
    if node.kind.name not in ("Dropout", "SpatialDropout1D"):
        return str(m(node.x))  # nnx has no such layer, and it acts in training alone
    part = m.part(node.layer, f"nnx.Dropout({node.kind.rate:g}, {shared}rngs=rngs)")
    return f"{part}({m(node.x)})"


def _joined(m: Any, node: Node[kinds.Concatenate | kinds.Stack]) -> str:
    word = "stack" if isinstance(node.kind, kinds.Stack) else "concatenate"
    return f"jnp.{word}([{', '.join(m(value) for value in node.inputs)}], axis={last(node.kind.axis, len(node.y.shape))})"


def _dot(m: Any, node: Node[kinds.Dot]) -> str:
    operands = [m(value) for value in node.inputs]
    if node.kind.normalize:
        operands = [normalized(x, axis, 1e-7) for x, axis in zip(operands, node.kind.axes, strict=True)]
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


def _where(m: Any, node: Node[kinds.Where | kinds.ZeroMasked]) -> str:
    other = m(node.inputs[1]) if len(node.inputs) > 1 else repr(float(node.kind.value))
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


def _multi_head(m: Any, node: Node[kinds.MultiHead]) -> str:
    return multi_head(m, node, _ATTENTION, "MultiHeadAttention({words}, rngs=rngs)")


def _parameter(m: Any, node: Node[kinds.Parameter]) -> str:
    dtype = "" if node.y.dtype.startswith("float") else f', "{node.y.dtype}"'
    part = m.part(node.layer, f"nnx.{'Variable' if dtype else 'Param'}(jnp.zeros({tuple(node.kind.sizes)}{dtype}))")
    return f"{part}[...]"


def _weight(m: Any, node: Node[kinds.LayerWeight]) -> str:
    rows, width = node.kind.sizes
    if node.kind.of == "embedding":
        return f"{m.part(node.layer, f'nnx.Embed({rows}, {width}, rngs=rngs)')}.embedding[...]"
    words = ", ".join(word for word in (str(width), str(rows), bias(node), "rngs=rngs") if word)
    return f"{m.part(node.layer, f'nnx.Linear({words})')}.{'kernel[...].T' if node.kind.array == 'weight' else 'bias[...]'}"


def _model(m: Any, node: Node[kinds.Model]) -> str:
    part = m.part(node.layer, f"{m.file.classes[id(node.kind.scope)]}(rngs)")
    return rules.submodel(m, node, f"{part}({', '.join(m(value) for value in node.inputs)})")


# Norms as Flax nnx. Sources: flax 0.12 flax/nnx/nn/normalization.py.


def _affine(node: Node[kinds.BatchNorm | kinds.GroupNorm | kinds.LastAxesNorm]) -> list[str]:
    return ["" if node.kind.scale else "use_scale=False", "" if node.kind.shift else "use_bias=False"]


def _epsilon(node: Node[kinds.BatchNorm | kinds.GroupNorm | kinds.LastAxesNorm]) -> str:
    return f"epsilon={number(node.kind.epsilon)}"


def _batch_norm(m: Any, node: Node[kinds.BatchNorm]) -> str:
    axis = "" if node.kind.axis == len(node.x.shape) - 1 else f"axis={node.kind.axis}"
    return constructed(
        m, node, "BatchNorm", str(node.kind.size), axis, f"momentum={number(round(node.kind.momentum, 12))}", _epsilon(node), *_affine(node)
    )


def _norm(kind: str) -> Rule:
    def rule(m: Any, node: Node[kinds.LastAxesNorm]) -> str:
        if len(node.kind.sizes) != 1:
            words = [m.helper("NormOverAxes"), str(tuple(node.kind.sizes)), _epsilon(node), *_affine(node)]
            words = words if kind == "LayerNorm" else [*words[:4], "use_bias=False", "centered=False"]
            part = m.part(node.layer, f"{words[0]}({', '.join(filter(None, words[1:]))})")
            return f"{part}({m(node.x)})"
        affine = _affine(node) if kind == "LayerNorm" else _affine(node)[:1]
        return constructed(m, node, kind, str(node.kind.sizes[0]), _epsilon(node), *affine, "use_fast_variance=False")

    return rule


def _group_norm(m: Any, node: Node[kinds.GroupNorm]) -> str:
    return constructed(
        m,
        node,
        "GroupNorm",
        str(node.kind.size),
        f"num_groups={node.kind.groups}",
        _epsilon(node),
        *_affine(node),
        "use_fast_variance=False",
    )


def _unit_norm(m: Any, node: Node[kinds.UnitNorm]) -> str:
    return normalized(m(node.x), node.kind.axes if len(node.kind.axes) > 1 else node.kind.axes[0], node.kind.epsilon)


def normalized(x: str, axis: Any, epsilon: float) -> str:
    return f"{x} / jnp.maximum(jnp.linalg.norm({x}, axis={axis}, keepdims=True), {number(epsilon)})"


# Operators on tensors as jax.numpy's functions. Source: jax 0.10 jax/numpy, jax/lax and jax/nn.


def _lengths(m: Any, node: Node[kinds.Kind], values: Sequence[Length | int]) -> list[str]:
    return [length(m, node, value) for value in values]


def _reshape(m: Any, node: Node[kinds.Kind], values: Sequence[Length | int]) -> str:
    return f"{m(node.x)}.reshape({', '.join(_lengths(m, node, values))})"


def _expand(m: Any, node: Node[kinds.Expand]) -> str:
    shape = _lengths(m, node, node.kind.lengths)
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


RULES: dict[type[kinds.Kind], Rule] = {
    **on(kinds.Loop, rules.loop(lambda: RULES, "jnp.stack({})")), **rules.RULES, **SPACE, **_OPERATORS, **on(kinds.Dense, _dense),
    **on(kinds.Embedding, _embedding), **on(kinds.Activation, _activation), **on(kinds.Reduce, _reduce), **on(kinds.PReLU, _prelu),
    **on(kinds.Dropout, _dropout), **on(kinds.Flatten, lambda m, node: f"{m(node.x)}.reshape(len({m(node.x)}), -1)"),
    **on(kinds.Transpose, lambda m, node: f"{m(node.x)}.transpose({', '.join(map(str, node.kind.order))})"),
    **on(kinds.Repeat, lambda m, node: f"{m(node.x)}[:, None].repeat({node.kind.count}, axis=1)"),
    **on(kinds.Arithmetic, rules.arithmetic("jnp", "{}[:, None]")), **on(kinds.Concatenate, _joined), **on(kinds.Stack, _joined),
    **on(kinds.Dot, _dot), **on(kinds.Mask, rules.masks(_MASKS)), **on(kinds.ZeroMasked, _where), **on(kinds.Where, _where),
    **on(kinds.Attention, lambda m, node: attention(m, node, _ATTENTION)), **on(kinds.MultiHead, _multi_head), **on(kinds.Model, _model),
    **on(kinds.BatchNorm, _batch_norm), **on(kinds.LayerNorm, _norm("LayerNorm")), **on(kinds.RMSNorm, _norm("RMSNorm")),
    **on(kinds.GroupNorm, _group_norm), **on(kinds.UnitNorm, _unit_norm), **on(kinds.Recurrent, recurrent),
    **on(kinds.ConvLSTM, conv_lstm), **on(kinds.Clip, rules.clipped("clip")), **on(kinds.Parameter, _parameter),
    **on(kinds.LayerWeight, _weight), **on(kinds.Flip, lambda m, node: f"jnp.flip({m(node.x)}, {node.kind.axes})"),
    **on(kinds.Unsqueeze, lambda m, node: f"jnp.expand_dims({m(node.x)}, {last(node.kind.axis, len(node.y.shape))})"),
    **on(kinds.Cast, lambda m, node: f"{m(node.x)}.astype({TYPES.get(node.kind.dtype) or 'jnp.' + node.kind.dtype})"),
    **on(kinds.StepsToBatch, lambda m, node: f"{m(node.x)}.reshape(-1, *{m(node.x)}.shape[2:])"),
    **on(kinds.BatchToSteps, lambda m, node: f"{m(node.x)}.reshape(*{m(node.inputs[1])}.shape[:2], *{m(node.x)}.shape[1:])"),
}  # fmt: skip
"""The kinds that are known."""
