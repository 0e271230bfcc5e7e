"""The effects of a framework's operators on elements, as data: a dialect has one entry for each operator.

An operator that is in no dialect computes something: so does every use of one that its entry does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import Array


class ChangesError(Exception):
    """An operator changes values in this use; its text says how, as in "Dropout that is on"."""


class UnfitError(ValueError):
    """An operator cannot be applied to values of these shapes.

    numbers  whole numbers that the file states of it: lengths that do not fit, or what they must be multiples of
    """

    def __init__(self, words: str, numbers: Sequence[int] = ()) -> None:
        super().__init__(words)
        self.numbers = tuple(numbers)


@dataclass(frozen=True)
class Applied:
    """An operator with what it reads.

    inputs      arrays, None for one that is left out; in place of elements that only a run of the model would give, numbers
                that say where each comes from
    attributes  what the file states of it
    outputs     how many values it gives
    """

    kind: Hashable
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any]
    outputs: int

    def input(self, index: int) -> Array:
        """Return an input that must be there. Raises UnfitError where it is not."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise UnfitError(f"{self.kind} has no input {index}")
        return value

    @property
    def arrays(self) -> list[Array]:
        """All inputs, none of which may be left out. Raises UnfitError where one is."""
        return [self.input(index) for index in range(len(self.inputs))]

    def integers(self, index: int) -> list[int]:
        """Return an input that is a list of whole numbers."""
        return [int(number) for number in self.input(index).reshape(-1)]


Function: TypeAlias = Callable[[Applied], "Array | Sequence[Array]"]
Formula: TypeAlias = Callable[[Applied, Array], Array]
"""The effect of an operator on formulas of lengths (see graphs/lengths.py), beside the numbers that it gives."""


@dataclass(frozen=True)
class Moves:
    """An operator that moves elements, drops or repeats them, and changes none.

    function  does that to arrays of any type; raises UnfitError where their shapes do not fit, ChangesError where this use
              of the operator changes values
    data      which inputs have elements to move; None for all. The others must be constant
    extra     how many inputs at the end have none, where all others have
    """

    function: Function
    data: tuple[int, ...] | None = (0,)
    extra: int = 0

    def carries(self, place: int, count: int) -> bool:
        """Return whether one of so many inputs has elements to move."""
        return place < count - self.extra if self.data is None else place in self.data


@dataclass(frozen=True)
class Measures:
    """An operator that gives numbers of its input's shape."""

    function: Function


@dataclass(frozen=True)
class Casts:
    """An operator that changes the element type of its first input.

    dtype  returns the new type
    """

    dtype: Callable[[Applied], np.dtype[Any]]


@dataclass(frozen=True)
class Computes:
    """An operator that computes: constants from constants, and from all else new values.

    function  computes on constants; None where nobody needs that
    shape     returns the shape of what it gives, by the shapes of its inputs, where it is not the one to which they
              broadcast; raises UnfitError
    formula   computes on formulas of lengths; None for an operator that gives what is known at the lengths tried alone
    """

    function: Function | None = None
    shape: Callable[[Sequence[tuple[int, ...]]], tuple[int, ...]] = lambda shapes: np.broadcast_shapes(*shapes)
    formula: Formula | None = None


@dataclass(frozen=True)
class Chooses:
    """An operator that gives the input behind its first by the number that the first is, 0 for the next one.

    If that number is unknown, it gives the value that all of these inputs share, if they are equal.
    """


Operator: TypeAlias = "Moves | Measures | Casts | Computes | Chooses"

Dialect: TypeAlias = Mapping[Hashable, Operator]
"""The operators of a framework, by kind."""

SAME = Moves(lambda applied: applied.input(0))
"""An operator that gives what it reads."""
