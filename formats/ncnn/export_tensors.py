"""Layers of ncnn that move, join and count tensors.

Source: ncnn src/layer/binaryop.cpp, unaryop.cpp, crop.cpp, flip.cpp, permute.cpp, reshape.cpp and reduction.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnconvert.formats.ncnn.export_writer import LARGEST, NetWriter
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Rules, Value, on
from rnnconvert.scaffolding.operators import axis_of

_BINARY = {"add": 0, "subtract": 1, "multiply": 2, "divide": 3, "maximum": 4, "minimum": 5, "power": 6}
_TURNED = {"subtract": 7, "divide": 8, "power": 9}
"""The operators of a number and a blob, in this order."""
_UNARY = {
    "abs": 0, "neg": 1, "floor": 2, "ceil": 3, "square": 4, "sqrt": 5, "rsqrt": 6, "exp": 7, "log": 8, "sin": 9, "cos": 10, "tan": 11,
    "asin": 12, "acos": 13, "atan": 14, "reciprocal": 15, "tanh": 16,
}  # fmt: skip
_UNKNOWN = "no layer of ncnn's is known for it"


def _widened(w: NetWriter, node: Node[kinds.Kind], value: Value, rank: int, behind_batch: bool) -> str:
    """Return a tensor as a blob of as many axes as that of a tensor with `rank` axes, new ones in front or behind the batch."""
    tensor, blob = w(value), w.blob(node, value)
    batch = 0 if tensor.batch is None else tensor.batch
    lengths = [*tensor.shape]
    missing = rank - len(lengths)
    if tensor.batch is None and not missing and lengths[0] == 1:  # the axis that spreads over the batch
        return w.shaped(blob, w.closed(node, lengths[1:]), f"{w.label(node)}/one")
    if tensor.batch is None:
        missing -= 1
    elif missing and not behind_batch:
        raise w.refused(node, "a tensor that spreads over the batch", "a blob has no axis for it")
    else:
        lengths = [length for axis, length in enumerate(lengths) if axis != batch]
    if missing < 0:
        raise w.refused(node, "a tensor with the batch among others", "a blob has no axis for it")
    return blob if not missing else w.shaped(blob, w.closed(node, [1] * missing + lengths), f"{w.label(node)}/widened")


def _batch(w: NetWriter, node: Node[kinds.Kind], values: Sequence[Value]) -> int | None:
    """Return which axis of what a node gives is the batch: that of what it reads, counted from the end."""
    rank = len(node.y.shape)
    places = {rank - len(w(value).shape) + batch for value in values if (batch := w(value).batch) is not None}
    if len(places) > 1:
        raise w.refused(node, "tensors whose batches are different axes", "a blob has no axis for it")
    return places.pop() if places else None


def _arithmetic(w: NetWriter, node: Node[kinds.Arithmetic]) -> None:
    rank, operation, label = len(node.y.shape), node.kind.operation, w.label(node)
    if operation != "average" and operation not in _BINARY:
        raise w.refused(node, f"the operator {operation!r}", _UNKNOWN)
    tensors = [w(value) for value in node.inputs]
    spread = [each.batch is None and len(each.shape) == rank and each.shape[0] == 1 for each in tensors]
    if all(spread) or any(each.batch != 0 and not alike for each, alike in zip(tensors, spread, strict=True)):
        raise w.refused(node, "a tensor without a batch in front", "a blob has no axis for it")
    blob, *others = (_widened(w, node, value, rank, behind_batch=True) for value in node.inputs)
    for other in others:
        blob = w.add("BinaryOp", [blob, other], label, {0: _BINARY["add" if operation == "average" else operation]})
    w.give(node.y, w.by_number(3, blob, len(node.inputs), f"{label}/mean") if operation == "average" else blob, 0)


def _elementwise(w: NetWriter, node: Node[kinds.Elementwise]) -> None:
    operation, operands, label = node.kind.operation, node.kind.operands, w.label(node)
    values = [node.inputs[value] for kind, value in operands if kind == "input"]
    batch, rank = _batch(w, node, values), len(node.y.shape)
    if operation in _UNARY and len(operands) == 1:
        blob = w.add("UnaryOp", [w.blob(node, values[0])], label, {0: _UNARY[operation]})
    elif operation == "sigmoid":
        blob = w.add("Sigmoid", [w.blob(node, values[0])], label)
    elif operation not in _BINARY or len(operands) != 2 or batch is None:
        raise w.refused(node, f"the operator {operation!r}", _UNKNOWN)
    elif len(values) == 2:
        blobs = [_widened(w, node, value, rank, behind_batch=False) for value in values]
        blob = w.add("BinaryOp", blobs, label, {0: _BINARY[operation]})
    else:
        first = operands[0][0] == "number"
        number = operands[0][1] if first else operands[1][1]
        operator = _TURNED.get(operation, _BINARY[operation]) if first else _BINARY[operation]
        blob = w.by_number(operator, w.blob(node, values[0]), float(np.asarray(number)), label)
    w.give(node.y, blob, batch)


def _clip(w: NetWriter, node: Node[kinds.Clip]) -> None:
    bounds = (node.kind.min, -LARGEST), (node.kind.max, LARGEST)
    low, high = (float(np.clip(end if bound is None else bound, -LARGEST, LARGEST)) for bound, end in bounds)
    w.put(node, "Clip", {0: low, 1: high})


# Axes


def _place(w: NetWriter, node: Node[kinds.Kind], axis: int) -> int:
    place = w(node.x).place(axis)
    if place < 0:
        raise w.refused(node, f"a layer of kind {node.kind.word!r} over the batch", "a blob has none")
    return place


def _concatenate(w: NetWriter, node: Node[kinds.Concatenate]) -> None:
    if len({w(value).batch for value in node.inputs}) > 1:
        raise w.refused(node, "tensors whose batches are different axes", "a blob has no axis for it")
    axis = _place(w, node, node.kind.axis)
    blobs = [w.blob(node, value) for value in node.inputs]
    w.give(node.y, w.add("Concat", blobs, w.label(node), {0: axis}) if len(blobs) > 1 else blobs[0], w(node.x).batch)


def _cut(w: NetWriter, node: Node[kinds.Kind], place: int, start: int, end: int | None) -> str:
    """Add a part along an axis of a blob; a negative bound counts from the end."""
    ends = -233 if end is None else end
    if -233 in (start, end):
        raise w.refused(node, "a part that begins or ends 233 places before the end", "its Crop takes the number for none")
    return w.add("Crop", [w.blob(node, node.x)], f"{w.label(node)}/part", {9: [start], 10: [ends], 11: [place]})


def _select(w: NetWriter, node: Node[kinds.Select]) -> None:
    tensor, index = w(node.x), node.kind.index
    place = _place(w, node, node.kind.axis)
    blob = _cut(w, node, place, index, None if index == -1 else index + 1)
    left = [length for axis, length in enumerate(tensor.lengths) if axis != place]
    axis = node.kind.axis % len(tensor.shape)
    batch = None if tensor.batch is None else tensor.batch - (axis < tensor.batch)
    w.give(node.y, w.shaped(blob, w.closed(node, left), w.label(node)), batch)


def _slice(w: NetWriter, node: Node[kinds.Slice]) -> None:
    start, end = 0 if node.kind.start is None else node.kind.start, node.kind.end
    if node.kind.step != 1:
        raise w.refused(node, f"a part with the step {node.kind.step}", _UNKNOWN)
    end = None if end is not None and end >= np.iinfo(np.int32).max else end
    w.give(node.y, _cut(w, node, _place(w, node, node.kind.axis), start, end), w(node.x).batch)


def _crop(w: NetWriter, node: Node[kinds.Crop]) -> None:
    w.batch_first(node)
    pairs = node.kind.pairs
    settings = {9: [low for low, _ in pairs], 10: [-high if high else -233 for _, high in pairs], 11: [*range(len(pairs))]}
    w.put(node, "Crop", settings)


def _flip(w: NetWriter, node: Node[kinds.Flip]) -> None:
    w.put(node, "Flip", {0: [_place(w, node, axis) for axis in node.kind.axes]})


def _transpose(w: NetWriter, node: Node[kinds.Transpose]) -> None:
    tensor, order = w(node.x), list(node.kind.order)
    batch = None if tensor.batch is None else order.index(tensor.batch)
    moved = [tensor.place(axis) for axis in order if axis != tensor.batch]
    blob = w.blob(node, node.x)
    if moved != sorted(moved):
        names = {2: "hw", 3: "chw"}[len(moved)]
        number = _NUMBERS[len(moved)]["".join(names[place] for place in moved)]
        blob = w.add("Permute", [blob], w.label(node), {0: number})
    w.give(node.y, blob, batch)


_NUMBERS = {2: {"hw": 0, "wh": 1}, 3: {"chw": 0, "cwh": 1, "hcw": 2, "hwc": 3, "wch": 4, "whc": 5}}
"""Permute's numbers by the axes of what it gives, the outermost first: 2 is (w, c, h) from the innermost on."""


