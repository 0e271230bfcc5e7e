"""Every operator of ONNX beside a whole LSTM, with inputs and attributes missing: no command takes this for a fault of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from tests.helpers import drawn
from tests.helpers.drawn import each
from tests.helpers.requirements import needed

FORMS: Sequence[Sequence[str]] = (
    (), ("",), ("x",), ("", "x"), ("x", ""), ("x", "x"), ("x", "", "x"), ("", "", ""), ("x", "x", "x"), ("W",), ("W", "x"), ("x", "W"),
    ("x", "W", "B"), ("x", "", "B"), ("x", "B", ""), ("x", "B", "B", "", "B"), ("y", "B"), ("y", "W", "W", "", "x"), ("W", "B", "B"),
    ("B",) * 8,
)  # fmt: skip
"""What a node reads: the input x, weights W and B, what the LSTM gives, and inputs that are left out."""
Case = tuple[str, Sequence[str], int]


def value(name: str, dims: Sequence[Any] = (3, 1, 2)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def beside_an_lstm(case: Case, path: Path, dims: Sequence[Any] = (3, 1, 2)) -> Path:
    """Write a model with a whole LSTM and another node."""
    kind, inputs, outputs = case
    weights = np.ones((1, 8, 2), np.float32)
    stored = [numpy_helper.from_array(array, name) for name, array in (("W", weights), ("R", weights), ("B", np.ones(2, np.float32)))]
    nodes = [helper.make_node("LSTM", ["x", "W", "R"], ["y"], hidden_size=2)]
    nodes += [helper.make_node(kind, inputs, [f"z{number}" for number in range(outputs)])] if kind else []
    graph = helper.make_graph(nodes, "g", [value("x", dims)], [value("y", ()), *(value(f"z{n}") for n in range(outputs))], stored)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def cases() -> Iterator[Case]:
    recurrent = {"RNN", "GRU", "LSTM"}  # which are layers themselves, and damaged where an input is missing
    for kind in sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain} - recurrent):
        for inputs in FORMS:
            yield kind, inputs, 1
        yield kind, ("x", "W", "B"), 0
        yield kind, ("x", ""), 0


def test_a_node_beside_an_lstm_is_no_fault(tmp_path: Path) -> None:
    """A neighbour never stops the conversion of an LSTM; the neighbour itself is read or refused."""

    def check(case: Case) -> None:
        path = beside_an_lstm(case, tmp_path / "m.onnx")
        assert list(rc.load(path).layers) == ["y"]
        str(rc.inspect(path))
        for written in (lambda: rc.scaffold(path, "pytorch"), lambda: rc.scaffold(path, "pytorch", partial=True)):
            try:
                written()
            except rc.RnnConvertError as error:
                assert error.exit_code in (3, 4), error

    every = list(cases())
    always = [case for case in every if case[0] == "BatchNormalization" and not case[2]]
    each(every if drawn.LONG else [*drawn.drawn(every, 60, "operators"), *always], check, str)
    each([(kind, inputs, 1) for kind in ("Conv", "Gather", "BatchNormalization", "Loop", "Scan", "If") for inputs in FORMS[:6]], check, str)


def test_loops_without_a_body_are_left(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")

    def check(case: Case) -> None:
        with pytest.raises(rc.RefusedError):
            rc.fuse(beside_an_lstm(case, tmp_path / "m.onnx"), tmp_path / "fused.onnx")

    each([(kind, inputs, outputs) for kind in ("Loop", "Scan", "If") for inputs in FORMS[:6] for outputs in (0, 1)], check, str)


def test_a_negative_length_is_an_open_axis(tmp_path: Path) -> None:
    def check(dims: Sequence[int]) -> None:
        path = beside_an_lstm(("", (), 0), tmp_path / "m.onnx", dims)
        str(rc.inspect(path))
        assert list(rc.load(path).layers) == ["y"]
        assert "torch" in rc.scaffold(path, "pytorch").text

    each([(-1, 1, 2), (3, -1, 2), (-1, -1, 2), (-7, -2, 2)], check, str)
