"""Flax, Haiku and Equinox run their own cells, packed from random canonical layers, and meet the reference."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble, pack, unpack
from rnnconvert.language.places import shapes
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from tests.helpers.drawn import drawn
from tests.helpers.frameworks import EQUINOX, HAIKU, LINEN, NNX
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.stacks import BOTH, PLAIN, mistaken, random_stack

JUDGES = {"flax": LINEN, "nnx": NNX, "haiku": HAIKU, "equinox": EQUINOX}
READ = {layout.name: layout for name in JUDGES for layout in registry.frameworks()[name]}
LAYOUTS = {name: layout for name, layout in READ.items() if layout.writable}
INPUT = PLAIN | {"input_bias"}
SIZES = [(3, 5), (4, 4), (3, 1), (1, 1)]
STEPS, BATCH = 5, 3


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What JAX compiled for a test is not kept: no other test has its shapes."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


over_layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda layout: layout.name)


def cells_of(layout: Layout) -> list[Cell]:
    """What goes into a layout: the cell without constants, the same with one, and the functions that it has."""
    plain = layout.cell.replace(constants={})
    if layout.kind == "rnn":
        functions = {str(name) for name in layout.holds.activations}
        return [cell for cell in (Cell("rnn"), Cell("rnn", activation=RELU)) if str(cell.activation) in functions]
    return [plain, plain.replace(constants={"f": 1.0})] if layout.kind == "lstm" else [plain]


def parts_of(layout: Layout) -> list[frozenset[str]]:
    """What a layer may have for a layout to take it without a word: no bias that the reset gate multiplies in nnx."""
    return [INPUT] if layout.name == "nnx.gru" else [BOTH, INPUT, PLAIN]


def options_of(layout: Layout, stack: Recurrent) -> dict[str, Any]:
    """What the framework's class is told beside its sizes."""
    if layout.framework in ("flax", "nnx") and stack.cell.activation == RELU:
        import jax

        return {"activation_fn": jax.nn.relu}
    return {"double_bias": stack.first.biases == "both"} if layout.name == "haiku.rnn" else {}


def problem_of(form: Sizes, cell: Cell, dtype: str = "float64", seed: int = 3) -> Problem:
    """Random weights, input and initial states."""
    return Problem.random(form, cell, dtype, seed)


def solved(layout: Layout, problem: Problem, held: Layout | None = None) -> float:
    """How far the framework is from the reference; `held` is what the layer is brought into the form of."""
    part = fit_to_layout(problem.stack, [held or layout])
    solution = JUDGES[layout.framework].solve(layout, dataclasses.replace(problem, stack=part.stack), **options_of(layout, part.stack))
    return excess(problem, solution)


@over_layouts
@pytest.mark.usefixtures("forgotten")
def test_a_cell_meets_the_reference(layout: Layout) -> None:
    every = itertools.product(("float32", "float64"), cells_of(layout), parts_of(layout), SIZES)  # each compiles
    for dtype, cell, parts, (width, hidden) in drawn(every, 1, layout.name):
        problem = problem_of(Sizes(layout.kind, width, hidden, parts=parts), cell, dtype)
        assert solved(layout, problem) <= 1, (cell, sorted(parts), width, hidden)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("layout", READ.values(), ids=lambda layout: layout.name)
