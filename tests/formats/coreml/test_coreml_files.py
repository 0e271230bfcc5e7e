"""Core ML: what coremltools makes is read, and coremltools reads what is written. Predictions run on Apple's systems only."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, RELU, SIGMOID, Cell, Clip
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.weights import Directly, Input, Recurrent, Unknown
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack
from tests import ROOT
from tests.helpers import sources
from tests.helpers.coreml_evaluate import Program
from tests.helpers.coreml_tools import tools
from tests.helpers.drawn import drawn, each
from tests.helpers.stacks import BOTH, PLAIN, backwards, random_stack

GOLDEN = ROOT / "tests" / "golden" / "coreml"
NUMBERS = np.load(GOLDEN / "numbers.npz")
INPUT = PLAIN | {"input_bias"}
X = np.random.default_rng(1).uniform(-1, 1, (6, 1, 3)).astype(np.float32)
RNN, GRU, LSTM = Cell("rnn"), Cell("gru", False), Cell("lstm")


def sigmoid(a: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-a)))


def hard_sigmoid(a: Array) -> Array:
    return np.clip(0.2 * a + 0.5, 0, 1)


def chained(checkpoint: Checkpoint, x: Array) -> Array:
    """What layers give that read one another in the order of the file."""
    before = None
    for name, layer in checkpoint.layers.items():
        assert isinstance(layer.reads, Input | Unknown) if before is None else layer.reads == Directly((before,))
        x, before = reference.run(layer, x).y, name
    return x


# What coremltools makes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "close"), [("torch.mlpackage", 1e-6), ("torch.mlmodel", 1e-6), ("half.mlpackage", 3e-3)])
def test_a_model_of_torch_computes_what_torch_computed(name: str, close: float) -> None:
    checkpoint = rc.load(GOLDEN / name)
    assert not checkpoint.unread and not checkpoint.questions and len(checkpoint.layers) == 4
    assert [layer.cell.kind for layer in checkpoint.layers.values()] == ["lstm", "lstm", "rnn", "rnn"]
    y = chained(checkpoint, NUMBERS["torch/x"]) @ NUMBERS["torch/head.weight"].T + NUMBERS["torch/head.bias"]
    np.testing.assert_allclose(y, NUMBERS["torch/y"], rtol=0, atol=close)
    assert {str(layer.dtype) for layer in checkpoint.layers.values()} == {"float16" if "half" in name else "float32"}


def field(number: int, content: bytes) -> bytes:
    """A field of a message: its number, its length and its bytes, as protobuf has them."""
    encoded = bytearray()
    for value in (number << 3 | 2, len(content)):
        while value > 0x7F:
            encoded.append(value & 0x7F | 0x80)
            value >>= 7
        encoded.append(value)
    return bytes(encoded) + content


@pytest.mark.parametrize("with_dense", [False, True])
def test_a_loop_of_a_neural_network_is_named(with_dense: bool, tmp_path: Path) -> None:
    """As coremltools writes an LSTM of TensorFlow 2: NeuralNetwork.proto, LoopLayerParams and InnerProductLayerParams."""
    weights = field(20, field(1, np.arange(6, dtype="<f4").tobytes()))
    dense = field(1, field(1, b"while/MatMul") + field(2, b"x") + field(3, b"y") + field(140, b"\x08\x02\x10\x03" + weights))
    loop = field(1, field(1, b"sequential/lstm/while") + field(2, b"x") + field(3, b"y") + field(615, field(4, dense)))
    (tmp_path / "a.mlmodel").write_bytes(b"\x08\x04" + field(2, field(1, field(1, b"x"))) + field(500, loop + dense * with_dense))
    with pytest.raises(RefusedError, match=r"sequential/lstm/while: a loop, .* is not read"):
        rc.convert(tmp_path / "a.mlmodel", tmp_path / "a.pt")


def test_a_gru_of_torch_is_a_loop_and_is_read() -> None:
    """By what coremltools computes for the loop, step by step."""
    checkpoint = rc.load(GOLDEN / "loop.mlpackage")
    (layer,) = checkpoint.layers.values()
    assert layer.cell.kind == "gru" and layer.cell.reset_after and not checkpoint.unread and not checkpoint.tensors
    x = np.random.default_rng(3).normal(size=(6, 1, 3)).astype(np.float32)
    (y,) = Program(GOLDEN / "loop.mlpackage")(x)
    np.testing.assert_allclose(reference.run(layer, x).y, y, rtol=0, atol=1e-6)


def test_states_that_are_slices_of_an_input_of_the_model_are_the_callers(tmp_path: Path) -> None:
    """Create ML's activity classifiers take all states of a layer as one input, and give them as one output."""
    tools()
    network = importlib.import_module("coremltools.models.neural_network")
    types = importlib.import_module("coremltools.models.datatypes")
    inputs = [("features", types.Array(6, 3)), ("stateIn", types.Array(8))]
    builder = network.NeuralNetworkBuilder(
        inputs, [("y", types.Array(6, 4)), ("stateOut", types.Array(8))], disable_rank5_shape_mapping=True
    )
    builder.add_expand_dims("x", "features", "x", [1, 3, 4])
    for name, start in (("hIn", 0), ("cIn", 4)):
        builder.add_slice_static(f"{name}_slice", "stateIn", f"{name}_row", [start], [start + 4], [1], [True], [True])
        builder.add_expand_dims(name, f"{name}_row", name, [0, 1, 3, 4])
    random = np.random.default_rng(5)
    kinds = ((4, 3), (4, 4), (4,))
    weights = [[random.standard_normal(shape).astype(np.float32) for _ in range(4)] for shape in kinds]
    builder.add_unilstm("lstm", weights[1], weights[0], weights[2], 4, 3, ["x", "hIn", "cIn"], ["out", "hOut", "cOut"], output_all=True)
    for name in ("hOut", "cOut"):
        builder.add_squeeze(f"{name}_row", name, f"{name}_row", axes=[0, 1, 3, 4])
    builder.add_concat_nd("states", ["hOut_row", "cOut_row"], "stateOut", 0)
    builder.add_squeeze("flat", "out", "y", axes=[1, 3, 4])
    path = tmp_path / "activity.mlmodel"
    path.write_bytes(builder.spec.SerializeToString())
    checkpoint = rc.load(path)
    (stack,) = checkpoint.layers.values()
    assert not checkpoint.unread and not stack.unconvertible
    for letter, number in zip("ifog", range(4), strict=True):
        assert np.array_equal(np.asarray(stack.first.arrays["input", letter]), weights[0][number])
    assert rc.save(checkpoint, tmp_path / "activity.pt").exact


