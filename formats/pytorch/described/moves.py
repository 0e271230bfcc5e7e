"""The operators of aten that move numbers, as kinds of a description. Source: aten/src/ATen/native/native_functions.yaml."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.formats.pytorch import aten_elements as elements
from rnnconvert.formats.pytorch.aten_operator import (
    AtenOperator,
    BatchSizes,
    BoundCall,
    Move,
    ProgramBuilder,
    ReorderedRows,
    Rule,
    SortedOrder,
    StepList,
    counted,
)
from rnnconvert.formats.pytorch.program.kinds import FILLED, UNBOUND
from rnnconvert.graphs.operators import SAME, Measures
from rnnconvert.graphs.sizes import Dim, Size, broadcast, divided, open_size, product, reaches
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.needs import NeedError
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading


def _transpose(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, order = call.tensor(), list(range(call.tensor().rank))
    dim0, dim1 = call.axis("dim0"), call.axis("dim1")
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return build.transpose(x, order)


def _t(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    return build.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2)) if x.rank > 1 else x


def _movedim(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, moved, places = call.tensor(), call.axes("source"), call.axes("destination")
    order = [n for n in range(x.rank) if n not in moved]
    for axis, where in sorted(zip(moved, places, strict=True), key=lambda pair: pair[1]):
        order.insert(where, axis)
    return build.transpose(x, order)


def _permute(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    axes = call.axes("dims")
    if sorted(axes) != [*range(x.rank)]:
        raise ValueError("not an order of these axes")
    return build.transpose(x, axes)


def lengths(value: Any) -> list[Dim]:
    """Return a list of lengths."""
    return [length if isinstance(length, Size) else int(length) for length in (value if isinstance(value, (list, tuple)) else [value])]


def _reshape(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, shape = call.tensor(), lengths(call("size"))
    return build.reshape(x, operations.filled(x.dims, shape))


def _flatten(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    start, end = call.axis("start_dim", 0), call.axis("end_dim", -1)
    if start > end:
        raise ValueError("axes from a later one to an earlier one")
    return build.reshape(x, (*x.dims[:start], product(x.dims[start : end + 1]), *x.dims[end + 1 :]))


def _unflatten(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, axis = call.tensor(), call.axis()
    return build.reshape(x, (*x.dims[:axis], *operations.filled([x.dims[axis]], lengths(call("sizes"))), *x.dims[axis + 1 :]))


def _squeeze(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, axes = call.tensor(), [] if call("dim") == [] else call.axes()
    if any(isinstance(x.dims[axis], Size) for axis in axes):
        raise build.refuse("a squeeze of an open axis", "whether it has length 1 is decided by a run")
    return build.squeeze(x, [axis for axis in axes if x.dims[axis] == 1])


def _unsqueeze(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    return build.unsqueeze(x, [_new_axis(call, x)])


def _new_axis(call: BoundCall, x: SourceTensor) -> int:
    """Return the place of a new axis of a tensor, counted from the front."""
    axis = call.integer("dim", 0)
    if not -x.rank - 1 <= axis <= x.rank:
        raise ValueError(f"a new axis {axis} of {x.rank}")
    return axis % (x.rank + 1)


def _expand(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, shape = call.tensor(), lengths(call("size"))
    front = len(shape) - x.rank
    if front < 0 or -1 in shape[:front]:
        raise ValueError(f"{x.rank} axes spread over {shape}")
    dims = tuple(x.dims[n - front] if isinstance(size, int) and size == -1 else size for n, size in enumerate(shape))
    return build.expand(x, dims)


def _tensors(call: BoundCall) -> list[SourceTensor]:
    """Return the tensors of a list, at least one."""
    tensors = call("tensors")
    if not isinstance(tensors, list) or not tensors or not all(isinstance(x, SourceTensor) for x in tensors):
        raise ValueError("a list of other than tensors")
    return tensors


def _cat(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    tensors, axis = call("tensors"), call.integer("dim", 0)
    if isinstance(tensors, StepList):
        axis %= tensors.x.rank - 1
        steps = _steps_at(build, tensors, axis)
        return build.reshape(steps, (*steps.dims[:axis], product(steps.dims[axis : axis + 2]), *steps.dims[axis + 2 :]))
    return _concatenated(build, _tensors(call), axis)


def _concatenated(build: ProgramBuilder, tensors: Sequence[SourceTensor], axis: int) -> SourceTensor:
    filled = [x for x in tensors if x.dims != (0,)]  # torch leaves out what is empty, however few axes it has
    tensors = filled or tensors
    rank = tensors[0].rank
    tensors = [x for x in tensors if x.rank != rank or x.dims[axis % rank] != 0] or tensors
    if not -rank <= axis < rank or any(x.rank != rank for x in tensors):
        raise ValueError(f"axis {axis} of {', '.join(str(x.rank) for x in tensors)}")
    return build.concatenate(tensors, axis % rank)


def _stack(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    steps = call("tensors")
    if isinstance(steps, StepList):
        return _steps_at(build, steps, counted(call.integer("dim", 0), steps.x.rank))
    tensors = _tensors(call)
    axis = _new_axis(call, tensors[0])
    return _concatenated(build, [build.unsqueeze(x, [axis]) for x in tensors], axis)


def _side_by_side(axis: int, new: Mapping[int, Sequence[int]]) -> Move:
    """Return the move of tensors behind one another along an axis, or their last one.

    new  the axes that tensors get first, by how many they have
    """

    def move(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
        tensors = [build.unsqueeze(x, new.get(x.rank, ())) for x in _tensors(call)]
        return _concatenated(build, tensors, min(axis, tensors[0].rank - 1))

    return move


def _filled_by_loop(r: ProgramReading, call: BoundCall) -> SourceTensor:
    """Return a tensor after a loop whose steps put values into places of it, one after the other."""
    steps, axis = call("steps"), call.axis()
    length, count = call.tensor().dims[axis], steps.x.dims[0]
    if not reaches(steps.first, 0) or not reaches(length - steps.first - count, 0):
        raise ValueError(f"places from {steps.first} on of an axis of {length}, as many as {count}")
    return _put(r.build, call.tensor(), steps.x, axis, steps.first)


def _put(build: ProgramBuilder, x: SourceTensor, values: SourceTensor, axis: int, first: Dim) -> SourceTensor:
    """Return a tensor with other values from one place of an axis on; the values have this axis in front."""
    length, count = x.dims[axis], values.dims[0]
    around = (*x.dims[:axis], *x.dims[axis + 1 :])
    values = build.expand(build.cast(values, x.dtype), (count, *around))
    order = [*range(1, x.rank)]
    order.insert(axis, 0)
    ends = [build.slice(x, axis, 0, first, 1), build.transpose(values, order), build.slice(x, axis, first + count, length, 1)]
    parts = [part for part, size in zip(ends, (first, count, length - first - count), strict=True) if size != 0]
    return build.concatenate(parts, axis)


def _select_scatter(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, axis, index, value = call.tensor(), call.axis(), call("index"), call.tensor("value")
    length = x.dims[axis]
    if not isinstance(index, (int, Size)):
        raise ValueError("a place that a run decides")
    first = length + index if isinstance(index, int) and index < 0 else index
    if isinstance(length, int) and isinstance(first, int) and 0 <= first < length:
        around = (*x.dims[:axis], *x.dims[axis + 1 :])
        value = build.expand(build.cast(value, x.dtype), around)
        parts = [value if place == first else build.select(x, axis, place) for place in range(length)]
        order = [*range(1, x.rank)]
        order.insert(axis, 0)
        return build.transpose(build.stacked(parts), order)
    if isinstance(index, int):
        build.reaches(length, index + 1 if index >= 0 else -index)
    elif not reaches(index, 0) or not reaches(length - index, 1):
        raise ValueError(f"place {index} of an axis of {length}")
    return _put(build, x, build.unsqueeze(value, [0]), axis, first)


def _steps_at(build: ProgramBuilder, steps: StepList, axis: int) -> SourceTensor:
    """Return the outputs of a loop's steps, with the time at an axis."""
    order = [*range(1, steps.x.rank)]
    order.insert(axis, 0)
    return build.transpose(steps.x, order)


