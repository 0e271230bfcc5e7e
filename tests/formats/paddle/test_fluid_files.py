"""Fluid's folders of parameters: what PaddlePaddle 1.8.5 wrote and gave, real ones, and what is damaged."""

from __future__ import annotations

import shutil
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.formats.paddle import lod_tensor
from tests import ROOT
from tests.helpers import corpus
from tests.helpers.judging import batch_first
from tests.helpers.requirements import need

GOLDEN = ROOT / "tests" / "golden" / "fluid"
ANSWERS = np.load(GOLDEN / "answers.npz")
CLOSE = 3e-7


PLAIN = ["activation=tanh", "recurrent_activation=sigmoid"]
SETTINGS: dict[str, list[str]] = {
    "gru": ["origin_mode=false", "go_backwards=false", *PLAIN],
    "origin": ["origin_mode=true", "go_backwards=false", *PLAIN],
    "relu": ["origin_mode=false", "go_backwards=true", "activation=relu", "recurrent_activation=sigmoid"],
    "lstm": ["go_backwards=false", "output_activation=tanh", *PLAIN],
    "plain": ["go_backwards=false", "output_activation=tanh", *PLAIN],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_fluids_parameters_give_what_fluid_gave(name: str) -> None:
    checkpoint = rc.load(GOLDEN / name, settings=SETTINGS[name])
    (layer,) = checkpoint.layers.values()
    assert not checkpoint.questions and not checkpoint.warnings and not checkpoint.tensors
    assert layer.first.has_peepholes == (name == "lstm")
    np.testing.assert_allclose(batch_first(layer, ANSWERS["x"]), ANSWERS[name], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_program_with_all_parameters_in_one_file_is_read_without_a_question(name: str) -> None:
    checkpoint = rc.load(GOLDEN / f"{name}_inference")
    (layer,) = checkpoint.layers.values()
    assert checkpoint.format == "fluid" and not checkpoint.questions and not checkpoint.warnings and not checkpoint.tensors
    np.testing.assert_allclose(batch_first(layer, ANSWERS["x"]), ANSWERS[name], rtol=0, atol=CLOSE)


def test_two_layers_of_such_a_program() -> None:
    checkpoint = rc.load(GOLDEN / "two_inference")
    first, second = checkpoint.layers.values()
    assert not checkpoint.questions
    np.testing.assert_allclose(batch_first(second, batch_first(first, ANSWERS["x"])), ANSWERS["two"], rtol=0, atol=CLOSE)


def test_parameters_of_another_program_are_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "gru_inference", tmp_path / "m"))
    shutil.copy(GOLDEN / "lstm_inference" / "__params__", folder)
    with pytest.raises(rc.UnreadableError, match="Give the program and the parameters of one model"):
        rc.load(folder)
    (folder / "__params__").write_bytes((GOLDEN / "gru_inference" / "__params__").read_bytes()[:-3])
    with pytest.raises(rc.UnreadableError):
        rc.load(folder)


def test_the_other_mode_is_another_function() -> None:
    layer = rc.load(GOLDEN / "gru", origin_mode=True).layers["gru_0"]
    assert np.abs(batch_first(layer, ANSWERS["x"]) - ANSWERS["gru"]).max() > 0.1


def test_two_layers_stand_behind_their_own_fc() -> None:
    checkpoint = rc.load(GOLDEN / "two", settings=["gru_1:go_backwards=true"])
    first, second = checkpoint.layers.values()
    np.testing.assert_allclose(batch_first(second, batch_first(first, ANSWERS["x"])), ANSWERS["two"], rtol=0, atol=CLOSE)
    asked = {(question.layer, question.option): question for question in checkpoint.questions}
    assert asked["gru_1", "fc"].assumed == "fc_1" and asked["gru_1", "fc"].choices == ("fc_0", "fc_1")
    assert ("gru_1", "go_backwards") not in asked and ("gru_0", "origin_mode") in asked
    assert set(checkpoint.tensors) == {"fc_2.w_0", "fc_2.b_0"}
    with pytest.raises(rc.UnreadableError, match="no 'fc_2' gives it 12 values; the fitting ones are fc_0, fc_1"):
        rc.convert(GOLDEN / "two", "a.pt", layers=["gru_0"], fc="fc_2", dry_run=True)


def test_it_goes_to_other_formats(tmp_path: Path) -> None:
    settings = ["origin_mode=false", "go_backwards=false"]
    rc.convert(GOLDEN / "gru", tmp_path / "a.onnx", settings=settings)
    (layer,) = rc.load(tmp_path / "a.onnx").layers.values()
    np.testing.assert_allclose(batch_first(layer, ANSWERS["x"]), ANSWERS["gru"], rtol=0, atol=CLOSE)
    with pytest.raises(rc.RefusedError, match="reset gate before the product"):
        rc.convert(GOLDEN / "gru", tmp_path / "b.pdparams", settings=settings)
    rc.convert(GOLDEN / "plain", tmp_path / "c.pdparams", settings=["go_backwards=false"])
    (layer,) = rc.load(tmp_path / "c.pdparams").layers.values()
    np.testing.assert_allclose(batch_first(layer, ANSWERS["x"]), ANSWERS["plain"], rtol=0, atol=CLOSE)
    with pytest.raises(rc.UsageError, match="only read, not written"):
        rc.convert(GOLDEN / "gru", tmp_path / "d", target_format="fluid")


