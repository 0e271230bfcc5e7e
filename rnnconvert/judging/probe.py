"""Which rows of one direction's matrices a run exercises, by its gates and states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import FUNCTIONS, Step
from rnnconvert.core.weights import Direction, Key
from rnnconvert.judging.judging import ULPS

MARGIN = 30
"""How many units in the last place of float32 a unit must move to be seen, under any rounding in it."""


_FACTORS = (-1.0, 2.0)
"""The factors of each row: a wrong sign, and a size that does not show if a gate is saturated."""


_NEW = 0.1
"""The weight that stands in a row of zeros."""


Part = Literal["input", "recurrent"]


@dataclass(frozen=True)
class Row:
    """A gate's rows in one of its matrices, one for each unit."""

    layer: int
    direction: int
    part: Part
    gate: str


@dataclass
class Rows:
    """Observations of a gate's rows.

    effective  which units were moved by each of the changes, (changes, hidden)
    size   how large the row's part of the gate was at the most; rest, everything else
    """

    effective: Array
    size: Array
    rest: Array

    @property
    def seen(self) -> Array:
        """Which units were moved by every change."""
        return np.asarray(self.effective.all(axis=0))


@dataclass(frozen=True)
class Probe:
    """One direction, its numbers in float32, and its step."""

    direction: Direction
    arrays: Mapping[Key, Array]
    step: Step

    def look(
        self,
        x: Array,
        sums: Array,
        before: tuple[Array, Array],
        after: tuple[Array, Array],
        place: tuple[int, int],
        seen_rows: dict[Row, Rows],
    ) -> None:
        """Add what one step exercises: every row changed by itself, all units and all changes as one batch."""
        size, gates = self.direction.hidden_size, self.direction.cell.gates
        changes: list[tuple[Row, int, Array]] = []
        for gate, part, share in self._parts(x, sums, before[0]):
            row = Row(*place, part, gate)
            rows = seen_rows.setdefault(row, Rows(np.zeros((len(_FACTORS), size), bool), np.zeros(size), np.zeros(size)))
            at = slice(gates.index(gate) * size, (gates.index(gate) + 1) * size)
            rows.size = np.maximum(rows.size, np.abs(share).max(axis=0))
            others = sums[:, at] - share if part == "input" else sums[:, at]
            rows.rest = np.maximum(rows.rest, np.abs(others).max(axis=0))
            if rows.seen.all():
                continue
            instead = self._in_place_of_zeros(part, gate, share, x if part == "input" else before[0])
            for number, factor in enumerate(_FACTORS):
                changed = sums.copy()
                changed[:, at] += (factor - 1) * share + factor * instead
                changes.append((row, number, changed))
        if not changes:
            return
        count = len(changes)
        h, c = (np.tile(state, (count, 1)) for state in before)
        moved = self.step(np.concatenate([changed for *_, changed in changes]), h, c)
        ways = [self._moved(new.reshape(count, *old.shape), old) for new, old in zip(moved, after, strict=True)]
        for (row, number, _), *units in zip(changes, *ways, strict=True):
            for unit in units:
                seen_rows[row].effective[number] |= unit

    def _parts(self, x: Array, sums: Array, h: Array) -> Iterator[tuple[str, Part, Array]]:
        """Yield the contribution of each matrix to each gate, (batch, hidden)."""
        cell, arrays = self.direction.cell, self.arrays
        state, factor = h, np.ones((), np.float32)
        for gate in cell.gates:
            if gate == cell.coupled:
                continue
            if not self.direction.skip_input:
                yield gate, "input", x @ arrays["input", gate].T
            if cell.kind == "gru" and gate == "n":
                r = self._reset(sums, h)
                state, factor = (h, r) if cell.reset_after else (r * h, factor)
            yield gate, "recurrent", factor * (state @ arrays["recurrent", gate].T)

    def _reset(self, sums: Array, h: Array) -> Array:
        """Return the reset gate of a GRU at this step."""
        function = self.direction.cell.gate_activation
        value = sums[:, : self.direction.hidden_size] + h @ self.arrays["recurrent", "r"].T
        return np.asarray(FUNCTIONS[function.name](np, value, function.alpha, function.beta), np.float32)

    def _in_place_of_zeros(self, part: Part, gate: str, share: Array, source: Array) -> Array:
        """Return the contribution of a weight in place of zeros to the units whose row is all zeros, and 0 for the others."""
        idle: Array = np.logical_not(share.any(axis=0))
        if not idle.any():
            return np.zeros((), np.float32)
        idle[idle] = ~self.arrays[part, gate][idle].any(axis=1)
        return np.where(idle, np.float32(_NEW) * np.abs(source).max(axis=1, keepdims=True), np.float32(0))

    def _moved(self, changed: Array, true: Array) -> Array:
        """Return which units each change moved by more than rounding may, (changes, hidden)."""
        eps = float(np.finfo(np.float32).eps)
        allowed = MARGIN * eps * np.maximum(ULPS * np.abs(true), 1.0)
        moved = ~(np.abs(changed - true) <= allowed)  # what is not finite moved, too
        units: Array = moved.any(axis=1)
        # A projection mixes all units.
        return units if units.shape[1] == self.direction.hidden_size else np.asarray(units.any(axis=1, keepdims=True))
