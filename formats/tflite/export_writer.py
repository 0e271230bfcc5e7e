"""A graph of basic operations on its way into a TFLite model: its values, and what many rules add."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.formats.tflite.export_tables import WIDE
from rnnconvert.formats.tflite.operator_values import INT, OperatorValues, kind_of
from rnnconvert.graphs.program.operations import Body, Operation
from rnnconvert.scaffolding.graph.model import NamedTensor, OperationGraph
from rnnconvert.scaffolding.graph.target import TargetWriter

Rule = Callable[["TfliteWriter", Operation], None]
"""Adds the operators that an operation is."""


class TfliteWriter(TargetWriter[int]):
    """A model in the operators of TFLite under construction; TensorFlow has most of them, too, under other names.

    values  its main graph
    """

    def __init__(self, graph: OperationGraph, rules: Mapping[str, Rule], values: OperatorValues) -> None:
        """Begin it.

        rules   by kinds of operations
        values  the main graph, which is empty
        """
        super().__init__(graph, rules)
        self.values = values

    def constant(self, name: str, array: Array | PiecewiseArray) -> int:
        return self.values.constant(name, array)

    @property
    def title(self) -> str:
        return self.values.title

    @property
    def unknown_reason(self) -> str:
        return f"no operator of {self.title}'s is known for it"

    @contextlib.contextmanager
    def graph_in(self, node: Operation, values: OperatorValues) -> Iterator[Body]:
        """Write the graph in an operation into one of the model's graphs."""
        around, self.values = self.values, values
        try:
            with self.inside(node) as body:
                yield body
        finally:
            self.values = around

    def dims(self, node: Operation, name: str) -> Sequence[int | None]:
        """Return the axes of a value. Raises RefusedError where not even their number is known."""
        dims = self.shape(name)
        if dims is None:
            raise self.refused(node, "a value of any number of axes", "its operators are for a number that is known")
        return dims

    def input(self, tensor: NamedTensor) -> None:
        wide = tensor.value.dtype == "int64"
        kind = WIDE if wide else kind_of(np.dtype(tensor.value.dtype))
        place = self.values.value(tensor.name, kind, tensor.value.shape)
        self.values.inputs[tensor.name] = place
        self.named(tensor.name, self.cast(place, INT, f"{tensor.name}/narrow") if wide else place)

    def output(self, tensor: NamedTensor) -> None:
        kind = WIDE if tensor.value.dtype == "int64" else kind_of(np.dtype(tensor.value.dtype))
        place = self[tensor.name]
        self.values.outputs[tensor.name] = self.cast(place, kind, tensor.name)

    def cast(self, place: int, kind: int, name: str) -> int:
        """Add a change of the element type."""
        codes: dict[str, Any] = {"from": self.values.kinds[place], "to": kind}
        return self.values.add("CAST", [place], name, kind, **codes)

    def put(self, node: Operation, operator: str, inputs: Sequence[int] | None = None, kind: int | None = None, **options: Any) -> None:
        """Add an operator that gives what an operation of the graph gives."""
        read = [self[name] for name in node.inputs] if inputs is None else inputs
        output = node.outputs[0]
        self.named(output, self.values.add(operator, read, node.name, kind, self.shape(output), **options))

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