def test_what_the_framework_holds_is_read(layout: Layout) -> None:
    """Arrays as the framework would have trained them, not packed by us."""
    form = Sizes(layout.kind, 3, 5, parts=PLAIN | layout.part_names)
    rng = np.random.default_rng(5)
    arrays = {name: rng.uniform(-0.6, 0.6, shape) for name, shape in shapes(layout, form).items()}
    stack = assemble("", layout.cell, unpack(layout, form, arrays), 1)
    problem = dataclasses.replace(problem_of(form, layout.cell), stack=stack)
    assert {name: np.asarray(packed).tobytes() for name, packed in pack(layout, stack).items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    solution = JUDGES[layout.framework].solve(layout, problem, **options_of(layout, stack))
    assert excess(problem, solution) <= 1


def negated(layout: Layout) -> Iterator[Layout]:
    """The same arrays with a gate taken for its negative, for every gate."""
    gates, letters = layout.gates.split(), layout.letters or layout.gates.replace("-", "")
    for gate in range(len(gates)):
        wrong = list(gates)
        wrong[gate] = gates[gate][1:] if gates[gate][0] == "-" else "-" + gates[gate]
        yield dataclasses.replace(layout, gates=" ".join(wrong), letters=letters)


@pytest.mark.drawn(3)
@over_layouts
def test_a_wrong_gate_or_sign_is_caught(layout: Layout) -> None:
    problem = problem_of(Sizes(layout.kind, 3, 5, parts=parts_of(layout)[0]), cells_of(layout)[0])
    assert solved(layout, problem) <= 1
    for wrong in (*mistaken(layout), *negated(layout)):
        assert solved(wrong, problem, layout) > WRONG, wrong.gates


def test_haikus_one_that_is_forgotten_is_caught() -> None:
    layout = LAYOUTS["haiku.lstm"]
    problem = problem_of(Sizes("lstm", 3, 5), Cell("lstm"))
    forgetful = dataclasses.replace(layout, holds=dataclasses.replace(layout.holds, constants={}))
    assert solved(layout, problem, forgetful) > WRONG
    assert solved(layout, problem) <= 1


@pytest.mark.parametrize("name", ["flax.gru", "nnx.gru", "haiku.gru", "equinox.gru"])
def test_the_other_reset_is_caught(name: str) -> None:
    layout = LAYOUTS[name]
    other = Cell("gru", not layout.reset_after)
    problem = problem_of(Sizes("gru", 3, 5, parts=INPUT), other)
    assert solved(layout, problem, dataclasses.replace(layout, reset_after=other.reset_after)) > WRONG
    with pytest.raises(RefusedError, match="reset gate"):
        solved(layout, problem)


REFUSED = [
    ("nnx.gru", Cell("gru", True), BOTH, "r \\* \\(R h \\+ b_r\\) has b_r"),
    ("haiku.rnn", Cell("rnn"), BOTH, "its candidate through tanh"),
    ("flax.lstm", Cell("lstm"), BOTH | {"peephole"}, "peepholes"),
    ("nnx.lstm", Cell("lstm"), BOTH | {"peephole"}, "peepholes"),
    ("haiku.lstm", Cell("lstm"), BOTH | {"peephole"}, "peepholes"),
    ("equinox.lstm", Cell("lstm"), BOTH | {"peephole"}, "peepholes"),
    ("equinox.lstm", Cell("lstm"), BOTH | {"initial_hidden"}, "learned initial state"),
    ("equinox.lstm", Cell("lstm", activation=RELU, output_activation=RELU), BOTH, "through relu"),
    ("equinox.gru", Cell("rnn"), BOTH, "does not have this cell"),
]


@pytest.mark.parametrize(("name", "cell", "parts", "message"), REFUSED, ids=lambda value: value if type(value) is str else "")
def test_what_a_cell_cannot_compute_is_refused(name: str, cell: Cell, parts: frozenset[str], message: str) -> None:
    stack = random_stack(Sizes(cell.kind, 3, 5, parts=parts), 3, cell=cell)
    with pytest.raises(RefusedError, match=message):
        fit_to_layout(stack, [LAYOUTS[name]])


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_directions_are_refused(name: str) -> None:
    layout = LAYOUTS[name]
    form = Sizes(layout.kind, 3, 5, 1, 2, parts=INPUT)
    with pytest.raises(RefusedError, match="two directions"):
        fit_to_layout(random_stack(form, 3, cell=cells_of(layout)[0]), [layout])


def test_a_bias_without_a_place_is_no_silent_loss() -> None:
    with pytest.raises(ValueError, match="no place for recurrent_bias of layer 0, gate r, which is not zero"):
        pack(LAYOUTS["equinox.gru"], random_stack(Sizes("gru", 3, 5), 3))
