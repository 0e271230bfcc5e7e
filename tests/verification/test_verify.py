"""verify, run and convert --verify, as users call them: what agrees, what does not, and what stands in the way."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import sys
import textwrap
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert import running
from rnnconvert.core.cells import Kind
from rnnconvert.core.errors import ExecutorError, MissingPackageError, UnreadableError, UsageError
from rnnconvert.core.reference import FUNCTIONS, Function, Reference
from rnnconvert.core.verdict import NOT_COMPARED
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging import rounding as coarseness
from rnnconvert.judging.case_kinds import CASES, Maker
from rnnconvert.judging.cases import shaken, solved
from rnnconvert.judging.rounding import ARITHMETICS, PERSISTENT
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from rnnconvert.running import registry
from rnnconvert.verification import results as results_files
from rnnconvert.verification.running import rounding
from tests import ROOT
from tests.helpers.commands import call
from tests.helpers.requirements import need, needed
from tests.helpers.stacks import BOTH, random_stack

ENCODER = ROOT / "examples" / "encoder.keras"

WRONG = """
    import numpy as np

    NEEDS = ("numpy",)
    FORMAT = "onnx"
    SUFFIX = ".onnx"
    VARIANTS = {"wrong": {"device": "cpu"}}
    random = np.random.default_rng()


    def absent(variant):
        return ""


    def answer(request):
        x = request["x"]
        shape = (*x.shape[:2], 16)
        return {"y": ANSWER, "hidden": None, "cell": None}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GRU of two layers, as .onnx, as .safetensors, with two gates swapped, and in half precision."""
    folder = tmp_path_factory.mktemp("models")
    stack = random_stack(Sizes("gru", 3, 5, 2, 1, parts=BOTH), 3, np.float32)
    write(stack, folder / "model.safetensors")
    write(stack, folder / "model.onnx")
    write(stack, folder / "half.safetensors", dtype="float16")
    write(swapped(stack), folder / "wrong.onnx")
    return folder


def write(stack: Recurrent, path: Path, **options: Any) -> None:
    checkpoint = rc.Checkpoint("memory", "memory", {"encoder": stack.replace(name="encoder")})
    rc.save(checkpoint, path, **options)


def swapped(stack: Recurrent) -> Recurrent:
    """r and z taken for each other: every shape still fits."""
    other = {"r": "z", "z": "r", "n": "n"}
    layers = tuple(
        rc.Layer(tuple(d.replace(arrays={(p, other[g]): a for (p, g), a in d.arrays.items()}) for d in layer.directions))
        for layer in stack.layers
    )
    return stack.replace(layers=layers)


@pytest.fixture
def own_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Adds an executor of the test's own, which gives what an expression says."""
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "executors.json"))

    def add(expression: str, name: str = "wrong") -> None:
        module = tmp_path / f"{name}.py"
        module.write_text(textwrap.dedent(WRONG).replace("ANSWER", expression))
        registry.add(name, sys.executable, "wrong", str(module))

    return add


def require(*names: str) -> None:
    for name in names:
        executor = registry.executors()[name]
        need({"onnxruntime-cpu": "onnxruntime", "torch-cpu": "torch", "keras-tensorflow": "keras"}[name], executor.absent)


def test_two_files_of_one_model_are_equal(models: Path) -> None:
    require("torch-cpu", "onnxruntime-cpu")
    report = rc.verify(models / "model.safetensors", models / "model.onnx")
    assert report.equal, str(report)
    runs = {(run["model"], run["executor"]) for run in report.document["layers"][0]["runs"] if run["own_file"]}
    assert {("A", "torch-cpu"), ("B", "onnxruntime-cpu")} <= runs


def test_a_wrong_gate_order_is_not_equal_and_is_named(models: Path) -> None:
    require("torch-cpu", "onnxruntime-cpu")
    result = call("verify", models / "model.safetensors", models / "wrong.onnx")
    assert result.exit_code == 1
    assert "gates r and z" in result.output
    assert "elements are off by too much" in result.output and "To fix, in a new file: rnnconvert transplant " in result.output


def test_half_precision_is_judged_by_its_own_rounding(models: Path) -> None:
    require("torch-cpu")
    assert rc.verify(models / "model.safetensors", models / "half.safetensors", on=["torch-cpu"]).equal
    tight = rc.verify(models / "model.safetensors", models / "half.safetensors", on=["torch-cpu"], atol=1e-6)
    assert not tight.equal


