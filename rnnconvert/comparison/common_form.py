"""Bring two layers into one form, so that what two formats write differently can be compared number by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.rewrites import (
    COUPLED_GATE,
    FOLD_MERGE,
    FOLD_PROJECTION,
    JOIN_WITH_ZEROS,
    MOVE_RESET_GATE,
    SCALE_HARD_SIGMOID,
    WIDEN,
    WRITE_IDENTITY,
    Rewrite,
    each,
)

Arguments = tuple[Any, ...]
"""What a rewrite is applied with."""


class Note(NamedTuple):
    """A change that brings two layers into one form.

    words     the whole in words
    rounds    whether it rounds
    left_out  whether something is not compared because of it
    """

    words: str
    rounds: bool = False
    left_out: bool = False


def to_common_form(a: Recurrent, b: Recurrent, *, outside: bool = True) -> tuple[Recurrent, Recurrent, list[Note]]:
    """Return both layers in one form, where an exact rewrite leads there, and what was done.

    outside  whether directions may be joined, and outputs reversed, outside of one of the layers, as two formats may have it;
             in two files of one format either is a difference
    """
    notes: list[Note] = []
    a, b = each(a, WIDEN.apply), each(b, WIDEN.apply)  # what is rewritten next rounds in the wider type
    for rewrite, wanted in _OF_STACKS_FIRST:
        a, b = _rewritten(rewrite, wanted, a, b, "A", notes), _rewritten(rewrite, wanted, b, a, "B", notes)
    for change, differs in _OF_DIRECTIONS:
        a = _each(change, differs, a, b, "A", notes)
        b = _each(change, differs, b, a, "B", notes)
    a, b = _folded(a, b, "A", notes), _folded(b, a, "B", notes)
    if not outside:
        return a, b, notes
    if _merged_outside(a, b):
        a = _side_by_side(a, b, "A", notes)
    elif _merged_outside(b, a):
        b = _side_by_side(b, a, "B", notes)
    if {a.output_order, b.output_order} == {"time", "processing"}:
        words = "reversing the outputs of a layer that reads from the end may happen outside of it and is not compared"
        notes.append(Note(words, left_out=True))
        a, b = a.replace(output_order="time"), b.replace(output_order="time")
    return a, b, notes


def _rewritten(
    rewrite: Rewrite[Recurrent, [], Recurrent],
    wanted: Callable[[Recurrent, Recurrent], bool],
    stack: Recurrent,
    model: Recurrent,
    side: str,
    notes: list[Note],
) -> Recurrent:
    """Rewrite a stack to be like another, where this is wanted and the rewrite applies."""
    if not wanted(stack, model) or rewrite.applies(stack):
        return stack
    notes.append(Note(f"{side}: {rewrite.name}", rounds=_may_round(rewrite)))
    return rewrite.apply(stack)


def _each(
    rewrite: Rewrite[Direction, ..., Direction],
    differs: Callable[[Direction, Direction], Arguments | None],
    stack: Recurrent,
    model: Recurrent,
    side: str,
    notes: list[Note],
) -> Recurrent:
    """Rewrite a stack's directions to be like their counterparts, each where the rewrite applies."""
    model_directions = {(index, number): direction for index, number, direction in model.directions()}
    layers, changed = [], False
    for index, layer in enumerate(stack.layers):
        directions = []
        for number, direction in enumerate(layer.directions):
            other = model_directions.get((index, number))
            arguments = None if other is None else differs(direction, other)
            if arguments is not None and rewrite.applies(direction, *arguments) is None:
                direction, changed = rewrite.apply(direction, *arguments), True
            directions.append(direction)
        layers.append(Layer(tuple(directions), layer.merge))
    if not changed:
        return stack
    notes.append(Note(f"{side}: {rewrite.name}", rounds=_may_round(rewrite)))
    return stack.replace(layers=tuple(layers))


def _may_round(rewrite: Rewrite[Any, ..., Any]) -> bool:
    return not rewrite.bit_exact or rewrite.rounds is not None


