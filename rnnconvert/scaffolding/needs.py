"""Open lengths that a source does not state, although its layers ask for certain ones: found by reading it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from rnnconvert.core.errors import UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.graphs.sizes import Dim

_TRIES = 200
"""The most readings of one program."""
Needs = Mapping[str, "Dim | str"]
"""Lengths of open axes by their symbols, and element types of inputs."""
T = TypeVar("T")


def stated_ranks(axes: Sequence[int], unknown: Sequence[str]) -> dict[str, int]:
    """Return how many axes inputs have that do not state it, by their names.

    axes     one number for all, or one for each; none where nobody stated any
    unknown  the names of these inputs

    Raises UsageError for another count of numbers.
    """
    if axes and not unknown:
        raise UsageError(f"{Flag('axes')} decides nothing: the file states the axes of its inputs. Leave it out")
    if axes and len(axes) not in (1, len(unknown)):
        raise UsageError(
            f"{Flag('axes')} states {len(axes)} numbers, and {len(unknown)} inputs do not state their axes: {', '.join(unknown)}"
        )
    return {name: axes[number % len(axes)] for number, name in enumerate(unknown if axes else ())}


class NeedError(Exception):
    """An open length has to be a certain one, or an input of a certain element type: reading begins anew with that."""

    def __init__(self, symbol: str, value: Dim | str) -> None:
        super().__init__(symbol, value)
        self.symbol, self.value = symbol, value


class Tries:
    """The readings of one program: bounded, no matter what it asks for."""

    def __init__(self) -> None:
        self._left = _TRIES

    def read(self, read: Callable[[Needs], T]) -> T | None:
        """Return the result of a reading once it has the lengths that it asks for; None if it asks for two lengths of one axis."""
        needs: dict[str, Dim | str] = {}
        while self._left:
            self._left -= 1
            try:
                return read(needs)
            except NeedError as need:
                if need.symbol in needs:
                    return None
                needs[need.symbol] = need.value
        return None