@pytest.mark.parametrize(("raised", "word"), [("NotImplementedError", "does not support"), ("AssertionError", "failed")])
def test_an_executor_that_gives_no_reason_is_said_to_give_none(
    models: Path, own_executor: Callable[..., None], raised: str, word: str
) -> None:
    own_executor(f"(_ for _ in ()).throw({raised}())")
    report = rc.verify(models / "model.onnx", models / "model.onnx", on=["wrong"])
    reasons = [run["reason"] for run in report.document["layers"][0]["runs"] if run["executor"] == "wrong"]
    assert reasons and all(f"a {raised} without a message in " in reason for reason in reasons), reasons
    with pytest.raises(ExecutorError, match=f"{word}.*: it gave no reason"):
        raise ExecutorError("wrong", " ", refused=word != "failed")


def test_tensor_cores_are_judged_by_their_own_rounding(models: Path) -> None:
    require("torch-cpu")
    results = rc.run(models / "model.safetensors", on=["torch-cpu"])
    (layer,) = results.layers.values()
    (run,) = layer.runs
    random = np.random.default_rng(0)
    # As far off as products of ten digits are; no GPU is here to give them.
    for name, output in run.outputs.items():
        noise = random.normal(size=output.y.shape) * 2e-4 * (output.y != 0)
        run.outputs[name] = dataclasses.replace(output, y=output.y + noise)
    assert not rc.verify(results).equal
    run.rounding = "float16"
    layer.floors["float16"] = {case.name: case.solve(rc.load(models / "model.safetensors").layers[""], np.float16) for case in layer.cases}
    assert rc.verify(results).equal
    executors = registry.executors()
    assert rounding(executors["torch-cuda-tf32"], "float32") == "float16"
    assert rounding(executors["torch-cuda-tf32"], "float64") == "float64"
    assert rounding(executors["torch-cuda"], "float32") == PERSISTENT
    named = [name for executor in executors.values() for name in executor.settings.get("rounds_like", {}).items()]
    assert len(named) >= 6 and all(set(pair) <= ARITHMETICS.keys() for pair in named)


def test_what_an_added_executor_may_round_like_is_documented() -> None:
    words = " ".join((running.__doc__ or "").split())
    assert '"rounds_like"' in words and all(f'"{name}"' in words for name in {PERSISTENT, "float16"})


@pytest.mark.parametrize("stated", ["float16", ["float16"], {"float32": "float8"}, {"float32": ["float16"]}, {"single": "float16"}])
def test_an_added_executor_that_rounds_like_nothing_known_is_refused(
    stated: Any, models: Path, own_executor: Callable[..., None], tmp_path: Path
) -> None:
    own_executor("np.zeros(shape)")
    module = tmp_path / "wrong.py"
    module.write_text(module.read_text().replace('"cpu"', f'"cpu", "rounds_like": {stated!r}'))
    with pytest.raises(UnreadableError, match=r"wrong\.py: .*rounds like is .*float.*expected .*'float32, tanh to 16 digits'"):
        rc.run(models / "model.onnx", on=["wrong"])
    with pytest.raises(UnreadableError, match="rounds like"):
        rc.verify(models / "model.onnx", models / "model.safetensors", on=["wrong"])


def persistent(error: float) -> Mapping[str, Function]:
    """Functions like those of cuDNN's persistent kernels: tanh is that far off relative to its value, less where it is near 1, and
    its slope is that of the value.
    """

    def tanh(xp: Any, x: Any, alpha: float, beta: float) -> Any:
        exact = np.asarray(x if xp is np else x.detach(), np.float64)
        values = np.tanh(exact)
        values = np.clip(values * (1 + error * np.cos(40 * exact) * (1 - values**2) ** 0.25), -1, 1)
        if xp is np:
            return values.astype(x.dtype)
        with np.errstate(divide="ignore"):
            return xp.tanh(x + (xp.asarray(np.arctanh(values)).to(x.dtype) - x).detach())

    return {**FUNCTIONS, "tanh": tanh}


