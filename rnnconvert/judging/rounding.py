"""How far rounding leads: that of an element type and of functions, which a recurrence may amplify step by step.

What is allowed at the end of a run, a unit in the last place of 1 for what comes out of tanh (rnnconvert.judging.judging), then has to be
allowed where it arises: at each value of a function, in every step. onnxruntime 1.27's tanh is up to 2.5 such units off, its sigmoid 1.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array, epsilon
from rnnconvert.core.reference import FUNCTIONS, Function, Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import solved, worse
from rnnconvert.judging.judging import Allowance, Output, allowed

SHARE = 0.5
"""Which part of what sums and weights allow the error of functions may take, a unit in the last place of 1 in each value. Where it takes
more, as a recurrence amplifies it, a cell sums it up over the steps, or a gate multiplies a large value by it, it is allowed as well."""

_MORE = range(1, 4)
WAVES = 40.0
"""The error of a function changes its sign whenever the argument moves on by pi / 40."""
_SHIFTS = (0.0, 0.25, 0.5, 0.75)
"""Where between two numbers a coarse function changes from one to the next, in units of their distance."""


@dataclass(frozen=True)
class Arithmetic:
    """How exactly a library computes.

    dtype  the element type
    tanh   the binary digits of its tanh, where they are fewer than the type's; 0 for as many
    """

    dtype: np.dtype[Any]
    tanh: int = 0

    @property
    def unit(self) -> float:
        """How far a value of a function near 1 may be off."""
        return max(epsilon(self.dtype), 2.0**-self.tanh if self.tanh else 0.0)

    @property
    def estimates(self) -> tuple[Mapping[str, Function], ...]:
        """The reference's functions, no more exact than this; several times where each may be right by luck."""
        return tuple({**FUNCTIONS, "tanh": partial(self._tanh, shift)} for shift in _SHIFTS) if self.tanh else (FUNCTIONS,)

    def _tanh(self, shift: float, xp: Any, x: Any, alpha: float, beta: float) -> Any:
        digits, exponent = np.frexp(np.tanh(np.asarray(x if xp is np else x.detach(), np.float64)))
        values = np.ldexp((np.round(digits * 2.0**self.tanh + shift) - shift) / 2.0**self.tanh, exponent)
        values = np.clip(values, -1, 1)
        if xp is np:
            return values.astype(x.dtype)
        # The slope is that of the value: where another argument gives it.
        with np.errstate(divide="ignore"):
            return xp.tanh(x + (xp.asarray(np.arctanh(values)).to(x.dtype) - x).detach())


PERSISTENT = "float32, tanh to 16 digits"
"""cuDNN's persistent kernels in single precision: their tanh is off by up to 1.03e-5 of its value, at 0.59, their sigmoid by a unit in the
last place of 1. Measured with cuDNN 9.19 on an H100, at 32,768 arguments up to 10 of either sign. PyTorch calls them for small layers."""

ARITHMETICS: Mapping[str, Arithmetic] = {
    **{name: Arithmetic(dtype) for name, dtype in FLOATS.items()},
    PERSISTENT: Arithmetic(FLOATS["float32"], 16),
}
"""The arithmetics that an executor may state, by name."""


def of_functions(stack: Recurrent, cases: Sequence[Case], arithmetic: Arithmetic, seed: int = 0) -> list[Outputs]:
    """Return the reference's outputs in float64 with each value of tanh and sigmoid a unit off, up or down.

    A library is off by the same for the same argument: in each step, if a gate stays unchanged.
    """

    def off(name: str) -> Function:
        def function(xp: Any, x: Any, alpha: float, beta: float) -> Any:
            values = FUNCTIONS[name](xp, x, alpha, beta)
            with np.errstate(invalid="ignore", over="ignore"):
                signs = np.nan_to_num(np.sign(np.cos(WAVES * x + seed)))  # none where the argument is infinite
            return values + arithmetic.unit * signs

        return function

    return solved(stack, cases, functions={**FUNCTIONS, "tanh": off("tanh"), "sigmoid": off("sigmoid")})


def floors(
    stack: Recurrent,
    cases: Sequence[Case],
    arithmetic: Arithmetic,
    truths: Sequence[Outputs],
    off: Sequence[Outputs],
    *rough: Sequence[Outputs],
) -> list[Outputs]:
    """Return for each case how far rounding in an arithmetic leads.

    truths  what float64 gives
    off     what `of_functions` gives
    rough   estimates of what rounding makes of it, each for every case: `rnnconvert.judging.cases.worse`
    """
    worst = list(map(worse, truths, *rough))
    lacks = [_Lack.of(case, arithmetic, *every) for case, *every in zip(cases, truths, worst, off, strict=True)]
    large = [number for number, lack in enumerate(lacks) if lack.largest > 1]
    some = [cases[number] for number in large]
    several = [of_functions(stack, some, arithmetic, seed) for seed in _MORE] if some else []
    estimates = {number: [more[place] for more in several] for place, number in enumerate(large)}
    for number, case in enumerate(cases):
        worst[number] = lacks[number].filled(worst[number], off[number])
        for other in estimates.get(number, ()):
            worst[number] = _Lack.of(case, arithmetic, truths[number], worst[number], other).filled(worst[number], other)
    return worst


@dataclass(frozen=True)
class _Lack:
    """How large the error of functions is at each number, in units of what rounding in sums and weights allows there."""

    y: Array
    hidden: tuple[Array, ...]
    cell: tuple[Array, ...]

    @classmethod
    def of(cls, case: Case, arithmetic: Arithmetic, truth: Outputs, rough: Outputs, off: Outputs) -> _Lack:
        def lack(axes: tuple[str, ...], exact: Array, floor: Array, shifted: Array) -> Array:
            with np.errstate(all="ignore"):
                limit = allowed(Output(case.name, "", axes), exact, Allowance([floor], arithmetic.dtype))
                ratio = np.abs(shifted - exact) / limit
            return np.where(np.isfinite(ratio), ratio, 0.0)

        def states(name: str) -> tuple[Array, ...]:
            every = zip(*(getattr(outputs, name) for outputs in (truth, rough, off)), strict=True)
            return tuple(lack(("batch", "unit"), *arrays) for arrays in every)

        return cls(lack(("time", "batch", "unit"), truth.y, rough.y, off.y), states("hidden"), states("cell"))

    @property
    def largest(self) -> float:
        """The largest of all."""
        return max(float(array.max(initial=0.0)) for array in (self.y, *self.hidden, *self.cell))

    def filled(self, rough: Outputs, off: Outputs) -> Outputs:
        """Return the estimate of rounding, with that of functions where they may be off by so much."""

        def filled(ratio: Array, floor: Array, shifted: Array) -> Array:
            return np.where(ratio > SHARE, shifted, floor)

        def states(name: str) -> tuple[Array, ...]:
            return tuple(map(filled, getattr(self, name), getattr(rough, name), getattr(off, name)))

        return Outputs(filled(self.y, rough.y, off.y), states("hidden"), states("cell"))
