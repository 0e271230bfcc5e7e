"""How far a framework may be from the float64 reference: as far as its own arithmetic explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Cell
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import random_stack, random_states

FACTOR = 8
"""How many times the noise floor is allowed: sums in another order, functions of another library."""

ULPS = 4
"""And how many units in the last place of the largest value, for outputs that the floor meets by luck."""

WRONG = 100
"""How many times what is allowed a wrong gate order must be off to count as caught."""


@dataclass(frozen=True)
class Problem:
    """A stack, and what it is given: x, initial states and lengths, as the reference takes them."""

    stack: Recurrent
    x: Array
    hidden: tuple[Array, ...] | None = None
    cell: tuple[Array, ...] | None = None
    lengths: Array | None = None

    @classmethod
    def random(cls, form: Sizes, cell: Cell, dtype: Any, seed: int, *, scale: float = 1, lengths: Array | None = None) -> Problem:
        """Random weights, initial states and an input of 5 steps for 3 sequences."""
        x = np.random.default_rng(seed + 1).uniform(-1, 1, (5, 3, form.input_size)).astype(dtype)
        return cls(random_stack(form, seed, dtype, cell, scale), x, *random_states(form, 3, seed + 2, dtype), lengths)

    def solved(self, dtype: Any = np.float64) -> Outputs:
        """What the reference makes of it, in that arithmetic."""
        return reference.run(self.stack, self.x, self.hidden, self.cell, self.lengths, dtype)

    def cotangents(self, seed: int) -> tuple[Outputs, dict[str, Any]]:
        """Random factors of the outputs in the sum whose gradients are asked for, and the same as a request states them."""
        rng, solved = np.random.default_rng(seed), self.solved()
        y, *states = (np.asarray(rng.uniform(-1, 1, output.shape)) for output in _all(solved))
        hidden, cell = states[: len(solved.hidden)], states[len(solved.hidden) :]
        return Outputs(y, tuple(hidden), tuple(cell)), {"y": y, "hidden": hidden, "cell": cell}


def excess(problem: Problem, outputs: Outputs) -> float:
    """The largest error of any output, in units of what is allowed for it: right is at most 1.

    Truth is the float64 reference on the same numbers. The noise floor is the error of the reference in the
    element type of the weights.
    """
    truth, floor = problem.solved(), problem.solved(problem.stack.dtype)
    eps = float(ml_dtypes.finfo(problem.stack.dtype).eps)
    worst = 0.0
    for exact, rough, actual in zip(_all(truth), _all(floor), _all(outputs), strict=True):
        assert exact.shape == actual.shape
        noise = np.abs(rough.astype(np.float64) - exact).max()
        allowed = FACTOR * noise + ULPS * eps * max(1.0, float(np.abs(exact).max()))
        # A comparison with NaN is False: nan / allowed would pass for small.
        assert np.isfinite(actual).all()
        worst = max(worst, float(np.abs(actual.astype(np.float64) - exact).max() / allowed))
    return worst


def _all(outputs: Outputs) -> Iterator[Array]:
    yield outputs.y
    yield from outputs.hidden
    yield from outputs.cell


def batch_first(layer: Recurrent, x: Array) -> Array:
    """What the reference makes of a layer, (batch, time, out)."""
    return np.asarray(reference.run(layer, x.swapaxes(0, 1)).y.swapaxes(0, 1))


def outputs_of(stack: Recurrent, x: Array, hidden: bool = True) -> list[Array]:
    """What the reference gives: outputs, last hidden states where they are asked for, and last cells."""
    result = reference.run(stack, x)
    return [result.y, *(result.hidden if hidden else ()), *result.cell]


def close(actual: Array, expected: Array) -> bool:
    """Whether outputs of two models in float32 are equal but for rounding, and say something."""
    assert actual.shape == expected.shape
    assert np.abs(expected).max() > 0.05, "these outputs show nothing"
    return bool(np.abs(actual - expected).max() <= 2e-5 * max(1.0, float(np.abs(expected).max())))
