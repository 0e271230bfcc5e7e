"""How far rounding leads: that of an element type, of functions, and where a recurrence amplifies it, each step's error coming back larger.

What is allowed at the end of a run, a unit in the last place of 1 for what comes out of tanh (rnnconvert.judging.judging), then has to be
allowed where it arises: at each value of a function, in every step. onnxruntime 1.27's tanh is up to 2.5 such units off, its sigmoid 1.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.reference import FUNCTIONS, Function, Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import solved, worse
from rnnconvert.judging.judging import Allowance, Output, allowed

SHARE = 0.5
"""Which part of what sums and weights allow the error of functions may take, a unit in the last place of 1 in each value. Where it takes
more, as a recurrence amplifies it, a cell sums it up over the steps, or a gate multiplies a large value by it, it is allowed as well."""

_MORE = range(1, 4)
_WAVES = 40.0
"""How quickly the error of a function changes its sign with the argument: between any two that are told apart here."""
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
        return max(float(ml_dtypes.finfo(self.dtype).eps), 2.0**-self.tanh if self.tanh else 0.0)

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
"""By what a run is said to round like."""


def of_functions(stack: Recurrent, cases: Sequence[Case], arithmetic: Arithmetic, seed: int = 0) -> list[Outputs]:
    """Return what the reference gives in float64 where each value of tanh and sigmoid is a unit off, up or down.

    A library is off by the same for the same argument: in each step, where a gate stays as it is.
    """

    def off(name: str) -> Function:
        def function(xp: Any, x: Any, alpha: float, beta: float) -> Any:
            values = FUNCTIONS[name](xp, x, alpha, beta)
            return values + arithmetic.unit * np.sign(np.cos(_WAVES * x + seed))

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
    short = [number for number, case in enumerate(cases) if _short(case, arithmetic, truths[number], worst[number], off[number]).any]
    some = [cases[number] for number in short]
    several = [of_functions(stack, some, arithmetic, seed) for seed in _MORE] if some else []
    for place, number in enumerate(short):
        for functions in (off[number], *(more[place] for more in several)):
            worst[number] = _short(cases[number], arithmetic, truths[number], worst[number], functions).filled(worst[number], functions)
    return worst


@dataclass(frozen=True)
class _Short:
    """At which numbers what rounding in sums and weights allows is too little for the error of functions alone."""

    y: Array
    hidden: tuple[Array, ...]
    cell: tuple[Array, ...]

    @property
    def any(self) -> bool:
        return any(bool(array.any()) for array in (self.y, *self.hidden, *self.cell))

    def filled(self, rough: Outputs, off: Outputs) -> Outputs:
        """Return the estimate of rounding, with that of functions at these numbers."""

        def states(name: str) -> tuple[Array, ...]:
            return tuple(map(np.where, getattr(self, name), getattr(off, name), getattr(rough, name)))

        return Outputs(np.where(self.y, off.y, rough.y), states("hidden"), states("cell"))


def _short(case: Case, arithmetic: Arithmetic, truth: Outputs, rough: Outputs, off: Outputs) -> _Short:
    def short(axes: tuple[str, ...], exact: Array, floor: Array, shifted: Array) -> Array:
        with np.errstate(all="ignore"):
            limit = allowed(Output(case.name, "", axes), exact, Allowance([floor], arithmetic.dtype))
            gap = np.abs(shifted - exact)
        return np.asarray(np.isfinite(gap) & (gap > SHARE * limit))

    def states(name: str) -> tuple[Array, ...]:
        every = zip(*(getattr(outputs, name) for outputs in (truth, rough, off)), strict=True)
        return tuple(short(("batch", "unit"), *arrays) for arrays in every)

    return _Short(short(("time", "batch", "unit"), truth.y, rough.y, off.y), states("hidden"), states("cell"))
