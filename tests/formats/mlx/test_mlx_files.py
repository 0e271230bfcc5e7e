"""Files of MLX, with what MLX itself made of them (tests/golden/mlx/make.py)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import archives
from rnnconvert.core.reference import run
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "mlx"
ANSWERS = np.load(GOLDEN / "answers.npz")
LAYERS = [*(f"encoder.{bare}{kind}" for bare in ("", "bare_") for kind in ("rnn", "lstm", "gru")), "relu"]
CLOSE = 1e-6
FUNCTION = ["relu:nonlinearity=relu"]


def outputs(layer: rc.Recurrent) -> tuple[np.ndarray, np.ndarray | None]:
    """The outputs of each step (batch, time, hidden), and the last cell state."""
    cell = (ANSWERS["c"],) if layer.cell.kind == "lstm" else None
    result = run(layer, np.swapaxes(ANSWERS["x"], 0, 1), (ANSWERS["h"],), cell)
    return np.swapaxes(result.y, 0, 1), result.cell[0] if result.cell else None


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_model_of_mlx_computes_what_mlx_computes(suffix: str) -> None:
    checkpoint = rc.load(GOLDEN / f"model{suffix}", settings=FUNCTION)
    assert checkpoint.format == "mlx" and set(checkpoint.layers) == set(LAYERS)
    assert {question.layer for question in checkpoint.questions} == {"encoder.rnn", "encoder.bare_rnn"}
    for name, layer in checkpoint.layers.items():
        y, cell = outputs(layer)
        np.testing.assert_allclose(y, ANSWERS[name], rtol=0, atol=CLOSE, err_msg=name)
        if cell is not None:
            np.testing.assert_allclose(cell, ANSWERS[f"{name}.c"][:, -1], rtol=0, atol=CLOSE, err_msg=name)


@pytest.mark.parametrize(("name", "gates"), [("encoder.gru", "z r n"), ("encoder.lstm", "i f o g"), ("encoder.lstm", "f i g o")])
def test_another_order_of_gates_is_caught(name: str, gates: str) -> None:
    layer = rc.load(GOLDEN / "model.npz", settings=FUNCTION).layers[name]
    wrong = dataclasses.replace(registry.layouts()[f"mlx.{layer.cell.kind}"], gates=gates)
    arrays = {local: np.asarray(array) for local, array in pack(wrong, layer).items()}
    assert np.abs(outputs(rc.unpack(arrays, "mlx"))[0] - ANSWERS[name]).max() > 1e-3


def test_what_is_written_is_what_mlx_wrote(tmp_path: Path) -> None:
    path = tmp_path / "again.safetensors"
    rc.convert(GOLDEN / "model.safetensors", path, target_format="mlx", settings=FUNCTION)
    expected = np.load(GOLDEN / "model.npz")
    again = rc.load(path, "mlx", settings=FUNCTION)
    for name, layer in again.layers.items():
        for local, array in pack(registry.layouts()[f"mlx.{layer.cell.kind}"], layer).items():
            np.testing.assert_array_equal(np.asarray(array), expected[f"{name}.{local}"])


def test_written_names_are_paths_of_mlx(tmp_path: Path) -> None:
    """Module.load_weights splits names at dots."""
    layers = rc.load(GOLDEN / "model.npz", settings=FUNCTION).layers
    chosen = {name: layers[name] for name in ("encoder.gru", "encoder.bare_lstm")}
    for name in ("a.npz", "a.safetensors"):
        rc.save(rc.Checkpoint("(made)", "canonical", chosen), tmp_path / name, "mlx")
        assert set(archives.reader(tmp_path / name, (tmp_path / name).read_bytes()[:512])(tmp_path / name).arrays) == {
            *(f"encoder.gru.{local}" for local in ("Wx", "Wh", "b", "bhn")),
            *(f"encoder.bare_lstm.{local}" for local in ("Wx", "Wh")),
        }


def test_a_gru_whose_bhn_older_versions_leave_out_is_named_where_it_is_read_and_written(tmp_path: Path) -> None:
    """mlx up to 0.31.1, called without `hidden`: with a `bhn` of zeros it gives the same."""
    source = rc.load(GOLDEN / "model.npz", settings=FUNCTION)
    assert [note.partition(": ")[0] for note in source.warnings if "`bhn`" in note] == ["encoder.gru"]
    for name in ("encoder.gru", "encoder.bare_gru", "encoder.lstm", "relu"):
        layer = source.layers[name]
        summary = rc.save(rc.Checkpoint("(made)", "canonical", {name: layer}), tmp_path / f"{name}.npz", "mlx")
        assert any("`bhn`" in note for note in summary.notes) == (name == "encoder.gru")
    arrays = dict(np.load(GOLDEN / "model.npz"))
    arrays["encoder.gru.bhn"] = np.zeros_like(arrays["encoder.gru.bhn"])
    archives.write(tmp_path / "zeros.npz", arrays)
    assert not any("`bhn`" in note for note in rc.load(tmp_path / "zeros.npz", settings=FUNCTION).warnings)


@pytest.mark.parametrize(
    "names",
    [
        {"weight_ih": (16, 3), "weight_hh": (16, 4), "bias": (16,)},
        {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4), "bias_ih": (16,), "bias_hh": (16,)},
        {"Wx": (16, 3), "Wh": (16, 4), "b": (16,)},
        {"Wx": (16, 3), "Wh": (16, 4), "bias": (16,), "peephole": (3, 4)},
        {"Wxh": (4, 3), "Whh": (4, 4), "b": (4,)},
    ],
)
@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_an_array_beside_a_layer_without_a_name_is_accounted_for(names: dict[str, tuple[int, ...]], suffix: str, tmp_path: Path) -> None:
    """Without a prefix, too, a bias that the layout does not have stops the conversion; Equinox's archives have that one."""
    path = tmp_path / f"root{suffix}"
    archives.write(path, {name: np.ones(shape, np.float32) for name, shape in names.items()})
    if suffix == ".npz" and names.keys() == {"weight_ih", "weight_hh", "bias"}:
        assert rc.load(path).format == "equinox"
        assert rc.load(path).layers[""].parameters == sum(int(np.prod(shape)) for shape in names.values())
        return
    with pytest.raises(rc.RnnConvertError):
        rc.convert(path, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
