"""Rules that targets share: lines that differ from library to library by a few words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnconvert.scaffolding.description import Node
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

    def rule(m: Module, node: Node) -> str:
        stated = node.settings
        more = {"value": number(stated.get("value", 0)), "keep": f", {keep}=True" if stated.get("keep") else ""}
        return patterns[node["operation"]].format(*map(m, node.inputs), **{"axis": -1, **stated, **more})

    return rule


def arithmetic(library: str, raised: str, average: str = "({sum}) / {count}") -> Rule:
    """Return the rule of sums, products and the like.

    library  what the functions of two tensors are in: "jnp"
    raised   a tensor {} with one axis more, behind the batch
    average  of the {values}, or their {sum} and {count}
    """

    def rule(m: Module, node: Node) -> str:
        rank = max(len(value.shape) for value in node.inputs)
        values = []
        for value in node.inputs:
            text = m(value)
            for _ in range(rank - len(value.shape)):
                text = raised.format(text)
            values.append(text)
        operation = node["operation"]
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

    def rule(m: Module, node: Node) -> str:
        bounds = [f"{key}={number(node[key])}" for key in ("min", "max") if node[key] is not None]
        return f"{m(node.x)}.{method}({', '.join(bounds)})"

    return rule


def submodel(m: Module, node: Node, text: str) -> str:
    """Return the call of a model in the model; where it gives several tensors, write its line, and return ""."""
    if len(node.outputs) == 1:
        return text
    m.release(node)
    m.line(f"{', '.join(m.new(value) if m.used(value) else '_' for value in node.outputs)} = {text}")
    return ""


def loop(rules: Callable[[], Mapping[str, Rule]], stack: str) -> Rule:
    """Return the rule of loops over the steps of sequences.

    rules  returns the rules of what is in a step
    stack  a list of tensors {} as one, on a new first axis
    """

    def rule(m: Module, node: Node) -> str:
        m.loop(node, rules(), stack)
        return ""

    return rule


def _rescaled(m: Module, node: Node) -> str:
    scaled = f"{m(node.x)} * {node['scale']!r}"
    return f"{scaled} + {node['shift']!r}" if node["shift"] else scaled


def _reshaped(m: Module, node: Node) -> str:
    x = m(node.x)
    lead = [] if node.kind == "reshape all" else [f"len({x})"]
    return f"{x}.reshape({', '.join(map(str, (*lead, *node['sizes'])))})"


def subscript(m: Module, node: Node) -> str:
    """Return a tensor with an index or a slice in the place of one axis."""
    return f"{m(node.x)}{place(node)}"


RULES: Mapping[str, Rule] = {
    "rescale": _rescaled,
    "reshape": _reshaped,
    "reshape all": _reshaped,
    "select": subscript,
    "slice": subscript,
    "squeeze": lambda m, node: f"{m(node.x)}.squeeze({last(node['axis'], len(node.x.shape))})",
    "matmul": lambda m, node: f"{m(node.x)} @ {m(node.inputs[1])}",
}
"""The kinds that are written alike wherever tensors have numpy's operators and methods."""
