"""How often a Loop runs, computed from the shapes that its counts are made of: as long as the sequence that it reads, or not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import COUNTED_OPERATIONS
from rnnconvert.graphs.program.evaluate import Budget, Evaluation, UnmatchedError
from rnnconvert.graphs.program.kinds import ALIKE, MEASURING, SPREAD
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.rules import Dims
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.walk import behind
from rnnconvert.recognition.masks import plain
from rnnconvert.recognition.states import given_at_run_time

_FOLLOWED = 500
OTHERS = (1009, 1)
"""Lengths of an axis that has nothing to do with the layer: longer than any trial, and as short as can be."""
_NONE: Mapping[str, int] = MappingProxyType({})
Place: TypeAlias = "tuple[Scope, str, int]"
"""An axis of a value: its graph, its name, and the axis."""


def place(scope: Scope, shapes: Shapes, name: str, axis: int) -> Place:
    """Return the earliest value that has an axis of the same length as a value's, for any input of the model."""
    for _ in range(_FOLLOWED):
        scope, name = scope.resolve(name)
        producer = scope.producer(name)
        layer = shapes.sources.get(name, ()) if scope.outer is None else ()
        if axis < len(layer):
            name, axis = layer[axis]
            continue
        before = None if producer is None else _before(scope, shapes, producer, (name, axis))
        if before is None:
            break
        name, axis = before
    return scope, name, axis


def _before(scope: Scope, shapes: Shapes, producer: tuple[Operation, int], at: tuple[str, int]) -> tuple[str, int] | None:
    """Return the input of a node, and its axis, that is as long as an axis of the node's output; None if that is unknown."""
    (node, index), (name, axis) = producer, at
    if node.domain or not node.inputs:
        return None
    kind, attributes, first = node.kind, scope.attributes(node), node.inputs[0]
    if kind in ALIKE:
        return (first, axis) if index == 0 else None
    if kind == "Transpose":
        order = attributes.get("perm", [])
        return (first, order[axis]) if axis < len(order) else None
    if kind in SPREAD:
        return _spread(scope, shapes, node, axis, shapes.dims(scope, name))
    # All axes of the first factor but the last are as long as the product's.
    if kind == "MatMul":
        matrix, dims = shapes.dims(scope, node.inputs[1]), shapes.dims(scope, name)
        return (first, axis) if matrix is not None and len(matrix) == 2 and dims and axis < len(dims) - 1 else None
    # A lookup in a stored table, as an embedding has it, gives as many rows as there are indices.
    if kind == "Gather":
        table, dims = scope.constant(first), shapes.dims(scope, node.inputs[1])
        usable = table is not None and dims is not None and axis < len(dims)
        return (node.inputs[1], axis) if usable and attributes.get("axis", 0) == 0 else None
    if kind in ("Slice", "Split"):
        return (first, axis) if axis not in _cut(scope, shapes, node, shapes.dims(scope, name)) else None
    if kind in ("Unsqueeze", "Squeeze"):
        axes, dims = shapes.integers(scope, node, "axes", 1), shapes.dims(scope, name if kind == "Unsqueeze" else first)
        if axes is None or dims is None:
            return None
        rank = len(dims)
        gone = {dropped % rank for dropped in axes}
        remaining = [position for position in range(rank) if position not in gone]
        if kind == "Unsqueeze":
            return (first, remaining.index(axis)) if axis in remaining else None
        return (first, remaining[axis]) if axis < len(remaining) else None
    if kind in ("RNN", "GRU", "LSTM") and index == 0 and not attributes.get("layout"):
        return {0: (first, 0), 2: (first, 1)}.get(axis)
    if kind == "Scan" and "num_scan_inputs" in attributes:
        return _scanned(node, attributes, index, axis)
    return None


def _spread(scope: Scope, shapes: Shapes, node: Operation, axis: int, dims: Dims | None) -> tuple[str, int] | None:
    """Return the only input of an operator of several that is not of length 1 along an axis."""
    if dims is None:
        return None
    candidates = []
    for name in node.inputs:
        operand_dims = shapes.dims(scope, name)
        if operand_dims is None:
            return None
        at = axis - len(dims) + len(operand_dims)
        if at >= 0 and operand_dims[at] != 1:
            candidates.append((name, at))
    # Several inputs may be as long because all of them come from one value.
    places = {place(scope, shapes, *candidate) for candidate in candidates} if len(candidates) > 1 else set()
    return candidates[0] if len(candidates) == 1 or len(places) == 1 else None


