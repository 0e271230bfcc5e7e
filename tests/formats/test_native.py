"""The frameworks run their own arrays, packed from random canonical weights, and meet the reference."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_3, RELU, TANH, Activation, Cell, Clip
from rnnconvert.core.reference import Outputs
from rnnconvert.formats.pytorch import run as pytorch
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.running.child import missing
from tests.helpers.drawn import drawn, each, looped
from tests.helpers.frameworks import JAX, KERAS, ONNXRUNTIME, PYTORCH, packed
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, PLAIN, backwards, mistaken, random_stack

STEPS, BATCH = 5, 3
SIZES = [(3, 5), (4, 4), (3, 1), (1, 1)]
INPUT = PLAIN | {"input_bias"}

PLAIN_RNN, RELU_RNN = Cell("rnn"), Cell("rnn", activation=RELU)
GRU, GRU_RESET_BEFORE = Cell("gru", True), Cell("gru", False)
LSTM = Cell("lstm")
PLAIN_CELLS = [PLAIN_RNN, GRU, GRU_RESET_BEFORE, LSTM]


def problem_of(form: Sizes, cell: Cell, seed: int, dtype: Any = np.float32, lengths: Any = None, scale: float = 1) -> Problem:
    """Random weights, input and initial states."""
    return Problem.random(form, cell, dtype, seed, scale=scale, lengths=lengths)


def layout_of(framework: str, cell: Cell) -> Layout:
    return registry.layout(framework, cell.kind, cell.reset_after)


def cells_of(name: str) -> list[Cell]:
    resets = {"pytorch": [GRU], "cudnn": []}.get(name, [GRU, GRU_RESET_BEFORE])
    return [LSTM] if name == "cudnn" else [PLAIN_RNN, RELU_RNN, LSTM, *resets]


def options_of(framework: str, cell: Cell, directions: int) -> dict[str, Any]:
    """What the framework calls a plain RNN that is not tanh."""
    if cell.activation != RELU:
        return {}
    named: dict[str, dict[str, Any]] = {
        "pytorch": {"nonlinearity": "relu"},
        "keras": {"activation": "relu"},
        "onnx": {"activations": ["Relu"] * directions},
    }
    return named[framework]


JUDGES = {"pytorch": PYTORCH, "keras": KERAS, "onnx": ONNXRUNTIME, "cudnn": JAX}
# onnxruntime: RNN has no float64 kernel, and LSTM and GRU load one and then refuse to run it.
DTYPES = {"pytorch": ["float32", "float64"], "keras": ["float32", "float64"], "onnx": ["float32"], "cudnn": ["float32"]}
BIASES = {"pytorch": [BOTH, PLAIN], "keras": [INPUT, PLAIN], "onnx": [BOTH, PLAIN], "cudnn": [BOTH]}


FRAMEWORK_CELLS = [(name, cell) for name in JUDGES for cell in cells_of(name) if cell.activation != RELU]


def label(value: str | Cell) -> str:
    if isinstance(value, Cell):
        return value.kind + {True: "_after", False: "_before", None: ""}[value.reset_after]
    return value


def sweep(name: str, cell: Cell) -> Iterator[tuple[Sizes, str]]:
    """Element types x layers x directions x biases x sizes."""
    for dtype, layers, directions, parts, (width, hidden) in itertools.product(DTYPES[name], (1, 2), (1, 2), BIASES[name], SIZES):
        if dtype == "float64" and (width, hidden) not in SIZES[:2]:
            continue
        yield (Sizes(cell.kind, width, hidden, layers, directions, parts=BOTH if cell == GRU and parts == INPUT else parts), dtype)


@pytest.mark.parametrize(("name", "cell"), [pytest.param(n, c, id=f"{n}-{label(c)}-{c.activation}") for n in JUDGES for c in cells_of(n)])
def test_a_framework_meets_the_reference(name: str, cell: Cell) -> None:
    def check(case: tuple[Sizes, str]) -> None:
        form, dtype = case
        problem = problem_of(form, cell, sum(map(ord, f"{form}{dtype}")), dtype)
        solution = JUDGES[name].solve(layout_of(name, cell), problem, **options_of(name, cell, form.num_directions))
        assert excess(problem, solution) <= 1

    def widest(case: tuple[Sizes, str]) -> bool:
        form, _ = case
        sizes = (form.input_size, form.hidden_size, form.num_layers, form.num_directions)
        return sizes == (*SIZES[0], 2, 2) and form.parts != PLAIN

    each(drawn(sweep(name, cell), 3, f"{name} {cell}", widest), check)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cell", [PLAIN_RNN, GRU, LSTM], ids=label)
@pytest.mark.parametrize("stack", [(1, 1), (2, 2)], ids=str)
def test_pytorch_meets_the_reference_in_half_precision(cell: Cell, dtype: str, stack: tuple[int, int]) -> None:
    problem = problem_of(Sizes(cell.kind, 3, 5, *stack), cell, 7, dtype)
    assert excess(problem, PYTORCH.solve(layout_of("pytorch", cell), problem)) <= 1


@pytest.mark.parametrize("cell", PLAIN_CELLS, ids=label)
def test_onnxruntime_meets_the_reference_in_half_precision(cell: Cell) -> None:
    problem = problem_of(Sizes(cell.kind, 3, 5, 1, 2), cell, 7, "float16")
    assert excess(problem, ONNXRUNTIME.solve(layout_of("onnx", cell), problem)) <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("parts", [BOTH, PLAIN], ids=["bias", "plain"])
@pytest.mark.parametrize(("layers", "directions", "projection"), [(1, 1, 2), (2, 1, 1), (1, 2, 4), (2, 2, 2)])
def test_a_projected_lstm_meets_the_reference(layers: int, directions: int, projection: int, parts: frozenset[str], dtype: str) -> None:
    form = Sizes("lstm", 3, 5, layers, directions, projection, parts | {"projection"})
    problem = problem_of(form, LSTM, 11, dtype)
    assert excess(problem, PYTORCH.solve(layout_of("pytorch", LSTM), problem)) <= 1


@pytest.mark.parametrize(("name", "cell"), FRAMEWORK_CELLS, ids=label)
@pytest.mark.parametrize("stack", [(1, 1), (2, 2)], ids=str)
def test_sequences_of_many_lengths_meet_the_reference(name: str, cell: Cell, stack: tuple[int, int]) -> None:
    parts = INPUT if name == "keras" and cell != GRU else BOTH
    problem = problem_of(Sizes(cell.kind, 3, 4, *stack, parts=parts), cell, 13, lengths=np.array([5, 1, 3]))
    assert excess(problem, JUDGES[name].solve(layout_of(name, cell), problem)) <= 1


@pytest.mark.parametrize("parts", [BOTH, PLAIN], ids=["bias", "plain"])
@pytest.mark.parametrize("cell", [PLAIN_RNN, GRU, LSTM], ids=label)
def test_pytorchs_cell_modules_meet_the_reference(cell: Cell, parts: frozenset[str]) -> None:
    need("torch", missing(pytorch.NEEDS))
    import torch

    problem = problem_of(Sizes(cell.kind, 3, 5, parts=parts), cell, 15)
    layout = registry.layout("pytorch", cell.kind, cell.reset_after, f"{cell.kind}_cell")
    module = getattr(torch.nn, f"{cell.kind.upper()}Cell")(3, 5, bias=parts == BOTH)
    arrays = packed(layout, problem.stack)
    module.load_state_dict({key: torch.from_numpy(array) for key, array in arrays.items()})
    state = [torch.from_numpy(states[0]) for states in (problem.hidden, problem.cell) if states is not None]
    steps = []
    with torch.no_grad():
        for x in torch.from_numpy(problem.x):
            state = list(module(x, tuple(state))) if cell.kind == "lstm" else [module(x, state[0])]
            steps.append(state[0].numpy())
    h, *c = (value.numpy() for value in state)
    assert excess(problem, Outputs(np.stack(steps), (h,), tuple(c))) <= 1


@pytest.mark.parametrize("name", JUDGES)
def test_states_that_are_not_given_are_zero(name: str) -> None:
    parts = INPUT if name == "keras" else BOTH
    problem = dataclasses.replace(problem_of(Sizes("lstm", 3, 4, 2, 2, parts=parts), LSTM, 17), hidden=None, cell=None)
    assert excess(problem, JUDGES[name].solve(layout_of(name, LSTM), problem)) <= 1


@pytest.mark.parametrize(("name", "cell"), [pair for pair in FRAMEWORK_CELLS if pair[1].kind != "rnn"], ids=label)
def test_a_wrong_gate_order_is_caught(name: str, cell: Cell) -> None:
    parts = INPUT if name == "keras" and cell != GRU else BOTH
    problem = problem_of(Sizes(cell.kind, 3, 5, parts=parts), cell, 19)
    layout = layout_of(name, cell)
    assert excess(problem, JUDGES[name].solve(layout, problem)) <= 1
    for wrong in mistaken(layout):
        assert excess(problem, JUDGES[name].solve(wrong, problem)) > WRONG, wrong.gates


def test_the_other_reset_is_caught() -> None:
    problem = problem_of(Sizes("gru", 3, 5, parts=PLAIN), GRU_RESET_BEFORE, 19)
    assert excess(problem, KERAS.solve(layout_of("keras", GRU), problem)) > WRONG
    assert excess(problem, ONNXRUNTIME.solve(layout_of("onnx", GRU), problem)) > WRONG


TAME = 0.3
"""A scale of weights under which functions without a bound do not run away in a few steps."""


def functions_of(layout: Layout) -> list[Activation]:
    """Every function that a layout says its framework has."""
    return [Activation(f) if isinstance(f, str) else f for f in layout.holds.activations]


def with_functions(cell: Cell, candidate: Activation, gates: Activation | None = None) -> Cell:
    """A cell with that candidate and, where it has gates, those gates; an LSTM's output goes as the candidate does."""
    changes = {"activation": candidate}
    if cell.kind == "lstm":
        changes["output_activation"] = candidate
    if gates and cell.kind != "rnn":
        changes["gate_activation"] = gates
    return cell.replace(**changes)


