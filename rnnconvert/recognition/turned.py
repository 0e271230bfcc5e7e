"""Nodes that turn a sequence around: a layer between two of them reads from the end."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rnnconvert.core.limits import TRIED_NUMBERS
from rnnconvert.graphs.program.evaluate import Budget, Evaluation, UnmatchedError
from rnnconvert.graphs.program.kinds import SAME
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes

_TURNING = ("Slice", "ReverseSequence", "Gather", "ReverseV2")
_PASSING = (*SAME, "Cast", "Transpose")
_FOLLOWED = 20
_TRIED = ((5, 3), (2, 4), (100_003, 2), (2, 100_003))
"""Lengths that are tried for axes that a graph leaves open."""


def sequence_before_reversal(scope: Scope, shapes: Shapes, value: str, axis: int) -> str:
    """Return the sequence that a value is, turned around along an axis; "" if nothing turns it."""
    for _ in range(_FOLLOWED):
        producer = scope.producer(value)
        if producer is None or not producer[0].inputs:
            return ""
        node = producer[0]
        if node.kind in _TURNING:
            return node.inputs[0] if turns(scope, shapes, node, axis) else ""
        if node.kind not in _PASSING and not _swaps(scope, shapes, node):
            return ""
        axis = _moved(scope, node, axis)
        value = node.inputs[0]
    return ""


def is_turned(scope: Scope, shapes: Shapes, value: str, axis: int) -> bool:
    """Return whether a sequence is read by nodes alone that turn it around."""
    waiting = [(value, axis)]
    for _ in range(_FOLLOWED):
        value, axis = waiting.pop()
        readers = list(_readers(scope, value))
        if value in scope.body.outputs or not readers:
            return False
        for node in readers:
            if node.kind in _PASSING or _swaps(scope, shapes, node):
                order = _order(scope, node)
                after = 1 - axis if node.kind == "Reshape" else order.index(axis) if axis in order else axis
                waiting.append((node.outputs[0], after))
            elif node.kind not in _TURNING or node.inputs[0] != value or not turns(scope, shapes, node, axis):
                return False
        if not waiting:
            return True
    return False


def _readers(scope: Scope, value: str) -> Iterator[Operation]:
    return (node for node in scope.nodes if value in node.reads and node.kind != "Shape")


def _order(scope: Scope, node: Operation) -> list[int]:
    attributes = scope.attributes(node)
    return attributes.get("perm", []) if node.kind == "Transpose" else []


def _swaps(scope: Scope, shapes: Shapes, node: Operation) -> bool:
    """Return whether a Reshape swaps time and batch, of which one has length 1."""
    if node.kind != "Reshape":
        return False
    before, after = shapes.dims(scope, node.inputs[0]), shapes.dims(scope, node.outputs[0])
    if before is None or after is None or len(before) != 3 or len(after) != 3 or None in before or None in after:
        return False
    return 1 in before[:2] and [before[1], before[0], before[2]] == list(after)


def _moved(scope: Scope, node: Operation, axis: int) -> int:
    if node.kind == "Reshape":
        return 1 - axis
    order = _order(scope, node)
    return order[axis] if axis < len(order) else axis


def turns(scope: Scope, shapes: Shapes, node: Operation, axis: int) -> bool:
    """Return whether a node turns a sequence around, and nothing else: it is run on random ones."""
    source = _source(scope, node.inputs[0])
    dims = list(shapes.dims(scope, source) or [None, None, None])
    if len(dims) != 3 or axis not in (0, 1):
        return False
    wanted = [node.inputs[0], node.outputs[0]]
    stated = max(1, math.prod(length for length in dims if length is not None))
    for tried in _TRIED:
        sizes = iter((*tried, 2))
        shape = [min(next(sizes), max(5, TRIED_NUMBERS // stated // 4)) if length is None else length for length in dims]
        if math.prod(shape) > TRIED_NUMBERS:
            return False
        trial = {source: np.random.default_rng(0).standard_normal(shape)}
        try:
            values, result = Evaluation(scope, trial, Budget()).run(_needed(scope, node, source), wanted)
        except UnmatchedError:
            return False
        if result.shape != values.shape or not np.array_equal(result, np.flip(values, axis)):
            return False
    return True


def _source(scope: Scope, value: str) -> str:
    """Return the value that nodes hand on as a sequence: its shape may say how long the sequence is."""
    for _ in range(_FOLLOWED):
        producer = scope.producer(value)
        if producer is None or producer[0].kind not in _PASSING:
            break
        value = producer[0].inputs[0]
    return value


def _needed(scope: Scope, node: Operation, source: str) -> list[Operation]:
    """Return the nodes by which a node's inputs are computed from a value that is given, and the node."""
    selected = {node}
    waiting = [name for name in node.inputs if name]
    while waiting:
        name = waiting.pop()
        producer = scope.producer(name)
        if name == source or producer is None or producer[0] in selected or scope.constant(name) is not None:
            continue
        selected.add(producer[0])
        waiting += [operand for operand in producer[0].inputs if operand]
    return [other for other in scope.nodes if other in selected]
