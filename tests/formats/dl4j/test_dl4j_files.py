"""Deeplearning4j's zip archives: real ones with outputs of Deeplearning4j itself, both kinds of headers, and damage."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import SIGMOID, TANH, Activation
from rnnconvert.formats.dl4j import nd4j
from tests.helpers import corpus
from tests.helpers.requirements import need

REGRESSION = corpus.FOLDER / "dl4j-regression"


def buffer(array: Array, mode: str = "JAVACPP") -> bytes:
    """A buffer as BaseDataBuffer.write has it."""
    kind = {"f4": b"FLOAT", "f8": b"DOUBLE", "f2": b"HALF", "i4": b"INT", "i8": b"LONG"}[array.dtype.str[1:]]
    count = struct.pack(">q" if mode in ("LONG_SHAPE", "MIXED_DATA_TYPES") else ">i", array.size)
    big = array.astype(array.dtype.newbyteorder(">")).tobytes()
    return struct.pack(">H", len(mode)) + mode.encode() + count + struct.pack(">H", len(kind)) + kind + big


def written(array: Array, mode: str = "JAVACPP", order: str = "c") -> bytes:
    """An array as Nd4j.write has it: rank, shape, strides, extras, element-wise stride, order."""
    wide = np.int64 if mode == "MIXED_DATA_TYPES" else np.int32
    about = np.array([array.ndim, *array.shape, *([1] * array.ndim), 0, 1, ord(order)], wide)
    return buffer(about, mode) + buffer(array.reshape(-1, order="F" if order == "f" else "C"), mode)


def model(path: Path, config: Any, vector: Array, mode: str = "JAVACPP") -> Path:
    """A model file."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("configuration.json", config if isinstance(config, str) else json.dumps(config))
        archive.writestr("coefficients.bin", written(vector.reshape(1, -1), mode))
    return path


def network(*layers: Any) -> dict[str, Any]:
    """The configuration of a MultiLayerNetwork."""
    return {"confs": [{"layer": layer} for layer in layers]}


CLASS = "org.deeplearning4j.nn.conf.layers."


def new(kind: str, nin: int, nout: int, **more: Any) -> dict[str, Any]:
    """A layer as 1.0.0-beta4 writes it."""
    return {"@class": CLASS + kind, "nin": nin, "nout": nout, **more}


# Real files -------------------------------------------------------------------------------------------


def test_a_network_gives_what_deeplearning4j_gave() -> None:
    need("corpus", corpus.absent())
    checkpoint = rc.load(REGRESSION / "SyntheticBidirectionalRNNGraph_100b4.bin")
    recorded = np.load(REGRESSION / "SyntheticBidirectionalRNNGraph_100b4.ref.npz")
    assert [layer.layers[0].merge for layer in checkpoint.layers.values()] == ["concat", "concat"]
    assert {layer.cell.activation for layer in checkpoint.layers.values()} == {Activation("relu")}
    x = recorded["x"].astype("f4").transpose(2, 0, 1)
    hidden = np.concatenate([reference.run(layer, x).y for layer in checkpoint.layers.values()], -1).max(0)
    scores = np.exp(hidden @ checkpoint.tensors["out/W"] + checkpoint.tensors["out/b"])
    np.testing.assert_allclose(scores / scores.sum(-1, keepdims=True), recorded["y"], rtol=0, atol=2e-7)


@pytest.mark.parametrize("name", ["060", "071", "080", "060 CG", "080 CG"])
def test_old_networks_are_read(name: str) -> None:
    """Their parameters count from 1: where each number came to lie is seen."""
    need("corpus", corpus.absent())
    version, *graph = name.split()
    checkpoint = rc.load(REGRESSION / f"{version}_ModelSerializer_Regression_{'CG_' if graph else ''}LSTM_1.zip")
    first, second = checkpoint.layers.values()
    assert (first.cell.activation, first.cell.gate_activation) == (TANH, SIGMOID)
    assert second.cell.activation == second.cell.output_activation == Activation("softsign")
    assert second.layers[0].merge == "sum"
    arrays = first.first.arrays
    # W: 3 inputs and 16 columns, RW: 4 and 19, b: 16; blocks activation, f, o, input gate.
    np.testing.assert_array_equal(np.asarray(arrays["input", "g"])[0], [1, 2, 3])
    np.testing.assert_array_equal(np.asarray(arrays["input", "i"])[0], [37, 38, 39])
    np.testing.assert_array_equal(np.asarray(arrays["recurrent", "f"])[1], [69, 70, 71, 72])
    np.testing.assert_array_equal(np.asarray(arrays["peephole", "f"]), [113, 114, 115, 116])
    np.testing.assert_array_equal(np.asarray(arrays["peephole", "i"]), [121, 122, 123, 124])
    np.testing.assert_array_equal(np.asarray(arrays["input_bias", "o"]), [133, 134, 135, 136])
    assert np.asarray(second[0, 0].arrays["input", "g"])[0, 0] == 141
    assert np.asarray(second[0, 1].arrays["input", "g"])[0, 0] == 141 + 64 + 76 + 16
    assert sum(array.size for array in checkpoint.tensors.values()) == 4 * 5 + 5


