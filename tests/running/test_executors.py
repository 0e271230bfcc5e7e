"""Every executor that a CPU can run, in a process of its own, on files that we wrote: against the float64 reference."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rnnconvert
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.errors import ExecutorError, MissingPackageError, UsageError
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Key, Layer, Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.running import child, registry
from rnnconvert.running.parent import Process
from rnnconvert.running.registry import Executor
from tests import ROOT, environments
from tests.helpers import frameworks
from tests.helpers.drawn import looped
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, PLAIN, backwards, random_stack, random_states
from tests.helpers.workers import running

FAMILIES = {
    "torch-cpu": "torch",
    "keras-tensorflow": "keras",
    "keras-torch": "keras",
    "keras-jax": "keras",
    "onnxruntime-cpu": "onnxruntime",
    "jax-cpu": "jax",
    "mxnet": "mxnet",
    "mxnet-native": "mxnet",
    "mxnet-gluon": "mxnet",
}
"""Executors of CPUs, and what they need as RNNCONVERT_REQUIRE has it."""

STEPS, BATCH = 5, 3
INPUT = PLAIN | {"input_bias"}
RNN, GRU, GRU_BEFORE, LSTM = Cell("rnn"), Cell("gru", True), Cell("gru", False), Cell("lstm")
Workers = Callable[[str], Process]


def executor_of(name: str) -> Executor:
    """An executor, which must be there."""
    if FAMILIES[name] == "mxnet":
        return frameworks.mxnet(name)
    executor = registry.built_in()[name]
    need(FAMILIES[name], executor.absent)
    return executor


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """A process for each executor, started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(running(executor_of(name))))


