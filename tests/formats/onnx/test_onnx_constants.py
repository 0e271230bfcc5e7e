"""Weights in Constant nodes of graphs inside an ONNX model: values of one name in two graphs are two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.models.readers import model_of

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def constant(name: str, *shape: int) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(drawn(*shape), name))


def branch(nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])


def layer(x: str, y: str) -> list[onnx.NodeProto]:
    weights = [constant("W", 1, 12, 3), constant("R", 1, 12, 4), constant("B", 1, 24)]
    return [*weights, helper.make_node("GRU", [x, "W", "R", "B"], [y], hidden_size=4, linear_before_reset=1)]


def product(x: str, y: str, weight: str, *shape: int) -> list[onnx.NodeProto]:
    return [constant(weight, *shape), helper.make_node("MatMul", [x, weight], [y])]


def saved(path: Path, nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto]) -> Path:
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["time", "batch", 3]),
              helper.make_tensor_value_info("c", TensorProto.BOOL, [])]  # fmt: skip
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
    sets = [helper.make_opsetid("", 17), *(helper.make_opsetid(entry.domain, 1) for entry in functions)]
    onnx.save(helper.make_model(graph, opset_imports=sets, functions=functions), path)
    return path


def function(domain: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    return helper.make_function(domain, "Part", ["x"], ["y"], nodes, [helper.make_opsetid("", 17)])


@pytest.mark.parametrize("inverse", [False, True])
def test_branches_with_the_same_names(tmp_path: Path, inverse: bool) -> None:
    branches = {"then_branch": branch(layer("X", "y"), "y"), "else_branch": branch(product("X", "z", "W", 3, 4), "z")}
    if inverse:
        branches = dict(zip(branches, reversed(branches.values()), strict=True))
    path = saved(tmp_path / "m.onnx", [helper.make_node("If", ["c"], ["Y"], name="if", **branches)], [])
    checkpoint, place = rc.load(path), ("then_branch" if inverse else "else_branch")
    assert len(checkpoint.layers) == 1
    assert {name: array.shape for name, array in checkpoint.tensors.items()} == {f"main/if.{place}/W": (3, 4)}


def test_functions_with_the_same_names(tmp_path: Path) -> None:
    functions = [function("a", product("x", "y", "K", 3, 3)), function("b", product("x", "y", "K", 3, 4)),
                 function("c", product("x", "y", "W", 4, 3))]  # fmt: skip
    calls = [helper.make_node("Part", [x], [y], domain=entry.domain) for x, y, entry in zip("Xde", "def", functions, strict=True)]
    path = saved(tmp_path / "m.onnx", [*calls, *layer("f", "Y")], functions)
    shapes = {"main/Part()/K": (3, 3), "main/Part()/K_2": (3, 4), "main/Part()/W": (4, 3)}
    checkpoint = rc.load(path)
    assert list(checkpoint.layers) == ["Y"]
    assert {name: array.shape for name, array in checkpoint.tensors.items()} == shapes
    model = model_of(path)
    assert all(any(np.array_equal(entry, array) for entry in model.arrays.values()) for array in checkpoint.tensors.values())


def test_weights_that_a_function_gives(tmp_path: Path) -> None:
    weights = helper.make_function("a", "Weights", [], ["y"], [constant("y", 1, 12, 3)], [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("Weights", [], ["W"], domain="a"), *layer("X", "Y")[1:]]
    checkpoint = rc.load(saved(tmp_path / "m.onnx", nodes, [weights]))
    assert len(checkpoint.layers) == 1 and not checkpoint.tensors
