"""A graph of basic operations on its way into a framework's own form: what is the same for every framework."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError
from rnnconvert.graphs.program.operations import Body, Declared, Operation
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.scaffolding.graph.model import NamedTensor, OperationGraph

Held = TypeVar("Held")
"""The reference to a value in the framework's form."""


_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
"""Element types in which sums begin anew behind the last number: these forms have wider ones in their place, or stop at the last."""


class TargetWriter(ABC, Generic[Held]):
    """A model in a framework's form under construction."""

    def __init__(self, graph: OperationGraph, rules: Mapping[str, Callable[[Any, Operation], None]]) -> None:
        """Begin it.

        rules  what adds an operation, by its kind
        """
        self._rules, self._graph, self._scope = rules, graph, graph.scope()
        self._shapes = Shapes(self._scope.program)
        self._held: dict[str, Held] = {}

    @property
    @abstractmethod
    def title(self) -> str:
        """The name of the form in messages."""

    @abstractmethod
    def constant(self, name: str, array: Array | PiecewiseArray) -> Held:
        """Add stored numbers."""

    @abstractmethod
    def input(self, tensor: NamedTensor) -> None:
        """Add an input of the model."""

    @abstractmethod
    def output(self, tensor: NamedTensor) -> None:
        """Add an output of the model."""

    @property
    def unknown_reason(self) -> str:
        """The reason of a refusal of something that no rule writes."""
        return f"no operation of {self.title} is known for it"

    def unknown(self, node: Operation) -> RefusedError:
        """Return the refusal of an operation without a rule."""
        return self.refused(node, f"the operation {node.kind}", self.unknown_reason)

    def refused(self, node: Operation, feature: str, reason: str) -> RefusedError:
        """Return the refusal of an operation."""
        return RefusedError(feature, self.title, reason, "", node.name)

    def write_all(self) -> None:
        """Add the whole graph. Raises RefusedError for an operation or a recurrent layer without an equivalent."""
        for tensor in self._graph.inputs:
            self.input(tensor)
        self.write_nodes()
        for tensor in self._graph.outputs:
            self.output(tensor)

    def write_nodes(self) -> None:
        """Add the operations of the graph that is being written. Raises RefusedError for one without an equivalent."""
        for node in self._scope.nodes:
            rule = self._rules.get(node.kind)
            if rule is None:
                raise self.unknown(node)
            if node.kind == "Cast" and np.dtype(node.attributes["to"]) in _BYTES:
                raise self.refused(node, f"a Cast to {np.dtype(node.attributes['to'])}", "numbers of 8 bits begin anew behind the last")
            rule(self, node)

    @contextlib.contextmanager
    def inside(self, node: Operation) -> Iterator[Body]:
        """Write the graph in an operation: it has separate constants, and other values that are handed to it."""
        around = self._scope, self._held
        (self._scope,), self._held = self._scope.inner(node, 0), {}
        try:
            yield self._scope.body
        finally:
            self._scope, self._held = around

    def captured(self, body: Body) -> list[str]:
        """Return the values that the graph in an operation reads from around it, except for stored numbers."""
        return [name for name in sorted(body.free) if name not in self._graph.arrays]

    def __getitem__(self, name: str) -> Held:
        """Return a value of the graph; stored numbers become a constant where they are first read."""
        if name not in self._held:
            self._held[name] = self.constant(name, self._graph.arrays[name])
        return self._held[name]

    def named(self, name: str, held: Held) -> None:
        """Let a value of the graph be one that is there."""
        self._held[name] = held

    def stored(self, name: str) -> Array | PiecewiseArray | None:
        """Return stored numbers; None for a value that is computed."""
        return self._graph.arrays.get(name)

    def numbers(self, name: str) -> list[int] | None:
        """Return whole numbers that are known without a run."""
        array = self._scope.constant(name)
        return None if array is None else [int(number) for number in np.asarray(array).reshape(-1)]

    def partly(self, name: str) -> Sequence[int | None] | None:
        """Return whole numbers of which some are known without a run."""
        return self._shapes.partly(self._scope, name)

    def shape(self, name: str) -> Sequence[int | None] | None:
        """Return the axes of a value; None where not even their number is known."""
        return self._shapes.dims(self._scope, name)

    def symbols(self, name: str) -> Sequence[str]:
        """Return labels for the axes, equal for open axes of the same length; none if the source does not distinguish them."""
        value = self._graph.values.get(name)
        return value.axes if value is not None else ()

    def lengths_of_steps(self, node: Operation, body: Body, output: str, step: Declared) -> Iterator[int | tuple[str, int]]:
        """Yield each length of a step's output of a Scan: the stated one, or the value and axis that tell an open one.

        output  the name of what all steps give

        Raises RefusedError where nothing tells a length before the steps run.
        """
        for axis, length in enumerate(self.step_dims(node, step)):
            source = length if length is not None else self._as_long(node, body, output, step, axis)
            if source is None:
                reason = f"nothing tells the length of its axis {axis + 1} before they run"
                raise self.refused(node, f"a loop whose steps give {output!r}", reason)
            yield source

    def step_dims(self, node: Operation, value: Declared) -> tuple[int | None, ...]:
        """Return the axes of a value of a step. Raises RefusedError where not even their number is known."""
        if value.dims is None:
            raise self.refused(node, "a step with a value of any number of axes", "its loops are for numbers that are known")
        return tuple(length if isinstance(length, int) else None for length in value.dims)

    def _as_long(self, node: Operation, body: Body, output: str, step: Declared, axis: int) -> tuple[str, int] | None:
        symbols, states = self.symbols(output)[1:], len(node.inputs) - node.attributes["num_scan_inputs"]
        for name in node.inputs if symbols and symbols[axis] else ():
            for place, symbol in enumerate(self.symbols(name)):
                if symbol == symbols[axis]:
                    return name, place
        declared, dims = {value.name: value for value in body.declared}, list(step.dims or ())
        # A state of the same axes, of which this one alone is open.
        if sum(not isinstance(length, int) for length in dims) == 1:
            for name, inside in zip(node.inputs[:states], body.inputs, strict=False):
                if list(declared[inside].dims or ()) == dims:
                    return name, axis
        return None


def of_other_type(graph: OperationGraph) -> NamedTensor | None:
    """Return an input or output of another element type than float32, whole numbers and truths; None without one."""
    dtypes = ("float32", "int32", "int64", "bool")
    return next((tensor for tensor in (*graph.inputs, *graph.outputs) if tensor.value.dtype not in dtypes), None)
