"""ONNX models: weights behind operators that can be evaluated, and recurrent layers that could not be read but always named."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxruntime.quantization
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.files.load import load
from tests.helpers.onnx_graphs import in_onnxruntime

GENERATOR = np.random.default_rng(4)


def normal(*shape: int) -> Array:
    return GENERATOR.normal(size=shape).astype(np.float32)


def saved(path: Path, nodes: list[onnx.NodeProto], arrays: dict[str, Array], inputs: dict[str, int] | None = None, opset: int = 17) -> Path:
    values = [helper.make_tensor_value_info(name, 1, [None] * axes) for name, axes in ({"x": 3} | (inputs or {})).items()]
    graph = helper.make_graph(
        nodes, "made", values, [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), path)
    return path


def lstm(*inputs: str) -> onnx.NodeProto:
    return helper.make_node("LSTM", ["x", *inputs], ["y"], "rnn", hidden_size=4)


WEIGHTS: dict[str, Array] = {"W": normal(1, 16, 3), "R": normal(1, 16, 4), "B": normal(1, 32)}


def behind(operator: str) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Nodes that make W of stored arrays."""
    node = helper.make_node
    eight = np.asarray(np.clip(WEIGHTS["W"] * 40, -127, 127), np.int8)
    if operator == "DequantizeLinear":
        return [node(operator, ["q", "s", "z"], ["W"])], {
            "q": eight, "s": np.float32(0.02) * np.ones((), np.float32), "z": np.array(3, np.int8),
        }  # fmt: skip
    if operator == "DequantizeLinear by axis":
        scales = np.abs(normal(16)) / 30
        return [node("DequantizeLinear", ["q", "s", "z"], ["W"], axis=1)], {
            "q": eight.view(np.uint8), "s": scales, "z": np.arange(16, dtype=np.uint8),
        }  # fmt: skip
    if operator == "Pad":
        return [node(operator, ["w", "p", "v"], ["W"])], {
            "w": WEIGHTS["W"][:, 1:], "p": np.array([0, 2, 0, 0, -1, 0]), "v": np.array(0.5, np.float32),
        }  # fmt: skip
    if operator == "Where":
        return [node(operator, ["c", "w", "o"], ["W"])], {
            "c": WEIGHTS["W"] > 0, "w": WEIGHTS["W"], "o": np.zeros((), np.float32),
        }  # fmt: skip
    if operator == "MatMul":
        return [node(operator, ["w", "m"], ["W"])], {"w": normal(1, 16, 5), "m": normal(5, 3)}
    return [node("Tanh", ["w"], ["W"])], {"w": WEIGHTS["W"]}


@pytest.mark.parametrize("operator", ["DequantizeLinear", "DequantizeLinear by axis", "Pad", "Where", "MatMul", "Tanh"])
def test_weights_behind_operators_are_evaluated(tmp_path: Path, operator: str) -> None:
    nodes, arrays = behind(operator)
    stored = {"R": WEIGHTS["R"], "B": WEIGHTS["B"], **arrays}
    path = saved(tmp_path / "m.onnx", [*nodes, lstm("W", "R", "B")], stored)
    (stack,) = load(path).layers.values()
    x = normal(5, 2, 3)
    assert np.abs(reference.run(stack, x).y - in_onnxruntime(path, x)[0][:, 0]).max() < 1e-5


