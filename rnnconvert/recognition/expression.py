"""The formula of a value of one step: products with stored matrices, and functions of each unit.

A value's features are pieces side by side. A piece is a run of features of a value that is not looked into (`Leaf`), a sum of
products with stored matrices and of stored vectors (`Linear`), a function of each unit (`Each`), or stored (`Stored`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.limits import FORMULA_PARTS, MATRIX_NUMBERS
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.recognition.functions import TWO, UNARY


class Origin(NamedTuple):
    """A value that is not looked into.

    value  its name
    state  whether it comes from the step before
    axis   its axis of time, if it is a sequence of which each step reads one element
    step   which element: a number, or FORWARD or REVERSE in a loop
    """

    value: str
    state: bool = False
    axis: int | None = None
    step: int | None = None


FORWARD, REVERSE = -1, -2


@dataclass(frozen=True, eq=False)
class Leaf:
    """A run of features of a value, and how many the value has."""

    origin: Origin
    start: int
    stop: int
    full_width: int

    @property
    def width(self) -> int:
        """How many features these are."""
        return self.stop - self.start

    @cached_property
    def key(self) -> object:
        """A key that is equal for equal pieces."""
        return self.origin, self.start, self.stop


@dataclass(frozen=True, eq=False)
class StoredPiece:
    """Numbers of the file: one for all features, or one for each."""

    array: Array

    @property
    def width(self) -> int:
        """How many features these are; 1 for a number that is for all of them."""
        return int(self.array.size)

    @cached_property
    def key(self) -> object:
        """A key that is equal for equal pieces."""
        return self.array.shape, self.array.tobytes()


class Term(NamedTuple):
    """A product: with a matrix (features, width), with a number for each feature, or with nothing (None)."""

    operand: Piece
    matrix: Array | None


class Bias(NamedTuple):
    """A stored vector that is added, and whether only products with a state stood there before."""

    array: Array
    recurrent: bool


@dataclass(frozen=True, eq=False)
class Linear:
    """A sum of products and of stored vectors."""

    terms: tuple[Term, ...]
    biases: tuple[Bias, ...]
    width: int

    def __post_init__(self) -> None:
        _check(self.parts)

    @cached_property
    def parts(self) -> int:
        """How many parts the formula has."""
        return 1 + len(self.biases) + sum(_parts(term.operand) for term in self.terms)

    @cached_property
    def key(self) -> object:
        """A key that is equal for equal pieces."""
        terms = tuple((term.operand.key, _place(term.matrix)) for term in self.terms)
        return "linear", terms, tuple(_place(bias.array) for bias in self.biases)


@dataclass(frozen=True, eq=False)
class Unitwise:
    """A function of each unit: a common operation, what it works on, and its constants."""

    operator: str
    operands: tuple[Piece, ...]
    constants: tuple[float, ...]
    width: int

    def __post_init__(self) -> None:
        _check(self.parts)

    @cached_property
    def parts(self) -> int:
        """How many parts the formula has."""
        return 1 + sum(map(_parts, self.operands))

    @cached_property
    def key(self) -> object:
        """A key that is equal for equal pieces."""
        return self.operator, tuple(operand.key for operand in self.operands), self.constants


Piece: TypeAlias = "Leaf | StoredPiece | Linear | Unitwise"
Formula: TypeAlias = "tuple[Piece, ...]"


def _parts(piece: Piece) -> int:
    return piece.parts if isinstance(piece, Linear | Unitwise) else 1


def _check(parts: int) -> None:
    if parts > FORMULA_PARTS:
        raise UnmatchedError(f"a step has more functions and products than a cell ({parts})")


def _place(array: Array | None) -> object:
    """Return where an array lies in memory: two views of the same numbers are the same array."""
    return None if array is None else (array.__array_interface__["data"][0], array.shape, array.strides)


def width(pieces: Formula) -> int:
    """Return how many features a value has."""
    return sum(piece.width for piece in pieces)


def take(pieces: Formula, start: int, stop: int) -> Formula:
    """Return some of the features of a value."""
    parts: list[Piece] = []
    at = 0
    for piece in pieces:
        low, high = max(start, at), min(stop, at + piece.width)
        if low < high:
            parts.append(_cut(piece, low - at, high - at))
        at += piece.width
    if sum(part.width for part in parts) != stop - start:
        raise UnmatchedError(f"features {start} to {stop} of {at} are taken")
    return tuple(parts)


def _cut(piece: Piece, start: int, stop: int) -> Piece:
    if (start, stop) == (0, piece.width):
        return piece
    if isinstance(piece, Leaf):
        return Leaf(piece.origin, piece.start + start, piece.start + stop, piece.full_width)
    if isinstance(piece, StoredPiece):
        return StoredPiece(piece.array[start:stop])
    if isinstance(piece, Unitwise):
        operands = tuple(each if _for_all(each) else _cut(each, start, stop) for each in piece.operands)
        return Unitwise(piece.operator, operands, piece.constants, stop - start)
    terms = []
    for operand, matrix in piece.terms:
        if matrix is None:
            terms.append(Term(_cut(operand, start, stop), None))
        # A vector scales each unit; a matrix has a column for each.
        elif matrix.ndim == 1:
            terms.append(Term(_cut(operand, start, stop), matrix[start:stop]))
        else:
            terms.append(Term(operand, matrix[:, start:stop]))
    biases = tuple(Bias(bias.array[start:stop], bias.recurrent) for bias in piece.biases)
    return Linear(tuple(terms), biases, stop - start)


def _for_all(piece: Piece) -> bool:
    return isinstance(piece, StoredPiece) and piece.array.ndim == 0


def product(pieces: Formula, matrix: Array) -> Formula:
    """Return a value times a stored matrix (features, width)."""
    if matrix.size > MATRIX_NUMBERS:
        raise UnmatchedError(f"a matrix {matrix.shape} is larger than this looks into")
    if matrix.ndim != 2 or matrix.shape[0] != width(pieces):
        raise UnmatchedError(f"a product of {width(pieces)} features with a matrix {matrix.shape}")
    terms: list[Term] = []
    biases: list[Bias] = []
    at = 0
    for piece in pieces:
        rows = matrix[at : at + piece.width] if len(pieces) > 1 else matrix
        if isinstance(piece, StoredPiece):
            # A stored part of the value gives the same sum at every step.
            biases.append(Bias(piece.array @ rows, True))
        else:
            terms.append(Term(piece, rows))
        at += piece.width
    return (Linear(tuple(terms), tuple(biases), matrix.shape[1]),)


def together(operator: str, left: Formula, right: Formula) -> Formula:
    """Return a function of two values, unit by unit."""
    left, right = _spread(left, right), _spread(right, left)
    if len(left) == 1 and _for_all(left[0]):
        return tuple(_combined(operator, left[0], piece) for piece in right)
    if len(right) == 1 and _for_all(right[0]):
        return tuple(_combined(operator, piece, right[0]) for piece in left)
    if 1 in (width(left), width(right)) and width(left) != width(right):
        raise UnmatchedError(
            "a number of the input decides what a step keeps, as a mask does; a layer's operator knows lengths of sequences alone"
        )
    if width(left) != width(right):
        raise UnmatchedError(f"{operator} of {width(left)} and {width(right)} features")
    # Both are cut where either has an edge, so that each piece meets one other.
    edges = sorted(_edges(left) | _edges(right))
    combined: list[Piece] = []
    for start, stop in itertools.pairwise(edges):
        (single,), (other,) = take(left, start, stop), take(right, start, stop)
        combined.append(_combined(operator, single, other))
    return tuple(combined)


def _spread(value: Formula, other: Formula) -> Formula:
    """Return a value; one stored number as that of all features that another value has."""
    (piece, *more) = value
    single = not more and isinstance(piece, StoredPiece) and piece.array.size == 1 < width(other)
    return (StoredPiece(piece.array.reshape(())),) if single and isinstance(piece, StoredPiece) else value


def _edges(pieces: Formula) -> set[int]:
    edges = {0}
    at = 0
    for piece in pieces:
        at += piece.width
        edges.add(at)
    return edges


def alone(operator: str, pieces: Formula, constants: tuple[float, ...] = ()) -> Formula:
    """Return a function of a value, unit by unit."""
    return tuple(Unitwise(operator, (_shifted(operator, piece),), constants, piece.width) for piece in pieces)


_WHOLE_FUNCTIONS = ("Sigmoid", "Tanh", "Softsign", "Softplus", "HardSigmoid")
"""Functions that are the whole function of a gate. Others may be a part of one, as max(x + 3, 0) is of a hard sigmoid."""


def _shifted(operator: str, piece: Piece) -> Piece:
    """Return a sum of products with the number that is added to it, such as a forget gate's 1, among its biases."""
    if operator in _WHOLE_FUNCTIONS and isinstance(piece, Unitwise) and piece.operator in ("Add", "Sub"):
        for linear, number in (piece.operands, piece.operands[::-1]):
            if not (isinstance(linear, Linear) and isinstance(number, StoredPiece) and _for_all(number)):
                continue
            vector = np.full(linear.width, number.array)
            if piece.operator == "Add":
                return _plus(linear, vector)
            if linear is piece.operands[0]:
                return _plus(linear, -vector)
    return piece


