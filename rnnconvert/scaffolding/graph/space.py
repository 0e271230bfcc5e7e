"""Layers over space and time as basic operations, whose channels are behind the batch; those of a layer may be at the end.

Source: onnx/docs/Operators.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.channels import inverse, to_end
from rnnconvert.scaffolding.description import Node, Rules, on
from rnnconvert.scaffolding.graph.writer import GraphWriter
from rnnconvert.scaffolding.windows import padding_word


def _front(g: GraphWriter, node: Node[kinds.Windowed]) -> str:
    """Return the input of a layer with its channels behind the batch."""
    x = g(node.x)
    return x if node.kind.channels_first else g.transposed(x, inverse(to_end(len(node.x.shape))), f"{g.label(node)}/in")


def _give(g: GraphWriter, node: Node[kinds.Windowed], operator: str, inputs: Sequence[str], word: str, **settings: Any) -> None:
    """Add an operator, whose channels are behind the batch, and let the layer give its output with the channels where it has them."""
    if node.kind.channels_first:
        g.put(node, operator, inputs, **settings)
    else:
        _give_ended(g, node, g.add(operator, inputs, f"{g.label(node)}/{word}", **settings))


def _give_ended(g: GraphWriter, node: Node[kinds.Windowed], output: str) -> None:
    """Let a layer give its output with its channels at the end."""
    g.give(node.y, g.transposed(output, to_end(len(node.y.shape)), g.label(node)))


def at_ends(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return pads as the operations have them: those at the beginning of each axis, then those at the end."""
    return [*(low for low, _ in pairs), *(high for _, high in pairs)]


def _weights(g: GraphWriter, node: Node[kinds.Kind], kind: str) -> list[str]:
    return [g.constant(f"{g.label(node)}/{part}", array) for part, array in g.parts(node, kind).items()]


def window_of(kind: kinds.Windowed) -> dict[str, Any]:
    """Return the windows of a layer: their lengths, how far they move, how far apart their places are, and how they are padded."""
    window = {"kernel_shape": list(kind.kernel), "strides": list(kind.strides), "dilations": list(kind.dilation)}
    return {**window, **({"auto_pad": "SAME_UPPER"} if kind.pads is None else {"pads": at_ends(kind.pads)})}


def _conv(g: GraphWriter, node: Node[kinds.Conv]) -> None:
    _give(g, node, "Conv", [_front(g, node), *_weights(g, node, "conv")], "convolved", group=node.kind.groups, **window_of(node.kind))


def _conv_transposed(g: GraphWriter, node: Node[kinds.ConvTransposed]) -> None:
    inputs, kind = [_front(g, node), *_weights(g, node, "conv_transpose")], node.kind
    back = [min(high, more) for (_, high), more in zip(kind.pads, kind.output_padding, strict=True)]  # what is cut and put back
    pads = tuple((low, high - same) for (low, high), same in zip(kind.pads, back, strict=True))
    more = [more - same for more, same in zip(kind.output_padding, back, strict=True)]  # onnxruntime takes none as long as a stride
    window = window_of(replace(kind, pads=pads))
    _give(g, node, "ConvTranspose", inputs, "spread", **window, output_padding=more, group=kind.groups)


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
    kind, x, operator = node.kind, _front(g, node), _POOLS[node.kind.operation]
    window = {**window_of(kind), "ceil_mode": int(kind.ceil)}
    if kind.operation == "average":
        del window["dilations"]  # since opset 19, and always ones
        window["count_include_pad"] = int(kind.counted)
    if kind.channels_first or None not in node.y.shape[1:-1] or padding_word(kind) != "valid":
        _give(g, node, operator, [x], "pooled", **window)
    else:
        _give_ended(g, node, _as_long(g, node, x, g.add(operator, [x], f"{g.label(node)}/pooled", **window)))


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
    **on(kinds.ConvTransposed, _conv_transposed),
    **on(kinds.Pool, _pool),
    **on(kinds.Pad, _pad),
    **on(kinds.PadAxes, _pad_axes),
    **on(kinds.Crop, _crop),
    **on(kinds.Upsample, _upsample),
}
"""The kinds that are known."""