def lstm(arrays: dict[str, Any], x: Array, **how: Any) -> Array:
    """An LSTM by the text of coremltools' lstm: rows i, f, o, z; the clip is of the cell, before the output's peephole."""
    gate, out = how.get("gate", sigmoid), how.get("out", np.tanh)
    h, c = how.get("h", np.zeros((1, 4))), how.get("c", np.zeros((1, 4)))
    peeps = np.split(arrays["peephole"], 3) if "peephole" in arrays else [np.zeros(4)] * 3
    rows = [np.split(arrays[name], 4) for name in ("weight_ih", "weight_hh", "bias")]
    done = []
    for step in x:
        i, f, o, z = (step @ w.T + h @ r.T + b for w, r, b in zip(*rows, strict=True))
        i, f, z = gate(i + peeps[0] * c), gate(f + how.get("add", 0) + peeps[1] * c), np.tanh(z)
        f = 1 - i if how.get("coupled") else f
        c = np.clip(f * c + i * z, -how.get("clip", 1e9), how.get("clip", 1e9))
        h = gate(o + peeps[2] * c) * out(c)
        done.append(h)
    return np.stack(done)


def gru(arrays: dict[str, Any], x: Array) -> Array:
    """A GRU as Apple's numerical tests compute it: rows r, o, z; the reset gate multiplies the state."""
    rows = [np.split(arrays[name], 3) for name in ("weight_ih", "weight_hh", "bias")]
    (wr, wo, wz), (rr, ro, rz), (br, bo, bz) = rows
    h, done = np.zeros((1, wr.shape[0])), []
    for step in x:
        z, r = sigmoid(step @ wz.T + h @ rz.T + bz), sigmoid(step @ wr.T + h @ rr.T + br)
        h = (1 - z) * np.tanh(step @ wo.T + (h * r) @ ro.T + bo) + z * h
        done.append(h)
    return np.stack(done)