@pytest.mark.parametrize("cell", PLAIN_CELLS, ids=label)
@looped(function=functions_of(registry.layout("keras", "lstm")))
def test_keras_functions_meet_the_reference(function: Activation, cell: Cell) -> None:
    layout = layout_of("keras", cell)
    assert function in functions_of(layout)
    form = Sizes(cell.kind, 3, 5, parts=BOTH if cell == GRU else INPUT)
    problem = problem_of(form, with_functions(cell, function), 23, scale=TAME)
    assert excess(problem, KERAS.solve(layout, problem, activation=function.name)) <= 1
    if cell.kind != "rnn":
        problem = problem_of(form, with_functions(cell, TANH, function), 24, scale=TAME)
        assert excess(problem, KERAS.solve(layout, problem, recurrent_activation=function.name)) <= 1


@pytest.mark.parametrize("merge", ["concat", "sum", "mul", "ave", "none"])
def test_keras_joins_directions_as_the_reference_does(merge: Any) -> None:
    problem = problem_of(Sizes("gru", 3, 5, 1, 2), GRU, 29)
    layer = dataclasses.replace(problem.stack.layers[0], merge=merge)
    problem = dataclasses.replace(problem, stack=problem.stack.replace(layers=(layer,)))
    solution = KERAS.solve(layout_of("keras", GRU), problem, merge_mode=None if merge == "none" else merge)
    assert excess(problem, solution) <= 1


