"""TFLite models of real converters: loops over TensorFlow's own lists, and weights in int8 and float16."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.files.checkpoint import Checkpoint, suspects
from rnnconvert.files.load import select
from rnnconvert.formats.tflite import graph, lists, loops, operators, schema
from rnnconvert.models.runners import FileModel
from rnnconvert.running import registry
from tests import ROOT, environments
from tests.helpers.requirements import need, needed

GOLDEN = ROOT / "tests" / "golden" / "tflite_lists"


def _runs(checkpoint: rc.Checkpoint, x: Array) -> Array:
    """Return what the layers of a golden file give, one after the other or two directions side by side."""
    *before, last = checkpoint.layers.values()
    if before and last.input_size == before[0].input_size:
        return np.concatenate([reference.run(layer, x).hidden[0] for layer in (last, *before)], -1)
    for layer in before:
        x = reference.run(layer, x).y
    return reference.run(last, x).hidden[0]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.npz")), ids=lambda path: path.stem)
def test_layers_give_what_keras_gave(path: Path) -> None:
    checkpoint = rc.load(path.with_suffix(".tflite"))
    assert not checkpoint.unread and all(call.states == "" for layer in checkpoint.layers.values() for call in layer.calls)
    assert not any(array.ndim for array in checkpoint.tensors.values())
    with np.load(path) as file:
        arrays = dict(file)
    y, truth = _runs(checkpoint, arrays["x"].swapaxes(0, 1)), arrays["y"]
    truth = truth[:, -1] if truth.ndim == 3 else truth
    stored = path.stem.split("_")[-1]
    far = {"half": 2e-4, "int8": 1e-2}.get(stored, 1e-6)
    np.testing.assert_allclose(y, truth, rtol=far, atol=far)
    words = {"half": "stored as float16", "int8": "kernel for integers also rounds its input and its states"}
    assert all(words[stored] in text for text in checkpoint.warnings) if stored in words else not checkpoint.warnings


@pytest.mark.parametrize("name", ["old_stack", "old_gru"])
def test_where_a_slice_begins_is_computed_from_ranks_and_constants_of_the_loop(name: str) -> None:
    """TensorFlow 2.2's converter; the layers have the names that Keras gave them."""
    path = GOLDEN / f"{name}.tflite"
    checkpoint = rc.load(path)
    assert all("while" not in layer_name and "Call" not in layer_name for layer_name in checkpoint.layers), list(checkpoint.layers)


@pytest.fixture(autouse=True)
def no_executors_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "executors.json"))


@pytest.mark.parametrize("name", ["stack", "half", "ways_int8"])
def test_whole_models_with_operators_of_tensorflow_run_where_the_refusal_says(name: str, tmp_path: Path) -> None:
    needed("litert", "ai_edge_litert")
    path = GOLDEN / f"{name}.tflite"
    pins = environments.PINS / "tensorflow218.txt"
    assert re.search(r"^tensorflow-cpu==2\.18\.", pins.read_text(encoding="utf-8"), re.M), "not the release that the refusal names"
    way_out = r"'tensorflow<2\.19' ai-edge-litert.*rnnconvert executors add litert-cpu"
    with pytest.raises(UsageError, match=f"TensorList.*{way_out}"):
        FileModel(path, ["litert-cpu"])
    need("tensorflow218", environments.missing("tensorflow218"))
    registry.add("litert-cpu", str(environments.place("tensorflow218") / "bin" / "python"))
    with np.load(path.with_suffix(".npz")) as file:
        arrays = dict(file)
    model = FileModel(path, ["litert-cpu"])
    (input_name,) = model.names
    (y,) = model.ran([(input_name, arrays["x"])], [])[0].outputs
    truth = arrays["y"][:, -1] if y.ndim < arrays["y"].ndim else arrays["y"]
    far = {"half": 2e-4, "int8": 1e-2}.get(name.split("_")[-1], 1e-6)
    np.testing.assert_allclose(y, truth, rtol=far, atol=far)


@pytest.mark.parametrize("number", [4, 6])
def test_a_list_of_another_length_than_the_steps_is_not_read(number: int) -> None:
    model = graph.read(GOLDEN / "old_gru.tflite")
    main = model.graphs[0]
    (loop,) = (operator for operator in main.operators if operator.label == "WHILE")
    tensor = main.tensors[loop.input(2)]
    object.__setattr__(tensor, "dims", (number, *tensor.dims[1:]))
    assert not loops.read(GOLDEN / "old_gru.tflite", model).layers


def test_integers_are_read_as_the_numbers_that_they_stand_for() -> None:
    (stack,) = rc.load(GOLDEN / "unrolled_int8.tflite").layers.values()
    with np.load(GOLDEN / "unrolled_int8.npz") as stored:
        kernel = stored["w0"].T
    read = np.concatenate([np.asarray(stack.first.get("input", gate)) for gate in "ifgo"])
    assert 0 < np.abs(read - kernel).max() <= np.abs(kernel).max() / 127 * 0.501


def _changed(path: Path, change: Any) -> Path:
    """Write the golden file "open" or "stack" with a change of its tables."""
    schema = needed("litert", "ai_edge_litert.schema_py_generated")
    builder = needed("litert", "flatbuffers").Builder(1 << 16)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray((GOLDEN / "stack.tflite").read_bytes()), 0))
    change(model)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())
    return path


def _custom(model: Any, name: str) -> list[tuple[Any, Any]]:
    """Return the operators of a custom code, each with its graph."""
    return [
        (subgraph, operator) for subgraph in model.subgraphs for operator in subgraph.operators
        if model.operatorCodes[operator.opcodeIndex].customCode == name.encode()
    ]  # fmt: skip


