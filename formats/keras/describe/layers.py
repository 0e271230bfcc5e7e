"""What each layer of Keras 3 computes, in the words of rnnconvert.scaffolding.description.

Sources: keras 3.15 keras/src/layers; what a setting changes is what formats/keras/export says it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnconvert.formats.keras.config import Era, activation
from rnnconvert.formats.keras.describe.attention import ATTENTION
from rnnconvert.formats.keras.describe.model import Tell, Writer
from rnnconvert.formats.keras.describe.recurrent import RECURRENT
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.export.layers import one_input
from rnnconvert.formats.keras.export.masks import either, mask_on
from rnnconvert.scaffolding.description import Shape, Value

MOVING = ("Embedding", "Flatten", "Reshape", "Permute", "RepeatVector", "TimeDistributed", "Masking", "Concatenate")
"""The layers that read whole numbers."""

_FUNCTIONS = {
    "relu", "sigmoid", "tanh", "softmax", "elu", "selu", "softplus", "softsign", "exponential", "hard_sigmoid", "leaky_relu",
    "log_softmax", "silu", "gelu", "relu6",
}  # fmt: skip


def _single(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> Value:
    x: Any = one_input(facts, values)  # type: ignore[arg-type]
    value: Value = x
    return value


def applied(w: Writer, facts: LayerFacts, spec: Any, x: Value, layer: str = "") -> Value:
    """Add an activation function; `layer` is the layer that it is, where it is one of its own."""
    function = activation(spec, Era("3"))
    name = function.name
    if name == "linear":
        return x
    if name not in _FUNCTIONS:
        raise refuse(w.called(facts.name), f"the activation {name!r}", f"the known ones are {', '.join(sorted(_FUNCTIONS))}")
    output = w.value(facts.name, x.shape)
    w.scope.add("activation", layer, [x], [output], name=name, alpha=function.alpha, axis=-1)
    return output


def _function_layer(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    return [applied(w, facts, facts.get("activation"), _single(w, facts, values))]


def _named(name: str, key: str = "", default: float = 0.0) -> Tell:
    """Return what tells a layer that is one function, with one number."""

    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = _single(w, facts, values)
        output = w.value(facts.name, x.shape)
        number = float(facts.get(key, default)) if key else None
        w.scope.add("activation", "", [x], [output], name=name, alpha=number, axis=-1)
        return [output]

    return tell


def _softmax(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, axis = _single(w, facts, values), facts.get("axis", -1)
    if w.masks.get(x.name) or facts.named:
        raise refuse(facts.name, "a mask on what a Softmax reads", "Keras spreads it over the wrong axes")
    if not isinstance(axis, int):
        raise refuse(facts.name, f"axis = {axis!r}", "only one axis is known here")
    output = w.value(facts.name, x.shape)
    w.scope.add("activation", "", [x], [output], name="softmax", alpha=None, axis=axis)
    return [output]


def _relu(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = _single(w, facts, values)
    slope, highest, threshold = (facts.get("negative_slope", 0) or 0, facts.get("max_value"), facts.get("threshold", 0) or 0)
    output = w.value(facts.name, x.shape)
    plain = not threshold and highest is None
    name = "bounded_relu"
    if plain:
        name = "leaky_relu" if slope else "relu"
    w.scope.add(
        "activation",
        "",
        [x],
        [output],
        name=name,
        alpha=float(slope),
        highest=None if highest is None else float(highest),
        threshold=float(threshold),
        axis=-1,
    )
    return [output]


def _prelu(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = _single(w, facts, values)
    shared = facts.get("shared_axes") or []
    sizes = [1 if number in shared else size for number, size in enumerate(x.shape) if number]
    if None in sizes:
        raise refuse(facts.name, "a PReLU over an open axis", "it has a slope for each place")
    return [w.add("prelu", facts, [x], x.shape, slopes=tuple(sizes))]


def _dense(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, units = _single(w, facts, values), int(facts.get("units"))
    output = w.add("dense", facts, [x], (*x.shape[:-1], units), units=units, bias=bool(facts.get("use_bias", True)))
    return [applied(w, facts, facts.get("activation"), output)]


def _embedding(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, rows, width = _single(w, facts, values), int(facts.get("input_dim")), int(facts.get("output_dim"))
    if facts.get("mask_zero"):
        mask = w.value("mask", x.shape, "bool")
        w.scope.add("mask", "", [x], [mask], operation="not_equal", value=0)
        output = w.add("embedding", facts, [x], (*x.shape, width), input_size=rows, output_size=width)
        w.masks[output.name] = mask
        return [output]
    return [w.add("embedding", facts, [x], (*x.shape, width), input_size=rows, output_size=width)]


def _masking(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, number = _single(w, facts, values), facts.get("mask_value", 0.0)
    number = number.get("config", {}).get("value") if isinstance(number, Mapping) else number
    if isinstance(number, bool) or not isinstance(number, (int, float)) or len(x.shape) < 2:
        raise refuse(facts.name, f"mask_value = {str(number)[:60]}", "only one number, for tensors with features, is known here")
    mask = w.value("mask", x.shape[:-1], "bool")
    w.scope.add("mask", "", [x], [mask], operation="any differs", value=float(number))
    output = w.value(facts.name, x.shape)
    w.scope.add("zero masked", "", [x], [output], {"mask": [mask]})
    w.masks[output.name] = mask
    return [output]


# Over space and time


def sizes(facts: LayerFacts, key: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """Return a setting that has a number for each axis."""
    stated = facts.get(key, default)
    stated = default if stated is None else stated
    return tuple(int(n) for n in stated) if isinstance(stated, (list, tuple)) else (int(stated),) * rank


def _spatial(facts: LayerFacts, x: Value, rank: int) -> int:
    """Return the number of channels. Raises RefusedError for channels in front."""
    facts.need("data_format", "channels_last", None)
    if len(x.shape) != rank + 2 or x.shape[-1] is None:
        raise refuse(facts.name, f"an input of {len(x.shape)} axes", f"it takes {rank + 2}, the last of a known size")
    return x.shape[-1]


def _lengths(x: Value, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int], padding: str) -> Shape:
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    if padding in ("same", "causal"):
        return tuple(None if n is None else -(-n // s) for n, s in zip(x.shape[1:-1], strides, strict=True))
    return tuple(None if n is None else (n - r) // s + 1 for n, r, s in zip(x.shape[1:-1], reach, strides, strict=True))


def _window(facts: LayerFacts, x: Value, rank: int) -> dict[str, Any]:
    padding = facts.get("padding", "valid")
    if padding not in ("valid", "same", "causal"):
        raise refuse(facts.name, f"padding {padding!r}", "only valid, same and causal are known here")
    settings = {
        "rank": rank,
        "kernel": sizes(facts, "kernel_size", rank),
        "strides": sizes(facts, "strides", rank),
        "dilation": sizes(facts, "dilation_rate", rank),
        "padding": padding,
    }
    if padding == "same" and max(settings["strides"]) > 1 and max(settings["dilation"]) > 1:
        raise refuse(facts.name, "padding 'same' with strides and dilation", "backends differ there")
    return settings


def _convolution(rank: int) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, filters, window = _single(w, facts, values), int(facts.get("filters")), None
        channels = _spatial(facts, x, rank)
        window = _window(facts, x, rank)
        lengths = _lengths(x, window["kernel"], window["strides"], window["dilation"], window["padding"])
        output = w.add(
            "conv",
            facts,
            [x],
            (x.shape[0], *lengths, filters),
            channels=channels,
            filters=filters,
            **window,
            groups=int(facts.get("groups", 1) or 1),
            bias=bool(facts.get("use_bias", True)),
        )
        return [applied(w, facts, facts.get("activation"), output)]

    return tell


def _by_channel(rank: int, separable: bool) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = _single(w, facts, values)
        channels, many = _spatial(facts, x, rank), int(facts.get("depth_multiplier", 1))
        facts.need("groups", 1, None)
        window = _window(facts, x, rank)
        lengths = _lengths(x, window["kernel"], window["strides"], window["dilation"], window["padding"])
        bias = bool(facts.get("use_bias", True))
        if not separable:
            output = w.add(
                "conv",
                facts,
                [x],
                (x.shape[0], *lengths, channels * many),
                channels=channels,
                filters=channels * many,
                groups=channels,
                bias=bias,
                **window,
            )
            return [applied(w, facts, facts.get("activation"), output)]
        filters = int(facts.get("filters"))
        first = w.value(facts.name, (x.shape[0], *lengths, channels * many))
        w.node(
            "conv",
            facts,
            f"{facts.name}/depthwise",
            [x],
            [first],
            channels=channels,
            filters=channels * many,
            groups=channels,
            bias=False,
            **window,
        )
        output = w.value(facts.name, (x.shape[0], *lengths, filters))
        ones = (1,) * rank
        w.node("conv", facts, f"{facts.name}/pointwise", [first], [output], channels=channels * many, filters=filters, groups=1, bias=bias,
               rank=rank,
                    kernel=ones, strides=ones, dilation=ones, padding="valid")  # fmt: skip
        return [applied(w, facts, facts.get("activation"), output)]

    return tell


def _transposed(rank: int) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, filters = _single(w, facts, values), int(facts.get("filters"))
        channels = _spatial(facts, x, rank)
        facts.need("groups", 1, None)
        facts.need("output_padding", None)
        facts.need("padding", "valid", "same")
        window = _window(facts, x, rank)
        same = window["padding"] == "same"
        reach = [d * (k - 1) + 1 for k, d in zip(window["kernel"], window["dilation"], strict=True)]
        over = [r - s for r, s in zip(reach, window["strides"], strict=True)]
        lengths = tuple(
            None if n is None else n * s + (0 if same else max(o, 0))
            for n, s, o in zip(x.shape[1:-1], window["strides"], over, strict=True)
        )
        output = w.add(
            "conv transposed",
            facts,
            [x],
            (x.shape[0], *lengths, filters),
            channels=channels,
            filters=filters,
            bias=bool(facts.get("use_bias", True)),
            over=tuple(over),
            **window,
        )
        return [applied(w, facts, facts.get("activation"), output)]

    return tell


def _pooling(operation: str, rank: int) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = _single(w, facts, values)
        channels = _spatial(facts, x, rank)
        kernel = sizes(facts, "pool_size", rank, 2)
        strides = kernel if facts.get("strides") is None else sizes(facts, "strides", rank)
        facts.need("padding", "valid", "same")
        padding = facts.get("padding", "valid")
        lengths = _lengths(x, kernel, strides, (1,) * rank, padding)
        return [
            w.add(
                "pool",
                facts,
                [x],
                (x.shape[0], *lengths, channels),
                operation=operation,
                rank=rank,
                kernel=kernel,
                strides=strides,
                padding=padding,
            )
        ]

    return tell


def _global(operation: str, rank: int) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = _single(w, facts, values)
        channels, keep = _spatial(facts, x, rank), bool(facts.get("keepdims", False))
        mask: Any = mask_on(w, facts, x) if operation == "mean" and rank == 1 else None  # type: ignore[arg-type]
        shape = (x.shape[0], *([1] * rank if keep else []), channels)
        return [
            w.add(
                "reduce",
                facts,
                [x],
                shape,
                {"mask": [mask] if mask else []},
                operation=operation,
                axes=tuple(range(1, rank + 1)),
                keep=keep,
            )
        ]

    return tell


def _pairs(facts: LayerFacts, key: str, rank: int) -> tuple[tuple[int, int], ...]:
    """Return how much is added or taken at both ends of each axis."""
    stated = facts.get(key, 1)
    if isinstance(stated, int):
        return ((stated, stated),) * rank
    if rank == 1:
        low, high = stated
        return ((int(low), int(high)),)
    return tuple((int(n), int(n)) if isinstance(n, int) else (int(n[0]), int(n[1])) for n in stated)


def _edges(kind: str, key: str, sign: int, rank: int) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = _single(w, facts, values)
        channels, pairs = _spatial(facts, x, rank), _pairs(facts, key, rank)
        lengths = (None if n is None else n + sign * (low + high) for n, (low, high) in zip(x.shape[1:-1], pairs, strict=True))
        return [w.add(kind, facts, [x], (x.shape[0], *lengths, channels), pairs=pairs)]

    return tell


def _upsampling(rank: int) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = _single(w, facts, values)
        channels, by = _spatial(facts, x, rank), sizes(facts, "size", rank, 2)
        facts.need("interpolation", "nearest")
        lengths = (None if n is None else n * s for n, s in zip(x.shape[1:-1], by, strict=True))
        return [w.add("upsample", facts, [x], (x.shape[0], *lengths, channels), by=by)]

    return tell


# Norms


def _axes(facts: LayerFacts, x: Value) -> list[int]:
    """Return the axes that a layer names, counted from the front, in order. Raises RefusedError for the batch."""
    stated, rank = facts.get("axis", -1), len(x.shape)
    axes = [int(n) % rank for n in (stated if isinstance(stated, (list, tuple)) else [stated])]
    if not axes or 0 in axes or axes != sorted(set(axes)) or any(x.shape[n] is None for n in axes):
        raise refuse(facts.name, f"axis = {stated!r}", "only axes of known sizes behind the batch, in their order, are known here")
    return axes


def _batch_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = _single(w, facts, values)
    axes = _axes(facts, x)
    if len(axes) != 1:
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only one axis is known here")
    facts.need("renorm", False)
    mask_on(w, facts, x)  # type: ignore[arg-type]  # it is read in training alone
    for key in ("synchronized", "renorm_clipping", "renorm_momentum", "virtual_batch_size", "adjustment"):
        facts.get(key)
    return [
        w.add(
            "batch_norm",
            facts,
            [x],
            x.shape,
            axis=axes[0],
            size=x.shape[axes[0]],
            epsilon=float(facts.get("epsilon", 1e-3)),
            momentum=float(facts.get("momentum", 0.99)),
            scale=bool(facts.get("scale", True)),
            shift=bool(facts.get("center", True)),
        )
    ]


def _norm(kind: str, epsilon: float) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = _single(w, facts, values)
        axes, rank = _axes(facts, x), len(x.shape)
        facts.need("rms_scaling", False)
        if axes != list(range(axes[0], rank)):
            raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only the last axes are known here")
        return [
            w.add(
                kind,
                facts,
                [x],
                x.shape,
                sizes=tuple(x.shape[n] for n in axes),
                epsilon=float(facts.get("epsilon", epsilon)),
                scale=bool(facts.get("scale", True)),
                shift=bool(facts.get("center", True)),
            )
        ]

    return tell


def _group_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, groups = _single(w, facts, values), int(facts.get("groups", 32))
    width = x.shape[-1]
    if _axes(facts, x) != [len(x.shape) - 1] or width is None:
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only the last axis, of a known size, is known here")
    groups = width if groups == -1 else groups
    if groups < 1 or width % groups:
        raise refuse(facts.name, f"{groups} groups of {width} channels", "the channels must go into the groups")
    return [
        w.add(
            "group_norm",
            facts,
            [x],
            x.shape,
            groups=groups,
            size=width,
            epsilon=float(facts.get("epsilon", 1e-3)),
            scale=bool(facts.get("scale", True)),
            shift=bool(facts.get("center", True)),
        )
    ]


def _unit_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = _single(w, facts, values)
    return [w.add("unit_norm", facts, [x], x.shape, axes=tuple(_axes(facts, x)), epsilon=1e-12)]


def _rescaling(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = _single(w, facts, values)
    scale, shift = facts.get("scale", 1.0), facts.get("offset", 0.0)
    if not all(isinstance(n, (int, float)) and math.isfinite(n) for n in (scale, shift)):
        raise refuse(facts.name, f"scale = {str(scale)[:40]}, offset = {str(shift)[:40]}", "only one number each is known here")
    return [w.add("rescale", facts, [x], x.shape, scale=float(scale), shift=float(shift))]


# Shapes and merges


def _training_only(*keys: str) -> Tell:
    """Return what tells a layer that computes nothing when a model runs."""

    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, kind = _single(w, facts, values), facts.old.kind
        for key in (*keys, "noise_shape", "data_format"):
            facts.get(key)
        if kind in ("Dropout", "AlphaDropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D") and x.dtype == "float32":
            return [w.add("dropout", facts, [x], x.shape, name=kind, rate=float(facts.get("rate", 0.0)))]
        if kind != "Identity":
            w.notes.append(f"{w.called(facts.name)}: {kind} acts in training alone, and is left out")
        return [x]

    return tell


def _flatten(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = _single(w, facts, values)
    facts.need("data_format", "channels_last", None)
    lengths = [n for n in x.shape[1:] if n is not None]
    width = math.prod(lengths) if len(lengths) == len(x.shape) - 1 else None
    return [w.add("flatten", facts, [x], (x.shape[0], width), dtype=x.dtype)]


def _reshape(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, target = _single(w, facts, values), [int(n) if n is not None else -1 for n in facts.get("target_shape")]
    lengths = [n for n in x.shape[1:] if n is not None]
    total = math.prod(lengths) if len(lengths) == len(x.shape) - 1 else None
    rest = math.prod(n for n in target if n != -1)
    inferred = None if total is None else total // rest
    out = tuple(inferred if n == -1 else n for n in target)
    return [w.add("reshape", facts, [x], (x.shape[0], *out), dtype=x.dtype, sizes=tuple(target))]


def _permute(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, order = _single(w, facts, values), (0, *(int(n) for n in facts.get("dims")))
    return [w.add("transpose", facts, [x], tuple(x.shape[n] for n in order), dtype=x.dtype, order=order)]


def _repeat(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x, count = _single(w, facts, values), int(facts.get("n"))
    return [w.add("repeat", facts, [x], (x.shape[0], count, x.shape[1]), dtype=x.dtype, count=count)]


def _merge(operation: str) -> Tell:
    def tell(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        if len(values) < 2:
            raise refuse(facts.name, f"a {facts.old.kind} of {len(values)} inputs", "it takes two or more")
        rank = max(len(value.shape) for value in values)
        shapes = [(value.shape[0], *[1] * (rank - len(value.shape)), *value.shape[1:]) for value in values]
        shape = shapes[0]
        for other in shapes[1:]:
            shape = tuple(_broadcast(n, m) for n, m in zip(shape, other, strict=True))
        masks = [w.masks.get(value.name) for value in values]
        if operation in ("multiply", "maximum", "minimum") and any(masks):
            alike = len({value.shape for value in values}) == 1
            if not alike or any(mask is not None and len(mask.shape) != rank - 1 for mask in masks):
                raise refuse(
                    w.called(facts.name), f"a {facts.old.kind} of tensors with masks and of several shapes", "Keras spreads the masks"
                )
            return [(_product if operation == "multiply" else _extreme)(w, facts, values, masks)]
        return [w.add("arithmetic", facts, values, shape, operation=operation)]

    return tell


def _where(w: Writer, facts: LayerFacts, mask: Value, x: Value, other: Value | float) -> Value:
    """Add a tensor's numbers at the steps that count, and others at those that do not."""
    output = w.value(facts.name, x.shape)
    inputs, number = ([x, other], 0.0) if isinstance(other, Value) else ([x], other)
    w.scope.add("where", "", inputs, [output], {"mask": [mask]}, value=number)
    return output


