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

from rnnconvert.core.arrays import FLOATS
from rnnconvert.core.reference import FUNCTIONS, Function, Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import solved, worse

AMPLIFIED = 16
"""From how many units in the last place on the error of a function has been amplified: in other layers it stays below, and what is
allowed there remains as narrow as sums and weights alone make it."""

BOUNDED = frozenset({"tanh", "sigmoid", "softsign", "hard_sigmoid"})
"""The functions whose values are 1 at most. A gate times the value of another, such as relu, has the error of the gate's function as
many times larger as that value is: where one of 40 leaves a unit near 0, the unit is off by 40 units in the last place of 1."""

_MORE = range(1, 4)
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
    """Return what the reference gives in float64 where each value of tanh and sigmoid is a unit off, up or down at random."""
    draw = np.random.default_rng(seed)

    def off(name: str) -> Function:
        def function(xp: Any, x: Any, alpha: float, beta: float) -> Any:
            values = FUNCTIONS[name](xp, x, alpha, beta)
            return values + arithmetic.unit * draw.choice([-1.0, 1.0], values.shape)

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
    gated = _gates_what_is_unbounded(stack)
    amplified = [number for number, truth in enumerate(truths) if gated or _amplified(truth, off[number], arithmetic.unit)]
    some = [cases[number] for number in amplified]
    several = [of_functions(stack, some, arithmetic, seed) for seed in _MORE] if some else []
    for place, number in enumerate(amplified):
        worst[number] = worse(truths[number], worst[number], off[number], *(more[place] for more in several))
    return worst


def _gates_what_is_unbounded(stack: Recurrent) -> bool:
    """Return whether a gate multiplies values that may be larger than 1."""
    cells = [direction.cell for *_, direction in stack.directions()]
    return any(cell.kind != "rnn" and not BOUNDED.issuperset({cell.activation.name, cell.output_activation.name}) for cell in cells)


def _amplified(truth: Outputs, off: Outputs, unit: float) -> bool:
    """Return whether the error of a function has become larger than one step makes it."""
    for exact, shifted in zip((truth.y, *truth.hidden, *truth.cell), (off.y, *off.hidden, *off.cell), strict=True):
        counts = np.isfinite(exact) & np.isfinite(shifted)
        with np.errstate(all="ignore"):
            gap = np.where(counts, np.abs(shifted - exact), 0.0).max(initial=0.0)
            size = np.where(counts, np.abs(exact), 0.0).max(initial=1.0)
        if gap > AMPLIFIED * unit * size:
            return True
    return False
