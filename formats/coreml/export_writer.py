"""A graph of basic operations on its way into a program of Core ML: its values, its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnnconvert.containers.wire import field
from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.coreml import encode, mil
from rnnconvert.formats.coreml.encode import number
from rnnconvert.formats.coreml.export_program import (
    OPSET,
    TITLE,
    VERSION,
    MilBlock,
    MilProgram,
    MilValue,
    Operand,
    Shape,
    Storage,
    dtype_of,
)
from rnnconvert.formats.coreml.package import new_package
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.scaffolding.graph.model import NamedTensor, OperationGraph

MOST_SEQUENCES, MOST_STEPS = 64, 4096
"""How long open axes may be: the first, and others. A program needs a bound."""
_FEATURES = {"fp32": encode.FLOAT32, "int32": encode.INT32}

Rule = Callable[["MilWriter", Operation], None]
"""Adds the operations that an operation is."""


class MilWriter:
    """A program under construction.

    program    what its blocks share
    main       its main block
    recurrent  its recurrent layers, in words
    """

    def __init__(self, graph: OperationGraph, rules: Mapping[str, Rule], storage: Storage) -> None:
        """Begin it.

        rules    by kinds of operations
        storage  how its weights are held
        """
        self.program = MilProgram(storage)
        self.main = MilBlock(self.program, "")
        self.recurrent: list[str] = []
        self.inputs: list[MilValue] = []
        self.outputs: list[MilValue] = []
        self._rules, self._graph, self._scope = rules, graph, graph.scope()
        self._shapes = Shapes(self._scope.program)
        self._values: dict[str, MilValue] = {}
        self._names = {tensor.name: self.program.names.unique(tensor.name) for tensor in (*graph.inputs, *graph.outputs)}

    def __getitem__(self, name: str) -> MilValue:
        """Return a value of the graph; stored numbers become a constant where they are first read."""
        if name not in self._values:
            self._values[name] = self.program.constant(name, self._graph.arrays[name])
        return self._values[name]

    def stored(self, name: str) -> Array | Pieced | None:
        """Return stored numbers; None for a value that is computed."""
        return self._graph.arrays.get(name)

    def numbers(self, name: str) -> list[int] | None:
        """Return whole numbers that are known without a run."""
        array = self._scope.constant(name)
        return None if array is None else [int(value) for value in np.asarray(array).reshape(-1)]

    def partly(self, name: str) -> Sequence[int | None] | None:
        """Return whole numbers of which some are known without a run."""
        return self._shapes.partly(self._scope, name)

    def dims(self, node: Operation, name: str) -> Shape:
        """Return the axes of a value. Raises RefusedError where not even their number is known."""
        if name in self._values:
            return self._values[name].shape
        dims = self._shapes.dims(self._scope, name)
        if dims is None:
            raise RefusedError("a value of any number of axes", TITLE, "its operations are for a number that is known", "", node.name)
        return tuple(dims)

    # Inputs and outputs

    def input(self, tensor: NamedTensor) -> None:
        """Add an input of the model: its features are numbers, so truths come as whole ones."""
        dtype = dtype_of(np.dtype(tensor.value.dtype))
        value = MilValue(self._names[tensor.name], "int32" if dtype == "bool" else dtype, tuple(tensor.value.shape))
        if not value.shape:
            raise RefusedError(f"the input {tensor.name!r} without axes", TITLE, "its features have axes")
        self.inputs.append(value)
        self._values[tensor.name] = self.main.cast(value, dtype, f"{tensor.name}_truths")

    def output(self, tensor: NamedTensor) -> None:
        """Add an output of the model."""
        value = self[tensor.name]
        if not value.shape:
            raise RefusedError(f"the output {tensor.name!r} without axes", TITLE, "its features have axes")
        dtype = "int32" if value.dtype == "bool" else value.dtype
        result = MilValue(self._names[tensor.name], dtype, value.shape)
        inputs = {"x": [value.name]}
        if dtype != value.dtype:
            inputs["dtype"] = [self.program.word(dtype).name]
        kind = "identity" if dtype == value.dtype else "cast"
        self.main.operations.append(mil.operation(kind, result.name, inputs, [(result.name, result.type)]))
        self.outputs.append(result)

    # Operations

    def node(self, node: Operation) -> None:
        """Add an operation. Raises RefusedError for one that is unknown here."""
        rule = self._rules.get(node.kind)
        if rule is None:
            raise refused(node, f"the operation {node.kind}", "no operation of Core ML is known for it")
        rule(self, node)

    def put(self, node: Operation, kind: str, inputs: Mapping[str, Operand], dtype: str = "") -> None:
        """Add an operation that gives what one of the graph gives; its element type is that of the first input, unless stated."""
        output = node.outputs[0]
        self.named(output, self.main.op(kind, output, dtype or self[node.inputs[0]].dtype, self.dims(node, output), inputs))

    def named(self, name: str, value: MilValue) -> None:
        """Let a value of the graph be one that is there."""
        self._values[name] = value

    # The file

    def as_written(self) -> OperationGraph:
        """Return the graph with its inputs and outputs by the names that they have in the program."""
        inputs, outputs = (
            [replace(tensor, name=self._names[tensor.name]) for tensor in tensors] for tensors in (self._graph.inputs, self._graph.outputs)
        )
        return replace(self._graph, inputs=inputs, outputs=outputs)

    def message(self, lengths: Sequence[Sequence[int]]) -> bytes:
        """Return the model.

        lengths  of each input those of its axes where nobody states others
        """
        main = mil.block([*self.program.constants, *self.main.operations], [value.name for value in self.outputs])
        program = mil.program(OPSET, [(value.name, value.type) for value in self.inputs], main)
        inputs = [
            encode.feature(value.name, default, _FEATURES[value.dtype], bounds(value.shape) if None in value.shape else ())
            for value, default in zip(self.inputs, lengths, strict=True)
        ]
        outputs = [encode.feature(value.name, (), _FEATURES[value.dtype]) for value in self.outputs]
        description = encode.described(inputs, outputs, {"written by": "rnnconvert"})
        return number(1, VERSION) + field(2, description) + field(502, program)

    def write(self, lengths: Sequence[Sequence[int]], path: Path) -> None:
        """Write the package."""
        with new_package(path) as (file, data):
            file.write(self.message(lengths))
            self.program.weights.write(data)


def bounds(shape: Shape) -> list[tuple[int, int]]:
    """Return how short and how long the axes of an input may be."""
    most = [MOST_STEPS if axis else MOST_SEQUENCES for axis in range(len(shape))]
    return [(1, longest) if length is None else (length, length) for longest, length in zip(most, shape, strict=True)]


def refused(node: Operation, feature: str, reason: str) -> RefusedError:
    """Return the refusal of an operation."""
    return RefusedError(feature, TITLE, reason, "", node.name)
