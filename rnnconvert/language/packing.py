"""Between the canonical form and a framework's arrays: pack and unpack, exact inverses.

Unpacking gives views. Packing gives arrays that are assembled piece by piece when they are
written, so that a conversion copies each element once and holds no matrix.
"""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rnnconvert.core.arrays import PIECE_BYTES, Array, Deferred, Source, Stretch, copy_tiled, in_order, nbytes, piece_bytes, runs_of
from rnnconvert.core.cells import Cell
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Layer, Recurrent, gates_of
from rnnconvert.language.layout import UNUSED, Layout, Place, Shape, Sizes, c_strides
from rnnconvert.language.places import shapes, slots

Room: TypeAlias = Callable[[int], Array]
"""Gives a buffer of so many elements."""


class _Placed(NamedTuple):
    """A source, and where in the array it goes; None stands for zeros."""

    place: Place
    sign: int
    source: Source | None
    reinterpreted: bool

    def values(self) -> Array | None:
        """Return the numbers in the shape of the place; a computed matrix is computed here."""
        if self.source is None:
            return None
        array = np.asarray(self.source)
        return array.reshape(self.place.shape) if self.reinterpreted else array

    def part(self, window: tuple[slice, ...]) -> Array | None:
        """Return some of the numbers; of a computed matrix, compute only these if possible."""
        if self.source is None or self.reinterpreted:
            values = self.values()
            return None if values is None else values[window]
        return self.source[window]

    @property
    def computed(self) -> bool:
        """Return whether a part of the numbers takes all of a matrix in memory."""
        matrix = self.source is not None and len(self.source.shape) > 1
        return matrix and (self.reinterpreted or (isinstance(self.source, Deferred) and not self.source.by_parts))


