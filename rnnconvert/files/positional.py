"""Recurrent layers among arrays that have an order and no names: runs of arrays that fit a layout.

The tensors of a layout are in the framework's order, so a run is a layout, sizes, and where it begins. Where runs
overlap, a run is not meant if longer ones hold all of it; in every other case nothing is taken, and the caller says.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.errors import UsageError
from rnnconvert.core.limits import SEARCHED_ARRAYS
from rnnconvert.core.names import is_count
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import BIAS_PARTS, Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.language.fitting import fits
from rnnconvert.language.layout import Layout, Shape, Sizes
from rnnconvert.language.places import shapes

T = TypeVar("T")

_MODES = {"none": (), "input": BIAS_PARTS[:1], "recurrent": BIAS_PARTS[1:], "both": BIAS_PARTS}

_MOST_SHOWN = 6
"""How many of the layers that arrays may be are named in a doubt."""


class ArrayRun(NamedTuple):
    """Arrays that follow one another and are a layer's.

    start   the place of the first
    layout  of what layer
    form    of which sizes
    names   what the layout calls them, in order
    """

    start: int
    layout: Layout
    sizes: Sizes
    names: tuple[str, ...]

    @property
    def stop(self) -> int:
        """The place behind the last."""
        return self.start + len(self.names)

    @property
    def places(self) -> range:
        """The places of all of them."""
        return range(self.start, self.stop)

    def __str__(self) -> str:
        return f"{self.layout.name} of {self.sizes.input_size} inputs and {self.sizes.hidden_size} units"


class LayerPlaces(NamedTuple):
    """Where the layers of a file lie.

    starts  the place of each one's first array, by its name
    complete  whether every array of the file was read
    """

    starts: Mapping[str, int]
    complete: bool = True


def read_row(
    path: Path,
    format: str,
    arrays: Sequence[Array | None],
    unreadable: Sequence[LayerNote],
    layouts: Iterable[Layout],
    options: Options,
    layer: Callable[[str, ArrayRun, Mapping[str, Array]], Recurrent],
    label: str = "{}",
) -> Checkpoint:
    """Return every run of arrays that is a layer's, called lstm_0, gru_1 and so on in the file's order.

    layer  makes the layer of a name, a run and its arrays by their local names
    label  what the file calls the array at a place

    Raises UsageError for places in the options that do not fit.
    """
    by_kind = {layout.name.partition(".")[2]: layout for layout in layouts}
    places, array_shapes = options.get("arrays"), shapes_of(arrays)
    runs, doubts = (parse_places(places, array_shapes, by_kind), []) if places else search(array_shapes, by_kind.values())
    if not places and not doubts:
        ask_others(runs, array_shapes, options)
    named = {f"{run.layout.kind}_{number}": run for number, run in enumerate(runs)}
    layers = {}
    for name, run in named.items():
        there = zip(run.names, arrays[run.start : run.stop], strict=True)
        layers[name] = layer(name, run, {local: array for local, array in there if array is not None})
    used = {place for run in runs for place in range(run.start, run.stop)}
    return Checkpoint(
        str(path),
        format,
        layers,
        {label.format(place): array for place, array in enumerate(arrays) if array is not None and place not in used},
        tuple(
            f"{name}: the arrays {label.format(run.start)} to {label.format(run.stop - 1)} are shaped as {run.layout.class_name}'s"
            for name, run in named.items()
        ),
        options.questions,
        (*doubts, *unreadable),
        read=LayerPlaces({name: run.start for name, run in named.items()}, complete=not unreadable),
        unread=tuple(doubts),
    )


def shapes_of(arrays: Sequence[Array | None]) -> list[Shape | None]:
    """Return the shapes of arrays that may belong to a layer, None for the others."""
    return [tuple(array.shape) if array is not None and is_float(array) else None for array in arrays]


def search(array_shapes: Sequence[Shape | None], layouts: Iterable[Layout]) -> tuple[list[ArrayRun], list[LayerNote]]:
    """Return the layers among arrays of these shapes (None for one that belongs to no layer), and what is unsettled.

    Raises nothing: a doubt is a sentence that ends in the remedy.
    """
    if len(array_shapes) > SEARCHED_ARRAYS:
        way = f"Give the places of layers with {Setting('arrays', 'LAYOUT@PLACE')}"
        return [], [LayerNote("", f"its {len(array_shapes)} arrays are more than can be searched ({SEARCHED_ARRAYS}). {way}", UNREAD)]
    every = [run for start in range(len(array_shapes)) for layout in layouts for run in _runs(array_shapes, start, layout)]
    longest = [0] * len(array_shapes)
    for run in every:
        for place in run.places:
            longest[place] = max(longest[place], len(run.names))
    runs = [run for run in every if not all(longest[place] > len(run.names) for place in run.places)]
    held = Counter(place for run in runs for place in run.places)
    clear = [run for run in runs if all(held[place] == 1 for place in run.places)]
    doubts = []
    for cluster in _clusters([run for run in runs if any(held[place] > 1 for place in run.places)]):
        first, *others = (f"{run} from {run.start} to {run.stop - 1}" for run in cluster[:_MOST_SHOWN])
        more = [f"others of {len(cluster)} layers"] if len(cluster) > _MOST_SHOWN else []
        choice = f"{cluster[0].layout.name.partition('.')[2]}@{cluster[0].start}"
        listed = " or ".join([*others, *more])
        doubts.append(LayerNote("", f"arrays may be {first} or {listed}. Choose with {Setting('arrays', choice)}", UNREAD))
    return clear, doubts


def parse_places(text: str, array_shapes: Sequence[Shape | None], layouts: Mapping[str, Layout]) -> list[ArrayRun]:
    """Return the layers that a caller names: "lstm@0,gru@17".

    layouts  by the second half of their names

    Raises UsageError if the text does not name layers, or the arrays at a place do not fit.
    """
    runs: list[ArrayRun] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, at, place = word.partition("@")
        if not at or not is_count(place) or name not in layouts:
            names = ", ".join(layouts)
            raise UsageError(f"option arrays: {word!r} is not LAYOUT@PLACE, as in {next(iter(layouts))}@0 (of {names})")
        fitting = list(_runs(array_shapes, int(place), layouts[name]))
        if not fitting:
            there = [shape for shape in array_shapes[int(place) : int(place) + 4] if shape is not None]
            listed = ", ".join(map(str, there)) or "nothing"
            raise UsageError(
                f"option arrays: no {layouts[name].class_name} begins at array {place}: the arrays there are {listed}, but it has "
                f"{', '.join(tensor.name for tensor in layouts[name].tensors[:4])} in this order"
            )
        runs.append(max(fitting, key=lambda run: run.stop))
    for first, other in itertools.combinations(runs, 2):
        if _overlap(first, other):
            raise UsageError(f"option arrays: {first} at {first.start} and {other} at {other.start} share arrays")
    return sorted(runs, key=lambda run: run.start)


def ask_others(runs: Sequence[ArrayRun], array_shapes: Sequence[Shape | None], options: Options) -> None:
    """Ask where the layers begin, if matrices are left beside those that their shapes show: one may be a layer's, and damaged."""
    used = {place for run in runs for place in run.places}
    left = [place for place, shape in enumerate(array_shapes) if shape is None or (len(shape) > 1 and place not in used)]
    if left:
        listed = ", ".join(f"{run.layout.name.partition('.')[2]}@{run.start}" for run in runs) or "none"
        why = f"its arrays have no names: the layers were found by their shapes, and array {left[0]} is of none of them"
        options.ask("arrays", assumed=listed, why=why)


