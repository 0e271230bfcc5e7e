"""Layers over space whose channels are in front, as PyTorch's own are. Sources: torch 2.13 torch/nn/modules."""

from __future__ import annotations

from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import number, sizes
from rnnconvert.scaffolding.writer import Module, Rule


def _pads(m: Module, node: Node, x: str, value: str = "") -> tuple[str, str]:
    """Return the input of a window, and its padding: outside of the layer if the two ends of an axis are not padded alike."""
    pads = node["pads"]
    if not any(map(any, pads)):
        return x, ""
    if all(low == high for low, high in pads) and (
        not value or all(2 * low <= k for (low, _), k in zip(pads, node["kernel"], strict=True))
    ):
        return x, f"padding={sizes([low for low, _ in pads])}"
    flat = ", ".join(str(n) for pair in pads[::-1] for n in pair)
    return f"F.pad({x}, ({flat}){f', value={value}' if value else ''})", ""


def _words(node: Node, *keys: str) -> list[str]:
    names = {"strides": "stride"}
    return [f"{names.get(key, key)}={sizes(node[key])}" for key in keys if max(node[key]) > (0 if key == "output_padding" else 1)]


def _conv(m: Module, node: Node) -> str:
    x, padding = _pads(m, node, m(node.x))
    words = [f"{node['channels']}, {node['filters']}, {sizes(node['kernel'])}", *_words(node, "strides", "dilation"), padding]
    words += [f"groups={node['groups']}"] if node["groups"] > 1 else []
    words += [] if node["bias"] else ["bias=False"]
    part = m.part(node.layer, f"nn.Conv{node['rank']}d({', '.join(filter(None, words))})")
    return f"{part}({x})"


def _conv_transposed(m: Module, node: Node) -> str:
    pads = node["pads"]
    even = all(low == high for low, high in pads)
    words = [f"{node['channels']}, {node['filters']}, {sizes(node['kernel'])}", *_words(node, "strides")]
    words += [f"padding={sizes([low for low, _ in pads])}"] if even and any(map(any, pads)) else []
    words += [*_words(node, "output_padding"), *([f"groups={node['groups']}"] if node["groups"] > 1 else [])]
    words += [*([] if node["bias"] else ["bias=False"]), *_words(node, "dilation")]
    part = m.part(node.layer, f"nn.ConvTranspose{node['rank']}d({', '.join(words)})")
    cut = ", ".join(f"{low or ''}:{-high if high else ''}" for low, high in pads)
    return f"{part}({m(node.x)})" + ("" if even else f"[:, :, {cut}]")


def _pool(m: Module, node: Node) -> str:
    rank, kernel, strides, most = node["rank"], node["kernel"], node["strides"], node["operation"] == "max"
    lowest = 'float("-inf")' if most else ""
    window = sizes(kernel) + ("" if kernel == strides else f", {sizes(strides)}")
    ceil = ", ceil_mode=True" if node["ceil"] else ""
    name = f"F.{'max' if most else 'avg'}_pool{rank}d"
    x, padding = _pads(m, node, m(node.x), lowest or "0.0")
    x = x.replace(", value=0.0", "")
    words = [window, padding, *_words(node, "dilation")]
    if most or not any(map(any, node["pads"])):
        return f"{name}({x}, {', '.join(filter(None, words))}{ceil})"
    if node["counted"]:
        return f"{name}({x}, {', '.join(filter(None, words))})"
    if padding:
        return f"{name}({x}, {', '.join(filter(None, words))}, count_include_pad=False)"
    ones = x.replace(m(node.x), f"torch.ones_like({m(node.x)})", 1)
    return f"{name}({x}, {window}) / {name}({ones}, {window})"


def _instance_norm(m: Module, node: Node) -> str:
    rank = len(node.x.shape) - 2
    part = m.part(node.layer, f"nn.InstanceNorm{rank}d({node['size']}, eps={number(node['epsilon'])}, affine=True)")
    return f"{part}({m(node.x)})"


def _group_norm(m: Module, node: Node) -> str:
    part = m.part(node.layer, f"nn.GroupNorm({node['groups']}, {node['size']}, eps={number(node['epsilon'])})")
    return f"{part}({m(node.x)})"


def _prelu(m: Module, node: Node) -> str:
    part, axis = m.part(node.layer, f"nn.PReLU({node['size']})"), node["axis"]
    if axis == 1 or node["size"] == 1:
        return f"{part}({m(node.x)})"
    return f"{part}({m(node.x)}.movedim({axis}, 1)).movedim(1, {axis})"


FIRST: dict[str, Rule] = {
    "conv first": _conv,
    "conv transposed first": _conv_transposed,
    "pool first": _pool,
    "instance_norm": _instance_norm,
    "group_norm first": _group_norm,
    "prelu first": _prelu,
}
"""The layers that are known."""
