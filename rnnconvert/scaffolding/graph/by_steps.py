"""A direction of a recurrent layer for whose cell a framework has no operation, as a Scan: the equations of its cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rnnconvert.core.arrays import Array, Deferred, PiecewiseArray
from rnnconvert.core.cells import Activation
from rnnconvert.core.equations import Equations
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.language import outline
from rnnconvert.language.packing import pack
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.graph.scans import ScanValues, flipped, scan
from rnnconvert.scaffolding.graph.writer import GraphWriter


class StepGraph(Protocol):
    """What the equations of a cell are written in: operations of ONNX's names, and numbers, each by a name that stands for its value.

    title, unknown  the target, and why it has no operation for what it does not know
    """

    title: str

    @property
    def unknown(self) -> str: ...

    def number(self, value: float) -> str:
        """Return a number."""
        ...

    def integers(self, *values: int) -> str:
        """Return a list of whole numbers."""
        ...

    def constant(self, wanted: str, array: Any) -> str:
        """Return stored numbers."""
        ...

    def add(self, operator: str, inputs: Sequence[str], wanted: str) -> str:
        """Add an operation, and return its output."""
        ...


class _StepValue:
    """A value of a graph under construction, by its name: the arithmetic of rnnconvert.core.equations."""

    def __init__(self, g: StepGraph, name: str, label: str) -> None:
        self.g, self.name, self.label = g, name, label

    def apply(self, operator: str, *others: _StepValue | float) -> _StepValue:
        """Return the result of an operation on this value and others."""
        names = [other.name if isinstance(other, _StepValue) else self.g.number(other) for other in others]
        return _StepValue(self.g, self.g.add(operator, [self.name, *names], f"{self.label}/{operator.lower()}"), self.label)

    def __add__(self, other: _StepValue | float) -> _StepValue:
        return self.apply("Add", other)

    def __sub__(self, other: _StepValue | float) -> _StepValue:
        return self.apply("Sub", other)

    def __rsub__(self, other: float) -> _StepValue:
        return _StepValue(self.g, self.g.number(other), self.label).apply("Sub", self)

    def __mul__(self, other: _StepValue | float) -> _StepValue:
        return self.apply("Mul", other)

    def __truediv__(self, other: _StepValue | float) -> _StepValue:
        return self.apply("Div", other)

    def __matmul__(self, matrix: _StepMatrix) -> _StepValue:
        turned = Deferred(matrix.array.shape[::-1], matrix.array.dtype, lambda: np.asarray(matrix.array).T)
        return self.apply("MatMul", _StepValue(self.g, self.g.constant(matrix.name, turned), self.label))

    def __getitem__(self, part: Any) -> _StepValue:
        """Return a part of the last axis."""
        last = part[-1] if isinstance(part, tuple) else part
        bounds = last.start or 0, np.iinfo(np.int64).max if last.stop is None else last.stop, -1
        return self.apply("Slice", *(_StepValue(self.g, self.g.integers(bound), self.label) for bound in bounds))


class _StepMatrix:
    """A matrix (out, in), which acts from the right; parts of its columns there are rows here, and stored by themselves."""

    def __init__(self, name: str, array: Array | PiecewiseArray) -> None:
        self.name, self.array = name, array

    def __getitem__(self, part: tuple[slice, slice]) -> _StepMatrix:
        rows, width = range(self.array.shape[0])[part[1]], self.array.shape[1]
        return _StepMatrix(
            f"{self.name}/{rows.start}", Deferred((len(rows), width), self.array.dtype, lambda: np.asarray(self.array)[part[1]])
        )


def _elu(x: _StepValue, alpha: float) -> _StepValue:
    return x.apply("Relu") + (x.apply("Min", 0.0).apply("Exp") - 1.0) * alpha


_FUNCTIONS: Mapping[str, Callable[[_StepValue, Any, Any], _StepValue]] = {
    "sigmoid": lambda x, a, b: x.apply("Sigmoid"),
    "tanh": lambda x, a, b: x.apply("Tanh"),
    "relu": lambda x, a, b: x.apply("Relu"),
    "linear": lambda x, a, b: x,
    "affine": lambda x, a, b: x * a + b,
    "leaky_relu": lambda x, a, b: x.apply("Relu") + x.apply("Min", 0.0) * a,
    "scaled_tanh": lambda x, a, b: (x * b).apply("Tanh") * a,
    "hard_sigmoid": lambda x, a, b: (x * a + b).apply("Max", 0.0).apply("Min", 1.0),
    "elu": lambda x, a, b: _elu(x, a),
    "selu": lambda x, a, b: _elu(x, 1.6732632423543772) * 1.0507009873554805,
    "softsign": lambda x, a, b: x / (x.apply("Abs") + 1.0),
    "softplus": lambda x, a, b: x.apply("Relu") + (x.apply("Abs").apply("Neg").apply("Exp") + 1.0).apply("Log"),
    "exponential": lambda x, a, b: x.apply("Exp"),
    "silu": lambda x, a, b: x * x.apply("Sigmoid"),
}
"""The functions of gates; the equations are as in rnnconvert.core.reference."""


def _same(x: _StepValue) -> _StepValue:
    return x


def _clip(low: float, high: float) -> Callable[[_StepValue], _StepValue]:
    return lambda x: x.apply("Max", low).apply("Min", high)


class StepEquations(Equations):
    """The equations of a direction's cell and its numbers, on values of a graph."""

    def __init__(self, g: StepGraph, label: str, direction: Direction) -> None:
        """Take its functions and clips. Raises RefusedError for a function that is unknown here."""
        cell = direction.cell
        self.configure(cell, direction.hidden_size)
        self.g, self.label = g, label
        self._weights: Mapping[str, Array | PiecewiseArray] = pack(
            outline.layout(direction, outline.TORCH), Recurrent("", (Layer((direction,)),)), np.dtype(np.float32)
        )
        constants = outline.constants(cell, direction.hidden_size)
        self._constants = {} if constants is None else {"constants": constants.astype(np.float32)}
        self.candidate_function = self._function(cell.activation)
        self.gate_function = self._function(cell.gate_activation)
        self.output_function = self._function(cell.output_activation)
        clips = {clip.kind: _clip(clip.low, clip.high) for clip in cell.clips}
        self.clip_gates, self.clip_cell, self.clip_state, self.clip_projection = (
            clips.get(kind, _same) for kind in ("gates", "cell", "state", "projection")
        )

    def _function(self, activation: Activation) -> Callable[[_StepValue], _StepValue]:
        function, a, b = _FUNCTIONS.get(activation.name), activation.alpha, activation.beta
        if function is None:
            raise RefusedError(f"its activation {activation.name}", self.g.title, self.g.unknown, "", self.label)
        return lambda x: function(x, a, b)

    def value(self, name: str) -> _StepValue:
        """Return a value of the graph in a step."""
        return _StepValue(self.g, name, f"{self.label}/step")

    def _matrix(self, key: str) -> _StepMatrix:
        return _StepMatrix(f"{self.label}/{key}", self._weights[key])

    def _row(self, key: str) -> _StepValue | None:
        """Add stored numbers (gates * hidden,), if the cell has them."""
        numbers = self._weights.get(key, self._constants.get(key))
        return None if numbers is None else self.value(self.g.constant(f"{self.label}/{key}", np.asarray(numbers)))

    def from_input(self, x: str) -> str:
        """Return the part of all steps that comes from x (..., in): its product, and the numbers that are added to it."""
        product = _StepValue(self.g, x, self.label) @ self._matrix("weight_ih")
        for key in ("bias_ih", "constants") if self.reset_after else ("bias_ih", "bias_hh", "constants"):
            if (row := self._row(key)) is not None:
                product = product + row
        return product.name

    def after_step(self, product: str, states: Sequence[str]) -> list[str]:
        """Return the states after a step (batch, width): h, and c of an LSTM.

        product  what `from_input` returns, of this step
        states   those before the step
        """
        bias, peephole = self._row("bias_hh") if self.reset_after else None, self._row("weight_peephole")
        projection = self._matrix("weight_hr") if "weight_hr" in self._weights else None
        h, c = self.value(states[0]), self.value(states[-1])
        after = self.step(self.value(product), h, c, self._matrix("weight_hh"), bias, peephole, projection)
        return [value.name for value in after[: len(states)]]


