"""Two layers compared in canonical form, gate by gate, from any formats.

Features that two formats write differently but compute alike are brought into one form first, by the exact rewrites, and reported. Two
biases on one side and one on the other are compared by their sum, wherever only the sum counts.

Rounding is computed, not allowed: where the element types differ, each number must be within one unit in the last place of
the coarser type of its counterpart; where they are the same, numbers are equal to the last bit, unless a rewrite computed
them: then each is within the rounding of what it was computed from. The size of other numbers excuses none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from rnnconvert.comparison.common_form import to_common_form
from rnnconvert.comparison.rounding import or_zeros, rounding_of, spacing, sum_rounds, total_bias
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Recurrent, gates_of
from rnnconvert.judging.measure import distance
from rnnconvert.rewrites import SUM_BIASES, each

REWRITTEN = 2
"""How many units in the last place a number may be off that a rewrite computed: the factor and the product round."""

Kind = Literal["weights", "shape", "feature", "rewrite", "outside"]


@dataclass(frozen=True)
class Difference:
    """The comparison of two layers, equal or not, in one array or one feature.

    kind       "weights": numbers of one shape; "shape": arrays of several shapes, or absent on one side; "feature": what the
               cell computes; "rewrite": not a difference, what was brought into one form to compare it; "outside": what is
               left to the caller of one of the layers, and was not compared
    layer      index of the layer, -1 for what concerns all
    direction  likewise
    part       part of the weights, "bias" for a sum of biases, or the name of the feature
    gate       its gate, or ""
    error      the largest absolute difference, 0 if numbers are equal; infinite if they cannot be compared
    relative   the same in parts of the largest value of A
    where      index of the largest difference
    expected   A's number there, and `found`, B's
    rounded    whether every number is off by no more than its rounding
    words      the whole in words
    """

    kind: Kind
    layer: int
    direction: int
    part: str
    gate: str = ""
    error: float = 0.0
    relative: float = 0.0
    where: tuple[int, ...] = ()
    expected: float | None = None
    found: float | None = None
    rounded: bool = False
    words: str = ""

    @property
    def equal(self) -> bool:
        """Whether nothing differs but by rounding."""
        return self.kind in ("rewrite", "outside") or self.rounded or self.error == 0


def differences(a: Recurrent, b: Recurrent, *, outside: bool = True) -> list[Difference]:
    """Return everything that two layers have, part by part: what is equal and what is not.

    Each array of each direction is one entry, in the order of A's layers; the entries for the whole come first.

    outside  as `to_common_form` has it
    """
    first, other, notes = to_common_form(a, b, outside=outside)
    scales = _scales(a, b, first, other, outside) if any(note.rounds for note in notes) else None
    result = [Difference("outside" if note.left_out else "rewrite", -1, -1, "form", words=note.words) for note in notes]
    result += _wholes(first, other)
    theirs = {(index, number): direction for index, number, direction in other.directions()}
    for index, number, ours in first.directions():
        counterpart = theirs.pop((index, number), None)
        if counterpart is None:
            result.append(_absent(index, number, "B"))
        else:
            sizes = None if scales is None else scales.get((index, number), {})
            result += _directions(index, number, ours, counterpart, sizes)
    return result + [_absent(index, number, "A") for index, number in theirs]


Scales = Mapping[Key, Array]
"""How large what each number was computed from is, by array; those that no rewrite computed are absent."""


def _scales(a: Recurrent, b: Recurrent, first: Recurrent, other: Recurrent, outside: bool) -> dict[tuple[int, int], dict[Key, Array]]:
    """Return the scales of a rewritten pair, by layer and direction: what the rewrites make of the weights' magnitudes.

    a, b        the layers, and one, other the same in one form
    """
    large = to_common_form(each(a, _magnitudes), each(b, _magnitudes), outside=outside)[:2]
    sizes_by_place: dict[tuple[int, int], dict[Key, Array]] = {}
    for rewritten, sizes in zip((first, other), large, strict=True):
        wide = {(index, number): d for index, number, d in sizes.directions()}
        for index, number, direction in rewritten.directions():
            for key, source in direction.arrays.items():
                counterpart = wide[index, number].get(*key) if (index, number) in wide else None
                size = np.abs(np.asarray(source).astype(np.float64))
                if counterpart is not None and counterpart.shape == size.shape:
                    size = np.maximum(size, np.abs(counterpart.astype(np.float64)))
                earlier = sizes_by_place.setdefault((index, number), {}).get(key)
                if earlier is not None and earlier.shape == size.shape:
                    size = np.maximum(earlier, size)
                sizes_by_place[index, number][key] = size
    return sizes_by_place


def _magnitudes(direction: Direction) -> Direction:
    return direction.with_arrays({key: np.abs(np.asarray(source)) for key, source in direction.arrays.items()})


def _absent(index: int, number: int, side: str) -> Difference:
    return Difference("shape", index, number, "direction", error=np.inf, words=f"absent in {side}")


def _feature(index: int, number: int, name: str, ours: object, theirs: object) -> Difference:
    return Difference("feature", index, number, name, error=np.inf, words=f"{name}: {ours} in A, {theirs} in B")


def _wholes(a: Recurrent, b: Recurrent) -> Iterator[Difference]:
    """Yield the differences of two stacks as wholes."""
    features: dict[str, Callable[[Recurrent], object]] = {
        "number of layers": lambda s: s.num_layers,
        "order of outputs": lambda s: s.output_order,
        "where directions meet": lambda s: s.join if s.num_layers > 1 and s.num_directions > 1 else "",
        "matrices on the output": lambda s: [m.shape for m in s.readout],
        "what else it computes": lambda s: [feature.feature for feature in s.unconvertible],
    }
    for name, of in features.items():
        if of(a) != of(b):
            yield _feature(-1, -1, name, of(a) or "none", of(b) or "none")
    for index, (mine, theirs) in enumerate(zip(a.layers, b.layers, strict=False)):
        if len(mine.directions) == len(theirs.directions) == 2 and mine.merge != theirs.merge:
            yield _feature(index, -1, "how directions are joined", mine.merge, theirs.merge)
    if [m.shape for m in a.readout] == [m.shape for m in b.readout]:
        for number, (matrix, other) in enumerate(zip(a.readout, b.readout, strict=True)):
            yield _numbers(_Which(a.num_layers - 1, number, "readout"), np.asarray(matrix), np.asarray(other))


_FEATURES: dict[str, Callable[[Direction], object]] = {
    "cell": lambda d: d.cell.kind,
    "reads": lambda d: "from the end" if d.reverse else "from the start",
    "reset gate": lambda d: {None: "none", True: "after the product", False: "before the product"}[d.cell.reset_after],
    "candidate's function": lambda d: str(d.cell.activation),
    "gates' function": lambda d: str(d.cell.gate_activation) if d.cell.kind != "rnn" else "",
    "output's function": lambda d: str(d.cell.output_activation) if d.cell.kind == "lstm" else "",
    "coupled gates": lambda d: {"": "none", "f": "f = 1 - i", "i": "i = 1 - f"}[d.cell.coupled],
    "clips": lambda d: ", ".join(sorted(str(c) for c in d.cell.clips if np.isfinite([c.low, c.high]).any())) or "none",
}


def same_features(ours: Direction, theirs: Direction) -> bool:
    """Return whether two directions compute the same of their weights."""
    return all(of(ours) == of(theirs) for of in _FEATURES.values())


def _directions(index: int, number: int, ours: Direction, theirs: Direction, scales: Scales | None) -> Iterator[Difference]:
    for name, of in _FEATURES.items():
        if of(ours) != of(theirs):
            yield _feature(index, number, name, of(ours) or "none", of(theirs) or "none")
    if ours.cell.kind != theirs.cell.kind:
        return
    summed = _sums(index, number, ours, theirs)
    parts = dict.fromkeys(part for d in (ours, theirs) for part, _ in d.arrays)
    for part in ("input", "recurrent", *BIAS_PARTS, "peephole", "projection", "initial_hidden", "initial_cell"):
        for gate in gates_of(ours.cell.kind, part) if part in parts else ():
            if not (part in BIAS_PARTS and gate in summed):
                scale = None if scales is None else scales.get((part, gate))
                which = _Which(index, number, part, gate)
                yield from _arrays(which, ours.get(part, gate), theirs.get(part, gate), scale)
    for gate in summed:
        our_sum, other = total_bias(ours, gate), total_bias(theirs, gate)
        difference = _numbers(_Which(index, number, "bias", gate), our_sum, other, sum_rounds(ours, theirs, gate))
        yield _worded(difference, f"sums of biases compared: {_have(ours)} in A, {_have(theirs)} in B")


def _have(d: Direction) -> str:
    words = {"none": "none", "both": "two", "input": "one", "recurrent": "one, recurrent"}[d.biases]
    return words + "".join(f", {value:+g} on {gate} at run time" for gate, value in d.cell.constants.items() if value)


def _sums(index: int, number: int, ours: Direction, theirs: Direction) -> list[str]:
    """Return the gates whose biases are compared by their sum: only the sum counts, and the terms differ."""
    if ours.hidden_size != theirs.hidden_size:
        return []
    gates = []
    for gate in ours.cell.gates:
        if SUM_BIASES.applies(ours, [gate]) or SUM_BIASES.applies(theirs, [gate]):
            continue
        terms = [(or_zeros(ours, part, gate), or_zeros(theirs, part, gate)) for part in BIAS_PARTS]
        constants = [d.cell.constants.get(gate, 0.0) for d in (ours, theirs)]
        which = _Which(index, number, "bias", gate)
        if constants[0] == constants[1] and all(_numbers(which, *pair).equal for pair in terms):
            continue
        alike = ours.biases == theirs.biases and constants[0] == constants[1]
        totals = total_bias(ours, gate), total_bias(theirs, gate)
        if not alike or _numbers(which, *totals, sum_rounds(ours, theirs, gate)).equal:
            gates.append(gate)
    return gates


class _Which(NamedTuple):
    """Which array: of which layer and direction, which part and gate."""

    layer: int
    direction: int
    part: str
    gate: str = ""


def _arrays(which: _Which, first: Array | None, other: Array | None, scale: Array | None) -> Iterator[Difference]:
    if first is None or other is None:
        there = first if first is not None else other
        if there is None:
            return
        absent = "B" if other is None else "A"
        none = np.zeros(there.shape, there.dtype)
        # A peephole, a bias or a state of zeros is as good as none; a matrix that is absent is none.
        if which.part not in ("input", "recurrent", "projection"):
            difference = _numbers(which, *((there, none) if absent == "B" else (none, there)))
            yield _worded(difference, f"absent in {absent}, compared with zeros")
            return
        words = f"{which.part} is absent in {absent}"
        yield Difference("shape", *which, np.inf, np.inf, words=words)
    elif first.shape != other.shape:
        words = f"shape {first.shape} in A, {other.shape} in B"
        yield Difference("shape", *which, np.inf, np.inf, words=words)
    else:
        if scale is None or scale.shape != first.shape:
            yield _numbers(which, first, other)
        else:
            # What a rewrite computed may round even between arrays of one type.
            rounds = np.max([spacing(scale, array.dtype) for array in (first, other)], axis=0)
            yield _numbers(which, first, other, REWRITTEN * rounds)


def _numbers(which: _Which, ours: Array, other: Array, rounds: Array | None = None) -> Difference:
    """Compare two arrays of one shape.

    rounds  how far rounding leads for each number; what the element types explain if None
    """
    if ours.size and ours.dtype == other.dtype and np.array_equal(ours, other):
        first = (0,) * ours.ndim
        return Difference("weights", *which, where=first, expected=float(ours[first]), found=float(ours[first]))
    with np.errstate(all="ignore"):
        wide, gap = ours.astype(np.float64), distance(other, ours, None)
        allowed = rounding_of(ours, other) if rounds is None else rounds
        # What a type cannot hold, and becomes infinite in it, is not rounded.
        beyond = np.where(np.isfinite(gap) & (gap <= allowed), 0.0, gap)
    worst = beyond if beyond.any() else gap
    at = tuple(int(i) for i in np.unravel_index(int(worst.argmax()), gap.shape)) if gap.size else ()
    error = float(gap.max(initial=0.0))
    largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    if not error:
        relative = 0.0
    elif largest:
        relative = error / largest
    else:
        relative = np.inf
    expected, actual = (float(wide[at]), float(other[at])) if gap.size else (None, None)
    rounded = error > 0 and not beyond.any()
    return Difference("weights", *which, error, relative, at, expected, actual, rounded)


def _worded(difference: Difference, words: str) -> Difference:
    return replace(difference, words=words)
