"""A graph of basic operations as an ONNX model, whose operations they are; its recurrent ones get their weights here.

Source: onnx/docs/Operators.md, RNN, GRU and LSTM.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import nbytes
from rnnconvert.formats.onnx.graph import attributes
from rnnconvert.formats.onnx.proto.nodes import ProtoNodes, code_of
from rnnconvert.formats.onnx.proto.write import write
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding.graph.model import OPSET, NamedTensor, OperationGraph, WrittenGraph


def exported(graph: OperationGraph) -> WrittenGraph:
    """Return a graph as an ONNX model. Raises RefusedError for a recurrent layer without an equivalent."""
    nodes, recurrent, notes = ProtoNodes(), [], []
    nodes.arrays.update(graph.arrays)
    for node in graph.nodes:
        if "stack" not in node.attributes:
            nodes.node(node.kind, node.inputs, node.outputs, node.name, **node.attributes)
            continue
        recurrent.append(_recurrent(nodes, node))
        if "Softplus" in attributes(node.attributes["stack"]).get("activations", ()):
            notes.append(
                f"{node.name}: onnxruntime's {node.kind} gives infinity for Softplus of numbers beyond 88, where the value is finite"
            )
    proto = helper.make_model(
        helper.make_graph(nodes.nodes, graph.name, [*map(_info, graph.inputs)], [*map(_info, graph.outputs)], nodes.initializers()),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
        producer_name="rnnconvert",
    )
    size = sum(map(nbytes, nodes.arrays.values()))
    return WrittenGraph(graph, len(nodes.nodes), recurrent, notes, size, partial(write, model=proto, arrays=nodes.arrays))


def _recurrent(nodes: ProtoNodes, node: Operation) -> str:
    """Add a recurrent node with its weights; return it in words."""
    fitted = fit_to_layout(node.attributes["stack"], registry.layouts_of("onnx"))
    packed, inputs = pack(fitted.layout, fitted.stack), [*node.inputs]
    for place, key in ((1, "W"), (2, "R"), (3, "B"), (7, "P")):
        if key in packed:
            inputs += [""] * (place + 1 - len(inputs))
            inputs[place] = nodes.constant(f"{node.name}/{key}", packed[key])
    while inputs[-1] == "":
        inputs.pop()
    nodes.node(node.kind, inputs, node.outputs, node.name, **attributes(fitted.stack))
    return f"{node.name} ({node.kind} {fitted.stack.input_size} -> {fitted.stack.hidden_size})"


def _info(tensor: NamedTensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, code_of(np.dtype(tensor.value.dtype)), tensor.axes)
