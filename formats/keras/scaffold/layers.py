"""Each kind of layer as Keras 3: its constructor, or its line. Sources: keras 3.15 keras/src/layers and keras/src/ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnnconvert.formats.keras.scaffold.configured import Constructor, KerasLayer, alike, layer
from rnnconvert.formats.keras.scaffold.functions import activation, ended, words
from rnnconvert.formats.keras.scaffold.recurrent import conv_lstm, recurrent
from rnnconvert.formats.keras.scaffold.space import EDGES, SPACE
from rnnconvert.scaffolding import rules
from rnnconvert.scaffolding.description import Length, Node
from rnnconvert.scaffolding.operators import Library, axis_of, operator_rules
from rnnconvert.scaffolding.spelling import last, number, place, sizes
from rnnconvert.scaffolding.writer import Rule


def _dense(m: Any, node: Node) -> KerasLayer:
    if len(node.x.shape) < 2:
        raise m.refused(node, "a dense layer on a tensor of one axis", "Keras's takes two or more")
    return layer("Dense", 1, units=node["units"], **ended(m, node))


def _embedding(m: Any, node: Node) -> KerasLayer:
    return layer("Embedding", 2, input_dim=node["input_size"], output_dim=node["output_size"])


def _reduce(m: Any, node: Node) -> str:
    rank, operation = len(node.x.shape), node["operation"]
    mask = node.named.get("mask")
    if operation in ("max", "mean") and node["axes"] == tuple(range(1, rank - 1)) and rank in (3, 4, 5):
        kind = "Max" if operation == "max" else "Average"
        pooled = layer(f"Global{kind}Pooling{rank - 2}D", keepdims=True if node["keep"] else None)
        return str(m.called(pooled, node.x, f"mask={m(mask[0])}" if mask else ""))
    axes = node["axes"][0] if len(node["axes"]) == 1 else node["axes"]
    return f"ops.{operation}({m(node.x)}, axis={axes}{', keepdims=True' if node['keep'] else ''})"


def _prelu(m: Any, node: Node) -> KerasLayer:
    shared = [n + 1 for n, size in enumerate(node["slopes"]) if size == 1]
    return layer("PReLU", shared_axes=shared or None)


def _rescale(m: Any, node: Node) -> KerasLayer:
    return layer("Rescaling", 2, scale=node["scale"], offset=node["shift"] or None)


def _transpose(m: Any, node: Node) -> str:
    order = node["order"]
    if order[0] == 0:
        return str(m.called(layer("Permute", 1, dims=tuple(order[1:])), node.x))
    return f"ops.transpose({m(node.x)}, {order})"


def _joined(m: Any, node: Node) -> str:
    values = f"[{', '.join(m(value) for value in node.inputs)}]"
    axis = last(node["axis"], len(node.y.shape))
    if node.kind == "stack":
        return f"ops.stack({values}, axis={axis})"
    if node.x.dtype == "bool":
        return f"ops.concatenate({values}, axis={axis})"
    return str(m.merged(layer("Concatenate", axis=None if axis == -1 else axis), node.inputs))


def _dot(m: Any, node: Node) -> str:
    return str(m.merged(layer("Dot", axes=node["axes"], normalize=True if node["normalize"] else None), node.inputs))


_MASKS = {
    "any differs": "ops.any(ops.not_equal({0}, {value}), axis=-1)",
    "any": "ops.any({0}, axis={axis}{keep})",
    "all": "ops.all({0}, axis={axis}{keep})",
    "widened": "ops.expand_dims({0}, -1)",
    "ones": 'ops.ones_like({0}, dtype="bool")',
    "zeros": 'ops.zeros_like({0}, dtype="bool")',
    "or": "ops.logical_or({0}, {1})",
    "and": "ops.logical_and({0}, {1})",
    "not": "ops.logical_not({0})",
    "all true": 'ops.ones_like({0}[..., 0], dtype="bool")',
    "lengths": 'ops.cumsum(ops.ones_like({1}[..., 0], dtype="int32"), axis=1) <= ops.expand_dims(ops.cast({0}, "int32"), 1)',
    **{name: f"ops.{name}({{0}}, {{value}})" for name in ("not_equal", "equal", "greater", "greater_equal", "less", "less_equal")},
}


def _where(m: Any, node: Node) -> str:
    other = m(node.inputs[1]) if len(node.inputs) > 1 else repr(float(node.settings.get("value", 0)))
    return f"ops.where(ops.expand_dims({m(node.named['mask'][0])}, -1), {m(node.x)}, {other})"


def _slice(m: Any, node: Node) -> str:
    """Write a slice; a tensor of a functional model takes one of its first axis in a tuple alone."""
    rest = "" if node["axis"] else ", ..."
    return f"{m(node.x)}{place(node).removesuffix(']')}{rest}]"


def _clip(m: Any, node: Node) -> str:
    low, high = (sign * 3e38 if node[key] is None else node[key] for key, sign in (("min", -1), ("max", 1)))
    return f"ops.clip({m(node.x)}, {number(low)}, {number(high)})"


def _parameter(m: Any, node: Node) -> str:
    m.helper("Parameter")
    m.within[node.layer] = "/value"
    return str(m.called(f"Parameter({tuple(node['sizes'])})", m.scope.inputs[0], layer=node.layer))


def _model(m: Any, node: Node) -> str:
    part = m.model(node)
    operands = ", ".join(m(value) for value in node.inputs)
    text = f"{part}({operands})" if len(node.inputs) == 1 else f"{part}([{operands}])"
    return rules.submodel(m, node, text)


def _each_step(m: Any, node: Node) -> str:
    """Write a layer for each step as TimeDistributed, or lay the steps side by side where their number is known."""
    nodes: list[Node] = m.scope.nodes
    inside, after = (*nodes[m.number + 1 : m.number + 3], node, node)[:2]
    alone = after.kind == "batch to steps" and after.x is inside.y and inside.inputs == node.outputs and not inside.named
    rule = LAYERS.get(inside.kind) if alone else None
    if alone and (rule is not None or inside.kind == "model"):
        m.join(node, inside)
        m.join(node, after)
        if rule is None:
            return f"layers.TimeDistributed({m.model(inside)})({m(node.x)})"
        return str(m.called(layer("TimeDistributed", 1, layer=rule(m, inside)), node.x, layer=inside.layer))
    return f"ops.reshape({m(node.x)}, {_shape(m, node, (-1, *node.y.shape[1:]))})"


def _shape(m: Any, node: Node, shape: Any) -> str:
    if None in shape:
        raise m.refused(node, "several layers for each step of an open length", "Keras has TimeDistributed around one")
    return str(tuple(shape))


# Norms as Keras 3. Sources: keras 3.15 keras/src/layers/normalization.


def _affine(node: Node) -> dict[str, Any]:
    return {"scale": None if node["scale"] else False, "center": None if node["shift"] else False}


def _batch_norm(m: Any, node: Node) -> KerasLayer:
    axis = None if node["axis"] == len(node.x.shape) - 1 else node["axis"]
    momentum = round(node["momentum"], 12)
    return layer("BatchNormalization", axis=axis, momentum=momentum, epsilon=node["epsilon"], **_affine(node))


def _axes(node: Node) -> tuple[int, ...] | None:
    count = len(node["sizes"])
    return None if count == 1 else tuple(range(-count, 0))


def _layer_norm(m: Any, node: Node) -> KerasLayer:
    return layer("LayerNormalization", axis=_axes(node), epsilon=node["epsilon"], **_affine(node))


def _unscaled_rms_norm(m: Any, node: Node) -> str:
    """Return an RMS norm without a scale, which the layer has."""
    axes = [*range(-len(node["sizes"]), 0)]
    return f"ops.rms_normalization({m(node.x)}, axis={axes[0] if len(axes) == 1 else axes}, epsilon={number(node['epsilon'])})"


def _scaled_rms_norm(m: Any, node: Node) -> KerasLayer:
    return layer("RMSNormalization", axis=_axes(node), epsilon=node["epsilon"])


def _group_norm(m: Any, node: Node) -> KerasLayer:
    return layer("GroupNormalization", 1, groups=node["groups"], epsilon=node["epsilon"], **_affine(node))


def _unit_norm(m: Any, node: Node) -> KerasLayer:
    return layer("UnitNormalization", axis=alike(node["axes"]))


LAYERS: dict[str, Constructor] = {
    **SPACE,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _scaled_rms_norm,
    "group_norm": _group_norm,
    "unit_norm": _unit_norm,
    "dense": _dense,
    "embedding": _embedding,
    "prelu": _prelu,
    "rescale": _rescale,
    "dropout": lambda m, node: layer(node["name"], 1, rate=node["rate"]),
    "flatten": lambda m, node: layer("Flatten"),
    "reshape": lambda m, node: layer("Reshape", 1, target_shape=tuple(node["sizes"])),
    "repeat": lambda m, node: layer("RepeatVector", 1, n=node["count"]),
}
"""The kinds that are a layer called on one tensor."""


def _layer(constructor: Constructor) -> Rule:
    weighted = ("dense", "embedding", "conv", "conv transposed", "prelu")

    def rule(m: Any, node: Node) -> str:
        named = node.kind in weighted or node.kind.endswith("_norm")
        return str(m.called(constructor(m, node), node.x, layer=node.layer if named and node.kind != "unit_norm" else ""))

    return rule


def _rms_norm(m: Any, node: Node) -> str:
    return _layer(_scaled_rms_norm)(m, node) if node["scale"] else _unscaled_rms_norm(m, node)


def _weight(m: Any, node: Node) -> str:
    raise m.refused(node, "weights outside of their layer", "a functional model calls layers, and has no line that reads their arrays")


# Attention as Keras 3. Sources: keras 3.15 keras/src/layers/attention.


def attention(m: Any, node: Node) -> str:
    if node["scale"]:
        raise m.refused(node, "a scale of both the sums and the scores", "Keras has it as two weights, of which one is filled")
    concat = node.settings.get("concat")
    settings = 'score_mode="concat"' if concat else "" if node["mode"] == "dot" and not node.layer else f"use_scale={bool(node.layer)}"
    layer = f"layers.{'Attention' if node['mode'] == 'dot' or concat else 'AdditiveAttention'}({settings})"
    asked, seen = ((m(node.named[word][0]) if node.named.get(word) else "None") for word in ("asked", "seen"))
    query, value, key = node.inputs
    inputs = [query, value] if key is value else [query, value, key]
    masks = [asked, seen] if key is value else [asked, seen, "None"]
    call = words(
        f"[{', '.join(map(m, inputs))}]",
        f"mask=[{', '.join(masks)}]" if masks[:2] != ["None", "None"] else "",
        "use_causal_mask=True" if node["causal"] else "",
        "return_attention_scores=True" if len(node.outputs) > 1 else "",
    )
    if node.layer:
        layer = m.named(node.layer, layer)
        m.within[node.layer] = f"/{node.layer.rpartition('/')[2]}"
    text = f"{layer}({call})"
    if len(node.outputs) == 1:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) for value in node.outputs)} = {text}", node.y.shape)
    return ""


def multi_head(m: Any, node: Node) -> str:
    query, value, key = node.inputs
    settings = words(
        str(node["heads"]),
        str(node["size"]),
        f"value_dim={node['value_size']}" if node["value_size"] != node["size"] else "",
        f"dropout={node['dropout']:g}" if node["dropout"] else "",
        "" if node["bias"] else "use_bias=False",
        f"output_shape={node['output']}" if node["output"] != query.shape[2] else "",
    )
    layer = m.named(node.layer, f"layers.MultiHeadAttention({settings})")
    m.inside[node.layer] = {part: part for part in ("query", "key", "value", "attention_output")}
    masks = [
        f"ops.expand_dims({m(mask)}, {axis})"
        for word, axis in (("query", 2), ("value", 1), ("key", 1))
        for mask in node.named.get(word, ())
    ]
    masks = list(dict.fromkeys([*masks, *(m(mask) for mask in node.named.get("pairs", ()))]))
    mask = masks[0] if masks else ""
    for other in masks[1:]:
        mask = f"ops.logical_and({mask}, {other})"
    scores = len(node.outputs) > 1
    call = words(
        m(query), m(value), m(key) if key is not value else "", f"attention_mask={mask}" if mask else "",
        "return_attention_scores=True" if scores else "", "use_causal_mask=True" if node["causal"] else "",
    )  # fmt: skip
    text = f"{layer}({call})"
    if not scores:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) for value in node.outputs)} = {text}", node.y.shape)
    return ""


# Operators on tensors as keras.ops. A functional model has no lengths: open ones are left to shapes with one -1, or refused.
# Source: keras 3.15 keras/src/ops.


def _lengths(m: Any, node: Node, values: Sequence[Length | int]) -> list[str]:
    if not all(isinstance(value, int) for value in values):
        raise m.refused(node, f"{node.kind!r} with a length that a run decides", "a functional model of Keras does not compute lengths")
    return [str(value) for value in values]


def _reshape(m: Any, node: Node, values: Sequence[Length | int]) -> str:
    """Write a new shape: beside the batch, which layers.Reshape leaves alone, one length may be open."""
    sizes = [value if isinstance(value, int) else -1 for value in values]
    opened = [n for n, size in enumerate(sizes) if size == -1]
    if len(opened) < 2:
        return f"ops.reshape({m(node.x)}, {tuple(sizes)})"
    if len(opened) > 2 or axis_of(values[0]) != (0, 0):
        raise m.refused(node, "a new shape of several open lengths", "a functional model of Keras does not compute lengths")
    return f"layers.Reshape({tuple(sizes[1:])})({m(node.x)})"


def _expand(m: Any, node: Node) -> str:
    """Write a tensor repeated along its axes of length 1; the others may be of any length."""
    values, x = node["lengths"], node.x
    shape = (*(1,) * (len(values) - len(x.shape)), *x.shape)
    by = []
    for axis, (value, size) in enumerate(zip(values, shape, strict=True)):
        same = axis_of(value) == (0, axis - len(values) + len(x.shape)) or value == size
        by.append(1 if same or size != 1 else value)
    _lengths(m, node, by)
    text = m(x) if len(shape) == len(x.shape) else f"ops.expand_dims({m(x)}, {tuple(range(len(shape) - len(x.shape)))})"
    return f"ops.tile({text}, {tuple(by)})"


_LACKS = frozenset({"remainder towards zero", "divide towards zero", "pad edge"})
RULES: dict[str, Rule] = {
    **operator_rules(Library("ops", _reshape, _expand, _lengths, lacks=_LACKS)),
    **EDGES,
    **{kind: _layer(constructor) for kind, constructor in LAYERS.items()},
    "activation": activation,
    "reduce": _reduce,
    "rms_norm": _rms_norm,
    "transpose": _transpose,
    "arithmetic": rules.arithmetic("ops", "ops.expand_dims({}, 1)", "layers.Average()([{values}])"),
    "concatenate": _joined,
    "stack": _joined,
    "dot": _dot,
    "mask": rules.masks(_MASKS),
    "zero masked": _where,
    "where": _where,
    "attention": attention,
    "multi_head": multi_head,
    "model": _model,
    "recurrent": recurrent,
    "conv_lstm": conv_lstm,
    "clip": _clip,
    "parameter": _parameter,
    "layer's weight": _weight,
    "select": rules.subscript,
    "slice": _slice,
    "flip": lambda m, node: f"ops.flip({m(node.x)}, axis={sizes(node['axes'])})",
    "unsqueeze": lambda m, node: f"ops.expand_dims({m(node.x)}, {last(node['axis'], len(node.y.shape))})",
    "squeeze": lambda m, node: f"ops.squeeze({m(node.x)}, {last(node['axis'], len(node.x.shape))})",
    "matmul": lambda m, node: f"ops.matmul({m(node.x)}, {m(node.inputs[1])})",
    "cast": lambda m, node: f"ops.cast({m(node.x)}, '{node['dtype']}')".replace("'", '"'),
    "reshape all": lambda m, node: f"ops.reshape({m(node.x)}, {node['sizes']})",
    "steps to batch": _each_step,
    "batch to steps": lambda m, node: f"ops.reshape({m(node.x)}, {_shape(m, node, (-1, *node.y.shape[1:]))})",
}
"""The kinds that are known."""
