"""Sums that a first step from zeros adds up, as the pieces of the step's formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.recognition.expression import Leaf, Linear, Origin, Piece, StoredPiece, Unitwise

_ROUNDING = 1e-6
"""How far sums of biases may be apart, of the largest: an exporter that folds them rounds them."""


@dataclass
class StartSums:
    """The products with inputs and the vectors of two formulas, each under a name that equal numbers share.

    origins, widths  what the formula at hand reads
    products         matrices (inputs, units) and biases
    vectors          others
    """

    origins: list[Origin]
    widths: list[int]
    products: list[tuple[Array, Array]] = field(default_factory=list)
    vectors: list[Array] = field(default_factory=list)

    def named(self, piece: Piece) -> Piece:
        """Return a formula in which every product and vector is a variable."""
        if isinstance(piece, StoredPiece):
            return self._vector(piece)
        if isinstance(piece, Unitwise):
            return Unitwise(piece.operator, tuple(map(self.named, piece.operands)), piece.constants, piece.width)
        if isinstance(piece, Leaf):
            return piece
        total = self._product(piece)
        for operand, matrix in piece.terms:
            if not isinstance(operand, Leaf):
                if matrix is None or matrix.ndim != 1:
                    raise UnmatchedError("its first step multiplies something else than its input with a matrix")
                factor = Unitwise("Mul", (self.named(operand), self._vector(StoredPiece(matrix))), (), piece.width)
                total = factor if total is None else Unitwise("Add", (total, factor), (), piece.width)
        assert total is not None
        return total

    def _product(self, piece: Linear) -> Piece | None:
        bias = np.asarray(piece.biases[0].array, np.float64)
        inputs = [(leaf, by) for leaf, by in piece.terms if isinstance(leaf, Leaf)]
        if not inputs:
            return self._vector(StoredPiece(bias)) if bias.any() else None
        matrix = self._matrix(inputs, piece.width)
        for number, (stored, added) in enumerate(self.products):
            if stored.shape == matrix.shape and np.array_equal(stored, matrix) and _close(added, bias):
                return _variable(f"product {number}", piece.width)
        self.products.append((matrix, bias))
        return _variable(f"product {len(self.products) - 1}", piece.width)

    def _matrix(self, inputs: Sequence[tuple[Leaf, Array | None]], size: int) -> Array:
        starts = np.cumsum([0, *self.widths]).tolist()
        by = inputs[0][1]
        if len(inputs) == 1 and by is not None and by.ndim == 2 and len(by) == starts[-1]:
            return by
        matrix = np.zeros((starts[-1], size))
        for leaf, by in inputs:
            start = starts[self.origins.index(leaf.origin)] + leaf.start
            if by is None:
                matrix[start : start + leaf.width] += np.eye(size)
            elif by.ndim == 1:
                matrix[start : start + leaf.width] += np.diag(by)
            else:
                matrix[start : start + leaf.width] += by
        return matrix

    def _vector(self, piece: StoredPiece) -> Piece:
        array = np.asarray(piece.array, np.float64)
        if not array.ndim or array.size == 1:
            return StoredPiece(array.reshape(()))
        for number, vector in enumerate(self.vectors):
            if vector.shape == array.shape and _close(vector, array):
                return _variable(f"vector {number}", array.size)
        self.vectors.append(array)
        return _variable(f"vector {len(self.vectors) - 1}", array.size)


def _variable(name: str, size: int) -> Leaf:
    return Leaf(Origin(name), 0, size, size)


def _close(array: Array, other: Array) -> bool:
    largest = max(np.abs(array).max(initial=0.0), np.abs(other).max(initial=0.0))
    return bool((np.abs(array - other) <= _ROUNDING * largest).all())