def test_keras_goes_backwards_in_processing_order() -> None:
    problem = problem_of(Sizes("lstm", 3, 5, parts=INPUT), LSTM, 31)
    stack = backwards(problem.stack, "processing")
    problem = dataclasses.replace(problem, stack=stack)
    assert excess(problem, KERAS.solve(layout_of("keras", LSTM), problem, go_backwards=True)) <= 1


@pytest.mark.parametrize("cell", PLAIN_CELLS, ids=label)
@pytest.mark.parametrize("lengths", [None, (5, 1, 3)], ids=["whole", "lengths"])
def test_onnx_reverse_meets_the_reference(cell: Cell, lengths: Any) -> None:
    problem = problem_of(Sizes(cell.kind, 3, 5), cell, 37, lengths=None if lengths is None else np.array(lengths))
    problem = dataclasses.replace(problem, stack=backwards(problem.stack))
    assert excess(problem, ONNXRUNTIME.solve(layout_of("onnx", cell), problem)) <= 1


PEEPHOLES = BOTH | {"peephole"}


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(
    ("cell", "parts", "options"),
    [
        (LSTM, PEEPHOLES, {}),
        (LSTM.replace(coupled="f"), BOTH, {"input_forget": 1}),
        (LSTM.replace(coupled="f"), PEEPHOLES, {"input_forget": 1}),
        (LSTM.replace(clips=(Clip("gates", -0.3, 0.3),)), BOTH, {"clip": 0.3}),
        (LSTM.replace(clips=(Clip("gates", -0.3, 0.3),)), PEEPHOLES, {"clip": 0.3}),
        (GRU.replace(clips=(Clip("gates", -0.3, 0.3),)), BOTH, {"clip": 0.3}),
        (GRU_RESET_BEFORE.replace(clips=(Clip("gates", -0.3, 0.3),)), BOTH, {"clip": 0.3}),
        (PLAIN_RNN.replace(clips=(Clip("gates", -0.3, 0.3),)), BOTH, {"clip": 0.3}),
    ],
    ids=[
        "peephole", "coupled", "coupled-peephole", "clip", "clip-peephole",
        "gru_after-clip", "gru_before-clip", "rnn-clip",
    ],
)  # fmt: skip
def test_onnx_options_meet_the_reference(cell: Cell, parts: frozenset[str], options: dict[str, Any], directions: int) -> None:
    problem = problem_of(Sizes(cell.kind, 3, 5, 1, directions, parts=parts), cell, 41)
    assert excess(problem, ONNXRUNTIME.solve(layout_of("onnx", cell), problem, **options)) <= 1
    # An option that the framework ignored would leave the plain function.
    plain = dataclasses.replace(problem, stack=random_stack(Sizes.of(problem.stack), 41, np.float32, Cell(cell.kind, cell.reset_after)))
    if options:
        assert excess(plain, problem.solved()) > WRONG


