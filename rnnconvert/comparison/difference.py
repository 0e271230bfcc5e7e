"""Two layers compared in canonical form, gate by gate, whatever the formats they come from.

What two formats write differently but compute alike is brought into one form first, by the exact rewrites, and
reported. Two biases on one side and one on the other are compared by their sum, wherever only the sum counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import ml_dtypes
import numpy as np

from rnnconvert.comparison.common_form import to_common_form
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import BIAS_PARTS, Direction, Recurrent, gates_of
from rnnconvert.judging.measure import distance
from rnnconvert.rewrites import SUM_BIASES

ROUNDING = 4
"""How many units in the last place of the largest value two weights may differ and count as rounded."""

Kind = Literal["weights", "shape", "feature", "rewrite"]


@dataclass(frozen=True)
class Difference:
    """What two layers have, equal or not, in one array or one feature.

    kind       "weights": numbers of one shape; "shape": arrays of several shapes, or absent on one side; "feature": what the
               cell computes; "rewrite": not a difference, what was brought into one form to compare it
    layer      index of the layer, -1 for what concerns all
    direction  likewise
    part       part of the weights, "bias" for a sum of biases, or what the feature is called
    gate       its gate, or ""
    error      the largest absolute difference, 0 where numbers are equal; infinite where they cannot be compared
    relative   the same in parts of the largest value of A
    where      index of the largest difference
    expected   A's number there, and `found`, B's
    rounded    whether it is no more than rounding
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
        return self.kind == "rewrite" or self.rounded or self.error == 0


def differences(a: Recurrent, b: Recurrent) -> list[Difference]:
    """Return everything that two layers have, part by part: what is equal and what is not.

    Each array of each direction is one entry, in the order of A's layers; the entries for the whole come first.
    """
    a, b, notes = to_common_form(a, b)
    made = [Difference("rewrite", -1, -1, "form", words=note) for note in notes]
    made += _wholes(a, b)
    theirs = {(index, number): direction for index, number, direction in b.directions()}
    for index, number, ours in a.directions():
        other = theirs.pop((index, number), None)
        if other is None:
            made.append(_absent(index, number, "B"))
        else:
            made += _directions(index, number, ours, other)
    return made + [_absent(index, number, "A") for index, number in theirs]


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
}  # fmt: skip


def same_features(ours: Direction, theirs: Direction) -> bool:
    """Return whether two directions compute the same of their weights."""
    return all(of(ours) == of(theirs) for of in _FEATURES.values())


def _directions(index: int, number: int, ours: Direction, theirs: Direction) -> Iterator[Difference]:
    for name, of in _FEATURES.items():
        if of(ours) != of(theirs):
            yield _feature(index, number, name, of(ours), of(theirs))
    if ours.cell.kind != theirs.cell.kind:
        return
    summed = _sums(ours, theirs)
    parts = dict.fromkeys(part for d in (ours, theirs) for part, _ in d.arrays)
    for part in ("input", "recurrent", *BIAS_PARTS, "peephole", "projection", "initial_hidden", "initial_cell"):
        for gate in gates_of(ours.cell.kind, part) if part in parts else ():
            if not (part in BIAS_PARTS and gate in summed):
                yield from _arrays(_Which(index, number, part, gate), ours.get(part, gate), theirs.get(part, gate))
    for gate in summed:
        one, other = total_bias(ours, gate), total_bias(theirs, gate)
        found = _numbers(_Which(index, number, "bias", gate), one, other, _eps(ours, theirs))
        yield _worded(found, f"sums of biases compared: {_have(ours)} in A, {_have(theirs)} in B")


def _have(d: Direction) -> str:
    words = {"none": "none", "both": "two", "input": "one", "recurrent": "one, recurrent"}[d.biases]
    return words + "".join(f", {value:+g} on {gate} at run time" for gate, value in d.cell.constants.items() if value)


def _sums(ours: Direction, theirs: Direction) -> list[str]:
    """Return the gates whose biases are compared by their sum: only the sum counts, and the terms differ."""
    if ours.hidden_size != theirs.hidden_size:
        return []
    found = []
    for gate in ours.cell.gates:
        if SUM_BIASES.applies(ours, [gate]) or SUM_BIASES.applies(theirs, [gate]):
            continue
        terms = [(_or_zeros(ours, part, gate), _or_zeros(theirs, part, gate)) for part in BIAS_PARTS]
        constants = [d.cell.constants.get(gate, 0.0) for d in (ours, theirs)]
        if constants[0] == constants[1] and all(close(*pair) for pair in terms):
            continue
        alike = ours.biases == theirs.biases and constants[0] == constants[1]
        if not alike or close(total_bias(ours, gate), total_bias(theirs, gate), _eps(ours, theirs)):
            found.append(gate)
    return found


def close(one: Array, other: Array, eps: float = 0.0) -> bool:
    """Return whether two arrays of one shape are equal but for rounding; eps: of the coarser element type."""
    return _numbers(_Which(0, 0, ""), one, other, eps).equal


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


def _arrays(which: _Which, one: Array | None, other: Array | None) -> Iterator[Difference]:
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
        yield _numbers(which, one, other)


def _eps(*arrays: Array | Direction) -> float:
    return max(float(ml_dtypes.finfo(array.dtype).eps) for array in arrays)


def _numbers(which: _Which, one: Array, other: Array, eps: float = 0.0) -> Difference:
    if one.size and one.dtype == other.dtype and np.array_equal(one, other):
        first = (0,) * one.ndim
        return Difference("weights", *which, where=first, expected=float(one[first]), found=float(one[first]))
    eps = eps or _eps(one, other)
    wide, gap = one.astype(np.float64), distance(other, one, None)
    at = tuple(int(i) for i in np.unravel_index(int(gap.argmax()), gap.shape)) if gap.size else ()
    error = float(gap.max(initial=0.0))
    largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    relative = 0.0 if not error else (error / largest if largest else np.inf)
    expected, found = (float(wide[at]), float(other[at])) if gap.size else (None, None)
    rounded = 0 < error <= ROUNDING * eps * largest
    return Difference("weights", *which, error, relative, at, expected, found, rounded)


def _worded(difference: Difference, words: str) -> Difference:
    return replace(difference, words=words)
