"""Operators on tensors as basic operations: what moves, joins and counts, and what models have between their layers.

Source: onnx/docs/Operators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Rules, Value, on
from rnnconvert.scaffolding.graph.layers import unit
from rnnconvert.scaffolding.graph.scans import flipped
from rnnconvert.scaffolding.graph.writer import GraphWriter
from rnnconvert.scaffolding.operators import axis_of, same_lengths
from rnnconvert.scaffolding.spelling import letters

_END = np.iinfo(np.int64).max

# Numbers at the same place

_DIRECT = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow", "maximum": "Max", "minimum": "Min",
    "and": "And", "or": "Or", "xor": "Xor", "not": "Not", "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "less": "Less", "less_equal": "LessOrEqual", "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "reciprocal": "Reciprocal", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sign": "Sign", "isnan": "IsNaN", "isinf": "IsInf", "tanh": "Tanh", "sigmoid": "Sigmoid",
}  # fmt: skip
_TRUTHS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")


def _operands(g: GraphWriter, node: Node[kinds.Elementwise]) -> tuple[list[str], str]:
    """Return the operands of an elementwise node, all of one element type, and that type."""
    operation, operands = node.kind.operation, node.kind.operands
    read = [node.inputs[value] for kind, value in operands if kind == "input"]
    if operation == "where":
        read = [node.inputs[value] for kind, value in operands[1:] if kind == "input"]
    dtype = node.y.dtype if operation not in _TRUTHS else ""
    if not dtype:
        numbers = [np.asarray(value) for kind, value in operands if kind == "number"]
        floats = any(number.dtype.kind == "f" and float(number) != int(number) for number in numbers if np.isfinite(number).all())
        dtype = np.result_type(*(value.dtype for value in read)).name
        dtype = "float32" if floats and np.dtype(dtype).kind in "iub" else dtype
    if operation in ("isnan", "isinf"):
        dtype = read[0].dtype
    names = []
    for place, (kind, value) in enumerate(operands):
        wanted = "bool" if operation == "where" and not place else dtype
        names.append(g.number(value, wanted) if kind == "number" else g.typed(node.inputs[value], wanted))
    return names, dtype


def _elementwise(g: GraphWriter, node: Node[kinds.Elementwise]) -> None:
    operation, label = node.kind.operation, g.label(node)
    names, dtype = _operands(g, node)
    if operation == "where":
        g.put(node, "Where", names)
    elif operation in _DIRECT:
        g.put(node, _DIRECT[operation], names)
    elif operation in _COMPOSED:
        g.give(node.y, _COMPOSED[operation](g, label, names, np.dtype(dtype).kind in "iu"))
    else:
        raise g.refused(node, f"the operator {operation!r}", g.unknown)


def _ones(g: GraphWriter, label: str, names: Sequence[str]) -> str:
    """Add the number 1 for each number of a tensor."""
    shape = g.add("Shape", [names[0]], f"{label}/size")
    return g.add("ConstantOfShape", [shape], label, value=np.ones(1, np.float32))


def _remainder(g: GraphWriter, label: str, names: Sequence[str], integers: bool) -> str:
    """Add a remainder of the divisor's sign."""
    if integers:
        return g.add("Mod", names, label)
    quotient = g.add("Floor", [g.add("Div", names, f"{label}/quotient")], f"{label}/whole")
    return g.add("Sub", [names[0], g.add("Mul", [quotient, names[1]], f"{label}/product")], label)


def _cut_off(g: GraphWriter, label: str, names: Sequence[str], integers: bool) -> str:
    """Add a quotient without its fraction."""
    quotient = g.add("Div", names, label if integers else f"{label}/quotient")
    if integers:
        return quotient
    size = g.add("Floor", [g.add("Abs", [quotient], f"{label}/size")], f"{label}/whole")
    return g.add("Mul", [g.add("Sign", [quotient], f"{label}/sign"), size], label)


def _floor_divided(g: GraphWriter, label: str, names: Sequence[str], integers: bool) -> str:
    return g.floor_divided(names[0], names[1], label) if integers else g.add("Floor", [g.add("Div", names, f"{label}/quotient")], label)


