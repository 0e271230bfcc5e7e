"""Layers over space and time as Keras 3. Sources: keras 3.15 keras/src/layers/{convolutional,pooling,reshaping}."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.keras.scaffold.functions import Constructor, bias, function, words
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import sizes
from rnnconvert.scaffolding.writer import Rule


def window(node: Node) -> list[str]:
    """Return the strides, the padding and the dilation of a layer, as its constructor takes them."""
    strides, dilation, padding = node["strides"], node.settings.get("dilation", (1,)), node["padding"]
    return [
        f"strides={sizes(strides)}" if max(strides) > 1 else "",
        f'padding="{padding}"' if padding != "valid" else "",
        f"dilation_rate={sizes(dilation)}" if max(dilation) > 1 else "",
    ]


def _conv(m: Any, node: Node) -> str:
    rank, groups, channels = node["rank"], node["groups"], node["channels"]
    kernel = sizes(node["kernel"])
    if groups == channels > 1 and rank < 3 and node["padding"] != "causal":
        many = node["filters"] // channels
        depth = f"depth_multiplier={many}" if many > 1 else ""
        return f"layers.DepthwiseConv{rank}D({words(kernel, *window(node), depth, function(m, node), bias(node))})"
    grouped = f"groups={groups}" if groups > 1 else ""
    return f"layers.Conv{rank}D({words(str(node['filters']), kernel, *window(node), grouped, function(m, node), bias(node))})"


def _conv_transposed(m: Any, node: Node) -> str:
    arguments = words(str(node["filters"]), sizes(node["kernel"]), *window(node), function(m, node), bias(node))
    return f"layers.Conv{node['rank']}DTranspose({arguments})"


def _pool(m: Any, node: Node) -> str:
    kind, (strides, *others) = "Max" if node["operation"] == "max" else "Average", window(node)
    strides = f"strides={sizes(node['strides'])}" if node["strides"] != node["kernel"] else ""
    return f"layers.{kind}Pooling{node['rank']}D({words(sizes(node['kernel']), strides, *others)})"


def _edges(kind: str) -> Rule:
    def rule(m: Any, node: Node) -> str:
        pairs, rank = node["pairs"], len(node.x.shape)
        if len(pairs) == rank:
            return f"ops.pad({m(node.x)}, {pairs})"
        argument = str(pairs[0] if len(set(pairs[0])) > 1 else pairs[0][0]) if len(pairs) == 1 else str(pairs)
        return str(m.called(f"layers.{kind}{rank - 2}D({argument})", node.x))

    return rule


SPACE: dict[str, Constructor] = {
    "conv": _conv,
    "conv transposed": _conv_transposed,
    "pool": _pool,
    "upsample": lambda m, node: f"layers.UpSampling{len(node['by'])}D({sizes(node['by'])})",
}
"""The kinds that are a layer called on one tensor."""
EDGES: dict[str, Rule] = {"pad": _edges("ZeroPadding"), "crop": _edges("Cropping")}
"""What adds or takes places at the ends of axes."""
