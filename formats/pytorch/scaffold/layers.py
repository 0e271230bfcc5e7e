"""Each kind of layer as PyTorch: its submodule and its line in forward. Sources: torch 2.13 torch/nn/modules and torch/nn/functional."""

from __future__ import annotations

from rnnconvert.formats.pytorch.scaffold.convolving import conv_lstm
from rnnconvert.formats.pytorch.scaffold.functions import FUNCTIONS
from rnnconvert.formats.pytorch.scaffold.recurrent import recurrent
from rnnconvert.formats.pytorch.scaffold.space import SPACE, bias
from rnnconvert.formats.pytorch.scaffold.tensors import TENSORS
from rnnconvert.scaffolding import kinds, rules
from rnnconvert.scaffolding.attention import attention, multi_head
from rnnconvert.scaffolding.description import Node, on
from rnnconvert.scaffolding.spelling import last, letters, number
from rnnconvert.scaffolding.writer import Module, Rule


def _activation(m: Module, node: Node[kinds.Activation]) -> str:
    pattern = FUNCTIONS.get(node.kind.name)
    x = m(node.x)
    if node.kind.name == "bounded_relu":
        least, slope = number(node.kind.threshold), number(node.kind.alpha or 0.0)
        high = "" if node.kind.highest is None else f".clamp(max={number(node.kind.highest)})"
        return f"torch.where({x} >= {least}, {x}{high}, {slope} * ({x} - {least}))"
    if pattern is None:
        raise m.refused(node, f"the activation {node.kind.name!r}", "PyTorch has no such function")
    return pattern.format(x=x, axis=node.kind.axis, alpha=f"{node.kind.alpha:.9g}" if node.kind.alpha is not None else "")


def _dense(m: Module, node: Node[kinds.Dense]) -> str:
    part = m.part(node.layer, f"nn.Linear({node.x.shape[-1]}, {node.kind.units}{bias(node)})")
    return f"{part}({m(node.x)})"


def _embedding(m: Module, node: Node[kinds.Embedding]) -> str:
    indices = m(node.x) if node.x.dtype in ("int32", "int64") else f"{m(node.x)}.long()"
    part = m.part(node.layer, f"nn.Embedding({node.kind.input_size}, {node.kind.output_size})")
    return f"{part}({indices})"


def _reduce(m: Module, node: Node[kinds.Reduce]) -> str:
    x, axes, keep = m(node.x), node.kind.axes, ", keepdim=True" if node.kind.keep else ""
    if node.named.get("mask"):
        mask = f"{m(node.named['mask'][0])}.unsqueeze(-1)"
        return f"{x}.masked_fill(~{mask}, 0.0).sum(1{keep}) / {mask}.sum(1{keep})"
    word = {"max": "amax", "min": "amin"}.get(node.kind.operation, node.kind.operation)
    if word == "prod":  # of one axis at a time, the last first
        return x + "".join(f".prod({axis}{keep})" for axis in axes[::-1])
    return f"{x}.{word}({axes[0] if len(axes) == 1 else axes}{keep})"


def _prelu(m: Module, node: Node[kinds.PReLU]) -> str:
    if not node.kind.by_channel:
        slopes = m.part(node.layer, f"nn.Parameter(torch.zeros({', '.join(map(str, node.kind.slopes))}))")
        return f"torch.where({m(node.x)} > 0, {m(node.x)}, {slopes} * {m(node.x)})"
    (axis,) = node.kind.axes or (1,)
    return over_channels(m, node, m.part(node.layer, f"nn.PReLU({node.kind.slopes[axis - 1]})"), axis)


def _dropout(m: Module, node: Node[kinds.Dropout]) -> str:
    kind = {"Dropout": "Dropout", "AlphaDropout": "AlphaDropout"}.get(node.kind.name, f"Dropout{node.kind.name[-2].lower()}d")
    part = m.part(node.layer, f"nn.{kind}({node.kind.rate:g})")
    return f"{part}({m(node.x)})" if kind[-1] != "d" else f"{part}({m(node.x)}.movedim(-1, 1)).movedim(1, -1)"


def _transpose(m: Module, node: Node[kinds.Transpose]) -> str:
    order = node.kind.order
    swapped = [n for n, axis in enumerate(order) if n != axis]
    return (
        f"{m(node.x)}.transpose({swapped[0]}, {swapped[1]})" if len(swapped) == 2 else f"{m(node.x)}.permute({', '.join(map(str, order))})"
    )


