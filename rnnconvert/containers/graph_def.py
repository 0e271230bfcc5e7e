"""TensorFlow's graphs: frozen ones (.pb), whose variables have become constants, and those of checkpoints (.meta).

Nothing runs, and only names, wires and attributes are understood here.

Sources: tensorflow/core/framework/{graph,node_def,attr_value,tensor,tensor_shape,function,op_def}.proto;
tensorflow/core/protobuf/meta_graph.proto.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import wire
from rnnconvert.containers.files import lowered, map_file, shaped
from rnnconvert.containers.tensor_bundle import TYPES, shape_of
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError

_VALUES = {13: "<u2", 5: "<f4", 6: "<f8", 7: "", 10: ""}
"""TensorProto's fields of numbers: bits of half floats, float, double, and varints of int and int64."""


_RESOURCE = 20
"""DataType's DT_RESOURCE."""
_MOST_NUMBERS = 1 << 32
"""The most numbers of one constant: a file of 2 GiB has fewer, and one number may stand for all of them."""


@dataclass(frozen=True)
class Node:
    """A node: its operation, the nodes that it reads ("name" or "name:1"; "^name" waits for one), its attributes."""

    path: Path
    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: dict[str, memoryview] = field(repr=False)

    @property
    def read(self) -> tuple[str, ...]:
        """The values that it reads, without the nodes that it only waits for."""
        return tuple(name for name in self.inputs if not name.startswith("^"))

    def number(self, key: str, default: float) -> float:
        """Return an attribute that is a number, a truth or an element type, or the operation's default where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 4 and isinstance(value, int):
                return float(struct.unpack("<f", struct.pack("<I", value))[0])
            if which in (3, 5, 6):
                return wire.signed(value)
        return default

    def integers(self, key: str) -> list[int]:
        """Return an attribute that is a list of whole numbers, or of types; empty where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 1 and isinstance(value, memoryview):
                fields = [(number, two) for number, two in wire.values(value, self.path) if number in (3, 6)]
                return [wire.signed(number) for _, two in fields for number in _varints(two, self)]
        return []

    def type(self, key: str) -> int:
        """Return an attribute that is an element type, by its number in types.proto; 0 where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 6 and isinstance(value, int):
                return value
        return 0

    def called(self, key: str) -> str:
        """Return the name of the function that an attribute is, or ""."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 10 and isinstance(value, memoryview):
                name = dict(wire.values(value, self.path)).get(1)
                return _text(name, self.path) if isinstance(name, memoryview) else ""
        return ""

    def shape(self, key: str) -> list[int] | None:
        """Return an attribute that is a shape or a list that begins with one, -1 for an axis of any length; None where it is left
        out or of any rank."""
        content = self.attributes.get(key, memoryview(b""))
        listed = [value for which, value in wire.values(content, self.path) if which == 1 and isinstance(value, memoryview)]
        for which, value in wire.values(listed[0] if listed else content, self.path):
            if which == 7 and isinstance(value, memoryview):
                fields = list(wire.values(value, self.path))
                if any(number == 3 and two for number, two in fields):
                    return None
                axes = [dict(wire.values(two, self.path)) for number, two in fields if number == 2 and isinstance(two, memoryview)]
                return [wire.signed(axis.get(1, 0)) for axis in axes]
        return None

    def text(self, key: str) -> str:
        """Return an attribute that is text; "" where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 2 and isinstance(value, memoryview):
                return _text(value, self.path)
        return ""

    @cached_property
    def tensor(self) -> Array | None:
        """The numbers of a constant, as a view where it has them as bytes; None if it has none that are understood."""
        for which, value in wire.values(self.attributes.get("value", memoryview(b"")), self.path):
            if which == 8 and isinstance(value, memoryview):
                return _tensor(value, self)
        return None


@dataclass(frozen=True)
class GraphDefFunction:
    """A function of a graph.

    inputs     names of its arguments
    outputs    what it gives: "argument", or "node:name of the output:number"
    resources  those of its arguments that are variables
    shapes     of its arguments, as far as they are stated; -1 for an axis of any length
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: dict[str, Node] = field(repr=False)
    resources: frozenset[str] = frozenset()
    shapes: dict[str, list[int]] = field(default_factory=dict)


