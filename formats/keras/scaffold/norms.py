"""Norms as Keras 3. Sources: keras 3.15 keras/src/layers/normalization."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.keras.scaffold.functions import Constructor, words
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import number, sizes


def _affine(node: Node) -> str:
    return words("" if node["scale"] else "scale=False", "" if node["shift"] else "center=False")


def _batch_norm(m: Any, node: Node) -> str:
    axis = "" if node["axis"] == len(node.x.shape) - 1 else f"axis={node['axis']}"
    momentum = f"momentum={number(round(node['momentum'], 12))}"
    return f"layers.BatchNormalization({words(axis, momentum, _epsilon(node), _affine(node))})"


def _epsilon(node: Node) -> str:
    return f"epsilon={number(node['epsilon'])}"


def _axes(node: Node) -> str:
    count = len(node["sizes"])
    return "" if count == 1 else f"axis={tuple(range(-count, 0))}"


def _layer_norm(m: Any, node: Node) -> str:
    return f"layers.LayerNormalization({words(_axes(node), _epsilon(node), _affine(node))})"


def unscaled_rms_norm(m: Any, node: Node) -> str:
    """Return an RMS norm without a scale, which the layer has."""
    axes = [*range(-len(node["sizes"]), 0)]
    return f"ops.rms_normalization({m(node.x)}, axis={axes[0] if len(axes) == 1 else axes}, {_epsilon(node)})"


def _rms_norm(m: Any, node: Node) -> str:
    return f"layers.RMSNormalization({words(_axes(node), _epsilon(node))})"


def _group_norm(m: Any, node: Node) -> str:
    return f"layers.GroupNormalization({words(str(node['groups']), _epsilon(node), _affine(node))})"


def _unit_norm(m: Any, node: Node) -> str:
    return f"layers.UnitNormalization(axis={sizes(node['axes'])})"


NORMS: dict[str, Constructor] = {
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "unit_norm": _unit_norm,
}
"""The norms that are known."""
