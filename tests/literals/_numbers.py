"""The numbers of a whole matrix or vector, by the rule of tests.literals: what stands in it is said by the gates in their order."""

from __future__ import annotations

from typing import Any

Numbers = list[list[int]]


class Gates:
    """The gates of a kind of cell, in the order of their numbers.

    The number of a part is 10 more in the backward direction, and 20 more in the second layer.
    """

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def vector(self, part: int, gates: str, units: int = 2) -> list[int]:
        """A number for each unit of each gate."""
        return [1000 * part + 100 * (1 + self.letters.index(gate)) + 10 * (1 + unit) for gate in gates for unit in range(units)]

    def rows(self, part: int, gates: str, width: int, units: int = 2) -> Numbers:
        """A row for each unit of each gate, as wide as what it reads."""
        return [[row + 1 + column for column in range(width)] for row in self.vector(part, gates, units)]

    def columns(self, part: int, gates: str, width: int, units: int = 2) -> Numbers:
        """A column for each unit of each gate, as high as what it reads is wide."""
        return [[row + 1 + column for row in self.vector(part, gates, units)] for column in range(width)]


def flat(*arrays: list[Any]) -> list[int]:
    """All of their numbers in one vector."""
    return [number for array in arrays for row in array for number in (row if isinstance(row, list) else [row])]


LSTM, GRU, RNN = Gates("ifgo"), Gates("rzn"), Gates("n")
