"""Bring a stack into the form that a framework's cell can hold, by exact rewrites, or say why not.

`fit_to_layout` goes through the features of a cell one by one. What the target has stays unchanged; what it lacks is rewritten where an
exact rewrite exists; everything else is refused with the equation that differs, the value that stands in the way, and what the user can do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.rewrites import Step
from rnnconvert.rewrites.fit_to_layout import cell, joins, weights
from rnnconvert.rewrites.fit_to_layout.cell import allows as allows
from rnnconvert.rewrites.fit_to_layout.work import Fitting
from rnnconvert.rewrites.left_to_caller import ACCEPTS as ACCEPTS


@dataclass(frozen=True)
class Fitted:
    """A stack in the form that a layout holds, and the rewrites that brought it there."""

    stack: Recurrent
    layout: Layout
    steps: tuple[Step, ...]


@np.errstate(all="ignore")  # numbers that are not finite are looked at like any other
def fit_to_layout(stack: Recurrent, layouts: Sequence[Layout], accept: Iterable[str] = (), retyped: bool = False) -> Fitted:
    """Return a stack in the form of the first of a framework's layouts that can hold it.

    accept   what the caller takes over, names of ACCEPTS
    retyped  whether the caller chose the element type that is written: then that of the stack does not have to be held

    Raises RefusedError where no exact rewrite leads there.
    """
    cells = [direction.cell for _, _, direction in stack.directions()]
    mixed = len({(cell.kind, cell.reset_after) for cell in cells}) > 1
    if mixed and not layouts[0].holds.mixed_directions:
        raise RefusedError(
            "two directions or layers of different kinds",
            layouts[0].framework,
            " and ".join(sorted({cell.kind for cell in cells})) + " cannot share one set of arrays",
            joins.splitting(stack, layouts[0].holds, joins.differ_within(stack, lambda d: (d.cell.kind, d.cell.reset_after))),
            stack.name,
        )
    work = Fitting(stack, _choose(stack, layouts), frozenset(accept), retyped=retyped)
    settled = mixed and work.layout.holds.mixed_directions
    with _within_range(work.target):
        if settled:
            _each_by_itself(work, layouts)
        for feature in _FEATURES:
            if not settled or feature in _OF_STACKS:
                feature(work)
    return Fitted(work.stack, work.layout, tuple(work.steps))


@contextlib.contextmanager
def _within_range(target: str) -> Iterator[None]:
    """Refuse a rewrite that makes a finite weight infinite."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError:
        raise RefusedError(
            "weights this large",
            target,
            "a rewrite would make one of them infinite in its element type",
            "Convert the source's weights to a type with a larger range first.",
        ) from None


def _each_by_itself(work: Fitting, layouts: Sequence[Layout]) -> None:
    """Bring every direction into the layout of its own cell, for a stack with cells of several kinds."""
    layers = []
    for layer in work.stack.layers:
        changed = []
        for direction in layer.directions:
            single = Recurrent(work.stack.name, (Layer((direction,)),))
            single_work = Fitting(single, _choose(single, layouts), work.accepted, retyped=work.retyped)
            for feature in _FEATURES:
                if feature not in _OF_STACKS:
                    feature(single_work)
            work.steps += [step for step in single_work.steps if step not in work.steps]
            changed.append(single_work.stack.first)
        layers.append(Layer(tuple(changed), layer.merge))
    projected = [d for layer in layers for d in layer.directions if d.projection_size]
    if projected and "projection" not in work.layout.part_names:
        raise work.refuse("a projection next to cells of another kind", "folding needs a projection in each of them", "Split the stack.")
    work.stack = work.stack.replace(layers=tuple(layers))


def _choose(stack: Recurrent, layouts: Sequence[Layout]) -> Layout:
    of_kind = [layout for layout in layouts if layout.kind == stack.cell.kind and layout.writable]
    # A cell whose gates are its own does not go where one of them has no arrays.
    of_kind = [layout for layout in of_kind if layout.coupled in ("", stack.cell.coupled)]
    if not of_kind:
        named = {"rnn": "a plain RNN", "gru": "a GRU", "lstm": "an LSTM"}[stack.cell.kind]
        raise RefusedError(
            named,
            layouts[0].framework,
            "it does not have this cell",
            registry.conversion(
                lambda layout: layout.kind == stack.cell.kind and layout.coupled in ("", stack.cell.coupled), "which has it"
            ),
            stack.name,
        )
    same = [layout for layout in of_kind if layout.reset_after == stack.cell.reset_after]
    same = same or of_kind
    if any(direction.has_peepholes for _, _, direction in stack.directions()):
        return next((layout for layout in same if "peephole" in layout.part_names), same[0])
    return same[0]


_OF_STACKS = (joins.read_out, joins.unconvertible, weights.projection, joins.directions, joins.joins, joins.alike)
# In this order: a rewrite may rely on the ones before it (a coupled gate is written out before its weights are scaled).
_FEATURES = (
    weights.element_type, joins.read_out, joins.unconvertible, cell.reset_gate, cell.coupled, cell.constants,
    cell.activations, weights.skip_input, weights.unweighted, weights.peepholes, cell.clips, weights.projection,
    weights.initial_states, weights.biases, joins.directions, joins.joins, joins.alike,
)  # fmt: skip
