"""Which readings of arrays give the outputs of a sample: searched from the first step on, where most readings fail.

From a zero state the first step needs neither the recurrent matrices nor, in an LSTM, the forget gate: it decides what W and the
biases are, which of their blocks are which gates, and the functions, on a few units. Only what passes is run for three steps, which
decide the rest, and only what passes that for all steps, where rounding judges.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np

from rnnconvert.core.arrays import Array, widest
from rnnconvert.core.cells import Cell
from rnnconvert.core.weights import Key, Merge
from rnnconvert.identification.first_step import Settled, choices, completed, functions, one_step, products, settle
from rnnconvert.identification.reading import Blocks, Reading, blocks_of, off, pairs, ratio, solve
from rnnconvert.identification.sample import Sample, States
from rnnconvert.identification.structures import Structure, Tier, known, possible, structures, templates
from rnnconvert.language.layout import Layout, Sizes

_UNITS = 48
"""On how many units the first step is judged."""
_LOOSE, _LOOSEST = 2e-3, 0.05
"""How far off, in parts of the largest output, a reading may be and be tried further; rounding may ask for more, up to a limit."""
_MOST_LAYERS = 8

TIERS = (
    Tier(
        "the places of every known layout, with any gate order, sign, bias arrangement and reset mode, sigmoid and tanh",
        known=True,
    ),
    Tier("any order of axes"),
    Tier("the places of every known layout, with other functions", known=True, plain=False),
    Tier("some of the arrays alone", known=True, whole=False),
    Tier("arrays of one shape in any order", known=True, usual=False),
    Tier("any order of axes, with other functions", plain=False),
    Tier("any order of axes, of some of the arrays alone", whole=False),
    Tier("any order of axes and of arrays of one shape", usual=False),
    Tier("gates in another order in each array", tied=False),
    Tier("gates and arrays in any order", usual=False, tied=False),
    Tier("some of the arrays alone, with other functions", whole=False, plain=False),
    Tier("gates in another order in each array, with other functions", tied=False, plain=False),
)


@dataclass
class Found:
    """What a search found.

    readings  those that give the outputs, but for rounding
    near      those that come near, but not as near as rounding explains, with the error in parts of the largest value
    tried     how many readings were tried
    searched  the tiers gone through, in words; the last one may be cut short
    complete  whether the time sufficed for all of the last tier
    """

    readings: list[Reading] = field(default_factory=list)
    near: list[tuple[float, Reading]] = field(default_factory=list)
    tried: int = 0
    searched: list[str] = field(default_factory=list)
    complete: bool = True


class Search:
    """The search for readings of some arrays that give a sample's outputs.

    seconds  how long it may take
    """

    def __init__(self, arrays: Mapping[str, Array], samples: Sequence[Sample], seconds: float = 60.0) -> None:
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        self.arrays = {name: np.ascontiguousarray(array, np.float64) for name, array in arrays.items()}
        self.given = arrays
        self.total = sum(array.size for array in arrays.values())
        self.samples = samples
        known = [one for s in samples for one in (s.y, s.last, *(s.hn or ())) if one is not None]
        types = [widest(array.dtype for array in arrays.values()), *(one.dtype for one in known)]
        self.dtype: np.dtype[Any] = max(types, key=lambda dtype: float(ml_dtypes.finfo(dtype).eps)).newbyteorder("=")
        eps = float(ml_dtypes.finfo(self.dtype).eps)
        self.loose = min(max(400 * eps, _LOOSE), _LOOSEST)
        self.found = Found()
        self._until = time.monotonic() + seconds
        self._firsts: dict[object, list[Settled]] = {}
        self._met: set[object] = set()
        self._halves: dict[object, tuple[Sample, Sample]] = {}
        self._turned: dict[object, list[_Way]] = {}

    def run(self) -> Found:
        """Return what was found in the first tier that has readings which give the outputs; else all that come near."""
        for tier in TIERS:
            self.found.searched.append(tier.what)
            self._firsts.clear()
            for reading, blocks in self._tier(tier):
                self._judge(reading, blocks)
                if time.monotonic() > self._until:
                    self.found.complete = False
                    return self.found
            if self.found.readings:
                break
        for reading in list(self.found.readings):
            self._otherwise(reading)
        return self.found

    def _otherwise(self, reading: Reading) -> None:
        """Try the same places with every other function, constant and reset mode: small numbers hide what functions are."""
        blocks = blocks_of(reading.structure, self.arrays)
        sample = next(one for one in self.samples if one.axes == reading.axes)
        ways = self._ways(sample, reading.structure.sizes.num_directions == 1)
        glimpse = next(way.glimpse for way in ways if (way.reverse, way.order) == (reading.reverse, reading.order))
        constants: list[dict[str, float]] = [{}, {"f": 1.0}] if reading.cell.kind == "lstm" else [{}]
        resets = (True, False) if reading.cell.kind == "gru" else (None,)
        every = [f for plain in (True, False) for f in functions(reading.cell.kind, plain)]
        for (gate, candidate, output), constant, reset in itertools.product(every, constants, resets):
            cell = replace(
                reading.cell, gate_activation=gate, activation=candidate, output_activation=output, constants=constant, reset_after=reset
            )  # fmt: skip
            other = replace(reading, cell=cell)
            what = other.identity(blocks)
            if what not in self._met and time.monotonic() < self._until:
                self._met.add(what)
                self.found.tried += 1
                if self._gives(other, blocks, glimpse):
                    self._judge(other, blocks)

    def unseen(self, reading: Reading) -> list[str]:
        """Return the parts whose numbers the sample does not show: with their rows exchanged the outputs are the same."""
        blocks = blocks_of(reading.structure, self.arrays)
        sample = reading.turned(next(one for one in self.samples if one.axes == reading.axes)).few(4)
        usual = solve(reading.stack(blocks, forward=True), sample)
        found = []
        for at, key in ((place, key) for place in sorted(blocks) for key in blocks[place]):
            own = blocks[at][key]
            turned = own[::-1, ::-1] if own.ndim == 2 else own[::-1]
            gate = next((g for g, slot in reading.orders.get(key[0], {}).items() if slot == key[1]), key[1])
            if own.size < 2 or np.array_equal(own, turned):
                continue
            changed = {**blocks, at: {**blocks[at], key: turned}}
            known = pairs(sample, usual, reading.merge)
            other = pairs(sample, solve(reading.stack(changed, forward=True), sample), reading.merge)
            if known is not None and other is not None:
                compared = [(name, a, b) for (name, _, a), (_, _, b) in zip(known, other, strict=True)]
                if off(compared) <= 4 * float(ml_dtypes.finfo(self.dtype).eps):
                    found.append(f"{key[0]} of gate {gate}" if gate else key[0])
        return list(dict.fromkeys(found))

    def _tier(self, tier: Tier) -> Iterator[tuple[Reading, Blocks]]:
        """Yield the readings that pass the first three steps."""
        for sample in self.samples:
            for layout in known() if tier.known else templates():
                for sizes, merge in self._sizes(layout, sample):
                    if not possible(layout, sizes, self.total, tier.whole):
                        continue
                    for structure in structures(layout, sizes, self.shapes, tier):
                        if time.monotonic() > self._until:
                            self.found.complete = False
                            return
                        yield from self._of(structure, sample, merge, tier)

    def _sizes(self, layout: Layout, sample: Sample) -> Iterator[tuple[Sizes, Merge]]:
        """Yield the sizes of stacks that read such an input and give such outputs."""
        skips = "input" not in layout.part_names
        states = len(sample.hn or sample.h0 or ())
        widths = [(1, sample.width, "concat")] if sample.width else []
        if sample.width:
            widths += [(2, sample.width, merge) for merge in ("sum", "ave", "mul")]
            widths += [(2, sample.width // 2, "concat")] if sample.width % 2 == 0 else []
        elif sample.hn is not None:
            widths = [(ways, sample.hn[-1].shape[-1], "concat") for ways in (1, 2)]
        for directions, width, merge in widths:
            if merge != "concat" and states % 2:
                continue
            for layers in range(1, _MOST_LAYERS + 1):
                if states and states != layers * directions:
                    continue
                if merge != "concat" and layers > 1:
                    continue
                for parts, hidden in itertools.product(_parts(layout), self._hidden(layout, sample, width)):
                    if skips and hidden != sample.x.shape[-1]:
                        continue
                    projection = width if "projection" in parts else 0
                    if not projection and hidden != width:
                        continue
                    if not _of_widths((sample.h0, sample.hn), width) or not _of_widths((sample.c0, sample.cn), hidden):
                        continue
                    yield (
                        Sizes(layout.kind, sample.x.shape[-1], hidden, layers, directions, projection, parts, skips),
                        cast(Merge, merge),
                    )

    def _hidden(self, layout: Layout, sample: Sample, width: int) -> Iterator[int]:
        """Yield how many units a layer may have whose directions give outputs of this width."""
        if "projection" not in layout.part_names:
            yield width
        elif sample.cn is not None:
            yield sample.cn[-1].shape[-1]
        else:
            lengths = {length for shape in self.shapes.values() for length in shape}
            sizes = {n // k for n in lengths for k in (1, 4, 8) if n % k == 0}
            yield from sorted(size for size in sizes | {width} if size >= width)

    def _of(self, structure: Structure, sample: Sample, merge: Merge, tier: Tier) -> Iterator[tuple[Reading, Blocks]]:
        try:
            blocks = blocks_of(structure, self.arrays)
        except ValueError:
            return
        for way in self._ways(sample, structure.sizes.num_directions == 1):
            base = Reading(structure, Cell("rnn"), {}, False, merge, sample.axes, way.reverse, way.order)
            for reading in self._begun(base, blocks, way, tier):
                for whole in completed(reading, tier):
                    what = whole.identity(blocks)
                    if what in self._met or time.monotonic() > self._until:
                        continue
                    self._met.add(what)
                    self.found.tried += 1
                    if self._gives(whole, blocks, way.glimpse):
                        yield whole, blocks

    def _ways(self, sample: Sample, one: bool) -> list[_Way]:
        """Return the sample as it is, and for a single direction, turned as a layer sees it that reads from the end."""
        key = (id(sample), one)
        if key not in self._turned:
            turns = [sample]
            if one:
                turns += [sample.turned()] + ([sample.turned("processing")] if sample.y is not None else [])
            self._turned[key] = [
                _Way(turned.reverse, turned.order, turned, turned.few(2, 1), _glimpse(turned, one, 3))
                for turned in turns
            ]
        return self._turned[key]

    def _begun(self, base: Reading, blocks: Blocks, way: _Way, tier: Tier) -> Iterator[Reading]:
        """Yield readings that pass the first step; all, where running the whole alone shows it."""
        sizes, sample = base.structure.sizes, way.sample
        parts = base.structure.sizes.parts
        seen = sample.y is not None and sample.zero_state and not parts & {"initial_hidden", "initial_cell"}
        if not seen or base.merge != "concat" or (sizes.num_layers > 1 and sizes.num_directions > 1):
            yield from (settle(base, settled) for settled in choices(base.structure, blocks[0, 0], tier))
        else:
            yield from (settle(base, settled) for settled in self._both(base.structure, blocks, way, tier))

    def _both(self, structure: Structure, blocks: Blocks, way: _Way, tier: Tier) -> Iterator[Settled]:
        """Yield what the first steps of a layer settle, in each of its directions."""
        if structure.sizes.num_directions == 1:
            yield from self._first(structure, [blocks[at] for at in sorted(blocks)], way.first, tier)
            return
        width = structure.sizes.output_size
        if (id(way), width) not in self._halves:
            first = way.first.columns(0, width)
            last = way.sample.columns(width, 2 * width).turned().few(2, 1)
            self._halves[id(way), width] = first, last
        first, last = self._halves[id(way), width]
        passed = self._first(structure, [blocks[0, 0]], first, tier)
        if passed:
            backward = self._first(structure, [blocks[0, 1]], last, tier)
            yield from (settled for settled in passed if settled in backward)

    def _gives(self, reading: Reading, blocks: Blocks, turned: Sample) -> bool:
        stack = reading.stack(blocks, forward=True)
        return off(pairs(turned, solve(stack, turned), reading.merge)) <= self.loose

    def _first(
        self, structure: Structure, layers: Sequence[Mapping[Key, Array]], sample: Sample, tier: Tier
    ) -> list[Settled]:
        """Return what the first step settles; W and the biases alone decide, so what they gave is kept."""
        used = [{key: value for key, value in own.items() if key[0] != "recurrent"} for own in layers]
        key = (
            structure.layout.kind, structure.layout.coupled, structure.layout.letters, id(sample),
            tuple(
                tuple(sorted((key, value.__array_interface__["data"][0], value.strides) for key, value in own.items() if value.any()))
                for own in used
            ),
        )  # fmt: skip
        if key not in self._firsts:
            self._firsts[key] = list(self._settle(structure, used, sample, tier))
        return self._firsts[key]

    def _settle(
        self, structure: Structure, layers: Sequence[Mapping[Key, Array]], sample: Sample, tier: Tier
    ) -> Iterator[Settled]:
        wanted = np.asarray(sample.y)[0]
        hidden = structure.sizes.hidden_size
        projected = ("projection", "") in layers[0]
        units = np.arange(hidden)
        if not projected and hidden > _UNITS:
            units = np.linspace(0, hidden - 1, _UNITS).astype(int)
            wanted = wanted[:, units]
        scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
        # Of the last layer a few units show it; those below have to be computed.
        last = {key: value if key[0] == "projection" else value[units] for key, value in layers[-1].items()}
        below = [*layers[:-1], last]
        x = sample.x[0].astype(np.float64)
        given = products(x, below[0], units if len(below) == 1 else np.arange(hidden), structure.layout)
        for settled in choices(structure, layers[0], tier):
            self.found.tried += 1
            reading = settle(Reading(structure, Cell("rnn"), {}), settled)
            h = one_step(reading, settled, below[0], given)
            for own in below[1:]:
                h = one_step(reading, settled, own, products(h, own, units, structure.layout))
            with np.errstate(all="ignore"):
                error = float(np.abs(h - wanted).max())
            if error <= self.loose * scale:
                yield settled

    def _judge(self, reading: Reading, blocks: Blocks) -> None:
        sample = next(one for one in self.samples if one.axes == reading.axes)
        turned = reading.turned(sample)
        stack = reading.stack(blocks, forward=True)
        error = off(pairs(turned, solve(stack, turned), reading.merge))
        if not error <= self.loose:
            return
        if ratio(stack, turned, reading.merge, self.dtype) <= 1:
            self.found.readings.append(reading)
        else:
            self.found.near.append((error, reading))


class _Way(NamedTuple):
    """A sample as a layer sees it, its first step, and its first three where a layer reads forward."""

    reverse: bool
    order: str
    sample: Sample
    first: Sample
    glimpse: Sample


def _of_widths(states: Iterable[States], width: int) -> bool:
    """Return whether the states that are known have this width."""
    return all(one.shape[-1] == width for some in states for one in some or ())


def _parts(layout: Layout) -> Iterator[frozenset[str]]:
    """Yield the parts that stacks of a template may have: where arrays are shared, some may be absent."""
    full = frozenset(layout.part_names | {"input", "recurrent"})
    groups = [full & group for group in ({"initial_hidden", "initial_cell"}, {"peephole"}, {"projection"})]
    for absent in itertools.product(*((frozenset(), group) if group else (frozenset(),) for group in groups)):
        yield full.difference(*absent)


def _glimpse(sample: Sample, forward: bool, steps: int) -> Sample:
    """Return one or two sequences, and where the layer only reads forward, so many of their steps."""
    return sample.few(2 if forward else 1, steps if forward else None)
