"""TFLite: real models of TFLite Micro give their outputs, and LiteRT runs what is written; its schema changes files for the rest."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU, Cell, Clip, Kind
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.formats.tflite import flatbuffer
from rnnconvert.formats.tflite import run as litert
from rnnconvert.formats.tflite.write import build
from rnnconvert.language.layout import Sizes
from rnnconvert.reports.findings import headline
from tests import ROOT
from tests.helpers import corpus
from tests.helpers.drawn import drawn, each
from tests.helpers.frameworks import judge, outputs
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need, needed
from tests.helpers.stacks import PLAIN, backwards, random_stack, random_states

INPUT = PLAIN | {"input_bias"}
X = np.random.default_rng(1).uniform(-1, 1, (6, 2, 3)).astype(np.float32)


def file_of(path: Path, stack: Recurrent, **options: Any) -> Path:
    rc.save(Checkpoint("memory", "", {"rnn": stack.replace(name="rnn")}), path, "tflite", **options)
    return path


def of(kind: Kind, parts: frozenset[str] = INPUT, layers: int = 1, directions: int = 1, **more: Any) -> Recurrent:
    cell = Cell(kind, **more) if more else None
    return random_stack(Sizes(kind, 3, 5, layers, directions, 2 * ("projection" in parts), parts), 5, np.float32, cell)


def ran(path: Path, x: Array = X, layers: tuple[str, ...] = (), **states: Any) -> dict[str, Any]:
    judge("tflite")
    return litert.answer({"file": str(path), "layers": list(layers), "how": {}, "x": x, **states})


def real(path: str) -> Path:
    need("corpus", corpus.absent())
    return corpus.FOLDER / path


# What the models give ---------------------------------------------------------------------------------------


def test_a_real_model_gives_its_outputs() -> None:
    path = real("tflite-micro-mnist-lstm/trained_lstm.tflite")
    checkpoint = rc.load(path)
    (stack,) = checkpoint.layers.values()
    assert stack.cell.clips == (Clip("cell", -10.0, 10.0),)
    assert checkpoint.batch_first[stack.name] and not checkpoint.warnings
    with np.load(f"{path}.ref.npz") as stored:
        x, expected = stored["in__serving_default_fixed_input:0"], stored["out__StatefulPartitionedCall:0"]
    y = reference.run(stack, x.swapaxes(0, 1)).y.swapaxes(0, 1).reshape(1, -1)
    weight, bias = (np.asarray(array) for array in sorted(checkpoint.tensors.values(), key=np.ndim, reverse=True))
    scores = np.exp(y @ weight.T + bias)
    assert np.abs(scores / scores.sum() - expected).max() < 1e-6


MOST = {28: 255, 257: 2}
"""How many steps of its scale an input goes up from 0, where its range begins, by its width: so many do not saturate the cell."""


def test_what_an_integer_kernel_gives_is_not_called_equal_and_its_rounding_is_named() -> None:
    path = real("tflite-micro-speech/micro_speech_lstm.tflite")
    judge("tflite")
    document = rc.verify(path, on=["litert-cpu"]).document
    (reason,) = document["reasons"]
    assert "run whole, the source gives something else" in reason and "own kernel rounds more" in reason
    (layer,) = document["layers"]
    (run,) = [entry for entry in layer["runs"] if entry["executor"] == "litert-cpu"]
    assert run["verdict"] == "not equal" and run["own_file"]
    (diagnosed,) = layer["diagnoses"]
    assert "the kernel that ran them rounds more than the weights" in diagnosed["sentences"][0]
    assert "with integers, which no layer of floats gives" in headline(document) and "fault" not in headline(document)


def test_a_clip_that_the_stated_steps_do_not_reach_is_no_difference(tmp_path: Path) -> None:
    judge("tflite")
    path = tmp_path / "a.tflite"
    file_of(path, of("lstm"))
    model = litert._parsed(path.read_bytes())
    (operator,) = model.subgraphs[0].operators
    operator.builtinOptions.cellClip = 10.0
    read = model.subgraphs[0].tensors[operator.inputs[0]]
    read.shape, read.shapeSignature = np.array([1, 1, 3], np.int32), None
    path.write_bytes(litert._packed(model))
    (layer,) = rc.load(path).layers.values()
    assert not layer.cell.clips
    report = rc.verify(path, on=["litert-cpu"])
    (run,) = [run for run in report.document["layers"][0]["runs"] if run["executor"] == "litert-cpu"]
    assert run["verdict"] == "equal" and "saturating" not in {comparison["case"] for comparison in run["comparisons"]}


@pytest.mark.parametrize("name", ["tflite-micro-mnist-lstm/trained_lstm_int8", "tflite-micro-speech/micro_speech_lstm"])
def test_an_integer_model_is_read_as_what_it_stands_for(name: str) -> None:
    """As far from LiteRT's integer kernel as its rounding explains: a step of its output is 1/128, and they add up over the steps."""
    path = real(f"{name}.tflite")
    checkpoint = rc.load(path)
    ((layer, stack),) = checkpoint.layers.items()
    assert any("int8" in warning and "not exactly" in warning for warning in checkpoint.warnings)
    assert sorted(len(array.shape) for array in checkpoint.tensors.values()) == [1, 2]  # the dense layer's
    judge("tflite")
    scale, _ = litert._interpreter(path.read_bytes()).get_input_details()[0]["quantization"]
    steps = np.random.default_rng(3).integers(0, MOST[stack.input_size] + 1, (28, 2, stack.input_size))
    x = (steps * scale).astype(np.float32)
    y = ran(path, x, (layer,))["y"]
    off = np.abs(y - reference.run(stack, x).y)
    assert off.mean() < 0.004 and off.max() < 0.06 and np.abs(y).max() > 0.5
    swapped = stack.first.with_arrays({("recurrent", "i"): stack.first.arrays["recurrent", "f"]})
    wrong = reference.run(stack.replace(layers=(type(stack.layers[0])((swapped,)),)), x).y
    assert np.abs(y - wrong).max() > 0.2


