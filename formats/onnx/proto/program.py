"""A model's protobuf messages as a program of the graph floor, whose common operations are ONNX's own."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import onnx

from rnnconvert.core.names import named
from rnnconvert.formats.onnx.proto.file import DTYPES, OnnxFile
from rnnconvert.graphs.program.operations import AttributeReference, Body, Declared, Operation, Program, StoredNumbers

_KIND = onnx.AttributeProto
_PLAIN = {_KIND.INT: "i", _KIND.FLOAT: "f", _KIND.INTS: "ints", _KIND.FLOATS: "floats"}
_TYPED = {
    **dict.fromkeys(
        ("axis", "keepdims", "allowzero", "transA", "transB", "to", "num_outputs", "batch_axis", "time_axis", "num_scan_inputs",
         "noop_with_empty_axes", "start", "end", "group", "ceil_mode", "block_size", "output_dtype"),
        (_KIND.INT,),
    ),
    **dict.fromkeys(
        ("axes", "perm", "starts", "ends", "steps", "split", "shape", "pads", "strides", "dilations", "kernel_shape", "output_padding",
         "output_shape", "scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions"),
        (_KIND.INTS,),
    ),
    **dict.fromkeys(("alpha", "beta", "min", "max", "gamma"), (_KIND.FLOAT,)),
    **dict.fromkeys(("equation", "auto_pad", "mode"), (_KIND.STRING,)),
    "epsilon": (_KIND.FLOAT,), "momentum": (_KIND.FLOAT,),
}  # fmt: skip
"""The types of the attributes that are read. Source: onnx/docs/Operators.md."""
_WIDER = {"to": (_KIND.INT, _KIND.STRING), "split": (_KIND.INTS, _KIND.INT)}
"""Further types that old operator sets have, or that another operator has for an attribute of the name."""
_ODD = "?"
"""The domain of an operator whose attributes are not of its types: nothing looks into it."""


_LEFT = "no operator of ONNX's: its exporter left it, and no runtime runs the file"


def program(file: OnnxFile) -> Program:
    """Return a model's graphs. Raises UnreadableError where two initializers of one graph have one name."""
    model = file.model
    reader = _ProgramReader(file)
    functions = {(_domain(function.domain), function.name): reader.function(function) for function in model.functions}
    external = sum(math.prod(tensor.dims) * 4 for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL)
    return Program(
        file.path, reader.graph(model.graph, "main"), _opsets(model.opset_import), functions, file.data.size, external, element_type
    )


def element_type(stated: Any) -> Any:
    """Return the element type that a number or a name stands for; the number itself where there is none of that here."""
    try:
        number = onnx.TensorProto.DataType.Value(stated) if isinstance(stated, str) else stated
    except ValueError:
        return stated
    return DTYPES.get(number, stated)


@functools.cache
def _is_known(operator: str) -> bool:
    return bool(onnx.defs.has(operator))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(entries: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    versions = {entry.domain: entry.version for entry in entries}
    if "ai.onnx" in versions:
        versions.setdefault("", versions["ai.onnx"])
    return versions


class _ProgramReader:
    """Messages of one file on their way."""

    def __init__(self, file: OnnxFile) -> None:
        self.file = file

    def graph(self, graph: onnx.GraphProto, path: str) -> Body:
        stored = named(((tensor.name, self.stored(tensor)) for tensor in graph.initializer), f"{self.file.path}, {path}")
        declared = [_declared(value) for value in (*graph.input, *graph.value_info, *graph.output)]
        nodes = [self.operation(node, path) for node in graph.node]
        return Body(nodes, [value.name for value in graph.input], [value.name for value in graph.output], stored, declared)

    def function(self, function: onnx.FunctionProto) -> Body:
        name = (_domain(function.domain), function.name)
        path = f"{function.domain}::{function.name}()"
        defaults = {attribute.name: value for attribute in function.attribute_proto if (value := self.value(attribute)) is not None}
        return Body(
            [self.operation(node, path) for node in function.node],
            list(function.input),
            list(function.output),
            function=name,
            defaults=defaults,
            opsets=_opsets(function.opset_import),
        )

    def operation(self, node: onnx.NodeProto, path: str) -> Operation:
        attributes: dict[str, Any] = {}
        bodies: list[tuple[str, Body]] = []
        domain, odd = _domain(node.domain), False
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                inner = f"{path}/{node.name}.{attribute.name}"
                bodies += [
                    (attribute.name, self.graph(graph, inner)) for graph in ([attribute.g] if attribute.HasField("g") else attribute.graphs)
                ]
                continue
            value = AttributeReference(attribute.ref_attr_name) if attribute.ref_attr_name else self.value(attribute)
            odd |= attribute.name in attributes or value is None
            if not domain and not attribute.ref_attr_name and node.op_type not in ("RNN", "GRU", "LSTM"):
                types = _WIDER.get(attribute.name) or _TYPED.get(attribute.name)
                domain = domain if types is None or attribute.type in types else _ODD
            if value is not None:
                attributes[attribute.name] = value
        if not domain and "to" in attributes and not isinstance(attributes["to"], AttributeReference):
            attributes["to"] = element_type(attributes["to"])
        return Operation(
            node.op_type,
            list(node.input),
            list(node.output),
            node.name,
            domain,
            attributes,
            bodies,
            odd,
            "" if node.domain not in ("", "ai.onnx") or _is_known(node.op_type) else _LEFT,
            node,
        )

    def value(self, attribute: onnx.AttributeProto) -> Any:
        """Return an attribute as a number, a text, a list of these or stored numbers; None for other kinds."""
        if attribute.type == _KIND.TENSOR:
            return self.stored(attribute.t)
        if attribute.type == _KIND.STRING:
            return attribute.s.decode("utf-8", "replace")
        if attribute.type == _KIND.STRINGS:
            return [text.decode("utf-8", "replace") for text in attribute.strings]
        if attribute.type not in _PLAIN:
            return None
        value = getattr(attribute, _PLAIN[attribute.type])
        return value if isinstance(value, (int, float)) else list(value)

    def stored(self, tensor: onnx.TensorProto) -> StoredNumbers:
        return StoredNumbers(tensor.name, tuple(tensor.dims), DTYPES.get(tensor.data_type), partial(self.file.tensor, tensor), tensor)


def axis_length(axis: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """Return the length of an axis, or its name; None for one without either, and for a negative length, which exporters write for it."""
    if axis.HasField("dim_value"):
        return axis.dim_value if axis.dim_value >= 0 else None
    return axis.dim_param or None


def _declared(value: onnx.ValueInfoProto) -> Declared:
    kind = value.type.tensor_type
    dims = None
    if kind.HasField("shape"):
        dims = [axis_length(axis) for axis in kind.shape.dim]
    dtype: Mapping[int, Any] = DTYPES
    return Declared(value.name, dtype.get(kind.elem_type), dims)
