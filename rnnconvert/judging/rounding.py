"""How far rounding leads where a recurrence amplifies it: each step's error comes back larger in the next.

What is allowed at the end of a run, a unit in the last place of 1 for what comes out of tanh (rnnconvert.judging.judging), then has to be
allowed where it arises: at each value of a function, in every step. onnxruntime 1.27's tanh is up to 2.5 such units off, its sigmoid 1.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core.reference import Outputs
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


def of_functions(stack: Recurrent, cases: Sequence[Case], dtype: Any, seed: int = 0) -> list[Outputs]:
    """Return what the reference gives in float64 where each value of tanh and sigmoid is a unit in the last place of 1 of an
    element type off, up or down at random.
    """
    eps, draw = float(ml_dtypes.finfo(dtype).eps), np.random.default_rng(seed)
    return solved(stack, cases, error=lambda values: values + eps * draw.choice([-1.0, 1.0], values.shape))


def floors(
    stack: Recurrent, cases: Sequence[Case], dtype: Any, truths: Sequence[Outputs], off: Sequence[Outputs], *rough: Sequence[Outputs]
) -> list[Outputs]:
    """Return for each case how far rounding in an element type leads.

    truths  what float64 gives
    off     what `of_functions` gives
    rough   estimates of what rounding makes of it, each for every case: `rnnconvert.judging.cases.worse`
    """
    worst = list(map(worse, truths, *rough))
    gated = _gates_what_is_unbounded(stack)
    amplified = [number for number, truth in enumerate(truths) if gated or _amplified(truth, off[number], dtype)]
    some = [cases[number] for number in amplified]
    several = [of_functions(stack, some, dtype, seed) for seed in _MORE] if some else []
    for place, number in enumerate(amplified):
        worst[number] = worse(truths[number], worst[number], off[number], *(more[place] for more in several))
    return worst


def _gates_what_is_unbounded(stack: Recurrent) -> bool:
    """Return whether a gate multiplies values that may be larger than 1."""
    cells = [direction.cell for *_, direction in stack.directions()]
    return any(cell.kind != "rnn" and not BOUNDED.issuperset({cell.activation.name, cell.output_activation.name}) for cell in cells)


def _amplified(truth: Outputs, off: Outputs, dtype: Any) -> bool:
    """Return whether the error of a function has become larger than one step makes it."""
    eps = float(ml_dtypes.finfo(dtype).eps)
    for exact, shifted in zip((truth.y, *truth.hidden, *truth.cell), (off.y, *off.hidden, *off.cell), strict=True):
        counts = np.isfinite(exact) & np.isfinite(shifted)
        with np.errstate(all="ignore"):
            gap = np.where(counts, np.abs(shifted - exact), 0.0).max(initial=0.0)
            size = np.where(counts, np.abs(exact), 0.0).max(initial=1.0)
        if gap > AMPLIFIED * eps * size:
            return True
    return False
