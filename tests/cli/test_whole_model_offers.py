"""Where a layer's format cannot hold what a layer computes, `convert` names the command that writes the whole model as code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.rewrites import each
from tests import ROOT
from tests.helpers.commands import call
from tests.helpers.frameworks import KERAS_WARNS
from tests.helpers.requirements import needed
from tests.helpers.sources import checkpoint, stack

pytestmark = KERAS_WARNS
DECODER = ROOT / "examples" / "decoder.keras"


def test_the_command_that_is_offered_writes_the_model(tmp_path: Path) -> None:
    result = call("convert", DECODER, tmp_path / "decoder.pt")
    assert result.exit_code == 4 and "code, which computes this layer, too: rnnconvert scaffold" in result.stderr
    words = result.stderr.rpartition("rnnconvert ")[2].split()
    assert call(*[tmp_path / word if word == "model.py" else word for word in words]).exit_code == 0
    assert "class" in (tmp_path / "model.py").read_text(encoding="utf-8")


def test_of_weights_alone_it_states_the_order_of_their_layers(tmp_path: Path) -> None:
    before = each(stack("gru"), lambda d: d.replace(cell=d.cell.replace(reset_after=False)))
    rc.save(checkpoint(before), tmp_path / "a.npz", "haiku")
    result = call("convert", tmp_path / "a.npz", tmp_path / "a.pt")
    offered = result.stderr.rpartition("rnnconvert ")[2].split()
    assert result.exit_code == 4 and "if nothing stands between them" in result.stderr and "--chain" in offered, result.stderr
    assert call(*[tmp_path / word if word == "model.py" else word for word in offered], "--weights", tmp_path / "w.pt").exit_code == 0
    assert "GRUResetBefore" in (tmp_path / "model.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["decoder.bin", "decoder.h"])
def test_code_for_another_framework_is_not_offered(target: str, tmp_path: Path) -> None:
    result = call("convert", DECODER, tmp_path / target, "--to", "cudnn" if target.endswith("bin") else "c_header")
    assert "scaffold" not in result.stderr


def test_weights_without_a_model_are_offered_nothing(tmp_path: Path) -> None:
    before = each(stack("gru"), lambda d: d.replace(cell=d.cell.replace(reset_after=False)))
    rc.save(checkpoint(before), tmp_path / "a.weights.h5", "keras")
    result = call("convert", tmp_path / "a.weights.h5", tmp_path / "a.pt", "--assume-defaults")
    assert result.exit_code == 4 and "reset gate before" in result.stderr and "scaffold" not in result.stderr


def test_layers_that_are_unread_for_one_reason_are_named_together(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((4, 6, 6, 2)), *(layers.ConvLSTM2D(3, 3, return_sequences=True, name=name) for name in ("a", "b"))]
    )
    model.save(tmp_path / "a.keras")
    result = call("convert", tmp_path / "a.keras", tmp_path / "a.onnx")
    assert result.exit_code == 4 and "a, b: the cell of a ConvLSTM" in result.stderr and "rnnconvert scaffold" in result.stderr


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_a_layer_of_float64_that_onnxruntime_does_not_have_is_told(kind: str, tmp_path: Path) -> None:
    """NumPy's own weights are of float64, in which onnxruntime has no such layers."""
    needed("onnxruntime", "onnxruntime")
    rc.save(checkpoint(stack(kind, dtype=np.float64)), tmp_path / "a.safetensors", "pytorch")
    words = [
        "convert",
        tmp_path / "a.safetensors",
        tmp_path / "a.onnx",
        "--verify",
        *(["--set", "nonlinearity=tanh"] if kind == "rnn" else []),
    ]
    result = call(*words)
    assert (
        result.exit_code
        and f"onnxruntime has no {kind.upper()} of this element type, but one of float32: convert with the dtype float32"
        in " ".join(result.output.split())
    )
    assert call(*words, "--dtype", "float32").exit_code == 0


def test_an_offer_names_the_format_that_the_name_leaves_open(tmp_path: Path) -> None:
    """Several formats write files of this ending."""
    result = call("convert", ROOT / "examples" / "encoder.keras", tmp_path / "net.json", "--to", "tfjs", "--layer", "encoder")
    assert result.exit_code == 4 and "tf.layers.gru" in result.stderr
    words = result.stderr.rpartition("rnnconvert ")[2].split()
    assert words[-2:] == ["--to", "tfjs"] and call(*words).exit_code == 0
