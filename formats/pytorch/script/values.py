"""Values of a TorchScript archive's code, as far as they are known without a run."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16
from rnnconvert.formats.pytorch.program.program import OperatorProgram, Ref
from rnnconvert.formats.pytorch.script.text import Class, ScriptFunction
from rnnconvert.graphs.sizes import in_64_bits

DTYPES: Mapping[int, np.dtype[Any]] = {
    0: np.dtype(np.uint8),
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    3: np.dtype(np.int32),
    4: np.dtype(np.int64),
    5: np.dtype(np.float16),
    6: np.dtype(np.float32),
    7: np.dtype(np.float64),
    11: np.dtype(np.bool_),
    15: BFLOAT16,
}
"""Source: c10/core/ScalarType.h."""


@dataclass(frozen=True)
class ScriptedModule:
    """A module of the archive, by the names on the way to it."""

    path: str


@dataclass(frozen=True)
class Name:
    """A name of the code's surroundings: torch.relu, or a function or class of the archive."""

    text: str


@dataclass(frozen=True)
class Bound:
    """A method of a module."""

    module: ScriptedModule
    function: ScriptFunction


@dataclass(eq=False)
class Items:
    """A list, or with names a tuple of the code's own class.

    level  in how many undecided branches and loops it was made; it is only known while it is not filled in deeper ones
    attribute  the module's attribute that it is, "" for other lists
    steps  what the steps of a loop put into it, one value each, once that loop has ended
    """

    values: list[Any]
    level: int = 0
    names: tuple[str, ...] = ()
    complete: bool = True
    attribute: str = ""
    steps: Ref | None = None


@dataclass(eq=False)
class OpenItems:
    """A list or dictionary of tensors that the caller hands in; it has the items that the code reads.

    by_key  whether texts are their keys, and not their numbers
    items   the items that were read so far
    """

    name: str
    by_key: bool
    items: dict[int | str, Ref] = field(default_factory=dict)

    def item(self, index: int | str, new: Callable[[str], Ref]) -> Ref:
        """Return an item; with a number, those before it are items, too."""
        for key in range(index + 1) if isinstance(index, int) else (index,):
            if key not in self.items:
                self.items[key] = new(f"{self.name}_{key}")
        return self.items[index]

    def inputs(self) -> list[Ref]:
        """Return its items by their numbers, or in the order of their keys."""
        return [self.items[key] for key in sorted(self.items, key=lambda key: (isinstance(key, str), key))]


@dataclass(frozen=True)
class ArchiveScope:
    """The names that the code of an archive can use.

    module     returns the class of a module by its path, None if there is none
    function   returns a function of the archive by its qualified name, or a class
    attribute  returns an attribute of a module: a Module, a Ref, a constant or Items; raises KeyError
    """

    module: Callable[[str], Class | None]
    function: Callable[[str], ScriptFunction | Class | None]
    attribute: Callable[[OperatorProgram, str, str], Any]


@dataclass
class Frame:
    """The variables of a function that is followed."""

    values: dict[str, Any] = field(default_factory=dict)


class RaisedError(Exception):
    """The code raises an exception here."""


def static(value: Any) -> Any:
    """Return a value as Python's own."""
    return [static(element) for element in value.values] if isinstance(value, Items) else value


def _on_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of numbers alone: of lists and texts Python would make others, as long as a number asks for.

    It raises TypeError for these, ValueError for a whole number of more than 64 bits.
    """

    def computed(*values: Any) -> Any:
        if not all(isinstance(value, int | float) for value in values):
            raise TypeError("not numbers")
        result = function(*values)
        return in_64_bits(result) if isinstance(result, int) else result

    return computed


STATIC: Mapping[str, Callable[..., Any]] = {
    "eq": lambda x, other: x == other, "ne": lambda x, other: x != other, "lt": lambda x, other: x < other,
    "gt": lambda x, other: x > other, "le": lambda x, other: x <= other, "ge": lambda x, other: x >= other,
    "not": lambda x: not x, "and": lambda x, other: x and other, "or": lambda x, other: x or other,
    "contains": lambda several, item: item in several, "is": lambda x, other: x is other, "isnot": lambda x, other: x is not other,
    "int": int, "Int": int, "bool": bool, "Bool": bool, "float": float, "Float": float, "min": min, "max": max,
    **{name: _on_numbers(function) for name, function in (
        ("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("neg", operator.neg), ("floordiv", operator.floordiv),
        ("remainder", operator.mod), ("abs", abs), ("floor", math.floor), ("ceil", math.ceil))},
}  # fmt: skip
"""Operators on numbers, texts and None, where no input decides these."""
