"""Random layers of everything that the canonical form can say, for the modules of ours that must compute it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.cells import ACTIVATION_DEFAULTS, SIGMOID, TANH, Activation, Cell, Clip
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Direction, Key, Layer, Merge, Recurrent, gates_of
from rnnconvert.judging.case_kinds import state_widths
from rnnconvert.language.layout import Sizes
from tests.helpers.judging import Problem
from tests.helpers.stacks import BOTH, random_stack

TIME, BATCH, WIDTH = 5, 3, 4
"""Of every problem; the hidden size is WIDTH too where the input is read unweighted."""

PEEPHOLES = BOTH | {"peephole"}

ONNX = ("sigmoid", "tanh", "relu", "affine", "leaky_relu", "scaled_tanh", "hard_sigmoid", "elu", "softsign", "softplus")
"""The functions that ONNX's operators have, without those whose constants its text and onnxruntime dispute."""


class Maker:
    """Random layers, one for each seed.

    onnx  whether to keep to what ONNX's operators compute
    """

    def __init__(self, seed: int, onnx: bool = False, dtype: str = "float32") -> None:
        self.rng = np.random.default_rng(seed)
        self.onnx, self.dtype = onnx, dtype

    def one_of(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def sometimes(self, chance: float = 0.3) -> bool:
        return bool(self.rng.random() < chance)

    def numbers(self, *shape: int) -> Array:
        spread = 1 / np.sqrt(shape[-1]) if len(shape) == 2 else 0.5
        return (self.rng.uniform(-1, 1, shape) * spread).astype(self.dtype)

    def function(self, standard: Activation, *names: str) -> Activation:
        if self.sometimes(0.5):
            return standard
        name = self.one_of(*names)
        takes = ACTIVATION_DEFAULTS[name]
        alpha, beta = (None if default is None else float(round(self.rng.uniform(0.2, 0.8), 2)) for default in takes)
        return Activation(name, alpha, beta)

    def cell(self, kind: Any) -> Cell:
        names = ONNX if self.onnx else tuple(ACTIVATION_DEFAULTS)
        bounded = ("hard_sigmoid", "softsign", "tanh", "scaled_tanh")
        clips = [Clip("gates", -0.75, 0.75)] if self.sometimes() else []
        if not self.onnx and kind == "lstm":
            clips += [Clip(self.one_of("cell", "state"), -0.25, 0.5)] if self.sometimes() else []
            clips += [Clip("projection", -0.125, 0.25)] if self.sometimes() else []
        cell = Cell(
            kind, bool(self.rng.integers(2)) if kind == "gru" else None, self.function(TANH, *names),
            self.function(SIGMOID, *bounded) if kind != "rnn" else SIGMOID, clips=tuple(clips),
        )  # fmt: skip
        if self.sometimes():
            cell = cell.replace(constants={self.one_of(*cell.gates): 0.75})
        if kind == "lstm":
            coupled = self.one_of("f", "i") if not self.onnx else "f"
            cell = cell.replace(output_activation=self.function(TANH, *names), coupled=coupled if self.sometimes() else "")
        return cell

    def direction(self, cell: Cell, reads: int, hidden: int, reverse: bool, skip: bool) -> Direction:
        projected = cell.kind == "lstm" and not self.onnx and self.sometimes()
        out = 2 if projected else hidden
        shapes: dict[str, tuple[int, ...]] = {"input": (hidden, reads), "recurrent": (hidden, out)}
        if skip and reads == hidden:
            del shapes["input"]
        for part, having in (
            ("input_bias", self.sometimes(0.7)), ("recurrent_bias", self.sometimes(0.7)),
            ("peephole", cell.kind == "lstm" and self.sometimes(0.5)), ("initial_cell", cell.kind == "lstm" and self.sometimes()),
        ):  # fmt: skip
            shapes |= {part: (hidden,)} if having else {}
        shapes |= {"initial_hidden": (out,)} if self.sometimes() else {}
        shapes |= {"projection": (out, hidden)} if projected else {}
        arrays: dict[Key, Source] = {
            (part, gate): self.numbers(*shape) for part, shape in shapes.items() for gate in gates_of(cell.kind, part)
        }
        return Direction(cell, arrays, reverse)

    def stack(self, kind: str = "", plain: bool = False) -> Recurrent:
        """A stack of one kind, or of any; a plain one has forward and backward directions of one cell and one size."""
        count, ways = self.one_of(1, 1, 2, 3), self.one_of(1, 2)
        kinds = [kind] if kind else ["rnn", "gru", "lstm"] if self.sometimes(0.2) else [self.one_of("rnn", "gru", "lstm")]
        join = self.one_of("layer", "layer", "end")
        shared = self.cell(kinds[0])
        layers: list[Layer] = []
        reads = [WIDTH] * ways
        for index in range(count):
            directions = []
            for number in range(ways):
                cell = shared if plain or self.sometimes(0.5) else self.cell(self.one_of(*kinds))
                hidden = WIDTH if plain or self.sometimes(0.7) else 3
                reverse = number == 1 if plain or self.sometimes(0.5) else self.sometimes(0.5)
                directions.append(self.direction(cell, reads[number], hidden, reverse, index == 0 and self.sometimes()))
            widths = [direction.output_size for direction in directions]
            even = len(set(widths)) == 1
            merge: Merge = self.one_of("concat", "sum", "mul", "ave", "none") if even else "concat"
            layers.append(Layer(tuple(directions), merge))
            reads = widths if join == "end" else [layers[-1].output_size] * ways
        readout = tuple(self.numbers(2, width) for width in widths) if self.sometimes(0.2) else ()
        order: Literal["time", "processing"] = "processing" if self.sometimes(0.2) else "time"
        return Recurrent("random", tuple(layers), join, order, readout)


def problem(stack: Recurrent, seed: int, states: bool, lengths: bool = False) -> Problem:
    """What a layer is given: random input, and random states or its own."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (TIME, BATCH, stack.input_size)).astype(stack.dtype)
    hidden, cell = (tuple(rng.uniform(-1, 1, (BATCH, width)).astype(stack.dtype) for width in widths) for widths in _widths(stack))
    long = np.array([3, TIME, 1]) if lengths else None
    return Problem(stack, x, hidden if states else None, cell if states else None, long)


READ_BOUNDS = ((-0.25, 0.5), (0.125, 0.5), (-0.5, -0.125), (-np.inf, 0.125), (0.0625, np.inf), (0.25, 0.25))
"""Bounds of a cell state where it is read: some exclude zero, some are one-sided."""


def read_clipped(bounds: tuple[float, float], seed: int, lengths: bool = False) -> Problem:
    """An LSTM whose cell state is clipped where it is read, with initial and final ones outside of the bounds."""
    projection, parts = (0, PEEPHOLES) if seed % 2 else (2, BOTH | {"projection"})
    form = Sizes("lstm", WIDTH, 5, 1 + seed // 2 % 2, 1 + seed // 4 % 2, projection, parts)
    stack = random_stack(form, seed, np.float32, Cell("lstm", clips=(Clip("state", *bounds),)))
    clipped = problem(stack, seed, True, lengths)
    for states in (clipped.cell, clipped.solved().cell):
        values = np.stack(states or ())
        assert ((values < bounds[0] - 0.01) | (values > bounds[1] + 0.01)).any()
    return clipped


def _widths(stack: Recurrent) -> tuple[list[int], list[int]]:
    hidden, _ = state_widths(stack)
    return hidden, [direction.hidden_size for *_, direction in stack.directions()]


def has_cell(stack: Recurrent) -> bool:
    """Whether any direction is an LSTM."""
    return any(direction.cell.kind == "lstm" for *_, direction in stack.directions())


def solved_one_by_one(problem: Problem) -> list[Outputs]:
    """Each sequence by itself, as long as it is."""
    assert problem.lengths is not None
    results = []
    for row, length in enumerate(problem.lengths):
        single = slice(row, row + 1)
        hidden, cell = (None if s is None else tuple(state[single] for state in s) for s in (problem.hidden, problem.cell))
        results.append(reference.run(problem.stack, problem.x[:length, single], hidden, cell))
    return results


def near(actual: Array, exact: Array, tolerance: float = 1e-10) -> bool:
    """Whether numbers computed in float64 are the same but for rounding."""
    assert actual.shape == exact.shape and np.isfinite(actual).all()
    return bool(np.abs(actual - exact).max(initial=0) <= tolerance * max(1.0, float(np.abs(exact).max(initial=0))))


def swapped(stack: Recurrent) -> Recurrent:
    """The stack with the first two gates of its first direction in each other's place."""
    first = stack.first
    a, b = first.cell.gates[:2]
    arrays = {key: first.arrays.get((key[0], {a: b, b: a}.get(key[1], key[1])), value) for key, value in first.arrays.items()}
    directions = (first.replace(arrays=arrays), *stack.layers[0].directions[1:])
    return stack.replace(layers=(Layer(directions, stack.layers[0].merge), *stack.layers[1:]))
