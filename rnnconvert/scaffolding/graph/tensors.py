"""Operators on tensors as basic operations: what moves, joins and counts, and what models have between their layers.

Source: onnx/docs/Operators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.scaffolding.description import Node, Value
from rnnconvert.scaffolding.graph.layers import unit
from rnnconvert.scaffolding.graph.scans import flipped
from rnnconvert.scaffolding.graph.writer import GraphWriter, Rule
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


def _operands(g: GraphWriter, node: Node) -> tuple[list[str], str]:
    """Return the operands of an elementwise node, all of one element type, and that type."""
    operation, operands = node["operation"], node["operands"]
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


def _elementwise(g: GraphWriter, node: Node) -> None:
    operation, label = node["operation"], g.label(node)
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


def _arithmetic(g: GraphWriter, node: Node) -> None:
    """Add sums and the like: a tensor of fewer axes gets new ones behind the batch."""
    rank, label, operation = len(node.y.shape), g.label(node), node["operation"]
    names = []
    for value in node.inputs:
        missing = rank - len(value.shape)
        new = g.integers(*range(1, missing + 1))
        name = g.typed(value, node.y.dtype)
        names.append(name if not missing else g.add("Unsqueeze", [name, new], f"{label}/widened"))
    output = g.folded(_DIRECT["add" if operation == "average" else operation], names, label)
    g.give(node.y, g.add("Div", [output, g.number(len(names))], f"{label}/mean") if operation == "average" else output)


def _clip(g: GraphWriter, node: Node) -> None:
    bounds = ["" if node[key] is None else g.number(node[key], node.x.dtype) for key in ("min", "max")]
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


def _mask(g: GraphWriter, node: Node) -> None:
    g.give(node.y, _truth(g, node, node["operation"], g.label(node)))


def _truth(g: GraphWriter, node: Node, operation: str, label: str) -> str:
    x, stated = g(node.x), node.settings
    if operation in _TRUTHS:
        number = g.number(stated["value"], node.x.dtype)
        same = g.add(_DIRECT.get(operation, "Equal"), [x, number], label if operation != "not_equal" else f"{label}/equal")
        return g.add("Not", [same], label) if operation == "not_equal" else same
    if operation == "any differs":
        same = g.add("Equal", [x, g.number(stated["value"], node.x.dtype)], f"{label}/equal")
        return _some(g, label, g.add("Not", [same], f"{label}/differs"), [-1], False)
    if operation in ("any", "all"):
        return _some(g, label, x, [stated.get("axis", -1)], bool(stated.get("keep")), operation)
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


def _where(g: GraphWriter, node: Node) -> None:
    """Add a tensor's numbers at the steps that count, and others elsewhere."""
    wide = g.add("Unsqueeze", [g(node.named["mask"][0]), g.integers(-1)], f"{g.label(node)}/wide")
    other = g(node.inputs[1]) if len(node.inputs) > 1 else g.number(float(node.settings.get("value", 0)))
    g.put(node, "Where", [wide, g(node.x), other])


# Axes


def _permute(g: GraphWriter, node: Node) -> None:
    g.put(node, "Transpose", [g(node.x)], perm=list(node["order"]))


def _reshape(g: GraphWriter, node: Node) -> None:
    g.put(node, "Reshape", [g(node.x), g.integers(0, *node["sizes"])])


def _merge_axes(g: GraphWriter, node: Node) -> None:
    start, stop, shape = node["start"], node["stop"], node.x.shape
    if stop == len(shape) - 1:
        g.put(node, "Reshape", [g(node.x), g.integers(*[0] * start, -1)])
        return
    behind = same_lengths(node, range(stop + 1, len(shape)))
    g.put(node, "Reshape", [g(node.x), g.lengths(node, (*[0] * start, -1, *behind), g.label(node))])


def _split_axis(g: GraphWriter, node: Node) -> None:
    axis, rank = node["axis"], len(node.x.shape)
    g.reshaped(node, (*same_lengths(node, range(axis)), *node["lengths"], *same_lengths(node, range(axis + 1, rank))))


