"""Cells of JAX's libraries, run by these on files: ours, and those that the libraries wrote."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core import reference
from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.errors import ExecutorError
from rnnconvert.files.adapter import adapter
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.formats.jax.run_cells import LIBRARIES
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.running import registry
from rnnconvert.running.parent import Process
from rnnconvert.verification.gradients import canonical
from tests import ROOT
from tests.helpers.frameworks import outputs
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need
from tests.helpers.stacks import PLAIN
from tests.helpers.workers import running
from tests.running.test_executors import asked, case, close, label, problem_of

EXAMPLES = ROOT / "examples"
Workers = Callable[[str], Process]
INPUT = PLAIN | {"input_bias"}
GRU, GRU_BEFORE, LSTM, RNN = Cell("gru", True), Cell("gru", False), Cell("lstm"), Cell("rnn")
RECTIFIED = RNN.replace(activation=RELU)

CELLS: dict[str, list[dict[str, Any]]] = {
    "flax": [
        case(LSTM, 2), case(LSTM, parts=PLAIN), case(GRU, 3), case(GRU, parts=INPUT), case(RNN, 2), case(RECTIFIED),
        case(LSTM, dtype="float64"), case(GRU, 2, dtype="float64"), case(RNN, dtype="float64"),
        case(LSTM, 2, dtype="bfloat16"), case(GRU, dtype="float16"),
    ],
    "nnx": [
        case(LSTM, 2), case(LSTM, parts=PLAIN), case(GRU, 3, parts=INPUT), case(RNN, 2), case(RECTIFIED),
        case(LSTM, dtype="float64"), case(GRU, 2, parts=INPUT, dtype="float64"), case(RNN, dtype="float64"),
        case(LSTM, 2, dtype="bfloat16"), case(GRU, parts=INPUT, dtype="float16"),
    ],
    "haiku": [
        case(LSTM, 2), case(LSTM, parts=PLAIN), case(LSTM.replace(constants={"f": 1.0})), case(GRU_BEFORE, 3),
        case(RECTIFIED, 2), case(RECTIFIED, parts=INPUT), case(LSTM, dtype="float64"),
        case(GRU_BEFORE, 2, dtype="float64"), case(RECTIFIED, dtype="float64"), case(LSTM, 2, dtype="bfloat16"),
        case(GRU_BEFORE, dtype="float16"),
    ],
    "equinox": [
        case(LSTM, 2), case(LSTM, parts=PLAIN), case(GRU, 3), case(GRU, parts=PLAIN), case(LSTM, dtype="float64"),
        case(GRU, 2, dtype="float64"), case(LSTM, 2, dtype="bfloat16"), case(GRU, dtype="float16"),
    ],
}  # fmt: skip
"""What each library has a cell for, once in every element type."""

LENGTHS = {"flax", "nnx"}
"""Libraries whose loop over the steps knows sequences of different lengths."""

over_cells = pytest.mark.parametrize(
    ("name", "config"), [pytest.param(name, config, id=f"{name}-{label(config)}") for name in CELLS for config in CELLS[name]]
)
over_libraries = pytest.mark.parametrize("name", CELLS)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """A process for each library, started when it is first asked for, of libraries that must be there."""

    def started(name: str) -> Process:
        executor = registry.built_in()[f"{name}-cpu"]
        need("flax" if name == "nnx" else name, executor.absent)
        return stack.enter_context(running(executor))

    with contextlib.ExitStack() as stack:
        yield functools.cache(started)


def written(problem: Problem, name: str, folder: Path, suffix: str = "") -> str:
    """A file of ours with a problem's stack."""
    path = folder / f"model{suffix or LIBRARIES[name].suffix}"
    rc.save(Checkpoint("", "canonical", {problem.stack.name: problem.stack}), path, name, force=True)
    return str(path)


def how_of(name: str, config: Mapping[str, Any]) -> dict[str, str]:
    """What a file does not say of a layer."""
    return {"nonlinearity": "relu"} if name in ("flax", "nnx") and config["cell"] == RECTIFIED else {}


