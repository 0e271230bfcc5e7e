"""The first of written-out steps, which begins from zeros: read like the others, its formula theirs with the states put in.

Exporters fold what such a step does with its states in ways of their own, so it is compared as a function: of the products
of its inputs, at random numbers and at every corner that either formula has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.products import product_of
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.spread import spread
from rnnconvert.recognition.expression import Bias, Formula, Leaf, Linear, Origin, Piece, StoredPiece, Term, Unitwise, value, variables
from rnnconvert.recognition.trace import At, Tracer
from rnnconvert.recognition.trial import Match, same_function

_UNKNOWN = "what its first step reads is not known"


class _First(Tracer):
    """Reads the formula of the first step: all of it depends on the input, and what it begins with is numbers.

    inputs  each value that the step reads, by name, where it is not an element of a sequence
    """

    def __init__(self, scope: Scope, shapes: Shapes, ends: Sequence[str], inputs: Collection[str]) -> None:
        super().__init__(scope, shapes, (), set())
        self.inputs = inputs
        self.later = set(self._inside(ends))

    def _inside(self, ends: Sequence[str]) -> Iterator[str]:
        """Yield the values of the step: up to its inputs, and to what is stored or zero."""
        waiting, seen = list(ends), set()
        while waiting:
            name = waiting.pop()
            producer = self.scope.producer(name)
            if name in seen or producer is None or name in self.inputs or self._begins(self.scope, name) is not None:
                continue
            seen.add(name)
            if self.element(self.scope, name) is None and self.scope.constant(name) is None:
                yield name
                waiting += filter(None, producer[0].inputs)

    def _begins(self, scope: Scope, name: str) -> Formula | None:
        """Return zeros of any batch as numbers."""
        if scope.constant(name) is not None:
            return None
        begin = spread(scope, name)
        if begin is None or begin.any():
            return None
        size = self._width(scope, name)
        return None if size is None else (StoredPiece(np.zeros(size, np.float32)),)

    def _traced(self, scope: Scope, name: str, at: At | None) -> Formula:
        zeros = self._begins(scope, name) if at is None else None
        if zeros is not None:
            return zeros
        return self._source(scope, name, at) if at is None and name in self.inputs else super()._traced(scope, name, at)

    def _operand(self, scope: Scope, name: str, at: At | None) -> Formula:
        where, resolved = scope.resolve(name)
        if at is None and (where.constant(resolved) is not None or self._begins(where, resolved) is not None):
            return self._value(where, resolved, at)
        return super()._operand(scope, name, at)


def first_step(
    scope: Scope, shapes: Shapes, cell: Match, step: Piece, origins: Mapping[Origin, int], ends: Sequence[str]
) -> dict[Origin, int]:
    """Return the inputs of a step from zeros that gives the states with which another step of the same cell begins.

    cell, step  the other step: the cell as it was recognised, and its formula
    origins     the inputs of the other step, with the width of each
    ends        the hidden state that it begins with, and the cell state if it has one

    Raises UnmatchedError for a step that does anything else.
    """
    tracer = _First(scope, shapes, ends, _inputs(scope, step, ends))
    formulas = []
    for name in ends:
        pieces = tracer.trace(name)
        if len(pieces) != 1:
            raise UnmatchedError("its first state is put together from parts")
        formulas.append(pieces[0])
    pairing = _paired(formulas, origins)
    old = () if cell.old is None else (cell.old.key,)
    sums = StartSums([*origins], list(origins.values()))
    expected = [sums.named(_as_zero_start(piece, old)) for piece in (step, cell.new) if piece is not None]
    sums.origins = [*pairing]
    for formula, other in zip(formulas, expected, strict=True):
        named = sums.named(_as_zero_start(formula, ()))
        extra = variables(named).keys() - variables(other).keys()
        if extra or not same_function(named, other):
            more = [function for function in _functions(named) if function not in set(_functions(other))]
            words = f": {', '.join(more)}" if more else ""
            raise UnmatchedError(f"its first step computes something else than the others do from zeros{words}")
    return pairing


def _functions(piece: Piece) -> Iterator[str]:
    """Yield the functions of a formula in words, with their numbers."""
    if isinstance(piece, Unitwise):
        stored = (operand.array for operand in piece.operands if isinstance(operand, StoredPiece))
        numbers = [*piece.constants, *(float(array.reshape(-1)[0]) for array in stored if array.size)]
        yield f"{piece.operator} {' '.join(f'{number:g}' for number in numbers)}".strip()
        for part in piece.operands:
            yield from _functions(part)


def _inputs(scope: Scope, step: Piece, ends: Sequence[str]) -> set[str]:
    """Return the values before some states that are multiplied with the matrices with which another step multiplies its input."""
    matrices = [
        term.matrix
        for linear in _linears(step)
        for term in linear.terms
        if term.matrix is not None and isinstance(term.operand, Leaf) and not term.operand.origin.state
    ]
    values, waiting, seen = set(), list(ends), set()
    while waiting:
        name = waiting.pop()
        producer = scope.producer(name)
        if name in seen or producer is None:
            continue
        seen.add(name)
        node = producer[0]
        waiting += filter(None, node.inputs)
        product = product_of(scope, node)
        if product is None or product.reads_columns:
            continue
        before = scope.producer(product.value)
        if before is None or not any(np.may_share_memory(product.matrix, matrix) for matrix in matrices):
            continue
        # Of a joined value the stored part is the state of zeros, and the rest the input.
        parts = before[0].inputs if before[0].kind == "Concat" else [product.value]
        values |= {part for part in parts if scope.constant(part) is None and spread(scope, part) is None}
    return values


def _linears(piece: Piece) -> Iterator[Linear]:
    """Yield every sum of products of a formula."""
    if isinstance(piece, Linear):
        yield piece
        for term in piece.terms:
            yield from _linears(term.operand)
    elif isinstance(piece, Unitwise):
        for operand in piece.operands:
            yield from _linears(operand)


def _leaves(piece: Piece) -> Iterator[Leaf]:
    if isinstance(piece, Leaf):
        yield piece
    for operand in piece.operands if isinstance(piece, Unitwise) else ():
        yield from _leaves(operand)
    for term in piece.terms if isinstance(piece, Linear) else ():
        yield from _leaves(term.operand)


def _paired(pieces: Sequence[Piece], origins: Mapping[Origin, int]) -> dict[Origin, int]:
    """Return the inputs of formulas in the order of another step's inputs: elements of the same sequences."""
    read = {leaf.origin: leaf.full_width for piece in pieces for leaf in _leaves(piece)}
    pairing: dict[Origin, int] = {}
    for origin, size in origins.items():
        like = [
            candidate
            for candidate, width in read.items()
            if width == size and candidate.axis == origin.axis and (candidate.axis is None or candidate.value == origin.value)
        ]
        if len(like) != 1:
            raise UnmatchedError(_UNKNOWN)
        pairing[like[0]] = size
    if pairing.keys() != read.keys():
        raise UnmatchedError(_UNKNOWN)
    return pairing


