"""Loops and Scans whose steps a mask or the lengths of sequences keep or drop become one node, and only where that is proved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError
from tests.formats.onnx.test_fuse import CELLS, GOLDEN, HIDDEN, IN, Body, operators, run, value, weights
from tests.helpers.requirements import needed

STEPS, BATCH = 6, 4


def chosen(b: Body, way: str, mask: str, new: str, old: str) -> str:
    """A value of a step: the new one where it counts, else another; as Where, its opposite, or sums of products."""
    if way == "products":
        product = b("Mul", b("Cast", mask, to=1), new)
        return str(b("Add", product, b("Mul", old, b("Cast", b("Not", mask), to=1))))
    if way == "turned":
        return str(b("Where", b("Not", mask), old, new))
    wide = b("Expand", mask, np.array([1, HIDDEN])) if way == "wide" else mask
    return str(b("Where", wide, new, old))


def masked(path: Path, cell: str, kind: str = "mask", way: str = "where", fill: str = "state", fault: str = "") -> Path:
    """Save a Loop whose states a mask keeps.

    kind   what decides: "mask" (time, batch, 1), "flat" (time, batch), "lengths" (batch,)
    fill   what the loop collects at steps that do not count
    fault  what makes it something else than a layer with a mask
    """
    make, gates, states = CELLS[cell]
    w, body = weights(gates), Body()
    names = [f"s{n}" for n in range(states)]
    xt = body("Gather", "x", "iteration", axis=0)
    if kind == "lengths":
        count = body("Cast", body("Unsqueeze", "m", np.array([1])), to=7)
        counts = {"": lambda: body("Less", "iteration", count), "until": lambda: body("LessOrEqual", "iteration", count)}[fault]()
    else:
        counts = body("Gather", "m", "iteration", axis=0)
        counts = body("Unsqueeze", counts, np.array([1])) if kind == "flat" else counts
    new = make(body, xt, names, w)
    after = [chosen(body, way, counts, state, old) for state, old in zip(new, names, strict=True)]
    if fault == "cell":
        after[-1] = new[-1]
    if fault == "other":
        after[-1] = chosen(body, way, body("Not", counts), new[-1], names[-1])
    zero = body.constant(np.zeros((1, HIDDEN)))
    carried = list(names)
    if fill == "output":
        carried.append("p")
        after.append(chosen(body, way, counts, new[0], "p"))
        out = after[-1]
    else:
        out = after[0] if fill == "state" else chosen(body, way, counts, new[0], zero)
    if fault == "out":
        out = body("Add", out, 1.0)
    after = [body("Identity", state) for state in after]
    inner = helper.make_graph(
        body.nodes, "step",
        [value("iteration", [], TensorProto.INT64), value("going", [], TensorProto.BOOL),
         *(value(state, ["B", HIDDEN]) for state in carried)],
        [value(body("Identity", "going"), [], TensorProto.BOOL), *(value(state, ["B", HIDDEN]) for state in after),
         value(body("Identity", out), ["B", HIDDEN])],
        [numpy_helper.from_array(array, name) for name, array in body.arrays.items()],
    )  # fmt: skip
    outer = Body("outer_")
    size = outer("Shape", "x")
    count, batch = outer("Gather", size, np.array(0)), outer("Gather", size, np.array([1]))
    begin = outer("ConstantOfShape", outer("Concat", batch, np.array([HIDDEN]), axis=0),
                  value=numpy_helper.from_array(np.array([0.5 if fault == "begin" else 0], np.float32)))  # fmt: skip
    firsts = [*(f"first{n}" for n in range(states)), *([begin] if fill == "output" else [])]
    lasts = [f"last{n}" for n in range(len(firsts))]
    node = helper.make_node("Loop", [count, "", *firsts], [*lasts, "y"], "looped", body=inner)
    shapes: dict[str, list[Any]] = {"mask": ["T", "B", 1], "flat": ["T", "B"], "lengths": ["B"]}
    inputs = [value("x", ["T", "B", IN]), *(value(f"first{n}", ["B", HIDDEN]) for n in range(states)),
              value("m", shapes[kind], TensorProto.INT32 if kind == "lengths" else TensorProto.BOOL)]  # fmt: skip
    graph = helper.make_graph(
        [*outer.nodes, node], "model", inputs, [value(state, None) for state in ("y", *lasts)],
        [numpy_helper.from_array(array, name) for name, array in outer.arrays.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def inputs_of(states: int, kind: str) -> dict[str, Any]:
    random = np.random.default_rng(3)
    truths = random.random((STEPS, BATCH)) > 0.4
    truths[:, 0], truths[:, 1] = False, True
    mask = {"mask": truths[..., None], "flat": truths, "lengths": np.array([0, STEPS, 2, 9], np.int32)}[kind]
    shapes = {"x": (STEPS, BATCH, IN), **{f"first{n}": (BATCH, HIDDEN) for n in range(states)}}
    return {"m": mask, **{name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}}


CASES: Sequence[tuple[str, str, str, str]] = [
    ("lstm", "mask", "where", "state"), ("lstm", "flat", "products", "output"), ("lstm", "lengths", "where", "zero"),
    ("gru", "mask", "products", "zero"), ("gru", "lengths", "turned", "state"), ("gru", "mask", "wide", "output"),
    ("rnn", "mask", "turned", "output"), ("rnn", "flat", "where", "zero"), ("rnn", "lengths", "products", "output"),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "kind", "way", "fill"), CASES)
def test_a_loop_with_a_mask_is_one_node(cell: str, kind: str, way: str, fill: str, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    path = masked(tmp_path / "model.onnx", cell, kind, way, fill)
    done = rc.fuse(path, tmp_path / "fast.onnx")
    assert len(done.layers) == 1 and not done.left
    assert operators(tmp_path / "fast.onnx").count(cell.upper()) == 1
    feed = inputs_of(CELLS[cell][2], kind)
    for old, new in zip(run(path, feed), run(tmp_path / "fast.onnx", feed), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
    checkpoint = rc.load(path)
    assert len(checkpoint.layers) == 1 and not checkpoint.unread and any("pass the lengths" in warning for warning in checkpoint.warnings)


@pytest.mark.parametrize(
    ("fault", "kind", "fill", "reason"),
    [("cell", "mask", "state", "cell state is kept at other steps"), ("other", "mask", "state", "several masks"),
     ("out", "mask", "state", "collects something else"), ("begin", "mask", "output", "besides|collects|not a state"),
     ("until", "lengths", "state", "neither a mask nor")],
)  # fmt: skip
def test_what_is_no_mask_of_a_layer_stays_with_the_reason(fault: str, kind: str, fill: str, reason: str, tmp_path: Path) -> None:
    path = masked(tmp_path / "model.onnx", "lstm", kind, "where", fill, fault)
    assert not rc.load(path).layers
    needed("onnxruntime", "onnxruntime")
    with pytest.raises(RefusedError, match=reason):
        rc.fuse(path, tmp_path / "fast.onnx")


@pytest.mark.parametrize(("name", "count"), [("keras_masked", 1), ("keras_masked_bilstm", 2)])
def test_a_masked_layer_that_keras_exported_is_one_node(name: str, count: int, tmp_path: Path) -> None:
    checkpoint = rc.load(GOLDEN / f"{name}.onnx")
    assert len(checkpoint.layers) == count and not checkpoint.unread
    needed("onnxruntime", "onnxruntime")
    rc.fuse(GOLDEN / f"{name}.onnx", tmp_path / "fast.onnx")
    assert "Loop" not in operators(tmp_path / "fast.onnx")
    with np.load(GOLDEN / f"{name}.npz") as recorded:
        feed = {entry.name: recorded[f"x{n}"] for n, entry in enumerate(onnx.load(tmp_path / "fast.onnx").graph.input)}
        (y,) = run(tmp_path / "fast.onnx", feed)
        np.testing.assert_allclose(y, recorded["y0"], rtol=2e-5, atol=2e-6)
