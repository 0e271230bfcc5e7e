"""The other operators of ONNX, each as one kind of a description. Source: onnx/docs/Operators.md and onnx/docs/Changelog.md."""

from __future__ import annotations

import numpy as np

from rnnconvert.graphs.sizes import Size, product
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.programs.counting import Op, counted
from rnnconvert.scaffolding.programs.functions import FUNCTIONS, axes_of, axis_of
from rnnconvert.scaffolding.programs.functions import number as _number
from rnnconvert.scaffolding.programs.layers import listed, padding
from rnnconvert.scaffolding.programs.moves import MOVES
from rnnconvert.scaffolding.programs.reading import FLOATS, GraphReading, Rule
from rnnconvert.scaffolding.tensors import SourceTensor, written
from rnnconvert.scaffolding.windows import Windows, pool, reached

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


def _reduce(r: GraphReading, op: Op) -> SourceTensor:
    x, keep = op[0], bool(op.values.get("keepdims", 1))
    axes = axes_of(r, op, x)
    if x.numbers is not None and not x.rank and op.kind in ("ReduceMax", "ReduceMin"):
        return x
    alone = bool(op.values.get("noop_with_empty_axes")) and not axes  # each number by itself, which is squared or without its sign still
    axes = axes or ([] if alone else list(range(x.rank)))
    if x.numbers is not None and op.kind == "ReduceProd" and x.rank == 1 and not alone:
        total = product([n if isinstance(n, Size) else int(n) for n in x.numbers])
        return counted(np.asarray([total] if keep else total, object), x.dtype)
    if op.kind == "ReduceSumSquare" or (op.kind == "ReduceL2" and not alone):
        x = r.build.elementwise("multiply", [x, x])
    elif op.kind in ("ReduceL1", "ReduceL2"):
        x = operations.function(r.build, x, "abs")
    if alone:
        return x
    if op.kind == "ReduceMean" and x.dtype not in FLOATS:
        summands = counted(np.asarray(product(x.dims[axis] for axis in axes), object))
        return r.build.elementwise("divide towards zero", [operations.reduced(r.build, x, "sum", axes, keep), summands])
    result = operations.reduced(r.build, x, _REDUCED[op.kind], axes, keep)
    return operations.function(r.build, result, "sqrt", name="norm") if op.kind == "ReduceL2" else result


def _arg(operation: str) -> Rule:
    def rule(r: GraphReading, op: Op) -> SourceTensor:
        x, axis, keep = op[0], axis_of(op, op[0], 0), bool(op.values.get("keepdims", 1))
        if op.values.get("select_last_index"):
            raise r.build.refuse(f"{op.kind} that takes the last of several", "the libraries that it is written for take the first")
        return operations.place(r.build, x, operation, axis, keep)

    return rule


def _top(r: GraphReading, op: Op) -> list[SourceTensor | None]:
    x, axis = op[0], axis_of(op, op[0], -1)
    count = r.integers(op, "k", 1)
    if not count or len(count) != 1 or not op.values.get("sorted", 1):
        raise r.build.refuse("TopK in no order", "which comes first is then nobody's")
    return [*operations.top(r.build, x, count[0], axis, bool(op.values.get("largest", 1)))]


def _cumulative(r: GraphReading, op: Op) -> SourceTensor:
    x = op[0]
    axis = int(r.constant(op[1], "an axis").reshape(())) % x.rank
    if op.values.get("exclusive"):
        raise r.build.refuse("CumSum without the number itself", "no line is known for it")
    back = bool(op.values.get("reverse"))
    x = r.build.flip(x, axis) if back else x
    result = r.build.add(kinds.Cumulative(axis=axis), [x], x.dims, name="sums")
    return r.build.flip(result, axis) if back else result


def _matmul(r: GraphReading, op: Op) -> SourceTensor:
    return operations.matmul(r.build, op[0], op[1])


def _gemm(r: GraphReading, op: Op) -> SourceTensor:
    left, right = op[0], op[1]
    left = r.build.transpose(left, (1, 0)) if op.values.get("transA") else left
    right = r.build.transpose(right, (1, 0)) if op.values.get("transB") else right
    result = operations.matmul(r.build, left, right)
    alpha, beta = (written(np.float32(op.values.get(key, 1.0))) for key in ("alpha", "beta"))
    result = result if alpha == 1 else r.build.elementwise("multiply", [result, _number(alpha)])
    more = op.optional(2)
    if more is None:
        return result
    more = more if beta == 1 else r.build.elementwise("multiply", [more, _number(beta)])
    return r.build.elementwise("add", [result, more])


def _einsum(r: GraphReading, op: Op) -> SourceTensor:
    return operations.einsum(r.build, str(op.values["equation"]), [op[number] for number in range(len(op.inputs))])


def _pool(operation: str) -> Rule:
    def rule(r: GraphReading, op: Op) -> list[SourceTensor | None]:
        x, rank = op[0], op[0].rank - 2
        kernel = listed(op.values, "kernel_shape", rank)
        strides, dilation = listed(op.values, "strides", rank), listed(op.values, "dilations", rank)
        if op.has(1) or rank not in (1, 2, 3) or "kernel_shape" not in op.values:
            raise r.build.refuse(f"a {op.kind} over {rank} axes, or with indices", "one to three axes are known here, and the values alone")
        pads = padding(r, op.values, x.dims[2:], reached(kernel, dilation), strides)
        ceil, counted_in = bool(op.values.get("ceil_mode", 0)), bool(op.values.get("count_include_pad", 0))
        return [pool(r.build, x, operation, Windows(kernel, strides, dilation, pads), ceil, counted_in)]

    return rule


