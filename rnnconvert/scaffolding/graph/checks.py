"""A model's checks of its inputs, as basic operations: for other lengths the graph stops with an error that names the condition.

No operation raises an error. To put a row of two numbers behind a row of one does, and no runtime leaves it out: of a number that is
given another shape OpenVINO's reads the number alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import numpy as np

from rnnconvert.scaffolding.description import RANK, Check, Value, parsed
from rnnconvert.scaffolding.graph.writer import GraphWriter

_FIXED = re.compile(r"\{0\} == (\d+)")
_COMPARED = {ast.Eq: "Equal", ast.Lt: "Less", ast.LtE: "LessOrEqual", ast.Gt: "Greater", ast.GtE: "GreaterOrEqual"}
_COMPUTED = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Mod: "Mod", ast.Div: "Div"}


def fixed(check: Check) -> tuple[int, int, int] | None:
    """Return the input, the axis and the length that a condition fixes, which a graph states; None for another condition."""
    match = _FIXED.fullmatch(check.text)
    if match is None or check.axes[0][1] == RANK:
        return None
    return (*check.axes[0], int(match[1]))


def fulfilled(g: GraphWriter, checks: Sequence[Check], inputs: Sequence[Value], names: Sequence[str]) -> str:
    """Add a list of the number 1, which cannot be computed for inputs that do not fulfil conditions; "" without conditions."""
    ones = []
    for check in checks:
        if fixed(check) is not None or all(axis == RANK for _, axis in check.axes):
            continue
        words, condition = check.spelled(names)
        lengths = [g.add("Squeeze", [g.size(inputs[number], axis)], word) for word, (number, axis) in zip(words, check.axes, strict=True)]
        program = _Condition(g, lengths, condition)
        tree = parsed(check.text, len(lengths))
        holds = g.folded("And", [program.computed(tree), *program.divisible], condition)
        beyond = g.cast(g.add("Not", [holds], condition), "int64", condition)
        size = g.add("Unsqueeze", [g.add("Add", [beyond, g.index(1)], condition), g.integers(0)], condition)
        shape = g.add("Concat", [g.integers(1), size], condition, axis=0)
        single = g.shared("row_of_1", np.ones((1, 1), np.int64))
        rows = g.add("Concat", [single, g.add("Expand", [single, shape], condition)], f"expected {condition}", axis=0)
        ones.append(g.add("ReduceMax", [rows], condition, axes=[0], keepdims=0))
    return g.folded("Mul", ones, "fulfilled") if ones else ""


class _Condition:
    """A condition on lengths on its way into nodes.

    divisible  whether the divisors in it are not zero
    """

    def __init__(self, g: GraphWriter, lengths: Sequence[str], wanted: str) -> None:
        self._g, self._lengths, self._wanted = g, lengths, wanted
        self.divisible: list[str] = []

    def computed(self, node: ast.expr) -> str:
        """Return a part of the condition: a truth or a number without axes."""
        if isinstance(node, ast.BoolOp):
            return self._g.folded("And" if isinstance(node.op, ast.And) else "Or", [*map(self.computed, node.values)], self._wanted)
        if isinstance(node, ast.Compare):
            operands = [self.computed(node.left), self.computed(node.comparators[0])]
            operator = type(node.ops[0])
            if operator is ast.NotEq:
                return self._add("Not", self._add("Equal", *operands))
            return self._add(_COMPARED[operator], *operands)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call):
            operands = [self.computed(argument) for argument in node.args]
            word = ast.unparse(node.func)
            if word in ("min", "max"):
                return self._g.folded(word.capitalize(), operands, self._wanted)
            rounded = self._add("Round", operands[0]) if word == "round" else operands[0]
            return self._g.cast(rounded, "int64", self._wanted)
        if isinstance(node, ast.UnaryOp):
            return self._add("Neg", self.computed(node.operand))
        if isinstance(node, ast.Name):
            return self._lengths[int(node.id.rpartition("_")[2])]
        return self._g.index(ast.literal_eval(node))

    def _binary(self, node: ast.BinOp) -> str:
        operator, left, right = type(node.op), self.computed(node.left), self.computed(node.right)
        if operator in (ast.FloorDiv, ast.Mod, ast.Div):
            zero = self._add("Equal", right, self._g.index(0))
            self.divisible.append(self._add("Not", zero))
            right = self._add("Where", zero, self._g.index(1), right)
        if operator is ast.FloorDiv:
            return self._g.floor_divided(left, right, self._wanted)
        if operator is ast.Div:
            left, right = (self._g.cast(name, "float64", self._wanted) for name in (left, right))
        return self._add(_COMPUTED[operator], left, right)

    def _add(self, operator: str, *inputs: str) -> str:
        return self._g.add(operator, inputs, self._wanted)
