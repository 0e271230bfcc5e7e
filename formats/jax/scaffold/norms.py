"""Norms as Flax nnx. Sources: flax 0.12 flax/nnx/nn/normalization.py."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.jax.scaffold.space import constructed
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import number
from rnnconvert.scaffolding.writer import Rule


def _affine(node: Node) -> list[str]:
    return ["" if node["scale"] else "use_scale=False", "" if node["shift"] else "use_bias=False"]


def _epsilon(node: Node) -> str:
    return f"epsilon={number(node['epsilon'])}"


def _batch_norm(m: Any, node: Node) -> str:
    axis = "" if node["axis"] == len(node.x.shape) - 1 else f"axis={node['axis']}"
    return constructed(
        m, node, "BatchNorm", str(node["size"]), axis, f"momentum={number(round(node['momentum'], 12))}", _epsilon(node), *_affine(node)
    )


def _norm(kind: str) -> Rule:
    def rule(m: Any, node: Node) -> str:
        if len(node["sizes"]) != 1:
            words = [m.helper("NormOverAxes"), str(tuple(node["sizes"])), _epsilon(node), *_affine(node)]
            words = words if kind == "LayerNorm" else [*words[:4], "use_bias=False", "centered=False"]
            part = m.part(node.layer, f"{words[0]}({', '.join(filter(None, words[1:]))})")
            return f"{part}({m(node.x)})"
        affine = _affine(node) if kind == "LayerNorm" else _affine(node)[:1]
        return constructed(m, node, kind, str(node["sizes"][0]), _epsilon(node), *affine, "use_fast_variance=False")

    return rule


def _group_norm(m: Any, node: Node) -> str:
    return constructed(
        m, node, "GroupNorm", str(node["size"]), f"num_groups={node['groups']}", _epsilon(node), *_affine(node), "use_fast_variance=False"
    )


def _unit_norm(m: Any, node: Node) -> str:
    return normalized(m(node.x), node["axes"] if len(node["axes"]) > 1 else node["axes"][0], node["epsilon"])


def normalized(x: str, axis: Any, epsilon: float) -> str:
    return f"{x} / jnp.maximum(jnp.linalg.norm({x}, axis={axis}, keepdims=True), {number(epsilon)})"


NORMS: dict[str, Rule] = {
    "batch_norm": _batch_norm,
    "layer_norm": _norm("LayerNorm"),
    "rms_norm": _norm("RMSNorm"),
    "group_norm": _group_norm,
    "unit_norm": _unit_norm,
}
"""The norms that are known."""
