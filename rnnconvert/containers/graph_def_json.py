"""TensorFlow's graphs as JSON, which is how TensorFlow.js keeps them: the messages of graph_def in protobuf's own spelling.

The numbers of constants are not in the graph: whoever reads it hands them over by the names of their nodes.

Sources: protobuf.dev/programming-guides/json; tensorflow/core/framework/{graph,node_def,attr_value,tensor,tensor_shape,function,
op_def,types}.proto; tfjs-converter/python/tensorflowjs/converters/tf_saved_model_conversion_v2.py, extract_const_nodes.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rnnconvert.containers import wire
from rnnconvert.containers.graph_def import GraphDef, parsed
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import DOCUMENT_NESTING

_TYPES = {
    "DT_FLOAT": 1, "DT_DOUBLE": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 5, "DT_INT8": 6, "DT_STRING": 7, "DT_COMPLEX64": 8,
    "DT_INT64": 9, "DT_BOOL": 10, "DT_QINT8": 11, "DT_QUINT8": 12, "DT_QINT32": 13, "DT_BFLOAT16": 14, "DT_QINT16": 15,
    "DT_QUINT16": 16, "DT_UINT16": 17, "DT_COMPLEX128": 18, "DT_HALF": 19, "DT_RESOURCE": 20, "DT_VARIANT": 21, "DT_UINT32": 22,
    "DT_UINT64": 23,
}  # fmt: skip
_FIELDS: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "graph": {"node": (1, "node"), "library": (2, "library")},
    "library": {"function": (1, "function")},
    "function": {
        "signature": (1, "signature"), "nodeDef": (3, "node"), "ret": (4, "text by text"), "argAttr": (7, "arguments by number"),
    },
    "arguments": {"attr": (1, "attribute by text")},
    "signature": {"name": (1, "text"), "inputArg": (2, "argument"), "outputArg": (3, "argument")},
    "argument": {"name": (1, "text"), "type": (3, "type")},
    "node": {"name": (1, "text"), "op": (2, "text"), "input": (3, "text"), "attr": (5, "attribute by text")},
    "attribute": {
        "list": (1, "list"), "s": (2, "bytes"), "i": (3, "number"), "f": (4, "float"), "b": (5, "truth"), "type": (6, "type"),
        "shape": (7, "shape"), "tensor": (8, "tensor"), "func": (10, "called"),
    },
    "list": {
        "s": (2, "bytes"), "i": (3, "number"), "f": (4, "float"), "b": (5, "truth"), "type": (6, "type"), "shape": (7, "shape"),
    },
    "called": {"name": (1, "text")},
    "shape": {"dim": (2, "axis"), "unknownRank": (3, "truth")},
    "axis": {"size": (1, "number")},
    "tensor": {"dtype": (1, "type"), "tensorShape": (2, "shape"), "tensorContent": (4, "bytes")},
}  # fmt: skip
"""The fields of each message, by their names in JSON: the number and what they hold."""
_LISTED = {
    ("graph", "node"), ("library", "function"), ("function", "nodeDef"), ("signature", "inputArg"), ("signature", "outputArg"),
    ("node", "input"), ("shape", "dim"), *(("list", name) for name in _FIELDS["list"]),
}  # fmt: skip


def is_graph(topology: object) -> bool:
    """Return whether the topology of a model is a graph: a list of nodes."""
    return isinstance(topology, dict) and isinstance(topology.get("node"), list)


def read(topology: object, numbers: Mapping[str, Array], path: Path) -> GraphDef:
    """Return the graph of a topology, with the numbers of its constants.

    numbers  the numbers of each constant, by the name of its node: constants of functions have other names

    Raises UnreadableError for anything but a graph as protobuf writes it as JSON.
    """
    graph = parsed(memoryview(_message("graph", topology, path, 0)), path)

    def completed(nodes: Mapping[str, GraphDefNode]) -> dict[str, GraphDefNode]:
        return {name: replace(node, stored=numbers.get(name)) if node.op == "Const" else node for name, node in nodes.items()}

    functions = {name: replace(function, nodes=completed(function.nodes)) for name, function in graph.functions.items()}
    return GraphDef(completed(graph.nodes), functions)


def _message(kind: str, value: object, path: Path, depth: int) -> bytes:
    """Return a message in protobuf's binary form."""
    if not isinstance(value, dict) or depth > DOCUMENT_NESTING:
        raise UnreadableError(path, f"its graph has {_short(value)} where {kind} belongs")
    parts: list[bytes] = []
    for name, (number, what) in _FIELDS[kind].items():
        if name in value:
            listed = (kind, name) in _LISTED
            for item in _items(value[name], listed, path):
                parts += _written(number, what, item, path, depth)
    return b"".join(parts)


def _items(value: object, listed: bool, path: Path) -> list[Any]:
    if listed and not isinstance(value, list):
        raise UnreadableError(path, f"its graph has {_short(value)} where a list belongs")
    return value if listed and isinstance(value, list) else [value]


def _written(number: int, what: str, value: Any, path: Path, depth: int) -> Iterator[bytes]:
    """Yield the bytes of a field: one message for each entry of a map."""
    content, _, key_kind = what.partition(" by ")
    if not key_kind:
        yield from _scalar(number, what, value, path) if what in _SCALARS else [wire.field(number, _message(what, value, path, depth + 1))]
        return
    if not isinstance(value, dict):
        raise UnreadableError(path, f"its graph has {_short(value)} where names and values belong")
    for key, inner in value.items():
        entry = [*_scalar(1, key_kind, key, path), *_written(2, content, inner, path, depth + 1)]
        yield wire.field(number, b"".join(entry))


def _scalar(number: int, kind: str, value: Any, path: Path) -> list[bytes]:
    """Return a field of text, bytes or one number."""
    try:
        return [_SCALARS[kind](number, value)]
    except (ValueError, OverflowError, struct.error):
        raise UnreadableError(path, f"its graph has {_short(value)} where a {kind} belongs") from None


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _text(number: int, value: Any) -> bytes:
    return wire.field(number, _word(value).encode())


def _bytes(number: int, value: Any) -> bytes:
    return wire.field(number, base64.b64decode(_word(value), validate=True))


def _number(number: int, value: Any) -> bytes:
    if not isinstance(value, int | str) or isinstance(value, bool) or not -(1 << 63) <= int(value) < 1 << 63:
        raise ValueError
    return wire.varint(number << 3) + wire.varint(int(value) % (1 << 64))


def _float(number: int, value: Any) -> bytes:
    if not isinstance(value, int | float | str):
        raise ValueError
    return wire.varint(number << 3 | 5) + struct.pack("<f", float(value))


def _truth(number: int, value: Any) -> bytes:
    if not isinstance(value, bool):
        raise ValueError
    return wire.varint(number << 3) + wire.varint(value)


def _type(number: int, value: Any) -> bytes:
    return _number(number, value if isinstance(value, int) else _TYPES.get(_word(value), 0))


_SCALARS: Mapping[str, Callable[[int, Any], bytes]] = {
    "text": _text, "bytes": _bytes, "number": _number, "float": _float, "truth": _truth, "type": _type,
}  # fmt: skip


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
