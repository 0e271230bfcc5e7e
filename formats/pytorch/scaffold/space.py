"""Layers over space and time as PyTorch, whose own have their channels behind the batch. Sources: torch 2.13 torch/nn/modules."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, on
from rnnconvert.scaffolding.spelling import sizes, spans
from rnnconvert.scaffolding.writer import Module, Rule


def bias(node: Node[kinds.Conv | kinds.ConvTransposed | kinds.Dense | kinds.LayerWeight]) -> str:
    return "" if node.kind.bias else ", bias=False"


def _front(m: Module, node: Node[kinds.Windowed]) -> str:
    """Return the input of a layer over space, its channels behind the batch."""
    return m(node.x) if node.kind.channels_first else f"{m(node.x)}.movedim(-1, 1)"


def _back(node: Node[kinds.Windowed], y: str) -> str:
    """Return the output of a layer over space, its channels where the model has them."""
    return y if node.kind.channels_first else f"{y}.movedim(1, -1)"


def _padded(m: Module, kind: kinds.Windowed, x: str, value: str = "", most: Sequence[int] = ()) -> tuple[str, str]:
    """Return the input of windows, and their padding: outside of the layer if the two ends of an axis are not padded alike.

    value  of the places that are added, 0 for none
    most   how many places the layer can add at both ends of each axis; any number if nothing is stated
    """
    if kind.pads is None:
        return f"{m.helper('pad_same')}({x}, {kind.reach}, {tuple(kind.strides)}{value and f', {value}'})", ""
    if not any(map(any, kind.pads)):
        return x, ""
    lows = [low for low, _ in kind.pads]
    if all(low == high for low, high in kind.pads) and all(low <= n for low, n in zip(lows, most or lows, strict=True)):
        return x, f"padding={sizes(lows)}"
    flat = ", ".join(str(n) for pair in kind.pads[::-1] for n in pair)
    return f"F.pad({x}, ({flat}){value and f', value={value}'})", ""


def _word(key: str, values: kinds.Sizes, least: int = 1) -> str:
    return f"{key}={sizes(values)}" if max(values) > least else ""


def _convolution(m: Module, node: Node[kinds.Conv | kinds.ConvTransposed], name: str, *more: str) -> str:
    """Return a new submodule of a convolution."""
    kind = node.kind
    words = [f"{kind.channels}, {kind.filters}, {sizes(kind.kernel)}", _word("stride", kind.strides), _word("dilation", kind.dilation)]
    words += [*more, f"groups={kind.groups}" if kind.groups > 1 else "", "" if kind.bias else "bias=False"]
    return m.part(node.layer, f"nn.{name}{kind.rank}d({', '.join(filter(None, words))})")


def _conv(m: Module, node: Node[kinds.Conv]) -> str:
    x, padding = _padded(m, node.kind, _front(m, node))
    return _back(node, f"{_convolution(m, node, 'Conv', padding)}({x})")


def _conv_transposed(m: Module, node: Node[kinds.ConvTransposed]) -> str:
    pads = node.kind.pads
    even = all(low == high for low, high in pads)
    padding = f"padding={sizes([low for low, _ in pads])}" if even and any(map(any, pads)) else ""
    part = _convolution(m, node, "ConvTranspose", padding, _word("output_padding", node.kind.output_padding, 0))
    return _back(node, f"{part}({_front(m, node)})" + ("" if even else f"[:, :, {spans(pads)}]"))


def _pool(m: Module, node: Node[kinds.Pool]) -> str:
    kind, x, most = node.kind, _front(m, node), node.kind.operation == "max"
    half = [size // 2 for size in kind.kernel]
    padded, padding = _padded(m, kind, x, 'float("-inf")' if most else "", half)
    words = [sizes(kind.kernel), "" if kind.kernel == kind.strides else sizes(kind.strides), padding, _word("dilation", kind.dilation)]
    words += ["ceil_mode=True" if kind.ceil else ""]
    words += ["count_include_pad=False" if padding and not (most or kind.counted) else ""]
    call = f"F.{'max' if most else 'avg'}_pool{kind.rank}d({{}}, {', '.join(filter(None, words))})"
    if most or kind.counted or padded == x:
        return _back(node, call.format(padded))
    ones = _padded(m, kind, f"torch.ones_like({x})")[0]
    counted = f"{call.format(padded)} / {call.format(ones)}"
    return counted if kind.channels_first else _back(node, f"({counted})")


def _pad(m: Module, node: Node[kinds.Pad]) -> str:
    pairs = list(node.kind.pairs) if len(node.kind.pairs) == len(node.x.shape) else [(0, 0), *node.kind.pairs, (0, 0)]
    while pairs[0] == (0, 0):
        pairs.pop(0)
    flat = [str(n) for pair in pairs[::-1] for n in pair]
    return f"F.pad({m(node.x)}, ({', '.join(flat)}))"


def _upsample(m: Module, node: Node[kinds.Upsample]) -> str:
    return m(node.x) + "".join(f".repeat_interleave({by}, dim={axis + 1})" for axis, by in enumerate(node.kind.by) if by > 1)


SPACE: dict[type[kinds.Kind], Rule] = {
    **on(kinds.Conv, _conv),
    **on(kinds.ConvTransposed, _conv_transposed),
    **on(kinds.Pool, _pool),
    **on(kinds.Pad, _pad),
    **on(kinds.Crop, lambda m, node: f"{m(node.x)}[:, {spans(node.kind.pairs)}]"),
    **on(kinds.Upsample, _upsample),
}
"""The layers that are known."""
