"""What a form cannot hold is refused for every direction of a stack, not only for the first that has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation, Cell, Clip
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Merge, Recurrent
from rnnconvert.language import registry
from rnnconvert.language.layout import Holds, Layout, Sizes
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import SUM_BIASES
from rnnconvert.rewrites.fit_to_layout import Fitted, fit_to_layout
from tests.helpers.stacks import BOTH, PLAIN, random_stack


def to(target: str, stack: Recurrent, *accept: str) -> Fitted:
    return fit_to_layout(stack, [layout for layout in registry.frameworks()[target] if layout.writable], accept)


def stack_of(kind: str, layers: int = 2, directions: int = 1, **more: Any) -> Recurrent:
    cell = more.pop("cell", None)
    return random_stack(Sizes(kind, 3, 3, layers, directions, **more), 5, cell=cell)


def changed(stack: Recurrent, layer: int, number: int, change: Callable[[Direction], Direction]) -> Recurrent:
    """The stack with one of its directions changed."""
    layers = [list(old.directions) for old in stack.layers]
    layers[layer][number] = change(layers[layer][number])
    replaced = (Layer(tuple(directions), old.merge) for directions, old in zip(layers, stack.layers, strict=True))
    return stack.replace(layers=tuple(replaced))


def same(stack: Recurrent, other: Recurrent) -> bool:
    x: Array = np.random.default_rng(1).uniform(-1, 1, (4, 2, stack.input_size))
    return bool(np.allclose(reference.run(stack, x).y, reference.run(other, x).y, atol=1e-12))


def backwards(direction: Direction) -> Direction:
    return direction.replace(reverse=not direction.reverse)


def diagonal(direction: Direction) -> Direction:
    matrix = np.asarray(direction.arrays["recurrent", "n"])
    return direction.with_arrays({("recurrent", "n"): np.diag(np.diag(matrix))})


@pytest.mark.parametrize("target", ["pytorch", "cudnn"])
@pytest.mark.parametrize("accept", [(), ("reverse",), ("reverse", "output_order")], ids=str)
@pytest.mark.parametrize(("directions", "layer", "number"), [(1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 1)])
def test_a_stack_that_turns_round_between_its_layers_is_refused(
    target: str, accept: tuple[str, ...], directions: int, layer: int, number: int
) -> None:
    stack = changed(stack_of("lstm", 2, directions), layer, number, backwards)
    with pytest.raises(RefusedError, match="read in other directions"):
        to(target, stack, *accept)


@pytest.mark.parametrize("directions", [1, 2])
def test_processing_order_is_left_to_the_caller_only_where_one_flip_makes_it(directions: int) -> None:
    stack = stack_of("lstm", 2, directions).replace(output_order="processing")
    with pytest.raises(RefusedError, match="processing order"):
        to("pytorch", stack, "output_order")


def test_every_layers_candidate_must_be_diagonal_for_its_reset_gate_to_move() -> None:
    stack = changed(stack_of("gru", parts=PLAIN, cell=Cell("gru", False)), 0, 0, diagonal)
    with pytest.raises(RefusedError, match="only where R is diagonal"):
        to("pytorch", stack)
    moved = to("pytorch", changed(stack, 1, 0, diagonal))
    assert moved.stack.cell.reset_after
    assert same(moved.stack, changed(stack, 1, 0, diagonal))


def test_a_reset_gate_is_moved_bit_exactly_only_where_no_biases_are_summed() -> None:
    def without_biases(direction: Direction) -> Direction:
        return direction.with_arrays({("recurrent_bias", g): np.zeros(3) for g in direction.cell.gates})

    stack = changed(stack_of("gru", 1, parts=BOTH, cell=Cell("gru", False)), 0, 0, diagonal)
    assert [step.exact for step in to("pytorch", stack).steps if "reset" in step.rewrite] == [False]
    stack = changed(stack, 0, 0, without_biases)
    assert [step.exact for step in to("pytorch", stack).steps if "reset" in step.rewrite] == [True]


def coupled(**more: Any) -> Callable[[Direction], Direction]:
    return lambda direction: direction.replace(cell=Cell("lstm", coupled="i", **more))


def test_every_coupled_gate_must_be_a_sigmoid() -> None:
    stack = changed(stack_of("lstm", cell=Cell("lstm", coupled="i")), 1, 0, coupled(gate_activation=Activation("tanh")))
    with pytest.raises(RefusedError, match="holds for sigmoid, not for tanh"):
        to("keras", stack)


def test_a_coupled_gate_is_written_out_under_a_clip_with_bounds_alike_only() -> None:
    even, uneven = (Clip("gates", low, 0.3) for low in (-0.3, -0.1))
    stack = stack_of("lstm", 1, cell=Cell("lstm", coupled="i", clips=(even,)))
    assert same(stack, to("onnx", stack).stack)
    with pytest.raises(RefusedError, match="symmetric bounds"):
        to("onnx", stack_of("lstm", 1, cell=Cell("lstm", coupled="i", clips=(uneven,))))


def projected(merge: Merge, layers: int = 2) -> Recurrent:
    form = Sizes("lstm", 3, 4, 1, 2, 2, PLAIN | {"projection"})
    first = random_stack(form, 5).layers[0]
    form = Sizes("lstm", 4 if merge == "concat" else 2, 4, 1, 2, 2, PLAIN | {"projection"})
    above = random_stack(form, 6).layers[0]
    return Recurrent("layer", (Layer(first.directions, merge), above)[:layers])


@pytest.mark.parametrize("merge", ["concat", "sum", "ave"])
def test_a_projection_is_folded_through_the_sum_of_directions(merge: Merge) -> None:
    stack = projected(merge)
    assert same(stack, to("keras", stack).stack)


def test_a_projection_is_not_folded_through_a_product_of_directions() -> None:
    with pytest.raises(RefusedError, match="joined by mul"):
        to("keras", projected("mul"))
    assert same(projected("mul", 1), to("keras", projected("mul", 1)).stack)


def test_a_state_of_zeros_does_not_hinder_a_projection_from_being_folded() -> None:
    def started(direction: Direction) -> Direction:
        return direction.with_arrays({("initial_hidden", ""): np.zeros(2)})

    stack = changed(projected("concat"), 0, 1, started)
    assert same(stack, to("keras", stack).stack)


def skipping(direction: Direction) -> Direction:
    return direction.with_arrays({key: None for key in direction.arrays if key[0] == "input"})


@pytest.mark.parametrize("target", ["cudnn", "knet", "persistent_rnn", "onnx"])
@pytest.mark.parametrize("coupled", ["f", "i"])
def test_an_unweighted_input_is_negated_with_the_gate_that_is_written_out(target: str, coupled: Any) -> None:
    stack = changed(stack_of("lstm", 1, cell=Cell("lstm", coupled=coupled)), 0, 0, skipping)
    assert same(stack, to(target, stack).stack)


def test_an_unweighted_input_is_scaled_with_its_gates() -> None:
    stack = stack_of("lstm", 1, cell=Cell("lstm", gate_activation=Activation("hard_sigmoid", 0.2, 0.5)))
    stack = changed(stack, 0, 0, skipping)
    held = Holds(gate_activations=(Activation("hard_sigmoid", 1 / 6, 0.5),), skip_input=True)
    assert same(stack, fit_to_layout(stack, [replace(registry.layouts()["cudnn.lstm"], holds=held)]).stack)


@pytest.mark.parametrize("target", ["cudnn", "pytorch", "keras"])
@pytest.mark.parametrize(("layer", "number"), [(0, 0), (0, 1), (1, 0)])
def test_one_unweighted_input_of_several_gets_weights(target: str, layer: int, number: int) -> None:
    stack = changed(stack_of("rnn", 2) if layer else stack_of("rnn", 1, 2), layer, number, skipping)
    moved = to(target, stack)
    assert same(stack, moved.stack)
    assert not any(direction.skip_input for _, _, direction in moved.stack.directions())


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("target", ["lux", "lux.lstm_0_5"])
def test_a_learned_state_of_one_direction_stands_beside_zeros(target: str, number: int) -> None:
    start: Array = np.array([0.3, -0.2, 0.1])
    stack = changed(stack_of("lstm", 1, 2), 0, number, lambda d: d.with_arrays({("initial_hidden", ""): start}))
    framework, _, variant = target.partition(".")
    layouts = [entry for entry in registry.frameworks()[framework] if entry.writable and entry.name == f"{framework}.{variant or 'lstm'}"]
    held = fit_to_layout(stack, layouts)
    assert same(stack, held.stack)
    assert "forward_rnn/hidden_state" in pack(held.layout, held.stack)


def test_a_clip_without_bounds_is_kept_only_where_the_target_has_its_kind() -> None:
    clips = tuple(Clip(kind, -np.inf, np.inf) for kind in ("gates", "cell"))
    stack = stack_of("lstm", 1, cell=Cell("lstm", clips=clips))
    assert [clip.kind for clip in to("pytorch", stack).stack.cell.clips] == []
    assert [clip.kind for clip in to("onnx", stack).stack.cell.clips] == ["gates"]


def test_states_left_to_the_caller_change_no_number() -> None:
    stack = stack_of("lstm", 1, parts=(*PLAIN, "initial_hidden", "initial_cell"))
    steps = to("pytorch", stack, "initial_state").steps
    assert [(step.rewrite, step.exact) for step in steps] == [("initial_state", True)] * 2


def test_a_bias_of_zeros_alone_is_its_own_sum() -> None:
    zero = stack_of("lstm", 1, parts=PLAIN).first.with_arrays({("input_bias", gate): np.zeros(3) for gate in "ifgo"})
    summed = SUM_BIASES.apply(zero)
    assert [np.asarray(summed.get("input_bias", gate)).tolist() for gate in "ifgo"] == [[0.0] * 3] * 4


@pytest.mark.parametrize(("layers", "directions", "words"), [(2, 1, "layers that differ"), (1, 2, "directions that differ")])
def test_what_cannot_share_one_set_of_arrays_is_named(layers: int, directions: int, words: str) -> None:
    relu = Cell("rnn", activation=Activation("relu"))
    stack = changed(stack_of("rnn", layers, directions), layers - 1, directions - 1, lambda direction: direction.replace(cell=relu))
    with pytest.raises(RefusedError) as refused:
        to("pytorch", stack)
    assert refused.value.feature.startswith(words)


def test_directions_of_several_cells_report_the_rewrites_of_each() -> None:
    forward, backward = stack_of("lstm", 1, parts=BOTH), stack_of("gru", 1, parts=BOTH, cell=Cell("gru", True))
    stack = Recurrent("random", (Layer((forward.first, backwards(backward.first))),))
    steps = to("tensorflow1", stack).steps
    assert [(step.rewrite, step.exact) for step in steps] == [("fold run-time constants", False), *[("sum biases", False)] * 2]


@pytest.mark.parametrize(("layers", "directions", "settings"), [(1, 2, {"directions", "reverse"}), (2, 1, {"stack"}), (2, 2, {"stack"})])
def test_directions_that_no_flip_makes_right_are_split_by_layer_or_by_direction(layers: int, directions: int, settings: set[str]) -> None:
    with pytest.raises(RefusedError) as refused:
        to("pytorch", changed(stack_of("lstm", layers, directions), 0, 0, backwards))
    assert {*re.findall(r"(\w+)=", str(refused.value))} == settings


@pytest.mark.parametrize(
    ("target", "stack", "unnamed"),
    [
        ("pytorch", changed(stack_of("lstm", 2), 0, 0, backwards), ["lasagne", "tutorials"]),  # layers of one direction, each by itself
        ("coreml", changed(stack_of("gru", 1, parts=BOTH, cell=Cell("gru", True)), 0, 0, diagonal), []),
    ],
    ids=["directions", "a bias inside the reset product"],
)
def test_the_formats_that_a_refusal_names_are_those_that_hold_what_it_refuses(target: str, stack: Recurrent, unnamed: list[str]) -> None:
    with pytest.raises(RefusedError) as refused:
        to(target, stack)
    named = re.findall(r"\w+", re.findall(r"Convert to (.*?), wh", str(refused.value))[0].replace(" or ", " "))
    candidates = [
        layout for several in registry.frameworks().values() for layout in several if layout.writable and layout.kind == stack.cell.kind
    ]

    def holds(layout: Layout) -> bool:
        try:
            fit_to_layout(stack, [layout], retyped=True)
        except RefusedError as error:
            return error.feature != refused.value.feature
        return True

    assert sorted([*named, *unnamed]) == sorted({layout.name.partition(".")[0] for layout in filter(holds, candidates)})
