"""Layers over space and time as basic operations, whose channels are behind the batch; in a source, they may be at the end.

Sources: onnx/docs/Operators.md; keras 3.15 keras/src/backend/common/backend_utils.py (what a transposed convolution pads).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.channels import inverse, to_end
from rnnconvert.scaffolding.description import Node, Rules, on
from rnnconvert.scaffolding.graph.writer import GraphWriter
from rnnconvert.scaffolding.windows import ends, reached


def _front(g: GraphWriter, node: Node[kinds.Kind]) -> str:
    """Return the input of a layer with its channels at the end, with them behind the batch."""
    return g.transposed(g(node.x), inverse(to_end(len(node.x.shape))), f"{g.label(node)}/in")


def _give_ended(g: GraphWriter, node: Node[kinds.Kind], output: str) -> None:
    """Let a layer give its output with its channels at the end."""
    g.give(node.y, g.transposed(output, to_end(len(node.y.shape)), g.label(node)))


def pads_of(node: Node[kinds.Conv | kinds.ConvLSTM | kinds.Pool], reach: Sequence[int]) -> dict[str, Any]:
    """Return how the windows of a layer with its channels at the end are padded."""
    if node.kind.padding == "same" and max(node.kind.strides) > 1:
        return {"auto_pad": "SAME_UPPER"}
    return {"pads": at_ends([ends(node.kind.padding, window) for window in reach])}


def at_ends(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return pads as the operations have them: those at the beginning of each axis, then those at the end."""
    return [*(low for low, _ in pairs), *(high for _, high in pairs)]


def _weights(g: GraphWriter, node: Node[kinds.Kind], kind: str) -> list[str]:
    return [g.constant(f"{g.label(node)}/{part}", array) for part, array in g.parts(node, kind).items()]


def window_of(node: Node[kinds.Convolution | kinds.PoolFirst]) -> dict[str, Any]:
    """Return the windows of a layer: their lengths, how far they move, and how far apart their places are."""
    return {"kernel_shape": list(node.kind.kernel), "strides": list(node.kind.strides), "dilations": list(node.kind.dilation)}


def _conv(g: GraphWriter, node: Node[kinds.Conv]) -> None:
    pads = pads_of(node, reached(node.kind.kernel, node.kind.dilation))
    inputs = [_front(g, node), *_weights(g, node, "conv")]
    _give_ended(g, node, g.add("Conv", inputs, f"{g.label(node)}/convolved", group=node.kind.groups, **window_of(node), **pads))


def _conv_first(g: GraphWriter, node: Node[kinds.ConvFirst]) -> None:
    g.put(node, "Conv", [g(node.x), *_weights(g, node, "conv")], group=node.kind.groups, **window_of(node), pads=at_ends(node.kind.pads))


