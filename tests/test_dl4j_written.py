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
from tests import corpus
from tests.requirements import need, needed

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