def test_zeros_that_are_cast_are_a_zero_state(tmp_path: Path) -> None:
    """As PyTorch 1.8 exports them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["batch"]),
        helper.make_node("Concat", ["one", "batch", "four"], ["sizes"], axis=0),
        helper.make_node("ConstantOfShape", ["sizes"], ["whole"], value=numpy_helper.from_array(np.zeros(1, np.int64))),
        helper.make_node("Cast", ["whole"], ["zeros"], to=TensorProto.FLOAT),
        lstm("W", "R", "B", "", "zeros", "zeros"),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {**WEIGHTS, "one": np.array([1]), "four": np.array([4])})
    (stack,) = load(path).layers.values()
    assert not stack.unconvertible
    assert not any(part.startswith("initial") for part, _ in stack.first.arrays)


def refused(path: Path, *words: str) -> None:
    """It is named by `load`, and no conversion leaves it out."""
    checkpoint = load(path)
    assert checkpoint.unread
    assert set(checkpoint.unread) <= set(checkpoint.warnings)
    with pytest.raises(RefusedError) as error:
        rc.convert(path, path.with_name("out.safetensors"))
    assert error.value.exit_code == 4
    for word in words:
        assert word in str(error.value)
    assert not path.with_name("out.safetensors").exists()


def test_weights_that_are_inputs_of_the_graph(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", [lstm("W", "R", "B")], {"R": WEIGHTS["R"], "B": WEIGHTS["B"]}, {"W": 3})
    refused(path, "'W', an input of main", "initializers")


def test_weights_behind_what_is_not_evaluated(tmp_path: Path) -> None:
    nodes = [helper.make_node("Erf", ["w"], ["W"]), lstm("W", "R", "B")]
    stored = {"w": WEIGHTS["W"], "R": WEIGHTS["R"], "B": WEIGHTS["B"]}
    refused(saved(tmp_path / "m.onnx", nodes, stored), "a node Erf", "Fold")


@pytest.mark.parametrize("obstacle", ["Erf 'first'", "Reshape 'first'", "an input of main"])
def test_the_node_that_stands_in_the_way_is_named_and_not_what_reads_it(tmp_path: Path, obstacle: str) -> None:
    node = helper.make_node
    first = {
        "E": [node("Erf", ["W0"], ["W1"], "first")],
        "R": [node("Reshape", ["W0", "shape"], ["W1"], "first")],
        "a": [node("Mul", ["W0", "scale"], ["W1"], "first")],
    }[obstacle[0]]
    nodes = [*first, node("Neg", ["W1"], ["W2"], "second"), node("Transpose", ["W2"], ["W"], "third", perm=[0, 2, 1])]
    arrays = {"W0": normal(1, 3, 16), "shape": np.array([7, 7]), "R": WEIGHTS["R"]}
    inputs = {"scale": 3} if obstacle[0] == "a" else None
    refused(saved(tmp_path / "m.onnx", [*nodes, lstm("W", "R")], arrays, inputs), "rnn: its weights W", obstacle)


def test_a_layer_that_is_read_is_still_converted_by_its_name(tmp_path: Path) -> None:
    other = helper.make_node("GRU", ["x", "V", "U"], ["z"], "other", hidden_size=4)
    arrays = {**WEIGHTS, "U": normal(1, 12, 4)}
    path = saved(tmp_path / "m.onnx", [lstm("W", "R", "B"), other], arrays, {"V": 3})
    refused(path, "other", "Convert the others: --layer rnn")
    rc.convert(path, tmp_path / "out.safetensors", layers=["rnn"])


def test_a_quantised_lstm(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", [lstm("W", "R", "B")], WEIGHTS)
    onnxruntime.quantization.quantize_dynamic(path, tmp_path / "q.onnx", op_types_to_quantize=["LSTM"])
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node}
    checkpoint = load(tmp_path / "q.onnx")
    assert not checkpoint.unread and len(checkpoint.layers) == 1 and "stored as integers" in checkpoint.warnings[0]


class Cells(nn.Module):
    """Steps of a cell by hand."""

    def __init__(self, cell: nn.Module, steps: int) -> None:
        super().__init__()
        self.cell, self.steps = cell, steps

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        state: Any = (h, h) if isinstance(self.cell, nn.LSTMCell) else h
        for step in range(self.steps):
            state = self.cell(x[step], state)
        y: torch.Tensor = state[0] if isinstance(state, tuple) else state
        return y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_cells_that_are_written_out(tmp_path: Path, kind: Any, steps: int) -> None:
    """A GRU's are a layer. One tensor for both states of an LSTM hides which is which, in its first step."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Cells(kind(3, 4), steps).eval(), (torch.zeros(3, 2, 3), torch.zeros(2, 4)), buffer, dynamo=False)
    path = tmp_path / "m.onnx"
    path.write_bytes(buffer.getvalue())
    if kind is nn.LSTMCell:
        refused(path, "what its first step reads is not known" if steps > 1 else "gates and a candidate")
        return
    (stack,) = load(path).layers.values()
    x, h = normal(3, 2, 3), normal(2, 4)
    assert np.abs(reference.run(stack, x[:steps], (h,)).hidden[0] - in_onnxruntime(path, x, h)[0]).max() < 1e-6