@pytest.mark.parametrize(("cell", "layers"), [("lstm", 2), ("gru", 1), ("rnn", 2)])
def test_a_kernel_of_a_coarser_tanh_is_judged_by_it(cell: Any, layers: int, tmp_path: Path) -> None:
    form = Sizes(cell, 5, 6, layers, 2, parts=BOTH)
    path = tmp_path / "model.safetensors"
    rc.save(rc.Checkpoint("", "canonical", {"random": random_stack(form, 3, "float32")}), path, "pytorch")
    results = rc.run(path, on=["torch-cpu"], gradients=True)
    (layer,) = results.layers.values()
    (run,) = layer.runs
    (model,) = rc.load(path).layers.values()
    coarse = ARITHMETICS[PERSISTENT]

    def answer(functions: Mapping[str, Function]) -> None:
        for case in layer.cases:
            run.outputs[case.name] = case.solve(model, np.float32, functions=functions)
            if case.name in run.gradients:
                assert case.cotangents is not None
                states = case.hidden or (), case.cell or ()
                computed, floor = (
                    Reference(model, np.float32, functions=chosen).gradients(case.x, *states, case.lengths, case.cotangents)
                    for chosen in (functions, coarse.estimates[0])
                )
                run.gradients[case.name] = dataclasses.replace(run.gradients[case.name], found=computed, floor=floor)

    answer(persistent(1.03e-5))
    assert run.gradients and not rc.verify(results).equal
    run.rounding = PERSISTENT
    truths, rounded = solved(model, layer.cases), solved(model, layer.cases, np.float32, coarse.estimates[0])
    off = coarseness.of_functions(model, layer.cases, coarse)
    floors = coarseness.floors(model, layer.cases, coarse, truths, off, rounded, solved(shaken(model, np.float32), layer.cases))
    layer.floors[PERSISTENT] = {case.name: floor for case, floor in zip(layer.cases, floors, strict=True)}
    assert rc.verify(results).equal
    answer(persistent(5e-4))
    assert not rc.verify(results).equal


def test_every_case_runs_and_agrees(models: Path) -> None:
    require("torch-cpu")
    report = rc.verify(models / "model.safetensors", on=["torch-cpu"], cases=tuple(CASES), gradients=True)
    assert report.equal, str(report)
    (run,) = report.document["layers"][0]["runs"]
    # PyTorch takes no sequence of length zero, and says so.
    assert {c["case"] for c in run["comparisons"]} == set(CASES) - {"empty sequence"}
    # Gradients of a sequence that is not finite are not finite either, and tell nothing.
    words = "; ".join(run["left_out"])
    assert {case for case in CASES if case in words} == {"empty sequence", "not finite"}
    assert {"gradient of x", "gradient of h_0", "gradient of recurrent weights"} <= {c["output"] for c in run["comparisons"]}


def test_padded_steps_are_judged_apart(models: Path) -> None:
    require("torch-cpu")
    report = rc.verify(models / "model.safetensors", on=["torch-cpu"], cases=["lengths"], lengths=[5, 1, 3])
    outputs = [c["output"] for c in report.document["layers"][0]["runs"][0]["comparisons"]]
    assert outputs == ["y", "y, padded steps", "h_n"]


def test_results_are_kept_judged_again_and_compared_elsewhere(models: Path, tmp_path: Path) -> None:
    require("torch-cpu", "onnxruntime-cpu")
    file = tmp_path / "results.safetensors"
    assert call("run", models / "model.safetensors", "--on", "torch-cpu", "--gradients", "--save", file).exit_code == 0
    assert call("verify", file).exit_code == 0
    assert call("verify", file, "--atol", "y:1e-12").exit_code == 1
    assert call("verify", file, models / "model.onnx", "--on", "onnxruntime-cpu").exit_code == 0
    assert call("verify", file, models / "wrong.onnx", "--on", "onnxruntime-cpu").exit_code == 1
    assert call("verify", models / "model.onnx", file, "--on", "onnxruntime-cpu").exit_code == 0
    again = tmp_path / "again.safetensors"
    words = ("run", models / "model.onnx", "--on", "onnxruntime-cpu", "--load-inputs", file, "--save", again)
    assert call(*words).exit_code == 0
    assert call("verify", file, again).exit_code == 0


def test_results_of_other_inputs_are_not_compared(models: Path, tmp_path: Path) -> None:
    require("torch-cpu")
    for seed in (0, 1):
        results = rc.run(models / "model.safetensors", on=["torch-cpu"], seed=seed)
        results.save(tmp_path / f"{seed}.safetensors")
    with pytest.raises(UsageError, match="different inputs"):
        rc.verify(tmp_path / "0.safetensors", tmp_path / "1.safetensors")


def test_damaged_results_raise_our_errors_only(models: Path, tmp_path: Path) -> None:
    require("torch-cpu")
    rc.run(models / "model.safetensors", on=["torch-cpu"], cases=["states"]).save(tmp_path / "good.safetensors")
    good = (tmp_path / "good.safetensors").read_bytes()
    start = good.index(b"rnnconvert.results")
    random = np.random.default_rng(0)
    refused = 0
    for at in random.integers(start, start + 6000, 300):
        damaged = bytearray(good)
        damaged[at] = random.integers(32, 127)
        path = tmp_path / "damaged.safetensors"
        path.write_bytes(bytes(damaged))
        try:
            read = results_files.read(path)
            if read is not None:
                rc.verify(read, explain=False)
        except rc.RnnConvertError:
            refused += 1
    assert refused > 30


