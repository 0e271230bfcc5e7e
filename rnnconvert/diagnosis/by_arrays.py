"""The conventions that turn one stack's arrays into another's: found by comparing arrays, without running anything.

Each wrong convention of weights is planted in A, direction by direction, and its arrays compared with B's. If no convention leads from one
to the other, each array of B is searched for among all arrays of A: moved, transposed, negated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rnnconvert.comparison.common_form import to_common_form
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Direction, Key, Recurrent
from rnnconvert.diagnosis.comparing import AT_ONCE, LOOK, Comparing, Way, alike, of_directions
from rnnconvert.diagnosis.faults import ARRAYS, FAULTS, Fault, of_stack
from rnnconvert.diagnosis.first_difference import place

Place = tuple[int, int]
"""A layer and a direction, by their numbers."""


@dataclass(frozen=True)
class ArrayExplanation:
    """The conventions that turn A's arrays into B's.

    faults   conventions that do so together, and in `others` alternatives that do so as well
    moved    other findings, in words: arrays of B that are other arrays of A
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


def explained(a: Recurrent, b: Recurrent) -> ArrayExplanation | None:
    """Return the conventions that turn the arrays of one stack into another's; None if they are the same, or of other sizes."""
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
            return ArrayExplanation((leading[0],), tuple(leading[1:]))
    return None if apart else _by_direction(compare, a, b, off)


def explained_in_any_form(a: Recurrent, b: Recurrent) -> ArrayExplanation | None:
    """Return the conventions that turn the arrays of one stack into another's: as they are stored, or else in one form."""
    explanation = explained(a, b)
    if explanation is not None and explanation.complete:
        return explanation
    in_one_form = explained(*to_common_form(a, b)[:2])
    return in_one_form if explanation is None or (in_one_form is not None and in_one_form.complete) else explanation


_LISTED = 8


def listed(explanation: ArrayExplanation) -> Iterator[str]:
    """Yield where arrays come from that no convention explains, and those that come from nowhere."""
    if explanation.moved:
        yield "of B's arrays, " + "; ".join(explanation.moved[:_LISTED]) + _rest(explanation.moved)
    if explanation.unknown:
        yield f"not among A's arrays in any place: B's {', '.join(explanation.unknown[:_LISTED])}{_rest(explanation.unknown)}"


def _rest(arrays: Sequence[str]) -> str:
    return f"; and {len(arrays) - _LISTED} more" if len(arrays) > _LISTED else ""


def nothing() -> str:
    """Return the sentence on what was searched without success."""
    tried = len(FAULTS) + len(ARRAYS)
    return (
        f"none of the {tried} known wrong conventions turns A's arrays into B's, tried in the whole stack and in each layer, "
        f"direction, matrix and gate, up to {AT_ONCE} at once"
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


# Several directions ---------------------------------------------------------------------------------------


def _by_direction(compare: Comparing, a: Recurrent, b: Recurrent, off: set[Place]) -> ArrayExplanation:
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
    return ArrayExplanation(tuple(grouped(a, named)), others, tuple(moved), tuple(unknown))


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
class _SourceArray:
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
        if not alike(self.turn(self.numbers[:LOOK]), array[:LOOK], True):
            return False
        return alike(self.turn(self.numbers), array, True)


class _Sources:
    """Every array of a stack, as it is and as a wrong conversion may leave it."""

    def __init__(self, stack: Recurrent) -> None:
        self._by_shape: dict[tuple[int, ...], list[_SourceArray]] = {}
        for index, number, direction in stack.directions():
            for key, source in direction.arrays.items():
                for how, numbers, turn in _readings(np.asarray(source)):
                    entry = _SourceArray((index, number), key, how, numbers, turn)
                    self._by_shape.setdefault(numbers.shape, []).append(entry)

    def of(self, array: Array) -> _SourceArray | None:
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