@pytest.mark.drawn(7)
@over_cells
def test_a_file_of_ours_gives_what_the_reference_gives(name: str, config: dict[str, Any], workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    named = [suffix for suffix in adapter(name).SUFFIXES if suffix != ".eqx"]  # a row of arrays says no names
    for suffix, states in itertools.product(named, (True, False)):
        problem = problem_of(config, states=states)
        file = written(problem, name, tmp_path, suffix)
        for layers in ([], list(rc.load(file).layers)):
            answer = asked(worker, file, problem, layers, how=how_of(name, config))
            assert excess(problem, outputs(answer)) <= 1


@pytest.mark.parametrize("state", ["hidden", "cell"])
@over_libraries
def test_the_state_that_an_lstm_is_not_given_is_zero(name: str, state: str, workers: Workers, tmp_path: Path) -> None:
    problem = problem_of(next(config for config in CELLS[name] if config["cell"] == LSTM))
    zeros: dict[str, Any] = {part: tuple(map(np.zeros_like, getattr(problem, part))) for part in ("hidden", "cell") if part != state}
    answer = asked(workers(name), written(problem, name, tmp_path), problem, [], **dict.fromkeys(zeros))
    assert excess(dataclasses.replace(problem, **zeros), outputs(answer)) <= 1


@pytest.mark.drawn(4)
@over_cells
def test_lengths_and_gradients_are_the_references(name: str, config: dict[str, Any], workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    full, ragged = problem_of(config), problem_of(config, (5, 1, 3))
    file = written(full, name, tmp_path)
    if name not in LENGTHS:
        with pytest.raises(ExecutorError, match="sequences of different lengths") as raised:
            asked(worker, file, ragged, [], how=how_of(name, config))
        assert raised.value.refused
    part = fit_to_layout(full.stack, adapter(name).layouts(Options()))
    eps = 1e-2 if config["dtype"].endswith("float16") else float(np.finfo(config["dtype"]).eps)
    for problem in (full, ragged) if name in LENGTHS else (full,):
        cotangents, request = problem.cotangents(8)
        answer = asked(worker, file, problem, [], how=how_of(name, config), cotangents=request)
        assert excess(problem, outputs(answer)) <= 1
        cells = problem.cell or () if config["cell"].kind == "lstm" else ()
        truth = reference.Reference(part.stack).gradients(problem.x, problem.hidden or (), cells, problem.lengths, cotangents)
        slopes = answer["gradients"]
        states = zip((*slopes["hidden"], *slopes["cell"]), (*truth.hidden, *truth.cell), strict=True)
        assert all(close(gradient, true, eps) for gradient, true in ((slopes["x"], truth.x), *states))
        for gradient, true in zip(canonical(slopes["weights"], part), truth.weights, strict=True):
            assert gradient.keys() == {key for key in true if key in part.layout.keys}
            assert all(close(gradient[key], true[key], eps) for key in gradient)


@over_libraries
def test_a_sequence_of_length_zero_is_refused(name: str, workers: Workers, tmp_path: Path) -> None:
    problem = problem_of(case(LSTM), (5, 0, 3))
    with pytest.raises(ExecutorError, match="length") as raised:
        asked(workers(name), written(problem, name, tmp_path), problem, [])
    assert raised.value.refused


@over_libraries
def test_another_files_numbers_are_seen(name: str, workers: Workers, tmp_path: Path) -> None:
    problem, other = problem_of(case(LSTM)), problem_of(case(LSTM, parts=PLAIN))
    assert excess(problem, outputs(asked(workers(name), written(other, name, tmp_path), problem, []))) > WRONG


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("two", {"layers": []}, "2 cells in the file"),
    ("two", {"layers": ["other"]}, "no arrays under 'other'"),
    ("two", {"layers": ["a", "b"], "hidden": [np.zeros((3, 5))]}, "1 hidden states for 2 cells"),
    ("one", {"how": {"residual": "true"}}, "residual=true cannot be chosen"),
    ("one", {"how": {"nonlinearity": "relu"}}, "nonlinearity=relu cannot be chosen"),
    ("beside", {}, "is not a .*LSTM.*: other "),
    ("mixed", {}, "several element types: float32, float64"),
]


@pytest.mark.parametrize(("file", "change", "words"), REFUSED)
@over_libraries
def test_what_a_file_does_not_settle_is_refused(
    name: str, file: str, change: dict[str, Any], words: str, workers: Workers, tmp_path: Path
) -> None:
    problem = problem_of(case(LSTM))
    path = tmp_path / "model.npz"
    called = "{}/lstm" if name == "haiku" else "{}"
    names = ["a", "b"] if file == "two" else ["a"]
    rc.save(Checkpoint("", "canonical", {layer: problem.stack.replace(name=layer) for layer in names}), path, name)
    with np.load(path) as archive:
        arrays = dict(archive)
    if file != "two":
        # The only layer of a file may lie at its top.
        above = next(iter(rc.load(path).layers))
        first = next(iter(arrays))
        arrays[first] = arrays[first].astype(np.float64 if file == "mixed" else np.float32)
        if file == "beside":
            arrays[f"{above}/other" if above else "other"] = np.zeros(3, np.float32)
        change = {"layers": [above], **change}
    elif change["layers"] == ["a", "b"]:
        change = {**change, "layers": [called.format(layer) for layer in ("a", "b")]}
    np.savez(path, **arrays)
    request = {"layers": [], **change}
    with pytest.raises(ExecutorError, match=words) as raised:
        asked(workers(name), str(path), problem, **request)
    assert raised.value.refused, raised.value.problem


# Files that the libraries wrote


def linen_file(path: Path) -> dict[str, Any]:
    """A model of linen's with every cell that it has, and a dense layer: its file, and what the library gives by layer."""
    import jax
    from flax import linen as nn
    from flax import serialization

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> dict[str, Any]:
            cells = {"lstm": nn.OptimizedLSTMCell(5), "gru": nn.GRUCell(5), "mgu": nn.MGUCell(5), "rnn": nn.SimpleCell(5)}
            outputs = {name: nn.RNN(cell, time_major=True, name=f"run_{name}")(x) for name, cell in cells.items()}
            nn.Dense(2)(outputs["lstm"])
            return outputs

    x = np.random.default_rng(1).uniform(-1, 1, (5, 3, 3)).astype(np.float32)
    parameters = Model().init(jax.random.PRNGKey(0), x)
    path.write_bytes(serialization.to_bytes(parameters))
    arrays = {key: np.asarray(value) for key, value in Model().apply(parameters, x).items()}
    held = {"lstm": "OptimizedLSTMCell_0", "gru": "GRUCell_0", "mgu": "MGUCell_0", "rnn": "SimpleCell_0"}
    return {"x": x, **{f"params/{held[key]}": value for key, value in arrays.items()}}


def nnx_file(path: Path) -> dict[str, Any]:
    """The same of nnx."""
    from flax import nnx, serialization

    class Model(nnx.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self, rngs: Any) -> None:
            self.lstm, self.gru = nnx.LSTMCell(3, 5, rngs=rngs), nnx.GRUCell(3, 5, rngs=rngs)
            self.fast, self.rnn = nnx.OptimizedLSTMCell(3, 5, rngs=rngs), nnx.SimpleCell(3, 5, rngs=rngs)
            self.dense = nnx.Linear(5, 2, rngs=rngs)

    x = np.random.default_rng(1).uniform(-1, 1, (5, 3, 3)).astype(np.float32)
    model = Model(nnx.Rngs(0))
    path.write_bytes(serialization.to_bytes(nnx.to_pure_dict(nnx.state(model, nnx.Param))))
    names = ("lstm", "gru", "fast", "rnn")
    return {"x": x, **{name: np.asarray(nnx.RNN(getattr(model, name), time_major=True)(x)) for name in names}}


def haiku_file(path: Path) -> dict[str, Any]:
    """The same of Haiku: parameters by path, as numpy saves them."""
    import haiku as hk
    import jax

    def model(x: Any) -> dict[str, Any]:
        cores = {"lstm": hk.LSTM(5), "gru": hk.GRU(5), "vanilla_rnn": hk.VanillaRNN(5)}
        outputs = {name: hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))[0] for name, core in cores.items()}
        hk.Linear(2)(outputs["lstm"])
        return outputs

    x = np.random.default_rng(1).uniform(-1, 1, (5, 3, 3)).astype(np.float32)
    transformed = hk.without_apply_rng(hk.transform(model))
    parameters = transformed.init(jax.random.PRNGKey(0), x)
    flat: dict[str, Any] = {
        f"{module}/{name}": np.asarray(array) for module, arrays in parameters.items() for name, array in arrays.items()
    }
    np.savez(path, **flat)
    return {"x": x, **{name: np.asarray(y) for name, y in transformed.apply(parameters, x).items()}}


