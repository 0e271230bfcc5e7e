"""Operators on tensors as lines of code: what targets share, and all of it for libraries that call their functions as numpy does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import ComputedLength, Length, Node, Value, on
from rnnconvert.scaffolding.spelling import last, number
from rnnconvert.scaffolding.writer import Rule

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**"}
"""The operators that Python has a sign for, on tensors of numbers."""


def length(m: Any, node: Node[kinds.Kind], value: Length | int) -> str:
    """Return a length: a number, or the axes of variables that it is computed from."""
    if isinstance(value, int):
        return str(value)
    words = []
    for count, factors in sorted(value.terms, key=lambda term: -len(term[1])):
        texts = [_factor(m, node, factor) for factor in factors]
        if len(value.terms) == len(texts) == count == 1:
            return texts[0]
        texts = [f"({text})" if " // " in text and not text.endswith(")") else text for text in texts]
        text = " * ".join([*([str(abs(count))] if abs(count) != 1 or not texts else []), *texts])
        words.append(f"{'-' if count < 0 else '+'} {text}")
    return " ".join(words).removeprefix("+ ").replace("- ", "-", 1) if words[0][0] == "-" else " ".join(words).removeprefix("+ ")


def _factor(m: Any, node: Node[kinds.Kind], factor: tuple[int, int] | ComputedLength) -> str:
    """Return a factor of a length: an axis of a variable, or what Python computes."""
    if isinstance(factor, tuple):
        number, axis = factor
        return f"{m(node.inputs[number])}.shape[{axis}]" if axis else f"len({m(node.inputs[number])})"
    operands = [length(m, node, operand) for operand in factor.operands]
    if factor.function in ("min", "max"):
        return f"{factor.function}({', '.join(operands)})"
    first, second = (f"({operand})" if " " in operand else operand for operand in operands)
    return f"{first} // {second}" if factor.function == "//" else f"{'int' if factor.function == 'trunc' else 'round'}({first} / {second})"


def at(axis: int, text: str) -> str:
    """Return an index of one axis."""
    return f"[{', '.join([*[':'] * axis, text])}]"


def operands(m: Any, node: Node[kinds.Elementwise]) -> list[str]:
    """Return the operands of an elementwise node: variables, and numbers as they are written."""
    return [number(value) if kind == "number" else m(node.inputs[value]) for kind, value in node.kind.operands]


def signed(words: Sequence[str], sign: str) -> str:
    """Return two operands with a sign between them; a power of a number below zero needs brackets."""
    first = f"({words[0]})" if sign == "**" and words[0].startswith("-") else words[0]
    return f"{first} {sign} {words[1]}"


def nested(numbers: Any) -> str:
    """Return numbers of an array as nested lists."""
    if numbers.ndim:
        return f"[{', '.join(nested(row) for row in numbers)}]"
    value = numbers.item()
    text = number(float(str(numbers)) if numbers.dtype == np.float32 and np.isfinite(value) else value)
    return f"{text}.0" if numbers.dtype.kind == "f" and text.lstrip("-").isdigit() else text


def bounds(m: Any, node: Node[kinds.SliceBetween]) -> str:
    """Return the steps of a slice between lengths, as an index."""
    start, stop = ("" if end is None else length(m, node, end) for end in (node.kind.start, node.kind.end))
    step = f":{node.kind.step}" if node.kind.step > 1 else ""
    return at(node.kind.axis, f"{'' if start == '0' else start}:{stop}{step}")


def unpacked(m: Any, node: Node[kinds.Kind], text: str, names: Sequence[str], alike: bool = True) -> str:
    """Write the line of a node of several outputs, each a variable.

    alike  whether all have the axes of the first
    """
    m.release(node)
    variables = [m.new(value, word) if m.used(value) else "_" for value, word in zip(node.outputs, names, strict=True)]
    m.line(f"{', '.join(variables)}{',' * (len(variables) == 1)} = {text}", node.y.shape if alike else None)
    return ""


@dataclass(frozen=True)
class Library:
    """A library that calls most functions as numpy does.

    name      the variable that it is
    patterns  functions that it spells otherwise, by their words here: with {0}, {1} for their operands and {more} for words behind
    lacks     the words of those that it does not have
    types     element types that it spells otherwise than as their names
    reshape   returns a tensor in a shape whose lengths are given
    expand    returns a tensor spread over lengths
    lengths   returns lengths as the text of a shape. Raises RefusedError where the library cannot compute them
    """

    name: str
    reshape: Callable[[Any, Node[Any], Sequence[Length | int]], str]
    expand: Callable[[Any, Node[kinds.Expand]], str]
    lengths: Callable[[Any, Node[Any], Sequence[Length | int]], list[str]]
    patterns: Mapping[str, str] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()
    types: Mapping[str, str] = field(default_factory=dict)

    def typed(self, dtype: str) -> str:
        """Return an element type as an argument."""
        return f"dtype={self.types.get(dtype) or json.dumps(dtype)}"

    def call(self, word: str, *words: str) -> str:
        """Return the call of a function."""
        arguments = [argument for argument in words if argument]
        pattern = self.patterns.get(word)
        if pattern is not None:
            return pattern.format(*arguments, more="".join(f", {argument}" for argument in arguments[1:]))
        return f"{self.name}.{_NAMES.get(word, word)}({', '.join(arguments)})"


_NAMES = {
    "abs": "absolute", "neg": "negative", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "not": "logical_not", "and": "logical_and",
    "or": "logical_or", "xor": "logical_xor", "greater_equal": "greater_equal", "remainder": "mod", "cumulative": "cumsum",
}  # fmt: skip
"""numpy's names for some functions."""


