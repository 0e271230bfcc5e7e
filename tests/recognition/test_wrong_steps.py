"""Steps that are almost those of a layer: each is refused, by its reason, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.graphs.program.evaluate import UnmatchedError
from tests.formats.onnx.test_fuse import HIDDEN, Body, gru, model, rnn, save, scan, unrolled, value, weights

Count = Callable[[Body, str, str], Any]

COUNTS: dict[str, Count] = {
    "one less": lambda outer, time, batch: outer("Sub", time, np.array(1)),
    "half": lambda outer, time, batch: outer("Sub", time, outer("Div", time, np.array(2))),
    "batch": lambda outer, time, batch: batch,
    "least": lambda outer, time, batch: outer("Min", time, batch),
    "rest": lambda outer, time, batch: outer("Mod", time, np.array(3)),
    "of another input": lambda outer, time, batch: outer("Gather", outer("Shape", "first0"), np.array(0)),
}


def counted(path: Path, count: Count, start: Count | None = None, going: bool = False) -> Path:
    """Write a GRU in a Loop that runs as often as is said; with `going`, its body says so."""
    body, outer, w = Body(), Body("outer_"), weights(3)
    (new,) = gru(body, body("Gather", "x", "iteration", axis=0), ["s0"], w)
    length, batch = (outer("Gather", outer("Shape", "x"), np.array(axis)) for axis in (0, 1))
    number = count(outer, length, batch)
    again = body("Less", "iteration", body("Sub", number, np.array(1))) if going else body("Identity", "going")
    inner = helper.make_graph(
        body.nodes, "step",
        [value("iteration", [], TensorProto.INT64), value("going", [], TensorProto.BOOL), value("s0", ["B", HIDDEN])],
        [value(again, [], TensorProto.BOOL), value(new, ["B", HIDDEN]), value(body("Identity", new), ["B", HIDDEN])],
        [numpy_helper.from_array(array, name) for name, array in body.arrays.items()],
    )  # fmt: skip
    first = start(outer, length, batch) if start is not None else ""
    node = helper.make_node("Loop", [length if going else number, first, "first0"], ["last0", "y"], "looped", body=inner)
    return save(path, ([*outer.nodes, node], outer.arrays), 1)


def refused(path: Path, reason: str) -> None:
    checkpoint = rc.load(path)
    assert not checkpoint.layers
    assert reason in " ".join(map(str, checkpoint.warnings))


@pytest.mark.drawn(3)
@pytest.mark.parametrize("going", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_a_loop_that_ends_before_its_sequence_is_no_layer(count: str, going: bool, tmp_path: Path) -> None:
    path = counted(tmp_path / "model.onnx", COUNTS[count], going=going)
    refused(path, "which cannot be read: ")
    assert "looped" in rc.load(counted(path, lambda outer, time, batch: time, going=going)).layers


@pytest.mark.parametrize("other", ["batch", "two"])
def test_a_loop_that_need_not_begin_is_no_layer(other: str, tmp_path: Path) -> None:
    def start(outer: Body, time: str, batch: str) -> Any:
        return outer("Greater", time, batch if other == "batch" else np.array(2))

    refused(counted(tmp_path / "model.onnx", lambda outer, time, batch: time, start), "it runs ")


def bump(b: Body, x: str) -> str:
    """Return a bump between 0.37 and 0.372: random numbers miss it."""
    parts = [b("Clip", b("Sub", x, low), np.array(0.0), np.array(1e-3)) for low in (0.37, 0.371)]
    return str(b("Mul", b("Sub", *parts), 500.0))


CORNERS: dict[str, Callable[[Body, str], str]] = {
    "narrow": bump,
    "far": lambda b, x: b("Relu", b("Sub", b("Mul", x, 1e-4), 0.9)),
    "farther": lambda b, x: b("Relu", b("Sub", b("Mul", x, 1e-9), 0.9)),
    "of one unit": lambda b, x: b("Max", b("Sub", b("Mul", x, 1e-9), 0.9), np.arange(HIDDEN) * 0.0),
    "smooth": lambda b, x: b("Exp", b("Neg", b("Mul", b("Mul", x, x), b("Mul", b("Mul", x, x), 1e18)))),
}


@pytest.mark.parametrize("corner", ["", *CORNERS])
@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_a_function_that_differs_where_no_random_number_falls_is_no_layers(cell: str, corner: str, tmp_path: Path) -> None:
    w = weights(3 if cell == "gru" else 1)

    def step(b: Body, x: str, states: Sequence[str]) -> list[str]:
        def call(operator: str, *inputs: Any, **attributes: Any) -> Any:
            y = b(operator, *inputs, **attributes)
            return b("Add", y, CORNERS[corner](b, inputs[0])) if operator == "Tanh" and corner else y

        return (gru if cell == "gru" else rnn)(call, x, states, w)  # type: ignore[arg-type]

    path = save(tmp_path / "model.onnx", scan(step, 1), 1)
    if corner:
        refused(path, "which cannot be read: ")
    else:
        assert rc.load(path).layers


@pytest.mark.parametrize("form", [scan, unrolled])
def test_squares_of_squares_take_no_time(form: Any, tmp_path: Path) -> None:
    w = weights(1)

    def step(b: Body, x: str, states: Sequence[str]) -> list[str]:
        (new,) = rnn(b, x, states, w)
        for _ in range(60):
            new = b("Mul", new, new)
        return [new]

    path = save(tmp_path / "model.onnx", form(step, 1), 1, steps=5 if form is unrolled else "T")
    start = time.process_time()
    refused(path, "more functions and products than a cell")
    assert time.process_time() - start < 5


def test_stated_lengths_take_no_time(tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", "gru", "scan")
    proto = onnx.load(path)
    for axis in proto.graph.input[0].type.tensor_type.shape.dim[:2]:
        axis.dim_value = 1 << 20
    onnx.save(proto, path)
    start = time.process_time()
    refused(path, "larger than a proof may hold")
    assert time.process_time() - start < 5


def test_all_proofs_of_a_file_share_what_its_size_allows(tmp_path: Path) -> None:
    from rnnconvert.graphs.program.evaluate import Budget

    budget = Budget(work=1000 << 14)
    for _ in range(10):
        Budget(overall=budget).spend(100, 0)
    with pytest.raises(UnmatchedError, match="than a file of its size may"):
        Budget(overall=budget).spend(1, 0)


def test_many_steps_are_matched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step adds 1 to the bias of its forget gate, as TensorFlow 1's cells do: that is the same formula in all."""
    from rnnconvert.recognition import cell as recognised
    from rnnconvert.recognition import steps as fuse_steps

    w, matched = weights(4), []
    match = recognised.match

    def step(b: Body, x: str, states: Sequence[str]) -> list[str]:
        h, c = states
        both = b("Add", b("MatMul", b("Concat", x, h, axis=1), np.concatenate(w[:2])), w[2])
        i, g, f, o = b("Split", both, np.array([HIDDEN] * 4), outputs=4, axis=-1)
        forget = b("Sigmoid", b("Add", f, 1.0))
        new = b("Add", b("Mul", forget, c), b("Mul", b("Sigmoid", i), b("Tanh", g)))
        return [b("Mul", b("Sigmoid", o), b("Tanh", new)), new]

    def counted(*arguments: Any) -> Any:
        matched.append(1)
        return match(*arguments)

    monkeypatch.setattr(fuse_steps, "match", counted)
    path = save(tmp_path / "model.onnx", unrolled(step, 2, 30), 2, steps=30)
    assert len(rc.load(path).layers) == 1
    assert len(matched) < 20
