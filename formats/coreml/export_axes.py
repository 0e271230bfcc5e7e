"""Operations that move, cut and spread values, as operations of Core ML.

Source: coremltools 9.0, converters/mil/mil/ops/defs/iOS15, tensor_transformation.py and tensor_operation.py; iOS16/scatter_gather.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.formats.coreml.export_program import MilValue, dtype_of, spread
from rnnconvert.formats.coreml.export_writer import MilWriter, Rule
from rnnconvert.graphs.program.operations import Operation

_END = np.iinfo(np.int32).max


def _gathered(w: MilWriter, node: Operation, axis: int, places: MilValue, batches: int) -> None:
    """Add places of a value along an axis; its operation takes no truths."""
    x = w[node.inputs[0]]
    read = w.main.cast(x, "int32" if x.dtype == "bool" else x.dtype, f"{node.name}/numbers")
    inputs = {"x": read, "indices": places, "axis": w.main.index(axis), "batch_dims": w.main.index(batches)}
    shape = (*x.shape[:axis], *places.shape[batches:], *x.shape[axis + 1 :])
    elements = w.main.op("gather", node.outputs[0], read.dtype, shape, inputs)
    w.named(node.outputs[0], w.main.cast(elements, x.dtype, node.outputs[0]))


def _gather(w: MilWriter, node: Operation) -> None:
    _gathered(w, node, node.attributes.get("axis", 0) % w[node.inputs[0]].rank, w[node.inputs[1]], 0)


def _gather_by_row(w: MilWriter, node: Operation) -> None:
    """Add steps of each sequence at separate places."""
    places = w[node.inputs[1]]
    if node.attributes.get("batch_dims", 0) != 1 or places.shape[-1] != 1:
        raise w.refused(node, "places in several axes", "no operation of Core ML is known for it")
    _gathered(w, node, 1, w.main.squeezed(places, [places.rank - 1], f"{node.name}/places"), 1)


def _gather_elements(w: MilWriter, node: Operation) -> None:
    """Add elements taken along an axis. Raises RefusedError where there are fewer places than elements along another."""
    x, places = (w[name] for name in node.inputs)
    axis = node.attributes["axis"] % x.rank
    if any(a != b for place, (a, b) in enumerate(zip(x.shape, places.shape, strict=True)) if place != axis):
        raise w.refused(node, "elements taken from a part", "its operation takes them from tensors that are as long as there are places")
    read = w.main.cast(x, "int32" if x.dtype == "bool" else x.dtype, f"{node.name}/numbers")
    inputs = {"x": read, "indices": places, "axis": w.main.index(axis)}
    elements = w.main.op("gather_along_axis", node.outputs[0], read.dtype, places.shape, inputs)
    w.named(node.outputs[0], w.main.cast(elements, x.dtype, node.outputs[0]))


def _reshape(w: MilWriter, node: Operation) -> None:
    """Add another shape: lengths that are copied are written out, and the only one that a run decides is left to it."""
    name, target = node.inputs
    x, after = w[name], w.dims(node, node.outputs[0])
    stated = w.partly(target) or [None] * len(after)
    zeros = not node.attributes.get("allowzero", 0)
    copied = [axis for axis, length in enumerate(stated) if length == 0 and zeros]
    lengths = [length or other for length, other in zip(stated, after, strict=True)]
    for axis in copied:
        lengths[axis] = x.shape[axis]
    opened = [axis for axis, length in enumerate(lengths) if length is None]
    if len(opened) == 1 and -1 not in lengths:
        lengths[opened[0]] = -1
        opened = []
    if opened:
        sizes = w.main.sizes(x, f"{node.name}/lengths") if set(opened) & set(copied) else None
        parts = []
        for axis, length in enumerate(lengths):
            if length is not None:
                parts.append(w.main.numbers(length))
            else:
                source = sizes if axis in copied and sizes is not None else w[target]
                parts.append(w.main.part(source, 0, axis, axis + 1, f"{node.name}/length"))
        shape = w.main.joined(parts, 0, f"{node.name}/shape")
    else:
        shape = w.main.numbers(*(length or 0 for length in lengths))
    w.named(node.outputs[0], w.main.op("reshape", node.outputs[0], x.dtype, _inferred(x, lengths), {"x": x, "shape": shape}))


def _inferred(x: MilValue, lengths: Sequence[int | None]) -> list[int | None]:
    """Return the lengths of a new shape, with what -1 stands for where it is known."""
    inferred: list[int | None] = [None if length == -1 else length for length in lengths]
    if inferred.count(None) == 1 and None not in x.shape:
        rest = math.prod(length for length in inferred if length is not None)
        total = math.prod(length or 0 for length in x.shape)
        inferred = [total // rest if length is None and rest else length for length in inferred]
    return inferred


def _axes(w: MilWriter, node: Operation, rank: int) -> list[int]:
    return [axis % rank for axis in w.numbers(node.inputs[1]) or ()]


def _squeeze(w: MilWriter, node: Operation) -> None:
    x = w[node.inputs[0]]
    axes = _axes(w, node, x.rank) if len(node.inputs) > 1 else [axis for axis, length in enumerate(x.shape) if length == 1 or x.rank == 1]
    for axis in axes:
        if x.shape[axis] is None:  # an operation leaves out axes that are surely of one element
            x = w.main.part(x, axis, 0, 1, f"{node.name}/first")
    w.named(node.outputs[0], w.main.squeezed(x, axes, node.outputs[0]) if axes else x)


def _unsqueeze(w: MilWriter, node: Operation) -> None:
    x = w[node.inputs[0]]
    axes = w.numbers(node.inputs[1]) or []
    w.named(node.outputs[0], w.main.wide(x, [axis % (x.rank + len(axes)) for axis in axes], node.outputs[0]))


def _slice(w: MilWriter, node: Operation) -> None:
    x, main = w[node.inputs[0]], w.main
    bounds = [w.numbers(name) for name in node.inputs[1:]]
    count = w[node.inputs[1]].shape[0] or 0 if w[node.inputs[1]].shape else 0
    axes = [axis % x.rank for axis in ((bounds[2] if len(bounds) > 2 else None) or range(count))]
    strides = dict(zip(axes, (bounds[3] if len(bounds) > 3 else None) or [1] * len(axes), strict=True))
    begins, ends = bounds[:2]
    if any(step < 0 for step in strides.values()):
        full = begins is not None and ends is not None and set(begins) == {-1} and max(ends) < -_END
        if not full or set(strides.values()) != {-1}:
            raise w.refused(node, "a part that runs backwards", "it is written where it is all of an axis")
        w.named(node.outputs[0], main.each("reverse", x, node.outputs[0], axes=main.numbers(*axes)))
        return
    if begins is None or ends is None:
        _sliced_at_run(w, node, x, axes, strides)
        return
    by_axis = {axis: (begin, end) for axis, begin, end in zip(axes, begins, ends, strict=True)}
    lists: list[list[int]] = [[], []]
    masks: list[list[bool]] = [[], []]
    shape: list[int | None] = []
    for axis, length in enumerate(x.shape):
        begin, end = by_axis.get(axis, (0, _END))
        if length is not None:
            picked = range(length)[begin : end : strides.get(axis, 1)]
            begin, end, size = picked.start, picked.stop, len(picked)
            if not size:
                raise w.refused(node, "a part without elements", "its values have some")
            shape.append(size)
        else:
            shape.append(_size(begin, end, strides.get(axis, 1)))
        opened = end >= _END or end == length
        lists[0].append(begin)
        lists[1].append(0 if opened else end)
        masks[0].append(begin == 0)
        masks[1].append(opened)
    inputs = {"begin": main.numbers(*lists[0]), "end": main.numbers(*lists[1]), "stride": _strides(w, strides, x.rank)}
    inputs |= {"begin_mask": main.truths(masks[0]), "end_mask": main.truths(masks[1])}
    w.named(node.outputs[0], main.op("slice_by_index", node.outputs[0], x.dtype, shape, {"x": x, **inputs}))


def _size(begin: int, end: int, stride: int) -> int | None:
    """Return how many places of an axis of an open length are taken, where both bounds count from one end; else None.

    A sequence that is shorter has fewer, in a program as in its source.
    """
    return None if (begin, end, stride) != (-1, end, 1) or end < _END else 1


def _strides(w: MilWriter, strides: Mapping[int, int], rank: int) -> MilValue:
    return w.main.numbers(*(strides.get(axis, 1) for axis in range(rank)))


def _sliced_at_run(w: MilWriter, node: Operation, x: MilValue, axes: Sequence[int], strides: Mapping[int, int]) -> None:
    """Add a part whose bounds a run decides."""
    lists, masks = [], []
    for name, stated in ((node.inputs[1], w.numbers(node.inputs[1])), (node.inputs[2], w.numbers(node.inputs[2]))):
        by_axis = dict(zip(axes, stated, strict=True)) if stated is not None else {}
        opened = {axis for axis, bound in by_axis.items() if abs(bound) >= _END}
        parts = []
        for axis in range(x.rank):
            if stated is None and axis in axes:
                parts.append(
                    w[name] if len(axes) == 1 else w.main.part(w[name], 0, axes.index(axis), axes.index(axis) + 1, f"{name}/bound")
                )
            else:
                parts.append(w.main.numbers(0 if axis in opened else by_axis.get(axis, 0)))
        lists.append(w.main.joined(parts, 0, f"{node.name}/bounds"))
        masks.append(w.main.truths([axis not in axes or axis in opened for axis in range(x.rank)]))
    inputs = {"begin": lists[0], "end": lists[1], "stride": _strides(w, strides, x.rank), "begin_mask": masks[0], "end_mask": masks[1]}
    shape = [None if axis in axes else length for axis, length in enumerate(x.shape)]
    w.named(node.outputs[0], w.main.op("slice_by_index", node.outputs[0], x.dtype, shape, {"x": x, **inputs}))


def _split(w: MilWriter, node: Operation) -> None:
    x, sizes = w[node.inputs[0]], w.numbers(node.inputs[1])
    axis = node.attributes["axis"] % x.rank
    if sizes is None:
        raise w.refused(node, "parts whose lengths a run decides", "its operation knows them")
    shapes = [tuple(size if place == axis else length for place, length in enumerate(x.shape)) for size in sizes]
    inputs = {"x": x, "split_sizes": w.main.numbers(*sizes), "axis": w.main.index(axis)}
    values = w.main.several("split", node.outputs[0], [(x.dtype, shape) for shape in shapes], inputs)
    for name, value in zip(node.outputs, values, strict=True):
        w.named(name, value)


def _shape(w: MilWriter, node: Operation) -> None:
    x = w[node.inputs[0]]
    first, last, _ = slice(node.attributes.get("start", 0), node.attributes.get("end")).indices(x.rank)
    sizes = w.main.sizes(x, f"{node.name}/lengths")
    w.named(node.outputs[0], sizes if (first, last) == (0, x.rank) else w.main.part(sizes, 0, first, last, node.outputs[0]))


def _filled(w: MilWriter, node: Operation) -> None:
    value = node.attributes.get("value")
    number = np.zeros((), np.float32) if value is None else np.asarray(value.numbers).reshape(())
    stored = w.program.constant("number", number)
    w.named(node.outputs[0], w.main.filled(w[node.inputs[0]], w.dims(node, node.outputs[0]), stored, node.outputs[0]))


def _expand(w: MilWriter, node: Operation) -> None:
    """Add a value spread over lengths: next to zeros of that shape, since no operation spreads by itself."""
    x, target = (w[name] for name in node.inputs)
    dtype = "int32" if x.dtype == "bool" else x.dtype
    read = w.main.cast(x, dtype, f"{node.name}/numbers")
    lengths = tuple(
        length if length is None or length >= 0 else None for length in w.partly(node.inputs[1]) or [None] * (target.shape[0] or 0)
    )
    zeros = w.main.filled(target, lengths, w.main.index(0) if dtype == "int32" else w.main.number(0.0), f"{node.name}/zeros")
    wide = w.main.op("add", node.outputs[0], dtype, spread(x.shape, lengths), {"x": read, "y": zeros})
    w.named(node.outputs[0], w.main.cast(wide, x.dtype, node.outputs[0]))


def _tile(w: MilWriter, node: Operation) -> None:
    x, by = w[node.inputs[0]], w.numbers(node.inputs[1])
    if by is None:
        raise w.refused(node, "repeats that a run decides", "its operation knows them")
    shape = [None if length is None and n != 1 else length and length * n for length, n in zip(x.shape, by, strict=True)]
    w.named(node.outputs[0], w.main.op("tile", node.outputs[0], x.dtype, shape, {"x": x, "reps": w.main.numbers(*by)}))


def _cast(w: MilWriter, node: Operation) -> None:
    w.named(node.outputs[0], w.main.cast(w[node.inputs[0]], dtype_of(np.dtype(node.attributes["to"])), node.outputs[0]))


def _concat(w: MilWriter, node: Operation) -> None:
    w.named(node.outputs[0], w.main.joined([w[name] for name in node.inputs], node.attributes["axis"], node.outputs[0]))


def _transpose(w: MilWriter, node: Operation) -> None:
    w.named(node.outputs[0], w.main.transposed(w[node.inputs[0]], node.attributes["perm"], node.outputs[0]))


AXES: Mapping[str, Rule] = {
    "Cast": _cast, "Concat": _concat, "ConstantOfShape": _filled, "Expand": _expand, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_by_row, "Reshape": _reshape, "Shape": _shape, "Slice": _slice, "Split": _split, "Squeeze": _squeeze,
    "Tile": _tile, "Transpose": _transpose, "Unsqueeze": _unsqueeze,
}  # fmt: skip
"""The operations that are known."""
