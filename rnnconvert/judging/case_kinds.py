"""The kinds of case, each with what it draws."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.cells import Cell
from rnnconvert.core.reference import FUNCTIONS, Function, Outputs, Reading, Reference
from rnnconvert.core.weights import Direction, Recurrent

Way = Literal["whole", "halves", "steps"]


@dataclass(frozen=True)
class Case:
    """The inputs of a layer.

    name        its name for users
    what        the same in words
    x           (time, batch, in)
    hidden      initial states, layer by layer and in a layer its directions, each (batch, out); None for the default
    cell        initial cell states of an LSTM, each (batch, hidden), likewise; empty for other cells
    lengths     how many steps of each sequence count, (batch,); None for all
    way         the sequence whole, in two "halves" with the state carried over, or "steps" one by one
    cotangents  weights of each output in a sum whose gradients are compared; None for no gradients
    far         functions that read more here than the exponential of float32 can give, although they are finite
    """

    name: str
    what: str
    x: Array
    hidden: tuple[Array, ...] | None = None
    cell: tuple[Array, ...] | None = None
    lengths: Array | None = None
    way: Way = "whole"
    cotangents: Outputs | None = None
    far: tuple[str, ...] = ()

    def solve(
        self, stack: Recurrent, dtype: Any = np.float64, readings: Collection[Reading] = (), functions: Mapping[str, Function] = FUNCTIONS
    ) -> Outputs:
        """Compute the reference's outputs for the whole sequence, in that arithmetic."""
        return Reference(stack, dtype, readings, functions).run(self.x, self.hidden, self.cell or None, self.lengths)


def state_widths(stack: Recurrent) -> tuple[list[int], list[int]]:
    """Return the widths of a stack's hidden states, and of its cell states if it is an LSTM; in the order of its directions."""
    directions = [direction for *_, direction in stack.directions()]
    cell = [direction.hidden_size for direction in directions] if stack.cell.kind == "lstm" else []
    return [direction.output_size for direction in directions], cell


@dataclass(frozen=True)
class Skipped:
    """A case that does not apply to a layer, and why."""

    name: str
    why: str


def held(values: Array) -> Array:
    """Return the nearest numbers that bfloat16 holds, as float32."""
    return values.astype(np.float32).astype(BFLOAT16).astype(np.float32)


class Maker:
    """Random cases for one layer."""

    def __init__(self, stack: Recurrent, seed: int, batch: int, time: int) -> None:
        self.stack, self.batch, self.time = stack, batch, time
        self.random = np.random.default_rng(seed)

    def numbers(self, *shape: int) -> Array:
        return held(self.random.uniform(-1, 1, shape))

    def case(self, name: str, what: str, time: int = 0, batch: int = 0, **changes: Any) -> Case:
        """Return a case with random input and states, except for the changes given."""
        time, batch = time or self.time, batch or self.batch
        hidden, cell = (tuple(self.numbers(batch, width) for width in widths) for widths in state_widths(self.stack))
        result = Case(name, f"{what}; {size_in_words(time, batch)}", self.numbers(time, batch, self.stack.input_size), hidden, cell)
        return replace(result, **changes)

    def lengths(self, shortest: int = 1) -> Array:
        """Return lengths that differ: the longest and the shortest allowed, and random ones between."""
        lengths = self.random.integers(shortest, self.time + 1, self.batch)
        lengths[0], lengths[-1] = self.time, shortest
        return lengths


def _states(maker: Maker) -> Case:
    return maker.case("states", "random input and initial states")


def _default_states(maker: Maker) -> Case:
    return maker.case("default states", "no initial states given", hidden=None, cell=None)


def _lengths(maker: Maker) -> Case:
    return maker.case("lengths", "sequences of different lengths", lengths=maker.lengths())


def _empty(maker: Maker) -> Case:
    return maker.case("empty sequence", "one sequence of length zero", lengths=maker.lengths(0))


def _halves(maker: Maker) -> Case:
    return maker.case("halves", "in two halves, the state carried over", way="halves")


