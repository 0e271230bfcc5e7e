"""Layers of Keras 3 over space and time in the words of rnnconvert.scaffolding.kinds.

Sources: keras 3.15 keras/src/layers/{convolutional,pooling,reshaping}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from rnnconvert.formats.keras.describe.functions import applied
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, one_input, refuse
from rnnconvert.formats.keras.describe.masks import mask_on
from rnnconvert.formats.keras.describe.settings import each_rank, grown, lengths_after, over_space, padding_of, pairs, pool_of, sizes
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Shape, Value

# Over space and time


def channels_of(facts: LayerFacts, x: Value, rank: int) -> int:
    """Return the number of channels. Raises RefusedError for channels in front."""
    over_space(facts, x, rank)
    if x.shape[-1] is None:
        raise refuse(facts.name, "channels of unknown number", "its weights have a number for each")
    return x.shape[-1]


class KerasWindow(TypedDict):
    """The windows of a layer."""

    kernel: kinds.Sizes
    strides: kinds.Sizes
    dilation: kinds.Sizes
    padding: str


def window_of(facts: LayerFacts, rank: int) -> KerasWindow:
    strides, dilation = sizes(facts, "strides", rank), sizes(facts, "dilation_rate", rank)
    return {
        "kernel": sizes(facts, "kernel_size", rank),
        "strides": strides,
        "dilation": dilation,
        "padding": padding_of(facts, strides, dilation),
    }


def lengths_behind(x: Value, window: KerasWindow) -> Shape:
    """Return the lengths of space behind what `window_of` states."""
    return lengths_after(x, window["kernel"], window["strides"], window["dilation"], window["padding"])


def _convolution(rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, filters = one_input(facts, values), int(facts.get("filters"))
        channels, window = channels_of(facts, x, rank), window_of(facts, rank)
        groups, bias = int(facts.get("groups", 1) or 1), bool(facts.get("use_bias", True))
        shape = (x.shape[0], *lengths_behind(x, window), filters)
        output = w.add(kinds.Conv(channels=channels, filters=filters, **window, groups=groups, bias=bias), facts, [x], shape)
        return [applied(w, facts, facts.get("activation"), output)]

    return describe


def _by_channel(rank: int, separable: bool) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        channels, many = channels_of(facts, x, rank), int(facts.get("depth_multiplier", 1))
        facts.need("groups", 1, None)
        window, bias, filters = window_of(facts, rank), bool(facts.get("use_bias", True)), channels * many
        output = w.value(facts.name, (x.shape[0], *lengths_behind(x, window), filters))
        layer = w.noted(facts, f"{facts.name}/depthwise") if separable else w.noted(facts)
        bias_here = bias and not separable
        w.scope.add(kinds.Conv(channels=channels, filters=filters, groups=channels, bias=bias_here, **window), layer, [x], [output])
        if separable:
            filters, first = int(facts.get("filters")), output
            output = w.value(facts.name, (*first.shape[:-1], filters))
            ones = (1,) * rank
            point: KerasWindow = {"kernel": ones, "strides": ones, "dilation": ones, "padding": "valid"}
            layer = w.noted(facts, f"{facts.name}/pointwise")
            w.scope.add(kinds.Conv(channels=channels * many, filters=filters, groups=1, bias=bias, **point), layer, [first], [output])
        return [applied(w, facts, facts.get("activation"), output)]

    return describe


def _transposed(rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, filters = one_input(facts, values), int(facts.get("filters"))
        channels = channels_of(facts, x, rank)
        facts.need("groups", 1, None)
        facts.need("output_padding", None)
        facts.need("padding", "valid", "same")
        window = window_of(facts, rank)
        reach = [d * (k - 1) + 1 for k, d in zip(window["kernel"], window["dilation"], strict=True)]
        over = tuple(r - s for r, s in zip(reach, window["strides"], strict=True))
        more = [0 if window["padding"] == "same" else max(o, 0) for o in over]
        lengths = (None if n is None else n * s + m for n, s, m in zip(x.shape[1:-1], window["strides"], more, strict=True))
        bias, shape = bool(facts.get("use_bias", True)), (x.shape[0], *lengths, filters)
        output = w.add(kinds.ConvTransposed(channels=channels, filters=filters, bias=bias, over=over, **window), facts, [x], shape)
        return [applied(w, facts, facts.get("activation"), output)]

    return describe


def _pooling(operation: str, rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        channels = channels_of(facts, x, rank)
        kernel, strides = pool_of(facts, rank)
        facts.need("padding", "valid", "same")
        padding = str(facts.get("padding", "valid"))
        lengths = lengths_after(x, kernel, strides, (1,) * rank, padding)
        return [w.add(kinds.Pool(kernel, strides, operation, padding), facts, [x], (x.shape[0], *lengths, channels))]

    return describe


def _global(operation: str, rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        channels, keep = channels_of(facts, x, rank), bool(facts.get("keepdims", False))
        mask: Any = mask_on(w, facts, x) if operation == "mean" and rank == 1 else None
        output = w.value(facts.name, (x.shape[0], *([1] * rank if keep else []), channels))
        named, axes = {"mask": [mask] if mask else []}, tuple(range(1, rank + 1))
        w.scope.add(kinds.Reduce(operation=operation, axes=axes, keep=keep), w.noted(facts), [x], [output], named)
        return [output]

    return describe


def _edges(kind: type[kinds.Pad | kinds.Crop], key: str, sign: int, rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        channels_of(facts, x, rank)
        ends = pairs(facts, key, rank)
        return [w.add(kind(ends), facts, [x], grown(x, ends, sign))]

    return describe


def _upsampling(rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        channels, by = channels_of(facts, x, rank), sizes(facts, "size", rank, 2)
        facts.need("interpolation", "nearest")
        lengths = (None if n is None else n * s for n, s in zip(x.shape[1:-1], by, strict=True))
        return [w.add(kinds.Upsample(by=by), facts, [x], (x.shape[0], *lengths, channels))]

    return describe


SPACE: Mapping[str, Describe] = {
    **each_rank("Conv{}D", _convolution),
    **each_rank("Conv{}DTranspose", _transposed),
    **each_rank("DepthwiseConv{}D", lambda n: _by_channel(n, False), (1, 2)),
    **each_rank("SeparableConv{}D", lambda n: _by_channel(n, True), (1, 2)),
    **each_rank("MaxPooling{}D", lambda n: _pooling("max", n)),
    **each_rank("AveragePooling{}D", lambda n: _pooling("average", n)),
    **each_rank("GlobalMaxPooling{}D", lambda n: _global("max", n)),
    **each_rank("GlobalAveragePooling{}D", lambda n: _global("mean", n)),
    **each_rank("ZeroPadding{}D", lambda n: _edges(kinds.Pad, "padding", 1, n)),
    **each_rank("Cropping{}D", lambda n: _edges(kinds.Crop, "cropping", -1, n)),
    **each_rank("UpSampling{}D", _upsampling),
}
"""The layers over space and time, by their classes."""
