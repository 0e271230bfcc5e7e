"""Recurrent layers among arrays that have an order and no names: runs of arrays that fit a layout.

The tensors of a layout are in the framework's order, so a run is a layout, sizes, and where it begins. Where runs
overlap, a run is not meant if longer ones hold all of it; in every other case nothing is taken, and the caller says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rnnconvert.errors import UsageError
from rnnconvert.fitting import fits
from rnnconvert.layout import Form, Layout, Shape, shapes
from rnnconvert.weights import BIAS_PARTS

T = TypeVar("T")

MOST = 5_000
"""The most arrays that are searched: a network has hundreds, and each may begin a layer."""
_SHOWN = 4

_MODES = {"none": (), "input": BIAS_PARTS[:1], "recurrent": BIAS_PARTS[1:], "both": BIAS_PARTS}


class Run(NamedTuple):
    """Arrays that follow one another and are a layer's.

    start, stop  the place of the first, and the one behind the last
    layout       whose arrays they are
    form         their sizes
    """

    start: int
    stop: int
    layout: Layout
    form: Form

    @property
    def names(self) -> list[str]:
        """What the layout calls the arrays, in order."""
        return list(shapes(self.layout, self.form))

    def __str__(self) -> str:
        return f"{self.layout.name} of {self.form.input_size} inputs and {self.form.hidden_size} units"


class Home(NamedTuple):
    """Where the layers of a file lie: the place of each one's first array, by its name."""

    starts: Mapping[str, int]


def search(found: Sequence[Shape | None], layouts: Iterable[Layout]) -> tuple[list[Run], list[str]]:
    """The layers among arrays of these shapes (None for one that is no layer's), and what is not settled.

    Raises nothing: a doubt is a sentence that ends in what can be said.
    """
    if len(found) > MOST:
        return [], [
            f"its {len(found)} arrays are more than are searched ({MOST}): say where layers begin, --set arrays=LAYOUT@PLACE"
        ]
    known = list(layouts)
    by_start = {start: [run for layout in known for run in _runs(found, start, layout)] for start in range(len(found))}
    longest = max((run.stop - run.start for runs in by_start.values() for run in runs), default=0)
    runs = [
        run
        for start, begun in by_start.items()
        for run in begun
        if not _held(run, [one for near in range(start - longest, run.stop) for one in by_start.get(near, ())])
    ]
    clear, doubts = [], []
    for cluster in _clusters(runs):
        if len(cluster) == 1:
            clear += cluster
            continue
        first, *others = (f"{run} from {run.start} to {run.stop - 1}" for run in cluster[:_SHOWN])
        choice = f"{cluster[0].layout.name.partition('.')[2]}@{cluster[0].start}"
        doubts.append(f"arrays may be {first} or {' or '.join(others)}: say which with --set arrays={choice}")
    return clear, doubts


def told(text: str, found: Sequence[Shape | None], layouts: Mapping[str, Layout]) -> list[Run]:
    """The layers that a caller says there are: "lstm@0,gru@17".

    layouts  by the second half of their names

    Raises UsageError if the text is none, or the arrays at a place do not fit.
    """
    runs: list[Run] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, at, place = word.partition("@")
        if not at or not place.isdecimal() or name not in layouts:
            known = ", ".join(layouts)
            raise UsageError(f"option arrays: {word!r} is no LAYOUT@PLACE, as in {next(iter(layouts))}@0 (of {known})")
        fitting = list(_runs(found, int(place), layouts[name]))
        if not fitting:
            there = [shape for shape in found[int(place) : int(place) + 4] if shape is not None]
            shown = ", ".join(map(str, there)) or "nothing"
            raise UsageError(
                f"option arrays: no {layouts[name].class_name} begins at array {place}: there are {shown}, and it has "
                f"{', '.join(tensor.name for tensor in layouts[name].tensors[:4])} in this order"
            )
        runs.append(max(fitting, key=lambda run: run.stop))
    for one, other in itertools.combinations(runs, 2):
        if _overlap(one, other):
            raise UsageError(f"option arrays: {one} at {one.start} and {other} at {other.start} share arrays")
    return sorted(runs, key=lambda run: run.start)


def placed(layers: Iterable[tuple[int | None, Sequence[T]]], others: Mapping[int, T]) -> list[T]:
    """Arrays of layers and others in one row: each where it was, what is new behind them."""
    rows = [(start, list(arrays)) for start, arrays in layers if start is not None]
    rows += [(place, [array]) for place, array in others.items()]
    new = [array for start, arrays in layers if start is None for array in arrays]
    return [array for _, arrays in sorted(rows, key=lambda row: row[0]) for array in arrays] + new


def _runs(found: Sequence[Shape | None], start: int, layout: Layout) -> Iterator[Run]:
    """Every way in which a layer begins at a place."""
    for parts in _choices(layout):
        smallest = shapes(layout, Form(layout.kind, 1, 1, parts=parts))
        met = found[start : start + len(smallest)]
        fitting = len(met) == len(smallest) and all(
            shape is not None and len(shape) == len(axes) and all(shape)
            for shape, axes in zip(met, smallest.values(), strict=True)
        )
        if fitting:
            there = {name: shape for name, shape in zip(smallest, met, strict=True) if shape is not None}
            yield from (
                Run(start, start + len(there), layout, form) for form in fits(layout, there) if form.parts == parts
            )


def _choices(layout: Layout) -> Iterator[frozenset[str]]:
    """The sets of parts that a layer may have: its biases and peepholes are its maker's choice."""
    always = layout.part_names - set(BIAS_PARTS) - {"peephole"}
    peepholes = ((), ("peephole",)) if "peephole" in layout.part_names else ((),)
    for mode, extra in itertools.product(layout.holds.biases, peepholes):
        yield frozenset({*always, *_MODES[mode], *extra})


def _held(run: Run, beside: Sequence[Run]) -> bool:
    """Whether all of its arrays are those of longer runs beside it."""
    longer = [other for other in beside if other.stop - other.start > run.stop - run.start]
    return all(any(other.start <= place < other.stop for other in longer) for place in range(run.start, run.stop))


def _overlap(run: Run, other: Run) -> bool:
    return run.start < other.stop and other.start < run.stop


def _clusters(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Runs that overlap one another, together."""
    cluster: list[Run] = []
    for run in sorted(runs, key=lambda run: run.start):
        if cluster and run.start >= max(one.stop for one in cluster):
            yield cluster
            cluster = []
        cluster.append(run)
    if cluster:
        yield cluster
