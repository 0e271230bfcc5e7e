"""Descriptions in the making, from graphs of operators: tensors with the lengths of their axes, moved only where it is needed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.graphs.sizes import Dim, Dims, Size, broadcast, open_size, product, reaches
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Length, Value
from rnnconvert.scaffolding.moved import Group, MovedAxes, unmoved
from rnnconvert.scaffolding.nodes import Nodes
from rnnconvert.scaffolding.tensors import SourceTensor, only_number, stacks

T = TypeVar("T")
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


@dataclass(eq=False)
class Builder(Nodes):
    """A model on its way into a description: its tensors, moved and put together."""

    # Moves

    def moved(self, x: SourceTensor) -> tuple[SourceTensor, MovedAxes]:
        """Return the tensor that a tensor is moved from, and how."""
        return x.origin if x.origin is not None else (x, unmoved(x.dims))

    def _again(self, x: SourceTensor, base: SourceTensor, moved: MovedAxes, dims: Dims) -> SourceTensor:
        if x.filled is not None:
            return SourceTensor(dims, x.dtype, x.name, filled=x.filled)
        same = all(a == b for a, b in zip(moved.base, moved.groups, strict=False)) and base.dims == dims
        return base if same else SourceTensor(dims, x.dtype, x.name, origin=(base, moved))

    def transpose(self, x: SourceTensor, order: Sequence[int]) -> SourceTensor:
        """Return a tensor with its axes in another order."""
        if sorted(axis % max(x.rank, 1) for axis in order) != list(range(x.rank)):
            raise ValueError(f"the order {list(order)} of {x.rank} axes")
        base, moved = self.moved(x)
        return self._again(x, base, moved.transposed(order), tuple(x.dims[axis] for axis in order))

    def squeeze(self, x: SourceTensor, axes: Sequence[int]) -> SourceTensor:
        """Return a tensor without axes of length 1. Raises RefusedError for another length."""
        if any(x.dims[axis] != 1 for axis in axes):
            raise self.refuse(f"axes of lengths {[x.dims[axis] for axis in axes]} taken away", "only those of length 1 can be")
        if x.parts and list(axes) == [0]:
            return x.parts[0]
        base, moved = self.moved(x)
        return self._again(x, base, moved.squeezed(axes), tuple(dim for axis, dim in enumerate(x.dims) if axis not in axes))

    def unsqueeze(self, x: SourceTensor, axes: Sequence[int]) -> SourceTensor:
        """Return a tensor with new axes of length 1, at these places among them all."""
        base, moved = self.moved(x)
        dims = list(x.dims)
        for axis in sorted(axes):
            dims.insert(axis, 1)
        return self._again(x, base, moved.unsqueezed(axes), tuple(dims))

    def reshape(self, x: SourceTensor, dims: Dims) -> SourceTensor:
        """Return a tensor in another shape. Raises ValueError if that has more or fewer elements, NeedError if it asks for a length."""
        if x.dims == dims:
            return x
        self.need(product(x.dims), product(dims))
        base, moved = self.moved(x)
        again = moved.reshaped(dims)
        if again is not None or x.filled is not None:
            return self._again(x, base, again or moved, dims)
        return self._viewed(x, dims)

    def _viewed(self, x: SourceTensor, dims: Dims) -> SourceTensor:
        """Add a new shape."""
        old = x.dims
        front = next((n for n, (a, b) in enumerate(zip(old, dims, strict=False)) if a != b), min(len(old), len(dims)))
        most = min(len(old), len(dims)) - front
        back = next((n for n, (a, b) in enumerate(zip(old[::-1], dims[::-1], strict=False)) if a != b or n >= most), most)
        before, after = old[front : len(old) - back], dims[front : len(dims) - back]
        if len(after) == 1 and len(before) > 1:
            return self.add(kinds.MergeAxes(start=front, stop=front + len(before) - 1), [x], dims, name=x.name)
        open_ones = [dim for dim in dims if not isinstance(dim, int)]
        if len(before) == 1 and len(after) > 1:
            read = [self.read(x)]
            lengths = self.lengths(_with_one_open(after), read)
            return self.add(kinds.SplitAxis(axis=front, lengths=lengths), read, dims, name=x.name)
        if len(open_ones) < 2:
            return self.add(kinds.ReshapeAll(sizes=_with_one_open(dims)), [x], dims, name=x.name)
        read, stated = [self.read(x)], list[Length | int]()
        for dim in dims:
            try:
                stated.append(self.length(dim, read))
            except RefusedError:
                if -1 in stated:
                    raise
                stated.append(-1)
        return self.add(kinds.View(lengths=tuple(stated)), read, dims, name=x.name)

    def settled(self, base: SourceTensor, moved: MovedAxes, dims: Dims) -> Value:
        """Add the moves of a tensor, as few as there can be."""
        start = tuple(atom for axis in moved.base for atom in axis)
        x, order = base, [start.index(atom) for atom in moved.atoms]
        if order != sorted(order) and len(moved.base) == len(moved.groups) and all(len(axis) < 2 for axis in (*moved.base, *moved.groups)):
            ones = iter([place for place, axis in enumerate(moved.base) if not axis])  # each stays an axis
            turned = tuple(moved.base.index(axis) if axis else next(ones) for axis in moved.groups)
            x = self.add(kinds.Transpose(order=turned), [x], tuple(x.dims[n] for n in turned), name=x.name)
        elif order != sorted(order):
            if any(len(axis) != 1 for axis in moved.base):
                x = self._reformed(x, moved.base, tuple((atom,) for atom in start))
            x = self.add(kinds.Transpose(order=tuple(order)), [x], tuple(x.dims[n] for n in order), name=x.name)
            x = self._reformed(x, tuple((atom,) for atom in moved.atoms), moved.groups)
        else:
            x = self._reformed(x, moved.base, moved.groups)
        assert x.value is not None
        return x.value

    def _reformed(self, x: SourceTensor, before: Sequence[Group], after: Sequence[Group]) -> SourceTensor:
        """Add a new shape of parts that keep their order."""
        if tuple(before) == tuple(after):
            self.read(x)
            return x
        dims = tuple(product(atom.dim for atom in group) for group in after)
        if [group for group in before if group] == [group for group in after if group]:
            away, new = _ones(before, after), _ones(after, before)
            if not new or not away:
                return self._ones_moved(x, away, new)
        return self._viewed(x, dims)

    def expand(self, x: SourceTensor, dims: Dims) -> SourceTensor:
        """Return a tensor spread over other axes, which are new ones in front or replace axes of length 1."""
        if x.dims == dims:
            return x
        if x.filled is not None or self.is_zero(x):
            return SourceTensor(dims, x.dtype, x.name, filled=x.filled or 0)
        if x.numbers is not None and x.numbers.size == 1 and x.numbers.dtype.kind in "Oiu":
            only = x.numbers.reshape(-1)[0]
            return SourceTensor(dims, x.dtype, x.name, filled=only if isinstance(only, Size) else int(only))
        read = [self.read(x)]
        lengths = self.lengths(dims, read)
        return self.add(kinds.Expand(lengths=lengths), read, dims, name=x.name)

    def _ones_moved(self, x: SourceTensor, away: Sequence[int], new: Sequence[int]) -> SourceTensor:
        """Add what takes axes of length 1 away, or puts new ones in."""
        for axis in sorted(away, reverse=True):
            x = self.add(kinds.Squeeze(axis=axis), [x], tuple(dim for n, dim in enumerate(x.dims) if n != axis), name=x.name)
        for axis in sorted(new):
            x = self.add(kinds.Unsqueeze(axis=axis), [x], (*x.dims[:axis], 1, *x.dims[axis:]), name=x.name)
        return x

    def flip(self, x: SourceTensor, axis: int) -> SourceTensor:
        """Return a tensor turned around along an axis."""
        return self.add(kinds.Flip(axes=(axis,)), [x], x.dims, name=x.name)

    def cast(self, x: SourceTensor, dtype: str) -> SourceTensor:
        """Return a tensor in another element type."""
        if x.dtype == dtype:
            return x
        return self.several(kinds.Cast(dtype=dtype), "", [x], [(x.dims, dtype, x.name)])[0]

    def clip(self, x: SourceTensor, low: float | None, high: float | None) -> SourceTensor:
        """Return a tensor within bounds, None for one without an end."""
        return self.add(kinds.Clip(min=low, max=high), [x], x.dims, name="clip")

    def parameter(self, shape: Sequence[int], dtype: str, layer: str) -> SourceTensor:
        """Return an array of the file that belongs to no layer."""
        return self.add_layer(kinds.Parameter(sizes=tuple(shape)), [], tuple(shape), dtype, layer=layer)

    def stacked(self, parts: Sequence[SourceTensor]) -> SourceTensor:
        """Return tensors side by side on a new first axis."""
        if len(parts) == 1:
            return self.unsqueeze(parts[0], [0])
        return SourceTensor((len(parts), *parts[0].dims), parts[0].dtype, parts[0].name, parts=tuple(parts))

    def select(self, x: SourceTensor, axis: int, index: Dim) -> SourceTensor:
        """Return a tensor at one index of an axis."""
        if isinstance(index, Size):
            read = [self.read(x)]
            length = self.length(index, read)
            return self.add(kinds.SelectBetween(axis=axis, index=length), read, _without(x.dims, axis), name=x.name)
        if x.parts and axis == 0 and -len(x.parts) <= index < len(x.parts):
            return x.parts[index]
        if x.dims[axis] == 1 and index in (0, -1):
            return self.squeeze(x, [axis])
        dims = tuple(dim for n, dim in enumerate(x.dims) if n != axis)
        if x.filled is not None:
            return SourceTensor(dims, x.dtype, x.name, filled=x.filled)
        if x.numbers is not None and x.numbers.dtype != object:
            return SourceTensor(dims, x.dtype, x.name, numbers=np.take(x.numbers, index, axis))
        base, moved = self.moved(x)
        group = moved.groups[axis]
        if x.origin is not None and len(group) == 1 and group in moved.base:
            place = moved.base.index(group)
            part = self.select(base, place, index)
            rest = MovedAxes(_without(moved.base, place), _without(moved.groups, axis))
            return self._again(part, part, rest, dims)
        return self.add(kinds.Select(axis=axis, index=index), [x], dims, name=x.name)

    def slice(self, x: SourceTensor, axis: int, start: Dim, end: Dim, step: int) -> SourceTensor:
        """Return some steps of an axis, as Python's slices take them; backwards, a whole axis alone."""
        length = x.dims[axis]
        if step == -1 and is_last(start, length) and isinstance(end, int) and is_before(end, length):
            return self.flip(x, axis)
        if step == -1 and isinstance(start, int) and end == start - 1 and start:
            return self.slice(x, axis, start, start + 1 or length, 1)  # one element lies in no direction
        if step < 1:
            raise self.refuse(f"a slice from {start} to {end} in steps of {step}", "backwards only a whole axis is known here")
        first, last = bound(start, length), bound(end, length)
        if first == 0 and step == 1 and last == length:
            return x
        if isinstance(length, int) and isinstance(first, int) and isinstance(last, int):
            count: Dim = max(0, -(-(last - first) // step))
        else:
            count = step_count(length, first, last, step)
        if count == 1 and isinstance(start, int):
            # Before the first place of a known length, a slice begins at the first.
            return self.unsqueeze(self.select(x, axis, first if isinstance(first, int) else start), [axis])
        dims = tuple(count if n == axis else dim for n, dim in enumerate(x.dims))
        if x.filled is not None:
            return SourceTensor(dims, x.dtype, x.name, filled=x.filled)
        read = [self.read(x)]
        low = None if first == 0 else self._stated(start, length, read)
        high = None if last == length else self._stated(end, length, read)
        kind: kinds.Kind
        if isinstance(low, Length) or isinstance(high, Length):
            kind = kinds.SliceBetween(axis, low, high, step)
        else:
            kind = kinds.Slice(axis, low, high, step)
        return self.add(kind, read, dims, name=x.name)

    def _stated(self, bound: Dim, length: Dim, read: list[Value]) -> Length | int:
        """Return a bound of a slice as a node states it: from the end if that is the same for every length."""
        if isinstance(bound, int):
            return bound
        behind = bound - length
        counted = isinstance(behind, int) and behind < 0 and reaches(bound, 0)  # of a shorter axis Python counts the bound from its end
        return behind if counted and isinstance(behind, int) else self.length(bound, read)

    def concatenate(self, tensors: Sequence[SourceTensor], axis: int) -> SourceTensor:
        """Return tensors behind one another along an axis."""
        if len(tensors) == 1:
            return tensors[0]
        if axis == 0 and all(stacks(tensor) for tensor in tensors):
            parts = [part for tensor in tensors for part in (tensor.parts or [self.squeeze(tensor, [0])])]
            return self.stacked(parts)
        filled = {tensor.filled for tensor in tensors}
        total: Dim = 0
        for tensor in tensors:
            total = total + tensor.dims[axis]
        rest = broadcast([tuple(dim for n, dim in enumerate(tensor.dims) if n != axis) for tensor in tensors])
        if len(filled) == 1 and None not in filled:
            return SourceTensor((*rest[:axis], total, *rest[axis:]), tensors[0].dtype, "full", filled=filled.pop())
        return self.add(kinds.Concatenate(axis=axis), tensors, (*rest[:axis], total, *rest[axis:]), name="joined")

    # What broadcasts

    def elementwise(self, operation: str, tensors: Sequence[SourceTensor], dtype: str = "") -> SourceTensor:
        """Return a function of tensors spread over one another as numpy does it; single numbers are written out."""
        dims = broadcast([tensor.dims for tensor in tensors])
        rank = max((tensor.rank for tensor in tensors if only_number(tensor) is None), default=-1)
        if operation in _ARITHMETIC and len(tensors) > 1 and all(only_number(tensor) is None for tensor in tensors):
            alike = [self.unsqueeze(tensor, list(range(rank - tensor.rank))) for tensor in tensors]
            return self.add(kinds.Arithmetic(operation=operation), alike, dims, dtype or tensors[0].dtype, name=operation)
        inputs, operands = list[SourceTensor](), list[Any]()
        for tensor in tensors:
            number = only_number(tensor)
            if number is not None and tensor.rank <= rank:
                operands.append(("number", number))
            else:
                operands.append(("input", len(inputs)))
                inputs.append(tensor)
        element_type = dtype or inputs[0].dtype
        return self.add(kinds.Elementwise(operation=operation, operands=tuple(operands)), inputs, dims, element_type, name=operation)


def _without(values: Sequence[T], axis: int) -> tuple[T, ...]:
    return tuple(value for n, value in enumerate(values) if n != axis)


def _ones(groups: Sequence[Group], others: Sequence[Group]) -> tuple[int, ...]:
    """Return the axes of length 1 that a shape has in excess of another with otherwise the same axes, in each gap the last of them."""
    counts, places = _gaps(others), list[int]()
    for (start, length), (_, enough) in zip(_gaps(groups), counts, strict=True):
        places += range(start + min(enough, length), start + length)
    return tuple(places)


def _gaps(groups: Sequence[Group]) -> list[tuple[int, int]]:
    """Return where axes of length 1 begin between the others, and how many there are."""
    places = [-1, *(n for n, group in enumerate(groups) if group), len(groups)]
    return [(low + 1, high - low - 1) for low, high in itertools.pairwise(places)]


def _with_one_open(dims: Sequence[Dim]) -> tuple[Any, ...]:
    """Return lengths with -1 for the only one that is open."""
    opened = [n for n, dim in enumerate(dims) if not isinstance(dim, int)]
    return tuple(-1 if n in opened[:1] and len(opened) == 1 else dim for n, dim in enumerate(dims))


# The bounds of slices, among lengths that a run may decide.

FAR = (1 << 31) - 1
"""From here on a bound is the end of its axis, however long that is."""


def is_last(start: Dim, length: Dim) -> bool:
    return start == -1 or start == length - 1 or (isinstance(start, int) and start >= FAR)


def is_before(end: int, length: Dim) -> bool:
    return end <= -FAR or (isinstance(length, int) and end < -length)


def bound(bound: Dim, length: Dim) -> Dim:
    """Return a bound counted from the front."""
    if isinstance(bound, Size):
        return bound
    if isinstance(length, int):
        return min(max(bound + length, 0) if bound < 0 else bound, length)
    return length if bound >= FAR else 0 if bound <= -FAR else length + bound if bound < 0 else bound


def step_count(length: Dim, first: Dim, last: Dim, step: int) -> Dim:
    """Return how many steps of an axis a slice has, where a run decides the length of one of them."""
    count = (last - first + (step - 1)) // step
    inside = reaches(first, 0) and reaches(last - first, 0) and reaches(length - last, 0)
    # The axis may end before, or a bound be counted from its end: then only the result itself shows how long it is.
    return count if inside else open_size(f"min({length!r}, {last!r}) from {first!r} by {step}")