def _product(w: Writer, facts: LayerFacts, values: Sequence[Value], masks: Sequence[Value | None]) -> Value:
    """Return a product whose factors are 1 at steps that are masked, zero where a step counts in none of them."""
    factors = [value if mask is None else _where(w, facts, mask, value, 1.0) for value, mask in zip(values, masks, strict=True)]
    output = w.add("arithmetic", facts, factors, values[0].shape, operation="multiply")
    counts: Any = either(w, facts, masks)  # type: ignore[arg-type]
    return output if counts is None else _where(w, facts, counts, output, 0.0)


def _extreme(w: Writer, facts: LayerFacts, values: Sequence[Value], masks: Sequence[Value | None]) -> Value:
    """Return the largest or smallest of tensors, step by step of those that count there: Keras folds them from the first on."""
    output, counts = values[0], masks[0]
    for value, mask in zip(values[1:], masks[1:], strict=True):
        x = value if mask is None else _where(w, facts, mask, value, output)
        before = output if counts is None else _where(w, facts, counts, output, x)
        joined: Any = either(w, facts, [counts, mask])  # type: ignore[arg-type,list-item]
        counts = joined
        output = w.add("arithmetic", facts, [before, x], values[0].shape, operation=facts.old.kind.lower())
    return output


def _concatenate(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    rank = len(values[0].shape)
    axis = int(facts.get("axis", -1)) % rank
    widths, shape = [value.shape[axis] for value in values], list(values[0].shape)
    shape[axis] = None if None in widths else sum(n for n in widths if n is not None)
    return [w.add("concatenate", facts, values, shape, dtype=values[0].dtype, axis=axis)]


def _dot(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    stated = facts.get("axes", -1)
    if len(values) != 2 or any(len(value.shape) not in (2, 3) for value in values):
        raise refuse(facts.name, "a Dot of other than two tensors with two or three axes", "the order of its axes is unknown")
    both = stated if isinstance(stated, (list, tuple)) else [stated, stated]
    axes = tuple(int(n) % len(value.shape) for n, value in zip(both, values, strict=True))
    if 0 in axes:
        raise refuse(facts.name, f"axes = {stated!r}", "only axes behind the batch are known here")
    rest = [size for axis, value in zip(axes, values, strict=True) for n, size in enumerate(value.shape) if n not in (0, axis)]
    return [w.add("dot", facts, values, (values[0].shape[0], *(rest or [1])), axes=axes, normalize=bool(facts.get("normalize", False)))]


def _each(word: str, make: Callable[[int], Tell], ranks: Sequence[int] = (1, 2, 3)) -> dict[str, Tell]:
    return {word.format(n): make(n) for n in ranks}


LAYERS: Mapping[str, Tell] = {
    "Dense": _dense, "Embedding": _embedding, "Masking": _masking, "Activation": _function_layer, "ReLU": _relu, "PReLU": _prelu,
    "LeakyReLU": _named("leaky_relu", "negative_slope", 0.3), "ELU": _named("elu", "alpha", 1.0), "Softmax": _softmax,
    **_each("Conv{}D", _convolution), **_each("Conv{}DTranspose", _transposed),
    **_each("DepthwiseConv{}D", lambda n: _by_channel(n, False), (1, 2)),
    **_each("SeparableConv{}D", lambda n: _by_channel(n, True), (1, 2)),
    **_each("MaxPooling{}D", lambda n: _pooling("max", n)), **_each("AveragePooling{}D", lambda n: _pooling("average", n)),
    **_each("GlobalMaxPooling{}D", lambda n: _global("max", n)), **_each("GlobalAveragePooling{}D", lambda n: _global("mean", n)),
    **_each("ZeroPadding{}D", lambda n: _edges("pad", "padding", 1, n)),
    **_each("Cropping{}D", lambda n: _edges("crop", "cropping", -1, n)),
    **_each("UpSampling{}D", _upsampling),
    "BatchNormalization": _batch_norm, "LayerNormalization": _norm("layer_norm", 1e-3), "RMSNormalization": _norm("rms_norm", 1e-6),
    "GroupNormalization": _group_norm, "UnitNormalization": _unit_norm, "Rescaling": _rescaling,
    "Flatten": _flatten, "Reshape": _reshape, "Permute": _permute, "RepeatVector": _repeat, "Concatenate": _concatenate, "Dot": _dot,
    **ATTENTION,
    **{name: _merge(name.lower()) for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")},
    **{name: _training_only("rate", "stddev", "l1", "l2") for name in (
        "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout",
        "ActivityRegularization", "Identity")},
    **RECURRENT,
}  # fmt: skip
"""The layers that are known, by their classes."""


def _broadcast(n: int | None, m: int | None) -> int | None:
    """Return the length that two lengths of one axis have together."""
    if n == 1:
        return m
    return n if m == 1 or n is not None else m
