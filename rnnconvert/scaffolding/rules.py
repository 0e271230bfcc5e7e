"""Rules that targets share: lines that differ from library to library by a few words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, on
from rnnconvert.scaffolding.spelling import last, number, place
from rnnconvert.scaffolding.writer import Module, Rule

MASKS = {
    "not_equal": "{0} != {value}",
    "equal": "{0} == {value}",
    "greater": "{0} > {value}",
    "greater_equal": "{0} >= {value}",
    "less": "{0} < {value}",
    "less_equal": "{0} <= {value}",
    "any": "{0}.any({axis}{keep})",
    "all": "{0}.all({axis}{keep})",
    "any differs": "({0} != {value}).any(-1)",
    "or": "{0} | {1}",
    "and": "{0} & {1}",
    "not": "~{0}",
}
"""Truths, where tensors have numpy's operators and methods."""
_OPERATORS = {"add": " + ", "subtract": " - ", "multiply": " * ", "divide": " / "}


def masks(patterns: Mapping[str, str], keep: str = "keepdims") -> Rule:
    """Return the rule of masks.

    patterns  how each operation is written, of the masks {0} and {1}, a {value}, an {axis}, and of what keeps it, {keep}
    keep      the keyword for that
    """

    def rule(m: Module, node: Node[kinds.Mask]) -> str:
        stated = {"value": number(node.kind.value or 0), "axis": node.kind.axis, "keep": f", {keep}=True" if node.kind.keep else ""}
        return patterns[node.kind.operation].format(*map(m, node.inputs), **stated)

    return rule


def arithmetic(library: str, raised: str, average: str = "({sum}) / {count}") -> Rule:
    """Return the rule of sums, products and the like.

    library  what the functions of two tensors are in: "jnp"
    raised   a tensor {} with one axis more, behind the batch
    average  of the {values}, or their {sum} and {count}
    """

    def rule(m: Module, node: Node[kinds.Arithmetic]) -> str:
        rank = max(len(value.shape) for value in node.inputs)
        values = []
        for value in node.inputs:
            text = m(value)
            for _ in range(rank - len(value.shape)):
                text = raised.format(text)
            values.append(text)
        operation = node.kind.operation
        if operation in _OPERATORS:
            return _OPERATORS[operation].join(values)
        if operation == "average":
            return average.format(values=", ".join(values), sum=" + ".join(values), count=len(values))
        text, *others = values
        for other in others:
            text = f"{library}.{operation}({text}, {other})"
        return text

    return rule


def clipped(method: str) -> Rule:
    """Return the rule of bounds, for a tensor's method."""

    def rule(m: Module, node: Node[kinds.Clip]) -> str:
        bounds = [f"{key}={number(end)}" for key, end in (("min", node.kind.min), ("max", node.kind.max)) if end is not None]
        return f"{m(node.x)}.{method}({', '.join(bounds)})"

    return rule


def submodel(m: Module, node: Node[kinds.Kind], text: str) -> str:
    """Return the call of a model in the model; where it gives several tensors, write its line, and return ""."""
    if len(node.outputs) == 1:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) if m.used(value) else '_' for value in node.outputs)} = {text}")
    return ""


def loop(rules: Callable[[], Mapping[type[kinds.Kind], Rule]], stack: str) -> Rule:
    """Return the rule of loops over the steps of sequences.

    rules  returns the rules of what is in a step
    stack  a list of tensors {} as one, on a new first axis
    """

    def rule(m: Module, node: Node[kinds.Loop]) -> str:
        m.loop(node, rules(), stack)
        return ""

    return rule


def _rescaled(m: Module, node: Node[kinds.Rescale]) -> str:
    scaled = f"{m(node.x)} * {node.kind.scale!r}"
    return f"{scaled} + {node.kind.shift!r}" if node.kind.shift else scaled


def _reshaped(m: Module, node: Node[kinds.Reshape | kinds.ReshapeAll]) -> str:
    x = m(node.x)
    lead = [] if isinstance(node.kind, kinds.ReshapeAll) else [f"len({x})"]
    return f"{x}.reshape({', '.join(map(str, (*lead, *node.kind.sizes)))})"


def subscript(m: Module, node: Node[kinds.Select | kinds.Slice]) -> str:
    """Return a tensor with an index or a slice in the place of one axis."""
    return f"{m(node.x)}{place(node)}"


RULES: Mapping[type[kinds.Kind], Rule] = {
    **on(kinds.Rescale, _rescaled),
    **on(kinds.Reshape, _reshaped),
    **on(kinds.ReshapeAll, _reshaped),
    **on(kinds.Select, subscript),
    **on(kinds.Slice, subscript),
    **on(kinds.Squeeze, lambda m, node: f"{m(node.x)}.squeeze({last(node.kind.axis, len(node.x.shape))})"),
    **on(kinds.Matmul, lambda m, node: f"{m(node.x)} @ {m(node.inputs[1])}"),
}
"""The kinds that are written alike wherever tensors have numpy's operators and methods."""
