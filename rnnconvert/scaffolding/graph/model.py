"""A described model with its weights as a graph of basic operations: for any batch and length, without a framework."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import RefusedError
from rnnconvert.graphs.program.operations import Body, Declared, Operation, Program, StoredNumbers
from rnnconvert.graphs.program.scopes import ModelScopes, Scope
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Description, Node, Rules, Value, on
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.graph.attention import ATTENTION
from rnnconvert.scaffolding.graph.checks import fixed, fulfilled
from rnnconvert.scaffolding.graph.layers import LAYERS
from rnnconvert.scaffolding.graph.recurrent import none, recurrent
from rnnconvert.scaffolding.graph.scans import ScanValues, conv_lstm, scan
from rnnconvert.scaffolding.graph.space import SPACE
from rnnconvert.scaffolding.graph.tensors import TENSORS
from rnnconvert.scaffolding.graph.writer import GraphWriter, Holds
from rnnconvert.scaffolding.walk import INNER
from rnnconvert.scaffolding.weights import LayerWeights

OPSET = 17
"""The operator set of ONNX that the operations are of: with LayerNormalization; a runtime from 2022 on takes it."""
_CONSTANTS = 1 << 24
"""How many bytes of constants may be computed in addition to the stored ones."""
_TIME, _IMAGE = 1, 4
"""The axis of steps behind the batch's, and how many axes an image has, whose axes are not steps."""


@dataclass(frozen=True)
class NamedTensor:
    """An input or output of a graph.

    name   what the graph calls it
    value  the tensor of the description that it is, with its axes as the graph states them
    axes   lengths of its axes, and words for those that are open
    """

    name: str
    value: Value
    axes: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(map(str, self.axes))})"


@dataclass(frozen=True)
class OperationGraph:
    """A model as basic operations.

    name     what the source calls it
    nodes    its operations, in the order of running
    arrays   its stored numbers by name
    inputs   what it reads, in order
    outputs  what it gives, in order
    values   the tensors of the description that values of the graph are, by name
    recurrent  what runs over the steps of sequences, in words
    """

    name: str
    nodes: Sequence[Operation]
    arrays: Mapping[str, Array | PiecewiseArray]
    inputs: Sequence[NamedTensor]
    outputs: Sequence[NamedTensor]
    values: Mapping[str, Value]
    recurrent: Sequence[str]

    @property
    def size(self) -> int:
        """How many bytes its stored numbers have."""
        return sum(map(nbytes, self.arrays.values()))

    def exported(self, nodes: int, notes: Sequence[str], size: int, write: Callable[[Path], object], rounded: str = "") -> ExportedGraph:
        """Return it in the form of a framework, before it is a file: see ExportedGraph."""
        inputs, outputs = ([*map(str, tensors)] for tensors in (self.inputs, self.outputs))
        return ExportedGraph(inputs, outputs, nodes, self.recurrent, notes, size, write, rounded)

    def scope(self) -> Scope:
        """Return its operations as a scope, which knows what is constant in it."""
        stored = {
            name: StoredNumbers(name, tuple(array.shape), array.dtype.newbyteorder("="), partial(np.asarray, array))
            for name, array in self.arrays.items()
        }
        declared = [Declared(name, np.dtype(value.dtype), value.shape if value.sized else None) for name, value in self.values.items()]
        declared = [Declared(each.name, np.dtype(each.value.dtype), each.value.shape) for each in self.inputs] + declared
        body = Body(self.nodes, [each.name for each in self.inputs], [each.name for each in self.outputs], stored, declared)
        program = Program(Path(self.name), body, {"": OPSET}, size=self.size + _CONSTANTS)
        return Scope(ModelScopes(program), "main", body, None, program.opsets)


def _loop(g: GraphWriter, node: Node[kinds.Loop]) -> None:
    """Add a loop over the steps of sequences."""
    scope, states, count = node.kind.scope, node.kind.states, node.kind.states + node.kind.sequences
    names = [g(value) for value in node.inputs]
    for inside, name in zip(scope.inputs[count:], names[count:], strict=True):
        g.give(inside, name)

    def step() -> ScanValues:
        g.run(scope, g.label(node))
        return ScanValues(scope.outputs[:states], scope.outputs[states:])

    reads = ScanValues(scope.inputs[:states], scope.inputs[states:count])
    for value, name in zip(node.outputs, scan(g, g.label(node), names[:states], names[states:count], reads, step), strict=True):
        g.give(value, name)


RULES: Rules = {
    **LAYERS, **SPACE, **ATTENTION, **TENSORS, **on(kinds.Recurrent, recurrent), **on(kinds.ConvLSTM, conv_lstm),
    **INNER, **on(kinds.Loop, _loop),
}  # fmt: skip
"""The kinds that are known."""


def operation_graph(
    description: Description, weights: LayerWeights, title: str, lacking: Container[str] = ("Gelu",), holds: Holds = none
) -> OperationGraph:
    """Return a described model as basic operations, for a framework.

    title    its name in a refusal
    lacking  the operations of composed.py that it lacks
    holds    decides which recurrent layers are operations; the steps of others become a Scan

    Raises RefusedError for a layer or a setting without an equivalent.
    """
    top = description.scope
    graph = GraphWriter(top, RULES, weights, title, lacking, holds)
    lengths = {(number, axis): length for number, axis, length in filter(None, map(fixed, description.checks))}
    sequences = sum(len(value.shape) > _TIME and value.shape[_TIME] is None for value in top.inputs)
    inputs = []
    for number, value in enumerate(top.inputs):
        name = graph.name(value.name)
        graph.give(value, name)
        shape = tuple(lengths.get((number, axis), size) for axis, size in enumerate(value.shape))
        inputs.append(_tensor(name, replace(value, shape=shape), description.words, title, "time" if sequences == 1 else ""))
    guard = fulfilled(graph, description.checks, top.inputs, [value.name for value in inputs])
    graph.run(top)
    outputs = []
    for value, wanted in zip(top.outputs, description.output_names, strict=True):
        name = graph.name(wanted)
        if guard and value.shape:
            size = graph.add("Mul", [graph.shape_of(value), guard], f"{name}/shape")
            graph.node("Expand", [graph(value), size], [name], name)
        else:
            graph.node("Identity", [graph(value)], [name], name)
        outputs.append(_tensor(name, value, description.words, title))
    graph.prune([output.name for output in outputs])
    recurrent_words = [*dict.fromkeys(graph.recurrent(graph.nodes))]
    return OperationGraph(top.name or "model", graph.nodes, graph.arrays, inputs, outputs, graph.values, recurrent_words)


def _tensor(name: str, value: Value, words: Mapping[str, str], title: str, time: str = "") -> NamedTensor:
    """Return an input or output: open axes have the source's words, or the first is the batch, and others are the tensor's own.

    time  the word for the open axis of a sequence's steps, where the model has only one; otherwise it has the tensor's name in front
    """
    if not value.sized:
        raise RefusedError(f"the output {name!r}", title, "its axes are unknown: it is what a layer gives that is left out")
    stated: Sequence[str] = [words.get(axis, axis) for axis in value.axes] or [""] * len(value.shape)
    is_sequence = not value.axes and 1 < len(value.shape) < _IMAGE  # a source that tells axes apart may have the batch behind the time
    axes = tuple(
        (text or ("batch" if not axis else time or f"{name}_time" if is_sequence and axis == _TIME else f"{name}_{axis}"))
        if size is None
        else size
        for axis, (size, text) in enumerate(zip(value.shape, stated, strict=True))
    )
    return NamedTensor(name, value, axes)