def _combined(operator: str, left: Piece, right: Piece) -> Piece:
    """Return a function of two pieces. Sums of products stay sums of products."""
    if isinstance(left, StoredPiece) and isinstance(right, StoredPiece):
        return StoredPiece(np.asarray(TWO[operator](left.array, right.array)))
    if operator == "Add":
        for piece, other in ((left, right), (right, left)):
            if isinstance(other, StoredPiece) and other.array.ndim and (linear := _linear(piece)) is not None:
                return _plus(linear, other.array)
        one_sum, other_sum = _linear(left), _linear(right)
        if one_sum is not None and other_sum is not None:
            return Linear(one_sum.terms + other_sum.terms, one_sum.biases + other_sum.biases, left.width)
    if operator == "Sub" and isinstance(right, StoredPiece) and right.array.ndim and (linear := _linear(left)) is not None:
        return _plus(linear, -right.array)
    if operator in _NEUTRAL:
        for piece, other in ((left, right), (right, left)):
            if isinstance(other, StoredPiece) and (other.array == _NEUTRAL[operator]).all():
                return piece
    if operator == "Mul":
        for piece, other in ((left, right), (right, left)):
            if isinstance(other, StoredPiece) and other.array.ndim and isinstance(piece, Unitwise | Leaf):
                # A stored factor for each unit may be a peephole, so that it stays a product.
                return Linear((Term(piece, other.array),), (), piece.width)
    return Unitwise(operator, (_number(left), _number(right)), (), max(left.width, right.width))


