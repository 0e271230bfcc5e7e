"""Computed matrices give their parts, and the parts are those of the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rnnconvert import rewrites
from rnnconvert.core.arrays import Deferred
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, Cell
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests.helpers.stacks import BOTH, random_stack

TWO = Sizes("lstm", 3, 5, num_layers=2, num_directions=2, parts=BOTH)
PROJECTED = replace(TWO, projection_size=4, parts=BOTH | {"projection"})
HARD = Cell("lstm", None, gate_activation=HARD_SIGMOID_KERAS_2)


def _summed(stack: Recurrent) -> Recurrent:
    half = stack.first.output_size
    above = tuple(
        d.with_arrays({("input", g): np.asarray(d.arrays["input", g])[:, :half] for g in d.cell.gates}) for d in stack.layers[1].directions
    )
    return stack.replace(layers=(Layer(stack.layers[0].directions, "ave"), Layer(above)))


def _apart(stack: Recurrent) -> Recurrent:
    return _summed(stack).replace(layers=(Layer(stack.layers[0].directions), _summed(stack).layers[1]), join="end")


CASES: dict[str, Callable[[], Recurrent]] = {
    "scaled": lambda: each(
        random_stack(TWO, 0, np.float32, HARD), lambda d: rewrites.SCALE_HARD_SIGMOID.apply(d, HARD_SIGMOID_KERAS_3, "gate_activation")
    ),
    "folded": lambda: rewrites.FOLD_PROJECTION.apply(random_stack(PROJECTED, 0, np.float32)),
    "summed": lambda: rewrites.FOLD_MERGE.apply(_summed(random_stack(TWO, 0, np.float16))),
    "apart": lambda: rewrites.JOIN_WITH_ZEROS.apply(_apart(random_stack(TWO, 0))),
    "skipped": lambda: each(random_stack(replace(TWO, num_layers=1, skip_input=True, input_size=5), 0), rewrites.WRITE_IDENTITY.apply),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_are_those_of_the_whole(case: str) -> None:
    stack = CASES[case]()
    computed = [a for _, _, d in stack.directions() for a in d.arrays.values() if isinstance(a, Deferred)]
    matrices = [a for a in computed if len(a.shape) == 2]
    assert matrices
    for matrix in matrices:
        full = np.asarray(matrix)
        assert full.shape == matrix.shape and full.dtype == matrix.dtype
        for rows in (slice(None), slice(0, 2), slice(2, 9)):
            for columns in (slice(None), slice(0, 1), slice(1, 5), slice(4, 7), slice(6, 99)):
                np.testing.assert_allclose(matrix[rows, columns], full[rows, columns], rtol=1e-6, atol=1e-7)
        joined = np.concatenate([piece.copy() for piece in matrix.pieces()]).reshape(matrix.shape)
        np.testing.assert_allclose(joined, full, rtol=1e-6, atol=1e-7)