def like(direction: Direction, model: Direction) -> Direction:
    """Return a direction in the form of another, by those exact rewrites that apply."""
    for rewrite, differs in _OF_DIRECTIONS:
        arguments = differs(direction, model)
        if arguments is not None and rewrite.applies(direction, *arguments) is None:
            direction = rewrite.apply(direction, *arguments)
    return direction


def _folded(stack: Recurrent, model: Recurrent, side: str, notes: list[Note]) -> Recurrent:
    """Fold a stack's projections; drop the matrix on the output, too, where the other side has it outside the layer."""
    projected = any(d.projection_size for *_, d in stack.directions())
    if not projected or any(d.projection_size for *_, d in model.directions()) or FOLD_PROJECTION.applies(stack):
        return stack
    folded = FOLD_PROJECTION.apply(stack)
    outside = "" if model.readout else ", whose matrix on the output is outside the other's layer and is not compared"
    notes.append(Note(f"{side}: {FOLD_PROJECTION.name}{outside}", rounds=True, left_out=bool(outside)))
    return folded if model.readout else folded.replace(readout=())


def _merged_outside(stack: Recurrent, model: Recurrent) -> bool:
    """Return whether one adds its directions up, and the other leaves that to what follows, as an ONNX node does."""
    ours, theirs = stack.layers[-1], model.layers[-1]
    both = len(ours.directions) == len(theirs.directions) == 2
    return both and ours.merge in ("sum", "mul", "ave") and theirs.merge in ("concat", "none")


def _side_by_side(stack: Recurrent, model: Recurrent, side: str, notes: list[Note]) -> Recurrent:
    last = stack.layers[-1]
    words = f"{side}: joining directions by {last.merge} is outside the other's layer and is not compared"
    notes.append(Note(words, left_out=True))
    return stack.replace(layers=(*stack.layers[:-1], Layer(last.directions, model.layers[-1].merge)))


def _independent(stack: Recurrent, model: Recurrent) -> bool:
    deep = stack.num_layers > 1 and stack.num_directions > 1
    return deep and stack.join == "end" and model.join == "layer" and stack.num_directions == model.num_directions


def _added(side: Recurrent, model: Recurrent) -> bool:
    ours, theirs = ([layer.merge for layer in stack.layers[:-1]] for stack in (side, model))
    return side.num_directions == 2 and ours != theirs and bool({"sum", "ave"} & set(ours))


def _reads_weighted(direction: Direction, model: Direction) -> Arguments | None:
    return () if direction.skip_input and not model.skip_input else None


def _has_more_gates(direction: Direction, model: Direction) -> Arguments | None:
    return () if direction.cell.coupled and direction.cell.coupled != model.cell.coupled else None


def _other_function(role: str) -> Callable[[Direction, Direction], Arguments | None]:
    def differs(direction: Direction, model: Direction) -> Arguments | None:
        ours, theirs = getattr(direction.cell, role), getattr(model.cell, role)
        return (theirs, role) if direction.cell.kind == model.cell.kind and ours != theirs else None

    return differs


def _other_reset_gate(direction: Direction, model: Direction) -> Arguments | None:
    both = direction.cell.kind == model.cell.kind == "gru"
    return (model.cell.reset_after,) if both and direction.cell.reset_after != model.cell.reset_after else None


_OF_STACKS_FIRST: tuple[tuple[Rewrite[Recurrent, [], Recurrent], Callable[[Recurrent, Recurrent], bool]], ...] = (
    (JOIN_WITH_ZEROS, _independent),
    (FOLD_MERGE, _added),
)
_OF_DIRECTIONS: tuple[tuple[Rewrite[Direction, ..., Direction], Callable[[Direction, Direction], Arguments | None]], ...] = (
    (WRITE_IDENTITY, _reads_weighted),
    (COUPLED_GATE, _has_more_gates),
    (SCALE_HARD_SIGMOID, _other_function("gate_activation")),
    (SCALE_HARD_SIGMOID, _other_function("activation")),
    (MOVE_RESET_GATE, _other_reset_gate),
)
"""The rewrites in the order of rnnconvert.rewrites.fit_to_layout, each with the pairs that need it."""
