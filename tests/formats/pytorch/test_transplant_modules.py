"""Weights into the torch modules that rnnconvert makes where torch.nn has no such cell, and out of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from tests.helpers.whole_models import in_keras, need_both, randomise

# TensorFlow and Keras warn about their own future while they run.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def source() -> Any:
    """A Keras model with a GRU and an LSTM that torch.nn does not have."""
    import keras
    from keras import layers

    before = layers.GRU(5, reset_after=False, return_sequences=True)
    model = keras.Sequential(
        [
            layers.Input((7, 4)),
            layers.Bidirectional(before, name="gru"),
            layers.LSTM(6, recurrent_activation="hard_sigmoid", name="lstm"),
            layers.Dense(3, name="head"),
        ]
    )
    randomise(model, 2)
    return model


def target(model: Any) -> Any:
    """The same in torch, with zeros for weights."""
    import torch
    from torch import nn

    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.lstm = (rc.to_torch(rc.from_keras(model.get_layer(name))) for name in ("gru", "lstm"))
            self.gru.batch_first = self.lstm.batch_first = True
            self.head = nn.Linear(6, 3)
            with torch.no_grad():
                for parameter in self.parameters():
                    parameter.zero_()

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.gru(x)[0])[0][:, -1])

    return Mine()


@pytest.fixture
def models() -> tuple[Any, Any]:
    need_both()
    model = source()
    return model, target(model)


def outputs(module: Any, x: Array) -> Array:
    import torch

    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(x)))


X = np.random.default_rng(3).normal(size=(2, 7, 4)).astype(np.float32)


def test_keras_weights_fill_modules_of_ours(models: tuple[Any, Any]) -> None:
    model, module = models
    assert not outputs(module, X).any()
    report = rc.load_into(module, model)
    assert np.abs(outputs(module, X) - in_keras(model, X)).max() <= 1e-6
    assert [entry.target for entry in report.filled] == ["gru", "lstm", "head"]
    assert set(report.aside) == {"gru.outline", "lstm.outline"}


def test_their_files_fill_and_are_filled(models: tuple[Any, Any], tmp_path: Path) -> None:
    import torch

    model, module = models
    empty, again = copy.deepcopy(module), copy.deepcopy(module)
    rc.load_into(module, model)
    torch.save(module.state_dict(), tmp_path / "mine.pt")
    report = rc.load_into(again, tmp_path / "mine.pt")
    assert report.kept == report.left == () and np.array_equal(outputs(again, X), outputs(module, X))
    torch.save(empty.state_dict(), tmp_path / "empty.pt")
    rc.transplant_file(tmp_path / "mine.pt", tmp_path / "empty.pt", tmp_path / "filled.pt")
    empty.load_state_dict(torch.load(tmp_path / "filled.pt"))
    assert np.array_equal(outputs(empty, X), outputs(module, X))


def test_another_cell_is_refused(models: tuple[Any, Any]) -> None:
    import torch
    from torch import nn

    model, module = models
    theirs = nn.ModuleDict({"gru": nn.GRU(4, 5, bidirectional=True), "lstm": nn.LSTM(10, 6), "head": nn.Linear(6, 3)})
    with pytest.raises(rc.TransplantError, match="to_torch makes one"):
        rc.load_into(theirs, model)
    with pytest.raises(rc.TransplantError) as caught:
        rc.load_into(module, theirs)
    assert "'gru'" in str(caught.value) and "'lstm'" in str(caught.value)
    assert not any(parameter.any() for parameter in module.parameters())
    assert torch.is_tensor(module.head.weight)


def test_what_lightning_keeps_beside_the_weights_is_no_weight(tmp_path: Path) -> None:
    need_both()
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(3, 2))
    document = {"state_dict": module.state_dict(), "callbacks": {"EarlyStopping": {"best_score": torch.tensor(0.5)}}}
    torch.save(document, tmp_path / "last.ckpt")
    other = torch.nn.Sequential(torch.nn.Linear(3, 2))
    report = rc.load_into(other, tmp_path / "last.ckpt")
    assert torch.equal(other[0].weight, module[0].weight)
    assert report.aside == {"callbacks.EarlyStopping.best_score": "the state of Lightning's training"}


def test_the_two_directions_of_one_layer_are_not_taken_for_each_other(tmp_path: Path) -> None:
    need_both()
    import torch

    source = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(3, 4, bidirectional=True)})
    torch.save(source.state_dict(), tmp_path / "both.pt")
    rc.convert(tmp_path / "both.pt", tmp_path / "both.onnx", directions="split")
    names = list(rc.load(tmp_path / "both.onnx").layers)
    assert len(names) == 2
    module = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(3, 4, bidirectional=True)})
    with pytest.raises(rc.TransplantError) as caught:
        rc.load_into(module, tmp_path / "both.onnx")
    assert f"mapping rnn: {names[0]} + {names[1]}" in str(caught.value)
    with pytest.raises(rc.UsageError, match="Put the forward direction first"):
        rc.load_into(module, tmp_path / "both.onnx", {"rnn": f"{names[1]} + {names[0]}"})
    rc.load_into(module, tmp_path / "both.onnx", {"rnn": f"{names[0]} + {names[1]}"})
    for name, tensor in source.state_dict().items():
        assert torch.equal(module.state_dict()[name], tensor)