@pytest.mark.parametrize("operator", ["Loop", "Scan"])
@pytest.mark.parametrize("convolves", [True, False])
def test_loops_that_compute_a_cell(tmp_path: Path, operator: str, convolves: bool) -> None:
    node = helper.make_node
    product = node("Conv" if convolves else "MatMul", ["h", "U"], ["p"])
    cell = [product, node("Add", ["p", "step"], ["a"]), node("Tanh", ["a"], ["g"]), node("Identity", ["g"], ["out"])]
    info = helper.make_tensor_value_info
    if operator == "Scan":
        body = helper.make_graph(cell, "b", [info("h", 1, None), info("step", 1, None)], [info("g", 1, None), info("out", 1, None)])
        nodes = [node("Scan", ["h0", "x"], ["last", "y"], "loop", body=body, num_scan_inputs=1)]
    else:
        cell = [node("Gather", ["x", "i"], ["step"]), *cell, node("Identity", ["go"], ["on"])]
        ends = [info("on", 9, []), info("g", 1, None), info("out", 1, None)]
        body = helper.make_graph(cell, "b", [info("i", 7, []), info("go", 9, []), info("h", 1, None)], ends)
        nodes = [node("Loop", ["steps", "", "h0"], ["last", "y"], "loop", body=body)]
    arrays = {"U": normal(4, 4, 3, 3) if convolves else normal(4, 4), "h0": normal(1, 4), "steps": np.array(3)}
    path = saved(tmp_path / "m.onnx", nodes, arrays)
    refused(path, f"is a {operator}", "ConvLSTM" if convolves else "a recurrent cell", "--layout")


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_recurrence_is_not_taken_for_one(tmp_path: Path) -> None:
    class Gated(nn.Module):
        """Gates, attention and a shared matrix, and nothing that repeats."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(8, 8)
            self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            left, right = self.b(x).chunk(2, -1)
            x = torch.tanh(left) * torch.sigmoid(right) + torch.sigmoid(self.a(x)) * x
            y: torch.Tensor = self.encoder(x) * torch.sigmoid(self.c(x))
            return y

    buffer = io.BytesIO()
    torch.onnx.export(Gated().eval(), (torch.zeros(1, 5, 8),), buffer, dynamo=False)
    (tmp_path / "m.onnx").write_bytes(buffer.getvalue())
    assert not load(tmp_path / "m.onnx").unread


def test_weights_in_constant_nodes_are_listed(tmp_path: Path) -> None:
    """Paddle2ONNX and spox keep weights in Constant nodes; those of two branches may have one name."""

    def branch(value: float) -> onnx.GraphProto:
        weights = numpy_helper.from_array(np.full((2, 3, 1), value, np.float32))
        branch_nodes = [helper.make_node("Constant", [], ["w"], value=weights), helper.make_node("Conv", ["x", "w"], ["y"])]
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        return helper.make_graph(branch_nodes, f"branch {value}", [], [y])

    head = numpy_helper.from_array(np.ones(2, np.float32))
    nodes = [
        helper.make_node("If", ["which"], ["z"], "choice", then_branch=branch(1.0), else_branch=branch(2.0)),
        helper.make_node("Constant", [], ["head"], value=head),
        helper.make_node("Constant", [], ["scale"], value=numpy_helper.from_array(np.float32(2))),
        helper.make_node("Mul", ["z", "head"], ["out"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 2]),
        helper.make_tensor_value_info("which", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    tensors = load(tmp_path / "m.onnx").tensors
    assert sorted(tensors) == ["head", "main/choice.else_branch/w", "main/choice.then_branch/w"]
    assert {float(array.flat[0]) for name, array in tensors.items() if name.endswith("w")} == {1.0, 2.0}
