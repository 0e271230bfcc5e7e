"""Convolutions and pools over time as layers of ncnn, which have the channels in front of the steps.

Source: ncnn src/layer/convolution1d.cpp, convolutiondepthwise1d.cpp and pooling1d.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnconvert.formats.ncnn.export_writer import NetWriter, Rule, real
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.windows import ends, reached

_SAME_UPPER = -233
"""In the place of pads: as many as give a window to each stride, an odd one at the end."""
_TURNED = 1
"""Permute's number for the order (steps, channels) of a blob of two axes."""


def _over_time(w: NetWriter, node: Node) -> None:
    w.batch_first(node)
    if node["rank"] != 1:
        raise w.refused(node, f"windows over {node['rank']} axes", "those over time alone are written")


def _turned(w: NetWriter, blob: str, wanted: str) -> str:
    return w.add("Permute", [blob], wanted, {0: _TURNED})


def _convolved(w: NetWriter, node: Node, blob: str, pads: tuple[int, int]) -> str:
    parts, groups = w.parts(node, "conv"), node["groups"]
    (kernel,), (stride,), (dilation,) = node["kernel"], node["strides"], node["dilation"]
    weight = parts["weight"]
    settings = {0: weight.shape[0], 1: kernel, 2: dilation, 3: stride, 4: pads[0], 15: pads[1], 5: int("bias" in parts), 6: weight.size}
    numbers = [(True, real(weight)), *([(False, real(parts["bias"]))] if "bias" in parts else [])]
    if groups == 1:
        return w.add("Convolution1D", [blob], f"{w.label(node)}/convolved", settings, numbers)
    return w.add("ConvolutionDepthWise1D", [blob], f"{w.label(node)}/convolved", {**settings, 7: groups}, numbers)


def _pads(w: NetWriter, node: Node, dilation: Sequence[int]) -> tuple[int, int]:
    if node["padding"] == "same" and max(node["strides"]) > 1:
        return _SAME_UPPER, _SAME_UPPER
    (window,) = reached(node["kernel"], dilation)
    return ends(node["padding"], window)


def _conv(w: NetWriter, node: Node) -> None:
    _over_time(w, node)
    label = w.label(node)
    blob = _convolved(w, node, _turned(w, w.blob(node, node.x), f"{label}/channels"), _pads(w, node, node["dilation"]))
    w.give(node.y, _turned(w, blob, label), 0)


def _conv_first(w: NetWriter, node: Node) -> None:
    _over_time(w, node)
    (pads,) = node["pads"]
    w.give(node.y, _convolved(w, node, w.blob(node, node.x), pads), 0)


_MAX, _AVERAGE, _VALID, _SAME = 0, 1, 1, 2


def _pooled(w: NetWriter, node: Node, blob: str, pads: tuple[int, int], counted: bool) -> str:
    (kernel,), (stride,) = node["kernel"], node["strides"]
    kind = _MAX if node["operation"] == "max" else _AVERAGE
    same = _SAME_UPPER in pads
    if same and kind == _AVERAGE:
        raise w.refused(
            node, "an average that leaves its padding out", "its Pooling1D counts as much padding as gives a window to each stride"
        )
    low, high = (0, 0) if same else pads
    settings = {0: kind, 1: kernel, 2: stride, 3: low, 14: high, 5: _SAME if same else _VALID, 6: int(counted)}
    return w.add("Pooling1D", [blob], f"{w.label(node)}/pooled", settings)


def _pool(w: NetWriter, node: Node) -> None:
    _over_time(w, node)
    label, same = w.label(node), node["padding"] == "same"
    blob = _turned(w, w.blob(node, node.x), f"{label}/channels")
    pooled = _pooled(w, node, blob, (_SAME_UPPER, _SAME_UPPER) if same else (0, 0), False)
    w.give(node.y, _turned(w, pooled, label), 0)


def _pool_first(w: NetWriter, node: Node) -> None:
    _over_time(w, node)
    if node["ceil"] or max(node["dilation"]) > 1:
        raise w.refused(node, "a pool with windows beyond its input (ceil_mode) or over places apart", "these are not written")
    (pads,) = node["pads"]
    w.give(node.y, _pooled(w, node, w.blob(node, node.x), pads, bool(node["operation"] == "average" and node["counted"])), 0)


SPACE: Mapping[str, Rule] = {"conv": _conv, "conv first": _conv_first, "pool": _pool, "pool first": _pool_first}
"""The kinds that are known."""
