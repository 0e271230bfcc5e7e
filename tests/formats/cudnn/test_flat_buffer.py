"""cuDNN's flat buffer, run by two implementations that share no code with us: MXNet's and JAX's."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.reference import Outputs
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from tests.helpers import frameworks
from tests.helpers.frameworks import JAX, outputs, packed
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.stacks import BOTH, random_stack, random_states
from tests.helpers.workers import running

MODES = {"rnn_tanh": Cell("rnn"), "rnn_relu": Cell("rnn", activation=RELU), "gru": Cell("gru", True), "lstm": Cell("lstm")}
SIZES = [(3, 5), (4, 4), (3, 1), (1, 1)]
Solve = Callable[[Layout, Problem, str], Outputs]


def layout_of(cell: Cell) -> Layout:
    return registry.layout("cudnn", cell.kind, cell.reset_after)


@pytest.fixture(scope="module", params=["mxnet", "mxnet-native"])
def mxnet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Solve]:
    """MXNet in a process of its own, with oneDNN's kernels or with its own."""
    path = tmp_path_factory.mktemp("mxnet") / "weights.bin"

    def solve(layout: Layout, problem: Problem, mode: str) -> Outputs:
        stack = problem.stack
        params = packed(layout, stack)["params"]
        params.tofile(path)
        description = {
            "cell": mode, "input_size": stack.input_size, "hidden_size": stack.hidden_size,
            "num_layers": stack.num_layers, "bidirectional": stack.num_directions == 2,
            "projection_size": stack.first.projection_size, "dtype": str(params.dtype),
        }  # fmt: skip
        path.with_name("weights.bin.json").write_text(json.dumps({"layers": [description]}))
        numbers = {"x": problem.x, "hidden": problem.hidden, "cell": problem.cell}
        return outputs(worker.ask(file=str(path), layers=[], how={}, **numbers))

    with running(frameworks.mxnet(request.param)) as worker:
        yield solve


def problem_of(form: Sizes, cell: Cell, seed: int, dtype: Any = np.float32) -> Problem:
    stack = random_stack(form, seed, dtype, cell)
    x = np.random.default_rng(seed + 1).uniform(-1, 1, (5, 3, form.input_size)).astype(dtype)
    return Problem(stack, x, *random_states(form, 3, seed + 2, dtype))


# In float64 too, but for the relu: MXNet's own passes through float32 (src/operator/rnn_impl.h, relu).
@pytest.mark.parametrize(
    ("mode", "dtype"), [pair for pair in itertools.product(MODES, ("float32", "float64")) if pair != ("rnn_relu", "float64")]
)
def test_mxnet_meets_the_reference(mxnet: Solve, mode: str, dtype: str) -> None:
    cell = MODES[mode]
    for (width, hidden), layers, directions in itertools.product(SIZES, (1, 2, 3), (1, 2)):
        form = Sizes(cell.kind, width, hidden, layers, directions)
        problem = problem_of(form, cell, 10 * layers + directions, dtype)
        assert excess(problem, mxnet(layout_of(cell), problem, mode)) <= 1, form


@pytest.mark.parametrize("projection", [1, 3])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("directions", [1, 2])
def test_mxnet_meets_the_reference_with_a_projection(mxnet: Solve, projection: int, layers: int, directions: int) -> None:
    cell = MODES["lstm"]
    form = Sizes("lstm", 4, 5, layers, directions, projection, BOTH | {"projection"})
    problem = problem_of(form, cell, 5)
    assert excess(problem, mxnet(layout_of(cell), problem, "lstm")) <= 1


@pytest.mark.parametrize("missing", ["input_bias", "recurrent_bias"])
@pytest.mark.parametrize("mode", MODES)
def test_a_bias_that_a_stack_lacks_is_zero_in_the_buffer(mxnet: Solve, mode: str, missing: str) -> None:
    cell = MODES[mode]
    layout = layout_of(cell)
    doubled = dataclasses.replace(layout, holds=dataclasses.replace(layout.holds, biases=("both",)))
    problem = problem_of(Sizes(cell.kind, 3, 4, 2, 2, parts=BOTH - {missing}), cell, 6)
    assert excess(problem, mxnet(doubled, problem, mode)) <= 1


@pytest.mark.parametrize("mode", ["gru", "lstm"])
def test_mxnet_catches_a_wrong_gate_order(mxnet: Solve, mode: str) -> None:
    cell = MODES[mode]
    layout = layout_of(cell)
    first, *rest = layout.gates.split()
    problem = problem_of(Sizes(cell.kind, 3, 5, 2, 2), cell, 7)
    assert excess(problem, mxnet(layout, problem, mode)) <= 1
    wrong = dataclasses.replace(layout, gates=" ".join([*rest, first]))
    assert excess(problem, mxnet(wrong, problem, mode)) > WRONG


def test_mxnet_catches_biases_before_matrices(mxnet: Solve) -> None:
    cell = MODES["lstm"]
    layout = layout_of(cell)
    (buffer,) = layout.tensors
    matrices, biases = buffer.parts.split("|")
    wrong = dataclasses.replace(layout, tensors=(dataclasses.replace(buffer, parts=f"{biases} | {matrices}"),))
    problem = problem_of(Sizes("lstm", 3, 5), cell, 8)
    assert excess(problem, mxnet(wrong, problem, "lstm")) > WRONG


@pytest.mark.drawn(2)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("directions", [1, 2])
def test_jax_meets_the_reference_with_three_layers(size: tuple[int, int], directions: int) -> None:
    cell = MODES["lstm"]
    problem = problem_of(Sizes("lstm", *size, 3, directions), cell, 9)
    assert excess(problem, JAX.solve(layout_of(cell), problem)) <= 1


def test_jax_catches_a_wrong_gate_order() -> None:
    cell = MODES["lstm"]
    problem = problem_of(Sizes("lstm", 3, 5, 2, 2), cell, 10)
    wrong = dataclasses.replace(layout_of(cell), gates="i f o g")
    assert excess(problem, JAX.solve(wrong, problem)) > WRONG
