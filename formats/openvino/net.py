"""A model of OpenVINO's IR: layers, what feeds them, and constants, which are views of the .bin file beside the .xml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import check_one_write, view
from rnnconvert.containers.reading import charging, map_file
from rnnconvert.core.arrays import BFLOAT16, Array, is_float, widest
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.names import is_count
from rnnconvert.files.raw import check_bare
from rnnconvert.formats.openvino import xml_file
from rnnconvert.formats.openvino.xml_file import XmlElement

TYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": BFLOAT16,
    "f64": np.dtype("<f8"),
    "i8": np.dtype("i1"),
    "u8": np.dtype("u1"),
    "i16": np.dtype("<i2"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
    "boolean": np.dtype(np.bool_),
}
"""The element types of constants that are read, by the IR's names."""
_VERSIONS = ("10", "11")
_LONGEST_CHAIN = 32
_CHECKSUM = re.compile("[0-9a-f]{8}")

Value = tuple[str, int]
"""A layer's id, and which of its outputs."""


@dataclass(frozen=True)
class LoopPort:
    """What a loop hands to its graph, or takes of it.

    outer    which of the operation's inputs or outputs; -1 for none
    inner    the Parameter or Result of the graph
    axis     the axis along which each step has a part; None for what is handed on whole
    stride   by how much the parts move on
    part     how long each is
    complete whether they are all of the axis, from one end to the other
    purpose  "current_iteration", "execution_condition" or ""
    """

    outer: int
    inner: str
    axis: int | None
    stride: int
    part: int
    complete: bool
    purpose: str


@dataclass
class NetOperation:
    """An operation: its name, type and version, its attributes, the values that it reads, and the shapes of what it reads and gives.

    precision  the element type of what it gives first, as the IR has it
    bodies     the graphs in it
    enters     what a loop hands to its graph
    leaves     what it takes of it
    back       for each state of a loop, by its Parameter, the Result that the next step begins with
    """

    id: str
    name: str
    type: str
    version: str
    data: dict[str, str]
    inputs: list[Value | None]
    shapes: list[tuple[int, ...]]
    output_shapes: list[tuple[int, ...]]
    precision: str
    bodies: list[Net] = field(default_factory=list)
    enters: list[LoopPort] = field(default_factory=list)
    leaves: list[LoopPort] = field(default_factory=list)
    back: dict[str, str] = field(default_factory=dict)


