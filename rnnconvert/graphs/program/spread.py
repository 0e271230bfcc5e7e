"""Stored values that operators repeat over a batch, cut and turn: the content of a state, for any batch."""

from __future__ import annotations

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.fold import fold
from rnnconvert.graphs.program.fold_call import FoldedCall
from rnnconvert.graphs.program.kinds import CUTTING, REPEATING
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope

_CUTTING = (*CUTTING, "Identity", "Cast")
_RESHAPING = ("Reshape", "Split")
"""Operations that change one number everywhere as little as the others."""
_SPREAD = 100
"""The most operators between a stored state and its layer."""


def spread(scope: Scope, name: str, depth: int = 0) -> Array | None:
    """Return a stored value that operators repeat, cut and turn: an axis along which it is repeated has the length 1. A single number that
    fills any shape has no axes. None for all else.
    """
    scope, name = scope.resolve(name)
    stored = scope.constant(name)
    if stored is not None:
        return _single(stored)
    node, index = scope.producer(name) or (None, 0)
    if node is None or depth >= _SPREAD:
        return None
    if scope.calls(node):
        called = scope.call(node)
        return spread(called, called.body.outputs[index], depth + 1)
    if node.domain:
        return None
    if node.kind == "ConstantOfShape":
        attribute = scope.attributes(node).get("value")
        return np.zeros(()) if attribute is None else attribute.read().reshape(-1)[0]
    if node.kind == "Concat":
        parts = [spread(scope, part, depth + 1) for part in node.inputs[:_SPREAD]]
        level = parts[0] if len(parts) == len(node.inputs) else None
        return level if level is not None and all(part is not None and not part.ndim and part == level for part in parts) else None
    if node.kind == "ReduceSum":  # of zeros alone
        return np.zeros(()) if everywhere(scope, node.inputs[0]) == 0 else None
    if node.kind == "Mul" and any(_integer_zeros(scope, operand) for operand in node.inputs):
        return np.zeros(())
    if node.kind not in (*REPEATING, *_CUTTING, *_RESHAPING) or not node.inputs:
        return None
    value = spread(scope, node.inputs[0], depth + 1)
    if value is None or (not value.ndim and node.kind != "Cast"):
        return value
    if node.kind == "Split":
        return _split(scope, node, value, index)
    if node.kind in _RESHAPING:
        return None
    return _repeated(scope, node, value) if node.kind in REPEATING else _cut(scope, node, value)


def _split(scope: Scope, node: Operation, value: Array, index: int) -> Array | None:
    """Return a part of what Split takes apart; of an axis along which a value is repeated, all parts are alike."""
    attributes, lengths = scope.values(node), [scope.constant(name) for name in node.inputs[1:]]
    if attributes is None or any(array is None for array in lengths) or not -value.ndim <= (axis := attributes.get("axis", 0)) < value.ndim:
        return None
    if value.shape[axis] == 1:
        return value
    parts = fold(FoldedCall("Split", [value, *lengths], attributes, len(node.outputs), scope.opset, scope.charge))
    return parts[index] if parts and parts[index].size else None


def _integer_zeros(scope: Scope, name: str) -> bool:
    """Return whether a stored value is integers that are all 0: these times others are 0, as no float, which may be infinite, is."""
    stored = scope.constant(name)
    return stored is not None and stored.dtype.kind in "iu" and stored.size > 0 and not stored.any()


def _single(value: Array) -> Array:
    same = value.size and (value == value.flat[0]).all()
    return value.reshape(-1)[0] if same else value


def _repeated(scope: Scope, node: Operation, value: Array) -> Array | None:
    """Return the value that Expand or Tile repeats along axes of length 1; None if another axis may be repeated, or added."""
    if node.kind == "Expand":
        shape = scope.constant(node.inputs[1])
        rank = 3 if shape is None else max(shape.size, value.ndim)
        fits = shape is not None or value.ndim == rank
        return value.reshape((1,) * (rank - value.ndim) + value.shape) if fits else None
    counts = [_number(count) for count in _entries(scope, node.inputs[1])]
    fits = len(counts) == value.ndim and all(length == 1 or count == 1 for length, count in zip(value.shape, counts, strict=True))
    return value if fits else None


def _entries(scope: Scope, name: str) -> list[tuple[Scope, str, int]]:
    """Return the origin of each number of a shape; nothing if that cannot be seen."""
    scope, name = scope.resolve(name)
    stored = scope.constant(name)
    if stored is not None:
        return [(scope, name, place) for place in range(stored.size)]
    node, _ = scope.producer(name) or (None, 0)
    if node is None or node.kind not in ("Concat", "Cast"):
        return []
    if node.kind == "Cast":
        return _entries(scope, node.inputs[0])
    # Where a part is more than one number, these are fewer than the axes.
    return [(scope, part, 0) for part in node.inputs]


def _number(entry: tuple[Scope, str, int]) -> int | None:
    where, name, place = entry
    stored = where.constant(name)
    return None if stored is None else int(stored.reshape(-1)[place])


def _cut(scope: Scope, node: Operation, value: Array) -> Array | None:
    """Return the result of an operator that cuts or turns; an axis along which a value is repeated keeps the length 1."""
    stored = [scope.constant(name) if name else None for name in node.inputs[1:]]
    attributes = scope.values(node)
    if attributes is None or any(name and array is None for name, array in zip(node.inputs[1:], stored, strict=True)):
        return None
    opset = scope.opset
    if node.kind == "Slice":
        return _sliced(FoldedCall("Slice", [value, *stored], attributes, 1, opset, scope.charge))
    if node.kind == "Gather" and len(stored) == 1 and stored[0] is not None:
        axis = attributes.get("axis", 0)
        if not -value.ndim <= axis < value.ndim:
            return None
        stored = [np.zeros_like(stored[0]) if value.shape[axis] == 1 else stored[0]]
    return _folded(FoldedCall(node.kind, [value, *stored], attributes, 1, opset, scope.charge))


def _sliced(call: FoldedCall) -> Array | None:
    value = call.input(0)
    starts, ends = call.integers("starts", 1) or [], call.integers("ends", 2) or []
    axes = call.integers("axes", 3) or range(len(starts))
    steps = call.integers("steps", 4) or [1] * len(starts)
    windows = list(zip(starts, ends, axes, steps, strict=False))
    if not all(-value.ndim <= axis < value.ndim for _, _, axis, _ in windows):
        return None
    for start, end, axis, step in windows:
        if value.shape[axis] > 1:
            inputs = [value, *(np.array([number]) for number in (start, end, axis, step))]
            result = _folded(FoldedCall("Slice", inputs, {}, 1, call.opset, call.charge))
            if result is None:
                return None
            value = result
    return value


def _folded(call: FoldedCall) -> Array | None:
    results = fold(call)
    return results[0] if results and results[0].size else None


def everywhere(scope: Scope, name: str) -> float | None:
    """Return the one number that fills a value of any shape."""
    value = spread(scope, name)
    return float(value) if value is not None and not value.ndim else None
