"""Whole models as programs of Core ML: coremltools loads them and computes their values, or they are refused by name."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.formats.coreml.package import NewWeights
from rnnconvert.scaffolding.inputs import drawn as inputs_drawn
from rnnconvert.scaffolding.sources import described_source
from tests.helpers import random_torch
from tests.helpers.coreml_evaluate import EQUATIONS, Program
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.onnx_graphs import GRAPHS, OPERATORS, RECURRENT, saved
from tests.helpers.random_models import fill
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:::")
OPERATIONS = {**GRAPHS, **OPERATORS, **{name: graph for name, graph in RECURRENT.items() if name != "a learned state"}}
REFUSED = {
    "pool, ceil": "beyond its input",
    "pool ceil stated": "beyond its input",
    "pool ceil average": "beyond its input",
    "pool dilated": "places apart",
    "gather elements of a part": "elements taken from a part",
}
"""What Core ML has no operation for, or none whose text says what it does."""

NOT_BACK = {"gather nd": "a matrix of lengths"}
"""What is written for Core ML, and not read from it."""


def written(source: Any, folder: Path, **options: Any) -> tuple[Program, rc.Exported]:
    """A package of a model, as coremltools loads it."""
    path = folder / "m.mlpackage"
    if path.is_dir():
        shutil.rmtree(path)
    done = rc.export_model(source, path, **options)
    return Program(path), done


def close(program: Program, inputs: Sequence[Any], truths: Sequence[Any]) -> None:
    for output, truth in zip(program(*inputs), truths, strict=True):
        assert output.shape == truth.shape
        np.testing.assert_allclose(output.astype(float), np.asarray(truth, float), rtol=1e-4, atol=1e-5)


def test_every_operation_is_computed_or_refused_by_name(tmp_path: Path) -> None:
    runtime = needed("onnxruntime", "onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4

    def check(name: str) -> None:
        source = saved(tmp_path / f"{name}.onnx", *OPERATIONS[name])
        if name in REFUSED:
            with pytest.raises(rc.RefusedError, match=REFUSED[name]):
                written(source, tmp_path)
            assert not (tmp_path / "m.mlpackage").exists()
            return
        program, _ = written(source, tmp_path)
        session = runtime.InferenceSession(source, options)
        for inputs in inputs_drawn(described_source(source).description):
            close(program, inputs, session.run(None, dict(zip([each.name for each in session.get_inputs()], inputs, strict=True))))
        assert program.computed["equations"] <= {*EQUATIONS, "while_loop"}

    each(drawn(OPERATIONS, 30, "operations of Core ML"), check)


@pytest.mark.parametrize("kind", ["pt", "pt2", "live"])
def test_modules_drawn_by_a_seed(tmp_path: Path, kind: str) -> None:
    torch = needed("torch", "torch")

    def check(seed: int) -> None:
        module, embeds = random_torch.module(seed, tmp_path)
        example = random_torch.inputs(embeds, 3, 12)
        source, options = tmp_path / f"{seed}.{kind}", {}
        if kind == "pt":
            torch.jit.script(module).save(str(source))
            options["axes"] = example.ndim
        elif kind == "pt2":
            torch.export.save(torch.export.export(module, (example,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}}), source)
        else:
            options["example"] = example
        try:
            program, _ = written(module if kind == "live" else source, tmp_path, **options)
        except rc.RefusedError as error:
            assert "a pool with windows beyond its input" in str(error), error
            raise NotComparedError(str(error)) from None
        x = random_torch.inputs(embeds, 2, 15 if kind == "pt" else 12)
        with torch.no_grad():
            y = module(x)
        close(program, [x.numpy()], [each.numpy() for each in (y if isinstance(y, tuple) else [y])])

    each(drawn(range(200), 4, f"modules {kind} for Core ML"), check)


def several(k: Any) -> Any:
    """A model of three inputs and six outputs, among them truths."""
    x, h, c = k.Input((None, 3), name="x"), k.Input((4,), name="h"), k.Input((4,), name="c")
    y, *states = k.layers.LSTM(4, return_sequences=True, return_state=True, name="first.deep")(x, initial_state=[h, c])
    gru = k.layers.GRU(4, name="second")(y, initial_state=states[0])
    both = k.layers.Bidirectional(k.layers.SimpleRNN(2, return_sequences=True), name="both")(y)
    model = k.Model([x, h, c], [k.layers.Dense(2)(y), *states, gru, both, k.ops.greater(gru, 0.1)])
    fill(model, 1)
    return model


def test_inputs_outputs_and_states(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    model = several(k)
    model.save(tmp_path / "m.keras")
    program, done = written(tmp_path / "m.keras", tmp_path)
    assert [text.partition(" ")[0] for text in done.inputs] == program.inputs == ["x", "h", "c"]
    assert [text.partition(" ")[0] for text in done.outputs] == [each.name for each in program.spec.description.output]
    random = np.random.default_rng(2)
    for batch, time in ((3, 6), (1, 1), (2, 17)):
        inputs = [random.normal(size=shape).astype(np.float32) for shape in ((batch, time, 3), (batch, 4), (batch, 4))]
        close(program, inputs, [k.ops.convert_to_numpy(y) for y in model(inputs)])
    types = [each.type.multiArrayType.dataType for each in program.spec.description.output]
    assert types == [65568] * 5 + [131104] and any("truths are features" in note for note in done.notes)
    kinds = {operation.name: operation.op_type for operation in program.main.operations}
    assert kinds["first_deep"] == "lstm" and kinds["second"] == "while_loop" and kinds["both_forward"] == kinds["both_backward"] == "rnn"
    assert any("Core ML runs on Apple's systems alone" in note for note in done.notes)


def test_its_layers_are_read_again(tmp_path: Path) -> None:
    """Its LSTM is an operation, its GRU a loop."""
    k = needed("keras", "keras")
    several(k).save(tmp_path / "m.keras")
    written(tmp_path / "m.keras", tmp_path)
    checkpoint, source = rc.load(tmp_path / "m.mlpackage"), rc.load(tmp_path / "m.keras")
    assert {*checkpoint.layers} == {"first_deep", "both_forward", "both_backward", "second"} and not checkpoint.unread
    for name, theirs in (("first_deep", "first.deep"), ("second", "second")):
        layer, their_layer = checkpoint.layers[name], source.layers[theirs]
        for gate in layer.cell.gates:
            for part in ("input", "recurrent"):
                np.testing.assert_array_equal(np.asarray(layer.first.arrays[part, gate]), np.asarray(their_layer.first.arrays[part, gate]))


def test_every_operation_there_and_back(tmp_path: Path) -> None:
    """Graphs as programs of Core ML, and these as ONNX again: both under onnxruntime."""
    runtime = needed("onnxruntime", "onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    types = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}

    def check(name: str) -> None:
        source = saved(tmp_path / f"{name}.onnx", *OPERATIONS[name])
        package, back = tmp_path / "m.mlpackage", tmp_path / "back.onnx"
        shutil.rmtree(package, ignore_errors=True)
        try:
            rc.export_model(source, package)
        except rc.RefusedError as error:
            raise NotComparedError(str(error)) from None
        if name in NOT_BACK:
            with pytest.raises(rc.RefusedError, match=NOT_BACK[name]):
                rc.export_model(package, back, force=True)
            return
        rc.export_model(package, back, force=True)
        first, second = (runtime.InferenceSession(each, options) for each in (source, back))
        for inputs in inputs_drawn(described_source(source).description):
            truths = first.run(None, dict(zip([each.name for each in first.get_inputs()], inputs, strict=True)))
            fed: dict[str, Any] = {each.name: np.asarray(x, types[each.type]) for each, x in zip(second.get_inputs(), inputs, strict=True)}
            for output, truth in zip(second.run(None, fed), truths, strict=True):
                assert output.shape == truth.shape
                np.testing.assert_allclose(output.astype(float), truth.astype(float), rtol=1e-4, atol=1e-5)

    each(drawn(OPERATIONS, 25, "operations of Core ML, there and back"), check)


def test_lengths_that_are_open_have_bounds(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    k.Sequential([k.Input((None, 2)), k.layers.Conv1D(3, 5), k.layers.GRU(3)]).save(tmp_path / "m.keras")
    program, done = written(tmp_path / "m.keras", tmp_path)
    (feature,) = program.spec.description.input
    stated = feature.type.multiArrayType
    assert [(each.lowerBound, each.upperBound) for each in stated.shapeRange.sizeRanges] == [(1, 64), (1, 4096), (2, 2)]
    assert stated.shape[0] == 1 and stated.shape[1] >= 5, "a length that the model takes is the one where nobody states another"
    assert "open axes: the first of at most 64, others of at most 4096" in done.notes
    k.Sequential([k.Input(batch_shape=(4, 7, 2)), k.layers.GRU(3)]).save(tmp_path / "m.keras")
    program, done = written(tmp_path / "m.keras", tmp_path)
    stated = program.spec.description.input[0].type.multiArrayType
    assert list(stated.shape) == [4, 7, 2] and not stated.shapeRange.sizeRanges and not any("open axes" in note for note in done.notes)


def test_weights_in_half(tmp_path: Path) -> None:
    """Each number is the nearest of float16, computed with in float32; an array beyond its end stays float32."""
    k = needed("keras", "keras")
    layers = [k.layers.LSTM(20, name="lstm"), k.layers.Dense(30, name="dense"), k.layers.Dense(2, name="large")]
    model = k.Sequential([k.Input((None, 3)), *layers])
    fill(model, 4)
    model.layers[-1].kernel.assign(model.layers[-1].kernel * 1e5)
    model.save(tmp_path / "m.keras")
    exact, plain = written(tmp_path / "m.keras", tmp_path)
    program, done = written(tmp_path / "m.keras", tmp_path, dtype="float16")
    assert done.size < 0.6 * plain.size and any("float16 ends at 65504: 'large/kernel'" in note for note in done.notes), done.notes
    halves = {operation.name: operation for operation in program.main.operations if operation.op_type == "constexpr_cast"}
    numbers = {operation.name: operation.outputs[0].val for operation in exact.main.operations if operation.op_type == "const"}
    assert {"lstm_weight_ih", "lstm_weight_hh", "dense_kernel"} <= {*halves} and "large_kernel" not in halves
    for name, operation in halves.items():
        np.testing.assert_array_equal(operation.source_val.val, numbers[name].astype(np.float16))
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    difference = np.abs(program(x)[0] - exact(x)[0]).max() / np.abs(exact(x)[0]).max()
    assert 0 < difference < 1e-2
    result = CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), str(tmp_path / "n.mlpackage"), "--dtype", "int8"])
    assert result.exit_code == 2 and "float16" in result.output and not (tmp_path / "n.mlpackage").exists()


REFUSALS = {
    "6 axes": lambda k: [k.layers.Reshape((2, 3, 3)), k.layers.UpSampling2D(2)],
    "stateful": lambda k: [k.layers.LSTM(3, stateful=True)],
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_core_ml_lacks_is_refused_by_name(tmp_path: Path, name: str) -> None:
    k = needed("keras", "keras")
    k.Sequential([k.Input(batch_shape=(2, 6, 3)), *REFUSALS[name](k)]).save(tmp_path / "m.keras")
    result = CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), str(tmp_path / "m.mlpackage")])
    assert result.exit_code == 4 and name in result.output and not (tmp_path / "m.mlpackage").exists(), result.output


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_package_is_never_replaced(tmp_path: Path, force: list[str]) -> None:
    k = needed("keras", "keras")
    k.Sequential([k.Input((None, 2)), k.layers.GRU(3)]).save(tmp_path / "m.keras")
    written(tmp_path / "m.keras", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), str(tmp_path / "m.mlpackage"), *force])
    assert result.exit_code == 2 and "Remove it first" in result.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    k = needed("keras", "keras")
    k.Sequential([k.Input((None, 2)), k.layers.GRU(3)]).save(tmp_path / "m.keras")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NewWeights, "write", full)
    result = CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), str(tmp_path / "m.mlpackage")])
    assert result.exit_code == 74 and "No space left" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["m.keras"]


def test_a_refused_conversion_names_the_export(tmp_path: Path) -> None:
    """PyTorch's GRU, for which Core ML has no operation, is a loop in a whole model."""
    k = needed("keras", "keras")
    source, target = tmp_path / "m.keras", tmp_path / "m.mlpackage"
    k.Sequential([k.Input((None, 2)), k.layers.GRU(3)]).save(source)
    result = CliRunner().invoke(main, ["convert", str(source), str(target)])
    assert result.exit_code == 4 and f"rnnconvert export {source} {target}\n" in result.output and not target.exists()


def test_nothing_runs_it_here(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    k.Sequential([k.Input((None, 2)), k.layers.GRU(3)]).save(tmp_path / "m.keras")
    result = CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), str(tmp_path / "m.mlpackage"), "--verify"])
    assert result.exit_code == 2 and "no executor runs coreml files whole" in result.output
    assert not (tmp_path / "m.mlpackage").exists()
