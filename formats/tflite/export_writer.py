"""A graph of basic operations on its way into a TFLite model: its values, and what many rules add."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.tflite.export_tables import INT, WIDE, OperatorGraph, Storage, StoringTables, kind_of
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.scaffolding.graph.model import NamedTensor, OperationGraph

Rule = Callable[["TfliteWriter", Operation], None]
"""Adds the operators that an operation is."""


class TfliteWriter:
    """A TFLite model under construction.

    values     its main graph
    recurrent  its recurrent layers, in words
    """

    def __init__(self, graph: OperationGraph, rules: Mapping[str, Rule], storage: Storage) -> None:
        """Begin it.

        rules    by kinds of operations
        storage  how its weights are held
        """
        self.values = OperatorGraph(StoringTables(storage), "main")
        self._rules = rules
        self.recurrent: list[str] = []
        self._graph, self._scope = graph, graph.scope()
        self._shapes = Shapes(self._scope.program)
        self._places: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """Return a value of the graph; stored numbers become a constant where they are first read."""
        if name not in self._places:
            self._places[name] = self.values.constant(name, self._graph.arrays[name])
        return self._places[name]

    def stored(self, name: str) -> Array | Pieced | None:
        """Return stored numbers; None for a value that is computed."""
        return self._graph.arrays.get(name)

    def numbers(self, name: str) -> list[int] | None:
        """Return whole numbers that are known without a run."""
        array = self._scope.constant(name)
        return None if array is None else [int(number) for number in np.asarray(array).reshape(-1)]

    def partly(self, name: str) -> Sequence[int | None] | None:
        """Return whole numbers of which some are known without a run."""
        return self._shapes.partly(self._scope, name)

    def dims(self, node: Operation, name: str) -> Sequence[int | None]:
        """Return the axes of a value. Raises RefusedError where not even their number is known."""
        dims = self._shapes.dims(self._scope, name)
        if dims is None:
            raise RefusedError("a value of any number of axes", "TFLite", "its operators are for a number that is known", "", node.name)
        return dims

    def shape(self, name: str) -> Sequence[int | None] | None:
        """Return the axes of a value; None where not even their number is known."""
        return self._shapes.dims(self._scope, name)

    def input(self, tensor: NamedTensor) -> None:
        """Add an input of the model."""
        wide = tensor.value.dtype == "int64"
        kind = WIDE if wide else kind_of(np.dtype(tensor.value.dtype))
        place = self.values.value(tensor.name, kind, tensor.value.shape)
        self.values.inputs[tensor.name] = place
        self._places[tensor.name] = self.cast(place, INT, f"{tensor.name}/narrow") if wide else place

    def output(self, tensor: NamedTensor) -> None:
        """Add an output of the model."""
        kind = WIDE if tensor.value.dtype == "int64" else kind_of(np.dtype(tensor.value.dtype))
        place = self[tensor.name]
        self.values.outputs[tensor.name] = self.cast(place, kind, tensor.name)

    def cast(self, place: int, kind: int, name: str) -> int:
        """Add a change of the element type."""
        codes: dict[str, Any] = {"from": self.values.kinds[place], "to": kind}
        return self.values.add("CAST", [place], name, kind, **codes)

    def node(self, node: Operation) -> None:
        """Add an operation. Raises RefusedError for one that is unknown here."""
        rule = self._rules.get(node.kind)
        if rule is None:
            raise RefusedError(f"the operation {node.kind}", "TFLite", "no operator of TFLite's is known for it", "", node.name)
        rule(self, node)

    def put(self, node: Operation, operator: str, inputs: Sequence[int] | None = None, kind: int | None = None, **options: Any) -> None:
        """Add an operator that gives what an operation of the graph gives."""
        read = [self[name] for name in node.inputs] if inputs is None else inputs
        output = node.outputs[0]
        self.named(output, self.values.add(operator, read, node.name, kind, self.shape(output), **options))

    def named(self, name: str, place: int) -> None:
        """Let a value of the graph be one that is there."""
        self._places[name] = place

    def add(self, operator: str, inputs: Sequence[int], node: Operation, word: str, kind: int | None = None, **options: Any) -> int:
        """Add an operator on the way to what an operation gives."""
        return self.values.add(operator, inputs, f"{node.name}/{word}", kind, **options)

    def transposed(self, node: Operation, place: int, order: Sequence[int], word: str) -> int:
        """Add a change of the order of axes."""
        return self.add("TRANSPOSE", [place, self.values.integers(*order)], node, word)

    def cut(self, node: Operation, place: int, begins: Mapping[int, int], ends: Mapping[int, int], shrink: Sequence[int] = ()) -> int:
        """Add a part of a value: where it begins and ends along axes; of those that shrink, one place, without its axis."""
        axes = max([*begins, *ends, *shrink]) + 1
        lists = [[each.get(axis, 0) for axis in range(axes)] for each in (begins, ends)]
        masks = [sum(1 << axis for axis in range(axes) if axis not in each) for each in (begins, ends)]
        bounds = [self.values.integers(*numbers) for numbers in (*lists, [1] * axes)]
        shrunk = sum(1 << axis for axis in shrink)
        return self.add("STRIDED_SLICE", [place, *bounds], node, "part", begin_mask=masks[0], end_mask=masks[1], shrink_axis_mask=shrunk)

    def picked(self, node: Operation, place: int, axis: int, index: int) -> int:
        """Add one place along an axis, without that axis; a negative one counts from the end."""
        return self.cut(node, place, {axis: index}, {axis: index + 1} if index != -1 else {}, [axis])

    def size(self, node: Operation, place: int) -> int:
        """Add the lengths of a value's axes."""
        return self.add("SHAPE", [place], node, "shape", INT, out_type=INT)


def refused(node: Operation, feature: str, reason: str) -> RefusedError:
    """Return the refusal of an operation."""
    return RefusedError(feature, "TFLite", reason, "", node.name)
