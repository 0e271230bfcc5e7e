"""A graph of basic operations on its way into a program of Core ML: its values, its inputs and outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnnconvert.containers.wire import field
from rnnconvert.core.arrays import Array, PiecewiseArray
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
from rnnconvert.graphs.program.operations import Body, Operation
from rnnconvert.scaffolding.graph.model import NamedTensor, OperationGraph
from rnnconvert.scaffolding.graph.target import TargetWriter

MOST_SEQUENCES, MOST_STEPS = 64, 4096
"""How long open axes may be: the first, and others. A program needs a bound."""
_FEATURES = {"fp32": encode.FLOAT32, "int32": encode.INT32}

Rule = Callable[["MilWriter", Operation], None]
"""Adds the operations that an operation is."""


class MilWriter(TargetWriter[MilValue]):
    """A program under construction.

    program  what its blocks share
    main     the block that is being written: the main one, or one of an operation in it
    """

    title = TITLE

    def __init__(self, graph: OperationGraph, rules: Mapping[str, Rule], storage: Storage) -> None:
        """Begin it.

        rules    by kinds of operations
        storage  how its weights are held
        """
        super().__init__(graph, rules)
        self.program = MilProgram(storage)
        self.main = MilBlock(self.program, "")
        self.inputs: list[MilValue] = []
        self.outputs: list[MilValue] = []
        self._names = {tensor.name: self.program.names.unique(tensor.name) for tensor in (*graph.inputs, *graph.outputs)}

    def constant(self, name: str, array: Array | PiecewiseArray) -> MilValue:
        return self.program.constant(name, array)

    def shape(self, name: str) -> Sequence[int | None] | None:
        return self._held[name].shape if name in self._held else super().shape(name)

    def dims(self, node: Operation, name: str) -> Shape:
        """Return the axes of a value. Raises RefusedError where not even their number is known."""
        dims = self.shape(name)
        if dims is None:
            raise self.refused(node, "a value of any number of axes", "its operations are for a number that is known")
        return tuple(dims)

    # Inputs and outputs

    def input(self, tensor: NamedTensor) -> None:
        """Add an input of the model: its features are numbers, so truths come as whole ones."""
        dtype = dtype_of(np.dtype(tensor.value.dtype))
        value = MilValue(self._names[tensor.name], "int32" if dtype == "bool" else dtype, tuple(tensor.value.shape))
        if not value.shape:
            raise RefusedError(f"the input {tensor.name!r} without axes", TITLE, "its features have axes")
        self.inputs.append(value)
        self.named(tensor.name, self.main.cast(value, dtype, f"{tensor.name}_truths"))

    def output(self, tensor: NamedTensor) -> None:
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

    @contextlib.contextmanager
    def graph_in(self, node: Operation, block: MilBlock) -> Iterator[Body]:
        """Write the graph in an operation into a block of its own, which sees the values of the one around it."""
        main, held = self.main, {name: self[name] for name in self.captured(node.bodies[0][1])}
        self.main = block
        try:
            with self.inside(node) as body:
                self._held |= held
                yield body
        finally:
            self.main = main

    def put(self, node: Operation, kind: str, inputs: Mapping[str, Operand], dtype: str = "") -> None:
        """Add an operation that gives what one of the graph gives; its element type is that of the first input, unless stated."""
        output = node.outputs[0]
        self.named(output, self.main.op(kind, output, dtype or self[node.inputs[0]].dtype, self.dims(node, output), inputs))

    # The file

    def as_written(self) -> OperationGraph:
        """Return the graph with its inputs and outputs by the names that they have in the program."""
        inputs, outputs = (
            [replace(tensor, name=self._names[tensor.name]) for tensor in tensors] for tensors in (self._graph.inputs, self._graph.outputs)
        )
        return replace(self._graph, inputs=inputs, outputs=outputs)

    def message(self, lengths: Sequence[Sequence[int]]) -> bytes:
        """Return the model.

        lengths  the lengths of each input's axes, unless a user states others
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
