"""The operators of aten that move numbers, as kinds of a description. Source: aten/src/ATen/native/native_functions.yaml."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.formats.pytorch.described.loops import StepList
from rnnconvert.formats.pytorch.described.reading import BoundCall, ProgramReading, Rule
from rnnconvert.formats.pytorch.program.program import FILLED
from rnnconvert.graphs.sizes import Dim, Size, divided, open_size, product, reaches
from rnnconvert.scaffolding import operations
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.needs import NeedError
from rnnconvert.scaffolding.tensors import SourceTensor


def _transpose(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, order = call.tensor(), list(range(call.tensor().rank))
    first, two = call.axis("dim0"), call.axis("dim1")
    order[first], order[two] = order[two], order[first]
    return r.build.transpose(x, order)


def _t(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    return r.build.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2)) if x.rank > 1 else x


def _movedim(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, (source, place) = call.tensor(), (call("source"), call("destination"))
    moved, places = ([n % x.rank for n in (axes if isinstance(axes, list) else [axes])] for axes in (source, place))
    order = [n for n in range(x.rank) if n not in moved]
    for axis, where in sorted(zip(moved, places, strict=True), key=lambda pair: pair[1]):
        order.insert(where, axis)
    return r.build.transpose(x, order)


def _permute(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    axes = [axis % x.rank for axis in call("dims")]
    if sorted(axes) != [*range(x.rank)]:
        raise ValueError("not an order of these axes")
    return r.build.transpose(x, axes)


def lengths(value: Any) -> list[Dim]:
    """Return a list of lengths."""
    return [length if isinstance(length, Size) else int(length) for length in (value if isinstance(value, (list, tuple)) else [value])]


def _reshape(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, shape = call.tensor(), lengths(call("size"))
    return r.build.reshape(x, operations.filled(x.dims, shape))


def _flatten(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    start, end = call.axis("start_dim", 0), call.axis("end_dim", -1)
    return r.build.reshape(x, (*x.dims[:start], product(x.dims[start : end + 1]), *x.dims[end + 1 :]))


def _unflatten(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, axis = call.tensor(), call.axis()
    return r.build.reshape(x, (*x.dims[:axis], *operations.filled([x.dims[axis]], lengths(call("sizes"))), *x.dims[axis + 1 :]))


def _squeeze(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, stated = call.tensor(), call("dim")
    axes = range(x.rank) if stated is None else [axis % x.rank for axis in (stated if isinstance(stated, list) else [stated])]
    if any(isinstance(x.dims[axis], Size) for axis in axes):
        raise r.build.refuse(
            "a squeeze of an open axis",
            "whether it has length 1 is decided by a run. A program of torch.export (.pt2) states its lengths: export that",
        )
    return r.build.squeeze(x, [axis for axis in axes if x.dims[axis] == 1])


def _unsqueeze(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    return r.build.unsqueeze(x, [call("dim") % (x.rank + 1)])


def _expand(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, shape = call.tensor(), lengths(call("size"))
    front = len(shape) - x.rank
    dims = tuple(x.dims[n - front] if isinstance(size, int) and size == -1 else size for n, size in enumerate(shape))
    return r.build.expand(x, dims)


def _cat(r: ProgramReading, call: BoundCall) -> SourceTensor:
    tensors = call("tensors")
    if isinstance(tensors, StepList):
        axis = call("dim", 0) % (tensors.x.rank - 1)
        steps = _steps_at(r, tensors, axis)
        return r.build.reshape(steps, (*steps.dims[:axis], product(steps.dims[axis : axis + 2]), *steps.dims[axis + 2 :]))
    if not all(isinstance(x, SourceTensor) for x in tensors):
        raise ValueError("a list of other than tensors")
    return r.build.concatenate(tensors, call("dim", 0) % tensors[0].rank)


def _stack(r: ProgramReading, call: BoundCall) -> SourceTensor:
    tensors = call("tensors")
    if isinstance(tensors, StepList):
        return _steps_at(r, tensors, call("dim", 0) % tensors.x.rank)
    axis = call("dim", 0) % (tensors[0].rank + 1)
    return r.build.concatenate([r.build.unsqueeze(x, [axis]) for x in tensors], axis)


def _filled_by_loop(r: ProgramReading, call: BoundCall) -> SourceTensor:
    """Return a tensor after a loop whose steps put values into places of it, one after the other."""
    steps, axis = call("steps"), call.axis()
    length, count = call.tensor().dims[axis], steps.x.dims[0]
    if not reaches(steps.first, 0) or not reaches(length - steps.first - count, 0):
        raise ValueError(f"places from {steps.first} on of an axis of {length}, as many as {count}")
    return _put(r, call.tensor(), steps.x, axis, steps.first)


def _put(r: ProgramReading, x: SourceTensor, values: SourceTensor, axis: int, first: Dim) -> SourceTensor:
    """Return a tensor with other values from one place of an axis on; the values have this axis in front."""
    length, count = x.dims[axis], values.dims[0]
    around = (*x.dims[:axis], *x.dims[axis + 1 :])
    values = r.build.expand(r.build.cast(values, x.dtype), (count, *around))
    order = [*range(1, x.rank)]
    order.insert(axis, 0)
    ends = [r.build.slice(x, axis, 0, first, 1), r.build.transpose(values, order), r.build.slice(x, axis, first + count, length, 1)]
    parts = [part for part, size in zip(ends, (first, count, length - first - count), strict=True) if size != 0]
    return r.build.concatenate(parts, axis)


def _select_scatter(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, axis, index, value = call.tensor(), call.axis(), call("index"), call.tensor("value")
    length = x.dims[axis]
    if not isinstance(index, (int, Size)):
        raise ValueError("a place that a run decides")
    first = length + index if isinstance(index, int) and index < 0 else index
    if isinstance(length, int) and isinstance(first, int) and 0 <= first < length:
        around = (*x.dims[:axis], *x.dims[axis + 1 :])
        value = r.build.expand(r.build.cast(value, x.dtype), around)
        parts = [value if place == first else r.build.select(x, axis, place) for place in range(length)]
        order = [*range(1, x.rank)]
        order.insert(axis, 0)
        return r.build.transpose(r.build.stacked(parts), order)
    if isinstance(index, int):
        r.reaches(length, index + 1 if index >= 0 else -index)
    elif not reaches(index, 0) or not reaches(length - index, 1):
        raise ValueError(f"place {index} of an axis of {length}")
    return _put(r, x, r.build.unsqueeze(value, [0]), axis, first)


def _steps_at(r: ProgramReading, steps: StepList, axis: int) -> SourceTensor:
    """Return what the steps of a loop gave, with the time at an axis."""
    order = [*range(1, steps.x.rank)]
    order.insert(axis, 0)
    return r.build.transpose(steps.x, order)


def _fixed(x: SourceTensor, axis: int) -> int:
    length = x.dims[axis]
    if not isinstance(length, int):
        raise ValueError("an open axis cut into parts")
    return length


def _chunk(r: ProgramReading, call: BoundCall) -> list[SourceTensor]:
    return _chunks(r, call.tensor(), call.axis("dim", 0), int(call("chunks")))


def _chunks(r: ProgramReading, x: SourceTensor, axis: int, count: int) -> list[SourceTensor]:
    length = x.dims[axis]
    if isinstance(length, Size) and count > 1:
        part = divided(length, count)
        if part is None and length.symbol:  # its parts may be asked for by weights: the axis is as many of them
            raise NeedError(length.symbol, open_size(f"{length.symbol} / {count}") * count)
        if part is not None:
            return operations.parts(r.build, x, axis, [part] * count)
    step = -(-_fixed(x, axis) // count)
    return operations.parts(r.build, x, axis, [min(step, _fixed(x, axis) - start) for start in range(0, _fixed(x, axis), step)])


def _glu(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, gate = _chunks(r, call.tensor(), call.axis("dim", -1), 2)
    return r.build.elementwise("multiply", [x, operations.activation(r.build, gate, "sigmoid")])


def _split(r: ProgramReading, call: BoundCall) -> list[SourceTensor]:
    x, axis, sizes = call.tensor(), call.axis("dim", 0), call("split_sizes")
    if isinstance(sizes, int):
        length = _fixed(x, axis)
        sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
    return operations.parts(r.build, x, axis, [int(size) for size in sizes])


def _unbind(r: ProgramReading, call: BoundCall) -> list[SourceTensor]:
    x, axis, count = call.tensor(), call.axis("dim", 0), call.operation.attributes.get("count")
    if isinstance(count, int):  # the code takes so many, and no other number
        r.build.need(x.dims[axis], count)
    return [r.build.select(x, axis, index) for index in range(_fixed(x, axis))]


def _select(r: ProgramReading, call: BoundCall) -> SourceTensor:
    steps, index = call("x"), call("index")
    x, axis = (steps.x, 0) if isinstance(steps, StepList) else (call.tensor(), call.axis())
    if isinstance(index, SourceTensor) and not index.dims and index.dtype == "int64":
        return r.build.add("gather", [x, index], (*x.dims[:axis], *x.dims[axis + 1 :]), axis=axis, name="taken")
    if not isinstance(index, (int, Size)):
        raise ValueError("an index that a run decides")
    if isinstance(index, int):
        r.reaches(x.dims[axis], index + 1 if index >= 0 else -index)
    return r.build.select(x, axis, index)


def _slice(r: ProgramReading, call: BoundCall) -> SourceTensor | StepList:
    steps = call("x")
    x, axis = (steps.x, 0) if isinstance(steps, StepList) else (call.tensor(), call.axis("dim", 0))
    start, end, step = call("start", 0), call("end", 1 << 62), call("step", 1)
    if not all(isinstance(bound, (int, Size)) for bound in (start, end, step)):
        raise ValueError("bounds that a run decides")
    if isinstance(step, Size):
        raise ValueError(f"steps of {step}, which a run decides")
    x = r.build.slice(x, axis, start, end, step)
    return StepList(x) if isinstance(steps, StepList) else x


def _narrow(r: ProgramReading, call: BoundCall) -> SourceTensor:
    return r.build.slice(call.tensor(), call.axis(), call("start"), call("start") + call("length"), 1)


def _flip(r: ProgramReading, call: BoundCall) -> SourceTensor | StepList:
    steps = call("x")
    if isinstance(steps, StepList):
        return StepList(r.build.flip(steps.x, 0))
    x = call.tensor()
    for axis in call("dims"):
        x = r.build.flip(x, axis % x.rank)
    return x


def _repeat(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, by = call.tensor(), lengths(call("repeats"))
    x = r.build.unsqueeze(x, list(range(len(by) - x.rank)))
    if any(isinstance(n, Size) for n in by):  # an axis of length 1 that is spread
        if any(n != 1 and dim != 1 for n, dim in zip(by, x.dims, strict=True)):
            raise ValueError("axes repeated as often as a run decides")
        return r.build.expand(x, tuple(dim if n == 1 else n for n, dim in zip(by, x.dims, strict=True)))
    return operations.tiled(r.build, x, [n for n in by if isinstance(n, int)])


def _pad(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, flat, mode, value = call.tensor(), call("pad"), call("mode", "constant"), call("value", 0.0)
    mode = mode if isinstance(mode, str) else "constant"
    pairs = [(0, 0)] * (x.rank - len(flat) // 2) + list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    if mode not in ("constant", "reflect", "replicate"):
        raise ValueError(f"a padding {mode!r}")
    return operations.padded(r.build, x, pairs, "edge" if mode == "replicate" else mode, value)


def _size(r: ProgramReading, call: BoundCall) -> Any:
    x = call.tensor()
    lengths_read = [*x.dims] if call("dim") is None else [x.dims[call.axis()]]
    r.reads_fixed_length |= not x.stored and any(isinstance(length, int) for length in lengths_read)
    return lengths_read if call("dim") is None else lengths_read[0]


def _filled(value: float | None) -> Rule:
    """Return the rule of what makes a tensor of one number, None for that of the call; a size that is not stated is that of a tensor."""

    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        dtype, number, x = call("dtype"), call("value") if value is None else value, call("x")
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
    x = r.build.add("range", read, (stop - start,), "int64", start=low, stop=high, step=1, name="steps")
    return r.build.cast(x, str(call("dtype"))) if isinstance(call("dtype"), np.dtype) else x


_SAME = (
    "contiguous",
    "clone",
    "detach",
    "alias",
    "lift",
    "lift_fresh",
    "lift_fresh_copy",
    "cpu",
    "same",
    "requires_grad",
    "resolve_conj",
    "positive",
)
MOVES: dict[str, tuple[str, Rule]] = {
    **dict.fromkeys(_SAME, ("x memory_format", lambda r, call: call("x"))),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), ("x dim0 dim1", _transpose)),
    **dict.fromkeys(("t", "mT"), ("x", _t)),
    "numpy_T": ("x", lambda r, call: r.build.transpose(call.tensor(), range(call.tensor().rank)[::-1])),
    **dict.fromkeys(("movedim", "moveaxis"), ("x source destination", _movedim)),
    "permute": ("x dims", _permute),
    **dict.fromkeys(("reshape", "view", "_unsafe_view", "view_copy"), ("x size", _reshape)),
    "flatten": ("x start_dim end_dim", _flatten),
    "unflatten": ("x dim sizes", _unflatten),
    "squeeze": ("x dim", _squeeze),
    "unsqueeze": ("x dim", _unsqueeze),
    "expand": ("x size implicit", _expand),
    "expand_as": ("x other", lambda r, call: r.build.expand(call.tensor(), call.tensor("other").dims)),
    **dict.fromkeys(("cat", "concat", "concatenate"), ("tensors dim", _cat)),
    "stack": ("tensors dim", _stack),
    **dict.fromkeys(("chunk", "unsafe_chunk"), ("x chunks dim", _chunk)),
    "glu": ("x dim", _glu),
    **dict.fromkeys(("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"), ("x split_sizes dim", _split)),
    "unbind": ("x dim", _unbind),
    "select": ("x dim index", _select),
    "slice": ("x dim start end step", _slice),
    "narrow": ("x dim start length", _narrow),
    FILLED: ("x steps dim", _filled_by_loop),
    "select_scatter": ("x value dim index", _select_scatter),
    "flip": ("x dims", _flip),
    "repeat": ("x repeats", _repeat),
    **dict.fromkeys(("pad", "constant_pad_nd"), ("x pad mode value", _pad)),
    **dict.fromkeys(("zeros", "empty"), ("size dtype", _filled(0))),
    "ones": ("size dtype", _filled(1)),
    "full": ("size value dtype", _filled(None)),
    "new_zeros": ("x size dtype", _filled(0)),
    "new_ones": ("x size dtype", _filled(1)),
    "new_full": ("x size value dtype", _filled(None)),
    "zeros_like": ("x dtype", _filled(0)),
    "ones_like": ("x dtype", _filled(1)),
    "full_like": ("x value dtype", _filled(None)),
    "arange": ("x stop step dtype", _arange),
    "size": ("x dim", _size),
}
"""What moves numbers, with its parameters in the order in which calls have them."""
