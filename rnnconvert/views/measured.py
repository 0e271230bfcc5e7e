"""Measures of the weights of a layer: norms, histograms, heat maps, spectral radii, and units that no input can move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.cells import CANDIDATE
from rnnconvert.core.reference import FUNCTIONS
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Recurrent
from rnnconvert.views.spectral import EigenvalueBudget, Radius, radius

BINS = 41
"""Bins of a histogram: an odd number, so that zero lies in the middle of one."""

_PIECE = 1 << 22
"""How many weights are read together."""

_SAMPLE = 1 << 20
"""The most weights that a histogram counts; of larger arrays it counts one in several."""

_FLAT = 0.02
"""How near to 0 or 1 a gate counts as saturated."""


@dataclass(frozen=True)
class Histogram:
    """How many weights lie where.

    counts  in bins of equal width from -largest to largest
    every   one in so many weights is counted
    """

    counts: tuple[int, ...]
    largest: float
    every: int


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A matrix in few cells.

    cells    (rows, columns): the mean of the weights of each block; NaN where one of them is not finite
    block    rows and columns of the matrix that one cell stands for, at most
    largest  the largest magnitude of a cell
    """

    cells: Array
    block: tuple[int, int]
    largest: float


@dataclass(frozen=True, eq=False)
class ArrayView:
    """One array of a direction.

    key         part and gate, as rnnconvert.Direction.arrays has them
    shape       of the array
    norm        the Frobenius norm of what is finite
    mean, low, high  of what is finite
    not_finite  how many weights are NaN or infinite
    radius      spectral radius of a recurrent matrix (times the projection, where there is one)
    heat        the matrix in few cells; None for a vector, or where a page has too many
    """

    key: Key
    shape: tuple[int, ...]
    norm: float
    mean: float
    low: float
    high: float
    not_finite: int
    histogram: Histogram
    radius: Radius | None = None
    heat: Heatmap | None = None


@dataclass(frozen=True)
class Units:
    """Units of one gate that inputs between -1 and 1 cannot move, by the sizes of its weights and biases.

    always_one, always_zero  units whose gate is within 2 % of an end for any input and state
    """

    always_one: int
    always_zero: int


@dataclass(frozen=True, eq=False)
class DirectionView:
    """One direction of one layer.

    layer, number  where it stands in the stack
    parts          its arrays
    bias           of each gate: lowest, mean and highest of the sum of its biases and what is added at run time
    saturated      of each gate between 0 and 1; empty where a state has no bound
    dead           units whose candidate has neither weights nor bias: their state only fades
    """

    layer: int
    number: int
    direction: Direction
    parts: tuple[ArrayView, ...]
    bias: dict[str, tuple[float, float, float]]
    saturated: dict[str, Units]
    dead: int

    @property
    def radius(self) -> Radius | None:
        """The largest spectral radius of its recurrent matrices."""
        return max((part.radius for part in self.parts if part.radius), key=lambda reach: reach.value, default=None)


def matrices(stack: Recurrent) -> int:
    """Return how many heat maps a stack has."""
    return sum(len(source.shape) == 2 for *_, way in stack.directions() for source in way.arrays.values())


def measured(stack: Recurrent, side: int, work: EigenvalueBudget) -> Iterator[DirectionView]:
    """Yield the measures of each direction of a stack.

    side  the most rows and columns of a heat map; 0 for none
    work  the remaining work that exact spectral radii may take
    """
    for layer, number, direction in stack.directions():
        parts = []
        for key, source in direction.arrays.items():
            array = np.asarray(source)
            parts.append(_part(key, array, side, _radius(direction, key, array, work)))
        yield DirectionView(layer, number, direction, tuple(parts), _bias(direction), _saturated(direction), _dead(direction))


def difference(first: Source, other: Source, side: int) -> ArrayView:
    """Return the measures of the difference of two arrays of one shape, B minus A."""
    a, b = (np.asarray(source) for source in (first, other))
    with np.errstate(all="ignore"):
        return _part(("difference", ""), b.astype(np.float64) - a.astype(np.float64), side, None)


def _part(key: Key, array: Array, side: int, reach: Radius | None) -> ArrayView:
    square = total = 0.0
    low, high, not_finite, count = np.inf, -np.inf, 0, 0
    for piece in _pieces(array):
        numbers = piece.astype(np.float64)
        right = numbers[np.isfinite(numbers)]
        not_finite += numbers.size - right.size
        if right.size:
            square += float(right @ right)
            total += float(right.sum())
            low, high, count = min(low, float(right.min())), max(high, float(right.max())), count + right.size
    if not count:
        low = high = 0.0
    heat = _heat(array, side) if array.ndim == 2 and side else None
    mean = total / count if count else 0.0
    return ArrayView(key, array.shape, square**0.5, mean, low, high, not_finite, _histogram(array, max(-low, high)), reach, heat)


