"""State dictionaries of haste_pytorch, with what its own modules made of them (tests/golden/haste/make.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import npz_file
from rnnconvert.core.reference import run
from tests import ROOT
from tests.helpers.requirements import needed

MODEL = ROOT / "tests" / "golden" / "haste" / "model.pt"
ANSWERS = np.load(MODEL.with_name("answers.npz"))
CLOSE = 1e-6


def test_a_model_of_haste_computes_what_haste_computes() -> None:
    layers = rc.load(MODEL, "haste").layers
    encoded = run(layers["encoder"], ANSWERS["x"], (ANSWERS["h"],), (ANSWERS["c"],))
    np.testing.assert_allclose(encoded.y, ANSWERS["encoder"], rtol=0, atol=CLOSE)
    np.testing.assert_allclose(encoded.cell[0], ANSWERS["encoder.c"], rtol=0, atol=CLOSE)
    np.testing.assert_allclose(run(layers["decoder"], ANSWERS["encoder"], (ANSWERS["g"],)).y, ANSWERS["decoder"], rtol=0, atol=CLOSE)


def test_haste_is_proposed_for_its_names_and_is_never_guessed(tmp_path: Path) -> None:
    """A module that someone moved from Keras by hand has these names too, with the gates in Keras's order."""
    with pytest.raises(rc.UnreadableError) as caught:
        rc.convert(MODEL, tmp_path / "model.onnx")
    assert "its arrays have the names and shapes of haste_pytorch.LSTM and haste_pytorch.GRU, which --from haste reads" in str(caught.value)
    arrays = {
        f"lstm/{name}": np.ones(shape, np.float32) for name, shape in (("kernel", (3, 16)), ("recurrent_kernel", (4, 16)), ("bias", 16))
    }
    npz_file.write(tmp_path / "keras.npz", arrays)
    checkpoint = rc.load(tmp_path / "keras.npz")
    assert checkpoint.format == "keras" and not any("haste" in warning for warning in checkpoint.warnings)


def test_zoneout_is_named_and_nothing_is_written_that_keras_would_be_read_from(tmp_path: Path) -> None:
    source = rc.load(MODEL, "haste")
    assert [note.partition(": ")[0] for note in source.warnings if "zoneout" in note] == ["encoder", "decoder"]
    with pytest.raises(rc.UsageError, match="only read"):
        rc.convert(MODEL, tmp_path / "model.npz", source_format="haste", target_format="haste")


def test_a_layer_of_another_format_in_the_file_is_named(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    arrays = {"rnn.kernel": torch.ones(3, 16), "rnn.recurrent_kernel": torch.ones(4, 16), "rnn.bias": torch.ones(16)}
    torch.save({**arrays, **{f"other.{name}": array for name, array in torch.nn.LSTM(3, 5).state_dict().items()}}, tmp_path / "m.pt")
    checkpoint = rc.load(tmp_path / "m.pt", "haste")
    assert [*checkpoint.layers] == ["rnn"] and [str(note) for note in checkpoint.unread] == [
        "other: a layer of pytorch, which is read without --from haste"
    ]
