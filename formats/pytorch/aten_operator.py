"""An operator of aten as one entry: its parameters, what a description has of it, and what it does to elements on their way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rnnconvert.graphs.operators import Operator
from rnnconvert.graphs.sizes import Dim, Size
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading

Rule: TypeAlias = "Callable[[ProgramReading, BoundCall], Any]"
"""Adds what an operator computes, and returns what it gives: a SourceTensor, a number, or a list of them."""
Move: TypeAlias = "Callable[[ProgramBuilder, BoundCall], Any]"
"""A function that moves numbers as an operator does: of tensors that are described, or of the elements of arrays."""
_OF_MEMORY = "device layout pin_memory memory_format non_blocking copy requires_grad implicit"
_OF_TRAINING = "padding_idx scale_grad_by_freq sparse sparse_grad momentum"
_OF_SPEED = "cudnn_enable cudnn_enabled benchmark deterministic allow_tf32 sorted path"
HARMLESS = frozenset(f"{_OF_MEMORY} {_OF_TRAINING} {_OF_SPEED}".split())
"""Arguments that decide no number."""


@dataclass(frozen=True)
class AtenOperator:
    """An operator of aten, with all that is known about it.

    parameters  in the order in which calls have them; a star follows the name of a list of tensors
    rule        adds it to a description; None for one that has no separate line
    elements    its effect on elements between layers; an operator without one changes them
    shares      whether its outputs may have elements in common with its inputs
    """

    parameters: str
    rule: Rule | None = None
    elements: Operator | None = None
    shares: bool = False

    @property
    def names(self) -> list[str]:
        """Its parameters by their names."""
        return self.parameters.replace("*", "").split()

    def word(self, key: str) -> str:
        """Return the name that a parameter has here: that of what is read has several in torch."""
        return "x" if key in ("self", "input") and "x" in self.names else key


def counted(axis: Any, rank: int) -> int:
    """Return an axis counted from the front. Raises ValueError for one that a tensor of so many axes has not."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of {rank}")
    return axis % rank


class BoundCall:
    """An operator that is being read, with its arguments by name.

    operation  the operator as its program or graph has it
    """

    def __init__(
        self, name: str, entry: AtenOperator, operation: Any, arguments: Sequence[Any], named: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self.operation, self._arguments = name, operation, arguments
        words = entry.names
        if len(arguments) > len(words):
            raise ValueError(f"{len(arguments)} arguments, of which {' '.join(words)} are known")
        self._values = dict(zip(words, arguments, strict=False))
        for key, value in (named or {}).items():
            word = entry.word(key)
            if word not in words and key not in HARMLESS:
                raise ValueError(f"the argument {key!r}")
            self._values[word] = value
        self._read: set[str] = set()

    def __call__(self, word: str, default: Any = None) -> Any:
        self._read.add(word)
        value = self._values.get(word)
        return default if value is None else value

    @property
    def arguments(self) -> Sequence[Any]:
        """Its positional arguments."""
        self._read |= self._values.keys()
        return self._arguments

    def note_read(self, words: str) -> None:
        """Note arguments that decide nothing as the operator is called here, or that its program states elsewhere."""
        self._read |= set(words.split())

    def tensor(self, word: str = "x") -> SourceTensor:
        """Return an argument that must be a tensor."""
        value = self(word)
        if not isinstance(value, SourceTensor):
            raise ValueError(f"{word} is not a tensor")
        return value

    def integer(self, word: str, default: int | None = None) -> int:
        """Return an argument that must be a whole number."""
        value = self(word, default)
        if not isinstance(value, int):
            raise ValueError(f"{word} is not a whole number")
        return int(value)

    def integers(self, word: str) -> list[int]:
        """Return an argument that must be whole numbers, or one of them, as a list."""
        value = self(word)
        listed = list(value) if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(number, int) for number in listed):
            raise ValueError(f"{word} are not whole numbers")
        return [int(number) for number in listed]

    def axis(self, word: str = "dim", default: Any = None, x: str = "x") -> int:
        """Return an axis counted from the front."""
        return counted(self(word, default), self.tensor(x).rank)

    def axes(self, word: str = "dim") -> list[int]:
        """Return axes counted from the front, all of them where none is stated."""
        rank = self.tensor().rank
        return [counted(axis, rank) for axis in ([] if self(word) is None else self.integers(word))] or [*range(rank)]

    def check_read(self) -> None:
        """Raise ValueError for an argument that was not read, and that may decide numbers."""
        for word, value in self._values.items():
            if word not in self._read and word not in HARMLESS and value not in (None, False):
                raise ValueError(f"the argument {word!r}")


