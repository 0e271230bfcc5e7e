"""Outputs of whole models: rounding explains as much as they move when every weight is about one unit in the last place off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Allowance, Output, Tolerance, compare, tolerance

SHAKES = 2
"""How often the weights of one of the models are moved: the largest difference counts."""


@dataclass(frozen=True)
class WholeJudge:
    """Compares what two models gave.

    dtype       the coarser element type of their weights
    tolerances  a user's own, by output
    coarse      how many units in the last place of 1 functions of a framework are off, however small their values are
    """

    dtype: np.dtype[Any]
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    coarse: float = 0.0

    def compare(
        self, output: Output, value: Array, truth: Array, *, moved: Sequence[Array] = (), truth_moved: Sequence[Array] = ()
    ) -> OutputComparison:
        """Compare an output with what the other model gave there.

        moved        what it was with other weights, several times
        truth_moved  the same of the other model

        Raises UsageError if the shapes differ.
        """
        # What the model that is judged moves by is brought to where the truth is.
        floors = [*truth_moved, *(truth + _moves(each, value) for each in moved)]
        # The functions in a model may be followed by a small factor: what its outputs show is as small as they are.
        least = min(float(np.abs(np.nan_to_num(truth.astype(np.float64))).max(initial=0.0)), 1.0)
        least = max(least, self.coarse)
        return compare(output, value, truth, Allowance(floors, self.dtype, tolerance(output.name, self.tolerances), least))


def _moves(moved: Array, value: Array) -> Array:
    """Return by how much an output moves; not at all where it is not finite either way: rounding does not make it so."""
    with np.errstate(all="ignore"):
        gap = moved.astype(np.float64) - value.astype(np.float64)
    return np.where(np.isfinite(moved) | np.isfinite(value), gap, 0.0)