def _number(model: Any, subgraph: Any, number: int) -> int:
    """Add a whole number to a graph; return its tensor."""
    schema = needed("litert", "ai_edge_litert.schema_py_generated")
    buffer, tensor = schema.BufferT(), schema.TensorT()
    buffer.data = np.frombuffer(np.int32(number).tobytes(), np.uint8)
    model.buffers.append(buffer)
    tensor.name, tensor.shape, tensor.type, tensor.buffer = b"number", [], 2, len(model.buffers) - 1
    subgraph.tensors.append(tensor)
    return len(subgraph.tensors) - 1


def test_a_file_that_is_packed_again_is_read(tmp_path: Path) -> None:
    assert len(rc.load(_changed(tmp_path / "m.tflite", lambda model: None)).layers) == 2


@pytest.mark.parametrize(
    ("code", "place", "number"), [(lists.RESERVE, 1, 6), (lists.RESERVE, 1, 4), (lists.SET, 1, 1)], ids=["longer", "shorter", "elsewhere"]
)
def test_a_list_that_does_not_hold_each_step_is_not_read(tmp_path: Path, code: str, place: int, number: int) -> None:
    def change(model: Any) -> None:
        for subgraph, operator in _custom(model, code):
            operator.inputs = [*operator.inputs]
            operator.inputs[place] = _number(model, subgraph, number)

    checkpoint = rc.load(_changed(tmp_path / "m.tflite", change))
    assert not checkpoint.layers and all(lists.SET in text or lists.RESERVE in text for text in checkpoint.unread), checkpoint.unread


def test_another_custom_operator_is_named(tmp_path: Path) -> None:
    def change(model: Any) -> None:
        for code in model.operatorCodes:
            if code.customCode == lists.SET.encode():
                code.customCode = b"FlexTensorListPushBack"

    checkpoint = rc.load(_changed(tmp_path / "m.tflite", change))
    assert not checkpoint.layers and all("FlexTensorListPushBack" in text for text in checkpoint.unread), checkpoint.unread


def test_products_of_integers_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Int8 weights multiplied with integers run in another kernel than the hybrid one, which takes floats."""
    monkeypatch.setattr(operators, "_FLOAT", 9)
    path = GOLDEN / "unrolled_int8.tflite"
    assert not loops.read(path, graph.read(path)).layers


def test_steps_that_compute_in_integers_are_named_and_their_matrices_listed(tmp_path: Path) -> None:
    checkpoint = rc.load(GOLDEN / "integers.tflite")
    assert not checkpoint.layers and [array.shape for array in checkpoint.tensors.values()].count((16, 4)) == 2
    assert "may be the steps of a recurrent layer" in checkpoint.unread[0] and "FULLY_CONNECTED" in checkpoint.unread[0]
    with pytest.raises(rc.RefusedError, match="may be the steps of a recurrent layer"):
        rc.convert(GOLDEN / "integers.tflite", tmp_path / "m.onnx")


def test_a_name_of_a_recurrent_matrix_is_not_denied() -> None:
    matrices = {"net/recurrent_kernel": np.zeros((4, 16)), "dense/kernel": np.zeros((4, 2))}
    checkpoint = Checkpoint("m.h5", "keras", {}, matrices)
    assert suspects(checkpoint) == ["net/recurrent_kernel"]
    with pytest.raises(UnreadableError, match=r"though 'net/recurrent_kernel' is named") as caught:
        select(checkpoint, ())
    assert "it has no recurrent layer" not in str(caught.value)
    with pytest.raises(UnreadableError, match="it has no recurrent layer"):
        select(Checkpoint("m.h5", "keras", {}, {"dense/kernel": np.zeros((4, 2)), "constrain/w": np.zeros((2, 2))}), ())


def test_operators_have_the_names_of_the_schema() -> None:
    codes = vars(needed("litert", "ai_edge_litert.schema_py_generated").BuiltinOperator)
    names = {code: name for name, code in codes.items() if isinstance(code, int) and not name.startswith("STABLEHLO")}
    assert {code: name for code, name in names.items() if code < len(schema.OPERATORS)} == schema.OPERATORS


@pytest.mark.parametrize(
    ("width", "place", "counter", "value"),
    [(4, 0, 1, 3), (2, 0, 1, None), (4, 1, 1, None), (4, 0, 7, None)],
    ids=["the whole width", "a part of the width", "behind the first unit", "another place"],
)
def test_a_step_that_updates_a_list_fills_its_place(width: int, place: int, counter: int, value: int | None) -> None:
    """DYNAMIC_UPDATE_SLICE leaves what it does not reach as it was: only what is as wide as the list is the step's element."""
    none = np.empty(0)

    def tensor(dims: tuple[int | None, ...], kind: int = 0, stored: Array | None = None) -> graph.SubgraphTensor:
        return graph.SubgraphTensor("", tuple(dim or 1 for dim in dims), stored, none, none, 0, False, "", dims, kind)

    number = next(kind for kind, dtype in schema.TYPES.items() if np.dtype(dtype) == np.int32)
    zero, at = (tensor((), number, np.array(n, np.int32)) for n in (0, place))
    tensors = [
        tensor((None, 4)),
        tensor((), number),
        zero,
        tensor((width,)),
        tensor((1, width)),
        at,
        tensor((2,), number),
        tensor((None, 4)),
    ]
    code = {name: code for code, name in schema.OPERATORS.items()}
    operators_of_step = [
        graph.Operator(code["EXPAND_DIMS"], (3, 2), (4,), None),
        graph.Operator(code["PACK"], (1, 5), (6,), None),
        graph.Operator(code["DYNAMIC_UPDATE_SLICE"], (0, 4, 6), (7,), None),
    ]
    body = graph.Subgraph("step", tensors, operators_of_step, (0, 1, 3), (7, 1))
    assert lists._element(body, 0, {counter}) == value
