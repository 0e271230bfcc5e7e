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
from rnnconvert.graphs.program.evaluate import Budget, Evaluation
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