class Net:
    """A graph: the model itself, or the body of an operation in it.

    where   its place among others, in words; "" for the model itself
    around  the operation that it is the body of
    layers  by their ids
    """

    def __init__(self, path: Path, numbers: Array | None, element: XmlElement, where: str = "", around: NetOperation | None = None) -> None:
        self.path, self.numbers, self.where, self.around = path, numbers, where, around
        self.layers: dict[str, NetOperation] = {}
        outputs: dict[str, dict[str, int]] = {}
        inputs: dict[str, dict[str, int]] = {}
        for child in _children(element, "layers", "layer"):
            key = child.attributes.get("id", "")
            if key in self.layers or not key:
                raise UnreadableError(path, f"two layers have the id {key!r}" if key else "a layer has no id")
            ports = {way: [port.attributes.get("id", "") for port in _children(child, way, "port")] for way in ("input", "output")}
            shapes = [_shape(port) for port in _children(child, "input", "port")]
            results = [*_children(child, "output", "port")]
            data = child.first("data")
            self.layers[key] = NetOperation(
                key,
                child.attributes.get("name", ""),
                child.attributes.get("type", ""),
                child.attributes.get("version", ""),
                dict(data.attributes) if data is not None else {},
                [None] * len(ports["input"]),
                shapes,
                [_shape(port) for port in results],
                results[0].attributes.get("precision", "") if results else "",
            )
            operation = self.layers[key]
            inner = f"{where}{operation.name or key}/"
            bodies = [body for body in child.children if body.first("layers") is not None]
            operation.bodies = [Net(path, numbers, body, inner, operation) for body in bodies]
            operation.enters = [_loop_port(path, port, ports["input"]) for port in _children(child, "port_map", "input")]
            operation.leaves = [_loop_port(path, port, ports["output"]) for port in _children(child, "port_map", "output")]
            back = [*_children(child, "back_edges", "edge")]
            operation.back = {edge.attributes.get("to-layer", ""): edge.attributes.get("from-layer", "") for edge in back}
            inputs[key], outputs[key] = ({port: place for place, port in reversed([*enumerate(ports[way])])} for way in ("input", "output"))
        for edge in _children(element, "edges", "edge"):
            source, target = edge.attributes.get("from-layer", ""), edge.attributes.get("to-layer", "")
            out, into = edge.attributes.get("from-port", ""), edge.attributes.get("to-port", "")
            if out not in outputs.get(source, ()) or into not in inputs.get(target, ()):
                raise UnreadableError(path, f"an edge from {source}:{out} to {target}:{into}, which are not ports of its layers")
            self.layers[target].inputs[inputs[target][into]] = source, outputs[source][out]
        for layer in self.layers.values():
            if layer.enters or layer.leaves or layer.back:
                shapes = [() if value is None else self.layers[value[0]].output_shapes[value[1]] for value in layer.inputs]
                _check_loop(path, layer, shapes)
        self.readers: dict[Value, list[NetOperation]] = {}
        for layer in self.layers.values():
            for value in layer.inputs:
                if value is not None:
                    self.readers.setdefault(value, []).append(layer)

    def producer(self, value: Value | None) -> NetOperation | None:
        """Return the layer that gives a value."""
        return None if value is None else self.layers[value[0]]

    def constant(self, value: Value | None, depth: int = 0) -> Array | None:
        """Return the numbers of a value that is constant but for compression: None where the graph computes it otherwise.

        float16 weights pass through Convert, integer ones through Convert, Subtract and Multiply.
        """
        layer = self.producer(value)
        if layer is None or depth > _LONGEST_CHAIN:
            return None
        if layer.type == "Const":
            return self._stored(layer)
        inputs = layer.inputs
        first = self.constant(inputs[0], depth + 1) if inputs else None
        if first is None:
            return None
        if layer.type == "Convert":
            target = TYPES.get(layer.data.get("destination_type", ""))
            narrowed = target is not None and first.dtype.kind == "f" and target.kind == "f" and target.itemsize >= first.dtype.itemsize
            return first if narrowed or target is None else self._charged(first.astype(target))
        second = self.constant(inputs[1], depth + 1) if len(inputs) > 1 else None
        if second is None:
            return None
        try:
            if layer.type in ("Multiply", "Subtract"):
                kind = widest([np.dtype(np.float32), *(each.dtype for each in (first, second) if is_float(each))])
                left, right = first.astype(kind), second.astype(kind)
                size = np.broadcast_shapes(left.shape, right.shape)
                charging(first.nbytes).memory(kind.itemsize * int(np.prod(size, dtype=object)), self.path)
                product: Array = left * right if layer.type == "Multiply" else left - right
                return product
            if layer.type == "Reshape" and second.dtype.kind == "i" and second.size <= 8:
                keeps_zeros = layer.data.get("special_zero") == "true"
                lengths = [int(length) for length in second.reshape(-1)]
                shape = [
                    first.shape[axis] if keeps_zeros and not length and axis < first.ndim else length for axis, length in enumerate(lengths)
                ]
                return first.reshape(shape)
            if layer.type in ("Unsqueeze", "Squeeze") and second.dtype.kind == "i" and second.size == 1:
                axis = int(second.reshape(-1)[0])
                return np.expand_dims(first, axis) if layer.type == "Unsqueeze" else first.squeeze(axis)
        except ValueError as error:
            raise UnreadableError(self.path, f"layer {layer.name!r} ({layer.type}) has operands that do not fit: {error}") from None
        return None

    def _charged(self, array: Array) -> Array:
        charging(array.nbytes).memory(array.nbytes, self.path)
        return array

    def _stored(self, layer: NetOperation) -> Array | None:
        """Return the numbers of a Const; None for a type of elements that weights do not have."""
        dtype = TYPES.get(layer.data.get("element_type", ""))
        if dtype is None:
            return None
        text = layer.data.get("shape", "")
        try:
            shape = tuple(int(length) for length in text.split(",")) if text.strip() else ()
            offset, size = int(layer.data.get("offset", "")), int(layer.data.get("size", ""))
        except ValueError:
            raise UnreadableError(self.path, f"the constant {layer.name!r} does not state its shape, offset and size in numbers") from None
        there = np.zeros(0, np.uint8) if self.numbers is None else self.numbers
        if offset == 0 and dtype.kind == "f":
            check_bare(there, self.path.with_suffix(".bin"))
        array = view(there, offset, shape, dtype, self.path.with_suffix(".bin"), layer.name)
        if size not in (array.nbytes, array.nbytes or 1):  # of no numbers, OpenVINO states 1 byte
            raise UnreadableError(self.path, f"the constant {layer.name!r} of shape {shape} has {size} bytes at {offset}")
        return array


