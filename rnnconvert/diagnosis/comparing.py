"""Arrays of two stacks, compared part by part under every convention."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rnnconvert.comparison.common_form import like
from rnnconvert.comparison.difference import same_features
from rnnconvert.comparison.rounding import close, total_bias
from rnnconvert.core.arrays import Array, Source, epsilon
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key
from rnnconvert.diagnosis.faults import ARRAYS, FAULTS, Fault
from rnnconvert.rewrites import SUM_BIASES

Way = tuple[Fault, ...]
"""Conventions that explain something together."""


AT_ONCE = 3
"""The most wrong conventions that are searched for in one direction."""


_NEAREST = 12
"""How many conventions that bring some arrays nearer are tried together with others."""


LOOK = 4
"""How many rows and columns of two matrices are compared before all are."""


class Comparing:
    """Compares arrays, each two of them once: planting a fault leaves most arrays as they were."""

    def __init__(self) -> None:
        self._sources: dict[tuple[int, int, bool], tuple[Source | None, Source | None, bool]] = {}

    def same(self, first: Direction, other: Direction) -> bool:
        """Return whether two directions have the same features and arrays, but for rounding."""
        first, other = _in_one_form(first, other)
        return same_features(first, other) and not any(True for _ in self.unlike(first, other))

    def missing(self, first: Direction, other: Direction) -> int:
        """Return how many arrays are unlike; other features weigh more than all arrays."""
        first, other = _in_one_form(first, other)
        return sum(1 for _ in self.unlike(first, other)) + 100 * (not same_features(first, other))

    def unlike(self, first: Direction, other: Direction) -> Iterator[Key]:
        """Yield the arrays in which two directions differ; biases by their sum where only that counts."""
        keys = {**first.arrays, **other.arrays}
        for part, gate in keys:
            if part not in BIAS_PARTS and not self._alike(first, other, part, gate):
                yield part, gate
        if not (first.cell.constants or other.cell.constants or any(part in BIAS_PARTS for part, _ in keys)):
            return
        for gate in first.cell.gates:
            apart = [part for part in BIAS_PARTS if not self._alike(first, other, part, gate)]
            constants = [d.cell.constants.get(gate, 0.0) for d in (first, other)]
            if not apart and constants[0] == constants[1]:
                continue
            summed = SUM_BIASES.applies(first, [gate]) is None and SUM_BIASES.applies(other, [gate]) is None
            if not (summed and close(total_bias(first, gate), total_bias(other, gate), _eps(first, other))):
                yield from ((part, gate) for part in apart or BIAS_PARTS[:1])

    def _alike(self, left_direction: Direction, other: Direction, part: str, gate: str) -> bool:
        first, second = left_direction.arrays.get((part, gate)), other.arrays.get((part, gate))
        matrix = part in ("input", "recurrent", "projection")
        key = (id(first), id(second), matrix)
        if key not in self._sources:
            # What was compared is kept with the answer, so that nothing else gets its id.
            self._sources[key] = first, second, alike(first, second, matrix)
        return self._sources[key][2]

    def leading(self, first: Direction, other: Direction, most: int = AT_ONCE) -> list[Way]:
        """Return the conventions that turn one direction into another: all single ones, else the first several together."""
        start = self.missing(first, other)
        exact: list[Way] = []
        nearer: list[tuple[int, Fault, Direction]] = []
        for fault in of_directions():
            assert fault.direction is not None
            changed = fault.direction(first)
            if changed is None:
                continue
            left = self.missing(changed, other)
            if not left:
                exact.append((fault,))
            elif left < start:
                nearer.append((left, fault, changed))
        if exact or most < 2:
            return exact
        nearer.sort(key=lambda entry: entry[0])
        for _, fault, changed in nearer[:_NEAREST]:
            rest = self.leading(changed, other, most - 1)
            if rest:
                return [(fault, *rest[0])]
        return []


def _in_one_form(first: Direction, other: Direction) -> tuple[Direction, Direction]:
    """Return two directions in one form: a coupled gate may be written out in only one of them."""
    if same_features(first, other):
        return first, other
    first = like(first, other)
    return first, like(other, first)


def of_directions() -> Iterator[Fault]:
    """Yield every convention that one direction alone can have."""
    yield from (fault for fault in FAULTS.values() if fault.direction is not None)
    yield from ARRAYS.values()


def _eps(*having: Direction | Source) -> float:
    return max(epsilon(side.dtype) for side in having)


def alike(first_source: Source | None, other: Source | None, matrix: bool) -> bool:
    """Return whether two arrays are equal but for rounding; one that is absent may be zero, unless it is a matrix."""
    if first_source is other:
        return True
    if first_source is None or other is None:
        there = first_source if first_source is not None else other
        return not matrix and not np.asarray(there).any()
    if first_source.shape != other.shape:
        return False
    first, second = np.asarray(first_source), np.asarray(other)
    look = tuple(slice(0, LOOK) for _ in first.shape)
    if np.array_equal(first[look], second[look]):
        if first.dtype == second.dtype and np.array_equal(first, second):
            return True
    elif not _near(first[look], second[look], first, second):
        return False
    return close(first, second, _eps(first_source, other))


def _near(first_source: Array, other: Array, first: Array, second: Array) -> bool:
    """Return whether a few numbers may be equal but for rounding, as large as the arrays are."""
    with np.errstate(all="ignore"):
        gap = float(np.abs(first_source.astype(np.float64) - other.astype(np.float64)).max(initial=0.0))
    eps = _eps(first, second)
    if gap <= 8 * eps * float(np.abs(first_source).max(initial=0.0)):
        return True
    return gap <= 8 * eps * float(np.abs(first).max(initial=0.0))
