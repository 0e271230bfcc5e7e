"""A graph of basic operations as an ONNX model, whose operations they are; its recurrent ones get their weights here.

Source: onnx/docs/Operators.md, RNN, GRU and LSTM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import nbytes
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.onnx.graph import attributes
from rnnconvert.formats.onnx.proto.nodes import ProtoNodes, code_of
from rnnconvert.formats.onnx.proto.write import write
from rnnconvert.graphs.program.operations import Declared, Operation
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.graph.model import OPSET, NamedTensor, OperationGraph
from rnnconvert.scaffolding.windows import reached


class _ScopeNodes(ProtoNodes):
    """Nodes of a graph, or of one in it: the numbers of all are stored in the outermost.

    weights  the names of recurrent layers' weights, by what they were packed from
    """

    def __init__(self, around: _ScopeNodes | None = None) -> None:
        super().__init__()
        self.weights: dict[object, str] = {} if around is None else around.weights
        self.arrays = self.arrays if around is None else around.arrays


def exported(graph: OperationGraph) -> ExportedGraph:
    """Return a graph as an ONNX model. Raises RefusedError for a recurrent layer without an equivalent."""
    _only_float32(graph)
    nodes = _ScopeNodes()
    nodes.arrays.update(graph.arrays)
    _add(nodes, graph.nodes)
    notes = [
        f"{node.name}: onnxruntime's {node.kind} gives infinity for Softplus of numbers beyond 88, where the value is finite"
        for node in _recurrent_in(graph.nodes)
        if "Softplus" in attributes(node.attributes["stack"]).get("activations", ())
    ]
    proto = helper.make_model(
        helper.make_graph(nodes.nodes, graph.name, [*map(_info, graph.inputs)], [*map(_info, graph.outputs)], nodes.initializers()),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
        producer_name="rnnconvert",
    )
    size = sum(map(nbytes, nodes.arrays.values()))
    return graph.exported(len(nodes.nodes), notes, size, partial(write, model=proto, arrays=nodes.arrays))


def _only_float32(graph: OperationGraph) -> None:
    """Raise RefusedError for weights of another type than the model's inputs: an operator of ONNX takes one type alone."""
    if {tensor.value.dtype for tensor in graph.inputs} & {"float64", "float16", "bfloat16"}:
        return
    for node in graph.nodes:
        stack = node.attributes.get("stack")
        directions = [] if stack is None else [direction for layer in stack.layers for direction in layer.directions]
        read = [array for direction in directions for array in direction.arrays.values() if array is not None]
        if node.kind in _WEIGHTED:
            read += [graph.arrays[name] for name in node.inputs if name in graph.arrays]
        for array in read:
            if array.dtype.kind in "fV" and array.dtype != np.float32:  # V: bfloat16
                feature, reason = f"a layer of {array.dtype}", "the written model computes in float32"
                remedy = "Save the model with weights of float32 first; model.float() makes them so in PyTorch."
                raise RefusedError(feature, "ONNX", reason, remedy, node.name)


_WEIGHTED = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Gather")
"""Operators that take a layer's weights."""


def _add(nodes: _ScopeNodes, operations: Sequence[Operation]) -> None:
    """Add operations, and the operations of the graphs in them."""
    for node in operations:
        if "stack" in node.attributes:
            _recurrent(nodes, node)
            continue
        inner = {}
        for key, body in node.bodies:
            within = _ScopeNodes(nodes)
            _add(within, body.nodes)
            declared = {each.name: each for each in body.declared}
            ends = [[_info_of(declared[name]) for name in names] for names in (body.inputs, body.outputs)]
            inner[key] = helper.make_graph(within.nodes, f"{node.name}/{key}", *ends)
        nodes.node(node.kind, node.inputs, node.outputs, node.name, **_padded(node), **inner)


def _padded(node: Operation) -> dict[str, Any]:
    """Return the attributes of a node with its pads as numbers where windows leave gaps: there onnxruntime (1.31) makes them negative.

    Windows of one or two places are padded at the end, if at all, and a pad that no window reaches changes nothing.
    """
    stated = dict(node.attributes)
    if stated.get("auto_pad") != "SAME_UPPER":
        return stated
    kernel = stated["kernel_shape"]
    reach = reached(kernel, stated.get("dilations", [1] * len(kernel)))
    if all(window >= stride for window, stride in zip(reach, stated["strides"], strict=True)):
        return stated
    if max(reach) > 2:
        reason = "onnxruntime gives other numbers for padding that depends on the length, or stops"
        raise RefusedError("windows of padding 'same' with gaps between them", "ONNX", reason, "", node.name)
    del stated["auto_pad"]
    return stated | {"pads": [*(0 for _ in reach), *(window - 1 for window in reach)]}


def _recurrent_in(operations: Sequence[Operation]) -> Iterator[Operation]:
    """Yield the recurrent operations, including those of the graphs in others."""
    for node in operations:
        if "stack" in node.attributes:
            yield node
        for _, body in node.bodies:
            yield from _recurrent_in(body.nodes)


def _recurrent(nodes: _ScopeNodes, node: Operation) -> None:
    """Add a recurrent node with its weights."""
    stack: Recurrent = node.attributes["stack"]
    fitted = fit_to_layout(stack, registry.layouts_of("onnx"))
    packed, inputs = pack(fitted.layout, fitted.stack), [*node.inputs]
    read = tuple((key, id(array)) for layer in stack.layers for direction in layer.directions for key, array in direction.arrays.items())
    for place, key in ((1, "W"), (2, "R"), (3, "B"), (7, "P")):
        if key in packed:
            inputs += [""] * (place + 1 - len(inputs))
            stored = nodes.weights.get((key, read))  # of a layer that is called again
            inputs[place] = nodes.weights[key, read] = stored or nodes.constant(f"{node.name}/{key}", packed[key])
    while inputs[-1] == "":
        inputs.pop()
    nodes.node(node.kind, inputs, node.outputs, node.name, **attributes(fitted.stack))


def _info_of(value: Declared) -> onnx.ValueInfoProto:
    assert value.dtype is not None
    return helper.make_tensor_value_info(value.name, code_of(value.dtype), None if value.dims is None else [*value.dims])


def _info(tensor: NamedTensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, code_of(np.dtype(tensor.value.dtype)), tensor.axes)