def operator_rules(library: Library) -> dict[type[kinds.Kind], Rule]:
    """Return the lines of the operators that graphs have between their layers."""

    def elementwise(m: Any, node: Node[kinds.Elementwise]) -> str:
        words, operation = operands(m, node), node.kind.operation
        if operation in library.lacks:
            raise m.refused(node, f"the operator {operation!r}", f"{m.TITLE} has no such function")
        return signed(words, SIGNS[operation]) if operation in SIGNS else library.call(operation, *words)

    def constant(m: Any, node: Node[kinds.Constant]) -> str:
        numbers: Any = np.asarray(node.kind.numbers)
        return library.call("array", nested(numbers), library.typed(numbers.dtype.name))

    def full(m: Any, node: Node[kinds.Full]) -> str:
        like = next((value for n, value in enumerate(node.inputs) if _is_shape(node.kind.lengths, n, value)), None)
        if like is not None:
            return library.call("full_like", m(like), number(node.kind.number), library.typed(node.y.dtype))
        shape = _tuple(library.lengths(m, node, node.kind.lengths))
        return library.call("full", shape, number(node.kind.number), library.typed(node.y.dtype))

    def sizes(m: Any, node: Node[kinds.LengthsTensor]) -> str:
        inside = ", ".join(library.lengths(m, node, node.kind.lengths))
        return library.call("array", f"[{inside}]" if node.y.shape else inside, library.typed(node.y.dtype))

    def steps(m: Any, node: Node[kinds.Range]) -> str:
        start, stop = library.lengths(m, node, (node.kind.start, node.kind.stop))
        step = str(node.kind.step) if node.kind.step > 1 else ""
        return library.call("arange", start if start != "0" or step else "", stop, step, library.typed(node.y.dtype))

    def split(m: Any, node: Node[kinds.Split]) -> str:
        parts = node.kind.sizes
        even = len(set(parts)) == 1
        places = str(len(parts)) if even else str(list(np.cumsum(parts[:-1]).tolist()))
        text = library.call("split", m(node.x), places, f"axis={last(node.kind.axis, len(node.x.shape))}")
        return unpacked(m, node, text, ["part"] * len(parts), even)

    def top(m: Any, node: Node[kinds.Top]) -> str:
        if not node.kind.largest or node.kind.axis != len(node.x.shape) - 1:
            raise m.refused(
                node, "the smallest numbers, or the largest along another axis than the last", f"{m.TITLE} has no such function"
            )
        (count,) = library.lengths(m, node, [node.kind.count])
        return unpacked(m, node, library.call("top_k", m(node.x), count), ["values", "indices"])

    def gather_elements(m: Any, node: Node[kinds.GatherElements]) -> str:
        shapes = [[n for axis, n in enumerate(value.shape) if axis != node.kind.axis] for value in node.inputs[:2]]
        if shapes[0] != shapes[1]:
            raise m.refused(node, "elements taken from a part of the other axes", f"{m.TITLE} takes them from each place")
        return library.call("take_along_axis", m(node.x), m(node.inputs[1]), f"axis={node.kind.axis}")

    def pad(m: Any, node: Node[kinds.PadAxes]) -> str:
        if f"pad {node.kind.mode}" in library.lacks:
            raise m.refused(node, f"padding of mode {node.kind.mode!r}", f"{m.TITLE} has it on some of its backends alone")
        mode = "" if node.kind.mode == "constant" else f'mode="{node.kind.mode}"'
        value = f"constant_values={number(node.kind.number)}" if node.kind.number and not mode else ""
        return library.call("pad", m(node.x), str(tuple(tuple(pair) for pair in node.kind.pairs)), mode, value)

    def merged(m: Any, node: Node[kinds.MergeAxes]) -> str:
        start, stop, rank = node.kind.start, node.kind.stop, len(node.x.shape)
        middle = node.y.shape[start]
        lengths = [*same_lengths(node, range(start)), -1 if middle is None else middle, *same_lengths(node, range(stop + 1, rank))]
        return library.reshape(m, node, lengths)

    def parted(m: Any, node: Node[kinds.SplitAxis]) -> str:
        axis, rank = node.kind.axis, len(node.x.shape)
        return library.reshape(m, node, [*same_lengths(node, range(axis)), *node.kind.lengths, *same_lengths(node, range(axis + 1, rank))])

    def arg(m: Any, node: Node[kinds.Arg]) -> str:
        return library.call(node.kind.operation, m(node.x), f"axis={node.kind.axis}", "keepdims=True" if node.kind.keep else "")

    def triangle(m: Any, node: Node[kinds.Triangle]) -> str:
        by = node.kind.diagonal
        return library.call("triu" if node.kind.upper else "tril", m(node.x), f"k={by}" if by else "")

    return {
        **on(kinds.Elementwise, elementwise), **on(kinds.Constant, constant), **on(kinds.Full, full), **on(kinds.LengthsTensor, sizes),
        **on(kinds.Range, steps), **on(kinds.Split, split), **on(kinds.Top, top), **on(kinds.GatherElements, gather_elements),
        **on(kinds.PadAxes, pad), **on(kinds.MergeAxes, merged), **on(kinds.SplitAxis, parted), **on(kinds.Arg, arg),
        **on(kinds.View, lambda m, node: library.reshape(m, node, node.kind.lengths)), **on(kinds.Expand, library.expand),
        **on(kinds.SliceBetween, lambda m, node: m(node.x) + (library.lengths(m, node, _bounds(node)) and bounds(m, node))),
        **on(kinds.SelectBetween, lambda m, node: m(node.x) + at(node.kind.axis, *library.lengths(m, node, [node.kind.index]))),
        **on(kinds.Gather, lambda m, node: library.call("take", m(node.x), m(node.inputs[1]), f"axis={node.kind.axis}")),
        **on(kinds.Triangle, triangle),
        **on(kinds.OneHot, lambda m, node: library.call("one_hot", m(node.x), str(node.kind.count), library.typed(node.y.dtype))),
        **on(kinds.Cumulative, lambda m, node: library.call("cumulative", m(node.x), f"axis={node.kind.axis}")),
        **on(kinds.Tile, lambda m, node: library.call("tile", m(node.x), str(tuple(node.kind.by)))),
        **on(kinds.Einsum, lambda m, node: library.call("einsum", f'"{node.kind.equation}"', *map(m, node.inputs))),
    }  # fmt: skip


