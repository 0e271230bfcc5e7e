"""Layers of ours for the cells that Keras lacks: what they compute, on every backend, and that they are used as Keras's are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_3, Activation, Cell, Clip
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.formats.keras.module import OwnRecurrent, layer_of
from rnnconvert.language import outline
from rnnconvert.language.layout import Sizes
from rnnconvert.running.child import missing
from tests import ROOT
from tests.helpers.drawn import looped
from tests.helpers.foreign import PEEPHOLES, READ_BOUNDS, TIME, WIDTH, Maker, near, problem, read_clipped, swapped
from tests.helpers.frameworks import KERAS_WARNS
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, random_stack

pytestmark = KERAS_WARNS
SEEDS = range(40)


def solve(layer: Any, task: Problem) -> Outputs:
    """What a layer gives, as the reference gives it."""
    stack = task.stack
    states = None
    if task.hidden is not None and task.cell is not None:
        states = []
        for (*_, direction), h, c in zip(stack.directions(), task.hidden, task.cell, strict=True):
            states += [h, c] if direction.cell.kind == "lstm" else [h]
    mask = None if task.lengths is None else np.arange(TIME) < task.lengths[:, None]
    outputs = layer(task.x.swapaxes(0, 1), initial_state=states, mask=mask)
    arrays = [np.asarray(keras.ops.convert_to_numpy(value)) for value in outputs]
    count = sum(2 if d.cell.kind == "lstm" else 1 for *_, d in stack.directions())
    y = np.concatenate(arrays[: len(arrays) - count], -1).swapaxes(0, 1)
    finals = iter(arrays[len(arrays) - count :])
    hidden, cell = [], []
    for number, (*_, direction) in enumerate(stack.directions()):
        hidden.append(next(finals))
        passed = np.zeros_like(hidden[-1]) if task.cell is None else task.cell[number]
        cell.append(next(finals) if direction.cell.kind == "lstm" else passed)
    return Outputs(y, tuple(hidden), tuple(cell) if stack.cell.kind == "lstm" else ())


@looped(8, seed=SEEDS, states=[True, False])
def test_any_layer_gives_what_the_reference_gives(seed: int, states: bool) -> None:
    task = problem(Maker(seed).stack(), seed, states)
    assert excess(task, solve(layer_of(task.stack, return_state=True), task)) <= 1


@looped(5, seed=SEEDS)
def test_masked_steps_are_left_out(seed: int) -> None:
    task = problem(Maker(seed).stack(), seed, True, lengths=True)
    assert excess(task, solve(layer_of(task.stack, return_state=True), task)) <= 1


@looped(8, bounds=READ_BOUNDS, seed=range(8), lengths=[False, True])
def test_a_cell_state_is_clipped_where_it_is_read(bounds: tuple[float, float], seed: int, lengths: bool) -> None:
    clipped = read_clipped(bounds, seed, lengths)
    assert excess(clipped, solve(layer_of(clipped.stack, return_state=True), clipped)) <= 1


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_gates_in_the_wrong_order_are_caught(kind: str) -> None:
    parts = PEEPHOLES if kind == "lstm" else BOTH
    stack = random_stack(Sizes(kind, WIDTH, 5, 1, 2, parts=parts), 1, np.float32)
    task = problem(stack, 1, True)
    assert excess(task, solve(layer_of(stack, return_state=True), task)) <= 1
    assert excess(task, solve(layer_of(swapped(stack), return_state=True), task)) > WRONG


OTHER = """
import numpy as np, keras
from tests.helpers.foreign import Maker, problem
from tests.helpers.judging import excess
from tests.formats.keras.test_keras_modules import solve
from rnnconvert.formats.keras.module import layer_of
assert keras.backend.backend() == {backend!r}
for seed in range(3):
    for lengths in (False, True):
        given = problem(Maker(seed).stack(), seed, bool(seed % 2), lengths)
        worst = excess(given, solve(layer_of(given.stack, return_state=True), given))
        assert worst <= 1, (seed, lengths, worst, given.stack)
