"""Each kind of layer as PyTorch: its submodule and its line in forward. Sources: torch 2.13 torch/nn/modules and torch/nn/functional."""

from __future__ import annotations

from rnnconvert.formats.pytorch.scaffold.convolving import conv_lstm
from rnnconvert.formats.pytorch.scaffold.first import FIRST
from rnnconvert.formats.pytorch.scaffold.functions import FUNCTIONS
from rnnconvert.formats.pytorch.scaffold.recurrent import recurrent
from rnnconvert.formats.pytorch.scaffold.space import SPACE, bias
from rnnconvert.formats.pytorch.scaffold.tensors import TENSORS
from rnnconvert.scaffolding import rules
from rnnconvert.scaffolding.attention import attention, multi_head
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import last, letters, number
from rnnconvert.scaffolding.writer import Module, Rule


def _activation(m: Module, node: Node) -> str:
    pattern = FUNCTIONS.get(node["name"])
    x = m(node.x)
    if node["name"] == "bounded_relu":
        least, slope = number(node["threshold"]), number(node["alpha"])
        high = "" if node["highest"] is None else f".clamp(max={number(node['highest'])})"
        return f"torch.where({x} >= {least}, {x}{high}, {slope} * ({x} - {least}))"
    if pattern is None:
        raise m.refused(node, f"the activation {node['name']!r}", "PyTorch has no such function")
    return pattern.format(x=x, axis=node["axis"], alpha=f"{node['alpha']:.9g}" if node["alpha"] is not None else "")


def _dense(m: Module, node: Node) -> str:
    part = m.part(node.layer, f"nn.Linear({node.x.shape[-1]}, {node['units']}{bias(node)})")
    return f"{part}({m(node.x)})"


def _embedding(m: Module, node: Node) -> str:
    indices = m(node.x) if node.x.dtype in ("int32", "int64") else f"{m(node.x)}.long()"
    part = m.part(node.layer, f"nn.Embedding({node['input_size']}, {node['output_size']})")
    return f"{part}({indices})"


def _reduce(m: Module, node: Node) -> str:
    x, axes, keep = m(node.x), node["axes"], ", keepdim=True" if node["keep"] else ""
    if node.named.get("mask"):
        mask = f"{m(node.named['mask'][0])}.unsqueeze(-1)"
        return f"{x}.masked_fill(~{mask}, 0.0).sum(1{keep}) / {mask}.sum(1{keep})"
    word = {"max": "amax", "min": "amin"}.get(node["operation"], node["operation"])
    if word == "prod":  # of one axis at a time, the last first
        return x + "".join(f".prod({axis}{keep})" for axis in axes[::-1])
    return f"{x}.{word}({axes[0] if len(axes) == 1 else axes}{keep})"


def _prelu(m: Module, node: Node) -> str:
    *others, channels = node["slopes"]
    if any(size != 1 for size in others):
        raise m.refused(node, "a PReLU with a slope for each place", "torch.nn.PReLU has one for each channel")
    part = m.part(node.layer, f"nn.PReLU({channels})")
    return over_channels(m, node, part, len(node.x.shape) - 1)


def _dropout(m: Module, node: Node) -> str:
    kind = {"Dropout": "Dropout", "AlphaDropout": "AlphaDropout"}.get(node["name"], f"Dropout{node['name'][-2].lower()}d")
    part = m.part(node.layer, f"nn.{kind}({node['rate']:g})")
    return f"{part}({m(node.x)})" if kind[-1] != "d" else f"{part}({m(node.x)}.movedim(-1, 1)).movedim(1, -1)"


def _transpose(m: Module, node: Node) -> str:
    order = node["order"]
    swapped = [n for n, axis in enumerate(order) if n != axis]
    return (
        f"{m(node.x)}.transpose({swapped[0]}, {swapped[1]})" if len(swapped) == 2 else f"{m(node.x)}.permute({', '.join(map(str, order))})"
    )


def _repeat(m: Module, node: Node) -> str:
    return f"{m(node.x)}.unsqueeze(1).expand(-1, {node['count']}, -1)"


def _concatenate(m: Module, node: Node) -> str:
    dim = last(node["axis"], len(node.x.shape))
    return f"torch.cat([{', '.join(m(value) for value in node.inputs)}], dim={dim})"


def _stack(m: Module, node: Node) -> str:
    return f"torch.stack([{', '.join(m(value) for value in node.inputs)}], dim={last(node['axis'], len(node.y.shape))})"


def _flip(m: Module, node: Node) -> str:
    return f"{m(node.x)}.flip({', '.join(map(str, node['axes']))})"