def equinox_file(path: Path) -> dict[str, Any]:
    """The same of Equinox."""
    import equinox as eqx
    import jax

    key = jax.random.PRNGKey(0)
    cells = {"lstm": eqx.nn.LSTMCell(3, 5, key=key), "gru": eqx.nn.GRUCell(3, 5, key=key)}
    x = np.random.default_rng(1).uniform(-1, 1, (5, 3, 3)).astype(np.float32)
    answers: dict[str, Any] = {"x": x}
    for name, cell in cells.items():
        state: Any = np.zeros((3, 5), np.float32)
        state = (state, state) if name == "lstm" else state
        outputs = []
        for x_t in x:
            state = jax.vmap(cell)(x_t, state)
            outputs.append(np.asarray(state[0] if name == "lstm" else state))
        answers[name] = np.stack(outputs)
    fields = ("weight_ih", "weight_hh", "bias", "bias_n")
    held: dict[str, Any] = {f"{name}/{field}": getattr(cell, field, None) for name, cell in cells.items() for field in fields}
    np.savez(path, **{place: array for place, array in held.items() if array is not None})
    return answers


FILES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "flax": linen_file, "nnx": nnx_file, "haiku": haiku_file, "equinox": equinox_file,
}  # fmt: skip


@pytest.mark.drawn(1)
@over_libraries
def test_a_file_of_the_librarys_own_runs_by_layer(name: str, workers: Workers, tmp_path: Path) -> None:
    worker = workers(name)
    path = tmp_path / f"model{worker.executor.suffix}"
    arrays = FILES[name](path)
    x = arrays.pop("x")
    assert set(rc.load(path).layers) == set(arrays)
    for layer, y in arrays.items():
        stack = rc.load(path).layers[layer]
        answer = asked(worker, str(path), Problem(stack, x), [layer])
        np.testing.assert_allclose(answer["y"], y, rtol=0, atol=1e-6)
        assert excess(Problem(stack, x), outputs(answer)) <= 1