def value_name(net: Net, value: Value) -> str:
    """Return the name of a value: its operation's, with what tells it from others of that name."""
    layer = net.layers[value[0]]
    return f"{net.where}{layer.name} (layer {layer.id})" + (f", output {value[1]}" if value[1] else "")


def _loop_port(path: Path, port: XmlElement, ports: list[str]) -> LoopPort:
    """Return an entry of a loop's table of ports. Raises UnreadableError for one that names no port, or states no numbers."""
    stated = port.attributes
    outer = stated.get("external_port_id", "")
    if outer not in (*ports, "-1"):
        raise UnreadableError(path, f"a loop hands on the port {outer!r}, which it does not have")
    try:
        axis, start, end, stride, part = (
            int(stated.get(key, default)) for key, default in (("axis", -1), ("start", 0), ("end", -1), ("stride", 1), ("part_size", 1))
        )
    except ValueError:
        raise UnreadableError(path, "a loop states a port in other words than whole numbers") from None
    complete = (start, end, stride) in ((0, -1, 1), (-1, 0, -1))
    place = ports.index(outer) if outer in ports else -1
    inner = stated.get("internal_layer_id", "")
    return LoopPort(place, inner, axis if "axis" in stated else None, stride, part, complete, stated.get("purpose", ""))


def _check_loop(path: Path, loop: NetOperation, shapes_read: Sequence[tuple[int, ...]]) -> None:
    """Raise UnreadableError for a loop whose table of ports names what its graph does not have.

    shapes_read  the shapes of what it reads, as what gives it states them
    """
    inside = {key: layer for body in loop.bodies for key, layer in body.layers.items()}
    ends = [*((port.inner, "Parameter") for port in loop.enters), *((port.inner, "Result") for port in loop.leaves)]
    ends += [*((key, "Parameter") for key in loop.back), *((key, "Result") for key in loop.back.values())]
    for key, kind in ends:
        if key not in inside or inside[key].type != kind or (kind == "Result" and len(inside[key].inputs) != 1):
            raise UnreadableError(path, f"the loop {loop.name!r} hands on the {kind} {key!r}, which its graph does not have")
    shapes = [*((port, shapes_read) for port in loop.enters), *((port, loop.output_shapes) for port in loop.leaves)]
    for port, sizes in shapes:
        # A port without lengths is of one number, or of as many axes as a run decides: the file does not tell these apart.
        if port.axis is not None and not (port.outer >= 0 and 0 <= port.axis < (len(sizes[port.outer]) or port.axis + 1)):
            raise UnreadableError(path, f"the loop {loop.name!r} splits a port along axis {port.axis}, which the port does not have")


def _children(element: XmlElement, above: str, tag: str) -> Iterator[XmlElement]:
    group = element.first(above)
    return iter(()) if group is None else group.every(tag)


def _shape(port: XmlElement) -> tuple[int, ...]:
    """Return the lengths of a port's axes, -1 for one that is open."""
    texts = [dim.text.strip() for dim in port.every("dim")]
    return tuple(int(text) if is_count(text) else -1 for text in texts)


def read(path: Path) -> tuple[list[Net], XmlElement, Path | None]:
    """Return the graphs of a model, its root element, and the file of its numbers if there is one.

    Raises UnreadableError for a damaged file, and one of an older version of the IR.
    """
    root = xml_file.read(path)
    if root.tag != "net":
        raise UnreadableError(path, f"it is XML, but a <{root.tag}> and not the <net> of an OpenVINO model")
    version = root.attributes.get("version", "")
    if version not in _VERSIONS:
        raise UnreadableError(
            path,
            f"it is of version {version!r} of OpenVINO's IR, and {' and '.join(_VERSIONS)} are read",
            "Convert the original model with today's OpenVINO.",
        )
    weights_file = companion(path, path.with_suffix(".bin").name)
    numbers = map_file(weights_file, empty=True) if weights_file.exists() else None
    info = root.first("rt_info")
    for entry in info.every("info") if info is not None else ():
        if numbers is not None and _CHECKSUM.fullmatch(stated := entry.attributes.get("crc32", "")):
            check_one_write(path, weights_file, numbers, int(stated, 16))
    nets = [Net(path, numbers, root)]
    for net in nets:  # which grows
        nets += [body for layer in net.layers.values() for body in layer.bodies]
    return nets, root, weights_file if numbers is not None else None
