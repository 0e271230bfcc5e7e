"""Keras's files: models that Keras makes here, read, judged by the float64 reference, written again and run by Keras."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import rnnconvert
from rnnconvert.containers import tensor_bundle, wire
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, Cell
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.keras import object_checkpoint
from rnnconvert.language.layout import Sizes
from tests.helpers.frameworks import KERAS_WARNS
from tests.helpers.judging import FACTOR, ULPS
from tests.helpers.stacks import BOTH, backwards, random_stack

layers = keras.layers

pytestmark = KERAS_WARNS

TIME, BATCH, WIDTH = 6, 2, 3


@pytest.fixture(scope="module")
def x() -> Array:
    """(batch, time, in)"""
    return np.random.default_rng(0).normal(size=(BATCH, TIME, WIDTH)).astype(np.float32)


def filled(model: Any, seed: int = 1) -> Any:
    """A model with random weights and biases."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        if "seed" not in variable.path:
            low = 0.1 if "variance" in variable.path else -0.6
            variable.assign(rng.uniform(low, 0.6, variable.shape))
    return model


def numbers(value: Any) -> Array:
    """Outputs beside each other on the last axis, (batch, time, out)."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return np.concatenate([np.asarray(keras.ops.convert_to_numpy(part)) for part in parts], axis=-1)


def close(stack: Recurrent, x: Array, y: Array) -> None:
    """Check that Keras's output is the stack's: as far off as single precision explains (tests.helpers.judging)."""
    sequence = x.swapaxes(0, 1)
    truth = reference.run(stack, sequence).y
    noise = np.abs(reference.run(stack, sequence, dtype=np.float32).y - truth).max()
    eps = float(ml_dtypes.finfo(stack.dtype).eps)
    allowed = FACTOR * noise + ULPS * eps * max(1.0, float(np.abs(truth).max()))
    outputs = y.swapaxes(0, 1).astype(np.float64)
    assert outputs.shape == truth.shape
    assert np.abs(outputs - truth).max() <= allowed


def same(first: Array, second: Array) -> None:
    """Check that two outputs are the same, but for one more rounding to single precision of each number."""
    np.testing.assert_allclose(first, second, rtol=2e-6, atol=2e-6)


# Every layer of one model, with what a file without a configuration has to be told of it.

ZOO: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "lstm": (lambda: layers.LSTM(4, return_sequences=True), ()),
    "lstm_plain": (lambda: layers.LSTM(4, return_sequences=True, use_bias=False), ()),
    "lstm_relu": (lambda: layers.LSTM(3, return_sequences=True, activation="leaky_relu"), ("activation=leaky_relu",)),
    "lstm_hard": (
        lambda: layers.LSTM(4, return_sequences=True, recurrent_activation="hard_sigmoid"),
        ("recurrent_activation=hard_sigmoid",),
    ),
    "gru": (lambda: layers.GRU(5, return_sequences=True), ()),
    "gru_before": (lambda: layers.GRU(5, return_sequences=True, reset_after=False), ()),
    "gru_plain": (lambda: layers.GRU(5, return_sequences=True, use_bias=False), ()),
    "gru_before_plain": (lambda: layers.GRU(5, return_sequences=True, use_bias=False, reset_after=False), ("reset_after=false",)),
    "gru_backwards": (lambda: layers.GRU(4, return_sequences=True, go_backwards=True), ("go_backwards=true",)),
    "rnn": (lambda: layers.SimpleRNN(4, return_sequences=True, activation="elu"), ("activation=elu",)),
    "both_concat": (lambda: layers.Bidirectional(layers.LSTM(4, return_sequences=True)), ()),
    "both_sum": (lambda: layers.Bidirectional(layers.GRU(4, return_sequences=True), merge_mode="sum"), ("merge_mode=sum",)),
    "both_mul": (lambda: layers.Bidirectional(layers.SimpleRNN(4, return_sequences=True), merge_mode="mul"), ("merge_mode=mul",)),
    "both_ave": (lambda: layers.Bidirectional(layers.LSTM(4, return_sequences=True), merge_mode="ave"), ("merge_mode=ave",)),
    "both_apart": (lambda: layers.Bidirectional(layers.LSTM(4, return_sequences=True), merge_mode=None), ("merge_mode=none",)),
    "both_unlike": (
        lambda: layers.Bidirectional(
            layers.LSTM(4, return_sequences=True), backward_layer=layers.GRU(5, return_sequences=True, go_backwards=True)
        ),
        (),
    ),
    "stacked": (lambda: layers.RNN([layers.LSTMCell(4), layers.LSTMCell(3)], return_sequences=True), ()),
    "around_cell": (lambda: layers.RNN(layers.GRUCell(3), return_sequences=True), ()),
}


class Zoo:
    """The model with each of these layers on the same input, and its files."""

    def __init__(self, folder: Path) -> None:
        source = keras.Input((None, WIDTH), name="source")
        built = {name: make() for name, (make, _) in ZOO.items()}
        for name, layer in built.items():
            layer.name = name
        outputs = {name: layer(source) for name, layer in built.items()}
        # An exported model may give only tensors by name.
        outputs["both_apart"] = layers.Concatenate()(outputs["both_apart"])
        self.model = filled(keras.Model(source, outputs))
        self.folder = folder
        self.settings = [f"{name}:{setting}" for name, (_, settings) in ZOO.items() for setting in settings]
        self._saved: dict[str, Path] = {}

    def saved(self, kind: str) -> Path:
        """The model in a file of this kind, made once."""
        if kind not in self._saved:
            self._saved[kind] = getattr(self, "_" + kind)()
        return self._saved[kind]

    def _keras(self) -> Path:
        self.model.save(self.folder / "zoo.keras")
        return self.folder / "zoo.keras"

    def _weights(self) -> Path:
        self.model.save_weights(self.folder / "zoo.weights.h5")
        return self.folder / "zoo.weights.h5"

    def _legacy(self) -> Path:
        self.model.save(self.folder / "zoo.h5")
        return self.folder / "zoo.h5"

    def _legacy_weights(self) -> Path:
        """As Keras 2 saved weights alone: the group of the weights is the whole file."""
        path = self.folder / "zoo_weights.h5"
        with h5py.File(self.saved("legacy")) as model_file, h5py.File(path, "w") as file:
            for name in model_file["model_weights"]:
                model_file.copy(f"model_weights/{name}", file)
            file.attrs.update(model_file["model_weights"].attrs)
        return path

    def _checkpoint(self) -> Path:
        return Path(tf.train.Checkpoint(self.model).write(str(self.folder / "checkpoint")))

    def _saved_model(self) -> Path:
        self.model.export(self.folder / "saved_model", verbose=False)
        return self.folder / "saved_model"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        yield Zoo(tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="module")
def expected(zoo: Zoo, x: Array) -> Mapping[str, Array]:
    return {name: numbers(value) for name, value in zoo.model(x).items()}


WITH_CONFIGURATION = ("keras", "legacy")
KINDS = (*WITH_CONFIGURATION, "weights", "legacy_weights", "checkpoint", "saved_model")


def load(zoo: Zoo, kind: str) -> Checkpoint:
    return rnnconvert.load(zoo.saved(kind), settings=() if kind in WITH_CONFIGURATION else zoo.settings)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_of_a_file_is_found_and_computes_what_keras_computes(
    zoo: Zoo, expected: Mapping[str, Array], x: Array, kind: str
) -> None:
    checkpoint = load(zoo, kind)
    # Keras 3 shows TensorFlow no list of cells, so they are not in such a checkpoint.
    lost = {"stacked"} if kind == "checkpoint" else set()
    assert set(checkpoint.layers) == set(ZOO) - lost
    for name, stack in checkpoint.layers.items():
        close(stack, x, expected[name])


@pytest.mark.parametrize("ending", [".keras", ".h5"])
@pytest.mark.parametrize("kind", ["keras", "legacy_weights"])
def test_what_is_written_runs_in_keras_to_the_same_outputs(
    zoo: Zoo, expected: Mapping[str, Array], x: Array, tmp_path: Path, kind: str, ending: str
) -> None:
    checkpoint = load(zoo, kind)
    summary = rnnconvert.save(checkpoint, tmp_path / f"out{ending}")
    model = keras.models.load_model(summary.target, compile=False)
    assert len(model.inputs) == len(ZOO)
    counts = {name: 2 if name == "both_apart" else 1 for name in checkpoint.layers}

    def ran() -> dict[str, Array]:
        outputs = model([x] * len(ZOO))
        assert len(outputs) == sum(counts.values())
        rest = iter(outputs)
        return {name: numbers([next(rest) for _ in range(count)]) for name, count in counts.items()}

    results, again = ran(), ran()
    for name in counts:
        # TensorFlow was once seen to give a layer the output of another. What the file says does not change: a wrong
        # file is wrong both times.
        steady = np.array_equal(results[name], again[name])
        same(results[name] if steady else ran()[name], expected[name])


@pytest.mark.parametrize("kind", ["keras", "weights", "legacy"])
def test_weights_go_back_into_the_users_own_model(zoo: Zoo, expected: Mapping[str, Array], x: Array, tmp_path: Path, kind: str) -> None:
    rnnconvert.save(load(zoo, kind), tmp_path / "out.weights.h5")
    model = filled(keras.models.clone_model(zoo.model), seed=5)
    model.load_weights(tmp_path / "out.weights.h5")
    for name, value in model(x).items():
        same(numbers(value), expected[name])


@pytest.mark.parametrize("ending", [".keras", ".weights.h5", ".h5"])
@pytest.mark.parametrize("name", ["lstm", "gru_before", "gru_backwards", "both_mul", "both_unlike", "stacked"])
def test_one_layer_of_a_model_written_by_itself(
    zoo: Zoo, expected: Mapping[str, Array], x: Array, tmp_path: Path, name: str, ending: str
) -> None:
    checkpoint = rnnconvert.load(zoo.saved("keras"))
    summary = rnnconvert.save(checkpoint, tmp_path / f"one{ending}", layers=[name])
    assert summary.exact and summary.carried == 0
    if ending == ".weights.h5":
        expression = summary.notes[0].rpartition(": ")[2]
        chain = eval(f"[{expression}]", {"keras": keras})
        model = keras.Sequential([keras.Input((None, WIDTH)), *chain])
        model.load_weights(summary.target)
    else:
        model = keras.models.load_model(summary.target, compile=False)
    same(numbers(model(x)), expected[name])
    if ending == ".h5":
        other = filled(keras.models.clone_model(model), seed=5)
        other.load_weights(summary.target)
        same(numbers(other(x)), expected[name])


def test_weights_whose_class_is_uncertain_are_left_out(tmp_path: Path, x: Array) -> None:
    stack = random_stack(Sizes("lstm", WIDTH, 4, parts=ONE_BIAS), 7, np.float32)
    cell = {f"lstm/lstm_cell/{name}:0": array for name, array in keras_arrays(stack).items()}
    kernel, bias = np.ones((4, 2), np.float32), np.zeros(2, np.float32)
    weights = {
        "lstm": cell,
        "norm": {"norm/gamma:0": bias, "norm/beta:0": bias},
        "dense": {"dense/kernel:0": kernel, "dense/bias:0": bias},
        "layer_normalization": {"layer_normalization/gamma:0": bias, "layer_normalization/beta:0": bias},
    }
    path = legacy_file(tmp_path / "old.h5", "2.9.0", weights, None)
    summary = rnnconvert.convert(path, tmp_path / "out.weights.h5")
    assert (summary.carried, summary.left_out) == (2, 4)
    assert any("left out" in note and "norm, layer_normalization" in note for note in summary.notes)


# A whole model of other layers, too.


def mixed() -> Any:
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(11, 5),
            layers.Conv1D(4, 2, padding="causal"),
            layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
            layers.BatchNormalization(),
            layers.TimeDistributed(layers.Dense(4)),
            layers.GRU(3, return_sequences=True, reset_after=False, dropout=0.1),
            layers.LayerNormalization(),
            layers.Dense(2, use_bias=False),
            layers.LSTM(3),
            layers.Dense(1),
        ]
    )
    return filled(model)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", ["model.keras", "model.weights.h5", "model.h5", "old.h5"])
def test_the_other_layers_of_a_whole_model_are_carried(tmp_path: Path, kind: str) -> None:
    model = mixed()
    model.compile("adam", "mse", run_eagerly=True)
    tokens = np.arange(12).reshape(2, 6) % 11
    model.fit(tokens, np.zeros((2, 1)), verbose=0)
    expected = numbers(model(tokens))
    source = tmp_path / kind
    if kind == "model.weights.h5":
        model.save_weights(source)
    elif kind == "old.h5":
        model.save(tmp_path / "model.h5")
        with h5py.File(tmp_path / "model.h5") as model_file, h5py.File(source, "w") as file:
            for name in model_file["model_weights"]:
                model_file.copy(f"model_weights/{name}", file)
            file.attrs.update(model_file["model_weights"].attrs)
    else:
        model.save(source)
    summary = rnnconvert.convert(source, tmp_path / "out.weights.h5")
    other = keras.Sequential.from_config(model.get_config())
    other.load_weights(tmp_path / "out.weights.h5")
    same(numbers(other(tokens)), expected)
    if kind != "old.h5":
        assert "before model.compile" in " ".join(summary.notes)
    assert summary.carried >= 14
    bare_summary = rnnconvert.convert(source, tmp_path / "out.keras", assume_defaults=kind in ("model.weights.h5", "old.h5"))
    assert bare_summary.carried == 0 and bare_summary.left_out > 0
    assert "only the recurrent layers" in " ".join(bare_summary.notes)


def test_nested_models_and_wrapped_layers(tmp_path: Path, x: Array) -> None:
    inner = keras.Sequential([keras.Input((None, WIDTH)), layers.LSTM(4, return_sequences=True, name="deep")], name="inner")
    source = keras.Input((TIME, WIDTH))
    y = layers.GRU(3, return_sequences=True, name="outer")(inner(source))
    z = layers.TimeDistributed(layers.SimpleRNN(2, return_sequences=True), name="wrapped")(layers.Reshape((3, 2, 3))(source))
    model = filled(keras.Model(source, [inner(source), y, z]))
    first, second, third = (numbers(value) for value in model(x))
    for ending in (".keras", ".weights.h5", ".h5"):
        path = tmp_path / f"model{ending}"
        (model.save_weights if ending == ".weights.h5" else model.save)(path)
        checkpoint = rnnconvert.load(path)
        stacks = {stack.hidden_size: stack for stack in checkpoint.layers.values()}
        assert sorted(stacks) == [2, 3, 4], ending
        close(stacks[4], x, first)
        close(stacks[3], first, second)
        close(stacks[2], x.reshape(-1, 2, 3), third.reshape(-1, 2, 2))
        summary = rnnconvert.convert(path, tmp_path / "out.weights.h5", force=True)
        other = keras.models.clone_model(model)
        other.load_weights(summary.target)
        for computed, right in zip(other(x), (first, second, third), strict=True):
            same(numbers(computed), right)


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = layers.GRU(4, return_sequences=True)
        self.pair = [layers.LSTM(3, return_sequences=True), layers.LSTM(2, return_sequences=True)]
        self.head = layers.Dense(2)

    def call(self, value: Any) -> Any:
        first = self.encoder(value)
        return first, self.pair[1](self.pair[0](first)), self.head(first)


def test_a_subclassed_model_keeps_its_paths(tmp_path: Path, x: Array) -> None:
    model = Subclassed()
    model(x)
    filled(model).save_weights(tmp_path / "model.weights.h5")
    expected = [numbers(value) for value in model(x)]
    checkpoint = rnnconvert.load(tmp_path / "model.weights.h5")
    assert [stack.hidden_size for stack in checkpoint.layers.values()] == [4, 3, 2]
    encoder, *pair = checkpoint.layers.values()
    close(encoder, x, expected[0])
    close(rnnconvert.join_stack(pair), expected[0], expected[1])
    rnnconvert.save(checkpoint, tmp_path / "out.weights.h5")
    other = Subclassed()
    other(x)
    other.load_weights(tmp_path / "out.weights.h5")
    for computed, right in zip(other(x), expected, strict=True):
        same(numbers(computed), right)


def test_directions_of_stacked_cells_that_meet_at_the_end(tmp_path: Path, x: Array) -> None:
    cells = layers.RNN([layers.LSTMCell(4), layers.LSTMCell(3)], return_sequences=True)
    model = filled(keras.Sequential([keras.Input((None, WIDTH)), layers.Bidirectional(cells)]))
    expected = numbers(model(x))
    model.save(tmp_path / "model.keras")
    stack = next(iter(rnnconvert.load(tmp_path / "model.keras").layers.values()))
    assert stack.join == "end"
    close(stack, x, expected)
    for ending in (".keras", ".h5"):
        summary = rnnconvert.convert(tmp_path / "model.keras", tmp_path / f"out{ending}")
        same(numbers(keras.models.load_model(summary.target, compile=False)(x)), expected)
    assert rnnconvert.convert(tmp_path / "model.keras", tmp_path / "out.weights.h5").steps


# Stacks that no Keras made.


def written(stacks: Mapping[str, Recurrent], path: Path, **options: Any) -> Any:
    named = {name: stack.replace(name=name) for name, stack in stacks.items()}
    summary = rnnconvert.save(Checkpoint("(in memory)", "canonical", named), path, **options)
    return keras.models.load_model(summary.target, compile=False)


def lstm(directions: int = 1, num_layers: int = 1, projection: int = 0, **cell: Any) -> Recurrent:
    parts = BOTH | ({"projection"} if projection else set())
    form = Sizes("lstm", WIDTH, 4, num_layers, directions, projection, frozenset(parts))
    return random_stack(form, 3, np.float32, Cell("lstm", **cell))


def merged(stack: Recurrent, merge: Any) -> Recurrent:
    return stack.replace(layers=(*stack.layers[:-1], Layer(stack.layers[-1].directions, merge)))


def reset_before() -> Recurrent:
    form = Sizes("gru", WIDTH, 4, 2, 2, parts=BOTH)
    return random_stack(form, 4, np.float32, Cell("gru", False, gate_activation=HARD_SIGMOID_KERAS_2))


CANONICAL: dict[str, Callable[[], Recurrent]] = {
    "two_biases": lambda: lstm(2, 2),
    "projection": lambda: lstm(1, 2, 2),
    "projection_concat": lambda: lstm(2, 2, 2),
    "projection_sum": lambda: merged(lstm(2, 2, 3), "sum"),
    "projection_ave": lambda: merged(lstm(2, 1, 3), "ave"),
    "projection_mul": lambda: merged(lstm(2, 1, 3), "mul"),
    "projection_apart": lambda: merged(lstm(2, 1, 2), "none"),
    "coupled": lambda: lstm(1, 1, coupled="f"),
    "constants": lambda: lstm(2, 1, constants={"f": 1.0}),
    "hard_sigmoid_2": lambda: lstm(2, 1, gate_activation=HARD_SIGMOID_KERAS_2),
    "hard_sigmoid_3": lambda: lstm(1, 1, gate_activation=HARD_SIGMOID_KERAS_3),
    "reset_before": reset_before,
    "apart_below": lambda: lstm(2, 2).replace(layers=(Layer(lstm(2, 2).layers[0].directions, "none"), lstm(2, 2).layers[1])),
    "reverse": lambda: backwards(lstm()),
    "processing": lambda: backwards(lstm(), "processing"),
    "forward_turned": lambda: lstm().replace(output_order="processing"),
}


@pytest.mark.parametrize("name", CANONICAL)
def test_a_stack_from_elsewhere_runs_in_keras(name: str, x: Array, tmp_path: Path) -> None:
    stack = CANONICAL[name]()
    close(stack, x, numbers(written({name: stack}, tmp_path / "out.keras")(x)))


@pytest.mark.parametrize("name", [name for name in CANONICAL if name not in ("reverse", "forward_turned")])
def test_a_stack_from_elsewhere_runs_from_legacy_hdf5(name: str, x: Array, tmp_path: Path) -> None:
    stack = CANONICAL[name]()
    close(stack, x, numbers(written({name: stack}, tmp_path / "out.h5")(x)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_every_element_type_is_held_exactly(dtype: str, x: Array, tmp_path: Path) -> None:
    stack = lstm(2, 1)
    model = written({"s": stack}, tmp_path / "out.keras", dtype=dtype)
    assert {str(variable.dtype) for variable in model.weights} == {dtype}
    back = rnnconvert.load(tmp_path / "out.keras").layers["s"]
    for layer, number, direction in back.directions():
        source = stack[layer, number].get("input", "g")
        assert source is not None
        np.testing.assert_array_equal(direction.get("input", "g"), source.astype(direction.dtype))
    tolerance = {"float16": 1e-2, "bfloat16": 8e-2, "float64": 1e-6}[dtype]
    outputs = np.asarray(model(x), np.float64).swapaxes(0, 1)
    assert np.abs(outputs - reference.run(stack, x.swapaxes(0, 1)).y).max() < tolerance


def test_final_states_on_request(x: Array, tmp_path: Path) -> None:
    stack = lstm(2, 2)
    y, *states = written({"s": stack}, tmp_path / "out.keras", return_state=True)(x)
    truth = reference.run(stack, x.swapaxes(0, 1))
    close(stack, x, numbers(y))
    expected = [truth.hidden[2], truth.cell[2], truth.hidden[3], truth.cell[3]]
    for state, right in zip(states, expected, strict=True):
        np.testing.assert_allclose(numbers(state), right, atol=2e-6)


def test_several_stacks_keep_their_order_in_every_file(x: Array, tmp_path: Path) -> None:
    stacks = {"a/b": lstm(1, 1), "a b": lstm(1, 3), "c": lstm(1, 1, 2), "d": lstm(1, 2)}
    model = written(stacks, tmp_path / "out.keras")
    names = [layer.name for layer in model.layers if layer.weights]
    assert names == ["a_b", "a_b_l0", "a_b_l1", "a_b_l2", "c", "c_projection", "d_l0", "d_l1"]
    rnnconvert.save(Checkpoint("", "canonical", {n: s.replace(name=n) for n, s in stacks.items()}), tmp_path / "out.weights.h5")
    other = filled(keras.models.clone_model(model))
    other.load_weights(tmp_path / "out.weights.h5")
    for network in (model, other):
        for stack, outputs in zip(stacks.values(), network([x] * 4), strict=True):
            close(stack, x, numbers(outputs))


def test_what_keras_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    forward, backward = lstm(2).layers[0].directions
    wide = random_stack(Sizes("gru", WIDTH, 6, parts=BOTH), 1, np.float32).first.replace(reverse=True)
    unlike = Recurrent("u", (Layer((forward, wide)),))
    above = random_stack(Sizes("lstm", 10, 4, parts=BOTH), 1, np.float32)
    cases: list[tuple[Recurrent, str, dict[str, Any], str]] = [
        (lstm(), "out.h5", {"dtype": "bfloat16"}, "bfloat16"),
        (backwards(lstm()), "out.h5", {}, "reads from the end"),
        (unlike, "out.keras", {"return_state": True}, "final states"),
        (unlike.replace(layers=(*unlike.layers, *above.layers)), "out.keras", {}, "layer after"),
        (lstm(2).replace(layers=(Layer((forward, backward.replace(reverse=False))),)), "out.keras", {}, "read the same way"),
    ]
    for stack, name, options, words in cases:
        with pytest.raises(RefusedError, match=words):
            written({"s": stack}, tmp_path / name, **options)
        assert not (tmp_path / name).exists()


# Files of Keras 2 and Keras 1, made by hand.


def legacy_file(path: Path, version: str, weights: Mapping[str, Mapping[str, Array]], config: Any, on_group: bool = True) -> Path:
    with h5py.File(path, "w") as file:
        group = file.create_group("model_weights")
        file.attrs["keras_version"] = version.encode()
        if on_group:
            group.attrs["keras_version"] = version.encode()
        file.attrs["model_config"] = json.dumps(config).encode()
        group.attrs["layer_names"] = [name.encode() for name in weights]
        for layer, arrays in weights.items():
            layer_group = group.create_group(layer)
            layer_group.attrs["weight_names"] = [name.encode() for name in arrays]
            for name, array in arrays.items():
                layer_group[name] = array
    return path


def sequential(*entries: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": [{"class_name": name, "config": config} for name, config in entries]}


def per_gate(stack: Recurrent, part: str, order: str) -> list[Array]:
    arrays = [stack.first.get(part, gate) for gate in order.split()]
    return [array for array in arrays if array is not None]


def keras_arrays(stack: Recurrent) -> dict[str, Array]:
    """An LSTM's variables, in the order that Keras gives the gates."""
    return {
        "kernel": np.concatenate([m.T for m in per_gate(stack, "input", "i f g o")], axis=1),
        "recurrent_kernel": np.concatenate([m.T for m in per_gate(stack, "recurrent", "i f g o")], axis=1),
        "bias": np.concatenate(per_gate(stack, "input_bias", "i f g o")),
    }


