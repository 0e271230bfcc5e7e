"""Norms as Keras 3. Sources: keras 3.15 keras/src/layers/normalization."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.keras.scaffold.configured import Constructor, KerasLayer, alike, layer
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import number


def _affine(node: Node) -> dict[str, Any]:
    return {"scale": None if node["scale"] else False, "center": None if node["shift"] else False}


def _batch_norm(m: Any, node: Node) -> KerasLayer:
    axis = None if node["axis"] == len(node.x.shape) - 1 else node["axis"]
    momentum = round(node["momentum"], 12)
    return layer("BatchNormalization", axis=axis, momentum=momentum, epsilon=node["epsilon"], **_affine(node))


def _axes(node: Node) -> tuple[int, ...] | None:
    count = len(node["sizes"])
    return None if count == 1 else tuple(range(-count, 0))


def _layer_norm(m: Any, node: Node) -> KerasLayer:
    return layer("LayerNormalization", axis=_axes(node), epsilon=node["epsilon"], **_affine(node))


def unscaled_rms_norm(m: Any, node: Node) -> str:
    """Return an RMS norm without a scale, which the layer has."""
    axes = [*range(-len(node["sizes"]), 0)]
    return f"ops.rms_normalization({m(node.x)}, axis={axes[0] if len(axes) == 1 else axes}, epsilon={number(node['epsilon'])})"


def _rms_norm(m: Any, node: Node) -> KerasLayer:
    return layer("RMSNormalization", axis=_axes(node), epsilon=node["epsilon"])


def _group_norm(m: Any, node: Node) -> KerasLayer:
    return layer("GroupNormalization", 1, groups=node["groups"], epsilon=node["epsilon"], **_affine(node))


def _unit_norm(m: Any, node: Node) -> KerasLayer:
    return layer("UnitNormalization", axis=alike(node["axes"]))


NORMS: dict[str, Constructor] = {
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "unit_norm": _unit_norm,
}
"""The norms that are known."""