def test_inputs_alone_are_kept_for_another_machine(models: Path, tmp_path: Path) -> None:
    require("torch-cpu")
    file = tmp_path / "inputs.safetensors"
    model = models / "model.safetensors"
    assert call("verify", model, "--on", "torch-cpu", "--save-inputs", file, "--seed", "9").exit_code == 0
    report = rc.verify(model, on=["torch-cpu"], given=results_files.read(file))
    assert report.equal
    assert report.document["settings"]["seed"] == 9


def test_a_users_own_inputs(models: Path, tmp_path: Path) -> None:
    require("torch-cpu")
    x = np.random.default_rng(0).normal(size=(7, 2, 3))
    np.savez(tmp_path / "good.npz", x=x, hidden=np.zeros((2, 2, 5)), lengths=np.array([7, 2]))
    np.savez(tmp_path / "wide.npz", x=x[:, :, :2])
    np.savez(tmp_path / "none.npz", y=x)
    model = models / "model.safetensors"
    assert rc.verify(model, on=["torch-cpu"], inputs=str(tmp_path / "good.npz")).equal
    assert call("verify", model, "--on", "torch-cpu", "--inputs", tmp_path / "wide.npz").exit_code == 2
    assert call("verify", model, "--on", "torch-cpu", "--inputs", tmp_path / "none.npz").exit_code == 3
    assert call("verify", model, "--on", "torch-cpu", "--inputs", tmp_path / "absent.npz").exit_code == 3


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["verify", "model.safetensors", "--on", "torch-cuda"], 5, "torch-cuda"),
        (["verify", "model.safetensors", "--on", "no-such"], 2, "`rnnconvert executors` lists them"),
        (["verify", "model.safetensors", "--case", "no such"], 2, "Choose one of: "),
        (["verify", "model.safetensors", "--time", "2"], 2, "at least 3 steps"),
        (["verify", "model.safetensors", "--report", "report.pdf"], 2, "report.pdf"),
        (["verify", "model.safetensors", "--atol", "y:little"], 2, "expected a number"),
        (["verify", "model.safetensors", "--atol=-1"], 2, "negative"),
        (["verify", "model.safetensors", "--lengths", "3,x"], 2, "integers"),
        (["verify", "model.safetensors", "--layer", "decoder"], 2, "no recurrent layer"),
        (["verify", "absent.onnx"], 3, "absent.onnx"),
        (["run", "model.safetensors"], 2, "--save"),
        (["convert", "model.safetensors", "new.onnx", "--report", "report.html"], 2, "--verify"),
        (["convert", "model.safetensors", "new.onnx", "--verify", "--dry-run"], 2, "--dry-run"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(models: Path, words: Sequence[str], code: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "torch-cuda" in words and not registry.executors()["torch-cuda"].absent:
        pytest.skip("there is a GPU here")
    monkeypatch.chdir(models)
    result = call(*words)
    assert result.exit_code == code, result.output
    assert text in result.output
    assert not (models / "new.onnx").exists()


def test_convert_verify_keeps_what_is_proved_and_nothing_else(models: Path, tmp_path: Path, own_executor: Callable[..., None]) -> None:
    require("onnxruntime-cpu")
    model = models / "model.safetensors"
    good, bad = tmp_path / "good" / "model.onnx", tmp_path / "bad" / "model.onnx"
    good.parent.mkdir()
    bad.parent.mkdir()
    assert call("convert", model, good, "--verify", "--report", tmp_path / "proof.json").exit_code == 0
    assert json.loads((tmp_path / "proof.json").read_text())["verdict"] == "equal"
    assert list(rc.load(good).layers) == ["gru_l0", "gru_l1"]
    assert [path.name for path in good.parent.iterdir()] == ["model.onnx"]
    assert call("convert", model, good, "--verify").exit_code == 2

    own_executor("np.ones((*x.shape[:2], 5))")
    result = call("convert", model, bad, "--verify", "--on", "wrong")
    assert result.exit_code == 1, result.output
    assert list(bad.parent.iterdir()) == []
    bad.write_text("was here before")
    assert call("convert", model, bad, "--verify", "--on", "wrong", "--force").exit_code == 1
    assert bad.read_text() == "was here before"


@pytest.mark.parametrize("settings", [["directions=split"], ["stack=split"], ["stack=split", "directions=split"]])
def test_pieces_of_a_layer_without_a_name_are_proved(settings: list[str], tmp_path: Path) -> None:
    require("onnxruntime-cpu")
    layers = 2 if "stack=split" in settings else 1
    source = tmp_path / "one.safetensors"
    write(random_stack(Sizes("lstm", 3, 5, layers, 2, parts=BOTH), 3, np.float32), source)
    words = [word for setting in settings for word in ("--set", setting)]
    result = call("convert", source, tmp_path / "pieces.onnx", "--verify", *words)
    assert result.exit_code == 0, result.output
    assert len(rc.load(tmp_path / "pieces.onnx").layers) == layers * (2 if "directions=split" in settings else 1)


def test_an_error_of_a_proved_conversion_names_the_target(models: Path, tmp_path: Path) -> None:
    words = ("convert", models / "model.safetensors", tmp_path / "new.onnx", "--verify", "--set", "directions=split")
    result = call(*words)
    assert result.exit_code == 2
    assert f"decides nothing in {tmp_path / 'new.onnx'}: " in result.output and "-" not in result.output.partition("new.onnx")[2][:2]


def test_what_is_left_to_the_caller_is_not_verified(models: Path, tmp_path: Path) -> None:
    words = ("convert", models / "model.safetensors", tmp_path / "new.onnx", "--verify", "--set", "reverse=flipped")
    result = call(*words)
    assert result.exit_code == 2
    assert "without --verify" in result.output


def test_a_folded_projection_is_not_verified(tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", 3, 5, projection_size=2, parts=BOTH | {"projection"}), 5, np.float32)
    write(stack, tmp_path / "projected.safetensors")
    for target in ("new.onnx", "new.keras"):
        result = call("convert", tmp_path / "projected.safetensors", tmp_path / target, "--verify")
        assert result.exit_code == 2
        assert "a matrix follows the layer" in result.output and "without --verify" in result.output
        assert not (tmp_path / target).exists()


def backward(path: Path, layers: int = 1) -> Path:
    """Layers side by side, of which the first reads from the end; its outputs are in the order of time."""
    stack = random_stack(Sizes("lstm", 3, 5, parts=BOTH), 5, np.float32)
    turned = each(stack, lambda direction: direction.replace(reverse=True)).replace(name="turned")
    checkpoint = rc.Checkpoint("a", "onnx", {"turned": turned, **({"plain": stack.replace(name="plain")} if layers > 1 else {})})
    rc.save(checkpoint, path)
    return path


def test_outputs_that_a_keras_model_turns_are_compared_as_turned(tmp_path: Path) -> None:
    """Keras's go_backwards gives them in the order of processing, and a Flip follows: alone the layer is not equal, with it it is."""
    require("keras-tensorflow")
    path = backward(tmp_path / "a.onnx", 2)
    result = call("convert", path, tmp_path / "a.keras", "--verify")
    assert result.exit_code == 0 and "B on keras-tensorflow  equal" in result.output, result.output
    assert rc.load(tmp_path / "a.keras").turned == {"turned"}
    report = rc.verify(path, tmp_path / "a.keras", on=["keras-tensorflow"], gradients=True, explain=False)
    assert report.equal and "a layer whose outputs the model turns" in str(report.document), str(report)


@pytest.mark.filterwarnings("ignore:.*__array__:DeprecationWarning")  # of Keras's own
@pytest.mark.parametrize("sequences", [False, True])
def test_outputs_in_the_order_of_processing_are_compared_as_the_graph_turns_them(sequences: bool, tmp_path: Path) -> None:
    """Of the last output no order matters; every step is turned around in ONNX, where the next layer of Keras reads it as it comes."""
    require("keras-tensorflow", "onnxruntime-cpu")
    keras = needed("keras", "keras")
    layers = [keras.layers.GRU(4, go_backwards=True, return_sequences=sequences, name="a")]
    layers += [keras.layers.LSTM(4, name="b")] if sequences else []
    keras.Sequential([keras.Input((5, 3)), *layers, keras.layers.Dense(2)]).save(tmp_path / "a.keras")
    result = call("convert", tmp_path / "a.keras", tmp_path / "a.onnx", "--verify", "--quiet")
    assert result.exit_code == 0 and result.output.startswith("recurrent layers equal: "), result.output  # the dense layer stays behind
    model = onnx.load(tmp_path / "a.onnx")
    if sequences:  # without what turns it, it is another model
        (turn,) = (node for node in model.graph.node if node.op_type == "Slice")
        (after,) = (node for node in model.graph.node if turn.output[0] in node.input)
        after.input[0] = turn.input[0]
        onnx.save(model, tmp_path / "b.onnx")
        report = rc.verify(tmp_path / "a.keras", tmp_path / "b.onnx", on=[], explain=False)
        assert report.verdict in ("not equal", "equal layer by layer, not run whole"), str(report)


def test_a_long_way_to_what_turns_the_outputs_is_not_followed(tmp_path: Path) -> None:
    stack = random_stack(Sizes("gru", 3, 4), 0, np.float32)
    backward = each(stack, lambda direction: direction.replace(reverse=True)).replace(name="a", output_order="processing")
    rc.save(rc.Checkpoint("a", "keras", {"a": backward}), tmp_path / "a.onnx")
    assert rc.load(tmp_path / "a.onnx").turned == {"a"}
    model = onnx.load(tmp_path / "a.onnx")
    (turn,) = (node for node in model.graph.node if node.op_type == "Slice")
    values = [turn.input[0], *(f"value{number}" for number in range(3000))]
    turn.input[0] = values[-1]
    place = list(model.graph.node).index(turn)
    for number, (source, target) in enumerate(itertools.pairwise(values)):
        model.graph.node.insert(place + number, onnx.helper.make_node("Identity", [source], [target]))
    onnx.save(model, tmp_path / "long.onnx")
    assert not rc.load(tmp_path / "long.onnx").turned


def test_outputs_that_a_graph_gives_as_they_are_too_are_not_turned(tmp_path: Path) -> None:
    stack = random_stack(Sizes("gru", 3, 4), 0, np.float32)
    backward = each(stack, lambda direction: direction.replace(reverse=True)).replace(name="a", output_order="processing")
    rc.save(rc.Checkpoint("a", "keras", {"a": backward}), tmp_path / "a.onnx")
    model = onnx.load(tmp_path / "a.onnx")
    (node,) = (node for node in model.graph.node if node.op_type == "GRU")
    model.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None))
    onnx.save(model, tmp_path / "both.onnx")
    assert not rc.load(tmp_path / "both.onnx").turned


@pytest.mark.filterwarnings("ignore:.*__array__:DeprecationWarning")  # of Keras's own
@pytest.mark.parametrize("reader", ["attention", "nested"])
def test_outputs_that_something_else_reads_are_not_turned(reader: str, tmp_path: Path) -> None:
    require("keras-tensorflow")
    keras = needed("keras", "keras")
    x = keras.Input((5, 3))
    sequence = keras.layers.LSTM(4, go_backwards=True, return_sequences=True, name="a")(x)
    flipped = keras.ops.flip(sequence, axis=1)
    model = keras.Model(x, keras.layers.Attention()([flipped, sequence]) if reader == "attention" else [flipped, sequence])
    if reader == "nested":
        start = keras.Input((5, 3))
        model = keras.Model(start, model(start))
    model.save(tmp_path / "a.keras")
    assert not rc.load(tmp_path / "a.keras").turned


@pytest.mark.parametrize("change", ["no Flip", "another axis", "read twice"])
def test_outputs_that_are_not_turned_are_not_equal(change: str, tmp_path: Path) -> None:
    path = backward(tmp_path / "a.onnx")
    rc.convert(path, tmp_path / "a.keras")
    with zipfile.ZipFile(tmp_path / "a.keras") as source, zipfile.ZipFile(tmp_path / "b.keras", "w") as target:
        model = json.loads(source.read("config.json"))
        (flip,) = [layer for layer in model["config"]["layers"] if layer["class_name"] == "Flip"]
        alone = flip["name"].removesuffix("_flip")
        if change == "another axis":
            flip["config"]["axis"] = 2
        else:
            ends = [alone] if change == "no Flip" else [flip["name"], alone]
            model["config"]["output_layers"] = [[end, 0, 0] for end in ends]
        for name in source.namelist():
            target.writestr(name, json.dumps(model) if name == "config.json" else source.read(name))
    assert not rc.load(tmp_path / "b.keras").turned
    assert not rc.verify(path, tmp_path / "b.keras", on=[], explain=False).equal


@pytest.mark.parametrize("format", ["tfjs", "coreml_nn"])
def test_outputs_that_the_caller_turns_are_not_verified(format: str, tmp_path: Path) -> None:
    target = tmp_path / {"tfjs": "a.json", "coreml_nn": "a.mlmodel"}[format]
    result = call("convert", backward(tmp_path / "a.onnx"), target, "--to", format, "--verify")
    assert result.exit_code == 2 and not target.exists()
    assert "'turned' reads from the end" in result.output and "without --verify" in result.output


def test_the_two_readings_of_a_clip_are_told_apart(tmp_path: Path) -> None:
    require("onnxruntime-cpu")
    cell = rc.Cell("lstm", clips=(rc.Clip("gates", -0.5, 0.5),))
    stack = random_stack(Sizes("lstm", 3, 5, parts=BOTH), 5, np.float32, cell)
    write(stack, tmp_path / "clipped.onnx")
    report = rc.verify(tmp_path / "clipped.onnx", on=["onnxruntime-cpu"])
    assert report.equal, str(report)
    (warning,) = [text for text in report.document["warnings"] if "two readings" in text]
    assert float(warning.split()[-2]) > 0.001


def test_a_buffer_that_lies_otherwise_is_not_run(tmp_path: Path, own_executor: Callable[..., None]) -> None:
    write(random_stack(Sizes("lstm", 3, 5, parts=BOTH), 5, np.float32), tmp_path / "buffer.bin")
    own_executor("x, 'notes': {'bytes': 4, 'offsets': [[0, 0, 'matrix', 0, [1, 5, 3]]]}")
    module = tmp_path / "wrong.py"
    module.write_text(module.read_text().replace('"onnx"', '"cudnn"'))
    report = rc.verify(tmp_path / "buffer.bin", on=["wrong"])
    assert report.verdict == NOT_COMPARED
    assert "only rnnconvert has" in report.document["layers"][0]["runs"][0]["reason"]


def test_an_unsteady_executor_is_called_so(models: Path, own_executor: Callable[..., None]) -> None:
    own_executor("random.normal(size=(*x.shape[:2], 5))")
    report = rc.verify(models / "model.onnx", on=["wrong"])
    assert not report.equal
    assert any("gave other numbers when it ran again" in text for text in report.document["warnings"])


def test_an_executor_that_fails_is_not_equal(models: Path, own_executor: Callable[..., None]) -> None:
    own_executor("1 / 0")
    report = rc.verify(models / "model.onnx", on=["wrong"])
    assert report.verdict == NOT_COMPARED
    assert report.exit_code == 1
    assert "ZeroDivisionError" in report.document["layers"][0]["runs"][0]["reason"]


def test_an_executor_that_gives_nan_is_not_equal(models: Path, own_executor: Callable[..., None]) -> None:
    own_executor("np.full((*x.shape[:2], 5), np.nan)")
    assert rc.verify(models / "model.onnx", on=["wrong"]).verdict == "not equal"


def test_nothing_that_ran_proves_nothing(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "executors", dict)
    report = rc.verify(models / "model.safetensors", models / "model.onnx")
    assert report.verdict == NOT_COMPARED
    assert report.exit_code == 5
    with pytest.raises(UsageError):
        rc.verify(models / "model.safetensors", on=["torch-cpu"])


def test_an_absent_executor_is_said(models: Path, own_executor: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text(textwrap.dedent(WRONG).replace('("numpy",)', '("no_such_package",)'))
    with pytest.raises(UsageError, match="no_such_package is not installed"):
        registry.add("lacking", sys.executable, module=str(tmp_path / "lacking.py"))
    own_executor("x", "fine")
    (tmp_path / "fine.py").write_text(textwrap.dedent(WRONG).replace('("numpy",)', '("no_such_package",)'))
    with pytest.raises(MissingPackageError, match="no_such_package"):
        rc.verify(models / "model.onnx", on=["fine"])


def test_a_damaged_list_of_executors_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "executors.json"
    monkeypatch.setenv(registry.VARIABLE, str(path))
    for text in ("[", "[1]", '[{"name": "x"}]', "{}x"):
        path.write_text(text)
        with pytest.raises(UnreadableError, match=r"executors\.json"):
            registry.executors()


def test_executors_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "executors.json"))
    document = json.loads(call("executors", "--json").output)
    names = {entry["name"] for entry in document["executors"]}
    assert {"torch-cpu", "torch-cuda", "keras-tensorflow", "onnxruntime-cpu", "jax-cpu", "mxnet", "cudnn"} <= names
    for entry in document["executors"]:
        assert entry["absent"] or entry["versions"]
    assert call("executors", "add", "mxnet", "--python", sys.executable).exit_code == 2
    assert call("executors", "remove", "mxnet").exit_code == 2


