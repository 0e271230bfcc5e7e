"""A file beside a recorded sample: the convention that the sample has and the file lacks is named, or nothing is."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.cells import SIGMOID
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.diagnosis.by_arrays import explained
from rnnconvert.diagnosis.faults import ARRAYS, FAULTS, Fault, of_stack
from rnnconvert.diagnosis.first_difference import place
from rnnconvert.diagnosis.one_file import SampleFindings
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.identification.conventions import functions
from rnnconvert.identification.identify import same
from rnnconvert.identification.sample import samples
from rnnconvert.judging.case_kinds import Case
from rnnconvert.language import registry
from rnnconvert.rewrites import each
from tests.helpers.commands import call
from tests.helpers.drawn import NotComparedError, looped
from tests.helpers.planted import MODELS

FILES = (
    (".pt", None), (".safetensors", None), (".keras", None), (".weights.h5", None), (".onnx", None), (".npz", "tensorflow1"),
    (".msgpack", None), (".pdparams", None), (".bin", None),
)  # fmt: skip
PLANTED = [name for name, fault in FAULTS.items() if fault.change is not None]


@pytest.fixture(autouse=True)
def nothing_added() -> Any:
    """A layout that was tried is gone."""
    before = registry.installed_layouts()
    yield
    assert registry.installed_layouts() == before


def written(model: str, folder: Path, ending: str, to: str | None = None) -> tuple[Path, Recurrent] | None:
    """A model in a file, and its one layer as the file is read; None if the format cannot hold it."""
    file = folder / f"{model.replace(' ', '_')}{ending}"
    try:
        rc.save(Checkpoint("memory", "canonical", {"enc": MODELS[model]}), file, to)
    except (RefusedError, UsageError):
        return None
    layers = rc.load(file).layers
    return (file, next(iter(layers.values()))) if len(layers) == 1 else None


def sample_of(stack: Recurrent, seed: int = 0, steps: int = 6) -> dict[str, Any]:
    """What a layer gives in float32 for random inputs."""
    x = np.random.default_rng(seed).normal(size=(steps, 3, stack.input_size)).astype(np.float32)
    return {"input": x, "output": reference.run(stack, x, dtype=np.float32).y}


def right(findings: SampleFindings, truth: Recurrent) -> bool:
    """Whether the convention that was named, planted in what was read, gives the truth."""
    (layer,) = findings.layers
    changed: Recurrent | None = layer.stack
    for fault in parsed(layer.fault, layer.stack) or ():
        changed = fault.change(changed) if fault.change is not None and changed is not None else None
    return changed is not None and same(changed, truth)


def parsed(name: str, stack: Recurrent) -> list[Fault] | None:
    """The conventions of a name, which joins several by "and"; None for a name that is not theirs."""
    table = {**FAULTS, **ARRAYS, **{fault.name: fault for fault in of_stack(stack)}}
    for index, number, _ in stack.directions():
        for fault in [*FAULTS.values(), *ARRAYS.values()]:
            for words in (place(stack, index, number), f"layer {index}"):
                placed = fault.at(index, number, words)
                if placed is not None:
                    table[placed.name] = placed
    parts = name.split(" and ")
    for count in range(len(parts), 0, -1):
        first = table.get(" and ".join(parts[:count]))
        rest = parsed(" and ".join(parts[count:]), stack) if count < len(parts) else []
        if first is not None and rest is not None:
            return [first, *rest]
    return None


NAMED = [
    ("lstm", "gates i and f swapped"),
    ("lstm", "gates stored i f g o read as i o f g"),
    ("lstm", "recurrent matrix transposed"),
    ("lstm", "forget_bias added twice"),
    ("lstm", "biases dropped"),
    ("forget_bias", "forget_bias missing"),
    ("gru", "reset gate before the product"),
    ("gru", "gate z negated"),
    ("gru", "gates through Keras 2's hard_sigmoid"),
    ("gru", "gates through Keras 3's hard_sigmoid"),
    ("gru, reset before", "reset gate after the product"),
    ("rnn", "candidate through relu"),
    ("backwards", "backward direction not reversed"),
]


@looped(6, case=[(model, fault, *file) for model, fault in NAMED for file in FILES])
def test_a_planted_convention_is_named(case: Any, tmp_path: Path) -> None:
    model, fault, ending, to = case
    pair = written(model, tmp_path, ending, to)
    change = FAULTS[fault].change
    assert change is not None
    truth = None if pair is None else change(pair[1])
    if pair is None or truth is None:
        raise NotComparedError("no such file, or no such fault in it")
    findings = rc.diagnose(pair[0], io=sample_of(truth), seconds=15)
    (layer,) = findings.layers
    assert not findings.equal and layer.verdict == "explained", (case, layer.sentences)
    assert layer.fault == fault or right(findings, truth), (case, layer.fault)


@looped(2, fault=PLANTED)
def test_no_convention_is_named_wrongly(fault: str) -> None:
    change = FAULTS[fault].change
    for stack in MODELS.values():
        truth = change(stack) if change is not None else None
        if truth is None or not sample_shows(stack, truth):
            continue
        findings = rc.diagnose(Checkpoint("memory", "canonical", {"enc": stack}), io=sample_of(truth), seconds=4)
        (layer,) = findings.layers
        assert layer.verdict in ("explained", "ambiguous", "unknown"), (fault, layer.sentences)
        assert not layer.fault or layer.fault == fault or right(findings, truth), (fault, layer.fault)
        return
    raise NotComparedError("no model shows it")


def sample_shows(stack: Recurrent, truth: Recurrent) -> bool:
    """Whether both have the same sizes and another output."""
    wrong, right = sample_of(stack)["output"], sample_of(truth)["output"]
    return wrong.shape == right.shape and float(np.abs(wrong - right).max()) > 1e-3


@pytest.mark.parametrize(("ending", "to"), FILES)
def test_a_right_file_computes_its_sample_in_its_own_axes(ending: str, to: str | None, tmp_path: Path) -> None:
    pair = written("lstm", tmp_path, ending, to)
    assert pair is not None
    checkpoint = rc.load(pair[0])
    stated = checkpoint.batch_first.get(next(iter(checkpoint.layers)))
    stated = False if ending == ".onnx" else stated  # the operator runs, and takes the time first
    sample = sample_of(pair[1])
    batch_first = {name: array.swapaxes(0, 1) for name, array in sample.items()}
    for first, io in ((False, sample), (True, batch_first), (False, {**sample, "output": sample["output"][-1]})):
        findings = rc.diagnose(pair[0], io=io)
        fault = findings.layers[0].fault or (findings.model.fault if findings.model is not None else "")
        axes = "batch, time, in" if first else "time, batch, in"
        if stated is None:
            assert findings.equal and findings.layers[0].sentences == (f"the file computes the sample, with x as ({axes})",)
        elif stated == first:
            assert findings.equal and not fault, str(findings)
        elif io["output"].ndim == 3:
            assert not findings.equal and fault == "batch and time exchanged", str(findings)
            assert str(findings).splitlines()[-1] == f"{pair[0]} does not compute the sample"


FIXED = [
    ("gru", "gates through Keras 2's hard_sigmoid", ".msgpack", None, "--set recurrent_activation=hard_sigmoid"),
    ("rnn", "candidate through relu", ".pt", None, "--set nonlinearity=relu"),
    ("lstm", "forget_bias added twice", ".npz", "tensorflow1", "--set forget_bias=2"),
    ("lstm", "gates i and f swapped", ".safetensors", None, "--layout found.toml --from found"),
    ("gru", "reset gate before the product", ".safetensors", None, "--layout found.toml --from found"),
]


@pytest.mark.parametrize(("model", "fault", "ending", "to", "fix"), FIXED)
def test_what_is_said_to_read_it_right_does(model: str, fault: str, ending: str, to: str | None, fix: str, tmp_path: Path) -> None:
    pair, change = written(model, tmp_path, ending, to), FAULTS[fault].change
    assert pair is not None and change is not None
    truth = change(pair[1])
    assert truth is not None
    np.savez(tmp_path / "sample.npz", **sample_of(truth))
    done = call("diagnose", str(pair[0]), "--io", str(tmp_path / "sample.npz"), "--json")
    assert done.exit_code == 1
    (layer,) = json.loads(done.stdout)["layers"]
    assert (layer["fault"], layer["fix"]) == (fault, fix)
    (tmp_path / "found.toml").write_text(layer["layout_file"])
    words = [str(tmp_path / word) if word == "found.toml" else word for word in fix.replace("--from", "--from-a").split()]
    again = call("diagnose", str(pair[0]), "--io", str(tmp_path / "sample.npz"), *words)
    registry.forget()
    assert again.exit_code == 0 and "computes the sample" in again.stdout


def test_a_wrong_run_of_right_weights() -> None:
    stack = MODELS["lstm"]
    io = sample_of(stack) | {"lengths": np.array([6, 3, 2])}
    io["output"] = np.where(np.arange(6)[:, None, None] < 99, io["output"], 0)
    (sample,) = [candidate for candidate in samples(io) if candidate.axes.startswith("time")]
    case = Case("sample", "", sample.x, sample.h0, sample.c0, sample.lengths)
    wrong = FAULTS["final states at the padded end"].run(stack, case, np.float32)
    assert wrong is not None
    io |= {"output": wrong.y, "h_n": np.stack(wrong.hidden), "c_n": np.stack(wrong.cell)}
    (layer,) = rc.diagnose(Checkpoint("memory", "canonical", {"enc": stack}), io=io, seconds=4).layers
    assert layer.fault == "final states at the padded end" and any("weights are right" in sentence for sentence in layer.sentences)


def test_one_step_does_not_decide() -> None:
    stack = MODELS["lstm"]
    change = FAULTS["gates i and o swapped"].change
    truth = change(stack) if change is not None else None
    assert truth is not None
    file = Checkpoint("memory", "canonical", {"enc": stack})
    (changed,) = rc.diagnose(file, io=sample_of(truth, steps=1), seconds=6).layers
    assert changed.verdict == "ambiguous" and not changed.fault and any("to decide" in sentence for sentence in changed.sentences)
    (plain,) = rc.diagnose(file, io=sample_of(stack, steps=1)).layers
    assert plain.verdict == "equal" and any("recurrent of gate f" in sentence for sentence in plain.sentences)


def test_a_sample_of_another_layer_is_told_from_a_wrong_one() -> None:
    first, second = MODELS["lstm"], MODELS["forget_bias"]
    layers = {"a": first, "b": second, "c": MODELS["gru"]}
    findings = rc.diagnose(Checkpoint("memory", "canonical", layers), io=sample_of(second))
    assert findings.equal and [layer.verdict for layer in findings.layers] == ["other layer", "equal", "other sizes"]
    with pytest.raises(UsageError, match="no layer of memory can have given the sample"):
        rc.diagnose(Checkpoint("memory", "canonical", {"c": MODELS["gru"]}), io=sample_of(second))


def test_outputs_of_nothing_known_are_unknown() -> None:
    stack = MODELS["gru"]
    io = sample_of(stack)
    io["output"] = np.random.default_rng(1).uniform(-1, 1, io["output"].shape).astype(np.float32)
    (layer,) = rc.diagnose(Checkpoint("memory", "canonical", {"enc": stack}), io=io, seconds=2).layers
    assert layer.verdict == "unknown" and not layer.fault and not layer.fix
    rounded = sample_of(stack)
    rounded["output"] = np.round(rounded["output"], 4)
    (near,) = rc.diagnose(Checkpoint("memory", "canonical", {"enc": stack}), io=rounded, seconds=2).layers
    assert near.verdict == "unknown" and "nearly computes" in near.sentences[0]


def with_cell(direction: Direction, **changes: Any) -> Direction:
    return direction.replace(cell=direction.cell.replace(**changes))


@pytest.mark.parametrize("model", ["rnn", "gru", "lstm"])
def test_every_function_that_is_searched_has_a_name(model: str) -> None:
    stack = MODELS[model]
    for gate, candidate, output in functions(stack.cell.kind, False):
        if gate != SIGMOID:
            continue
        changes: dict[str, Any] = {"activation": candidate}
        changes |= {"gate_activation": gate} if model != "rnn" else {}
        changes |= {"output_activation": output} if model == "lstm" else {}
        other = each(stack, functools.partial(with_cell, **changes))
        explanation = explained(stack, other)
        assert explanation is not None and explanation.complete and len(explanation.faults) == 1, (gate, candidate, output, explanation)


def test_two_files_or_a_sample() -> None:
    stack = Checkpoint("memory", "canonical", {"enc": MODELS["lstm"]})
    for wrong in ({}, {"b": stack, "io": sample_of(MODELS["lstm"])}, {"io": sample_of(MODELS["lstm"]), "pairs": "a=b"}):
        with pytest.raises(UsageError):
            rc.diagnose(stack, **wrong)
    assert call("diagnose", "a.pt").exit_code == 2 and call("diagnose", "a.pt", "b.pt", "--io", "s.npz").exit_code == 2
    assert call("diagnose", "a.pt", "--io", "s.npz", "--pair", "a=b").exit_code == 2
