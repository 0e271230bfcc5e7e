"""What must never be called equal: nothing compared, other sizes, other models, outputs that say nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import BFLOAT16
from rnnconvert.core.errors import ExecutorError, UnreadableError, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.cases import Draw, cases
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from rnnconvert.running import registry
from rnnconvert.verification import ready
from rnnconvert.verification.evidence import concluded
from rnnconvert.verification.results import LayerResults, ModelFile, ModelRun, Results
from tests.helpers.commands import call
from tests.helpers.executor_modules import module_text
from tests.helpers.requirements import need, needed
from tests.helpers.stacks import BOTH, random_stack

EXECUTOR = """\
    x = request["x"]
    return ANSWER
"""


def gru(seed: int = 3, directions: int = 1, layers: int = 1, kind: str = "gru", scale: float = 1) -> Recurrent:
    return random_stack(Sizes(kind, 3, 5, layers, directions, parts=BOTH), seed, np.float32, scale=scale)


def write(path: Path, **layers: Recurrent) -> Path:
    named = {name: stack.replace(name=name) for name, stack in layers.items()}
    rc.save(rc.Checkpoint("memory", "memory", named), path)
    return path


@pytest.fixture(autouse=True)
def both_frameworks() -> None:
    for name, package in (("torch-cpu", "torch"), ("onnxruntime-cpu", "onnxruntime")):
        need(package, registry.executors()[name].absent)


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Adds an executor of the test's own, which answers what an expression says; its name."""
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "executors.json"))

    def add(expression: str) -> str:
        module = tmp_path / "own.py"
        module.write_text(module_text(EXECUTOR.replace("ANSWER", expression), "import time\n\nimport numpy as np"))
        registry.add("own", sys.executable, "own", str(module))
        return "own"

    return add


# Models of which too little is compared -----------------------------------------------------------


def test_one_direction_of_two_is_not_the_model(tmp_path: Path) -> None:
    both = gru(directions=2)
    forward = both.replace(layers=(rc.Layer(both.layers[0].directions[:1]),))
    a, b = write(tmp_path / "a.safetensors", encoder=both), write(tmp_path / "b.onnx", encoder=forward)
    for first, other in ((a, b), (b, a)):
        with pytest.raises(UsageError, match="cannot be equal in both files: they give"):
            rc.verify(first, other)


def test_a_model_that_reads_something_else_is_said(tmp_path: Path) -> None:
    wide = random_stack(Sizes("gru", 4, 5, parts=BOTH), 3, np.float32)
    a, b = write(tmp_path / "a.safetensors", encoder=gru()), write(tmp_path / "b.onnx", encoder=wide)
    assert call("verify", a, b).exit_code == 2


def test_a_layer_less_is_not_equal_and_no_accident(tmp_path: Path) -> None:
    deep = gru(layers=2)
    a = write(tmp_path / "a.safetensors", encoder=deep)
    b = write(tmp_path / "b.onnx", encoder=deep.replace(layers=deep.layers[:1]))
    for first, other in ((a, b), (b, a)):
        assert rc.verify(first, other).verdict == "not equal"


@pytest.mark.parametrize("answer", [
    '{"y": x[:, :, :1], "hidden": None, "cell": None}',
    '{"y": np.zeros((*x.shape[:2], 5), "int64"), "hidden": None, "cell": None}',
    '{"y": np.zeros((*x.shape[:2], 5)), "hidden": [np.zeros((1, 5))], "cell": None}',
    '{"y": np.zeros((*x.shape[:2], 5))}',
    '{"y": None, "hidden": None, "cell": None}',
    "{}",
])  # fmt: skip
def test_an_answer_of_other_shapes_is_an_error(answer: str, tmp_path: Path, executor: Callable[[str], str]) -> None:
    report = rc.verify(write(tmp_path / "a.onnx", encoder=gru()), on=[executor(answer)], explain=False)
    assert report.exit_code == 1, str(report)


