"""Each wrong convention is planted, in files where they can hold it, and found again by its name."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis.diagnosis import diagnose
from rnnconvert.diagnosis.faults import FAULTS
from rnnconvert.diagnosis.files import diagnose_files
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.judging.cases import Draw, cases
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests.helpers.commands import call
from tests.helpers.planted import MODELS, answers, model_for
from tests.helpers.stacks import BOTH, random_stack

SEARCHED = {name: cases(stack, Draw(seed=901, batch=5, time=9))[0] for name, stack in MODELS.items()}
WHERE = {name: model_for(fault, SEARCHED) for name, fault in FAULTS.items()}
OF_WEIGHTS = [name for name, fault in FAULTS.items() if fault.change is not None]
OF_RUNS = [name for name, fault in FAULTS.items() if fault.change is None]

SUFFIXES = (".onnx", ".keras", ".pt", ".bin")
UNWRITABLE = {
    "clip of the cell dropped", "clip of the projection dropped", "clip of the cell put on the gates",
    "clip of the gates put on the cell", "projection transposed", "projection ignored",
    "clip of the cell added", "clip of the cell put where it is read", "clip of the state put on the cell",
}  # fmt: skip
"""Faults of which no format can hold both what is right and what is wrong: these are planted in memory."""


def of(stack: Recurrent) -> Checkpoint:
    return Checkpoint("memory", "canonical", {stack.name: stack})


def through_a_file(stack: Recurrent, path: Path, suffix: str, exactly: bool) -> Checkpoint | None:
    """A layer in a file; None if it cannot be, or if it is to be exact and is in pieces there, or was rewritten."""
    file = path.with_suffix(suffix)
    try:
        summary = rc.save(of(stack), file)
    except (RefusedError, UsageError):
        return None
    checkpoint = rc.load(file)
    if len(checkpoint.layers) > 1:
        return None if exactly else checkpoint
    (first,) = checkpoint.layers.values()
    if [layer.merge for layer in first.layers] != [layer.merge for layer in stack.layers]:
        return None
    same = {step.rewrite for step in summary.steps} <= {"sum biases", "add zero biases"}
    return checkpoint if not exactly or (same and first.cell.describe() == stack.cell.describe()) else None


def through_files(right: Recurrent, wrong: Recurrent, folder: Path) -> tuple[Checkpoint, Checkpoint] | None:
    """Both as files, of two formats if they can be; None if no format can hold them."""
    ours = {s: checkpoint for s in SUFFIXES if (checkpoint := through_a_file(right, folder / "right", s, True)) is not None}
    theirs = {s: checkpoint for s in SUFFIXES if (checkpoint := through_a_file(wrong, folder / "wrong", s, False)) is not None}
    pairs = sorted(itertools.product(ours, theirs), key=lambda pair: (len(theirs[pair[1]].layers), pair[0] == pair[1]))
    return (ours[pairs[0][0]], theirs[pairs[0][1]]) if pairs else None


@pytest.mark.drawn(10)
@pytest.mark.parametrize("name", OF_WEIGHTS)
def test_a_model_that_was_converted_wrongly(name: str, tmp_path: Path) -> None:
    right, change = MODELS[WHERE[name]], FAULTS[name].change
    wrong = change(right) if change is not None else None
    assert wrong is not None
    files = through_files(right, wrong, tmp_path)
    assert (files is None) == (name in UNWRITABLE)
    (findings,) = diagnose_files(*(files or (of(right), of(wrong))), draw=Draw(seed=17, batch=3, time=10))
    assert not findings.equal
    first = findings.diagnosis.sentences
    assert findings.diagnosis.fault == name, first
    assert any(sentence.endswith(f"if {FAULTS[name].sentence}") for sentence in first)


@pytest.mark.drawn(13)
@pytest.mark.parametrize("name", FAULTS)
def test_outputs_of_a_wrong_model(name: str) -> None:
    stack = MODELS[WHERE[name]]
    diagnosis = diagnose(stack, answers(stack, SEARCHED[WHERE[name]], FAULTS[name]), np.float32)
    assert diagnosis.fault == name, diagnosis.sentences


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_wrong_run_of_right_weights_is_told_from_a_wrong_conversion(name: str) -> None:
    stack = MODELS[WHERE[name]]
    diagnosis = diagnose(stack, answers(stack, SEARCHED[WHERE[name]], FAULTS[name]), np.float32, counterpart=stack)
    assert "the weights are the same in both files: the run is wrong, not the conversion" in diagnosis.sentences


@pytest.mark.parametrize("model", MODELS)
def test_a_right_model_has_no_fault(model: str) -> None:
    stack = MODELS[model]
    diagnosis = diagnose(stack, answers(stack, SEARCHED[model]), np.float32)
    assert diagnosis.fault == "" and diagnosis.sentences[0].startswith("equal to")
    (files,) = diagnose_files(of(stack), of(stack))
    assert files.equal and files.compared.exact and files.diagnosis.sentences == ("exactly equal",)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_right_conversion_has_no_fault(suffix: str, dtype: str, tmp_path: Path) -> None:
    stack = MODELS["two layers, two directions"]
    rc.save(of(stack), tmp_path / f"out{suffix}", dtype=dtype)
    (findings,) = diagnose_files(of(stack), rc.load(tmp_path / f"out{suffix}"))
    assert findings.equal and not findings.diagnosis.fault and "equal" in findings.diagnosis.sentences[0]


TWO = [
    ("lstm", "gates i and f swapped", "biases dropped"),
    ("lstm", "recurrent matrix transposed", "forget_bias added twice"),
    ("lstm", "gates g and o swapped", "lengths ignored"),
    ("peepholes", "peepholes dropped", "gates stored i o f g read as i f g o"),
    ("gru", "gates r and z swapped", "candidate's recurrent bias outside the reset product"),
    ("gru", "gate z negated", "reset gate before the product"),
    ("gru", "recurrent bias dropped", "gates through Keras 2's hard_sigmoid"),
    ("two layers, two directions", "directions swapped", "initial states ignored"),
    ("two layers, two directions", "recurrent matrix transposed", "initial states by direction"),
]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("model", "first", "second"), TWO)
def test_two_faults_at_once(model: str, first: str, second: str) -> None:
    stack = MODELS[model]
    diagnosis = diagnose(stack, answers(stack, SEARCHED[model], FAULTS[first], FAULTS[second]), np.float32)
    assert set(diagnosis.fault.split(" and ")) >= set(first.split(" and ")) | set(second.split(" and ")), diagnosis


def test_a_fault_in_one_direction_only() -> None:
    stack = MODELS["two layers, two directions"]
    fault = FAULTS["gates i and o swapped"].at(1, 1, "layer 1, the backward direction")
    assert fault is not None
    diagnosis = diagnose(stack, answers(stack, SEARCHED["two layers, two directions"], fault), np.float32)
    assert diagnosis.fault == fault.name
    assert "the difference begins at layer 1, the backward direction" in diagnosis.sentences


def off(outputs: Outputs, **changes: Any) -> Outputs:
    return replace(outputs, **changes)


def test_what_no_convention_explains_is_said_and_where_it_begins() -> None:
    stack, inputs = MODELS["lstm"], SEARCHED["lstm"][:1]
    ((case, right),) = answers(stack, inputs)
    y = right.y.copy()
    y[4:] += np.random.default_rng(1).uniform(-0.1, 0.1, y[4:].shape).astype(np.float32)
    diagnosis = diagnose(stack, [(case, off(right, y=y))], np.float32)
    assert diagnosis.fault == ""
    assert diagnosis.sentences[0].startswith("none of the ") and diagnosis.sentences[0].endswith(", and no two of them")
    assert diagnosis.sentences[1] == "the difference begins at time step 4"


def test_a_backward_direction_is_followed_as_it_is_processed() -> None:
    form = Sizes("gru", 3, 4, num_directions=2, parts=BOTH)
    stack = random_stack(form, 1, np.float32)
    case = cases(stack, Draw(["states"], time=9))[0][0]
    right = case.solve(stack, np.float32)
    y = right.y.copy()
    y[:6, :, 4:] += np.float32(0.01)
    diagnosis = diagnose(stack, [(case, off(right, y=y))], np.float32)
    assert "the difference begins at the backward direction, time step 5" in diagnosis.sentences
    y = right.y.copy()
    y[..., 4:] += np.float32(0.01)
    diagnosis = diagnose(stack, [(case, off(right, y=y))], np.float32)
    assert "the difference begins at the backward direction, time step 8, the first that it processes" in diagnosis.sentences


def test_the_layer_is_found_by_its_final_states() -> None:
    stack = MODELS["two layers, two directions"]
    inputs = cases(stack, Draw(("states",), batch=2, time=3))[0]
    ((case, right),) = answers(stack, inputs)
    hidden = list(right.hidden)
    hidden[1] = hidden[1] + np.float32(0.1)
    diagnosis = diagnose(stack, [(case, off(right, hidden=tuple(hidden)))], np.float32)
    assert "only final states differ" in diagnosis.sentences
    assert "the difference begins at layer 0, the backward direction" in diagnosis.sentences


ONLY = [
    ("lstm", "padded steps repeat the last output", "only padded steps differ"),
    ("lstm", "padded steps repeat the last output", "only sequences shorter than the longest differ"),
    ("lstm", "final states are the initial ones", "only final states differ"),
    ("lstm", "initial cell state ignored", "it differs only where initial states are given"),
    ("lstm", "state not carried over", "it differs only where a sequence is fed in parts"),
    ("learned state", "learned initial state dropped", "it differs only where no initial states are given"),
]


@pytest.mark.parametrize(("model", "name", "message"), ONLY)
def test_what_alone_differs_is_said(model: str, name: str, message: str) -> None:
    stack = MODELS[model]
    diagnosis = diagnose(stack, answers(stack, SEARCHED[model], FAULTS[name]), np.float32)
    assert message in diagnosis.sentences, diagnosis.sentences


def test_what_inputs_cannot_tell_apart_is_said() -> None:
    stack = each(MODELS["gru"], lambda d: d.with_arrays({("input_bias", gate): np.zeros(5, np.float32) for gate in "rzn"}))
    inputs = cases(stack, Draw(seed=5))[0]
    diagnosis = diagnose(stack, answers(stack, inputs, FAULTS["recurrent bias dropped"]), np.float32)
    assert diagnosis.fault == "recurrent bias dropped"
    assert any("cannot distinguish that from" in sentence and "the biases are dropped" in sentence for sentence in diagnosis.sentences)


def test_outputs_of_another_shape_and_of_no_number() -> None:
    stack, inputs = MODELS["lstm"], SEARCHED["lstm"][:1]
    ((case, right),) = answers(stack, inputs)
    diagnosis = diagnose(stack, [(case, off(right, y=right.y[..., :2]))], np.float32)
    assert "y has the shape (9, 5, 2), expected (9, 5, 4)" in diagnosis.sentences
    diagnosis = diagnose(stack, [(case, off(right, y=right.y * np.nan))], np.float32)
    assert diagnosis.sentences[0].startswith("none of the ") and diagnosis.sentences[1].endswith("time step 0, the first")


def test_a_framework_that_gives_no_final_states() -> None:
    stack, inputs = MODELS["lstm"], SEARCHED["lstm"]
    bare = [(case, off(outputs, hidden=None, cell=())) for case, outputs in answers(stack, inputs)]
    assert diagnose(stack, bare, np.float32).sentences[0].startswith("equal to")
    wrong = answers(stack, inputs, FAULTS["biases dropped"])
    diagnosis = diagnose(stack, [(case, off(outputs, hidden=None, cell=None)) for case, outputs in wrong], np.float32)
    assert diagnosis.fault == "biases dropped"


def test_the_conversion_is_told_from_the_run() -> None:
    stack = MODELS["lstm"]
    change = FAULTS["gates i and f swapped"].change
    wrong = change(stack) if change is not None else None
    diagnosis = diagnose(stack, answers(stack, SEARCHED["lstm"], FAULTS["gates i and f swapped"]), np.float32, wrong)
    assert any("the conversion is wrong, not the run" in sentence for sentence in diagnosis.sentences)
    assert any(sentence.startswith("the weights differ in: input of i, f; recurrent of i, f") for sentence in diagnosis.sentences)


def test_layers_of_other_sizes_are_not_run() -> None:
    other = random_stack(Sizes("gru", 3, 5, parts=BOTH), 0, np.float32).replace(name="enc")
    (findings,) = diagnose_files(of(MODELS["lstm"]), of(other))
    assert not findings.equal and "cannot be run side by side" in findings.diagnosis.sentences[0]


def test_a_large_model_is_diagnosed() -> None:
    stack = random_stack(Sizes("lstm", 256, 512, num_directions=2, parts=BOTH), 0, np.float32).replace(name="enc")
    change = FAULTS["recurrent matrix transposed"].change
    wrong = change(stack) if change is not None else None
    assert wrong is not None
    (findings,) = diagnose_files(of(stack), of(wrong))
    assert findings.diagnosis.fault == "recurrent matrix transposed"


# The command ----------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    stack = MODELS["two layers, two directions"]
    change = FAULTS["gates i and f swapped"].change
    wrong = change(stack) if change is not None else None
    assert wrong is not None
    rc.save(of(stack), tmp_path / "right.pt")
    rc.save(of(wrong), tmp_path / "wrong.keras")
    return tmp_path / "right.pt", tmp_path / "wrong.keras"


def test_the_command_ends_with_1_and_says_why(pair: tuple[Path, Path]) -> None:
    result = call("diagnose", *pair)
    assert result.exit_code == 1
    assert "if gates i and f are swapped" in result.stdout and "do not compute the same" in result.stdout
    assert "the difference begins at layer 0" in result.stdout


def test_the_command_ends_with_0_for_what_is_equal(pair: tuple[Path, Path], tmp_path: Path) -> None:
    rc.convert(pair[0], tmp_path / "again.onnx")
    result = call("diagnose", pair[0], tmp_path / "again.onnx", "--lengths", "9,4,1", "--seed", 3)
    assert result.exit_code == 0 and "compute the same" in result.stdout


def test_the_command_for_machines(pair: tuple[Path, Path]) -> None:
    result = call("diagnose", *pair, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1 and document["equal"] is False
    (layer,) = document["layers"]
    assert layer["fault"] == "gates i and f swapped" and layer["counterpart"] == ["enc_l0", "enc_l1"]
    assert {entry["gate"] for entry in layer["differences"] if not entry["equal"]} == {"i", "f"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--lengths", "a"], 2, "integers"),
        (["--lengths", "-1,3"], 2, "cannot be negative"),
        (["--layer", "nothing"], 2, "no recurrent layer 'nothing'"),
        (["--pair", "nothing"], 2, "expected A=B"),
        (["--from-b", "caffe"], 2, "Unknown format 'caffe'"),
        (["--set-a", "opset"], 2, "expected KEY=VALUE"),
    ],
)
def test_wrong_usage(pair: tuple[Path, Path], arguments: list[str], code: int, message: str) -> None:
    result = call("diagnose", *pair, *arguments)
    assert result.exit_code == code and message in result.stderr
