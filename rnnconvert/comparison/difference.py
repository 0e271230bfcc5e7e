"""Two layers compared in canonical form, gate by gate, whatever the formats they come from.

What two formats write differently but compute alike is brought into one form first, by the exact rewrites, and
reported. Two biases on one side and one on the other are compared by their sum, wherever only the sum counts.

Rounding is computed, not allowed: where the element types differ, each number must be within one unit in the last place of
the coarser type of its counterpart; where they are the same, numbers are equal to the last bit, unless a rewrite computed
them: then each is within the rounding of what it was computed from. The size of other numbers excuses none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from rnnconvert.comparison.common_form import to_common_form
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Recurrent, gates_of
from rnnconvert.judging.measure import distance
from rnnconvert.rewrites import SUM_BIASES, each

ROUNDING = 4
"""How many units in the last place of the largest value arrays may be apart in the search for a cause: nothing is proved by it."""

REWRITTEN = 2
"""How many units in the last place a number may be off that a rewrite computed: the factor and the product round."""

Kind = Literal["weights", "shape", "feature", "rewrite", "outside"]


@dataclass(frozen=True)
class Difference:
    """What two layers have, equal or not, in one array or one feature.

    kind       "weights": numbers of one shape; "shape": arrays of several shapes, or absent on one side; "feature": what the
               cell computes; "rewrite": not a difference, what was brought into one form to compare it; "outside": what is
               left to the caller of one of the layers, and was not compared
    layer      index of the layer, -1 for what concerns all
    direction  likewise
    part       part of the weights, "bias" for a sum of biases, or what the feature is called
    gate       its gate, or ""
    error      the largest absolute difference, 0 where numbers are equal; infinite where they cannot be compared
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
    one, other, notes = to_common_form(a, b, outside=outside)
    scales = _scales(a, b, one, other, outside) if any(note.rounds for note in notes) else None
    made = [Difference("outside" if note.left_out else "rewrite", -1, -1, "form", words=note.words) for note in notes]
    made += _wholes(one, other)
    theirs = {(index, number): direction for index, number, direction in other.directions()}
    for index, number, ours in one.directions():
        beside = theirs.pop((index, number), None)
        if beside is None:
            made.append(_absent(index, number, "B"))
        else:
            sizes = None if scales is None else scales.get((index, number), {})
            made += _directions(index, number, ours, beside, sizes)
    return made + [_absent(index, number, "A") for index, number in theirs]


Scales = Mapping[Key, Array]
"""How large what each number was computed from is, by array; those that no rewrite computed are absent."""


def _scales(a: Recurrent, b: Recurrent, one: Recurrent, other: Recurrent, outside: bool) -> dict[tuple[int, int], dict[Key, Array]]:
    """Return the scales of a rewritten pair, by layer and direction: what the rewrites make of the weights' magnitudes.

    a, b        the layers, and one, other the same in one form
    """
    large = to_common_form(each(a, _magnitudes), each(b, _magnitudes), outside=outside)[:2]
    found: dict[tuple[int, int], dict[Key, Array]] = {}
    for rewritten, sizes in zip((one, other), large, strict=True):
        wide = {(index, number): d for index, number, d in sizes.directions()}
        for index, number, direction in rewritten.directions():
            for key, source in direction.arrays.items():
                beside = wide[index, number].get(*key) if (index, number) in wide else None
                size = np.abs(np.asarray(source).astype(np.float64))
                if beside is not None and beside.shape == size.shape:
                    size = np.maximum(size, np.abs(beside.astype(np.float64)))
                known = found.setdefault((index, number), {}).get(key)
                if known is not None and known.shape == size.shape:
                    size = np.maximum(known, size)
                found[index, number][key] = size
    return found


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
        "what else it computes": lambda s: [one.feature for one in s.unconvertible],
    }
    for name, of in features.items():
        if of(a) != of(b):
            yield _feature(-1, -1, name, of(a) or "none", of(b) or "none")
    for index, (mine, theirs) in enumerate(zip(a.layers, b.layers, strict=False)):
        if len(mine.directions) == len(theirs.directions) == 2 and mine.merge != theirs.merge:
            yield _feature(index, -1, "how directions are joined", mine.merge, theirs.merge)
    if [m.shape for m in a.readout] == [m.shape for m in b.readout]:
        for number, (one, other) in enumerate(zip(a.readout, b.readout, strict=True)):
            yield _numbers(_Which(a.num_layers - 1, number, "readout"), np.asarray(one), np.asarray(other))


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
            yield _feature(index, number, name, of(ours), of(theirs))
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
        one, other = total_bias(ours, gate), total_bias(theirs, gate)
        found = _numbers(_Which(index, number, "bias", gate), one, other, _sum_rounds(ours, theirs, gate))
        yield _worded(found, f"sums of biases compared: {_have(ours)} in A, {_have(theirs)} in B")


def _have(d: Direction) -> str:
    words = {"none": "none", "both": "two", "input": "one", "recurrent": "one, recurrent"}[d.biases]
    return words + "".join(f", {value:+g} on {gate} at run time" for gate, value in d.cell.constants.items() if value)


