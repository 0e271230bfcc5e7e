"""Layers over space and time as Keras 3. Sources: keras 3.15 keras/src/layers/{convolutional,pooling,reshaping}."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.keras.scaffold.configured import Constructor, KerasLayer, alike, layer
from rnnconvert.formats.keras.scaffold.functions import ended
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.writer import Rule


def window(node: Node) -> dict[str, Any]:
    """Return the strides, the padding and the dilation of a layer, as its constructor takes them."""
    strides, dilation, padding = node["strides"], node.settings.get("dilation", (1,)), node["padding"]
    return {
        "strides": alike(strides) if max(strides) > 1 else None,
        "padding": padding if padding != "valid" else None,
        "dilation_rate": alike(dilation) if max(dilation) > 1 else None,
    }


def _conv(m: Any, node: Node) -> KerasLayer:
    rank, groups, channels = node["rank"], node["groups"], node["channels"]
    kernel = alike(node["kernel"])
    if groups == channels > 1 and rank < 3 and node["padding"] != "causal":
        many = node["filters"] // channels
        depth = many if many > 1 else None
        return layer(f"DepthwiseConv{rank}D", 1, kernel_size=kernel, **window(node), depth_multiplier=depth, **ended(m, node))
    grouped = groups if groups > 1 else None
    return layer(f"Conv{rank}D", 2, filters=node["filters"], kernel_size=kernel, **window(node), groups=grouped, **ended(m, node))


def _conv_transposed(m: Any, node: Node) -> KerasLayer:
    kernel = alike(node["kernel"])
    return layer(f"Conv{node['rank']}DTranspose", 2, filters=node["filters"], kernel_size=kernel, **window(node), **ended(m, node))


def _pool(m: Any, node: Node) -> KerasLayer:
    kind = "Max" if node["operation"] == "max" else "Average"
    strides = alike(node["strides"]) if node["strides"] != node["kernel"] else None
    return layer(f"{kind}Pooling{node['rank']}D", 1, pool_size=alike(node["kernel"]), **{**window(node), "strides": strides})


def _edges(kind: str, setting: str) -> Rule:
    def rule(m: Any, node: Node) -> str:
        pairs, rank = node["pairs"], len(node.x.shape)
        if len(pairs) == rank:
            return f"ops.pad({m(node.x)}, {pairs})"
        argument = (pairs[0] if len(set(pairs[0])) > 1 else pairs[0][0]) if len(pairs) == 1 else tuple(pairs)
        return str(m.called(layer(f"{kind}{rank - 2}D", 1, **{setting: argument}), node.x))

    return rule


SPACE: dict[str, Constructor] = {
    "conv": _conv,
    "conv transposed": _conv_transposed,
    "pool": _pool,
    "upsample": lambda m, node: layer(f"UpSampling{len(node['by'])}D", 1, size=alike(node["by"])),
}
"""The kinds that are a layer called on one tensor."""
EDGES: dict[str, Rule] = {"pad": _edges("ZeroPadding", "padding"), "crop": _edges("Cropping", "cropping")}
"""Layers that add or take places at the ends of axes."""
