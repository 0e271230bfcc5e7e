"""Each kind of layer as Keras 3: its constructor, or its line. Sources: keras 3.15 keras/src/layers and keras/src/ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnnconvert.formats.keras.model.settings import UNIT_LENGTH
from rnnconvert.formats.keras.scaffold.configured import Constructor, KerasLayer, alike, layer
from rnnconvert.formats.keras.scaffold.functions import activation, ended, words
from rnnconvert.formats.keras.scaffold.recurrent import conv_lstm, recurrent
from rnnconvert.formats.keras.scaffold.space import EDGES, SPACE
from rnnconvert.scaffolding import kinds, rules
from rnnconvert.scaffolding.description import Length, Node, on
from rnnconvert.scaffolding.operators import Library, axis_of, operator_rules
from rnnconvert.scaffolding.spelling import last, number, place, sizes
from rnnconvert.scaffolding.writer import Rule


def _dense(m: Any, node: Node[kinds.Dense]) -> KerasLayer:
    if len(node.x.shape) < 2:
        raise m.refused(node, "a dense layer on a tensor of one axis", "Keras's takes two or more")
    return layer("Dense", 1, units=node.kind.units, **ended(m, node))


def _embedding(m: Any, node: Node[kinds.Embedding]) -> KerasLayer:
    return layer("Embedding", 2, input_dim=node.kind.input_size, output_dim=node.kind.output_size)


def _reduce(m: Any, node: Node[kinds.Reduce]) -> str:
    rank, operation = len(node.x.shape), node.kind.operation
    mask = node.named.get("mask")
    if operation in ("max", "mean") and node.kind.axes == tuple(range(1, rank - 1)) and rank in (3, 4, 5):
        kind = "Max" if operation == "max" else "Average"
        pooled = layer(f"Global{kind}Pooling{rank - 2}D", keepdims=True if node.kind.keep else None)
        return str(m.called(pooled, node.x, f"mask={m(mask[0])}" if mask else ""))
    axes = node.kind.axes[0] if len(node.kind.axes) == 1 else node.kind.axes
    return f"ops.{operation}({m(node.x)}, axis={axes}{', keepdims=True' if node.kind.keep else ''})"


def _prelu(m: Any, node: Node[kinds.PReLU]) -> KerasLayer:
    shared = [n + 1 for n, size in enumerate(node.kind.slopes) if size == 1]
    if not node.kind.by_channel:
        m.within[node.layer] = "/alpha"
    return layer("PReLU", shared_axes=shared or None)


def _rescale(m: Any, node: Node[kinds.Rescale]) -> KerasLayer:
    return layer("Rescaling", 2, scale=node.kind.scale, offset=node.kind.shift or None)


def _transpose(m: Any, node: Node[kinds.Transpose]) -> str:
    order = node.kind.order
    if order[0] == 0:
        return str(m.called(layer("Permute", 1, dims=tuple(order[1:])), node.x))
    return f"ops.transpose({m(node.x)}, {order})"


def _joined(m: Any, node: Node[kinds.Concatenate | kinds.Stack]) -> str:
    values = f"[{', '.join(m(value) for value in node.inputs)}]"
    axis = last(node.kind.axis, len(node.y.shape))
    if isinstance(node.kind, kinds.Stack):
        return f"ops.stack({values}, axis={axis})"
    if node.x.dtype == "bool":
        return f"ops.concatenate({values}, axis={axis})"
    return str(m.merged(layer("Concatenate", axis=None if axis == -1 else axis), node.inputs))


def _dot(m: Any, node: Node[kinds.Dot]) -> str:
    return str(m.merged(layer("Dot", axes=node.kind.axes, normalize=True if node.kind.normalize else None), node.inputs))


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


def _where(m: Any, node: Node[kinds.Where | kinds.ZeroMasked]) -> str:
    other = m(node.inputs[1]) if len(node.inputs) > 1 else repr(float(node.kind.value))
    return f"ops.where(ops.expand_dims({m(node.named['mask'][0])}, -1), {m(node.x)}, {other})"


def _slice(m: Any, node: Node[kinds.Slice]) -> str:
    """Write a slice; a tensor of a functional model takes one of its first axis in a tuple alone."""
    rest = "" if node.kind.axis else ", ..."
    return f"{m(node.x)}{place(node).removesuffix(']')}{rest}]"


def _clip(m: Any, node: Node[kinds.Clip]) -> str:
    low, high = (end if bound is None else bound for bound, end in ((node.kind.min, -3e38), (node.kind.max, 3e38)))
    return f"ops.clip({m(node.x)}, {number(low)}, {number(high)})"


def _parameter(m: Any, node: Node[kinds.Parameter]) -> str:
    m.helper("Parameter")
    m.within[node.layer] = "/value"
    dtype = "" if node.y.dtype.startswith("float") else f', "{node.y.dtype}"'
    return str(m.called(f"Parameter({tuple(node.kind.sizes)}{dtype})", m.scope.inputs[0], layer=node.layer))


def _model(m: Any, node: Node[kinds.Kind]) -> str:
    part = m.model(node)
    operands = ", ".join(m(value) for value in node.inputs)
    text = f"{part}({operands})" if len(node.inputs) == 1 else f"{part}([{operands}])"
    return rules.submodel(m, node, text)


def _each_step(m: Any, node: Node[kinds.Kind]) -> str:
    """Write a layer for each step as TimeDistributed, or lay the steps side by side where their number is known."""
    nodes: list[Node[kinds.Kind]] = m.scope.nodes
    inside, after = (*nodes[m.position + 1 : m.position + 3], node, node)[:2]
    alone = isinstance(after.kind, kinds.BatchToSteps) and after.x is inside.y and inside.inputs == node.outputs and not inside.named
    rule = LAYERS.get(type(inside.kind)) if alone else None
    if alone and (rule is not None or isinstance(inside.kind, kinds.Model)):
        m.join(node, inside)
        m.join(node, after)
        if rule is None:
            return f"layers.TimeDistributed({m.model(inside)})({m(node.x)})"
        return str(m.called(layer("TimeDistributed", 1, layer=rule(m, inside)), node.x, layer=inside.layer))
    return f"ops.reshape({m(node.x)}, {_shape(m, node, (-1, *node.y.shape[1:]))})"


def _shape(m: Any, node: Node[kinds.Kind], shape: Any) -> str:
    if None in shape:
        raise m.refused(node, "several layers for each step of an open length", "Keras has TimeDistributed around one")
    return str(tuple(shape))


# Norms as Keras 3. Sources: keras 3.15 keras/src/layers/normalization.


def _affine(node: Node[kinds.BatchNorm | kinds.GroupNorm | kinds.LayerNorm]) -> dict[str, Any]:
    return {"scale": None if node.kind.scale else False, "center": None if node.kind.shift else False}


def _batch_norm(m: Any, node: Node[kinds.BatchNorm]) -> KerasLayer:
    axis = None if node.kind.axis == len(node.x.shape) - 1 else node.kind.axis
    momentum = round(node.kind.momentum, 12)
    return layer("BatchNormalization", axis=axis, momentum=momentum, epsilon=node.kind.epsilon, **_affine(node))


def _axes(node: Node[kinds.LastAxesNorm]) -> tuple[int, ...] | None:
    count = len(node.kind.sizes)
    return None if count == 1 else tuple(range(-count, 0))


def _layer_norm(m: Any, node: Node[kinds.LayerNorm]) -> KerasLayer:
    return layer("LayerNormalization", axis=_axes(node), epsilon=node.kind.epsilon, **_affine(node))


def _unscaled_rms_norm(m: Any, node: Node[kinds.RMSNorm]) -> str:
    """Return an RMS norm without a scale, which the layer has."""
    axes = [*range(-len(node.kind.sizes), 0)]
    return f"ops.rms_normalization({m(node.x)}, axis={axes[0] if len(axes) == 1 else axes}, epsilon={number(node.kind.epsilon)})"


def _scaled_rms_norm(m: Any, node: Node[kinds.RMSNorm]) -> KerasLayer:
    return layer("RMSNormalization", axis=_axes(node), epsilon=node.kind.epsilon)


def _group_norm(m: Any, node: Node[kinds.GroupNorm]) -> KerasLayer:
    return layer("GroupNormalization", 1, groups=node.kind.groups, epsilon=node.kind.epsilon, **_affine(node))


def _unit_norm(m: Any, node: Node[kinds.UnitNorm]) -> KerasLayer:
    if node.kind.epsilon != UNIT_LENGTH:
        raise m.refused(node, f"a unit norm with the epsilon {number(node.kind.epsilon)}", f"Keras's is always {UNIT_LENGTH}")
    return layer("UnitNormalization", axis=alike(node.kind.axes))


LAYERS: dict[type[kinds.Kind], Constructor] = {
    **SPACE,
    **on(kinds.BatchNorm, _batch_norm),
    **on(kinds.LayerNorm, _layer_norm),
    **on(kinds.RMSNorm, _scaled_rms_norm),
    **on(kinds.GroupNorm, _group_norm),
    **on(kinds.UnitNorm, _unit_norm),
    **on(kinds.Dense, _dense),
    **on(kinds.Embedding, _embedding),
    **on(kinds.PReLU, _prelu),
    **on(kinds.Rescale, _rescale),
    **on(kinds.Dropout, lambda m, node: layer(node.kind.name, 1, rate=node.kind.rate)),
    **on(kinds.Flatten, lambda m, node: layer("Flatten")),
    **on(kinds.Reshape, lambda m, node: layer("Reshape", 1, target_shape=tuple(node.kind.sizes))),
    **on(kinds.Repeat, lambda m, node: layer("RepeatVector", 1, n=node.kind.count)),
}
"""The kinds that are a layer called on one tensor."""


def _layer(constructor: Constructor) -> Rule:
    weighted = kinds.Dense | kinds.Embedding | kinds.Conv | kinds.ConvTransposed | kinds.PReLU | kinds.Norm

    def rule(m: Any, node: Node[kinds.Kind]) -> str:
        return str(m.called(constructor(m, node), node.x, layer=node.layer if isinstance(node.kind, weighted) else ""))

    return rule


def _rms_norm(m: Any, node: Node[kinds.RMSNorm]) -> str:
    return _layer(_scaled_rms_norm)(m, node) if node.kind.scale else _unscaled_rms_norm(m, node)


def _weight(m: Any, node: Node[kinds.Kind]) -> str:
    raise m.refused(node, "weights outside of their layer", "a functional model calls layers, and has no line that reads their arrays")


# Attention as Keras 3. Sources: keras 3.15 keras/src/layers/attention.


def attention(m: Any, node: Node[kinds.Attention]) -> str:
    if node.kind.scale:
        raise m.refused(node, "a scale of both the sums and the scores", "Keras has it as two weights, of which one is filled")
    concat = node.kind.concat
    settings = 'score_mode="concat"' if concat else "" if node.kind.mode == "dot" and not node.layer else f"use_scale={bool(node.layer)}"
    layer = f"layers.{'Attention' if node.kind.mode == 'dot' or concat else 'AdditiveAttention'}({settings})"
    asked, seen = ((m(node.named[word][0]) if node.named.get(word) else "None") for word in ("asked", "seen"))
    query, value, key = node.inputs
    inputs = [query, value] if key is value else [query, value, key]
    masks = [asked, seen] if key is value else [asked, seen, "None"]
    call = words(
        f"[{', '.join(map(m, inputs))}]",
        f"mask=[{', '.join(masks)}]" if masks[:2] != ["None", "None"] else "",
        "use_causal_mask=True" if node.kind.causal else "",
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


def multi_head(m: Any, node: Node[kinds.MultiHead]) -> str:
    query, value, key = node.inputs
    settings = words(
        str(node.kind.heads),
        str(node.kind.size),
        f"value_dim={node.kind.value_size}" if node.kind.value_size != node.kind.size else "",
        f"dropout={node.kind.dropout:g}" if node.kind.dropout else "",
        "" if node.kind.bias else "use_bias=False",
        f"output_shape={node.kind.output}" if node.kind.output != query.shape[2] else "",
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
        "return_attention_scores=True" if scores else "", "use_causal_mask=True" if node.kind.causal else "",
    )  # fmt: skip
    text = f"{layer}({call})"
    if not scores:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) for value in node.outputs)} = {text}", node.y.shape)
    return ""


# Operators on tensors as keras.ops. A functional model has no lengths: open ones are left to shapes with one -1, or refused.
# Source: keras 3.15 keras/src/ops.


def _lengths(m: Any, node: Node[kinds.Kind], values: Sequence[Length | int]) -> list[str]:
    if not all(isinstance(value, int) for value in values):
        raise m.refused(
            node, f"{node.kind.word!r} with a length that a run decides", "a functional model of Keras does not compute lengths"
        )
    return [str(value) for value in values]


def _reshape(m: Any, node: Node[kinds.Kind], values: Sequence[Length | int]) -> str:
    """Write a new shape: beside the batch, which layers.Reshape leaves alone, one length may be open."""
    sizes = [value if isinstance(value, int) else -1 for value in values]
    opened = [n for n, size in enumerate(sizes) if size == -1]
    if len(opened) < 2:
        return f"ops.reshape({m(node.x)}, {tuple(sizes)})"
    if len(opened) > 2 or axis_of(values[0]) != (0, 0):
        raise m.refused(node, "a new shape of several open lengths", "a functional model of Keras does not compute lengths")
    return f"layers.Reshape({tuple(sizes[1:])})({m(node.x)})"


def _expand(m: Any, node: Node[kinds.Expand]) -> str:
    """Write a tensor repeated along its axes of length 1; the others may be of any length."""
    values, x = node.kind.lengths, node.x
    shape = (*(1,) * (len(values) - len(x.shape)), *x.shape)
    by = []
    for axis, (value, size) in enumerate(zip(values, shape, strict=True)):
        same = axis_of(value) == (0, axis - len(values) + len(x.shape)) or value == size
        by.append(1 if same or size != 1 else value)
    _lengths(m, node, by)
    text = m(x) if len(shape) == len(x.shape) else f"ops.expand_dims({m(x)}, {tuple(range(len(shape) - len(x.shape)))})"
    return f"ops.tile({text}, {tuple(by)})"


_LACKS = frozenset({"remainder towards zero", "divide towards zero", "pad edge"})
RULES: dict[type[kinds.Kind], Rule] = {
    **operator_rules(Library("ops", _reshape, _expand, _lengths, lacks=_LACKS)),
    **EDGES,
    **{kind: _layer(constructor) for kind, constructor in LAYERS.items()},
    **on(kinds.Activation, activation),
    **on(kinds.Reduce, _reduce),
    **on(kinds.RMSNorm, _rms_norm),
    **on(kinds.Transpose, _transpose),
    **on(kinds.Arithmetic, rules.arithmetic("ops", "ops.expand_dims({}, 1)", "layers.Average()([{values}])")),
    **on(kinds.Concatenate, _joined),
    **on(kinds.Stack, _joined),
    **on(kinds.Dot, _dot),
    **on(kinds.Mask, rules.masks(_MASKS)),
    **on(kinds.ZeroMasked, _where),
    **on(kinds.Where, _where),
    **on(kinds.Attention, attention),
    **on(kinds.MultiHead, multi_head),
    **on(kinds.Model, _model),
    **on(kinds.Recurrent, recurrent),
    **on(kinds.ConvLSTM, conv_lstm),
    **on(kinds.Clip, _clip),
    **on(kinds.Parameter, _parameter),
    **on(kinds.LayerWeight, _weight),
    **on(kinds.Select, rules.subscript),
    **on(kinds.Slice, _slice),
    **on(kinds.Flip, lambda m, node: f"ops.flip({m(node.x)}, axis={sizes(node.kind.axes)})"),
    **on(kinds.Unsqueeze, lambda m, node: f"ops.expand_dims({m(node.x)}, {last(node.kind.axis, len(node.y.shape))})"),
    **on(kinds.Squeeze, lambda m, node: f"ops.squeeze({m(node.x)}, {last(node.kind.axis, len(node.x.shape))})"),
    **on(kinds.Matmul, lambda m, node: f"ops.matmul({m(node.x)}, {m(node.inputs[1])})"),
    **on(kinds.Cast, lambda m, node: f"ops.cast({m(node.x)}, '{node.kind.dtype}')".replace("'", '"')),
    **on(kinds.ReshapeAll, lambda m, node: f"ops.reshape({m(node.x)}, {node.kind.sizes})"),
    **on(kinds.StepsToBatch, _each_step),
    **on(kinds.BatchToSteps, lambda m, node: f"ops.reshape({m(node.x)}, {_shape(m, node, (-1, *node.y.shape[1:]))})"),
}
"""The kinds that are known."""