def numbers_of(name: str) -> dict[str, Array]:
    return {key.partition("/")[2]: NUMBERS[key] for key in NUMBERS.files if key.startswith(f"{name}/")}


def test_operations_are_read_with_all_that_they_state() -> None:
    checkpoint = rc.load(GOLDEN / "operations.mlpackage")
    assert not checkpoint.warnings and not checkpoint.unread and [*checkpoint.layers] == ["peeping", "backwards", "gru", "rnn"]
    for name, layer in checkpoint.layers.items():
        packed = {local: np.asarray(array) for local, array in pack(registry.layouts()[f"coreml.{layer.cell.kind}"], layer).items()}
        assert {local: array.tolist() for local, array in packed.items()} == {
            local: array.tolist() for local, array in numbers_of(name).items()
        }
    peeping, back = numbers_of("peeping"), numbers_of("backwards")
    expected = [
        lstm(peeping, X, gate=hard_sigmoid, out=lambda c: np.maximum(c, 0), h=peeping["initial_h"], c=peeping["initial_c"], clip=0.3)
    ]
    expected.append(lstm(back, expected[-1][::-1]))  # its outputs stay in processing order
    expected.append(gru(numbers_of("gru"), expected[-1]))
    rnn, h, last = numbers_of("rnn"), np.zeros((1, 4)), []
    for step in expected[-1]:
        h = sigmoid(step @ rnn["weight_ih"].T + h @ rnn["weight_hh"].T + rnn["bias"])
        last.append(h)
    y = X
    for layer, right in zip(checkpoint.layers.values(), [*expected, np.stack(last)], strict=True):
        y = reference.run(layer, y).y
        np.testing.assert_allclose(y, right, rtol=0, atol=1e-6)


def network(name: str, gates: str, into: str) -> dict[str, Array]:
    """The arrays that a layer of a network was given, one for each gate, in the rows of an operation."""
    order = [gates.index(gate) for gate in into]
    local = {"W": "weight_ih", "R": "weight_hh", "b": "bias"}
    arrays = {
        local[key]: np.concatenate([per_gate[place] for place in order]) for key, per_gate in numbers_of(name).items() if key in local
    }
    return arrays | ({"peephole": numbers_of(name)["p"].reshape(-1)} if "p" in numbers_of(name) else {})


