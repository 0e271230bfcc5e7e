"""Weights alone in a stated order: what their file says of a layer besides its weights holds in the whole model, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.weights import Merge
from rnnconvert.scaffolding import ordered
from tests.helpers import corpus
from tests.helpers.commands import call
from tests.helpers.drawn import each as drawn_each
from tests.helpers.exported import RUNS
from tests.helpers.requirements import need, needed
from tests.helpers.sources import checkpoint, stack


@pytest.mark.parametrize("merge", ["concat", "sum", "mul", "ave"])
def test_two_directions_are_joined_as_the_file_says(merge: Merge, tmp_path: Path) -> None:
    both = stack("lstm", num_directions=2, name="encoder")
    both = both.replace(layers=(replace(both.layers[0], merge=merge),))
    rc.save(checkpoint(both), tmp_path / "a.zip", "dl4j")
    rc.export_model(tmp_path / "a.zip", tmp_path / "a.onnx", chain="encoder")
    x = np.random.default_rng(1).normal(size=(7, 3, both.input_size)).astype(np.float32)
    (y,) = RUNS["onnx"](tmp_path / "a.onnx")([x.transpose(1, 0, 2)])
    np.testing.assert_allclose(y.transpose(1, 0, 2), reference.run(both, x).y, rtol=1e-4, atol=1e-6)


def test_a_layer_that_reads_from_the_end_gives_its_steps_in_the_order_of_time(tmp_path: Path) -> None:
    layer = stack("gru", name="back")
    way = layer.first.replace(reverse=True)
    layer = layer.replace(layers=(replace(layer.layers[0], directions=(way,)),))
    rc.save(checkpoint(layer), tmp_path / "a.param", "ncnn")
    rc.export_model(tmp_path / "a.param", tmp_path / "a.onnx", chain="back")
    x = np.random.default_rng(1).normal(size=(7, 3, layer.input_size)).astype(np.float32)
    (y,) = RUNS["onnx"](tmp_path / "a.onnx")([x.transpose(1, 0, 2)])
    np.testing.assert_allclose(y.transpose(1, 0, 2), reference.run(layer, x).y, rtol=1e-4, atol=1e-6)


def test_no_whole_model_is_offered_without_the_arrays_of_no_known_layer(tmp_path: Path) -> None:
    """The output layer of this network is not read: an order of its recurrent layers is not its model."""
    need("corpus", corpus.absent())
    source = corpus.FOLDER / "dl4j-regression" / "060_ModelSerializer_Regression_CG_LSTM_1.zip"
    result = call("convert", source, tmp_path / "a.onnx")
    assert result.exit_code == 0 and "left out: 2 (25)" in result.stderr and "the whole model" not in result.stderr
    result = call("export", source, tmp_path / "b.onnx", "--chain", "0 1")
    assert result.exit_code == 0 and "recurrent_activation=sigmoid" in result.stderr and "depends on them: '2'" in result.stderr


def chains(torch: Any) -> dict[str, tuple[dict[str, Any], str]]:
    n = torch.nn
    return {
        "two layers, both ways": ({"lstm": n.LSTM(3, 5, 2, bidirectional=True), "fc": n.Linear(10, 2)}, "lstm relu fc"),
        "without biases": ({"gru": n.GRU(2, 4, bias=False), "fc": n.Linear(4, 3, bias=False)}, "gru last fc softmax"),
        "a function in the middle": ({"lstm": n.LSTM(3, 6), "fc": n.Linear(6, 2)}, "lstm gelu fc"),
        "a plain RNN": ({"rnn": n.RNN(2, 3, nonlinearity="relu"), "fc": n.Linear(3, 2)}, "rnn:relu fc skip"),
        "an embedding": ({"embed": n.Embedding(9, 4), "gru": n.GRU(4, 5), "fc": n.Linear(5, 3)}, "embed gru fc log_softmax"),
        "a slope": ({"a": n.Linear(2, 4), "prelu": n.PReLU(4), "lstm": n.LSTM(4, 3)}, "a prelu lstm tanh"),
        "the last states of an LSTM": ({"lstm": n.LSTM(3, 5, 2, bidirectional=True), "fc": n.Linear(10, 2)}, "lstm final tanh fc"),
        "the last states of a GRU": ({"gru": n.GRU(3, 5, bidirectional=True), "fc": n.Linear(10, 2)}, "gru final fc"),
        "the last state of one direction": ({"rnn": n.RNN(3, 5), "fc": n.Linear(5, 2)}, "rnn:tanh final fc"),
        "the mean of the steps": ({"gru": n.GRU(3, 5, bidirectional=True), "fc": n.Linear(10, 2)}, "gru mean fc"),
        "the maximum of the steps": ({"lstm": n.LSTM(3, 5), "fc": n.Linear(5, 2)}, "lstm relu max fc"),
        "names within names": ({"body": n.ModuleDict({"lstm": n.LSTM(2, 4)}), "head": n.ModuleDict({"fc": n.Linear(4, 1)})}, "lstm fc"),
    }


@pytest.mark.parametrize("target", ["m.onnx", "m.tflite", "m.h"])
def test_a_chain_is_proved_beside_the_layers_of_torch(target: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    every = chains(torch)

    def check(name: str) -> None:
        layers, order = every[name]
        torch.save(torch.nn.ModuleDict(layers).state_dict(), tmp_path / "a.pt")
        done = rc.export_model(tmp_path / "a.pt", tmp_path / target, chain=order, verify=True, force=True)
        assert done.equal and "are not proved" in str(done)

    drawn_each(every, check)


def test_files_of_other_kinds_are_proved_and_a_lost_function_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, safetensors = needed("torch", "torch"), needed("safetensors", "safetensors.torch")
    state = torch.nn.ModuleDict({"lstm": torch.nn.LSTM(2, 4), "fc": torch.nn.Linear(4, 1)}).state_dict()
    safetensors.save_file(state, tmp_path / "a.safetensors")
    torch.save({"epoch": 3, "state_dict": {f"model.{name}": tensor for name, tensor in state.items()}}, tmp_path / "a.ckpt")
    optimizer = torch.optim.Adam(torch.nn.Linear(2, 2).parameters()).state_dict()
    torch.save({"step": 3, "model": state, "optimizer": optimizer}, tmp_path / "a.pth")
    for source in ("a.safetensors", "a.ckpt", "a.pth"):
        assert rc.export_model(tmp_path / source, tmp_path / "a.onnx", chain="lstm relu fc", verify=True, force=True).equal
    (tmp_path / "a.onnx").unlink()
    monkeypatch.setattr(ordered, "activation", lambda build, x, word: x)
    with pytest.raises(rc.NotEqualError):
        rc.export_model(tmp_path / "a.ckpt", tmp_path / "a.onnx", chain="lstm relu fc", verify=True)
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.parametrize("chain", ["lstm fc", "lstm last fc", "lstm final fc"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
def test_a_projection_is_a_part_of_its_layer(chain: str, both: bool, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    lstm, fc = torch.nn.LSTM(3, 6, 2, proj_size=2, bidirectional=both), torch.nn.Linear(2 + 2 * both, 1)
    torch.save(torch.nn.ModuleDict({"lstm": lstm, "fc": fc}).state_dict(), tmp_path / "a.pt")
    assert rc.export_model(tmp_path / "a.pt", tmp_path / "a.onnx", chain=chain, verify=True).equal


def test_a_chain_that_nothing_builds_is_not_proved(tmp_path: Path) -> None:
    rc.save(checkpoint(stack("lstm", name="encoder")), tmp_path / "a.param", "ncnn")
    with pytest.raises(rc.UsageError, match="nothing builds a chain of its layers"):
        rc.export_model(tmp_path / "a.param", tmp_path / "a.onnx", chain="encoder", verify=True)
    torch = needed("torch", "torch")
    torch.save({"model": {"lstm": torch.nn.LSTM(2, 4).state_dict()}}, tmp_path / "a.pt")
    with pytest.raises(rc.UsageError, match=r"builds the chain of torch\.nn's layers, and cannot"):
        rc.export_model(tmp_path / "a.pt", tmp_path / "a.onnx", chain="lstm", verify=True)
    assert not (tmp_path / "a.onnx").exists()
