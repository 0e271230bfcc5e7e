"""One operation on constants, with its inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import AbsentError
from rnnconvert.graphs.moves import axis_of


@dataclass(frozen=True)
class FoldedCall:
    """One node whose inputs are all constant.

    inputs      its inputs, None where an optional one is left out
    attributes  numbers, strings, lists and arrays by name
    outputs     how many values it gives
    opset       version of the default operator set
    charge      receives how many bytes will be computed before they are; may raise
    """

    operator: str
    inputs: Sequence[Array | None]
    attributes: dict[str, Any]
    outputs: int
    opset: int
    charge: Callable[[int], None]

    def input(self, index: int) -> Array:
        """Return an input that must exist. Raises AbsentError if it is not."""
        value = self.optional(index)
        if value is None:
            raise AbsentError(f"{self.operator} has no input {index}")
        return value

    def optional(self, index: int) -> Array | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def numbers(self, index: int) -> Array:
        """Return an input that must exist and hold numbers. Raises ValueError if it holds truths or texts."""
        value = self.input(index)
        if value.dtype.kind in "bSUO":
            raise ValueError(f"{self.operator} of {value.dtype}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number among the attributes. Raises ValueError for another value."""
        value = self.attributes.get(name, default)
        if isinstance(value, int | float | np.integer | np.floating):
            return float(value)
        raise ValueError(f"{self.operator} takes a number as {name}, not {value!r}")

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer among the attributes. Raises ValueError for another value."""
        value = self.attributes.get(name, default)
        if isinstance(value, int | np.integer):
            return int(value)
        raise ValueError(f"{self.operator} takes an integer as {name}, not {value!r}")

    def axis(self, data: Array, default: int) -> int:
        """Return the attribute `axis`, counted from the first axis of `data`. Raises ValueError if `data` has no such axis."""
        return axis_of(self.attributes.get("axis", default), data.ndim)

    def integers(self, name: str, index: int) -> list[int] | None:
        """Return a list that is an attribute in old operator sets and an input in new ones. Raises ValueError for other values."""
        value = self.optional(index)
        stated: Any = self.attributes.get(name) if value is None else value.reshape(-1).tolist()
        if stated is None:
            return None
        if not isinstance(stated, Sequence) or not all(isinstance(each, int | np.integer) for each in stated):
            raise ValueError(f"{self.operator} takes integers as {name}, not {stated!r}")
        return [int(each) for each in stated]


Operator: TypeAlias = Callable[[FoldedCall], "Array | list[Array]"]