class Graph:
    """Nodes by name, in the file's order, who reads what, and functions by name."""

    def __init__(self, nodes: dict[str, Node], functions: dict[str, GraphDefFunction] | None = None) -> None:
        self.nodes = nodes
        self.functions = functions or {}

    @cached_property
    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each output, by "name:number"."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            for source in node.inputs:
                if not source.startswith("^"):
                    readers.setdefault(output(source), []).append(node)
        return readers


def output(source: str) -> str:
    """Return the full name of an input: the first output of a node may go without its number."""
    return source if ":" in source else f"{source}:0"


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a graph does: with a node that has a name and an operation."""
    try:
        content = memoryview(head)
        tag, at = wire.Slimming(content, {}, lambda *_: b"", "").varint(0, len(content))
        length, at = wire.Slimming(content, {}, lambda *_: b"", "").varint(at, len(content))
        if tag != 1 << 3 | wire.LENGTH_DELIMITED or not length:
            return False
        numbers: list[int] = []
        for number, value in wire.values(content[at : at + length], ""):
            if len(numbers) < 2 and (not isinstance(value, memoryview) or not bytes(value).decode().isprintable()):
                return False
            numbers.append(number)
            if numbers == [1, 2]:
                return True
    except (UnreadableError, UnicodeDecodeError):
        pass
    return False


def read(path: Path) -> Graph:
    """Return the graph of a .pb or .meta file. Raises UnreadableError."""
    data = map_file(path).data
    if lowered(path).suffix == ".meta":
        graphs = [content for number, content in wire.values(data, path) if number == 2]
        if not graphs or not isinstance(graphs[0], memoryview):
            raise UnreadableError(path, "it holds no graph")
        data = graphs[0]
    return _graph(data, path)


def read_saved(path: Path) -> list[Graph]:
    """Return the graphs of a SavedModel's saved_model.pb. Raises UnreadableError."""
    return [
        _graph(graph, path)
        for number, meta in wire.values(map_file(path).data, path)
        if number == 2 and isinstance(meta, memoryview)
        for which, graph in wire.values(meta, path)
        if which == 2 and isinstance(graph, memoryview)
    ]


def _graph(data: memoryview, path: Path) -> Graph:
    nodes = {node.name: node for node in _nodes(data, path)}
    if not nodes:
        raise UnreadableError(path, "its graph has no nodes")
    return Graph(nodes, dict(_functions(data, path)))


def _functions(data: memoryview, path: Path) -> Iterator[tuple[str, GraphDefFunction]]:
    """Yield the functions of a graph's library, with their names."""
    for number, library in wire.values(data, path):
        if number != 2 or not isinstance(library, memoryview):
            continue
        for which, content in wire.values(library, path):
            if which != 1 or not isinstance(content, memoryview):
                continue
            fields = list(wire.values(content, path))
            signature = next((two for tag, two in fields if tag == 1 and isinstance(two, memoryview)), memoryview(b""))
            words: dict[int, list[str]] = {1: [], 2: [], 3: []}
            resources: set[str] = set()
            for field_number, two in wire.values(signature, path):
                if field_number == 1 and isinstance(two, memoryview):
                    words[1].append(_text(two, path))
                elif field_number in (2, 3) and isinstance(two, memoryview):
                    stated = dict(wire.values(two, path))
                    name = stated.get(1, memoryview(b""))
                    words[field_number].append(_text(name, path) if isinstance(name, memoryview) else "")
                    if field_number == 2 and stated.get(3) == _RESOURCE:
                        resources.add(words[2][-1])
            outputs: dict[str, str] = {}
            shapes: dict[str, list[int]] = {}
            for key_number, two in fields:
                if key_number == 7 and isinstance(two, memoryview):
                    entry = dict(wire.values(two, path))
                    place, stated_of = entry.get(1, 0), entry.get(2)
                    if isinstance(place, int) and place < len(words[2]) and isinstance(stated_of, memoryview):
                        attributes = Node(path, "", "", (), _attributes(stated_of, path, 1))
                        shape = attributes.shape("_output_shapes")
                        if shape is not None:
                            shapes[words[2][place]] = shape
                if key_number == 4 and isinstance(two, memoryview):
                    entry = dict(wire.values(two, path))
                    key, value = entry.get(1), entry.get(2)
                    if isinstance(key, memoryview) and isinstance(value, memoryview):
                        outputs[_text(key, path)] = _text(value, path)
            if words[1] and all(name in outputs for name in words[3]):
                nodes = {node.name: node for node in _nodes(content, path, 3)}
                yield (
                    words[1][0],
                    GraphDefFunction(tuple(words[2]), tuple(outputs[name] for name in words[3]), nodes, frozenset(resources), shapes),
                )


