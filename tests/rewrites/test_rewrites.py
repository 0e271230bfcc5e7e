"""Every rewrite: the same function before and after in the float64 reference, and a refusal where it would not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert import rewrites
from rnnconvert.core import reference
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, RELU, SIGMOID, Activation, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Merge, Recurrent
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.rewrites import REWRITES, each
from rnnconvert.rewrites.fit_to_layout import Fitted, fit_to_layout
from tests.helpers.judging import outputs_of
from tests.helpers.stacks import BOTH, PLAIN, random_stack

# Sums run in another order; what is asked is the agreement of real numbers, up to that.
RELATIVE = 1e-12
LSTM = Sizes("lstm", 3, 4, parts=BOTH)
GRU = Sizes("gru", 3, 4, parts=BOTH)
RNN = Sizes("rnn", 3, 4, parts=BOTH)
PEEPHOLES = BOTH | {"peephole"}
PROJECTED = BOTH | {"projection"}
STATES = BOTH | {"initial_hidden", "initial_cell"}


def layouts(target: str) -> list[Layout]:
    from rnnconvert.files.adapter import adapter

    if "." in target:
        return [registry.layouts()[target]]
    return adapter(target).layouts(Options())


def random(form: Sizes, cell: Cell | None = None, seed: int = 1) -> Recurrent:
    return random_stack(form, seed, np.float64, cell)


def changed(stack: Recurrent, change: Callable[[Direction], Direction]) -> Recurrent:
    return each(stack, change)


def diagonal(stack: Recurrent) -> Recurrent:
    def change(direction: Direction) -> Direction:
        matrix = direction.get("recurrent", "n")
        assert matrix is not None
        return direction.with_arrays({("recurrent", "n"): np.diag(np.diag(matrix))})

    return each(stack, change)


def without_inner_bias(stack: Recurrent) -> Recurrent:
    return each(stack, lambda d: d.with_arrays({("recurrent_bias", "n"): np.zeros(d.hidden_size)}))


def zeroed(stack: Recurrent, part: str) -> Recurrent:
    def change(direction: Direction) -> Direction:
        return direction.with_arrays({k: np.zeros(v.shape) for k, v in direction.arrays.items() if k[0] == part})

    return each(stack, change)


def merged(stack: Recurrent, merge: Merge) -> Recurrent:
    """The stack with lower layers that join their directions so; each upper layer reads what they give."""
    layers = [stack.layers[0]]
    for layer in stack.layers[1:]:
        layers[-1] = replace(layers[-1], merge=merge)
        narrow = tuple(
            d.with_arrays({("input", g): np.asarray(d.arrays["input", g])[:, : d.hidden_size] for g in d.cell.gates})
            for d in layer.directions
        )
        layers.append(Layer(narrow, layer.merge))
    return Recurrent(stack.name, tuple(layers))


def at_the_end(stack: Recurrent) -> Recurrent:
    """The stack with directions that meet only at the end."""
    narrow = merged(stack, "sum").layers
    return Recurrent(stack.name, tuple(Layer(layer.directions) for layer in narrow), join="end")


def skipping(stack: Recurrent) -> Recurrent:
    first = stack.layers[0]
    bare = tuple(d.with_arrays({("input", g): None for g in d.cell.gates}) for d in first.directions)
    return stack.replace(layers=(Layer(bare, first.merge), *stack.layers[1:]))


def identical(stack: Recurrent) -> Recurrent:
    """The stack with the identity as its input matrices."""
    return each(stack, lambda d: d.with_arrays({("input", gate): np.eye(d.hidden_size) for gate in d.cell.gates}))


def constants(**values: float) -> Callable[[Direction], Direction]:
    return lambda d: d.replace(cell=d.cell.replace(constants=values))


@dataclass(frozen=True)
class Case:
    """A stack that goes to a target by the rewrites named; `exact` as the steps say it."""

    stack: Recurrent
    target: str
    steps: dict[str, bool]
    accept: tuple[str, ...] = field(default=())


_K2 = Cell("lstm", gate_activation=HARD_SIGMOID_KERAS_2)
_COUPLED = Cell("lstm", coupled="f")
BEFORE = Cell("gru", reset_after=False)
UNEVEN = Sizes("lstm", 3, 4, 2, 2, 2, PROJECTED)

CASES = {
    "widen to one element type": Case(
        changed(random(LSTM), lambda d: d.with_arrays({("input_bias", "i"): np.array([0.1, 0.2, 0.3, 0.4], np.float32)})), "pytorch",
        {"widen to one element type": True},
    ),
    "sum biases": Case(random(LSTM), "keras", {"sum biases": False}),
    "sum biases, one zero": Case(zeroed(random(LSTM), "recurrent_bias"), "keras", {"sum biases": True}),
    "sum biases of rnn": Case(random(RNN), "keras", {"sum biases": False}),
    "add zero biases": Case(random(replace(LSTM, parts=PLAIN)), "cudnn", {"add zero biases": True}),
    "one bias into two": Case(random(replace(LSTM, parts=PLAIN | {"input_bias"})), "pytorch", {"add zero biases": True}),
    "recurrent bias into two": Case(random(replace(GRU, parts=PLAIN | {"recurrent_bias"})), "pytorch", {"add zero biases": True}),
    "fold run-time constants": Case(changed(random(LSTM), constants(f=1.0)), "pytorch", {"fold run-time constants": False}),
    "fold constants without biases": Case(
        changed(random(replace(LSTM, parts=PLAIN)), constants(f=1.0, i=-0.5)), "pytorch",
        {"fold run-time constants": False, "add zero biases": True},
    ),
    "write out the coupled gate f": Case(random(LSTM, _COUPLED), "pytorch", {"write out the coupled gate": False}),
    "write out the coupled gate i": Case(
        random(LSTM, _COUPLED.replace(coupled="i")), "onnx", {"write out the coupled gate": False}
    ),
    "coupled gate with peepholes": Case(
        random(replace(LSTM, parts=PEEPHOLES), _COUPLED.replace(coupled="i")), "onnx", {"write out the coupled gate": False}
    ),
    "coupled gate with a constant": Case(
        changed(random(LSTM, _COUPLED), constants(i=0.75)), "pytorch",
        {"write out the coupled gate": False, "fold run-time constants": False},
    ),
    "coupled gate of hard_sigmoid": Case(
        random(LSTM, _COUPLED.replace(gate_activation=HARD_SIGMOID_KERAS_3)), "keras",
        {"write out the coupled gate": False, "sum biases": False},
    ),
    "scale for the other hard_sigmoid": Case(
        random(LSTM, _K2), "keras", {"scale for the other hard_sigmoid": False, "sum biases": False}
    ),
    "scale with another beta": Case(
        random(GRU, Cell("gru", True, gate_activation=Activation("hard_sigmoid", 0.3, 0.4))), "keras",
        {"scale for the other hard_sigmoid": False},
    ),
    "scale the candidate": Case(
        random(GRU, Cell("gru", True, activation=HARD_SIGMOID_KERAS_2)), "keras", {"scale for the other hard_sigmoid": False}
    ),
    "drop zeros": Case(zeroed(random(replace(LSTM, parts=PEEPHOLES)), "peephole"), "pytorch", {"drop zeros": True}),
    "fold the projection": Case(random(replace(LSTM, parts=PROJECTED, projection_size=2)), "onnx", {"fold the projection": False}),
    "fold the projection, deep": Case(random(UNEVEN), "onnx", {"fold the projection": False}),
    "write the skipped input as identity": Case(
        skipping(random(replace(LSTM, input_size=4, num_layers=2))), "pytorch",
        {"write the skipped input as identity": True},
    ),
    "leave out identity matrices of the input": Case(
        identical(random(replace(RNN, input_size=4, parts=PLAIN))), "persistent_rnn.rnn",
        {"leave out identity matrices of the input": True},
    ),
    "drop biases of zero": Case(
        zeroed(zeroed(skipping(random(replace(RNN, input_size=4))), "input_bias"), "recurrent_bias"), "persistent_rnn.rnn",
        {"drop zeros": True},
    ),
    "move the reset gate": Case(
        diagonal(random(replace(GRU, parts=PLAIN | {"input_bias"}), BEFORE)), "pytorch",
        {"move the reset gate": True, "add zero biases": True},
    ),
    "move the reset gate, two biases": Case(
        diagonal(random(GRU, BEFORE)), "pytorch", {"move the reset gate": False, "add zero biases": True}
    ),
    "move the reset gate, one unit": Case(
        random(replace(GRU, hidden_size=1, parts=PLAIN), BEFORE), "cudnn",
        {"move the reset gate": True, "add zero biases": True},
    ),
    "write independent directions with zeros": Case(
        at_the_end(random(replace(GRU, num_layers=3, num_directions=2))), "pytorch",
        {"write independent directions with zeros": True},
    ),
    "fold the sum of directions": Case(
        merged(random(replace(LSTM, num_layers=2, num_directions=2)), "sum"), "pytorch",
        {"fold the sum of directions": False},
    ),
    "fold the mean of directions": Case(
        merged(random(replace(LSTM, num_layers=2, num_directions=2)), "ave"), "pytorch",
        {"fold the sum of directions": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_rewrite_leaves_the_function_as_it_is(name: str) -> None:
    case = CASES[name]
    part = fit_to_layout(case.stack, layouts(case.target), case.accept)
    assert {step.rewrite: step.exact for step in part.steps} == case.steps
    x = np.random.default_rng(7).uniform(-2, 2, (6, 3, case.stack.input_size))
    before, after = outputs_of(case.stack, x), outputs_of(part.stack, x)
    # With a folded projection the states are those before it; the outputs are the same.
    compared = 1 if "fold the projection" in case.steps else len(before)
    for expected, result in list(zip(before, after, strict=True))[:compared]:
        scale = max(1e-300, float(np.abs(expected).max()))
        assert np.abs(result - expected).max() <= RELATIVE * scale
    assert np.abs(before[0]).max() > 0.01


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if all(case.steps.values())])
def test_a_rewrite_that_says_so_is_bit_exact(name: str) -> None:
    """Every number written is the source's own, its negative, or zero or one."""
    case = CASES[name]
    part = fit_to_layout(case.stack, layouts(case.target))
    allowed = {0.0, 1.0}
    for _, _, direction in case.stack.directions():
        for source in direction.arrays.values():
            allowed |= set(np.abs(np.asarray(source)).reshape(-1).tolist())
    for _, _, direction in part.stack.directions():
        for source in direction.arrays.values():
            assert set(np.abs(np.asarray(source)).reshape(-1).tolist()) <= allowed


