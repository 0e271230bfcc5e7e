"""The layers of checkpoint B that correspond to layers of checkpoint A.

A pair is a layer and its counterpart, which may be several layers that are stored apart: `NAME_l0`, `NAME_l1`, ... or `NAME`,
`NAME_1`, ... of a stack, `NAME_forward` and `NAME_backward` of two directions. The rules, each for what those before it left:

1. as chosen: "A=B", "A=B1+B2" or "A1+A2=B";
2. equal names;
3. names that are equal as our writers spell them: other characters than letters, digits and _ become _, and a layer
   without a name is called "layer", "l0", "recurrent" or by its class, and is as deep as its counterpart;
4. names with the same ending: "model.encoder.lstm" and "lstm", "decoder/lstm" and "decoder.lstm:0";
5. the only layer of its kind and sizes on either side;
6. the order, where kinds and sizes agree one to one from the first layer to the last, pieces taken together.

Rules 3 and 4 leave out a name that fits two layers. A layer that no rule pairs is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from rnnconvert.comparison.pieces import DIRECTION, Pieces, joined, units, ways_as
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import listed
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint

_UNNAMED = frozenset({"", "layer", "l0", "recurrent", "rnn", "gru", "lstm", "simple_rnn", "bidirectional", "module"})
"""The names of layers that nobody named."""


@dataclass(frozen=True)
class LayerPair:
    """Which layer of A is which of B.

    name         A's name for it, "a+b" where A's layers were joined
    own_names    A's own names for it
    stack        A's
    names        B's names for it: several where its layers or directions are stored apart
    counterpart  B's, joined if there are several
    evidence     how the pair was found, in words
    """

    name: str
    own_names: tuple[str, ...]
    stack: Recurrent
    names: tuple[str, ...]
    counterpart: Recurrent
    evidence: str


def pair(a: Checkpoint, b: Checkpoint, chosen: Sequence[str] = (), *, selected: bool = False) -> list[LayerPair]:
    """Return every layer of A with its counterpart in B, in A's order.

    chosen    pairs decided by the user: see the module
    selected  whether the user chose A's layers, so that B may have others

    Raises UsageError if a layer of either side is left over, or a chosen pair does not exist.
    """
    work = _CheckpointPairing(a, b)
    for text in chosen:
        work.choose(text)
    work.match(lambda unit: unit.name, "equal names")
    work.match(_written, "names equal as that format writes them", ambiguous=False)
    work.match_endings()
    work.match(lambda unit: _signature(unit.stack), "the only layer of its kind and sizes on either side", False)
    work.in_order()
    work.only_ones()
    work.check(selected)
    order = {name: number for number, name in enumerate(a.layers)}
    return [paired for _, paired in sorted(work.matched, key=lambda entry: min(order[name] for name in entry[0]))]


class _CheckpointPairing:
    """Two files, what is paired of them and what is not yet."""

    def __init__(self, a: Checkpoint, b: Checkpoint) -> None:
        self.a, self.b = a, b
        self.left_a, self.left_b = dict(a.layers), dict(b.layers)
        self.matched: list[tuple[tuple[str, ...], LayerPair]] = []

    def add(self, unit: Pieces, other: Pieces, evidence: str) -> None:
        for name in unit.names:
            del self.left_a[name]
        for name in other.names:
            del self.left_b[name]
        stack, counterpart = ways_as(unit, other), ways_as(other, unit)
        name = unit.names[0] if len(unit.names) == 1 else "+".join(unit.names)
        self.matched.append((unit.names, LayerPair(name, unit.names, stack.replace(name=name), other.names, counterpart, evidence)))

    def choose(self, text: str) -> None:
        """Pair layers as the user writes it; names may contain "=" and "+"."""
        for cut in (match.start() for match in re.finditer("=", text)):
            left, right = _named(text[:cut], self.left_a), _named(text[cut + 1 :], self.left_b)
            if left and right:
                try:
                    self.add(joined(left, self.left_a), joined(right, self.left_b), "chosen")
                except ValueError as error:
                    raise UsageError(f"{Flag('pair', text)}: these layers cannot be one: {error}") from None
                return
        if "=" not in text:
            raise UsageError(f"{Flag('pair', text)}: expected A=B, a layer of {self.a.path} and one of {self.b.path}")
        again = " (each layer is in one pair only)" if self.matched else ""
        raise UsageError(f"{Flag('pair', text)}: no such layers{again}. Choose from these:", details=self.both())

    def match(self, key: Callable[[Pieces], Hashable], evidence: str, ambiguous: bool = True) -> None:
        """Pair what has equal keys, whole layers first; `ambiguous`: keys are unique, and any pair will do."""
        for unit, other in _candidates(units(self.left_a), units(self.left_b), key, ambiguous):
            if set(unit.names) <= set(self.left_a) and set(other.names) <= set(self.left_b):
                self.add(unit, other, _worded(unit, other, evidence))

    def match_endings(self) -> None:
        """Pair names of which one is the end of the other, if each has only one partner."""
        ours, theirs = units(self.left_a), units(self.left_b)
        partners = [[other for other in theirs if _ends_alike(our, other)] for our in ours]
        for unit, fitting in zip(ours, partners, strict=True):
            mutual = [other for other in fitting if sum(other in more for more in partners) == 1]
            free = set(unit.names) <= set(self.left_a)
            if free and len(fitting) == 1 and mutual and set(mutual[0].names) <= set(self.left_b):
                self.add(unit, mutual[0], _worded(unit, mutual[0], "names with the same ending"))

    def in_order(self) -> None:
        """Pair the remaining layers from first to last, if all of them agree."""
        segments = _segments(list(self.left_a), list(self.left_b), self.left_a, self.left_b)
        for left, right in segments:
            unit, other = joined(left, self.left_a), joined(right, self.left_b)
            evidence = f"the order of the layers: {len(segments)} are left in each, equal in kind and size"
            self.add(unit, other, _worded(unit, other, evidence))

    def only_ones(self) -> None:
        """Pair two files of one layer each, even if they do not match: others report how they differ."""
        if len(self.a.layers) == len(self.b.layers) == len(self.left_a) == len(self.left_b) == 1:
            unit, other = units(self.left_a)[0], units(self.left_b)[0]
            self.add(unit, other, "the only recurrent layer of each file")

    def check(self, selected: bool) -> None:
        """Raise UsageError if anything is left over."""
        if not self.left_a and (selected or not self.left_b):
            return
        counts = f"{listed(self.left_a)} of A" if self.left_a else ""
        counts += (" and " if counts and self.left_b else "") + (f"{listed(self.left_b)} of B" if self.left_b else "")
        example = ""
        if self.left_a and self.left_b:
            example_pair = f"{next(iter(self.left_a))}={next(iter(self.left_b))}"
            example = f" Choose the pairs, as in {Flag('pair', example_pair)}"
            example += "; several pieces of one layer are written NAME=PIECE+PIECE."
        choice = "" if selected else f" To compare only some layers, use {Flag('layer')}."
        raise UsageError(f"cannot tell what corresponds to {counts}.{example}{choice}", details=self.both())

    def both(self) -> list[str]:
        """Return both sides, a line for each layer, with what is left of them marked."""
        lines = []
        for label, checkpoint, left in (("A", self.a, self.left_a), ("B", self.b, self.left_b)):
            lines.append(f"{label} is {checkpoint.path}:")
            for name, stack in checkpoint.layers.items():
                state = "" if name in left else " (paired)"
                lines.append(f"  {name or '(the module itself)'}{state}: {stack.describe()}")
            if not checkpoint.layers:
                lines.append("  no recurrent layers")
        return lines


def _named(text: str, layers: dict[str, Recurrent]) -> tuple[str, ...]:
    """Return the layers that a side of a chosen pair names, or () if they do not exist."""
    if text in layers:
        return (text,)
    names = tuple(text.split("+"))
    return names if len(set(names)) == len(names) > 1 and set(names) <= set(layers) else ()


def _candidates(
    ours: Sequence[Pieces], theirs: Sequence[Pieces], key: Callable[[Pieces], Hashable], ambiguous: bool
) -> Iterator[tuple[Pieces, Pieces]]:
    """Yield pairs of units with equal keys, equally deep ones first, then by the number of pieces.

    With `ambiguous` false only keys that are unique on each side.
    """
    pairs = []
    for our in ours:
        fitting = [other for other in theirs if key(other) == key(our) and _may_be(our, other)]
        same = [unit for unit in ours if key(unit) == key(our) and any(_may_be(unit, other) for other in fitting)]
        if not ambiguous and len(fitting) == 1 and len(same) > 1:
            continue
        if ambiguous or len(fitting) == 1:
            pairs += [(our, other) for other in fitting]
    return iter(sorted(pairs, key=lambda both: (not _as_deep(*both), len(both[0].names) + len(both[1].names))))


def _may_be(unit: Pieces, other: Pieces) -> bool:
    """Return whether pieces have as many layers as their counterpart; two whole layers may differ in anything."""
    return len(unit.names) == len(other.names) == 1 or _as_deep(unit, other)


def _as_deep(unit: Pieces, other: Pieces) -> bool:
    mine, theirs = unit.stack, other.stack
    return mine.num_layers == theirs.num_layers and mine.num_directions == theirs.num_directions


def _written(unit: Pieces) -> Hashable:
    """Return a name as writers spell it; layers that nobody named are alike if they are as deep."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", unit.name).strip("_").lower()
    return unit.stack.num_layers if plain in _UNNAMED else plain


