"""Keras layers whose steps TensorFlow's converter wrote out: read with their direction, from the first step on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference

GOLDEN = Path(__file__).parent / "golden" / "tflite_unrolled"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.tflite")), ids=lambda path: path.stem)
def test_unrolled_steps_are_read_with_their_direction(path: Path) -> None:
    found = rc.load(path)
    with np.load(path.with_suffix(".npz")) as kept:
        x, y = kept["x"], kept["y"]
    if x.shape[1] == 1:  # one step from zeros shows no recurrent matrix
        assert not found.layers
        return
    (stack,) = found.layers.values()
    backwards = "backwards" in path.stem
    assert stack.first.reverse == backwards and not stack.unconvertible
    assert not any("initial state" in text for text in found.warnings)
    given = reference.run(stack, x.swapaxes(0, 1)).y.swapaxes(0, 1)
    if "last" in path.stem:
        given = given[:, 0 if backwards else -1]
    elif backwards:  # Keras stacks what it computes in the order of its steps, behind the layer
        given = given[:, ::-1]
    np.testing.assert_allclose(given, y, rtol=1e-5, atol=1e-6)
