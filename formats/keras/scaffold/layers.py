"""Each kind of layer as Keras 3: its constructor, or its line. Sources: keras 3.15 keras/src/layers and keras/src/ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnnconvert.formats.keras.scaffold.operators import OPERATORS
from rnnconvert.formats.keras.scaffold.recurrent import recurrent
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.writer import Rule, last, number, place, sizes

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


def _stated(node: Node, **defaults: Any) -> str:
    """Return the settings that are not Keras's own defaults, which are given."""
    return words(*(f"{key}={node[key]!r}" for key, value in defaults.items() if node[key] != value))


def _bias(node: Node) -> str:
    return "" if node["bias"] else "use_bias=False"


def _function(m: Any, node: Node) -> str:
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


def _activation(m: Any, node: Node) -> str:
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


def _dense(m: Any, node: Node) -> str:
    if len(node.x.shape) < 2:
        raise m.refused(node, "a dense layer on a tensor of one axis", "Keras's takes two or more")
    return f"layers.Dense({words(str(node['units']), _function(m, node), _bias(node))})"


def _embedding(m: Any, node: Node) -> str:
    return f"layers.Embedding({node['input_size']}, {node['output_size']})"


def _window(node: Node) -> list[str]:
    strides, dilation, padding = node["strides"], node.settings.get("dilation", (1,)), node["padding"]
    return [
        f"strides={sizes(strides)}" if max(strides) > 1 else "",
        f'padding="{padding}"' if padding != "valid" else "",
        f"dilation_rate={sizes(dilation)}" if max(dilation) > 1 else "",
    ]


def _conv(m: Any, node: Node) -> str:
    rank, groups, channels = node["rank"], node["groups"], node["channels"]
    kernel = sizes(node["kernel"])
    if groups == channels > 1 and rank < 3 and node["padding"] != "causal":
        many = node["filters"] // channels
        depth = f"depth_multiplier={many}" if many > 1 else ""
        return f"layers.DepthwiseConv{rank}D({words(kernel, *_window(node), depth, _function(m, node), _bias(node))})"
    grouped = f"groups={groups}" if groups > 1 else ""
    return f"layers.Conv{rank}D({words(str(node['filters']), kernel, *_window(node), grouped, _function(m, node), _bias(node))})"


def _conv_transposed(m: Any, node: Node) -> str:
    arguments = words(str(node["filters"]), sizes(node["kernel"]), *_window(node), _function(m, node), _bias(node))
    return f"layers.Conv{node['rank']}DTranspose({arguments})"


def _pool(m: Any, node: Node) -> str:
    kind, (strides, *others) = "Max" if node["operation"] == "max" else "Average", _window(node)
    strides = f"strides={sizes(node['strides'])}" if node["strides"] != node["kernel"] else ""
    return f"layers.{kind}Pooling{node['rank']}D({words(sizes(node['kernel']), strides, *others)})"


def _reduce(m: Any, node: Node) -> str:
    rank, operation = len(node.x.shape), node["operation"]
    mask = node.named.get("mask")
    if operation in ("max", "mean") and node["axes"] == tuple(range(1, rank - 1)) and rank in (3, 4, 5):
        kind = "Max" if operation == "max" else "Average"
        layer = f"layers.Global{kind}Pooling{rank - 2}D({'keepdims=True' if node['keep'] else ''})"
        return str(m.called(layer, node.x, f"mask={m(mask[0])}" if mask else ""))
    axes = node["axes"][0] if len(node["axes"]) == 1 else node["axes"]
    return f"ops.{operation}({m(node.x)}, axis={axes}{', keepdims=True' if node['keep'] else ''})"


def _affine(node: Node) -> str:
    return words("" if node["scale"] else "scale=False", "" if node["shift"] else "center=False")


def _batch_norm(m: Any, node: Node) -> str:
    axis = "" if node["axis"] == len(node.x.shape) - 1 else f"axis={node['axis']}"
    momentum = f"momentum={number(round(node['momentum'], 12))}"
    return f"layers.BatchNormalization({words(axis, momentum, _epsilon(node), _affine(node))})"


def _epsilon(node: Node) -> str:
    return f"epsilon={number(node['epsilon'])}"


def _axes(node: Node) -> str:
    count = len(node["sizes"])
    return "" if count == 1 else f"axis={tuple(range(-count, 0))}"


def _layer_norm(m: Any, node: Node) -> str:
    return f"layers.LayerNormalization({words(_axes(node), _epsilon(node), _affine(node))})"


def _rms_norm(m: Any, node: Node) -> str:
    if not node["scale"]:  # the layer has one
        axes = [*range(-len(node["sizes"]), 0)]
        return f"ops.rms_normalization({m(node.x)}, axis={axes[0] if len(axes) == 1 else axes}, {_epsilon(node)})"
    return _layer(lambda m, node: _rms_layer(node))(m, node)


def _rms_layer(node: Node) -> str:
    return f"layers.RMSNormalization({words(_axes(node), _epsilon(node))})"


def _group_norm(m: Any, node: Node) -> str:
    return f"layers.GroupNormalization({words(str(node['groups']), _epsilon(node), _affine(node))})"


def _unit_norm(m: Any, node: Node) -> str:
    return f"layers.UnitNormalization(axis={sizes(node['axes'])})"


def _prelu(m: Any, node: Node) -> str:
    shared = [n + 1 for n, size in enumerate(node["slopes"]) if size == 1]
    return f"layers.PReLU({f'shared_axes={shared}' if shared else ''})"