def _squeezed(node: Node) -> list[int]:
    axis = node["axis"]
    return [axis] if isinstance(axis, int) else list(axis)


def _select(g: GraphWriter, node: Node) -> None:
    g.put(node, "Gather", [g(node.x), g.index(node["index"])], axis=node["axis"])


def _select_between(g: GraphWriter, node: Node) -> None:
    label = g.label(node)
    index = g.add("Squeeze", [g.length(node, node["index"], label)], f"{label}/index")
    g.put(node, "Gather", [g(node.x), index], axis=node["axis"])


def _slice(g: GraphWriter, node: Node) -> None:
    start, end = (0 if node["start"] is None else node["start"]), (_END if node["end"] is None else node["end"])
    g.put(node, "Slice", [g(node.x), g.integers(start), g.integers(end), g.integers(node["axis"]), g.integers(node["step"])])


def _slice_between(g: GraphWriter, node: Node) -> None:
    label = g.label(node)
    start, end = (default if node[key] is None else node[key] for key, default in (("start", 0), ("end", _END)))
    bounds = [g.length(node, bound, label) for bound in (start, end)]
    g.put(node, "Slice", [g(node.x), *bounds, g.integers(node["axis"]), g.integers(node["step"])])


def _cut(g: GraphWriter, node: Node) -> None:
    """Add sequences without the steps behind the longest of their lengths."""
    longest = g.add("ReduceMax", [g.typed(node.inputs[1], "int64")], f"{g.label(node)}/longest", axes=[0], keepdims=1)
    g.put(node, "Slice", [g(node.x), g.integers(0), longest, g.integers(1)])


def _expand(g: GraphWriter, node: Node) -> None:
    """Add a tensor spread over lengths; where a length is the tensor's own, 1 leaves it."""
    shape, values = node.x.shape, node["lengths"]
    lead = len(values) - len(shape)
    wanted = [1 if axis >= lead and axis_of(value) == (0, axis - lead) else value for axis, value in enumerate(values)]
    g.put(node, "Expand", [g(node.x), g.lengths(node, tuple(wanted), g.label(node))])


def _repeat(g: GraphWriter, node: Node) -> None:
    wide = g.add("Unsqueeze", [g(node.x), g.integers(1)], f"{g.label(node)}/wide")
    g.put(node, "Expand", [wide, g.integers(1, node["count"], 1)])


def _concatenate(g: GraphWriter, node: Node) -> None:
    g.put(node, "Concat", [g.typed(value, node.y.dtype) for value in node.inputs], axis=node["axis"])


def _stack(g: GraphWriter, node: Node) -> None:
    wide = [g.add("Unsqueeze", [g(value), g.integers(node["axis"])], f"{g.label(node)}/wide") for value in node.inputs]
    g.put(node, "Concat", wide, axis=node["axis"])


def _split(g: GraphWriter, node: Node) -> None:
    names = [g.name(f"{g.label(node)}/{number}") for number in range(len(node.outputs))]
    g.node("Split", [g(node.x), g.integers(*node["sizes"])], names, names[0], axis=node["axis"])
    for value, name in zip(node.outputs, names, strict=True):
        g.give(value, name)


def _steps_to_batch(g: GraphWriter, node: Node) -> None:
    label = g.label(node)
    below = g.add("Slice", [g.shape_of(node.x), g.integers(2), g.integers(_END)], f"{label}/below")
    g.put(node, "Reshape", [g(node.x), g.add("Concat", [g.integers(-1), below], f"{label}/steps_shape", axis=0)])


def _batch_to_steps(g: GraphWriter, node: Node) -> None:
    label = g.label(node)
    start = g.add("Slice", [g.shape_of(node.inputs[1]), g.integers(0), g.integers(2)], f"{label}/batch_and_time")
    inside = g.add("Slice", [g.shape_of(node.x), g.integers(1), g.integers(_END)], f"{label}/inside")
    g.put(node, "Reshape", [g(node.x), g.add("Concat", [start, inside], f"{label}/size", axis=0)])


# Reductions, places and products

_REDUCED = {"max": "ReduceMax", "min": "ReduceMin", "mean": "ReduceMean", "prod": "ReduceProd", "sum": "ReduceSum"}