@dataclass(frozen=True)
class StepList:
    """A list with a value for each step of a loop, as one tensor whose first axis is the time.

    first  at which place of a tensor that they fill the first of them is
    """

    x: SourceTensor
    first: Dim = 0


@dataclass(eq=False)
class SortedOrder(SourceTensor):
    """Where the rows of a tensor are that come first, second and so on in an order: computed only where it is read by itself.

    of       the tensor that is sorted
    axis     the axis of its rows
    largest  whether the largest come first
    """

    of: SourceTensor = field(default_factory=lambda: SourceTensor(()))
    axis: int = 0
    largest: bool = False
    _inverse: SortedOrder | None = None

    def inverse(self) -> SortedOrder:
        """Return the order that puts the rows back."""
        if self._inverse is None:
            self._inverse = SortedOrder(self.dims, "int64", "inverse", of=self)
            self._inverse._inverse = self
        return self._inverse


@dataclass(eq=False)
class ReorderedRows(SourceTensor):
    """A tensor whose rows along an axis stand in an order: moved only where it is read by itself."""

    rows: SourceTensor = field(default_factory=lambda: SourceTensor(()))
    axis: int = 0
    order: SortedOrder = field(default_factory=lambda: SortedOrder(()))

    def is_by(self, order: SortedOrder, axis: int) -> bool:
        """Return whether these are the rows of an axis in an order."""
        return self.order is order and self.axis == axis


@dataclass(frozen=True, eq=False)
class PackedSteps:
    """Packed sequences, as they are padded, in the order in which they were before they were packed.

    x        (batch, time, values)
    lengths  how many steps of each sequence count
    mask     which steps count
    longest  the length of the longest sequence
    order    in which order they are packed, None for that in which they are
    zero     whether zeros stand at the steps that do not count
    """

    x: SourceTensor
    lengths: SourceTensor
    mask: SourceTensor
    longest: Dim
    order: SortedOrder | None = None
    zero: bool = False

    def check_sizes(self, sizes: Any) -> None:
        """Raise ValueError for the sizes of batches of other sequences."""
        if not isinstance(sizes, BatchSizes) or sizes.steps.lengths is not self.lengths or sizes.steps.order is not self.order:
            raise ValueError("packed sequences read by the lengths of others")

    def rows(self, value: Any) -> Any:
        """Return a tensor that an operator reads together with these steps, padded. Raises ValueError for a tensor with rows of its own."""
        if isinstance(value, PackedSteps):
            if value.lengths is not self.lengths:
                raise ValueError("packed sequences of several lengths")
            return value.x
        if isinstance(value, SourceTensor) and value.rank > 1 and not value.stored:
            raise ValueError("a tensor beside packed sequences")
        return value

    def reordered(self, x: SourceTensor, axis: int) -> SourceTensor:
        """Return an output of a packed layer, whose rows along an axis are in the order of packing."""
        return x if self.order is None else ReorderedRows(x.dims, x.dtype, x.name, rows=x, axis=axis, order=self.order)

    def in_rows(self, state: SourceTensor) -> SourceTensor:
        """Return initial states, which come in the order of packing, in that in which the sequences are."""
        if self.order is None or state.filled is not None:
            return state
        if isinstance(state, ReorderedRows) and state.is_by(self.order, 1):
            return state.rows
        return ReorderedRows(state.dims, state.dtype, state.name, rows=state, axis=1, order=self.order.inverse())


@dataclass(frozen=True, eq=False)
class BatchSizes:
    """How many of packed sequences have each step."""

    steps: PackedSteps


@dataclass(eq=False)
class ProgramBuilder(Builder):
    """A program on its way into a description.

    least  how long open axes have to be, by their symbols
    """

    least: dict[str, int] = field(default_factory=dict)

    def read(self, tensor: SourceTensor | Value) -> Value:
        """Return a tensor as the description has it: rows in an order are sorted where they are read by themselves."""
        if isinstance(tensor, SortedOrder) and tensor.value is None:
            tensor.value = operations.top(self, tensor.of, tensor.dims[0], tensor.axis, tensor.largest)[1].value
        elif isinstance(tensor, ReorderedRows) and tensor.value is None:
            tensor.value = self.add(kinds.Gather(axis=tensor.axis), [tensor.rows, tensor.order], tensor.dims, name="taken").value
        return super().read(tensor)

    def reaches(self, dim: Dim, length: int) -> None:
        """Note that an axis has to have a length, or to be longer."""
        if isinstance(dim, Size) and dim.symbol:
            self.least[dim.symbol] = max(self.least.get(dim.symbol, 1), length)
