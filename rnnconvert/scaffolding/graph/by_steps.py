"""A direction of a recurrent layer for whose cell a framework has no operation, as a Scan: the equations of its cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Deferred, PiecewiseArray
from rnnconvert.core.weights import Direction
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.graph.scans import ScanValues, flipped, scan
from rnnconvert.scaffolding.graph.step_values import StepEquations, StepMatrix, StepValue
from rnnconvert.scaffolding.graph.writer import GraphWriter


class _StepName(StepValue):
    """A value of a graph under construction, by its name."""

    def __init__(self, g: GraphWriter, name: str, label: str) -> None:
        self.g, self.name, self.label = g, name, label

    def _of(self, operator: str, *inputs: str) -> _StepName:
        return _StepName(self.g, self.g.add(operator, [self.name, *inputs], f"{self.label}/{operator.lower()}"), self.label)

    def apply(self, operator: str, *others: _StepName | float) -> _StepName:
        return self._of(operator, *(other.name if isinstance(other, _StepName) else self.number(other).name for other in others))

    def number(self, value: float) -> _StepName:
        return _StepName(self.g, self.g.number(value), self.label)

    def __matmul__(self, matrix: StepMatrix[str]) -> _StepName:
        return self._of("MatMul", matrix.held)

    def __getitem__(self, part: Any) -> _StepName:
        """Return a part of the last axis."""
        last = part[-1] if isinstance(part, tuple) else part
        bounds = last.start or 0, np.iinfo(np.int64).max if last.stop is None else last.stop, -1
        return self._of("Slice", *map(self.g.integers, bounds))


def by_steps(g: GraphWriter, label: str, direction: Direction, x: str, lengths: str, states: Sequence[str], batch: int | None) -> list[str]:
    """Add a direction over x (time, batch, in): its outputs (time, batch, units) in the order of time, and its last states (batch, units).

    lengths  how many steps each sequence has, from the first on; "" for all
    states   the initial ones (batch, units); none for zeros
    batch    how many sequences there are, if that is stated

    The product with the input is computed for all steps at once. Raises RefusedError for a function without an operation.
    """
    cell = StepEquations(label, g.title, direction)
    per = 2 if direction.cell.kind == "lstm" else 1
    widths = [direction.output_size, direction.hidden_size][:per]

    def matrix(name: str, array: Array | PiecewiseArray) -> str:
        return g.constant(name, Deferred(array.shape[::-1], array.dtype, lambda: np.asarray(array).T))

    def row(name: str, numbers: Array | PiecewiseArray) -> _StepName:
        return _StepName(g, g.constant(name, np.asarray(numbers)), label)

    product = cell.from_input(_StepName(g, x, label), matrix, row).name
    sequences, reads = [product], [Value("x", (batch, len(direction.cell.gates) * direction.hidden_size))]
    if lengths:
        sequences.append(_counting(g, label, x, lengths))
        reads.append(Value("counts", (batch, 1), "bool"))
    sequences = [flipped(g, each, [0], f"{label}/turned") for each in sequences] if direction.reverse else sequences
    before = [Value(word, (batch, width)) for word, width in zip("hc", widths, strict=False)]
    if not states:
        size = g.add("Shape", [x], f"{label}/batch", start=1, end=2)
        shapes = [g.add("Concat", [size, g.integers(width)], f"{label}/state shape", axis=0) for width in widths]
        states = [g.add("Expand", [g.zero(), shape], f"{label}/zeros") for shape in shapes]

    def step() -> ScanValues:
        read = [_StepName(g, g(value), f"{label}/step") for value in before]
        after = cell.after_step(_StepName(g, g(reads[0]), f"{label}/step"), read, matrix, row)
        names = [value.name for value in after]
        if lengths:
            names = [g.add("Where", [g(reads[1]), new, g(old)], f"{label}/step/counted") for new, old in zip(names, before, strict=True)]
        values = [Value(value.name, value.shape) for value in before]
        for value, name in zip(values, names, strict=True):
            g.give(value, name)
        return ScanValues(values, values[:1])

    *ends, every = scan(g, label, states, sequences, ScanValues(before, reads), step)
    return [flipped(g, every, [0], f"{label}/in order") if direction.reverse else every, *ends]


def _counting(g: GraphWriter, label: str, x: str, lengths: str) -> str:
    """Add which steps (time, batch, 1) of sequences count."""
    time = g.add("Squeeze", [g.add("Shape", [x], f"{label}/time", start=0, end=1)], f"{label}/steps")
    places = g.add("Unsqueeze", [g.add("Range", [g.index(0), time, g.index(1)], f"{label}/places"), g.integers(1)], f"{label}/column")
    counts = g.add("Less", [places, g.cast(lengths, "int64", label)], f"{label}/counts")
    return g.add("Unsqueeze", [counts, g.integers(2)], f"{label}/counted")
