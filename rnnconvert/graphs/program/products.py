"""Products with a stored matrix, whichever operator computes them and whichever side the matrix stands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope


@dataclass(frozen=True, eq=False)
class Product:
    """A value times a stored matrix.

    value                         what is multiplied
    matrix                        (features that are read, features that are given)
    reads_columns, gives_columns  whether the value, the result, is (features, batch)
    bias                          what is added, by name; "" without it
    """

    value: str
    matrix: Array
    reads_columns: bool = False
    gives_columns: bool = False
    bias: str = ""


def product_of(scope: Scope, node: Operation) -> Product | None:
    """Return the product that a node computes; None for another node."""
    if node.domain or len(node.inputs) < 2 or node.kind not in _KINDS:
        return None
    return _KINDS[node.kind](scope, node, scope.attributes(node))


def _matrix(scope: Scope, name: str) -> Array | None:
    matrix = scope.constant(name)
    return matrix if matrix is not None and matrix.ndim == 2 else None


def _mat_mul(scope: Scope, node: Operation, attributes: Mapping[str, Any]) -> Product | None:
    left, right = node.inputs[:2]
    if (matrix := _matrix(scope, right)) is not None:
        return Product(left, matrix)
    if (matrix := _matrix(scope, left)) is not None:
        # A matrix from the left multiplies columns, one for each sequence.
        return Product(right, matrix.T, True, True)
    return None


def _gemm(scope: Scope, node: Operation, attributes: Mapping[str, Any]) -> Product | None:
    alpha, beta = (attributes.get(key, 1.0) for key in ("alpha", "beta"))
    turned = [bool(attributes.get(key)) for key in ("transA", "transB")]
    bias = node.inputs[2] if len(node.inputs) > 2 and beta else ""
    # A factor would have to be multiplied into the matrix or the bias, which then are not the stored ones.
    if alpha != 1 or (bias and beta != 1):
        return None
    left, right = node.inputs[:2]
    if (matrix := _matrix(scope, right)) is not None:
        return Product(left, matrix.T if turned[1] else matrix, turned[0], False, bias)
    matrix = _matrix(scope, left)
    if matrix is None or bias:
        return None
    return Product(right, matrix if turned[0] else matrix.T, not turned[1], True)


def _einsum(scope: Scope, node: Operation, attributes: Mapping[str, Any]) -> Product | None:
    """Return a product in letters: the matrix has one letter that both operands have, and one that it brings into the result."""
    equation = attributes.get("equation", "").replace(" ", "")
    operands, arrow, result = equation.partition("->")
    letters = operands.split(",")
    if not arrow or len(letters) != 2 or len(node.inputs) != 2 or "." in equation:
        return None
    for number in (1, 0):
        matrix, (subscript, other) = _matrix(scope, node.inputs[number]), (letters[number], letters[1 - number])
        if matrix is None or len(subscript) != 2 or any(len(set(labels)) != len(labels) for labels in (subscript, other, result)):
            continue
        shared = set(subscript) & set(other)
        brought = set(subscript) - shared
        if len(shared) != 1 or shared & set(result) or set(result) != (set(other) - shared) | brought:
            continue
        (read,), (produced,) = shared, brought
        matrix = matrix if subscript[0] == read else matrix.T
        remaining = [letter for letter in other if letter != read]
        for reads_columns, gives_columns in ((False, False), (False, True), (True, False), (True, True)):
            columns = reads_columns or gives_columns
            asked = [read, *remaining] if reads_columns else [*remaining, read]
            produced_order = [produced, *remaining] if gives_columns else [*remaining, produced]
            if [*other] == asked and [*result] == produced_order and not (columns and len(remaining) != 1):
                return Product(node.inputs[1 - number], matrix, reads_columns, gives_columns)
    return None


_KINDS = {"MatMul": _mat_mul, "Gemm": _gemm, "Einsum": _einsum}