# Configurations ---------------------------------------------------------------------------------------


def test_sums_and_functions_are_kept(tmp_path: Path) -> None:
    hard = {"@class": "org.nd4j.linalg.activations.impl.ActivationHardSigmoid"}
    two = {"@class": CLASS + "recurrent.Bidirectional", "fwd": new("LSTM", 3, 2), "bwd": new("LSTM", 3, 2), "mode": "ADD"}
    config = network(new("DenseLayer", 2, 3, hasBias=False), {**new("LSTM", 3, 3), "gateActivationFn": hard}, two,
                     {"@class": CLASS + "recurrent.LastTimeStep", "underlying": new("recurrent.SimpleRnn", 2, 2)})  # fmt: skip
    sizes = [6, 4 * 3 * 7, 2 * 4 * 2 * 6, 2 * 5]
    path = model(tmp_path / "a.zip", config, np.arange(sum(sizes), dtype="f4"), "MIXED_DATA_TYPES")
    checkpoint = rc.load(path)
    assert list(checkpoint.layers) == ["1", "2", "3"] and list(checkpoint.tensors) == ["0/W"]
    assert checkpoint.layers["1"].cell.gate_activation == Activation("hard_sigmoid", 0.2, 0.5)
    assert checkpoint.layers["2"].layers[0].merge == "sum"
    assert np.asarray(checkpoint.layers["3"].first.arrays["input", "n"]).flat[0] == sum(sizes[:3])
    rc.convert(path, tmp_path / "b.zip", target_format="dl4j")
    for name, layer in rc.load(tmp_path / "b.zip").layers.items():
        assert [direction.cell for _, _, direction in layer.directions()] == [d.cell for _, _, d in checkpoint.layers[name].directions()]


@pytest.mark.parametrize(
    ("stated", "function"),
    [
        ("tanh", TANH), ({"TanH": {}}, TANH), ({"LReLU": {"alpha": 0.0}}, Activation("leaky_relu", 0.0)),
        ({"LReLU": {}}, Activation("leaky_relu", 0.01)), ({"ELU": {"alpha": 0.5}}, Activation("elu", 0.5)),
        ({"@class": "org.nd4j.linalg.activations.impl.ActivationReLU", "max": None, "threshold": 0.0}, Activation("relu")),
        ({"@class": "org.nd4j.linalg.activations.impl.ActivationReLU", "max": 6.0}, Activation("dl4j relu")),
        ({"@class": "org.nd4j.linalg.activations.impl.ActivationIdentity"}, Activation("linear")),
    ],
)  # fmt: skip
def test_functions_are_read_as_every_version_writes_them(stated: Any, function: Activation, tmp_path: Path) -> None:
    config = network({"simpleRnn": {"nin": 3, "nout": 2, "activationFn": stated}})
    (layer,) = rc.load(model(tmp_path / "a.zip", config, np.zeros(12, "f4"))).layers.values()
    assert layer.cell.activation == function


def test_an_unknown_function_is_refused_where_it_would_be_run(tmp_path: Path) -> None:
    config = network({"lstm": {"nin": 3, "nout": 2, "activationFunction": "rationaltanh"}})
    path = model(tmp_path / "a.zip", config, np.zeros(4 * 2 * 6, "f4"))
    with pytest.raises(rc.RefusedError, match="dl4j rationaltanh"):
        rc.convert(path, tmp_path / "a.pt")


