"""Nodes of a description in the making: what they read is added once it is read, and lengths are stated by the axes that have them."""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.malformed import MALFORMED, in_words, passes
from rnnconvert.graphs.sizes import ComputedSymbol, Dim, Dims, Size, open_size
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import ComputedLength, DescribedModel, Length, Lengths, Value
from rnnconvert.scaffolding.moved import MovedAxes
from rnnconvert.scaffolding.needs import NeedError, Needs
from rnnconvert.scaffolding.tensors import SourceTensor, written

_LISTED, _INLINE = 16, 1024
"""The most numbers of a constant that are written into the file: if all are one number, and if not."""


_DIVISOR = 64
"""The largest divisor of a quotient whose dividends are tried."""


def _roots(size: Dim) -> Iterator[tuple[str, int]]:
    """Yield the open length of a sum, with each value of it that makes the sum zero; none where there are several, or no whole number."""
    symbol, value = size.root if isinstance(size, Size) else ("", 0)
    if symbol and value > 0 and not isinstance(symbol, ComputedSymbol):
        yield symbol, value
    elif isinstance(symbol, ComputedSymbol) and symbol.function == "//" and value > 0:
        dividend, divisor = symbol.operands
        for rest in range(divisor if isinstance(divisor, int) and divisor <= _DIVISOR else 0):
            yield from _roots(dividend - divisor * value - rest)


