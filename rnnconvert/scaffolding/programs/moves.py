"""Operators of ONNX that move numbers or make shapes. Source: onnx/docs/Operators.md and onnx/docs/Changelog.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.graphs.sizes import Dim, Size, broadcast, divided, product
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.loops import step_numbers
from rnnconvert.scaffolding.programs.counting import Op, counted
from rnnconvert.scaffolding.programs.functions import axes_of, axis_of
from rnnconvert.scaffolding.programs.reading import GraphReading, Rule
from rnnconvert.scaffolding.tensors import SourceTensor, written

_MOST = 1 << 16
"""The most whole numbers in a row that are computed as the graph is read."""


def _transpose(r: GraphReading, op: Op) -> SourceTensor:
    x = op[0]
    return r.build.transpose(x, op.values.get("perm") or list(range(x.rank))[::-1])


def _reshape(r: GraphReading, op: Op) -> SourceTensor:
    x = op[0]
    shape = r.lengths(op[1]) if len(op.inputs) > 1 else [int(n) for n in op.values["shape"]]
    if not op.values.get("allowzero"):
        shape = [x.dims[axis] if length == 0 and isinstance(length, int) else length for axis, length in enumerate(shape)]
    return r.build.reshape(x, operations.filled(x.dims, shape))


def _flatten(r: GraphReading, op: Op) -> SourceTensor:
    x, axis = op[0], int(op.values.get("axis", 1))
    axis += x.rank if axis < 0 else 0
    return r.build.reshape(x, (product(x.dims[:axis]), product(x.dims[axis:])))


def _squeeze(r: GraphReading, op: Op) -> SourceTensor:
    x = op[0]
    axes = axes_of(r, op, x)
    if axes is None:
        if any(isinstance(dim, Size) for dim in x.dims):
            raise r.build.refuse("a Squeeze of every axis of length 1, over open axes", "how many there are is decided by a run")
        axes = [axis for axis, dim in enumerate(x.dims) if dim == 1]
    return r.build.squeeze(x, axes)


def _unsqueeze(r: GraphReading, op: Op) -> SourceTensor:
    axes = r.integers(op, "axes", 1)
    if axes is None:
        raise ValueError("no axes")
    rank = op[0].rank + len(axes)
    return r.build.unsqueeze(op[0], [axis % rank for axis in axes])


def _shape(r: GraphReading, op: Op) -> SourceTensor:
    dims = op[0].dims[slice(op.values.get("start", 0), op.values.get("end"))]
    return counted(np.asarray([*dims, None], object)[:-1])


def _size(r: GraphReading, op: Op) -> SourceTensor:
    return counted(np.asarray(product(op[0].dims), object))


def _identity(r: GraphReading, op: Op) -> SourceTensor:
    return op[0]


def _dropout(r: GraphReading, op: Op) -> list[SourceTensor | None]:
    training = op.optional(2)
    if (
        op.has(1)
        or (training is not None and (training.numbers is None or training.numbers.any()))
        or (op.opset < 7 and not op.values.get("is_test", 0))
    ):
        raise r.build.refuse("Dropout in training", "it is random")
    return [op[0]]


def _concat(r: GraphReading, op: Op) -> SourceTensor:
    tensors = [op[number] for number in range(len(op.inputs))]
    return r.build.concatenate(tensors, axis_of(op, op[0], 1))


def _split(r: GraphReading, op: Op) -> list[SourceTensor | None]:
    x, axis = op[0], axis_of(op, op[0], 0)
    count, length = len(op.node.outputs), x.dims[axis]
    sizes = r.integers(op, "split", 1)
    if sizes is None:
        if not isinstance(length, int):
            return _equal_parts(r, x, axis, count)
        step = -(-length // int(op.values.get("num_outputs", count)))
        sizes = [min(step, length - step * n) for n in range(count)]
    if len(sizes) != count or min(sizes) < 0 or (isinstance(length, int) and sum(sizes) != length):
        raise ValueError(f"parts of {sizes} of {length}")
    return [*operations.parts(r.build, x, axis, sizes)]


def _equal_parts(r: GraphReading, x: SourceTensor, axis: int, count: int) -> list[SourceTensor | None]:
    """Return equal parts along an open axis whose length is a multiple of their number."""
    length = divided(x.dims[axis], count)
    if length is None:
        raise r.build.refuse("a Split of an open axis into equal parts", "how long each is is decided by a run")
    rows = r.build.reshape(x, (*x.dims[:axis], count, length, *x.dims[axis + 1 :]))
    return [r.build.select(rows, axis, number) for number in range(count)]


def _slice(r: GraphReading, op: Op) -> SourceTensor:
    x = op[0]
    starts, ends = _bounds(r, op, "starts", 1), _bounds(r, op, "ends", 2)
    axes = r.integers(op, "axes", 3) or list(range(len(starts)))
    steps = r.integers(op, "steps", 4) or [1] * len(starts)
    result = x
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        result = r.build.slice(result, axis % x.rank, start, end, step)
    return result


def _bounds(r: GraphReading, op: Op, key: str, index: int) -> list[Dim]:
    x = op.optional(index)
    return r.lengths(x) if x is not None else [int(n) for n in op.values[key]]


def _gather(r: GraphReading, op: Op) -> SourceTensor:
    x, indices = op[0], op[1]
    axis = axis_of(op, x, 0)
    if indices.numbers is not None and indices.numbers.dtype != object:
        flat = [int(n) for n in indices.numbers.reshape(-1)]
        if indices.rank == 0:
            return r.build.select(x, axis, flat[0])
        if indices.rank == 1 and len(flat) == 1:
            return r.build.unsqueeze(r.build.select(x, axis, flat[0]), [axis])
        length = x.dims[axis]
        if isinstance(length, int) and flat == list(range(length))[::-1] and indices.rank == 1:
            return r.build.flip(x, axis)
    dims = (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])
    return r.build.add(kinds.Gather(axis=axis), [x, indices], dims, name="taken")


def _gather_elements(r: GraphReading, op: Op) -> SourceTensor:
    x, indices = op[0], op[1]
    return r.build.add(kinds.GatherElements(axis=axis_of(op, x, 0)), [x, indices], indices.dims, name="taken")


def _gather_nd(r: GraphReading, op: Op) -> SourceTensor:
    """Take parts by their places along the first axes: rows of these axes in one, by a number each."""
    x, places = op[0], op[1]
    count = places.dims[-1] if places.rank else 0
    if op.values.get("batch_dims") or not isinstance(count, int) or not 0 < count <= x.rank:
        raise r.build.refuse("a GatherND in a batch, or at places of an open number of axes", "no line is known for it")
    row: SourceTensor | None = None
    for axis, length in enumerate(x.dims[:count]):
        many = counted(np.asarray(length, object), places.dtype)
        place = r.build.elementwise("remainder", [r.build.select(places, places.rank - 1, axis), many])  # -1 is the last
        row = place if row is None else r.build.elementwise("add", [r.build.elementwise("multiply", [row, many]), place])
    assert row is not None
    rows = r.build.reshape(x, (product(x.dims[:count]), *x.dims[count:]))
    return r.build.add(kinds.Gather(axis=0), [rows, row], (*places.dims[:-1], *x.dims[count:]), name="taken")


def _reverse_sequence(r: GraphReading, op: Op) -> SourceTensor:
    x, lengths = op[0], op[1]
    time, batch = int(op.values.get("time_axis", 0)), int(op.values.get("batch_axis", 1))
    every = {lengths.filled} if lengths.numbers is None else {*lengths.numbers.reshape(-1).tolist()}
    if every == {x.dims[time]}:
        return r.build.flip(x, time)
    build = r.build
    steps = build.unsqueeze(step_numbers(build, x.dims[time]), [axis for axis in range(x.rank) if axis != time])
    ends = build.unsqueeze(build.cast(lengths, steps.dtype), [axis for axis in range(x.rank) if axis != batch])
    turned = build.elementwise("subtract", [build.elementwise("subtract", [ends, counted(np.asarray(1, object))]), steps])
    counts = build.elementwise("less", [steps, ends], "bool")
    places = build.elementwise("where", [counts, turned, steps], steps.dtype)
    return build.add(kinds.GatherElements(axis=time), [x, build.expand(places, x.dims)], x.dims, name="turned")


def _reverse(r: GraphReading, op: Op) -> SourceTensor:
    """Turn axes around: TensorFlow's ReverseV2, which tf2onnx writes unchanged below operator set 10."""
    x = op[0]
    op.values.get("Tidx")  # the element type of the axes
    for axis in r.constant(op[1], "axes").reshape(-1):
        x = r.build.flip(x, int(axis) % x.rank)
    return x


