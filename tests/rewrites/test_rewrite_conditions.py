"""The condition of a rewrite is its own: it says yes where the function stays, and no where it would not.

For random stacks and every rewrite: `applies` says yes exactly where what `change` makes gives the same outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert import rewrites
from rnnconvert.comparison.difference import differences
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import SIGMOID, TANH, Activation, Cell, Clip
from rnnconvert.core.errors import RefusedError, RnnConvertError
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.adapter import adapter
from rnnconvert.files.convert import targets
from rnnconvert.files.options import Options
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import REWRITES, Rewrite, each
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from tests.helpers.drawn import looped
from tests.helpers.judging import outputs_of
from tests.helpers.stacks import BOTH, HARD, ON_THE_EDGE, Draw, random_stack

FLAT = Activation("hard_sigmoid", 0.0, 0.3)
SEEDS = range(200)


def random_case(seed: int) -> Recurrent:
    return Draw(seed, np.float64, scale=2).stack(ON_THE_EDGE)


def same(a: list[Array], b: list[Array]) -> bool:
    return len(a) == len(b) and all(
        array.shape == other.shape and np.allclose(array, other, rtol=1e-9, atol=1e-9) for array, other in zip(a, b, strict=True)
    )


def asked(stack: Recurrent) -> Iterator[tuple[Rewrite[Any, ..., Any], tuple[Any, ...]]]:
    """Every rewrite of one stack or of its directions, with what it may be given."""
    gates = stack.cell.gates
    yield rewrites.WIDEN, ()
    yield rewrites.SUM_BIASES, ()
    yield from ((rewrites.SUM_BIASES, ([gate], into)) for gate in gates for into in ("input_bias", "recurrent_bias"))
    yield rewrites.ZERO_BIASES, (["input_bias", "recurrent_bias"],)
    yield from ((rewrites.FOLD_CONSTANTS, (wanted,)) for wanted in ({}, {gates[0]: 1.0}))
    yield rewrites.COUPLED_GATE, ()
    for role, function in itertools.product(("activation", "gate_activation"), (*HARD, FLAT, SIGMOID)):
        if role == "activation" or stack.cell.kind != "rnn":
            yield rewrites.SCALE_HARD_SIGMOID, (function, role)
    parts = ("peephole", "input_bias", "recurrent_bias", "initial_hidden", "initial_cell")
    yield from ((rewrites.DROP_ZEROS, (part,)) for part in parts)
    yield from ((rewrites.MOVE_RESET_GATE, (after,)) for after in (True, False))
    yield from ((rewrite, ()) for rewrite in (rewrites.WRITE_IDENTITY, rewrites.DROP_IDENTITY))
    yield from ((rewrite, ()) for rewrite in (rewrites.FOLD_PROJECTION, rewrites.FOLD_MERGE, rewrites.JOIN_WITH_ZEROS))


OF_STACKS = ("fold the projection", "fold the sum of directions", "write independent directions with zeros")


def forced(rewrite: Rewrite[Any, ..., Any], stack: Recurrent, arguments: tuple[Any, ...]) -> Recurrent | None:
    """What a rewrite makes where nothing stops it; None where that is no stack at all."""
    try:
        of_stack = rewrite.name in OF_STACKS
        changed = rewrite.change(stack) if of_stack else each(stack, lambda d: rewrite.change(d, *arguments))
        reference.run(changed, np.zeros((1, 1, stack.input_size)))
        return changed
    except (ValueError, AssertionError, KeyError, ZeroDivisionError, TypeError):
        return None


def applies(rewrite: Rewrite[Any, ..., Any], stack: Recurrent, arguments: tuple[Any, ...]) -> bool:
    if rewrite.name in OF_STACKS:
        return rewrite.applies(stack) is None
    return all(rewrite.applies(d, *arguments) is None for *_, d in stack.directions())


def applies_exactly_where_it_keeps_the_function(stack: Recurrent, seed: int) -> None:
    # Small inputs show what large ones hide behind a bound, and the other way round.
    x = np.random.default_rng(seed).uniform(-1, 1, (7, 6, stack.input_size)) * np.geomspace(0.05, 3, 6)[:, None]
    for rewrite, arguments in asked(stack):
        changed = forced(rewrite, stack, arguments)
        states = rewrite is not rewrites.FOLD_PROJECTION
        same_function = changed is not None and same(outputs_of(stack, x, states), outputs_of(changed, x, states))
        assert applies(rewrite, stack, arguments) == same_function, (rewrite.name, arguments, stack)


@looped(80, seed=SEEDS)
def test_a_rewrite_applies_exactly_where_it_keeps_the_function(seed: int) -> None:
    applies_exactly_where_it_keeps_the_function(random_case(seed), seed)


def projecting(width: int, directions: int = 2) -> Layer:
    """A layer of 4 units whose outputs are 2 values, which begins with zeros of its own."""
    form = Sizes("lstm", width, 4, 1, directions, 2, BOTH | {"projection", "initial_hidden"})
    stack = each(random_stack(form, width), lambda d: d.with_arrays({("initial_hidden", ""): np.zeros(2)}))
    return stack.layers[0]


SELDOM = {
    "a projection and a state of zeros": Recurrent("", (projecting(3, 1),)),
    "projections that the layer above reads side by side": Recurrent("", (projecting(3), projecting(4))),
    "projections that each direction reads alone": Recurrent("", (projecting(3), projecting(2)), join="end"),
}
"""Stacks of which two hundred seeds draw one or two: a run that draws fewer of these would mostly miss a fault that only they show."""


@pytest.mark.parametrize("name", SELDOM)
def test_the_same_holds_for_what_is_seldom_drawn(name: str) -> None:
    stack = SELDOM[name]
    assert rewrites.FOLD_PROJECTION.applies(stack) is None
    applies_exactly_where_it_keeps_the_function(stack, 1)


def test_every_rewrite_is_asked_here() -> None:
    names = {rewrite.name for seed in SEEDS for rewrite, _ in asked(random_case(seed))}
    assert names | {"join layers into one stack", "split a stack into layers", "split directions"} == set(REWRITES)


def test_a_rewrite_that_does_not_apply_is_not_applied() -> None:
    stack = random_stack(Sizes("gru", 3, 4), 1)
    with pytest.raises(ValueError, match=r"move the reset gate does not apply: .* only where R is diagonal"):
        rewrites.MOVE_RESET_GATE.apply(stack.first, False)


# Who asks -------------------------------------------------------------------------------------------


def apart(stack: Recurrent) -> Recurrent:
    """The same weights with two gates of their own: input_forget 0 instead of 1."""
    return each(stack, lambda d: d.replace(cell=d.cell.replace(coupled="")))


@pytest.mark.parametrize(
    "cell",
    [
        Cell("lstm", coupled="f", gate_activation=Activation("hard_sigmoid", 0.2, 0.4)),
        Cell("lstm", coupled="f", clips=(Clip("gates", -0.1, 0.4),)),
        Cell("lstm", coupled="i", gate_activation=TANH),
    ],
    ids=["beta", "clip", "tanh"],
)
def test_diff_finds_what_a_coupled_gate_differs_in(cell: Cell) -> None:
    layer = random_stack(Sizes("lstm", 3, 4), 1, np.float32, cell)
    other = apart(layer)
    x = np.random.default_rng(1).uniform(-2, 2, (6, 3, 3))
    assert np.abs(reference.run(layer, x).y - reference.run(other, x).y).max() > 0.01
    for a, b in ((layer, other), (other, layer)):
        assert [difference.part for difference in differences(a, b) if not difference.equal] == ["coupled gates"]


def test_diff_looks_at_every_direction_of_a_coupled_stack() -> None:
    cell = Cell("lstm", coupled="f")
    recurrent = random_stack(Sizes("lstm", 3, 4, 1, 2), 1, np.float32, cell)
    odd = cell.replace(gate_activation=Activation("hard_sigmoid", 0.2, 0.4))
    layer = Layer((recurrent.first, recurrent.layers[0].directions[1].replace(cell=odd)))
    compared = differences(recurrent.replace(layers=(layer,)), apart(recurrent.replace(layers=(layer,))))
    assert [difference.part for difference in compared if not difference.equal and difference.direction == 1] == ["coupled gates"]


def test_diff_of_a_projection_with_a_learned_state_says_what_differs() -> None:
    parts = BOTH | {"projection", "initial_hidden"}
    layer = random_stack(Sizes("lstm", 3, 4, projection_size=2, parts=parts), 1, np.float32)
    other = random_stack(Sizes("lstm", 3, 4), 1, np.float32)
    for a, b in ((layer, other), (other, layer)):
        assert {"projection", "initial_hidden"} <= {difference.part for difference in differences(a, b) if not difference.equal}


SIZES = [Sizes(kind, 3, 4, layers, ways) for kind in ("rnn", "gru", "lstm") for layers in (1, 2) for ways in (1, 2)]
ASKED = [*(random_stack(form, 1, np.float32) for form in SIZES), *(random_case(seed) for seed in range(0, 200, 13))]


@pytest.mark.parametrize("stack", ASKED, ids=str)
def test_targets_and_conversion_agree(stack: Recurrent, tmp_path: Path) -> None:
    """What `targets` promises is written, and what it refuses is refused."""
    checkpoint = rc.Checkpoint("(made)", "canonical", {"made": stack.replace(name="made")})
    for verdict in targets(checkpoint):
        path = tmp_path / verdict.target / f"made{next(iter(adapter(verdict.target).SUFFIXES), '')}"
        path.parent.mkdir()
        if verdict.verdict == "refused":
            with pytest.raises(RnnConvertError):
                rc.save(checkpoint, path, verdict.target)
        else:
            assert rc.save(checkpoint, path, verdict.target).exact == (verdict.verdict == "exact")


def test_a_clip_to_bounds_that_differ_is_refused_where_the_clip_is_one_number() -> None:
    for kind, framework in (("gates", "onnx"), ("cell", "tensorflow1")):
        cell = Cell("lstm", clips=(Clip(kind, -0.1, 0.4),))  # type: ignore[arg-type]
        with pytest.raises(RefusedError, match="bounds that differ"):
            fit_to_layout(random_stack(Sizes("lstm", 3, 4), 1, np.float32, cell), adapter(framework).layouts(Options()))


@pytest.mark.parametrize(("kind", "other", "framework"), [("state", "cell", "tensorflow1"), ("cell", "state", "cudnn")])
def test_the_two_clips_of_a_cell_state_are_told_apart(kind: Any, other: str, framework: str) -> None:
    cell = Cell("lstm", clips=(Clip(kind, -0.4, 0.4),))
    places = {"cell": r"c' = clip\(f \* c \+ i \* g\)", "state": r"c' = f \* clip\(c\) \+ i \* g"}
    reason = f"it computes {places[kind]}.*, but the target computes {places[other]}.*: another final cell state, and other outputs where"
    with pytest.raises(RefusedError, match=reason):
        fit_to_layout(random_stack(Sizes("lstm", 3, 4), 1, np.float32, cell), adapter(framework).layouts(Options()))


def test_split_directions_keep_the_order_of_the_outputs() -> None:
    stack = random_stack(Sizes("gru", 3, 4, 1, 2), 1).replace(output_order="processing")
    x = np.random.default_rng(1).uniform(-1, 1, (5, 2, 3))
    halves = [reference.run(half, x).y for half in rewrites.split_directions(stack)]
    np.testing.assert_array_equal(np.concatenate(halves, -1), reference.run(stack, x).y)