@pytest.mark.parametrize("name", ["layers.mlmodel", "bits16.mlmodel"])
def test_layers_are_read_with_all_that_they_state(name: str) -> None:
    checkpoint = rc.load(GOLDEN / name)
    close = 1e-6 if name == "layers.mlmodel" else 3e-3
    assert not checkpoint.unread and [*checkpoint.layers] == ["peeping", "coupled", "both", "gru", "rnn"]
    assert [warning for warning in checkpoint.warnings if "clipped to [-50000, 50000]" in warning] == list(checkpoint.warnings)
    assert len(checkpoint.warnings) == 2
    ways = [network(key, "ifoz", "ifoz") for key in ("nn_both", "nn_both_back")]
    expected = [lstm(network("nn_peeping", "ifoz", "ifoz"), X, gate=hard_sigmoid, out=sigmoid, add=1, clip=2.5)]
    expected.append(lstm(network("nn_coupled", "ifoz", "ifoz"), expected[-1][::-1], coupled=True))
    below = expected[-1]
    expected.append(np.concatenate([lstm(ways[0], below), lstm(ways[1], below[::-1])[::-1]], -1))
    expected.append(gru(network("nn_gru", "zro", "roz"), expected[-1]))
    y = X
    for layer, right in zip(checkpoint.layers.values(), expected, strict=False):
        y = reference.run(layer, y).y
        np.testing.assert_allclose(y, right, rtol=0, atol=close)
    rnn = checkpoint.layers["rnn"]
    assert rnn.cell.activation == RELU and rnn.cell.clips == (Clip("gates", -50.0, 50.0),)
    np.testing.assert_allclose(np.asarray(rnn.first.arrays["recurrent", "n"]), NUMBERS["nn_rnn/R"], rtol=0, atol=close)


@pytest.mark.parametrize("name", ["linear", "table"])
def test_compressed_weights_of_a_program_are_what_coremltools_makes_of_them(name: str) -> None:
    checkpoint = rc.load(GOLDEN / f"{name}.mlpackage")
    assert len(checkpoint.warnings) == 4 and all("are stored as" in warning for warning in checkpoint.warnings)
    seen = 0
    for layer, stack in checkpoint.layers.items():
        packed = pack(registry.layouts()[f"coreml.{stack.cell.kind}"], stack)
        for local, array in packed.items():
            (unpacked,) = [NUMBERS[key] for key in NUMBERS.files if key.startswith(f"{name}/{layer}_{local}_0")]
            np.testing.assert_allclose(np.asarray(array), unpacked, rtol=0, atol=2e-7)
            seen += "weight" in local and not np.array_equal(unpacked, numbers_of(layer)[local])
    assert seen == 8


