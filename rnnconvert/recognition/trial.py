"""A step tried on numbers: whether a formula gives what it gives, and which function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import ACTIVATION_DEFAULTS, Activation, Cell
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.recognition.corners import corners, narrowed
from rnnconvert.recognition.equations import Computed, run_function
from rnnconvert.recognition.expression import Leaf, Piece, Unitwise, constants, value, variables

_SAMPLES = 48


_CLOSE = 3e-7
"""How far two formulas may be apart: constants such as 1/6 are in single precision in the file."""


@dataclass(frozen=True, eq=False)
class Match:
    """A cell that a step computes.

    cell   the cell
    gates  what stands in each gate: a sum of products; for a GRU with the reset gate after the product, the candidate has
           two, and the one with the state is under "n'"
    signs  -1 for a gate whose function is 1 - sigmoid: its numbers change sign
    new    the formula of the LSTM's new cell state
    old    the cell state before, an LSTM's
    """

    cell: Cell
    gates: Mapping[str, Piece]
    signs: Mapping[str, int]
    new: Piece | None = None
    old: Leaf | None = None


class Trial:
    """A formula, and the numbers that it is tried on: of every size, each variable for itself."""

    def __init__(self, formula: Piece, size: int) -> None:
        self.formula, self.names = formula, variables(formula)
        random = np.random.default_rng(20)
        self.draws: dict[object, Array] = {}
        bounds = np.repeat(sorted(constants(formula))[:_SAMPLES], 4)[:, None] * 3  # beyond what a Clip or Min may stop at
        for key in self.names:
            scale = 10.0 ** random.uniform(-2, 1, (_SAMPLES, 1))
            scale[-8:] = 10.0 ** random.uniform(1, 5, (8, 1))
            scale = np.concatenate([scale, bounds])
            self.draws[key] = random.standard_normal((len(scale), size)) * scale

    def evaluate(self, changed: Mapping[object, Array | float]) -> Array:
        """Return the values of the formula with other numbers for some variables."""
        shape = next(iter(self.draws.values())).shape
        new = {key: np.broadcast_to(np.asarray(array, np.float64), shape) for key, array in changed.items()}
        return np.broadcast_to(value(self.formula, {**self.draws, **new}), shape)

    def reads(self, function: Callable[[Mapping[object, Array | float]], Array], fixed: Sequence[object]) -> list[object]:
        """Return the variables that change what a function of the numbers gives."""
        before = function({})
        return [key for key in self.names if key not in fixed and not same(function({key: self.draws[key][::-1] * 0.7 + 0.3}), before)]


def same(array: Array, other: Array) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.allclose(array, other, rtol=_CLOSE, atol=_CLOSE) and np.isfinite(array).all())


def confirmed(trial: Trial, cell: Computed, matched: Match) -> Match:
    """Return a match once the formula as it stands gives what the cell gives, on random numbers and at its corners."""
    extremes = corners(trial.formula, next(iter(trial.draws.values())).shape[1])
    if not same(trial.evaluate({}), cell(trial.draws)) or not same(value(trial.formula, extremes), cell(extremes)):
        raise UnmatchedError("it is close to a cell, and differs on some numbers")
    return matched


def same_function(piece: Piece, other: Piece) -> bool:
    """Return whether two formulas of the same variables are one function: at random numbers, and at the corners of both."""
    both, tried = narrowed(Unitwise("Sub", (piece, other), (), max(piece.width, other.width)))
    assert isinstance(both, Unitwise)
    trial = Trial(both, tried)
    if not trial.names:
        return same(value(both, {}), np.zeros(()))
    near = corners(both, next(iter(trial.draws.values())).shape[1])
    with np.errstate(all="ignore"):
        return all(same(*(value(each, draws) for each in both.operands)) for draws in (trial.draws, near))


def with_fixed(
    function: Callable[[Mapping[object, Array | float]], Array],
    key: object,
    fixed: Mapping[object, Array | float],
    divisor: Array | float,
    x: Array,
) -> Array:
    """Return the values of a formula for some numbers of one variable, the others fixed, divided by a factor of it."""
    return np.asarray(function({**fixed, key: x}) / divisor)


def gate_of(function: Callable[[Array], Array], shape: tuple[int, ...]) -> tuple[Activation, Literal[1, -1]]:
    activation = identified(function, shape)
    if activation is not None:
        return activation, 1
    activation = identified(lambda x: function(-x), shape)
    if activation is not None:
        return activation, -1
    raise UnmatchedError("no layer has the function of its gates")


_PLAIN = ("sigmoid", "tanh", "relu", "linear", "softsign", "softplus")


def identified(function: Callable[[Array], Array], shape: tuple[int, ...]) -> Activation | None:
    """Return the function that gives the same numbers, if it is one that layers have."""
    random = np.random.default_rng(22)
    scale = 10.0 ** random.uniform(-2, 1.5, (shape[0], 1))
    tried = np.asarray(random.standard_normal(shape) * scale)
    with np.errstate(all="ignore"):
        outputs = function(tried)
        if not np.isfinite(outputs).all():
            return None
        for activation in (*map(Activation, _PLAIN), *_with_constants(function, shape)):
            if same(outputs, run_function(activation, tried)):
                return activation
    return None


def _with_constants(function: Callable[[Array], Array], shape: tuple[int, ...]) -> Iterator[Activation]:
    """Yield functions with the constants that they would need."""

    def at(x: float) -> float:
        return float(np.asarray(function(np.full(shape, x))).reshape(-1)[0])

    level, slope = at(0.0), (at(0.25) - at(-0.25)) / 0.5
    yield Activation("hard_sigmoid", _decimal(slope), _decimal(level))
    yield Activation("leaky_relu", _decimal(-at(-1.0)))
    yield Activation("elu", _decimal(-at(-200.0)))
    assert {"hard_sigmoid", "leaky_relu", "elu"} <= set(ACTIVATION_DEFAULTS)


def _decimal(number: float) -> float:
    """Return the number that was meant by one in single precision."""
    short = float(f"{number:.6g}")
    return next((candidate for candidate in (short, 1 / 6, 1 / 3) if abs(candidate - number) < 1e-7 * max(1.0, abs(number))), number)
