"""A graph as basic operators of TFLite are added to it: values by their places, with element types.

Whole numbers are computed in 32 bits, which every kernel takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray

FLOAT, INT, BOOL = 0, 2, 6
"""Numbers of element types."""


def kind_of(dtype: np.dtype[Any]) -> int:
    """Return the number of the element type in which numbers of a type are computed."""
    return {"f": FLOAT, "V": FLOAT, "b": BOOL}.get(dtype.kind, INT)


def computed(array: Array | PiecewiseArray) -> Array | PiecewiseArray:
    """Return stored numbers in the type that is computed with: whole ones are 32 bits wide, and those beyond them the last."""
    kind = kind_of(array.dtype)
    if array.dtype == np.float32 or kind == BOOL:
        return array
    stored = np.asarray(array)
    if kind == FLOAT:
        return stored.astype("<f4")
    ends = np.iinfo(np.int32)
    return np.asarray(np.clip(stored, ends.min, ends.max), "<i4")


class OperatorValues(ABC):
    """A graph whose values are told apart by their places.

    title     its framework's name in refusals
    kinds     the element type of each value
    inputs    the places of its inputs by name
    outputs   the places of its outputs
    place     which graph of the model it is
    disposes  whether values that a step of a loop does not give are disposed of behind it, even if a list holds them
    """

    title: str
    disposes = False
    place: int

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        self._integers: dict[object, int] = {}

    @abstractmethod
    def value(self, name: str, kind: int, shape: Sequence[int | None] | None = None) -> int:
        """Add a value; return its place."""

    @abstractmethod
    def constant(self, name: str, array: Array | PiecewiseArray) -> int:
        """Add stored numbers. Whole ones become 32 bits wide, and those beyond them the last."""

    @abstractmethod
    def matrix(self, name: str, array: Array | PiecewiseArray, axis: int = 0, hybrid: bool = True) -> int:
        """Add the stored numbers of a product or a table.

        axis    what has a scale for each of its places: the first axis or the last
        hybrid  whether the operator that reads it takes integers
        """

    @abstractmethod
    def several(self, operator: str, inputs: Sequence[int], outputs: Sequence[int], **options: Any) -> None:
        """Add an operator of any number of outputs."""

    @abstractmethod
    def inner(self, name: str) -> OperatorValues:
        """Add a graph that an operator of this one runs."""

    @abstractmethod
    def list_of_steps(self, size: int, count: int, dims: Sequence[int | None], kind: int, name: str) -> int:
        """Add what a loop fills with one output of each of its steps.

        size   the lengths of all of it, the time in front
        count  the first of these without an axis
        dims   the axes of one step's output
        kind   its element type
        """

    @abstractmethod
    def with_step(self, outputs: int, number: int, output: int, name: str) -> int:
        """Add what a loop fills, with the output of one more step.

        number  that of the step
        """

    @abstractmethod
    def stacked(self, outputs: int, dims: Sequence[int | None], kind: int) -> int:
        """Return the list that a loop has filled as a value, the time in front.

        dims  the axes of one step's output
        kind  its element type
        """

    def zero(self, kind: int) -> int:
        """Return zero or false without axes, stored once."""
        if kind == BOOL:
            if "false" not in self._integers:
                self._integers["false"] = self.constant("false", np.array(False))
            return self._integers["false"]
        return self.number(0.0) if kind == FLOAT else self.integer(0)

    def integers(self, *numbers: int) -> int:
        """Return a list of whole numbers, stored once."""
        if numbers not in self._integers:
            self._integers[numbers] = self.constant("integers", np.array(numbers, np.int32))
        return self._integers[numbers]

    def integer(self, number: int) -> int:
        """Return a whole number without axes, stored once."""
        if ("scalar", number) not in self._integers:
            self._integers["scalar", number] = self.constant("integer", np.array(number, np.int32))
        return self._integers["scalar", number]

    def number(self, value: float) -> int:
        """Return a number without axes, stored once."""
        key = ("number", np.float32(value).tobytes())
        if key not in self._integers:
            self._integers[key] = self.constant("number", np.array(value, np.float32))
        return self._integers[key]

    def add(
        self,
        operator: str,
        inputs: Sequence[int],
        name: str,
        kind: int | None = None,
        shape: Sequence[int | None] | None = None,
        **options: Any,
    ) -> int:
        """Add an operator of one output; return that. Its element type is that of the first input, unless stated."""
        output = self.value(name, self.kinds[inputs[0]] if kind is None else kind, shape)
        self.several(operator, inputs, [output], **options)
        return output