def _reshaped(w: NetWriter, node: Node[kinds.Kind], lengths: Sequence[int | None]) -> None:
    """Add a change of the axes behind the batch."""
    w.batch_first(node)
    w.give(node.y, w.shaped(w.blob(node, node.x), w.closed(node, lengths), w.label(node)), 0)


def _view(w: NetWriter, node: Node[kinds.View]) -> None:
    first, *others = node.kind.lengths
    if axis_of(first) != (0, 0) and first != node.x.shape[0]:
        raise w.refused(node, "a change of axes that moves the batch", "a blob has none")
    _reshaped(w, node, [length if isinstance(length, int) and length >= 0 else None for length in others])


def _behind(w: NetWriter, node: Node[kinds.MergeAxes | kinds.SplitAxis]) -> None:
    """Add a change of axes whose outcome the description states."""
    if node.kind.start == 0 if isinstance(node.kind, kinds.MergeAxes) else node.kind.axis == 0:
        raise w.refused(node, "a change of axes that moves the batch", "a blob has none")
    _reshaped(w, node, node.y.shape[1:])


def _squeeze(w: NetWriter, node: Node[kinds.Squeeze]) -> None:
    tensor, axes = w(node.x), node.kind.axis
    gone = {axis % len(tensor.shape) for axis in ([axes] if isinstance(axes, int) else axes)}
    if tensor.batch in gone:
        raise w.refused(node, "the batch as an axis of one", "a blob has none")
    left = [length for axis, length in enumerate(tensor.shape) if axis not in gone and axis != tensor.batch]
    batch = None if tensor.batch is None else tensor.batch - sum(axis < tensor.batch for axis in gone)
    w.give(node.y, w.shaped(w.blob(node, node.x), w.closed(node, left), w.label(node)), batch)