def check_places(path: Path, home: LayerPlaces, starts: Sequence[int | None], others: Collection[str]) -> None:
    """Raise UsageError if other arrays would go into a row whose order is no longer known.

    starts  the old places of the layers that are written, None for one that had none
    """
    if others and (not home.complete or not home.starts or None in starts):
        why = "not all arrays of the source could be read" if not home.complete else "these layers were not in it in this form"
        raise UsageError(
            f"{path}: its arrays have no names, and the order of {len(others)} others is unknown: {why}. Convert only the layers "
            f"with {Flag('layer')}, or write a file of arrays by name"
        )


def placed(layers: Iterable[tuple[int | None, Sequence[T]]], others: Mapping[int, T]) -> list[T]:
    """Return arrays of layers and others in one row: each in its old place, new ones after them."""
    rows = [(start, list(arrays)) for start, arrays in layers if start is not None]
    rows += [(place, [array]) for place, array in others.items()]
    new = [array for start, arrays in layers if start is None for array in arrays]
    return [array for _, arrays in sorted(rows, key=lambda row: row[0]) for array in arrays] + new


def _runs(array_shapes: Sequence[Shape | None], start: int, layout: Layout) -> Iterator[ArrayRun]:
    """Yield every way in which a layer begins at a place."""
    for parts in _choices(layout):
        smallest = shapes(layout, Sizes(layout.kind, 1, 1, parts=parts))
        shapes_there = array_shapes[start : start + len(smallest)]
        fitting = len(shapes_there) == len(smallest) and all(
            shape is not None and len(shape) == len(axes) and all(shape)
            for shape, axes in zip(shapes_there, smallest.values(), strict=True)
        )
        if fitting:
            there = {name: shape for name, shape in zip(smallest, shapes_there, strict=True) if shape is not None}
            yield from (ArrayRun(start, layout, sizes, tuple(there)) for sizes in fits(layout, there) if sizes.parts == parts)


def _choices(layout: Layout) -> Iterator[frozenset[str]]:
    """Yield the sets of parts that a layer may have: its biases and peepholes are its maker's choice."""
    always = layout.part_names - set(BIAS_PARTS) - {"peephole"}
    peepholes = ((), ("peephole",)) if "peephole" in layout.part_names else ((),)
    for mode, extra in itertools.product(layout.holds.biases, peepholes):
        yield frozenset({*always, *_MODES[mode], *extra})


def _overlap(run: ArrayRun, other: ArrayRun) -> bool:
    return run.start < other.stop and other.start < run.stop


def _clusters(runs: Sequence[ArrayRun]) -> Iterator[list[ArrayRun]]:
    """Yield groups of runs that overlap one another."""
    cluster: list[ArrayRun] = []
    end = 0
    for run in sorted(runs, key=lambda run: run.start):
        if cluster and run.start >= end:
            yield cluster
            cluster = []
        end = max(end, run.stop) if cluster else run.stop
        cluster.append(run)
    if cluster:
        yield cluster
