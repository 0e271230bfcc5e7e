"""Numbers that differ as numbers do: rounded, on a grid of steps, or near; nothing else is called so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import safetensors
from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis.fault_weights import with_direction
from rnnconvert.diagnosis.faults import FAULTS
from rnnconvert.diagnosis.near import near
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack
from rnnconvert.reports import findings
from tests.helpers.stacks import BOTH, random_stack

SIZES = [Sizes("gru", 5, 7, 2, 2, 0, BOTH), Sizes("lstm", 3, 8, 1, 1, 0, BOTH), Sizes("rnn", 40, 30, 1, 1, 0, BOTH)]


def changed(stack: Recurrent, change: Callable[[Array], Array]) -> Recurrent:
    """A stack with every array changed."""
    for layer, number, direction in stack.directions():
        arrays = {key: change(np.asarray(array)) for key, array in direction.arrays.items()}
        stack = with_direction(stack, layer, number, replace(direction, arrays=arrays))
    return stack


def stepped(array: Array, count: int = 127) -> Array:
    """An array in steps of each row."""
    rows = array.reshape(len(array), -1) if array.ndim > 1 else array.reshape(1, -1)
    step = np.abs(rows).max(axis=1, keepdims=True) / count
    return (np.round(rows / step) * step).astype(array.dtype).reshape(array.shape)


NUMBERS: dict[str, Callable[[Array], Array]] = {
    "rounded to float16": lambda array: array.astype(np.float16).astype(array.dtype),
    "rounded to bfloat16": lambda array: array.astype(FLOATS["bfloat16"]).astype(array.dtype),
    "rounded to 8-bit integers": stepped,
    "other numbers": lambda array: (array * (1 + 0.01 * np.random.default_rng(0).normal(size=array.shape))).astype(array.dtype),
}


@pytest.mark.parametrize("sizes", SIZES, ids=[sizes.kind for sizes in SIZES])
@pytest.mark.parametrize("name", NUMBERS)
def test_how_numbers_differ_is_named(name: str, sizes: Sizes) -> None:
    stack = random_stack(sizes, 3, np.float32)
    difference = near(stack, changed(stack, NUMBERS[name]))
    assert difference is not None and difference.name == name


@pytest.mark.parametrize("sizes", SIZES, ids=[sizes.kind for sizes in SIZES])
def test_a_wrong_convention_is_never_called_rounding(sizes: Sizes) -> None:
    stack, tried = random_stack(sizes, 4, np.float32), 0
    for fault in FAULTS.values():
        planted = fault.change(stack) if fault.change is not None else None
        if planted is not None:
            tried += 1
            assert near(stack, planted) is None, fault.name
    assert tried > 5


def test_one_wrong_number_is_never_called_rounding() -> None:
    stack = random_stack(SIZES[1], 5, np.float32)
    direction = stack[0, 0]
    array = np.array(direction.arrays["recurrent", "i"])
    array[2, 1] *= 1.01
    arrays = {**direction.arrays, ("recurrent", "i"): array}
    assert near(stack, with_direction(stack, 0, 0, replace(direction, arrays=arrays))) is None


def test_a_report_says_that_numbers_are_rounded(tmp_path: Path) -> None:
    stack = random_stack(SIZES[1], 6, np.float32)
    for name, layer in (("a", stack), ("b", changed(stack, NUMBERS["rounded to float16"]))):
        arrays = {key: np.asarray(array) for key, array in pack(registry.layouts()["pytorch.lstm"], layer).items()}
        safetensors.write(tmp_path / f"{name}.safetensors", arrays)
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    headline = findings.headline(rc.verify(a, b, on=["reference"]).document)
    assert "rounded to float16" in headline and "--atol" in headline and "To fix" not in headline
    assert "rounded to float16" in str(rc.diff(a, b))
