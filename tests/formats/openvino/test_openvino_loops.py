"""Loops of OpenVINO's IR, as its own converter writes them: layers where they are, loops otherwise, with OpenVINO's numbers."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from tests.formats.pytorch.test_loops_of_steps import RIGHT, scripted
from tests.helpers.drawn import drawn, each
from tests.helpers.exported import RUNS
from tests.helpers.random_models import fill
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning", "ignore:.*jit.*:DeprecationWarning", "ignore:Converting a tensor"
)
KINDS = {"lstm": 4, "gru": 3, "gru after": 3, "rnn": 1}
"""How many gates each cell has."""
WIDTH, UNITS = 3, 4


def _check(path: Path, x: Any, *endings: str) -> rc.ExportedModel:
    """A model gives in other runtimes what OpenVINO gives."""
    truths = RUNS["xml"](path)([x])
    for ending in endings:
        target = path.with_name(f"written.{ending}")
        done = rc.export_model(path, target, force=True)
        for output, truth in zip(RUNS[ending](target)([x]), truths, strict=True):
            np.testing.assert_allclose(output, truth, rtol=1e-5, atol=2e-6)
    return done


@pytest.mark.parametrize("axis", [-1, -2])
def test_an_axis_that_is_counted_from_the_end_is_turned_around(axis: int, tmp_path: Path) -> None:
    ov, op = needed("openvino", "openvino"), needed("openvino", "openvino.opset8")
    x, front = op.parameter([5, 3], np.float32, "x"), op.constant(np.array([0], np.int64))
    length = op.constant(np.array([3 if axis == -1 else 5], np.int64))
    turned = op.squeeze(op.reverse_sequence(op.unsqueeze(x, front), length, 0, axis), front)
    ov.save_model(ov.Model([op.result(turned)], [x], "turned"), tmp_path / "turned.xml", compress_to_fp16=False)
    _check(tmp_path / "turned.xml", np.arange(15, dtype=np.float32).reshape(5, 3), "onnx")


def _iterated(kind: str, turned: bool, time: int, every: bool, path: Path, seed: int = 0) -> None:
    """Write a TensorIterator around a cell, which reads (batch, time, values)."""
    ov, op = needed("openvino", "openvino"), needed("openvino", "openvino.opset8")
    draw = np.random.default_rng(seed)

    def f(*shape: int) -> Any:
        return op.constant(draw.normal(size=shape).astype(np.float32))

    def i(*numbers: int) -> Any:
        return op.constant(np.array(numbers, np.int64))

    rows = KINDS[kind] * UNITS
    x = op.parameter([-1, time, WIDTH], np.float32, "x")
    batch = op.gather(op.shape_of(x), i(0), op.constant(np.int64(0)))
    zero = op.broadcast(op.constant(np.float32(0)), op.concat([batch, i(UNITS)], 0))
    part, h, c = op.parameter([-1, 1, WIDTH], np.float32), *(op.parameter([-1, UNITS], np.float32) for _ in "hc")
    step, arrays = op.squeeze(part, i(1)), [f(rows, WIDTH), f(rows, UNITS), f(rows + UNITS * (kind == "gru after"))]
    if kind == "lstm":
        cell = op.lstm_cell(step, h, c, *arrays, UNITS)
    elif kind == "rnn":
        cell = op.rnn_cell(step, h, *arrays, UNITS, activations=["tanh"], activations_alpha=[], activations_beta=[])
    else:
        cell = op.gru_cell(step, h, *arrays, UNITS, linear_before_reset=kind == "gru after")
    states = [h, c][: 1 + (kind == "lstm")]
    results = [op.result(op.unsqueeze(cell.output(0), i(1))), *(op.result(cell.output(n)) for n in range(len(states)))]
    loop, ends = op.tensor_iterator(), (-1, -1, 1, 0, 1) if turned else (0, 1, 1, -1, 1)
    loop.set_body(ov.Model(results, [part, *states], "body"))
    loop.set_sliced_input(part, x.output(0), *ends)
    for state, result in zip(states, results[1:], strict=True):
        loop.set_merged_input(state, zero.output(0), result.output(0))
    outputs = [loop.get_concatenated_slices(results[0].output(0), *ends)] if every else []
    outputs.append(loop.get_iter_value(results[1].output(0), -1))
    head = f(UNITS, 2)
    ov.save_model(ov.Model([op.result(op.matmul(y, head, False, False)) for y in outputs], [x], "m"), path, compress_to_fp16=False)


def test_a_tensor_iterator_around_a_cell_is_a_layer(tmp_path: Path) -> None:
    cases = [*itertools.product(KINDS, (False, True), (5, -1), (True, False))]

    def check(case: tuple[str, bool, int, bool]) -> None:
        kind, turned, time, every = case
        _iterated(kind, turned, time, every, tmp_path / "model.xml", seed=cases.index(case))
        x = np.random.default_rng(cases.index(case)).normal(size=(2, 5, WIDTH)).astype(np.float32)
        done = _check(tmp_path / "model.xml", x, "onnx", "tflite")
        checkpoint = rc.load(tmp_path / "model.xml")
        (layer,) = checkpoint.layers.values()
        (direction,) = layer.layers[0].directions
        assert direction.reverse == turned and direction.cell.kind == kind[: len(direction.cell.kind)] and not checkpoint.unread
        assert direction.cell.reset_after == {"gru": False, "gru after": True}.get(kind)
        assert len(done.layers) == 1 and f"{WIDTH} -> {UNITS}" in done.layers[0]

    each(drawn(cases, 12, "iterated"), check)


def _models(keras: Any) -> dict[str, Any]:
    layers, ops = keras.layers, keras.ops

    class Normed(layers.Layer):
        """A cell with a norm, which no layer is."""

        def __init__(self, units: int) -> None:
            super().__init__()
            self.units = self.state_size = units
            self.read, self.again, self.norm = layers.Dense(units), layers.Dense(units), layers.LayerNormalization()

        def build(self, shape: Any) -> None:
            self.read.build(shape)
            for inner in (self.again, self.norm):
                inner.build((None, self.units))

        def call(self, x: Any, states: Any, training: bool = False) -> Any:
            h = ops.tanh(self.norm(self.read(x) + self.again(states[0])))
            return h, [h]

    return {
        "LSTM": lambda: layers.LSTM(UNITS, return_sequences=True),
        "last LSTM": lambda: layers.LSTM(UNITS, activation="relu"),
        "GRU": lambda: layers.GRU(UNITS, return_sequences=True),
        "SimpleRNN from the end": lambda: layers.SimpleRNN(UNITS, return_sequences=True, go_backwards=True),
        "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(UNITS)),
        "a cell with a norm": lambda: layers.RNN(Normed(UNITS), return_sequences=True),
        "a cell with a norm, from the end": lambda: layers.RNN(Normed(UNITS), return_sequences=True, go_backwards=True),
        "the last of a cell with a norm": lambda: layers.RNN(Normed(UNITS)),
    }


@pytest.mark.parametrize("time", [7, None])
def test_a_keras_model_that_openvino_converted(time: int | None, tmp_path: Path) -> None:
    keras, ov = needed("keras", "keras"), needed("openvino", "openvino")
    needed("tensorflow", "tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("a SavedModel is written on TensorFlow alone")
    models = _models(keras)

    def check(name: str) -> None:
        model = keras.Sequential([keras.Input((time, WIDTH)), models[name](), keras.layers.Dense(2)])
        fill(model, 5)
        model.export(tmp_path / "saved", verbose=False)
        ov.save_model(ov.convert_model(tmp_path / "saved"), tmp_path / "model.xml", compress_to_fp16=False)
        assert '"Loop"' in (tmp_path / "model.xml").read_text()
        x = np.random.default_rng(3).normal(size=(2, 7, WIDTH)).astype(np.float32)
        done = _check(tmp_path / "model.xml", x, "tflite", "onnx")
        np.testing.assert_allclose(RUNS["onnx"](tmp_path / "written.onnx")([x])[0], model(x), rtol=1e-5, atol=2e-6)
        layers = [*rc.load(tmp_path / "model.xml").layers.values()]
        if "norm" in name:
            assert done.layers == ("loop (Scan)",) and not layers
        else:
            assert len(done.layers) == len(layers) == 1 + (name == "Bidirectional")
            ends = [layer.layers[0].directions[0].reverse for layer in layers]
            assert ends == {"Bidirectional": [False, True], "SimpleRNN from the end": [True]}.get(name, [False])

    each(drawn(models, 4, f"converted {time}"), check)


SCANS = (
    "stacked", "joined", "last alone", "layer norm", "multiplicative", "a learned state", "a state of one row", "from the end",
    "from the end, in that order", "states that are those of other ones", "exchanged states", "in place on a new value", "computed steps",
    "the number of the step", "a list that is not empty", "a list that goes on", "an element changed later", "a slice of one step",
    "a list that is turned around", "both directions in one loop", "in place on a value of the step", "whole numbers as a state",
    "a tensor that is filled",
)  # fmt: skip
"""The loops of TorchScript whose Scan becomes one TensorIterator in OpenVINO's converter."""


