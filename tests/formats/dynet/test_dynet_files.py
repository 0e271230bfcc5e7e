"""Text files of DyNet, with what DyNet made of them (tests/golden/dynet/make.py)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.reference import run
from tests import ROOT
from tests.helpers.drawn import drawn, each

GOLDEN = ROOT / "tests" / "golden" / "dynet"
ANSWERS = np.load(GOLDEN / "answers.npz")
WITHOUT_FORGET_BIAS = ["vanilla-lstm-builder_1:forget_bias=0"]
CLOSE = 1e-6


def test_builders_compute_what_dynet_computes() -> None:
    checkpoint = rc.load(GOLDEN / "model.dynet", settings=WITHOUT_FORGET_BIAS)
    assert set(checkpoint.layers) == {*ANSWERS} - {"x"} and not checkpoint.unread
    for name, layer in checkpoint.layers.items():
        np.testing.assert_allclose(run(layer, ANSWERS["x"][:, None]).y[:, 0], ANSWERS[name], rtol=0, atol=CLOSE, err_msg=name)
    asked = {question.layer for question in checkpoint.questions if question.option == "forget_bias"}
    assert asked == {"birnn", "encoder/vanilla-lstm-builder", "vanilla-lstm-builder", "compact-vanilla-lstm-builder"}
    assert checkpoint.tensors["_0"].shape == (2, 4), "a dense layer, by columns in the file"


def test_another_forget_bias_is_another_function() -> None:
    layer = rc.load(GOLDEN / "model.dynet", settings=["vanilla-lstm-builder_1:forget_bias=1"]).layers["vanilla-lstm-builder_1"]
    assert np.abs(run(layer, ANSWERS["x"][:, None]).y[:, 0] - ANSWERS["vanilla-lstm-builder_1"]).max() > 1e-3


@pytest.mark.parametrize(("name", "reason"), [("norms", "ln_lstm"), ("coupled", "peepholes are whole matrices")])
def test_builders_that_no_cell_computes_are_refused(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(rc.RnnConvertError, match=reason):
        rc.convert(GOLDEN / f"{name}.dynet", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_what_is_written_is_what_dynet_wrote(tmp_path: Path) -> None:
    """To the last byte: numbers of nine digits, by columns."""
    layers = [name for name in ANSWERS if name not in ("x", "fast-lstm-builder", "compact-vanilla-lstm-builder")]
    rc.convert(GOLDEN / "model.dynet", tmp_path / "again.dynet", layers=layers, settings=WITHOUT_FORGET_BIAS, assume_defaults=True)
    theirs = (GOLDEN / "model.dynet").read_text().splitlines()
    expected = dict(zip(theirs[::2], theirs[1::2], strict=True))
    ours = (tmp_path / "again.dynet").read_text().splitlines()
    written = dict(zip(ours[::2], ours[1::2], strict=True))
    assert written and written.items() <= expected.items()
    assert all(any(line.split()[1].startswith(f"/{layer}/") for line in written) for layer in layers)


def test_a_name_that_dynet_does_not_take_is_refused_with_a_way_out(tmp_path: Path) -> None:
    layer = rc.load(GOLDEN / "model.dynet").layers["gru-builder"]
    source = rc.Checkpoint("(test)", "canonical", {"my #1": layer.replace(name="my #1"), "other": layer.replace(name="other")})
    with pytest.raises(rc.UsageError, match="prefix"):
        rc.save(source, tmp_path / "model.dynet")
    assert not (tmp_path / "model.dynet").exists()
    rc.save(source, tmp_path / "model.dynet", settings=["my #1:prefix=mine"])
    assert set(rc.load(tmp_path / "model.dynet").layers) == {"mine/gru-builder", "other/gru-builder"}


def test_a_gradient_that_was_saved_is_no_parameter(tmp_path: Path) -> None:
    lines = (GOLDEN / "model.dynet").read_text().splitlines()
    lines[0] = lines[0].replace("ZERO_GRAD", "FULL_GRAD")
    lines.insert(2, lines[1])
    (tmp_path / "trained.dynet").write_text("\n".join(lines) + "\n")
    trained, plain = (rc.load(path).layers["encoder/vanilla-lstm-builder"] for path in (tmp_path / "trained.dynet", GOLDEN / "model.dynet"))
    np.testing.assert_array_equal(trained[0, 0].gates["i"].input, plain[0, 0].gates["i"].input)


@pytest.mark.parametrize("other", ["/x0", "_0/_0", "/_00"])
def test_no_parameter_replaces_another(other: str, tmp_path: Path) -> None:
    """These are other paths, and the same parameter of the same builder."""
    text = "".join(f"#Parameter# /birnn/gru-builder{end} {{1}} 17 ZERO_GRAD\n{number} \n" for number, end in enumerate(("/_0", other)))
    (tmp_path / "m.dynet").write_text(text)
    with pytest.raises(rc.UnreadableError, match="two things in it have the name"):
        rc.load(tmp_path / "m.dynet")


def test_a_file_that_was_changed_is_read_or_refused(tmp_path: Path) -> None:
    content = (GOLDEN / "model.dynet").read_bytes()

    def check(seed: int) -> None:
        random, changed = Random(seed), bytearray(content)
        for _ in range(random.choice((1, 3))):
            place = random.randrange(len(changed))
            changed[place : place + random.choice((0, 1, 40))] = random.choice((b"", b"\n", b"9", b"{99999999,9999999}", b"#", b"nan "))
        (tmp_path / "model.dynet").write_bytes(changed)
        try:
            rc.load(tmp_path / "model.dynet")
        except rc.RnnConvertError as error:
            assert error.exit_code in (2, 3, 4)

    each(drawn(range(600), 60, "changed files of DyNet"), check, str)