_COMPOSED: Mapping[str, Callable[[GraphWriter, str, Sequence[str], bool], str]] = {
    "square": lambda g, label, names, integers: g.add("Mul", [names[0], names[0]], label),
    "rsqrt": lambda g, label, names, integers: g.add("Reciprocal", [g.add("Sqrt", names, f"{label}/root")], label),
    "not_equal": lambda g, label, names, integers: g.add("Not", [g.add("Equal", names, f"{label}/equal")], label),
    "ones_like": lambda g, label, names, integers: _ones(g, label, names),
    "remainder": _remainder,
    "remainder towards zero": lambda g, label, names, integers: g.add("Mod", names, label, fmod=1),
    "divide towards zero": _cut_off,
    "floor_divide": _floor_divided,
}
"""The operators that are several nodes; each with whether it works on whole numbers."""


def _arithmetic(g: GraphWriter, node: Node[kinds.Arithmetic]) -> None:
    """Add sums and the like: a tensor of fewer axes gets new ones behind the batch."""
    rank, label, operation = len(node.y.shape), g.label(node), node.kind.operation
    names = []
    for value in node.inputs:
        missing = rank - len(value.shape)
        new = g.integers(*range(1, missing + 1))
        name = g.typed(value, node.y.dtype)
        names.append(name if not missing else g.add("Unsqueeze", [name, new], f"{label}/widened"))
    output = g.folded(_DIRECT["add" if operation == "average" else operation], names, label)
    g.give(node.y, g.add("Div", [output, g.number(len(names))], f"{label}/mean") if operation == "average" else output)


def _clip(g: GraphWriter, node: Node[kinds.Clip]) -> None:
    bounds = ["" if bound is None else g.number(bound, node.x.dtype) for bound in (node.kind.min, node.kind.max)]
    g.put(node, "Clip", [g(node.x), *bounds] if bounds[1] else [g(node.x), bounds[0]])


# Truths


def _numbers(g: GraphWriter, label: str, x: str) -> str:
    return g.cast(x, "float32", f"{label}/numbers")


def _some(g: GraphWriter, label: str, x: str, axes: Sequence[int], keep: bool, operation: str = "any") -> str:
    """Add whether any of the truths along axes holds, or all of them do."""
    operator = {"any": "ReduceMax", "all": "ReduceMin"}[operation]
    most = g.add(operator, [_numbers(g, label, x)], f"{label}/most", axes=list(axes), keepdims=int(keep))
    return g.cast(most, "bool", label)


def _filled(g: GraphWriter, label: str, shape: str, truth: bool) -> str:
    return g.add("ConstantOfShape", [shape], label, value=np.array([truth]))


def _mask(g: GraphWriter, node: Node[kinds.Mask]) -> None:
    g.give(node.y, _truth(g, node, node.kind.operation, g.label(node)))


def _truth(g: GraphWriter, node: Node[kinds.Mask], operation: str, label: str) -> str:
    x, value = g(node.x), node.kind.value or 0
    if operation in _TRUTHS:
        number = g.number(value, node.x.dtype)
        same = g.add(_DIRECT.get(operation, "Equal"), [x, number], label if operation != "not_equal" else f"{label}/equal")
        return g.add("Not", [same], label) if operation == "not_equal" else same
    if operation == "any differs":
        same = g.add("Equal", [x, g.number(value, node.x.dtype)], f"{label}/equal")
        return _some(g, label, g.add("Not", [same], f"{label}/differs"), [-1], False)
    if operation in ("any", "all"):
        return _some(g, label, x, [node.kind.axis], node.kind.keep, operation)
    if operation in ("and", "or", "not"):
        return g.add(_DIRECT[operation], [g(value) for value in node.inputs], label)
    if operation == "widened":
        return g.add("Unsqueeze", [x, g.integers(-1)], label)
    if operation in ("ones", "zeros"):
        return _filled(g, label, g.shape_of(node.x), operation == "ones")
    if operation == "all true":
        shape = g.add("Slice", [g.shape_of(node.x), g.integers(0), g.integers(-1)], f"{label}/steps")
        return _filled(g, label, shape, True)
    if operation == "lengths":
        bounds = [g.index(0), g.index(1)]
        count = g.add("Squeeze", [g.size(node.inputs[1], 1)], f"{label}/count")
        steps = g.add("Range", [bounds[0], count, bounds[1]], f"{label}/range")
        wide = g.add("Unsqueeze", [g.typed(node.x, "int64"), g.integers(1)], f"{label}/wide")
        return g.add("Less", [steps, wide], label)
    raise g.refused(node, f"a mask by {operation!r}", g.unknown)


