"""Paddle's inference models: what Paddle 2.6.2 and 3.3.1 wrote and gave, and what is damaged or missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError, UnreadableError, UnreadLayersError
from rnnconvert.formats.paddle import flow, program
from rnnconvert.formats.paddle.lowering import ProgramLowering
from tests import ROOT
from tests.helpers.damage import endings
from tests.helpers.judging import batch_first

GOLDEN = ROOT / "tests" / "golden" / "paddle_inference"
PROGRAM = {"old": ".pdmodel", "new": ".json"}


def copied(name: str, folder: Path) -> Path:
    """Copy a model; return its program."""
    for path in GOLDEN.glob(f"{name}.*"):
        shutil.copy(path, folder)
    return folder / f"{name}{PROGRAM[name[:3]]}"


@pytest.mark.parametrize("by", ["program", "parameters"])
@pytest.mark.parametrize("version", PROGRAM)
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "relu"])
def test_a_model_gives_what_paddle_gave(name: str, version: str, by: str) -> None:
    path = GOLDEN / f"{version}_{name}{PROGRAM[version] if by == 'program' else '.pdiparams'}"
    checkpoint = rc.load(path)
    (layer,) = checkpoint.layers.values()
    assert checkpoint.format == "paddle" and not checkpoint.warnings and not checkpoint.questions
    assert (layer.num_layers, layer.num_directions) == {"lstm": (2, 2), "gru": (2, 1)}.get(name, (1, 1))
    assert sorted(array.shape for array in checkpoint.tensors.values()) == [(2,), (8 if name == "lstm" else 4, 2)]
    with np.load(GOLDEN / f"{version}.npz") as stored:
        np.testing.assert_allclose(batch_first(layer, stored["x"]), stored[name], rtol=0, atol=3e-7)


@pytest.mark.parametrize("version", PROGRAM)
def test_what_a_model_gives_a_layer_is_named(version: str) -> None:
    checkpoint = rc.load(GOLDEN / f"{version}_given{PROGRAM[version]}")
    assert len(checkpoint.layers) == 1
    assert [word in line for word, line in zip(("initial state", "lengths"), checkpoint.warnings, strict=True)] == [True] * 2


@pytest.mark.parametrize("version", PROGRAM)
def test_a_loop_is_named_and_not_read(version: str, tmp_path: Path) -> None:
    path = GOLDEN / f"{version}_cell{PROGRAM[version]}"
    checkpoint = rc.load(path)
    assert not checkpoint.layers and "step by step" in checkpoint.unread[0] and len(checkpoint.tensors) == 6
    with pytest.raises(UnreadLayersError, match="step by step"):
        rc.convert(path, tmp_path / "m.onnx")


@pytest.mark.parametrize("version", PROGRAM)
def test_a_file_without_its_other_half_is_named(version: str, tmp_path: Path) -> None:
    path = copied(f"{version}_gru", tmp_path)
    parameters = path.with_suffix(".pdiparams")
    content = parameters.read_bytes()
    parameters.unlink()
    with pytest.raises(UnreadableError, match=f"its parameters, {parameters.name}, are missing"):
        rc.load(path)
    path.unlink()
    parameters.write_bytes(content)
    with pytest.raises(UnreadableError, match=f"{version}_gru.json or {version}_gru.pdmodel, is missing"):
        rc.load(parameters)


def test_two_programs_are_not_chosen_from(tmp_path: Path) -> None:
    path = copied("new_gru", tmp_path)
    shutil.copy(GOLDEN / "old_gru.pdmodel", path.with_suffix(".pdmodel"))
    with pytest.raises(UnreadableError, match="is there twice"):
        rc.load(path.with_suffix(".pdiparams"))
    assert rc.load(path).layers


@pytest.mark.parametrize("version", PROGRAM)
def test_parameters_of_another_model_are_refused(version: str, tmp_path: Path) -> None:
    path = copied(f"{version}_gru", tmp_path)
    for other in ("lstm", "rnn"):
        shutil.copy(GOLDEN / f"{version}_{other}.pdiparams", path.with_suffix(".pdiparams"))
        with pytest.raises(UnreadableError, match="Give the program and the parameters of one model"):
            rc.load(path)
    parameters = (GOLDEN / f"{version}_gru.pdiparams").read_bytes()
    path.with_suffix(".pdiparams").write_bytes(parameters + parameters[:30])
    with pytest.raises(UnreadableError, match="it goes on after"):
        rc.load(path)


def test_a_changed_fact_is_read_asked_or_refused(tmp_path: Path) -> None:
    path = copied("new_rnn", tmp_path)
    tree = json.loads(path.read_text())
    (operator,) = (entry for entry in tree["program"]["regions"][0]["blocks"][0]["ops"] if entry["#"] == "1.rnn")
    facts = {entry["N"]: entry["AT"] for entry in operator["A"]}

    def changed(name: str, value: object) -> Path:
        before, facts[name]["D"] = facts[name]["D"], value
        path.write_text(json.dumps(tree))
        facts[name]["D"] = before
        return path

    assert str(rc.load(changed("mode", "RNN_RELU")).layers["simple_rnn_0"].cell.activation) == "relu"
    for name, value, why in (
        ("mode", "PEEPHOLE", "the mode 'PEEPHOLE' with num_layers=1 is unknown"), ("num_layers", 2, "it reads 4 weights, expected 8"),
        ("is_bidirec", True, "it reads 4 weights, expected 8"), ("hidden_size", 5, "its program states hidden_size=5"),
        ("num_layers", 10**9, "expected"), ("mode", "LSTM", "do not fit together"),
    ):  # fmt: skip
        checkpoint = rc.load(changed(name, value))
        assert not checkpoint.layers and why in checkpoint.unread[0], name
    operator["A"].append({"AT": {"#": "0.a_bool", "D": True}, "N": "zoneout"})
    path.write_text(json.dumps(tree))
    with pytest.raises(RefusedError, match="zoneout"):
        rc.convert(path, tmp_path / "m.onnx")
    tree["base_code"]["magic"] = "other"
    path.write_text(json.dumps(tree))
    with pytest.raises(rc.RnnConvertError):
        rc.load(path)


@pytest.mark.parametrize("version", PROGRAM)
@pytest.mark.parametrize("part", ["program", "parameters"])
def test_a_damaged_model_ends_in_an_error_of_ours(version: str, part: str, tmp_path: Path) -> None:
    path = copied(f"{version}_gru", tmp_path)
    letters = b'0123456789{}[]"#%,:' if path.suffix == ".json" and part == "program" else bytes(range(256))
    ends = endings(path if part == "program" else path.with_suffix(".pdiparams"), "paddle", 120, letters)
    assert ends == {"read", "unreadable"}


def test_large_programs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PROGRAM_BYTES", 100)
    with pytest.raises(UnreadableError, match="more than the limit of 100"):
        rc.load(GOLDEN / "old_gru.pdmodel")


@pytest.mark.parametrize("value", [10**400, None, "x", [[1], 2], {}, 1e308, float("nan"), True, "2", 3])
def test_a_constant_is_numbers_or_not_known(value: Any) -> None:
    """A number of 400 digits ended in a TypeError of numpy's."""
    stated = program.StatedProgram(GOLDEN / "new_rnn.json", ((),), {})
    operator = program.ProgramOperator("full", {}, {"0": ("y",)}, {"value": value, "dtype": "float32"}, {"shape": (2,)})
    main = ProgramLowering(stated, {}, {}).program([operator], 0).main
    assert (
        set(main.stored) == {"y"}
        if value in (1e308, True, "2", 3) or value != value
        else [node.domain for node in main.nodes] == ["paddle"]
    )


@pytest.mark.parametrize("kind", ["full", "full_int_array", "fill_constant", "assign_value", "assign_value_"])
def test_an_operator_that_writes_nothing_is_passed_by(kind: str) -> None:
    """A constant that was given to no variable ended in an IndexError."""
    stated = program.StatedProgram(GOLDEN / "new_rnn.json", ((),), {})
    operators = [program.ProgramOperator(kind, {}, {}, {"value": 1.0}), program.ProgramOperator(kind, {}, {"Out": ("x",)}, {"value": 1.0})]
    assert flow.calls(stated, operators, []) == {}