def by_steps(
    g: GraphWriter, label: str, direction: Direction, x: str, lengths: str, states: Sequence[str], batch: int | None, words: str
) -> list[str]:
    """Add a direction over x (time, batch, in): its outputs (time, batch, units) in the order of time, and its last states (batch, units).

    lengths  how many steps each sequence has, from the first on; "" for all
    states   the initial ones (batch, units); none for zeros
    batch    how many sequences there are, if that is stated
    words    the layer, for a user

    The product with the input is computed for all steps at once. Raises RefusedError for a function without an operation.
    """
    cell = StepEquations(g, label, direction)
    per = 2 if direction.cell.kind == "lstm" else 1
    widths = [direction.output_size, direction.hidden_size][:per]
    sequences, reads = [x], [Value("x", (batch, len(direction.cell.gates) * direction.hidden_size))]
    if lengths:
        sequences.append(_counting(g, label, x, lengths))
        reads.append(Value("counts", (batch, 1), "bool"))
    # Turned before the product, and not behind it: so a reader knows it for a layer that reads from the end.
    sequences = [flipped(g, each, [0], f"{label}/turned") for each in sequences] if direction.reverse else sequences
    sequences[0] = cell.from_input(sequences[0])
    before = [Value(word, (batch, width)) for word, width in zip("hc", widths, strict=False)]
    if not states:
        size = g.add("Shape", [x], f"{label}/batch", start=1, end=2)
        shapes = [g.add("Concat", [size, g.integers(width)], f"{label}/state shape", axis=0) for width in widths]
        states = [g.add("ConstantOfShape", [shape], f"{label}/zeros") for shape in shapes]

    def step() -> ScanValues:
        names = cell.after_step(g(reads[0]), [g(value) for value in before])
        if lengths:
            names = [g.add("Where", [g(reads[1]), new, g(old)], f"{label}/step/counted") for new, old in zip(names, before, strict=True)]
        values = [Value(value.name, value.shape) for value in before]
        for value, name in zip(values, names, strict=True):
            g.give(value, name)
        return ScanValues(values, values[:1])

    *ends, every = scan(g, label, states, sequences, ScanValues(before, reads), step, words)
    return [flipped(g, every, [0], f"{label}/in order") if direction.reverse else every, *ends]


def _counting(g: GraphWriter, label: str, x: str, lengths: str) -> str:
    """Add which steps (time, batch, 1) of sequences count."""
    time = g.add("Squeeze", [g.add("Shape", [x], f"{label}/time", start=0, end=1)], f"{label}/steps")
    places = g.add("Unsqueeze", [g.add("Range", [g.index(0), time, g.index(1)], f"{label}/places"), g.integers(1)], f"{label}/column")
    counts = g.add("Less", [places, g.cast(lengths, "int64", label)], f"{label}/counts")
    return g.add("Unsqueeze", [counts, g.integers(2)], f"{label}/counted")