def _where(g: GraphWriter, node: Node[kinds.Where | kinds.ZeroMasked]) -> None:
    """Add a tensor's numbers at the steps that count, and others elsewhere."""
    wide = g.add("Unsqueeze", [g(node.named["mask"][0]), g.integers(-1)], f"{g.label(node)}/wide")
    other = g(node.inputs[1]) if len(node.inputs) > 1 else g.number(float(node.kind.value))
    g.put(node, "Where", [wide, g(node.x), other])


# Axes


def _permute(g: GraphWriter, node: Node[kinds.Transpose]) -> None:
    g.put(node, "Transpose", [g(node.x)], perm=list(node.kind.order))


def _reshape(g: GraphWriter, node: Node[kinds.Reshape]) -> None:
    g.put(node, "Reshape", [g(node.x), g.integers(0, *node.kind.sizes)])


def _merge_axes(g: GraphWriter, node: Node[kinds.MergeAxes]) -> None:
    start, stop, shape = node.kind.start, node.kind.stop, node.x.shape
    if stop == len(shape) - 1:
        g.put(node, "Reshape", [g(node.x), g.integers(*[0] * start, -1)])
        return
    behind = same_lengths(node, range(stop + 1, len(shape)))
    g.put(node, "Reshape", [g(node.x), g.lengths(node, (*[0] * start, -1, *behind), g.label(node))])


def _split_axis(g: GraphWriter, node: Node[kinds.SplitAxis]) -> None:
    axis, rank = node.kind.axis, len(node.x.shape)
    g.reshaped(node, (*same_lengths(node, range(axis)), *node.kind.lengths, *same_lengths(node, range(axis + 1, rank))))


def _squeezed(node: Node[kinds.Squeeze]) -> list[int]:
    axis = node.kind.axis
    return [axis] if isinstance(axis, int) else list(axis)


def _select(g: GraphWriter, node: Node[kinds.Select]) -> None:
    g.put(node, "Gather", [g(node.x), g.index(node.kind.index)], axis=node.kind.axis)


def _select_between(g: GraphWriter, node: Node[kinds.SelectBetween]) -> None:
    label = g.label(node)
    index = g.add("Squeeze", [g.length(node, node.kind.index, label)], f"{label}/index")
    g.put(node, "Gather", [g(node.x), index], axis=node.kind.axis)


def _slice(g: GraphWriter, node: Node[kinds.Slice]) -> None:
    start, end = (0 if node.kind.start is None else node.kind.start), (_END if node.kind.end is None else node.kind.end)
    g.put(node, "Slice", [g(node.x), g.integers(start), g.integers(end), g.integers(node.kind.axis), g.integers(node.kind.step)])


def _slice_between(g: GraphWriter, node: Node[kinds.SliceBetween]) -> None:
    label = g.label(node)
    start, end = 0 if node.kind.start is None else node.kind.start, _END if node.kind.end is None else node.kind.end
    bounds = [g.length(node, bound, label) for bound in (start, end)]
    g.put(node, "Slice", [g(node.x), *bounds, g.integers(node.kind.axis), g.integers(node.kind.step)])


def _cut(g: GraphWriter, node: Node[kinds.Kind]) -> None:
    """Add sequences without the steps behind the longest of their lengths."""
    longest = g.add("ReduceMax", [g.typed(node.inputs[1], "int64")], f"{g.label(node)}/longest", axes=[0], keepdims=1)
    g.put(node, "Slice", [g(node.x), g.integers(0), longest, g.integers(1)])


