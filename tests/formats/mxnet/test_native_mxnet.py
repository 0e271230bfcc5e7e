"""MXNet 1.9.1 runs files packed from random canonical layers, by its own gluon classes, and meets the reference."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.errors import ExecutorError
from rnnconvert.core.reference import Outputs
from rnnconvert.formats.mxnet import mxnet_params
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import pack
from rnnconvert.running.parent import Process
from tests.helpers.frameworks import mxnet, outputs
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.native_files import described
from tests.helpers.stacks import BOTH, mistaken, random_stack, with_functions
from tests.helpers.workers import running

LAYOUTS = {layout.name: layout for layout in registry.frameworks()["mxnet"]}
FLAT = [name for name in LAYOUTS if name.endswith("_flat")]
SIZES = [(3, 5), (4, 4), (3, 1), (1, 1)]
STEPS, BATCH = 5, 3


@pytest.fixture(scope="module")
def gluon() -> Iterator[Process]:
    with running(mxnet("mxnet-gluon")) as worker:
        yield worker


@pytest.fixture(scope="module")
def operator() -> Iterator[Process]:
    with running(mxnet()) as worker:
        yield worker


def problem_of(form: Sizes, cell: Cell, dtype: str = "float32", seed: int = 3) -> Problem:
    """Random weights, input and initial states."""
    return Problem.random(form, cell, dtype, seed)


def solved(worker: Process, layout: Layout, problem: Problem, folder: Path) -> Outputs:
    """What MXNet makes of a file with these arrays; the flat vector goes to the operator, with what it is told."""
    arrays = pack(layout, problem.stack)
    cell = problem.stack.cell
    request: dict[str, Any] = {
        "x": problem.x, "hidden": list(problem.hidden or ()), "cell": list(problem.cell or ()), "layers": [],
    }  # fmt: skip
    if layout.name in FLAT:
        path = described(folder / "a.bin", problem.stack, np.asarray(arrays["parameters"]))
        return outputs(worker.ask(file=str(path), how={}, **request))
    mxnet_params.write(folder / "a.params", arrays)
    how: Mapping[str, str] = {"nonlinearity": cell.activation.name} if cell.kind == "rnn" else {}
    return outputs(worker.ask(file=str(folder / "a.params"), how=how, **request))


def forms(layout: Layout) -> Iterator[Sizes]:
    """Sizes, layers and directions that a layout has a place for."""
    stacks = [(1, 1), (2, 1), (1, 2), (2, 2)] if layout.holds.layers else [(1, 1)]
    for (width, hidden), (layers, directions) in itertools.product(SIZES, stacks):
        yield Sizes(layout.kind, width, hidden, layers, directions)
        if "projection" in layout.part_names and hidden > 1:
            for projection in (2, hidden):
                yield Sizes(layout.kind, width, hidden, layers, directions, projection, BOTH | {"projection"})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_mxnet_meets_the_reference(name: str, dtype: str, gluon: Process, operator: Process, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    worker = operator if name in FLAT else gluon
    for cell, form in itertools.product(with_functions(layout), forms(layout)):
        if (cell.activation, dtype) == (RELU, "float64"):
            continue
        if name in FLAT and form.projection_size == form.hidden_size:
            continue  # cuDNN's description has this as none
        problem = problem_of(form, cell, dtype)
        assert excess(problem, solved(worker, layout, problem, tmp_path)) <= 1, form


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.kind != "rnn"])
def test_a_wrong_gate_order_is_caught(name: str, gluon: Process, operator: Process, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    worker = operator if name in FLAT else gluon
    problem = problem_of(Sizes(layout.kind, 3, 5), layout.cell)
    assert excess(problem, solved(worker, layout, problem, tmp_path)) <= 1
    for wrong in mistaken(layout):
        assert excess(problem, solved(worker, wrong, problem, tmp_path)) > WRONG, wrong.gates


def test_the_other_reset_and_the_other_function_are_caught(gluon: Process, tmp_path: Path) -> None:
    form = Sizes("gru", 3, 5)
    problem = problem_of(form, LAYOUTS["mxnet.gru"].cell)
    before = dataclasses.replace(problem, stack=random_stack(form, 3, "float32", Cell("gru", False)))
    assert excess(before, solved(gluon, LAYOUTS["mxnet.gru"], problem, tmp_path)) > WRONG
    relu, tanh = (problem_of(Sizes("rnn", 3, 5), cell) for cell in reversed(with_functions(LAYOUTS["mxnet.rnn"])))
    assert excess(tanh, solved(gluon, LAYOUTS["mxnet.rnn"], relu, tmp_path)) > WRONG


def test_what_mxnet_does_not_run_is_said(gluon: Process, tmp_path: Path) -> None:
    layout = LAYOUTS["mxnet.gru"]
    problem = problem_of(Sizes("gru", 3, 5), layout.cell, "float16")
    with pytest.raises(ExecutorError, match="float16: MXNet's layers run in"):
        solved(gluon, layout, problem, tmp_path)
    single = problem_of(Sizes("gru", 3, 5), layout.cell)
    vector = pack(LAYOUTS["mxnet.gru_flat"], single.stack)
    mxnet_params.write(tmp_path / "flat.params", vector)
    request: dict[str, Any] = {"x": single.x, "how": {}, "layers": []}
    for file, more, message in (
        ("flat.params", {}, "does not show its sizes"),
        ("flat.params", {"lengths": np.array([5, 1, 3])}, "ignores lengths on the CPU"),
    ):
        with pytest.raises(ExecutorError, match=message) as raised:
            gluon.ask(file=str(tmp_path / file), **request, **more)
        assert raised.value.refused
