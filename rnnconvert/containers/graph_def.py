"""TensorFlow's graphs: frozen ones (.pb), whose variables have become constants, and graphs of checkpoints (.meta).

Nothing runs, and only names, wires and attributes are understood here.

Sources: tensorflow/core/framework/{graph,node_def,attr_value,tensor,tensor_shape,function,op_def}.proto;
tensorflow/core/protobuf/meta_graph.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rnnconvert.containers import wire
from rnnconvert.containers.files import lowered, map_file
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.names import named

WHILES = ("While", "StatelessWhile")
"""Operations that are loops, whose condition and step are functions. They give every variable of the loop."""
_RESOURCE = 20
"""DataType's DT_RESOURCE."""


@dataclass(frozen=True)
class GraphDefFunction:
    """A function of a graph.

    inputs     names of its arguments
    outputs    its outputs: "argument", or "node:name of the output:number"
    resources  the arguments that are variables
    shapes     shapes of its arguments, as far as they are stated; -1 for an axis of any length
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: dict[str, GraphDefNode] = field(repr=False)
    resources: frozenset[str] = frozenset()
    shapes: dict[str, list[int]] = field(default_factory=dict)


class GraphDef:
    """Nodes by name, in the file's order, and functions by name."""

    def __init__(self, nodes: dict[str, GraphDefNode], functions: dict[str, GraphDefFunction] | None = None) -> None:
        self.nodes = nodes
        self.functions = functions or {}


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


def read(path: Path) -> GraphDef:
    """Return the graph of a .pb or .meta file. Raises UnreadableError."""
    data = map_file(path).data
    if lowered(path).name.endswith(".meta"):
        graphs = [content for number, content in wire.values(data, path) if number == 2]
        if not graphs or not isinstance(graphs[0], memoryview):
            raise UnreadableError(path, "it holds no graph")
        data = graphs[0]
    return parsed(data, path)


def read_saved(path: Path) -> list[GraphDef]:
    """Return the graphs of a SavedModel's saved_model.pb. Raises UnreadableError."""
    return [
        parsed(graph, path)
        for number, meta in wire.values(map_file(path).data, path)
        if number == 2 and isinstance(meta, memoryview)
        for which, graph in wire.values(meta, path)
        if which == 2 and isinstance(graph, memoryview)
    ]


def parsed(data: memoryview, path: Path) -> GraphDef:
    """Return the graph that bytes of a file hold. Raises UnreadableError."""
    nodes = named(((node.name, node) for node in _nodes(data, path)), path)
    if not nodes:
        raise UnreadableError(path, "its graph has no nodes")
    return GraphDef(nodes, named(_functions(data, path), path))


def _functions(data: memoryview, path: Path) -> Iterator[tuple[str, GraphDefFunction]]:
    """Yield the functions of a graph's library, with their names."""
    for number, library in wire.values(data, path):
        if number != 2 or not isinstance(library, memoryview):
            continue
        for which, content in wire.values(library, path):
            if which != 1 or not isinstance(content, memoryview):
                continue
            fields = list(wire.values(content, path))
            signature = next((part for tag, part in fields if tag == 1 and isinstance(part, memoryview)), memoryview(b""))
            words: dict[int, list[str]] = {1: [], 2: [], 3: []}
            resources: set[str] = set()
            for field_number, part in wire.values(signature, path):
                if field_number == 1 and isinstance(part, memoryview):
                    words[1].append(wire.text_of(part, path))
                elif field_number in (2, 3) and isinstance(part, memoryview):
                    stated = dict(wire.values(part, path))
                    name = stated.get(1, memoryview(b""))
                    words[field_number].append(wire.text_of(name, path) if isinstance(name, memoryview) else "")
                    if field_number == 2 and stated.get(3) == _RESOURCE:
                        resources.add(words[2][-1])
            outputs: dict[str, str] = {}
            shapes: dict[str, list[int]] = {}
            for key_number, part in fields:
                if key_number == 7 and isinstance(part, memoryview):
                    entry = dict(wire.values(part, path))
                    place, stated_of = entry.get(1, 0), entry.get(2)
                    if isinstance(place, int) and place < len(words[2]) and isinstance(stated_of, memoryview):
                        attributes = GraphDefNode(path, "", "", (), _attributes(stated_of, path, 1))
                        shape = attributes.shape("_output_shapes")
                        if shape is not None:
                            shapes[words[2][place]] = shape
                if key_number == 4 and isinstance(part, memoryview):
                    entry = dict(wire.values(part, path))
                    key, value = entry.get(1), entry.get(2)
                    if isinstance(key, memoryview) and isinstance(value, memoryview):
                        outputs[wire.text_of(key, path)] = wire.text_of(value, path)
            if words[1] and all(name in outputs for name in words[3]):
                nodes = {node.name: node for node in _nodes(content, path, 3)}
                yield (
                    words[1][0],
                    GraphDefFunction(tuple(words[2]), tuple(outputs[name] for name in words[3]), nodes, frozenset(resources), shapes),
                )


def _nodes(data: memoryview, path: Path, kind: int = 1) -> Iterator[GraphDefNode]:
    for number, content in wire.values(data, path):
        if number != kind or not isinstance(content, memoryview):
            continue
        words: dict[int, list[str]] = {1: [], 2: [], 3: []}
        for which, value in wire.values(content, path):
            if isinstance(value, memoryview) and which in words:
                words[which].append(wire.text_of(value, path))
        if not words[1] or not words[2]:
            raise UnreadableError(path, "a node of its graph has no name or no operation")
        yield GraphDefNode(path, words[1][0], words[2][0], tuple(words[3]), _attributes(content, path, 5))


def _attributes(content: memoryview, path: Path, kind: int) -> dict[str, memoryview]:
    """Return a map of attributes, which is a message's field of this number."""
    attributes: dict[str, memoryview] = {}
    for which, value in wire.values(content, path):
        if which == kind and isinstance(value, memoryview):
            entry = dict(wire.values(value, path))
            key, stated = entry.get(1), entry.get(2)
            if isinstance(key, memoryview) and isinstance(stated, memoryview):
                attributes[wire.text_of(key, path)] = stated
    return attributes