def _pieces(array: Array) -> Iterator[Array]:
    """Yield an array in runs of whole rows, each flat."""
    rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
    step = max(1, _PIECE // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        yield rows[start : start + step].reshape(-1)


def _histogram(array: Array, largest: float) -> Histogram:
    every = -(-array.size // _SAMPLE) or 1
    if every > 1 and array.ndim == 2:  # whole columns apart, so that every row is seen
        every = every if every % 2 else every + 1
    some = array.reshape(-1)[::every].astype(np.float64)
    some = some[np.isfinite(some)]
    edge = largest or 1.0
    counts, _ = np.histogram(some, BINS, (-edge, edge))
    return Histogram(tuple(map(int, counts)), edge, every)


def _heat(array: Array, side: int) -> Heatmap | None:
    if not array.size:
        return None
    blocks = [-(-size // side) for size in array.shape]
    rows = range(0, array.shape[0], blocks[0])
    columns = np.arange(0, array.shape[1], blocks[1])
    widths = np.diff(np.append(columns, array.shape[1]))
    cells = np.empty((len(rows), len(columns)))
    with np.errstate(all="ignore"):
        for number, start in enumerate(rows):
            piece = array[start : start + blocks[0]]
            cells[number] = np.add.reduceat(piece.sum(0, dtype=np.float64), columns) / (widths * len(piece))
    cells[~np.isfinite(cells)] = np.nan
    largest = float(np.nanmax(np.abs(cells))) if np.isfinite(cells).any() else 0.0
    return Heatmap(cells, (blocks[0], blocks[1]), largest)


def _radius(direction: Direction, key: Key, array: Array, work: EigenvalueBudget) -> Radius | None:
    if key[0] != "recurrent" or not np.isfinite(array).all():
        return None
    projection = direction.get("projection")
    if projection is not None and not np.isfinite(projection).all():
        return None
    return radius([array] if projection is None else [projection, array], work)


def _summed(direction: Direction, gate: str) -> Array:
    """Return the biases of a gate, added up with what is added at run time."""
    total = np.full(direction.hidden_size, float(direction.cell.constants.get(gate, 0.0)))
    for part in BIAS_PARTS:
        bias = direction.get(part, gate)
        total += 0.0 if bias is None else bias.astype(np.float64)
    return total


def _bias(direction: Direction) -> dict[str, tuple[float, float, float]]:
    ranges = {}
    for gate in direction.cell.gates:
        total = _summed(direction, gate)
        if total.size and np.isfinite(total).all():
            ranges[gate] = (float(total.min()), float(total.mean()), float(total.max()))
    return ranges


def _saturated(direction: Direction) -> dict[str, Units]:
    cell = direction.cell
    bounded = cell.activation.name == "tanh" if cell.kind == "gru" else cell.output_activation.name == "tanh"
    gates = cell.gate_activation
    if cell.kind == "rnn" or gates.name not in ("sigmoid", "hard_sigmoid") or not bounded or direction.has_peepholes:
        return {}
    projection = direction.get("projection")
    state = np.ones(direction.hidden_size) if projection is None else _reach(projection)
    counts = {}
    for gate in cell.sigmoid_gates:
        matrix, recurrent = direction.get("input", gate), direction.get("recurrent", gate)
        assert recurrent is not None
        reach = np.ones(direction.hidden_size) if matrix is None else _reach(matrix)
        reach = reach + _reach(recurrent, None if projection is None else state)
        bias = _summed(direction, gate)
        low, high = (FUNCTIONS[gates.name](np, bound, gates.alpha, gates.beta) for bound in (bias - reach, bias + reach))
        counts[gate] = Units(int((low > 1 - _FLAT).sum()), int((high < _FLAT).sum()))
    return counts


def _reach(matrix: Array, most: Array | None = None) -> Array:
    """Return how far the product of each row can be from zero, by inputs of magnitude 1, or of other ones."""
    rows = np.empty(len(matrix))
    step = max(1, _PIECE // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), step):
        piece = np.abs(matrix[start : start + step].astype(np.float64))
        rows[start : start + step] = piece.sum(1) if most is None else piece @ most
    return rows


def _dead(direction: Direction) -> int:
    gate = CANDIDATE[direction.cell.kind]
    moved = _summed(direction, gate) != 0
    for part in ("input", "recurrent"):
        matrix = direction.get(part, gate)
        moved |= True if matrix is None else (matrix != 0).any(1)
    return int((~moved).sum())
