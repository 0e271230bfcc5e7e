"""Which rows of a layer's matrices its inputs exercise, and inputs that exercise the others.

A unit whose gates are saturated for every input, or whose weights are too small to move it, gives the same outputs with other weights: a
comparison that passes does not show them. So each row of each gate, the part that acts on the input and the one that acts on the state, is
negated and doubled in turn, and the unit that it belongs to is examined after one step from the true states: what moves it by less than
rounding may explain is not exercised. A row of zeros counts as exercised where weights in its place would show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import FUNCTIONS, Step, initial, products, stepper
from rnnconvert.core.weights import Direction, Key, Layer, Recurrent
from rnnconvert.judging.case_kinds import Case, held
from rnnconvert.judging.cases import Draw, cases
from rnnconvert.judging.judging import ULPS
from rnnconvert.judging.measure import narrowed

_STEPS, _BATCH = 3, 4
"""How much of a case is examined first: in most models it exercises everything."""

_MORE = 64
"""How many steps are examined where the first ones do not exercise everything."""

_LARGE = 1 << 22
"""Numbers of a layer from which on only its first steps are examined, unless there is one case only."""

_MOST = 4
"""The most cases that are added to exercise what the others do not."""


@dataclass
class Power:
    """The parts of a layer that its inputs exercise.

    cases  cases that exercise something that earlier ones do not
    words  the parts that none exercises, in words; "" if all are exercised
    """

    cases: list[str]
    words: str = ""


def power(stack: Recurrent, base_cases: Sequence[Case], seed: int | None = None) -> tuple[Power, list[Case]]:
    """Return the parts that cases exercise, and further cases that exercise others: with the input or the states scaled.

    seed  the seed of the further cases; None for no further ones
    """
    rows_by_place, used = _seen(stack, base_cases)
    added: list[Case] = []
    for part, exponent in [] if seed is None else _wanted(rows_by_place):
        if len(added) == _MOST or _exercised(rows_by_place):
            break
        case = _scaled(stack, part, exponent, seed or 0)
        before = _count(rows_by_place)
        _look(stack, narrowed(case, _BATCH, _STEPS), rows_by_place)
        if _count(rows_by_place) > before:
            added.append(case)
    return Power([*used, *(case.name for case in added)], _words(stack, rows_by_place)), added


def _scaled(stack: Recurrent, part: Part, exponent: int, seed: int) -> Case:
    """Return a random case with its input, or its states, multiplied by a power of two."""
    (case,), _ = cases(stack, Draw(("states",), seed))
    factor = np.float32(2.0**exponent)
    changes: dict[str, Any]
    if part == "input":
        name, changes = f"input times 2^{exponent}", {"x": held(case.x * factor)}
    else:
        hidden = tuple(held(state * factor) for state in case.hidden or ())
        name, changes = f"states times 2^{exponent}", {"hidden": hidden}
    what = f"made to exercise units that the other cases do not; the {name.replace('2^', '2 to the power of ')}"
    return replace(case, name=name, what=what, **changes)


def _wanted(seen_rows: dict[Row, Rows]) -> list[tuple[Part, int]]:
    """Return the scales, as powers of two, that bring the parts that were not seen to where their gates move; the commonest first."""
    counts: dict[tuple[Part, int], int] = {}
    for row, rows in seen_rows.items():
        if row.layer:  # what it reads is what the layer below gives, of whatever size its input is
            continue
        for size, rest in zip(rows.size[~rows.seen], rows.rest[~rows.seen], strict=True):
            if size > 0 and np.isfinite([size, rest]).all():
                exponent = round(math.log2(max(1.0, 2 * rest) / size) / 2) * 2
                if abs(exponent) <= 100:
                    counts[row.part, exponent] = counts.get((row.part, exponent), 0) + 1
    return sorted(counts, key=lambda key: -counts[key])


def _seen(stack: Recurrent, base_cases: Sequence[Case]) -> tuple[dict[Row, Rows], list[str]]:
    """Return the parts that cases exercise, and the names of the cases that it takes."""
    seen_rows: dict[Row, Rows] = {}
    used: list[str] = []
    # Not every executor takes lengths, or states.
    order = sorted(base_cases, key=lambda case: (case.lengths is not None, case.hidden is not None))
    # Many long looks at a large layer would take as long as the proof; scaled inputs show more than they.
    looks = (_STEPS,) if len(base_cases) > 1 and stack.parameters > _LARGE else (_STEPS, _MORE)
    for steps in looks:
        for case in order:
            if seen_rows and _exercised(seen_rows):
                return seen_rows, used
            before = _count(seen_rows)
            _look(stack, narrowed(case, _BATCH, min(steps, len(case.x))), seen_rows)
            if _count(seen_rows) > before and case.name not in used:
                used.append(case.name)
    return seen_rows, used


def _exercised(seen_rows: dict[Row, Rows]) -> bool:
    return all(rows.seen.all() for rows in seen_rows.values())


def _count(seen_rows: dict[Row, Rows]) -> int:
    return sum(int(rows.seen.sum()) for rows in seen_rows.values())


@np.errstate(all="ignore")
def _look(stack: Recurrent, case: Case, seen_rows: dict[Row, Rows]) -> None:
    """Add to what was seen what one case exercises."""
    number = 0
    below: list[Array] = [np.asarray(case.x, np.float32)] * stack.num_directions
    # What stands behind a sequence's end moves nothing: only steps that every sequence has are examined.
    if case.lengths is not None:
        steps = max(1, int(case.lengths.min(initial=len(case.x))))
        below = [x[:steps] for x in below]
    for index, layer in enumerate(stack.layers):
        outputs = []
        for way, direction in enumerate(layer.directions):
            source = below[way] if stack.join == "end" or index == 0 else below[0]
            states = [states_given[number] if states_given else None for states_given in (case.hidden, case.cell)]
            outputs.append(_direction(direction, source, states, (index, way), seen_rows))
            number += 1
        last = index == stack.num_layers - 1
        below = outputs if stack.join == "end" else [_joined(layer, outputs)]
        if last:
            return


def _joined(layer: Layer, outputs: Sequence[Array]) -> Array:
    if len(outputs) == 1:
        return outputs[0]
    if layer.merge in ("concat", "none"):
        return np.concatenate(outputs, axis=-1)
    both = outputs[0] * outputs[1] if layer.merge == "mul" else outputs[0] + outputs[1]
    return both / 2 if layer.merge == "ave" else both


def _direction(direction: Direction, x: Array, states: Sequence[Array | None], place: tuple[int, int], seen_rows: dict[Row, Rows]) -> Array:
    """Run one direction step by step, look at what each step exercises, and return its outputs."""
    arrays = {key: np.asarray(source).astype(np.float32, copy=False) for key, source in direction.arrays.items()}
    sequence = x[::-1] if direction.reverse else x
    h, c = (
        np.asarray(state, np.float32) if state is not None else initial(np, direction, arrays, which, x)
        for state, which in zip(states, ("hidden", "cell"), strict=True)
    )
    probe = Probe(direction, arrays, stepper(np, direction, arrays, ()))
    outputs = []
    for now, product in zip(sequence, products(np, direction, arrays, sequence), strict=True):
        new = probe.step(product, h, c)
        probe.look(now, product, (h, c), new, place, seen_rows)
        h, c = new
        outputs.append(h)
    y = np.stack(outputs)
    return y[::-1] if direction.reverse else y


_LISTED = 6


def _words(stack: Recurrent, seen_rows: Mapping[Row, Rows]) -> str:
    """Return which units are not exercised, and by what; "" if all are."""
    unseen = {row: np.flatnonzero(~rows.seen) for row, rows in seen_rows.items() if not rows.seen.all()}
    units = {(row.layer, row.direction, int(unit)) for row, numbers in unseen.items() for unit in numbers}
    if not units:
        return ""
    total = sum(d.hidden_size for *_, d in stack.directions())
    each = []
    for row, numbers in list(unseen.items())[:_LISTED]:
        where = f" of layer {row.layer}" if stack.num_layers > 1 else ""
        where += f", {('forward', 'backward')[row.direction]}" if stack.num_directions > 1 else ""
        some = ", ".join(map(str, numbers[:_LISTED])) + (" and more" if len(numbers) > _LISTED else "")
        each.append(f"{row.part} of gate {row.gate}{where}: {some}")
    more = f"; and {len(unseen) - _LISTED} more" if len(unseen) > _LISTED else ""
    return f"{len(units)} of {total} units were not exercised: other weights would give the same outputs ({'; '.join(each)}{more})"


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
