"""TFLite's WHILE and written-out steps: read as layers that give what Keras gave, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.formats.tflite import graph, lists, loops
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "frozen"


@pytest.mark.parametrize("name", ["gru", "stack", "unrolled", "lstm_2_2", "stack_2_2"])
def test_layers_give_what_keras_gave(name: str) -> None:
    checkpoint = rc.load(GOLDEN / f"{name}.tflite")
    assert not checkpoint.unread and not any(array.ndim == 2 and array.size > 12 for array in checkpoint.tensors.values())
    with np.load(GOLDEN / f"{name}_lite.npz") as stored:
        x, truth = stored["x"].swapaxes(0, 1), stored["y"]
    stacks = list(checkpoint.layers.values())
    if name.startswith("stack"):
        backward, forward, last = stacks
        assert backward.first.reverse and not forward.first.reverse
        x = np.concatenate([reference.run(layer, x).y for layer in (forward, backward)], -1)
        stacks = [last]
    (stack,) = stacks
    result = reference.run(stack, x)
    y = result.y.swapaxes(0, 1) if truth.ndim == 3 else result.hidden[0]
    np.testing.assert_allclose(y, truth, rtol=1e-5, atol=1e-6)


def test_the_order_of_a_backward_layer_whose_last_output_is_read_is_that_of_time() -> None:
    (stack,) = rc.load(GOLDEN / "backward.tflite").layers.values()
    assert stack.first.reverse and stack.output_order == "time"
    with np.load(GOLDEN / "backward_lite.npz") as stored:
        result = reference.run(stack, stored["x"].swapaxes(0, 1))
        np.testing.assert_allclose(result.hidden[0], stored["y"], rtol=1e-5, atol=1e-6)


def test_a_layer_with_a_mask_is_read_with_a_warning() -> None:
    checkpoint = rc.load(GOLDEN / "masked.tflite")
    (stack,) = checkpoint.layers.values()
    with np.load(GOLDEN / "masked_lite.npz") as stored:
        result = reference.run(stack, stored["x"].swapaxes(0, 1))
        np.testing.assert_allclose(result.hidden[0], stored["y"], rtol=1e-5, atol=1e-6)
    assert not checkpoint.unread and "pass the lengths" in checkpoint.warnings[0]


def test_a_gru_becomes_a_keras_layer(tmp_path: Path) -> None:
    rc.convert(GOLDEN / "gru.tflite", tmp_path / "out.keras")
    (layer,), (other,) = (rc.load(path).layers.values() for path in (GOLDEN / "gru.tflite", tmp_path / "out.keras"))
    x = np.random.default_rng(0).normal(size=(4, 2, 3))
    np.testing.assert_array_equal(reference.run(layer, x).y, reference.run(other, x).y)


def test_damage_ends_in_words(tmp_path: Path) -> None:
    content = bytearray((GOLDEN / "gru.tflite").read_bytes())
    random = np.random.default_rng(7)
    path = tmp_path / "m.tflite"
    truth = reference.run(next(iter(rc.load(GOLDEN / "gru.tflite").layers.values())), np.ones((3, 1, 3))).y.shape
    for _ in range(60):
        changed = bytearray(content)
        for place in random.integers(0, len(content), 3):
            changed[place] = random.integers(256)
        path.write_bytes(changed)
        try:
            checkpoint = rc.load(path)
        except RnnConvertError:
            continue
        for stack in checkpoint.layers.values():
            assert reference.run(stack, np.ones((3, 1, stack.input_size))).y.shape[:2] == truth[:2]


def test_an_element_that_is_stored_elsewhere_is_no_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a count of its steps, a list that a loop fills is another state."""
    monkeypatch.setattr(lists.WhileLoop, "counters", set())
    read = loops.read(GOLDEN / "gru.tflite", graph.read(GOLDEN / "gru.tflite"))
    assert not read.layers and read.reasons
