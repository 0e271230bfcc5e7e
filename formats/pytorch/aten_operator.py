"""An operator of aten as one entry: its parameters, what a description has of it, and what it does to elements on their way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rnnconvert.graphs.operators import Operator
from rnnconvert.graphs.sizes import Dim, Size
from rnnconvert.scaffolding.building import Builder
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
        axis, rank = self(word, default), self.tensor(x).rank
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise ValueError(f"axis {axis} of {rank}")
        return axis % rank

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
class ProgramBuilder(Builder):
    """A program on its way into a description.

    least  how long open axes have to be, by their symbols
    """

    least: dict[str, int] = field(default_factory=dict)

    def reaches(self, dim: Dim, length: int) -> None:
        """Note that an axis has to have a length, or to be longer."""
        if isinstance(dim, Size) and dim.symbol:
            self.least[dim.symbol] = max(self.least.get(dim.symbol, 1), length)