def test_states_that_an_executor_does_not_give_are_named(tmp_path: Path) -> None:
    model = write(tmp_path / "a.onnx", encoder=gru())
    results = rc.run(model, on=["onnxruntime-cpu"], cases=["states"])
    (layer,) = results.layers.values()
    (run,) = layer.runs
    layer.runs = [replace(run, outputs={name: replace(output, hidden=()) for name, output in run.outputs.items()})]
    report = rc.verify(results)
    assert report.equal
    assert report.document["layers"][0]["runs"][0]["left_out"] == {"states: h_n": "it gives no such final states"}


def run_of(name: str = "torch-cpu", verdict: str = "equal", model: str = "A", **changes: Any) -> Mapping[str, Any]:
    compared = [{"output": "y", "passed": verdict == "equal"}] if verdict else []
    return {
        "executor": name, "verdict": verdict, "model": model, "status": "ran", "required": False,
        "comparisons": compared, **changes,
    }  # fmt: skip


REFUSED = run_of("onnxruntime-cpu", "", "B", status="refused")


@pytest.mark.parametrize(("layers", "models", "verdict"), [
    ([[run_of()]], 1, "equal"),
    ([], 1, "not compared"),
    ([[]], 1, "not compared"),
    ([[run_of("reference")]], 1, "not compared"),
    ([[run_of()]], 2, "not compared"),
    ([[run_of(), run_of("reference", model="B")]], 2, "not compared"),
    ([[run_of(), run_of(model="B")]], 2, "equal"),
    ([[run_of(), run_of(model="B")], [run_of(), REFUSED]], 2, "not compared"),
    ([[run_of()], [run_of("reference")]], 1, "not compared"),
    ([[run_of(), run_of("mxnet", "", status="failed")]], 1, "not compared"),
    ([[run_of(), run_of("mxnet", "", status="refused")]], 1, "equal"),
    ([[run_of(), run_of("mxnet", "", status="refused", required=True)]], 1, "not compared"),
    ([[run_of(), run_of("mxnet", "", required=True)]], 1, "not compared"),
    ([[run_of(), run_of("mxnet", "")]], 1, "equal"),
    ([[run_of(comparisons=[{"output": "y, padded steps", "passed": True}])]], 1, "not compared"),
    ([[run_of(), run_of("mxnet", "not equal")]], 1, "not equal"),
    ([[run_of(), run_of("reference", "not equal", "B"), REFUSED]], 2, "not equal"),
])  # fmt: skip
def test_the_verdict_of_every_combination(layers: list[list[Any]], models: int, verdict: str) -> None:
    results = Results("", "", models=[ModelFile(label, "", "", 0, "") for label in "AB"[:models]])
    results.layers = {str(number): LayerResults(str(number), "") for number in range(len(layers))}
    named = [[{**run, "comparisons": [{"case": "states", **entry} for entry in run["comparisons"]]} for run in runs] for runs in layers]
    conclusion, _ = concluded(results, named)
    assert (conclusion.word, bool(conclusion)) == (verdict, verdict == "equal")
    status: Literal["equal", "not equal", "not run"]
    for status, word in (("equal", verdict), ("not run", "equal layer by layer, not run whole"), ("not equal", "not equal")):
        for layer in results.layers.values():
            layer.whole = ModelRun(status, "it has another order")
        if layers and verdict == "equal":
            assert concluded(results, named)[0].word == word


# Numbers that say nothing -------------------------------------------------------------------------


def test_what_is_no_number_on_both_sides_proves_nothing(tmp_path: Path) -> None:
    broken = [each(gru(seed), lambda d: d.with_arrays({("input_bias", "n"): np.full(5, np.nan, np.float32)})) for seed in (3, 4)]
    a, b = write(tmp_path / "a.safetensors", encoder=broken[0]), write(tmp_path / "b.safetensors", encoder=broken[1])
    report = rc.verify(a, b, cases=["states"])
    assert not report.equal
    assert "proves nothing" in str(report.document["layers"][0]["runs"][0]["left_out"])


def test_rounding_that_leads_anywhere_proves_nothing(tmp_path: Path) -> None:
    """Tanh units with large weights: after a few steps float32 and float64 have nothing in common."""
    a, b = (
        write(tmp_path / f"{seed}.onnx", encoder=random_stack(Sizes("rnn", 3, 32, parts=BOTH), seed, np.float32, scale=8))
        for seed in (3, 4)
    )
    assert not rc.verify(a, b, cases=["long"]).equal
    assert rc.verify(a, b).verdict == "not equal"