def _scatter(r: GraphReading, op: Op) -> SourceTensor:
    """Return a tensor a part of which is overwritten: from one place to another along each of its first axes."""
    x, places, values = op[0], op[1], op[2]
    indices = r.constant(places, "places")
    if op.values.get("reduction", "none") != "none" or indices.dtype == object:
        raise r.build.refuse("a ScatterND that adds, or at places that lengths decide", "a part that is overwritten is known here")
    count = indices.shape[-1]
    lengths = x.dims[:count]
    if not all(isinstance(length, int) for length in lengths):
        raise r.build.refuse("a ScatterND over open axes", "its places are for one length alone", r.closing())
    flat = indices.reshape(-1, count)
    flat = np.where(flat < 0, flat + np.asarray(lengths, np.int64), flat)
    first, last = flat.min(0), flat.max(0) + 1
    box = np.stack(np.meshgrid(*[np.arange(a, b) for a, b in zip(first, last, strict=True)], indexing="ij"), -1)
    if not np.array_equal(box.reshape(-1, count), flat):
        raise r.build.refuse("a ScatterND at places with gaps, or in another order", "a part that is overwritten is known here")
    values = r.build.reshape(values, (*(int(size) for size in last - first), *x.dims[count:]))
    return operations.overwritten(r.build, x, values, [(int(a), int(b)) for a, b in zip(first, last, strict=True)])


