"""Whole OpenVINO models, written as ONNX: what OpenVINO computes of its own operations, and of models that others made."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from tests.helpers.random_models import fill
from tests.helpers.requirements import needed
from tests.scaffolding.test_whole_programs import NAMES, equal, frameworks, keras_models

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning", "ignore:.*jit.*:DeprecationWarning", "ignore:Converting a tensor"
)


def operations(op: Any, x: Any, f: Callable[..., Any], i: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """One use of each operation on numbers (batch, 6, 4); constants of floats and of whole numbers are made by `f` and `i`."""
    image = lambda: op.reshape(x, i(0, 2, 3, 4), True)  # noqa: E731
    weights = f(*np.linspace(-1, 1, 3 * 2 * 2 * 3)).get_data().reshape(3, 2, 2, 3)
    return {
        "functions": lambda: op.add(op.tanh(op.sigmoid(x)), op.add(op.relu(x), op.exp(op.negative(op.absolute(x))))),
        "rounding": lambda: op.add(op.add(op.ceiling(x), op.floor(x)), op.add(op.sign(x), op.round(x, "half_to_even"))),
        "waves": lambda: op.add(op.sin(x), op.add(op.cos(x), op.erf(x))),
        "bent": lambda: op.add(op.add(op.elu(x, 0.7), op.hswish(x)), op.add(op.softplus(x), op.softsign(x))),
        "bent more": lambda: op.add(op.add(op.mish(x), op.swish(x)), op.add(op.gelu(x, "erf"), op.gelu(x, "tanh"))),
        "swish with a factor": lambda: op.swish(x, f(1.5)),
        "with constants": lambda: op.add(op.hard_sigmoid(x, f(0.3), f(0.4)), op.selu(x, f(1.6732632423543772), f(1.0507009873554805))),
        "slopes": lambda: op.prelu(x, f(*np.linspace(0.1, 0.6, 6))),
        "one slope": lambda: op.prelu(x, f(0.3)),
        "clamped": lambda: op.clamp(x, -0.5, 0.25),
        "arithmetic": lambda: op.divide(op.multiply(op.subtract(x, f(1)), x), op.add(op.power(x, f(2)), f(1))),
        "bounds": lambda: op.maximum(op.minimum(x, f(0.5)), op.squared_difference(x, f(1))),
        "choices": lambda: op.select(op.logical_and(op.greater(x, f(0)), op.less_equal(x, f(1))), x, op.negative(x)),
        "not equal": lambda: op.select(op.not_equal(op.round(x, "half_to_even"), f(0)), x, f(9)),
        "softmax": lambda: op.softmax(x, 2),
        "softmax over the middle": lambda: op.softmax(x, 1),
        "logarithms of a softmax": lambda: op.log_softmax(x, 1),
        "means": lambda: op.reduce_mean(x, i(1), False),
        "sums": lambda: op.reduce_sum(x, i(1, 2), True),
        "largest": lambda: op.subtract(op.reduce_max(x, i(-1), True), op.reduce_min(x, i(1), True)),
        "norms": lambda: op.add(op.reduce_l2(x, i(2), True), op.reduce_l1(x, i(2), True)),
        "products": lambda: op.matmul(x, x, False, True),
        "turned products": lambda: op.matmul(x, x, True, False),
        "a matrix": lambda: op.matmul(x, op.constant(np.linspace(-1, 1, 20).reshape(5, 4).astype(np.float32)), False, True),
        "transpose": lambda: op.transpose(x, i(0, 2, 1)),
        "reshape": lambda: op.reshape(x, i(0, -1), True),
        "squeeze": lambda: op.squeeze(op.unsqueeze(op.relu(x), i(1, 3)), i(3)),
        "concat": lambda: op.concat([x, op.negative(x)], 1),
        "split": lambda: op.subtract(op.split(x, op.constant(np.int64(1)), 2).output(1), f(1)),
        "lengths of parts": lambda: op.relu(op.variadic_split(x, op.constant(np.int64(1)), i(2, -1)).output(1)),
        "gather": lambda: op.gather(x, i(3, 0, 0), op.constant(np.int64(1))),
        "one element": lambda: op.gather(x, op.constant(np.int64(-1)), op.constant(np.int64(1))),
        "slice": lambda: op.slice(x, i(1, 0), i(5, 100), i(2, 1), i(1, 2)),
        "strided": lambda: op.strided_slice(x, i(0, 1, 0), i(0, -1, 0), i(1, 2, 1), [1, 0, 1], [1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]),
        "one of an axis": lambda: op.strided_slice(x, i(0, -1), i(0, 0), i(1, 1), [1, 0], [1, 0], [0, 0], [0, 1], [0, 0]),
        "pad": lambda: op.pad(x, i(0, 1, 0), i(0, 0, 2), "constant", f(3)),
        "tile": lambda: op.tile(x, i(2, 1)),
        "an order of no axes": lambda: op.transpose(x, i()),
        "a slice from before the start": lambda: op.slice(x, i(-9), i(2), i(3), i(2)),
        "broadcast": lambda: op.broadcast(op.constant(np.arange(4, dtype=np.float32)), op.shape_of(x)),
        "from the end": lambda: op.slice(x, i(-1), i(-(2**31)), i(-1), i(1)),
        "roll": lambda: op.roll(x, i(2, -1), i(1, 2)),
        "cumulated": lambda: op.cum_sum(x, op.constant(np.int64(1)), False, True),
        "best": lambda: op.topk(x, op.constant(np.int64(2)), 2, "max", "value").output(0),
        "places of the best": lambda: op.convert(op.topk(x, op.constant(np.int64(2)), 1, "min", "value").output(1), "f32"),
        "convolution": lambda: op.convolution(image(), weights, [1, 1], [0, 1], [0, 1], [1, 1]),
        "a padded convolution": lambda: op.convolution(image(), weights, [2, 1], [0, 0], [0, 0], [1, 1], "same_upper"),
        "a convolution backwards": lambda: op.convolution_backprop_data(
            image(), weights[:2], [2, 1], None, [0, 1], [0, 1], [1, 1], "explicit", [1, 0]
        ),
        "groups backwards": lambda: op.group_convolution_backprop_data(
            image(), weights[:2].reshape(2, 1, 2, 2, 3), [1, 2], None, [0, 0], [0, 0], [1, 1]
        ),
        "groups": lambda: op.group_convolution(image(), weights[:2].reshape(2, 1, 2, 2, 3)[:, :, :1], [1, 1], [0, 0], [0, 0], [1, 1]),
        "largest of windows": lambda: op.max_pool(image(), [1, 2], [1, 1], [0, 0], [0, 0], [2, 2]).output(0),
        "means of windows": lambda: op.avg_pool(image(), [1, 2], [1, 0], [1, 0], [2, 2], False),
        "means of the inside": lambda: op.avg_pool(image(), [1, 2], [1, 0], [1, 0], [2, 2], True),
        "norm": lambda: op.mvn(x, i(2), True, 1e-3, "inside_sqrt"),
        "norm outside": lambda: op.mvn(x, i(1, 2), True, 1e-1, "outside_sqrt"),
        "channels": lambda: op.batch_norm_inference(x, *(f(*np.linspace(low, 2, 6)) for low in (0.5, -1, -2, 0.7)), 1e-3),
        "whole numbers": lambda: op.convert(op.convert(op.multiply(x, f(5)), "i32"), "f32"),
        "einsum": lambda: op.einsum([x, x], "btf,bsf->bts"),
    }


USES = list(operations(None, None, lambda *numbers: type("constant", (), {"get_data": lambda self: np.array(numbers)})(), lambda *_: None))


@pytest.mark.parametrize("name", USES)
def test_an_operation_gives_what_openvino_gives(name: str, tmp_path: Path) -> None:
    frameworks("openvino")
    ov, op = needed("openvino", "openvino"), importlib.import_module("openvino.opset13")
    x = op.parameter([2, 6, 4], np.float32, name="x")

    y = operations(op, x, _constants(op, np.float32), _constants(op, np.int64))[name]()
    ov.save_model(ov.Model([y], [x]), tmp_path / "model.xml", compress_to_fp16=False)
    equal(tmp_path / "model.xml", tmp_path / "model.onnx")


def _constants(op: Any, dtype: Any) -> Callable[..., Any]:
    scalar = dtype == np.float32
    return lambda *numbers: op.constant(np.array(numbers[0] if scalar and len(numbers) == 1 else numbers, dtype))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "masked"])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    frameworks("openvino")
    model = keras_models(importlib.import_module("keras"), None)[name]()
    fill(model, 5)
    model.save(tmp_path / "model.keras")
    rc.export_model(tmp_path / "model.keras", tmp_path / "model.xml")
    equal(tmp_path / "model.xml", tmp_path / "model.onnx")


@pytest.mark.parametrize("open_lengths", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_model_that_openvino_converted_goes_on(kind: str, open_lengths: bool, tmp_path: Path) -> None:
    frameworks("openvino", "torch")
    ov, torch = needed("openvino", "openvino"), needed("torch", "torch")
    torch.manual_seed(3)
    rnn = getattr(torch.nn, kind)(6, 5, num_layers=2, bidirectional=True, batch_first=True)
    norm, linear = torch.nn.LayerNorm(10), torch.nn.Linear(10, 3)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.norm, self.linear = rnn, norm, linear

        def forward(self, x: Any) -> Any:
            return torch.softmax(self.linear(torch.nn.functional.gelu(self.norm(self.rnn(x)[0]))), -1)

    shape = [-1, -1, 6] if open_lengths else [2, 7, 6]
    converted = ov.convert_model(Model().eval(), example_input=torch.randn(2, 7, 6), input=[shape])
    ov.save_model(converted, tmp_path / "model.xml", compress_to_fp16=open_lengths)
    loaded = rc.load(tmp_path / "model.xml")
    assert rc.join_stack(list(loaded.layers.values())).num_layers == 2
    done = equal(tmp_path / "model.xml", tmp_path / "model.onnx")
    assert [text.partition(" (")[2].partition(" ")[0] for text in done.layers] == [kind, kind], done.layers


def test_steps_that_are_written_out_are_a_layer(tmp_path: Path) -> None:
    """A cell in other operations, as a converter leaves a loop of a fixed number of steps."""
    frameworks("openvino", "torch")
    ov, torch = needed("openvino", "openvino"), needed("torch", "torch")
    torch.manual_seed(4)
    cell = torch.nn.GRUCell(3, 4)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, x: Any) -> Any:
            h = torch.zeros(2, 4)
            for step in range(5):
                h = self.cell(x[:, step], h)
            return h

    converted = ov.convert_model(Model().eval(), example_input=torch.randn(2, 5, 3), input=[[2, 5, 3]])
    ov.save_model(converted, tmp_path / "model.xml", compress_to_fp16=False)
    (stack,) = rc.load(tmp_path / "model.xml").layers.values()
    assert stack.cell.kind == "gru" and stack.hidden_size == 4
    equal(tmp_path / "model.xml", tmp_path / "model.onnx")


def test_an_unknown_operation_is_named_as_the_file_does(tmp_path: Path) -> None:
    ov, op = needed("openvino", "openvino"), importlib.import_module("openvino.opset13")
    x = op.parameter([2, 3], np.float32, name="x")
    ov.save_model(ov.Model([op.grn(x, 0.1)], [x]), tmp_path / "model.xml")
    with pytest.raises(rc.RefusedError, match="the operator GRN"):
        rc.export_model(tmp_path / "model.xml", tmp_path / "model.onnx")