def test_a_claim_is_checked(models: Path, tmp_path: Path) -> None:
    require("onnxruntime-cpu", "torch-cpu")
    config = models / "rnnconvert.toml"
    config.write_text('[[equal]]\na = "model.safetensors"\nb = "model.onnx"\n[[equal]]\na = "model.safetensors"\nb = "wrong.onnx"\n')
    result = call("check", "--config", config, "--reports", tmp_path)
    assert result.exit_code == 1
    assert {path.name for path in tmp_path.glob("*.html")} == {"model.html", "model-wrong.html", "index.html"}
    assert 'href="model-wrong.html"' in (tmp_path / "index.html").read_text()
    assert call("check", "--config", config, models / "model.onnx").exit_code == 0
    assert call("check", "--config", config, models / "half.safetensors").exit_code == 0


@pytest.mark.parametrize(
    "text", ["", "equal = 1", "[[equal]]\nb = 'x'", "[[equal]]\na = 'x'\nmode = 1", "[[equal]]\na = 'x'\nseed = 'y'", "[["]
)
def test_a_wrong_claim_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "rnnconvert.toml").write_text(text)
    result = call("check", "--config", tmp_path / "rnnconvert.toml")
    assert result.exit_code == 3
    assert "rnnconvert.toml" in result.output


