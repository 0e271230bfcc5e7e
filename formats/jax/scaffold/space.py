"""Layers over space and time as Flax nnx. Sources: flax 0.12 flax/nnx/nn/linear.py."""

from __future__ import annotations

from typing import Any

from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import spans
from rnnconvert.scaffolding.writer import Rule


def constructed(m: Any, node: Node, kind: str, *words: str) -> str:
    arguments = ", ".join(word for word in (*words, "rngs=rngs") if word)
    return f"{m.part(node.layer, f'nnx.{kind}({arguments})')}({m(node.x)})"


def bias(node: Node) -> str:
    return "" if node["bias"] else "use_bias=False"


def _padding(node: Node) -> str:
    return "" if node["padding"] == "same" else f'padding="{node["padding"].upper()}"'


def several(key: str, values: Any) -> str:
    """Return a setting with a number for each axis, "" where all are 1."""
    return f"{key}={tuple(values)}" if max(values) > 1 else ""


def _conv(m: Any, node: Node) -> str:
    groups = f"feature_group_count={node['groups']}" if node["groups"] > 1 else ""
    return constructed(
        m,
        node,
        "Conv",
        str(node["channels"]),
        str(node["filters"]),
        str(tuple(node["kernel"])),
        several("strides", node["strides"]),
        _padding(node),
        several("kernel_dilation", node["dilation"]),
        groups,
        bias(node),
    )


def _conv_transposed(m: Any, node: Node) -> str:
    pads = []
    for kernel, dilation, over in zip(node["kernel"], node["dilation"], node["over"], strict=True):
        most, cut = dilation * (kernel - 1), max(over, 0) if node["padding"] == "same" else 0
        pads.append((most - cut // 2, most - (cut - cut // 2) + max(-over, 0)))
    return constructed(
        m,
        node,
        "ConvTranspose",
        str(node["channels"]),
        str(node["filters"]),
        str(tuple(node["kernel"])),
        several("strides", node["strides"]),
        f"padding={pads}",
        several("kernel_dilation", node["dilation"]),
        bias(node),
    )


def _pool(m: Any, node: Node) -> str:
    kind, count = ("max", "") if node["operation"] == "max" else ("avg", ", count_include_pad=False")
    words = f"{tuple(node['kernel'])}, strides={tuple(node['strides'])}" + ("" if node["padding"] == "valid" else ', padding="SAME"')
    return f"nnx.{kind}_pool({m(node.x)}, {words}{count if node['padding'] == 'same' else ''})"


def _pad(m: Any, node: Node) -> str:
    pairs = node["pairs"] if len(node["pairs"]) == len(node.x.shape) else ((0, 0), *node["pairs"], (0, 0))
    return f"jnp.pad({m(node.x)}, {tuple(pairs)})"


def _upsample(m: Any, node: Node) -> str:
    return str(m(node.x)) + "".join(f".repeat({by}, axis={axis + 1})" for axis, by in enumerate(node["by"]) if by > 1)


SPACE: dict[str, Rule] = {
    "conv": _conv,
    "conv transposed": _conv_transposed,
    "pool": _pool,
    "pad": _pad,
    "crop": lambda m, node: f"{m(node.x)}[:, {spans(node['pairs'])}]",
    "upsample": _upsample,
}
"""The layers that are known."""
