"""Each kind of layer as Flax nnx: its submodule and its line. Sources: flax 0.12 flax/nnx/nn, jax 0.10 jax/nn, jax/numpy and jax/lax."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.jax.scaffold.convolving import conv_lstm
from rnnconvert.formats.jax.scaffold.norms import NORMS, normalized
from rnnconvert.formats.jax.scaffold.operators import OPERATORS, TYPES
from rnnconvert.formats.jax.scaffold.recurrent import FUNCTIONS, recurrent
from rnnconvert.formats.jax.scaffold.space import SPACE, bias, constructed
from rnnconvert.scaffolding.attention import attention, multi_head
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import last, letters, number, place
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


def _rescale(m: Any, node: Node) -> str:
    scaled = f"{m(node.x)} * {node['scale']!r}"
    return f"{scaled} + {node['shift']!r}" if node["shift"] else scaled


def _dropout(m: Any, node: Node) -> str:
    shared = "broadcast_dims=(1,), " if node["name"].endswith("1D") else ""
    if node["name"] not in ("Dropout", "SpatialDropout1D"):
        return str(m(node.x))  # nnx has no such layer, and it acts in training alone
    part = m.part(node.layer, f"nnx.Dropout({node['rate']:g}, {shared}rngs=rngs)")
    return f"{part}({m(node.x)})"


def _reshape(m: Any, node: Node) -> str:
    x = m(node.x)
    lead = [] if node.kind == "reshape all" else [f"len({x})"]
    return f"{x}.reshape({', '.join(map(str, (*lead, *node['sizes'])))})"


_OPERATORS: dict[str, str] = {"add": " + ", "subtract": " - ", "multiply": " * ", "divide": " / "}


def _arithmetic(m: Any, node: Node) -> str:
    rank = max(len(value.shape) for value in node.inputs)
    values: list[str] = [m(value) + "[:, None]" * (rank - len(value.shape)) for value in node.inputs]
    operation = node["operation"]
    if operation in _OPERATORS:
        return str(_OPERATORS[operation].join(values))
    if operation == "average":
        return f"({' + '.join(values)}) / {len(values)}"
    code: str = values[0]
    for other in values[1:]:
        code = f"jnp.{operation}({code}, {other})"
    return code


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
    "not_equal": "{0} != {value}",
    "equal": "{0} == {value}",
    "greater": "{0} > {value}",
    "greater_equal": "{0} >= {value}",
    "less": "{0} < {value}",
    "less_equal": "{0} <= {value}",
    "any": "{0}.any({axis}{keep})",
    "all": "{0}.all({axis}{keep})",
    "widened": "{0}[..., None]",
    "ones": "jnp.ones_like({0}, dtype=bool)",
    "zeros": "jnp.zeros_like({0}, dtype=bool)",
    "any differs": "({0} != {value}).any(-1)",
    "or": "{0} | {1}",
    "and": "{0} & {1}",
    "not": "~{0}",
    "all true": "jnp.ones_like({0}[..., 0], dtype=bool)",
    "lengths": "jnp.arange({1}.shape[1]) < {0}[:, None]",
}


def _mask(m: Any, node: Node) -> str:
    values = [m(value) for value in node.inputs]
    settings = {
        "axis": -1,
        **node.settings,
        "value": number(node.settings.get("value", 0)),
        "keep": ", keepdims=True" if node.settings.get("keep") else "",
    }
    return _MASKS[node["operation"]].format(*values, **settings)


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


_MULTI_HEAD = {"wide": "{mask}[:, None]", "tall": "{mask}[..., None]"}


def _multi_head(m: Any, node: Node) -> str:
    return multi_head(m, node, _MULTI_HEAD, "MultiHeadAttention({words}, rngs=rngs)")


def _clip(m: Any, node: Node) -> str:
    bounds = [f"{key}={number(node[key])}" for key in ("min", "max") if node[key] is not None]
    return f"{m(node.x)}.clip({', '.join(bounds)})"


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
    text = f"{part}({', '.join(m(value) for value in node.inputs)})"
    if len(node.outputs) == 1:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) if m.used(value) else '_' for value in node.outputs)} = {text}")
    return ""


RULES: dict[str, Rule] = {
    **SPACE, **NORMS,
    **OPERATORS, "dense": _dense, "embedding": _embedding, "activation": _activation,
 "reduce": _reduce,
 "prelu": _prelu, "rescale": _rescale, "dropout": _dropout, "reshape": _reshape,
    "reshape all": _reshape, "flatten": lambda m, node: f"{m(node.x)}.reshape(len({m(node.x)}), -1)",
    "transpose": lambda m, node: f"{m(node.x)}.transpose({', '.join(map(str, node['order']))})",
    "repeat": lambda m, node: f"{m(node.x)}[:, None].repeat({node['count']}, axis=1)",
    "arithmetic": _arithmetic, "concatenate": _joined, "stack": _joined, "dot": _dot, "mask": _mask,
    "zero masked": _where, "where": _where, "attention": lambda m, node: attention(m, node, _ATTENTION),
    "multi_head": _multi_head, "model": _model,
    "recurrent": recurrent, "conv_lstm": conv_lstm, "clip": _clip, "parameter": _parameter, "layer's weight": _weight,
    "select": lambda m, node: f"{m(node.x)}{place(node)}", "slice": lambda m, node: f"{m(node.x)}{place(node)}",
    "flip": lambda m, node: f"jnp.flip({m(node.x)}, {node['axes']})",
    "unsqueeze": lambda m, node: f"jnp.expand_dims({m(node.x)}, {last(node['axis'], len(node.y.shape))})",
    "squeeze": lambda m, node: f"{m(node.x)}.squeeze({last(node['axis'], len(node.x.shape))})",
    "matmul": lambda m, node: f"{m(node.x)} @ {m(node.inputs[1])}",
    "cast": lambda m, node: f"{m(node.x)}.astype({TYPES.get(node['dtype']) or 'jnp.' + node['dtype']})",
    "steps to batch": lambda m, node: f"{m(node.x)}.reshape(-1, *{m(node.x)}.shape[2:])",
    "batch to steps": lambda m, node: f"{m(node.x)}.reshape(*{m(node.inputs[1])}.shape[:2], *{m(node.x)}.shape[1:])",
}  # fmt: skip
"""The kinds that are known."""