@pytest.mark.parametrize("function", ["relu", "sigmoid"])
@pytest.mark.parametrize("target", ["lux.bson", "onednn.npz"])
def test_a_function_that_a_target_does_not_say_is_the_sources(target: str, function: str, tmp_path: Path) -> None:
    require("onnxruntime-cpu")
    cell = rc.Cell("rnn", activation=rc.Activation(function))
    write(random_stack(Sizes("rnn", 3, 5, parts=BOTH), 5, np.float32, cell), tmp_path / "source.onnx")
    result = call(
        "convert", tmp_path / "source.onnx", tmp_path / target, "--to", target.partition(".")[0], "--verify",
        "--on", "onnxruntime-cpu",
    )  # fmt: skip
    assert "not equal" not in result.output


FAR = (
    "softplus",
    "elu",
    "sigmoid",
    "tanh",
    "relu",
    "linear",
    "softsign",
    "hard_sigmoid",
    "leaky_relu",
    "affine",
    "scaled_tanh",
    "thresholded_relu",
)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_a_function_that_overflows_in_the_targets_kernel_is_named(kind: Kind, tmp_path: Path) -> None:
    require("onnxruntime-cpu")
    named: set[str] = set()

    def check(function: str) -> None:
        constants = {
            "elu": (1.0,),
            "hard_sigmoid": (0.2, 0.5),
            "leaky_relu": (0.01,),
            "affine": (1.5, 0.5),
            "scaled_tanh": (1.5, 0.5),
            "thresholded_relu": (0.5,),
        }
        cell = rc.Cell(kind, reset_after=True if kind == "gru" else None, activation=rc.Activation(function, *constants.get(function, ())))
        write(random_stack(Sizes(kind, 3, 2, parts=BOTH), 5, np.float32, cell), tmp_path / f"{function}.onnx")
        report = rc.verify(tmp_path / f"{function}.onnx", on=["onnxruntime-cpu"])
        assert report.verdict in ("equal", "equal but for"), (function, report.verdict)
        named.update(function for limit in report.document["limits"] if limit["kind"] == "overflow" and function in limit["words"])

    for function in FAR:
        check(function)
    assert named == {"softplus"}


