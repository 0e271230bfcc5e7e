"""oneDNN's primitives run their own weights; Arraymancer's own test vectors are met."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import npz_file
from rnnconvert.core.cells import RELU, SIGMOID, TANH
from rnnconvert.core.errors import ExecutorError, RefusedError
from rnnconvert.core.reference import Outputs, run
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.onednn import run as module
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import SUM_BIASES, each
from rnnconvert.running.parent import Process
from rnnconvert.running.registry import built_in
from tests.helpers.frameworks import outputs
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, PLAIN, random_stack, random_states
from tests.helpers.workers import running

LAYOUTS = {layout.name: layout for layout in registry.frameworks()["onednn"]}


@pytest.fixture(scope="module")
def onednn() -> Iterator[Process]:
    library = built_in()["onednn"]
    need("onednn", library.absent)
    with running(library) as worker:
        yield worker


def held(layout: Layout, stack: Recurrent) -> Recurrent:
    """The stack with one bias for each gate but the candidate of an lbr_gru."""
    if not layout.reset_after:
        return stack
    return each(stack, lambda direction: SUM_BIASES.apply(direction, ["r", "z"]))


def problems(layout: Layout) -> Iterator[Problem]:
    """Random weights, inputs and states of every form that a layout has a place for."""
    biases = BOTH if layout.reset_after else PLAIN | {"input_bias"}
    cells = [layout.cell.replace(activation=function) for function in (TANH, RELU, SIGMOID)] if layout.kind == "rnn" else [layout.cell]
    extras = [frozenset(), {"peephole"}, {"projection"}, {"peephole", "projection"}]
    for cell, (width, hidden), directions, extra in itertools.product(cells, [(3, 5), (4, 4), (3, 1), (1, 3)], (1, 2), extras):
        if not extra <= layout.part_names or ("projection" in extra and hidden < 3):
            continue
        form = Sizes(layout.kind, width, hidden, 1, directions, 2 if "projection" in extra else 0, frozenset(biases | extra))
        stack = held(layout, random_stack(form, 3, np.float32, cell))
        x = np.random.default_rng(4).uniform(-1, 1, (5, 3, width)).astype(np.float32)
        states = random_states(form, 3, 5, np.float32)
        yield Problem(stack, x, states[0], states[1] if layout.kind == "lstm" else None)


def solved(worker: Process, layout: Layout, problem: Problem, folder: Path) -> Outputs:
    npz_file.write(folder / "a.npz", pack(layout, problem.stack))
    how = {"nonlinearity": problem.stack.cell.activation.name} if layout.kind == "rnn" else {}
    answer = worker.ask(
        file=str(folder / "a.npz"), layers=[], how=how, x=problem.x, hidden=list(problem.hidden or ()),
        cell=list(problem.cell or ()),
    )  # fmt: skip
    return outputs(answer)


@pytest.mark.parametrize("name", LAYOUTS)
def test_onednn_meets_the_reference(name: str, onednn: Process, tmp_path: Path) -> None:
    for problem in problems(LAYOUTS[name]):
        assert excess(problem, solved(onednn, LAYOUTS[name], problem, tmp_path)) <= 1, problem.stack


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.kind != "rnn"])
def test_a_wrong_gate_order_is_caught(name: str, onednn: Process, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    problem = next(problems(layout))
    gates = layout.gates.split()
    for gate, other in itertools.combinations(range(len(gates)), 2):
        wrong = list(gates)
        wrong[gate], wrong[other] = gates[other], gates[gate]
        mistaken = dataclasses.replace(layout, gates=" ".join(wrong))
        assert excess(problem, solved(onednn, mistaken, problem, tmp_path)) > WRONG, wrong


def test_the_other_reset_and_the_other_sign_are_caught(onednn: Process, tmp_path: Path) -> None:
    before = next(problems(LAYOUTS["onednn.gru"]))
    after = dataclasses.replace(before, stack=each(before.stack, lambda d: d.replace(cell=d.cell.replace(reset_after=True))))
    solution = solved(onednn, LAYOUTS["onednn.gru"], before, tmp_path)
    assert excess(after, solution) > WRONG
    negated = dataclasses.replace(LAYOUTS["onednn.gru"], gates="-z r n")
    assert excess(before, solved(onednn, negated, before, tmp_path)) > WRONG


def test_a_layer_goes_to_onednn_and_is_proved_there(onednn: Process, tmp_path: Path) -> None:
    form = Sizes("lstm", 3, 4, 2, 2, 2, BOTH | {"projection"})
    arrays = {key: np.asarray(value) for key, value in rc.pack(random_stack(form, 1, np.float32), "pytorch").items()}
    source = tmp_path / "lstm.safetensors"
    rc.save(rc.load(_saved(source, arrays)), tmp_path / "lstm.npz", "onednn")
    again = rc.load(tmp_path / "lstm.npz")
    assert again.format == "onednn"
    report = rc.verify(source, tmp_path / "lstm.npz", plan=rc.Plan(on=["onednn"]))
    assert report.equal


def test_directions_that_are_summed_are_run_as_such(onednn: Process, tmp_path: Path) -> None:
    stack = random_stack(Sizes("gru", 3, 4, 1, 2), 1, np.float32)
    summed = stack.replace(layers=(dataclasses.replace(stack.layers[0], merge="sum"),))
    rc.save(Checkpoint("memory", "", {"": summed}), tmp_path / "gru.npz", "onednn")
    for merge in ("sum", "concat"):
        report = rc.verify(tmp_path / "gru.npz", plan=rc.Plan(on=["onednn"], settings=[f"merge_mode={merge}"]))
        assert report.equal, merge


def _saved(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    from rnnconvert.containers import safetensors

    safetensors.write(path, arrays)
    return path


def test_what_onednn_does_not_run_is_refused(onednn: Process, tmp_path: Path) -> None:
    problem = next(problems(LAYOUTS["onednn.gru"]))
    npz_file.write(tmp_path / "a.npz", pack(LAYOUTS["onednn.gru"], problem.stack))
    npz_file.write(tmp_path / "double.npz", pack(LAYOUTS["onednn.gru"], problem.stack, np.dtype("float64")))
    request: dict[str, Any] = {"layers": [], "how": {}, "x": problem.x}
    for file, more, message in (
        ("a.npz", {"lengths": np.array([5, 1, 3])}, "do not support them"),
        ("a.npz", {"layers": ["b"]}, "no layer 'b'"),
        ("double.npz", {}, "float64"),
    ):
        with pytest.raises(ExecutorError, match=message) as raised:
            onednn.ask(**{"file": str(tmp_path / file), **request, **more})
        assert raised.value.refused


def test_without_the_library_the_executor_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_path", lambda: "")
    assert "pip install onednn-cpu-gomp" in module.absent({}) and module.versions({}) == {}
    other = tmp_path / "libdnnl.so.3"
    other.write_bytes(b"no library")
    monkeypatch.setattr(module, "_path", lambda: str(other))
    assert "is not oneDNN" in module.absent({}) and module.versions({}) == {}


def test_two_directions_in_several_layers_are_two_stacks_in_onednn(tmp_path: Path) -> None:
    layout = LAYOUTS["onednn.lstm"]
    form = Sizes("lstm", 4, 2, 2, 2, 0, PLAIN | {"input_bias"})
    npz_file.write(tmp_path / "deep.npz", pack(layout, random_stack(form, 1, np.float32)))
    with pytest.raises(RefusedError, match="two stacks that meet only at the end"):
        rc.load(tmp_path / "deep.npz")


# The numbers of tests/nn_primitives/test_nnp_gru.nim, "GRU: Stacked, sequences, bidirectional".
_ROWS = np.array([[0.9, 0.8, 0.7, 0.6, 0.5]]) - np.arange(6)[:, None] / 10
_EVEN, _RISING = np.full(5, 0.1) * np.arange(1, 6), np.arange(5, 10) / 10
ARRAYMANCER = {
    "w3s0": _ROWS,
    "w3sN": (np.array([[0.5, 0.6]]) - np.arange(6)[:, None] / 10)[None],
    "u3s": np.array([[[-0.3, -0.1], [-0.2, 0.0]] * 3, [[-0.4, -0.5], [-0.4, 0.5]] * 3]),
    "bW3s": np.array([[[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]], [[0.2, 0.3, 0.4, 0.2, 0.3, 0.4]]]),
    "bU3s": np.array([[[-0.1, -0.2, -0.3, -0.4, -0.5, -0.6]], [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]]]),
}
ARRAYMANCER_X = np.array([
    [_EVEN, -_EVEN, _RISING], [-_EVEN, -_EVEN, _RISING], [_EVEN, -_EVEN, -_EVEN], [-_EVEN, -_EVEN, -_EVEN],
])  # fmt: skip
ARRAYMANCER_Y = [
    [[0.2564464804, 2.4324064858], [0.3212793315, 2.4821776260], [0.1983539289, 2.3849941275]],
    [[0.1323593874, 2.1939630024], [0.1591080583, 2.2447442148], [0.0683269257, 2.1121420346]],
    [[0.1233993158, 1.9977140846], [0.1320258443, 2.0434525564], [0.0904040251, 1.9111566097]],
    [[0.1355803839, 1.8195602154], [0.1369919053, 1.8612790359], [0.1230976350, 1.7381913793]],
]
ARRAYMANCER_LAST = [[0.0155439572, 0.1680427130], [-0.0038861287, 0.1854366532], [-0.0549487103, 0.1189245136]]


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_arraymancers_own_vectors_are_met(suffix: str, tmp_path: Path) -> None:
    from rnnconvert.containers import archives

    path = tmp_path / f"gru{suffix}"
    archives.write(path, ARRAYMANCER)
    checkpoint = rc.load(path)
    assert checkpoint.format == "arraymancer"
    states = (np.full((3, 2), -1.0), np.tile([2.0, 3.0], (3, 1)))
    result = run(checkpoint.layers[""], ARRAYMANCER_X, states)
    np.testing.assert_allclose(result.y, ARRAYMANCER_Y, rtol=1e-8)
    np.testing.assert_allclose(result.hidden[0], ARRAYMANCER_LAST, rtol=1e-7)
    wrong = dataclasses.replace(registry.layouts()["arraymancer.gru"], gates="z r n")
    arrays = {name: np.asarray(array) for name, array in pack(wrong, checkpoint.layers[""]).items()}
    other = run(rc.unpack(arrays, "arraymancer"), ARRAYMANCER_X, states)
    assert np.abs(other.y - result.y).max() > 1e-3


def test_a_gru_of_one_layer_has_an_empty_tensor_above_it(tmp_path: Path) -> None:
    bottom: dict[str, Any] = {name: array[:1] for name, array in ARRAYMANCER.items() if name not in ("w3s0", "w3sN")}
    np.savez(tmp_path / "gru.npz", w3s0=ARRAYMANCER["w3s0"], w3sN=np.zeros((0, 6, 2)), **bottom)
    assert rc.load(tmp_path / "gru.npz").layers[""].num_layers == 1


def persistent(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What its own kernels compute: h = relu(x + W h), W lying by columns (recurrent_ops.cu, genericForwardPropRecurrent)."""
    units = x.shape[2]
    matrix = weights.reshape((units, units), order="F")
    h, outputs = np.zeros(x.shape[1:]), []
    for step in x:
        h = np.maximum(step + h @ matrix.T, 0)
        outputs.append(h)
    return np.stack(outputs)


