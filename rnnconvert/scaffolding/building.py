"""Descriptions in the making, from graphs of operators: tensors with the lengths of their axes, moved only where it is needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding.description import Length, Lengths, Scope, Value
from rnnconvert.scaffolding.moved import Group, Moved, unmoved
from rnnconvert.scaffolding.sizes import Dim, Dims, Size, broadcast, product

_INLINE = 16
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
"""The most numbers of a constant that are written into the file."""


@dataclass(eq=False)
class Tensor:
    """A tensor of the source.

    dims     the lengths of its axes
    dtype    its element type
    name     what the source calls it, or what it was made by
    value    what it is in the description, once it is there
    numbers  what it holds, where that is known without a run: numbers, or whole numbers and lengths, as objects
    origin   the tensor that it is moved from, and how
    parts    the tensors that it consists of, side by side on a new first axis
    filled   the number that stands everywhere in it, None for other tensors
    stored   the file's array that it is, "" for other tensors
    """

    dims: Dims
    dtype: str = "float32"
    name: str = ""
    value: Value | None = None
    numbers: Array | None = None
    origin: tuple[Tensor, Moved] | None = None
    parts: tuple[Tensor, ...] = ()
    filled: float | None = None
    stored: str = ""

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.dims)


@dataclass(eq=False)
class Builder:
    """A model on its way into a description.

    scope  the model whose nodes are being added
    place  where the source is being read, for messages
    words  what open axes are called, by their symbols
    roles  what they are, whatever the source calls them: "batch" or "time"
    hold   adds an array of the file, for a tensor that it is
    """

    scope: Scope
    place: str = ""
    words: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    hold: Callable[[Tensor], Value] | None = None
    _where: dict[str, tuple[Value, int]] = field(default_factory=dict)

    # Tensors

    def input(self, name: str, dims: Dims, dtype: str) -> Tensor:
        """Return a new input of the model."""
        tensor = Tensor(dims, dtype, name)
        tensor.value = self._value(name, dims, dtype)
        self.scope.inputs += (tensor.value,)
        return tensor

    def value(self, like: Tensor) -> Value:
        """Return a new value of a tensor's axes and type."""
        return self._value(like.name, like.dims, like.dtype)

    def _value(self, name: str, dims: Dims, dtype: str) -> Value:
        words = tuple(dim.symbol if isinstance(dim, Size) else "" for dim in dims)
        value = Value(name, tuple(dim if isinstance(dim, int) else None for dim in dims), dtype, words)
        for axis, word in enumerate(words):
            if word:
                self._where[word] = value, axis
        return value

    def several(
        self,
        kind: str,
        layer: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[tuple[Dims, str, str]],
        named: Mapping[str, Sequence[Tensor]] | None = None,
        extra: Sequence[Value] = (),
        **settings: Any,
    ) -> list[Tensor]:
        """Add a node, and return what it gives.

        outputs  for each its axes, its element type and its name
        extra    values that are read behind the inputs, for lengths among the settings
        """
        read = [*(self.read(tensor) for tensor in inputs), *extra]
        others = {key: [self.read(tensor) for tensor in tensors] for key, tensors in (named or {}).items()}
        tensors = [Tensor(dims, dtype, name, self._value(name, dims, dtype)) for dims, dtype, name in outputs]
        self.scope.add(kind, layer, read, [tensor.value for tensor in tensors if tensor.value is not None], others, **settings)
        return tensors

    def add(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        dims: Dims,
        dtype: str = "",
        *,
        layer: str = "",
        name: str = "",
        named: Mapping[str, Sequence[Tensor]] | None = None,
        extra: Sequence[Value] = (),
        **settings: Any,
    ) -> Tensor:
        """Add a node of one output, of the first input's element type unless another is stated, and return that."""
        element_type = dtype or (inputs[0].dtype if inputs else "float32")
        return self.several(kind, layer, inputs, [(dims, element_type, name or layer or kind)], named, extra, **settings)[0]

    def refuse(self, feature: str, reason: str) -> RefusedError:
        """Return what says that something cannot be written, at the place that is being read."""
        return RefusedError(feature, "a model written as code", reason, "", self.place)

    def read(self, tensor: Tensor) -> Value:
        """Return a tensor as the description has it, moved now if that was put off."""
        if tensor.value is None:
            if tensor.stored and tensor.numbers is None and self.hold is not None:
                tensor.value = self.hold(tensor)
            elif tensor.origin is not None:
                tensor.value = self._settled(*tensor.origin, tensor.dims)
            elif tensor.parts:
                tensor.value = self.add("stack", tensor.parts, tensor.dims, axis=0, name="states").value
            else:
                tensor.value = self._constant(tensor)
        assert tensor.value is not None
        return tensor.value

    def _constant(self, tensor: Tensor) -> Value:
        """Add numbers that are known as the source is read."""
        numbers = tensor.numbers
        if tensor.filled is not None:
            return self._full(tensor, tensor.filled)
        if numbers is None:
            raise self.refuse(f"the value {tensor.name!r}", "nothing gives it")
        if numbers.dtype == object and any(isinstance(number, Size) for number in numbers.reshape(-1)):
            if numbers.ndim > 1:
                raise self.refuse("a matrix of lengths", "only one length and lists of them are known here")
            extra: list[Value] = []
            lengths = tuple(self.length(number, extra) for number in numbers.reshape(-1))
            tensor_made = self.add("sizes", [], tensor.dims, tensor.dtype, extra=extra, name=tensor.name or "size", lengths=lengths)
        elif numbers.size > _INLINE and len(set(numbers.reshape(-1).tolist())) == 1:
            return self._full(tensor, written(numbers.reshape(-1)[0]))
        elif numbers.size > _INLINE:
            raise self.refuse(f"a constant of {numbers.size} numbers", "no single stored tensor holds it")
        else:
            tensor_made = self.add("constant", [], tensor.dims, tensor.dtype, name="constant", numbers=np.asarray(numbers, tensor.dtype))
        assert tensor_made.value is not None
        return tensor_made.value

    def _full(self, tensor: Tensor, number: float) -> Value:
        """Add a tensor that is one number everywhere."""
        extra: list[Value] = []
        lengths = self.lengths(tensor.dims, extra)
        tensor_made = self.add("full", [], tensor.dims, tensor.dtype, extra=extra, name=tensor.name, lengths=lengths, number=number)
        assert tensor_made.value is not None
        return tensor_made.value

    def is_zero(self, x: Tensor) -> bool:
        """Return whether nothing but zeros is in a tensor, in every run."""
        if x.parts:
            return all(map(self.is_zero, x.parts))
        return x.filled == 0 if x.numbers is None else x.numbers.dtype != object and not x.numbers.any()

    # Lengths

    def length(self, dim: Dim, extra: list[Value], inputs: Sequence[Value] = ()) -> Length | int:
        """Return a length as a node states it, by axes of its inputs or of `extra`, to which those that lack are added.

        Raises RefusedError for a length that no axis has.
        """
        if isinstance(dim, int):
            return dim
        terms = []
        for names, count in dim.terms:
            terms.append((count, tuple(self._axis(name, extra, inputs) for name in names)))
        return Length(tuple(terms))

    def _axis(self, symbol: str, extra: list[Value], inputs: Sequence[Value]) -> tuple[int, int]:
        for number, value in enumerate((*inputs, *extra)):
            if symbol in value.axes:
                return number, value.axes.index(symbol)
        if symbol not in self._where:
            raise self.refuse("a length that is computed", f"no axis of a tensor has the length {symbol}")
        value, axis = self._where[symbol]
        extra.append(value)
        return len(inputs) + len(extra) - 1, axis

    def lengths(self, dims: Sequence[Dim], extra: list[Value], inputs: Sequence[Value] = ()) -> Lengths:
        """Return several lengths: see `length`."""
        return tuple(self.length(dim, extra, inputs) for dim in dims)

    def call(self, dim: Dim, word: str) -> None:
        """Note what an open axis is, unless the source has a word for it."""
        if isinstance(dim, Size) and dim.symbol:
            self.roles.setdefault(dim.symbol, word)
            self.words.setdefault(dim.symbol, word)

    # Moves

    def moved(self, x: Tensor) -> tuple[Tensor, Moved]:
        """Return what a tensor is moved from, and how."""
        return x.origin if x.origin is not None else (x, unmoved(x.dims))

    def _again(self, x: Tensor, base: Tensor, moved: Moved, dims: Dims) -> Tensor:
        if x.filled is not None:
            return Tensor(dims, x.dtype, x.name, filled=x.filled)
        same = all(a == b for a, b in zip(moved.base, moved.groups, strict=False)) and base.dims == dims
        return base if same else Tensor(dims, x.dtype, x.name, origin=(base, moved))

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """Return a tensor with its axes in another order."""
        base, moved = self.moved(x)
        return self._again(x, base, moved.transposed(order), tuple(x.dims[axis] for axis in order))

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return a tensor without axes of length 1. Raises RefusedError for another length."""
        if any(x.dims[axis] != 1 for axis in axes):
            raise self.refuse(f"axes of lengths {[x.dims[axis] for axis in axes]} taken away", "only those of length 1 can be")
        if x.parts and list(axes) == [0]:
            return x.parts[0]
        base, moved = self.moved(x)
        return self._again(x, base, moved.squeezed(axes), tuple(dim for axis, dim in enumerate(x.dims) if axis not in axes))

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return a tensor with new axes of length 1, at these places among them all."""
        base, moved = self.moved(x)
        dims = list(x.dims)
        for axis in sorted(axes):
            dims.insert(axis, 1)
        return self._again(x, base, moved.unsqueezed(axes), tuple(dims))

    def reshape(self, x: Tensor, dims: Dims) -> Tensor:
        """Return a tensor in another shape of as many elements."""
        if x.dims == dims:
            return x
        base, moved = self.moved(x)
        again = moved.reshaped(dims)
        if again is not None or x.filled is not None:
            return self._again(x, base, again or moved, dims)
        return self._viewed(x, dims)

    def _viewed(self, x: Tensor, dims: Dims) -> Tensor:
        """Add a new shape."""
        old, extra = x.dims, list[Value]()
        front = next((n for n, (a, b) in enumerate(zip(old, dims, strict=False)) if a != b), min(len(old), len(dims)))
        most = min(len(old), len(dims)) - front
        back = next((n for n, (a, b) in enumerate(zip(old[::-1], dims[::-1], strict=False)) if a != b or n >= most), most)
        before, after = old[front : len(old) - back], dims[front : len(dims) - back]
        if len(after) == 1 and len(before) > 1:
            return self.add("merge axes", [x], dims, start=front, stop=front + len(before) - 1, name=x.name)
        open_ones = [dim for dim in dims if not isinstance(dim, int)]
        if len(before) == 1 and len(after) > 1:
            inputs = [self.read(x)]
            rest = _with_one_open(after)
            return self.add("split axis", [x], dims, axis=front, lengths=self.lengths(rest, extra, inputs), extra=extra, name=x.name)
        if len(open_ones) < 2:
            return self.add("reshape all", [x], dims, sizes=_with_one_open(dims), name=x.name)
        inputs, lengths = [self.read(x)], list[Length | int]()
        for dim in dims:
            try:
                lengths.append(self.length(dim, extra, inputs))
            except RefusedError:
                if -1 in lengths:
                    raise
                lengths.append(-1)
        return self.add("view", [x], dims, lengths=tuple(lengths), extra=extra, name=x.name)

    def _settled(self, base: Tensor, moved: Moved, dims: Dims) -> Value:
        """Add the moves of a tensor, as few as there can be."""
        start = tuple(atom for axis in moved.base for atom in axis)
        x, order = base, [start.index(atom) for atom in moved.atoms]
        if order != sorted(order):
            if any(len(axis) != 1 for axis in moved.base):
                x = self._reformed(x, moved.base, tuple((atom,) for atom in start))
            x = self.add("transpose", [x], tuple(x.dims[n] for n in order), order=tuple(order), name=x.name)
            x = self._reformed(x, tuple((atom,) for atom in moved.atoms), moved.groups)
        else:
            x = self._reformed(x, moved.base, moved.groups)
        assert x.value is not None
        return x.value

    def _reformed(self, x: Tensor, before: Sequence[Group], after: Sequence[Group]) -> Tensor:
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

    def expand(self, x: Tensor, dims: Dims) -> Tensor:
        """Return a tensor spread over other axes, in front and instead of those of length 1."""
        if x.dims == dims:
            return x
        if x.filled is not None or self.is_zero(x):
            return Tensor(dims, x.dtype, x.name, filled=x.filled or 0)
        extra: list[Value] = []
        inputs = [self.read(x)]
        return self.add("expand", [x], dims, extra=extra, lengths=self.lengths(dims, extra, inputs), name=x.name)

    def _ones_moved(self, x: Tensor, away: Sequence[int], new: Sequence[int]) -> Tensor:
        """Add what takes axes of length 1 away, or puts new ones in."""
        for axis in sorted(away, reverse=True):
            x = self.add("squeeze", [x], tuple(dim for n, dim in enumerate(x.dims) if n != axis), axis=axis, name=x.name)
        for axis in sorted(new):
            x = self.add("unsqueeze", [x], (*x.dims[:axis], 1, *x.dims[axis:]), axis=axis, name=x.name)
        return x

    def flip(self, x: Tensor, axis: int) -> Tensor:
        """Return a tensor turned around along an axis."""
        return self.add("flip", [x], x.dims, axes=(axis,), name=x.name)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Return a tensor in another element type."""
        if x.dtype == dtype:
            return x
        return self.several("cast", "", [x], [(x.dims, dtype, x.name)], dtype=dtype)[0]

    def clip(self, x: Tensor, low: float | None, high: float | None) -> Tensor:
        """Return a tensor within bounds, None for one without an end."""
        return self.add("clip", [x], x.dims, min=low, max=high, name="clip")

    def parameter(self, shape: Sequence[int], dtype: str, layer: str) -> Tensor:
        """Return an array of the file that belongs to no layer."""
        return self.add("parameter", [], tuple(shape), dtype, layer=layer, name=layer, sizes=tuple(shape))

    def stacked(self, parts: Sequence[Tensor]) -> Tensor:
        """Return tensors side by side on a new first axis."""
        if len(parts) == 1:
            return self.unsqueeze(parts[0], [0])
        return Tensor((len(parts), *parts[0].dims), parts[0].dtype, parts[0].name, parts=tuple(parts))

    def select(self, x: Tensor, axis: int, index: int) -> Tensor:
        """Return a tensor at one index of an axis."""
        if x.parts and axis == 0 and -len(x.parts) <= index < len(x.parts):
            return x.parts[index]
        if x.dims[axis] == 1 and index in (0, -1):
            return self.squeeze(x, [axis])
        dims = tuple(dim for n, dim in enumerate(x.dims) if n != axis)
        if x.filled is not None:
            return Tensor(dims, x.dtype, x.name, filled=x.filled)
        if x.numbers is not None and x.numbers.dtype != object:
            return Tensor(dims, x.dtype, x.name, numbers=np.take(x.numbers, index, axis))
        base, moved = self.moved(x)
        group = moved.groups[axis]
        if x.origin is not None and len(group) == 1 and group in moved.base:
            place = moved.base.index(group)
            part = self.select(base, place, index)
            rest = Moved(_without(moved.base, place), _without(moved.groups, axis))
            return self._again(part, part, rest, dims)
        return self.add("select", [x], dims, axis=axis, index=index, name=x.name)

    def slice(self, x: Tensor, axis: int, start: Dim, end: Dim, step: int) -> Tensor:
        """Return some steps of an axis, as Python's slices take them; backwards, a whole axis alone."""
        length = x.dims[axis]
        if step == -1 and _is_last(start, length) and isinstance(end, int) and _is_before(end, length):
            return self.flip(x, axis)
        if step < 1:
            raise self.refuse(f"a slice from {start} to {end} in steps of {step}", "backwards only a whole axis is known here")
        first, last = _bound(start, length), _bound(end, length)
        if first == 0 and step == 1 and last == length:
            return x
        if isinstance(length, int) and isinstance(first, int) and isinstance(last, int):
            count: Dim = max(0, -(-(last - first) // step))
        else:
            count = _step_count(length, first, last, step)
        if count == 1 and isinstance(start, int):
            return self.unsqueeze(self.select(x, axis, start), [axis])
        dims = tuple(count if n == axis else dim for n, dim in enumerate(x.dims))
        if x.filled is not None:
            return Tensor(dims, x.dtype, x.name, filled=x.filled)
        extra: list[Value] = []
        inputs = [self.read(x)]
        low, high = (self._bound(bound, length, extra, inputs) for bound in (start, end))
        kind = "slice between" if isinstance(low, Length) or isinstance(high, Length) else "slice"
        return self.add(kind, [x], dims, extra=extra, axis=axis, start=low or None, end=high, step=step, name=x.name)

    def _bound(self, bound: Dim, length: Dim, extra: list[Value], inputs: Sequence[Value]) -> Length | int | None:
        """Return a bound of a slice as a node states it: None for the axis's own end, from the end where that is plain."""
        if isinstance(bound, int):
            return None if abs(bound) >= _FAR else bound
        behind = bound - length
        if isinstance(behind, int) and behind <= 0:
            return behind or None
        return self.length(bound, extra, inputs)

    def concatenate(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Return tensors behind one another along an axis."""
        if len(tensors) == 1:
            return tensors[0]
        if axis == 0 and all(_stacks(tensor) for tensor in tensors):
            parts = [part for tensor in tensors for part in (tensor.parts or [self.squeeze(tensor, [0])])]
            return self.stacked(parts)
        filled = {tensor.filled for tensor in tensors}
        total: Dim = 0
        for tensor in tensors:
            total = total + tensor.dims[axis]
        rest = broadcast([tuple(dim for n, dim in enumerate(tensor.dims) if n != axis) for tensor in tensors])
        if len(filled) == 1 and None not in filled:
            return Tensor((*rest[:axis], total, *rest[axis:]), tensors[0].dtype, "full", filled=filled.pop())
        return self.add("concatenate", tensors, (*rest[:axis], total, *rest[axis:]), axis=axis, name="joined")

    # What broadcasts

    def elementwise(self, operation: str, tensors: Sequence[Tensor], dtype: str = "") -> Tensor:
        """Return a function of tensors spread over one another as numpy does it; single numbers are written out."""
        dims = broadcast([tensor.dims for tensor in tensors])
        rank = max((tensor.rank for tensor in tensors if _number(tensor) is None), default=-1)
        if operation in _ARITHMETIC and len(tensors) > 1 and all(_number(tensor) is None for tensor in tensors):
            alike = [self.unsqueeze(tensor, list(range(rank - tensor.rank))) for tensor in tensors]
            return self.add("arithmetic", alike, dims, dtype or tensors[0].dtype, operation=operation, name=operation)
        inputs, operands = list[Tensor](), list[Any]()
        for tensor in tensors:
            number = _number(tensor)
            if number is not None and tensor.rank <= rank:
                operands.append(("number", number))
            else:
                operands.append(("input", len(inputs)))
                inputs.append(tensor)
        element_type = dtype or inputs[0].dtype
        return self.add("elementwise", inputs, dims, element_type, operation=operation, operands=tuple(operands), name=operation)


_FAR = (1 << 31) - 1
"""From here on a bound is the end of its axis, however long that is."""


def _is_last(start: Dim, length: Dim) -> bool:
    return start == -1 or start == length - 1 or (isinstance(start, int) and start >= _FAR)


def _is_before(end: int, length: Dim) -> bool:
    return end <= -_FAR or (isinstance(length, int) and end < -length)


def _bound(bound: Dim, length: Dim) -> Dim:
    """Return a bound counted from the front."""
    if isinstance(bound, Size):
        return bound
    if isinstance(length, int):
        return min(max(bound + length, 0) if bound < 0 else bound, length)
    return length if bound >= _FAR else 0 if bound <= -_FAR else length + bound if bound < 0 else bound


def _step_count(length: Dim, first: Dim, last: Dim, step: int) -> Dim:
    """Return how many steps of an axis a slice has, where a run decides the length of one of them."""
    count = (last - first + (step - 1)) // step
    if isinstance(last, int) and isinstance(length, Size) and count != 1:
        return Size({(f"min({length!r}, {last}) from {first!r} by {step}",): 1})  # the axis may end before
    return count


def _number(tensor: Tensor) -> Any:
    """Return the only number of a constant; None for other tensors."""
    if tensor.numbers is None or tensor.numbers.size != 1:
        return None
    number = tensor.numbers.reshape(-1)[0]
    if isinstance(number, Size):
        return None
    return written(number)


def written(number: Any) -> int | float | bool:
    """Return a number as Python has it: of single precision the shortest that is the same there."""
    if isinstance(number, (bool, np.bool_)):
        return bool(number)
    if isinstance(number, np.floating) and number.dtype.itemsize <= 4:
        return float(str(number)) if np.isfinite(number) else float(number)
    return int(number) if isinstance(number, (int, np.integer)) else float(number)


def _without(groups: Sequence[Group], axis: int) -> tuple[Group, ...]:
    return tuple(group for n, group in enumerate(groups) if n != axis)


def _ones(groups: Sequence[Group], others: Sequence[Group]) -> tuple[int, ...]:
    """Return the axes of length 1 that a shape has more than another, which has the same axes besides, in each gap the last of them."""
    counts, places = _gaps(others), list[int]()
    for (start, length), (_, enough) in zip(_gaps(groups), counts, strict=True):
        places += range(start + min(enough, length), start + length)
    return tuple(places)


def _gaps(groups: Sequence[Group]) -> list[tuple[int, int]]:
    """Return where axes of length 1 begin between the others, and how many there are."""
    places = [-1, *(n for n, group in enumerate(groups) if group), len(groups)]
    return [(low + 1, high - low - 1) for low, high in itertools.pairwise(places)]


def _stacks(tensor: Tensor) -> bool:
    """Return whether a tensor consists of parts, or of one that is a layer's own state."""
    if tensor.parts:
        return True
    if tensor.dims[:1] != (1,) or tensor.origin is None:
        return False
    base, moved = tensor.origin
    return not moved.groups[0] and base.dims == tensor.dims[1:]


def _with_one_open(dims: Sequence[Dim]) -> tuple[Any, ...]:
    """Return lengths with -1 for the only one that is open."""
    opened = [n for n, dim in enumerate(dims) if not isinstance(dim, int)]
    return tuple(-1 if n in opened[:1] and len(opened) == 1 else dim for n, dim in enumerate(dims))