def _unsqueeze(w: NetWriter, node: Node[kinds.Unsqueeze]) -> None:
    tensor = w(node.x)
    axis = node.kind.axis % len(node.y.shape)
    batch = None if tensor.batch is None else tensor.batch + (axis <= tensor.batch)
    lengths = [length for place, length in enumerate(node.y.shape) if place != batch]
    w.give(node.y, w.shaped(w.blob(node, node.x), w.closed(node, lengths), w.label(node)), batch)


def _stack(w: NetWriter, node: Node[kinds.Stack]) -> None:
    tensor, axis = w(node.x), node.kind.axis % len(node.y.shape)
    if tensor.batch is None or any(w(value).batch != tensor.batch for value in node.inputs):
        raise w.refused(node, "tensors whose batches are different axes", "a blob has no axis for it")
    batch = tensor.batch + (axis <= tensor.batch)
    place = axis - (axis > batch)
    lengths = w.closed(node, [1 if number == axis else length for number, length in enumerate(node.y.shape) if number != batch])
    wide = [w.shaped(w.blob(node, value), lengths, f"{w.label(node)}/wide") for value in node.inputs]
    w.give(node.y, w.add("Concat", wide, w.label(node), {0: place}), batch)


def _repeat(w: NetWriter, node: Node[kinds.Repeat]) -> None:
    w.batch_first(node, 2)
    row = w.shaped(w.blob(node, node.x), [1, -1], f"{w.label(node)}/row")
    w.give(node.y, w.add("Tile", [row], w.label(node), {0: 0, 1: node.kind.count}), 0)


def _split(w: NetWriter, node: Node[kinds.Split]) -> None:
    axis = _place(w, node, node.kind.axis)
    blobs = w.net.add("Slice", [w.blob(node, node.x)], w.label(node), {0: [*node.kind.sizes], 1: axis}, (), len(node.outputs))
    for value, blob in zip(node.outputs, blobs, strict=True):
        w.give(value, blob, w(node.x).batch)


_REDUCED = {"sum": 0, "mean": 3, "max": 4, "min": 5, "prod": 6}