def _as_zero_start(piece: Piece, states: Collection[object]) -> Piece:
    """Return a formula with zeros in place of its states, and what is zero by that left out.

    states  keys of leaves that are states, beside those whose origin is one
    """
    if isinstance(piece, Leaf):
        return StoredPiece(np.zeros(())) if piece.origin.state or piece.key in states else piece
    if isinstance(piece, StoredPiece):
        return piece
    if isinstance(piece, Linear):
        return _sum_begun(piece, states)
    operands = tuple(_as_zero_start(operand, states) for operand in piece.operands)
    zero = [isinstance(operand, StoredPiece) and not operand.array.any() for operand in operands]
    # Exporters leave out what a state of zeros makes needless, each in its own way: here it is all left out.
    if piece.operator == "Mul" and any(zero):
        return StoredPiece(np.zeros(()))
    if piece.operator == "Add" and any(zero):
        return operands[zero.index(True) - 1]
    if piece.operator == "Sub" and zero[1]:
        return operands[0]
    result = Unitwise(piece.operator, operands, piece.constants, piece.width)
    return StoredPiece(value(result, {})) if all(isinstance(operand, StoredPiece) for operand in operands) else result


def _sum_begun(piece: Linear, states: Collection[object]) -> Piece:
    terms = []
    bias = np.zeros(piece.width)
    for addend in piece.biases:
        bias = bias + addend.array
    for operand, matrix in piece.terms:
        begun = _as_zero_start(operand, states)
        if not isinstance(begun, StoredPiece):
            if matrix is None or matrix.any():
                terms.append(Term(begun, matrix))
        elif begun.array.any():
            numbers = np.asarray(begun.array, np.float64)
            if matrix is not None and matrix.ndim == 2:
                bias = bias + np.broadcast_to(numbers, matrix.shape[:1]) @ matrix
            else:
                bias = bias + (numbers if matrix is None else numbers * matrix)
    if not terms:
        return StoredPiece(bias)
    return Linear(tuple(terms), (Bias(bias, False),), piece.width)


# Sums that a first step from zeros adds up, as the pieces of the step's formula.

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
