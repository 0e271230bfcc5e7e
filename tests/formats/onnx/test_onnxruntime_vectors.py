"""onnxruntime's own unit tests of RNN, GRU and LSTM, as numbers: every model is read, and computes what they expect."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from tests import ROOT
from tests.helpers.drawn import each

GOLDEN = ROOT / "tests" / "golden" / "onnxruntime" / "vectors.jsonl.gz"
STATES = ("initial_h", "initial_c")
# What their own test of float32 kernels allows.
ALLOWED = 2e-4


def vectors() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.open(GOLDEN, "rt")]


def of(case: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [fact for fact in case["facts"] if fact["kind"] == kind]


def array(fact: dict[str, Any]) -> Array:
    data = [np.nan if value is None else value for value in fact["data"]]
    return np.array(data, {"f": np.float32, "i": np.int32}[fact["type"]]).reshape(fact["dims"])


def attributes(case: dict[str, Any]) -> dict[str, Any]:
    values = {}
    for fact in of(case, "attr"):
        value = fact["value"]
        if fact["name"].startswith("activation_"):
            value = [float(number) for number in value]
        if value != []:
            values[fact["name"]] = float(value["f"]) if isinstance(value, dict) else value
    return values


def model(case: dict[str, Any], inputs: dict[str, Array], path: Path) -> None:
    """A model of the case's node, whose weights are constants and whose data are inputs."""
    names = [fact["name"] for fact in of(case, "in")]
    data = {name: value for name, value in inputs.items() if name in (names[0], "sequence_lens", *STATES)}
    graph = helper.make_graph(
        [helper.make_node(case["op"], names, ["Y"], "node", **attributes(case))], "graph",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in data.items()],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in inputs.items() if name not in data],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", max(case["opset"], 7))]), path)


def as_time_first(value: Array, layout: int) -> Array:
    """A state, or an output with a direction's axis, with the batch where layout 0 has it."""
    return np.moveaxis(value, 0, -2) if layout else value


def check(case: dict[str, Any], path: Path) -> None:
    inputs = {fact["name"]: array(fact) for fact in of(case, "in") if fact["name"]}
    model(case, inputs, path)
    (stack,) = rc.load(path).layers.values()
    assert not stack.unconvertible
    layout = attributes(case).get("layout", 0)
    hidden, cell = (None if name not in inputs else list(as_time_first(inputs[name], layout)) for name in STATES)
    x = inputs[of(case, "in")[0]["name"]]
    result = reference.run(stack, (x.swapaxes(0, 1) if layout else x).astype(np.float64), hidden, cell, inputs.get("sequence_lens"))
    for fact in of(case, "out"):
        if not fact["name"]:
            continue
        expected = as_time_first(array(fact), layout)
        if fact["name"] == "Y":
            steps, ways, batch, hidden = expected.shape
            output = result.y.reshape(steps, batch, ways, hidden).swapaxes(1, 2)
        else:
            output = np.stack(result.hidden if fact["name"] == "Y_h" else result.cell).reshape(expected.shape)
        np.testing.assert_allclose(output, expected, rtol=0, atol=ALLOWED, equal_nan=False, err_msg=fact["name"])


def test_every_case_computes_what_onnxruntime_expects(tmp_path: Path) -> None:
    cases = [case for case in vectors() if case["expect"] == "success"]
    assert len(cases) == 144  # the other 3 expect an error of lengths that are given at run time
    each(cases, lambda case: check(case, tmp_path / "model.onnx"), lambda case: f"{case['test']}")


def exchanged(case: dict[str, Any]) -> dict[str, Any]:
    """The case with its first two gates exchanged in R: i and o of an LSTM, z and r of a GRU."""
    changed = json.loads(json.dumps(case))
    (fact,) = (fact for fact in of(changed, "in") if fact["name"] == "R")
    gates = array(fact).reshape(fact["dims"][0], -1, fact["dims"][2], fact["dims"][2])
    gates[:, [0, 1]] = gates[:, [1, 0]]
    fact["data"] = gates.ravel().tolist()
    return changed


def test_two_gates_exchanged_are_caught(tmp_path: Path) -> None:
    caught, alike = 0, 0
    for case in vectors():
        if case["op"] == "RNN" or case["expect"] != "success":
            continue
        if exchanged(case) == case:  # their simplest cases have one number for all gates
            alike += 1
            continue
        try:
            check(exchanged(case), tmp_path / "model.onnx")
        except AssertionError:
            caught += 1
    assert caught > 40, (caught, alike)