SPLITS = {"join layers into one stack", "split a stack into layers", "split directions"}


def test_every_rewrite_is_tested_here() -> None:
    applied = {name for case in CASES.values() for name in case.steps}
    assert applied | SPLITS == set(REWRITES)


def test_layers_of_a_split_stack_compute_what_the_stack_did() -> None:
    stack = random(replace(GRU, num_layers=3, num_directions=2))
    x = np.random.default_rng(1).uniform(-1, 1, (5, 2, 3))
    y = x
    for layer in rewrites.split_stack(stack):
        assert layer.num_layers == 1
        y = reference.run(layer, y).y
    np.testing.assert_array_equal(y, reference.run(stack, x).y)


def test_joined_layers_compute_what_they_did_one_after_the_other() -> None:
    stack = random(replace(LSTM, num_layers=3, num_directions=2))
    x = np.random.default_rng(1).uniform(-1, 1, (5, 2, 3))
    joined = rewrites.join_stack(rewrites.split_stack(stack), "joined")
    assert (joined.name, joined.num_layers) == ("joined", 3)
    np.testing.assert_array_equal(reference.run(joined, x).y, reference.run(stack, x).y)


def test_stacks_whose_directions_meet_at_the_end_are_joined_with_zeros() -> None:
    first = at_the_end(random(replace(GRU, num_layers=2, num_directions=2)))
    second = random(replace(GRU, input_size=8), seed=2)
    x = np.random.default_rng(1).uniform(-1, 1, (5, 2, 3))
    expected = reference.run(second, reference.run(first, x).y).y
    y = reference.run(rewrites.join_stack([first, second]), x).y
    np.testing.assert_allclose(y, expected, rtol=RELATIVE)


