"""One step of a recurrent layer in basic operations: what the equations of cells ask of values, for a room that adds operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from rnnconvert.core.arrays import Array, Deferred, PiecewiseArray
from rnnconvert.core.cached import cached_property
from rnnconvert.core.cells import Activation
from rnnconvert.core.equations import Equations
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.language import outline
from rnnconvert.language.packing import pack

Step = TypeVar("Step", bound="StepValue")
Held = TypeVar("Held")


class StepValue(ABC):
    """A value in the graph of a step: the arithmetic of rnnconvert.core.equations."""

    @abstractmethod
    def apply(self: Step, operator: str, *others: Step | float) -> Step:
        """Return the result of a common operation on this value and others."""

    @abstractmethod
    def number(self: Step, value: float) -> Step:
        """Return a stored number of the same graph."""

    @abstractmethod
    def __matmul__(self: Step, matrix: StepMatrix[Any]) -> Step:
        """Return its product with a stored matrix, whose numbers are stored by that."""

    def __add__(self: Step, other: Step | float) -> Step:
        return self.apply("Add", other)

    def __sub__(self: Step, other: Step | float) -> Step:
        return self.apply("Sub", other)

    def __rsub__(self: Step, other: float) -> Step:
        return self.number(other).apply("Sub", self)

    def __mul__(self: Step, other: Step | float) -> Step:
        return self.apply("Mul", other)

    def __truediv__(self: Step, other: Step | float) -> Step:
        return self.apply("Div", other)


class StepMatrix(Generic[Held]):
    """A stored matrix, (out, in), which acts from the right; parts of its columns there are rows here, and stored by themselves."""

    def __init__(self, store: Callable[[str, Array | PiecewiseArray], Held], name: str, array: Array | PiecewiseArray) -> None:
        """Begin with nothing stored.

        store  stores numbers under a name, and returns what they are called by
        """
        self._store, self._name, self._array = store, name, array

    @cached_property
    def held(self) -> Held:
        """The name under which its numbers are stored, which happens now."""
        return self._store(self._name, self._array)

    def __getitem__(self, part: tuple[slice, slice]) -> StepMatrix[Held]:
        rows, width = range(self._array.shape[0])[part[1]], self._array.shape[1]
        array = Deferred((len(rows), width), self._array.dtype, lambda: np.asarray(self._array)[part[1]])
        return StepMatrix(self._store, f"{self._name}/{rows.start}", array)


def _elu(x: StepValue, alpha: float) -> StepValue:
    return x.apply("Relu") + (x.apply("Min", 0.0).apply("Exp") - 1.0) * alpha


_FUNCTIONS: Mapping[str, Callable[[Any, Any, Any], StepValue]] = {
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


def _function(name: str, title: str, activation: Activation) -> Callable[[StepValue], StepValue]:
    function, a, b = _FUNCTIONS.get(activation.name), activation.alpha, activation.beta
    if function is None:
        raise RefusedError(f"its activation {activation.name}", title, f"no operator of {title}'s is known for it", "", name)
    return lambda x: function(x, a, b)


def _same(x: StepValue) -> StepValue:
    return x


def _clip(low: float, high: float) -> Callable[[StepValue], StepValue]:
    return lambda x: x.apply("Max", low).apply("Min", high)


class StepEquations(Equations):
    """The equations of a direction's cell and its numbers, on values of a graph.

    weights  its numbers as PyTorch holds them, float32
    """

    def __init__(self, name: str, title: str, direction: Direction) -> None:
        """Take its functions and clips.

        name   the layer's, as a refusal has it
        title  the framework's, likewise

        Raises RefusedError for a function that is unknown here.
        """
        cell = direction.cell
        self.configure(cell, direction.hidden_size)
        self.name = name
        self.weights: Mapping[str, Array | PiecewiseArray] = pack(
            outline.layout(direction, outline.TORCH), Recurrent("", (Layer((direction,)),)), np.dtype(np.float32)
        )
        constants = outline.constants(cell, direction.hidden_size)
        self._constants = {} if constants is None else {"constants": constants.astype(np.float32)}
        self.candidate_function = _function(name, title, cell.activation)
        self.gate_function = _function(name, title, cell.gate_activation)
        self.output_function = _function(name, title, cell.output_activation)
        clips = {clip.kind: _clip(clip.low, clip.high) for clip in cell.clips}
        self.clip_gates, self.clip_cell, self.clip_state, self.clip_projection = (
            clips.get(kind, _same) for kind in ("gates", "cell", "state", "projection")
        )

    @property
    def input_rows(self) -> dict[str, Array | PiecewiseArray]:
        """The numbers that are added to the product of the inputs, (gates * hidden,) each, by name."""
        biases = ("bias_ih",) if self.reset_after else ("bias_ih", "bias_hh")
        return {key: self.weights[key] for key in biases if key in self.weights} | self._constants

    def from_input(
        self, x: Step, matrix: Callable[[str, Array | PiecewiseArray], Held], row: Callable[[str, Array | PiecewiseArray], Step]
    ) -> Step:
        """Return the part of a step that comes from x (batch, in): its product, and the numbers that are added to it.

        matrix  stores a matrix (out, in) under a name; returns the operand of `@`
        row     stores a vector under a name; returns its value
        """
        product = x @ self._matrix("weight_ih", matrix)
        for key, numbers in self.input_rows.items():
            product = product + row(f"{self.name}/{key}", numbers)
        return product

    def after_step(
        self,
        product: Step,
        states: Sequence[Step],
        matrix: Callable[[str, Array | PiecewiseArray], Held],
        row: Callable[[str, Array | PiecewiseArray], Step],
    ) -> list[Step]:
        """Return the states after a step (batch, width): h, and c of an LSTM.

        product      what `from_input` returns
        states       those before the step
        matrix, row  as `from_input` has them
        """

        def stored(key: str) -> Step | None:
            return row(f"{self.name}/{key}", self.weights[key]) if key in self.weights else None

        bias, peephole = stored("bias_hh") if self.reset_after else None, stored("weight_peephole")
        projection = self._matrix("weight_hr", matrix) if "weight_hr" in self.weights else None
        recurrent = self._matrix("weight_hh", matrix)
        return [*self.step(product, states[0], states[-1], recurrent, bias, peephole, projection)[: len(states)]]

    def _matrix(self, key: str, store: Callable[[str, Array | PiecewiseArray], Held]) -> StepMatrix[Held]:
        return StepMatrix(store, f"{self.name}/{key}", self.weights[key])