def _cut(scope: Scope, shapes: Shapes, node: Operation, dims: Dims | None) -> set[int]:
    """Return the axes along which a Slice or Split takes a part; all if that is unknown."""
    rank = 8 if dims is None else len(dims)
    if node.kind == "Split":
        axes: list[int] | None = [scope.attributes(node).get("axis", 0)]
    else:
        starts, ends, steps = (shapes.integers(scope, node, key, at) for key, at in (("starts", 1), ("ends", 2), ("steps", 4)))
        stated = shapes.integers(scope, node, "axes", 3)
        axes = list(stated) if stated is not None else None
        if axes is None and len(node.inputs) < 4 and "axes" not in scope.attributes(node) and starts is not None:
            axes = list(range(len(starts)))
        if axes is not None and starts is not None and ends is not None:
            steps = list(steps) if steps is not None else [1] * len(starts)
            every = list(zip(axes, starts, ends, steps, strict=False))
            axes = [axis for axis, start, end, step in every if not _takes_all(start, end, step)]
    if axes is None or (dims is None and any(axis < 0 for axis in axes)):
        return set(range(rank))
    return {axis % rank for axis in axes}


def _takes_all(start: int, end: int, step: int) -> bool:
    """Return whether a cut takes all of an axis of any length, in either order."""
    return (step == 1 and start == 0 and end >= 2**31 - 1) or (step == -1 and start == -1 and end <= 1 - 2**31)


def _scanned(node: Operation, attributes: Mapping[str, Any], index: int, axis: int) -> tuple[str, int] | None:
    scanned = attributes["num_scan_inputs"]
    count = len(node.inputs) - scanned
    if not 0 <= count <= index or not scanned:
        return None
    axes, input_axes = (
        list(attributes.get(key, [0] * length)) for key, length in (("scan_output_axes", index - count + 1), ("scan_input_axes", 1))
    )
    return (node.inputs[count], input_axes[0]) if index - count < len(axes) and axes[index - count] == axis else None


def longest(scope: Scope, name: str) -> set[str] | None:
    """Return the lengths whose longest a number is, if it is not less; nothing for one that is not given; None for others."""
    where, name = scope.resolve(plain(scope, name))
    if not given_at_run_time(where, name):
        return set()
    producer = where.producer(name)
    if producer is None or producer[0].domain or producer[0].kind not in ("ReduceMax", "Min", "Max"):
        return None
    if producer[0].kind == "ReduceMax":
        return {where.resolve(plain(where, producer[0].inputs[0]))[1]}
    parts = [longest(where, operand) for operand in producer[0].inputs]
    return None if None in parts else {length for part in parts if part for length in part}


def counted(scope: Scope, shapes: Shapes, name: str, lengths: Mapping[Place, int], other: int, inputs: Mapping[str, int] = _NONE) -> Array:
    """Return a number that is computed from shapes, where some axes have these lengths, and all others one. Raises UnmatchedError.

    inputs  whole numbers that the model is given, by their values
    """
    values, selected = {each: np.full(1, number, shapes.kind(scope, each) or np.int32) for each, number in inputs.items()}, set()
    for count, (source, node) in enumerate(behind(scope, name, inputs), 1):
        if source in inputs:
            continue
        if node is None or count > COUNTED_OPERATIONS:
            raise UnmatchedError(f"{source!r}, an input of the model, decides when it ends")
        if node.kind in MEASURING:
            values[source] = _sizes(scope, shapes, node, lengths, other)
        else:
            selected.add(node)
    if not selected:
        return values[name] if name in values else np.asarray(scope.constant(name))
    nodes = [node for node in scope.nodes if node in selected]
    return Evaluation(scope, values, Budget()).run(nodes, [name])[0]


def _sizes(scope: Scope, shapes: Shapes, node: Operation, lengths: Mapping[Place, int], other: int) -> Array:
    dims = shapes.dims(scope, node.inputs[0])
    if dims is None:
        raise UnmatchedError(f"the shape of {node.inputs[0]!r}, which decides when it ends, is not known")
    sizes = []
    for axis, size in enumerate(dims):
        origin = place(scope, shapes, node.inputs[0], axis)
        sizes.append(size if size is not None else lengths.get(origin, other))
    if node.kind == "Size":
        return np.array(int(np.prod(sizes, dtype=np.int64)), np.int64)
    attributes = scope.attributes(node)
    start, end = (attributes.get(key, None) for key in ("start", "end"))
    return np.array(sizes[start:end], np.int64)