def _nodes(data: memoryview, path: Path, kind: int = 1) -> Iterator[Node]:
    for number, content in wire.values(data, path):
        if number != kind or not isinstance(content, memoryview):
            continue
        words: dict[int, list[str]] = {1: [], 2: [], 3: []}
        for which, value in wire.values(content, path):
            if isinstance(value, memoryview) and which in words:
                words[which].append(_text(value, path))
        if not words[1] or not words[2]:
            raise UnreadableError(path, "a node of its graph has no name or no operation")
        yield Node(path, words[1][0], words[2][0], tuple(words[3]), _attributes(content, path, 5))


def _attributes(content: memoryview, path: Path, kind: int) -> dict[str, memoryview]:
    """Return a map of attributes, which is a message's field of this number."""
    attributes: dict[str, memoryview] = {}
    for which, value in wire.values(content, path):
        if which == kind and isinstance(value, memoryview):
            entry = dict(wire.values(value, path))
            key, stated = entry.get(1), entry.get(2)
            if isinstance(key, memoryview) and isinstance(stated, memoryview):
                attributes[_text(key, path)] = stated
    return attributes


def _text(content: memoryview, path: Path) -> str:
    try:
        return bytes(content).decode()
    except UnicodeDecodeError:
        raise UnreadableError(path, f"{bytes(content[:40])!r} is not valid text") from None


def _tensor(content: memoryview, node: Node) -> Array | None:
    """Return a TensorProto. Fewer numbers than its shape asks for: the last one stands for the rest."""
    fields = dict(wire.values(content, node.path))
    number, lengths = fields.get(1, 0), fields.get(2, memoryview(b""))
    dtype = TYPES.get(number) if isinstance(number, int) else None
    if dtype is None or not isinstance(lengths, memoryview):
        return None
    shape = shape_of(lengths, node.name, node.path)
    if math.prod(max(length, 1) for length in shape) > _MOST_NUMBERS:
        raise UnreadableError(node.path, f"{node.name!r} has the shape {shape[:9]}, larger than any constant")
    raw = fields.get(4)
    if isinstance(raw, memoryview) and len(raw):
        if len(raw) != math.prod(shape) * dtype.itemsize:
            raise UnreadableError(node.path, f"{node.name!r} has the shape {shape} of {dtype}, but {len(raw)} bytes")
        return shaped(np.frombuffer(raw, dtype), shape, node.path, node.name)
    if not any(which > 3 and (not isinstance(value, memoryview) or len(value)) for which, value in fields.items()):
        return np.broadcast_to(np.zeros((), dtype), shape)  # nothing at all stands for zeros
    numbers = _numbers(fields, dtype, node)
    if numbers is None or numbers.size not in (1, math.prod(shape)):
        return np.zeros(shape, dtype) if numbers is None and 0 in shape else None
    return np.broadcast_to(numbers.reshape(()) if numbers.size == 1 else numbers.reshape(shape), shape)


def _numbers(fields: dict[int, int | memoryview], dtype: np.dtype[Any], node: Node) -> Array | None:
    """Return the numbers that a TensorProto has one by one, packed or not."""
    which = next((number for number in _VALUES if number in fields), 0)
    value = fields.get(which)
    if which in (5, 6):
        raw = bytes(value) if isinstance(value, memoryview) else int(value or 0).to_bytes(4 if which == 5 else 8, "little")
        item = np.dtype(_VALUES[which])
        return np.frombuffer(raw, item).astype(dtype) if len(raw) % item.itemsize == 0 else None
    if which in (7, 10) and dtype.kind == "i":
        return np.array([wire.signed(varint) for varint in _varints(value, node)], dtype)
    if which == 13 and dtype.itemsize == 2:
        return np.array([varint & 0xFFFF for varint in _varints(value, node)], np.uint16).view(dtype)
    return None


def _varints(value: int | memoryview | None, node: Node) -> list[int]:
    if not isinstance(value, memoryview):
        return [value or 0]
    walk, at, numbers = wire.Slimming(value, {}, lambda *_: b"", node.path), 0, []
    while at < len(value):
        number, at = walk.varint(at, len(value))
        numbers.append(number)
    return numbers
