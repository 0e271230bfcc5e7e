"""Layers over space and time as Keras 3. Sources: keras 3.15 keras/src/layers/{convolutional,pooling,reshaping}."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.keras.scaffold.configured import Constructor, KerasLayer, alike, layer
from rnnconvert.formats.keras.scaffold.functions import ended
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, on
from rnnconvert.scaffolding.windows import padding_word
from rnnconvert.scaffolding.writer import Rule


def window(node: Node[kinds.Windowed]) -> dict[str, Any]:
    """Return the strides, the padding and the dilation of a layer, as its constructor takes them."""
    strides, dilation, padding = node.kind.strides, node.kind.dilation, padding_word(node.kind)
    if isinstance(node.kind, kinds.ConvTransposed):
        padding = "same" if any(map(any, node.kind.pads)) else "valid"
    return {
        "strides": alike(strides) if max(strides) > 1 else None,
        "padding": padding if padding != "valid" else None,
        "dilation_rate": alike(dilation) if max(dilation) > 1 else None,
    }


def _conv(m: Any, node: Node[kinds.Conv]) -> KerasLayer:
    rank, groups, channels = node.kind.rank, node.kind.groups, node.kind.channels
    kernel = alike(node.kind.kernel)
    if groups == channels > 1 and rank < 3 and padding_word(node.kind) != "causal":
        many = node.kind.filters // channels
        depth = many if many > 1 else None
        return layer(f"DepthwiseConv{rank}D", 1, kernel_size=kernel, **window(node), depth_multiplier=depth, **ended(m, node))
    grouped = groups if groups > 1 else None
    return layer(f"Conv{rank}D", 2, filters=node.kind.filters, kernel_size=kernel, **window(node), groups=grouped, **ended(m, node))


def _conv_transposed(m: Any, node: Node[kinds.ConvTransposed]) -> KerasLayer:
    kernel = alike(node.kind.kernel)
    return layer(f"Conv{node.kind.rank}DTranspose", 2, filters=node.kind.filters, kernel_size=kernel, **window(node), **ended(m, node))


def _pool(m: Any, node: Node[kinds.Pool]) -> KerasLayer:
    kind = "Max" if node.kind.operation == "max" else "Average"
    strides = alike(node.kind.strides) if node.kind.strides != node.kind.kernel else None
    return layer(f"{kind}Pooling{node.kind.rank}D", 1, pool_size=alike(node.kind.kernel), **{**window(node), "strides": strides})


def _edges(kind: str, setting: str) -> Rule:
    def rule(m: Any, node: Node[kinds.Crop | kinds.Pad]) -> str:
        pairs, rank = node.kind.pairs, len(node.x.shape)
        if len(pairs) == rank:
            return f"ops.pad({m(node.x)}, {pairs})"
        argument = (pairs[0] if len(set(pairs[0])) > 1 else pairs[0][0]) if len(pairs) == 1 else tuple(pairs)
        return str(m.called(layer(f"{kind}{rank - 2}D", 1, **{setting: argument}), node.x))

    return rule


SPACE: dict[type[kinds.Kind], Constructor] = {
    **on(kinds.Conv, _conv),
    **on(kinds.ConvTransposed, _conv_transposed),
    **on(kinds.Pool, _pool),
    **on(kinds.Upsample, lambda m, node: layer(f"UpSampling{len(node.kind.by)}D", 1, size=alike(node.kind.by))),
}
"""The kinds that are a layer called on one tensor."""
EDGES: dict[type[kinds.Kind], Rule] = {**on(kinds.Pad, _edges("ZeroPadding", "padding")), **on(kinds.Crop, _edges("Cropping", "cropping"))}
"""Layers that add or take places at the ends of axes."""