def _expand(g: GraphWriter, node: Node[kinds.Expand]) -> None:
    """Add a tensor spread over lengths; where a length is the tensor's own, 1 leaves it."""
    shape, values = node.x.shape, node.kind.lengths
    lead = len(values) - len(shape)
    wanted = [1 if axis >= lead and axis_of(value) == (0, axis - lead) else value for axis, value in enumerate(values)]
    g.put(node, "Expand", [g(node.x), g.lengths(node, tuple(wanted), g.label(node))])


def _repeat(g: GraphWriter, node: Node[kinds.Repeat]) -> None:
    wide = g.add("Unsqueeze", [g(node.x), g.integers(1)], f"{g.label(node)}/wide")
    g.put(node, "Expand", [wide, g.integers(1, node.kind.count, 1)])


def _concatenate(g: GraphWriter, node: Node[kinds.Concatenate]) -> None:
    g.put(node, "Concat", [g.typed(value, node.y.dtype) for value in node.inputs], axis=node.kind.axis)


def _stack(g: GraphWriter, node: Node[kinds.Stack]) -> None:
    wide = [g.add("Unsqueeze", [g(value), g.integers(node.kind.axis)], f"{g.label(node)}/wide") for value in node.inputs]
    g.put(node, "Concat", wide, axis=node.kind.axis)


def _split(g: GraphWriter, node: Node[kinds.Split]) -> None:
    names = [g.name(f"{g.label(node)}/{number}") for number in range(len(node.outputs))]
    g.node("Split", [g(node.x), g.integers(*node.kind.sizes)], names, names[0], axis=node.kind.axis)
    for value, name in zip(node.outputs, names, strict=True):
        g.give(value, name)


def _steps_to_batch(g: GraphWriter, node: Node[kinds.Kind]) -> None:
    label = g.label(node)
    below = g.add("Slice", [g.shape_of(node.x), g.integers(2), g.integers(_END)], f"{label}/below")
    g.put(node, "Reshape", [g(node.x), g.add("Concat", [g.integers(-1), below], f"{label}/steps_shape", axis=0)])


def _batch_to_steps(g: GraphWriter, node: Node[kinds.Kind]) -> None:
    label = g.label(node)
    start = g.add("Slice", [g.shape_of(node.inputs[1]), g.integers(0), g.integers(2)], f"{label}/batch_and_time")
    inside = g.add("Slice", [g.shape_of(node.x), g.integers(1), g.integers(_END)], f"{label}/inside")
    g.put(node, "Reshape", [g(node.x), g.add("Concat", [start, inside], f"{label}/size", axis=0)])


# Reductions, places and products

_REDUCED = {"max": "ReduceMax", "min": "ReduceMin", "mean": "ReduceMean", "prod": "ReduceProd", "sum": "ReduceSum"}


def _reduce(g: GraphWriter, node: Node[kinds.Reduce]) -> None:
    label, keep, operation, axes = g.label(node), int(node.kind.keep), node.kind.operation, list(node.kind.axes)
    if node.named.get("mask"):  # the mean over the steps that count; not a number where none does
        wide = g.add("Unsqueeze", [g(node.named["mask"][0]), g.integers(2)], f"{label}/mask")
        summands = [g.add("Where", [wide, g(node.x), g.zero()], f"{label}/kept"), _numbers(g, label, wide)]
        g.put(node, "Div", [g.add("ReduceSum", [summand, g.integers(1)], f"{label}/sum", keepdims=keep) for summand in summands])
    elif operation in ("any", "all"):
        g.give(node.y, _some(g, label, g(node.x), axes, node.kind.keep, operation))
    elif operation == "sum":
        g.put(node, "ReduceSum", [g.typed(node.x, node.y.dtype), g.integers(*axes)], keepdims=keep)
    elif operation in _REDUCED:
        g.put(node, _REDUCED[operation], [g.typed(node.x, node.y.dtype)], axes=axes, keepdims=keep)
    else:
        raise g.refused(node, f"a reduction by {operation!r}", g.unknown)


