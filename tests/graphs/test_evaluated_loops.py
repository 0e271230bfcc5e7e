"""Loops in double precision: what no step of a loop changes is computed once, and again where the loop around it has gone on."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rnnconvert.formats.onnx.proto.file import OnnxFile
from rnnconvert.formats.onnx.proto.program import program
from rnnconvert.graphs.program.evaluate import Budget, Evaluation, UnmatchedError
from rnnconvert.graphs.program.walk import walk
from tests.helpers import drawn
from tests.helpers.requirements import needed


def value(name: str, kind: int = TensorProto.FLOAT, axes: Any = (3,)) -> Any:
    return helper.make_tensor_value_info(name, kind, list(axes))


def looped(rng: Random, name: str, state: str, deep: int) -> tuple[list[Any], str]:
    """Nodes of a Loop, and what it leaves: each step computes with its state, with constants, and with what is around it."""
    inner, around = f"{name}s", ["x", state]
    nodes, terms = [], [inner]
    for number in range(rng.randrange(1, 4)):
        kind, pair = rng.choice(["Add", "Mul", "Sub"]), [rng.choice([*around, "c", *terms[1:]]), rng.choice([*around, "c"])]
        nodes.append(helper.make_node(kind, pair, [f"{name}t{number}"]))
        terms.append(f"{name}t{number}")
    if deep:
        more, left = looped(rng, f"{name}i", rng.choice(terms), deep - 1)
        nodes += more
        terms.append(left)
    nodes.append(helper.make_node("Sum", terms, [f"{name}sum"]))
    nodes.append(helper.make_node("Tanh", [f"{name}sum"], [f"{name}after"]))
    nodes.append(helper.make_node("Identity", [f"{name}going"], [f"{name}on"]))
    body = helper.make_graph(
        nodes, f"{name}body",
        [value(f"{name}n", TensorProto.INT64, ()), value(f"{name}going", TensorProto.BOOL, ()), value(inner)],
        [value(f"{name}on", TensorProto.BOOL, ()), value(f"{name}after")],
    )  # fmt: skip
    return [helper.make_node("Loop", ["count", "", state], [f"{name}left"], body=body)], f"{name}left"


@pytest.mark.parametrize("number", range(6))
def test_loops_in_loops_compute_what_onnxruntime_computes(number: int) -> None:
    rng = Random(f"{drawn.SEED} loops {number}")
    nodes, left = looped(rng, "o", "x", rng.randrange(3))
    stored = [numpy_helper.from_array(np.array([0.5, -1, 2], np.float32), "c"), numpy_helper.from_array(np.array(4), "count")]
    graph = helper.make_graph([*nodes, helper.make_node("Identity", [left], ["y"])], "m", [value("x")], [value("y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.random.default_rng(number).standard_normal(3).astype(np.float32)
    scope = next(walk(program(OnnxFile(Path("m.onnx"), model, np.zeros(0, np.uint8)))))
    (y,) = Evaluation(scope, {"x": x}, Budget()).run(scope.nodes, ["y"])
    session = needed("onnxruntime", "onnxruntime").InferenceSession(model.SerializeToString())
    np.testing.assert_allclose(y, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_a_loop_that_runs_again_holds_no_more(tmp_path: Path) -> None:
    """The values of its last step alone, and its constants once."""

    def body(name: str, nodes: list[Any], stored: list[Any]) -> Any:
        inputs = [value(f"{name}n", TensorProto.INT64, ()), value(f"{name}going", TensorProto.BOOL, ()), value(f"{name}s")]
        nodes = [*nodes, helper.make_node("Identity", [f"{name}going"], [f"{name}on"])]
        return helper.make_graph(nodes, name, inputs, [value(f"{name}on", TensorProto.BOOL, ()), value(f"{name}t")], stored)

    def held(count: int) -> tuple[int, float]:
        constant = numpy_helper.from_array(np.ones(3, np.float32), "c")
        inner = body("i", [helper.make_node("Add", ["is", "c"], ["it"])], [constant])
        outer = body("o", [helper.make_node("Loop", ["two", "", "os"], ["ot"], body=inner)], [])
        stored = [numpy_helper.from_array(np.array(number), name) for name, number in (("count", count), ("two", 2))]
        loop = helper.make_node("Loop", ["count", "", "x"], ["y"], body=outer)
        graph = helper.make_graph([loop], "m", [value("x")], [value("y")], stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        scope = next(walk(program(OnnxFile(tmp_path, model, np.zeros(0, np.uint8)))))
        evaluation = Evaluation(scope, {"x": np.zeros(3, np.float32)}, Budget())
        (y,) = evaluation.run(scope.nodes, ["y"])
        return evaluation.held, float(y[0])

    assert held(50) == (held(1)[0], 100)


@pytest.mark.parametrize("what", ["no nodes", "nodes that no step changes", "a value around it that is listed"])
def test_every_step_counts(what: str) -> None:
    """A loop whose steps do no work still has to end within the budget."""
    nodes = [helper.make_node("Neg", ["x"], ["t"])] if what == "nodes that no step changes" else []
    gives = [value("going", TensorProto.BOOL, ()), value("t" if nodes else "s"), *([value("x")] if what.endswith("listed") else [])]
    inputs = [value("n", TensorProto.INT64, ()), value("going", TensorProto.BOOL, ()), value("s")]
    body = helper.make_graph(nodes, "body", inputs, gives)
    loop = helper.make_node("Loop", ["count", "", "x"], ["y", "list"][: len(gives) - 1], body=body)
    stored = [numpy_helper.from_array(np.array(1000), "count")]
    graph = helper.make_graph([loop], "m", [value("x")], [value("y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    scope = next(walk(program(OnnxFile(Path("m.onnx"), model, np.zeros(0, np.uint8)))))
    budget = Budget(100_000 if what.endswith("listed") else 1 << 36)
    budget.nodes = 1 << 20 if what.endswith("listed") else 500
    with pytest.raises(UnmatchedError, match="more work"):
        Evaluation(scope, {"x": np.zeros(3, np.float32)}, budget).run(scope.nodes, ["y"])
