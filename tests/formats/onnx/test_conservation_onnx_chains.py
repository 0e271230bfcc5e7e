"""Several layers in one written ONNX file, and element types that onnxruntime does not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import rnnconvert as rc


@pytest.mark.parametrize("lengths", [False, True])
def test_layers_of_one_file_have_lengths_and_batches_of_their_own(tmp_path: Path, lengths: bool) -> None:
    layers = nn.ModuleDict({"a": nn.LSTM(3, 4), "b": nn.GRU(5, 4, bidirectional=True)})
    torch.save(layers.state_dict(), tmp_path / "m.pt")
    rc.convert(tmp_path / "m.pt", tmp_path / "m.onnx", sequence_lens=lengths)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    x: dict[str, Any] = {"a/x": torch.randn(6, 2, 3), "b/x": torch.randn(9, 3, 5)}
    feed = {name: value.numpy() for name, value in x.items()}
    if lengths:
        feed |= {"a/sequence_lens": np.full(2, 6, np.int32), "b/sequence_lens": np.full(3, 9, np.int32)}
    outputs = dict(zip([output.name for output in session.get_outputs()], session.run(None, feed), strict=True))
    with torch.no_grad():
        for name, layer in layers.items():
            assert np.abs(outputs[f"{name}/y"] - layer(x[f"{name}/x"])[0].numpy()).max() < 1e-5


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_onnxruntime_does_not_run_is_said(tmp_path: Path, dtype: str) -> None:
    torch.save(nn.LSTM(3, 4).to(getattr(torch, dtype)).state_dict(), tmp_path / "m.pt")
    notes = rc.convert(tmp_path / "m.pt", tmp_path / "m.onnx").notes
    assert any("--dtype float32" in note for note in notes) == (dtype == "float64")
    summary = rc.convert(tmp_path / "m.pt", tmp_path / "single.onnx", dtype="float32")
    assert not any("--dtype" in note for note in summary.notes)