def test_persistent_kernels_read_their_input_unweighted(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    weights, x = random.normal(size=16) / 2, random.normal(size=(6, 3, 4))
    np.savez(tmp_path / "rnn.npz", weights=weights)
    options: dict[str, Any] = {"layout": "rnn", "cell": "rnn_relu", "hidden_size": 4}
    stack = rc.load(tmp_path / "rnn.npz", "persistent_rnn", **options).layers[""]
    np.testing.assert_allclose(run(stack, x).y, persistent(weights, x), rtol=1e-12)
    rc.save(rc.load(tmp_path / "rnn.npz", "persistent_rnn", **options), tmp_path / "rnn.onnx")
    onnx = rc.load(tmp_path / "rnn.onnx")
    (other,) = onnx.layers.values()
    np.testing.assert_allclose(run(other, x).y, persistent(weights, x), rtol=1e-12)
    rc.save(onnx, tmp_path / "again.npz", "persistent_rnn", layout="rnn")  # its identities and zeros are left out again
    with np.load(tmp_path / "again.npz") as again:
        np.testing.assert_array_equal(again["weights"], weights)


@pytest.mark.parametrize(("parts", "message"), [(PLAIN, "weights of the input"), (PLAIN | {"input_bias"}, "weights of the input")])
def test_persistent_kernels_refuse_what_they_have_not(parts: frozenset[str], message: str) -> None:
    stack = random_stack(Sizes("rnn", 4, 4, parts=parts), 1, np.float32)
    with pytest.raises(RefusedError, match=message):
        rc.pack(stack, "persistent_rnn", layout="rnn")
    identity = {("input", "n"): np.eye(4, dtype=np.float32)}
    plain = each(stack, lambda direction: direction.with_arrays(identity))
    if "input_bias" in parts:
        with pytest.raises(RefusedError, match="biases"):
            rc.pack(plain, "persistent_rnn", layout="rnn")
    else:
        assert rc.pack(plain, "persistent_rnn", layout="rnn")["weights"].shape == (16,)


def test_what_persistent_rnn_hands_to_cudnn_is_cudnns_buffer(tmp_path: Path) -> None:
    stack = random_stack(Sizes("gru", 3, 4, 2, 2, 0, BOTH), 2, np.float32)
    buffer = rc.pack(stack, "cudnn")
    np.testing.assert_array_equal(rc.pack(stack, "persistent_rnn")["weights"], buffer)
    np.savez(tmp_path / "gru.npz", weights=buffer)
    options: dict[str, Any] = {"cell": "gru", "hidden_size": 4, "num_layers": 2, "bidirectional": True}
    read = rc.load(tmp_path / "gru.npz", "persistent_rnn", **options).layers[""]
    assert (read.input_size, read.num_layers, read.num_directions) == (3, 2, 2)
    silent = rc.load(tmp_path / "gru.npz", "persistent_rnn")
    assert not silent.layers and "Give --set cell=" in silent.warnings[0]


def test_an_hdf5_file_of_onednns_arrays_is_not_taken_for_keras(tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", 3, 5, parts=PLAIN | {"input_bias"}), 1, np.float32)
    path = tmp_path / "a.h5"
    rc.save(rc.Checkpoint("(in memory)", "canonical", {"": stack}), path, "onednn")
    assert rc.load(path).format == "onednn"


def test_how_onednn_joins_directions_is_asked_for(tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", 3, 5, 1, 2, parts=PLAIN | {"input_bias"}), 1, np.float32)
    rc.save(rc.Checkpoint("(in memory)", "canonical", {"": stack}), path := tmp_path / "a.npz", "onednn")
    (question,) = rc.load(path).questions
    assert (question.option, question.assumed, question.choices) == ("merge_mode", "concat", ("concat", "sum"))
    checkpoint = rc.load(path, merge_mode="sum")
    assert checkpoint.layers[""].layers[0].merge == "sum" and not checkpoint.questions
    with pytest.raises(rc.UsageError, match=r"merge_mode cannot be 'mul' here\. Choose one of: concat, sum"):
        rc.load(path, merge_mode="mul")
