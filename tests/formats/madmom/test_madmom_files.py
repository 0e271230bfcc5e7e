"""madmom's pickles, with what madmom's own layers gave (tests/golden/madmom/make.py)."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import pickles
from rnnconvert.core import reference
from rnnconvert.core.errors import UnreadableError, UsageError
from tests import ROOT
from tests.helpers.damage import endings

GOLDEN = ROOT / "tests" / "golden" / "madmom"
ANSWERS = np.load(GOLDEN / "answers.npz")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_every_layer_computes_what_madmom_computed(protocol: int) -> None:
    checkpoint = rc.load(GOLDEN / f"protocol{protocol}.pkl")
    assert checkpoint.format == "madmom" and not checkpoint.unread and not checkpoint.warnings
    assert [*checkpoint.layers] == [f"layers.{number}" for number in range(5)]
    assert {name: array.shape for name, array in checkpoint.tensors.items()} == {"layers.5.weights": (4, 1), "layers.5.bias": (1,)}
    x = ANSWERS["x"]
    for name, layer in checkpoint.layers.items():
        y = reference.run(layer, x[:, None].astype(float)).y[:, 0]
        np.testing.assert_allclose(y, ANSWERS[name], rtol=0, atol=2e-6, err_msg=name)
        x = ANSWERS[name]


def test_another_sign_of_the_update_gate_would_be_seen() -> None:
    layer = rc.load(GOLDEN / "protocol2.pkl").layers["layers.1"]
    first = layer.first
    turned = {(part, "z"): -np.asarray(first.arrays[part, "z"]) for part in ("input", "recurrent", "input_bias")}
    wrong = layer.replace(layers=(type(layer.layers[0])((first.with_arrays(turned),)),))
    y = reference.run(wrong, ANSWERS["layers.0"][:, None].astype(float)).y[:, 0]
    assert np.abs(y - ANSWERS["layers.1"]).max() > 0.05


def test_they_are_converted_and_never_written(tmp_path: Path) -> None:
    summary = rc.convert(GOLDEN / "protocol2.pkl", tmp_path / "m.onnx", layers=["layers.0", "layers.1"])
    assert summary.exact
    with pytest.raises(UsageError):
        rc.convert(GOLDEN / "protocol2.pkl", tmp_path / "m.pkl", target_format="madmom", layers=["layers.1"])


def test_texts_of_any_bytes_are_read() -> None:
    """Python 2's protocol 0 spells bytes as escaped text, which pickletools does not read."""
    data = b"S'a\\xa8\\n\\''\n."
    assert pickles.load(data, "a") == ("a\xa8\n'", len(data))
    for damaged in (b"Sab\n.", b"S'ab\n.", b"S'ab'", b"S'\n."):
        with pytest.raises(UnreadableError, match=r"damaged|truncated"):
            pickles.load(damaged, "a")


def test_a_function_that_is_not_known_is_named(tmp_path: Path) -> None:
    data = (GOLDEN / "protocol0.pkl").read_bytes()
    (tmp_path / "m.pkl").write_bytes(data.replace(b"activations\nrelu", b"activations\nrelv"))
    layer = rc.load(tmp_path / "m.pkl").layers["layers.4"]
    assert not layer.cell.activation.known


def test_a_damaged_file_ends_in_an_error_of_ours(tmp_path: Path) -> None:
    path = Path(shutil.copy(GOLDEN / "protocol2.pkl", tmp_path / "m.pkl"))
    ends = endings(path, "madmom", 120)
    assert ends == {"read", "unreadable"}
