"""The other operators of ONNX, each as one kind of a description. Source: onnx/docs/Operators.md and onnx/docs/Changelog.md."""

from __future__ import annotations

import numpy as np

from rnnconvert.formats.onnx.describe.functions import FUNCTIONS, axes_of, axis_of
from rnnconvert.formats.onnx.describe.functions import number as _number
from rnnconvert.formats.onnx.describe.layers import listed, padding, reached, windows
from rnnconvert.formats.onnx.describe.model import Op, Reading, Rule, counted
from rnnconvert.formats.onnx.describe.moves import MOVES
from rnnconvert.scaffolding.building import Tensor, written
from rnnconvert.scaffolding.sizes import Dim, Size, broadcast, product

_REDUCED = {
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "sum",
    "ReduceL2": "sum",
    "ReduceSumSquare": "sum",
}


def _reduce(r: Reading, op: Op) -> Tensor:
    x, keep = op[0], bool(op.values.get("keepdims", 1))
    axes = axes_of(r, op, x)
    if not axes:
        if op.values.get("noop_with_empty_axes"):
            return x
        axes = list(range(x.rank))
    if x.numbers is not None and op.kind == "ReduceProd" and x.rank == 1:
        total = product([n if isinstance(n, Size) else int(n) for n in x.numbers])
        return counted(np.asarray([total] if keep else total, object), x.dtype)
    if op.kind in ("ReduceL2", "ReduceSumSquare"):
        x = r.build.elementwise("multiply", [x, x])
    elif op.kind == "ReduceL1":
        x = r.build.add("elementwise", [x], x.dims, operation="abs", operands=(("input", 0),), name="abs")
    dims = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.dims) if keep or axis not in axes)
    result = r.build.add("reduce", [x], dims, operation=_REDUCED[op.kind], axes=tuple(axes), keep=keep, name=_REDUCED[op.kind])
    if op.kind == "ReduceL2":
        return r.build.add("elementwise", [result], dims, operation="sqrt", operands=(("input", 0),), name="norm")
    return result


def _arg(operation: str) -> Rule:
    def rule(r: Reading, op: Op) -> Tensor:
        x, axis, keep = op[0], axis_of(op, op[0], 0), bool(op.values.get("keepdims", 1))
        if op.values.get("select_last_index"):
            raise r.build.refuse(f"{op.kind} that takes the last of several", "torch and Keras take the first")
        dims = tuple(1 if n == axis else dim for n, dim in enumerate(x.dims) if keep or n != axis)
        return r.build.add("arg", [x], dims, "int64", operation=operation, axis=axis, keep=keep, name="index")

    return rule


def _top(r: Reading, op: Op) -> list[Tensor | None]:
    x, axis = op[0], axis_of(op, op[0], -1)
    count = r.integers(op, "k", 1)
    if not count or len(count) != 1 or not op.values.get("sorted", 1):
        raise r.build.refuse("TopK in no order", "which comes first is then nobody's")
    dims = tuple(count[0] if n == axis else dim for n, dim in enumerate(x.dims))
    result = r.build.several(
        "top",
        "",
        [x],
        [(dims, x.dtype, "values"), (dims, "int64", "indices")],
        count=count[0],
        axis=axis,
        largest=bool(op.values.get("largest", 1)),
    )
    return [*result]


def _cumulative(r: Reading, op: Op) -> Tensor:
    x = op[0]
    axis = int(r.constant(op[1], "an axis").reshape(())) % x.rank
    if op.values.get("exclusive"):
        raise r.build.refuse("CumSum without the number itself", "no line is known for it")
    back = bool(op.values.get("reverse"))
    x = r.build.flip(x, axis) if back else x
    result = r.build.add("cumulative", [x], x.dims, axis=axis, name="sums")
    return r.build.flip(result, axis) if back else result


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
    result = r.build.add("matmul", [left, right], (left.dims[0], right.dims[1]), name="product")
    alpha, beta = (written(np.float32(op.values.get(key, 1.0))) for key in ("alpha", "beta"))
    result = result if alpha == 1 else r.build.elementwise("multiply", [result, _number(alpha)])
    more = op.optional(2)
    if more is None:
        return result
    more = more if beta == 1 else r.build.elementwise("multiply", [more, _number(beta)])
    return r.build.elementwise("add", [result, more])


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
    lengths = {letter: dim for word, x in zip(words, tensors, strict=True) for letter, dim in zip(word, x.dims, strict=True)}
    return r.build.add("einsum", tensors, tuple(lengths[letter] for letter in out), equation=equation, name="product")


def _pool(operation: str) -> Rule:
    def rule(r: Reading, op: Op) -> list[Tensor | None]:
        x, rank = op[0], op[0].rank - 2
        kernel = listed(op.values, "kernel_shape", rank)
        strides, dilation = listed(op.values, "strides", rank), listed(op.values, "dilations", rank)
        if op.has(1) or rank not in (1, 2, 3) or "kernel_shape" not in op.values:
            raise r.build.refuse(f"a {op.kind} over {rank} axes, or with indices", "one to three axes are known here, and the values alone")
        if operation == "average" and max(dilation) > 1:
            raise r.build.refuse("an average over places apart from one another", "torch has no such pool")
        reach, ceil = reached(kernel, dilation), bool(op.values.get("ceil_mode", 0))
        pads = padding(r, op.values, x.dims[2:], reach, strides)
        counted_in = bool(op.values.get("count_include_pad", 0))
        ceil = ceil and any(_rounds(*window) for window in zip(x.dims[2:], reach, strides, pads, strict=True))
        if ceil and any(high + step > window for (_, high), step, window in zip(pads, strides, reach, strict=True)):
            raise r.build.refuse("ceil_mode where a last window may lie behind the input", "runtimes differ there")
        if ceil and operation == "average" and any(map(any, pads)):
            raise r.build.refuse("an average with pads and ceil_mode", "runtimes differ in what they count")
        space = tuple(windows(*window, ceil) for window in zip(x.dims[2:], reach, strides, pads, strict=True))
        result = r.build.add(
            "pool first",
            [x],
            (*x.dims[:2], *space),
            operation=operation,
            rank=rank,
            kernel=kernel,
            strides=strides,
            dilation=dilation,
            pads=pads,
            ceil=ceil,
            counted=counted_in and any(map(any, pads)),
            name="pooled",
        )
        return [result]

    return rule


def _rounds(length: Dim, window: int, stride: int, pads: tuple[int, int]) -> bool:
    """Return whether ceil_mode may give one window more."""
    return stride > 1 and not (isinstance(length, int) and (length + sum(pads) - window) % stride == 0)


def _global(operation: str) -> Rule:
    def rule(r: Reading, op: Op) -> Tensor:
        x = op[0]
        axes = tuple(range(2, x.rank))
        return r.build.add("reduce", [x], (*x.dims[:2], *(1 for _ in axes)), operation=operation, axes=axes, keep=True, name="pooled")

    return rule


RULES: dict[str, Rule] = {
    **FUNCTIONS,
    **MOVES,
    **dict.fromkeys(_REDUCED, _reduce),
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "TopK": _top,
    "CumSum": _cumulative,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "MaxPool": _pool("max"),
    "AveragePool": _pool("average"),
    "GlobalMaxPool": _global("max"),
    "GlobalAveragePool": _global("mean"),
}
"""The operators that are known."""
