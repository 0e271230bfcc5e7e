"""Graphs as operations on named values: what every room's graph becomes before layers are searched in it.

Operations, bodies and stored arrays are told apart by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.malformed import Entries, Fields

COMMON = "onnx"
"""The system whose operations the common ones are, and whose layouts the layers made of them have."""

Dims: TypeAlias = "Sequence[int | str | None]"
"""Lengths of axes: a number, a name that stands for one, or None."""


@dataclass(eq=False)
class StoredNumbers:
    """Numbers that a file holds.

    name     their name in the file; "" for an attribute's
    dims     their shape
    dtype    their element type; None for strings and the like, which have no numbers
    read     returns the numbers
    source   their place in the file, for the room
    """

    name: str
    dims: tuple[int, ...]
    dtype: np.dtype[Any] | None
    read: Callable[[], Array]
    source: Any = None

    @staticmethod
    def of(array: Array, name: str = "") -> StoredNumbers:
        """Return numbers that are there already."""
        return StoredNumbers(name, array.shape, array.dtype.newbyteorder("="), lambda: array)

    @property
    def numbers(self) -> Array | None:
        """The numbers; None for strings and the like."""
        return None if self.dtype is None else self.read()


@dataclass(frozen=True, eq=False)
class AttributeReference:
    """An attribute that stands for one of the function around its operation, by the name that it has there."""

    name: str


@dataclass(eq=False)
class Operation:
    """An operation.

    kind        its name
    inputs      the names of the values that it reads, "" for one that is left out
    outputs     the values that it gives
    name        its name in the file; "" for one without a name
    domain      "" for the common set
    attributes  numbers, texts, lists of these, element types and stored numbers, by name
    bodies      the graphs in it, with the attributes that hold them; the same name may come more than once
    foreign     why no runtime knows it, in words; "" for one that is known, or of another domain
    odd         whether the file states an attribute twice, or one of an unknown kind
    source      its place in the file, for the room
    operator    the framework's name for the operator that it was written for, for messages; "" if that is its kind, None for one that the
                file does not have
    """

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str = ""
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    bodies: Sequence[tuple[str, Body]] = ()
    odd: bool = False
    foreign: str = ""
    source: Any = None
    operator: str | None = ""

    def __post_init__(self) -> None:
        self.inputs, self.outputs, self.attributes = Entries(self.inputs), Entries(self.outputs), Fields(self.attributes)

    @property
    def label(self) -> str:
        """The words for it: its name, or the first value that it gives."""
        return self.name or next(iter(self.outputs), "")

    @cached_property
    def reads(self) -> frozenset[str]:
        """The values that it reads, those that graphs inside it take from around them among them."""
        names = {name for name in self.inputs if name}
        return frozenset(names.union(*(body.free for _, body in self.bodies)))


@dataclass(frozen=True, eq=False)
class Declared:
    """The statements of a file about a value.

    dtype  its element type; None if it states none
    dims   its axes; None if it states none
    """

    name: str
    dtype: np.dtype[Any] | None = None
    dims: Dims | None = None


@dataclass(eq=False)
class Body:
    """A graph of operations, or a function.

    nodes     its operations, in an order in which they can run
    inputs    the values that are given to it, by name
    outputs   the values that it gives
    stored    its stored numbers by name
    declared  what the file states of values: of inputs, of others, of outputs
    function  its domain and name, where it is a function
    defaults  attributes of a function that its calls may leave out
    opsets    versions of sets of operations, for a function
    """

    nodes: Sequence[Operation]
    inputs: Sequence[str]
    outputs: Sequence[str]
    stored: Mapping[str, StoredNumbers] = field(default_factory=dict)
    declared: Sequence[Declared] = ()
    function: tuple[str, str] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inputs, self.outputs = Entries(self.inputs), Entries(self.outputs)

    @cached_property
    def free(self) -> frozenset[str]:
        """The values that it takes from the graphs around it."""
        here = {*self.inputs, *self.stored, *(name for node in self.nodes for name in node.outputs)}
        read = {name for node in self.nodes for name in node.reads} | set(self.outputs)
        return frozenset(read - here)


@dataclass(eq=False)
class Program:
    """A model: its main graph, and the functions that its operations call.

    path      the file
    main      the main graph
    opsets    versions of sets of operations by domain
    functions by domain and name
    size      how many bytes of the file there are: what they may make this program compute
    companion_bytes  how many bytes of numbers it states to be in other files
    dtype     returns the element type that an attribute of a function states
    """

    path: Path
    main: Body
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], Body] = field(default_factory=dict)
    size: int = 0
    companion_bytes: int = 0
    dtype: Callable[[Any], Any] = lambda stated: stated


def bodies(nodes: Iterable[Operation]) -> Iterator[Body]:
    """Yield the graphs in some operations."""
    return (body for node in nodes for _, body in node.bodies)