def _conv_transposed(g: GraphWriter, node: Node[kinds.ConvTransposed]) -> None:
    over = [max(size, 0) for size in node.kind.over]  # how far the last window reaches beyond its stride
    low = [size // 2 if node.kind.padding == "same" else 0 for size in over]
    high = [size - first if node.kind.padding == "same" else 0 for size, first in zip(over, low, strict=True)]
    inputs = [_front(g, node), *_weights(g, node, "conv_transpose")]
    more = [max(-size, 0) for size in node.kind.over]
    window = {**window_of(node), "pads": [*low, *high], "output_padding": more}
    output = g.add("ConvTranspose", inputs, f"{g.label(node)}/spread", **window)
    _give_ended(g, node, output)


def _conv_transposed_first(g: GraphWriter, node: Node[kinds.ConvTransposedFirst]) -> None:
    inputs = [g(node.x), *_weights(g, node, "conv_transpose")]
    more = list(node.kind.output_padding)
    g.put(node, "ConvTranspose", inputs, **window_of(node), pads=at_ends(node.kind.pads), output_padding=more, group=node.kind.groups)


def _as_long(g: GraphWriter, node: Node[kinds.Pool], before: str, after: str) -> str:
    """Add a check of how long a pooling's output is: of less than one window onnxruntime makes one, and no framework does."""
    label, rank, size, strides = g.label(node), node.kind.rank, node.kind.kernel, node.kind.strides
    shape = g.add("Shape", [before], f"{label}/size")
    long = g.add("Slice", [shape, g.integers(2), g.integers(2 + rank)], f"{label}/lengths")
    starts = g.add("Sub", [long, g.integers(*(n - by for n, by in zip(size, strides, strict=True)))], f"{label}/starts")
    windows = g.add("Div", [g.add("Max", [starts, g.integers(0)], f"{label}/room"), g.integers(*strides)], f"{label}/windows")
    others = g.add("Slice", [shape, g.integers(0), g.integers(2)], f"{label}/others")
    wanted = g.add("Concat", [others, windows], f"{label}/wanted", axis=0)
    return g.add("Reshape", [after, wanted], f"{label}/checked", allowzero=1)


_POOLS = {"max": "MaxPool", "average": "AveragePool"}


def _pool(g: GraphWriter, node: Node[kinds.Pool]) -> None:
    x, label, pads = _front(g, node), g.label(node), pads_of(node, node.kind.kernel)
    window = {"kernel_shape": list(node.kind.kernel), "strides": list(node.kind.strides)}
    output = g.add(_POOLS[node.kind.operation], [x], f"{label}/pooled", **window, **pads)
    if None in node.y.shape[1:-1] and node.kind.padding == "valid":
        output = _as_long(g, node, x, output)
    _give_ended(g, node, output)


def _pool_first(g: GraphWriter, node: Node[kinds.PoolFirst]) -> None:
    most, window = node.kind.operation == "max", window_of(node)
    if not most:
        del window["dilations"]  # since opset 19, and always ones
        window["count_include_pad"] = int(node.kind.counted)
    g.put(node, _POOLS[node.kind.operation], [g(node.x)], **window, pads=at_ends(node.kind.pads), ceil_mode=int(node.kind.ceil))


def _pairs_of_all(node: Node[kinds.Pad | kinds.PadAxes]) -> list[tuple[int, int]]:
    """Return pairs for all axes: pairs for space alone stand between the batch and the channels."""
    pairs = list(node.kind.pairs)
    return pairs if len(pairs) == len(node.x.shape) else [(0, 0), *pairs, (0, 0)]


def _pad(g: GraphWriter, node: Node[kinds.Pad]) -> None:
    g.put(node, "Pad", [g(node.x), g.integers(*at_ends(_pairs_of_all(node)))])


def _pad_axes(g: GraphWriter, node: Node[kinds.PadAxes]) -> None:
    inputs = [g(node.x), g.integers(*at_ends(_pairs_of_all(node)))]
    inputs += [g.number(node.kind.number, node.x.dtype)] if node.kind.mode == "constant" else []
    g.put(node, "Pad", inputs, mode=node.kind.mode)


def _crop(g: GraphWriter, node: Node[kinds.Crop]) -> None:
    axes = range(1, len(node.kind.pairs) + 1)
    starts = g.integers(*(low for low, _ in node.kind.pairs))
    ends = g.integers(*(-high if high else np.iinfo(np.int64).max for _, high in node.kind.pairs))
    g.put(node, "Slice", [g(node.x), starts, ends, g.integers(*axes)])


def _upsample(g: GraphWriter, node: Node[kinds.Upsample]) -> None:
    label, by = g.label(node), node.kind.by
    wide = g.add("Unsqueeze", [g(node.x), g.integers(*range(2, 2 * len(by) + 1, 2))], f"{label}/wide")
    many = g.add("Expand", [wide, g.integers(1, *(n for size in by for n in (1, size)), 1)], f"{label}/repeated")
    size = g.add("Mul", [g.shape_of(node.x), g.integers(1, *by, 1)], f"{label}/size")
    g.put(node, "Reshape", [many, size])


SPACE: Rules = {
    **on(kinds.Conv, _conv),
    **on(kinds.ConvFirst, _conv_first),
    **on(kinds.ConvTransposed, _conv_transposed),
    **on(kinds.ConvTransposedFirst, _conv_transposed_first),
    **on(kinds.Pool, _pool),
    **on(kinds.PoolFirst, _pool_first),
    **on(kinds.Pad, _pad),
    **on(kinds.PadAxes, _pad_axes),
    **on(kinds.Crop, _crop),
    **on(kinds.Upsample, _upsample),
}
"""The kinds that are known."""