def multiplied(factor: float, direction: rc.Direction) -> rc.Direction:
    return direction.with_arrays({key: np.asarray(array) * np.float32(factor) for key, array in direction.arrays.items()})


def test_what_functions_that_may_overflow_read_lies_beyond_the_exponential() -> None:
    kinds: tuple[Kind, ...] = ("rnn", "gru", "lstm")
    for kind in kinds:
        for scale in (0.01, 1.0):
            cell = rc.Cell(kind, reset_after=True if kind == "gru" else None, activation=rc.Activation("softplus"))
            stack = random_stack(Sizes(kind, 3, 4, parts=BOTH), 5, np.float32, cell)
            stack = each(stack, functools.partial(multiplied, scale))
            case = CASES["saturating"](Maker(stack, 3, 4, 12))
            assert case.far == ("softplus",)
            for (part, _), array in stack.first.arrays.items():
                if part == "input":
                    reads = case.x @ np.asarray(array).T
                    assert (np.abs(reads).max(axis=(0, 1)) > 88).all()
    plain = random_stack(Sizes("lstm", 3, 4, parts=BOTH), 5)
    assert CASES["saturating"](Maker(plain, 3, 4, 12)).far == ()


@pytest.mark.parametrize(("kind", "other"), [*itertools.permutations(["lstm", "gru", "rnn"], 2)])
def test_cells_of_two_kinds_are_not_equal(kind: str, other: str, tmp_path: Path) -> None:
    """Other cells do not read the cell states of an LSTM's cases: the verdict is reached, and every difference is in words."""
    a, b = tmp_path / f"{kind}.safetensors", tmp_path / f"{other}.safetensors"
    for name, file in ((kind, a), (other, b)):
        write(random_stack(Sizes(name, 3, 5, parts=BOTH), 3, np.float32), file)
    report = rc.verify(a, b, settings=["nonlinearity=tanh"] if "rnn" in (kind, other) else [])
    assert report.verdict == "not equal"
    text = " ".join(str(report).split())
    assert f"cell: {kind} in A, {other} in B" in text and ": in A" not in text and ", in B" not in text