def _steps(maker: Maker) -> Case:
    return maker.case("step by step", "one step at a time, the state carried over", way="steps")


def _one_step(maker: Maker) -> Case:
    return maker.case("one step", "a single step", time=1)


def _one_sequence(maker: Maker) -> Case:
    return maker.case("one sequence", "a single sequence", batch=1)


def _long(maker: Maker) -> Case:
    return maker.case("long", "a long sequence", time=2000, batch=2)


def _scaled(name: str, what: str, factor: float) -> Callable[[Maker], Case]:
    def make(maker: Maker) -> Case:
        case = maker.case(name, what)
        return replace(case, x=held(case.x * np.float32(factor)))

    return make


def _saturating(maker: Maker) -> Case:
    case = maker.case("saturating", "input and states so large that gates saturate and clips are reached")
    x, hidden, cell = (tuple(held(a * np.float32(30)) for a in arrays or ()) for arrays in ((case.x,), case.hidden, case.cell))
    below = maker.stack.layers[0].directions
    larger = max(reaching(direction, x[0], "input") for direction in below)
    hidden = tuple(  # what a layer above reads from the one below is small
        state if number < len(below) else held(state * np.float32(reaching(direction, state, "recurrent")))
        for number, (state, (*_, direction)) in enumerate(zip(hidden, maker.stack.directions(), strict=True))
    )
    return replace(case, x=held(x[0] * np.float32(larger)), hidden=hidden, cell=cell, far=tuple(overflowing(maker.stack)))


OVERFLOWING = frozenset({"softplus", "elu", "selu", "silu", "gelu"})
"""Functions that are finite for every number, and that a kernel may compute from an exponential that is not: beyond 88 in float32."""

BEYOND = 128.0
"""The least that each gate of such a function reads in the case "saturating"."""

_MOST_LARGER = 1e4


def reaching(direction: Direction, x: Array, part: Literal["input", "recurrent"]) -> float:
    """Return by what an input or a state is multiplied so that functions in `OVERFLOWING` read more than BEYOND; 1 where a cell has none.

    part  the matrices that it is multiplied by
    """
    if not _overflowing(direction.cell):
        return 1.0
    steps = x.reshape(-1, x.shape[-1])
    reads = [
        float(np.abs(steps @ np.asarray(source, np.float64).reshape(-1, x.shape[-1]).T).max(axis=0).min())
        for (of, _), source in direction.arrays.items()
        if of == part
    ]
    if not reads or not min(reads) > 0:
        return 1.0
    return min(max(1.0, BEYOND / min(reads)), _MOST_LARGER)


def _overflowing(cell: Cell) -> list[str]:
    functions = (cell.activation, cell.gate_activation, cell.output_activation)
    return [function.name for function in functions if function.name in OVERFLOWING]


def overflowing(stack: Recurrent) -> list[str]:
    """Return the functions of a stack that a kernel may compute from an exponential that overflows."""
    return list(dict.fromkeys(name for *_, direction in stack.directions() for name in _overflowing(direction.cell)))


def _not_finite(maker: Maker) -> Case:
    case = maker.case("not finite", "NaN in one sequence, infinity in another, ordinary numbers in the others")
    case.x[maker.time // 2, 0, 0] = np.nan
    case.x[maker.time // 2, -1, 0] = np.inf
    return case


CASES: dict[str, Callable[[Maker], Case]] = {
    "states": _states,
    "default states": _default_states,
    "lengths": _lengths,
    "halves": _halves,
    "one step": _one_step,
    "step by step": _steps,
    "one sequence": _one_sequence,
    "empty sequence": _empty,
    "saturating": _saturating,
    "tiny": _scaled("tiny", "tiny input", 1e-20),
    "huge": _scaled("huge", "huge input", 1e30),
    "zero": _scaled("zero", "input of zeros", 0),
    "not finite": _not_finite,
    "long": _long,
}
"""Every case by name, the usual ones first."""


def size_in_words(time: int, batch: int) -> str:
    """Return the size of an input in words."""
    return f"{time} step{'s' if time != 1 else ''}, batch of {batch}"
