"""Values of a TorchScript archive's code, as far as they are known without a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16
from rnnconvert.formats.pytorch.program.program import Program, Ref
from rnnconvert.formats.pytorch.script.text import Class, Function

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
class Module:
    """A module of the archive, by the names on the way to it."""

    path: str


@dataclass(frozen=True)
class Name:
    """A name of the code's surroundings: torch.relu, or a function or class of the archive."""

    text: str


@dataclass(frozen=True)
class Bound:
    """A method of a module."""

    module: Module
    function: Function


@dataclass(eq=False)
class Items:
    """A list, or with names a tuple of the code's own class.

    level  in how many undecided branches and loops it was made; it is only known while it is not filled in deeper ones
    """

    values: list[Any]
    level: int = 0
    names: tuple[str, ...] = ()
    known: bool = True


@dataclass(eq=False)
class Loop:
    """A loop whose steps are not known; index: the number of the step, if it counts them."""

    index: Ref | None = None


@dataclass(frozen=True)
class Archive:
    """What the code of an archive can name.

    module     returns the class of a module by its path, None where there is none
    function   returns a function of the archive by its qualified name, or a class
    attribute  returns an attribute of a module: a Module, a Ref, a constant or Items; raises KeyError
    """

    module: Callable[[str], Class | None]
    function: Callable[[str], Function | Class | None]
    attribute: Callable[[Program, str, str], Any]


@dataclass
class Frame:
    """The variables of a function that is followed."""

    values: dict[str, Any] = field(default_factory=dict)


class RaisedError(Exception):
    """The code raises an exception here."""


def static(value: Any) -> Any:
    """Return a value as Python's own."""
    return [static(one) for one in value.values] if isinstance(value, Items) else value


STATIC: Mapping[str, Callable[..., Any]] = {
    "eq": lambda one, other: one == other, "ne": lambda one, other: one != other, "lt": lambda one, other: one < other,
    "gt": lambda one, other: one > other, "le": lambda one, other: one <= other, "ge": lambda one, other: one >= other,
    "not": lambda one: not one, "and": lambda one, other: one and other, "or": lambda one, other: one or other,
    "contains": lambda several, one: one in several, "is": lambda one, other: one is other, "isnot": lambda one, other: one is not other,
    "add": lambda one, other: one + other if not isinstance(one, list | str) else _refused(), "sub": lambda one, other: one - other,
    "mul": lambda one, other: one * other if not isinstance(one, list | str) else _refused(), "neg": lambda one: -one,
    "floordiv": lambda one, other: one // other, "remainder": lambda one, other: one % other, "int": int, "Int": int,
    "bool": bool, "Bool": bool, "float": float, "Float": float, "min": min, "max": max, "abs": abs, "floor": math.floor,
    "ceil": math.ceil,
}  # fmt: skip
"""Operators on numbers, texts and None, where no input decides these."""


def _refused() -> Any:
    raise TypeError("not numbers")
