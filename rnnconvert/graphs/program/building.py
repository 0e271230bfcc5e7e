"""Operations and numbers of a graph that is being written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.graphs.program.operations import Body, Operation, StoredNumbers


class GraphBuilder(ABC):
    """A graph under construction, in the common operations.

    arrays  its stored numbers by name
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Array | PiecewiseArray] = {}

    def name(self, wanted: str) -> str:
        """Return the name of a new value or operation."""
        return wanted

    @abstractmethod
    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: Any) -> None:
        """Add an operation of any number of outputs; element types and stored numbers among its attributes are numpy's.

        A graph in it is an attribute likewise.
        """

    def add(self, operator: str, inputs: Sequence[str], wanted: str, **attributes: Any) -> str:
        """Add an operation with one output; return that."""
        name = self.name(wanted)
        self.node(operator, inputs, [name], name, **attributes)
        return name

    def constant(self, wanted: str, array: Array | PiecewiseArray) -> str:
        """Add stored numbers; return their name."""
        name = self.name(wanted)
        self.arrays[name] = array
        return name

    def shared(self, wanted: str, array: Array) -> str:
        """Return the name of numbers that are stored once, however often they are needed."""
        self.arrays.setdefault(wanted, array)
        return wanted

    def integers(self, *values: int) -> str:
        """Return a list of whole numbers."""
        return self.shared("integers_" + "_".join(map(str, values)).replace("-", "m"), np.array(values, np.int64))

    def zero(self) -> str:
        """Return the number zero."""
        return self.shared("zero", np.zeros((), np.float32))


class OperationBuilder(GraphBuilder):
    """A graph under construction as operations, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Operation] = []

    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: Any) -> None:
        stored = {key: StoredNumbers.of(value) if isinstance(value, np.ndarray) else value for key, value in attributes.items()}
        bodies = [(key, value) for key, value in stored.items() if isinstance(value, Body)]
        for key, _ in bodies:
            del stored[key]
        self.nodes.append(Operation(operator, inputs, outputs, name, attributes=stored, bodies=bodies))

    def prune(self, outputs: Sequence[str]) -> None:
        """Drop the operations and numbers on which no output depends."""
        self.nodes, read = _needed(self.nodes, outputs)
        self.arrays = {name: array for name, array in self.arrays.items() if name in read}


def _needed(nodes: Sequence[Operation], outputs: Sequence[str]) -> tuple[list[Operation], set[str]]:
    """Return the operations on which outputs depend, in their order, and all values that are read.

    A Scan goes without the sequences that nothing reads: they are as long as the loop runs, and some runtimes copy them at every step.
    """
    read, needed = set(outputs), list[Operation]()
    for node in reversed(nodes):
        if read.intersection(node.outputs):
            if node.kind == "Scan":
                ((key, body),) = node.bodies
                states = len(node.inputs) - node.attributes["num_scan_inputs"]
                places = [place for place, name in enumerate(node.outputs) if place < states or name in read]
                gives = [body.outputs[place] for place in places]
                body = replace(body, nodes=_needed(body.nodes, gives)[0], outputs=gives)
                node = replace(node, outputs=[node.outputs[place] for place in places], bodies=[(key, body)])
            needed.append(node)
            read.update(node.reads)
    return needed[::-1], read
