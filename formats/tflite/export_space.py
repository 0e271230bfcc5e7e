"""Windows over space and time as operators of TFLite, which have two axes of space, and channels at the end.

Source: tensorflow/lite/kernels, conv.cc, depthwise_conv.cc, transpose_conv.cc, pooling.cc and pad.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.tflite.export_writer import Rule, TfliteWriter
from rnnconvert.formats.tflite.operator_values import FLOAT
from rnnconvert.graphs.program.operations import Operation


def _to_end(w: TfliteWriter, node: Operation, place: int, count: int) -> int:
    """Return a value whose channels are behind the batch, with two axes of space before its channels."""
    place = w.transposed(node, place, [0, *range(2, 2 + count), 1], "channels_last")
    return place if count == 2 else w.add("EXPAND_DIMS", [place, w.values.integer(1)], node, "plane")


def _back(w: TfliteWriter, node: Operation, place: int, count: int) -> None:
    """Let an operation give a value with two axes of space and its channels at the end."""
    place = place if count == 2 else w.cut(node, place, {}, {}, [1])
    w.put(node, "TRANSPOSE", [place, w.values.integers(0, 1 + count, *range(1, 1 + count))])


def _two(numbers: Sequence[int]) -> tuple[int, int]:
    first, second = [1, *numbers][-2:]
    return first, second


def _flat(w: TfliteWriter, node: Operation, count: int, what: str) -> None:
    if count not in (1, 2):
        raise w.refused(node, f"{what} over {count} axes", "its operators are for one axis or two")


_SAME, _VALID = 0, 1


def _padded(w: TfliteWriter, node: Operation, x: int, count: int, number: float) -> tuple[int, int]:
    """Return a value with what stands around its windows, and TFLite's word for what is still to be padded."""
    if node.attributes.get("auto_pad") == "SAME_UPPER":
        return x, _SAME
    pads = node.attributes.get("pads", [0] * 2 * count)
    if any(pads):
        pairs = [(0, 0)] * (3 - count) + list(zip(pads[:count], pads[count:], strict=True)) + [(0, 0)]
        listed = w.values.constant(f"{node.name}/pads", np.array(pairs, np.int32))
        x = w.add("PADV2", [x, listed, w.values.number(number)], node, "padded")
    return x, _VALID