def _repeat(m: Module, node: Node[kinds.Repeat]) -> str:
    return f"{m(node.x)}.unsqueeze(1).expand(-1, {node.kind.count}, -1)"


def _concatenate(m: Module, node: Node[kinds.Concatenate]) -> str:
    dim = last(node.kind.axis, len(node.x.shape))
    return f"torch.cat([{', '.join(m(value) for value in node.inputs)}], dim={dim})"


def _stack(m: Module, node: Node[kinds.Stack]) -> str:
    return f"torch.stack([{', '.join(m(value) for value in node.inputs)}], dim={last(node.kind.axis, len(node.y.shape))})"


def _flip(m: Module, node: Node[kinds.Flip]) -> str:
    return f"{m(node.x)}.flip({', '.join(map(str, node.kind.axes))})"


def _parameter(m: Module, node: Node[kinds.Parameter]) -> str:
    dtype = "" if node.y.dtype.startswith("float") else f", dtype=torch.{node.y.dtype}"
    zeros = f"torch.zeros({', '.join(map(str, node.kind.sizes))}{dtype})"
    return m.part(node.layer, f"nn.Parameter({zeros}{', requires_grad=False' if dtype else ''})")


def _weight(m: Module, node: Node[kinds.LayerWeight]) -> str:
    rows, width = node.kind.sizes
    dense = f"nn.Linear({width}, {rows}{bias(node)})"
    part = m.part(node.layer, dense if node.kind.of == "dense" else f"nn.Embedding({rows}, {width})")
    return f"{part}.{node.kind.array}"


def _dot(m: Module, node: Node[kinds.Dot]) -> str:
    operands = [m(value) for value in node.inputs]
    if node.kind.normalize:
        operands = [f"F.normalize({x}, dim={axis}, eps=1e-07)" for x, axis in zip(operands, node.kind.axes, strict=True)]
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


def _where(m: Module, node: Node[kinds.Where | kinds.ZeroMasked]) -> str:
    x, mask = m(node.x), f"{m(node.named['mask'][0])}.unsqueeze(-1)"
    if len(node.inputs) > 1:
        return f"torch.where({mask}, {x}, {m(node.inputs[1])})"
    return f"{x}.masked_fill(~{mask}, {float(node.kind.value)!r})"


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


def _multi_head(m: Module, node: Node[kinds.MultiHead]) -> str:
    return multi_head(m, node, _ATTENTION, "MultiHeadAttention({words})")


def _model(m: Module, node: Node[kinds.Model]) -> str:
    part = m.part(node.layer, f"{m.file.classes[id(node.kind.scope)]}()")
    return rules.submodel(m, node, f"{part}({', '.join(m(value) for value in node.inputs)})")


# Norms as PyTorch. Sources: torch 2.13 torch/nn/modules/{batchnorm,normalization}.py.


def over_channels(m: Module, node: Node[kinds.Kind], part: str, axis: int) -> str:
    """Return a call of a layer that wants the channels behind the batch."""
    x, last = m(node.x), len(node.x.shape) - 1
    if axis == 1:
        return f"{part}({x})"
    where = -1 if axis == last else axis
    return f"{part}({x}.movedim({where}, 1)).movedim(1, {where})"


def _affine(node: Node[kinds.BatchNorm | kinds.GroupNorm]) -> str:
    return "" if node.kind.scale or node.kind.shift else ", affine=False"


def _batch_norm(m: Module, node: Node[kinds.BatchNorm]) -> str:
    rank = max(len(node.x.shape) - 2, 1)
    if rank > 3:
        raise m.refused(node, f"a batch norm over {rank} axes", "torch.nn.BatchNorm3d is the largest")
    words = f"{node.kind.size}, eps={number(node.kind.epsilon)}, momentum={1 - node.kind.momentum:.6g}{_affine(node)}"
    return over_channels(m, node, m.part(node.layer, f"nn.BatchNorm{rank}d({words})"), node.kind.axis)