def test_a_clip_that_never_bites_is_left_out_when_asked(tmp_path: Path) -> None:
    path = real("tflite-micro-mnist-lstm/trained_lstm.tflite")
    with pytest.raises(RefusedError, match="clip"):
        rc.convert(path, tmp_path / "a.onnx")
    rc.convert(path, tmp_path / "a.onnx", clip="none")
    (stack,), (before,) = rc.load(tmp_path / "a.onnx").layers.values(), rc.load(path).layers.values()
    x = np.random.default_rng(3).uniform(-1, 1, (7, 1, 28)).astype(np.float32)
    assert np.abs(reference.run(stack, x).y - reference.run(before, x).y).max() < 1e-6


@pytest.mark.parametrize(("steps", "function", "clipped"), [(10, 4, False), (11, 4, True), (-1, 4, True), (10, 1, True)])
def test_a_clip_beyond_the_steps_that_the_file_states_is_left_out(tmp_path: Path, steps: int, function: int, clipped: bool) -> None:
    """From zeros, a cell state between tanh and sigmoids gains less than 1 a step."""
    schema = needed("litert", "ai_edge_litert.schema_py_generated")
    builder = needed("litert", "flatbuffers").Builder(1 << 14)
    path = file_of(tmp_path / "m.tflite", of("lstm"))
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray(path.read_bytes()), 0))
    (graph,) = model.subgraphs
    (operator,) = graph.operators
    operator.builtinOptions.cellClip, operator.builtinOptions.fusedActivationFunction = 10.0, function
    entry = graph.tensors[operator.inputs[0]]
    entry.shape = [abs(steps), 1, int(entry.shape[-1])]
    entry.shapeSignature = [steps, 1, int(entry.shape[-1])]
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())
    checkpoint = rc.load(path)
    (stack,) = checkpoint.layers.values()
    assert bool(stack.cell.clips) == clipped
    assert any("do not get beyond 10" in text for text in checkpoint.warnings) != clipped
    if not clipped:
        x = np.full((10, 1, stack.input_size), 1e4, np.float32)
        np.testing.assert_allclose(ran(path, x, tuple(checkpoint.layers))["y"], reference.run(stack, x).y, rtol=1e-5, atol=1e-6)


# LiteRT beside what is written ------------------------------------------------------------------------------

_PARTS = [INPUT, INPUT | {"peephole"}, INPUT | {"projection"}, INPUT | {"peephole", "projection"}]
CASES: list[tuple[Recurrent, str]] = [
    *((of("lstm", parts, layers, ways), "") for parts, layers, ways in itertools.product(_PARTS, (1, 2), (1, 2))),
    *((of("rnn", INPUT, layers, ways, activation=RELU), "") for layers, ways in itertools.product((1, 2), (1, 2))),
    (of("rnn", INPUT, 2, 2), ""), (of("lstm"), "time"), (of("lstm"), "processing"), (of("rnn"), "time"),
    (of("lstm", _PARTS[1], 1, 2, coupled="i"), ""), (of("lstm", _PARTS[2], 1, 1, coupled="i"), "time"),
    (of("lstm", _PARTS[3], clips=(Clip("cell", -0.1, 0.1), Clip("projection", -0.2, 0.2))), ""),
    (of("lstm", directions=2, activation=RELU, output_activation=RELU), ""),
]  # fmt: skip


