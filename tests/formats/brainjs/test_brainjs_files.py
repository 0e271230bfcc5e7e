"""brain.js networks: those read compute what brain.js computed; its LSTM, whose cell is not the LSTM's, is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "brainjs"


def stepped(layers: list[dict[str, Array]], steps: Array) -> Array:
    """Return the last layer's outputs of brain.js's LSTM, as src/recurrent/lstm.js has it."""

    def sigmoid(values: Array) -> Array:
        return 1 / (1 + np.exp(-values))

    states = [np.zeros(layer["inputBias"].shape[0]) for layer in layers]
    outputs = []
    for x in steps:
        for number, layer in enumerate(layers):
            sums = {
                gate: layer[f"{gate}Matrix"] @ x + layer[f"{gate}Hidden"] @ states[number] + layer[f"{gate}Bias"][:, 0]
                for gate in ("input", "forget", "output", "cellActivation")
            }
            cell = sigmoid(sums["forget"]) * states[number] + sigmoid(sums["input"]) * np.tanh(sums["cellActivation"])
            x = states[number] = sigmoid(sums["output"]) * np.tanh(cell)
        outputs.append(x)
    return np.array(outputs)


def connected(y: Array, tensors: Any) -> Array:
    """Return what a network gives of its last hidden layer's outputs."""
    return y @ np.asarray(tensors["outputConnector"], np.float64).T + np.asarray(tensors["output"])[:, 0]


def recording(kind: str) -> tuple[Array, Array]:
    """Return the input of a network, and what brain.js gave for each of its steps."""
    document = json.loads((GOLDEN / f"{kind}.given.json").read_text())
    return np.array(document["steps"]), np.array(document["given"])


@pytest.mark.parametrize("kind", ["RNNTimeStep", "GRUTimeStep"])
def test_a_network_gives_what_brain_js_gave(kind: str, tmp_path: Path) -> None:
    x, expected = recording(kind)
    checkpoint = rc.load(GOLDEN / f"{kind}.json")
    assert checkpoint.format == "brainjs" and list(checkpoint.layers) == ["hiddenLayers/0", "hiddenLayers/1"]
    y = x[:, None]
    for layer in checkpoint.layers.values():
        y = reference.run(layer, y).y
    np.testing.assert_allclose(connected(y[:, 0], checkpoint.tensors), expected, rtol=0, atol=2e-6)
    target = tmp_path / ("out.pt" if kind == "RNNTimeStep" else "out.keras")
    # The two layers read one another: in PyTorch they become one module.
    report = rc.convert(GOLDEN / f"{kind}.json", target, verify=True).report
    assert report is not None and report.verdict == "recurrent layers equal"  # the dense layer behind them stays behind


def test_its_lstm_is_none(tmp_path: Path) -> None:
    """The proof of the sentence: with the output in the place of the cell it gives what brain.js gave, and an LSTM does not."""
    path = GOLDEN / "LSTMTimeStep.json"
    x, expected = recording("LSTMTimeStep")
    checkpoint = rc.load(path)
    layers: list[dict[str, Array]] = [{}, {}]
    for name, array in checkpoint.tensors.items():
        if name.startswith("hiddenLayers/"):
            _, number, local = name.split("/")
            layers[int(number)][local] = np.asarray(array, np.float64)
    np.testing.assert_allclose(connected(stepped(layers, x), checkpoint.tensors), expected, rtol=0, atol=2e-6)
    assert not checkpoint.layers and len(checkpoint.unread) == 2
    with pytest.raises((rc.RefusedError, rc.UnreadableError), match="forgets what it gave, and not its cell"):
        rc.convert(path, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_numbers_may_be_a_list_and_an_input_may_be_a_table(tmp_path: Path) -> None:
    """Typed arrays become objects in JSON, with numbers by their places, and arrays become lists."""
    document = json.loads((GOLDEN / "GRU.json").read_text())
    checkpoint = rc.load(GOLDEN / "GRU.json")
    for matrix in document["hiddenLayers"][0].values():
        matrix["weights"] = [*matrix["weights"].values()]
    (path := tmp_path / "net.json").write_text(json.dumps(document))
    assert rc.diff(GOLDEN / "GRU.json", path).equal
    assert checkpoint.tensors["input"].shape == (document["input"]["rows"], document["input"]["columns"])
    assert checkpoint.layers["hiddenLayers/0"].describe() == "GRU (reset before), 1 layer, forward, 7 -> 3, one bias, float32"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [1.0]}, "has 1 weights, but is 3 by 1"),
        ({"weights": {"0": 1.0, "1": 2.0, "x": 3.0}}, "is not a matrix with rows, columns and weights"),
        ({"rows": True}, "has 3 weights"),
        ({"weights": [1.0, None, 2.0]}, "is not a list of numbers"),
    ],
)
def test_a_damaged_matrix_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    document = json.loads((GOLDEN / "GRU.json").read_text())
    document["hiddenLayers"][0]["resetGateBias"].update(change)
    (path := tmp_path / "net.json").write_text(json.dumps(document))
    with pytest.raises(rc.UnreadableError, match=f"'hiddenLayers/0/resetGateBias' {message}"):
        rc.load(path)


def test_another_array_among_a_layers_own_is_not_overlooked(tmp_path: Path) -> None:
    document = json.loads((GOLDEN / "GRU.json").read_text())
    document["hiddenLayers"][0]["peephole"] = document["hiddenLayers"][0]["resetGateBias"]
    (path := tmp_path / "net.json").write_text(json.dumps(document))
    with pytest.raises((rc.RefusedError, rc.UnreadableError), match="peephole"):
        rc.convert(path, tmp_path / "out.onnx")
