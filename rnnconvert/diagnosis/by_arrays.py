"""What turns one stack's arrays into another's: found by comparing arrays, without running anything.

Each wrong convention of weights is planted in A, direction by direction, and its arrays compared with those of B. Where no
convention leads from one to the other, each array of B is searched for among all arrays of A: moved, transposed, negated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from rnnconvert.comparison.common_form import like, to_common_form
from rnnconvert.comparison.difference import close, same_features, total_bias
from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Recurrent
from rnnconvert.diagnosis.faults import ARRAYS, FAULTS, Fault, of_stack
from rnnconvert.diagnosis.first_difference import place
from rnnconvert.rewrites import SUM_BIASES

Place = tuple[int, int]
"""A layer and a direction, by their numbers."""

Way = tuple[Fault, ...]
"""Conventions that explain something together."""

_AT_ONCE = 3
"""The most wrong conventions that are searched for in one direction."""

_NEAREST = 12
"""How many conventions that bring some arrays nearer are tried together with others."""

_LOOK = 4
"""How many rows and columns of two matrices are compared before all are."""


@dataclass(frozen=True)
class Explained:
    """What turns A's arrays into B's.

    faults   conventions that do so together, and in `others` those that do so as well
    moved    what else was found, in words: arrays of B that are other arrays of A
    unknown  arrays of B that come from nowhere in A, in words
    """

    faults: tuple[Fault, ...] = ()
    others: tuple[Fault, ...] = ()
    moved: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the faults explain every array."""
        return bool(self.faults) and not self.moved and not self.unknown

    @property
    def in_place(self) -> bool:
        """Whether no convention explains any array, and none is found in another place."""
        return not self.faults and not self.moved


def explained(a: Recurrent, b: Recurrent) -> Explained | None:
    """Return what turns the arrays of one stack into those of another; None where they are the same, or of other sizes."""
    if not _comparable(a, b):
        return None
    compare = Comparing()
    off = {(index, number) for index, number, d in a.directions() if not compare.same(d, b[index, number])}
    apart = _wholes(a) != _wholes(b)
    if not off and not apart:
        return None
    if apart or len(off) > 1:
        leading = [fault for fault in _stack_faults(a) if _leads(compare, fault, a, b)]
        if leading:
            return Explained((leading[0],), tuple(leading[1:]))
    return None if apart else _by_direction(compare, a, b, off)


def explained_in_any_form(a: Recurrent, b: Recurrent) -> Explained | None:
    """Return what turns the arrays of one stack into those of another: as they are, or else in one form."""
    explanation = explained(a, b)
    if explanation is not None and explanation.complete:
        return explanation
    in_one_form = explained(*to_common_form(a, b)[:2])
    return in_one_form if explanation is None or (in_one_form is not None and in_one_form.complete) else explanation


_LISTED = 8


def listed(explanation: Explained) -> Iterator[str]:
    """Yield where arrays come from that no convention explains, and those that come from nowhere."""
    if explanation.moved:
        yield "of B's arrays, " + "; ".join(explanation.moved[:_LISTED]) + _rest(explanation.moved)
    if explanation.unknown:
        yield f"not among A's arrays in any place: B's {', '.join(explanation.unknown[:_LISTED])}{_rest(explanation.unknown)}"


def _rest(arrays: Sequence[str]) -> str:
    return f"; and {len(arrays) - _LISTED} more" if len(arrays) > _LISTED else ""


def nothing() -> str:
    """Say what was searched without success."""
    tried = len(FAULTS) + len(ARRAYS)
    return (
        f"none of the {tried} known wrong conventions turns A's arrays into B's, tried in the whole stack and in each layer, "
        f"direction, matrix and gate, up to {_AT_ONCE} at once"
    )


def _comparable(a: Recurrent, b: Recurrent) -> bool:
    if [len(layer.directions) for layer in a.layers] != [len(layer.directions) for layer in b.layers]:
        return False
    pairs = [(d, b[index, number]) for index, number, d in a.directions()]
    return all(first.cell.kind == other.cell.kind and _sizes(first) == _sizes(other) for first, other in pairs)


