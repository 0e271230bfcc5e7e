"""Layers between which something stands in their own model are not joined as if nothing did."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Directly, Input, Recurrent, Through
from tests.formats.mxnet.test_mxnet_files import file_of
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import needed
from tests.helpers.sources import uniform


def cells(*prefixes: str) -> dict[str, Array]:
    """Arrays of gluon's LSTM cells of four units that read four values."""
    parts = (("i2h_weight", (16, 4)), ("h2h_weight", (16, 4)), ("i2h_bias", (16,)), ("h2h_bias", (16,)))
    named = itertools.product(prefixes, parts)
    return {f"{prefix}{part}": uniform(seed, *shape) for seed, (prefix, (part, shape)) in enumerate(named)}


def params(path: Path, *prefixes: str) -> Path:
    path.write_bytes(file_of(cells(*prefixes)))
    return path


# MXNet ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", ["1.base_cell.", "1.base_cell.base_cell."])
def test_a_wrapped_cell_is_named_and_not_joined(wrapped: str, tmp_path: Path) -> None:
    """What gluon's save_parameters calls the cells of ResidualCell(LSTMCell) and ZoneoutCell(ResidualCell(...))."""
    path = params(tmp_path / "a.params", "0.", wrapped, "2.")
    checkpoint = rc.load(path)
    wrappers = [layer.wrapped for layer in checkpoint.layers.values()]
    assert wrappers[0] == wrappers[2] == "" and "ResidualCell, ZoneoutCell" in wrappers[1]
    assert "wrapped in another cell" in checkpoint.layers[wrapped.rstrip(".")].describe()
    assert any("wrapped in another cell" in warning for warning in checkpoint.warnings)
    with pytest.raises(rc.RefusedError, match=r"something between them: .* is wrapped in another cell") as caught:
        rc.convert(path, tmp_path / "a.onnx", stack="join")
    assert caught.value.exit_code == 4 and not (tmp_path / "a.onnx").exists()
    with pytest.raises(ValueError, match="wrapped in another cell"):
        rc.join_stack(list(checkpoint.layers.values()))
    summary = rc.convert(path, tmp_path / "a.onnx", layers=["0", "2"])
    assert summary.written


def test_plain_cells_are_joined(tmp_path: Path) -> None:
    rc.convert(params(tmp_path / "a.params", "0.", "1."), tmp_path / "a.onnx", stack="join")