def _ends_alike(first_unit: Pieces, other: Pieces) -> bool:
    """Return whether a name is the end of the other, component by component."""
    first, second = _components(first_unit.name), _components(other.name)
    short = min(len(first), len(second))
    return bool(short) and first[-short:] == second[-short:] and _may_be(first_unit, other)


def _components(name: str) -> list[str]:
    plain = re.sub(r":\d+$", "", name)
    return [part.lower() for part in re.split(r"[./]+", plain) if part]


def _signature(stack: Recurrent) -> Hashable:
    """Return kind and sizes, which even a wrong conversion keeps; a projection may have been folded."""
    return (stack.input_size, *(tuple((d.cell.kind, d.hidden_size) for d in la.directions) for la in stack.layers))


Segment = tuple[tuple[str, ...], tuple[str, ...]]


def _segments(ours: list[str], theirs: list[str], layers_a: dict[str, Recurrent], layers_b: dict[str, Recurrent]) -> list[Segment]:
    """Return both sides cut into runs of equally many layers that agree one to one, or [] where they do not."""
    segments: list[Segment] = []
    while ours and theirs:
        left, right = [ours.pop(0)], [theirs.pop(0)]
        while (left_depth := _depth(left, layers_a)) != (other := _depth(right, layers_b)):
            side, rest = (left, ours) if left_depth < other else (right, theirs)
            if not rest:
                return []
            side.append(rest.pop(0))
        try:
            stacks = joined(left, layers_a).stack, joined(right, layers_b).stack
        except ValueError:
            return []
        if _signature(stacks[0]) != _signature(stacks[1]):
            return []
        segments.append((tuple(left), tuple(right)))
    return [] if ours or theirs else segments


def _depth(names: Sequence[str], layers: dict[str, Recurrent]) -> int:
    return sum(layers[name].num_layers for name in names)


def _worded(unit_a: Pieces, other: Pieces, evidence: str) -> str:
    """Return the evidence, and what was taken together."""
    for unit in (unit_a, other):
        if len(unit.names) > 1:
            evidence += f"; {', '.join(unit.names)} taken as one"
        flipped = [name for name in unit.names if DIRECTION.search(name)]
        if flipped and unit.stack.output_order == "processing":
            evidence += ", outputs in processing order left to the caller"
    return evidence
