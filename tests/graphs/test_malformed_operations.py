"""Folding rejects an operation with unsuitable attributes or inputs: it neither fails with an internal error nor refunds work."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import MALFORMED, passes, strictly
from rnnconvert.graphs.program import fold
from rnnconvert.graphs.program.computing import COMPUTING, computed
from rnnconvert.graphs.program.evaluate import Budget, UnmatchedError
from rnnconvert.graphs.program.fold_call import FoldedCall
from tests.helpers.drawn import SEED, each

LARGEST = 1 << 24
"""Bytes that one operation of these few numbers may ask for."""
ATTRIBUTES = (
    *("allowzero", "alpha", "axes", "axis", "batch_axis", "beta", "block_size", "end", "ends", "equation", "keepdims", "max", "min"),
    *(
        "mode",
        "noop_with_empty_axes",
        "num_outputs",
        "output_dtype",
        "pads",
        "perm",
        "shape",
        "split",
        "start",
        "starts",
        "steps",
        "time_axis",
    ),
    *("to", "transA", "transB", "value", "value_float", "value_floats", "value_int", "value_ints"),
)


def array(rng: np.random.Generator) -> Array:
    """A small array of any element type, of at most three axes, some of them of the length 0."""
    shape = tuple(int(length) for length in rng.integers(0, 4, rng.integers(0, 4)))
    kind = rng.choice(np.array(["float32", "float32", "int64", "int64", "int32", "bool", "int8", "float64"]))
    return rng.integers(-3, 4, shape).astype(kind)


def attribute(rng: np.random.Generator) -> Any:
    """A value of any kind that a file may state."""
    integers = [int(value) for value in rng.integers(-4, 5, rng.integers(0, 4))]
    kinds: list[Any] = [integers, 0.5, "ij,jk->ik", array(rng), None, np.dtype(np.float32), [0.5, "x"], 2**40, int(rng.integers(-5, 6))]
    return kinds[rng.integers(len(kinds))]


def charge(size: int) -> None:
    assert size >= 0, "work is given back"
    if size > LARGEST:
        raise MemoryError


def test_an_operation_of_any_inputs_and_attributes_is_computed_or_is_no_constant() -> None:
    results: Counter[str] = Counter()

    def check(operator: str) -> None:
        rng = np.random.default_rng([SEED, *operator.encode()])
        for _ in range(200):
            inputs = [array(rng) if rng.random() < 0.9 else None for _ in range(rng.integers(0, 5))]
            attributes = {str(name): attribute(rng) for name in rng.choice(ATTRIBUTES, rng.integers(0, 4))}
            call = FoldedCall(operator, inputs, attributes, int(rng.integers(1, 4)), int(rng.integers(1, 20)), charge)
            with strictly(), np.errstate(all="ignore"):
                try:
                    results[operator] += computed(call) is not None
                except MALFORMED as error:  # fold leaves these out itself
                    assert not passes(error), (call, error)

    operators = sorted({*fold._OPERATORS, *COMPUTING})
    each(operators, check)
    assert sum(results[operator] > 0 for operator in operators) > len(operators) * 3 // 4, "most of these are uses that make sense"


def test_work_of_less_than_nothing_is_not_given_back() -> None:
    budget = Budget(10)
    with contextlib.suppress(ValueError, UnmatchedError):
        budget.spend(0, -1000)
    assert budget.work <= 10