@dataclass(eq=False)
class Nodes(ABC):
    """The nodes of a model on its way into a description, and the lengths among their settings.

    scope  the model whose nodes are being added
    place  where the source is being read, for messages
    words  the names of open axes, by their symbols
    roles  their roles, however the source names them: "batch" or "time"
    hold   adds the array of the file that a tensor is
    needs  the values that earlier readings found for open lengths, by their symbols
    partial  whether a node "left out" stands for each layer that cannot be read
    """

    scope: DescribedModel
    place: str = ""
    words: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    hold: Callable[[SourceTensor], Value] | None = None
    needs: Needs = field(default_factory=dict)
    partial: bool = False
    _where: dict[str, tuple[Value, int]] = field(default_factory=dict)

    # Tensors

    def input(self, name: str, dims: Dims, dtype: str) -> SourceTensor:
        """Return a new input of the model."""
        tensor = SourceTensor(dims, dtype, name)
        tensor.value = self._value(name, dims, dtype)
        self.scope.inputs += (tensor.value,)
        return tensor

    def value(self, like: SourceTensor) -> Value:
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
        kind: kinds.Kind,
        layer: str,
        inputs: Sequence[SourceTensor | Value],
        outputs: Sequence[tuple[Dims, str, str]],
        named: Mapping[str, Sequence[SourceTensor]] | None = None,
    ) -> list[SourceTensor]:
        """Add a node, and return what it gives.

        outputs  for each its axes, its element type and its name
        """
        read = [self.read(tensor) for tensor in inputs]
        others = {key: [self.read(tensor) for tensor in tensors] for key, tensors in (named or {}).items()}
        tensors = [SourceTensor(dims, dtype, name, self._value(name, dims, dtype)) for dims, dtype, name in outputs]
        self.scope.add(kind, layer, read, [tensor.value for tensor in tensors if tensor.value is not None], others)
        return tensors

    def add(self, kind: kinds.Kind, inputs: Sequence[SourceTensor | Value], dims: Dims, dtype: str = "", *, name: str = "") -> SourceTensor:
        """Add a node of one output, of the first input's element type unless another is stated, and return that."""
        element_type = dtype or (inputs[0].dtype if inputs else "float32")
        return self.several(kind, "", inputs, [(dims, element_type, name or kind.word)])[0]

    def add_layer(self, kind: kinds.Kind, inputs: Sequence[SourceTensor], dims: Dims, dtype: str = "", *, layer: str) -> SourceTensor:
        """Add a node of one output, as `add` does, for a layer of the source; return what it gives, under the layer's name."""
        element_type = dtype or (inputs[0].dtype if inputs else "float32")
        return self.several(kind, layer, inputs, [(dims, element_type, layer)])[0]

    def refuse(self, feature: str, reason: str, remedy: str = "") -> RefusedError:
        """Return the error that something cannot be written, at the place that is being read."""
        return RefusedError(feature, "a model written as code", reason, remedy, self.place)

    def read(self, tensor: SourceTensor | Value) -> Value:
        """Return a tensor as the description has it, moved now if that was put off."""
        if isinstance(tensor, Value):
            return tensor
        if tensor.value is None:
            if tensor.stored and tensor.numbers is None and self.hold is not None:
                tensor.value = self.hold(tensor)
            elif tensor.origin is not None:
                tensor.value = self.settled(*tensor.origin, tensor.dims)
            elif tensor.parts:
                tensor.value = self.add(kinds.Stack(axis=0), tensor.parts, tensor.dims, name="states").value
            else:
                tensor.value = self._constant(tensor)
        assert tensor.value is not None
        return tensor.value

    # What cannot be read

    @contextlib.contextmanager
    def refusing(self, feature: str, reason: str) -> Iterator[None]:
        """Refuse what Python stumbles over in a file, at the place that is being read; faults of ours pass."""
        try:
            yield
        except MALFORMED as error:
            if passes(error):
                raise
            text = str(error) if isinstance(error, ValueError) else in_words(error)
            raise self.refuse(feature, f"{reason}: {text}") from None

    def check_sized(self, tensors: Sequence[SourceTensor], rank: int = 0) -> None:
        """Raise RefusedError for a tensor of unknown axes among what is read, NeedError where it can only have so many."""
        for tensor in tensors:
            if tensor.unsized and rank:
                raise NeedError(tensor.unsized, rank)
            if tensor.unsized:
                raise self.refuse("a tensor of unknown shape", "it is what an operator gives that is left out")

    def left_out(
        self, error: RefusedError, inputs: Sequence[SourceTensor], outputs: Sequence[tuple[Dims | None, str, str]]
    ) -> list[SourceTensor]:
        """Add what stands for an operator that cannot be read, and return what it gives.

        outputs  for each its axes, its element type and its name. Where the source states no axes there are as many as the first input
                 has, or as a layer behind it reads, of the lengths that readers ask for
        """
        like = next((x.rank for x in inputs if not x.unsized and x.numbers is None), 0)
        read: list[Value] = []
        for tensor in inputs:
            with contextlib.suppress(RefusedError):  # an array that no line holds is not written here, either
                read += [self.read(tensor)] if tensor.numbers is None else []
        tensors = []
        for number, (stated, dtype, name) in enumerate(outputs):
            symbol = f"axes of {self.place}, {number}"
            rank = self.needs.get(symbol, like)
            dims = tuple(self.opened(f"{symbol}, axis {axis}") for axis in range(rank if isinstance(rank, int) else 0))
            dims = dims if stated is None else stated
            value = self._value(name, dims, dtype)
            sized = stated is not None or bool(dims)
            tensors.append(
                SourceTensor(dims, dtype, name, value if sized else replace(value, sized=False), unsized="" if sized else symbol)
            )
        self.scope.add(kinds.LeftOut(error=error), "", read, [tensor.value for tensor in tensors if tensor.value is not None])
        return tensors

    @abstractmethod
    def settled(self, base: SourceTensor, moved: MovedAxes, dims: Dims) -> Value:
        """Add the moves of a tensor, as few as there can be."""

    def _constant(self, tensor: SourceTensor) -> Value:
        """Add numbers that are known as the source is read."""
        numbers, read = tensor.numbers, list[Value]()
        if tensor.filled is not None and not isinstance(tensor.filled, Size):
            return self._full(tensor, tensor.filled)
        if tensor.filled is not None:
            read.append(self.read(SourceTensor((1,), tensor.dtype, tensor.name, numbers=np.asarray([tensor.filled], object))))
            lengths = self.lengths(tensor.dims, read)
            tensor_made = self.add(kinds.Expand(lengths=lengths), read, tensor.dims, name=tensor.name)
        elif numbers is None:
            raise self.refuse(f"the value {tensor.name!r}", "nothing gives it")
        elif numbers.dtype == object and any(isinstance(number, Size) for number in numbers.reshape(-1)):
            if numbers.ndim > 1:
                raise self.refuse("a matrix of lengths", "only one length and lists of them are known here")
            lengths = self.lengths(numbers.reshape(-1), read)
            tensor_made = self.add(kinds.LengthsTensor(lengths=lengths), read, tensor.dims, tensor.dtype, name=tensor.name or "size")
        elif numbers.size > _LISTED and len(set(numbers.reshape(-1).tolist())) == 1:
            return self._full(tensor, written(numbers.reshape(-1)[0]))
        elif numbers.size > _INLINE:
            raise self.refuse(f"a constant of {numbers.size} numbers", "no single stored tensor holds it")
        else:
            tensor_made = self.add(
                kinds.Constant(numbers=np.asarray(numbers, tensor.dtype)), [], tensor.dims, tensor.dtype, name="constant"
            )
        assert tensor_made.value is not None
        return tensor_made.value

    def _full(self, tensor: SourceTensor, number: float) -> Value:
        """Add a tensor that is one number everywhere."""
        read: list[Value] = []
        lengths = self.lengths(tensor.dims, read)
        tensor_made = self.add(kinds.Full(lengths=lengths, number=number), read, tensor.dims, tensor.dtype, name=tensor.name)
        assert tensor_made.value is not None
        return tensor_made.value

    def is_zero(self, x: SourceTensor) -> bool:
        """Return whether nothing but zeros is in a tensor, in every run."""
        if x.parts:
            return all(map(self.is_zero, x.parts))
        return x.filled == 0 if x.numbers is None else x.numbers.dtype != object and not x.numbers.any()

    # Lengths

    def opened(self, symbol: str) -> Dim:
        """Return the length of an open axis: its symbol, or the length that it has to be."""
        length = self.needs.get(symbol)
        return open_size(symbol) if length is None or isinstance(length, str) else length

    def need(self, dim: Dim, length: Dim) -> None:
        """See that an axis has a length. Raises NeedError for an open one, ValueError for another; two open lengths may be alike.

        A quotient of an open length is asked for where a single length gives it: others may be as right as the least.
        """
        difference = dim - length
        rest = difference.bare if isinstance(difference, Size) else difference
        roots = [*itertools.islice(_roots(rest), 2)]
        if len(roots) == 1:
            raise NeedError(*roots[0])
        if rest != 0 and (isinstance(rest, int) or isinstance(length, int)):
            raise ValueError(f"an axis of {dim} where {length} is asked for")

    def length(self, dim: Dim, read: list[Value]) -> Length | int:
        """Return a length as a node states it, by axes of what it reads, to which values are added that have those that are lacking.

        Raises RefusedError for a length that no axis has.
        """
        if isinstance(dim, int):
            return dim
        terms = []
        for names, count in dim.terms:
            terms.append((count, tuple(self._factor(name, read) for name in names)))
        return Length(tuple(terms))

    def _factor(self, symbol: str, read: list[Value]) -> tuple[int, int] | ComputedLength:
        if isinstance(symbol, ComputedSymbol) and symbol not in self._where:
            return ComputedLength(symbol.function, self.lengths(symbol.operands, read))
        return self._axis(symbol, read)

    def _axis(self, symbol: str, read: list[Value]) -> tuple[int, int]:
        for number, value in enumerate(read):
            if symbol in value.axes:
                return number, value.axes.index(symbol)
        if symbol not in self._where:
            raise self.refuse("a length that is computed", f"no axis of a tensor has the length {symbol}")
        value, axis = self._where[symbol]
        read.append(value)
        return len(read) - 1, axis

    def lengths(self, dims: Iterable[Dim], read: list[Value]) -> Lengths:
        """Return several lengths: see `length`."""
        return tuple(self.length(dim, read) for dim in dims)

    def call(self, dim: Dim, word: str) -> None:
        """Note what an open axis is, unless the source has a word for it."""
        if isinstance(dim, Size) and dim.symbol:
            self.roles.setdefault(dim.symbol, word)
            self.words.setdefault(dim.symbol, word)
