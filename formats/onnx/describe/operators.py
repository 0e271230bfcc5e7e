"""The other operators of ONNX, each as one kind of a description. Source: onnx/docs/Operators.md and onnx/docs/Changelog.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rnnconvert.formats.onnx.describe.layers import listed, padding, reached, windows
from rnnconvert.formats.onnx.describe.model import FLOATS, Op, Reading, Rule, counted
from rnnconvert.formats.onnx.proto.file import DTYPES
from rnnconvert.scaffolding.building import Tensor, written
from rnnconvert.scaffolding.sizes import Dim, Size, broadcast, product

_SPREADING = 7
"""The operator set since which operators spread their inputs over one another as numpy does."""


def _axis(op: Op, x: Tensor, default: int, key: str = "axis") -> int:
    """Return an axis counted from the front."""
    axis = int(op.values.get(key, default))
    if not -x.rank <= axis < x.rank:
        raise ValueError(f"axis {axis} of {x.rank}")
    return axis % x.rank


def _axes(r: Reading, op: Op, x: Tensor, index: int = 1) -> list[int] | None:
    listed_axes = r.integers(op, "axes", index)
    return None if listed_axes is None else sorted(axis % x.rank for axis in listed_axes)


# One number at a time


def _plain(operation: str, dtype: str = "") -> Rule:
    """Return the rule of an operator that works on numbers at the same place."""

    def rule(r: Reading, op: Op) -> Tensor:
        tensors = [op[number] for number in range(len(op.inputs))]
        if op.opset < _SPREADING and (op.values.get("broadcast") or op.values.get("axis")):
            raise r.build.refuse(
                f"{op.kind} that spreads along a stated axis", "operator sets before 7 do that in their own way"
            )
        word = operation
        if operation == "divide" and tensors[0].dtype not in FLOATS:
            word = "divide towards zero"
        if operation == "remainder" and op.values.get("fmod"):
            word = "remainder towards zero"
        made = tensors[0]
        if len(tensors) == 1 and operation != "not":
            return made
        if len(tensors) <= 2:
            return r.build.elementwise(word, tensors, dtype)
        for other in tensors[1:]:
            made = r.build.elementwise(word, [made, other], dtype)
        return made

    return rule


def _mean(r: Reading, op: Op) -> Tensor:
    whole = _plain("add")(r, op)
    assert isinstance(whole, Tensor)
    return r.build.elementwise("divide", [whole, _number(len(op.inputs))])


def _number(value: float) -> Tensor:
    return Tensor((), "float32", "number", numbers=np.asarray(value, np.float32))


def _where(r: Reading, op: Op) -> Tensor:
    condition, left, right = op[0], op[1], op[2]
    held = [x.numbers for x in (condition, left, right)]
    if all(one is not None for one in held):
        return counted(np.where(*[np.asarray(one, object if n else bool) for n, one in enumerate(held)]), left.dtype)  # type: ignore[call-overload]
    return r.build.elementwise("where", [condition, left, right], left.dtype)


def _compared(operation: str, function: Callable[[Any, Any], Any]) -> Rule:
    def rule(r: Reading, op: Op) -> Tensor:
        left, right = op[0], op[1]
        if left.numbers is not None and right.numbers is not None:
            return _lengths_compared(r, op, left, right, function)
        return r.build.elementwise(operation, [left, right], "bool")

    return rule


def _lengths_compared(r: Reading, op: Op, left: Tensor, right: Tensor, function: Callable[[Any, Any], Any]) -> Tensor:
    """Return a comparison of lengths, where it is the same in every run."""
    pairs = np.broadcast(np.asarray(left.numbers, object), np.asarray(right.numbers, object))
    found = []
    for a, b in pairs:
        difference = a - b
        if isinstance(difference, Size) and not (difference.positive or (-difference).positive):
            raise r.build.refuse(f"{op.kind} of lengths", "its truth is decided by a run")
        sign = difference if isinstance(difference, int) else 1 if difference.positive else -1
        found.append(bool(function(sign, 0)))
    return Tensor(pairs.shape, "bool", "condition", numbers=np.asarray(found, bool).reshape(pairs.shape))


def _of_one(operation: str, dtype: str = "") -> Rule:
    def rule(r: Reading, op: Op) -> Tensor:
        return r.build.add(
            "elementwise", [op[0]], op[0].dims, dtype, operation=operation, operands=(("input", 0),), name=operation
        )

    return rule


def _activation(r: Reading, x: Tensor, word: str, alpha: float | None = None, axis: int = -1) -> Tensor:
    made = r.build.several("activation", "", [x], [(x.dims, x.dtype, word)], {}, (), name=word, alpha=alpha, axis=axis)
    return made[0]


def _act(word: str, key: str = "", default: float = 0.0) -> Rule:
    """Return the rule of an activation function with one number, by the attribute that states it."""

    def rule(r: Reading, op: Op) -> Tensor:
        number = float(written(np.float32(op.values.get(key, default)))) if key else None
        return _activation(r, op[0], word, number)

    return rule


def _selu(r: Reading, op: Op) -> Tensor:
    if op.values:
        raise r.build.refuse("Selu with constants of its own", "torch and Keras have those of the paper")
    return _activation(r, op[0], "selu")


def _gelu(r: Reading, op: Op) -> Tensor:
    return _activation(r, op[0], "gelu" if op.values.get("approximate", "none") == "none" else "gelu_tanh")


def _hard_sigmoid(r: Reading, op: Op) -> Tensor:
    alpha, beta = (np.float32(op.values.get(key, default)) for key, default in (("alpha", 0.2), ("beta", 0.5)))
    if alpha == np.float32(1 / 6) and beta == np.float32(0.5):
        return _activation(r, op[0], "hard_sigmoid")
    scaled = r.build.elementwise("multiply", [op[0], _number(float(alpha))])
    moved = r.build.elementwise("add", [scaled, _number(float(beta))])
    return r.build.clip(moved, 0, 1)


def _thresholded(r: Reading, op: Op) -> Tensor:
    above = r.build.elementwise("greater", [op[0], _number(op.values.get("alpha", 1.0))], "bool")
    return r.build.elementwise("where", [above, op[0], _number(0.0)], op[0].dtype)


def _softmax(word: str) -> Rule:
    def rule(r: Reading, op: Op) -> Tensor:
        old = op.opset < 13
        x, axis = op[0], _axis(op, op[0], 1 if old else -1)
        if not old or axis == x.rank - 1:
            return _activation(r, x, word, axis=-1 if axis == x.rank - 1 else axis)
        flat = r.build.reshape(
            x, (*x.dims[:axis], product(x.dims[axis:]))
        )  # over all axes from there on, before opset 13
        return r.build.reshape(_activation(r, flat, word), x.dims)

    return rule


def _clip(r: Reading, op: Op) -> Tensor:
    ends: list[float | int | None] = []
    x = op[0]
    for number, key in ((1, "min"), (2, "max")):
        end = op.optional(number)
        if end is None:
            stated = op.values.get(key) if op.opset < 11 else None
            ends.append(None if stated is None else written(np.float32(stated)))
        elif end.numbers is None:
            x = r.build.elementwise("maximum" if number == 1 else "minimum", [x, end])
            ends.append(None)
        else:
            ends.append(written(end.numbers.reshape(())[()]))
    unbounded = [None if end is not None and abs(end) >= float(np.finfo(np.float32).max) else end for end in ends]
    low, high = unbounded if x.dtype in FLOATS else ends
    if low is None and high is None:
        return x
    if low == 0 and high is None and x.dtype in FLOATS:
        return _activation(r, x, "relu")
    return r.build.clip(x, low, high)


def _cast(r: Reading, op: Op) -> Tensor:
    x = op[0]
    kind = DTYPES.get(int(op.values["to"])) if op.kind == "Cast" else np.dtype(op[1].dtype)
    if kind is None or kind.name not in (*FLOATS, "int32", "int64", "bool", "uint8", "int8"):
        raise r.build.refuse(
            f"a Cast to {'text' if kind is None else kind.name}",
            "numbers of single precision and whole ones are known here",
        )
    if kind.name == x.dtype:
        return x
    if x.numbers is not None and (x.numbers.dtype == object or x.numbers.size <= 16):
        if x.numbers.dtype == object and kind.kind in "iu":
            return Tensor(x.dims, kind.name, x.name, numbers=x.numbers)
        if x.numbers.dtype != object:
            return Tensor(x.dims, kind.name, x.name, numbers=x.numbers.astype(kind))
    return r.build.cast(x, kind.name)


# Along axes

_REDUCED = {"ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
            "ReduceL1": "sum", "ReduceL2": "sum", "ReduceSumSquare": "sum"}  # fmt: skip


def _reduce(r: Reading, op: Op) -> Tensor:
    x, keep = op[0], bool(op.values.get("keepdims", 1))
    axes = _axes(r, op, x)
    if not axes:
        if op.values.get("noop_with_empty_axes"):
            return x
        axes = list(range(x.rank))
    if x.numbers is not None and op.kind == "ReduceProd" and x.rank == 1:
        whole = product([n if isinstance(n, Size) else int(n) for n in x.numbers])
        return counted(np.asarray([whole] if keep else whole, object), x.dtype)
    if op.kind in ("ReduceL2", "ReduceSumSquare"):
        x = r.build.elementwise("multiply", [x, x])
    elif op.kind == "ReduceL1":
        x = r.build.add("elementwise", [x], x.dims, operation="abs", operands=(("input", 0),), name="abs")
    dims = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.dims) if keep or axis not in axes)
    made = r.build.add(
        "reduce", [x], dims, operation=_REDUCED[op.kind], axes=tuple(axes), keep=keep, name=_REDUCED[op.kind]
    )
    if op.kind == "ReduceL2":
        return r.build.add("elementwise", [made], dims, operation="sqrt", operands=(("input", 0),), name="norm")
    return made


def _arg(operation: str) -> Rule:
    def rule(r: Reading, op: Op) -> Tensor:
        x, axis, keep = op[0], _axis(op, op[0], 0), bool(op.values.get("keepdims", 1))
        if op.values.get("select_last_index"):
            raise r.build.refuse(f"{op.kind} that takes the last of several", "torch and Keras take the first")
        dims = tuple(1 if n == axis else dim for n, dim in enumerate(x.dims) if keep or n != axis)
        return r.build.add("arg", [x], dims, "int64", operation=operation, axis=axis, keep=keep, name="index")

    return rule


def _top(r: Reading, op: Op) -> list[Tensor | None]:
    x, axis = op[0], _axis(op, op[0], -1)
    count = r.integers(op, "k", 1)
    if not count or len(count) != 1 or not op.values.get("sorted", 1):
        raise r.build.refuse("TopK in no order", "which comes first is then nobody's")
    dims = tuple(count[0] if n == axis else dim for n, dim in enumerate(x.dims))
    made = r.build.several("top", "", [x], [(dims, x.dtype, "values"), (dims, "int64", "indices")], count=count[0], axis=axis,
                           largest=bool(op.values.get("largest", 1)))  # fmt: skip
    return [*made]


def _cumulative(r: Reading, op: Op) -> Tensor:
    x = op[0]
    axis = int(r.known(op[1], "an axis").reshape(())) % x.rank
    if op.values.get("exclusive"):
        raise r.build.refuse("CumSum without the number itself", "no line is known for it")
    back = bool(op.values.get("reverse"))
    x = r.build.flip(x, axis) if back else x
    made = r.build.add("cumulative", [x], x.dims, axis=axis, name="sums")
    return r.build.flip(made, axis) if back else made


# Shapes


def _transpose(r: Reading, op: Op) -> Tensor:
    x = op[0]
    order = op.values.get("perm") or list(range(x.rank))[::-1]
    if sorted(order) != list(range(x.rank)):
        raise ValueError(f"perm {order} of {x.rank} axes")
    return r.build.transpose(x, order)


def _reshape(r: Reading, op: Op) -> Tensor:
    x = op[0]
    shape = r.lengths(op[1]) if len(op.inputs) > 1 else [int(n) for n in op.values["shape"]]
    if not op.values.get("allowzero"):
        shape = [
            x.dims[axis] if length == 0 and isinstance(length, int) else length for axis, length in enumerate(shape)
        ]
    return r.build.reshape(x, _filled(x, shape))


def _filled(x: Tensor, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return a shape with what its -1 stands for."""
    places = [n for n, length in enumerate(shape) if isinstance(length, int) and length == -1]
    if len(places) > 1:
        raise ValueError(f"shape {shape}")
    if not places:
        return tuple(shape)
    rest = product(length for n, length in enumerate(shape) if n != places[0])
    whole = product(x.dims)
    if whole == 0 or rest == 0:
        raise ValueError("a shape without elements")
    return tuple(whole // rest if n == places[0] else length for n, length in enumerate(shape))


def _flatten(r: Reading, op: Op) -> Tensor:
    x, axis = op[0], int(op.values.get("axis", 1))
    axis += x.rank if axis < 0 else 0
    return r.build.reshape(x, (product(x.dims[:axis]), product(x.dims[axis:])))


def _squeeze(r: Reading, op: Op) -> Tensor:
    x = op[0]
    axes = _axes(r, op, x)
    if axes is None:
        if any(isinstance(dim, Size) for dim in x.dims):
            raise r.build.refuse(
                "a Squeeze of every axis of length 1, over open axes", "how many there are is decided by a run"
            )
        axes = [axis for axis, dim in enumerate(x.dims) if dim == 1]
    return r.build.squeeze(x, axes)


def _unsqueeze(r: Reading, op: Op) -> Tensor:
    axes = r.integers(op, "axes", 1)
    if axes is None:
        raise ValueError("no axes")
    rank = op[0].rank + len(axes)
    return r.build.unsqueeze(op[0], [axis % rank for axis in axes])


def _shape(r: Reading, op: Op) -> Tensor:
    dims = op[0].dims[slice(op.values.get("start", 0), op.values.get("end"))]
    return counted(np.asarray([*dims, None], object)[:-1])


def _size(r: Reading, op: Op) -> Tensor:
    return counted(np.asarray(product(op[0].dims), object))


def _identity(r: Reading, op: Op) -> Tensor:
    return op[0]


def _dropout(r: Reading, op: Op) -> list[Tensor | None]:
    training = op.optional(2)
    if (
        op.has(1)
        or (training is not None and (training.numbers is None or training.numbers.any()))
        or (op.opset < 7 and not op.values.get("is_test", 0))
    ):
        raise r.build.refuse("Dropout in training", "it is random")
    return [op[0]]


def _concat(r: Reading, op: Op) -> Tensor:
    tensors = [op[number] for number in range(len(op.inputs))]
    return r.build.concatenate(tensors, _axis(op, tensors[0], 1))


def _split(r: Reading, op: Op) -> list[Tensor | None]:
    x, axis = op[0], _axis(op, op[0], 0)
    count, whole = len(op.node.output), x.dims[axis]
    sizes = r.integers(op, "split", 1)
    if sizes is None:
        if not isinstance(whole, int):
            raise r.build.refuse("a Split of an open axis into equal parts", "how long each is is decided by a run")
        step = -(-whole // int(op.values.get("num_outputs", count)))
        sizes = [min(step, whole - step * n) for n in range(count)]
    if len(sizes) != count or min(sizes) < 0 or (isinstance(whole, int) and sum(sizes) != whole):
        raise ValueError(f"parts of {sizes} of {whole}")
    dims = [tuple(size if n == axis else dim for n, dim in enumerate(x.dims)) for size in sizes]
    return [
        *r.build.several("split", "", [x], [(shape, x.dtype, "part") for shape in dims], axis=axis, sizes=tuple(sizes))
    ]


def _slice(r: Reading, op: Op) -> Tensor:
    x = op[0]
    starts, ends = _bounds(r, op, "starts", 1), _bounds(r, op, "ends", 2)
    axes = r.integers(op, "axes", 3) or list(range(len(starts)))
    steps = r.integers(op, "steps", 4) or [1] * len(starts)
    made = x
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        made = r.build.slice(made, axis % x.rank, start, end, step)
    return made


def _bounds(r: Reading, op: Op, key: str, index: int) -> list[Dim]:
    x = op.optional(index)
    return r.lengths(x) if x is not None else [int(n) for n in op.values[key]]


def _gather(r: Reading, op: Op) -> Tensor:
    x, indices = op[0], op[1]
    axis = _axis(op, x, 0)
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
    return r.build.add("gather", [x, indices], dims, axis=axis, name="taken")


def _gather_elements(r: Reading, op: Op) -> Tensor:
    x, indices = op[0], op[1]
    return r.build.add("gather elements", [x, indices], indices.dims, axis=_axis(op, x, 0), name="taken")


def _expand(r: Reading, op: Op) -> Tensor:
    return r.build.expand(op[0], broadcast([op[0].dims, tuple(r.lengths(op[1]))]))


def _tile(r: Reading, op: Op) -> Tensor:
    x, by = op[0], r.integers(op, "repeats", 1)
    if by is None or len(by) != x.rank:
        raise ValueError("repeats of other axes")
    return r.build.add(
        "tile", [x], tuple(dim * n for dim, n in zip(x.dims, by, strict=True)), by=tuple(by), name=x.name
    )


def _pad(r: Reading, op: Op) -> Tensor:
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
        else written(r.known(op[2], "what is padded with").reshape(())[()])
    )
    pairs = [(0, 0)] * x.rank
    for n, axis in enumerate(axes):
        pairs[axis] = stated[n], stated[n + len(axes)]
    if not any(map(any, pairs)):
        return x
    behind = x.rank - next(n for n, pair in enumerate(pairs) if any(pair))
    if mode != "constant" and (min(map(min, pairs)) < 0 or behind > 3 or x.rank > behind + 2):
        raise r.build.refuse(
            f"a Pad of mode {mode!r} over {behind} of {x.rank} axes", "torch pads the last of few axes so"
        )
    dims = tuple(dim + low + high for dim, (low, high) in zip(x.dims, pairs, strict=True))
    return r.build.add("pad axes", [x], dims, pairs=tuple(pairs), mode=mode, number=number, name=x.name)


def _full(dims: Sequence[Dim], dtype: str, number: float) -> Tensor:
    """Return a tensor of one number."""
    return Tensor(tuple(dims), dtype, "zeros" if not number else "full", filled=number)


def _constant_of_shape(r: Reading, op: Op) -> Tensor:
    value = op.values.get("value")
    value = np.zeros(1, np.float32) if value is None else np.asarray(value)
    dims = r.lengths(op[0])
    if value.dtype.kind in "iu" and len(dims) == 1 and isinstance(dims[0], int):
        return counted(np.full(dims[0], value.reshape(())[()].item(), object), str(value.dtype))
    return _full(dims, str(value.dtype), written(value.reshape(())[()]))


def _range(r: Reading, op: Op) -> Tensor:
    start, stop, step = (r.lengths(op[number])[0] for number in range(3))
    if not isinstance(step, int) or step < 1:
        raise r.build.refuse(f"a Range in steps of {step}", "only upwards is known here")
    extra: list[Any] = []
    ends = r.build.lengths([start, stop], extra)
    return r.build.add("range", [], ((stop - start + (step - 1)) // step,), op[0].dtype, extra=extra, start=ends[0], stop=ends[1],
                       step=step, name="steps")  # fmt: skip


def _triangle(r: Reading, op: Op) -> Tensor:
    by = int(r.known(op[1], "a diagonal").reshape(())) if op.optional(1) is not None else 0
    return r.build.add(
        "triangle", [op[0]], op[0].dims, upper=bool(op.values.get("upper", 1)), diagonal=by, name="triangle"
    )


def _one_hot(r: Reading, op: Op) -> Tensor:
    depth, values = int(r.known(op[1], "a depth").reshape(())), r.known(op[2], "values")
    if op.values.get("axis", -1) not in (-1, op[0].rank) or values.tolist() != [0, 1]:
        raise r.build.refuse(
            "OneHot of other numbers than 0 and 1, or on another axis than a new last one", "no line is known for it"
        )
    return r.build.add("one hot", [op[0]], (*op[0].dims, depth), op[2].dtype, count=depth, name="one_hot")


# Products and pools


def _matmul(r: Reading, op: Op) -> Tensor:
    left, right = op[0], op[1]
    if min(left.rank, right.rank) < 1:
        raise ValueError("a product of no matrices")
    lead = broadcast([left.dims[:-2], right.dims[:-2]])
    rows = left.dims[-2:-1] if left.rank > 1 else ()
    columns = right.dims[-1:] if right.rank > 1 else ()
    return r.build.add("matmul", [left, right], (*lead, *rows, *columns), name="product")


def _gemm(r: Reading, op: Op) -> Tensor:
    left, right = op[0], op[1]
    left = r.build.transpose(left, (1, 0)) if op.values.get("transA") else left
    right = r.build.transpose(right, (1, 0)) if op.values.get("transB") else right
    made = r.build.add("matmul", [left, right], (left.dims[0], right.dims[1]), name="product")
    alpha, beta = (written(np.float32(op.values.get(key, 1.0))) for key in ("alpha", "beta"))
    made = made if alpha == 1 else r.build.elementwise("multiply", [made, _number(alpha)])
    more = op.optional(2)
    if more is None:
        return made
    more = more if beta == 1 else r.build.elementwise("multiply", [more, _number(beta)])
    return r.build.elementwise("add", [made, more])


def _einsum(r: Reading, op: Op) -> Tensor:
    equation = str(op.values["equation"]).replace(" ", "")
    tensors = [op[number] for number in range(len(op.inputs))]
    letters, arrow, out = equation.partition("->")
    words = letters.split(",")
    if (
        not arrow
        or not all(word.isalpha() for word in words)
        or not (out.isalpha() or not out)
        or [len(word) for word in words] != [x.rank for x in tensors]
    ):
        raise r.build.refuse(f"the equation {equation!r}", "only letters for every axis, with an arrow, are known here")
    lengths = {
        letter: dim for word, x in zip(words, tensors, strict=True) for letter, dim in zip(word, x.dims, strict=True)
    }
    return r.build.add("einsum", tensors, tuple(lengths[letter] for letter in out), equation=equation, name="product")


def _pool(operation: str) -> Rule:
    def rule(r: Reading, op: Op) -> list[Tensor | None]:
        x, rank = op[0], op[0].rank - 2
        kernel = listed(op.values, "kernel_shape", rank)
        strides, dilation = listed(op.values, "strides", rank), listed(op.values, "dilations", rank)
        if op.has(1) or rank not in (1, 2, 3) or "kernel_shape" not in op.values:
            raise r.build.refuse(
                f"a {op.kind} over {rank} axes, or with indices",
                "one to three axes are known here, and the values alone",
            )
        if operation == "average" and max(dilation) > 1:
            raise r.build.refuse("an average over places apart from one another", "torch has no such pool")
        reach, ceil = reached(kernel, dilation), bool(op.values.get("ceil_mode", 0))
        pads = padding(r, op.values, x.dims[2:], reach, strides)
        counted_in = bool(op.values.get("count_include_pad", 0))
        ceil = ceil and any(_rounds(*one) for one in zip(x.dims[2:], reach, strides, pads, strict=True))
        if ceil and any(high + step > window for (_, high), step, window in zip(pads, strides, reach, strict=True)):
            raise r.build.refuse("ceil_mode where a last window may lie behind the input", "runtimes differ there")
        if ceil and operation == "average" and any(map(any, pads)):
            raise r.build.refuse("an average with pads and ceil_mode", "runtimes differ in what they count")
        space = tuple(windows(*one, ceil) for one in zip(x.dims[2:], reach, strides, pads, strict=True))
        made = r.build.add("pool first", [x], (*x.dims[:2], *space), operation=operation, rank=rank, kernel=kernel, strides=strides,
                           dilation=dilation, pads=pads, ceil=ceil, counted=counted_in and any(map(any, pads)), name="pooled")  # fmt: skip
        return [made]

    return rule


def _rounds(length: Dim, window: int, stride: int, pads: tuple[int, int]) -> bool:
    """Return whether ceil_mode may give one window more."""
    return stride > 1 and not (isinstance(length, int) and (length + sum(pads) - window) % stride == 0)


def _global(operation: str) -> Rule:
    def rule(r: Reading, op: Op) -> Tensor:
        x = op[0]
        axes = tuple(range(2, x.rank))
        return r.build.add(
            "reduce", [x], (*x.dims[:2], *(1 for _ in axes)), operation=operation, axes=axes, keep=True, name="pooled"
        )

    return rule


def _unary(words: str) -> dict[str, Rule]:
    return {word: _of_one(word.lower()) for word in words.split()}


RULES: dict[str, Rule] = {
    "Add": _plain("add"), "Sub": _plain("subtract"), "Mul": _plain("multiply"), "Div": _plain("divide"), "Pow": _plain("power"),
    "Max": _plain("maximum"), "Min": _plain("minimum"), "Sum": _plain("add"), "Mean": _mean, "Mod": _plain("remainder"),
    "And": _plain("and", "bool"), "Or": _plain("or", "bool"), "Xor": _plain("xor", "bool"), "Not": _of_one("not", "bool"),
    "Equal": _compared("equal", lambda a, b: a == b), "Greater": _compared("greater", lambda a, b: a > b),
    "GreaterOrEqual": _compared("greater_equal", lambda a, b: a >= b), "Less": _compared("less", lambda a, b: a < b),
    "LessOrEqual": _compared("less_equal", lambda a, b: a <= b), "Where": _where,
    **_unary("Abs Neg Exp Log Sqrt Reciprocal Erf Sin Cos Tan Sinh Cosh Asin Acos Atan Floor Ceil Round Sign"),
    "IsNaN": _of_one("isnan", "bool"),
    "Relu": _act("relu"), "Sigmoid": _act("sigmoid"), "Tanh": _act("tanh"), "LeakyRelu": _act("leaky_relu", "alpha", 0.01),
    "Elu": _act("elu", "alpha", 1.0), "Celu": _act("celu", "alpha", 1.0), "Softplus": _act("softplus"), "Softsign": _act("softsign"),
    "HardSwish": _act("hard_swish"), "Mish": _act("mish"), "Selu": _selu, "Gelu": _gelu, "HardSigmoid": _hard_sigmoid,
    "ThresholdedRelu": _thresholded, "Softmax": _softmax("softmax"), "LogSoftmax": _softmax("log_softmax"), "Clip": _clip, "Cast": _cast,
    "CastLike": _cast, **dict.fromkeys(_REDUCED, _reduce), "ArgMax": _arg("argmax"), "ArgMin": _arg("argmin"), "TopK": _top,
    "CumSum": _cumulative, "Transpose": _transpose, "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Shape": _shape, "Size": _size, "Identity": _identity, "Dropout": _dropout, "Concat": _concat,
    "Split": _split, "Slice": _slice, "Gather": _gather, "GatherElements": _gather_elements, "Expand": _expand, "Tile": _tile,
    "Pad": _pad, "ConstantOfShape": _constant_of_shape, "Range": _range, "Trilu": _triangle, "OneHot": _one_hot, "MatMul": _matmul,
    "Gemm": _gemm, "Einsum": _einsum, "MaxPool": _pool("max"), "AveragePool": _pool("average"),
    "GlobalMaxPool": _global("max"), "GlobalAveragePool": _global("mean"),
}  # fmt: skip
"""The operators that are known."""