def _reduce(w: NetWriter, node: Node[kinds.Reduce]) -> None:
    tensor, operation = w(node.x), node.kind.operation
    if node.named.get("mask") or operation not in _REDUCED:
        raise w.refused(node, "a mask" if node.named.get("mask") else f"a reduction by {operation!r}", _UNKNOWN)
    places = sorted(_place(w, node, axis) for axis in node.kind.axes)
    gone = {axis % len(tensor.shape) for axis in node.kind.axes}
    batch = tensor.batch
    if batch is not None and not node.kind.keep:
        batch -= sum(axis < batch for axis in gone)
    settings: dict[int, Any] = {0: _REDUCED[operation], 1: 0, 3: places, 4: int(node.kind.keep), 5: 1}
    w.give(node.y, w.add("Reduction", [w.blob(node, node.x)], w.label(node), settings), batch)


# Stored numbers


def _lengths(w: NetWriter, node: Node[kinds.Full | kinds.Expand]) -> tuple[list[int], int | None]:
    """Return the stated lengths of what a node gives, without the batch, and which axis that is. Raises RefusedError for an open one."""
    lengths, batch = list[int](), None
    for place, value in enumerate(node.kind.lengths):
        origin = axis_of(value)
        if origin is not None and w(node.inputs[origin[0]]).batch == origin[1]:
            batch = place
            continue
        length = value if origin is None else w(node.inputs[origin[0]]).shape[origin[1]]
        if not isinstance(length, int) or length < 0:
            raise w.refused(node, "a tensor of lengths that a run decides", "no layer of ncnn's is known for it")
        lengths.append(length)
    return lengths, batch


def _full(w: NetWriter, node: Node[kinds.Full]) -> None:
    lengths, batch = _lengths(w, node)
    _stored(w, node, np.full(lengths, node.kind.number, node.y.dtype), batch)


def _expand(w: NetWriter, node: Node[kinds.Expand]) -> None:
    """Add a tensor spread over lengths; over the batch it is spread as it is."""
    tensor, blob = w(node.x), w.blob(node, node.x)
    lengths, batch = _lengths(w, node)
    lead = len(node.kind.lengths) - len(tensor.shape)
    if tensor.batch is not None and batch != tensor.batch + lead:
        raise w.refused(node, "tensors whose batches are different axes", "a blob has no axis for it")
    held = [length for axis, length in enumerate(tensor.shape, lead) if axis != batch]
    if batch is not None and tensor.batch is None and 0 <= batch - lead < len(tensor.shape) and tensor.shape[batch - lead] != 1:
        raise w.refused(node, "numbers of each sequence of a batch", "a blob has no axis for it")
    wide = w.closed(node, [1] * (len(lengths) - len(held)) + held)
    blob = w.shaped(blob, wide, f"{w.label(node)}/wide")
    if wide != lengths:
        blob = w.binary(_BINARY["add"], [w.stored(f"{w.label(node)}/zeros", np.zeros(lengths, np.float32)), blob], w.label(node))
    w.give(node.y, blob, batch)


def _stored(w: NetWriter, node: Node[kinds.Kind], numbers: Any, batch: int | None = None) -> None:
    array = np.asarray(numbers)
    if array.dtype.kind != "f":
        raise w.refused(node, "stored whole numbers", "its layers compute in float32 alone")
    w.give(node.y, w.stored(w.label(node), array), batch)


TENSORS: Rules = {
    **on(kinds.Arithmetic, _arithmetic), **on(kinds.Elementwise, _elementwise), **on(kinds.Clip, _clip),
    **on(kinds.Concatenate, _concatenate), **on(kinds.Select, _select), **on(kinds.Slice, _slice), **on(kinds.Crop, _crop),
    **on(kinds.Flip, _flip), **on(kinds.Transpose, _transpose), **on(kinds.Repeat, _repeat), **on(kinds.Stack, _stack),
    **on(kinds.Split, _split), **on(kinds.Reduce, _reduce), **on(kinds.Reshape, lambda w, node: _reshaped(w, node, node.y.shape[1:])),
    **on(kinds.Flatten, lambda w, node: _reshaped(w, node, [None])), **on(kinds.View, _view), **on(kinds.MergeAxes, _behind),
    **on(kinds.Full, _full), **on(kinds.Expand, _expand),
    **on(kinds.SplitAxis, _behind), **on(kinds.Squeeze, _squeeze), **on(kinds.Unsqueeze, _unsqueeze),
    **on(kinds.Constant, lambda w, node: _stored(w, node, node.kind.numbers)),
    **on(kinds.Parameter, lambda w, node: _stored(w, node, w.weights.numbers(w.path(node)).reshape(node.kind.sizes))),
}  # fmt: skip
"""The kinds that are known."""