def _expand(r: GraphReading, op: Op) -> SourceTensor:
    return r.build.expand(op[0], broadcast([op[0].dims, tuple(r.lengths(op[1]))]))


def _tile(r: GraphReading, op: Op) -> SourceTensor:
    x, repeats = op[0], [] if op.optional(1) is None else r.lengths(op[1])
    if any(isinstance(n, Size) for n in repeats) and all(n == 1 or dim == 1 for n, dim in zip(repeats, x.dims, strict=True)):
        return r.build.expand(x, tuple(n if dim == 1 else dim for n, dim in zip(repeats, x.dims, strict=True)))
    return operations.tiled(r.build, x, r.integers(op, "repeats", 1))


def _pad(r: GraphReading, op: Op) -> SourceTensor:
    x, mode = op[0], op.values.get("mode", "constant")
    stated = r.integers(op, "pads", 1)
    if stated is None and op.opset < 2:
        stated = [int(n) for n in op.values["paddings"]]
    axes = [axis % x.rank for axis in (r.integers(op, "axes", 3) or list(range(x.rank)))]
    if stated is None or len(stated) != 2 * len(axes) or mode not in ("constant", "reflect", "edge"):
        raise r.build.refuse(f"a Pad of mode {mode!r}", "constant, reflect and edge are known here")
    number = (
        written(np.float32(op.values.get("value", 0.0)))
        if op.optional(2) is None
        else written(r.constant(op[2], "what is padded with").reshape(())[()])
    )
    pairs = [(0, 0)] * x.rank
    for n, axis in enumerate(axes):
        pairs[axis] = stated[n], stated[n + len(axes)]
    behind = x.rank - next((n for n, pair in enumerate(pairs) if any(pair)), x.rank)
    if mode != "constant" and (min(map(min, pairs)) < 0 or behind > 3 or x.rank > behind + 2):
        raise r.build.refuse(f"a Pad of mode {mode!r} over {behind} of {x.rank} axes", "only the last axes of few are padded so")
    return operations.padded(r.build, x, pairs, mode, number)


def _full(dims: Sequence[Dim], dtype: str, number: float) -> SourceTensor:
    """Return a tensor of one number."""
    return SourceTensor(tuple(dims), dtype, "zeros" if not number else "full", filled=number)


def _constant_of_shape(r: GraphReading, op: Op) -> SourceTensor:
    value = op.values.get("value")
    value = np.zeros(1, np.float32) if value is None else np.asarray(value)
    dims = r.lengths(op[0])
    if value.dtype.kind in "iu" and len(dims) == 1 and isinstance(dims[0], int):
        return counted(np.full(dims[0], value.reshape(())[()].item(), object), str(value.dtype))
    return _full(dims, str(value.dtype), written(value.reshape(())[()]))


def _range(r: GraphReading, op: Op) -> SourceTensor:
    start, stop, step = (r.lengths(op[number])[0] for number in range(3))
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step and abs(stop - start) <= _MOST:
        return counted(np.arange(start, stop, step).astype(object), op[0].dtype)
    if not isinstance(step, int) or step < 1:
        raise r.build.refuse(f"a Range in steps of {step}", "only upwards is known here")
    read: list[Value] = []
    low, high = r.build.lengths([start, stop], read)
    count = (stop - start + (step - 1)) // step
    return r.build.add(kinds.Range(start=low, stop=high, step=step), read, (count,), op[0].dtype, name="steps")


def _triangle(r: GraphReading, op: Op) -> SourceTensor:
    by = int(r.constant(op[1], "a diagonal").reshape(())) if op.optional(1) is not None else 0
    return r.build.add(kinds.Triangle(upper=bool(op.values.get("upper", 1)), diagonal=by), [op[0]], op[0].dims, name="triangle")


def _one_hot(r: GraphReading, op: Op) -> SourceTensor:
    depth, values = int(r.constant(op[1], "a depth").reshape(())), r.constant(op[2], "values")
    if op.values.get("axis", -1) not in (-1, op[0].rank) or values.tolist() != [0, 1]:
        raise r.build.refuse("OneHot of other numbers than 0 and 1, or on another axis than a new last one", "no line is known for it")
    return r.build.add(kinds.OneHot(count=depth), [op[0]], (*op[0].dims, depth), op[2].dtype, name="one_hot")


MOVES: dict[str, Rule] = {
    "Transpose": _transpose, "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Shape": _shape,
    "Size": _size, "Identity": _identity, "Dropout": _dropout, "Concat": _concat, "Split": _split, "Slice": _slice, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterND": _scatter, "Expand": _expand, "Tile": _tile, "Pad": _pad,
    "ConstantOfShape": _constant_of_shape, "Range": _range, "Trilu": _triangle, "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence, "ReverseV2": _reverse,
}  # fmt: skip
"""By their names."""