def of_cudnn(stack: Recurrent, order: str, layer: str) -> dict[str, Array]:
    """As Keras 2 keeps it: blocks of the input matrix are cuDNN's memory, blocks of the recurrent one its rows."""
    kernel = [matrix.ravel().reshape(matrix.shape[::-1]) for matrix in per_gate(stack, "input", order)]
    biases = [*per_gate(stack, "input_bias", order), *per_gate(stack, "recurrent_bias", order)]
    return {
        f"{layer}/kernel:0": np.concatenate(kernel, axis=1),
        f"{layer}/recurrent_kernel:0": np.concatenate(per_gate(stack, "recurrent", order), axis=1),
        f"{layer}/bias:0": np.concatenate(biases),
    }


def test_cudnn_layers_of_keras_2_load_into_todays_layers(x: Array, tmp_path: Path) -> None:
    first = random_stack(Sizes("lstm", WIDTH, 4, parts=BOTH), 1, np.float32)
    second = random_stack(Sizes("gru", 4, 5, parts=BOTH), 2, np.float32)
    kernel = np.random.default_rng(3).normal(size=(5, 2)).astype(np.float32)
    weights = {
        "cu_dnnlstm_1": of_cudnn(first, "i f g o", "cu_dnnlstm_1"),
        "cu_dnngru_1": of_cudnn(second, "z r n", "cu_dnngru_1"),
        "dense_1": {"dense_1/kernel:0": kernel, "dense_1/bias:0": np.arange(2, dtype=np.float32)},
    }
    config = sequential(
        ("CuDNNLSTM", {"name": "cu_dnnlstm_1", "units": 4, "return_sequences": True}),
        ("CuDNNGRU", {"name": "cu_dnngru_1", "units": 5, "return_sequences": True}),
        ("Dense", {"name": "dense_1", "units": 2}),
    )
    path = legacy_file(tmp_path / "keras2.h5", "2.2.4", weights, config)
    read = rnnconvert.load(path).layers
    for name, stack in (("cu_dnnlstm_1", first), ("cu_dnngru_1", second)):
        for key, source in stack.first.arrays.items():
            np.testing.assert_array_equal(read[name].first.get(*key), np.asarray(source))
    summary = rnnconvert.convert(path, tmp_path / "out.weights.h5")
    assert summary.carried == 2
    model = keras.Sequential(
        [keras.Input((None, WIDTH)), layers.LSTM(4, return_sequences=True), layers.GRU(5, return_sequences=True), layers.Dense(2)]
    )
    model.load_weights(summary.target)
    deep = rnnconvert.join_stack([first, second])
    truth = reference.run(deep, x.swapaxes(0, 1)).y.swapaxes(0, 1) @ kernel + np.arange(2)
    np.testing.assert_allclose(numbers(model(x)), truth, atol=4e-6)


