"""Loops of Keras's layers as the converters of several years wrote them: tests/golden/keras_loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.formats.onnx.hoisted import hoist
from rnnconvert.formats.onnx.proto.file import OnnxFile
from rnnconvert.formats.onnx.proto.program import program
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.walk import walk
from tests import ROOT
from tests.helpers.commands import call
from tests.helpers.requirements import needed

GOLDEN = ROOT / "tests" / "golden" / "keras_loops"
MASKED = ("masked_one.tflite", "masked_lists.tflite", "masked.onnx")


@pytest.mark.parametrize("name", ["backwards.onnx", "convolved.onnx", "convolved.pb", "masked.onnx"])
def test_the_whole_model_around_a_loop_is_exported(name: str, tmp_path: Path) -> None:
    done = call("export", GOLDEN / name, tmp_path / "whole.onnx", "--verify")
    assert done.exit_code == 0 and "\nequal: " in done.output, done.output


def test_a_source_that_takes_one_sequence_at_a_time_is_compared_so(tmp_path: Path) -> None:
    done = call("export", GOLDEN / "stacked.tflite", tmp_path / "whole.onnx", "--verify")
    assert done.exit_code == 0 and "\nequal: " in done.output, done.output
    assert "so one was compared" in done.output


def test_lengths_of_a_run_do_not_turn_the_whole_time(tmp_path: Path) -> None:
    node = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=1, batch_axis=0)
    inputs = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "time", 3]),
        helper.make_tensor_value_info("lengths", onnx.TensorProto.INT64, ["batch"]),
    ]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", "time", 3])
    onnx.save(helper.make_model(helper.make_graph([node], "turned", inputs, [output])), tmp_path / "turned.onnx")
    done = call("export", tmp_path / "turned.onnx", tmp_path / "whole.onnx")
    assert done.exit_code == 0, done.output
    x, lengths = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3), np.array([3, 4])
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(tmp_path / "whole.onnx"))
    (y,) = session.run(None, {"x": x, "lengths": lengths})
    truth = [np.concatenate([row[:length][::-1], row[length:]]) for row, length in zip(x, lengths, strict=True)]
    np.testing.assert_array_equal(y, truth)


@pytest.mark.parametrize(
    "name",
    [
        "hard.tflite",
        "before.tflite",
        *MASKED,
        "backwards.onnx",
        "convolved.onnx",
        "convolved.pb",
        "dropped.pb",
        "before_9.onnx",
        "plain_9.onnx",
        "keras2onnx_before.onnx",
        "keras2onnx_relu.onnx",
    ],
)
def test_a_loop_gives_what_keras_gave(name: str) -> None:
    checkpoint = rc.load(GOLDEN / name)
    (stack,) = checkpoint.layers.values()
    assert not checkpoint.unread and stack.first.reverse == (name == "backwards.onnx")
    recorded = np.load(GOLDEN / f"{name}.npz")
    x, y = recorded["x"], recorded["y"]
    lengths = np.array([5, 3]) if name in MASKED else None
    outputs = reference.run(stack, x.swapaxes(0, 1).astype(np.float64), lengths=lengths)
    if y.ndim == 2:
        np.testing.assert_allclose(outputs.hidden[0], y, rtol=0, atol=1e-5)
        return
    computed = outputs.y.swapaxes(0, 1)
    if stack.output_order == "time" and stack.first.reverse:
        computed = computed[:, ::-1]  # Keras gives the outputs of go_backwards as they come
    for row, right in enumerate(y):
        count = 5 if lengths is None else lengths[row]
        np.testing.assert_allclose(computed[row, :count], right[:count], rtol=0, atol=1e-5)
        assert (right[count:] == right[count - 1]).all()


@pytest.mark.parametrize("name", ["node_backwards.onnx", "backwards_9.onnx"])
def test_an_operator_whose_input_is_turned_around_before_it_says_so(name: str) -> None:
    """Keras's go_backwards in tf2onnx: nodes turn the sequence around, and the operator reads it forward."""
    recorded = np.load(GOLDEN / f"{name}.npz")
    checkpoint = rc.load(GOLDEN / name)
    ((name, stack),) = checkpoint.layers.items()
    assert not stack.first.reverse
    assert any(warning.startswith(f"{name}: nodes turn ") and "go_backwards" in warning for warning in checkpoint.warnings)
    outputs = reference.run(stack, recorded["x"].swapaxes(0, 1)[::-1].astype(np.float64))
    y = outputs.hidden[0] if recorded["y"].ndim == 2 else outputs.y.swapaxes(0, 1)
    np.testing.assert_allclose(y, recorded["y"], rtol=0, atol=1e-5)


def test_a_stack_of_cells_in_one_loop_is_named() -> None:
    checkpoint = rc.load(GOLDEN / "stacked.tflite")
    assert not checkpoint.layers and len(checkpoint.unread) == 1 and "a stack of cells in one loop" in checkpoint.unread[0]