def _bounds(node: Node[kinds.SliceBetween]) -> list[Length | int]:
    return [end for end in (node.kind.start, node.kind.end) if end is not None]


def same_lengths(node: Node[kinds.Kind], axes: Sequence[int]) -> list[Length | int]:
    """Return the lengths of axes of a node's first input."""
    lengths = []
    for axis in axes:
        size = node.x.shape[axis]
        lengths.append(Length(((1, ((0, axis),)),)) if size is None else size)
    return lengths


def _is_shape(lengths: Sequence[Length | int], number: int, value: Value) -> bool:
    """Return whether lengths are the lengths of the axes of a node's input."""
    pairs = zip(lengths, value.shape, strict=False)
    same = (axis_of(length) == (number, axis) or length == size for axis, (length, size) in enumerate(pairs))
    return len(lengths) == len(value.shape) and all(same)


def _tuple(words: Sequence[str]) -> str:
    return f"({', '.join(words)}{',' * (len(words) == 1)})"


def axis_of(value: Length | int) -> tuple[int, int] | None:
    """Return the input and the axis that a length is; None for a number, and for one that is computed."""
    if isinstance(value, Length) and len(value.terms) == 1 and value.terms[0][0] == 1 and len(value.terms[0][1]) == 1:
        factor = value.terms[0][1][0]
        return factor if isinstance(factor, tuple) else None
    return None
