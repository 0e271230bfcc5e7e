"""The operators of one layer as a model of their own, beside the node that takes their place; and inputs of whole models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.formats.onnx.fuse.graph import as_nodes, reads
from rnnconvert.formats.onnx.fuse.proof import ModelPair, RunnableGraph
from rnnconvert.formats.onnx.proto.file import DTYPES
from rnnconvert.formats.onnx.proto.nodes import code_of, initializer
from rnnconvert.formats.onnx.proto.program import axis_length
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.recognition.inputs import extract
from rnnconvert.recognition.recognised import RecognisedLayer


def region(graph: RunnableGraph, scope: Scope, shapes: Shapes, layer: RecognisedLayer, opset: int) -> ModelPair:
    """Return the operators of a layer, cut out of a model, and the new node. Raises UnmatchedError where they cannot be cut."""
    part = extract(scope, shapes, layer)
    outputs = [use.value for use in layer.uses]
    new, arrays = as_nodes(layer, "fused", opset, layer.states)
    inputs = [_value(scope, shapes, layer, name, kind) for name, kind in part.cuts.items()]
    output_infos = [onnx.ValueInfoProto(name=name) for name in outputs]
    old_model = _model(graph.model, [node.source for node in part.nodes], inputs, output_infos, graph.arrays)
    new_arrays = {**{name: graph.arrays[name] for name in layer.states.values() if name in graph.arrays}, **arrays}
    constants = _constants(scope, new, {*part.cuts, *new_arrays})
    new_model = _model(graph.model, [*constants, *new], inputs, output_infos, new_arrays)
    return ModelPair(layer.label, old_model, new_model, outputs, part.trials, np.dtype(layer.direction.dtype))


def _constants(scope: Scope, new: Sequence[onnx.NodeProto], defined: set[str]) -> list[onnx.NodeProto]:
    """Return Constant nodes for what new nodes read from the old graph."""
    needed = {name for node in new for name in node.input if name} - {name for node in new for name in node.output}
    nodes = []
    for name in sorted(needed - defined):
        array = scope.constant(name)
        if array is None:
            raise UnmatchedError(f"{name!r} decides what it computes")
        nodes.append(helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.ascontiguousarray(array))))
    return nodes


def _value(scope: Scope, shapes: Shapes, layer: RecognisedLayer, name: str, kind: str) -> onnx.ValueInfoProto:
    dtypes = {"condition": np.dtype(np.bool_), "count": np.dtype(np.int64)}
    if layer.mask is not None:
        dtypes["mask"] = np.dtype(np.int32 if layer.mask.rank == 1 else np.bool_)
    stated = shapes.kind(scope, name)
    code = code_of(stated if stated is not None else dtypes.get(kind, layer.direction.dtype))
    constant = shapes.number(scope, name) if kind == "known" else None
    if constant is not None:
        return helper.make_tensor_value_info(name, code_of(constant.dtype), constant.shape)
    if kind == "mask" and layer.mask is not None:
        dims = shapes.dims(scope, name)
        return helper.make_tensor_value_info(name, code, list(dims) if dims is not None else [None] * layer.mask.rank)
    if kind in dtypes:
        return helper.make_tensor_value_info(name, code, [])
    steps = {step for read in layer.reads for step in read.steps}
    dims = shapes.dims(scope, name)
    if dims is None:  # onnxruntime takes ten times as long to load a long model without any
        rank = 2 if name in steps else 3
        dims = [None] * (rank if kind == "read" else layer.rank)
    return helper.make_tensor_value_info(name, code, list(dims))


def _model(
    like: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    arrays: Mapping[str, Array | PiecewiseArray],
) -> RunnableGraph:
    """Return a model of some nodes, with the numbers that these need."""
    used = {name for node in nodes for name in reads(node)}
    graph = onnx.GraphProto(name="region")
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    graph.output.extend(outputs)
    used_arrays: dict[str, Array | PiecewiseArray] = {}
    for tensor in like.graph.initializer:
        if tensor.name in used and tensor.name not in arrays:
            graph.initializer.append(tensor)
    for name, array in arrays.items():
        if name in used:
            used_arrays[name] = array
            graph.initializer.append(initializer(name, array))
    model = onnx.ModelProto(ir_version=max(4, like.ir_version))
    model.opset_import.extend(like.opset_import)
    model.graph.CopyFrom(graph)
    return RunnableGraph(model, used_arrays)


def whole_inputs(graph: onnx.GraphProto, scope: Scope) -> list[dict[str, Array]]:
    """Return random inputs of a whole model: whole numbers where it looks something up, steps of several lengths.

    Axes of one name are one number. Axes without a name may have to be equal, so a second set has them so.
    """
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    bounds = _bounds(scope)
    draws = []
    for seed, sizes in enumerate(((2, 5, 3), (1, 7, 4), (3, 3, 3), (1, 1, 1), (4, 4, 4), (2, 2, 2))):
        random = np.random.default_rng(seed)
        names: dict[str, int] = {}
        feeds: dict[str, Array] = {}
        for model_input in inputs:
            kind = model_input.type.tensor_type
            shape = []
            for number, axis in enumerate(kind.shape.dim):
                length = axis_length(axis)
                if isinstance(length, int):
                    shape.append(length)
                else:
                    shape.append(names.setdefault(length or f"{model_input.name}/{number}", sizes[len(names) % 3]))
            dtype = DTYPES.get(kind.elem_type)
            if dtype is None:
                raise UnmatchedError(f"the input {model_input.name!r} is of a type for which no numbers can be drawn")
            if dtype.kind in "iu":
                feeds[model_input.name] = random.integers(0, bounds.get(model_input.name, 2), shape).astype(dtype)
            elif dtype.kind == "b":
                feeds[model_input.name] = random.integers(0, 2, shape).astype(dtype)
            else:
                feeds[model_input.name] = random.standard_normal(shape).astype(dtype)
        draws.append(feeds)
    return draws


def _bounds(scope: Scope) -> dict[str, int]:
    """Return for each value how many rows the smallest stored table has in which it looks something up."""
    rows = [
        (node.inputs[1], table.shape[0])
        for node in scope.nodes
        if node.kind == "Gather" and (table := scope.constant(node.inputs[0])) is not None and table.ndim > 1
    ]
    bounds: dict[str, int] = {}
    for name, count in rows:
        for source in _before(scope, name):
            bounds[source] = min(count, bounds.get(source, count))
    return bounds


def _before(scope: Scope, name: str) -> Iterator[str]:
    waiting, seen = [name], set()
    while waiting:
        value = waiting.pop()
        if value in seen or not value:
            continue
        seen.add(value)
        yield value
        producer = scope.producer(value)
        if producer is not None:
            waiting += producer[0].inputs
