"""Keras layers whose steps TensorFlow's converter wrote out: read with their direction, from the first step on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.recognition import first, steps
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "tflite_unrolled"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.tflite")), ids=lambda path: path.stem)
def test_unrolled_steps_are_read_with_their_direction(path: Path) -> None:
    checkpoint = rc.load(path)
    with np.load(path.with_suffix(".npz")) as stored:
        x, y = stored["x"], stored["y"]
    if x.shape[1] == 1:  # one step from zeros shows no recurrent matrix
        assert not checkpoint.layers
        return
    (stack,) = checkpoint.layers.values()
    backwards = "backwards" in path.stem
    assert stack.first.reverse == backwards and not stack.unconvertible
    assert not any("initial state" in text for text in checkpoint.warnings)
    output = reference.run(stack, x.swapaxes(0, 1)).y.swapaxes(0, 1)
    if "last" in path.stem:
        output = output[:, 0 if backwards else -1]
    elif backwards:  # Keras stacks what it computes in the order of its steps, behind the layer
        output = output[:, ::-1]
    np.testing.assert_allclose(output, y, rtol=1e-5, atol=1e-6)


CELLS = sorted((GOLDEN.parent / "tflite_cells").glob("*.tflite"))


@pytest.mark.parametrize("path", CELLS, ids=lambda path: path.stem)
def test_cells_one_above_the_other_are_two_layers(path: Path) -> None:
    checkpoint = rc.load(path)
    with np.load(path.with_suffix(".npz")) as stored:
        x, y = stored["x"], stored["y"]
    assert len(checkpoint.layers) == 2 and not checkpoint.unread
    for stack in checkpoint.layers.values():
        x = reference.run(stack, x).y
    np.testing.assert_allclose(x[-1], y, rtol=1e-5, atol=1e-6)


def test_a_cell_that_is_not_read_is_named_beside_one_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper one of two cells was left out silently."""

    def first_step(scope: object, shapes: object, cell: object, step: object, origins: Mapping[object, int], ends: object) -> object:
        if any(origin.axis is None for origin in origins):  # type: ignore[attr-defined]
            raise UnmatchedError("planted")
        return original(scope, shapes, cell, step, origins, ends)  # type: ignore[arg-type]

    original = first.first_step
    monkeypatch.setattr(steps, "first_step", first_step)
    checkpoint = rc.load(GOLDEN.parent / "tflite_cells" / "unpack.tflite")
    assert len(checkpoint.layers) == 1
    (unread,) = checkpoint.unread
    assert "planted" in unread
    with pytest.raises(rc.RefusedError, match="not every recurrent layer in it can be read"):
        rc.save(checkpoint, "unpack.onnx")