@pytest.mark.parametrize(("name", "bits"), [("bits8", 8), ("bits3", 3)])
def test_quantized_weights_of_a_network_are_what_coremltools_makes_of_them(name: str, bits: int) -> None:
    checkpoint = rc.load(GOLDEN / f"{name}.mlmodel")
    assert sum(f"integers of {bits} bits" in warning for warning in checkpoint.warnings) == 5
    arrays = checkpoint.layers["gru"].first.arrays
    np.testing.assert_allclose(np.asarray(arrays["input", "r"]).reshape(-1), NUMBERS[f"{name}/W_r"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.asarray(arrays["input_bias", "n"]), NUMBERS[f"{name}/b_o"], rtol=0, atol=1e-6)


# What is written ---------------------------------------------------------------------------------------------


def of(cell: Cell, layers: int = 1, ways: int = 1, more: frozenset[str] = frozenset(), parts: Any = INPUT) -> Recurrent:
    return random_stack(Sizes(cell.kind, 3, 5, layers, ways, parts=parts | more), 5, np.float32, cell).replace(name="rnn")


def saved(path: Path, stack: Recurrent, **options: Any) -> Path:
    if path.is_dir():
        shutil.rmtree(path)
    rc.save(Checkpoint("memory", "", {"rnn": stack}), path, force=True, **options)
    return path


STATES = frozenset({"initial_hidden", "initial_cell"})
BOTH_KINDS = [
    *(of(cell, layers) for cell, layers in itertools.product((RNN, GRU, LSTM), (1, 2))), of(LSTM, 2, 2), of(LSTM, parts=PLAIN),
    of(GRU, parts=PLAIN), of(LSTM, 1, 2, frozenset({"peephole"})), of(LSTM.replace(clips=(Clip("cell", -0.25, 0.25),)), 1, 2),
    of(LSTM.replace(gate_activation=HARD_SIGMOID_KERAS_2, output_activation=SIGMOID)), of(RNN.replace(activation=SIGMOID)),
    *(backwards(of(cell), "processing") for cell in (RNN, GRU, LSTM)),
]  # fmt: skip
PROGRAMS = [
    of(LSTM, 2, 2, STATES), of(GRU, more=frozenset({"initial_hidden"})), of(RNN.replace(activation=RELU)),
    *(backwards(of(cell, 2), "time") for cell in (RNN, GRU, LSTM)),
]  # fmt: skip
NETWORKS = [of(LSTM.replace(coupled="f"))]


@pytest.mark.drawn(10)
def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    def check(case: tuple[str, Recurrent]) -> None:
        end, stack = case
        read = rc.load(saved(tmp_path / f"m{end}", stack))
        assert not read.unread and all("50000" in warning for warning in read.warnings)
        joined = stack.replace(layers=tuple(layer for part in read.layers.values() for layer in part.layers))
        assert [layer.directions[0].cell for layer in joined.layers] == [layer.directions[0].cell for layer in stack.layers]
        y = chained(read, X)
        expected = reference.run(stack, X).y
        assert np.abs(y - expected).max() < 1e-6
        assert {part.output_order for part in read.layers.values()} == {stack.output_order}
        assert str(read.layers[next(iter(read.layers))].dtype) == "float32"

    cases = [(".mlpackage", stack) for stack in (*BOTH_KINDS, *PROGRAMS)] + [(".mlmodel", stack) for stack in (*BOTH_KINDS, *NETWORKS)]
    each(drawn(cases, 10, "coreml"), check, lambda case: f"{case[0]} {case[1]}")


def loaded_program(path: Path) -> list[Any]:
    """The operations of a program as coremltools loads it, which infers and compares the types of all values."""
    ct = tools()
    load = importlib.import_module("coremltools.converters.mil.frontend.milproto.load")
    model = ct.models.MLModel(str(path), skip_model_load=True)
    spec = model.get_spec()
    program = load.load(spec, specification_version=spec.specificationVersion, file_weights_dir=str(model.weights_dir))
    return list(program.functions["main"].operations)


def test_coremltools_loads_what_is_written_as_programs(tmp_path: Path) -> None:
    tools()

    def check(stack: Recurrent) -> None:
        path = saved(tmp_path / "m.mlpackage", stack)
        operations = [op for op in loaded_program(path) if op.op_type == stack.cell.kind]
        assert len(operations) == stack.num_layers
        layout = registry.layouts()[f"coreml.{stack.cell.kind}"]
        for operation, layer in zip(operations, stack.layers, strict=True):
            for local, array in pack(layout, stack.replace(layers=(layer,))).items():
                np.testing.assert_array_equal(operation.inputs[local].val, np.asarray(array))
            way = "bidirectional" if len(layer.directions) == 2 else "reverse" if layer.directions[0].reverse else "forward"
            assert operation.direction.val == way and operation.output_sequence.val
            assert operation.activation.val == (stack.cell.output_activation if stack.cell.kind == "lstm" else stack.cell.activation).name
            if stack.cell.clips:
                assert operation.clip.val == np.float32(0.25)
        assert operations[-1].outputs[0].shape[1:] == (1, stack.layers[-1].output_size)
        turned = [op for op in loaded_program(path) if op.op_type == "reverse"]
        assert len(turned) == (stack.num_layers if stack.output_order == "time" and stack.first.reverse else 0)

    each(drawn([*BOTH_KINDS, *PROGRAMS], 3, "coreml programs"), check, str)


def test_float16_is_written_for_ios_17(tmp_path: Path) -> None:
    stack = of(LSTM.replace(clips=(Clip("cell", -0.25, 0.25),)), 1, 2, STATES)
    path = saved(tmp_path / "m.mlpackage", stack, dtype="float16")
    (read,) = rc.load(path).layers.values()
    assert read.dtype == np.float16 and read.cell.clips == stack.cell.clips
    tools()
    (operation,) = [candidate for candidate in loaded_program(path) if candidate.op_type == "lstm"]
    assert operation.weight_ih.val.dtype == operation.clip.val.dtype == np.float16


def test_coremltools_reads_what_is_written_as_networks(tmp_path: Path) -> None:
    ct = tools()

    def check(stack: Recurrent) -> None:
        spec = ct.models.MLModel(str(saved(tmp_path / "m.mlmodel", stack)), skip_model_load=True).get_spec()
        layers = spec.neuralNetwork.layers
        assert len(layers) == stack.num_layers
        kinds = {"rnn": "simpleRecurrent", "gru": "gru", "lstm": "biDirectionalLSTM" if stack.num_directions == 2 else "uniDirectionalLSTM"}
        below = "x"
        for layer, source in zip(layers, stack.layers, strict=True):
            assert layer.WhichOneof("layer") == kinds[stack.cell.kind] and layer.input[0] == below
            below = layer.output[0]
            parameters = getattr(layer, kinds[stack.cell.kind])
            single = stack.replace(layers=(source,))
            assert (parameters.inputVectorSize, parameters.outputVectorSize) == (single.input_size, single.hidden_size)
            for local, array in pack(registry.layouts()[f"coreml_nn.{stack.cell.kind}"], single).items():
                way, _, name = local.rpartition("/")
                weights = parameters if stack.cell.kind != "lstm" else parameters.weightParams
                weights = weights[way == "backward"] if way else weights
                np.testing.assert_array_equal(np.array(getattr(weights, name).floatValue, np.float32), np.asarray(array).reshape(-1))
        assert next(entry.name for entry in spec.description.input) == "x" and below == "y"

    each(drawn([*BOTH_KINDS, *NETWORKS], 3, "coreml networks"), check, str)


@pytest.mark.parametrize(
    ("stack", "end", "why"),
    [(of(Cell("gru", True), parts=BOTH), ".mlpackage", "reset"), (of(Cell("gru", True)), ".mlmodel", "reset"),
     (of(RNN.replace(activation=RELU)), ".mlmodel", "relu"), (of(GRU, 1, 2), ".mlpackage", "two directions"),
     (of(RNN, 1, 2), ".mlmodel", "two directions"), (of(LSTM.replace(coupled="f", clips=(Clip("gates", -1, 1),))), ".mlmodel", "clip"),
     (of(LSTM, more=STATES), ".mlmodel", "initial"), (backwards(of(LSTM, 2), "time"), ".mlmodel", "processing order")],
    ids=str,
)  # fmt: skip
def test_what_core_ml_cannot_hold_is_refused(stack: Recurrent, end: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=why):
        saved(tmp_path / f"m{end}", stack)
    assert not list(tmp_path.iterdir())


def test_a_package_is_never_replaced(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.mlpackage", of(LSTM))
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(UsageError, match="folder"):
        rc.save(Checkpoint("memory", "", {"rnn": of(GRU)}), path, force=True)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before and len(list(tmp_path.iterdir())) == 1


# Changed and damaged files -----------------------------------------------------------------------------------


def changed(tmp_path: Path, change: Any) -> Path:
    """The layers of coremltools with another specification."""
    tools()
    proto = importlib.import_module("coremltools.proto.Model_pb2")
    spec = proto.Model.FromString((GOLDEN / "layers.mlmodel").read_bytes())
    change({layer.name: getattr(layer, layer.WhichOneof("layer")) for layer in spec.neuralNetwork.layers}, spec)
    (tmp_path / "m.mlmodel").write_bytes(spec.SerializeToString())
    return tmp_path / "m.mlmodel"


CHANGES = {
    "forget bias": lambda layers, _: setattr(layers["peeping"].params, "forgetBias", False),
    "coupled": lambda layers, _: setattr(layers["coupled"].params, "coupledInputAndForgetGate", False),
    "clip": lambda layers, _: setattr(layers["peeping"].params, "cellClipThreshold", 0),
    "no peepholes": lambda layers, _: setattr(layers["peeping"].params, "hasPeepholeVectors", False),
    "no biases": lambda layers, _: setattr(layers["gru"], "hasBiasVectors", False),
    "reverse": lambda layers, _: setattr(layers["gru"], "reverseInput", True),
    "function": lambda layers, _: layers["rnn"].activation.tanh.MergeFromString(b""),
    "slope": lambda layers, _: setattr(layers["peeping"].activations[0].sigmoidHard, "alpha", 0.3),
    "width": lambda layers, _: setattr(layers["gru"], "inputVectorSize", 7),
    "no matrix": lambda layers, _: layers["gru"].ClearField("resetGateWeightMatrix"),
    "odd function": lambda layers, _: layers["rnn"].activation.softplus.MergeFromString(b""),
    "no function": lambda layers, _: layers["rnn"].ClearField("activation"),
    "state": lambda layers, spec: state(spec),
}


def state(spec: Any) -> None:
    layer = spec.neuralNetwork.layers.add()
    layer.name, layer.output[:] = "constant", ["a_h_in"]
    layer.loadConstantND.shape[:] = [1, 1, 4]
    layer.loadConstantND.data.floatValue[:] = [0, 0, 1, 0]
    spec.neuralNetwork.layers.insert(0, spec.neuralNetwork.layers.pop())


@pytest.mark.parametrize("name", CHANGES)
def test_no_fact_is_dropped_in_silence(name: str, tmp_path: Path) -> None:
    plain = {key: repr(layer) for key, layer in rc.load(GOLDEN / "layers.mlmodel").layers.items()}
    try:
        checkpoint = rc.load(changed(tmp_path, CHANGES[name]))
    except UnreadableError:
        return
    assert checkpoint.unread or {key: repr(layer) for key, layer in checkpoint.layers.items()} != plain


@pytest.mark.parametrize(
    ("place", "why"),
    [("../outside", "not a file"), ("/etc/passwd", "not a file"), ("com.apple.CoreML", "Is a directory"),
     ("com.apple.CoreML/none", "No such file"), (7, "where the model"), ("link", "outside the folder")],
)  # fmt: skip
def test_a_package_names_files_of_its_own_only(place: object, why: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.mlpackage", of(GRU))
    (tmp_path / "outside").write_bytes(b"\x08\x01")
    (path / "Data" / "link").symlink_to(tmp_path / "outside")
    manifest = json.loads((path / "Manifest.json").read_text())
    manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"] = place
    (path / "Manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UnreadableError, match=why):
        rc.load(path, "coreml")


@pytest.mark.parametrize("name", ["operations.mlpackage", "linear.mlpackage", "layers.mlmodel", "bits3.mlmodel"])
def test_a_damaged_file_ends_in_an_error_of_ours(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    (shutil.copytree if (GOLDEN / name).is_dir() else shutil.copy)(GOLDEN / name, path)
    parts = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    contents, rng, ends = {file: file.read_bytes() for file in parts}, random.Random(1), set()
    for _ in range(80):
        part = rng.choice(parts)
        damaged = bytearray(contents[part])
        for place in rng.sample(range(len(damaged)), rng.choice((1, 2, 5))):
            damaged[place] = rng.randrange(256)
        part.write_bytes(bytes(damaged[: rng.choice((len(damaged), len(damaged), rng.randrange(len(damaged))))]))
        try:
            rc.load(path, "coreml" if path.is_dir() else "coreml_nn")
            ends.add("read")
        except UnreadableError:
            ends.add("unreadable")
        part.write_bytes(contents[part])
    assert ends == {"read", "unreadable"}


def test_weights_of_other_layers_are_listed() -> None:
    network, program = (rc.load(GOLDEN / f"torch.{kind}").tensors for kind in ("mlmodel", "mlpackage"))
    assert set(network) == {"linear_0/weights", "linear_0/bias"}
    for name, array in network.items():
        same = [other for other in program.values() if other.shape == array.shape]
        assert len(same) == 1 and np.array_equal(array, same[0]), name


def test_other_layers_have_the_shapes_that_the_format_gives_them(tmp_path: Path) -> None:
    ct = tools()
    spec = ct.proto.Model_pb2.Model(specificationVersion=4)
    spec.description.input.add(name="x")
    expected: dict[str, Array] = {}

    def add(kind: str, weights: dict[str, tuple[int, ...]], quantized: bool = False, **stated: Any) -> None:
        layer = spec.neuralNetwork.layers.add(name="block/one", input=["x"], output=["y"])
        content = getattr(layer, kind)
        label = "block/one" + (f"_{len(spec.neuralNetwork.layers)}" if len(spec.neuralNetwork.layers) > 1 else "")
        for name, value in stated.items():
            getattr(content, name).extend(value) if isinstance(value, list) else setattr(content, name, value)
        for local, shape in weights.items():
            size = int(np.prod([abs(length) for length in shape]))
            numbers = np.arange(size, dtype=np.float32)
            if quantized:
                getattr(content, local).rawValue = numbers.astype(np.uint8).tobytes()
                getattr(content, local).quantization.numberOfBits = 8
                getattr(content, local).quantization.linearQuantization.scale.append(1.0)
            else:
                getattr(content, local).floatValue.extend(numbers)
            expected[f"{label}/{local}"] = numbers.reshape(shape) if min(shape) > 0 else numbers

    for quantized in (False, True):
        add("convolution", {"weights": (6, 2, 3, 5), "bias": (6,)}, quantized, outputChannels=6, kernelChannels=2,
            nGroups=2, kernelSize=[3, 5])  # fmt: skip
        add("convolution", {"weights": (4, 3, 3, 5), "bias": (6,)}, quantized, outputChannels=6, kernelChannels=4,
            nGroups=2, kernelSize=[3, 5], isDeconvolution=True)  # fmt: skip
        add("innerProduct", {"weights": (3, 4), "bias": (3,)}, quantized, inputChannels=4, outputChannels=3)
        add("batchnorm", {"gamma": (3,), "beta": (3,), "mean": (3,), "variance": (3,)}, quantized, channels=3)
    add("convolution", {"weights": (-2, -2, 1, 1)}, outputChannels=1, kernelChannels=1, kernelSize=[(1 << 64) - 2, (1 << 64) - 2])
    (tmp_path / "m.mlmodel").write_bytes(spec.SerializeToString())
    checkpoint = rc.load(tmp_path / "m.mlmodel", source_format="coreml_nn")
    assert checkpoint.warnings == () and set(checkpoint.tensors) == set(expected)
    for name, array in expected.items():
        assert checkpoint.tensors[name].shape == array.shape and np.array_equal(checkpoint.tensors[name], array), name


@pytest.mark.parametrize("form", ["link", "pipe", "loop"])
def test_no_file_of_a_package_lies_elsewhere_or_is_waited_for(form: str, tmp_path: Path) -> None:
    """Its list of items among them, which was read wherever a link led."""
    sources.write(tmp_path / "m.mlpackage", sources.stack(), target_format="coreml")
    files = [file.relative_to(tmp_path / "m.mlpackage") for file in (tmp_path / "m.mlpackage").rglob("*") if file.is_file()]
    (tmp_path / "outside").write_text("{}")
    for number, name in enumerate(files):
        package = tmp_path / f"{number}.mlpackage"
        shutil.copytree(tmp_path / "m.mlpackage", package)
        (package / name).unlink()
        if form == "pipe":
            os.mkfifo(package / name)
        else:
            (package / name).symlink_to(tmp_path / "outside" if form == "link" else package / name)
        words = {"link": "outside the folder", "pipe": "not a regular file", "loop": "symbolic links|outside the folder|No such file"}
        with pytest.raises(rc.UnreadableError, match=words[form]):
            rc.load(package)
