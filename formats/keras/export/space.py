"""Layers of Keras 3 over space and time as ONNX nodes: convolutions, pooling, upsampling, padding and cropping.

Sources: keras 3.15 keras/src/layers/{convolutional,pooling,reshaping}, keras/src/backend/tensorflow/nn.py and
keras/src/backend/common/backend_utils.py (what a transposed convolution pads); onnx/docs/Operators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import Emit, GraphBuilder, function, one_input
from rnnconvert.formats.keras.export.masks import mask_on
from rnnconvert.formats.keras.export.windows import as_long, lead, sizes_of, spatial, trail, window


def _weight(build: GraphBuilder, facts: LayerFacts, array: Array, order: Sequence[int]) -> str:
    return build.constant(f"{facts.name}/kernel", np.ascontiguousarray(array.transpose(list(order))))


def _bias(build: GraphBuilder, facts: LayerFacts) -> list[str]:
    facts.get("use_bias")
    bias = facts.array("bias")
    return [build.constant(f"{facts.name}/bias", bias)] if bias is not None else []


def _convolution(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name, kernel = one_input(facts, values), facts.name, facts.weight("kernel")
        spatial(facts, x, axes)
        facts.get("filters"), facts.get("kernel_size")
        strides, dilations = sizes_of(facts, "strides", axes), sizes_of(facts, "dilation_rate", axes)
        pads, lengths = window(facts, x, kernel.shape[:axes], strides, dilations)
        weight = _weight(build, facts, kernel, [axes + 1, axes, *range(axes)])
        inputs = [build.transposed(x.name, lead(axes), f"{name}/in"), weight, *_bias(build, facts)]
        output = build.add(
            "Conv",
            inputs,
            f"{name}/convolved",
            strides=strides,
            dilations=dilations,
            group=int(facts.get("groups", 1) or 1),
            kernel_shape=list(kernel.shape[:axes]),
            **pads,
        )
        output = build.transposed(output, trail(axes), f"{name}/out")
        return function(build, name, facts.get("activation"), ModelTensor(output, (x.shape[0], *lengths, kernel.shape[-1])))

    return emit


def _by_channel(axes: int, separable: bool) -> Emit:
    """Return what adds a DepthwiseConv, or a SeparableConv, whose second kernel mixes the channels."""

    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name, kernel = one_input(facts, values), facts.name, facts.weight("depthwise_kernel")
        spatial(facts, x, axes)
        for key in ("filters", "kernel_size", "depth_multiplier"):
            facts.get(key)
        facts.need("groups", 1, None)
        strides, dilations = sizes_of(facts, "strides", axes), sizes_of(facts, "dilation_rate", axes)
        pads, lengths = window(facts, x, kernel.shape[:axes], strides, dilations)
        channels, many = kernel.shape[-2:]
        turned = kernel.transpose([axes, axes + 1, *range(axes)]).reshape(channels * many, 1, *kernel.shape[:axes])
        inputs = [build.transposed(x.name, lead(axes), f"{name}/in")]
        inputs.append(build.constant(f"{name}/depthwise", np.ascontiguousarray(turned)))
        bias = _bias(build, facts)
        output = build.add(
            "Conv",
            [*inputs, *([] if separable else bias)],
            f"{name}/convolved",
            strides=strides,
            dilations=dilations,
            group=channels,
            kernel_shape=list(kernel.shape[:axes]),
            **pads,
        )
        width = channels * many
        if separable:
            point = facts.weight("pointwise_kernel")
            width = point.shape[-1]
            weight = _weight(build, facts, point, [axes + 1, axes, *range(axes)])
            output = build.add("Conv", [output, weight, *bias], f"{name}/mixed", kernel_shape=[1] * axes)
        output = build.transposed(output, trail(axes), f"{name}/out")
        return function(build, name, facts.get("activation"), ModelTensor(output, (x.shape[0], *lengths, width)))

    return emit


def _transposed(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name, kernel = one_input(facts, values), facts.name, facts.weight("kernel")
        spatial(facts, x, axes)
        facts.get("filters"), facts.get("kernel_size")
        facts.need("groups", 1, None)
        facts.need("output_padding", None)
        facts.need("padding", "valid", "same")
        strides, dilations = sizes_of(facts, "strides", axes), sizes_of(facts, "dilation_rate", axes)
        same = facts.get("padding", "valid") == "same"
        reach = [d * (k - 1) + 1 for k, d in zip(kernel.shape[:axes], dilations, strict=True)]
        over = [r - s for r, s in zip(reach, strides, strict=True)]  # how far the last window reaches beyond its stride
        low = [max(o, 0) // 2 if same else 0 for o in over]
        high = [max(o, 0) - a if same else 0 for o, a in zip(over, low, strict=True)]
        lengths = tuple(
            None if n is None else n * s + (0 if same else max(o, 0)) for n, s, o in zip(x.shape[1:-1], strides, over, strict=True)
        )
        weight = _weight(build, facts, kernel, [axes + 1, axes, *range(axes)])
        inputs = [build.transposed(x.name, lead(axes), f"{name}/in"), weight, *_bias(build, facts)]
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
        output = build.transposed(output, trail(axes), f"{name}/out")
        return function(build, name, facts.get("activation"), ModelTensor(output, (x.shape[0], *lengths, kernel.shape[-2])))

    return emit


def _pooling(operator: str, axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name = one_input(facts, values), facts.name
        spatial(facts, x, axes)
        size = sizes_of(facts, "pool_size", axes, 2)
        strides = size if facts.get("strides") is None else sizes_of(facts, "strides", axes)
        pads, lengths = window(facts, x, size, strides, [1] * axes)
        if "pads" in pads and any(pads["pads"]) and operator == "AveragePool":
            pads["count_include_pad"] = 0
        first = build.transposed(x.name, lead(axes), f"{name}/in")
        output = build.add(operator, [first], f"{name}/pooled", kernel_shape=size, strides=strides, **pads)
        if None in lengths and facts.get("padding", "valid") == "valid":
            output = as_long(build, name, (first, output), size, strides)
        output = build.transposed(output, trail(axes), f"{name}/out")
        return ModelTensor(output, (x.shape[0], *lengths, x.shape[-1]))

    return emit


def _global(operator: str, axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x = one_input(facts, values)
        spatial(facts, x, axes)
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


def _pairs(facts: LayerFacts, key: str, axes: int) -> list[tuple[int, int]]:
    """Return how much is added or taken at both ends of each axis."""
    stated = facts.get(key, 1)
    if isinstance(stated, int):
        return [(stated, stated)] * axes
    if axes == 1:
        low, high = stated
        return [(int(low), int(high))]
    each = [(pair, pair) if isinstance(pair, int) else tuple(map(int, pair)) for pair in stated]
    if len(each) != axes or any(len(pair) != 2 for pair in each):
        raise refuse(facts.name, f"{key} = {stated!r}", f"one pair for each of {axes} axes is known here")
    return [(int(low), int(high)) for low, high in each]


def _grown(x: ModelTensor, pairs: Sequence[tuple[int, int]], sign: int) -> tuple[int | None, ...]:
    sizes = (None if n is None else n + sign * (low + high) for n, (low, high) in zip(x.shape[1:-1], pairs, strict=True))
    return (x.shape[0], *sizes, x.shape[-1])


def _padding(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x = one_input(facts, values)
        spatial(facts, x, axes)
        pairs = _pairs(facts, "padding", axes)
        pads = build.integers(0, *(low for low, _ in pairs), 0, 0, *(high for _, high in pairs), 0)
        return ModelTensor(build.add("Pad", [x.name, pads], f"{facts.name}/padded"), _grown(x, pairs, 1))

    return emit


def _cropping(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x = one_input(facts, values)
        spatial(facts, x, axes)
        pairs = _pairs(facts, "cropping", axes)
        starts = build.integers(*(low for low, _ in pairs))
        ends = build.integers(*(-high if high else np.iinfo(np.int64).max for _, high in pairs))
        output = build.add("Slice", [x.name, starts, ends, build.integers(*range(1, axes + 1))], f"{facts.name}/cropped")
        return ModelTensor(output, _grown(x, pairs, -1))

    return emit


def _upsampling(axes: int) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        x, name = one_input(facts, values), facts.name
        spatial(facts, x, axes)
        facts.need("interpolation", "nearest")
        sizes = sizes_of(facts, "size", axes, 2)
        wide = build.add("Unsqueeze", [x.name, build.integers(*range(2, 2 * axes + 1, 2))], f"{name}/wide")
        repeats = [1, *(n for size in sizes for n in (1, size)), 1]
        many = build.add("Expand", [wide, build.integers(*repeats)], f"{name}/repeated")
        size = build.add("Mul", [build.add("Shape", [x.name], f"{name}/shape"), build.integers(1, *sizes, 1)], f"{name}/size")
        lengths = (None if n is None else n * size for n, size in zip(x.shape[1:-1], sizes, strict=True))
        return ModelTensor(build.add("Reshape", [many, size], f"{name}/together"), (x.shape[0], *lengths, x.shape[-1]))

    return emit


def _each(word: str, make: Callable[[int], Emit], dimensions: Sequence[int] = (1, 2, 3)) -> dict[str, Emit]:
    return {word.format(n): make(n) for n in dimensions}


SPACE: Mapping[str, Emit] = {
    **_each("Conv{}D", _convolution),
    **_each("Conv{}DTranspose", _transposed),
    **_each("DepthwiseConv{}D", lambda n: _by_channel(n, False), (1, 2)),
    **_each("SeparableConv{}D", lambda n: _by_channel(n, True), (1, 2)),
    **_each("MaxPooling{}D", lambda n: _pooling("MaxPool", n)),
    **_each("AveragePooling{}D", lambda n: _pooling("AveragePool", n)),
    **_each("GlobalMaxPooling{}D", lambda n: _global("ReduceMax", n)),
    **_each("GlobalAveragePooling{}D", lambda n: _global("ReduceMean", n)),
    **_each("ZeroPadding{}D", _padding),
    **_each("Cropping{}D", _cropping),
    **_each("UpSampling{}D", _upsampling),
}
"""The layers over space and time, by their classes."""
