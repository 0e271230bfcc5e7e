"""Layers of Keras 3 over space and time in the words of rnnconvert.scaffolding.kinds.

Sources: keras 3.15 keras/src/layers/{convolutional,pooling,reshaping}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rnnconvert.formats.keras.describe.functions import applied
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, one_input, refuse
from rnnconvert.formats.keras.describe.masks import mask_on
from rnnconvert.formats.keras.describe.settings import each_rank, grown, lengths_after, over_space, padded_window, pairs, pool_of, sizes
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Value

# Over space and time


def channels_of(facts: LayerFacts, x: Value, rank: int) -> int:
    """Return the number of channels. Raises RefusedError for channels in front."""
    over_space(facts, x, rank)
    if x.shape[-1] is None:
        raise refuse(facts.name, "channels of unknown number", "its weights have a number for each")
    return x.shape[-1]


def window_of(facts: LayerFacts, rank: int) -> kinds.Windowed:
    """Return the windows of a convolution. Raises RefusedError for what backends and runtimes do differently."""
    return padded_window(facts, *(sizes(facts, key, rank) for key in ("kernel_size", "strides", "dilation_rate")))


def _convolution(rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, filters = one_input(facts, values), int(facts.get("filters"))
        channels, window = channels_of(facts, x, rank), window_of(facts, rank)
        groups, bias = int(facts.get("groups", 1) or 1), bool(facts.get("use_bias", True))
        shape = (x.shape[0], *lengths_after(x, window), filters)
        output = w.add(kinds.Conv(channels=channels, filters=filters, **vars(window), groups=groups, bias=bias), facts, [x], shape)
        return [applied(w, facts, facts.get("activation"), output)]

    return describe


def _by_channel(rank: int, separable: bool) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        channels, many = channels_of(facts, x, rank), int(facts.get("depth_multiplier", 1))
        facts.need("groups", 1, None)
        window, bias, filters = window_of(facts, rank), bool(facts.get("use_bias", True)), channels * many
        output = w.value(facts.name, (x.shape[0], *lengths_after(x, window), filters))
        layer = w.noted(facts, f"{facts.name}/depthwise") if separable else w.noted(facts)
        bias_here = bias and not separable
        w.scope.add(kinds.Conv(channels=channels, filters=filters, groups=channels, bias=bias_here, **vars(window)), layer, [x], [output])
        if separable:
            filters, first = int(facts.get("filters")), output
            output = w.value(facts.name, (*first.shape[:-1], filters))
            ones = (1,) * rank
            point = kinds.Conv(ones, ones, ones, ((0, 0),) * rank, False, channels * many, filters, bias, groups=1)
            w.scope.add(point, w.noted(facts, f"{facts.name}/pointwise"), [first], [output])
        return [applied(w, facts, facts.get("activation"), output)]

    return describe


def _transposed(rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x, filters = one_input(facts, values), int(facts.get("filters"))
        channels = channels_of(facts, x, rank)
        facts.need("groups", 1, None)
        facts.need("output_padding", None)
        facts.need("padding", "valid", "same")
        window, bias = window_of(facts, rank), bool(facts.get("use_bias", True))
        cuts = [max(n, 0) if facts.get("padding", "valid") == "same" else 0 for n in window.over]
        window = replace(window, pads=tuple((n // 2, n - n // 2) for n in cuts))
        lacking = tuple(max(-n, 0) for n in window.over)
        kind = kinds.ConvTransposed(**vars(window), channels=channels, filters=filters, bias=bias, groups=1, output_padding=lacking)
        more = [max(n, 0) - cut for n, cut in zip(window.over, cuts, strict=True)]
        lengths = (None if n is None else n * step + m for n, step, m in zip(x.shape[1:-1], window.strides, more, strict=True))
        output = w.add(kind, facts, [x], (x.shape[0], *lengths, filters))
        return [applied(w, facts, facts.get("activation"), output)]

    return describe


def _pooling(operation: str, rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        channels = channels_of(facts, x, rank)
        facts.need("padding", "valid", "same")
        window = padded_window(facts, *pool_of(facts, rank), (1,) * rank)
        return [w.add(kinds.Pool(**vars(window), operation=operation), facts, [x], (x.shape[0], *lengths_after(x, window), channels))]

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