def test_a_floor_that_is_not_finite_allows_nothing() -> None:
    truth = np.array([[[1.0, 70000.0]], [[2.0, 70000.0]]])
    floor = np.array([[[1.0, np.inf]], [[2.0, np.inf]]])
    output, half = Output("c", "y", ("time", "batch", "unit")), np.dtype(np.float16)
    allowance = Allowance([floor], half)
    assert compare(output, floor, truth, allowance).passed
    assert not compare(output, np.zeros_like(truth), truth, allowance).passed
    assert not compare(output, np.full_like(truth, np.nan), truth, allowance).passed
    assert not compare(output, floor, truth, Allowance([np.full_like(truth, np.inf)], half)).telling


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_the_floor_of_half_precision_is_that_of_half_precision(kind: str, dtype: Any) -> None:
    stack = random_stack(Sizes(kind, 3, 33, parts=BOTH), 1, dtype)
    (case,), _ = cases(stack, Draw(["states"]))
    truth, floor = case.solve(stack), case.solve(stack, dtype)
    assert {array.dtype for array in (floor.y, *floor.hidden, *floor.cell)} == {np.dtype(dtype)}
    error = np.abs(floor.y.astype(np.float64) - truth.y).max()
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert eps / 20 < error < eps * 20


def test_rounding_in_float64_is_allowed_too(tmp_path: Path) -> None:
    """Large weights carry it on from step to step; what is wrong by 1e-9 is still seen."""
    stack = random_stack(Sizes("gru", 3, 8, 3, parts=BOTH), 24, np.float64, scale=3)
    model = write(tmp_path / "a.safetensors", encoder=stack)
    report = rc.verify(model, on=["torch-cpu"], time=60, gradients=True, explain=False)
    assert report.equal, str(report)
    wrong = each(stack, lambda d: d.with_arrays({key: np.asarray(a) * (1 + 1e-9) for key, a in d.arrays.items()}))
    assert not rc.verify(model, write(tmp_path / "b.safetensors", encoder=wrong), on=["torch-cpu"], explain=False).equal


def test_large_weights_in_bfloat16_are_no_fault_of_torch(tmp_path: Path) -> None:
    stack = random_stack(Sizes("gru", 1, 33, 2, parts=BOTH), 1035, BFLOAT16, scale=10)
    report = rc.verify(write(tmp_path / "a.safetensors", encoder=stack), on=["torch-cpu"], batch=16, explain=False)
    assert report.verdict != "not equal", str(report)


def test_small_values_are_judged_by_what_a_library_makes_of_tanh(tmp_path: Path) -> None:
    """onnxruntime's tanh is 1e-7 off at 0.01; the reference's is not."""
    stack = random_stack(Sizes("rnn", 7, 33, 6, parts=BOTH), 1002, np.float32, scale=0.01)
    model = write(tmp_path / "a.onnx", encoder=stack)
    wrong = write(tmp_path / "wrong.onnx", encoder=each(stack, lambda d: d.with_arrays({("recurrent_bias", d.cell.gates[0]): None})))
    assert rc.verify(model, on=["onnxruntime-cpu"], cases=["states", "default states"], explain=False).equal
    assert not rc.verify(model, wrong, cases=["states", "default states"], explain=False).equal


def test_a_tolerance_of_no_output_is_said(tmp_path: Path) -> None:
    model = write(tmp_path / "a.onnx", encoder=gru())
    result = call("verify", model, "--on", "onnxruntime-cpu", "--atol", "Y:1e-4")
    assert result.exit_code == 2
    assert "Choose from: h_n, y" in result.output
    assert call("verify", model, "--on", "onnxruntime-cpu", "--atol", "c_n:1e-4").exit_code == 2
    assert call("verify", model, "--on", "onnxruntime-cpu", "--atol", "inf").exit_code == 2
    assert call("verify", model, "--on", "onnxruntime-cpu", "--atol", "nan").exit_code == 2