def test_real_parameters_give_what_paddle_gave() -> None:
    need("corpus", corpus.absent())
    folder = corpus.FOLDER / "jieba-lac-paddle"
    reverse = ["gru_1:go_backwards=true", "gru_3:go_backwards=true"]
    checkpoint = rc.load(folder, settings=["origin_mode=false", *reverse])
    recorded = np.load(folder / "gru.ref.npz")
    assert list(checkpoint.layers) == ["gru_0", "gru_1", "gru_2", "gru_3"]
    for number, layer in enumerate(checkpoint.layers.values()):
        outputs = reference.run(layer, recorded[f"g{number}__x"]).y
        np.testing.assert_allclose(outputs, recorded[f"g{number}__y"], rtol=0, atol=2e-6)


# Damage ---------------------------------------------------------------------------------------------


def file_of(array: Array, kind: int = 5, packed: bool = False) -> bytes:
    """A parameter's file, its lengths one field each or all in one."""
    lengths = b"".join(bytes([length]) if packed else bytes([0x10, length]) for length in array.shape)
    text = bytes([8, kind]) + (bytes([0x12, len(lengths)]) + lengths if packed else lengths)
    return struct.pack("<IQIi", 0, 0, 0, len(text)) + text + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_as_a_view(packed: bool, tmp_path: Path) -> None:
    array = np.arange(6, dtype="f4").reshape(2, 3)
    (tmp_path / "a").write_bytes(file_of(array, packed=packed))
    view = lod_tensor.read(tmp_path / "a")
    np.testing.assert_array_equal(view, array)
    assert not view.flags.owndata and not view.flags.writeable


@pytest.mark.parametrize("source", ["gru_0.w_0", "gru_0.b_0"])
def test_damage_is_unreadable_or_another_number(source: str, tmp_path: Path) -> None:
    content = (GOLDEN / "gru" / source).read_bytes()
    path = tmp_path / "a"
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(rc.UnreadableError):
            lod_tensor.read(path)
    tracemalloc.start()
    for at in range(30):
        for value in {0, 1, 0x7F, 0x80, 0xFF} - {content[at]}:
            path.write_bytes(content[:at] + bytes([value]) + content[at + 1 :])
            try:
                lod_tensor.read(path)
            except rc.UnreadableError:
                continue
    assert tracemalloc.get_traced_memory()[1] < 500_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0" * 16, "ends in its header"),
        (struct.pack("<IQIi", 0, 0, 0, 1 << 30), "bytes for the description of the tensor"),
        (struct.pack("<IQIi", 0, 0, 0, 2) + b"\x08\x07", "unknown type 7"),
        (struct.pack("<IQIi", 0, 0, 0, 2) + b"\x28\x07", "unknown field 5"),
        (struct.pack("<IQIi", 0, 0, 0, 2) + b"\x08\xff", "is truncated"),
        (struct.pack("<IQIi", 0, 0, 0, 13) + b"\x08\x05\x10" + b"\xff" * 9 + b"\x01", "has the shape"),
        (file_of(np.ones(2, "f4")) + b"\0", "ends before the file does"),
        (b"\x01" * 40, "does not begin"),
    ],
)
def test_what_is_wrong_is_said(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(rc.UnreadableError, match=message):
        lod_tensor.read(tmp_path / "a")


def test_parameters_that_do_not_go_together_are_said(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "gru", tmp_path / "a")
    (tmp_path / "a" / "gru_0.b_0").write_bytes(file_of(np.ones((1, 11), "f4")))
    checkpoint = rc.load(tmp_path / "a")
    assert not checkpoint.layers and "'gru.b' has shape (1, 11), expected (1, 12)" in checkpoint.warnings[0]
    (tmp_path / "a" / "gru_0.w_0").write_bytes(file_of(np.ones((4, 11), "f4")))
    assert "gru_0.w_0 has the shape (4, 11), expected (4, 12)" in rc.load(tmp_path / "a").warnings[0]
    (tmp_path / "a" / "fc_0.w_0").unlink()
    assert "the fc before it is unknown (none fits)" in rc.load(tmp_path / "a").warnings[0]
    with pytest.raises(rc.UnreadableError, match="no parameters named as those of dynamic_gru"):
        rc.load(GOLDEN, "fluid")
    (tmp_path / "a" / "gru_0.w_0").write_bytes(file_of(np.ones((), "f4")))
    assert "gru_0.w_0 has the shape (), expected a matrix" in rc.load(tmp_path / "a").warnings[0]
