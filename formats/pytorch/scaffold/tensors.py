"""Operators on tensors as PyTorch: what graphs have between their layers. Sources: torch 2.13 torch/_torch_docs.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.operators import SIGNS, at, bounds, length, nested, operands, signed, unpacked
from rnnconvert.scaffolding.spelling import last, number
from rnnconvert.scaffolding.writer import Module, Rule


def _lengths(m: Module, node: Node) -> str:
    return ", ".join(length(m, node, dim) for dim in node["lengths"])


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


def _elementwise(m: Module, node: Node) -> str:
    words, operation = operands(m, node), node["operation"]
    if operation in ("maximum", "minimum"):
        numbers = [word for word, (kind, _) in zip(words, node["operands"], strict=True) if kind == "number"]
        if numbers:
            rest = next(word for word in words if word not in numbers)
            return f"{rest}.clamp({'min' if operation == 'maximum' else 'max'}={numbers[0]})"
    if operation in _SIGNS:
        return signed(words, _SIGNS[operation])
    return _CALLS.get(operation, f"torch.{operation}({{0}})").format(*words)


def _constant(m: Module, node: Node) -> str:
    numbers: Any = np.asarray(node["numbers"])
    plain = numbers.dtype.name in ("float32", "int64", "bool")
    return f"torch.tensor({nested(numbers)}{'' if plain else f', dtype={_dtype(numbers.dtype.name)}'})"


def _full(m: Module, node: Node) -> str:
    sizes, value, dtype = _lengths(m, node), node["number"], node.y.dtype
    more = "" if dtype == "float32" else f", dtype={_dtype(dtype)}"
    if value in (0, 1) and not isinstance(value, bool):
        return f"torch.{'ones' if value else 'zeros'}({sizes or '()'}{more})"
    return f"torch.full(({sizes}{',' if len(node['lengths']) == 1 else ''}), {number(value)}{more})"


def _sizes(m: Module, node: Node) -> str:
    inside = _lengths(m, node)
    more = "" if node.y.dtype == "int64" else f", dtype={_dtype(node.y.dtype)}"
    return f"torch.tensor({inside if not node.y.shape else f'[{inside}]'}{more})"


def _range(m: Module, node: Node) -> str:
    start, stop = (length(m, node, node[key]) for key in ("start", "stop"))
    words = [stop] if start == "0" and node["step"] == 1 else [start, stop, *([str(node["step"])] if node["step"] > 1 else [])]
    more = [] if node.y.dtype == "int64" else [f"dtype={_dtype(node.y.dtype)}"]
    return f"torch.arange({', '.join([*words, *more])})"


def _merge_axes(m: Module, node: Node) -> str:
    start, stop = node["start"], node["stop"]
    last = stop == len(node.x.shape) - 1
    return f"{m(node.x)}.flatten({start}{'' if last else f', {stop}'})"


def _split_axis(m: Module, node: Node) -> str:
    last = node["axis"] == len(node.x.shape) - 1
    return f"{m(node.x)}.unflatten({-1 if last else node['axis']}, ({_lengths(m, node)}))"


def _split(m: Module, node: Node) -> str:
    sizes, even = node["sizes"], len(set(node["sizes"])) == 1
    parts = f"chunk({len(sizes)}" if even else f"split({list(sizes)}"
    text = f"{m(node.x)}.{parts}, dim={last(node['axis'], len(node.x.shape))})"
    return unpacked(m, node, text, ["part"] * len(sizes), even)


def _top(m: Module, node: Node) -> str:
    if isinstance(node["count"], int):
        text = f"{m(node.x)}.topk({node['count']}, dim={node['axis']}{'' if node['largest'] else ', largest=False'})"
    else:  # all of an open axis, of equal numbers the first one first
        text = f"{m(node.x)}.sort(dim={node['axis']}{', descending=True' if node['largest'] else ''}, stable=True)"
    return unpacked(m, node, text, ["values", "indices"])


def _gather(m: Module, node: Node) -> str:
    indices = m(node.inputs[1])
    if node.inputs[1].dtype not in ("int32", "int64"):
        indices += ".long()"
    return m(node.x) + at(node["axis"], indices)


def _gather_elements(m: Module, node: Node) -> str:
    return f"{m(node.x)}.gather({node['axis']}, {m(node.inputs[1])}.long())"


def _triangle(m: Module, node: Node) -> str:
    by = f", {node['diagonal']}" if node["diagonal"] else ""
    return f"torch.{'triu' if node['upper'] else 'tril'}({m(node.x)}{by})"


def _pad_axes(m: Module, node: Node) -> str:
    pairs = list(node["pairs"])
    while not any(pairs[0]):
        pairs.pop(0)
    flat = ", ".join(str(n) for pair in pairs[::-1] for n in pair)
    word = "replicate" if node["mode"] == "edge" else node["mode"]
    mode = "" if word == "constant" else f', mode="{word}"'
    value = f", value={number(node['number'])}" if node["number"] else ""
    return f"F.pad({m(node.x)}, ({flat}){mode}{value})"


def _one_hot(m: Module, node: Node) -> str:
    text = f"F.one_hot({m(node.x)}.long(), {node['count']})"
    return text if node.y.dtype == "int64" else f"{text}.to({_dtype(node.y.dtype)})"


def _arg(m: Module, node: Node) -> str:
    return f"{m(node.x)}.{node['operation']}({node['axis']}{', keepdim=True' if node['keep'] else ''})"


TENSORS: dict[str, Rule] = {
    "elementwise": _elementwise, "constant": _constant, "full": _full, "sizes": _sizes,
    "range": _range, "merge axes": _merge_axes, "split axis": _split_axis,
    "view": lambda m, node: f"{m(node.x)}.reshape({_lengths(m, node)})",
    "expand": lambda m, node: f"{m(node.x)}.expand({_lengths(m, node)})",
    "slice between": lambda m, node: m(node.x) + bounds(m, node),
    "cut to the longest": lambda m, node: f"{m(node.x)}[:, : {m(node.inputs[1])}.max()]",
    "select between": lambda m, node: m(node.x) + at(node["axis"], length(m, node, node["index"])),
    "split": _split, "top": _top, "gather": _gather, "gather elements": _gather_elements, "triangle": _triangle,
    "pad axes": _pad_axes, "one hot": _one_hot, "arg": _arg,
    "cumulative": lambda m, node: f"{m(node.x)}.cumsum({node['axis']})",
    "tile": lambda m, node: f"{m(node.x)}.repeat({', '.join(map(str, node['by']))})",
    "einsum": lambda m, node: f'torch.einsum("{node["equation"]}", {", ".join(map(m, node.inputs))})',
}  # fmt: skip
"""The operators that are known."""