class Packed:
    """A framework's array, assembled from the canonical arrays when it is written.

    shape, dtype  as numpy's
    """

    def __init__(self, shape: Shape, dtype: np.dtype[Any], placed: list[_Placed], watch: Callable[[Array], None] | None = None) -> None:
        self.shape = shape
        self.dtype = dtype
        self._placed = placed
        self._watch = watch

    def in_file(self) -> Array | None:
        """Return the array as a view of a mapped file that has it as it is here; None for one that has to be assembled."""
        itemsize = self.dtype.itemsize
        sources = [placed.source for placed in self._placed if placed.sign == 1 and not placed.reinterpreted]
        if not sources or len(sources) < len(self._placed):
            return None
        starts = set()
        for placed, source in zip(self._placed, sources, strict=True):
            if not isinstance(source, np.ndarray) or source.dtype != self.dtype or source.flags.writeable:
                return None
            steps = zip(source.shape, source.strides, placed.place.strides(self.shape), strict=True)
            if any(length > 1 and have != step * itemsize for length, have, step in steps):
                return None
            at: int = source.__array_interface__["data"][0] - placed.place.offset(self.shape) * itemsize
            starts.add((id(_root(source)), at))
        first = next((source for placed, source in zip(self._placed, sources, strict=True) if not placed.place.offset(self.shape)), None)
        if len(starts) > 1 or not isinstance(first, np.ndarray) or not isinstance(_root(first), mmap.mmap):
            return None
        strides = tuple(step * itemsize for step in c_strides(self.shape))
        return np.lib.stride_tricks.as_strided(first, self.shape, strides, writeable=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = np.empty(self.shape, self.dtype)
        for placed in self._placed:
            _fill(placed.place.view(array), placed.values(), placed.sign)
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"Packed(shape={self.shape}, dtype={self.dtype})"

    def pieces(self) -> Iterator[Array]:
        """Yield the elements in C order; see rnnconvert.core.arrays.PiecewiseArray."""
        return in_order(self._watched(), self.dtype)

    def runs(self) -> Iterator[Stretch] | None:
        """Yield the elements in C order, see rnnconvert.core.arrays.Runs; None where a run would compute a whole matrix."""
        if any(placed.computed for placed in self._placed):
            return None
        return self._watched()

    def _watched(self) -> Iterator[Stretch]:
        """Yield the stretches; each is shown to the watch when it is made."""
        watch = self._watch
        if watch is None:
            yield from self._runs()
            return
        for run in self._runs():

            def make(room: Room, run: Stretch = run) -> Array:
                piece = run.make(room)
                watch(piece)
                return piece

            yield Stretch(run.size, make)

    def _runs(self) -> Iterator[Stretch]:
        # PIECE_BYTES // 8: <= A small array is made whole: pieces of it would cost more than they save.
        if nbytes(self) <= PIECE_BYTES // 8:
            yield Stretch(math.prod(self.shape), lambda room: np.asarray(self).reshape(-1))
            return
        for band in self._bands():
            if len(band) == 1 and self._is_complete(band[0].place):
                yield from self._straight(band[0])
            else:
                yield from self._assembled(band)

    def _is_complete(self, place: Place) -> bool:
        # An axis of length 1 is never stepped along: its stride says nothing.
        runs = zip(place.shape, place.strides(self.shape), c_strides(place.shape), strict=True)
        return all(length == 1 or step == unit for length, step, unit in runs)

    def _extent(self, place: Place) -> tuple[int, int]:
        start = place.offset(self.shape)
        reach = zip(place.shape, place.strides(self.shape), strict=True)
        return start, start + 1 + sum((length - 1) * step for length, step in reach)

    def _bands(self) -> Iterator[list[_Placed]]:
        """Yield the sources in order, those that interleave together: each band is a run of the array."""
        end = -1
        band: list[_Placed] = []
        for placed in sorted(self._placed, key=lambda p: p.place.offset(self.shape)):
            start, stop = self._extent(placed.place)
            # Sorted by their starts: a source that begins where all before it have ended interleaves with none of them.
            if band and start >= end:
                yield band
                band = []
            band.append(placed)
            end = max(end, stop)
        if band:
            yield band

    def _straight(self, placed: _Placed) -> Iterator[Stretch]:
        """Yield a source that is one run of the array: its own memory, if nothing in it changes."""
        values: Source | None = placed.values() if placed.reinterpreted else placed.source
        if values is None:
            values = np.broadcast_to(np.zeros((), self.dtype), placed.place.shape)
        same = placed.sign == 1 and values.dtype == self.dtype
        for run in runs_of(values) if isinstance(values, np.ndarray) else _computed(values):
            yield run if same else Stretch(run.size, functools.partial(self._changed, run, values.dtype, placed.sign))

    def _changed(self, run: Stretch, dtype: np.dtype[Any], sign: int, room: Room) -> Array:
        """Make a stretch of a source, and change its sign or the type of its elements."""
        buffer = room(run.size)
        _fill(buffer, run.make(lambda size: np.empty(size, dtype)), sign)
        return buffer

    def _assembled(self, band: list[_Placed]) -> Iterator[Stretch]:
        """Yield sources that interleave, a few rows of all of them at a time."""
        strides = [placed.place.strides(self.shape) for placed in band]
        # The slowest axis that is stepped along; one of length 1 may have any stride.
        axes = [
            max(range(len(step)), key=lambda axis: (placed.place.shape[axis] > 1, step[axis]))
            for placed, step in zip(band, strides, strict=True)
        ]
        row = strides[0][axes[0]]
        length = band[0].place.shape[axes[0]]
        first = band[0].place.offset(self.shape)
        # All step by the same rows, and none reaches out of its row: then a few rows can be made without the others.
        aligned = all(
            step[axis] == row and placed.place.shape[axis] == length and self._extent(placed.place)[1] - (length - 1) * row - first <= row
            for placed, step, axis in zip(band, strides, axes, strict=True)
        )
        if not aligned:
            size = max(self._extent(placed.place)[1] for placed in band) - first

            def assembled(room: Room) -> Array:
                buffer = room(size)
                for placed in band:
                    _fill(self._window(buffer, placed.place, first, placed.place.shape), placed.values(), placed.sign)
                return buffer

            yield Stretch(size, assembled)
            return
        rows = max(1, piece_bytes(nbytes(self)) // (row * self.dtype.itemsize))
        for start in range(0, length, rows):
            count = min(rows, length - start)

            def some(room: Room, start: int = start, count: int = count) -> Array:
                buffer = room(count * row)
                for placed, axis in zip(band, axes, strict=True):
                    shape = tuple(count if i == axis else n for i, n in enumerate(placed.place.shape))
                    part = tuple(slice(start, start + count) if i == axis else slice(None) for i in range(len(shape)))
                    window = self._window(buffer, placed.place, first, shape)
                    _fill(window, placed.part(part), placed.sign)
                return buffer

            yield Stretch(count * row, some)

    def _window(self, buffer: Array, place: Place, first: int, shape: Shape) -> Array:
        """Return a part of that shape, in a buffer that holds the array's elements from `first` on."""
        strides = tuple(step * self.dtype.itemsize for step in place.strides(self.shape))
        return np.lib.stride_tricks.as_strided(buffer[place.offset(self.shape) - first :], shape, strides)


def _computed(values: Deferred) -> Iterator[Stretch]:
    """Yield the stretches of a matrix that is computed: each when it is made, where a part costs less than all of it."""
    if not values.by_parts:
        yield from runs_of(np.ascontiguousarray(values).reshape(-1))
        return
    length, width = values.shape
    rows = max(1, piece_bytes(nbytes(values)) // max(1, width * values.dtype.itemsize))
    for start in range(0, length, rows):
        window = (slice(start, min(start + rows, length)), slice(None))
        size = (window[0].stop - start) * width
        yield Stretch(size, lambda room, window=window: np.ascontiguousarray(values[window]).reshape(-1))  # type: ignore[misc]


def _root(array: Array) -> Any:
    """Return the object whose memory an array is a view of."""
    base: Any = array
    while (below := base.obj if isinstance(base, memoryview) else getattr(base, "base", None)) is not None:
        base = below
    return base


def _fill(target: Array, values: Array | None, sign: int) -> None:
    if values is None:
        target[...] = 0
    elif sign == 1:
        copy_tiled(target, values)
    else:
        np.negative(values, out=target, casting="unsafe")


def pack(
    layout: Layout, stack: Recurrent, dtype: np.dtype[Any] | None = None, watch: Callable[[Array], None] | None = None
) -> dict[str, Packed]:
    """Return a stack's arrays as the framework has them, by name; missing biases that the layout needs are zero.

    dtype  element type to write, the stack's own if None
    watch  is called with each piece as it is written

    Raises ValueError if the stack has an array that the layout has no place for: rnnconvert.rewrites
    brings a stack into the layout's form, or says why it cannot.
    """
    sizes = Sizes.of(stack)
    if stack.first.biases not in layout.holds.biases:
        # The layout needs biases that the stack lacks: they get places, and are written as zeros.
        sizes = replace(sizes, parts=sizes.parts | (frozenset(BIAS_PARTS) & layout.part_names))
    kind = dtype or stack.dtype
    placed: dict[str, list[_Placed]] = {}
    used: set[tuple[int, int, Key]] = set()
    for slot in slots(layout, sizes):
        direction = stack[slot.layer, slot.direction]
        source = direction.arrays.get(slot.key)
        if source is None and slot.key[0] not in (*BIAS_PARTS, "peephole") and slot.key[1] != UNUSED:
            raise ValueError(f"{layout.name} needs {slot.key[0]} of gate {slot.key[1]!r}, which is absent")
        used.add((slot.layer, slot.direction, slot.key))
        placed.setdefault(slot.array, []).append(_Placed(slot.place, slot.sign, source, slot.reinterpreted))
    for layer, number, direction in stack.directions():
        if layout.coupled and direction.cell.coupled != layout.coupled:
            raise ValueError(f"{layout.name} has no arrays for gate {layout.coupled}, which this cell does not derive")
        for key, source in direction.arrays.items():
            if key[1] and key[1] == layout.coupled:
                continue
            if (layer, number, key) in used or (_lacks(layout, key) and not np.asarray(source).any()):
                continue
            gate = f", gate {key[1]}, which is not zero" if _lacks(layout, key) else ""
            raise ValueError(f"{layout.name} has no place for {key[0]} of layer {layer}{gate}")
    return {name: Packed(shape, kind, placed[name], watch) for name, shape in shapes(layout, sizes).items()}


def unpack(layout: Layout, sizes: Sizes, arrays: Mapping[str, Source]) -> dict[tuple[int, int], dict[Key, Source]]:
    """Return the canonical arrays in a framework's arrays, by (layer, direction), as views wherever possible.

    Raises ValueError if an array is missing or has another shape than the sizes imply.
    """
    for name, shape in shapes(layout, sizes).items():
        if name not in arrays:
            raise ValueError(f"{layout.name}: {name!r} is missing, expected an array of shape {shape}")
        if tuple(arrays[name].shape) != shape:
            raise ValueError(f"{layout.name}: {name!r} has shape {tuple(arrays[name].shape)}, expected {shape}")
    blocks: dict[tuple[int, int], dict[Key, Source]] = {}
    for slot in slots(layout, sizes):
        if slot.key[1] == UNUSED:
            continue
        view = _view(slot.place, arrays[slot.array])
        if slot.reinterpreted or slot.sign < 0:
            view = _derived(view, slot.sign, slot.reinterpreted)
        blocks.setdefault((slot.layer, slot.direction), {})[slot.key] = view
    for arrays_of in blocks.values():
        if layout.coupled:  # 1 - sigmoid(a) = sigmoid(-a)
            twins = [(part, source) for (part, gate), source in arrays_of.items() if gate == _TWIN[layout.coupled]]
            arrays_of |= {(part, layout.coupled): _derived(source, -1, False) for part, source in twins}
        for part in sizes.parts & set(BIAS_PARTS):
            for gate in gates_of(sizes.kind, part):
                if _lacks(layout, (part, gate)):
                    matrix = arrays_of["recurrent", gate]
                    # One stored zero stands for all units.
                    arrays_of[part, gate] = np.broadcast_to(np.zeros((), matrix.dtype), matrix.shape[:1])
    return blocks


_TWIN = {"i": "f", "f": "i"}
"""The gate that a coupled one is derived from."""


def _lacks(layout: Layout, key: Key) -> bool:
    """Return whether a layout has biases of gates other than this one: then this gate's biases are zero."""
    separate = key[1] != layout.coupled
    return separate and key[0] in BIAS_PARTS and key[0] in layout.part_names and key not in layout.keys


def _view(place: Place, array: Source) -> Source:
    """Return a part of an array: a view of its memory, or of what is read or computed when the part is asked for."""
    if isinstance(array, np.ndarray):
        return place.view(array)

    def part() -> Array:
        return place.view(np.asarray(array))

    return Deferred(place.shape, array.dtype, part, lambda rows, columns: part()[rows, columns])


def _derived(view: Source, sign: int, reinterpreted: bool) -> Deferred:
    if not reinterpreted:
        return Deferred(view.shape, view.dtype, lambda: -np.asarray(view), lambda rows, columns: -view[rows, columns])
    shape = view.shape[::-1]
    return Deferred(shape, view.dtype, lambda: (-np.asarray(view) if sign < 0 else np.ascontiguousarray(view)).reshape(shape))


def assemble(name: str, cell: Cell, blocks: Mapping[tuple[int, int], Mapping[Key, Source]], num_directions: int) -> Recurrent:
    """Build a stack of one cell from what `unpack` found.

    Raises ValueError if the arrays do not fit together.
    """
    layers = 1 + max(layer for layer, _ in blocks)
    return Recurrent(
        name, tuple(Layer(tuple(Direction(cell, blocks[i, d], reverse=d == 1) for d in range(num_directions))) for i in range(layers))
    )
