"""What is written for Deeplearning4j: its own files written again have the same numbers, keys and classes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import Activation
from rnnconvert.formats.dl4j import nd4j
from tests.helpers import corpus
from tests.helpers.requirements import need, needed

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
REGRESSION = corpus.FOLDER / "dl4j-regression"
FREE = (
    "iupdater",
    "regularization",
    "networkOutputs",
    "networkInputs",
    "vertexInputs",
    "topologicalOrder",
    "topologicalOrderStr",
    "variables",
)
"""What training and the network around the layers decide."""


def opened(path: Path) -> tuple[Any, Any]:
    with zipfile.ZipFile(path) as archive:
        vector = nd4j.read(np.frombuffer(archive.read("coefficients.bin"), np.uint8), path, "coefficients.bin")
        return json.loads(archive.read("configuration.json")), vector.reshape(-1)


def differences(ours: Any, theirs: Any, place: str = "") -> list[str]:
    """Where two configurations differ: in keys, classes or values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [f"{place}/{key}" for key in ours.keys() ^ theirs.keys()]
        return keys + [
            text for key in ours.keys() & theirs.keys() - {*FREE} for text in differences(ours[key], theirs[key], f"{place}/{key}")
        ]
    return [] if ours == theirs and type(ours) is type(theirs) else [f"{place}: {ours!r}, not {theirs!r}"]