# As users call it


def called(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.output


@pytest.mark.drawn(1)
@over_libraries
def test_a_conversion_is_proved(name: str, workers: Workers, tmp_path: Path) -> None:
    workers(name)
    source, target = EXAMPLES / "encoder.keras", tmp_path / f"out{LIBRARIES[name].suffix}"
    code, text = called("convert", source, target, "--to", name, "--layer", "summary", "--verify")
    assert code == 0
    assert f"{name}-cpu" in text
    assert target.exists()
    report = rc.verify(target, on=[f"{name}-cpu"], cases=["states"], gradients=True)
    assert report.equal
    assert "gradient of input weights" in {comparison["output"] for comparison in report.document["layers"][0]["runs"][-1]["comparisons"]}


@pytest.mark.drawn(1)
@over_libraries
def test_a_planted_mistake_is_found(name: str, workers: Workers, tmp_path: Path) -> None:
    """Two gates taken for each other in the file, and Haiku's one left out."""
    workers(name)
    problem = problem_of(case(LSTM))
    right, wrong = tmp_path / "right.onnx", tmp_path / "wrong.npz"
    rc.save(Checkpoint("", "canonical", {"random": problem.stack}), right, "onnx")
    rc.save(Checkpoint("", "canonical", {"random": problem.stack}), wrong, name)
    assert called("verify", right, wrong)[0] == 0
    with np.load(wrong) as archive:
        arrays = dict(archive)
    np.savez(wrong, **mistaken(name, arrays))
    code, text = called("verify", right, wrong)
    assert code == 1
    assert re.search(rf"B on {name}-cpu +not equal", text), text
    assert name != "haiku" or "gate f has one forget_bias too many" in text


def mistaken(name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """A file's arrays with one mistake in them."""
    if name == "haiku":
        (key,) = (key for key in arrays if key.endswith("linear/b"))
        size = len(arrays[key]) // 4
        return {**arrays, key: arrays[key] + np.repeat([0, 0, 1, 0], size).astype(np.float32)}
    if name == "equinox":
        return {key: np.roll(array, len(array) // 4, 0) for key, array in arrays.items()}
    swapped = {"ii/kernel": "ig/kernel", "ig/kernel": "ii/kernel"}
    return {swapped.get(key, key): array for key, array in arrays.items()}