def test_split_directions_are_the_halves_of_the_output() -> None:
    stack = random(replace(GRU, num_directions=2))
    x = np.random.default_rng(1).uniform(-1, 1, (5, 2, 3))
    halves = [reference.run(half, x).y for half in rewrites.split_directions(stack)]
    np.testing.assert_array_equal(np.concatenate(halves, -1), reference.run(stack, x).y)


def test_what_cannot_be_joined_or_split_is_said() -> None:
    first, second = random(LSTM), random(replace(LSTM, input_size=5), seed=2)
    with pytest.raises(ValueError, match="reads 5 values per step, but layer 0 gives 4"):
        rewrites.join_stack([first, second])
    with pytest.raises(ValueError, match="meet at every layer"):
        rewrites.split_directions(random(replace(LSTM, num_layers=2, num_directions=2)))
    backwards = changed(random(replace(LSTM, input_size=4)), lambda d: d.replace(reverse=True)).replace(output_order="processing")
    with pytest.raises(ValueError, match="cannot be joined"):
        rewrites.join_stack([backwards, backwards])


# Refusals -------------------------------------------------------------------------------------------


def learned(stack: Recurrent) -> Recurrent:
    return each(stack, lambda d: d.with_arrays({("initial_hidden", ""): np.full(d.output_size, 0.25)}))


