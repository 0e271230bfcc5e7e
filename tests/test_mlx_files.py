"""Files of MLX, with what MLX itself made of them (tests/golden/mlx/make.py)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.reference import run
from rnnconvert.language import registry
from rnnconvert.language.packing import pack

GOLDEN = Path(__file__).parent / "golden" / "mlx"
ANSWERS = np.load(GOLDEN / "answers.npz")
LAYERS = [*(f"encoder.{bare}{kind}" for bare in ("", "bare_") for kind in ("rnn", "lstm", "gru")), "relu"]
CLOSE = 1e-6
SAID = ["relu:nonlinearity=relu"]


def outputs(layer: rc.Recurrent) -> tuple[np.ndarray, np.ndarray | None]:
    """The outputs of each step (batch, time, hidden), and the last cell state."""
    cell = (ANSWERS["c"],) if layer.cell.kind == "lstm" else None
    found = run(layer, np.swapaxes(ANSWERS["x"], 0, 1), (ANSWERS["h"],), cell)
    return np.swapaxes(found.y, 0, 1), found.cell[0] if found.cell else None


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_model_of_mlx_computes_what_mlx_computes(suffix: str) -> None:
    checkpoint = rc.load(GOLDEN / f"model{suffix}", settings=SAID)
    assert checkpoint.format == "mlx" and set(checkpoint.layers) == set(LAYERS)
    assert {question.layer for question in checkpoint.questions} == {"encoder.rnn", "encoder.bare_rnn"}
    for name, layer in checkpoint.layers.items():
        y, cell = outputs(layer)
        np.testing.assert_allclose(y, ANSWERS[name], rtol=0, atol=CLOSE, err_msg=name)
        if cell is not None:
            np.testing.assert_allclose(cell, ANSWERS[f"{name}.c"][:, -1], rtol=0, atol=CLOSE, err_msg=name)


@pytest.mark.parametrize(
    ("name", "gates"), [("encoder.gru", "z r n"), ("encoder.lstm", "i f o g"), ("encoder.lstm", "f i g o")]
)
def test_another_order_of_gates_is_caught(name: str, gates: str) -> None:
    layer = rc.load(GOLDEN / "model.npz", settings=SAID).layers[name]
    wrong = dataclasses.replace(registry.layouts()[f"mlx.{layer.cell.kind}"], gates=gates)
    arrays = {local: np.asarray(array) for local, array in pack(wrong, layer).items()}
    assert np.abs(outputs(rc.unpack(arrays, "mlx"))[0] - ANSWERS[name]).max() > 1e-3


def test_what_is_written_is_what_mlx_wrote(tmp_path: Path) -> None:
    path = tmp_path / "again.safetensors"
    rc.convert(GOLDEN / "model.safetensors", path, target_format="mlx", settings=SAID)
    expected = np.load(GOLDEN / "model.npz")
    again = rc.load(path, "mlx", settings=SAID)
    for name, layer in again.layers.items():
        for local, array in pack(registry.layouts()[f"mlx.{layer.cell.kind}"], layer).items():
            np.testing.assert_array_equal(np.asarray(array), expected[f"{name}.{local}"])