def _conv(w: TfliteWriter, node: Operation) -> None:
    stored = w.stored(node.inputs[1])
    if stored is None:
        raise w.refused(node, "a convolution with computed weights", w.unknown_reason)
    weights = np.asarray(stored)
    count, groups = weights.ndim - 2, node.attributes.get("group", 1)
    _flat(w, node, count, "a convolution")
    x, padding = _padded(w, node, _to_end(w, node, w[node.inputs[0]], count), count, 0.0)
    if count == 1:
        weights = weights[:, :, None]
    stride_h, stride_w = _two(node.attributes.get("strides", [1] * count))
    if count == 1:
        stride_h = stride_w  # of one row; TensorFlow's depthwise kernel takes no others
    by_h, by_w = _two(node.attributes.get("dilations", [1] * count))
    options = {"padding": padding, "stride_w": stride_w, "stride_h": stride_h, "by_w": by_w, "by_h": by_h}
    bias = np.asarray(w.stored(node.inputs[2])) if len(node.inputs) > 2 else np.zeros(len(weights), np.float32)
    added = w.values.constant(f"{node.name}/bias", bias)
    if groups > 1 and weights.shape[1] == 1:
        kernel = w.values.matrix(f"{node.name}/kernel", np.transpose(weights, (1, 2, 3, 0)), axis=3)
        output = w.add("DEPTHWISE_CONV_2D", [x, kernel, added], node, "convolved", **options, multiplier=len(weights) // groups)
    else:
        kernel = w.values.matrix(f"{node.name}/kernel", np.transpose(weights, (0, 2, 3, 1)))
        output = w.add("CONV_2D", [x, kernel, added], node, "convolved", **options, groups=groups)
    _back(w, node, output, count)


def _spread(weights: Array, groups: int, apart: Sequence[int]) -> Array:
    """Return the kernel of a transposed convolution without groups and gaps, which its operator has not: with zeros in their places.

    weights  (in, out of a group, *kernel)
    """
    rows, columns, *kernel = weights.shape
    spread = np.zeros((rows, columns * groups, *(gap * (size - 1) + 1 for gap, size in zip(apart, kernel, strict=True))), weights.dtype)
    steps = tuple(slice(None, None, gap) for gap in apart)
    for group in range(groups):
        inside, outside = (slice(group * each, (group + 1) * each) for each in (rows // groups, columns))
        spread[(inside, outside, *steps)] = weights[inside]
    return spread


def _conv_transposed(w: TfliteWriter, node: Operation) -> None:
    weights = np.asarray(w.stored(node.inputs[1]))
    count = weights.ndim - 2
    _flat(w, node, count, "a transposed convolution")
    weights = _spread(weights, node.attributes.get("group", 1), node.attributes.get("dilations", [1] * count))
    weights = weights[:, :, None] if count == 1 else weights
    strides, kernel = _two(node.attributes.get("strides", [1] * count)), weights.shape[2:]
    more = [0, *node.attributes.get("output_padding", [0] * count)][-2:]
    x = _to_end(w, node, w[node.inputs[0]], count)
    size = w.size(node, x)
    batch, space = w.cut(node, size, {}, {0: 1}), w.cut(node, size, {0: 1}, {0: 3})
    spread = w.add("MUL", [w.add("SUB", [space, w.values.integer(1)], node, "gaps"), w.values.integers(*strides)], node, "spread")
    reach = w.add("ADD", [spread, w.values.integers(*(k + m for k, m in zip(kernel, more, strict=True)))], node, "reach")
    shape = w.add("CONCATENATION", [batch, reach, w.values.integers(weights.shape[1])], node, "size", axis=0)
    stored = w.values.matrix(f"{node.name}/kernel", np.transpose(weights, (1, 2, 3, 0)), hybrid=False)
    output = w.add("TRANSPOSE_CONV", [shape, stored, x], node, "convolved", FLOAT, padding=_VALID, stride_w=strides[1], stride_h=strides[0])
    pads = list(node.attributes.get("pads", [0] * 2 * count))
    if any(pads):
        begins = {3 - count + axis: pads[axis] for axis in range(count)}
        ends = {3 - count + axis: -pads[count + axis] for axis in range(count) if pads[count + axis]}
        output = w.cut(node, output, begins, ends)
    if len(node.inputs) > 2:
        output = w.add("ADD", [output, w[node.inputs[2]]], node, "moved")
    _back(w, node, output, count)


def _pool(w: TfliteWriter, node: Operation) -> None:
    kernel = node.attributes["kernel_shape"]
    count, most = len(kernel), node.kind == "MaxPool"
    _flat(w, node, count, "a pool")
    strides, pads = node.attributes.get("strides", [1] * count), node.attributes.get("pads", [0] * 2 * count)
    if node.attributes.get("ceil_mode", 0) or max(node.attributes.get("dilations", [1])) > 1:
        raise w.refused(node, "a pool with windows beyond its input (ceil_mode) or over places apart", "its operators have neither")
    x = _to_end(w, node, w[node.inputs[0]], count)
    padding = _SAME
    same = [n for size in kernel for n in ((size - 1) // 2,)] + [size // 2 for size in kernel]
    if not (most or node.attributes.get("count_include_pad", 0)) and any(pads):
        if list(pads) != same or max(strides) > 1:
            raise w.refused(node, "an average that leaves its padding out", "its operator does so for other pads")
    else:
        x, padding = _padded(w, node, x, count, float(np.finfo(np.float32).min) if most else 0.0)
    (height, width), (stride_h, stride_w) = _two(kernel), _two(strides)
    options = {"padding": padding, "stride_w": stride_w, "stride_h": stride_h, "width": width, "height": height}
    _back(w, node, w.add("MAX_POOL_2D" if most else "AVERAGE_POOL_2D", [x], node, "pooled", **options), count)


def _pad(w: TfliteWriter, node: Operation) -> None:
    pads, mode = w.numbers(node.inputs[1]), node.attributes.get("mode", "constant")
    if pads is None or min(pads) < 0 or mode not in ("constant", "reflect"):
        raise w.refused(node, f"padding of mode {mode!r}, or by a number below zero or of a run", w.unknown_reason)
    pairs = np.array(pads, np.int32).reshape(2, -1).T
    x, listed = w[node.inputs[0]], w.values.constant(f"{node.name}/pads", pairs)
    if mode == "reflect":
        w.put(node, "MIRROR_PAD", [x, listed], mode=0)
    elif len(node.inputs) > 2:
        w.put(node, "PADV2", [x, listed, w[node.inputs[2]]])
    else:
        w.put(node, "PAD", [x, listed])


SPACE: Mapping[str, Rule] = {
    **dict.fromkeys(("AveragePool", "MaxPool"), _pool),
    "Conv": _conv,
    "ConvTranspose": _conv_transposed,
    "Pad": _pad,
}
"""The operations that are known."""