def single_bias(stack: Recurrent) -> Fitted:
    """As into Keras's GRU with the reset gate before the product, or cuDNN's with one bias."""
    candidates = [layout for layout in layouts("cudnn") if layout.kind == stack.cell.kind]
    asked = [replace(layout, holds=replace(layout.holds, biases=("input",))) for layout in candidates]
    return fit_to_layout(stack, asked)


def to(target: str) -> Callable[[Recurrent], Fitted]:
    return lambda stack: fit_to_layout(stack, layouts(target))


_CLIP = rc.Clip("gates", -3.0, 3.0)
REFUSED: dict[str, tuple[Recurrent, Callable[[Recurrent], Fitted], list[str]]] = {
    "a bias inside the product, into one bias": (
        random(GRU), single_bias, ["inside the reset product", "r * (R h + b_r)", "{b_r}", "two biases"]
    ),
    "another reset gate": (
        random(GRU, BEFORE), to("pytorch"), ["R (r * h)", "r * (R h + b_r)", "R of gate n has {off}", "onnx"]
    ),
    "another reset gate in cuDNN": (random(GRU, BEFORE), to("cudnn"), ["R of gate n has {off}", "keras"]),
    "a projection and a learned state": (
        learned(random(replace(LSTM, parts=PROJECTED, projection_size=2))), to("onnx"),
        ["a learned initial state", "initial_hidden", "initial_state"],
    ),
    "coupled gates through relu": (
        random(LSTM, _COUPLED.replace(gate_activation=RELU)), to("pytorch"), ["coupled gates", "not for relu", "onnx"]
    ),
    "coupled gates through another hard_sigmoid": (
        random(LSTM, _COUPLED.replace(gate_activation=Activation("hard_sigmoid", 0.2, 0.4))), to("keras"),
        ["coupled gates", "hard_sigmoid(0.2, 0.4)"],
    ),
    "hard_sigmoid where there is only sigmoid": (random(LSTM, _K2), to("pytorch"), ["hard_sigmoid(0.2, 0.5)", "sigmoid"]),
    "a hard_sigmoid that is clipped before": (
        random(LSTM, _K2.replace(clips=(_CLIP,))), to("keras"), ["hard_sigmoid(0.2, 0.5)"]
    ),
    "an unknown function": (
        random(LSTM, Cell("lstm", activation=Activation("mish"))), to("onnx"), ["mish", "unknown function"]
    ),
    "an output through another function": (
        random(LSTM, Cell("lstm", output_activation=SIGMOID)), to("keras"), ["output through sigmoid", "h = o * act(c)"]
    ),
    "peepholes": (random(replace(LSTM, parts=PEEPHOLES)), to("pytorch"), ["peepholes", "p * c", "{peephole}", "onnx"]),
    "a clip": (
        random(LSTM, Cell("lstm", clips=(_CLIP,))), to("pytorch"), ["clip", "[-3, 3]", "W x + b + R h", "--set clip=none"]
    ),
    "a learned state": (learned(random(LSTM)), to("pytorch"), ["learned initial state", "0.25", "--set initial_state=call"]),
    "a reverse layer": (
        changed(random(LSTM), lambda d: d.replace(reverse=True)), to("pytorch"), ["h_t from h_(t-1)", "--set reverse=flipped"]
    ),
    "a product of directions": (
        merged(random(replace(LSTM, num_layers=2, num_directions=2)), "mul"), to("pytorch"), ["f * b", "--set stack=split"]
    ),
    "a sum at the end": (
        random(replace(LSTM, num_directions=2)).replace(
            layers=(Layer(random(replace(LSTM, num_directions=2)).layers[0].directions, "sum"),)
        ), to("cudnn"), ["f + b", "--set merge=concat"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_layer_the_equation_the_value_and_what_to_do(name: str) -> None:
    stack, convert, words = REFUSED[name]
    with pytest.raises(RefusedError) as caught:
        convert(stack.replace(name="encoder"))
    error = caught.value
    assert isinstance(error, ValueError) and error.exit_code == 4
    assert error.layer == "encoder" and str(error).startswith("layer 'encoder': ")
    assert error.target and error.feature and error.reason and error.remedy
    values = {}
    first = stack.first
    if first.cell.kind == "gru":
        matrix = first.get("recurrent", "n")
        bias = first.get("recurrent_bias", "n")
        assert matrix is not None and bias is not None
        values = {"off": f"{rewrites.largest(matrix - np.diag(np.diag(matrix)))[0]:.6g}", "b_r": f"{rewrites.largest(bias)[0]:.6g}"}
    if first.has_peepholes:
        peephole = first.get("peephole", "i")
        assert peephole is not None
        values["peephole"] = f"{rewrites.largest(peephole)[0]:.6g}"
    for word in words:
        assert word.format(**values) in str(error), str(error)


def test_a_zero_bias_inside_the_product_goes_into_one_bias() -> None:
    stack = without_inner_bias(random(GRU))
    part = single_bias(stack)
    x = np.random.default_rng(7).uniform(-2, 2, (6, 3, 3))
    np.testing.assert_allclose(outputs_of(part.stack, x)[0], outputs_of(stack, x)[0], rtol=RELATIVE, atol=RELATIVE)
    assert part.stack.first.biases == "input"


def test_a_sum_that_rounds_is_not_bit_exact_and_strict_refuses_it(tmp_path: object) -> None:
    stack = diagonal(random(GRU, BEFORE)).replace(name="g")
    checkpoint = rc.Checkpoint("(made)", "canonical", {"g": stack})
    with pytest.raises(RefusedError, match="--strict"):
        rc.save(checkpoint, f"{tmp_path}/out.pt", strict=True)
    zero = zeroed(stack, "recurrent_bias")
    assert rc.save(checkpoint.replace(layers={"g": zero}), f"{tmp_path}/out.pt", strict=True).exact


def test_layers_of_two_element_types_are_not_cast_unasked(tmp_path: object) -> None:
    layer = random(LSTM).replace(name="one")
    two = each(
        random(replace(LSTM, input_size=4)), lambda d: d.with_arrays({k: np.asarray(v).astype(np.float32) for k, v in d.arrays.items()})
    ).replace(name="two")
    checkpoint = rc.Checkpoint("(made)", "canonical", {"one": layer, "two": two})
    for target in ("out.onnx", "out.keras", "out.pt", "out.bin"):
        with pytest.raises(RefusedError, match="float32"):
            rc.save(checkpoint, f"{tmp_path}/{target}", stack="join")


def test_what_the_caller_takes_over_is_a_step_of_its_own() -> None:
    part = fit_to_layout(learned(random(LSTM)), layouts("pytorch"), ["initial_state"])
    assert [step.detail for step in part.steps] == ["initial_hidden left to the caller"]
    assert not any(key[0].startswith("initial") for key in part.stack.first.arrays)