def symbol(path: Path, add: str) -> None:
    """The graph of two LSTM cells unrolled for three steps, with an operator between them, as mx.sym.Symbol.tojson writes it."""
    nodes: list[dict[str, Any]] = []

    def node(op: str, name: str, *inputs: tuple[int, int] | int, **attributes: str) -> int:
        edges = [[*each, 0] if isinstance(each, tuple) else [each, 0, 0] for each in inputs]
        nodes.append({"op": op, "name": name, "inputs": edges, "attrs": attributes})
        return len(nodes) - 1

    data = node("null", "data")
    steps: list[tuple[int, int] | int] = [
        (node("SliceChannel", "steps", data, axis="0", num_outputs="3", squeeze_axis="1"), n) for n in range(3)
    ]
    for cell in "ab":
        parts = [node("null", f"{cell}_{part}") for part in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")]
        h, c = (node("_zeros", f"{cell}_begin_{n}", shape="(0, 4)", dtype="float32") for n in (0, 1))
        for t, x in enumerate(steps):
            name = f"{cell}_t{t}_"
            products = [node("FullyConnected", f"{name}{word}", value, *parts[2 * n : 2 * n + 2], num_hidden="16")
                        for n, (word, value) in enumerate((("i2h", x), ("h2h", h)))]  # fmt: skip
            gates = node("SliceChannel", f"{name}slice", node("elemwise_add", f"{name}plus0", *products), num_outputs="4")
            i, f, o = (node("sigmoid", f"{name}{word}", (gates, n)) for word, n in (("i", 0), ("f", 1), ("o", 3)))
            past = node("elemwise_mul", f"{name}mul0", f, c)
            c = node("elemwise_add", f"{name}state", past, node("elemwise_mul", f"{name}mul1", i, node("tanh", f"{name}c", (gates, 2))))
            h = node("elemwise_mul", f"{name}out", o, node("tanh", f"{name}activation0", c))
            more = [x] if add == "elemwise_add" else []
            steps[t] = node(add, f"{cell}_{add}_{t}", h, *more) if cell == "a" else h
    node("stack", "y", *steps, axis="0", num_args="3")
    path.write_text(json.dumps({"nodes": nodes, "heads": [[len(nodes) - 1, 0, 0]]}))


def test_the_graph_beside_says_what_stands_between(tmp_path: Path) -> None:
    path = params(tmp_path / "a.params", "a_", "b_")
    symbol(tmp_path / "a-symbol.json", "elemwise_add")
    assert rc.load(path).layers["b"].reads == Through(("a",), ("elemwise_add",))
    with pytest.raises(rc.RefusedError, match="elemwise_add"):
        rc.convert(path, tmp_path / "a.onnx", stack="join")
    symbol(tmp_path / "a-symbol.json", "Dropout")
    assert rc.load(path).layers["b"].reads == Directly(("a",))
    rc.convert(path, tmp_path / "a.onnx", stack="join")


# ONNX -----------------------------------------------------------------------------------------------


def onnx_model(path: Path, between: str) -> Path:
    """Two LSTMs of four units, one after the other, with an operator between them."""
    initializers = [onnx.numpy_helper.from_array(uniform(seed, 1, 16, 4), name) for seed, name in enumerate(("W0", "R0", "W1", "R1"))]
    initializers.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "axis"))
    inputs = {"Add": ["s", "x"], "Concat": ["s"]}.get(between, ["s"])
    more: dict[str, Any] = {"axis": 2} if between == "Concat" else {}
    nodes = [
        helper.make_node("LSTM", ["x", "W0", "R0"], ["y"], "low", hidden_size=4),
        helper.make_node("Squeeze", ["y", "axis"], ["s"]),
        helper.make_node(between, inputs, ["t"], **more),
        helper.make_node("LSTM", ["t", "W1", "R1"], ["z"], "high", hidden_size=4),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["time", "batch", 4])
    z = helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["time", 1, "batch", 4])
    graph = helper.make_graph(nodes, "two", [x], [z], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("between", ["Add", "Relu", "Identity", "Dropout", "Concat"])
def test_what_stands_between_two_onnx_nodes(between: str, tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "two.onnx", between)
    layers = rc.load(path).layers
    if between in ("Add", "Relu"):
        assert layers["high"].reads == Through(("low",), (between,))
        with pytest.raises(rc.RefusedError, match=f"'high' does not read 'low' directly: {between} comes before it"):
            rc.convert(path, tmp_path / "out.pt", stack="join")
        return
    assert layers["high"].reads == Directly(("low",)) and layers["low"].reads == Input()
    rc.convert(path, tmp_path / "out.pt", stack="join")
    x = uniform(9, 5, 2, 4)
    (joined,) = rc.load(tmp_path / "out.pt").layers.values()
    assert np.abs(reference.run(joined, x).y - in_onnxruntime(path, x)[0][:, 0]).max() < 1e-6


def test_layers_that_are_left_out_between_others_are_missed(tmp_path: Path) -> None:
    """Three layers one after the other, of which the first and the third are to be joined."""
    rc.save(rc.Checkpoint("(made)", "canonical", {"deep": _stack(3)}), tmp_path / "deep.onnx")
    names = list(rc.load(tmp_path / "deep.onnx").layers)
    assert len(names) == 3
    rc.convert(tmp_path / "deep.onnx", tmp_path / "all.pt", stack="join")
    with pytest.raises(rc.RefusedError, match="does not read"):
        rc.convert(tmp_path / "deep.onnx", tmp_path / "some.pt", stack="join", layers=[names[0], names[2]])


def _stack(layers: int) -> Recurrent:
    from rnnconvert.language.layout import Sizes
    from tests.helpers.stacks import random_stack

    return random_stack(Sizes("gru", 4, 4, layers), 3, np.float32).replace(name="deep")


# Keras ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("between", ["Dense", "LayerNormalization", "Dropout", "SpatialDropout1D", "Add"])
def test_what_stands_between_two_keras_layers(between: str, functional: bool, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    k = keras.layers
    if between == "Add" and not functional:
        return
    start = k.Input((5, 4))
    low = k.LSTM(4, return_sequences=True, name="low")(start)
    makers = {"Dense": lambda: k.Dense(4), "Dropout": lambda: k.Dropout(0.5), "SpatialDropout1D": lambda: k.SpatialDropout1D(0.5)}
    layer = k.LayerNormalization() if between == "LayerNormalization" else makers.get(between, k.Add)()
    if functional:
        middle = k.Add()([low, start]) if between == "Add" else layer(low)
        model = keras.Model(start, k.LSTM(4, name="high")(middle))
    else:
        model = keras.Sequential([k.Input((5, 4)), k.LSTM(4, return_sequences=True, name="low"), layer, k.LSTM(4, name="high")])
    for ending in (".keras", ".h5"):
        path = tmp_path / f"model{ending}"
        model.save(path)
        if "Dropout" in between:
            assert rc.load(path).layers["high"].reads == Directly(("low",))
            rc.convert(path, tmp_path / "out.pt", stack="join", force=True)
            continue
        with pytest.raises(rc.RefusedError, match=f"{between} comes before it"):
            rc.convert(path, tmp_path / "out.pt", stack="join", force=True)
