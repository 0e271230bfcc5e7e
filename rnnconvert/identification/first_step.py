"""What one step from a zero state settles of a reading: which blocks of W and of the biases are which gates, and the functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import (
    GATES,
    HARD_SIGMOID_KERAS_2,
    HARD_SIGMOID_KERAS_3,
    PEEPHOLE_GATES,
    SIGMOID,
    TANH,
    Activation,
    Cell,
)
from rnnconvert.core.reference import stepper
from rnnconvert.core.weights import Direction, Key
from rnnconvert.identification.reading import Reading
from rnnconvert.identification.structures import Structure, Tier, candidates_only
from rnnconvert.language.layout import Layout

_NAMED = (
    "tanh",
    "relu",
    "sigmoid",
    "linear",
    "softsign",
    "softplus",
    "silu",
    "gelu",
    "selu",
    "elu",
    "exponential",
    "leaky_relu",
)
_CANDIDATES = (*map(Activation, _NAMED), Activation("leaky_relu", 0.3), HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3)
_GATES = (SIGMOID, HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3)

Functions = tuple[Activation, Activation, Activation]
"""Of the gates, of the candidate, of an LSTM's output."""


class Settled(NamedTuple):
    """What the first step decides of a reading."""

    weights: tuple[str, ...]
    biases: tuple[str, ...]
    negated: bool
    reset_after: bool | None
    functions: Functions
    peepholes: tuple[str, ...] = ()


def _slots(layout: Layout) -> tuple[str, ...]:
    return tuple(gate for gate in GATES[layout.kind] if gate != layout.coupled)


def products(x: Array, blocks: Mapping[Key, Array], units: Array, layout: Layout) -> dict[str, Array]:
    """Return W x of each of the structure's gates; of an input that is read unweighted, the input."""
    with np.errstate(all="ignore"):
        products = {gate: x @ value.T for (part, gate), value in blocks.items() if part == "input"}
    return products or {gate: x[:, units] for gate in _slots(layout)}


def one_step(reading: Reading, settled: Settled, blocks: Mapping[Key, Array], products: Mapping[str, Array]) -> Array:
    """Return the output of one step from a zero state, of which R has no part."""
    cell = reading.cell
    own = reading.direction({key: value for key, value in blocks.items() if key[0] != "input"}, False).arrays
    slots = _slots(reading.structure.layout)
    given = {}
    for gate, slot in zip(slots, settled.weights, strict=True):
        value = -products[slot] if settled.negated and gate == "z" else products[slot]
        given[gate] = value
    if cell.coupled:
        given[cell.coupled] = -given[{"i": "f", "f": "i"}[cell.coupled]]
    for gate, part in itertools.product(cell.gates, ("input_bias", "recurrent_bias")):
        inside = part == "recurrent_bias" and cell.reset_after and gate == "n"
        if (part, gate) in own and not inside:
            given[gate] = given[gate] + own[part, gate]
    rows, size = given[cell.gates[0]].shape
    none, zero = np.zeros((size, 1)), np.zeros((rows, size))
    arrays = {**own, **{("recurrent", gate): none for gate in cell.gates}}
    if cell.kind == "gru" and not cell.reset_after:
        # What is reset is zero; the bias stands outside.
        arrays.pop(("recurrent_bias", "n"), None)
        cell = cell.replace(reset_after=True)
    step = stepper(np, Direction(cell, arrays), arrays, ())
    with np.errstate(all="ignore"):
        h, _ = step(np.concatenate([given[gate] for gate in cell.gates], -1), np.zeros((rows, 1)), zero)
    return np.asarray(h)


def _orders(layout: Layout) -> list[tuple[str, ...]]:
    gates = _slots(layout)
    shared = bool(layout.letters)
    return [gates] if shared else list(itertools.permutations(gates))


def choices(structure: Structure, blocks: Mapping[Key, Array], tier: Tier) -> Iterator[Settled]:
    """Yield what the first step may settle."""
    layout = structure.layout
    orders = _orders(layout)
    two = layout.kind == "gru"
    seeing = tuple(gate for gate in PEEPHOLE_GATES if ("peephole", gate) in blocks)
    peepholes = list(itertools.permutations(seeing))
    both = {part for part, _ in blocks} & {"input_bias", "recurrent_bias"}
    for chosen in functions(layout.kind, tier.plain):
        for weights in orders:
            # Without biases they have no order.
            for biases in [weights] if tier.tied or not both else orders:
                if not tier.tied and biases == weights and len(orders) == 1:
                    continue
                for negated in (False, True) if two else (False,):
                    for reset in (True, False) if two else (None,):
                        for seen in peepholes:
                            yield Settled(weights, biases, negated, reset, chosen, seen)


def functions(kind: str, plain: bool) -> list[Functions]:
    if plain:
        return [(SIGMOID, TANH, TANH)]
    gates = _GATES if kind != "rnn" else _GATES[:1]
    every = [
        (gate, candidate, output)
        for gate, candidate in itertools.product(gates, _CANDIDATES)
        for output in (dict.fromkeys((candidate, TANH)) if kind == "lstm" else (TANH,))
    ]
    return [one for one in every if one != (SIGMOID, TANH, TANH)]


def settle(base: Reading, settled: Settled) -> Reading:
    """Return a reading with what the first step settles; R has its gates in W's order until that is changed."""
    layout = base.structure.layout
    gate, candidate, output = settled.functions
    cell = Cell(cast(Any, layout.kind), settled.reset_after, candidate, gate, output, cast(Any, layout.coupled))
    slots = _slots(layout)
    weights, biases = (dict(zip(slots, one, strict=True)) for one in (settled.weights, settled.biases))
    seeing = [gate for gate in PEEPHOLE_GATES if gate in settled.peepholes]
    orders = {"input": weights, "recurrent": weights, "peephole": dict(zip(seeing, settled.peepholes, strict=True))}
    for part in ("input_bias", "recurrent_bias"):
        orders[part] = dict(zip(slots, slots, strict=True)) if candidates_only(layout, part) else biases
    return replace(base, cell=cell, orders=orders, negated=settled.negated)


def completed(reading: Reading, tier: Tier) -> Iterator[Reading]:
    """Yield a reading with everything that a first step cannot show: the order of R, and what is added at run time."""
    layout = reading.structure.layout
    slots = _slots(layout)
    own = reading.orders["input"]
    orders = [own] if tier.tied else [dict(zip(slots, one, strict=True)) for one in _orders(layout)]
    constants: list[dict[str, float]] = [{}, {"f": 1.0}] if layout.kind == "lstm" else [{}]
    for order, constant in itertools.product(orders, constants):
        made = replace(
            reading, orders={**reading.orders, "recurrent": order}, cell=reading.cell.replace(constants=constant)
        )
        yield made
