"""One operation on constants, with its inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import AbsentError


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

    def integers(self, name: str, index: int) -> list[int] | None:
        """Return a list that is an attribute in old operator sets and an input in new ones."""
        value = self.optional(index)
        if value is None:
            return self.attributes.get(name)
        return [int(each) for each in value.reshape(-1).tolist()]


Operator: TypeAlias = Callable[[FoldedCall], "Array | list[Array]"]