def _layer_norm(m: Module, node: Node[kinds.LayerNorm]) -> str:
    size = node.kind.sizes[0] if len(node.kind.sizes) == 1 else tuple(node.kind.sizes)
    plain = ", elementwise_affine=False" if not (node.kind.scale or node.kind.shift) else "" if node.kind.shift else ", bias=False"
    part = m.part(node.layer, f"nn.LayerNorm({size}, eps={number(node.kind.epsilon)}{plain})")
    return f"{part}({m(node.x)})"


def _rms_norm(m: Module, node: Node[kinds.RMSNorm]) -> str:
    size = node.kind.sizes[0] if len(node.kind.sizes) == 1 else tuple(node.kind.sizes)
    affine = "" if node.kind.scale else ", elementwise_affine=False"
    part = m.part(node.layer, f"nn.RMSNorm({size}, eps={number(node.kind.epsilon)}{affine})")
    return f"{part}({m(node.x)})"


def _group_norm(m: Module, node: Node[kinds.GroupNorm]) -> str:
    words = f"{node.kind.groups}, {node.kind.size}, eps={number(node.kind.epsilon)}{_affine(node)}"
    return over_channels(m, node, m.part(node.layer, f"nn.GroupNorm({words})"), node.kind.axis)


def _instance_norm(m: Module, node: Node[kinds.InstanceNorm]) -> str:
    rank = len(node.x.shape) - 2
    part = m.part(node.layer, f"nn.InstanceNorm{rank}d({node.kind.size}, eps={number(node.kind.epsilon)}, affine=True)")
    return f"{part}({m(node.x)})"


def _unit_norm(m: Module, node: Node[kinds.UnitNorm]) -> str:
    axes = node.kind.axes
    return f"F.normalize({m(node.x)}, dim={axes[0] if len(axes) == 1 else axes}, eps={number(node.kind.epsilon)})"


NORMS: dict[type[kinds.Kind], Rule] = {
    **on(kinds.BatchNorm, _batch_norm),
    **on(kinds.LayerNorm, _layer_norm),
    **on(kinds.RMSNorm, _rms_norm),
    **on(kinds.GroupNorm, _group_norm),
    **on(kinds.InstanceNorm, _instance_norm),
    **on(kinds.UnitNorm, _unit_norm),
}
"""The norms that are known."""


RULES: dict[type[kinds.Kind], Rule] = {
    **on(kinds.Loop, rules.loop(lambda: RULES, "torch.stack({})")), **rules.RULES, **SPACE, **NORMS, **on(kinds.Dense, _dense),
    **on(kinds.Embedding, _embedding), **on(kinds.Activation, _activation), **on(kinds.Reduce, _reduce), **on(kinds.PReLU, _prelu),
    **on(kinds.Dropout, _dropout), **on(kinds.Flatten, lambda m, node: f"{m(node.x)}.flatten(1)"), **on(kinds.Transpose, _transpose),
    **on(kinds.Repeat, _repeat), **on(kinds.Arithmetic, rules.arithmetic("torch", "{}.unsqueeze(1)")),
    **on(kinds.Concatenate, _concatenate), **on(kinds.Dot, _dot), **on(kinds.Mask, rules.masks(_MASKS, "keepdim")),
    **on(kinds.ZeroMasked, _where), **on(kinds.Where, _where), **on(kinds.Attention, lambda m, node: attention(m, node, _ATTENTION)),
    **on(kinds.MultiHead, _multi_head), **on(kinds.Stack, _stack), **on(kinds.Clip, rules.clipped("clamp")), **on(kinds.Flip, _flip),
    **on(kinds.Parameter, _parameter), **on(kinds.LayerWeight, _weight),
    **on(kinds.Unsqueeze, lambda m, node: f"{m(node.x)}.unsqueeze({last(node.kind.axis, len(node.y.shape))})"),
    **on(kinds.Cast, lambda m, node: f"{m(node.x)}.to(torch.{node.kind.dtype})"), **on(kinds.Model, _model),
    **on(kinds.Recurrent, recurrent), **on(kinds.ConvLSTM, conv_lstm),
    **on(kinds.StepsToBatch, lambda m, node: f"{m(node.x)}.flatten(0, 1)"),
    **on(kinds.BatchToSteps, lambda m, node: f"{m(node.x)}.unflatten(0, {m(node.inputs[1])}.shape[:2])"), **TENSORS,
}  # fmt: skip
"""The kinds that are known."""