def _reduce(g: GraphWriter, node: Node) -> None:
    label, keep, operation, axes = g.label(node), int(node["keep"]), node["operation"], list(node["axes"])
    if node.named.get("mask"):  # the mean over the steps that count; not a number where none does
        wide = g.add("Unsqueeze", [g(node.named["mask"][0]), g.integers(2)], f"{label}/mask")
        summands = [g.add("Where", [wide, g(node.x), g.zero()], f"{label}/kept"), _numbers(g, label, wide)]
        g.put(node, "Div", [g.add("ReduceSum", [summand, g.integers(1)], f"{label}/sum", keepdims=keep) for summand in summands])
    elif operation in ("any", "all"):
        g.give(node.y, _some(g, label, g(node.x), axes, node["keep"], operation))
    elif operation == "sum":
        g.put(node, "ReduceSum", [g.typed(node.x, node.y.dtype), g.integers(*axes)], keepdims=keep)
    elif operation in _REDUCED:
        g.put(node, _REDUCED[operation], [g.typed(node.x, node.y.dtype)], axes=axes, keepdims=keep)
    else:
        raise g.refused(node, f"a reduction by {operation!r}", g.unknown)


def _arg(g: GraphWriter, node: Node) -> None:
    operator = {"argmax": "ArgMax", "argmin": "ArgMin"}[node["operation"]]
    g.put(node, operator, [g(node.x)], axis=node["axis"], keepdims=int(node["keep"]))


def _top(g: GraphWriter, node: Node) -> None:
    names = [g.name(f"{g.label(node)}/{word}") for word in ("values", "indices")]
    count = g.length(node, node["count"], names[0])
    g.node("TopK", [g(node.x), count], names, names[0], axis=node["axis"], largest=int(node["largest"]))
    for value, name in zip(node.outputs, names, strict=True):
        g.give(value, name)


def _cumulative(g: GraphWriter, node: Node) -> None:
    g.put(node, "CumSum", [g(node.x), g.index(node["axis"])])


def _triangle(g: GraphWriter, node: Node) -> None:
    typed = g(node.x) if node.x.dtype != "bool" else g.cast(g(node.x), "int64", g.label(node))
    output = g.add("Trilu", [typed, g.index(node["diagonal"])], g.label(node), upper=int(node["upper"]))
    g.give(node.y, g.cast(output, "bool", output) if node.x.dtype == "bool" else output)


def _one_hot(g: GraphWriter, node: Node) -> None:
    dtype = np.dtype(node.y.dtype)
    ends = g.shared(f"off_and_on_{dtype.name}", np.array([0, 1], dtype))
    g.put(node, "OneHot", [g.typed(node.x, "int64"), g.index(node["count"]), ends])


def _matmul(g: GraphWriter, node: Node) -> None:
    """Add a product of matrices; a vector is one of one row or column: onnxruntime 1.31 gets a turned matrix times a vector wrong."""
    label, vectors = g.label(node), [side for side, value in enumerate(node.inputs, -2) if len(value.shape) == 1]
    names = [g(value) for value in node.inputs]
    for side in vectors:
        names[side] = g.add("Unsqueeze", [names[side], g.integers(-side - 2)], f"{label}/matrix")
    output = g.add("MatMul", names, label)
    g.give(node.y, g.add("Squeeze", [output, g.integers(*vectors)], f"{label}/vector") if vectors else output)


def _dot(g: GraphWriter, node: Node) -> None:
    """Add Keras's Dot: products of two tensors, summed over one axis of each."""
    label, names = g.label(node), [g(value) for value in node.inputs]
    if node["normalize"]:
        names = [unit(g, f"{label}/{n}", name, [axis], 1e-7) for n, (name, axis) in enumerate(zip(names, node["axes"], strict=True))]
    equation = letters(node)
    output = g.add("Einsum", names, label, equation=equation)
    g.give(node.y, g.add("Unsqueeze", [output, g.integers(-1)], f"{label}/wide") if equation.endswith(">b") else output)


# Stored numbers


