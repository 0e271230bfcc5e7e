"""Chainer 7.8.1 and Paddle 3.3.1 run files packed from random canonical layers by their own classes, and meet the reference."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.containers import archives
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import ExecutorError
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import BIAS_PARTS
from rnnconvert.formats.paddle import paddle_params
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import pack
from rnnconvert.running.parent import Process
from tests.helpers.frameworks import judge, outputs
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.stacks import BOTH, PLAIN, mistaken, with_functions
from tests.helpers.workers import running

RUN = {
    layout.name: layout
    for name in ("chainer", "paddle")
    for layout in registry.frameworks()[name]
    if layout.name not in ("chainer.peephole_lstm", "chainer.function_lstm")
}
SIZES = [(3, 5), (4, 4), (3, 1), (1, 1)]
STEPS, BATCH = 5, 3
MODES = {"none": (), "input": BIAS_PARTS[:1], "recurrent": BIAS_PARTS[1:], "both": BIAS_PARTS}


@pytest.fixture(scope="module")
def chainer() -> Iterator[Process]:
    with running(judge("chainer")) as worker:
        yield worker


@pytest.fixture(scope="module")
def paddle() -> Iterator[Process]:
    with running(judge("paddle")) as worker:
        yield worker


@pytest.fixture
def worker(name: str, request: pytest.FixtureRequest) -> Process:
    process: Process = request.getfixturevalue(name.partition(".")[0])
    return process


def problem_of(form: Sizes, cell: Cell, dtype: str = "float32", seed: int = 3) -> Problem:
    """Random weights, input and initial states."""
    return Problem.random(form, cell, dtype, seed)


def put(path: Path, arrays: Mapping[str, Array | PiecewiseArray]) -> str:
    """A file that has these arrays alone."""
    (paddle_params.write if path.suffix == ".pdparams" else archives.write)(path, arrays)
    return str(path)


def asked(worker: Process, layout: Layout, problem: Problem, folder: Path, suffix: str = "", **more: Any) -> dict[str, Any]:
    """What the framework makes of a file with these arrays."""
    ending = suffix or worker.executor.suffix
    how = {"nonlinearity": problem.stack.cell.activation.name} if layout.kind == "rnn" else {}
    if layout.name.startswith("chainer.n_step") and problem.stack.num_directions == 2:
        how["bidirectional"] = "true"
    return worker.ask(
        file=put(folder / f"a{ending}", pack(layout, problem.stack)), how=how, layers=[], x=problem.x,
        hidden=list(problem.hidden or ()), cell=list(problem.cell or ()), **more,
    )  # fmt: skip


def solved(worker: Process, layout: Layout, problem: Problem, folder: Path, **more: Any) -> Outputs:
    return outputs(asked(worker, layout, problem, folder, **more))


def forms(layout: Layout) -> Iterator[Sizes]:
    """Sizes, biases, layers and directions that a layout has a place for."""
    stacks = [(1, 1), (2, 1), (1, 2), (2, 2)] if layout.holds.layers else [(1, 1)]
    for (width, hidden), (layers, directions) in itertools.product(SIZES, stacks):
        for mode in layout.holds.biases:
            yield Sizes(layout.kind, width, hidden, layers, directions, parts=PLAIN | set(MODES[mode]))
        if "projection" in layout.part_names and hidden > 1:
            yield Sizes(layout.kind, width, hidden, layers, directions, 2, BOTH | {"projection"})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", RUN)
def test_the_framework_meets_the_reference(name: str, dtype: str, worker: Process, tmp_path: Path) -> None:
    layout = RUN[name]
    for cell, form in itertools.product(with_functions(layout), forms(layout)):
        problem = problem_of(form, cell, dtype)
        assert excess(problem, solved(worker, layout, problem, tmp_path)) <= 1, form


@pytest.mark.parametrize("name", [name for name, layout in RUN.items() if layout.kind != "rnn"])
def test_a_wrong_gate_order_is_caught(name: str, worker: Process, tmp_path: Path) -> None:
    layout = RUN[name]
    mode = layout.holds.biases[0]
    problem = problem_of(Sizes(layout.kind, 3, 5, parts=PLAIN | set(MODES[mode])), layout.cell)
    for wrong in mistaken(layout):
        assert excess(problem, solved(worker, wrong, problem, tmp_path)) > WRONG, wrong.gates


@pytest.mark.parametrize("name", [name for name in RUN if "paddle" in name or "n_step" in name])
def test_sequences_of_many_lengths(name: str, worker: Process, tmp_path: Path) -> None:
    layout = RUN[name]
    directions = 2 if layout.holds.layers else 1
    lengths = np.array([5, 1, 3])
    problem = problem_of(Sizes(layout.kind, 3, 4, 1, directions), layout.cell)
    problem = dataclasses.replace(problem, lengths=lengths)
    assert excess(problem, solved(worker, layout, problem, tmp_path, lengths=lengths)) <= 1


@pytest.mark.parametrize("name", RUN)
def test_gradients_are_those_of_the_equations(name: str, worker: Process, tmp_path: Path) -> None:
    layout = RUN[name]
    parts = PLAIN | set(MODES[layout.holds.biases[0]])
    form = Sizes(layout.kind, 3, 4, 2 if layout.holds.layers else 1, parts=parts)
    problem = problem_of(form, layout.cell, "float64")
    rng = np.random.default_rng(9)
    true = reference.run(problem.stack, problem.x, problem.hidden, problem.cell)
    cotangents = {
        "y": rng.standard_normal(true.y.shape), "hidden": [rng.standard_normal(h.shape) for h in true.hidden],
        "cell": [rng.standard_normal(c.shape) for c in true.cell],
    }  # fmt: skip
    gradients = asked(worker, layout, problem, tmp_path, cotangents=cotangents)["gradients"]
    weights = gradients["weights"][""]
    arrays = {full: np.asarray(array) for full, array in pack(layout, problem.stack).items()}
    assert set(weights) == set(arrays)
    step = 1e-6
    for key, slope in [("x", gradients["x"]), *weights.items()]:
        index = tuple(rng.integers(length) for length in np.shape(slope))
        high, low = (_sum(_moved(layout, problem, arrays, (key, index), way * step), cotangents) for way in (1, -1))
        np.testing.assert_allclose(slope[index], (high - low) / (2 * step), rtol=1e-5, atol=1e-7, err_msg=key)


def _moved(layout: Layout, problem: Problem, arrays: Mapping[str, Array], number: tuple[str, Any], change: float) -> Problem:
    """The problem with one number changed: of x or of an array, at an index."""
    from rnnconvert.language.packing import assemble, unpack

    key, index = number
    moved = {full: array.copy() for full, array in arrays.items()}
    x = problem.x.copy()
    (x if key == "x" else moved[key])[index] += change
    form = Sizes.of(problem.stack)
    stack = assemble("moved", problem.stack.cell, unpack(layout, form, moved), form.num_directions)
    return dataclasses.replace(problem, stack=stack, x=x)


def _sum(problem: Problem, scales: Any) -> float:
    """The weighted sum of all outputs, by the reference."""
    result = problem.solved()
    total = (result.y * scales["y"]).sum() + sum((h * s).sum() for h, s in zip(result.hidden, scales["hidden"], strict=True))
    return float(total + sum((c * s).sum() for c, s in zip(result.cell, scales["cell"], strict=True)))


@pytest.mark.parametrize("name", ["chainer.n_step_lstm", "chainer.lstm", "chainer.gru"])
def test_chainers_hdf5_files_are_the_same(name: str, chainer: Process, tmp_path: Path) -> None:
    layout = RUN[name]
    parts = PLAIN | set(MODES[layout.holds.biases[0]])
    problem = problem_of(Sizes(layout.kind, 3, 4, parts=parts), layout.cell)
    assert excess(problem, solved(chainer, layout, problem, tmp_path, suffix=".h5")) <= 1


def test_links_one_after_the_other_take_their_own_states(chainer: Process, tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    chain = []
    for name, kind, layers in (("first", "n_step_lstm", 2), ("second", "gru", 1), ("third", "n_step_lstm", 1)):
        layout = RUN[f"chainer.{kind}"]
        problem = problem_of(next(form for form in forms(layout) if (form.input_size, form.num_layers) == (4, layers)), layout.cell)
        arrays |= {f"{name}/{path}": array for path, array in pack(layout, problem.stack).items()}
        chain.append(problem if layout.kind == "lstm" else dataclasses.replace(problem, cell=()))
    hidden, cell = ([state for problem in chain for state in getattr(problem, part) or ()] for part in ("hidden", "cell"))
    x, file = chain[0].x, put(tmp_path / "a.npz", arrays)
    answer = chainer.ask(file=file, how={}, layers=["first", "second", "third"], x=x, hidden=hidden, cell=cell)
    for problem in chain:
        x = reference.run(problem.stack, x, problem.hidden, problem.cell or None).y
    assert np.abs(answer["y"] - x).max() < 1e-5


def test_gradients_that_paddle_gets_wrong_are_not_given(paddle: Process, tmp_path: Path) -> None:
    layout = RUN["paddle.gru"]
    problem = problem_of(Sizes("gru", 3, 4, 1, 2), layout.cell)
    result = problem.solved()
    cotangents = {"y": np.ones_like(result.y), "hidden": list(result.hidden), "cell": []}
    with pytest.raises(ExecutorError, match="two directions with lengths and initial states") as raised:
        asked(paddle, layout, problem, tmp_path, lengths=np.array([5, 1, 3]), cotangents=cotangents)
    assert raised.value.refused


def test_what_is_not_run_is_said(chainer: Process, paddle: Process, tmp_path: Path) -> None:
    for worker, name in ((chainer, "chainer.gru"), (paddle, "paddle.gru")):
        layout = RUN[name]
        problem = problem_of(Sizes("gru", 3, 5), layout.cell, "float16")
        with pytest.raises(ExecutorError, match="float16: ") as raised:
            solved(worker, layout, problem, tmp_path)
        assert raised.value.refused
    layout = RUN["chainer.gru"]
    with pytest.raises(ExecutorError, match="only NStep links"):
        solved(chainer, layout, problem_of(Sizes("gru", 3, 5), layout.cell), tmp_path, lengths=np.array([5, 1, 3]))