def _parameter(m: Module, node: Node) -> str:
    whole = "" if node.y.dtype.startswith("float") else f", dtype=torch.{node.y.dtype}"
    zeros = f"torch.zeros({', '.join(map(str, node['sizes']))}{whole})"
    return m.part(node.layer, f"nn.Parameter({zeros}{', requires_grad=False' if whole else ''})")


def _weight(m: Module, node: Node) -> str:
    rows, width = node["sizes"]
    dense = f"nn.Linear({width}, {rows}{bias(node)})"
    part = m.part(node.layer, dense if node["of"] == "dense" else f"nn.Embedding({rows}, {width})")
    return f"{part}.{node['array']}"


def _dot(m: Module, node: Node) -> str:
    operands = [m(value) for value in node.inputs]
    if node["normalize"]:
        operands = [f"F.normalize({x}, dim={axis}, eps=1e-07)" for x, axis in zip(operands, node["axes"], strict=True)]
    equation = letters(node)
    return f'torch.einsum("{equation}", {operands[0]}, {operands[1]})' + (".unsqueeze(-1)" if equation.endswith(">b") else "")


_MASKS = {
    **rules.MASKS,
    "widened": "{0}.unsqueeze(-1)",
    "ones": "torch.ones_like({0}, dtype=torch.bool)",
    "zeros": "torch.zeros_like({0}, dtype=torch.bool)",
    "all true": "torch.ones_like({0}[..., 0], dtype=torch.bool)",
    "lengths": "torch.arange({1}.shape[1], device={1}.device) < {0}.unsqueeze(1)",
}


def _where(m: Module, node: Node) -> str:
    x, mask = m(node.x), f"{m(node.named['mask'][0])}.unsqueeze(-1)"
    if len(node.inputs) > 1:
        return f"torch.where({mask}, {x}, {m(node.inputs[1])})"
    return f"{x}.masked_fill(~{mask}, {float(node.settings.get('value', 0))!r})"


_ATTENTION = {
    "dot": "{q} @ {k}.transpose(1, 2)",
    "additive": "({each}torch.tanh({q}.unsqueeze(2) + {k}.unsqueeze(1))).sum(-1)",
    "weight": "nn.Parameter(torch.ones({sizes}))",
    "weighed": "{part}",
    "hidden": "torch.where({mask}, {s}, {s} - 1e9)",
    "causal": "torch.ones_like({s}[0], dtype=torch.bool).tril()",
    "softmax": "torch.softmax({s}, dim=-1)",
    "wide": "{mask}.unsqueeze(1)",
    "tall": "{mask}.unsqueeze(2)",
    "where": "({x}).masked_fill(~{mask}, 0.0)",
}


def _multi_head(m: Module, node: Node) -> str:
    return multi_head(m, node, _ATTENTION, "MultiHeadAttention({words})")


def _model(m: Module, node: Node) -> str:
    part = m.part(node.layer, f"{m.file.classes[id(node['scope'])]}()")
    return rules.submodel(m, node, f"{part}({', '.join(m(value) for value in node.inputs)})")


# Norms as PyTorch. Sources: torch 2.13 torch/nn/modules/{batchnorm,normalization}.py.


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


RULES: dict[str, Rule] = {
    "loop": rules.loop(lambda: RULES, "torch.stack({})"),
    **rules.RULES, **SPACE, **NORMS,
    "dense": _dense, "embedding": _embedding, "activation": _activation, "reduce": _reduce,
    "prelu": _prelu, "dropout": _dropout,
    "flatten": lambda m, node: f"{m(node.x)}.flatten(1)", "transpose": _transpose, "repeat": _repeat,
    "arithmetic": rules.arithmetic("torch", "{}.unsqueeze(1)"), "concatenate": _concatenate, "dot": _dot,
    "mask": rules.masks(_MASKS, "keepdim"), "zero masked": _where, "where": _where,
    "attention": lambda m, node: attention(m, node, _ATTENTION), "multi_head": _multi_head, "stack": _stack,
    "clip": rules.clipped("clamp"), "flip": _flip, "parameter": _parameter, "layer's weight": _weight,
    "unsqueeze": lambda m, node: f"{m(node.x)}.unsqueeze({last(node['axis'], len(node.y.shape))})",
    "cast": lambda m, node: f"{m(node.x)}.to(torch.{node['dtype']})", "model": _model, "recurrent": recurrent, "conv_lstm": conv_lstm,
    "steps to batch": lambda m, node: f"{m(node.x)}.flatten(0, 1)",
    "batch to steps": lambda m, node: f"{m(node.x)}.unflatten(0, {m(node.inputs[1])}.shape[:2])", **TENSORS, **FIRST,
}  # fmt: skip
"""The kinds that are known."""