def _sizes(d: Direction) -> tuple[int, int, int]:
    return d.input_size, d.hidden_size, d.output_size


def _wholes(stack: Recurrent) -> object:
    merges = [layer.merge if len(layer.directions) > 1 else "" for layer in stack.layers]
    merges = ["concat" if merge == "none" else merge for merge in merges]
    deep = stack.num_layers > 1 and stack.num_directions > 1
    return merges, stack.join if deep else "", stack.output_order, len(stack.readout)


def _stack_faults(stack: Recurrent) -> Iterator[Fault]:
    yield from (fault for fault in FAULTS.values() if fault.change is not None and fault.direction is None)
    yield from of_stack(stack)


def _leads(compare: Comparing, fault: Fault, a: Recurrent, b: Recurrent) -> bool:
    planted = fault.change(a) if fault.change is not None else None
    if planted is None or _wholes(planted) != _wholes(b):
        return False
    return all(compare.same(d, b[index, number]) for index, number, d in planted.directions())


# One direction ------------------------------------------------------------------------------------------


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

    def leading(self, first: Direction, other: Direction, most: int = _AT_ONCE) -> list[Way]:
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
    return max(float(ml_dtypes.finfo(side.dtype).eps) for side in having)


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
    look = tuple(slice(0, _LOOK) for _ in first.shape)
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


# Several directions ---------------------------------------------------------------------------------------


def _by_direction(compare: Comparing, a: Recurrent, b: Recurrent, off: set[Place]) -> Explained:
    ways_by_place = {at: compare.leading(a[at], b[at]) for at in sorted(off)}
    named = likeliest(ways_by_place)
    others = _alternatives(a, ways_by_place, named)
    sources = _Sources(a) if len(named) < len(off) else None
    moved: list[str] = []
    unknown: list[str] = []
    for at in sorted(off - set(named)):
        assert sources is not None
        more, nowhere = sources.described(compare, a, b, at)
        moved += more
        unknown += nowhere
    return Explained(tuple(grouped(a, named)), others, tuple(moved), tuple(unknown))


def likeliest(ways_by_place: Mapping[Place, Sequence[Way]]) -> dict[Place, Way]:
    """Return one of the ways to explain each place: what is wrong everywhere is one fault, not many.

    ways_by_place  by layer and direction, the conventions that explain it: several ways, the most likely first
    """
    counts: dict[tuple[str, ...], int] = {}
    for ways in ways_by_place.values():
        for way in ways:
            counts[_names(way)] = counts.get(_names(way), 0) + 1
    return {at: max(ways, key=lambda way: counts[_names(way)]) for at, ways in ways_by_place.items() if ways}


def _names(way: Way) -> tuple[str, ...]:
    return tuple(fault.name for fault in way)


def _alternatives(a: Recurrent, ways_by_place: Mapping[Place, list[Way]], named: Mapping[Place, Way]) -> tuple[Fault, ...]:
    """Return the single conventions that explain every direction that is off as well as the one that was chosen."""
    if len(named) < len(ways_by_place) or not ways_by_place:
        return ()
    shared = set.intersection(*({way[0].name for way in ways if len(way) == 1} for ways in ways_by_place.values()))
    chosen = {fault.name for way in named.values() for fault in way}
    rest = [fault for fault in of_directions() if fault.name in shared - chosen]
    return tuple(grouped_fault for fault in rest for grouped_fault in grouped(a, {at: (fault,) for at in ways_by_place}))


def grouped(stack: Recurrent, named: Mapping[Place, Sequence[Fault]]) -> Iterator[Fault]:
    """Yield each convention once, in the places where it was found; without places where it is in every layer that can have it.

    named  by layer and direction, the conventions that were found there
    """
    for fault in {fault.name: fault for way in named.values() for fault in way}.values():
        yield placed(stack, fault, [at for at in sorted(named) if any(way_fault.name == fault.name for way_fault in named[at])])