def test_hard_sigmoid_of_keras_2_is_scaled_for_keras_3(x: Array, tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", WIDTH, 4, parts=frozenset({"input", "recurrent", "input_bias"})), 5, np.float32)
    arrays = {
        "lstm_1/kernel:0": np.concatenate([m.T for m in per_gate(stack, "input", "i f g o")], axis=1),
        "lstm_1/recurrent_kernel:0": np.concatenate([m.T for m in per_gate(stack, "recurrent", "i f g o")], axis=1),
        "lstm_1/bias:0": np.concatenate(per_gate(stack, "input_bias", "i f g o")),
    }
    config = sequential(("LSTM", {"name": "lstm_1", "units": 4, "return_sequences": True}))
    path = legacy_file(tmp_path / "keras2.h5", "2.2.4", {"lstm_1": arrays}, config)
    layer = rnnconvert.load(path).layers["lstm_1"]
    assert layer.cell.gate_activation == HARD_SIGMOID_KERAS_2
    summary = rnnconvert.convert(path, tmp_path / "out.keras")
    assert not summary.exact
    right = stack.replace(layers=(Layer((stack.first.replace(cell=Cell("lstm", gate_activation=HARD_SIGMOID_KERAS_2)),)),))
    close(right, x, numbers(keras.models.load_model(summary.target, compile=False)(x)))


def test_the_gates_of_keras_1(x: Array, tmp_path: Path) -> None:
    form = Sizes("lstm", WIDTH, 4, parts=frozenset({"input", "recurrent", "input_bias"}))
    stack = random_stack(form, 6, np.float32, Cell("lstm", gate_activation=HARD_SIGMOID_KERAS_2))
    arrays: dict[str, Array] = {}
    for letter, gate in zip("icfo", "igfo", strict=True):
        for local, part in (("W", "input"), ("U", "recurrent"), ("b", "input_bias")):
            source = stack.first.get(part, gate)
            assert source is not None
            arrays[f"lstm_1_{local}_{letter}"] = source.T
    config = sequential(("LSTM", {"name": "lstm_1", "output_dim": 4, "inner_activation": "hard_sigmoid"}))
    path = legacy_file(tmp_path / "keras1.h5", "1.2.2", {"lstm_1": arrays}, config, on_group=False)
    layer = rnnconvert.load(path).layers["lstm_1"]
    assert layer.cell == stack.cell
    for key, stored in stack.first.arrays.items():
        np.testing.assert_array_equal(layer.first.get(*key), np.asarray(stored))
    for ending in (".keras", ".h5"):
        summary = rnnconvert.convert(path, tmp_path / f"out{ending}")
        close(stack, x, numbers(keras.models.load_model(summary.target, compile=False)(x)))


# What TensorFlow writes.


class Holder(tf.Module):
    """Objects as TensorFlow's Keras 2 arranged them in its checkpoints."""


def variable(array: Array, name: str) -> Any:
    return tf.Variable(array, name=name)


def arranged(stack: Recurrent, name: str) -> Any:
    cell = Holder()
    for local, array in keras_arrays(stack).items():
        setattr(cell, local, variable(array, f"{name}/lstm_cell/{local}"))
    layer = Holder()
    layer.cell = cell
    return layer


ONE_BIAS = frozenset({"input", "recurrent", "input_bias"})


def test_checkpoints_and_saved_models_of_tensorflows_keras_2(tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", WIDTH, 4, parts=ONE_BIAS), 7, np.float32)
    root = Holder()
    setattr(root, "layer_with_weights-0", arranged(stack, "words"))
    tf.train.Checkpoint(root).write(str(tmp_path / "weights"))
    read = rnnconvert.load(tmp_path / "weights").layers
    assert list(read) == ["words"]
    # The graph of objects is read by code of our own: any change of it is seen, or does no more than another name would.
    index = tensor_bundle.index_of(tmp_path / "weights")
    assert index is not None
    graph = tensor_bundle.read(index).metadata["texts"]["_CHECKPOINTABLE_OBJECT_GRAPH"]
    for at in range(0, len(graph), 7):
        changed = graph[:at] + bytes([graph[at] ^ 0x55]) + graph[at + 1 :]
        with contextlib.suppress(UnreadableError):
            list(object_checkpoint._nodes(memoryview(changed), index))
    np.testing.assert_array_equal(read["words"].first.get("input", "o"), stack.first.get("input", "o"))

    folder = tmp_path / "saved"
    tf.saved_model.save(root, str(folder))
    config = {
        "name": "words",
        "class_name": "LSTM",
        "config": {"name": "words", "units": 4, "activation": "tanh", "recurrent_activation": "hard_sigmoid"},
    }
    model = {"name": "sequential", "class_name": "Sequential", "keras_version": "2.9.0"}
    nodes = b"".join(
        wire.field(1, wire.field(3, b"root.layer") + wire.field(4, b"_tf_keras_layer") + wire.field(5, text))
        for text in (json.dumps(model).encode(), json.dumps(config).encode())
    )
    (folder / "keras_metadata.pb").write_bytes(nodes)
    read = rnnconvert.load(folder).layers
    assert read["words"].cell.gate_activation == HARD_SIGMOID_KERAS_2
    assert not rnnconvert.load(folder).questions


def test_two_layers_of_one_name_in_a_checkpoint(tmp_path: Path) -> None:
    root = Holder()
    for number in range(2):
        stack = random_stack(Sizes("lstm", WIDTH, 4, parts=ONE_BIAS), number, np.float32)
        setattr(root, f"layer_with_weights-{number}", arranged(stack, "lstm"))
    tf.train.Checkpoint(root).write(str(tmp_path / "weights"))
    assert list(rnnconvert.load(tmp_path / "weights.index").layers) == ["layer_with_weights-0", "layer_with_weights-1"]


def test_a_saved_model_without_names_is_refused(tmp_path: Path) -> None:
    root = Holder()
    root._all_variables = [tf.Variable(np.ones((2, 2), np.float32)) for _ in range(3)]
    tf.saved_model.save(root, str(tmp_path / "saved"))
    with pytest.raises(UnreadableError, match="without names"):
        rnnconvert.load(tmp_path / "saved")


def test_a_damaged_checkpoint_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "weights.index").write_bytes(b"no index at all")
    with pytest.raises(UnreadableError, match="does not end as the index of a TensorFlow checkpoint does"):
        rnnconvert.load(tmp_path / "weights")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(UnreadableError, match="no variables"):
        rnnconvert.load(tmp_path / "saved")


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5", ".h5"])
def test_a_dry_run_finds_what_the_writer_would_say_and_writes_nothing(suffix: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint("(in memory)", "canonical", {"a": random_stack(Sizes("lstm", 3, 4), 0, np.float32)})
    path = tmp_path / f"out{suffix}"
    dry = rnnconvert.save(checkpoint, path, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    assert dry.notes == rnnconvert.save(checkpoint, path).notes


def test_a_dry_run_refuses_what_the_writer_refuses(tmp_path: Path) -> None:
    checkpoint = Checkpoint("(in memory)", "canonical", {"a": random_stack(Sizes("lstm", 3, 4), 0, np.float32)})
    with pytest.raises(RefusedError, match="bfloat16"):
        rnnconvert.save(checkpoint, tmp_path / "out.h5", dtype="bfloat16", dry_run=True)


@pytest.mark.parametrize("suffix", [".keras", ".h5", ".weights.h5"])
@pytest.mark.parametrize("axes", [1, 2])
def test_a_convolving_cell_is_called_one(axes: int, suffix: str, tmp_path: Path) -> None:
    kind = {1: keras.layers.ConvLSTM1D, 2: keras.layers.ConvLSTM2D}[axes]
    model = keras.Sequential([keras.Input((3, *[4] * axes, 2)), kind(3, 2, name="storm")])
    path = tmp_path / f"m{suffix}"
    model.save_weights(path) if suffix == ".weights.h5" else model.save(path)
    with pytest.raises(RefusedError, match=r"\bstorm: the cell of a ConvLSTM, whose products are convolutions"):
        rnnconvert.convert(path, tmp_path / "m.onnx")


def test_layers_whose_groups_are_missing_from_an_hdf5_file_are_named(tmp_path: Path) -> None:
    model = keras.Sequential(
        [
            keras.Input((6, 3)),
            layers.LSTM(4, return_sequences=True, name="a"),
            layers.GRU(5, return_sequences=True, name="b"),
            layers.Dropout(0.5, name="e"),
            layers.Bidirectional(layers.LSTM(2), name="c"),
            layers.Dense(2, name="d"),
        ]
    )
    complete, cut = tmp_path / "complete.h5", tmp_path / "cut.h5"
    model.save(complete)
    assert not rnnconvert.load(complete).warnings
    cut.write_bytes(complete.read_bytes())
    with h5py.File(cut, "r+") as file:
        del file["model_weights"]["b"], file["model_weights"]["d"]
    checkpoint = rnnconvert.load(cut)
    assert list(checkpoint.layers) == ["a", "c"]
    for name in "bd":
        assert any(note.startswith(f"{name}: ") and "group of weights is missing" in note for note in checkpoint.warnings), name
    assert [note.layer for note in checkpoint.unread] == ["b"]
    with pytest.raises(RefusedError, match=r"b: .*group of weights is missing.* Convert the others"):
        rnnconvert.convert(cut, tmp_path / "out.pt")
    rnnconvert.convert(cut, tmp_path / "out.pt", layers=["a", "c"])
    sequence = keras.Input((6, 4))
    shared = layers.LSTM(4, return_sequences=True, name="shared")
    inner = keras.Sequential([keras.Input((6, 4)), shared, layers.LSTM(3)], name="inner")
    functional = keras.Model(sequence, inner(keras.ops.relu(shared(sequence)) + sequence))
    functional.save(complete)  # operations have no groups, and what is called twice has one
    assert not [note for note in rnnconvert.load(complete).warnings if "missing" in note]
