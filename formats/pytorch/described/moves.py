"""The operators of aten that move numbers, as kinds of a description. Source: aten/src/ATen/native/native_functions.yaml."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.formats.pytorch.described.loops import StepList
from rnnconvert.formats.pytorch.described.reading import BoundCall, ProgramReading, Rule
from rnnconvert.graphs.sizes import Dim, Size, divided, open_size, product
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
    x, axis, count = call.tensor(), call.axis("dim", 0), int(call("chunks"))
    length = x.dims[axis]
    if isinstance(length, Size) and count > 1:
        part = divided(length, count)
        if part is None and length.symbol:  # its parts may be asked for by weights: the axis is as many of them
            raise NeedError(length.symbol, open_size(f"{length.symbol} / {count}") * count)
        if part is not None:
            return operations.parts(r.build, x, axis, [part] * count)
    step = -(-_fixed(x, axis) // count)
    return operations.parts(r.build, x, axis, [min(step, _fixed(x, axis) - start) for start in range(0, _fixed(x, axis), step)])


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
    x, axis, index = call.tensor(), call.axis(), call("index")
    if not isinstance(index, (int, Size)):
        raise ValueError("an index that a run decides")
    if isinstance(index, int):
        r.reaches(x.dims[axis], index + 1 if index >= 0 else -index)
    return r.build.select(x, axis, index)


def _slice(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, axis = call.tensor(), call.axis("dim", 0)
    start, end, step = call("start", 0), call("end", 1 << 62), call("step", 1)
    if not all(isinstance(bound, (int, Size)) for bound in (start, end, step)):
        raise ValueError("bounds that a run decides")
    if isinstance(step, Size):
        raise ValueError(f"steps of {step}, which a run decides")
    return r.build.slice(x, axis, start, end, step)


def _narrow(r: ProgramReading, call: BoundCall) -> SourceTensor:
    return r.build.slice(call.tensor(), call.axis(), call("start"), call("start") + call("length"), 1)


def _flip(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    for axis in call("dims"):
        x = r.build.flip(x, axis % x.rank)
    return x


def _repeat(r: ProgramReading, call: BoundCall) -> SourceTensor:
    return operations.tiled(r.build, call.tensor(), call("repeats"))


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


def _zeros(value: float) -> Rule:
    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        dtype = call("dtype")
        return SourceTensor(tuple(lengths(call("size"))), str(dtype) if isinstance(dtype, np.dtype) else "float32", "zeros", filled=value)

    return rule


def _like(value: float) -> Rule:
    return lambda r, call: SourceTensor(call.tensor().dims, call.tensor().dtype, "zeros", filled=value)


def _arange(r: ProgramReading, call: BoundCall) -> SourceTensor:
    ends = [call(word) for word in ("x", "stop", "step")]
    start, stop = (0, ends[0]) if ends[1] is None else ends[:2]
    if not all(isinstance(end, (int, Size)) for end in (start, stop)) or ends[2] not in (None, 1):
        raise ValueError("arange of other than whole numbers")
    read: list[Value] = []
    low, high = r.build.lengths([start, stop], read)
    return r.build.add("range", read, (stop - start,), "int64", start=low, stop=high, step=1, name="steps")


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
    **dict.fromkeys(("cat", "concat", "concatenate"), ("tensors dim", _cat)),
    "stack": ("tensors dim", _stack),
    **dict.fromkeys(("chunk", "unsafe_chunk"), ("x chunks dim", _chunk)),
    **dict.fromkeys(("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"), ("x split_sizes dim", _split)),
    "unbind": ("x dim", _unbind),
    "select": ("x dim index", _select),
    "slice": ("x dim start end step", _slice),
    "narrow": ("x dim start length", _narrow),
    "flip": ("x dims", _flip),
    "repeat": ("x repeats", _repeat),
    **dict.fromkeys(("pad", "constant_pad_nd"), ("x pad mode value", _pad)),
    "zeros": ("size dtype", _zeros(0)),
    "ones": ("size dtype", _zeros(1)),
    "new_zeros": ("x size dtype", _zeros(0)),
    "zeros_like": ("x dtype", _like(0)),
    "ones_like": ("x dtype", _like(1)),
    "arange": ("x stop step dtype", _arange),
    "size": ("x dim", _size),
}
"""What moves numbers, with its parameters in the order in which calls have them."""
