"""Modules of ours through torch.onnx.export: the right operator with the right attributes, run by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Activation, Cell, Clip
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.pytorch.module import module_of
from rnnconvert.language import outline
from rnnconvert.language.layout import Sizes
from tests.helpers.drawn import drawn
from tests.helpers.foreign import PEEPHOLES, WIDTH, Maker, has_cell, problem, swapped
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.stacks import random_stack

# Both exporters warn of one another's future, and the tracing one of every Python branch on a shape.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
EXPORTERS = [pytest.param(False, id="tracing"), pytest.param(True, id="dynamo")]


def export(module: Any, path: Path, dynamo: bool, states: bool = False, x: Any = None) -> onnx.ModelProto:
    """The model with time and batch left open, and initial states as inputs where they are asked for."""
    x = torch.zeros(6, 4, module.input_size) if x is None else x
    inputs: dict[str, Any] = {"x": x}
    if states:
        rows = len(module.ends)
        zeros = [torch.zeros(rows, 4, widths[0]) for widths in module.widths]
        inputs["hx"] = tuple(zeros) if module.has_cell else zeros[0]
    names = ["x", *(["h_0", "c_0"][: len(module.widths)] if states else [])]
    open_ = {name: {1: "batch", **({0: "time"} if name == "x" else {})} for name in names}
    if dynamo:
        either = torch.export.Dim.DYNAMIC
        shapes: dict[str, Any] = {"input": {0: either, 1: either}}
        if states:
            shapes["hx"] = ({1: either}, {1: either}) if module.has_cell else {1: either}
        torch.onnx.export(module, tuple(inputs.values()), path, input_names=names, dynamo=True, dynamic_shapes=shapes, verbose=False)
    else:
        torch.onnx.export(module, tuple(inputs.values()), path, input_names=names, dynamo=False, dynamic_axes=open_)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in ("RNN", "GRU", "LSTM")]


def solved(path: Path, case: Problem) -> Outputs:
    """What onnxruntime makes of it."""
    session = onnxruntime.InferenceSession(path)
    feeds = {"x": case.x}
    if case.hidden is not None and case.cell is not None:
        feeds |= {"h_0": np.stack(case.hidden)} | ({"c_0": np.stack(case.cell)} if has_cell(case.stack) else {})
    y, *states = session.run(None, feeds)
    h, c = (states[0], states[1]) if len(states) == 2 else (states[0], np.zeros((0, 1, 1)))
    return Outputs(y, tuple(h), tuple(c) if case.stack.cell.kind == "lstm" else ())


def stacks() -> dict[str, Recurrent]:
    """One layer of each operator with what torch.nn has not."""
    lstm = Cell("lstm", activation=Activation("scaled_tanh", 0.8, 0.7), coupled="f", clips=(Clip("gates", -1, 1),))
    return {
        "gru": random_stack(Sizes("gru", WIDTH, 5, 1, 2), 1, np.float32, Cell("gru", False, gate_activation=HARD_SIGMOID_KERAS_2)),
        "lstm": random_stack(Sizes("lstm", WIDTH, 5, 1, 2, parts=PEEPHOLES | {"initial_hidden", "initial_cell"}), 1, np.float32, lstm),
        "rnn": random_stack(Sizes("rnn", WIDTH, 5, 1, 1), 1, np.float32, Cell("rnn", activation=Activation("leaky_relu", 0.25))),
    }  # fmt: skip


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "gru": {
        "linear_before_reset": 0, "direction": b"bidirectional", "hidden_size": 5,
        "activations": [b"HardSigmoid", b"Tanh"] * 2, "activation_alpha": [0.2, 0.2], "activation_beta": [0.5, 0.5],
    },
    "lstm": {
        "input_forget": 1, "clip": 1.0, "direction": b"bidirectional", "hidden_size": 5,
        "activations": [b"Sigmoid", b"ScaledTanh", b"Tanh"] * 2, "activation_alpha": [0.8] * 2, "activation_beta": [0.7] * 2,
    },
    "rnn": {"direction": b"forward", "hidden_size": 5, "activations": [b"LeakyRelu"], "activation_alpha": [0.25]},
}  # fmt: skip


@pytest.mark.parametrize("dynamo", EXPORTERS)
@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn"])
def test_one_operator_with_its_attributes_from_which_the_same_cell_comes_back(kind: str, dynamo: bool, tmp_path: Path) -> None:
    stack = stacks()[kind]
    path = tmp_path / "a.onnx"
    model = export(rc.to_torch(stack), path, dynamo)
    (node,) = nodes(model)
    assert node.op_type == kind.upper()
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    assert attributes.keys() == ATTRIBUTES[kind].keys()
    for name, value in ATTRIBUTES[kind].items():
        assert attributes[name] == (pytest.approx(value) if "alpha" in name or "beta" in name else value), name
    assert len(node.input) == {"gru": 4, "rnn": 4, "lstm": 8}[kind] and (kind != "lstm" or node.input[7])
    (layer,) = rc.load(path).layers.values()
    assert outline.to_text(layer.replace(name="")) == outline.to_text(stack)
    for (*_, ours), (*_, theirs) in zip(layer.directions(), stack.directions(), strict=True):
        for key, array in theirs.arrays.items():
            np.testing.assert_array_equal(np.asarray(ours.arrays[key]), np.asarray(array))
    case = problem(stack, 1, False)
    assert excess(case, solved(path, case)) <= 1


@pytest.mark.parametrize("dynamo", EXPORTERS)
def test_gates_in_the_wrong_order_are_caught(dynamo: bool, tmp_path: Path) -> None:
    for kind in ("gru", "lstm"):
        stack = stacks()[kind]
        export(rc.to_torch(swapped(stack)), tmp_path / "a.onnx", dynamo)
        case = problem(stack, 1, False)
        assert excess(case, solved(tmp_path / "a.onnx", case)) > WRONG


def exportable(seed: int) -> Recurrent:
    """A random stack whose states are one tensor each."""
    attempts = (Maker(seed + 1000 * attempt, onnx=True).stack() for attempt in range(100))
    return next(stack for stack in attempts if len({d.hidden_size for *_, d in stack.directions()}) == 1)


@pytest.mark.parametrize("states", [True, False], ids=["given", "default"])
@pytest.mark.parametrize(("dynamo", "count"), [(False, 8), (True, 1)], ids=["tracing", "dynamo"])
def test_random_layers_run_in_onnxruntime(dynamo: bool, count: int, states: bool, tmp_path: Path) -> None:
    for seed in drawn(range(40), count, f"{dynamo} {states}"):
        stack = exportable(seed)
        path = tmp_path / f"{seed}.onnx"
        model = export(module_of(stack), path, dynamo, states)
        assert 1 <= len(nodes(model)) <= sum(len(layer.directions) for layer in stack.layers)
        case = problem(stack, seed, states)
        assert excess(case, solved(path, case)) <= 1, f"seed {seed}: {stack}"


@pytest.mark.parametrize("dynamo", EXPORTERS)
def test_a_module_inside_a_model_is_exported_with_it(dynamo: bool, tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = rc.to_torch(stacks()["gru"])
            self.encoder.batch_first = True
            self.head = torch.nn.Linear(10, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.encoder(x)[0])

    model = Model()
    x = torch.randn(2, 6, WIDTH)
    torch.onnx.export(model, (x,), tmp_path / "a.onnx", input_names=["x"], dynamo=dynamo)
    assert [node.op_type for node in nodes(onnx.load(tmp_path / "a.onnx"))] == ["GRU"]
    (y,) = onnxruntime.InferenceSession(tmp_path / "a.onnx").run(None, {"x": x.numpy()})
    expected: Array = model(x).detach().numpy()
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dynamo", EXPORTERS)
@pytest.mark.parametrize(
    ("stack", "message"),
    [
        (random_stack(Sizes("lstm", 3, 4, 1, 1, 2, PEEPHOLES | {"projection"}), 1, np.float32), "a projection"),
        (random_stack(Sizes("lstm", 3, 4, parts=PEEPHOLES), 1, np.float32, Cell("lstm", coupled="i")), "i = 1 - f"),
        (random_stack(Sizes("gru", 3, 4), 1, np.float32, Cell("gru", False, activation=Activation("gelu"))), "activation gelu"),
        (random_stack(Sizes("lstm", 3, 4), 1, np.float32, Cell("lstm", clips=(Clip("cell", -1, 1),))), "cell clipped"),
        (random_stack(Sizes("gru", 3, 4), 1, np.float32, Cell("gru", False, clips=(Clip("gates", -1, 2),))), "gates clipped"),
    ],
    ids=["projection", "coupled", "gelu", "cell clip", "uneven clip"],
)  # fmt: skip
def test_what_no_operator_computes_is_refused(stack: Recurrent, message: str, dynamo: bool, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=message):  # the exporter of torch.export wraps it in an error of its own
        export(module_of(stack), tmp_path / "a.onnx", dynamo)


@pytest.mark.parametrize("dynamo", EXPORTERS)
def test_packed_sequences_are_refused(dynamo: bool, tmp_path: Path) -> None:
    class Packs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = rc.to_torch(random_stack(Sizes("gru", WIDTH, 5), 1, np.float32, Cell("gru", False)))

        def forward(self, x: Any) -> Any:
            return self.encoder(torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2])))[1]

    with pytest.raises(Exception, match="PackedSequence"):
        torch.onnx.export(Packs(), (torch.zeros(3, 2, WIDTH),), tmp_path / "a.onnx", dynamo=dynamo)
