"""Sequences that a graph turns around: what is tried of them is bounded, whatever lengths the graph states."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rnnconvert.formats.onnx.proto.file import OnnxFile
from rnnconvert.formats.onnx.proto.program import program
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.walk import walk
from rnnconvert.recognition import turned


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("dims", [(None, 150, 128), (150, None, 128), (None, None, 4096), (1 << 20, 1 << 20, None)])
def test_a_turn_is_tried_in_bounded_memory(dims: tuple[int | None, ...], step: int, axis: int) -> None:
    bounds = [(-1, -(1 << 40)), (0, 1 << 40)][step > 0]
    constants = [
        numpy_helper.from_array(np.array([number], np.int64), name)
        for name, number in zip(("start", "end", "axis", "step"), (*bounds, axis, step), strict=True)
    ]
    node = helper.make_node("Slice", ["x", "start", "end", "axis", "step"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], constants))
    graphs = program(OnnxFile(Path("m.onnx"), model, np.zeros(0, np.uint8)))
    scope = next(walk(graphs))
    tracemalloc.start()
    result = turned.turns(scope, Shapes(graphs), scope.nodes[0], axis)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result == (step < 0 and dims[0] != 1 << 20)
    assert peak < 1 << 30


def test_a_part_of_a_shape_is_that_part() -> None:
    """Shape with `start` and `end`, as files of operator set 15 and later have it: all axes were taken for it where one was open."""
    nodes = [
        helper.make_node("Shape", ["x"], ["part"], start=1, end=3),
        helper.make_node("Gather", ["part", "first"], ["length"]),
        helper.make_node("Concat", ["part", "first"], ["joined"], axis=0),
        helper.make_node("Expand", ["x", "joined"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", (None, 5, None)), ("y", None)))
    first = numpy_helper.from_array(np.zeros(1, np.int64), "first")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [first]), opset_imports=[helper.make_opsetid("", 17)])
    graphs = program(OnnxFile(Path("m.onnx"), model, np.zeros(0, np.uint8)))
    scope, shapes = next(walk(graphs)), Shapes(graphs)
    length = shapes.number(scope, "length")
    assert length is not None and length.tolist() == [5]
    assert shapes.partly(scope, "part") == [5, None] and shapes.partly(scope, "joined") == [5, None, 0]