def _arg(g: GraphWriter, node: Node[kinds.Arg]) -> None:
    operator = {"argmax": "ArgMax", "argmin": "ArgMin"}[node.kind.operation]
    g.put(node, operator, [g(node.x)], axis=node.kind.axis, keepdims=int(node.kind.keep))


def _top(g: GraphWriter, node: Node[kinds.Top]) -> None:
    names = [g.name(f"{g.label(node)}/{word}") for word in ("values", "indices")]
    count = g.length(node, node.kind.count, names[0])
    g.node("TopK", [g(node.x), count], names, names[0], axis=node.kind.axis, largest=int(node.kind.largest))
    for value, name in zip(node.outputs, names, strict=True):
        g.give(value, name)


def _cumulative(g: GraphWriter, node: Node[kinds.Cumulative]) -> None:
    g.put(node, "CumSum", [g(node.x), g.index(node.kind.axis)])


def _triangle(g: GraphWriter, node: Node[kinds.Triangle]) -> None:
    typed = g(node.x) if node.x.dtype != "bool" else g.cast(g(node.x), "int64", g.label(node))
    output = g.add("Trilu", [typed, g.index(node.kind.diagonal)], g.label(node), upper=int(node.kind.upper))
    g.give(node.y, g.cast(output, "bool", output) if node.x.dtype == "bool" else output)


def _one_hot(g: GraphWriter, node: Node[kinds.OneHot]) -> None:
    dtype = np.dtype(node.y.dtype)
    ends = g.shared(f"off_and_on_{dtype.name}", np.array([0, 1], dtype))
    g.put(node, "OneHot", [g.typed(node.x, "int64"), g.index(node.kind.count), ends])


def _matmul(g: GraphWriter, node: Node[kinds.Kind]) -> None:
    """Add a product of matrices; a vector is one of one row or column: onnxruntime 1.31 gets a turned matrix times a vector wrong."""
    label, vectors = g.label(node), [side for side, value in enumerate(node.inputs, -2) if len(value.shape) == 1]
    names = [g(value) for value in node.inputs]
    for side in vectors:
        names[side] = g.add("Unsqueeze", [names[side], g.integers(-side - 2)], f"{label}/matrix")
    output = g.add("MatMul", names, label)
    g.give(node.y, g.add("Squeeze", [output, g.integers(*vectors)], f"{label}/vector") if vectors else output)


def _dot(g: GraphWriter, node: Node[kinds.Dot]) -> None:
    """Add Keras's Dot: products of two tensors, summed over one axis of each."""
    label, names = g.label(node), [g(value) for value in node.inputs]
    if node.kind.normalize:
        names = [unit(g, f"{label}/{n}", name, [axis], 1e-7) for n, (name, axis) in enumerate(zip(names, node.kind.axes, strict=True))]
    equation = letters(node)
    output = g.add("Einsum", names, label, equation=equation)
    g.give(node.y, g.add("Unsqueeze", [output, g.integers(-1)], f"{label}/wide") if equation.endswith(">b") else output)


# Stored numbers


def _constant(g: GraphWriter, node: Node[kinds.Constant]) -> None:
    g.give(node.y, g.constant(g.label(node), np.asarray(node.kind.numbers)))


def _full(g: GraphWriter, node: Node[kinds.Full]) -> None:
    dtype, label = np.dtype(node.y.dtype), g.label(node)
    number = np.array([node.kind.number], dtype)
    g.put(node, "ConstantOfShape", [g.lengths(node, node.kind.lengths, label)], value=number)


def _sizes(g: GraphWriter, node: Node[kinds.LengthsTensor]) -> None:
    label = g.label(node)
    output = g.lengths(node, node.kind.lengths, label)
    output = output if node.y.shape else g.add("Squeeze", [output], label)
    g.give(node.y, output if node.y.dtype == "int64" else g.cast(output, node.y.dtype, label))


def _range(g: GraphWriter, node: Node[kinds.Range]) -> None:
    label = g.label(node)
    bounds = [
        g.add("Squeeze", [g.length(node, end, label)], f"{label}/{word}")
        for word, end in (("start", node.kind.start), ("stop", node.kind.stop))
    ]
    output = g.add("Range", [*bounds, g.index(node.kind.step)], label)
    g.give(node.y, output if node.y.dtype == "int64" else g.cast(output, node.y.dtype, label))