def turned(stack: Recurrent, order: Any) -> Recurrent:
    return backwards(stack, order) if order else stack


def test_litert_runs_what_is_written(tmp_path: Path) -> None:
    def check(case: tuple[Recurrent, str]) -> None:
        stack = turned(*case)
        path = file_of(tmp_path / "m.tflite", stack, force=True)
        form = Sizes.of(stack)
        states: Any = random_states(form, 2, 3, np.float32)
        problem = Problem(stack, X, states[0], states[1] if stack.cell.kind == "lstm" else None)
        answer = ran(path, hidden=list(states[0]), cell=list(states[1]) if stack.cell.kind == "lstm" else None)
        assert excess(problem, outputs(answer)) <= 1
        read = rc.load(path)
        assert not read.warnings and not read.unread
        joined = [layer for encoder in read.layers.values() for layer in encoder.layers]
        again = stack.replace(layers=tuple(joined))
        assert np.array_equal(reference.run(again, X).y, reference.run(stack, X).y)
        assert [encoder.cell for encoder in read.layers.values()] == [layer.directions[0].cell for layer in stack.layers]
        by_layer = outputs(ran(path, layers=tuple(read.layers)))
        assert excess(Problem(stack, X), by_layer) <= 1

    each(drawn(CASES, 5, "litert", lambda case: bool(case[1] or case[0].cell.clips)), check, lambda c: f"{c[0]} {c[1]}")


def test_litert_runs_a_model_of_a_fixed_batch() -> None:
    path = ROOT / "tests" / "golden" / "tflite_fused" / "fixed_batch.tflite"
    with np.load(path.with_suffix(".npz")) as stored:
        x, truth = stored["x"].swapaxes(0, 1), stored["y"].swapaxes(0, 1)
    more = np.concatenate([x, x[:, :2]], axis=1)  # five sequences in a model of three
    (stack,) = rc.load(path).layers.values()
    np.testing.assert_allclose(reference.run(stack, x).y, truth, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ran(path, more)["y"], np.concatenate([truth, truth[:, :2]], axis=1), rtol=0, atol=1e-6)


def test_a_wrong_gate_would_be_seen(tmp_path: Path) -> None:
    stack = of("lstm")
    answer = ran(file_of(tmp_path / "m.tflite", stack))
    first = stack.first
    swapped = first.with_arrays({("input", "f"): first.arrays["input", "g"], ("input", "g"): first.arrays["input", "f"]})
    wrong = stack.replace(layers=(type(stack.layers[0])((swapped,)),))
    assert excess(Problem(wrong, X), outputs(answer)) > WRONG


def test_a_gru_is_refused(tmp_path: Path) -> None:
    stack = random_stack(Sizes("gru", 3, 5, parts=INPUT), 5, np.float32)
    with pytest.raises(RefusedError, match="does not have this cell"):
        file_of(tmp_path / "m.tflite", stack)
    assert not list(tmp_path.iterdir())


def test_a_file_past_two_gigabytes_is_refused(tmp_path: Path) -> None:
    huge = np.broadcast_to(np.float32(0), (1 << 14, 1 << 14))
    root = {0: [{0: huge}]}
    flatbuffer.write(tmp_path / "a", b"TFL3", root, dry_run=True)
    with pytest.raises(RefusedError, match="2 GiB"):
        flatbuffer.write(tmp_path / "a", b"TFL3", {0: [{0: huge}, {0: huge}]}, dry_run=True)


# What else a file may have ----------------------------------------------------------------------------------

Change = Callable[[Any, Any, Any], None]
"""A change of a model in LiteRT's own classes: the schema, the model, its recurrent operator."""


def changed(path: Path, change: Change) -> Path:
    schema = needed("litert", "ai_edge_litert.schema_py_generated")
    flatbuffers = needed("litert", "flatbuffers")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    operator = model.subgraphs[0].operators[0]
    operator.inputs = list(operator.inputs)
    change(schema, model, operator)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def add(schema: Any, model: Any, array: Array, kind: int = 0, scales: Any = (), axis: int = 0) -> int:
    """Add a constant; return its tensor."""
    buffer, tensor = schema.BufferT(), schema.TensorT()
    buffer.data = np.frombuffer(array.tobytes(), np.uint8)
    model.buffers.append(buffer)
    tensor.shape, tensor.type, tensor.buffer, tensor.name = list(array.shape), kind, len(model.buffers) - 1, b"added"
    if len(scales):
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = list(scales), [0] * len(scales)
        tensor.quantization.quantizedDimension = axis
    model.subgraphs[0].tensors.append(tensor)
    return len(model.subgraphs[0].tensors) - 1


