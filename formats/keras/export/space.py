"""Layers of Keras 3 over space and time as ONNX nodes: convolutions, pooling, upsampling, padding and cropping.

Sources: keras 3.15 keras/src/layers/{convolutional,pooling,reshaping}, keras/src/backend/tensorflow/nn.py and
keras/src/backend/common/backend_utils.py (what a transposed convolution pads); onnx/docs/Operators.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor
from rnnconvert.formats.keras.export.layers import Emit, GraphBuilder, function, one_input
from rnnconvert.formats.keras.export.masks import mask_on
from rnnconvert.formats.keras.settings import each_rank, grown, lengths_after, over_space, padding_of, pool_of, sizes
from rnnconvert.formats.keras.settings import pairs as pairs_of


def _window(
    facts: LayerFacts, x: ModelTensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[dict[str, Any], tuple[int | None, ...]]:
    """Return how a convolution or pooling pads, and the lengths that come out."""
    padding = padding_of(facts, strides, dilations)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = lengths_after(x, kernel, strides, dilations, padding)
    if padding == "same" and max(strides) > 1:
        return {"auto_pad": "SAME_UPPER"}, out
    total = [0 if padding == "valid" else r - 1 for r in reach]
    low = [n // 2 if padding == "same" else n for n in total]
    high = [n - first for n, first in zip(total, low, strict=True)]
    return {"pads": [*low, *high]}, out


def _lead(axes: int) -> list[int]:
    """Return the order of axes with the channels in front."""
    return [0, axes + 1, *range(1, axes + 1)]


def _trail(axes: int) -> list[int]:
    """Return the order of axes with the channels at the end."""
    return [0, *range(2, axes + 2), 1]


def _weight(build: GraphBuilder, facts: LayerFacts, array: Array, order: Sequence[int]) -> str:
    return build.constant(f"{facts.name}/kernel", np.ascontiguousarray(array.transpose(list(order))))


def _bias(build: GraphBuilder, facts: LayerFacts) -> list[str]:
    facts.get("use_bias")
    bias = facts.array("bias")
    return [build.constant(f"{facts.name}/bias", bias)] if bias is not None else []


def _convolution(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name, kernel = one_input(facts, values), facts.name, facts.weight("kernel")
        over_space(facts, x, axes)
        facts.get("filters"), facts.get("kernel_size")
        strides, dilations = sizes(facts, "strides", axes), sizes(facts, "dilation_rate", axes)
        pads, lengths = _window(facts, x, kernel.shape[:axes], strides, dilations)
        weight = _weight(build, facts, kernel, [axes + 1, axes, *range(axes)])
        inputs = [build.transposed(x.name, _lead(axes), f"{name}/in"), weight, *_bias(build, facts)]
        window = {"strides": strides, "dilations": dilations, "kernel_shape": list(kernel.shape[:axes]), **pads}
        output = build.add("Conv", inputs, f"{name}/convolved", group=int(facts.get("groups", 1) or 1), **window)
        output = build.transposed(output, _trail(axes), f"{name}/out")
        return function(build, name, facts.get("activation"), ModelTensor(output, (x.shape[0], *lengths, kernel.shape[-1])))

    return emit


def _by_channel(axes: int, separable: bool) -> Emit:
    """Return what adds a DepthwiseConv, or a SeparableConv, whose second kernel mixes the channels."""

    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name, kernel = one_input(facts, values), facts.name, facts.weight("depthwise_kernel")
        over_space(facts, x, axes)
        for key in ("filters", "kernel_size", "depth_multiplier"):
            facts.get(key)
        facts.need("groups", 1, None)
        strides, dilations = sizes(facts, "strides", axes), sizes(facts, "dilation_rate", axes)
        pads, lengths = _window(facts, x, kernel.shape[:axes], strides, dilations)
        channels, many = kernel.shape[-2:]
        turned = kernel.transpose([axes, axes + 1, *range(axes)]).reshape(channels * many, 1, *kernel.shape[:axes])
        inputs = [build.transposed(x.name, _lead(axes), f"{name}/in")]
        inputs.append(build.constant(f"{name}/depthwise", np.ascontiguousarray(turned)))
        bias = _bias(build, facts)
        window = {"strides": strides, "dilations": dilations, "kernel_shape": list(kernel.shape[:axes]), **pads}
        output = build.add("Conv", [*inputs, *([] if separable else bias)], f"{name}/convolved", group=channels, **window)
        width = channels * many
        if separable:
            point = facts.weight("pointwise_kernel")
            width = point.shape[-1]
            weight = _weight(build, facts, point, [axes + 1, axes, *range(axes)])
            output = build.add("Conv", [output, weight, *bias], f"{name}/mixed", kernel_shape=[1] * axes)
        output = build.transposed(output, _trail(axes), f"{name}/out")
        return function(build, name, facts.get("activation"), ModelTensor(output, (x.shape[0], *lengths, width)))

    return emit


def _transposed(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name, kernel = one_input(facts, values), facts.name, facts.weight("kernel")
        over_space(facts, x, axes)
        facts.get("filters"), facts.get("kernel_size")
        facts.need("groups", 1, None)
        facts.need("output_padding", None)
        facts.need("padding", "valid", "same")
        strides, dilations = sizes(facts, "strides", axes), sizes(facts, "dilation_rate", axes)
        same = facts.get("padding", "valid") == "same"
        reach = [d * (k - 1) + 1 for k, d in zip(kernel.shape[:axes], dilations, strict=True)]
        over = [r - s for r, s in zip(reach, strides, strict=True)]  # how far the last window reaches beyond its stride
        low = [max(o, 0) // 2 if same else 0 for o in over]
        high = [max(o, 0) - a if same else 0 for o, a in zip(over, low, strict=True)]
        lengths = tuple(
            None if n is None else n * s + (0 if same else max(o, 0)) for n, s, o in zip(x.shape[1:-1], strides, over, strict=True)
        )
        weight = _weight(build, facts, kernel, [axes + 1, axes, *range(axes)])
        inputs = [build.transposed(x.name, _lead(axes), f"{name}/in"), weight, *_bias(build, facts)]
        output = build.add(
            "ConvTranspose",
            inputs,
            f"{name}/spread",
            strides=strides,
            dilations=dilations,
            pads=[*low, *high],
            output_padding=[max(-o, 0) for o in over],
            kernel_shape=list(kernel.shape[:axes]),
        )
        output = build.transposed(output, _trail(axes), f"{name}/out")
        return function(build, name, facts.get("activation"), ModelTensor(output, (x.shape[0], *lengths, kernel.shape[-2])))

    return emit


def _as_long(build: GraphBuilder, name: str, around: tuple[str, str], size: Sequence[int], strides: Sequence[int]) -> str:
    """Add a check of how long a pooling's output is: of less than one window onnxruntime makes one, and Keras none.

    around  what is pooled, and what came of it (batch, channels, lengths)
    """
    before, after = around
    axes = len(size)
    shape = build.add("Shape", [before], f"{name}/size")
    long = build.add("Slice", [shape, build.integers(2), build.integers(2 + axes)], f"{name}/lengths")
    starts = build.add("Sub", [long, build.integers(*(n - by for n, by in zip(size, strides, strict=True)))], f"{name}/starts")
    windows = build.add("Div", [build.add("Max", [starts, build.integers(0)], f"{name}/room"), build.integers(*strides)], f"{name}/windows")
    others = build.add("Slice", [shape, build.integers(0), build.integers(2)], f"{name}/others")
    wanted = build.add("Concat", [others, windows], f"{name}/wanted", axis=0)
    return build.add("Reshape", [after, wanted], f"{name}/checked", allowzero=1)


def _pooling(operator: str, axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name = one_input(facts, values), facts.name
        over_space(facts, x, axes)
        size, strides = pool_of(facts, axes)
        pads, lengths = _window(facts, x, size, strides, [1] * axes)
        if "pads" in pads and any(pads["pads"]) and operator == "AveragePool":
            pads["count_include_pad"] = 0
        first = build.transposed(x.name, _lead(axes), f"{name}/in")
        output = build.add(operator, [first], f"{name}/pooled", kernel_shape=size, strides=strides, **pads)
        if None in lengths and facts.get("padding", "valid") == "valid":
            output = _as_long(build, name, (first, output), size, strides)
        output = build.transposed(output, _trail(axes), f"{name}/out")
        return ModelTensor(output, (x.shape[0], *lengths, x.shape[-1]))

    return emit


def _global(operator: str, axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x = one_input(facts, values)
        over_space(facts, x, axes)
        keep = bool(facts.get("keepdims", False))
        mask = mask_on(build, facts, x) if operator == "ReduceMean" and axes == 1 else None
        if mask is None:
            output = build.add(operator, [x.name], f"{facts.name}/pooled", axes=list(range(1, axes + 1)), keepdims=int(keep))
        else:
            output = _mean_of_steps(build, facts.name, x, mask, int(keep))
        return ModelTensor(output, (x.shape[0], *([1] * axes if keep else []), x.shape[-1]))

    return emit


def _mean_of_steps(build: GraphBuilder, name: str, x: ModelTensor, mask: ModelTensor, keep: int) -> str:
    """Add the mean over the steps that count; as in Keras, it is not a number where none does."""
    wide = build.add("Unsqueeze", [mask.name, build.integers(2)], f"{name}/mask")
    masked = build.add("Where", [wide, x.name, build.zero()], f"{name}/kept")
    numbers = build.add("Cast", [wide], f"{name}/numbers", to=onnx.TensorProto.FLOAT)
    sums = [build.add("ReduceSum", [summand, build.integers(1)], f"{name}/sum", keepdims=keep) for summand in (masked, numbers)]
    return build.add("Div", sums, f"{name}/pooled")


def _padding(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x = one_input(facts, values)
        over_space(facts, x, axes)
        pairs = pairs_of(facts, "padding", axes)
        pads = build.integers(0, *(low for low, _ in pairs), 0, 0, *(high for _, high in pairs), 0)
        return ModelTensor(build.add("Pad", [x.name, pads], f"{facts.name}/padded"), grown(x, pairs, 1))

    return emit


def _cropping(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x = one_input(facts, values)
        over_space(facts, x, axes)
        pairs = pairs_of(facts, "cropping", axes)
        starts = build.integers(*(low for low, _ in pairs))
        ends = build.integers(*(-high if high else np.iinfo(np.int64).max for _, high in pairs))
        output = build.add("Slice", [x.name, starts, ends, build.integers(*range(1, axes + 1))], f"{facts.name}/cropped")
        return ModelTensor(output, grown(x, pairs, -1))

    return emit


def _upsampling(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name = one_input(facts, values), facts.name
        over_space(facts, x, axes)
        facts.need("interpolation", "nearest")
        by = sizes(facts, "size", axes, 2)
        wide = build.add("Unsqueeze", [x.name, build.integers(*range(2, 2 * axes + 1, 2))], f"{name}/wide")
        repeats = [1, *(n for size in by for n in (1, size)), 1]
        many = build.add("Expand", [wide, build.integers(*repeats)], f"{name}/repeated")
        size = build.add("Mul", [build.add("Shape", [x.name], f"{name}/shape"), build.integers(1, *by, 1)], f"{name}/size")
        lengths = (None if n is None else n * size for n, size in zip(x.shape[1:-1], by, strict=True))
        return ModelTensor(build.add("Reshape", [many, size], f"{name}/together"), (x.shape[0], *lengths, x.shape[-1]))

    return emit


SPACE: Mapping[str, Emit] = {
    **each_rank("Conv{}D", _convolution),
    **each_rank("Conv{}DTranspose", _transposed),
    **each_rank("DepthwiseConv{}D", lambda n: _by_channel(n, False), (1, 2)),
    **each_rank("SeparableConv{}D", lambda n: _by_channel(n, True), (1, 2)),
    **each_rank("MaxPooling{}D", lambda n: _pooling("MaxPool", n)),
    **each_rank("AveragePooling{}D", lambda n: _pooling("AveragePool", n)),
    **each_rank("GlobalMaxPooling{}D", lambda n: _global("ReduceMax", n)),
    **each_rank("GlobalAveragePooling{}D", lambda n: _global("ReduceMean", n)),
    **each_rank("ZeroPadding{}D", _padding),
    **each_rank("Cropping{}D", _cropping),
    **each_rank("UpSampling{}D", _upsampling),
}
"""The layers over space and time, by their classes."""
