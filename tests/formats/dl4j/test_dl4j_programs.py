"""Whole networks of Deeplearning4j beside a second transcription of their layers in numpy, and one beside its own outputs. No Java runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from tests.formats.dl4j.test_dl4j_files import CLASS, REGRESSION, model, network, new
from tests.helpers import corpus
from tests.helpers.drawn import looped
from tests.helpers.exported import RUNS
from tests.helpers.requirements import need, needed

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
RANDOM = np.random.default_rng(3)
VERTEX, BEFORE, FUNCTION = (f"org.{place}" for place in (
    "deeplearning4j.nn.conf.graph.", "deeplearning4j.nn.conf.preprocessor.", "nd4j.linalg.activations.impl.Activation"))  # fmt: skip
WIDTH, UNITS = 3, 4
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "TanH": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "ReLU": lambda x: np.maximum(x, 0),
    "Identity": lambda x: x,
    "SoftSign": lambda x: x / (1 + np.abs(x)),
    "Swish": lambda x: x / (1 + np.exp(-x)),
    "HardTanH": lambda x: np.clip(x, -1, 1),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
}
Run = Callable[[Array], Array]


def function(name: str) -> dict[str, Any]:
    return {"@class": FUNCTION + name}


def softmax(x: Array) -> Array:
    """Of the second axis."""
    return np.asarray(np.exp(x) / np.exp(x).sum(1, keepdims=True))


class Numbers:
    """The parameters of a network as its layers take them, one after the other."""

    def __init__(self) -> None:
        self.every: list[Array] = []

    def take(self, *shape: int) -> Array:
        """Matrices are stored in 'f' order."""
        array = RANDOM.uniform(-0.8, 0.8, shape).astype("f4")
        self.every.append(array.reshape(-1, order="F"))
        return array

    def lstm(self, width: int = WIDTH, units: int = UNITS, peepholes: bool = False) -> Run:
        """LSTMHelpers.java, activateHelper: blocks of the activation, the forget gate, the output gate and the input gate."""
        w, rw, b = self.take(width, 4 * units), self.take(units, 4 * units + 3 * peepholes), self.take(4 * units)
        gate = FUNCTIONS["Sigmoid"]

        def run(x: Array) -> Array:
            h = c = np.zeros((len(x), units))
            outputs = []
            for now in np.moveaxis(x, 2, 0):
                a, f, o, i = np.split(now @ w + h @ rw[:, : 4 * units] + b, 4, 1)
                f, i = (f + c * rw[:, -3], i + c * rw[:, -1]) if peepholes else (f, i)
                c = gate(f) * c + gate(i) * np.tanh(a)
                h = gate(o + c * rw[:, -2] if peepholes else o) * np.tanh(c)
                outputs.append(h)
            return np.stack(outputs, 2)

        return run

    def simple(self, width: int = WIDTH, units: int = UNITS) -> Run:
        w, rw, b = self.take(width, units), self.take(units, units), self.take(units)

        def run(x: Array) -> Array:
            h, outputs = np.zeros((len(x), units)), []
            for now in np.moveaxis(x, 2, 0):
                h = np.tanh(now @ w + h @ rw + b)
                outputs.append(h)
            return np.stack(outputs, 2)

        return run

    def dense(self, width: int, units: int, bias: bool = True) -> Run:
        w = self.take(width, units)
        b = self.take(units) if bias else np.zeros(units)
        return lambda x: np.moveaxis(np.moveaxis(x, 1, -1) @ w + b, -1, 1)


def lstm(kind: str = "LSTM", width: int = WIDTH, units: int = UNITS) -> dict[str, Any]:
    return new(kind, width, units, activationFn=function("TanH"), gateActivationFn=function("Sigmoid"))


def wrapped(kind: str, inside: Any) -> dict[str, Any]:
    return {"@class": CLASS + kind, "underlying": inside}


def sequences(batch: int = 2, time: int = 5, width: int = WIDTH) -> Array:
    return np.asarray(RANDOM.uniform(-1, 1, (batch, width, time)).astype("f4"))


def graph(vertices: dict[str, tuple[Sequence[str], Any]], inputs: Sequence[str] = ("in",)) -> dict[str, Any]:
    def vertex(content: Any) -> Any:
        layer = ".layers." in content["@class"]
        return {"@class": VERTEX + "LayerVertex", "layerConf": {"layer": content}} if layer else content

    return {
        "networkInputs": list(inputs), "networkOutputs": [[*vertices][-1]], "topologicalOrderStr": [*inputs, *vertices],
        "vertexInputs": {name: list(reads) for name, (reads, _) in vertices.items()},
        "vertices": {name: vertex(content) for name, (_, content) in vertices.items()},
    }  # fmt: skip


def agrees(folder: Path, config: Any, numbers: Numbers, inputs: Sequence[Array], expected: Array, target: str = "onnx") -> None:
    path = model(folder / "m.zip", config, np.concatenate(numbers.every), "MIXED_DATA_TYPES")
    rc.export_model(path, folder / f"m.{target}", force=True)
    (y,) = RUNS[target](folder / f"m.{target}")(list(inputs))
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("target", ["onnx", "tflite", "xml"])
def test_a_network_gives_what_deeplearning4j_gave(target: str, tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    recorded = np.load(REGRESSION / "SyntheticBidirectionalRNNGraph_100b4.ref.npz")
    path = REGRESSION / "SyntheticBidirectionalRNNGraph_100b4.bin"
    rc.export_model(path, tmp_path / f"m.{target}")
    (y,) = RUNS[target](tmp_path / f"m.{target}")([recorded["x"].astype("f4")])
    np.testing.assert_allclose(y, recorded["y"], rtol=0, atol=1e-6)


def test_a_network_is_a_model_of_keras(tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    k = needed("keras", "keras")
    recorded = np.load(REGRESSION / "SyntheticBidirectionalRNNGraph_100b4.ref.npz")
    path = REGRESSION / "SyntheticBidirectionalRNNGraph_100b4.bin"
    rc.scaffold(path, "keras", tmp_path / "m.py", weights=tmp_path / "m.keras")
    y = k.models.load_model(tmp_path / "m.keras").predict(recorded["x"].astype("f4"), verbose=0)
    np.testing.assert_allclose(y, recorded["y"], rtol=0, atol=1e-6)


@looped(24, kind=("LSTM", "GravesLSTM", "recurrent.SimpleRnn"), name=tuple(FUNCTIONS), ending=("steps", "last", "pooled", "rows"))
def test_a_row_of_layers(kind: str, name: str, ending: str, tmp_path: Path) -> None:
    numbers, x = Numbers(), sequences()
    layer = numbers.simple() if "Simple" in kind else numbers.lstm(peepholes=kind == "GravesLSTM")
    dense = numbers.dense(UNITS, 3, bias=name != "ReLU")
    head = numbers.dense(3, 2)
    middle = new("DenseLayer", UNITS, 3, activationFn=function(name), hasBias=name != "ReLU")
    first, before = lstm(kind), {"1": {"@class": BEFORE + "RnnToFeedForwardPreProcessor"}}
    y = layer(x)
    last = new("OutputLayer", 3, 2, activationFn=function("Softmax"), lossFn={"@class": "LossMCXENT"})
    between: list[Any] = [{"@class": CLASS + "DropoutLayer", "idropout": {"@class": "Dropout", "p": 0.5}}]
    if ending == "last":
        first, before, y = wrapped("recurrent.LastTimeStep", first), {}, y[:, :, -1]
    elif ending == "pooled":
        between.insert(0, {"@class": CLASS + "GlobalPoolingLayer", "poolingType": "AVG", "poolingDimensions": [2], "pnorm": 2})
        before, y = {}, y.mean(2)
    elif ending == "steps":
        before["3"] = {"@class": BEFORE + "FeedForwardToRnnPreProcessor"}
        last["@class"] = CLASS + "RnnOutputLayer"
    config = {**network(first, *between, middle, last), "inputPreProcessors": before}
    expected = softmax(head(FUNCTIONS[name](dense(y))))
    if ending == "rows":
        with pytest.raises(rc.RefusedError, match="which gives the steps of all sequences as rows"):
            agrees(tmp_path, config, numbers, [x], expected)
        return
    agrees(tmp_path, config, numbers, [x], expected)


@pytest.mark.parametrize("mode", ["CONCAT", "ADD", "MUL", "AVERAGE"])
@pytest.mark.parametrize("last", ["", "around", "inside"])
def test_both_ways(mode: str, last: str, tmp_path: Path) -> None:
    numbers, x = Numbers(), sequences()
    forward, backward = numbers.lstm()(x), numbers.lstm()(x[:, :, ::-1])
    side = wrapped("recurrent.LastTimeStep", lstm()) if last == "inside" else lstm()
    layer = {"@class": CLASS + "recurrent.Bidirectional", "fwd": side, "bwd": side, "mode": mode}
    layer = wrapped("recurrent.LastTimeStep", layer) if last == "around" else layer
    ends = (forward[:, :, -1], backward[:, :, -1]) if last == "inside" else (forward, backward[:, :, ::-1])
    joined: Any = {"CONCAT": np.concatenate(ends, 1), "ADD": sum(ends), "MUL": ends[0] * ends[1], "AVERAGE": sum(ends) / 2}[mode]
    if last == "inside" and mode != "CONCAT":
        with pytest.raises(rc.RefusedError, match="Bidirectional '0'"):
            agrees(tmp_path, network(layer), numbers, [x], np.asarray(joined))
        return
    agrees(tmp_path, network(layer), numbers, [x], np.asarray(joined[:, :, -1] if last == "around" else joined))


def test_a_graph_of_vertices(tmp_path: Path) -> None:
    numbers, x, z = Numbers(), sequences(), sequences(width=2)
    a, b = numbers.lstm(), numbers.lstm()
    c = numbers.lstm(2 * UNITS, 4)
    out = numbers.dense(UNITS, 2)
    last = {"@class": VERTEX + "rnn.LastTimeStepVertex", "maskArrayInputName": "in"}
    config = graph({
        "a": (["in"], lstm()),
        "turned": (["in"], {"@class": VERTEX + "rnn.ReverseTimeSeriesVertex", "maskArrayInputName": "in"}),
        "b": (["turned"], lstm()),
        "both": (["a", "b"], {"@class": VERTEX + "MergeVertex"}),
        "c": (["both"], lstm(width=2 * UNITS)),
        "sum": (["c", "a"], {"@class": VERTEX + "ElementWiseVertex", "op": "Add"}),
        "some": (["sum"], {"@class": VERTEX + "SubsetVertex", "from": 0, "to": 3}),
        "last": (["some"], last),
        "again": (["last"], {"@class": VERTEX + "rnn.DuplicateToTimeSeriesVertex", "inputName": "other"}),
        "scaled": (["again"], {"@class": VERTEX + "ScaleVertex", "scaleFactor": 0.5}),
        "shifted": (["scaled"], {"@class": VERTEX + "ShiftVertex", "shiftFactor": -1.0}),
        "out": (["shifted"], new("RnnOutputLayer", UNITS, 2, activationFn=function("TanH"))),
    }, ["in", "other"])  # fmt: skip
    of_a = a(x)
    total = c(np.concatenate([of_a, b(x[:, :, ::-1])], 1)) + of_a
    again = np.repeat(total[:, :, -1:], z.shape[2], 2) * 0.5 - 1
    path = model(tmp_path / "m.zip", config, np.concatenate(numbers.every), "MIXED_DATA_TYPES")
    with pytest.raises(rc.RefusedError, match="other"):  # nothing shows the axes of an input that gives its length alone
        rc.export_model(path, tmp_path / "m.onnx")
    config["vertexInputs"]["both"] = ["a", "b", "other"]
    config["vertices"]["c"]["layerConf"]["layer"]["nin"] = 2 * UNITS + 2
    numbers, x, z = Numbers(), sequences(), sequences(width=2)
    a, b = numbers.lstm(), numbers.lstm()
    c = numbers.lstm(2 * UNITS + 2, 4)
    out = numbers.dense(UNITS, 2)
    of_a = a(x)
    total = c(np.concatenate([of_a, b(x[:, :, ::-1]), z], 1)) + of_a
    again = np.repeat(total[:, :, -1:], z.shape[2], 2) * 0.5 - 1
    agrees(tmp_path, config, numbers, [x, z], np.tanh(out(again)))


@pytest.mark.parametrize("sequence", [True, False])
def test_rows_of_an_embedding(sequence: bool, tmp_path: Path) -> None:
    numbers, words = Numbers(), RANDOM.integers(0, 6, (2, 5 if sequence else 1)).astype("i4")
    table, bias = numbers.take(6, WIDTH), numbers.take(WIDTH)
    kind = "EmbeddingSequenceLayer" if sequence else "EmbeddingLayer"
    first = new(kind, 6, WIDTH, hasBias=True, activationFn=function("TanH"), **({"inferInputLength": True} if sequence else {}))
    x = np.tanh(table[words] + bias).transpose(0, 2, 1)
    if sequence:
        agrees(tmp_path, network(first, lstm()), numbers, [words], numbers.lstm()(x))
    else:
        second = new("OutputLayer", WIDTH, 2, activationFn=function("Identity"))
        agrees(tmp_path, network(first, second), numbers, [words], numbers.dense(WIDTH, 2)(x[:, :, 0]))


@pytest.mark.parametrize(
    ("layer", "size", "message"),
    [
        (new("RnnOutputLayer", UNITS, 2, activationFn=function("RationalTanh")), 10, "RnnOutputLayer '1'"),
        (new("RnnOutputLayer", UNITS, 2), 10, "RnnOutputLayer '1'"),
        (new("RnnOutputLayer", UNITS, 2, activationFn=function("TanH"), norm=3), 10, "RnnOutputLayer '1' with norm=3"),
        (new("DenseLayer", UNITS, 2, activationFn=function("TanH"), hasLayerNorm=True), 12, "DenseLayer '1'"),
        (new("BatchNormalization", UNITS, UNITS), 16, "BatchNormalization '1'"),
        (new("RnnOutputLayer", UNITS, 2, activationFn={**function("ReLU"), "max": 6.0}), 10, "RnnOutputLayer '1'"),
        (wrapped("util.MaskZeroLayer", lstm(width=UNITS)), 4 * UNITS * 9, "MaskZeroLayer '1'"),
        ({"@class": CLASS + "GlobalPoolingLayer", "poolingType": "PNORM", "pnorm": 3}, 0, "GlobalPoolingLayer '1'"),
        ({"@class": CLASS + "ActivationLayer", "activationFn": function("Softmax")}, 0, "ActivationLayer '1'"),
    ],
)
def test_what_is_not_known_is_refused_by_name(layer: Any, size: int, message: str, tmp_path: Path) -> None:
    path = model(tmp_path / "m.zip", network(lstm(), layer), RANDOM.uniform(-1, 1, 4 * UNITS * 8 + size).astype("f4"))
    assert next(iter(rc.load(path).layers)) == "0"
    with pytest.raises(rc.RefusedError, match=message):
        rc.export_model(path, tmp_path / "m.onnx")


def test_steps_as_rows_are_no_sequence_and_outputs_are_stated(tmp_path: Path) -> None:
    numbers = Numbers()
    numbers.dense(WIDTH, UNITS), numbers.lstm(UNITS)
    before, layer = (
        {"0": {"@class": BEFORE + "RnnToFeedForwardPreProcessor"}},
        new("DenseLayer", WIDTH, UNITS, activationFn=function("TanH")),
    )
    config = {**network(layer, lstm(width=UNITS)), "inputPreProcessors": before}
    with pytest.raises(rc.RefusedError, match="LSTM '1'"):
        agrees(tmp_path, config, numbers, [], np.zeros(0))
    numbers = Numbers()
    numbers.lstm()
    with pytest.raises(rc.RefusedError, match="'a', which is not stated as an output"):
        agrees(tmp_path, {**graph({"a": (["in"], lstm())}), "networkOutputs": []}, numbers, [], np.zeros(0))


def test_an_unknown_key_of_a_recurrent_layer_is_refused(tmp_path: Path) -> None:
    numbers = Numbers()
    numbers.lstm()
    path = model(tmp_path / "m.zip", network({**lstm(), "recurrentScale": 2.0}), np.concatenate(numbers.every))
    with pytest.raises(rc.RefusedError, match="recurrentScale"):
        rc.export_model(path, tmp_path / "m.onnx")


def test_a_network_that_export_wrote_is_read_back(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    layers = [a.Dense(3, activation="tanh"), a.Bidirectional(a.LSTM(4, return_sequences=True), merge_mode="sum"), a.LSTM(3), a.Dense(2)]
    source = k.Sequential([k.Input((None, 3)), *layers])
    source.save(tmp_path / "m.keras")
    rc.export_model(tmp_path / "m.keras", tmp_path / "m.zip")
    rc.export_model(tmp_path / "m.zip", tmp_path / "m.onnx")
    x = sequences()
    (y,) = RUNS["onnx"](tmp_path / "m.onnx")([x])
    np.testing.assert_allclose(y, source.predict(x.transpose(0, 2, 1), verbose=0), rtol=1e-4, atol=1e-6)