def case(
    cell: Cell, layers: int = 1, directions: int = 1, parts: frozenset[str] = BOTH, dtype: str = "float32",
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A stack to be tried: `merge` of its directions, `backwards` for one direction read from the end, `order` of its
    outputs.
    """
    form = Sizes(cell.kind, 3, 5, layers, directions, 2 if "projection" in parts else 0, parts)
    return {"cell": cell, "form": form, "dtype": dtype, "merge": "concat", **more}


def stack_of(config: Mapping[str, Any], seed: int = 5) -> Recurrent:
    stack = random_stack(config["form"], seed, config["dtype"], config["cell"])
    *below, last = stack.layers
    stack = stack.replace(layers=(*below, dataclasses.replace(last, merge=config["merge"])))
    order = config.get("order", "time")
    return backwards(stack, order) if config.get("backwards") else stack.replace(output_order=order)


CASES: dict[str, list[dict[str, Any]]] = {
    "torch": [
        case(LSTM, 2, 2), case(GRU, 2, 2), case(RNN, 1, 2, PLAIN), case(RNN.replace(activation=RELU), 2),
        case(LSTM, 2, 2, BOTH | {"projection"}), case(GRU, 1, 2, dtype="float64"),
        case(LSTM, 1, 2, dtype="bfloat16"), case(GRU, 2, 1, dtype="float16"),
    ],
    "keras": [
        case(LSTM, 2, 2, INPUT), case(GRU, 2, 1), case(GRU_BEFORE, 1, 2, INPUT), case(RNN, 2, 2, PLAIN),
        case(RNN.replace(activation=RELU), 1, 1, INPUT), case(LSTM, 1, 2, INPUT, "float64"), case(GRU, 1, 2, merge="sum"),
        case(GRU, 1, 2, merge="mul"), case(LSTM, 2, 2, INPUT, merge="ave"), case(LSTM, 1, 2, INPUT, merge="none"),
        case(LSTM, 1, 1, INPUT, backwards=True), case(GRU, 1, 1, backwards=True, order="processing"),
        case(LSTM, 2, 1, INPUT, backwards=True), case(GRU, 2, 2, dtype="float16"),
    ],
    "onnxruntime": [
        case(LSTM, 2, 2), case(GRU, 2, 2), case(GRU_BEFORE, 1, 2), case(RNN, 2, 1, PLAIN), case(LSTM, 1, 1, backwards=True),
        case(RNN.replace(activation=RELU), 1, 2), case(LSTM, 2, 2, BOTH | {"peephole"}),
        case(LSTM, 2, 2, BOTH | {"initial_hidden", "initial_cell"}), case(LSTM.replace(coupled="f"), 1, 2),
        case(GRU, 1, 2, merge="sum"), case(LSTM, 2, 2, merge="mul"), case(GRU, 1, 2, merge="none"),
        case(GRU, 2, 2, dtype="float16"), case(RNN, 2, 2, merge="ave"),
    ],
    "jax": [case(LSTM, 2, 2), case(LSTM, 3, 1), case(LSTM)],
    "mxnet": [
        case(LSTM, 2, 2), case(GRU, 3, 2), case(RNN, 1, 2), case(RNN.replace(activation=RELU), 2), case(GRU, 1, 1, dtype="float64"),
        case(LSTM, 2, 2, BOTH | {"projection"}),
    ],
}  # fmt: skip


def label(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    cell, form = value["cell"], value["form"]
    words = [
        cell.kind,
        {True: "after", False: "before", None: ""}[cell.reset_after],
        "relu" * (cell.activation == RELU),
        cell.coupled and "coupled",
    ]
    words += [f"{form.num_layers}x{form.num_directions}", value["dtype"], value["merge"].replace("concat", "")]
    words += ["projection" * bool(form.projection_size), "backwards" * bool(value.get("backwards")), value.get("order", "")]
    words += sorted(form.parts - BOTH - {"projection"})
    return "-".join(str(word) for word in words if word)


def cases_of(name: str) -> list[dict[str, Any]]:
    """What an executor is tried with: Keras has float64 on one of its backends only."""
    narrow = name in ("keras-torch", "keras-jax")
    return [config for config in CASES[FAMILIES[name]] if not (narrow and config["dtype"] == "float64")]


SWEEP = [pytest.param(name, config, id=f"{name}-{label(config)}") for name in FAMILIES for config in cases_of(name)]


def written(problem: Problem, executor: Executor, folder: Path, **options: Any) -> str:
    """A file of the executor's format with the stack; an ONNX model has inputs for the states and lengths given."""
    path = folder / f"model{executor.suffix}"
    stack = problem.stack
    if executor.format == "onnx":
        options |= {} if problem.lengths is None else {"sequence_lens": True}
        if problem.hidden is not None:
            learned = any(part.startswith("initial") for *_, d in stack.directions() for part, _ in d.arrays)
            options |= {"states": "input"} | ({"initial_state": "call"} if learned else {})
    rnnconvert.save(Checkpoint("", "canonical", {stack.name: stack}), path, executor.format, **options)
    return str(path)


def problem_of(config: Mapping[str, Any], lengths: Any = None, states: bool = True) -> Problem:
    """A stack with random input, and with random initial states or those that it has."""
    form = config["form"]
    x = np.random.default_rng(6).uniform(-1, 1, (STEPS, BATCH, form.input_size)).astype(config["dtype"])
    hidden, cell = random_states(form, BATCH, 7, config["dtype"]) if states else (None, None)
    return Problem(stack_of(config), x, hidden, cell, None if lengths is None else np.array(lengths))


def how_of(name: str, config: Mapping[str, Any]) -> dict[str, str]:
    """What a file does not say: the function of a plain RNN, whose default is not the same in both."""
    open_ = name in ("torch-cpu", "mxnet-gluon") and config["cell"].kind == "rnn"
    return {"nonlinearity": config["cell"].activation.name} if open_ else {}


def asked(worker: Process, file: str, problem: Problem, layers: list[str], **more: Any) -> dict[str, Any]:
    """What the process answers. Numbers travel as float32 or float64."""

    def wide(states: Any) -> Any:
        return None if states is None else [np.asarray(state).astype(_wide(state)) for state in states]

    (x,) = wide([problem.x])
    numbers = {"x": x, "hidden": wide(problem.hidden), "cell": wide(problem.cell), "lengths": problem.lengths}
    return worker.ask(**{"file": file, "layers": layers, "how": {}, **numbers, **more})


def _wide(array: Array) -> Any:
    return np.float64 if array.dtype == np.float64 else np.float32


@pytest.mark.drawn(13)
@pytest.mark.parametrize("states", [True, False], ids=["given", "default"])
@pytest.mark.parametrize(("name", "config"), SWEEP)
def test_a_file_of_ours_gives_what_the_reference_gives(
    name: str, config: dict[str, Any], states: bool, workers: Workers, tmp_path: Path
) -> None:
    worker = workers(name)
    problem = problem_of(config, states=states)
    file = written(problem, worker.executor, tmp_path)
    answer = asked(worker, file, problem, [], how=how_of(name, config))
    assert excess(problem, frameworks.outputs(answer)) <= 1


@pytest.mark.parametrize("state", ["hidden", "cell"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_state_that_an_lstm_is_not_given_is_zero(name: str, state: str, workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    problem = problem_of(next(config for config in cases_of(name) if config["cell"] == LSTM))
    file = written(problem, worker.executor, tmp_path)
    zeros: dict[str, Any] = {part: tuple(map(np.zeros_like, getattr(problem, part))) for part in ("hidden", "cell") if part != state}
    answer = asked(worker, file, problem, [], **dict.fromkeys(zeros))
    assert excess(dataclasses.replace(problem, **zeros), frameworks.outputs(answer)) <= 1


def runs_by_name(name: str, config: Mapping[str, Any]) -> bool:
    """Return whether the layers alone compute the file: no joint nor flip stands behind them as an operation of its
    own.
    """
    joined = FAMILIES[name] == "onnxruntime" and config["merge"] not in ("concat", "none")
    flipped = FAMILIES[name] == "keras" and config.get("backwards") and config.get("order") != "processing"
    return not joined and not flipped


NAMED = [
    pytest.param(name, config, id=f"{name}-{label(config)}") for name in FAMILIES for config in cases_of(name) if runs_by_name(name, config)
]


@pytest.mark.drawn(13)
@pytest.mark.parametrize(("name", "config"), NAMED)
def test_layers_by_name_give_what_the_reference_gives(name: str, config: dict[str, Any], workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    problem = problem_of(config)
    file = written(problem, worker.executor, tmp_path)
    answer = asked(worker, file, problem, list(rnnconvert.load(file).layers), how=how_of(name, config))
    assert excess(problem, frameworks.outputs(answer)) <= 1


@pytest.mark.drawn(13)
@pytest.mark.parametrize(("name", "config"), SWEEP)
def test_sequences_of_many_lengths(name: str, config: dict[str, Any], workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    problem = problem_of(config, (5, 1, 3))
    file = written(problem, worker.executor, tmp_path)
    if FAMILIES[name] == "mxnet":
        with pytest.raises(ExecutorError, match="MXNet ignores lengths") as raised:
            asked(worker, file, problem, [], how=how_of(name, config))
        assert raised.value.refused
        return
    answer = asked(worker, file, problem, [], how=how_of(name, config))
    if config.get("order") == "processing":  # the padding comes first, in Keras and in the reference
        assert not answer["y"][: STEPS - 3, 2].any()
    assert excess(problem, frameworks.outputs(answer)) <= 1


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sequence_of_length_zero_keeps_its_state_or_is_refused(name: str, workers: Workers, tmp_path: Path) -> None:
    config = case(LSTM, 2, 2, INPUT if FAMILIES[name] == "keras" else BOTH)
    worker = workers(name)
    problem = problem_of(config, (5, 0, 3))
    file = written(problem, worker.executor, tmp_path)
    if FAMILIES[name] == "keras":
        assert excess(problem, frameworks.outputs(asked(worker, file, problem, []))) <= 1
        return
    with pytest.raises(ExecutorError, match="length") as raised:
        asked(worker, file, problem, [])
    assert raised.value.refused


@pytest.mark.parametrize("name", ["keras-tensorflow", "keras-torch", "keras-jax", "onnxruntime-cpu"])
@pytest.mark.parametrize("directions", [1, 2])
def test_a_folded_projection_runs_with_its_read_out(name: str, directions: int, workers: Workers, tmp_path: Path) -> None:
    problem = problem_of(case(LSTM, 2, directions, BOTH | {"projection"}), states=False)
    worker = workers(name)
    file = written(problem, worker.executor, tmp_path)
    answer = asked(worker, file, problem, [])
    truth = Outputs(answer["y"], problem.solved().hidden, tuple(answer["cell"]))  # h is not projected there
    assert excess(problem, truth) <= 1
    assert {state.shape for state in answer["hidden"]} == {(BATCH, 5)}


# Gradients


def slopes_of(name: str, problem: Problem, answer: dict[str, Any]) -> list[Mapping[Key, Array]]:
    """The weights' gradients in canonical form, direction by direction."""
    stack, weights = problem.stack, answer["gradients"]["weights"]
    family = FAMILIES[name]
    if family == "keras":
        back = []
        for arrays_of_layer in weights.values():
            sides = ["forward/", "backward/"] if any(key.startswith("forward/") for key in arrays_of_layer) else [""]
            for side in sides:
                arrays = {key[len(side) :]: array for key, array in arrays_of_layer.items() if key.startswith(side)}
                back.append(rnnconvert.unpack(arrays, "keras", stack.cell, go_backwards=False))
        return [dict(unpacked.first.arrays) for unpacked in back]  # type: ignore[arg-type]
    if family == "torch":
        layer = rnnconvert.unpack(weights[""], "pytorch", stack.cell)
    elif name == "mxnet-gluon":
        layer = rnnconvert.unpack(weights[""], "mxnet", stack.cell)
    else:
        word = stack.cell.kind if stack.cell.kind != "rnn" else f"rnn_{stack.cell.activation.name}"
        layer = rnnconvert.unpack(
            weights[""]["params"], "cudnn", word, input_size=stack.input_size, hidden_size=stack.hidden_size,
            num_layers=stack.num_layers, bidirectional=stack.num_directions == 2,
        )  # fmt: skip
    return [{key: np.asarray(source) for key, source in d.arrays.items()} for *_, d in layer.directions()]


def close(gradient: Array, truth: Array, eps: float) -> bool:
    """Return whether rounding explains a gradient's error: some units in the last place of the largest."""
    assert gradient.shape == truth.shape
    return float(np.abs(gradient - truth).max()) <= 16 * eps * max(1.0, float(np.abs(truth).max()))


DIFFERENTIABLE = [
    pytest.param(name, config, lengths, id=f"{name}-{label(config)}-{'lengths' if lengths else 'whole'}")
    for name in FAMILIES
    if FAMILIES[name] != "onnxruntime"
    for config in cases_of(name)
    for lengths in ([None] if FAMILIES[name] == "mxnet" else [None, (5, 1, 3)])
    if config["dtype"] in ("float32", "float64") and not config["form"].projection_size
]


@pytest.mark.drawn(10)
@pytest.mark.parametrize(("name", "config", "lengths"), DIFFERENTIABLE)
def test_gradients_are_the_references(name: str, config: dict[str, Any], lengths: Any, workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    problem = problem_of(config, lengths)
    assert problem.hidden is not None
    assert problem.cell is not None
    file = written(problem, worker.executor, tmp_path)
    cotangents, request = problem.cotangents(8)
    cells = problem.cell if config["cell"].kind == "lstm" else ()
    truth = reference.Reference(problem.stack).gradients(problem.x, problem.hidden, cells, problem.lengths, cotangents)
    answer = asked(worker, file, problem, [], how=how_of(name, config), cotangents=request)
    assert excess(problem, frameworks.outputs(answer)) <= 1
    eps = float(np.finfo(config["dtype"]).eps)
    slopes = answer["gradients"]
    assert close(slopes["x"], truth.x, eps)
    for found_states, states in ((slopes["hidden"], truth.hidden), (slopes["cell"], truth.cell)):
        assert len(found_states) == len(states)
        assert all(close(one_found, state, eps) for one_found, state in zip(found_states, states, strict=True))
    weights = slopes_of(name, problem, answer)
    assert len(weights) == len(truth.weights)
    for found_weights, arrays in zip(weights, truth.weights, strict=True):
        assert set(found_weights) == set(arrays)
        for key, array in arrays.items():
            assert close(found_weights[key], array, eps), key


# What the frameworks refuse


def test_onnxruntime_refuses_what_it_does_not_do(workers: Workers, tmp_path: Path) -> None:
    worker = workers("onnxruntime-cpu")
    problem = problem_of(case(LSTM, 1, 2))
    (tmp_path / "plain").mkdir()
    plain = written(dataclasses.replace(problem, hidden=None, cell=None), worker.executor, tmp_path / "plain")
    file = written(problem, worker.executor, tmp_path)
    y = {"y": problem.solved().y, "hidden": [], "cell": []}
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("computes no gradients", {"cotangents": y}),
        ("no input sequence_lens", {"lengths": np.array([5, 2, 3])}),
        ("states=input", {"file": plain}),
        ("no recurrent nodes 'other'; it has random", {"layers": ["other"]}),
        ("cannot be chosen", {"how": {"clip": "3"}}),
    ]
    for words, change in wanted:
        with pytest.raises(ExecutorError, match=words) as raised:
            asked(worker, change.pop("file", file), problem, change.pop("layers", []), **change)
        assert raised.value.refused


def test_onnxruntime_has_no_float64_kernels(workers: Workers, tmp_path: Path) -> None:
    worker = workers("onnxruntime-cpu")
    for cell in (RNN, GRU, LSTM):
        problem = problem_of(case(cell, 1, 1, dtype="float64"))
        file = written(problem, worker.executor, tmp_path, force=True)
        for layers in ([], [problem.stack.name]):
            with pytest.raises(ExecutorError) as raised:
                asked(worker, file, problem, layers)
            assert raised.value.refused, raised.value


@pytest.mark.parametrize("name", ["keras-torch", "keras-jax"])
def test_keras_has_float64_on_tensorflow_only(name: str, workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    problem = problem_of(case(LSTM, 1, 2, INPUT, "float64"))
    with pytest.raises(ExecutorError, match="in float32") as raised:
        asked(worker, written(problem, worker.executor, tmp_path), problem, [])
    assert raised.value.refused


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        ({"bias_mode": "single_inp"}, {}, "bias_mode single_inp"),
        ({"dtype": "float16"}, {}, "float16"),
        ({}, {"layers": ["other"]}, "0 buffers|1 buffers"),
        ({}, {"how": {"cell": "gru"}}, "cannot be chosen"),
    ],
)
@pytest.mark.parametrize("name", ["jax-cpu", "mxnet"])
def test_the_flat_buffer_has_what_its_frameworks_know(
    name: str, options: dict[str, str], changes: dict[str, Any], words: str, workers: Workers, tmp_path: Path
) -> None:
    worker = workers(name)
    problem = problem_of(case(LSTM, 1, 1, INPUT))
    file = written(problem, worker.executor, tmp_path, **options)
    with pytest.raises(ExecutorError, match=words) as raised:
        asked(worker, file, problem, changes.get("layers", []), how=changes.get("how", {}))
    assert raised.value.refused


@pytest.mark.parametrize("name", ["jax-cpu", "mxnet"])
def test_a_buffer_in_a_safetensors_runs_too(name: str, workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    problem = problem_of(case(LSTM, 2, 2))
    other = stack_of(case(LSTM, 1, 2), 9).replace(name="other")
    path = tmp_path / "two.safetensors"
    layers = {"other": other, problem.stack.name: problem.stack}
    rnnconvert.save(Checkpoint("", "canonical", layers), path, "cudnn")
    answer = asked(worker, str(path), problem, [problem.stack.name])
    assert excess(problem, frameworks.outputs(answer)) <= 1
    with pytest.raises(ExecutorError, match="2 buffers"):
        asked(worker, str(path), problem, [])


def test_mxnet_is_not_asked_for_what_it_ignores(workers: Workers, tmp_path: Path) -> None:
    worker = workers("mxnet")
    problem = problem_of(case(LSTM))
    file = written(problem, worker.executor, tmp_path)
    sidecar = Path(file + ".json")
    description = json.loads(sidecar.read_text())
    description["layers"][0]["clip"] = [-1.0, 1.0]
    sidecar.write_text(json.dumps(description))
    with pytest.raises(ExecutorError, match="MXNet ignores it"):
        asked(worker, file, problem, [])
    problem = problem_of(case(RNN.replace(activation=RELU), dtype="float64"))
    file = written(problem, worker.executor, tmp_path, force=True)
    with pytest.raises(ExecutorError, match="passes through float32"):
        asked(worker, file, problem, [])


# Models that others made


def user_graph(layout: int = 0) -> tuple[onnx.ModelProto, Problem]:
    """A model as exporters write them: weights put together by nodes, states made from the input's shape, no names."""
    problem = problem_of(case(LSTM), states=False)
    arrays = frameworks.packed(_layout("onnx", LSTM), problem.stack)
    constants = {
        "w": arrays["W"].swapaxes(1, 2), "r": arrays["R"], "b0": arrays["B"][:, :20], "b1": arrays["B"][:, 20:],
        "zero": np.array([0], np.int64), "one": np.array([1], np.int64), "five": np.array([5], np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Transpose", ["w"], ["W"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["b0", "b1"], ["B"], axis=1),
        helper.make_node("Transpose", ["input"], ["X"], perm=[1, 0, 2]),
        helper.make_node("Shape", ["X"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["batch"]),
        helper.make_node("Concat", ["one", "batch", "five"], ["state_shape"], axis=0),
        helper.make_node("ConstantOfShape", ["state_shape"], ["state"]),
        helper.make_node("LSTM", ["X", "W", "r", "B", "", "state", "state"], ["Y", "Y_h", "Y_c"], hidden_size=5, layout=layout),
        helper.make_node("Relu", ["Y"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes, "exported",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", "time", 3])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), problem


def _layout(framework: str, cell: Cell) -> Any:
    from rnnconvert.language import registry

    return registry.layout(framework, cell.kind, cell.reset_after)


def test_a_node_of_any_graph_runs_by_name(workers: Workers, tmp_path: Path) -> None:
    model, problem = user_graph()
    path = tmp_path / "user.onnx"
    onnx.save(model, path)
    assert list(rnnconvert.load(path).layers) == ["Y"]
    answer = asked(workers("onnxruntime-cpu"), str(path), problem, ["Y"])
    assert excess(problem, frameworks.outputs(answer)) <= 1
    assert answer["notes"] == {"providers": {"Y": "CPUExecutionProvider"}}
    with_states = problem_of(case(LSTM))
    answer = asked(workers("onnxruntime-cpu"), str(path), with_states, ["Y"])
    assert excess(with_states, frameworks.outputs(answer)) <= 1
    with pytest.raises(ExecutorError, match="Name its nodes"):
        asked(workers("onnxruntime-cpu"), str(path), problem, [])


def test_what_onnxruntime_says_of_a_layout_is_passed_on(workers: Workers, tmp_path: Path) -> None:
    model, problem = user_graph(layout=1)
    model.graph.node[-2].input[5] = model.graph.node[-2].input[6] = ""
    path = tmp_path / "user.onnx"
    onnx.save(model, path)
    with pytest.raises(ExecutorError, match=r"onnxruntime: .*layout") as raised:
        asked(workers("onnxruntime-cpu"), str(path), problem, ["Y"])
    assert raised.value.refused


def test_weights_given_at_run_time_are_refused(workers: Workers, tmp_path: Path) -> None:
    model, problem = user_graph()
    (weight,) = (tensor for tensor in model.graph.initializer if tensor.name == "w")
    model.graph.initializer.remove(weight)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 3, 20]))
    path = tmp_path / "user.onnx"
    onnx.save(model, path)
    with pytest.raises(ExecutorError, match="its W is computed from 'w'") as raised:
        asked(workers("onnxruntime-cpu"), str(path), problem, ["Y"])
    assert raised.value.refused


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", ["keras-tensorflow", "keras-torch", "keras-jax"])
def test_layers_of_a_users_model_run_by_name(name: str, workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    import keras

    layers = keras.layers
    inner = keras.Sequential(
        [layers.Input((None, 10)), layers.RNN([layers.LSTMCell(4), layers.LSTMCell(5)], name="deep"), layers.Dense(2, name="dense")],
        name="inside",
    )
    source = keras.Input((None, 3))
    deep = layers.Bidirectional(layers.LSTM(5, return_sequences=True, stateful=False), name="first")
    model = keras.Model(source, inner(deep(source)))
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(rng.uniform(-0.6, 0.6, weight.shape))
    path = tmp_path / "user.keras"
    model.save(path)
    stacks = rnnconvert.load(path).layers
    x = rng.uniform(-1, 1, (STEPS, BATCH, 3)).astype(np.float32)
    lengths = np.array([5, 2, 3])
    hidden = tuple(rng.uniform(-1, 1, (BATCH, 5)).astype(np.float32) for _ in range(2))
    first = Problem(stacks["first"], x, hidden, hidden[::-1], lengths)
    answer = asked(worker, str(path), first, ["first"])
    assert excess(first, frameworks.outputs(answer)) <= 1
    # Cells stacked in one layer: their states lie one behind the other.
    wide = rng.uniform(-1, 1, (STEPS, BATCH, 10)).astype(np.float32)
    states = tuple(rng.uniform(-1, 1, (BATCH, width)).astype(np.float32) for width in (4, 5))
    second = Problem(stacks["deep"], wide, states, tuple(reversed(states[::-1])), None)
    for spelling in ("deep", "inside/deep", "layers/sequential/layers/rnn"):
        answer = asked(worker, str(path), second, [spelling])
        assert excess(second, frameworks.outputs(answer)) <= 1
    chained = asked(worker, str(path), dataclasses.replace(first, hidden=None, cell=None), ["first", "deep"])
    below = reference.run(stacks["first"], x, lengths=lengths)
    above = Problem(stacks["deep"], below.y.astype(np.float32), lengths=lengths)
    finals = Outputs(chained["y"], tuple(chained["hidden"][2:]), tuple(chained["cell"][2:]))
    assert excess(above, finals) <= 2  # two layers' noise, and the floor of one
    for layer, words in (([], "name them"), (["dense"], "no recurrent layers 'dense'; it has first, deep")):
        with pytest.raises(ExecutorError, match=words) as raised:
            asked(worker, str(path), first, layer)
        assert raised.value.refused
    weights = tmp_path / "user.weights.h5"
    model.save_weights(weights)
    with pytest.raises(ExecutorError, match="holds weights without a model") as raised:
        asked(worker, str(weights), first, ["first"])
    assert raised.value.refused


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@looped(8, kind=["GRU", "LSTM", "SimpleRNN"], unroll=[True, False], way=["both", "backward", "forward"])
def test_a_mask_leaves_out_the_same_steps_of_unrolled_layers(kind: str, unroll: bool, way: str, workers: Workers, tmp_path: Path) -> None:
    worker = workers("keras-tensorflow")
    import keras

    layer = getattr(keras.layers, kind)(4, return_sequences=True, unroll=unroll, go_backwards=way == "backward", name="way")
    model = keras.Sequential([keras.Input((STEPS, 3)), keras.layers.Bidirectional(layer, name="way") if way == "both" else layer])
    rng = np.random.default_rng(1)
    model.set_weights([rng.uniform(-0.6, 0.6, weight.shape) for weight in model.get_weights()])
    model.save(path := tmp_path / "unrolled.keras")
    (stack,) = rnnconvert.load(path).layers.values()
    problem = Problem(stack, rng.uniform(-1, 1, (STEPS, BATCH, 3)).astype(np.float32), lengths=np.array([5, 2, 3]))
    answer = asked(worker, str(path), problem, ["way"])
    assert excess(problem, frameworks.outputs(answer)) <= 1


@pytest.mark.parametrize("name", ["keras-tensorflow", "keras-torch", "keras-jax"])
@pytest.mark.parametrize(("suffix", "options"), [(".h5", {}), (".keras", {"return_state": "true"})])
def test_other_files_of_ours_run_in_keras(name: str, suffix: str, options: dict[str, Any], workers: Workers, tmp_path: Path) -> None:
    problem = problem_of(case(LSTM, 2, 2, INPUT, merge="none"), (5, 1, 3))
    path = tmp_path / f"model{suffix}"
    rnnconvert.save(Checkpoint("", "canonical", {"random": problem.stack}), path, "keras", **options)
    answer = asked(workers(name), str(path), problem, [])
    assert excess(problem, frameworks.outputs(answer)) <= 1


def uneven(kind: str) -> Problem:
    """One layer whose directions have different widths."""
    wide, narrow = (random_stack(Sizes(kind, 3, size, parts=BOTH), size, np.float32) for size in (5, 2))
    layer = Layer((wide.first, narrow.first.replace(reverse=True)))
    x = np.random.default_rng(6).uniform(-1, 1, (STEPS, BATCH, 3)).astype(np.float32)
    states = tuple(np.full((BATCH, size), 0.1 * size, np.float32) for size in (5, 2))
    return Problem(Recurrent("uneven", (layer,)), x, states, tuple(-state for state in states))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_directions_that_differ_run_in_onnxruntime(kind: str, workers: Workers, tmp_path: Path) -> None:
    worker = workers("onnxruntime-cpu")
    problem = uneven(kind)
    file = written(problem, worker.executor, tmp_path)
    answer = asked(worker, file, problem, [])
    assert excess(problem, frameworks.outputs(answer)) <= 1
    with pytest.raises(ExecutorError, match="has 2 hidden states, but 1 were given"):
        asked(worker, file, problem, [], hidden=[problem.x[0]])


@pytest.mark.parametrize("name", ["keras-tensorflow", "keras-torch", "keras-jax"])
def test_directions_that_differ_run_in_keras(name: str, workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    problem = uneven("gru")
    file = written(problem, worker.executor, tmp_path)
    answer = asked(worker, file, problem, [])
    assert excess(problem, frameworks.outputs(answer)) <= 1


def test_a_damaged_model_is_refused_or_fails(workers: Workers, tmp_path: Path) -> None:
    worker = workers("keras-tensorflow")
    path = tmp_path / "model.h5"
    problem = problem_of(case(LSTM, 1, 1, INPUT))
    rnnconvert.save(Checkpoint("", "canonical", {"random": problem.stack}), path, "keras")
    with h5py.File(path, "r+") as file:
        del file.attrs["model_config"]
    with pytest.raises(ExecutorError, match="cannot load it as a model") as raised:
        asked(worker, str(path), problem, [])
    assert raised.value.refused


def test_a_wrong_convention_is_seen(workers: Workers, tmp_path: Path) -> None:
    problem = problem_of(case(LSTM, 2, 2))
    worker = workers("torch-cpu")
    wrong = dataclasses.replace(problem, stack=stack_of(case(LSTM, 2, 2), 6))
    answer = asked(worker, written(wrong, worker.executor, tmp_path), problem, [])
    assert excess(problem, frameworks.outputs(answer)) > WRONG


def test_packages_are_named_as_pip_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "missing", lambda needs: "it is not installed")
    asked_of = {name: executor.missing_packages for name, executor in registry.built_in().items()}
    assert asked_of["paddle"] == ["paddlepaddle"] and asked_of["haiku-cpu"] == ["jax", "dm-haiku"]
    assert not {"paddle", "haiku", "ai_edge_litert", "tf_keras"} & {package for packages in asked_of.values() for package in packages}


# Processes, and executors of the user's own

SCRIPT = """
import contextlib
import os
import sys
import time

import numpy as np

NEEDS = ()
FORMAT = "pytorch"
SUFFIX = ".safetensors"
VARIANTS = {"own": {"device": "cpu", "environment": {"OWN": "said"}}}


def absent(variant):
    return os.environ.get("OWN_ABSENT", "")


def answer(request):
    word = request["how"]["do"]
    print("printed to standard output, where the answers go")
    if word == "die":
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
    if word == "refuse":
        raise NotImplementedError("not of this kind")
    if word == "fail":
        raise ZeroDivisionError("by nothing")
    if word == "give texts":
        return {"y": np.array(["a", "b"], dtype=object)}
    if word == "give bytes":
        return {"y": b"a"}
    if word == "write nonsense":
        for descriptor in range(3, 20):
            with contextlib.suppress(OSError):
                os.write(descriptor, {nonsense})
        time.sleep(60)
    return {"y": request["x"] * 2, "hidden": None, "cell": [], "notes": {"environment": os.environ["OWN"]}}
"""


@pytest.fixture
def own_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executor in a file of the user's own, and an empty list of those added."""
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "settings" / "executors.json"))
    path = tmp_path / "own.py"
    path.write_text(SCRIPT.replace("{nonsense}", "(5).to_bytes(8, 'little') + b'12345'"))
    return path


def asked_to(word: str, worker: Process) -> dict[str, Any]:
    return worker.ask(file="", layers=[], how={"do": word}, x=np.ones((2, 1, 1)))


def test_a_process_that_refuses_or_fails_goes_on(own_executor: Path) -> None:
    with running(Executor("mine", str(own_executor), "own")) as worker:
        with pytest.raises(ExecutorError, match="mine does not support this: not of this kind") as raised:
            asked_to("refuse", worker)
        assert raised.value.refused
        with pytest.raises(ExecutorError, match="mine failed: ZeroDivisionError: by nothing") as raised:
            asked_to("fail", worker)
        assert not raised.value.refused
        assert 'raise ZeroDivisionError("by nothing")' in raised.value.trace
        answer = asked_to("answer", worker)
        np.testing.assert_array_equal(answer["y"], np.full((2, 1, 1), 2.0))
        assert answer["notes"] == {"environment": "said"}
        assert answer["hidden"] is None


def test_a_process_that_dies_leaves_its_last_words_and_begins_anew(own_executor: Path) -> None:
    with running(Executor("mine", str(own_executor), "own")) as worker:
        with pytest.raises(ExecutorError, match="its process ended with 3") as raised:
            asked_to("die", worker)
        assert "last words" in raised.value.trace
        assert not raised.value.refused
        # What one request does to it is not the next one's fault.
        np.testing.assert_array_equal(asked_to("answer", worker)["y"], np.full((2, 1, 1), 2.0))
        with pytest.raises(ExecutorError, match="its process ended with 3"):
            asked_to("die", worker)
        worker.kill()
        with pytest.raises(ExecutorError, match="its process ended with 3"):
            asked_to("answer", worker)


def test_an_answer_without_numbers_is_refused_and_one_that_cannot_be_read_ends_its_process(own_executor: Path) -> None:
    with running(Executor("mine", str(own_executor), "own")) as worker:
        for word, reason in (("give texts", "y holds no numbers"), ("give bytes", "y is a bytes")):
            with pytest.raises(ExecutorError, match=reason) as raised:
                asked_to(word, worker)
            assert raised.value.refused
        before = time.monotonic()
        with pytest.raises(ExecutorError, match="its answer cannot be read") as raised:
            asked_to("write nonsense", worker)
        assert not raised.value.refused and time.monotonic() - before < 30
        np.testing.assert_array_equal(asked_to("answer", worker)["y"], np.full((2, 1, 1), 2.0))


def test_an_executor_of_the_users_own_is_added_and_forgotten(own_executor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.add("mine", sys.executable, module=str(own_executor))
    added = registry.executor("mine")
    assert (added.format, added.suffix, added.device, added.variant) == ("pytorch", ".safetensors", "cpu", "own")
    with running(added) as worker:
        assert asked_to("answer", worker)["cell"] == []
    monkeypatch.setenv("OWN_ABSENT", "it is Sunday")
    registry.built_in.cache_clear()
    with pytest.raises(MissingPackageError, match="it is Sunday"):
        registry.executor("mine")
    with pytest.raises(UsageError, match=r"cannot run under .*: it is Sunday"):
        registry.add("other", sys.executable, module=str(own_executor))
    registry.remove("mine")
    assert "mine" not in registry.executors()
    with pytest.raises(UsageError, match=r"no executor 'mine' was added\. Those added: none"):
        registry.remove("mine")


def test_an_executor_that_runs_wherever_its_packages_are_need_not_say_so(own_executor: Path) -> None:
    own_executor.write_text(SCRIPT.replace("def absent(variant)", "def unasked(variant)"))
    assert registry.add("mine", sys.executable, module=str(own_executor)).absent == ""


def test_an_executor_under_another_python_is_added(own_executor: Path, tmp_path: Path) -> None:
    need("mxnet", environments.missing("mxnet"))
    python = str(environments.place("mxnet") / "bin" / "python")
    registry.add("old", python, like="mxnet-native")
    registry.add("mxnet", python)
    with pytest.raises(UsageError, match="Unknown built-in executor 'older'"):
        registry.add("older", python)
    executor = registry.executor("old")
    assert executor.about["versions"]["mxnet"]
    assert registry.executor("mxnet").python == python
    problem = problem_of(case(GRU, 2, 2))
    with running(executor) as worker:
        answer = asked(worker, written(problem, executor, tmp_path), problem, [])
    assert excess(problem, frameworks.outputs(answer)) <= 1
    registry.remove("mxnet")
    registry.remove("old")


def test_an_interpreter_that_cannot_run_it_is_not_added(own_executor: Path) -> None:
    with pytest.raises(UsageError, match="no_such_python does not run it"):
        registry.add("mine", "no_such_python", module=str(own_executor))
    assert not registry.listing().exists()


@pytest.mark.parametrize(
    "name",
    ["rnnconvert/running/child", "rnnconvert/running/sequences", "formats/cudnn/run_mxnet", "formats/mxnet/run", "formats/tensorflow1/run"],
)
def test_old_pythons_can_read_it(name: str) -> None:
    path = ROOT / f"{name}.py"
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_a_backend_has_its_version(workers: Workers) -> None:
    for name in ("tensorflow", "torch", "jax"):
        assert set(workers(f"keras-{name}").executor.about["versions"]) == {"keras", name}


def test_every_executor_says_why_it_is_absent_and_imports_no_framework() -> None:
    for executor in registry.built_in().values():
        assert set(executor.about) == {"absent", "versions", "device", "python"}
        assert executor.device in ("cpu", "cuda")
        if executor.device == "cuda" and not executor.about["device"]:
            assert executor.absent
    with pytest.raises(UsageError, match=r"Unknown executor 'torch'\. Did you mean 'torch-cpu'"):
        registry.executor("torch")


def test_what_a_variant_leaves_out_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, Any] = {"json": json}
    monkeypatch.setattr(sys, "modules", modules)
    child.leave_out({"without": ["jax", "json"]})
    monkeypatch.undo()
    assert modules == {"matplotlib": None, "jax": None, "json": json}  # what is imported already stays
