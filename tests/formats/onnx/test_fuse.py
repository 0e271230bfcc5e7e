"""Recurrent layers in Loop, Scan and written-out steps become one node, and only where that is proved."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.errors import MissingPackageError, RefusedError, UnreadableError, UsageError
from rnnconvert.running import scripts
from tests import ROOT
from tests.helpers import corpus
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import need, needed

GOLDEN = ROOT / "tests" / "golden" / "fuse"


IN, HIDDEN = 3, 4
RANDOM = np.random.default_rng(5)
PLACES = {"i": 0, "f": 1, "g": 2, "o": 3, "z": 0, "r": 1, "n": 2}


def run(path: Path, feed: dict[str, Any]) -> list[Any]:
    return in_onnxruntime(path, **feed)


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


EXPORTED = {
    "keras_gru": "GRU", "keras_gru_reset_before": "GRU", "keras_gru_backwards": "GRU", "keras_rnn": "RNN", "keras_lstm_hard": "LSTM",
    "keras_torch_gru": "GRU", "keras_torch_gru_reset_before": "GRU", "keras_torch_gru_backwards": "GRU", "keras_torch_rnn": "RNN",
    "keras_torch_lstm": "LSTM", "keras_torch_lstm_hard": "LSTM", "keras_torch_bilstm": "LSTM",
    "dynamo_lstm_cells": "LSTM", "dynamo_gru_cells": "GRU", "dynamo_rnn_cells": "RNN", "dynamo_gru_cell": "GRU", "dynamo_own": "GRU",
    "dynamo_scan_gru": "GRU", "dynamo_scan_rnn": "RNN", "dynamo_scan_lstm_backwards": "LSTM",
    "jax_equinox_gru": "GRU", "jax_equinox_lstm": "LSTM", "jax_haiku_gru": "GRU", "jax_haiku_lstm": "LSTM", "jax_haiku_rnn": "RNN",
    "jax_linen_gru": "GRU", "jax_nnx_lstm": "LSTM", "jax_own": "GRU",
    "torchscript_lstm_cells": "LSTM", "torchscript_gru_cells": "GRU", "torchscript_rnn_cells": "RNN", "torchscript_gru_cell": "GRU",
    "torchscript_own": "GRU",
}  # fmt: skip


@pytest.mark.drawn(7)
@pytest.mark.parametrize("name", EXPORTED)
def test_what_an_exporter_wrote_out_becomes_one_node(name: str, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    target = tmp_path / "fast.onnx"
    done = rc.fuse(GOLDEN / f"{name}.onnx", target)
    operators_left = operators(target)
    count = 2 if "bilstm" in name else 1
    assert operators_left.count(EXPORTED[name]) == count and len(done.layers) == count and not done.left
    # keras.export by way of torch computes a first step for its shape alone
    assert (
        not {"Loop", "Scan"} & set(operators_left)
        and operators_left.count("Tanh") <= ("keras_torch" in name)
        and done.nodes[1] < (1 if name == "dynamo_scan_rnn" else 0.6) * done.nodes[0]
    )
    with np.load(GOLDEN / f"{name}.npz") as recorded:  # what the framework itself gave
        graph = onnx.load(target).graph
        feed = {entry.name: recorded[f"x{n}"] for n, entry in enumerate(graph.input)}
        for n, output in enumerate(run(target, feed)):
            np.testing.assert_allclose(output, recorded[f"y{n}"], rtol=2e-5, atol=2e-6)
    assert len(rc.load(target).layers) == count


def test_a_mask_in_written_out_steps_stays_as_it_is(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    with pytest.raises(RefusedError, match="lengths of sequences alone"):
        rc.fuse(GOLDEN / "keras_torch_masked.onnx", tmp_path / "fast.onnx")
    assert not (tmp_path / "fast.onnx").exists()


@pytest.mark.parametrize("name", ["keras_bilstm", "dynamo_gru", "torchscript_gru"])
def test_a_model_that_has_the_nodes_is_left(name: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="has no recurrent layer in a Loop"):
        rc.fuse(GOLDEN / f"{name}.onnx", tmp_path / "fast.onnx")


# Models of our own ---------------------------------------------------------------------------------------


class Body:
    """Nodes and numbers of a step, written in one of several ways."""

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[Any] = []
        self.arrays: dict[str, Any] = {}
        self.prefix = prefix

    def __call__(self, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        names = [self.constant(operand) if not isinstance(operand, str) else operand for operand in inputs]
        results = [f"{self.prefix}v{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(operator, names, results, **attributes))
        return results[0] if outputs == 1 else results

    def constant(self, value: Any) -> str:
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int64)
        name = f"{self.prefix}c{len(self.arrays)}"
        self.arrays[name] = array
        return name


def weights(gates: int) -> tuple[Any, Any, Any, Any]:
    """Input and recurrent matrices as (features, units), and two biases."""
    shapes = ((IN, gates * HIDDEN), (HIDDEN, gates * HIDDEN), (gates * HIDDEN,), (gates * HIDDEN,))
    return tuple((RANDOM.normal(size=shape) * 0.5).astype(np.float32) for shape in shapes)  # type: ignore[return-value]


def lstm(b: Body, x: str, states: Sequence[str], w: Any, change: str = "") -> list[str]:
    h, c = states
    both = b("Add", b("Add", b("MatMul", x, w[0]), w[2]), b("Add", b("MatMul", h, w[1]), w[3]))
    i, f, g, o = b("Split", both, np.array([HIDDEN] * 4), outputs=4, axis=-1)
    if change == "peepholes":
        i, f = b("Add", i, b("Mul", w[4], c)), b("Add", f, b("Mul", c, w[5]))
    if change == "clip":
        i = b("Clip", i, np.array(-6.0), np.array(6.0))
    f = b("Reciprocal", b("Add", b("Exp", b("Neg", f)), 1.0)) if change == "exp" else b("Sigmoid", f)
    new = b("Add", b("Mul", f, c), b("Mul", b("Sigmoid", i), b("Tanh", g)))
    if change == "peepholes":
        o = b("Add", o, b("Mul", new, w[6]))
    if change == "cell clip":
        new = b("Clip", new, np.array(-3.0), np.array(3.0))
    out = b("Mul", b("Sigmoid", o), b("Tanh", new))
    return [out, b("Add", new, 1e-3) if change == "drift" else new]


def gru(b: Body, x: str, states: Sequence[str], w: Any, change: str = "") -> list[str]:
    (h,) = states
    xs = b("Split", b("Add", b("MatMul", x, w[0]), w[2]), np.array([HIDDEN] * 3), outputs=3, axis=1)
    hs = b("Split", b("Add", b("MatMul", h, w[1]), w[3]), np.array([HIDDEN] * 3), outputs=3, axis=1)
    z, r = b("Sigmoid", b("Add", xs[0], hs[0])), b("Sigmoid", b("Add", hs[1], xs[1]))
    n = b("Tanh", b("Add", xs[2], b("Mul", r, hs[2])))
    if change == "turned":  # z says how much is new
        return [b("Add", h, b("Mul", z, b("Sub", n, h)))]
    return [b("Add", n, b("Mul", z, b("Sub", h, n)))]


def rnn(b: Body, x: str, states: Sequence[str], w: Any, change: str = "") -> list[str]:
    both = b("Gemm", b("Concat", x, *states, axis=1), np.concatenate([w[0], w[1]]), w[2])
    return [b({"relu": "Relu", "": "Tanh"}[change], both)]


CELLS: dict[str, tuple[Callable[..., list[str]], int, int]] = {"lstm": (lstm, 4, 2), "gru": (gru, 3, 1), "rnn": (rnn, 1, 1)}
Step = Callable[[Body, str, Sequence[str]], list[str]]


def value(name: str, shape: Sequence[Any] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def scan(step: Step, states: int, reverse: bool = False, batch_first: bool = False) -> tuple[list[Any], dict[str, Any]]:
    body = Body()
    names = [f"s{n}" for n in range(states)]
    new = step(body, "xt", names)
    new = [body("Identity", state) for state in new]
    out = body("Identity", new[0])
    inner = helper.make_graph(
        body.nodes, "step", [*(value(state, ["B", HIDDEN]) for state in names), value("xt", ["B", IN])],
        [*(value(state, ["B", HIDDEN]) for state in new), value(out, ["B", HIDDEN])],
        [numpy_helper.from_array(array, name) for name, array in body.arrays.items()],
    )  # fmt: skip
    axis = int(batch_first)
    node = helper.make_node(
        "Scan", [*(f"first{n}" for n in range(states)), "x"], [*(f"last{n}" for n in range(states)), "y"], "scanned", body=inner,
        num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[axis], scan_input_directions=[int(reverse)],
        scan_output_directions=[int(reverse)],
    )  # fmt: skip
    return [node], {}


LIMITS = ("least", "share", "while", "start")
"""Ways in which a Loop ends before its sequence where that has more than 20 steps."""


def loop(step: Step, states: int, stop: str = "") -> tuple[list[Any], dict[str, Any]]:
    body = Body()
    names = [f"s{n}" for n in range(states)]
    xt = body("Gather", "x", "iteration", axis=0)
    new = [body("Identity", name) for name in step(body, xt, names)]
    going = body("Identity", "going")
    if stop == "data":
        going = body("Less", body("ReduceMax", new[0], keepdims=0), 0.9999)
    if stop == "while":
        going = body("Less", "iteration", np.array(20))
    inner = helper.make_graph(
        body.nodes, "step",
        [value("iteration", [], TensorProto.INT64), value("going", [], TensorProto.BOOL), *(value(name, ["B", HIDDEN]) for name in names)],
        [value(going, [], TensorProto.BOOL), *(value(name, ["B", HIDDEN]) for name in new), value(body("Identity", new[0]), ["B", HIDDEN])],
        [numpy_helper.from_array(array, name) for name, array in body.arrays.items()],
    )  # fmt: skip
    outer = Body("outer_")
    count = "steps" if stop == "given" else outer("Gather", outer("Shape", "x"), np.array(0))
    if stop == "least":
        count = outer("Min", count, np.array(20))
    if stop == "share":
        count = outer("Sub", count, outer("Div", count, np.array(20)))
    start = outer("Less", count, np.array(20)) if stop == "start" else ""
    node = helper.make_node("Loop", [count, start, *(f"first{n}" for n in range(states))],
                            [*(f"last{n}" for n in range(states)), "y"], "looped", body=inner)  # fmt: skip
    return [*outer.nodes, node], outer.arrays


def unrolled(step: Step, states: int, steps: int = 5) -> tuple[list[Any], dict[str, Any]]:
    body = Body()
    now = [f"first{n}" for n in range(states)]
    stacked = []
    shared: dict[bytes, str] = {}
    plain = body.constant

    def constant(array: Any) -> str:
        """Return one name for one array of numbers, as weights have."""
        key = np.asarray(array).tobytes()
        if key not in shared:
            shared[key] = plain(array)
        return shared[key]

    body.constant = constant  # type: ignore[method-assign,assignment]
    for number in range(steps):
        xt = body("Gather", "x", np.array(number), axis=0)
        now = step(body, xt, now)
        stacked.append(body("Unsqueeze", now[0], np.array([0])))
    y = body("Concat", *stacked, axis=0)
    ends = [helper.make_node("Identity", [name], [f"last{n}"]) for n, name in enumerate(now)]
    return [*body.nodes, *ends, helper.make_node("Identity", [y], ["y"])], body.arrays


def save(path: Path, parts: tuple[list[Any], dict[str, Any]], states: int, inputs: Sequence[Any] = (), steps: Any = "T") -> Path:
    nodes, arrays = parts
    axes = ["B", steps, IN] if any(node.name == "scan_input_axes" and node.ints[0] for node in nodes[-1].attribute) else [steps, "B", IN]
    graph = helper.make_graph(
        nodes, "model", [value("x", axes), *(value(f"first{n}", ["B", HIDDEN]) for n in range(states)), *inputs],
        [value("y", None), *(value(f"last{n}", None) for n in range(states))],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def model(path: Path, cell: str, form: str, change: str = "", **extra: Any) -> tuple[Path, Any]:
    make, gates, states = CELLS[cell]
    w = weights(gates)
    peepholes = [(RANDOM.normal(size=HIDDEN) * 0.5).astype(np.float32) for _ in range(3)]
    forms: dict[str, Callable[..., Any]] = {"scan": scan, "loop": loop, "unrolled": unrolled}

    def step(body: Body, x: str, names: Sequence[str]) -> list[str]:
        return make(body, x, names, [*w, *peepholes], change)

    parts = forms[form](step, states, **extra)
    return save(path, parts, states, steps=5 if form == "unrolled" else "T"), (*w, *peepholes)


def feed(states: int, steps: int = 5) -> dict[str, Any]:
    random = np.random.default_rng(9)
    shapes = {"x": (steps, 2, IN), **{f"first{n}": (2, HIDDEN) for n in range(states)}}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


CASES = [
    (cell, form, change)
    for cell, changes in (("lstm", ("", "peepholes", "exp")), ("gru", ("", "turned")), ("rnn", ("", "relu")))
    for form in ("scan", "loop", "unrolled")
    for change in changes
]


@pytest.mark.drawn(7)
@pytest.mark.parametrize(("cell", "form", "change"), CASES)
def test_every_form_of_a_cell_keeps_weights_states_and_outputs(cell: str, form: str, change: str, tmp_path: Path) -> None:
    path, w = model(tmp_path / "model.onnx", cell, form, change)
    done = rc.fuse(path, tmp_path / "fast.onnx")
    assert len(done.layers) == 1 and not done.left, done
    assert operators(tmp_path / "fast.onnx").count(cell.upper()) == 1
    inputs = feed(CELLS[cell][2])
    for old, new in zip(run(path, inputs), run(tmp_path / "fast.onnx", inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
    (layer,) = rc.load(tmp_path / "fast.onnx").layers.values()
    direction = layer[0, 0]
    for gate in direction.cell.gates:
        place = 0 if cell == "rnn" else PLACES[gate]
        columns = slice(place * HIDDEN, (place + 1) * HIDDEN)
        sign = -1 if change == "turned" and gate == "z" else 1
        np.testing.assert_array_equal(direction.get("input", gate), sign * w[0][:, columns].T)
        np.testing.assert_array_equal(direction.get("recurrent", gate), sign * w[1][:, columns].T)
        np.testing.assert_array_equal(direction.get("input_bias", gate), sign * w[2][columns])
    if change == "peepholes":
        for gate, vector in zip("ifo", w[4:], strict=True):
            np.testing.assert_array_equal(direction.get("peephole", gate), vector)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_scan_from_the_end_stays_one(cell: str, batch_first: bool, tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", cell, "scan", reverse=True, batch_first=batch_first)
    rc.fuse(path, tmp_path / "fast.onnx")
    inputs = feed(CELLS[cell][2])
    if batch_first:
        inputs["x"] = inputs["x"].swapaxes(0, 1)
    for old, new in zip(run(path, inputs), run(tmp_path / "fast.onnx", inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
    (layer,) = rc.load(tmp_path / "fast.onnx").layers.values()
    assert layer[0, 0].reverse


UNPROVED = [
    ("lstm", "scan", {"change": "clip"}, "differs|no RNN|LSTM"), ("lstm", "loop", {"change": "cell clip"}, "no LSTM|LSTM"),
    ("lstm", "scan", {"change": "drift"}, "cell state"), ("lstm", "loop", {"stop": "data"}, "ends by what it computes"),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "form", "extra", "reason"), UNPROVED, ids=lambda argument: str(argument)[:30])
def test_what_no_operator_computes_stays(cell: str, form: str, extra: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", cell, form, **extra)
    with pytest.raises(RefusedError, match=reason):
        rc.fuse(path, tmp_path / "fast.onnx")
    assert not (tmp_path / "fast.onnx").exists()


@pytest.mark.parametrize("stop", LIMITS)
def test_a_loop_that_ends_before_a_long_sequence_stays(stop: str, tmp_path: Path) -> None:
    """No proof runs sequences that are long enough to show it."""
    path, _ = model(tmp_path / "model.onnx", "gru", "loop", stop=stop)
    with pytest.raises(RefusedError, match=r"the number 20 .* has a part in when it ends"):
        rc.fuse(path, tmp_path / "fast.onnx")


@pytest.mark.parametrize("bound", [100.0, 1e7])
def test_a_bound_that_no_trial_reaches_is_seen(bound: float, tmp_path: Path) -> None:
    w = weights(1)

    def step(b: Body, x: str, states: Sequence[str]) -> list[str]:
        return [b("Clip", b("Gemm", b("Concat", x, *states, axis=1), np.concatenate(w[:2]), w[2]), 0.0, bound)]

    path = save(tmp_path / "model.onnx", scan(step, 1), 1)
    with pytest.raises(RefusedError, match="differs on some numbers"):
        rc.fuse(path, tmp_path / "fast.onnx")


@pytest.mark.parametrize("version", [3, 9])
def test_stored_numbers_that_are_inputs_too_go_as_a_whole(version: int, tmp_path: Path) -> None:
    """Before the file version 4 every initializer was an input, and later each may be."""
    path, _ = model(tmp_path / "model.onnx", "lstm", "unrolled")
    proto = onnx.load(path)
    proto.ir_version = version
    proto.graph.input.extend(value(tensor.name, list(tensor.dims), tensor.data_type) for tensor in proto.graph.initializer)
    onnx.save(proto, path)
    rc.fuse(path, tmp_path / "fast.onnx")
    inputs = feed(2)
    for old, new in zip(run(path, inputs), run(tmp_path / "fast.onnx", inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
    assert [entry.name for entry in onnx.load(tmp_path / "fast.onnx").graph.input] == ["x", "first0", "first1"]


def test_an_input_that_has_the_name_of_a_new_value_keeps_it(tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", "gru", "scan")
    proto = onnx.load(path)
    proto.graph.input.append(value("scanned/Y", ["N"]))
    proto.graph.output.append(value("more", None))
    proto.graph.node.append(helper.make_node("Identity", ["scanned/Y"], ["more"]))
    onnx.save(proto, path)
    rc.fuse(path, tmp_path / "fast.onnx")
    inputs = {**feed(1), "scanned/Y": np.ones(3, np.float32)}
    for old, new in zip(run(path, inputs), run(tmp_path / "fast.onnx", inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def test_a_loop_whose_steps_are_given_stays(tmp_path: Path) -> None:
    w = weights(3)
    parts = loop(lambda body, x, names: gru(body, x, names, w), 1, stop="given")
    path = save(tmp_path / "model.onnx", parts, 1, [value("steps", [], TensorProto.INT64)])
    with pytest.raises(RefusedError, match="depends on numbers that the model is given"):
        rc.fuse(path, tmp_path / "fast.onnx")


def test_a_decoder_that_reads_its_own_output_stays(tmp_path: Path) -> None:
    w = weights(3)
    body = Body()
    h, x = "first0", "x0"
    back = body.constant(RANDOM.normal(size=(HIDDEN, IN)))
    matrices = [body.constant(matrix) for matrix in w]
    body.nodes.append(helper.make_node("Gather", ["x", body.constant(np.array(0))], ["x0"], axis=0))
    for _ in range(4):
        (h,) = gru(body, x, [h], matrices)
        x = body("Tanh", body("MatMul", h, back))
    ends = [helper.make_node("Identity", [h], ["last0"]), helper.make_node("Identity", [x], ["y"])]
    path = save(tmp_path / "model.onnx", ([*body.nodes, *ends], body.arrays), 1)
    with pytest.raises(RefusedError):
        rc.fuse(path, tmp_path / "fast.onnx")


def test_a_real_model_of_single_steps(tmp_path: Path) -> None:
    """DTLN's second part, which TensorFlow's exporter wrote as products and functions, one step of two LSTMs."""
    need("corpus", corpus.absent())
    path = corpus.FOLDER / "dtln-base" / "model_2.onnx"
    done = rc.fuse(path, tmp_path / "fast.onnx")
    assert [layer.cell for layer in done.layers] == ["LSTM 256 -> 128", "LSTM 128 -> 128"] and not done.left
    random = np.random.default_rng(0)
    inputs = {"input_4": random.normal(size=(1, 1, 512)), "input_5": random.normal(size=(1, 2, 128, 2))}
    inputs = {name: array.astype(np.float32) for name, array in inputs.items()}
    for old, new in zip(run(path, inputs), run(tmp_path / "fast.onnx", inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)


def test_a_step_whose_state_cannot_be_told_stays(tmp_path: Path) -> None:
    """An LSTM's step as wide as its state: the input could be the state."""
    body = Body()
    square = [(RANDOM.normal(size=(HIDDEN, 4 * HIDDEN)) * 0.5).astype(np.float32) for _ in range(2)]
    out, new = lstm(body, "first2", ["first0", "first1"], [*square, *weights(4)[2:]])
    ends = [helper.make_node("Identity", [source], [name]) for source, name in ((out, "last0"), (new, "last1"), (new, "last2"), ("x", "y"))]
    path = save(tmp_path / "model.onnx", ([*body.nodes, *ends], body.arrays), 3)
    with pytest.raises(RefusedError, match="which of its inputs is the state cannot be told from one step"):
        rc.fuse(path, tmp_path / "fast.onnx")


