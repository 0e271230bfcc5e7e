"""Layers over space and time as PyTorch, whose channels are at the end in the source. Sources: torch 2.13 torch/nn/modules."""

from __future__ import annotations

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, on
from rnnconvert.scaffolding.spelling import sizes, spans
from rnnconvert.scaffolding.writer import Module, Rule


def bias(node: Node[kinds.Conv | kinds.ConvTransposed | kinds.Dense | kinds.LayerWeight]) -> str:
    return "" if node.kind.bias else ", bias=False"


def _first(m: Module, node: Node[kinds.Kind]) -> str:
    """Return the input of a layer over space, its channels in front."""
    return f"{m(node.x)}.movedim(-1, 1)"


def _conv(m: Module, node: Node[kinds.Conv]) -> str:
    rank, kernel, strides, dilation = node.kind.rank, node.kind.kernel, node.kind.strides, node.kind.dilation
    words = [f"{node.kind.channels}, {node.kind.filters}, {sizes(kernel)}"]
    words += [f"{key}={sizes(values)}" for key, values in (("stride", strides), ("dilation", dilation)) if max(values) > 1]
    x = _first(m, node)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    even = all(size % 2 for size in reach)  # as many places in front as behind
    if node.kind.padding == "same" and max(strides) == 1 and even:
        words.append(f"padding={sizes([size // 2 for size in reach])}" if max(kernel) > 1 else "")
    elif node.kind.padding == "same":
        x = f"{m.helper('pad_same')}({x}, {reach}, {tuple(strides)})"
    elif node.kind.padding == "causal":
        x = f"F.pad({x}, ({dilation[0] * (kernel[0] - 1)}, 0))"
    words += [f"groups={node.kind.groups}"] if node.kind.groups > 1 else []
    part = m.part(node.layer, f"nn.Conv{rank}d({', '.join(word for word in words if word)}{bias(node)})")
    return f"{part}({x}).movedim(1, -1)"


def _conv_transposed(m: Module, node: Node[kinds.ConvTransposed]) -> str:
    rank, over, same = node.kind.rank, node.kind.over, node.kind.padding == "same"
    words = [f"{node.kind.channels}, {node.kind.filters}, {sizes(node.kind.kernel)}"]
    extra = tuple(max(-o, 0) for o in over)
    settings = (("stride", node.kind.strides, 1), ("output_padding", extra, 0), ("dilation", node.kind.dilation, 1))
    words += [f"{key}={sizes(values)}" for key, values, least in settings if max(values) > least]
    part = m.part(node.layer, f"nn.ConvTranspose{rank}d({', '.join(words)}{bias(node)})")
    cuts = [(max(o, 0) // 2, max(o, 0) - max(o, 0) // 2) if same else (0, 0) for o in over]
    cut = f"[:, :, {spans(cuts)}]" if any(map(any, cuts)) else ""
    return f"{part}({_first(m, node)}){cut}.movedim(1, -1)"


def _pool(m: Module, node: Node[kinds.Pool]) -> str:
    rank, kernel, strides, x = node.kind.rank, node.kind.kernel, node.kind.strides, _first(m, node)
    window = sizes(kernel) + ("" if kernel == strides else f", {sizes(strides)}")
    name = f"F.{'max' if node.kind.operation == 'max' else 'avg'}_pool{rank}d"
    if node.kind.padding == "valid" or max(kernel) == 1 == max(strides):
        return f"{name}({x}, {window}).movedim(1, -1)"
    padded = f"{m.helper('pad_same')}({{}}, {tuple(kernel)}, {tuple(strides)}{{}})"
    if node.kind.operation == "max":
        lowest = ', float("-inf")'
        return f"{name}({padded.format(x, lowest)}, {window}).movedim(1, -1)"
    ones = padded.format(f"torch.ones_like({x})", "")
    counted = f"{name}({ones}, {window})"
    return f"({name}({padded.format(x, '')}, {window}) / {counted}).movedim(1, -1)"


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