def _fixed(x: SourceTensor, axis: int) -> int:
    length = x.dims[axis]
    if not isinstance(length, int):
        raise ValueError("an open axis cut into parts")
    return length


def _chunk(build: ProgramBuilder, call: BoundCall) -> list[SourceTensor]:
    return _chunks(build, call.tensor(), call.axis("dim", 0), int(call("chunks")))


def _chunks(build: ProgramBuilder, x: SourceTensor, axis: int, count: int) -> list[SourceTensor]:
    length = x.dims[axis]
    if isinstance(length, Size) and count > 1:
        part = divided(length, count)
        if part is None and length.symbol:  # its parts may be asked for by weights: the axis is as many of them
            raise NeedError(length.symbol, open_size(f"{length.symbol} / {count}") * count)
        if part is not None:
            return operations.parts(build, x, axis, [part] * count)
    step = -(-_fixed(x, axis) // count)
    return operations.parts(build, x, axis, [min(step, _fixed(x, axis) - start) for start in range(0, _fixed(x, axis), step)])


def _glu(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, gate = _chunks(build, call.tensor(), call.axis("dim", -1), 2)
    return build.elementwise("multiply", [x, operations.activation(build, gate, "sigmoid")])


def _split(build: ProgramBuilder, call: BoundCall) -> list[SourceTensor] | StepList:
    x, axis, sizes = call.tensor(), call.axis("dim", 0), call("split_sizes")
    count = call.operation.attributes.get("count")
    if sizes == 1 and isinstance(count, int):  # the code takes so many, and no other number
        build.need(x.dims[axis], count)
    elif sizes == 1 and isinstance(x.dims[axis], Size):
        order = [axis, *(other for other in range(x.rank) if other != axis)]
        return StepList(build.unsqueeze(build.transpose(x, order), [axis + 1]))
    if isinstance(sizes, int):
        length = _fixed(x, axis)
        sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
    return operations.parts(build, x, axis, [int(size) for size in sizes])


def _tensor_split(build: ProgramBuilder, call: BoundCall) -> list[SourceTensor]:
    x, axis, stated = call.tensor(), call.axis("dim", 0), call("indices_or_sections")
    length = _fixed(x, axis)
    if isinstance(stated, int):
        if not 0 < stated <= 1 << 16:
            raise ValueError(f"{stated} parts")
        return operations.parts(build, x, axis, [length // stated + (place < length % stated) for place in range(stated)])
    ends = [0, *(min(max(end + length if end < 0 else end, 0), length) for end in call.integers("indices_or_sections")), length]
    sizes = [end - start for start, end in itertools.pairwise(ends)]
    if min(sizes) < 0:
        raise ValueError(f"parts that end at {stated}")
    return operations.parts(build, x, axis, sizes)


def _unbound(build: ProgramBuilder, call: BoundCall) -> StepList:
    x, axis = call.tensor(), call.axis("dim", 0)
    return StepList(build.transpose(x, [axis, *(other for other in range(x.rank) if other != axis)]))


def _unbind(build: ProgramBuilder, call: BoundCall) -> list[SourceTensor] | StepList:
    x, axis, count = call.tensor(), call.axis("dim", 0), call.operation.attributes.get("count")
    if isinstance(count, int):  # the code takes so many, and no other number
        build.need(x.dims[axis], count)
    elif isinstance(x.dims[axis], Size):
        return _unbound(build, call)
    return [build.select(x, axis, index) for index in range(_fixed(x, axis))]


def _select(build: ProgramBuilder, call: BoundCall) -> Any:
    steps, index = call("x"), call("index")
    if isinstance(steps, BatchSizes) and call.integer("dim") == index == 0:
        return steps.steps.x.dims[0]
    x, axis = (steps.x, 0) if isinstance(steps, StepList) else (call.tensor(), call.axis())
    if isinstance(index, SourceTensor) and not index.dims and index.dtype == "int64":
        return build.add(kinds.Gather(axis=axis), [x, index], (*x.dims[:axis], *x.dims[axis + 1 :]), name="taken")
    if not isinstance(index, (int, Size)):
        raise ValueError("an index that a run decides")
    if isinstance(index, int):
        build.reaches(x.dims[axis], index + 1 if index >= 0 else -index)
    return build.select(x, axis, index)


def _slice(build: ProgramBuilder, call: BoundCall) -> SourceTensor | StepList:
    steps = call("x")
    x, axis = (steps.x, 0) if isinstance(steps, StepList) else (call.tensor(), call.axis("dim", 0))
    start, end, step = call("start", 0), call("end", 1 << 62), call("step", 1)
    if not all(isinstance(bound, (int, Size)) for bound in (start, end, step)):
        raise ValueError("bounds that a run decides")
    if isinstance(step, Size):
        raise ValueError(f"steps of {step}, which a run decides")
    if isinstance(x.dims[axis], Size) and isinstance(start, int) and step == 1 and 0 < start == end - 1:
        build.reaches(x.dims[axis], end)  # of a shorter one nothing is taken, and what reads it asks for one
        x = build.unsqueeze(build.select(x, axis, start), [axis])
    else:
        x = build.slice(x, axis, start, end, step)
    return StepList(x) if isinstance(steps, StepList) else x


def _narrow(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, axis, start, count = call.tensor(), call.axis(), call("start"), call("length")
    if not all(isinstance(bound, (int, Size)) for bound in (start, count)):
        raise ValueError("bounds that a run decides")
    start = x.dims[axis] + start if isinstance(start, int) and start < 0 else start
    end = start + count
    if isinstance(end, int):
        build.reaches(x.dims[axis], end)
    if not reaches(start, 0) or (isinstance(x.dims[axis], int) and not reaches(x.dims[axis] - end, 0)):
        raise ValueError(f"{count} places from {start} on of {x.dims[axis]}")
    return build.slice(x, axis, start, end, 1)


def _flip(build: ProgramBuilder, call: BoundCall) -> SourceTensor | StepList:
    steps = call("x")
    if isinstance(steps, StepList):
        call.note_read("dims")
        return StepList(build.flip(steps.x, 0))
    x = call.tensor()
    for axis in call.axes("dims") if call("dims") else ():
        x = build.flip(x, axis)
    return x


def _flip_at(axis: int) -> Move:
    return lambda build, call: build.flip(call.tensor(), counted(axis, call.tensor().rank))


def _roll(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, shifts, stated = call.tensor(), call.integers("shifts"), call("dims")
    axes = [] if stated in (None, []) else call.integers("dims")
    if len(shifts) != (len(axes) or 1):
        raise ValueError(f"{len(shifts)} shifts of {len(axes)} axes")
    if not axes:
        return build.reshape(_rolled(build, build.reshape(x, (product(x.dims),)), shifts[0], 0), x.dims)
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(build, x, shift, counted(axis, x.rank))
    return x


def _rolled(build: ProgramBuilder, x: SourceTensor, shift: int, axis: int) -> SourceTensor:
    """Return a tensor whose last places along an axis come first."""
    length = x.dims[axis]
    if not shift or length == 0:
        return x
    build.reaches(length, abs(shift) + 1)
    low = -shift % length if isinstance(length, int) else -shift if shift < 0 else length - shift
    ends = [build.slice(x, axis, low, length, 1), build.slice(x, axis, 0, low, 1)]
    return build.concatenate(ends, axis)


def _rot90(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, turns = call.tensor(), call.integer("k", 1) % 4
    first, other = (counted(axis, x.rank) for axis in (call.integers("dims") if call("dims") is not None else (0, 1)))
    order = [*range(x.rank)]
    order[first], order[other] = other, first
    x = build.flip(x, {1: other, 2: first}.get(turns, first)) if turns else x
    x = build.flip(x, other) if turns == 2 else x
    return build.transpose(x, order) if turns in (1, 3) else x


def _repeat_interleave(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, by = call.tensor(), call("repeats")
    if call("dim") is None:
        x, axis = build.reshape(x, (product(x.dims),)), 0
    else:
        axis = call.axis()
    if isinstance(by, (list, SourceTensor)):
        places = np.repeat(np.arange(_fixed(x, axis)), np.asarray(by.numbers if isinstance(by, SourceTensor) else by, np.int64))
        return _gathered(build, x, axis, SourceTensor(places.shape, "int64", "places", numbers=places))
    if not isinstance(by, (int, Size)):
        raise ValueError("repeats that a run decides")
    spread = build.expand(build.unsqueeze(x, [axis + 1]), (*x.dims[: axis + 1], by, *x.dims[axis + 1 :]))
    return build.reshape(spread, (*x.dims[:axis], x.dims[axis] * by, *x.dims[axis + 1 :]))


def _gathered(build: ProgramBuilder, x: SourceTensor, axis: int, index: SourceTensor) -> SourceTensor:
    """Return a tensor at places along an axis, whose own axes stand in its stead."""
    if isinstance(index, SortedOrder):
        return _reordered(x, axis, index)
    return build.add(kinds.Gather(axis=axis), [x, index], (*x.dims[:axis], *index.dims, *x.dims[axis + 1 :]), name="taken")


def _index_select(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    return _gathered(build, call.tensor(), call.axis(), _places(build, call.tensor("index")))


def _reordered(x: SourceTensor, axis: int, order: SortedOrder) -> SourceTensor:
    """Return the rows of a tensor in an order; those that are put back where they were are the rows themselves."""
    if isinstance(x, ReorderedRows) and x.is_by(order.inverse(), axis):
        return x.rows
    return ReorderedRows(x.dims, x.dtype, x.name, rows=x, axis=axis, order=order)


def _places(build: ProgramBuilder, index: SourceTensor) -> SourceTensor:
    """Return an index by whole numbers; truths that are known are the places that they are at.

    Raises NeedError for an input of a file that states no element types, ValueError for other numbers.
    """
    word = f"type of {index.name}"
    if index.dtype == "float32" and word not in build.needs:
        raise NeedError(word, "int64")
    if index.dtype == "bool" and index.numbers is not None and index.rank == 1:
        numbers = np.flatnonzero(index.numbers)
        return SourceTensor(numbers.shape, "int64", index.name, numbers=numbers)
    if index.dtype not in ("int32", "int64"):
        raise ValueError(f"places of {index.dtype}")
    return index


def _gather(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, axis, index = call.tensor(), call.axis(), _places(build, call.tensor("index"))
    if index.rank != x.rank:
        raise ValueError(f"places of {index.rank} axes in a tensor of {x.rank}")
    for other, (length, count) in enumerate(zip(x.dims, index.dims, strict=True)):
        if other != axis and length != count:
            x = build.slice(x, other, 0, count, 1)
    return build.add(kinds.GatherElements(axis=axis), [x, index], index.dims, name="taken")


def _indexed(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    """Return a tensor at places of axes side by side, one for each place of the indices, which are spread over one another."""
    x, stated = call.tensor(), call("indices")
    if not isinstance(stated, list) or len(stated) > x.rank:
        raise ValueError("indices of other axes")
    axes = [axis for axis, index in enumerate(stated) if index is not None]
    if not axes:
        return x
    if axes != [*range(axes[0], axes[-1] + 1)]:  # torch moves these axes to the front
        raise build.refuse("index by several axes that are apart", "the axes of what it gives stand elsewhere")
    if not all(isinstance(stated[axis], SourceTensor) for axis in axes):
        raise ValueError("indices that are not tensors")
    first, indices = axes[0], [_places(build, stated[axis]) for axis in axes]
    if len(indices) == 1:
        return _gathered(build, x, first, indices[0])
    lead = broadcast([index.dims for index in indices])
    lengths_left = x.dims[axes[1] :]
    indices = [build.expand(index, lead) for index in indices]
    x, place = _gathered(build, x, first, indices[0]), first + len(lead)
    for index in indices[1:]:
        length, lengths_left = lengths_left[0], lengths_left[1:]
        around = [*range(first), *range(place, place + 1 + len(lengths_left))]
        index = build.unsqueeze(_from_the_front(build, index, length), around)
        index = build.expand(index, (*x.dims[:place], 1, *lengths_left))
        gathered = build.add(kinds.GatherElements(axis=place), [x, index], index.dims, name="taken")
        x = build.squeeze(gathered, [place])
    return x


def _from_the_front(build: ProgramBuilder, index: SourceTensor, length: Dim) -> SourceTensor:
    """Return places of an axis counted from its front."""
    if index.numbers is not None and index.numbers.dtype != object and (index.numbers >= 0).all():
        return index
    zero, whole_length = (SourceTensor((), index.dtype, "number", numbers=np.asarray(n, object)) for n in (0, length))
    behind = build.elementwise("add", [index, whole_length])
    return build.elementwise("where", [build.elementwise("less", [index, zero], "bool"), behind, index], index.dtype)


def _tile(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    by = lengths(call("dims"))
    return _repeated(build, call.tensor(), [*[1] * (call.tensor().rank - len(by)), *by])


def _repeat(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    return _repeated(build, call.tensor(), lengths(call("repeats")))


def _repeated(build: ProgramBuilder, x: SourceTensor, by: Sequence[Dim]) -> SourceTensor:
    x = build.unsqueeze(x, list(range(len(by) - x.rank)))
    if any(isinstance(n, Size) for n in by):  # an axis of length 1 that is spread
        if any(n != 1 and dim != 1 for n, dim in zip(by, x.dims, strict=True)):
            raise ValueError("axes repeated as often as a run decides")
        return build.expand(x, tuple(dim if n == 1 else n for n, dim in zip(by, x.dims, strict=True)))
    return operations.tiled(build, x, [n for n in by if isinstance(n, int)])


def _pad(build: ProgramBuilder, call: BoundCall) -> SourceTensor:
    x, flat, mode, value = call.tensor(), call("pad"), call("mode", "constant"), call("value", 0.0)
    pairs = [(0, 0)] * (x.rank - len(flat) // 2) + list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    if mode not in ("constant", "reflect", "replicate"):
        raise ValueError(f"a padding {mode!r}")
    return operations.padded(build, x, pairs, "edge" if mode == "replicate" else mode, value)


def _size(r: ProgramReading, call: BoundCall) -> Any:
    if isinstance(call("x"), BatchSizes) and call.integer("dim", 0) == 0:
        return call("x").steps.longest
    x = call.tensor()
    lengths_read = [*x.dims] if call("dim") is None else [x.dims[call.axis()]]
    r.reads_fixed_length |= not x.stored and any(isinstance(length, int) for length in lengths_read)
    return lengths_read if call("dim") is None else lengths_read[0]


def _filled(value: float | None) -> Rule:
    """Return the rule of what makes a tensor of one number, None for that of the call; a size that is not stated is that of a tensor."""

    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        dtype, number, x = call("dtype"), call("fill_value") if value is None else value, call("x")
        if not isinstance(number, (int, float)):
            raise ValueError(f"a tensor filled with {number!r}")
        by_default = "float32" if value is not None or isinstance(number, float) else "bool" if isinstance(number, bool) else "int64"
        by_default = x.dtype if isinstance(x, SourceTensor) else by_default
        dims = call.tensor().dims if call("size") is None else tuple(lengths(call("size")))
        return SourceTensor(dims, str(dtype) if isinstance(dtype, np.dtype) else by_default, "zeros", filled=number)

    return rule


def _arange(r: ProgramReading, call: BoundCall) -> SourceTensor:
    ends = [call(word) for word in ("x", "stop", "step")]
    start, stop = (0, ends[0]) if ends[1] is None else ends[:2]
    if not all(isinstance(end, (int, Size)) for end in (start, stop)) or ends[2] not in (None, 1):
        raise ValueError("arange of other than whole numbers")
    read: list[Value] = []
    low, high = r.build.lengths([start, stop], read)
    x = r.build.add(kinds.Range(start=low, stop=high, step=1), read, (stop - start,), "int64", name="steps")
    return r.build.cast(x, str(call("dtype"))) if isinstance(call("dtype"), np.dtype) else x


def _moves(parameters: str, move: Move, data: tuple[int, ...] | None = (0,), fresh: bool = False, counted: bool = False) -> AtenOperator:
    """Return an operator that moves numbers, described and between layers by one function.

    data     which arguments have elements to move; None for all
    fresh    whether what it gives shares no elements with what it reads
    counted  whether it gives a list
    """
    return AtenOperator(parameters, lambda r, call: move(r.build, call), elements.moving(parameters, move, data, counted), not fresh)


def _is(fresh: bool = False) -> AtenOperator:
    """Return the operator that gives what it reads, or a copy of it."""
    return AtenOperator("x memory_format", lambda r, call: call("x"), SAME, not fresh)


_VIEWS = "contiguous detach alias lift lift_fresh requires_grad cpu cuda same resolve_conj resolve_neg positive"
_TRANSPOSE, _MOVEDIM, _RESHAPE = (_moves("x dim0 dim1", _transpose), _moves("x source destination", _movedim), _moves("x size", _reshape))
_CAT, _CHUNK = _moves("tensors* dim", _cat, None, fresh=True), _moves("x chunks dim", _chunk, counted=True)
_SPLIT, _TENSOR_SPLIT = (_moves(f"x {word} dim", move, counted=True) for word, move in (
    ("split_sizes", _split), ("indices_or_sections", _tensor_split)))  # fmt: skip
_UNBIND = _moves("x dim", _unbind, counted=True)
MOVES: dict[str, AtenOperator] = {
    **dict.fromkeys(_VIEWS.split(), _is()),
    **dict.fromkeys(("clone", "lift_fresh_copy"), _is(fresh=True)),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _TRANSPOSE),
    **dict.fromkeys(("movedim", "moveaxis"), _MOVEDIM),
    **dict.fromkeys(("mT", "mH", "matrix_H", "adjoint"), _moves("x", _t)),
    **dict.fromkeys(("reshape", "view", "_unsafe_view", "view_copy"), _RESHAPE),
    **dict.fromkeys(
        ("view_as", "reshape_as"), _moves("x other", lambda build, call: build.reshape(call.tensor(), call.tensor("other").dims), (0, 1))
    ),
    **dict.fromkeys(("cat", "concat", "concatenate"), _CAT),
    **dict.fromkeys(("chunk", "unsafe_chunk"), _CHUNK),
    **dict.fromkeys(("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"), _SPLIT),
    **dict.fromkeys(("tensor_split", "unsafe_tensor_split"), _TENSOR_SPLIT),
    **dict.fromkeys(("unbind", "unsafe_unbind"), _UNBIND),
    "t": _moves("x", _t),
    "numpy_T": _moves("x", lambda build, call: build.transpose(call.tensor(), range(call.tensor().rank)[::-1])),
    "permute": _moves("x dims", _permute),
    "flatten": _moves("x start_dim end_dim", _flatten),
    "unflatten": _moves("x dim sizes", _unflatten),
    "ravel": _moves("x", lambda build, call: build.reshape(call.tensor(), (product(call.tensor().dims),))),
    "squeeze": _moves("x dim", _squeeze),
    "unsqueeze": _moves("x dim", _unsqueeze),
    **dict.fromkeys(("expand", "broadcast_to"), _moves("x size implicit", _expand)),
    "expand_as": _moves("x other", lambda build, call: build.expand(call.tensor(), call.tensor("other").dims), (0, 1)),
    "stack": _moves("tensors* dim", _stack, None, fresh=True),
    "hstack": _moves("tensors*", _side_by_side(1, {0: [0]}), None, fresh=True),
    "vstack": _moves("tensors*", _side_by_side(0, {0: [0, 1], 1: [0]}), None, fresh=True),
    "dstack": _moves("tensors*", _side_by_side(2, {0: [0, 1, 2], 1: [0, 2], 2: [2]}), None, fresh=True),
    "column_stack": _moves("tensors*", _side_by_side(1, {0: [0, 1], 1: [1]}), None, fresh=True),
    "select": _moves("x dim index", _select),
    "slice": _moves("x dim start end step", _slice),
    "narrow": _moves("x dim start length", _narrow),
    "index_select": _moves("x dim index", _index_select, fresh=True),
    "gather": _moves("x dim index sparse_grad", _gather, fresh=True),
    "index": _moves("x indices*", _indexed, fresh=True),
    "flip": _moves("x dims", _flip, fresh=True),
    "fliplr": _moves("x", _flip_at(1), fresh=True),
    "flipud": _moves("x", _flip_at(0), fresh=True),
    "roll": _moves("x shifts dims", _roll, fresh=True),
    "rot90": _moves("x k dims", _rot90, fresh=True),
    "repeat": _moves("x repeats", _repeat, fresh=True),
    "tile": _moves("x dims", _tile, fresh=True),
    "repeat_interleave": _moves("x repeats dim output_size", _repeat_interleave, fresh=True),
    "pad": _moves("x pad mode value", _pad, fresh=True),
    "constant_pad_nd": _moves("x pad value", _pad, fresh=True),
    "glu": AtenOperator("x dim", lambda r, call: _glu(r.build, call)),
    "select_scatter": AtenOperator("x value dim index", lambda r, call: _select_scatter(r.build, call)),
    UNBOUND: AtenOperator("x dim", lambda r, call: _unbound(r.build, call), shares=True),
    FILLED: AtenOperator("x steps dim", _filled_by_loop, shares=True),
    **dict.fromkeys(("zeros", "empty"), AtenOperator("size dtype", _filled(0))),
    "ones": AtenOperator("size dtype", _filled(1)),
    "full": AtenOperator("size fill_value dtype", _filled(None)),
    "new_zeros": AtenOperator("x size dtype", _filled(0)),
    "new_ones": AtenOperator("x size dtype", _filled(1)),
    "new_full": AtenOperator("x size fill_value dtype", _filled(None)),
    **dict.fromkeys(("zeros_like", "empty_like"), AtenOperator("x dtype", _filled(0))),
    "ones_like": AtenOperator("x dtype", _filled(1)),
    "full_like": AtenOperator("x fill_value dtype", _filled(None)),
    "arange": AtenOperator("x stop step dtype", _arange),
    "size": AtenOperator("x dim", _size, Measures(elements.measured)),
}
"""Operators that move numbers, and operators that make tensors of numbers."""
