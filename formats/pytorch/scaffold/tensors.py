"""Operators on tensors as PyTorch: what graphs have between their layers. Sources: torch 2.13 torch/_torch_docs.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rnnconvert.scaffolding.description import Length, Node
from rnnconvert.scaffolding.writer import Module, Rule, number


def length(m: Module, node: Node, value: Length | int) -> str:
    """Return a length: a number, or the axes of variables that it is computed from."""
    if isinstance(value, int):
        return str(value)
    words = []
    for count, axes in sorted(value.terms, key=lambda term: -len(term[1])):
        factors = [f"{m(node.inputs[n])}.shape[{axis}]" if axis else f"len({m(node.inputs[n])})" for n, axis in axes]
        text = " * ".join([*([str(abs(count))] if abs(count) != 1 or not factors else []), *factors])
        words.append(f"{'-' if count < 0 else '+'} {text}")
    return " ".join(words).removeprefix("+ ").replace("- ", "-", 1) if words[0][0] == "-" else " ".join(words).removeprefix("+ ")


def _lengths(m: Module, node: Node, key: str = "lengths") -> str:
    return ", ".join(length(m, node, dim) for dim in node[key])


def _dtype(name: str) -> str:
    return f"torch.{name}"


_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "power": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "equal": "==",
    "not_equal": "!=",
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
}
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
    words = [number(value) if kind == "number" else m(node.inputs[value]) for kind, value in node["operands"]]
    operation = node["operation"]
    if operation in ("maximum", "minimum"):
        numbers = [word for word, (kind, _) in zip(words, node["operands"], strict=True) if kind == "number"]
        if numbers:
            rest = next(word for word in words if word not in numbers)
            return f"{rest}.clamp({'min' if operation == 'maximum' else 'max'}={numbers[0]})"
    if operation in _INFIX:
        first = f"({words[0]})" if operation == "power" and words[0].startswith("-") else words[0]
        return f"{first} {_INFIX[operation]} {words[1]}"
    return _CALLS.get(operation, f"torch.{operation}({{0}})").format(*words)


def _constant(m: Module, node: Node) -> str:
    numbers: Any = np.asarray(node["numbers"])
    plain = numbers.dtype.name in ("float32", "int64", "bool")
    return f"torch.tensor({_nested(numbers)}{'' if plain else f', dtype={_dtype(numbers.dtype.name)}'})"


def _nested(numbers: Any) -> str:
    if numbers.ndim:
        return f"[{', '.join(_nested(row) for row in numbers)}]"
    value = numbers.item()
    text = number(float(str(numbers)) if numbers.dtype == np.float32 and np.isfinite(value) else value)
    return f"{text}.0" if numbers.dtype.kind == "f" and text.lstrip("-").isdigit() else text


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


def _at(axis: int, text: str) -> str:
    """Return an index of one axis."""
    return f"[{', '.join([*[':'] * axis, text])}]"


def _slice(m: Module, node: Node) -> str:
    start, stop = ("" if node[key] is None else length(m, node, node[key]) for key in ("start", "end"))
    step = f":{node['step']}" if node["step"] > 1 else ""
    return m(node.x) + _at(node["axis"], f"{'' if start == '0' else start}:{stop}{step}")


def _split(m: Module, node: Node) -> str:
    sizes, axis = node["sizes"], node["axis"]
    dim = -1 if axis == len(node.x.shape) - 1 else axis
    even = len(set(sizes)) == 1
    text = f"{m(node.x)}.{f'chunk({len(sizes)}' if even else f'split({list(sizes)}'}, dim={dim})"
    m.release(node)
    m.line(
        f"{', '.join(m.new(value, 'part') if m.used(value) else '_' for value in node.outputs)}{',' * (len(sizes) == 1)} = {text}",
        node.y.shape if even else None,
    )
    return ""


def _top(m: Module, node: Node) -> str:
    text = f"{m(node.x)}.topk({node['count']}, dim={node['axis']}{'' if node['largest'] else ', largest=False'})"
    m.release(node)
    names = [m.new(value, word) if m.used(value) else "_" for value, word in zip(node.outputs, ("values", "indices"), strict=True)]
    m.line(f"{', '.join(names)} = {text}", node.y.shape)
    return ""


def _gather(m: Module, node: Node) -> str:
    indices = m(node.inputs[1])
    if node.inputs[1].dtype not in ("int32", "int64"):
        indices += ".long()"
    return m(node.x) + _at(node["axis"], indices)


def _gather_elements(m: Module, node: Node) -> str:
    return f"torch.take_along_dim({m(node.x)}, {m(node.inputs[1])}.long(), {node['axis']})"


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


def _method(pattern: str) -> Callable[[Module, Node], str]:
    """Return a rule that is one pattern of the variable and the settings."""
    return lambda m, node: pattern.format(x=m(node.x), **node.settings)


TENSORS: dict[str, Rule] = {
    "elementwise": _elementwise, "constant": _constant, "full": _full, "sizes": _sizes,
    "range": _range, "merge axes": _merge_axes, "split axis": _split_axis,
    "view": lambda m, node: f"{m(node.x)}.reshape({_lengths(m, node)})",
    "expand": lambda m, node: f"{m(node.x)}.expand({_lengths(m, node)})",
    "slice between": _slice, "split": _split, "top": _top, "gather": _gather, "gather elements": _gather_elements, "triangle": _triangle,
    "pad axes": _pad_axes, "one hot": _one_hot, "arg": _arg,
    "cumulative": _method("{x}.cumsum({axis})"), "tile": lambda m, node: f"{m(node.x)}.repeat({', '.join(map(str, node['by']))})",
    "einsum": lambda m, node: f'torch.einsum("{node["equation"]}", {", ".join(map(m, node.inputs))})',
}  # fmt: skip
"""The operators that are known."""