def test_a_scan_that_openvino_converted(tmp_path: Path) -> None:
    torch, ov = needed("torch", "torch"), needed("openvino", "openvino")
    x = torch.randn(2, 6, 5).numpy()

    def check(name: str) -> None:
        scripted(tmp_path, RIGHT[name])
        rc.export_model(tmp_path / "model.pt", tmp_path / "model.onnx", axes=3, force=True)
        ov.save_model(ov.convert_model(tmp_path / "model.onnx"), tmp_path / "model.xml", compress_to_fp16=False)
        assert 'type="TensorIterator"' in (tmp_path / "model.xml").read_text()
        (layer,) = _check(tmp_path / "model.xml", x, "tflite", "onnx").layers
        assert layer.endswith(("(Scan)", "(GRU 5 -> 6)"))

    each(drawn(SCANS, 8, "scans"), check)


def test_a_list_of_other_length_than_its_loop_is_refused(tmp_path: Path) -> None:
    """A step fills a place of a tensor of its own; what has more places than there are steps keeps what it began with."""
    keras, ov = needed("keras", "keras"), needed("openvino", "openvino")
    needed("tensorflow", "tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("a SavedModel is written on TensorFlow alone")
    model = keras.Sequential([keras.Input((7, WIDTH)), keras.layers.LSTM(UNITS, return_sequences=True)])
    model.export(tmp_path / "saved", verbose=False)
    ov.save_model(ov.convert_model(tmp_path / "saved"), tmp_path / "model.xml", compress_to_fp16=False)
    text = (tmp_path / "model.xml").read_text()
    stored = re.search(r'element_type="f32" shape="7, 1, 1" offset="(\d+)" size="28"', text)
    assert stored is not None
    numbers = (tmp_path / "model.bin").read_bytes()
    (tmp_path / "model.bin").write_bytes(numbers + bytes(-len(numbers) % 8 + 32))
    changed = f'element_type="f32" shape="8, 1, 1" offset="{len(numbers) + -len(numbers) % 8}" size="32"'
    (tmp_path / "model.xml").write_text(text.replace(stored[0], changed))
    with pytest.raises(rc.RefusedError):
        rc.export_model(tmp_path / "model.xml", tmp_path / "model.onnx")


def test_parts_of_several_steps_are_refused(tmp_path: Path) -> None:
    _iterated("lstm", False, 6, True, tmp_path / "model.xml")
    text = (tmp_path / "model.xml").read_text()
    (tmp_path / "model.xml").write_text(text.replace('part_size="1"', 'part_size="2"'))
    with pytest.raises(rc.RefusedError, match="TensorIterator"):
        rc.export_model(tmp_path / "model.xml", tmp_path / "model.onnx")
    (tmp_path / "model.xml").write_text(text.replace('external_port_id="0"', 'external_port_id="9"'))
    with pytest.raises(rc.UnreadableError, match="the port '9'"):
        rc.load(tmp_path / "model.xml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('internal_layer_id="0"', 'internal_layer_id="99"'),
        ('axis="1"', 'axis="7"'),
        ('axis="1"', 'axis="x"'),
        ('to-layer="1"', 'to-layer="98"'),
    ],
)
def test_a_loop_that_names_what_there_is_not_is_unreadable(old: str, new: str, tmp_path: Path) -> None:
    _iterated("lstm", False, 6, True, tmp_path / "model.xml")
    text = (tmp_path / "model.xml").read_text()
    head, ports, rest = text.partition("<port_map>")
    ports, end, rest = rest.partition("<body>")
    assert old in ports
    (tmp_path / "model.xml").write_text(f"{head}<port_map>{ports.replace(old, new)}{end}{rest}")
    with pytest.raises(rc.UnreadableError, match="loop"):
        rc.load(tmp_path / "model.xml")
