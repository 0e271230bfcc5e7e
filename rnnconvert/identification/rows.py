"""Readings of one structure in tables: a row for each, with what a first step from a zero state can decide, and what it cannot."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import GATES, PEEPHOLE_GATES, Cell
from rnnconvert.core.weights import BIAS_PARTS
from rnnconvert.identification.conventions import FORGET_BIAS, SIGNED, Functions, functions, reset_modes
from rnnconvert.identification.reading import LayerReading
from rnnconvert.identification.structures import SearchRound, candidates_only
from rnnconvert.language.layout import Layout


class RowReadings(NamedTuple):
    """Readings of one structure, each a row; all share the functions and the reset mode.

    weights     which of the structure's gates each gate is in W, (rows, gates); likewise in the biases and in R
    peepholes   likewise of the gates that have one
    negated     whether the update gate is stored with the other sign
    forget      the constant that is added to the forget gate at run time
    """

    functions: Functions
    reset_after: bool | None
    weights: Array
    biases: Array
    recurrents: Array
    peepholes: Array
    negated: Array
    forget: Array

    def chosen(self, rows: Array) -> RowReadings:
        """Return some of the rows."""
        return RowReadings(self.functions, self.reset_after, *(column[rows] for column in self[2:]))

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.weights)


def slots_of(layout: Layout) -> tuple[str, ...]:
    """Return the structure's gates: one that is coupled has no numbers."""
    return _slots(layout.kind, layout.coupled)


def _slots(kind: str, coupled: str) -> tuple[str, ...]:
    return tuple(gate for gate in GATES[kind] if gate != coupled)


@functools.cache
def _orders(kind: str, coupled: str, shared: bool) -> Array:
    """Return the orders in which the structure's gates may be the gates, a row each.

    shared  whether arrays are shared by several gates, so that they cannot be exchanged
    """
    count = len(_slots(kind, coupled))
    every = [range(count)] if shared else itertools.permutations(range(count))
    return np.array([list(order) for order in every], int)


def _added(kind: str) -> tuple[float, ...]:
    """Return the constants that may be added to the forget gate at run time."""
    return (0.0, FORGET_BIAS) if kind == "lstm" else (0.0,)


@functools.cache
def begun(kind: str, coupled: str, shared: bool, held: frozenset[str], tied: bool, plain: bool) -> tuple[RowReadings, ...]:
    """Return the readings that a first step from a zero state can decide; R has its gates in the order of W until that is changed.

    held         the kinds of biases that there are, and the gates that have a peephole
    tied, plain  as a SearchRound has them
    """
    orders = _orders(kind, coupled, shared)
    seeing = [gate for gate in PEEPHOLE_GATES if gate in held]
    peepholes = np.array(list(itertools.permutations(range(len(seeing)))), int)
    every = range(len(orders))
    both = not tied and bool(held & set(BIAS_PARTS))
    pairs = itertools.product(every, every) if both else ((entry, entry) for entry in every)
    signs = (False, True) if kind in SIGNED else (False,)
    # Where the input gate is what the forget gate leaves, a first step shows what is added to it.
    added = _added(kind) if coupled == "i" else (0.0,)
    combinations = [(*pair, *more) for pair in pairs for more in itertools.product(range(len(peepholes)), signs, added)]
    first, second, seen, sign, forget = (np.array(column) for column in zip(*combinations, strict=True))
    return tuple(
        RowReadings(chosen, reset, orders[first], orders[second], orders[first], peepholes[seen], sign.astype(bool), forget)
        for chosen in functions(kind, plain)
        for reset in reset_modes(kind)
    )


def completed(rows: RowReadings, layout: Layout, tier: SearchRound) -> RowReadings:
    """Return readings with everything that a first step cannot show: the order of R, and what is added at run time."""
    orders = _orders(layout.kind, layout.coupled, bool(layout.letters))
    count = 1 if tier.tied else len(orders)
    if layout.coupled == "i":
        result = rows.chosen(np.repeat(np.arange(rows.number), count))
        return result if tier.tied else result._replace(recurrents=np.tile(orders, (rows.number, 1)))
    added = np.array(_added(layout.kind))
    index = np.repeat(np.arange(rows.number), count * len(added))
    result = rows.chosen(index)
    if not tier.tied:
        result = result._replace(recurrents=np.tile(np.repeat(orders, len(added), axis=0), (rows.number, 1)))
    return result._replace(forget=np.tile(added, rows.number * count))


def varied(reading: LayerReading) -> Iterator[RowReadings]:
    """Yield the readings with the same places and other functions, constants and reset modes."""
    layout = reading.structure.layout
    slots = slots_of(layout)
    gates = list(slots)

    def of(part: str, names: Sequence[str]) -> Array:
        order = reading.orders.get(part, {})
        return np.array([[names.index(order.get(gate, gate)) for gate in names]], int)

    seeing = [gate for gate in PEEPHOLE_GATES if gate in reading.orders.get("peephole", {})]
    biases = next((part for part in BIAS_PARTS if not candidates_only(layout, part)), "input_bias")
    single = RowReadings(
        functions(layout.kind, True)[0],
        None,
        of("input", gates),
        of(biases, gates),
        of("recurrent", gates),
        of("peephole", seeing),
        np.array([reading.negated]),
        np.zeros(1),
    )
    added = np.array(_added(layout.kind))
    rows = single.chosen(np.zeros(len(added), int))._replace(forget=added)
    for chosen in [f for plain in (True, False) for f in functions(layout.kind, plain)]:
        for reset in reset_modes(layout.kind):
            yield rows._replace(functions=chosen, reset_after=reset)


def reading_of(base: LayerReading, rows: RowReadings, row: int) -> LayerReading:
    """Return one row as a reading."""
    layout = base.structure.layout
    slots = slots_of(layout)
    gate, candidate, output = rows.functions
    constants = {"f": float(rows.forget[row])} if rows.forget[row] else {}
    cell = Cell(cast(Any, layout.kind), rows.reset_after, candidate, gate, output, cast(Any, layout.coupled), constants)

    def named(order: Array, names: Sequence[str]) -> dict[str, str]:
        return {gate: names[slot] for gate, slot in zip(names, order, strict=True)}

    keys = {slot.key for slot in base.structure.places}
    seeing = [gate for gate in PEEPHOLE_GATES if ("peephole", gate) in keys]
    orders = {
        "input": named(rows.weights[row], slots),
        "recurrent": named(rows.recurrents[row], slots),
        "peephole": named(rows.peepholes[row], seeing),
    }
    for part in BIAS_PARTS:
        same = {gate: gate for gate in slots}
        orders[part] = same if candidates_only(layout, part) else named(rows.biases[row], slots)
    return replace(base, cell=cell, orders=orders, negated=bool(rows.negated[row]))
