"""Transposes in the bodies of loops that read what lies around the loop: they stand before it, where they do the same once.

tf2onnx moves a Transpose behind the Gather of a step (tf2onnx/optimizer/transpose_optimizer.py), so that the sequence
that a loop reads would be no value of the graph around it.
"""

from __future__ import annotations

import onnx

from rnnconvert.files.adapter import unique
from rnnconvert.formats.onnx.fuse.graph import bodies, names_in

_LOOPS = ("Loop", "Scan")


def hoist(graph: onnx.GraphProto) -> None:
    """Move the Transposes of the loops of a graph that read nothing of the loops in front of them."""
    reserved: set[str] = set()
    for place, node in reversed(list(enumerate(graph.node))):
        if node.op_type not in _LOOPS or node.domain not in ("", "ai.onnx"):
            continue
        for body in bodies([node]):
            for movable in _movable(body):
                reserved = reserved or names_in(graph)
                name = unique(f"{node.name or node.output[0]}/{movable.output[0]}", reserved)
                reserved.add(name)
                _move(graph, body, movable, name, place)


def _movable(body: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the Transposes of a body that read a value from around it, and that only nodes of the body itself read."""
    defined = {value.name for value in (*body.input, *body.initializer)} | {name for node in body.node for name in node.output}
    elsewhere = {value.name for value in body.output}
    for inner in bodies(body.node):
        elsewhere |= names_in(inner)
    return [
        node
        for node in body.node
        if node.op_type == "Transpose"
        and node.domain in ("", "ai.onnx")
        and len(node.input) == len(node.output) == 1
        and node.input[0] not in defined
        and node.output[0] not in elsewhere
    ]


def _move(graph: onnx.GraphProto, body: onnx.GraphProto, node: onnx.NodeProto, name: str, place: int) -> None:
    """Move a node of a body in front of the loop, which stands at a place of the graph, and give its output another name."""
    old = node.output[0]
    for stated in body.value_info:
        if stated.name == old:
            copied = graph.value_info.add()
            copied.CopyFrom(stated)
            copied.name = name
    moved = onnx.NodeProto()
    moved.CopyFrom(node)
    moved.name, moved.output[0] = name, name
    body.node.remove(node)
    for reader in body.node:
        for index, operand in enumerate(reader.input):
            if operand == old:
                reader.input[index] = name
    graph.node.insert(place, moved)
