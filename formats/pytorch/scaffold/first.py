"""Layers over space whose channels are in front, as PyTorch's own are. Sources: torch 2.13 torch/nn/modules."""

from __future__ import annotations

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, on
from rnnconvert.scaffolding.spelling import number, sizes
from rnnconvert.scaffolding.writer import Module, Rule


def _pads(m: Module, node: Node[kinds.ConvFirst | kinds.PoolFirst], x: str, value: str = "") -> tuple[str, str]:
    """Return the input of a window, and its padding: outside of the layer if the two ends of an axis are not padded alike."""
    pads = node.kind.pads
    if not any(map(any, pads)):
        return x, ""
    if all(low == high for low, high in pads) and (
        not value or all(2 * low <= k for (low, _), k in zip(pads, node.kind.kernel, strict=True))
    ):
        return x, f"padding={sizes([low for low, _ in pads])}"
    flat = ", ".join(str(n) for pair in pads[::-1] for n in pair)
    return f"F.pad({x}, ({flat}){f', value={value}' if value else ''})", ""


def _word(key: str, values: kinds.Sizes, least: int = 1) -> str:
    return f"{key}={sizes(values)}" if max(values) > least else ""


def _conv(m: Module, node: Node[kinds.ConvFirst]) -> str:
    x, padding = _pads(m, node, m(node.x))
    words = [
        f"{node.kind.channels}, {node.kind.filters}, {sizes(node.kind.kernel)}",
        _word("stride", node.kind.strides),
        _word("dilation", node.kind.dilation),
        padding,
    ]
    words += [f"groups={node.kind.groups}"] if node.kind.groups > 1 else []
    words += [] if node.kind.bias else ["bias=False"]
    part = m.part(node.layer, f"nn.Conv{node.kind.rank}d({', '.join(filter(None, words))})")
    return f"{part}({x})"


def _conv_transposed(m: Module, node: Node[kinds.ConvTransposedFirst]) -> str:
    pads = node.kind.pads
    even = all(low == high for low, high in pads)
    words = [f"{node.kind.channels}, {node.kind.filters}, {sizes(node.kind.kernel)}", _word("stride", node.kind.strides)]
    words += [f"padding={sizes([low for low, _ in pads])}"] if even and any(map(any, pads)) else []
    words += [_word("output_padding", node.kind.output_padding, 0), *([f"groups={node.kind.groups}"] if node.kind.groups > 1 else [])]
    words += [*([] if node.kind.bias else ["bias=False"]), _word("dilation", node.kind.dilation)]
    part = m.part(node.layer, f"nn.ConvTranspose{node.kind.rank}d({', '.join(filter(None, words))})")
    cut = ", ".join(f"{low or ''}:{-high if high else ''}" for low, high in pads)
    return f"{part}({m(node.x)})" + ("" if even else f"[:, :, {cut}]")


def _pool(m: Module, node: Node[kinds.PoolFirst]) -> str:
    rank, kernel, strides, most = node.kind.rank, node.kind.kernel, node.kind.strides, node.kind.operation == "max"
    lowest = 'float("-inf")' if most else ""
    window = sizes(kernel) + ("" if kernel == strides else f", {sizes(strides)}")
    ceil = ", ceil_mode=True" if node.kind.ceil else ""
    name = f"F.{'max' if most else 'avg'}_pool{rank}d"
    x, padding = _pads(m, node, m(node.x), lowest or "0.0")
    x = x.replace(", value=0.0", "")
    words = [window, padding, _word("dilation", node.kind.dilation)]
    if most or not any(map(any, node.kind.pads)):
        return f"{name}({x}, {', '.join(filter(None, words))}{ceil})"
    if node.kind.counted:
        return f"{name}({x}, {', '.join(filter(None, words))})"
    if padding:
        return f"{name}({x}, {', '.join(filter(None, words))}, count_include_pad=False)"
    ones = x.replace(m(node.x), f"torch.ones_like({m(node.x)})", 1)
    return f"{name}({x}, {window}) / {name}({ones}, {window})"


def _instance_norm(m: Module, node: Node[kinds.InstanceNorm]) -> str:
    rank = len(node.x.shape) - 2
    part = m.part(node.layer, f"nn.InstanceNorm{rank}d({node.kind.size}, eps={number(node.kind.epsilon)}, affine=True)")
    return f"{part}({m(node.x)})"


def _group_norm(m: Module, node: Node[kinds.GroupNormFirst]) -> str:
    part = m.part(node.layer, f"nn.GroupNorm({node.kind.groups}, {node.kind.size}, eps={number(node.kind.epsilon)})")
    return f"{part}({m(node.x)})"


def _prelu(m: Module, node: Node[kinds.PReLUFirst]) -> str:
    part, axis = m.part(node.layer, f"nn.PReLU({node.kind.size})"), node.kind.axis
    if axis == 1 or node.kind.size == 1:
        return f"{part}({m(node.x)})"
    return f"{part}({m(node.x)}.movedim({axis}, 1)).movedim(1, {axis})"


FIRST: dict[type[kinds.Kind], Rule] = {
    **on(kinds.ConvFirst, _conv),
    **on(kinds.ConvTransposedFirst, _conv_transposed),
    **on(kinds.PoolFirst, _pool),
    **on(kinds.InstanceNorm, _instance_norm),
    **on(kinds.GroupNormFirst, _group_norm),
    **on(kinds.PReLUFirst, _prelu),
}
"""The layers that are known."""
