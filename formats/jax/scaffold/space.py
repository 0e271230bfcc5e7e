"""Layers over space and time as Flax nnx. Sources: flax 0.12 flax/nnx/nn/linear.py."""

from __future__ import annotations

from typing import Any

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, on
from rnnconvert.scaffolding.spelling import spans
from rnnconvert.scaffolding.windows import padding_word
from rnnconvert.scaffolding.writer import Rule


def constructed(m: Any, node: Node[kinds.Kind], kind: str, *words: str) -> str:
    arguments = ", ".join(word for word in (*words, "rngs=rngs") if word)
    return f"{m.part(node.layer, f'nnx.{kind}({arguments})')}({m(node.x)})"


def bias(node: Node[kinds.Conv | kinds.ConvTransposed | kinds.Dense | kinds.LayerWeight]) -> str:
    return "" if node.kind.bias else "use_bias=False"


def _padding(node: Node[kinds.Conv]) -> str:
    word = padding_word(node.kind)
    return "" if word == "same" else f'padding="{word.upper()}"'


def several(key: str, values: Any) -> str:
    """Return a setting with a number for each axis, "" where all are 1."""
    return f"{key}={tuple(values)}" if max(values) > 1 else ""


def _conv(m: Any, node: Node[kinds.Conv]) -> str:
    groups = f"feature_group_count={node.kind.groups}" if node.kind.groups > 1 else ""
    return constructed(
        m,
        node,
        "Conv",
        str(node.kind.channels),
        str(node.kind.filters),
        str(tuple(node.kind.kernel)),
        several("strides", node.kind.strides),
        _padding(node),
        several("kernel_dilation", node.kind.dilation),
        groups,
        bias(node),
    )


def _conv_transposed(m: Any, node: Node[kinds.ConvTransposed]) -> str:
    ends = zip(node.kind.reach, node.kind.pads, node.kind.output_padding, strict=True)
    pads = [(reach - 1 - low, reach - 1 - high + more) for reach, (low, high), more in ends]
    return constructed(
        m,
        node,
        "ConvTranspose",
        str(node.kind.channels),
        str(node.kind.filters),
        str(tuple(node.kind.kernel)),
        several("strides", node.kind.strides),
        f"padding={pads}",
        several("kernel_dilation", node.kind.dilation),
        bias(node),
    )


def _pool(m: Any, node: Node[kinds.Pool]) -> str:
    kind, count = ("max", "") if node.kind.operation == "max" else ("avg", ", count_include_pad=False")
    padding = f', padding="SAME"{count}' if padding_word(node.kind) == "same" else ""
    return f"nnx.{kind}_pool({m(node.x)}, {tuple(node.kind.kernel)}, strides={tuple(node.kind.strides)}{padding})"


def _pad(m: Any, node: Node[kinds.Pad]) -> str:
    pairs = node.kind.pairs if len(node.kind.pairs) == len(node.x.shape) else ((0, 0), *node.kind.pairs, (0, 0))
    return f"jnp.pad({m(node.x)}, {tuple(pairs)})"


def _upsample(m: Any, node: Node[kinds.Upsample]) -> str:
    return str(m(node.x)) + "".join(f".repeat({by}, axis={axis + 1})" for axis, by in enumerate(node.kind.by) if by > 1)


SPACE: dict[type[kinds.Kind], Rule] = {
    **on(kinds.Conv, _conv),
    **on(kinds.ConvTransposed, _conv_transposed),
    **on(kinds.Pool, _pool),
    **on(kinds.Pad, _pad),
    **on(kinds.Crop, lambda m, node: f"{m(node.x)}[:, {spans(node.kind.pairs)}]"),
    **on(kinds.Upsample, _upsample),
}
"""The layers that are known."""