def test_steps_that_compute_in_integers_are_named() -> None:
    checkpoint = rc.load(GOLDEN / "integers.tflite")
    assert not checkpoint.layers and len(checkpoint.unread) == 1
    assert "its steps compute in integers (FULLY_CONNECTED)" in checkpoint.unread[0]


def test_a_shape_that_no_rule_gives_is_unknown() -> None:
    """A Concat of scalars, which a rule makes of a value that it does not know, ended the search for every layer of a graph."""
    nodes = [helper.make_node("Concat", ["scalar", "scalar"], ["joined"], axis=0)]
    inputs = [helper.make_tensor_value_info("scalar", onnx.TensorProto.FLOAT, [])]
    model = helper.make_model(helper.make_graph(nodes, "main", inputs, [onnx.ValueInfoProto(name="joined")]))
    graphs = program(OnnxFile(Path("m.onnx"), model, np.zeros(0, np.uint8)))
    scope = next(walk(graphs))
    assert Shapes(graphs).dims(scope, "joined") is None


def test_what_a_loop_transposes_at_each_step_stands_before_it() -> None:
    """Of two loops whose bodies have the same names, each keeps its own; what reads a state of the loop stays."""
    graph = onnx.GraphProto(name="main")
    for number in range(2):
        body = onnx.GraphProto(name="body")
        body.input.extend(onnx.ValueInfoProto(name=name) for name in ("i", "going", "state"))
        body.node.append(helper.make_node("Transpose", [f"x{number}"], ["turned"], perm=[1, 0, 2]))
        body.node.append(helper.make_node("Transpose", ["state"], ["moved"], perm=[1, 0]))
        body.node.append(helper.make_node("Gather", ["turned", "i"], ["step"]))
        body.node.append(helper.make_node("Add", ["step", "moved"], ["after"]))
        body.output.extend(onnx.ValueInfoProto(name=name) for name in ("going", "after"))
        graph.node.append(helper.make_node("Loop", ["", "", "zeros"], [f"y{number}"], f"loop{number}", body=body))
    hoist(graph)
    assert [node.op_type for node in graph.node] == ["Transpose", "Loop", "Transpose", "Loop"]
    for number, (before, loop) in enumerate(zip(graph.node[::2], graph.node[1::2], strict=True)):
        inner = loop.attribute[0].g.node
        assert before.input[0] == f"x{number}" and before.output[0] == f"loop{number}/turned"
        assert [node.op_type for node in inner] == ["Transpose", "Gather", "Add"]
        assert inner[1].input[0] == f"loop{number}/turned"


def test_a_loop_without_a_function_of_its_own_for_the_candidate_is_read(tmp_path: Path) -> None:
    """As Keras 2.0 writes GRU(5, activation='linear', dropout=0.2): gates by Maximum and Minimum, ones that drop nothing."""
    tf = needed("tensorflow", "tensorflow").compat.v1
    draw = np.random.default_rng(4)
    weights = {name: draw.normal(size=shape).astype(np.float32) for name, shape in (("w", (3, 15)), ("u", (5, 15)), ("b", (15,)))}
    x = draw.uniform(-1, 1, (2, 6, 3)).astype(np.float32)
    in_frames = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph, tf.Session() as session:
            inputs = tf.placeholder(tf.float32, [None, 6, 3], "x")
            w, u, b = (tf.constant(weights[name], name=f"net/{name}") for name in "wub")
            steps = tf.transpose(inputs, [1, 0, 2])
            ones = tf.ones(tf.stack([tf.shape(steps[0])[0], tf.shape(steps[0])[-1]]))

            def hard(values: Any) -> Any:
                return tf.maximum(tf.minimum(values * 0.2 + 0.5, 1.0), 0.0)

            def step(h: Any, row: Any) -> Any:
                z, r, n = (tf.nn.bias_add(tf.matmul(row * ones, w[:, k : k + 5]), b[k : k + 5]) for k in (0, 5, 10))
                z = hard(z + tf.matmul(h, u[:, :5]))
                r = hard(r + tf.matmul(h, u[:, 5:10]))
                return z * h + (1 - z) * (n + tf.matmul(r * h, u[:, 10:]))

            last = tf.identity(tf.scan(step, steps, tf.zeros([tf.shape(inputs)[0], 5]))[-1], "y")
            (y,) = session.run([last], {inputs: x})
            (tmp_path / "net.pb").write_bytes(graph.as_graph_def().SerializeToString())
    finally:
        if in_frames:
            tf.enable_control_flow_v2()
    (stack,) = rc.load(tmp_path / "net.pb").layers.values()
    np.testing.assert_allclose(reference.run(stack, x.swapaxes(0, 1)).y[-1], y, rtol=0, atol=1e-5)
    assert stack.cell.activation.name == "linear" and stack.cell.gate_activation.name == "hard_sigmoid"
