"""Which readings of arrays give the outputs of a sample: searched from the first step on, where most readings fail.

From a zero state the first step needs neither the recurrent matrices nor, in an LSTM, the forget gate: it decides what W and the
biases are, which of their blocks are which gates, and the functions, on a few units. Only what passes is run for three steps, which
decide the rest, and only what passes that for all steps, where rounding judges.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np

from rnnconvert.core.arrays import Array, epsilon, widest
from rnnconvert.core.cells import Cell
from rnnconvert.core.weights import Merge
from rnnconvert.identification.bindings import bindings
from rnnconvert.identification.deadline import Deadline, OutOfTimeError
from rnnconvert.identification.many import errors
from rnnconvert.identification.reading import Blocks, LayerReading, blocks_of, in_rounding, off, pairs, solve, unseen
from rnnconvert.identification.rows import RowReadings, begun, completed, reading_of, varied
from rnnconvert.identification.sample import Sample, States
from rnnconvert.identification.structures import (
    ArrangedTemplate,
    Options,
    SearchRound,
    Structure,
    arranged,
    enough,
    known_templates,
    possible,
    templates,
)
from rnnconvert.language.layout import Layout, Sizes

_UNITS = 48
"""On how many units the first step is judged."""
_LOOSE, _LOOSEST = 2e-3, 0.05
"""How far off, in parts of the largest output, a reading may be and be tried further; rounding may ask for more, up to a limit."""
_MOST_LAYERS = 8
_SEARCHING = 0.75
"""The part of the time in which readings are searched; the rest is left to compare and name them."""
_ORDERED = ("input_bias", "recurrent_bias", "peephole")

TIERS = (
    SearchRound(
        "the places of every known layout, with any gate order, sign, bias arrangement and reset mode, sigmoid and tanh", registered=True
    ),
    SearchRound("the same with other functions", registered=True, plain=False),
    SearchRound("the places of every known layout, with gates in another order in each array", registered=True, tied=False),
    SearchRound("arrays of one shape and their gates in any order", registered=True, common=False, tied=False),
    SearchRound("any order of axes"),
    SearchRound("arrays and gates in any order, with other functions", registered=True, common=False, tied=False, plain=False),
    SearchRound("some of the arrays alone", registered=True, whole_file=False),
    SearchRound("arrays of one shape in any order", registered=True, common=False),
    SearchRound("gates in another order in each array, with other functions", registered=True, tied=False, plain=False),
    SearchRound("arrays of one shape in any order, with other functions", registered=True, common=False, plain=False),
    SearchRound("some of the arrays alone, with other functions", registered=True, whole_file=False, plain=False),
    SearchRound("any order of axes, with other functions", plain=False),
    SearchRound("any order of axes, of some of the arrays alone", whole_file=False),
    SearchRound("any order of axes and of arrays of one shape", common=False),
    SearchRound("any order of axes, with gates in another order in each array", tied=False),
    SearchRound("gates and arrays in any order", common=False, tied=False),
    SearchRound("any order of axes, of gates in each array, and other functions", tied=False, plain=False),
    SearchRound("any order of axes, of some of the arrays alone, with other functions", whole_file=False, plain=False),
)


@dataclass
class SearchResult:
    """The result of a search.

    readings  the readings that give the outputs, except for rounding
    near      the readings that come near, but not as near as rounding explains, with the error in parts of the largest value
    tried     how many readings were tried
    searched  the tiers gone through, in words; the last one may be cut short
    complete  whether the time sufficed for all of the last tier
    """

    readings: list[LayerReading] = field(default_factory=list)
    near: list[tuple[float, LayerReading]] = field(default_factory=list)
    tried: int = 0
    searched: list[str] = field(default_factory=list)
    complete: bool = True


_MOST_DOUBLED = 1 << 23
"""The most numbers of an array of which a copy in double precision is kept."""


class _Doubles(Mapping[str, Array]):
    """Arrays in double precision, each made when it is first asked for; large ones as they are, and converted in parts where used."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self.cache: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if self._arrays[name].size > _MOST_DOUBLED:
            return self._arrays[name]
        if name not in self.cache:
            self.cache[name] = np.ascontiguousarray(self._arrays[name], np.float64)
        return self.cache[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


class Search:
    """The search for readings of some arrays that give a sample's outputs.

    seconds  how long it may take, comparing what gives the outputs included
    """

    def __init__(self, arrays: Mapping[str, Array], samples: Sequence[Sample], seconds: float = 60.0) -> None:
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        self.arrays = _Doubles(arrays)
        self.stored = arrays
        self.total = sum(array.size for array in arrays.values())
        self.samples = samples
        outputs = [array for s in samples for array in (s.y, s.last, *(s.hn or ())) if array is not None]
        types = [widest(array.dtype for array in arrays.values()), *(array.dtype for array in outputs)]
        self.dtype: np.dtype[Any] = max(types, key=epsilon).newbyteorder("=")
        eps = epsilon(self.dtype)
        self.loose = min(max(400 * eps, _LOOSE), _LOOSEST)
        self.findings = SearchResult()
        self._searching, self.end = Deadline.after(_SEARCHING * seconds), Deadline.after(seconds)
        self._firsts: dict[object, Array] = {}
        self._seen: set[object] = set()
        self._tried: set[object] = set()
        self._dead: set[object] = set()
        self._alive = False
        self._options: Options = {}
        self._arrangements: dict[object, list[tuple[Merge, ArrangedTemplate]]] = {}
        self._spans: dict[object, list[tuple[Sizes, Merge]]] = {}
        self._halves: dict[object, Sample] = {}
        self._turned: dict[object, list[_SampleWay]] = {}

    def run(self, tiers: Sequence[SearchRound] = TIERS) -> SearchResult:
        """Return the result of the first tier that has readings which give the outputs; else all that come near.

        tiers  the tiers to go through; a second call goes on with others
        """
        with self.ending():
            for tier in tiers if self.findings.complete else ():
                self.findings.searched.append(tier.what)
                self._firsts.clear()
                for reading, blocks in self._tier(tier):
                    self._judge(reading, blocks)
                self._searching.check()
                if self.findings.readings:
                    break
            for reading in list(self.findings.readings):
                self._otherwise(reading)
        return self.findings

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Leave what is done within it once its time is up, and mark the search incomplete."""
        try:
            yield
        except OutOfTimeError:
            self.findings.complete = False

    def time_left(self) -> bool:
        """Return whether there is time left for what follows the search; where there is none, mark the search incomplete."""
        left = not self.end.passed
        self.findings.complete &= left
        return left

    def _otherwise(self, reading: LayerReading) -> None:
        """Try the same places with every other function, constant and reset mode: small numbers hide what functions are."""
        blocks = blocks_of(reading.structure, self.arrays)
        sample = next(candidate for candidate in self.samples if candidate.axes == reading.axes)
        ways = self._ways(sample, reading.structure.sizes.num_directions == 1)
        glimpse = next(way.glimpse for way in ways if (way.reverse, way.order) == (reading.reverse, reading.order))
        for rows in varied(reading):
            for other in self._passing(reading, rows, blocks, glimpse):
                self._judge(other, blocks)

    def unseen(self, reading: LayerReading) -> list[str]:
        """Return the parts whose numbers the sample does not show: with their rows exchanged the outputs are the same.

        None of them where the time ends first; the search is incomplete then.
        """
        blocks = blocks_of(reading.structure, self.arrays)
        sample = reading.turned(next(candidate for candidate in self.samples if candidate.axes == reading.axes))
        parts: list[str] = []
        with self.ending():
            parts += unseen(reading.stack(blocks, forward=True), sample, self.dtype, self.end)
        return parts

    def _tier(self, tier: SearchRound) -> Iterator[tuple[LayerReading, Blocks]]:
        """Yield the readings that pass the first three steps."""
        for sample in self.samples:
            for merge, arrangement in self._arranged(sample, tier):
                names, places = arrangement.fed
                about = id(sample), merge, arrangement.layout.coupled, places, tier.tied, tier.plain
                for binding in bindings(arrangement.layout, arrangement.blocks, self.shapes, tier.common, tier.tied):
                    self._searching.check()
                    # Where no reading of W and the biases passes the first step, nothing that R may be matters.
                    fed = about, tuple([binding[name] for name in names])
                    if fed not in self._dead:
                        yield from self._of(
                            Structure(arrangement.layout, arrangement.sizes, binding, arrangement.places), sample, merge, tier, fed
                        )

    def _arranged(self, sample: Sample, tier: SearchRound) -> Iterator[tuple[Merge, ArrangedTemplate]]:
        """Yield how the arrays may be arranged; what was found for one round serves the others."""
        key = id(sample), tier.registered, tier.whole_file
        if key in self._arrangements:
            yield from self._arrangements[key]
            return
        arrangements: list[tuple[Merge, ArrangedTemplate]] = []
        for layout in known_templates() if tier.registered else templates():
            for sizes, merge in self._sizes(layout, sample):
                if not possible(layout, sizes, self.total, tier.whole_file):
                    continue
                if not enough(layout, sizes, self.shapes, tier.whole_file):
                    continue
                for arrangement in arranged(layout, sizes, self.shapes, tier.registered, self._options):
                    arrangements.append((merge, arrangement))
                    yield merge, arrangement
        self._arrangements[key] = arrangements

    def _sizes(self, layout: Layout, sample: Sample) -> list[tuple[Sizes, Merge]]:
        """Return the sizes of stacks that read such an input and give such outputs."""
        key = id(sample), layout.kind, layout.part_names
        if key not in self._spans:
            self._spans[key] = list(self._spanned(layout, sample))
        return self._spans[key]

    def _spanned(self, layout: Layout, sample: Sample) -> Iterator[tuple[Sizes, Merge]]:
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
                    yield (Sizes(layout.kind, sample.x.shape[-1], hidden, layers, directions, projection, parts, skips), cast(Merge, merge))

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

    def _of(
        self, structure: Structure, sample: Sample, merge: Merge, tier: SearchRound, fed: object
    ) -> Iterator[tuple[LayerReading, Blocks]]:
        key = (structure.where, structure.layout.coupled, sample.axes, merge, tier.tied, tier.plain)
        if key in self._tried:
            return
        self._tried.add(key)
        try:
            blocks = blocks_of(structure, self.arrays)
        except ValueError:
            return
        self._alive = False
        for way in self._ways(sample, structure.sizes.num_directions == 1):
            base = LayerReading(structure, Cell("rnn"), {}, False, merge, sample.axes, way.reverse, way.order)
            for rows in self._begun(base, blocks, way, tier):
                self._alive = True
                for reading in self._passing(base, rows, blocks, way.glimpse):
                    yield reading, blocks
        if not self._alive:
            self._dead.add(fed)

    def _passing(self, base: LayerReading, rows: RowReadings, blocks: Blocks, glimpse: Sample) -> Iterator[LayerReading]:
        """Yield each reading that gives the outputs in a part of a sample, once."""
        self.findings.tried += rows.number
        off = errors(rows, base.structure, blocks, glimpse, base.merge, self._searching)
        for row in np.flatnonzero(off <= self.loose):
            reading = reading_of(base, rows, int(row))
            what = reading.identity(blocks)
            if what not in self._seen:
                self._seen.add(what)
                yield reading

    def _ways(self, sample: Sample, single: bool) -> list[_SampleWay]:
        """Return the sample as it is, and for a single direction, turned as a layer sees it that reads from the end."""
        key = (id(sample), single)
        if key not in self._turned:
            turns = [sample]
            if single:
                turns += [sample.turned()] + ([sample.turned("processing")] if sample.y is not None else [])
            self._turned[key] = [
                _SampleWay(turned.reverse, turned.order, turned, turned.few(2, 1), _glimpse(turned, single, 3)) for turned in turns
            ]
        return self._turned[key]

    def _begun(self, base: LayerReading, blocks: Blocks, way: _SampleWay, tier: SearchRound) -> Iterator[RowReadings]:
        """Yield readings that pass the first step; all, where running the whole alone shows it."""
        structure = base.structure
        layout, sizes, sample = structure.layout, structure.sizes, way.sample
        seen = sample.y is not None and base.merge == "concat"
        zero = sample.zero_state and not sizes.parts & {"initial_hidden", "initial_cell"}
        held = frozenset(part if part != "peephole" else gate for part, gate in blocks[0, 0] if part in _ORDERED)
        for rows in begun(layout.kind, layout.coupled, bool(layout.letters), held, tier.tied, tier.plain):
            self._searching.check()
            if seen and zero and (sizes.num_layers == 1 or sizes.num_directions == 1):
                left = self._first(structure, blocks, way, rows)
                if left.number:
                    yield completed(left, layout, tier)
                continue
            self._alive = True
            if seen and sizes.num_directions == 1:
                yield self._left(structure, blocks, way.first, completed(rows, layout, tier))
            else:
                yield completed(rows, layout, tier)

    def _first(self, structure: Structure, blocks: Blocks, way: _SampleWay, rows: RowReadings) -> RowReadings:
        """Return the readings that pass the first step of each direction from a zero state, in which R has no part."""
        sizes = structure.sizes
        alone = replace(structure, sizes=replace(sizes, num_directions=1))
        fed = tuple(place for place in structure.where if place[2][0] != "recurrent")
        for direction in range(sizes.num_directions):
            first = way.first if sizes.num_directions == 1 else self._half(way, sizes.output_size, direction)
            key = fed, structure.layout.coupled, id(first), direction, rows[:2], rows.number
            if key not in self._firsts:
                first_blocks = {(layer, 0): blocks[layer, direction] for layer in range(sizes.num_layers)}
                self._firsts[key] = self._rows_left(alone, *_of_units(first_blocks, first), rows)
            rows = rows.chosen(self._firsts[key])
        return rows

    def _half(self, way: _SampleWay, width: int, direction: int) -> Sample:
        """Return the first step of one of two directions, which a layer gives side by side."""
        key = id(way), width, direction
        if key not in self._halves:
            start = direction * width
            half = (way.sample.turned() if direction else way.sample).columns(start, start + width)
            self._halves[key] = half.few(2, 1)
        return self._halves[key]

    def _left(self, structure: Structure, blocks: Blocks, sample: Sample, rows: RowReadings) -> RowReadings:
        return rows.chosen(self._rows_left(structure, blocks, sample, rows))

    def _rows_left(self, structure: Structure, blocks: Blocks, sample: Sample, rows: RowReadings) -> Array:
        """Return which readings give what a part of the sample shows."""
        self.findings.tried += rows.number
        return np.flatnonzero(errors(rows, structure, blocks, sample, "concat", self._searching) <= self.loose)

    def _judge(self, reading: LayerReading, blocks: Blocks) -> None:
        sample = next(candidate for candidate in self.samples if candidate.axes == reading.axes)
        turned = reading.turned(sample)
        stack = reading.stack(blocks, forward=True)
        exact = pairs(turned, solve(stack, turned, deadline=self._searching), reading.merge)
        error = off(exact)
        if not error <= self.loose:
            return
        rough = pairs(turned, solve(stack, turned, self.dtype, self._searching), reading.merge)
        if in_rounding(exact, rough, self.dtype) <= 1:
            self.findings.readings.append(reading)
        else:
            self.findings.near.append((error, reading))


def _of_units(blocks: Blocks, first: Sample) -> tuple[Blocks, Sample]:
    """Return a layer and its first step for some units of many; those below have to be computed."""
    top = max(blocks)
    hidden = len(blocks[top]["recurrent", next(gate for part, gate in blocks[top] if part == "recurrent")])
    if hidden <= _UNITS or ("projection", "") in blocks[top]:
        return blocks, first
    units = np.linspace(0, hidden - 1, _UNITS).astype(int)
    last = {key: value[units] for key, value in blocks[top].items()}
    return {**blocks, top: last}, replace(first, y=np.asarray(first.y)[..., units])


class _SampleWay(NamedTuple):
    """A sample as a layer sees it, its first step, and its first three where a layer reads forward."""

    reverse: bool
    order: str
    sample: Sample
    first: Sample
    glimpse: Sample


def _of_widths(states: Iterable[States], width: int) -> bool:
    """Return whether the states that are known have this width."""
    return all(state.shape[-1] == width for some in states for state in some or ())


def _parts(layout: Layout) -> Iterator[frozenset[str]]:
    """Yield the parts that stacks of a template may have: where arrays are shared, some may be absent."""
    full = frozenset(layout.part_names | {"input", "recurrent"})
    groups = [full & group for group in ({"initial_hidden", "initial_cell"}, {"peephole"}, {"projection"})]
    for absent in itertools.product(*((frozenset(), group) if group else (frozenset(),) for group in groups)):
        yield full.difference(*absent)


def _glimpse(sample: Sample, forward: bool, steps: int) -> Sample:
    """Return one or two sequences, and where the layer only reads forward, so many of their steps."""
    return sample.few(2 if forward else 1, steps if forward else None)