def _norm(schema: Any, model: Any, operator: Any) -> None:
    for place in range(20, 24):
        operator.inputs[place] = add(schema, model, np.ones(5, np.float32))


def _bias(schema: Any, model: Any, operator: Any) -> None:
    operator.inputs[17] = add(schema, model, np.ones(2, np.float32))


def _diagonal(schema: Any, model: Any, operator: Any) -> None:
    operator.builtinOptions.diagonalRecurrentTensors = True


def _loop(schema: Any, model: Any, operator: Any) -> None:
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.WHILE
    model.operatorCodes.append(code)
    operator.opcodeIndex, operator.builtinOptionsType = len(model.operatorCodes) - 1, schema.BuiltinOptions.WhileOptions
    operator.builtinOptions = schema.WhileOptionsT()


def _computed(schema: Any, model: Any, operator: Any) -> None:
    operator.inputs[1] = operator.inputs[0]


def _fixed(schema: Any, model: Any, operator: Any) -> None:
    model.subgraphs[0].tensors[operator.inputs[18]].isVariable = False


def _sparse(schema: Any, model: Any, operator: Any) -> None:
    model.subgraphs[0].tensors[operator.inputs[1]].sparsity = schema.SparsityParametersT()


@pytest.mark.parametrize(
    ("change", "why"),
    [(_norm, "layer normalization"), (_bias, "bias of its projection"), (_diagonal, "diagonal"), (_loop, "WHILE"),
     (_computed, "computed by the graph"), (_fixed, "not a variable"), (_sparse, "only some of its numbers")],
)  # fmt: skip
def test_what_no_other_system_computes_is_named(change: Change, why: str, tmp_path: Path) -> None:
    path = changed(file_of(tmp_path / "m.tflite", of("lstm", INPUT | {"projection"})), change)
    checkpoint = rc.load(path)
    assert not checkpoint.layers and why in " ".join(checkpoint.unread)
    with pytest.raises(RefusedError):
        rc.convert(path, tmp_path / "a.onnx")


OPTIONS: list[tuple[str, Any]] = [
    ("fusedActivationFunction", 0), ("fusedActivationFunction", 3), ("cellClip", 0.5), ("projClip", 0.5), ("timeMajor", False),
    ("diagonalRecurrentTensors", True), ("mergeOutputs", False),
]  # fmt: skip


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("kind", ["lstm", "rnn"])
def test_no_option_is_dropped_in_silence(kind: Kind, ways: int, tmp_path: Path) -> None:
    """Each option of an operator at another value: another cell, another order of the axes, or a layer that is not read."""
    parts = INPUT | ({"projection"} if kind == "lstm" else set())
    before = rc.load(file_of(tmp_path / "a.tflite", of(kind, parts, 1, ways)))

    def check(option: tuple[str, Any]) -> None:
        key, value = option

        def change(schema: Any, model: Any, operator: Any) -> None:
            tried.append(hasattr(operator.builtinOptions, key))
            setattr(operator.builtinOptions, key, value)

        tried: list[bool] = []
        after = rc.load(changed(file_of(tmp_path / "b.tflite", of(kind, parts, 1, ways), force=True), change))
        cells = [[(direction.cell, layer.merge) for layer in stack.layers for direction in layer.directions] for read in (before, after)
                 for stack in read.layers.values()]  # fmt: skip
        differ = after.unread != before.unread or cells[0] != cells[-1] or after.batch_first != before.batch_first
        assert differ == tried[0]

    each(OPTIONS, check, str)


