"""Nodes of a program for finding layers among them: their readers, the inputs that are weights, their attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnconvert.graphs.program.operations import Operation, bodies
from rnnconvert.graphs.program.scopes import Scope


@dataclass(frozen=True, eq=False)
class GraphLayer:
    """One layer in a graph.

    operator  what it is, by the name that the layouts have for its class
    scope     the graph that it is in
    nodes     its nodes: the one that its weights belong to, then the others in the order of the data
    values    the layout's names of its arrays, and the values that these are
    inputs    the nodes' inputs that are its arrays
    data      the value that it reads
    facts     what is set beside the weights, by the operator's attributes
    """

    operator: str
    scope: Scope
    nodes: tuple[Operation, ...]
    values: Mapping[str, str]
    inputs: tuple[tuple[Operation, int], ...]
    data: str
    facts: Mapping[str, Any]


class Uses:
    """Which nodes of a graph read each value, and how many axes a value has where the graph says it."""

    def __init__(self, scope: Scope) -> None:
        self._readers: dict[str, list[Operation]] = {}
        for node in scope.nodes:
            for name in read_by(node):
                self._readers.setdefault(name, []).append(node)
        for output in scope.body.outputs:
            self._readers.setdefault(output, []).append(Operation("", (), ()))
        self._ranks = {value.name: len(value.dims) for value in scope.body.declared if value.dims is not None}

    def rank(self, value: str) -> int:
        """Return how many axes a value has; -1 where the graph does not show it."""
        return self._ranks.get(value, -1)

    def any(self, value: str) -> bool:
        """Return whether a node reads a value, or it is an output of the graph."""
        return bool(self._readers.get(value))

    def readers(self, value: str) -> list[Operation]:
        """Return the nodes that read a value, an empty one for an output of the graph."""
        return self._readers.get(value, [])

    def only(self, value: str) -> Operation | None:
        """Return the one node that reads a value; None if there are more, or it is an output of the graph."""
        readers = self._readers.get(value, [])
        return readers[0] if len(readers) == 1 else None


def read_by(node: Operation) -> Iterator[str]:
    """Yield the values that a node reads, including those that the graphs in it read."""
    yield from node.inputs
    for body in bodies([node]):
        for inner in body.nodes:
            yield from read_by(inner)
        yield from body.outputs


def operand(scope: Scope, uses: Uses, node: Operation, operator: str) -> tuple[Operation, int] | None:
    """Return the only node that reads another's output, if it is of that operator with a constant; and which input that is."""
    behind = uses.only(node.outputs[0])
    if behind is None or behind.kind != operator or behind.domain or len(behind.inputs) != 2:
        return None
    index = 0 if behind.inputs[1] == node.outputs[0] else 1
    return (behind, index) if is_weight(scope, behind.inputs[index]) else None


def is_weight(scope: Scope, value: str) -> bool:
    """Return whether a value is a constant array of floating-point numbers."""
    array = scope.constant(value)
    return array is not None and array.dtype.kind not in "iub" and array.ndim > 0


def number(attributes: Mapping[str, Any], name: str, default: float) -> float:
    """Return a number among a node's attributes, or the default."""
    return float(attributes.get(name, default))
