"""Where each gate of each part lies in the arrays of a layout."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rnnconvert.core.cached import cached_property
from rnnconvert.core.weights import GATE_PARTS, gates_of
from rnnconvert.language.layout import INNER, OUTER, UNUSED, Layout, Place, Shape, Sizes, Slot, Tensor


@dataclass
class _DirectionPart:
    """One part of one direction in an array.

    values  the value of each word that the array gathers
    gates   the gates as they are stacked
    lengths the length of each word of the part
    start   the index of its first element on each axis of the array
    where   for each word of the part, the array's axis and the step along it
    """

    values: Mapping[str, int]
    part: str
    gates: tuple[str, ...]
    lengths: Mapping[str, int]
    start: list[int]
    where: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _ArrayContents:
    """One array: what fills in its name, and the parts in it."""

    layout: Layout
    tensor: Tensor
    sizes: Sizes
    layer: int | None
    direction: int | None
    gate: int | None  # position in the layout's order, when the name picks one

    @cached_property
    def name(self) -> str:
        letters = self.layout.spelt(self.tensor)
        direction = self.layout.spelling[self.direction or 0]
        if self.layout.alone is not None and self.sizes.num_directions == 1:
            direction = self.layout.alone
        return self.tensor.name.format(
            layer=self.layer,
            pseudo_layer=(self.layer or 0) * self.sizes.num_directions + (self.direction or 0),
            direction=direction,
            gate="" if self.gate is None else letters[self.gate],
        )

    def _gates(self, part: str, gates: tuple[str, ...] | None) -> tuple[str, ...]:
        allowed = gates_of(self.layout.kind, part)
        if part not in GATE_PARTS:
            return allowed
        if self.gate is not None:
            letter = self.layout.order[self.gate][0]
            return (letter,) if letter in allowed else ()
        return gates or tuple(letter for letter, _ in self.layout.order if letter in allowed)

    @cached_property
    def leaves(self) -> list[_DirectionPart]:
        """The parts in it, in the order of the words that it gathers, each with the shape it has alone."""
        return list(self._leaves(self.tensor.outer, {}))

    def _leaves(self, words: tuple[str, ...], bound: dict[str, int]) -> Iterator[_DirectionPart]:
        sections = self.tensor.sections
        if words:
            word, *rest = words
            for value in self._choices(word, bound):
                yield from self._leaves(tuple(rest), {**bound, word: value})
            return
        part, gates_stated = sections[bound["section"]][bound["part"]]
        gates = self._gates(part, gates_stated)
        shape = self.sizes.shape(bound["layer"], part)
        if gates and shape is not None:
            lengths = {"gate": len(gates), **dict(zip(INNER[1:], shape, strict=False))}
            yield _DirectionPart(bound, part, gates, lengths, [0] * len(self.tensor.groups))

    def _choices(self, word: str, bound: Mapping[str, int]) -> Sequence[int]:
        """Return the values that a word takes."""
        if word == "section":
            return range(len(self.tensor.sections))
        if word == "layer":
            layers = range(self.sizes.num_layers) if self.layer is None else [self.layer]
            return [layer for layer in layers if self.tensor.has_layer(layer)]
        if word == "direction":
            return range(self.sizes.num_directions) if self.direction is None else [self.direction]
        return range(len(self.tensor.sections[bound.get("section", 0)]))

    @cached_property
    def shape(self) -> Shape:
        """Its shape; every leaf has its place once this is known.

        Raises ValueError if its parts do not fill one array.
        """
        where = f"{self.layout.name}: {self.tensor.name!r}"
        named = [[word for word in group if word in OUTER] for group in self.tensor.groups]
        for word in set(OUTER).difference(*named):
            count = len({leaf.values[word] for leaf in self.leaves})
            if count > 1:
                raise ValueError(f"{where} holds one {word}, not {count}")
        # A view on an array that does not exist would reach beyond its memory.
        grid = math.prod(len({tuple(leaf.values[word] for word in words) for leaf in self.leaves}) for words in named)
        if grid != len(self.leaves):
            raise ValueError(f"{where} cannot hold parts side by side if a layer lacks one of them")
        return tuple(self._lay(axis, tuple(group), self.leaves, 0) for axis, group in enumerate(self.tensor.groups))

    def _lay(self, axis: int, words: tuple[str, ...], leaves: list[_DirectionPart], start: int) -> int:
        """Give leaves their place along an axis, from `start` on; the words are its own, slowest first. Return the length."""
        if not words:
            for leaf in leaves:
                leaf.start[axis] = start
            return 1
        word, *rest = words
        if word in OUTER:
            length = 0
            among: dict[int, list[_DirectionPart]] = {}
            for leaf in leaves:
                among.setdefault(leaf.values[word], []).append(leaf)
            for value in sorted(among):
                length += self._lay(axis, tuple(rest), among[value], start + length)
            return length
        counts = {leaf.lengths.get(word, 1) for leaf in leaves}
        if len(counts) > 1:
            lengths = " and ".join(map(str, sorted(counts)))
            raise ValueError(
                f"{self.layout.name}: {self.tensor.name!r} cannot hold parts that differ in {word!r} ({lengths}) side by side as "
                f"{self.tensor.axes!r}"
            )
        step = self._lay(axis, tuple(rest), leaves, start)
        for leaf in leaves:
            if word in leaf.lengths:
                leaf.where[word] = (axis, step)
        return counts.pop() * step

    def slots(self) -> Iterator[Slot]:
        """Yield every gate of every part, and its place. Raises ValueError if the parts do not fill one array."""
        inner = ["in", "hidden"] if self.tensor.reinterpreted else ["hidden", "in"]
        signs = dict(self.layout.order)
        self.shape  # noqa: B018  # gives every leaf its place
        for leaf in self.leaves:
            gate_axis, gate_step = leaf.where.get("gate", (0, 0))
            dims = tuple((leaf.lengths[word], *leaf.where[word]) for word in inner if word in leaf.lengths)
            for index, letter in enumerate(leaf.gates):
                start = list(leaf.start)
                start[gate_axis] += index * gate_step
                key = (leaf.part, letter)
                yield Slot(
                    self.name,
                    leaf.values["layer"],
                    leaf.values["direction"],
                    key,
                    signs.get(letter, 1),
                    Place(tuple(start), dims),
                    self.tensor.reinterpreted,
                )


def _blocks(layout: Layout, sizes: Sizes) -> Iterator[_ArrayContents]:
    if sizes.kind != layout.kind:
        raise ValueError(f"{layout.name} holds a {layout.kind}, not a {sizes.kind}")
    lengths = {"layer": sizes.num_layers, "direction": sizes.num_directions, "gate": len(layout.order)}
    for tensor in layout.tensors:
        name = tensor.name.replace("{pseudo_layer}", "{layer}{direction}")
        ranges = [range(n) if f"{{{word}}}" in name else [None] for word, n in lengths.items()]
        for layer, direction, gate in itertools.product(*ranges):
            block = _ArrayContents(layout, tensor, sizes, layer, direction, gate)
            if block.leaves:
                yield block


def shapes(layout: Layout, sizes: Sizes) -> dict[str, Shape]:
    """Return the shape of each array, by name.

    Raises ValueError if the layout cannot hold so many layers or directions, or parts so unlike.
    """
    return dict(_kept_shapes(layout, sizes)) if sizes.num_layers <= _FEW else _shapes(layout, sizes)


_FEW = 4
"""The most layers of which shapes and slots are kept: what a file is taken for is found by trying the same sizes again and again."""


def _shapes(layout: Layout, sizes: Sizes) -> dict[str, Shape]:
    return {block.name: block.shape for block in _blocks(layout, sizes)}


_kept_shapes = functools.lru_cache(512)(_shapes)


def slots(layout: Layout, sizes: Sizes) -> Iterator[Slot]:
    """Yield every gate of every part, and its place; array by array, part by part.

    Raises ValueError if the layout cannot hold so many layers or directions, or parts so unlike.
    """
    yield from _kept_slots(layout, sizes) if sizes.num_layers <= _FEW else _slots(layout, sizes)


def _slots(layout: Layout, sizes: Sizes) -> Iterator[Slot]:
    for block in _blocks(layout, sizes):
        yield from block.slots()


@functools.lru_cache(512)
def _kept_slots(layout: Layout, sizes: Sizes) -> tuple[Slot, ...]:
    return tuple(_slots(layout, sizes))


class Offset(NamedTuple):
    """Where one gate of one part starts in an array, in elements."""

    array: str
    layer: int
    direction: int
    part: str
    gate: str
    offset: int
    shape: Shape
    strides: Shape


def offsets(layout: Layout, sizes: Sizes) -> list[Offset]:
    """Return the table of a layout: where each gate of each part starts, how large it is and how it runs."""
    array_shapes = shapes(layout, sizes)
    table = []
    for slot in slots(layout, sizes):
        shape, place = array_shapes[slot.array], slot.place
        part, gate = slot.key
        if gate == UNUSED:
            continue
        table.append(Offset(slot.array, slot.layer, slot.direction, part, gate, place.offset(shape), place.shape, place.strides(shape)))
    return table