ONNX_NAMES = {
    "sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "linear": "Affine", "affine": "Affine",
    "leaky_relu": "LeakyRelu", "thresholded_relu": "ThresholdedRelu", "scaled_tanh": "ScaledTanh",
    "hard_sigmoid": "HardSigmoid", "elu": "Elu", "softsign": "Softsign", "softplus": "Softplus",
}  # fmt: skip


def onnx_options(cell: Cell, directions: int) -> dict[str, Any]:
    """A cell's functions as ONNX lists them: alphas and betas only of those that take them."""
    functions = {
        "rnn": [cell.activation],
        "gru": [cell.gate_activation, cell.activation],
        "lstm": [cell.gate_activation, cell.activation, cell.output_activation],
    }[cell.kind] * directions
    constants = [(1.0, 0.0) if f.name == "linear" else (f.alpha, f.beta) for f in functions]
    alphas = [alpha for alpha, _ in constants if alpha is not None]
    betas = [beta for _, beta in constants if beta is not None]
    options: dict[str, Any] = {"activations": [ONNX_NAMES[f.name] for f in functions]}
    return options | ({"activation_alpha": alphas} if alphas else {}) | ({"activation_beta": betas} if betas else {})


@pytest.mark.parametrize("cell", PLAIN_CELLS, ids=label)
@looped(function=functions_of(registry.layout("onnx", "lstm")))
def test_onnx_functions_meet_the_reference(function: Activation, cell: Cell) -> None:
    layout = layout_of("onnx", cell)
    assert function in functions_of(layout)
    gates = [] if cell.kind == "rnn" else [with_functions(cell, TANH, function)]
    for variant in [with_functions(cell, function), *gates]:
        problem = problem_of(Sizes(cell.kind, 3, 5), variant, 42, scale=TAME)
        assert excess(problem, ONNXRUNTIME.solve(layout, problem, **onnx_options(variant, 1))) <= 1


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("cell", PLAIN_CELLS, ids=label)
@pytest.mark.parametrize(
    ("gates", "candidate", "output"),
    [
        (Activation("hard_sigmoid"), Activation("tanh"), Activation("relu")),
        (HARD_SIGMOID_KERAS_3, Activation("scaled_tanh", 1.5, 0.5), Activation("elu", 0.7)),
        (Activation("hard_sigmoid", 0.3, 0.4), Activation("affine", 0.5, 0.1), Activation("softsign")),
        (Activation("sigmoid"), Activation("leaky_relu", 0.3), Activation("scaled_tanh", 0.8, 1.2)),
        (Activation("sigmoid"), Activation("thresholded_relu", 0.2), Activation("softplus")),
        (Activation("softsign"), Activation("softplus"), Activation("affine", -0.5, 0.25)),
        (Activation("sigmoid"), Activation("elu", 0.5), Activation("leaky_relu", 0.1)),
    ],
    ids=lambda activation: activation.name,
)  # fmt: skip
def test_onnx_activations_meet_the_reference(
    gates: Activation, candidate: Activation, output: Activation, cell: Cell, directions: int
) -> None:
    cell = cell.replace(activation=candidate)
    if cell.kind != "rnn":
        cell = cell.replace(gate_activation=gates)
    if cell.kind == "lstm":
        cell = cell.replace(output_activation=output)
    problem = problem_of(Sizes(cell.kind, 3, 5, 1, directions), cell, 43)
    solution = ONNXRUNTIME.solve(layout_of("onnx", cell), problem, **onnx_options(cell, directions))
    assert excess(problem, solution) <= 1


def test_onnx_learned_states_meet_the_reference() -> None:
    parts = BOTH | {"initial_hidden", "initial_cell"}
    problem = dataclasses.replace(problem_of(Sizes("lstm", 3, 5, 1, 2, parts=parts), LSTM, 47), hidden=None, cell=None)
    assert excess(problem, ONNXRUNTIME.solve(layout_of("onnx", LSTM), problem)) <= 1
