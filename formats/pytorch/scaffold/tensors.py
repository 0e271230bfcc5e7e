"""Operators on tensors as PyTorch: what graphs have between their layers. Sources: torch 2.13 torch/_torch_docs.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, on
from rnnconvert.scaffolding.operators import SIGNS, at, bounds, length, nested, operands, signed, unpacked
from rnnconvert.scaffolding.spelling import last, number
from rnnconvert.scaffolding.writer import Module, Rule


def _lengths(m: Module, node: Node[kinds.Expand | kinds.Full | kinds.LengthsTensor | kinds.SplitAxis | kinds.View]) -> str:
    return ", ".join(length(m, node, dim) for dim in node.kind.lengths)


def _dtype(name: str) -> str:
    return f"torch.{name}"


_SIGNS = {
    **SIGNS, "and": "&", "or": "|", "xor": "^", "equal": "==", "not_equal": "!=", "greater": ">", "greater_equal": ">=", "less": "<",
    "less_equal": "<=",
}  # fmt: skip
_CALLS = {
    "maximum": "torch.maximum({0}, {1})",
    "minimum": "torch.minimum({0}, {1})",
    "remainder": "torch.remainder({0}, {1})",
    "remainder towards zero": "torch.fmod({0}, {1})",
    "divide towards zero": 'torch.div({0}, {1}, rounding_mode="trunc")',
    "where": "torch.where({0}, {1}, {2})",
    "not": "~{0}",
    "neg": "-{0}",
    "reciprocal": "1 / {0}",
    "square": "{0} ** 2",
}


def _elementwise(m: Module, node: Node[kinds.Elementwise]) -> str:
    words, operation = operands(m, node), node.kind.operation
    if operation in ("maximum", "minimum"):
        numbers = [word for word, (kind, _) in zip(words, node.kind.operands, strict=True) if kind == "number"]
        if numbers:
            rest = next(word for word in words if word not in numbers)
            return f"{rest}.clamp({'min' if operation == 'maximum' else 'max'}={numbers[0]})"
    if operation in _SIGNS:
        return signed(words, _SIGNS[operation])
    return _CALLS.get(operation, f"torch.{operation}({{0}})").format(*words)


def _constant(m: Module, node: Node[kinds.Constant]) -> str:
    numbers: Any = np.asarray(node.kind.numbers)
    plain = numbers.dtype.name in ("float32", "int64", "bool")
    return f"torch.tensor({nested(numbers)}{'' if plain else f', dtype={_dtype(numbers.dtype.name)}'})"


def _full(m: Module, node: Node[kinds.Full]) -> str:
    sizes, value, dtype = _lengths(m, node), node.kind.number, node.y.dtype
    more = "" if dtype == "float32" else f", dtype={_dtype(dtype)}"
    if value in (0, 1) and not isinstance(value, bool):
        return f"torch.{'ones' if value else 'zeros'}({sizes or '()'}{more})"
    return f"torch.full(({sizes}{',' if len(node.kind.lengths) == 1 else ''}), {number(value)}{more})"


def _sizes(m: Module, node: Node[kinds.LengthsTensor]) -> str:
    inside = _lengths(m, node)
    more = "" if node.y.dtype == "int64" else f", dtype={_dtype(node.y.dtype)}"
    return f"torch.tensor({inside if not node.y.shape else f'[{inside}]'}{more})"


def _range(m: Module, node: Node[kinds.Range]) -> str:
    start, stop = (length(m, node, end) for end in (node.kind.start, node.kind.stop))
    words = [stop] if start == "0" and node.kind.step == 1 else [start, stop, *([str(node.kind.step)] if node.kind.step > 1 else [])]
    more = [] if node.y.dtype == "int64" else [f"dtype={_dtype(node.y.dtype)}"]
    return f"torch.arange({', '.join([*words, *more])})"


def _merge_axes(m: Module, node: Node[kinds.MergeAxes]) -> str:
    start, stop = node.kind.start, node.kind.stop
    last = stop == len(node.x.shape) - 1
    return f"{m(node.x)}.flatten({start}{'' if last else f', {stop}'})"


def _split_axis(m: Module, node: Node[kinds.SplitAxis]) -> str:
    last = node.kind.axis == len(node.x.shape) - 1
    return f"{m(node.x)}.unflatten({-1 if last else node.kind.axis}, ({_lengths(m, node)}))"


def _split(m: Module, node: Node[kinds.Split]) -> str:
    sizes, even = node.kind.sizes, len(set(node.kind.sizes)) == 1
    parts = f"chunk({len(sizes)}" if even else f"split({list(sizes)}"
    text = f"{m(node.x)}.{parts}, dim={last(node.kind.axis, len(node.x.shape))})"
    return unpacked(m, node, text, ["part"] * len(sizes), even)


def _top(m: Module, node: Node[kinds.Top]) -> str:
    if isinstance(node.kind.count, int):
        text = f"{m(node.x)}.topk({node.kind.count}, dim={node.kind.axis}{'' if node.kind.largest else ', largest=False'})"
    else:  # all of an open axis, of equal numbers the first one first
        text = f"{m(node.x)}.sort(dim={node.kind.axis}{', descending=True' if node.kind.largest else ''}, stable=True)"
    return unpacked(m, node, text, ["values", "indices"])


def _gather(m: Module, node: Node[kinds.Gather]) -> str:
    indices = m(node.inputs[1])
    if node.inputs[1].dtype not in ("int32", "int64"):
        indices += ".long()"
    return m(node.x) + at(node.kind.axis, indices)


def _gather_elements(m: Module, node: Node[kinds.GatherElements]) -> str:
    return f"{m(node.x)}.gather({node.kind.axis}, {m(node.inputs[1])}.long())"


def _triangle(m: Module, node: Node[kinds.Triangle]) -> str:
    by = f", {node.kind.diagonal}" if node.kind.diagonal else ""
    return f"torch.{'triu' if node.kind.upper else 'tril'}({m(node.x)}{by})"


def _pad_axes(m: Module, node: Node[kinds.PadAxes]) -> str:
    pairs = list(node.kind.pairs)
    while not any(pairs[0]):
        pairs.pop(0)
    flat = ", ".join(str(n) for pair in pairs[::-1] for n in pair)
    word = "replicate" if node.kind.mode == "edge" else node.kind.mode
    mode = "" if word == "constant" else f', mode="{word}"'
    value = f", value={number(node.kind.number)}" if node.kind.number else ""
    return f"F.pad({m(node.x)}, ({flat}){mode}{value})"


def _one_hot(m: Module, node: Node[kinds.OneHot]) -> str:
    text = f"F.one_hot({m(node.x)}.long(), {node.kind.count})"
    return text if node.y.dtype == "int64" else f"{text}.to({_dtype(node.y.dtype)})"


def _arg(m: Module, node: Node[kinds.Arg]) -> str:
    return f"{m(node.x)}.{node.kind.operation}({node.kind.axis}{', keepdim=True' if node.kind.keep else ''})"


TENSORS: dict[type[kinds.Kind], Rule] = {
    **on(kinds.Elementwise, _elementwise), **on(kinds.Constant, _constant), **on(kinds.Full, _full), **on(kinds.LengthsTensor, _sizes),
    **on(kinds.Range, _range), **on(kinds.MergeAxes, _merge_axes), **on(kinds.SplitAxis, _split_axis),
    **on(kinds.View, lambda m, node: f"{m(node.x)}.reshape({_lengths(m, node)})"),
    **on(kinds.Expand, lambda m, node: f"{m(node.x)}.expand({_lengths(m, node)})"),
    **on(kinds.SliceBetween, lambda m, node: m(node.x) + bounds(m, node)),
    **on(kinds.CutToLongest, lambda m, node: f"{m(node.x)}[:, : {m(node.inputs[1])}.max()]"),
    **on(kinds.SelectBetween, lambda m, node: m(node.x) + at(node.kind.axis, length(m, node, node.kind.index))), **on(kinds.Split, _split),
    **on(kinds.Top, _top), **on(kinds.Gather, _gather), **on(kinds.GatherElements, _gather_elements), **on(kinds.Triangle, _triangle),
    **on(kinds.PadAxes, _pad_axes), **on(kinds.OneHot, _one_hot), **on(kinds.Arg, _arg),
    **on(kinds.Cumulative, lambda m, node: f"{m(node.x)}.cumsum({node.kind.axis})"),
    **on(kinds.Tile, lambda m, node: f"{m(node.x)}.repeat({', '.join(map(str, node.kind.by))})"),
    **on(kinds.Einsum, lambda m, node: f'torch.einsum("{node.kind.equation}", {", ".join(map(m, node.inputs))})'),
}  # fmt: skip
"""The operators that are known."""