def test_a_graph_of_old_without_one_order_is_refused(tmp_path: Path) -> None:
    def vertex() -> dict[str, Any]:
        return {"LayerVertex": {"layerConf": {"layer": {"lstm": {"nin": 3, "nout": 2}}}}}

    graph = {"networkInputs": ["in"], "vertices": {"a": vertex(), "b": vertex()}, "vertexInputs": {"a": ["in"], "b": ["in"]}}
    path = model(tmp_path / "a.zip", graph, np.zeros(2 * 4 * 2 * 6, "f4"))
    with pytest.raises(rc.UnreadableError, match="the order of the parameters of a, b"):
        rc.load(path)
    path = model(path, {**graph, "topologicalOrderStr": ["in", "b", "a"]}, np.zeros(2 * 4 * 2 * 6, "f4"))
    assert list(rc.load(path).layers) == ["b", "a"]


LSTM = new("LSTM", 3, 2)
SIZE = 4 * 2 * 6


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (network(new("VariationalAutoencoder", 3, 2)), "layer '0' is of the type 'variationalautoencoder'"),
        (network(new("SimpleRnn", 3, 2, hasLayerNorm=True)), "simplernn with layer normalisation"),
        (network(LSTM, LSTM), "holds 48 parameters, but its layers have 96 (0 48, 1 48)".replace("(", r"\(").replace(")", r"\)")),
        (network(new("LSTM", 3, -2)), "nout -2"),
        (network(new("LSTM", 3, 1 << 50)), "nout"),
        (network({"@class": "a.Bidirectional", "fwd": LSTM, "bwd": new("LSTM", 3, 3), "mode": "ADD"}), "differ"),
        (network({"@class": "a.Bidirectional", "fwd": LSTM, "bwd": LSTM, "mode": "NEAR"}), "unknown mode 'NEAR'"),
        ("{", "is damaged"),
        ("[" * 100_000, "is damaged"),
        ("[]", "is damaged"),
        ('{"confs": [{"layer": {}}]}', "is damaged"),
    ],
)
def test_configurations_that_do_not_fit_are_unreadable(config: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(rc.UnreadableError, match=message):
        rc.load(model(tmp_path / "a.zip", config, np.zeros(SIZE, "f4")))


# Headers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["JAVACPP", "HEAP", "LONG_SHAPE", "MIXED_DATA_TYPES"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_every_header_is_read(mode: str, dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for order in "cf":
        data = np.frombuffer(written(array, mode, order), np.uint8)
        read = nd4j.read(data, "a", "x")
        np.testing.assert_array_equal(read, array)
        assert np.shares_memory(read, data)


@pytest.mark.parametrize("mode", ["JAVACPP", "MIXED_DATA_TYPES"])
def test_damage_is_unreadable_or_another_number(mode: str) -> None:
    content = written(np.ones((2, 3), "f4"), mode)
    for length in range(len(content)):
        with pytest.raises(rc.UnreadableError):
            nd4j.read(np.frombuffer(content[:length], np.uint8), "a", "x")
    for at in range(len(content)):
        for value in {0, 1, 0x7F, 0x80, 0xFF} - {content[at]}:
            try:
                nd4j.read(np.frombuffer(content[:at] + bytes([value]) + content[at + 1 :], np.uint8), "a", "x")
            except rc.UnreadableError:
                continue


def test_compressed_numbers_are_said() -> None:
    data = np.frombuffer(written(np.ones(2, "f4")).replace(b"\0\5FLOAT", b"\0\12COMPRESSED"), np.uint8)
    with pytest.raises(rc.UnreadableError, match="unknown type 'COMPRESSED'"):
        nd4j.read(data, "a", "x")


def test_odd_constants_and_enormous_lengths_are_unreadable(tmp_path: Path) -> None:
    function = {"@class": "org.nd4j.linalg.activations.impl.ActivationELU", "alpha": "x"}
    config = network(new("LSTM", 2, 2, activationFn=function))
    with pytest.raises(rc.UnreadableError, match="has the alpha 'x'"):
        rc.load(model(tmp_path / "a.zip", config, np.zeros(40, "f4")))
    about = np.array([2, 1 << 61, 0, 1, 1, 0, 1, ord("c")], ">i8")
    content = np.frombuffer(buffer(about, "LONG_SHAPE") + buffer(np.zeros(0, ">f4"), "LONG_SHAPE"), np.uint8)
    with pytest.raises(rc.UnreadableError, match="has the shape"):
        nd4j.read(content, "a", "b")
