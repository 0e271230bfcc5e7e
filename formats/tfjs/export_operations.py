"""A graph of basic operations as a graph model of TensorFlow.js, before it is written: what no layer of it computes.

Its recurrent layers are loops over the steps, of any cell, mask, batch and length.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from rnnconvert.core.arrays import nbytes
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.tfjs.export_nodes import GraphModelParts, NodeGraph, node_name, topology
from rnnconvert.formats.tfjs.written import graph_document, write_document
from rnnconvert.formats.tflite import export_graph as tflite
from rnnconvert.formats.tflite.export_writer import Rule, TfliteWriter
from rnnconvert.formats.tflite.operator_values import kind_of
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.graph.model import NamedTensor, OperationGraph
from rnnconvert.scaffolding.graph.target import of_other_type

LACKING = (*tflite.LACKING, "Gelu")
"""The operations that are composed of others."""
_LOADED = "it is a graph model: load it with tf.loadGraphModel, and call its executeAsync"
_NUMBERS = "its numbers are in a file next to it, NAME.DIGEST.data: copy both"


def exported(graph: OperationGraph) -> ExportedGraph:
    """Return a graph as a graph model. Raises RefusedError for an operation or a recurrent layer without an equivalent."""
    if (tensor := of_other_type(graph)) is not None:
        reason = "its graphs compute in float32 and int32"
        raise RefusedError(f"{tensor.name!r} of type {tensor.value.dtype}", NodeGraph.title, reason)
    writer = _GraphModelWriter(graph)
    writer.write_all()
    parts = writer.nodes.parts
    document = graph_document(topology(parts), writer.signature, parts.weights)
    notes = [_LOADED, _NUMBERS]
    if any(tensor.value.dtype == "int64" for tensor in (*graph.inputs, *graph.outputs)):
        notes.append("whole numbers are computed in 32 bits")
    size = sum(map(nbytes, parts.weights.values()))
    write = partial(write_document, document=document, weights=parts.weights)
    return graph.exported(sum(len(each.nodes) for each in parts.graphs), notes, size, write)


class _GraphModelWriter(TfliteWriter):
    """A graph model under construction.

    nodes      its main graph
    signature  its inputs and outputs as the file states them, in their order
    """

    def __init__(self, graph: OperationGraph) -> None:
        self._outside = {tensor.name: node_name(tensor.name) for tensor in (*graph.inputs, *graph.outputs)}
        if len(set(self._outside.values())) < len(self._outside):
            self._outside = {name: f"{node}_{number}" for number, (name, node) in enumerate(self._outside.items())}
        self.nodes = NodeGraph(GraphModelParts([*self._outside.values()]), "main")
        self.signature: dict[str, dict[str, object]] = {"inputs": {}, "outputs": {}}
        super().__init__(graph, _RULES, self.nodes)

    def input(self, tensor: NamedTensor) -> None:
        kind = kind_of(np.dtype(tensor.value.dtype))
        self.named(tensor.name, self.nodes.input(self._outside[tensor.name], kind, tensor.value.shape))
        self._state("inputs", tensor)

    def output(self, tensor: NamedTensor) -> None:
        self.nodes.output(self._outside[tensor.name], self[tensor.name])
        self._state("outputs", tensor)

    def _state(self, side: str, tensor: NamedTensor) -> None:
        name = self._outside[tensor.name]
        self.signature[side][name] = self.nodes.stated(name, kind_of(np.dtype(tensor.value.dtype)), tensor.value.shape)


def _plain(operator: str) -> Rule:
    def rule(w: TfliteWriter, node: Operation) -> None:
        w.put(node, operator)

    return rule


_FUNCTIONS = ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Erf", "Sinh")
_RULES: Mapping[str, Rule] = {**tflite.RULES, **{kind: _plain(kind.upper()) for kind in _FUNCTIONS}}
