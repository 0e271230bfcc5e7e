"""A described model with its weights as an ONNX model: for any batch and length, without a framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array, Pieced, nbytes
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.onnx.proto.write import write
from rnnconvert.formats.onnx.target.attention import ATTENTION
from rnnconvert.formats.onnx.target.checks import fixed, fulfilled
from rnnconvert.formats.onnx.target.graph import OPSET, GraphWriter, Rule
from rnnconvert.formats.onnx.target.layers import LAYERS
from rnnconvert.formats.onnx.target.recurrent import recurrent
from rnnconvert.formats.onnx.target.space import SPACE
from rnnconvert.formats.onnx.target.tensors import TENSORS
from rnnconvert.scaffolding.description import Description, Node, Value
from rnnconvert.scaffolding.weights import LayerWeights


@dataclass(frozen=True)
class OnnxExport:
    """An ONNX model without its numbers, and these by name; what it reads and gives, its recurrent nodes, and notes, in words."""

    proto: onnx.ModelProto
    arrays: Mapping[str, Array | Pieced]
    inputs: Sequence[str]
    outputs: Sequence[str]
    recurrent: Sequence[str]
    notes: Sequence[str]

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        return len(self.proto.graph.node)

    @property
    def size(self) -> int:
        """How many bytes its numbers have."""
        return sum(map(nbytes, self.arrays.values()))

    def write(self, path: Path) -> None:
        """Write a new file; large numbers stream into a file next to it."""
        write(path, self.proto, self.arrays)


def _model(g: GraphWriter, node: Node) -> None:
    """Add what a model in the model gives: its nodes stand among those of the model around it."""
    scope = node["scope"]
    for inside, outside in zip(scope.inputs, node.inputs, strict=True):
        g.give(inside, g(outside))
    g.run(scope, RULES, g.label(node))
    for outside, inside in zip(node.outputs, scope.outputs, strict=True):
        g.give(outside, g(inside))


RULES: Mapping[str, Rule] = {**LAYERS, **SPACE, **ATTENTION, **TENSORS, "recurrent": recurrent, "model": _model}
"""The kinds that are known."""


def exported(description: Description, weights: LayerWeights) -> OnnxExport:
    """Return a described model as an ONNX model.

    Raises RefusedError for a layer or a setting without an equivalent.
    """
    graph, top = GraphWriter(weights), description.scope
    lengths = {(number, axis): length for number, axis, length in filter(None, map(fixed, description.checks))}
    inputs = []
    for number, value in enumerate(top.inputs):
        name = graph.name(value.name)
        graph.give(value, name)
        shape = tuple(lengths.get((number, axis), size) for axis, size in enumerate(value.shape))
        inputs.append(_tensor(name, replace(value, shape=shape), description.words))
    guard = fulfilled(graph, description.checks, top.inputs, [value.name for value in inputs])
    graph.run(top, RULES)
    outputs = []
    for number, value in enumerate(top.outputs):
        name = graph.name("output" if len(top.outputs) == 1 else f"output_{number}")
        if guard and value.shape:
            graph.node("Expand", [graph(value), guard], [name], name)
        else:
            graph.node("Identity", [graph(value)], [name], name)
        outputs.append(_tensor(name, value, description.words))
    graph.prune([output.name for output in outputs])
    proto = helper.make_model(
        helper.make_graph(graph.nodes, top.name or "model", inputs, outputs, graph.initializers()),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
        producer_name="rnnconvert",
    )
    return OnnxExport(proto, graph.arrays, [*map(_described, inputs)], [*map(_described, outputs)], graph.recurrent, graph.notes)


def _tensor(name: str, value: Value, words: Mapping[str, str]) -> onnx.ValueInfoProto:
    """Return an input or output: open axes have the source's words, or the first is the batch, and others are the tensor's own."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    if not value.sized:
        raise RefusedError(f"the output {name!r}", "ONNX", "its axes are unknown: it is what a layer gives that is left out")
    stated: Sequence[str] = [words.get(axis, axis) for axis in value.axes] or [""] * len(value.shape)
    axes: list[Any] = [
        (text or ("batch" if not axis else f"{name}_{axis}")) if size is None else size
        for axis, (size, text) in enumerate(zip(value.shape, stated, strict=True))
    ]
    return helper.make_tensor_value_info(name, code, axes)


def _described(value: onnx.ValueInfoProto) -> str:
    axes = ", ".join(axis.dim_param or str(axis.dim_value) for axis in value.type.tensor_type.shape.dim)
    return f"{value.name} ({axes})"
