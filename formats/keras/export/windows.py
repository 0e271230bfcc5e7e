"""Windows, strides and axes of Keras layers over space, as ONNX attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import GraphBuilder


def sizes_of(facts: LayerFacts, key: str, axes: int, default: int = 1) -> list[int]:
    sizes = facts.get(key, default)
    sizes = default if sizes is None else sizes
    return [int(size) for size in sizes] if isinstance(sizes, (list, tuple)) else [int(sizes)] * axes


def spatial(facts: LayerFacts, x: ModelTensor, axes: int) -> None:
    facts.need("data_format", "channels_last", None)
    if len(x.shape) != axes + 2:
        raise refuse(facts.name, f"an input of {len(x.shape)} axes", f"it takes {axes + 2}")


def window(
    facts: LayerFacts, x: ModelTensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[dict[str, Any], tuple[int | None, ...]]:
    """Return how a convolution or pooling pads, and the lengths that come out."""
    padding = facts.get("padding", "valid")
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    lengths = x.shape[1:-1]
    if padding == "same":
        if any(s > 1 for s in strides) and any(d > 1 for d in dilations):
            raise refuse(facts.name, "padding 'same' with strides and dilation", "ONNX runtimes differ there")
        out = tuple(None if n is None else -(-n // s) for n, s in zip(lengths, strides, strict=True))
        if all(s == 1 for s in strides):
            low = [(r - 1) // 2 for r in reach]
            return {"pads": [*low, *(r - 1 - a for r, a in zip(reach, low, strict=True))]}, out
        return {"auto_pad": "SAME_UPPER"}, out
    if padding not in ("valid", "causal"):
        raise refuse(facts.name, f"padding {padding!r}", "only valid, same and causal are known here")
    extra = [r - 1 if padding == "causal" else 0 for r in reach]
    out = tuple(None if n is None else (n + e - r) // s + 1 for n, e, r, s in zip(lengths, extra, reach, strides, strict=True))
    return {"pads": [*extra, *[0] * len(extra)]}, out


def lead(axes: int) -> list[int]:
    """Return the order of axes with the channels in front."""
    return [0, axes + 1, *range(1, axes + 1)]


def trail(axes: int) -> list[int]:
    """Return the order of axes with the channels at the end."""
    return [0, *range(2, axes + 2), 1]


def as_long(build: GraphBuilder, name: str, around: tuple[str, str], size: Sequence[int], strides: Sequence[int]) -> str:
    """Add a check of how long a pooling's output is: of less than one window onnxruntime makes one, and Keras none.

    around  what is pooled, and what came of it (batch, channels, lengths)
    """
    before, after = around
    axes = len(size)
    shape = build.add("Shape", [before], f"{name}/size")
    long = build.add("Slice", [shape, build.integers(2), build.integers(2 + axes)], f"{name}/lengths")
    starts = build.add("Sub", [long, build.integers(*(n - by for n, by in zip(size, strides, strict=True)))], f"{name}/starts")
    windows = build.add("Div", [build.add("Max", [starts, build.integers(0)], f"{name}/room"), build.integers(*strides)], f"{name}/windows")
    others = build.add("Slice", [shape, build.integers(0), build.integers(2)], f"{name}/others")
    wanted = build.add("Concat", [others, windows], f"{name}/wanted", axis=0)
    return build.add("Reshape", [after, wanted], f"{name}/checked", allowzero=1)
