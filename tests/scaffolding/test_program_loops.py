"""Loops of ONNX files and of TensorFlow's graphs that are not layers: written as loops, or refused by name."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from tests.helpers import corpus
from tests.helpers.exported import RUNS
from tests.helpers.requirements import need, needed
from tests.scaffolding.test_whole_programs import as_frozen

WIDTH, UNITS = 4, 5


class Graph:
    """Nodes of ONNX in the making, with numbers that are drawn."""

    def __init__(self, seed: int) -> None:
        needed("onnxruntime", "onnxruntime")
        self.onnx = importlib.import_module("onnx")
        self.random, self.nodes, self.stored, self.count = np.random.default_rng(seed), list[Any](), list[Any](), 0

    def add(self, kind: str, *inputs: str, outputs: int | str = 1, **attributes: Any) -> Any:
        """Add a node; return its output, or their list."""
        names = [outputs] if isinstance(outputs, str) else [self.name() for _ in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if len(names) == 1 else names

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def array(self, *shape: int) -> str:
        """Add numbers that are drawn."""
        return self.numbers(self.random.normal(0, 0.5, shape).astype(np.float32))

    def numbers(self, numbers: Any) -> str:
        self.stored.append(self.onnx.numpy_helper.from_array(np.asarray(numbers), self.name()))
        return str(self.stored[-1].name)

    def integers(self, *numbers: int) -> str:
        return self.numbers(np.array(numbers, np.int64))

    def scalar(self, number: int) -> str:
        return self.numbers(np.array(number, np.int64))

    def body(self, start: int, inputs: list[tuple[str, str, Any]], outputs: list[tuple[str, str]]) -> Any:
        """Return a graph of the nodes from a place on, which are taken away; its inputs with types and axes, and its outputs."""
        nodes, self.nodes = self.nodes[start:], self.nodes[:start]
        kinds = {"f": self.onnx.TensorProto.FLOAT, "i": self.onnx.TensorProto.INT64, "b": self.onnx.TensorProto.BOOL}
        value = self.onnx.helper.make_tensor_value_info
        gives = []
        for name, kind in outputs:  # each output is a value of its own
            nodes.append(self.onnx.helper.make_node("Identity", [name], [self.name()]))
            gives.append(value(nodes[-1].output[0], kinds[kind], None))
        return self.onnx.helper.make_graph(nodes, "body", [value(name, kinds[kind], shape) for name, kind, shape in inputs], gives)

    def save(self, path: Path, x: list[Any], outputs: dict[str, list[Any]], others: dict[str, list[Any]] | None = None) -> Path:
        value, number = self.onnx.helper.make_tensor_value_info, self.onnx.TensorProto.FLOAT
        inputs = [value("x", number, x), *(value(name, self.onnx.TensorProto.INT64, dims) for name, dims in (others or {}).items())]
        graph = self.onnx.helper.make_graph(
            self.nodes, "graph", inputs, [value(name, number, dims) for name, dims in outputs.items()], self.stored
        )
        model = self.onnx.helper.make_model(graph, opset_imports=[self.onnx.helper.make_opsetid("", 17)], ir_version=8)
        self.onnx.checker.check_model(model)
        self.onnx.save(model, path)
        return path


def normalised(g: Graph, x: str) -> str:
    """Add a norm over the last axis, in basic operations."""
    off = g.add("Sub", x, g.add("ReduceMean", x, axes=[-1], keepdims=1))
    spread = g.add("ReduceMean", g.add("Mul", off, off), axes=[-1], keepdims=1)
    root = g.add("Sqrt", g.add("Add", spread, g.numbers(np.float32(1e-3))))
    return str(g.add("Add", g.add("Mul", g.add("Div", off, root), g.array(UNITS)), g.array(UNITS)))


def cell(g: Graph, kind: str, x: str, states: list[str], shared: str) -> list[str]:
    """Add one step of a cell; return its new states, the first of which it gives."""
    h = states[0]
    product = g.add("Add", g.add("MatMul", x, g.array(WIDTH, UNITS)), g.add("MatMul", h, g.array(UNITS, UNITS)))
    if kind == "norm":
        return [g.add("Tanh", g.add("Add", normalised(g, product), shared))]
    if kind == "leaky":
        return [g.add("Add", g.add("Mul", h, g.numbers(np.float32(0.75))), g.add("Sin", g.add("Add", product, shared)))]
    if kind == "two cells":
        first = g.add("Tanh", product)
        gate = g.add("Sigmoid", g.add("MatMul", states[1], g.array(UNITS, UNITS)))
        second = g.add("Tanh", g.add("Add", g.add("MatMul", first, g.array(UNITS, UNITS)), g.add("Mul", gate, states[1])))
        return [second, g.add("Sub", first, g.add("Mul", gate, first))] if g.random.random() < 0.5 else [first, second]
    assert kind == "memory"
    gate = g.add("Sigmoid", g.add("Add", product, g.add("Mul", g.array(UNITS), states[1])))
    memory = g.add("Add", g.add("Mul", gate, states[1]), g.add("Tanh", product))
    return [g.add("MatMul", g.add("Mul", gate, g.add("Tanh", memory)), g.array(UNITS, UNITS)), memory]


CELLS = {"norm": 1, "leaky": 1, "two cells": 2, "memory": 2}
FORMS = ["scan", "scan from the end", "scan of batches", "loop", "loop from the end", "loop with a counter", "loop in slices"]


def beginnings(g: Graph, count: int, batch_axis: int) -> list[str]:
    """Add states of zeros, and learned ones."""
    batch = g.add("Slice", g.add("Shape", "x"), g.integers(batch_axis), g.integers(batch_axis + 1), g.integers(0))
    shape = g.add("Concat", batch, g.integers(UNITS), axis=0)
    zeros = g.add("ConstantOfShape", shape)
    return [zeros if number else g.add("Expand", g.array(UNITS), shape) for number in range(count)]


def drawn(kind: str, form: str, seed: int, path: Path) -> Path:
    """Write a loop over own cells with a dense layer behind it, and its last state."""
    g = Graph(seed)
    batches = form == "scan of batches"
    batch_axis, count = (0, CELLS[kind]) if batches else (1, CELLS[kind])
    states = beginnings(g, count, batch_axis)
    time = g.add("Gather", g.add("Shape", "x"), g.scalar(1 - batch_axis), axis=0)
    shared = g.add("Mul", g.add("ReduceMean", "x", axes=[1 - batch_axis, 2], keepdims=0), g.numbers(np.float32(0.3)))
    shared = g.add("Unsqueeze", shared, g.integers(1))
    start, inside = len(g.nodes), [g.name() for _ in range(count)]
    last = [g.name() for _ in range(count)]
    every, floats = g.name(), ["batch", UNITS]
    if form.startswith("scan"):
        step = g.name()
        after = cell(g, kind, step, inside, shared)
        body = g.body(
            start,
            [*((name, "f", floats) for name in inside), (step, "f", ["batch", WIDTH])],
            [*((name, "f") for name in after), (after[0], "f")],
        )
        ways = {"scan_input_directions": [1], "scan_output_directions": [1]} if form == "scan from the end" else {}
        ways |= {"scan_input_axes": [1], "scan_output_axes": [1]} if batches else {}
        g.nodes.append(g.onnx.helper.make_node("Scan", [*states, "x"], [*last, every], body=body, num_scan_inputs=1, **ways))
    else:
        number, going = g.name(), g.name()
        counting = form == "loop with a counter"
        counter = g.name()
        index, truth = counter if counting else number, going
        if form == "loop from the end":
            index = g.add("Sub", g.add("Sub", time, index), g.scalar(1))
        if form == "loop in slices":
            low = g.add("Unsqueeze", index, g.integers(0))
            step = g.add("Squeeze", g.add("Slice", "x", low, g.add("Add", low, g.integers(1)), g.integers(0)), g.integers(0))
        else:
            step = g.add("Gather", "x", index, axis=0)
        after = cell(g, kind, step, inside, shared)
        grown = g.add("Add", counter, g.scalar(1)) if counting else ""
        truth = g.add("Less", grown, time) if counting else g.add("Identity", going)
        body = g.body(
            start,
            [(number, "i", []), (going, "b", []), *((name, "f", floats) for name in inside), *([(counter, "i", [])] if counting else [])],
            [(truth, "b"), *((name, "f") for name in after), *([(grown, "i")] if counting else []), (after[0], "f")],
        )
        begins = g.add("Less", g.scalar(0), time) if counting else g.numbers(np.array(True))
        firsts = [*states, *([g.scalar(0)] if counting else [])]
        finals = [*last, *([g.name()] if counting else []), every]
        g.nodes.append(g.onnx.helper.make_node("Loop", ["" if counting else time, begins, *firsts], finals, body=body))
    g.add("Add", g.add("MatMul", every, g.array(UNITS, 3)), g.array(3), outputs="y")
    g.add("Identity", last[-1], outputs="state")
    outer: list[Any] = ["batch", "time"] if batches else ["time", "batch"]
    return g.save(path, [*outer, WIDTH], {"y": [*outer, 3], "state": floats})


def run(path: Path, inputs: dict[str, Any]) -> list[Any]:
    session = importlib.import_module("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", CELLS)
def test_a_loop_over_own_cells_goes_on(kind: str, form: str, tmp_path: Path) -> None:
    needed("litert", "ai_edge_litert")
    seed = [*CELLS].index(kind) * len(FORMS) + FORMS.index(form)
    source = drawn(kind, form, seed, tmp_path / "source.onnx")
    for name in ("target.onnx", "target.tflite", "target.h"):
        done = rc.export_model(source, tmp_path / name, verify=True)
        assert done.equal, (name, done)
    assert "Scan" in str(rc.export_model(source, tmp_path / "target.onnx", force=True).layers)
    for sizes in [(1, 1), (3, 2), (7, 4)]:
        x = np.random.default_rng(seed).normal(0, 1, (*sizes, WIDTH)).astype(np.float32)
        wanted, got = (run(tmp_path / name, {"x": x}) for name in ("source.onnx", "target.onnx"))
        for first, second in zip(wanted, got, strict=True):
            np.testing.assert_allclose(second, first, atol=1e-5)


def looped(path: Path, form: str) -> Path:
    """Write a Loop that is not over the steps of a sequence, or only partly."""
    g = Graph(5)
    (h,) = beginnings(g, 1, 1)
    time = g.add("Gather", g.add("Shape", "x"), g.scalar(0), axis=0)
    count = {"runs of the caller": "n", "one step less": g.add("Sub", time, g.scalar(1)), "no end": ""}.get(form, time)
    more = ["batch", UNITS] if form != "grows" else [None, UNITS]
    start, state, number, going, buffer = len(g.nodes), g.name(), g.name(), g.name(), g.name()
    unit, index, truth = g.scalar(1), number, going
    if form == "reads the next":
        index = g.add("Add", number, unit)
    if form == "reads every second":
        index = g.add("Mul", number, g.scalar(2))
    if form == "reads the numbers of a state":
        index = g.add("Cast", g.add("ReduceMax", state, keepdims=0), to=g.onnx.TensorProto.INT64)
    step = g.add("Gather", buffer if form == "reads what it computes" else "x", index, axis=0)
    after = g.add("Tanh", g.add("Add", g.add("MatMul", step, g.array(WIDTH, UNITS)), g.add("MatMul", state, g.array(UNITS, UNITS))))
    if form == "grows":
        after = g.add("Concat", state, g.add("Slice", after, g.integers(0), g.integers(1), g.integers(0)), axis=0)
    if form == "ends by numbers":
        truth = g.add("Less", g.add("ReduceMax", after, keepdims=0), g.numbers(np.float32(0.1)))
    if form == "ends by its counter's square":
        truth = g.add("Less", g.add("Mul", number, number), time)
    if form == "asks for the step":
        after = g.add("Where", g.add("Less", g.scalar(2), number), after, state)
    if form == "masks steps":
        after = g.add("Where", g.add("Unsqueeze", g.add("Less", number, "n"), g.integers(1)), after, state)
    if form == "computes with the number of the step":
        later = g.add("Mul", g.add("Add", number, g.scalar(2)), g.scalar(-3))
        after = g.add("Add", after, g.add("Mul", g.add("Cast", later, to=1), g.numbers(np.float32(0.125))))
    if form == "calls a layer":
        every = g.add("Unsqueeze", state, g.integers(0))
        weights = [g.array(1, 3 * UNITS, WIDTH), g.array(1, 3 * UNITS, UNITS), g.array(1, 6 * UNITS)]
        every = g.add("GRU", g.add("Unsqueeze", step, g.integers(0)), *weights, "", every, hidden_size=UNITS, outputs=2)[1]
        after = g.add("Add", after, g.add("Squeeze", every, g.integers(0)))
    left = g.add("Mul", buffer, g.numbers(np.float32(0.5)))
    body = g.body(
        start,
        [(number, "i", []), (going, "b", []), (state, "f", more), (buffer, "f", ["time", "batch", WIDTH])],
        [(truth, "b"), (after, "f"), (left, "f")],
    )
    finals = [g.name(), g.name()]
    g.nodes.append(g.onnx.helper.make_node("Loop", [count, g.numbers(np.array(True)), h, "x"], finals, body=body))
    g.add("Identity", finals[0], outputs="y")
    g.add("ReduceSum", finals[1], outputs="rest", keepdims=0)
    stated: dict[str, dict[str, list[Any]]] = {"runs of the caller": {"n": []}, "masks steps": {"n": ["batch"]}}
    others = stated.get(form, {})
    return g.save(path, ["time", "batch", WIDTH], {"y": more, "rest": []}, others)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("runs of the caller", "numbers that a run decides have a part in how many steps there are"),
        ("one step less", "may have none"),
        ("no end", "it has no end"),
        ("reads the next", "a run decides which steps of a sequence it reads"),
        ("reads every second", "a run decides which steps of a sequence it reads"),
        ("reads what it computes", "it reads steps of what it computes"),
        ("grows", "its state .* begins as"),
        ("ends by numbers", "what a step reads has a part in how many steps there are"),
        ("ends by its counter's square", "what ends it does not count its steps"),
        ("asks for the step", "its truth is decided by a run"),
    ],
)
def test_a_loop_that_is_not_over_the_steps_of_a_sequence_is_refused(form: str, words: str, tmp_path: Path) -> None:
    source = looped(tmp_path / "source.onnx", form)
    with pytest.raises(rc.RefusedError, match=words):
        rc.export_model(source, tmp_path / "target.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["source.onnx"]


@pytest.mark.parametrize(
    "form", ["plain", "reads the numbers of a state", "masks steps", "computes with the number of the step", "calls a layer"]
)
def test_a_loop_that_hands_on_a_sequence_goes_on(form: str, tmp_path: Path) -> None:
    """A state may be a tensor of any axes, and an index may be computed."""
    source = looped(tmp_path / "source.onnx", form)
    assert rc.export_model(source, tmp_path / "target.onnx", verify=True).equal
    x = np.random.default_rng(3).normal(0, 1, (6, 4, WIDTH)).astype(np.float32)
    inputs = {"x": x, **({"n": np.array([1, 6, 3, 9])} if form == "masks steps" else {})}
    wanted, got = (run(tmp_path / name, inputs) for name in ("source.onnx", "target.onnx"))
    np.testing.assert_allclose(got[0], wanted[0], atol=1e-5)


@pytest.mark.parametrize("target", ["target.onnx", "target.tflite", "target.h"])
def test_a_loop_in_the_steps_of_another_goes_on(target: str, tmp_path: Path) -> None:
    """The inner one has a stated number of steps, and computes with the number of the step; C has no such numbers."""
    g = Graph(4)
    (h,) = beginnings(g, 1, 1)
    start, state, step, number, going, inside = len(g.nodes), g.name(), g.name(), g.name(), g.name(), g.name()
    after = g.add("Add", g.add("MatMul", inside, g.array(UNITS, UNITS)), g.add("MatMul", step, g.array(WIDTH, UNITS)))
    after = g.add("Add", g.add("Tanh", after), g.add("Mul", g.add("Cast", number, to=1), g.numbers(np.float32(0.25))))
    inner = g.body(start, [(number, "i", []), (going, "b", []), (inside, "f", ["batch", UNITS])], [(going, "b"), (after, "f")])
    left = g.add("Loop", g.scalar(3), g.numbers(np.array(True)), state, body=inner)
    left = g.add("Reshape", left, g.integers(-1, UNITS))
    body = g.body(len(g.nodes) - 2, [(state, "f", ["batch", UNITS]), (step, "f", ["batch", WIDTH])], [(left, "f"), (left, "f")])
    g.nodes.append(g.onnx.helper.make_node("Scan", [h, "x"], ["state", "y"], body=body, num_scan_inputs=1))
    x: list[Any] = ["time", "batch"]
    source = g.save(tmp_path / "source.onnx", [*x, WIDTH], {"y": [*x, UNITS], "state": ["batch", UNITS]})
    if target == "target.h":
        with pytest.raises(rc.RefusedError, match="its numbers are not those of all steps of a sequence"):
            rc.export_model(source, tmp_path / target)
    else:
        assert rc.export_model(source, tmp_path / target, verify=True).equal


@pytest.mark.parametrize("form", ["scan", "scan of batches", "loop", "loop from the end"])
def test_a_loop_of_a_stated_length_goes_to_c(form: str, tmp_path: Path) -> None:
    source = drawn("memory", form, 3, tmp_path / "source.onnx")
    onnx = importlib.import_module("onnx")
    model = onnx.load(source)
    for value in (*model.graph.input, *model.graph.output):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param == "time":
                axis.dim_value = 6
    onnx.save(model, source)
    assert rc.export_model(source, tmp_path / "model.h", verify=True).equal


def keras_model(kind: str) -> Any:
    """A model of Keras with a cell of its own, or two cells in one layer."""
    k = importlib.import_module("keras")
    a, x = k.layers, k.Input((12, 5))

    class NormCell(k.layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.state_size, self.parts = 6, [a.Dense(6), a.Dense(6, use_bias=False), a.LayerNormalization()]

        def build(self, shape: Any) -> None:
            for part, width in zip(self.parts, (shape[-1], 6, 6), strict=True):
                part.build((shape[0], width))
            self.built = True

        def call(self, x: Any, states: Any) -> Any:
            from_x, from_h, norm = self.parts
            h = k.ops.tanh(norm(from_x(x) + from_h(states[0])))
            return h, [h]

    cells = NormCell() if kind.startswith("norm") else a.StackedRNNCells([a.LSTMCell(4), a.GRUCell(6)])
    masked = a.Masking()(x) if kind.endswith("masked") else x
    y = a.RNN(cells, return_sequences="last" not in kind, go_backwards="back" in kind)(masked)
    model = k.Model(x, a.Dense(3)(y))
    random = np.random.default_rng(7)
    model.set_weights([random.normal(0, 0.5, each.shape) for each in model.get_weights()])
    return model


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", ["norm", "norm, back", "norm, last, masked", "two cells", "two cells, masked"])
def test_a_cell_of_keras_that_is_not_a_layer_goes_on(kind: str, lower: bool, tmp_path: Path) -> None:
    """A frozen graph does not state its outputs; values that its loop only passes through are not among them."""
    needed("keras", "keras")
    needed("onnxruntime", "onnxruntime")
    done = rc.export_model(as_frozen(keras_model(kind), tmp_path / "model.pb", lower), tmp_path / "model.onnx", verify=True)
    assert done.equal, done
    assert any("Scan" in text for text in done.layers)


@pytest.mark.parametrize("target", ["model.onnx", "model.tflite"])
@pytest.mark.parametrize(("name", "shape"), [("LSTM_S", (1, 250)), ("CRNN_S", (1, 490))])
def test_a_keyword_spotter_with_other_cells_goes_on(name: str, shape: tuple[int, int], target: str, tmp_path: Path) -> None:
    """Peepholes with a projection, and two cells in one loop: as TensorFlow computed them."""
    needed("litert", "ai_edge_litert")
    need("corpus", corpus.absent())
    folder = corpus.FOLDER / "kws-arm-small"
    done = rc.export_model(folder / f"{name}.pb", tmp_path / target, verify=True)
    assert done.equal, done
    if target.endswith(".onnx"):
        needed("onnxruntime", "onnxruntime")
        with np.load(folder / f"{name}.ref.npz") as stored:
            x, y = stored["in__Mfcc:0"].reshape(shape), stored["out__labels_softmax:0"]
        (got,) = run(tmp_path / target, {done.inputs[0].partition(" ")[0]: x})
        np.testing.assert_allclose(got, y, atol=1e-6)


@pytest.mark.parametrize(("name", "size"), [("LSTM_S", 250), ("CRNN_S", 490)])
def test_a_keyword_spotter_of_one_sequence_in_c(tmp_path: Path, name: str, size: int) -> None:
    """Its batch is 1, and goes wherever a shape has that length; one has windows over the time and the frequencies."""
    need("corpus", corpus.absent())
    folder = corpus.FOLDER / "kws-arm-small"
    done = rc.export_model(folder / f"{name}.pb", tmp_path / "model.h", verify=True)
    assert done.equal, done
    with np.load(folder / f"{name}.ref.npz") as stored:
        (output,) = RUNS["h"](tmp_path / "model.h")([stored["in__Mfcc:0"].reshape(1, size)])
        np.testing.assert_allclose(output, stored["out__labels_softmax:0"], atol=1e-6)