def _parameter(g: GraphWriter, node: Node[kinds.Parameter]) -> None:
    g.give(node.y, g.constant(g.label(node), g.weights.numbers(g.path(node)).reshape(node.kind.sizes)))


def _weight(g: GraphWriter, node: Node[kinds.LayerWeight]) -> None:
    """Add a layer's weight, as a tensor that the model reads otherwise."""
    part: Array = g.parts(node, node.kind.of)[node.kind.array]
    g.give(node.y, g.constant(f"{g.label(node)}/{node.kind.array}", part))


def _gather(g: GraphWriter, node: Node[kinds.Gather]) -> None:
    index: Value = node.inputs[1]
    g.put(node, "Gather", [g(node.x), g.typed(index, "int64")], axis=node.kind.axis)


def _gather_elements(g: GraphWriter, node: Node[kinds.GatherElements]) -> None:
    g.put(node, "GatherElements", [g(node.x), g.typed(node.inputs[1], "int64")], axis=node.kind.axis)


TENSORS: Rules = {
    **on(kinds.Elementwise, _elementwise), **on(kinds.Arithmetic, _arithmetic), **on(kinds.Clip, _clip), **on(kinds.Mask, _mask),
    **on(kinds.ZeroMasked, _where), **on(kinds.Where, _where), **on(kinds.Transpose, _permute),
    **on(kinds.Flatten, lambda g, node: g.put(node, "Reshape", [g(node.x), g.integers(0, -1)])), **on(kinds.Reshape, _reshape),
    **on(kinds.ReshapeAll, lambda g, node: g.put(node, "Reshape", [g(node.x), g.integers(*node.kind.sizes)])),
    **on(kinds.View, lambda g, node: g.reshaped(node, node.kind.lengths)), **on(kinds.MergeAxes, _merge_axes),
    **on(kinds.SplitAxis, _split_axis),
    **on(kinds.Squeeze, lambda g, node: g.put(node, "Squeeze", [g(node.x), g.integers(*_squeezed(node))])),
    **on(kinds.Unsqueeze, lambda g, node: g.put(node, "Unsqueeze", [g(node.x), g.integers(node.kind.axis)])), **on(kinds.Select, _select),
    **on(kinds.SelectBetween, _select_between), **on(kinds.Slice, _slice), **on(kinds.SliceBetween, _slice_between),
    **on(kinds.Expand, _expand), **on(kinds.CutToLongest, _cut), **on(kinds.Repeat, _repeat),
    **on(kinds.Tile, lambda g, node: g.put(node, "Tile", [g(node.x), g.integers(*node.kind.by)])), **on(kinds.Stack, _stack),
    **on(kinds.Concatenate, _concatenate), **on(kinds.Split, _split), **on(kinds.StepsToBatch, _steps_to_batch),
    **on(kinds.BatchToSteps, _batch_to_steps),
    **on(kinds.Flip, lambda g, node: g.give(node.y, flipped(g, g(node.x), node.kind.axes, g.label(node)))),
    **on(kinds.Cast, lambda g, node: g.give(node.y, g.cast(g(node.x), node.kind.dtype, g.label(node)))), **on(kinds.Reduce, _reduce),
    **on(kinds.Arg, _arg), **on(kinds.Top, _top), **on(kinds.Cumulative, _cumulative), **on(kinds.Triangle, _triangle),
    **on(kinds.OneHot, _one_hot), **on(kinds.Matmul, _matmul), **on(kinds.Dot, _dot), **on(kinds.Constant, _constant),
    **on(kinds.Full, _full), **on(kinds.LengthsTensor, _sizes), **on(kinds.Range, _range), **on(kinds.Parameter, _parameter),
    **on(kinds.Einsum, lambda g, node: g.put(node, "Einsum", [g(value) for value in node.inputs], equation=node.kind.equation)),
    **on(kinds.LayerWeight, _weight), **on(kinds.Gather, _gather), **on(kinds.GatherElements, _gather_elements),
}  # fmt: skip
"""The kinds that are known."""
