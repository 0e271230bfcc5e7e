"""Numbers at which a formula has its corners: where something in it is zero, or goes beyond a bound.

Random numbers miss a corner that is narrow or far away. Each is searched for along each variable, by halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.recognition.expression import Piece, StoredPiece, Unitwise, value, variables

_COLUMNS = 64
"""The most units whose constants differ."""
_TRIED = 8
_MARKS = 200
_POWERS = 10.0 ** np.arange(-6, 30, 0.125)
_GRID = np.concatenate([-_POWERS[::-1], [0.0], _POWERS])[:, None]
_NEAR = 10.0 ** np.arange(-9, 1)
_OFFSETS = np.concatenate([-_NEAR, [0.0], _NEAR])[:, None]
_HALVES = 60


def narrowed(formula: Piece) -> tuple[Piece, int]:
    """Return a formula for as many units as have constants of their own, and how many it is tried on: all do the same."""
    vectors = {id(vector): vector for vector in _vectors(formula)}
    if not vectors:
        return formula, _TRIED
    rows = np.stack([np.asarray(vector.array, np.float64).reshape(-1) for vector in vectors.values()])
    _, columns = np.unique(rows, axis=1, return_index=True)
    if len(columns) > _COLUMNS:
        raise UnmatchedError("each of its units has constants of its own")
    # Units with the same constants compute the same, so that one of each kind is enough.
    columns = np.resize(columns, max(_TRIED, len(columns)))
    return _narrow(formula, columns), len(columns)


def _vectors(formula: Piece) -> Iterator[StoredPiece]:
    if isinstance(formula, StoredPiece) and formula.array.ndim:
        yield formula
    elif isinstance(formula, Unitwise):
        for operand in formula.operands:
            yield from _vectors(operand)


def _narrow(formula: Piece, columns: Array) -> Piece:
    if isinstance(formula, StoredPiece) and formula.array.ndim:
        return StoredPiece(formula.array.reshape(-1)[columns])
    if isinstance(formula, Unitwise):
        operands = tuple(_narrow(operand, columns) for operand in formula.operands)
        return Unitwise(formula.operator, operands, formula.constants, len(columns))
    return formula


def corners(formula: Piece, width: int) -> dict[object, Array]:
    """Return numbers for the variables of a formula, (rows, width), near each of its corners.

    The steps of a layer that is written out have one formula, of other variables each: its corners are searched for once.
    """
    names = list(variables(formula))
    form = _form(formula, {key: number for number, key in enumerate(names)}), width
    if form not in _SEARCHED:
        if len(_SEARCHED) >= _MOST_SEARCHED:
            _SEARCHED.clear()
        _SEARCHED[form] = [*_searched(formula, names, width).values()]
    return dict(zip(names, _SEARCHED[form], strict=True))


_MOST_SEARCHED = 64
_SEARCHED: dict[object, list[Array]] = {}


def _form(formula: Piece, numbers: Mapping[object, int]) -> object:
    """Return a key that is equal for formulas that differ only in their variables."""
    if isinstance(formula, Unitwise):
        return formula.operator, formula.constants, tuple(_form(operand, numbers) for operand in formula.operands)
    return formula.key if isinstance(formula, StoredPiece) else numbers[formula.key]


def _searched(formula: Piece, names: Sequence[object], width: int) -> dict[object, Array]:
    random = np.random.default_rng(23)
    bases = [{key: random.standard_normal((1, width)) * scale for key in names} for scale in (1.0, 3.0)]
    rows: dict[object, list[Array]] = {key: [] for key in names}
    marks = {(piece.key, bound): (piece, bound) for piece, bound in _marks(formula)}
    if len(marks) > _MARKS:
        raise UnmatchedError("its step has more functions than a cell")
    for part, bound in marks.values():
        for key in variables(part):
            for base in bases:
                for root in _roots(part, bound, key, base):
                    # On both sides of the place where a function bends, from very near to far.
                    near = root + _OFFSETS * np.maximum(1.0, np.abs(root))
                    for name in names:
                        rows[name].append(near if name == key else np.broadcast_to(base[name], near.shape))
    return {name: np.concatenate([*arrays, *(base[name] for base in bases)]) for name, arrays in rows.items()}


def _marks(formula: Piece) -> Iterator[tuple[Piece, float]]:
    """Yield the parts of a formula, each with a number at which something may begin or end."""
    if isinstance(formula, StoredPiece):
        return
    yield formula, 0.0
    if not isinstance(formula, Unitwise):
        return
    inner, *others = formula.operands
    bounds = formula.constants
    if formula.operator == "HardSigmoid" and bounds[0]:
        bounds = (-bounds[1] / bounds[0], (1 - bounds[1]) / bounds[0])
    if not others:
        yield from ((inner, bound) for bound in bounds if np.isfinite(bound))
    elif formula.operator in ("Min", "Max"):
        yield Unitwise("Sub", formula.operands, (), formula.width), 0.0
    for operand in formula.operands:
        yield from _marks(operand)


def _roots(part: Piece, bound: float, key: object, base: Mapping[object, Array]) -> list[Array]:
    """Return where a part of a formula reaches a bound along one variable: the first and the last such place of each unit."""

    def above(x: Array) -> Array:
        return np.broadcast_to(value(part, {**base, key: x}) > bound, np.broadcast_shapes(x.shape, base[key].shape))

    with np.errstate(all="ignore"):
        signs = above(_GRID)
        changes = signs[1:] != signs[:-1]
        if not changes.any():
            return []
        roots = []
        for place in (changes.argmax(0), len(changes) - 1 - changes[::-1].argmax(0)):
            low, high = _GRID[place, 0][None], _GRID[place + 1, 0][None]
            start = above(low)
            # Bisection, of all units at once.
            for _ in range(_HALVES):
                middle = (low + high) / 2
                same = above(middle) == start
                low, high = np.where(same, middle, low), np.where(same, high, middle)
            roots.append(high)
    return roots[:1] if np.array_equal(*roots) else roots