def placed(stack: Recurrent, fault: Fault, places: Sequence[Place] | None = None) -> Fault:
    """Return a convention with its places in words, unless it is in every layer and in every direction that can have it.

    places  where it is; everywhere if None
    """
    compare = Comparing()
    possible = [(index, number) for index, number, d in stack.directions() if _changes(compare, fault, d)]
    places = possible if places is None else places
    every = {index for index, _ in places} == set(range(stack.num_layers))
    if not places or fault.direction is None or (every and set(possible) <= set(places)):
        return fault
    return fault.at_places(places, words_of(stack, places)) or fault


def _changes(compare: Comparing, fault: Fault, direction: Direction) -> bool:
    changed = fault.direction(direction) if fault.direction is not None else None
    return changed is not None and not compare.same(changed, direction)


def words_of(stack: Recurrent, places: Sequence[Place]) -> str:
    """Name some directions of a stack in words: whole layers where both directions are meant."""
    words = []
    for index, layer in enumerate(stack.layers):
        numbers = [number for at, number in places if at == index]
        if len(numbers) == len(layer.directions) > 1 and stack.num_layers > 1:
            words.append(f"layer {index}")
        else:
            words += [place(stack, index, number) for number in numbers]
    return " and ".join(words)


# Single arrays --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """An array of A in some way of reading it.

    turn  reads its rows so
    """

    at: Place
    key: Key
    how: str
    numbers: Array
    turn: Callable[[Array], Array]

    def is_same(self, array: Array) -> bool:
        """Return whether it is this array; a few rows decide in most cases."""
        if not alike(self.turn(self.numbers[:_LOOK]), array[:_LOOK], True):
            return False
        return alike(self.turn(self.numbers), array, True)


class _Sources:
    """Every array of a stack, as it is and as a wrong conversion may leave it."""

    def __init__(self, stack: Recurrent) -> None:
        self._by_shape: dict[tuple[int, ...], list[_Source]] = {}
        for index, number, direction in stack.directions():
            for key, source in direction.arrays.items():
                for how, numbers, turn in _readings(np.asarray(source)):
                    entry = _Source((index, number), key, how, numbers, turn)
                    self._by_shape.setdefault(numbers.shape, []).append(entry)

    def of(self, array: Array) -> _Source | None:
        """Return the array of A that this is; None if it is another, or all zeros."""
        if not array.any():
            return None
        return next((source for source in self._by_shape.get(array.shape, ()) if source.is_same(array)), None)

    def described(self, compare: Comparing, a: Recurrent, b: Recurrent, at: Place) -> tuple[list[str], list[str]]:
        """Return where B's arrays of a direction come from, in words, and those that come from nowhere in A."""
        where = place(a, *at)
        moved, unknown = [], []
        for part, gate in compare.unlike(a[at], b[at]):
            name = _name(part, gate) + (f" in {where}" if where else "")
            source_here = b[at].get(part, gate)
            source = None if source_here is None else self.of(source_here)
            if source is None:
                unknown.append(name)
                continue
            elsewhere = place(a, *source.at)
            there = _name(*source.key) + (f" in {elsewhere}" if source.at != at and elsewhere else "")
            moved.append(f"{name} is A's {there}{source.how}")
        return moved, unknown


def _name(part: str, gate: str) -> str:
    return part.replace("_", " ") + (f" of gate {gate}" if gate else "")


def _unchanged(numbers: Array) -> Array:
    return numbers


def _halves(numbers: Array) -> Array:
    half = numbers.shape[1] // 2
    return np.concatenate([numbers[:, half:], numbers[:, :half]], axis=1)


def _readings(numbers: Array) -> Iterator[tuple[str, Array, Callable[[Array], Array]]]:
    yield "", numbers, _unchanged
    if numbers.ndim == 2:
        yield ", transposed", numbers.T, _unchanged
        if numbers.shape[1] % 2 == 0:
            yield ", its halves exchanged", numbers, _halves
        yield ", its columns reversed", numbers[:, ::-1], _unchanged
    yield ", its rows reversed" if numbers.ndim == 2 else ", reversed", numbers[::-1], _unchanged
    yield ", negated", numbers, np.negative