def _sums(index: int, number: int, ours: Direction, theirs: Direction) -> list[str]:
    """Return the gates whose biases are compared by their sum: only the sum counts, and the terms differ."""
    if ours.hidden_size != theirs.hidden_size:
        return []
    found = []
    for gate in ours.cell.gates:
        if SUM_BIASES.applies(ours, [gate]) or SUM_BIASES.applies(theirs, [gate]):
            continue
        terms = [(_or_zeros(ours, part, gate), _or_zeros(theirs, part, gate)) for part in BIAS_PARTS]
        constants = [d.cell.constants.get(gate, 0.0) for d in (ours, theirs)]
        which = _Which(index, number, "bias", gate)
        if constants[0] == constants[1] and all(_numbers(which, *pair).equal for pair in terms):
            continue
        alike = ours.biases == theirs.biases and constants[0] == constants[1]
        totals = total_bias(ours, gate), total_bias(theirs, gate)
        if not alike or _numbers(which, *totals, _sum_rounds(ours, theirs, gate)).equal:
            found.append(gate)
    return found


def _sum_rounds(ours: Direction, theirs: Direction, gate: str) -> Array:
    """Return what rounding makes of each sum of biases: one unit in the last place of the largest term, in the coarser type."""
    terms = [_or_zeros(d, part, gate).astype(np.float64) for d in (ours, theirs) for part in BIAS_PARTS]
    constants = [np.full_like(terms[0], d.cell.constants.get(gate, 0.0)) for d in (ours, theirs)]
    largest = np.abs([*terms, *constants, total_bias(ours, gate), total_bias(theirs, gate)]).max(axis=0)
    return np.asarray(np.max([spacing(largest, d.dtype) for d in (ours, theirs)], axis=0))


def close(one: Array, other: Array, eps: float) -> bool:
    """Return whether two arrays of one shape may be the same for the search for a cause: as far apart as rounding of their
    largest value.

    eps  of the coarser element type
    """
    largest = float(np.abs(one[np.isfinite(one)]).max(initial=0.0))
    return float(distance(other, one, None).max(initial=0.0)) <= ROUNDING * eps * largest


def _or_zeros(d: Direction, part: str, gate: str) -> Array:
    found = d.get(part, gate)
    return np.zeros(d.hidden_size, d.dtype) if found is None else found


def total_bias(d: Direction, gate: str) -> Array:
    """Return the sum of a gate's biases as exactly as possible: rounding in the element type is judged elsewhere."""
    total: Array = sum((_or_zeros(d, part, gate).astype(np.float64) for part in BIAS_PARTS), np.zeros(d.hidden_size))
    return total + d.cell.constants.get(gate, 0.0)


class _Which(NamedTuple):
    """Which array: of which layer and direction, which part and gate."""

    layer: int
    direction: int
    part: str
    gate: str = ""


def _arrays(which: _Which, one: Array | None, other: Array | None, scale: Array | None) -> Iterator[Difference]:
    if one is None or other is None:
        there = one if one is not None else other
        if there is None:
            return
        absent = "B" if other is None else "A"
        none = np.zeros(there.shape, there.dtype)
        # A peephole, a bias or a state of zeros is as good as none; a matrix that is absent is none.
        if which.part not in ("input", "recurrent", "projection"):
            found = _numbers(which, *((there, none) if absent == "B" else (none, there)))
            yield _worded(found, f"absent in {absent}, compared with zeros")
            return
        words = f"{which.part} is absent in {absent}"
        yield Difference("shape", *which, np.inf, np.inf, words=words)
    elif one.shape != other.shape:
        words = f"shape {one.shape} in A, {other.shape} in B"
        yield Difference("shape", *which, np.inf, np.inf, words=words)
    else:
        if scale is None or scale.shape != one.shape:
            yield _numbers(which, one, other)
        else:
            # What a rewrite computed may round even between arrays of one type.
            rounds = np.max([spacing(scale, array.dtype) for array in (one, other)], axis=0)
            yield _numbers(which, one, other, REWRITTEN * rounds)


def spacing(values: Array, dtype: Any) -> Array:
    """Return the distance from each number to the next one of a type, subnormal numbers included."""
    info = ml_dtypes.finfo(dtype)
    size = np.maximum(np.abs(values.astype(np.float64)), float(info.smallest_normal))
    found: Array = np.exp2(np.floor(np.log2(size))) * float(info.eps)
    return found


def _rounds(one: Array, other: Array) -> Array | float:
    """Return how far each number may be off its counterpart because it is held in another type: one unit in the last place."""
    if one.dtype.newbyteorder("=") == other.dtype.newbyteorder("="):
        return 0.0
    larger = np.maximum(np.abs(one.astype(np.float64)), np.abs(other.astype(np.float64)))
    return np.asarray(np.max([spacing(larger, array.dtype) for array in (one, other)], axis=0))


def _numbers(which: _Which, one: Array, other: Array, rounds: Array | None = None) -> Difference:
    """Compare two arrays of one shape.

    rounds  how far rounding leads for each number; what the element types explain if None
    """
    if one.size and one.dtype == other.dtype and np.array_equal(one, other):
        first = (0,) * one.ndim
        return Difference("weights", *which, where=first, expected=float(one[first]), found=float(one[first]))
    with np.errstate(all="ignore"):
        wide, gap = one.astype(np.float64), distance(other, one, None)
        allowed = _rounds(one, other) if rounds is None else rounds
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
    expected, found = (float(wide[at]), float(other[at])) if gap.size else (None, None)
    rounded = error > 0 and not beyond.any()
    return Difference("weights", *which, error, relative, at, expected, found, rounded)


def _worded(difference: Difference, words: str) -> Difference:
    return replace(difference, words=words)
