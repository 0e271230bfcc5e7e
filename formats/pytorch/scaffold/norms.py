"""Norms as PyTorch. Sources: torch 2.13 torch/nn/modules/{batchnorm,normalization}.py."""

from __future__ import annotations

from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import number
from rnnconvert.scaffolding.writer import Module, Rule


def over_channels(m: Module, node: Node, part: str, axis: int) -> str:
    """Return a call of a layer that wants the channels behind the batch."""
    x, last = m(node.x), len(node.x.shape) - 1
    if axis == 1:
        return f"{part}({x})"
    where = -1 if axis == last else axis
    return f"{part}({x}.movedim({where}, 1)).movedim(1, {where})"


def _affine(node: Node) -> str:
    return "" if node["scale"] or node["shift"] else ", affine=False"


def _batch_norm(m: Module, node: Node) -> str:
    rank = max(len(node.x.shape) - 2, 1)
    if rank > 3:
        raise m.refused(node, f"a batch norm over {rank} axes", "torch.nn.BatchNorm3d is the largest")
    words = f"{node['size']}, eps={number(node['epsilon'])}, momentum={1 - node['momentum']:.6g}{_affine(node)}"
    return over_channels(m, node, m.part(node.layer, f"nn.BatchNorm{rank}d({words})"), node["axis"])


def _layer_norm(m: Module, node: Node) -> str:
    size = node["sizes"][0] if len(node["sizes"]) == 1 else tuple(node["sizes"])
    plain = ", elementwise_affine=False" if not (node["scale"] or node["shift"]) else "" if node["shift"] else ", bias=False"
    part = m.part(node.layer, f"nn.LayerNorm({size}, eps={number(node['epsilon'])}{plain})")
    return f"{part}({m(node.x)})"


def _rms_norm(m: Module, node: Node) -> str:
    size = node["sizes"][0] if len(node["sizes"]) == 1 else tuple(node["sizes"])
    affine = "" if node["scale"] else ", elementwise_affine=False"
    part = m.part(node.layer, f"nn.RMSNorm({size}, eps={number(node['epsilon'])}{affine})")
    return f"{part}({m(node.x)})"


def _group_norm(m: Module, node: Node) -> str:
    words = f"{node['groups']}, {node['size']}, eps={number(node['epsilon'])}{_affine(node)}"
    return over_channels(m, node, m.part(node.layer, f"nn.GroupNorm({words})"), len(node.x.shape) - 1)


def _unit_norm(m: Module, node: Node) -> str:
    axes = node["axes"]
    return f"F.normalize({m(node.x)}, dim={axes[0] if len(axes) == 1 else axes}, eps={number(node['epsilon'])})"


NORMS: dict[str, Rule] = {
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "unit_norm": _unit_norm,
}
"""The norms that are known."""
