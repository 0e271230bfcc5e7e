"""The equations of cells, evaluated for numbers of their variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation
from rnnconvert.core.reference import FUNCTIONS

Numbers = Mapping[object, Array]
Computed = Callable[[Numbers], Array]


def run_function(function: Activation, x: Array) -> Array:
    """Return the values of an activation function."""
    return np.asarray(FUNCTIONS[function.name](np, x, function.alpha, function.beta))


def of_one(key: object, function: Activation, numbers: Numbers) -> Array:
    """Return a function of one variable."""
    return run_function(function, numbers[key])


def candidate_after(keys: tuple[object, object, object], function: Activation, gate: Activation, way: int, numbers: Numbers) -> Array:
    """Return the candidate of a GRU with the reset gate after the product."""
    r, above, below = (numbers[key] for key in keys)
    return run_function(function, above + run_function(gate, way * r) * below)


def updated(keys: tuple[object, object], gate: Activation, sign: int, candidate: Computed) -> Computed:
    """Return a function from numbers of its variables to the new state of a GRU."""

    def run(numbers: Numbers) -> Array:
        h, z = (numbers[key] for key in keys)
        retained = run_function(gate, sign * z)
        return np.asarray((1 - retained) * candidate(numbers) + retained * h)

    return run


def lstm_gives(keys: Sequence[object], functions: Sequence[Activation], signs: Mapping[str, int], numbers: Numbers) -> Array:
    """Return the new state of an LSTM."""
    (i, f, g, c, o), (gate, function, last) = (numbers[key] for key in keys), functions
    new = run_function(gate, signs["f"] * f) * c + run_function(gate, signs["i"] * i) * run_function(function, g)
    return np.asarray(run_function(gate, signs["o"] * o) * run_function(last, new))
