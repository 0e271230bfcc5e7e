"""A graph of operators, as a room reads it off a file: values are objects, told apart by identity."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Call, Unknown
from rnnconvert.graphs.operators import Dialect

Dims = Sequence["int | str | None"]
"""Lengths of axes: a number, a name that stands for the same number everywhere, or None where nothing is known."""


@dataclass(eq=False)
class GraphValue:
    """A value that one node gives and others read.

    name      its name in the file, for messages
    node      the node that gives it; None for an input, a constant, and a value that the file does not give
    constant  its numbers, or a function that returns them, if no input decides them
    dims      the lengths of its axes, if the file states them
    """

    name: str
    node: GraphNode | LayerCall | None = None
    constant: Array | Callable[[], Array | None] | None = None
    dims: Dims | None = None


@dataclass(eq=False)
class GraphNode:
    """An operator.

    kind        its key in the dialect, a string for most: where names are not enough, a tuple with the operator's domain
    inputs      the values that it reads, None for one that is left out
    attributes  further statements of its file, for the dialect
    label       its name in messages
    """

    kind: Hashable
    inputs: tuple[GraphValue | None, ...]
    outputs: tuple[GraphValue | None, ...]
    attributes: Mapping[str, Any]
    label: str


UNFOLLOWED = Unknown("its graph was not followed yet")
"""The sequence of a call until the whole graph is known."""

PLAIN = Call(UNFOLLOWED)
"""A call that receives only its sequence."""


@dataclass(frozen=True)
class CallSizes:
    """The sizes of a layer in one call.

    hidden      width of a direction's output
    directions  1 or 2
    dtype       the element type that it computes in
    width       how many features it reads; 0 if unknown
    """

    hidden: int
    directions: int = 1
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    width: int = 0


@dataclass(eq=False)
class LayerCall:
    """A call of a recurrent layer.

    layer       its name
    sequence    the value that it reads, and its axes: letters of AXES
    outputs     the whole sequences that it gives, with their axes
    states      the other values that it gives, each a state or an output at one step, in words
    sizes       its widths, directions and element type
    received    what it receives in addition to its sequence, as far as the file says so in words
    initial     the values of the states that it begins with
    lengths     the values of the lengths of its sequences
    """

    layer: str
    sequence: tuple[GraphValue, str]
    outputs: tuple[tuple[GraphValue, str], ...]
    states: tuple[tuple[GraphValue, str], ...]
    sizes: CallSizes
    received: Call = PLAIN
    initial: tuple[GraphValue, ...] = ()
    lengths: tuple[GraphValue, ...] = ()


AXES = "tTbdhui1"
"""The axes of a layer's sequences: time, time from its end, batch, directions, units of one direction, units of all directions
side by side, features that are read (the same as u, where another layer gives them), and an axis of length 1."""


class Graph:
    """Operators and calls of layers; values go by the keys that a room has for them.

    dialect  what the framework's operators do
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.layers: list[LayerCall] = []
        self._values: dict[Hashable, GraphValue] = {}

    def value(self, key: Hashable) -> GraphValue:
        """Return the value of a key; the same key is the same value."""
        if key not in self._values:
            self._values[key] = GraphValue(str(key[-1] if isinstance(key, tuple) and key else key))
        return self._values[key]

    def values(self) -> Iterable[GraphValue]:
        """Return every value."""
        return self._values.values()

    def describe(self, key: Hashable, dims: Dims | None) -> None:
        """Note the lengths of a value's axes: an input's, or those that the file states of another value."""
        self.value(key).dims = dims

    def constant(self, key: Hashable, numbers: Array | Callable[[], Array | None]) -> None:
        """Note that no input decides a value, and its numbers, or a function that returns them (None: not known)."""
        self.value(key).constant = numbers

    def add(
        self,
        kind: Hashable,
        inputs: Sequence[Hashable | None],
        outputs: Sequence[Hashable | None],
        attributes: Mapping[str, Any] | None = None,
        label: str | None = "",
        over: bool = False,
    ) -> GraphNode:
        """Note an operator; None for an input or output that is left out.

        label  what messages call it; its kind, if nothing is given; None for one that the file does not have, which they leave out
        over   whether it takes the place of the operators that give these outputs already: the first counts otherwise
        """
        read = tuple(None if key is None else self.value(key) for key in inputs)
        gives = tuple(None if key is None else self.value(key) for key in outputs)
        node = GraphNode(kind, read, gives, attributes or {}, "" if label is None else label or str(kind))
        for value in gives:
            if value is not None and (over or value.node is None):
                value.node = node
        return node

    def call(
        self,
        layer: str,
        sequence: tuple[Hashable, str],
        outputs: Mapping[Any, str],
        states: Mapping[Any, str] | None = None,
        *,
        sizes: CallSizes,
        received: Call = PLAIN,
        initial: Iterable[Hashable] = (),
        lengths: Iterable[Hashable] = (),
    ) -> LayerCall:
        """Note a call of a recurrent layer: see LayerCall."""
        call = LayerCall(
            layer,
            (self.value(sequence[0]), sequence[1]),
            tuple((self.value(key), axes) for key, axes in outputs.items()),
            tuple((self.value(key), words) for key, words in (states or {}).items()),
            sizes,
            received,
            tuple(map(self.value, initial)),
            tuple(map(self.value, lengths)),
        )
        for value, _ in (*call.outputs, *call.states):
            value.node = call
        self.layers.append(call)
        return call