def test_the_mutation_score_is_of_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise ExecutorError("onnxruntime-cpu", "not this one", refused=True)

    real = ready.ReadyRun._in_one_piece
    monkeypatch.setattr(ready.ReadyRun, "_carried", refuse)
    monkeypatch.setattr(ready.ReadyRun, "_in_one_piece", lambda *args: real(*args) if args[-1].name == "default states" else refuse())
    report = rc.verify(write(tmp_path / "a.onnx", encoder=gru()), on=["onnxruntime-cpu"])
    score = report.document["layers"][0]["mutations"]
    assert {entry["case"] for entry in score["caught"]} == {"default states"}
    assert any("prove nothing: states, lengths, halves, one step" in text for text in report.document["warnings"])


# Saved results ------------------------------------------------------------------------------------


def test_results_of_two_models_prove_no_third(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = write(tmp_path / "a.safetensors", encoder=gru()), write(tmp_path / "b.onnx", encoder=gru())
    wrong = write(tmp_path / "wrong.onnx", encoder=gru(9))
    assert rc.verify(a, b, save=tmp_path / "both.safetensors").equal
    assert rc.verify(tmp_path / "both.safetensors").equal
    monkeypatch.setattr(registry, "executors", dict)
    with pytest.raises(UsageError, match="results of two models"):
        rc.verify(tmp_path / "both.safetensors", wrong)


def test_results_do_not_stand_for_a_file_of_equal_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = write(tmp_path / "a.safetensors", encoder=gru()), write(tmp_path / "b.onnx", encoder=gru())
    rc.run(a, on=["torch-cpu"]).save(tmp_path / "a-results.safetensors")
    report = rc.verify(tmp_path / "a-results.safetensors", b, on=["onnxruntime-cpu"])
    assert report.equal
    assert report.document["layers"][0]["mutations"]["caught"]
    monkeypatch.setattr(registry, "executors", dict)
    assert rc.verify(tmp_path / "a-results.safetensors", b).verdict == "not compared"


def test_no_layer_of_results_is_left_over(tmp_path: Path) -> None:
    results = rc.run(write(tmp_path / "a.onnx", encoder=gru()), on=["onnxruntime-cpu"])
    more = write(tmp_path / "b.onnx", encoder=gru(), decoder=gru(9))
    with pytest.raises(UsageError, match="'decoder'"):
        rc.verify(results, more, on=["onnxruntime-cpu"])
    with pytest.raises(UsageError, match="'decoder'"):
        rc.verify(results, rc.run(more, on=["onnxruntime-cpu"]))
    assert rc.verify(results, more, layers=["encoder"], on=["onnxruntime-cpu"]).equal


def test_results_of_other_lengths_are_not_compared(tmp_path: Path) -> None:
    model = write(tmp_path / "a.safetensors", encoder=gru())
    first, second = [rc.run(model, on=["torch-cpu"], cases=["lengths"], lengths=some) for some in ([12, 3], [12, 5])]
    with pytest.raises(UsageError, match="different inputs"):
        rc.verify(first, second)


def test_results_of_one_file_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    model = write(tmp_path / "a.safetensors", encoder=gru())

    def results() -> Results:
        return rc.run(model, on=["torch-cpu"], cases=["states"])

    assert rc.verify(results(), results()).equal
    changed = results()
    (layer,) = changed.layers.values()
    layer.truth = {name: replace(output, y=output.y + 1) for name, output in layer.truth.items()}
    with pytest.raises(UsageError, match="disagree about"):
        rc.verify(results(), changed)


# What is asked for and not given is said ----------------------------------------------------------


def test_what_no_framework_gave_is_warned_of(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.safetensors", encoder=gru()), write(tmp_path / "b.onnx", encoder=gru())
    report = rc.verify(a, b, on=["torch-cpu"], cases=["states", "empty sequence"])
    assert any("no framework ran B's own file" in text for text in report.document["warnings"])
    assert any("prove nothing: empty sequence" in text for text in report.document["warnings"])
    report = rc.verify(a, b, on=["onnxruntime-cpu"], gradients=True)
    assert any("gradients were asked for" in text for text in report.document["warnings"])


# Executors run what is meant ----------------------------------------------------------------------


def runs(report: rc.Report, model: str = "A") -> list[tuple[str, bool, str]]:
    layers = report.document["layers"]
    return [
        (run["status"], run["own_file"], run["verdict"])
        for layer in layers for run in layer["runs"] if run["model"] == model and run["executor"] != "reference"
    ]  # fmt: skip


def test_modules_in_modules_are_told_apart(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Outer(torch.nn.LSTM):
        def __init__(self) -> None:
            super().__init__(3, 4)
            self.my_linear = torch.nn.Linear(4, 2)
            self.inner = torch.nn.LSTM(4, 4)

    torch.save(Outer().state_dict(), tmp_path / "outer.pt")
    names = ("lstm.", "lstm2.", "a.lstm.", "lstm.lstm.")
    torch.save({n + k: v for n in names for k, v in torch.nn.LSTM(3, 4).state_dict().items()}, tmp_path / "names.pt")
    for name in ("outer.pt", "names.pt"):
        report = rc.verify(tmp_path / name, on=["torch-cpu"], cases=["states"])
        assert set(runs(report)) == {("ran", True, "equal")}, str(report)


@pytest.mark.parametrize("place", ["rnns.0.weight_hh_l0_raw", "rnns.0.module.weight_hh_l0_raw"])
def test_a_weight_dropout_is_no_module_of_torch(place: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    state = {f"rnns.0.module.{name}": tensor for name, tensor in torch.nn.LSTM(3, 4).state_dict().items()}
    raw = state["rnns.0.module.weight_hh_l0"]
    torch.save({**state, "rnns.0.module.weight_hh_l0": torch.zeros_like(raw), place: raw}, tmp_path / "a.pt")
    report = rc.verify(tmp_path / "a.pt", on=["torch-cpu"], cases=["states"])
    assert runs(report) == [("ran", False, "equal")]


def test_directions_side_by_side_are_no_chain(tmp_path: Path) -> None:
    both = random_stack(Sizes("lstm", 4, 4, 1, 2, parts=BOTH), 3, np.float32)
    ways = [both.replace(layers=(rc.Layer((way.replace(reverse=False),)),)) for way in both.layers[0].directions]
    ways[1] = both.replace(layers=(rc.Layer((both.layers[0].directions[1],)),))
    a = write(tmp_path / "a.onnx", enc=both)
    b = write(tmp_path / "b.onnx", enc_forward=ways[0], enc_backward=ways[1])
    for first, other, apart in ((a, b, "B"), (b, a, "A")):
        report = rc.verify(first, other, on=["onnxruntime-cpu"], pairs=["enc=enc_forward+enc_backward"] if apart == "B" else ())
        assert report.equal, str(report)
        assert runs(report, apart) == [("ran", False, "equal")]


X = np.ones((5, 2, 3))
STATE = np.zeros((1, 2, 5))


@pytest.mark.parametrize("arrays", [
    {"x": X, "hidden": STATE}, {"x": X, "cell": STATE}, {"x": X.astype(str)}, {"x": X.astype(complex)},
    {"x": X[:0]}, {"x": X[:, :0]}, {"x": X, "lengths": np.array([2.5, 3])}, {"x": X > 0},
    {"x": X, "hidden": STATE, "cell": STATE.astype(str)},
])  # fmt: skip
def test_inputs_that_cannot_be_are_said(arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "given.npz", **arrays)
    model = write(tmp_path / "a.onnx", encoder=gru(kind="lstm"))
    result = call("verify", model, "--on", "onnxruntime-cpu", "--inputs", tmp_path / "given.npz")
    assert result.exit_code == 2, result.output


def test_gradients_that_are_not_given_are_named(tmp_path: Path) -> None:
    results = rc.run(write(tmp_path / "a.safetensors", encoder=gru()), on=["torch-cpu"], cases=["states"], gradients=True)
    (graded,) = (slopes for layer in results.layers.values() for run in layer.runs for slopes in run.gradients.values())
    for arrays in graded.found.weights:
        for key in [key for key in arrays if key[0] == "recurrent_bias"]:
            del arrays[key]  # type: ignore[attr-defined]
    left_out = rc.verify(results).document["layers"][0]["runs"][0]["left_out"]
    assert left_out == {"states: gradient of recurrent bias": "it gives no such gradient"}


# Users --------------------------------------------------------------------------------------------


def test_no_file_that_is_read_is_written_over(tmp_path: Path) -> None:
    model = write(tmp_path / "a.safetensors", encoder=gru())
    before = model.read_bytes()
    other = tmp_path / "x.safetensors"
    for words in (
        ["verify", model, "--save-outputs", model],
        ["verify", model, "--save-inputs", tmp_path / "." / "a.safetensors"],
        ["verify", model, "--save-inputs", other, "--save-outputs", other],
        ["verify", model, "--report", tmp_path / "x.json", "--save-outputs", tmp_path / "x.json"],
        ["run", model, "--save", model],
        ["run", model, "--save", other, "--save-inputs", other],
    ):
        assert call(*words, "--on", "torch-cpu").exit_code == 2
    with pytest.raises(UsageError):
        rc.verify(model, on=["torch-cpu"], save=model)
    assert model.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [model]


@pytest.mark.parametrize(("words", "code"), [
    (["verify", "a.onnx", "--seed", "-1"], 2),
    (["verify", "a.onnx", "--time", "100000000000"], 2),
    (["verify", "a.onnx", "--batch", "1000000000"], 2),
    (["verify", "a.onnx", "--pair", "x=y"], 2),
    (["verify", "a.onnx", "--set-b", "x=y"], 2),
    (["convert", "a.onnx", "folder", "--verify", "--force"], 2),
    (["check", "--config", "good.toml", "--reports", "a.onnx"], 2),
    (["check", "--config", "cases.toml"], 2),
    (["check", "--config", "lengths.toml"], 3),
    (["check", "--config", "atol.toml"], 3),
    (["check", "--config", "layers.toml"], 3),
    (["verify", "."], 3),
])  # fmt: skip
def test_a_wrong_call_ends_in_a_sentence(words: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.onnx", encoder=gru())
    (tmp_path / "folder").mkdir()
    claims = {
        "good": "seed = 0", "cases": "cases = []", "lengths": 'lengths = ["x"]', "atol": 'atol = {y = "x"}', "layers": "layers = [1]"
    }  # fmt: skip
    for name, line in claims.items():
        Path(f"{name}.toml").write_text(f'[[equal]]\na = "a.onnx"\n{line}\n')
    result = call(*words)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)


def test_an_added_executor_that_is_gone_is_said_and_can_be_removed(
    tmp_path: Path, executor: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor("{}")
    module = tmp_path / "own.py"
    text = module.read_text()
    for broken in ("", "VARIANTS = {}", text.replace('{"device": "cpu"}', "{}"), text.replace("FORMAT", "FROM")):
        module.write_text(broken)
        with pytest.raises(UnreadableError, match=r"own\.py"):
            registry.executors()
    module.unlink()
    result = call("executors")
    assert result.exit_code == 3
    assert "executors remove own" in result.output
    assert call("executors", "remove", "own").exit_code == 0
    assert call("executors").exit_code == 0
    monkeypatch.setenv(registry.VARIABLE, "/proc/none/executors.json")
    assert call("executors", "add", "mine", "--python", sys.executable, "--like", "onnxruntime-cpu").exit_code == 2


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything_and_leaves_nothing(sent: signal.Signals, tmp_path: Path, executor: Callable[[str], str]) -> None:
    pid = tmp_path / "pid"
    executor(f'open({str(pid)!r}, "w").write(str(__import__("os").getpid())) and time.sleep(600)')
    model = write(tmp_path / "a.onnx", encoder=gru())
    folder = tmp_path / "temporary"
    folder.mkdir()
    target = tmp_path / "out" / "b.onnx"
    target.parent.mkdir()
    # A shell that runs this in the background has its children ignore interrupts.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{heard}; from rnnconvert.cli.main import main; main()"
    words = ["convert", str(model), str(target), "--verify", "--on", "own"]
    child = subprocess.Popen([sys.executable, "-c", script, *words], env={**os.environ, "TMPDIR": str(folder)}, stderr=subprocess.PIPE)
    for _ in range(600):
        time.sleep(0.1)
        if pid.is_file() and pid.read_text():
            break
    worker = int(pid.read_text())
    child.send_signal(sent)
    try:
        _, errors = child.communicate(timeout=20)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 130
    assert b"interrupted" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert list(folder.iterdir()) == []
    assert list(target.parent.iterdir()) == []