def test_a_graph_of_deeplearning4j_is_written_as_it_was(tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    source = REGRESSION / "SyntheticBidirectionalRNNGraph_100b4.bin"
    rc.convert(source, tmp_path / "again.zip")
    (ours, numbers), (theirs, every) = opened(tmp_path / "again.zip"), opened(source)
    assert numbers.size == every.size - 195  # the output layer's
    np.testing.assert_array_equal(numbers, every[: numbers.size])
    for name in ("rnn1", "rnn2"):
        assert differences(ours["vertices"][name], theirs["vertices"][name]) == []
        variables = [each["vertices"][name]["layerConf"]["variables"] for each in (ours, theirs)]
        assert variables[0] == variables[1]
    assert differences({**ours, "vertices": {}}, {**theirs, "vertices": {}}) == []
    head = [zipfile.ZipFile(path).read("coefficients.bin")[:93] for path in (tmp_path / "again.zip", source)]
    assert head[0][:50] == head[1][:50] and len(head[0]) == len(head[1])
    assert rc.load(tmp_path / "again.zip").layers.keys() == {"rnn1", "rnn2"}


def test_peepholes_are_written_as_old_files_have_them(tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    source = REGRESSION / "080_ModelSerializer_Regression_LSTM_1.zip"
    rc.convert(source, tmp_path / "again.zip")
    (ours, numbers), (_, every) = opened(tmp_path / "again.zip"), opened(source)
    np.testing.assert_array_equal(numbers, every[: numbers.size])
    first, second = (vertex["layerConf"]["layer"] for vertex in ours["vertices"].values())
    assert first["@class"].endswith(".GravesLSTM")
    assert second["@class"].endswith(".Bidirectional") and second["mode"] == "ADD" and second["fwd"]["@class"].endswith(".GravesLSTM")


def test_functions_are_written_by_their_classes(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    words = {
        "tanh": "TanH",
        "relu": "ReLU",
        "linear": "Identity",
        "softsign": "SoftSign",
        "softplus": "SoftPlus",
        "silu": "Swish",
        "elu": "ELU",
    }
    for word, spelled in words.items():
        k.Sequential([k.Input((None, 3)), k.layers.SimpleRNN(2, activation=word, name="rnn")]).save(tmp_path / "m.keras")
        rc.convert(tmp_path / "m.keras", tmp_path / "m.zip", force=True)
        layer = opened(tmp_path / "m.zip")[0]["vertices"]["rnn"]["layerConf"]["layer"]
        assert layer["activationFn"]["@class"] == f"org.nd4j.linalg.activations.impl.Activation{spelled}"
        assert rc.load(tmp_path / "m.zip").layers["rnn"].cell.activation == (Activation("elu", 1.0) if word == "elu" else Activation(word))


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (lambda a: a.GRU(3), "gru.*GRU"), (lambda a: a.LSTM(3, go_backwards=True), "from the end|reverse|backwards"),
        (lambda a: a.LSTM(3, recurrent_activation="hard_sigmoid"), "hard_sigmoid"), (lambda a: a.SimpleRNN(3, activation="gelu"), "gelu"),
    ],
)  # fmt: skip
def test_what_deeplearning4j_lacks_is_refused(layer: Any, text: str, tmp_path: Path) -> None:
    k = needed("keras", "keras")
    k.Sequential([k.Input((None, 3)), layer(k.layers)]).save(tmp_path / "m.keras")
    with pytest.raises(rc.RefusedError, match=text):
        rc.convert(tmp_path / "m.keras", tmp_path / "m.zip")
    assert not (tmp_path / "m.zip").exists()


# Whole models -------------------------------------------------------------------------------------------------


def network_of(k: Any) -> Any:
    a = k.layers
    parts = [a.Dense(4, activation="relu", name="before"), a.Bidirectional(a.LSTM(5, return_sequences=True), name="both"), a.Dropout(0.5)]
    parts += [a.SimpleRNN(4, return_sequences=True, name="rnn"), a.Dense(3, name="middle"), a.LSTM(3, name="last")]
    return k.Sequential([k.Input((None, 3), name="x"), *parts, a.Dense(2, activation="softmax", name="out")])


def test_a_chain_is_written_layer_by_layer(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    model = network_of(k)
    model.save(tmp_path / "m.keras")
    done = rc.export_model(tmp_path / "m.keras", tmp_path / "m.zip")
    config, numbers = opened(tmp_path / "m.zip")
    vertices = config["vertices"]
    classes = {name: vertex["layerConf"]["layer"]["@class"].rpartition(".")[2] for name, vertex in vertices.items()}
    assert classes == {
        "before": "DenseLayer", "both": "Bidirectional", "rnn": "SimpleRnn", "middle": "DenseLayer", "last": "LastTimeStep",
        "out": "OutputLayer",
    }  # fmt: skip
    before = {name: (vertex["preProcessor"] or {}).get("@class", "").rpartition(".")[2] for name, vertex in vertices.items()}
    rows, steps = "RnnToFeedForwardPreProcessor", "FeedForwardToRnnPreProcessor"
    assert before == {"before": rows, "both": steps, "rnn": "", "middle": rows, "last": steps, "out": ""}
    assert config["networkOutputs"] == ["out"] and done.inputs == ("input (batch, 3, time)",)
    again = rc.load(tmp_path / "m.zip")
    assert list(again.layers) == ["both", "rnn", "last"] and not again.warnings
    for name in ("before", "middle", "out"):
        weight, bias = (k.ops.convert_to_numpy(array) for array in model.get_layer(name).weights)
        np.testing.assert_array_equal(again.tensors[f"{name}/W"], weight)
        np.testing.assert_array_equal(again.tensors[f"{name}/b"], bias)
    assert numbers.size == sum(int(np.prod(weight.shape)) for weight in model.weights)


def test_the_output_layer_has_the_keys_of_deeplearning4j(tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    k = needed("keras", "keras")
    network_of(k).save(tmp_path / "m.keras")
    rc.export_model(tmp_path / "m.keras", tmp_path / "m.zip")
    ours, theirs = (
        opened(path)[0]["vertices"]["out"] for path in (tmp_path / "m.zip", REGRESSION / "SyntheticBidirectionalRNNGraph_100b4.bin")
    )
    sizes = differences(ours, theirs)
    assert sorted(sizes) == ["/layerConf/layer/nin: 3, not 64", "/layerConf/layer/nout: 2, not 3"]


def test_steps_are_given_by_an_output_layer_of_steps(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    for between, before in (([], ""), ([a.Dense(3)], "FeedForwardToRnnPreProcessor")):
        k.Sequential([k.Input((None, 3)), a.LSTM(4, return_sequences=True), *between, a.Dense(2, name="out")]).save(tmp_path / "m.keras")
        rc.export_model(tmp_path / "m.keras", tmp_path / "m.zip", force=True)
        out = opened(tmp_path / "m.zip")[0]["vertices"]["out"]
        assert out["layerConf"]["layer"]["@class"].endswith(".RnnOutputLayer")
        assert (out["preProcessor"] or {}).get("@class", "").endswith(before)


def test_a_stateful_model_gives_every_step_to_the_calls_that_keep_its_states(tmp_path: Path) -> None:
    """rnnTimeStep calls the layer inside a LastTimeStep, so that what stands behind it reads steps."""
    k = needed("keras", "keras")
    a = k.layers

    def saved(*layers: Any) -> Path:
        k.Sequential([k.Input((4, 3), batch_size=2), *layers]).save(tmp_path / "m.keras")
        return tmp_path / "m.keras"

    first, last = a.LSTM(4, return_sequences=True, stateful=True), a.LSTM(5, stateful=True, name="last")
    head = (a.Dense(3, activation="relu", name="middle"), a.Dense(2, name="out"))
    done = rc.export_model(saved(first, last, *head), tmp_path / "m.zip")
    assert done.outputs == ("out (batch, 2, time)",)
    assert any("rnnTimeStep" in note for note in done.notes) and any("the model gives the last" in note for note in done.notes)
    vertices = opened(tmp_path / "m.zip")[0]["vertices"]
    classes = {name: vertex["layerConf"]["layer"]["@class"].rpartition(".")[2] for name, vertex in vertices.items()}
    assert (classes["last"], classes["middle"], classes["out"]) == ("LSTM", "DenseLayer", "RnnOutputLayer")
    before = {name: (vertex["preProcessor"] or {}).get("@class", "").rpartition(".")[2] for name, vertex in vertices.items()}
    assert (before["last"], before["middle"], before["out"]) == ("", "RnnToFeedForwardPreProcessor", "FeedForwardToRnnPreProcessor")
    mixed = (a.LSTM(4, return_sequences=True), a.LSTM(5, stateful=True))
    for layers, text in ((mixed, "begin anew"), ((a.Bidirectional(a.LSTM(2, return_sequences=True, stateful=True)),), "one direction")):
        with pytest.raises(rc.RefusedError, match=text):
            rc.export_model(saved(*layers), tmp_path / "m.zip", force=True)


def test_models_that_are_no_chain_of_its_layers_are_refused(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    x = k.Input((None, 3))
    y = a.LSTM(3, return_sequences=True, name="memory")(x)
    every = {
        "gru.*GRU": k.Model(x, a.GRU(3, name="gru")(x)), "mask": k.Model(x, a.LSTM(3)(a.Masking()(x))),
        "sum.*kind 'arithmetic'": k.Model(x, a.Add(name="sum")([x, y])),
        "both.*backwards": k.Model(x, a.Bidirectional(a.LSTM(2), name="both")(x)),
        "pool": k.Model(x, a.GlobalMaxPooling1D(name="pool")(y)), "output": k.Model(x, [y, a.Dense(2)(y)]),
    }  # fmt: skip
    for text, model in every.items():
        model.save(tmp_path / "m.keras")
        with pytest.raises(rc.RefusedError, match=text) as refused:
            rc.export_model(tmp_path / "m.keras", tmp_path / "m.zip")
        assert "onnx" in str(refused.value)
    k.Sequential([k.Input((None, 3)), a.LSTM(3), a.Dense(2)]).save(tmp_path / "m.keras")
    wrong: list[tuple[dict[str, Any], str]] = [({"stateful": True}, "rnnTimeStep"), ({"verify": True}, "no executor runs dl4j files")]
    for options, text in wrong:
        with pytest.raises(rc.UsageError, match=text):
            rc.export_model(tmp_path / "m.keras", tmp_path / "m.zip", **options)
    assert not (tmp_path / "m.zip").exists()