def _number(piece: Piece) -> Piece:
    """Return a vector that is 0 or 1 throughout as that number, and anything else as it is."""
    if isinstance(piece, StoredPiece) and piece.array.size and piece.array.flat[0] in (0, 1) and np.ptp(piece.array) == 0:
        return StoredPiece(piece.array.reshape(-1)[:1].reshape(()))
    return piece


_NEUTRAL = {"Add": 0, "Mul": 1}
"""The number that leaves what it is added to, or multiplied with, as it is."""


def _plus(linear: Linear, vector: Array) -> Linear:
    recurrent = all(depends(term.operand) for term in linear.terms)
    return Linear(linear.terms, (*linear.biases, Bias(vector, recurrent)), linear.width)


def _linear(piece: Piece) -> Linear | None:
    """Return a piece as a sum of products: a run of features of the input is one, a run of the step's own state is not."""
    if isinstance(piece, Linear):
        return piece
    if isinstance(piece, Leaf) and not piece.origin.state:
        return Linear((Term(piece, None),), (), piece.width)
    return None


def depends(piece: Piece) -> bool:
    """Return whether a piece depends on a state."""
    if isinstance(piece, Leaf):
        return piece.origin.state
    if isinstance(piece, StoredPiece):
        return False
    if isinstance(piece, Unitwise):
        return any(map(depends, piece.operands))
    return any(depends(term.operand) for term in piece.terms)


def signature(piece: Piece) -> tuple[object, tuple[Origin, ...]]:
    """Return a key that is equal for formulas that differ only in the values that they read, and these values in their order."""
    origins: dict[Origin, int] = {}

    def structure(part: Piece) -> object:
        if isinstance(part, Leaf):
            return origins.setdefault(part.origin, len(origins)), part.origin.state, part.start, part.stop, part.full_width
        if isinstance(part, Unitwise):
            return part.operator, tuple(map(structure, part.operands)), part.constants
        if isinstance(part, Linear):
            terms = tuple((structure(term.operand), _place(term.matrix)) for term in part.terms)
            biases = tuple((bias.array.shape, bias.array.tobytes(), bias.recurrent) for bias in part.biases)
            return "linear", terms, biases  # numbers that a step adds to its bias make an array of their own in each
        return part.key

    return structure(piece), tuple(origins)


def variables(piece: Piece) -> dict[object, Piece]:
    """Return the variables of a function of each unit: sums of products, and runs of features."""
    if isinstance(piece, Unitwise):
        pieces: dict[object, Piece] = {}
        for operand in piece.operands:
            pieces |= variables(operand)
        return pieces
    return {} if isinstance(piece, StoredPiece) else {piece.key: piece}


def constants(piece: Piece) -> set[float]:
    """Return how large the numbers are with which a function of each unit works; none of 1 or less, or of 1e30 or more."""
    if isinstance(piece, Unitwise):
        magnitudes = {abs(number) for number in piece.constants if 1 < abs(number) < 1e30}
        return magnitudes.union(*map(constants, piece.operands))
    if not isinstance(piece, StoredPiece):
        return set()
    sizes = np.abs(np.asarray(piece.array, np.float64)).reshape(-1)
    return {float(number) for number in np.unique(sizes[(sizes > 1) & (sizes < 1e30)])[-4:]}


def value(piece: Piece, values: Mapping[object, Array]) -> Array:
    """Compute a function of each unit, in double precision; `values` has what `variables` returns, by its key."""
    if piece.key in values:
        return values[piece.key]
    if isinstance(piece, StoredPiece):
        return np.asarray(piece.array, np.float64)
    if not isinstance(piece, Unitwise):
        raise UnmatchedError("it works on an unknown value")
    operands = [value(operand, values) for operand in piece.operands]
    with np.errstate(all="ignore"):
        if len(operands) == 2:
            return np.asarray(TWO[piece.operator](*operands))
        return np.asarray(UNARY[piece.operator](operands[0], *piece.constants))
