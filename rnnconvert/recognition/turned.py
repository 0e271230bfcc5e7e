"""Nodes that turn a sequence around: a layer between two of them reads from the end."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx

from rnnconvert.formats.onnx.fuse.graph import reads
from rnnconvert.graphs.program.evaluate import Budget, Evaluation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.recognition.expression import UnmatchedError

_TURNING = ("Slice", "ReverseSequence", "Gather", "ReverseV2")
_PASSING = ("Identity", "Cast", "Dropout", "Transpose")
_FOLLOWED = 20
_TRIED = ((5, 3), (2, 4), (100_003, 2), (2, 100_003))
"""Lengths that are tried for axes that a graph leaves open."""
_MOST = 1 << 24
"""The most numbers of a sequence that is tried: other axes may have any stated length."""


def before(scope: Scope, shapes: Shapes, value: str, axis: int) -> str:
    """Return the sequence that a value is, turned around along an axis; "" if nothing turns it."""
    for _ in range(_FOLLOWED):
        producer = scope.producer(value)
        if producer is None or not producer[0].input:
            return ""
        node = producer[0]
        if node.op_type in _TURNING:
            return node.input[0] if turns(scope, shapes, node, axis) else ""
        if node.op_type not in _PASSING and not _swaps(scope, shapes, node):
            return ""
        axis = _moved(scope, node, axis)
        value = node.input[0]
    return ""


def is_turned(scope: Scope, shapes: Shapes, value: str, axis: int) -> bool:
    """Return whether a sequence is read by nodes alone that turn it around."""
    if any(one.name == value for one in scope.graph.output):
        return False
    readers = list(_readers(scope, value))
    if not readers:
        return False
    for node in readers:
        if node.op_type in _PASSING or _swaps(scope, shapes, node):
            order = _order(scope, node)
            if node.op_type == "Reshape":
                after = 1 - axis
            elif order:
                after = order.index(axis)
            else:
                after = axis
            if not is_turned(scope, shapes, node.output[0], after):
                return False
        elif node.op_type not in _TURNING or node.input[0] != value or not turns(scope, shapes, node, axis):
            return False
    return True


def _readers(scope: Scope, value: str) -> Iterator[onnx.NodeProto]:
    return (node for node in scope.nodes if value in reads(node) and node.op_type != "Shape")


def _order(scope: Scope, node: onnx.NodeProto) -> list[int]:
    attributes = scope.attributes(node)
    return list(attributes["perm"].ints) if node.op_type == "Transpose" and "perm" in attributes else []


def _swaps(scope: Scope, shapes: Shapes, node: onnx.NodeProto) -> bool:
    """Return whether a Reshape swaps time and batch, of which one has length 1."""
    if node.op_type != "Reshape":
        return False
    one, two = shapes.dims(scope, node.input[0]), shapes.dims(scope, node.output[0])
    if one is None or two is None or len(one) != 3 or len(two) != 3 or None in one or None in two:
        return False
    return 1 in one[:2] and [one[1], one[0], one[2]] == list(two)


def _moved(scope: Scope, node: onnx.NodeProto, axis: int) -> int:
    if node.op_type == "Reshape":
        return 1 - axis
    order = _order(scope, node)
    return order[axis] if axis < len(order) else axis


def turns(scope: Scope, shapes: Shapes, node: onnx.NodeProto, axis: int) -> bool:
    """Return whether a node turns a sequence around, and nothing else: it is run on random ones."""
    source = _source(scope, node.input[0])
    dims = list(shapes.dims(scope, source) or [None, None, None])
    if len(dims) != 3 or axis not in (0, 1):
        return False
    wanted = [node.input[0], node.output[0]]
    stated = max(1, math.prod(length for length in dims if length is not None))
    for tried in _TRIED:
        sizes = iter((*tried, 2))
        shape = [min(next(sizes), max(5, _MOST // stated // 4)) if length is None else length for length in dims]
        if math.prod(shape) > _MOST:
            return False
        trial = {source: np.random.default_rng(0).standard_normal(shape)}
        try:
            given, found = Evaluation(scope, trial, Budget()).run(_needed(scope, node, source), wanted)
        except UnmatchedError:
            return False
        if found.shape != given.shape or not np.array_equal(found, np.flip(given, axis)):
            return False
    return True


def _source(scope: Scope, value: str) -> str:
    """Return the value that nodes hand on as a sequence: its shape may say how long the sequence is."""
    for _ in range(_FOLLOWED):
        producer = scope.producer(value)
        if producer is None or producer[0].op_type not in _PASSING:
            break
        value = producer[0].input[0]
    return value


def _needed(scope: Scope, node: onnx.NodeProto, source: str) -> list[onnx.NodeProto]:
    """Return the nodes by which a node's inputs are computed from a value that is given, and the node."""
    kept = {id(node)}
    waiting = [name for name in node.input if name]
    while waiting:
        name = waiting.pop()
        producer = scope.producer(name)
        if name == source or producer is None or id(producer[0]) in kept or scope.constant(name) is not None:
            continue
        kept.add(id(producer[0]))
        waiting += [one for one in producer[0].input if one]
    return [one for one in scope.nodes if id(one) in kept]
