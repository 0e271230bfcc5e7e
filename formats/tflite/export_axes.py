"""Operations that move, cut and spread values, as operators of TFLite. Source: tensorflow/lite/kernels, for the operands of each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rnnconvert.formats.tflite.export_writer import Rule, TfliteWriter
from rnnconvert.formats.tflite.operator_values import BOOL, FLOAT, INT, kind_of
from rnnconvert.graphs.program.operations import Operation


def _gather(w: TfliteWriter, node: Operation) -> None:
    name, where = node.inputs
    axis, dims = node.attributes.get("axis", 0), w.dims(node, name)
    index = w.numbers(where)
    if index is not None and w.shape(where) == []:
        w.named(node.outputs[0], w.picked(node, w[name], axis % len(dims), index[0]))
        return
    places = w[where]
    if index is None:
        places = _from_the_beginning(w, node, places, axis % len(dims), dims[axis])
    if index is not None and min(index, default=0) < 0:
        length = dims[axis]
        if length is None:
            raise w.refused(node, "places that count from the end", "its operator counts from the beginning")
        shape = [each or 1 for each in w.shape(where) or ()]
        places = w.values.constant(where, np.array([n % length for n in index], np.int32).reshape(shape))
    table = w.stored(name)
    read = w[name] if table is None or len(dims) != 2 or axis % 2 else w.values.matrix(name, table, hybrid=False)
    w.put(node, "GATHER", [read, places], axis=axis % len(dims), batch_dims=0)


def _from_the_beginning(w: TfliteWriter, node: Operation, places: int, axis: int, length: int | None) -> int:
    """Add places along an axis, those that count from its end turned into such from its beginning."""
    size = w.values.integer(length) if length is not None else w.picked(node, w.size(node, w[node.inputs[0]]), 0, axis)
    negative = w.add("LESS", [places, w.values.integer(0)], node, "negative", BOOL)
    turns = w.add("MUL", [w.add("CAST", [negative], node, "turns", INT, **{"from": BOOL, "to": INT}), size], node, "turned")
    return w.add("ADD", [places, turns], node, "places")


def _gather_by_row(w: TfliteWriter, node: Operation) -> None:
    """Add steps of each sequence at separate places."""
    name, where = node.inputs
    if node.attributes.get("batch_dims", 0) != 1:
        raise w.refused(node, "places in several axes", w.unknown_reason)
    last = len(w.dims(node, where)) - 1
    w.put(node, "GATHER", [w[name], w.picked(node, w[where], last, 0)], axis=1, batch_dims=1)


def _gather_elements(w: TfliteWriter, node: Operation) -> None:
    """Add a gather along the last axis, of which all axes before are those of a batch: as long as those of the places."""
    name, where = node.inputs
    dims, lengths = w.dims(node, name), w.dims(node, where)
    axis, last = node.attributes.get("axis", 0) % len(dims), len(dims) - 1
    part = {other: length for other, length in enumerate(lengths) if other != axis and length != dims[other]}
    if None in part.values():
        raise w.refused(node, "places for an open part of an axis", "its operator takes some for each")
    x, places = w[name], _from_the_beginning(w, node, w[where], axis, dims[axis])
    x = w.cut(node, x, dict.fromkeys(part, 0), {other: length or 0 for other, length in part.items()}) if part else x
    if axis == last:
        w.put(node, "GATHER", [x, places], axis=last, batch_dims=last)
        return
    turn = [{axis: last, last: axis}.get(each, each) for each in range(len(dims))]
    x, places = w.transposed(node, x, turn, "turned values"), w.transposed(node, places, turn, "turned places")
    gathered = w.add("GATHER", [x, places], node, "gathered", axis=last, batch_dims=last)
    w.put(node, "TRANSPOSE", [gathered, w.values.integers(*turn)])


def _reshape(w: TfliteWriter, node: Operation) -> None:
    name, target = node.inputs
    x, wanted = w[name], w.numbers(target)
    zeros = not node.attributes.get("allowzero", 0)
    stated = wanted if wanted is not None else w.partly(target)
    copied = [axis for axis, length in enumerate(stated or ()) if length == 0 and zeros]
    if not copied:
        w.put(node, "RESHAPE", [x, w.values.integers(*wanted) if wanted else w[target]])
        return
    dims, size = w.dims(node, name), w.size(node, x)
    parts = []
    for axis, length in enumerate(stated or ()):
        if axis in copied and dims[axis] is not None:
            parts.append(w.values.integers(dims[axis] or 0))
        elif axis in copied:
            parts.append(w.cut(node, size, {0: axis}, {0: axis + 1}))
        elif length is not None:
            parts.append(w.values.integers(length))
        else:
            parts.append(w.cut(node, w[target], {0: axis}, {0: axis + 1}))
    w.put(node, "RESHAPE", [x, w.add("CONCATENATION", parts, node, "shape", axis=0) if len(parts) > 1 else parts[0]])


def _squeeze(w: TfliteWriter, node: Operation) -> None:
    dims = w.dims(node, node.inputs[0])
    every = [axis for axis, length in enumerate(dims) if length == 1 or len(dims) == 1]
    axes = [axis % len(dims) for axis in w.numbers(node.inputs[1]) or ()] if len(node.inputs) > 1 else every
    w.named(node.outputs[0], w.cut(node, w[node.inputs[0]], {}, {}, axes) if axes else w[node.inputs[0]])


def _unsqueeze(w: TfliteWriter, node: Operation) -> None:
    axes = w.numbers(node.inputs[1]) or []
    rank = len(w.dims(node, node.inputs[0])) + len(axes)
    place = w[node.inputs[0]]
    for axis in sorted(axis % rank for axis in axes):
        place = w.add("EXPAND_DIMS", [place, w.values.integer(axis)], node, "wide")
    w.named(node.outputs[0], place)


def _slice(w: TfliteWriter, node: Operation) -> None:
    rank = len(w.dims(node, node.inputs[0]))
    bounds = [w.numbers(name) for name in node.inputs[1:]]
    begins, ends = bounds[:2]
    count = len(w.dims(node, node.inputs[1])) and w.dims(node, node.inputs[1])[0]
    axes = (bounds[2] if len(bounds) > 2 else None) or list(range(count or 0))
    strides = (bounds[3] if len(bounds) > 3 else None) or [1] * len(axes)
    axes = [axis % rank for axis in axes]
    x = w[node.inputs[0]]
    largest = np.iinfo(np.int32).max
    if set(strides) == {-1} and begins is not None and ends is not None and set(begins) == {-1} and max(ends) < -largest:
        for axis in axes:
            x = w.add("REVERSE_V2", [x, w.values.integers(axis)], node, "turned")
        w.named(node.outputs[0], x)
        return
    width = max(axes) + 1
    lists, masks = [], []
    for name, stated, empty in ((node.inputs[1], begins, 0), (node.inputs[2], ends, 0)):
        if stated is None and len(axes) > 1:
            raise w.refused(node, "a part with several bounds that a run decides", w.unknown_reason)
        mask = sum(1 << axis for axis in range(width) if axis not in axes)
        if stated is None:
            before = [w.values.integers(*[empty] * axes[0])] if axes[0] else []
            parts = [*before, w[name]]
            lists.append(w.add("CONCATENATION", parts, node, "bounds", axis=0) if before else parts[0])
        else:
            by_axis = dict(zip(axes, stated, strict=True))
            mask |= sum(1 << axis for axis in axes if abs(by_axis[axis]) >= largest)
            lists.append(w.values.integers(*(max(-largest, min(largest, by_axis.get(axis, empty))) for axis in range(width))))
        masks.append(mask)
    steps_of = dict(zip(axes, strides, strict=True))
    step = w.values.integers(*(steps_of.get(axis, 1) for axis in range(width)))
    w.put(node, "STRIDED_SLICE", [x, *lists, step], begin_mask=masks[0], end_mask=masks[1], shrink_axis_mask=0)


def _split(w: TfliteWriter, node: Operation) -> None:
    x, sizes = (w[name] for name in node.inputs)
    kind = w.values.kinds[x]
    outputs = [w.values.value(name, kind, w.shape(name)) for name in node.outputs]
    w.values.several("SPLIT_V", [x, sizes, w.values.integer(node.attributes["axis"])], outputs, count=len(outputs))
    for name, place in zip(node.outputs, outputs, strict=True):
        w.named(name, place)


def _shape(w: TfliteWriter, node: Operation) -> None:
    x, first, last = w[node.inputs[0]], node.attributes.get("start", 0), node.attributes.get("end", None)
    size = w.size(node, x)
    if first or last is not None:
        size = w.cut(node, size, {0: first}, {} if last is None else {0: last})
    w.named(node.outputs[0], size)


def _filled(w: TfliteWriter, node: Operation) -> None:
    value = node.attributes.get("value")
    number = np.zeros((), np.float32) if value is None else np.asarray(value.numbers).reshape(())
    place = w.values.constant(f"{node.name}/value", number)
    w.put(node, "FILL", [w[node.inputs[0]], place], w.values.kinds[place])


def _expand(w: TfliteWriter, node: Operation) -> None:
    x, target = (w[name] for name in node.inputs)
    both = w.add("BROADCAST_ARGS", [w.size(node, x), target], node, "lengths", INT)
    w.put(node, "BROADCAST_TO", [x, both])


def _cast(w: TfliteWriter, node: Operation) -> None:
    place, kind = w[node.inputs[0]], kind_of(node.attributes["to"])
    before = w.values.kinds[place]
    if kind == before:
        w.named(node.outputs[0], place)
    elif kind == BOOL:
        zero = w.values.number(0.0) if before == FLOAT else w.values.integer(0)
        w.put(node, "NOT_EQUAL", [place, zero], BOOL)
    else:
        w.named(node.outputs[0], w.cast(place, kind, node.name))


AXES: Mapping[str, Rule] = {
    "Cast": _cast, "ConstantOfShape": _filled, "Expand": _expand, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_by_row, "Reshape": _reshape, "Shape": _shape, "Slice": _slice, "Split": _split, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": lambda w, node: w.put(node, "TRANSPOSE", [w[node.inputs[0]], w.values.integers(*node.attributes["perm"])]),
}  # fmt: skip
"""The operations that are known."""