def test_a_replacement_that_the_proof_denies_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the recognition itself: the proof finds it."""
    from rnnconvert.recognition import loops, recognised

    weights_of = recognised.weights

    def wrong(*arguments: Any) -> Any:
        right = weights_of(*arguments)
        arrays = dict(right.arrays)
        arrays["recurrent", "z"], arrays["recurrent", "r"] = arrays["recurrent", "r"], arrays["recurrent", "z"]
        return recognised.Weights(arrays, right.origins)

    monkeypatch.setattr(loops, "weights", wrong)
    path, _ = model(tmp_path / "model.onnx", "gru", "scan")
    needed("onnxruntime", "onnxruntime")
    with pytest.raises(RefusedError, match=r"recognized as GRU.*but not proved: its output .* is off by"):
        rc.fuse(path, tmp_path / "fast.onnx")


def test_the_command_reports_and_keeps_to_its_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("onnxruntime", "onnxruntime")
    source, target = tmp_path / "model.onnx", tmp_path / "fast.onnx"
    shutil.copy(GOLDEN / "keras_gru.onnx", source)

    def call(*words: object) -> Any:
        return CliRunner().invoke(main, ["fuse", *map(str, words)])

    assert call(source, "-o", target, "--dry-run").exit_code == 0 and not target.exists()
    done = call(source, "-o", target, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["layers"][0]["cell"] == "GRU (reset after) 6 -> 8"
    assert call(source, "-o", target).exit_code == 2 and call(source, "-o", target, "--force").exit_code == 0
    assert call(source, "-o", source, "--force").exit_code == 2
    assert call(tmp_path / "none.onnx", "-o", target, "--force").exit_code == 3
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(source.read_bytes()[:700])
    assert call(damaged, "-o", target, "--force").exit_code == 3
    assert call(GOLDEN / "keras_torch_masked.onnx", "-o", target, "--force").exit_code == 4
    assert call(target, "-o", tmp_path / "again.onnx").exit_code == 4

    def lacking(framework: str, absent: MissingPackageError) -> str:
        raise absent

    monkeypatch.setattr(scripts, "python_of", lacking)
    assert call(source, "-o", target, "--force").exit_code == 5


def test_a_node_without_its_attribute_is_unreadable(tmp_path: Path) -> None:
    model = onnx.load(GOLDEN / "keras_torch_gru.onnx")
    for node in model.graph.node:
        if node.op_type in ("Cast", "Concat"):
            del node.attribute[:]
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UnreadableError, match="not as its operator asks"):
        rc.fuse(tmp_path / "model.onnx", tmp_path / "fast.onnx")


def test_wrong_use_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in \.onnx"):
        rc.fuse(GOLDEN / "keras_gru.onnx", tmp_path / "fast.pt")
    with pytest.raises(UsageError, match="Create it first"):
        rc.fuse(GOLDEN / "keras_gru.onnx", tmp_path / "none" / "fast.onnx")


def test_a_model_that_takes_more_memory_than_there_is_ends_in_words(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    path, _ = model(tmp_path / "model.onnx", "gru", "loop")
    hostile = onnx.load(path)
    hostile.graph.initializer.append(numpy_helper.from_array(np.array([40_000_000_000]), "size"))
    hostile.graph.node.append(helper.make_node("ConstantOfShape", ["size"], ["large"]))
    hostile.graph.node.append(helper.make_node("ReduceSum", ["large"], ["sum"]))
    hostile.graph.output.append(value("sum", None))
    onnx.save(hostile, path)
    with pytest.raises(RefusedError, match="onnxruntime does not run the model as it is"):
        rc.fuse(path, tmp_path / "fast.onnx")


def test_two_layers_that_share_a_written_out_cell_are_not_called_absent(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    cell = torch.nn.LSTMCell(4, 4)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, x: Any) -> Any:
            below = above = (x[0] * 0, x[0] * 0)
            outputs = []
            for step in range(5):
                below = self.cell(x[step], below)
                above = self.cell(below[0], above)
                outputs.append(above[0])
            return torch.stack(outputs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Model(), torch.zeros(5, 2, 4), str(tmp_path / "shared.onnx"), dynamo=False)
    with pytest.raises(RefusedError, match="written out step by step, which cannot be read"):
        rc.fuse(tmp_path / "shared.onnx", tmp_path / "out.onnx")
