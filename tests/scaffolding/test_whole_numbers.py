"""Whole numbers of every type, through every target: what is written gives what onnxruntime gives of the source, or is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import rnnconvert as rc
from tests.helpers import onnx_graphs as graphs
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.exported import RUNS, in_tensorflow
from tests.scaffolding.test_scaffold import module_at
from tests.scaffolding.test_scaffold_targets import called, require

TYPES = ("int8", "uint8", "int32", "int64")
BY = {"Add": 100, "Sub": 100, "Mul": 3, "Div": 3, "Mod": 3, "remainder towards zero": 3, "Max": 3, "Min": 3}
"""The operators on two numbers, and the second one."""
ALONE = ("Neg", "Abs", "ReduceMean", "ReduceSum", "CumSum", *(f"Cast to {dtype}" for dtype in TYPES))
LACKING = {"Neg": ("uint8",), "ReduceMean": ("int8", "uint8"), "ReduceSum": ("int8", "uint8"), "CumSum": ("int8", "uint8")}
"""The types for which onnxruntime has no kernel."""
CASES = [
    (operator, dtype, summed)
    for operator, dtype, summed in itertools.product([*BY, *ALONE], TYPES, (False, True))
    if dtype not in LACKING.get(operator, ()) and not (summed and dtype in ("int8", "uint8"))
]
NUMBERS = np.array([[-128, -20, -8, -7, -1, 0], [1, 2, 7, 20, 100, 127], [3, -4, 5, -100, 11, -12]])


def saved(path: Path, operator: str, dtype: str, summed: bool) -> Path:
    """Write a graph whose numbers become whole ones, a sum of rows if asked, what the operator makes of them, and floats again."""
    kind = onnx.TensorProto.DataType.Value(dtype.upper())
    nodes = [helper.make_node("Cast", ["x"], ["v"], to=kind)]
    arrays = {"by": np.array(BY.get(operator, 0), dtype), "axis": np.array([2]), "along": np.array(1)}
    if summed:
        nodes.append(helper.make_node("ReduceSum", ["v", "axis"], ["s"], keepdims=1))
    v, more = "s" if summed else "v", {"CumSum": ["along"], "ReduceMean": ["axis"], "ReduceSum": ["axis"]}.get(operator, [])
    if operator.startswith("Cast"):
        nodes.append(helper.make_node("Cast", [v], ["w"], to=onnx.TensorProto.DataType.Value(operator.rpartition(" ")[2].upper())))
    elif operator == "remainder towards zero":
        nodes.append(helper.make_node("Mod", [v, "by"], ["w"], fmod=1))
    else:
        nodes.append(helper.make_node(operator, [v, *(["by"] if operator in BY else more)], ["w"]))
    nodes.append(helper.make_node("Cast", ["w"], ["y"], to=onnx.TensorProto.FLOAT))
    first = onnx.TensorProto.INT64 if dtype in ("int8", "uint8") else kind  # onnxruntime's own casts of floats to bytes are undefined
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", first, ["b", 3, 2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name in {text for node in nodes for text in node.input}],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


@pytest.mark.parametrize("target", ["onnx", "h", "xml", "tflite", "json", "mlpackage", "pytorch", "keras", "flax"])
def test_whole_numbers_are_what_they_are_in_the_source(target: str, tmp_path: Path) -> None:
    def check(case: tuple[str, str, bool]) -> None:
        _, dtype, _ = case
        source = saved(tmp_path / "source.onnx", *case)
        x = NUMBERS.reshape(3, 3, 2).astype("int64" if dtype in ("int8", "uint8") else dtype)
        written = tmp_path / f"{CASES.index(case)}.{target if target in RUNS else 'py'}"
        try:
            if target in RUNS:
                rc.export_model(source, written, format="tfjs" if target == "json" else None)
            else:
                rc.scaffold(source, target, written)
        except rc.RefusedError as refusal:
            raise NotComparedError(str(refusal)) from None
        (expected,) = RUNS["onnx"](source)([x])
        if target in RUNS:
            (output,) = (in_tensorflow if target == "json" else RUNS[target])(written)([x])
        else:
            (output,) = called(module_at(written).load(str(source)), target, [x])
        np.testing.assert_array_equal(np.asarray(output).reshape(expected.shape), expected)

    if target not in RUNS:
        require(target)
    # jax.lax.div takes no number beside bytes, and says so.
    cases = [case for case in CASES if not (target == "flax" and case[0] == "Div" and case[1] in ("int8", "uint8"))]
    each(drawn(cases, 24, f"whole numbers {target}"), check, str)


def test_a_quotient_of_lengths_that_are_less_than_nothing(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Sub", ["s", "n"], ["m"]),
        helper.make_node("Div", ["m", "d"], ["q"]),
        helper.make_node("Cast", ["q"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    arrays = {"n": np.array([8, 4, 10]), "d": np.array([3])}
    graphs.saved(tmp_path / "source.onnx", nodes, {"x": ["b", "t", 3]}, ["y"], arrays)
    rc.export_model(tmp_path / "source.onnx", tmp_path / "written.onnx")
    first, again = (RUNS["onnx"](tmp_path / name) for name in ("source.onnx", "written.onnx"))
    for batch, time in itertools.product((1, 2, 9), (1, 4, 6)):
        x = np.zeros((batch, time, 3), np.float32)
        np.testing.assert_array_equal(again([x])[0], first([x])[0])