print("equal")
"""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_other_backends_give_the_same(backend: str) -> None:
    need(backend, missing([backend]))
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OTHER.format(backend=backend)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("equal\n"), done.stderr[-3000:]


def lstm(dtype: Any = np.float32) -> Recurrent:
    parts = PEEPHOLES | {"projection", "initial_hidden", "initial_cell"}
    return random_stack(Sizes("lstm", WIDTH, 5, 2, 2, 2, parts), 1, dtype, Cell("lstm", clips=(Clip("cell", -0.5, 0.5),)))


def test_kerass_own_layers_are_given_wherever_they_hold_the_layer() -> None:
    gru = random_stack(Sizes("gru", WIDTH, 5), 1, np.float32, Cell("gru", False, gate_activation=HARD_SIGMOID_KERAS_3))
    gru = gru.replace(layers=(Layer((gru.first.with_arrays({("recurrent_bias", g): None for g in "rzn"}),)),))
    assert not any(isinstance(layer, OwnRecurrent) for layer in rc.to_keras(gru).layers)
    assert [type(layer) for layer in rc.to_keras(lstm()).layers][1:] == [OwnRecurrent]
    with pytest.raises(rc.RefusedError, match="peepholes"):
        rc.to_keras(lstm(), own=False)
    mystery = random_stack(Sizes("gru", WIDTH, 5), 1, cell=Cell("gru", False, activation=Activation("mystery")))
    with pytest.raises(rc.RefusedError, match="mystery"):
        rc.to_keras(mystery)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_model_is_made_in_an_element_type(dtype: str) -> None:
    stack = lstm(dtype)
    model = rc.to_keras(stack)
    x = np.random.default_rng(0).uniform(-1, 1, (2, TIME, WIDTH)).astype(dtype)
    y = np.asarray(keras.ops.convert_to_numpy(model(x)))
    assert y.dtype == dtype
    exact = reference.run(stack, x.swapaxes(0, 1)).y.swapaxes(0, 1)
    assert near(y.astype(np.float64), exact, 16 * float(np.finfo(dtype).eps))


def test_states_are_given_where_they_are_asked_for() -> None:
    outputs = rc.to_keras(lstm(), return_state=True)(np.zeros((2, TIME, WIDTH), np.float32))
    assert [tuple(value.shape) for value in outputs] == [(2, TIME, 4), *[(2, 2), (2, 5)] * 4]


def test_a_saved_model_is_loaded_and_read(tmp_path: Path) -> None:
    stack = lstm()
    model = rc.to_keras(stack)
    x = np.random.default_rng(0).normal(size=(2, TIME, WIDTH)).astype(np.float32)
    y = np.asarray(keras.ops.convert_to_numpy(model(x)))
    model.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras")
    np.testing.assert_array_equal(np.asarray(keras.ops.convert_to_numpy(again(x))), y)
    loaded = rc.load(tmp_path / "a.keras")
    for layer in (rc.from_keras(model), rc.from_keras(again.layers[1]), *loaded.layers.values()):
        assert outline.to_text(layer) == outline.to_text(stack) and layer.name == "random"
        for (*_, ours), (*_, theirs) in zip(layer.directions(), stack.directions(), strict=True):
            for key, array in theirs.arrays.items():
                np.testing.assert_array_equal(np.asarray(ours.arrays[key]), np.asarray(array))
    assert not loaded.tensors and not loaded.warnings
    model.save_weights(tmp_path / "a.weights.h5")
    assert not rc.load(tmp_path / "a.weights.h5").layers  # without a configuration nothing says what they are
    with pytest.raises(rc.RefusedError):
        rc.save(loaded, tmp_path / "b.keras")


def test_two_layers_in_a_model_of_several_are_told_apart(tmp_path: Path) -> None:
    first, second = (
        random_stack(Sizes("lstm", WIDTH, WIDTH, parts=PEEPHOLES), seed, np.float32).replace(name=name)
        for seed, name in enumerate(("b", "a"))
    )
    x = keras.Input((None, WIDTH))
    model = keras.Model(x, keras.layers.Dense(2)(layer_of(second)(layer_of(first)(x))))
    model.save(tmp_path / "a.keras")
    loaded = rc.load(tmp_path / "a.keras")
    assert list(loaded.layers) == ["b", "a"] and len(loaded.tensors) == 2
    for stack in (first, second):
        kernel = np.asarray(loaded.layers[stack.name].first.arrays["recurrent", "f"])
        np.testing.assert_array_equal(kernel, np.asarray(stack.first.arrays["recurrent", "f"]))


def test_trained_weights_come_back() -> None:
    model = rc.to_keras(lstm())
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(4, 3, width)).astype(np.float32) for width in (WIDTH, 4))
    before = rc.from_keras(model)
    model.compile("sgd", "mse")
    model.fit(x, y, epochs=2, verbose=0)
    trained = rc.from_keras(model)
    moved = [
        key
        for (*_, old), (*_, new) in zip(before.directions(), trained.directions(), strict=True)
        for key in old.arrays
        if not np.array_equal(np.asarray(old.arrays[key]), np.asarray(new.arrays[key]))
    ]
    assert {part for part, _ in moved} == {part for _, _, d in before.directions() for part, _ in d.arrays}
    outputs: Array = np.asarray(model(x), np.float64)
    assert near(outputs, reference.run(trained, x.swapaxes(0, 1)).y.swapaxes(0, 1), 1e-5)


def test_what_goes_wrong_is_said() -> None:
    with pytest.raises(rc.UsageError, match="not an outline"):
        OwnRecurrent("{}")
    with pytest.raises(ValueError, match="reads 4 values per step"):
        OwnRecurrent(outline.to_text(lstm())).build((None, None, 3))
    with pytest.raises(rc.UsageError, match="not built"):
        rc.from_keras(OwnRecurrent(outline.to_text(lstm())))
    assert "peepholes" in repr(layer_of(lstm()))