def _constant(g: GraphWriter, node: Node) -> None:
    g.give(node.y, g.constant(g.label(node), np.asarray(node["numbers"])))


def _full(g: GraphWriter, node: Node) -> None:
    dtype, label = np.dtype(node.y.dtype), g.label(node)
    number = np.array([node["number"]], dtype)
    g.put(node, "ConstantOfShape", [g.lengths(node, node["lengths"], label)], value=number)


def _sizes(g: GraphWriter, node: Node) -> None:
    label = g.label(node)
    output = g.lengths(node, node["lengths"], label)
    output = output if node.y.shape else g.add("Squeeze", [output], label)
    g.give(node.y, output if node.y.dtype == "int64" else g.cast(output, node.y.dtype, label))


def _range(g: GraphWriter, node: Node) -> None:
    label = g.label(node)
    bounds = [g.add("Squeeze", [g.length(node, node[key], label)], f"{label}/{key}") for key in ("start", "stop")]
    output = g.add("Range", [*bounds, g.index(node["step"])], label)
    g.give(node.y, output if node.y.dtype == "int64" else g.cast(output, node.y.dtype, label))


def _parameter(g: GraphWriter, node: Node) -> None:
    g.give(node.y, g.constant(g.label(node), g.weights.numbers(g.path(node)).reshape(node["sizes"])))


def _weight(g: GraphWriter, node: Node) -> None:
    """Add a layer's weight, as a tensor that the model reads otherwise."""
    part: Array = g.parts(node, node["of"])[node["array"]]
    g.give(node.y, g.constant(f"{g.label(node)}/{node['array']}", part))


def _gather(g: GraphWriter, node: Node) -> None:
    index: Value = node.inputs[1]
    g.put(node, "Gather", [g(node.x), g.typed(index, "int64")], axis=node["axis"])


def _gather_elements(g: GraphWriter, node: Node) -> None:
    g.put(node, "GatherElements", [g(node.x), g.typed(node.inputs[1], "int64")], axis=node["axis"])


TENSORS: Mapping[str, Rule] = {
    "elementwise": _elementwise, "arithmetic": _arithmetic, "clip": _clip, "mask": _mask, "zero masked": _where, "where": _where,
    "transpose": _permute, "flatten": lambda g, node: g.put(node, "Reshape", [g(node.x), g.integers(0, -1)]), "reshape": _reshape,
    "reshape all": lambda g, node: g.put(node, "Reshape", [g(node.x), g.integers(*node["sizes"])]),
    "view": lambda g, node: g.reshaped(node, node["lengths"]), "merge axes": _merge_axes, "split axis": _split_axis,
    "squeeze": lambda g, node: g.put(node, "Squeeze", [g(node.x), g.integers(*_squeezed(node))]),
    "unsqueeze": lambda g, node: g.put(node, "Unsqueeze", [g(node.x), g.integers(node["axis"])]),
    "select": _select, "select between": _select_between, "slice": _slice, "slice between": _slice_between, "expand": _expand,
    "cut to the longest": _cut,
    "repeat": _repeat, "tile": lambda g, node: g.put(node, "Tile", [g(node.x), g.integers(*node["by"])]), "stack": _stack,
    "concatenate": _concatenate, "split": _split, "steps to batch": _steps_to_batch, "batch to steps": _batch_to_steps,
    "flip": lambda g, node: g.give(node.y, flipped(g, g(node.x), node["axes"], g.label(node))),
    "cast": lambda g, node: g.give(node.y, g.cast(g(node.x), node["dtype"], g.label(node))),
    "reduce": _reduce, "arg": _arg, "top": _top, "cumulative": _cumulative, "triangle": _triangle, "one hot": _one_hot,
    "matmul": _matmul, "dot": _dot, "constant": _constant, "full": _full, "sizes": _sizes, "range": _range, "parameter": _parameter,
    "einsum": lambda g, node: g.put(node, "Einsum", [g(value) for value in node.inputs], equation=node["equation"]),
    "layer's weight": _weight, "gather": _gather, "gather elements": _gather_elements,
}  # fmt: skip
"""The kinds that are known."""