def test_an_option_that_is_unknown_here_is_named(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.tflite", of("rnn"))
    later = {0: flatbuffer.Number("B", 1), 1: flatbuffer.Number("b", 4), 3: flatbuffer.Number("B", 1)}
    root, *_ = build(path, Job([], None, Options(), Checkpoint("m", "", {}), {}, lambda piece: None))
    tables: Any = {**root, 1: [{3: flatbuffer.Number("i", 35)}], 4: [{}]}
    tensor = {0: np.array([1, 1, 3], np.int32)}
    operator = {1: np.array([0, -1, -1, -1, -1], np.int32), 2: np.array([1], np.int32), 3: flatbuffer.Number("B", 31), 4: later}
    tables[2] = [{0: [tensor, tensor], 3: [operator]}]
    flatbuffer.write(path, b"TFL3", tables)
    assert "an option that is unknown here (field 3" in rc.load(path).unread[0]


def test_a_bias_of_zeros_changes_nothing(tmp_path: Path) -> None:
    def zeros(schema: Any, model: Any, operator: Any) -> None:
        operator.inputs[17] = add(schema, model, np.zeros(2, np.float32))

    path = changed(file_of(tmp_path / "m.tflite", of("lstm", INPUT | {"projection"})), zeros)
    assert len(rc.load(path).layers) == 1


def test_half_precision_behind_dequantize(tmp_path: Path) -> None:
    stack = of("lstm")
    half = np.asarray(stack.first.arrays["input", "g"]).astype(np.float16)

    def narrow(schema: Any, model: Any, operator: Any) -> None:
        code, unpack, tensor = schema.OperatorCodeT(), schema.OperatorT(), schema.TensorT()
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.DEQUANTIZE
        code.version = 3
        model.operatorCodes.append(code)
        tensor.shape, tensor.name = list(half.shape), b"wide"
        model.subgraphs[0].tensors.append(tensor)
        wide = len(model.subgraphs[0].tensors) - 1
        unpack.opcodeIndex = len(model.operatorCodes) - 1
        unpack.inputs, unpack.outputs = [add(schema, model, half, schema.TensorType.FLOAT16)], [wide]
        model.subgraphs[0].operators.insert(0, unpack)
        operator.inputs[3] = wide

    path = changed(file_of(tmp_path / "m.tflite", stack), narrow)
    checkpoint = rc.load(path)
    (read,) = checkpoint.layers.values()
    assert np.array_equal(np.asarray(read.first.arrays["input", "g"]), half)
    assert "float16" in checkpoint.warnings[0] and "kernel" not in checkpoint.warnings[0]
    rounded = stack.first.with_arrays({("input", "g"): half.astype(np.float32)})
    expected = reference.run(stack.replace(layers=(type(stack.layers[0])((rounded,)),)), X).y
    assert np.abs(ran(path, layers=tuple(checkpoint.layers))["y"] - expected).max() < 1e-6


def test_scales_of_rows(tmp_path: Path) -> None:
    codes = np.random.default_rng(2).integers(-127, 128, (5, 3)).astype(np.int8)
    scales = np.array([0.5, 0.25, 2, 1, 4], np.float32)

    def narrow(schema: Any, model: Any, operator: Any) -> None:
        operator.inputs[2] = add(schema, model, codes, schema.TensorType.INT8, scales)

    path = changed(file_of(tmp_path / "m.tflite", of("lstm")), narrow)
    (read,) = rc.load(path).layers.values()
    assert np.array_equal(np.asarray(read.first.arrays["input", "f"]), codes * scales[:, None])


def test_integers_without_a_scale_are_not_read(tmp_path: Path) -> None:
    def bare(schema: Any, model: Any, operator: Any) -> None:
        operator.inputs[2] = add(schema, model, np.ones((5, 3), np.int8), schema.TensorType.INT8)

    checkpoint = rc.load(changed(file_of(tmp_path / "m.tflite", of("lstm")), bare))
    assert "without a scale" in checkpoint.unread[0]


# Damaged files ----------------------------------------------------------------------------------------------


def test_a_damaged_file_ends_in_an_error_of_ours(tmp_path: Path) -> None:
    full = file_of(tmp_path / "m.tflite", of("rnn", INPUT, 2, 2)).read_bytes()
    path, rng = tmp_path / "d.tflite", random.Random(1)
    ends = set()
    cut = [full[:length] for length in rng.sample(range(8, len(full)), 40)]
    flipped = []
    for _ in range(200):
        damaged = bytearray(full)
        for place in rng.sample(range(len(damaged)), rng.choice((1, 3))):
            damaged[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, damaged[place] ^ 1 << rng.randrange(8)))
        flipped.append(bytes(damaged))
    for content in [*cut, *flipped]:
        path.write_bytes(content)
        try:
            rc.load(path)
            ends.add("read")
        except UnreadableError:
            ends.add("unreadable")
    assert ends == {"read", "unreadable"}


def test_what_is_no_model_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    for content in (b"\x10\0\0\0TFL3", b"\xff\xff\xff\xffTFL3" + bytes(40), bytes(50), b"\x08\0\0\0TFL3" + bytes(8)):
        path.write_bytes(content)
        with pytest.raises(UnreadableError):
            rc.load(path)