def _rescale(m: Any, node: Node) -> str:
    return f"layers.Rescaling({words(repr(node['scale']), repr(node['shift']) if node['shift'] else '')})"


def _edges(kind: str) -> Rule:
    def rule(m: Any, node: Node) -> str:
        pairs, rank = node["pairs"], len(node.x.shape)
        if len(pairs) == rank:
            return f"ops.pad({m(node.x)}, {pairs})"
        argument = str(pairs[0] if len(set(pairs[0])) > 1 else pairs[0][0]) if len(pairs) == 1 else str(pairs)
        return str(m.called(f"layers.{kind}{rank - 2}D({argument})", node.x))

    return rule


def _transpose(m: Any, node: Node) -> str:
    order = node["order"]
    if order[0] == 0:
        return str(m.called(f"layers.Permute({order[1:]})".replace(",)", ")"), node.x))
    return f"ops.transpose({m(node.x)}, {order})"


_OPERATORS = {"add": " + ", "subtract": " - ", "multiply": " * ", "divide": " / "}


def _arithmetic(m: Any, node: Node) -> str:
    rank = max(len(value.shape) for value in node.inputs)
    values = []
    for value in node.inputs:
        text = m(value)
        for _ in range(rank - len(value.shape)):
            text = f"ops.expand_dims({text}, 1)"
        values.append(text)
    operation = node["operation"]
    if operation in _OPERATORS:
        return str(_OPERATORS[operation].join(values))
    if operation == "average":
        return f"layers.Average()([{', '.join(values)}])"
    code: str = values[0]
    for other in values[1:]:
        code = f"ops.{operation}({code}, {other})"
    return code


def _joined(m: Any, node: Node) -> str:
    values = f"[{', '.join(m(value) for value in node.inputs)}]"
    axis = last(node["axis"], len(node.y.shape))
    if node.kind == "stack":
        return f"ops.stack({values}, axis={axis})"
    if node.x.dtype == "bool":
        return f"ops.concatenate({values}, axis={axis})"
    return f"layers.Concatenate({'' if axis == -1 else f'axis={axis}'})({values})"


def _dot(m: Any, node: Node) -> str:
    arguments = words(f"axes={node['axes']}", "normalize=True" if node["normalize"] else "")
    return f"layers.Dot({arguments})([{', '.join(m(value) for value in node.inputs)}])"


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
    return f"ops.where(ops.expand_dims({m(node.named['mask'][0])}, -1), {m(node.x)}, {other})"


def _attention(m: Any, node: Node) -> str:
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


def _multi_head(m: Any, node: Node) -> str:
    query, value, key = node.inputs
    settings = words(
        str(node["heads"]),
        str(node["size"]),
        f"value_dim={node['value_size']}" if node["value_size"] != node["size"] else "",
        f"dropout={node['dropout']:g}" if node["dropout"] else "",
        _bias(node),
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
    if len(node.outputs) == 1:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) if m.used(value) else '_' for value in node.outputs)} = {text}")
    return ""


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
        return str(m.called(f"layers.TimeDistributed({rule(m, inside)})", node.x, layer=inside.layer))
    return f"ops.reshape({m(node.x)}, {_shape(m, node, (-1, *node.y.shape[1:]))})"


def _shape(m: Any, node: Node, shape: Any) -> str:
    if None in shape:
        raise m.refused(node, "several layers for each step of an open length", "Keras has TimeDistributed around one")
    return str(tuple(shape))


LAYERS: dict[str, Constructor] = {
    "dense": _dense,
    "embedding": _embedding,
    "conv": _conv,
    "conv transposed": _conv_transposed,
    "pool": _pool,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "unit_norm": _unit_norm,
    "prelu": _prelu,
    "rescale": _rescale,
    "dropout": lambda m, node: f"layers.{node['name']}({node['rate']:g})",
    "flatten": lambda m, node: "layers.Flatten()",
    "reshape": lambda m, node: f"layers.Reshape({node['sizes']})",
    "repeat": lambda m, node: f"layers.RepeatVector({node['count']})",
    "upsample": lambda m, node: f"layers.UpSampling{len(node['by'])}D({sizes(node['by'])})",
}
"""The kinds that are a layer called on one tensor."""


def _layer(constructor: Constructor) -> Rule:
    weighted = ("dense", "embedding", "conv", "conv transposed", "prelu")

    def rule(m: Any, node: Node) -> str:
        named = node.kind in weighted or node.kind.endswith("_norm")
        return str(m.called(constructor(m, node), node.x, layer=node.layer if named and node.kind != "unit_norm" else ""))

    return rule


def _weight(m: Any, node: Node) -> str:
    raise m.refused(node, "weights outside of their layer", "a functional model calls layers, and has no line that reads their arrays")


RULES: dict[str, Rule] = {
    **OPERATORS,
    **{kind: _layer(constructor) for kind, constructor in LAYERS.items()},
    "activation": _activation,
    "reduce": _reduce,
    "rms_norm": _rms_norm,
    "pad": _edges("ZeroPadding"),
    "crop": _edges("Cropping"),
    "transpose": _transpose,
    "arithmetic": _arithmetic,
    "concatenate": _joined,
    "stack": _joined,
    "dot": _dot,
    "mask": _mask,
    "zero masked": _where,
    "where": _where,
    "attention": _attention,
    "multi_head": _multi_head,
    "model": _model,
    "recurrent": recurrent,
    "clip": _clip,
    "parameter": _parameter,
    "layer's weight": _weight,
    "select": lambda m, node: f"{m(node.x)}{place(node)}",
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