def _global(operation: str) -> Rule:
    def rule(r: GraphReading, op: Op) -> SourceTensor:
        x = op[0]
        return operations.reduced(r.build, x, operation, range(2, x.rank), True, "pooled")

    return rule


# Numbers as integers of 8 bits


_RANGES = {"uint8": (0, 255), "int8": (-128, 127)}


def _along(r: GraphReading, op: Op, x: SourceTensor, index: int) -> SourceTensor | None:
    """Return the scale or the zero point of a tensor as a real number, or as one for each index of an axis; None for none."""
    if op.optional(index) is None:
        return None
    numbers = r.constant(op[index], "a scale or a zero point").astype(np.float32)
    if numbers.size == 1:
        return _number(float(numbers.reshape(-1)[0]))
    shape = [1] * x.rank
    shape[axis_of(op, x, 1)] = numbers.size
    return SourceTensor(tuple(shape), "float32", "scale", numbers=numbers.reshape(shape))


def _quantize(r: GraphReading, op: Op) -> SourceTensor:
    """Return the whole numbers that stand for a tensor, as real ones where all that reads them multiplies them by their scale again."""
    x, zero = op[0], op.optional(2)
    dtype = "uint8" if zero is None else zero.dtype
    scale, zeros = _along(r, op, x, 1), _along(r, op, x, 2)
    if scale is None or dtype not in _RANGES or op.values.get("block_size", 0) or op.values.get("output_dtype", 0):
        raise r.build.refuse(
            f"QuantizeLinear to {dtype}, or by blocks", "int8 and uint8 with one scale, or one for each index, are known here"
        )
    y = operations.function(r.build, r.build.elementwise("divide", [x, scale]), "round")
    y = y if zeros is None or not np.any(zeros.numbers) else r.build.elementwise("add", [y, zeros])
    y = r.build.clip(y, *map(float, _RANGES[dtype]))
    only_scaled = all(reader.kind == "DequantizeLinear" for reader in r.uses(op.scope).readers(op.node.outputs[0]))
    return y if only_scaled else r.build.cast(y, dtype)


def _dequantize(r: GraphReading, op: Op) -> SourceTensor:
    x = op[0]
    scale, zeros = _along(r, op, x, 1), _along(r, op, x, 2)
    if scale is None or op.values.get("block_size", 0) or op.values.get("output_dtype", 0) not in (0, 1):
        raise r.build.refuse("DequantizeLinear by blocks, or to another type", "one scale, or one for each index, is known here")
    y = r.build.cast(x, "float32")
    y = y if zeros is None or not np.any(zeros.numbers) else r.build.elementwise("subtract", [y, zeros])
    return r.build.elementwise("multiply", [y, scale])


def _dynamic(r: GraphReading, op: Op) -> list[SourceTensor | None]:
    """Return a tensor itself, with 1 for its scale and 0 for its zero point: its source chooses them for each run, and rounds."""
    if not _scaled_once(r, op):
        raise r.build.refuse("DynamicQuantizeLinear for other than products that its scale multiplies", _BEFORE)
    r.rounds = True
    return [op[0], _number(1.0), _number(0.0)]


def _scaled_once(r: GraphReading, op: Op) -> bool:
    """Return whether products of integers alone read what is quantized, each multiplied by its scale once, and nothing else reads that."""
    used, (codes, scale, zero) = r.uses(op.scope), op.node.outputs
    products = used.readers(codes)
    ends = [
        cast and used.only(cast.outputs[0]) for cast in (used.only(each.outputs[0]) for each in products if each.kind == "MatMulInteger")
    ]
    factors = {scale}
    for node in used.readers(scale):
        others = [name for name in node.inputs if name != scale]
        if node.kind != "Mul" or len(others) != 1 or (node not in ends and op.scope.constant(others[0]) is None):
            return False
        factors |= {*node.outputs} if node not in ends else set()
    return (
        len(ends) == len(products)
        and all([*each.inputs[:1], *each.inputs[2:3]] == [codes, zero] for each in products)
        and all({codes, zero}.isdisjoint([*each.inputs[1:2], *each.inputs[3:]]) for each in products)
        and all(each in products for each in used.readers(zero))
        and all(end and end.kind == "Mul" and len(factors & {*end.inputs}) == 1 for end in ends)
        and all(used.only(factor) in ends for factor in factors - {scale})
    )


def _of_integers(r: GraphReading, op: Op) -> SourceTensor:
    """Return the product with a matrix of integers, less their zero points."""
    zeros = [op.optional(index) for index in (2, 3)]
    offsets = [None if zero is None else r.constant(zero, "a zero point") for zero in zeros]
    if op[0].dtype not in FLOATS or (offsets[0] is not None and np.any(offsets[0])) or (offsets[1] is not None and offsets[1].ndim > 1):
        raise r.build.refuse("MatMulInteger of other integers than DynamicQuantizeLinear's", _BEFORE)
    y = r.build.cast(op[1], "float32")
    if offsets[1] is not None and np.any(offsets[1]):
        y = r.build.elementwise("subtract", [y, SourceTensor(offsets[1].shape, numbers=offsets[1].astype(np.float32))])
    return operations.matmul(r.build, op[0], y)


def _in_integers(r: GraphReading, op: Op) -> SourceTensor:
    raise r.build.refuse(f"the operator {op.kind}", _BEFORE)


_BEFORE = "it computes in integers throughout. Take the model as it was before it was quantized, or quantize it in the form QDQ"

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
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _of_integers,
    **dict.fromkeys(("QLinearMatMul", "QLinearConv", "ConvInteger"), _in_integers),
}
"""The operators that are known."""
