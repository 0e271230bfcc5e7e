"""A tree of Julia's values: arrays, other values and the types of structs, each by its path.

A path is what Julia would write to get there, with slashes: "model/layers/1/cell/Wi". Tuples, vectors and the fields of
structs without names count from 1, as Julia does. An array has the shape that Julia gives it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import NESTING

OBJECTS = 100_000
"""The most values of one file that are visited: a shared value counts at each place."""


ELEMENTS: dict[str, np.dtype[Any]] = {
    "Bool": np.dtype(np.bool_),
    "BFloat16": BFLOAT16,
    **{f"Float{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    **{f"Int{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
}
"""Element types of arrays, by the last word of Julia's name for them."""


@dataclass
class Tree:
    """The contents found so far, and their extent.

    path        the file
    arrays      arrays by their paths
    values      numbers, booleans, texts and `None` by their paths; a function is its name
    types       for each struct other than a named tuple, the words of its type's name and how many fields it has
    unreadable  values that could not be read, and why
    """

    path: object
    arrays: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    types: dict[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    _visited: int = 0
    _within: set[object] = field(default_factory=set)
    _above: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    @contextlib.contextmanager
    def visit(self, where: str, identity: object) -> Iterator[bool]:
        """Yield whether to visit a value: a value that is part of itself is not visited again.

        identity  what tells the value from every other one

        Raises UnreadableError past OBJECTS values or DEPTH levels, or for a second value of one path.
        """
        self._visited += 1
        charging(0).work(10 + len(where) // 64, self.path)
        if self._visited > OBJECTS:
            raise UnreadableError(self.path, f"more than {OBJECTS} values")
        if len(self._above) > NESTING:
            raise UnreadableError(self.path, f"values are nested more than {NESTING} deep at {where[:200]!r}")
        if where in self._seen and where not in self._above:  # what a value refers to has its path
            raise UnreadableError(self.path, f"two of its values have the path {where[:200]!r}")
        self._seen.add(where)
        if identity in self._within:
            self.unreadable[where] = "a value that is part of itself"
            yield False
            return
        self._within.add(identity)
        self._above.append(where)
        try:
            yield True
        finally:
            self._above.pop()
            self._within.discard(identity)

    def stored(self) -> Stored:
        """Return the arrays, and in metadata "values", "types" and "unreadable"."""
        about = {"values": self.values, "types": self.types, "unreadable": self.unreadable}
        return Stored(self.arrays, about)


def below(path: str, name: object) -> str:
    """Return the path of a value in the one at `path`."""
    return f"{path}/{name}" if path else str(name)
