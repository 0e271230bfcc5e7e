"""Operators of ONNX on numbers at the same place. Source: onnx/docs/Operators.md and onnx/docs/Changelog.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rnnconvert.graphs.sizes import Dims, Size, product
from rnnconvert.scaffolding import operations
from rnnconvert.scaffolding.programs.counting import Op, counted
from rnnconvert.scaffolding.programs.reading import FLOATS, GraphReading, Rule
from rnnconvert.scaffolding.tensors import SourceTensor, written

_SPREADING = 7
"""The operator set since which operators spread their inputs over one another as numpy does."""
_BYTES_OF_ONE = 256
"""As so many bytes is a number charged that Python computes by itself."""


def axis_of(op: Op, x: SourceTensor, default: int) -> int:
    """Return an axis counted from the front."""
    axis = int(op.values.get("axis", default))
    if not -x.rank <= axis < x.rank:
        raise ValueError(f"axis {axis} of {x.rank}")
    return axis % x.rank


def axes_of(r: GraphReading, op: Op, x: SourceTensor) -> list[int] | None:
    listed_axes = r.integers(op, "axes", 1)
    return None if listed_axes is None else sorted(axis % x.rank for axis in listed_axes)


def _plain(operation: str, dtype: str = "") -> Rule:
    """Return the rule of an operator that works on numbers at the same place."""

    def rule(r: GraphReading, op: Op) -> SourceTensor:
        tensors = [op[number] for number in range(len(op.inputs))]
        if op.opset < _SPREADING and (op.values.get("broadcast") or op.values.get("axis")):
            raise r.build.refuse(f"{op.kind} that spreads along a stated axis", "operator sets before 7 do that in their own way")
        word = operation
        if operation == "divide" and tensors[0].dtype not in FLOATS:
            word = "divide towards zero"
        if operation == "remainder" and op.values.get("fmod"):
            word = "remainder towards zero"
        result = op[0]
        if len(tensors) == 1 and operation != "not":
            return result
        if len(tensors) <= 2:
            return r.build.elementwise(word, tensors, dtype)
        for other in tensors[1:]:
            result = r.build.elementwise(word, [result, other], dtype)
        return result

    return rule


def _mean(r: GraphReading, op: Op) -> SourceTensor:
    total = _plain("add")(r, op)
    assert isinstance(total, SourceTensor)
    return r.build.elementwise("divide", [total, number(len(op.inputs))])


def number(value: float) -> SourceTensor:
    return SourceTensor((), "float32", "number", numbers=np.asarray(value, np.float32))


def _where(r: GraphReading, op: Op) -> SourceTensor:
    condition, left, right = op[0], op[1], op[2]
    held = [x.numbers for x in (condition, left, right)]
    if all(numbers is not None for numbers in held):
        _charge_spread(op)
        return counted(np.where(*[np.asarray(numbers, object if n else bool) for n, numbers in enumerate(held)]), left.dtype)
    truths = held[0]
    if truths is not None and truths.size and truths.dtype == bool and truths.min() == truths.max():  # one of the two throughout
        chosen, other = (left, right) if truths.flat[0] else (right, left)
        handed_on = chosen.value is not None and chosen.value in r.build.scope.inputs  # an output must not be an input
        if not handed_on and all(_spread_over(x.dims, chosen.dims) for x in (condition, other)):
            return chosen
    return r.build.elementwise("where", [condition, left, right], left.dtype)


def _spread_over(dims: Dims, others: Dims) -> bool:
    """Return whether a tensor of some axes is surely spread over one of others, and makes it no larger."""
    return len(dims) <= len(others) and all(a in (1, b) for a, b in zip(reversed(dims), reversed(others), strict=False))


def _charge_spread(op: Op) -> None:
    """Account for what an operator computes of the numbers of a file, one number at a time, once they are spread over one another.

    Raises BudgetError, ValueError for shapes that do not fit.
    """
    shapes = [x.numbers.shape for x in op.tensors if x.numbers is not None]
    op.scope.charge(_BYTES_OF_ONE * math.prod(np.broadcast_shapes(*shapes)))


def _compared(operation: str, function: Callable[[Any, Any], Any]) -> Rule:
    def rule(r: GraphReading, op: Op) -> SourceTensor:
        left, right = op[0], op[1]
        if left.numbers is not None and right.numbers is not None:
            return _lengths_compared(r, op, left, right, function)
        return r.build.elementwise(operation, [left, right], "bool")

    return rule


def _lengths_compared(
    r: GraphReading, op: Op, left: SourceTensor, right: SourceTensor, function: Callable[[Any, Any], Any]
) -> SourceTensor:
    """Return a comparison of lengths, where it is the same in every run."""
    _charge_spread(op)
    pairs = np.broadcast(np.asarray(left.numbers, object), np.asarray(right.numbers, object))
    truths = []
    for a, b in pairs:
        difference = a - b if isinstance(a, Size) or isinstance(b, Size) else 0
        if not isinstance(difference, Size):
            truths.append(bool(function(difference, 0) if difference else function(a, b)))
            continue
        if not (difference.positive or (-difference).positive):
            raise r.build.refuse(f"{op.kind} of lengths", "its truth is decided by a run", r.closing())
        truths.append(bool(function(1 if difference.positive else -1, 0)))
    return SourceTensor(pairs.shape, "bool", "condition", numbers=np.asarray(truths, bool).reshape(pairs.shape))


def _of_one(operation: str, dtype: str = "") -> Rule:
    return lambda r, op: operations.function(r.build, op[0], operation, dtype)


def _act(word: str, key: str = "", default: float = 0.0) -> Rule:
    """Return the rule of an activation function with one number, by the attribute that states it."""

    def rule(r: GraphReading, op: Op) -> SourceTensor:
        number = float(written(np.float32(op.values.get(key, default)))) if key else None
        return operations.activation(r.build, op[0], word, number)

    return rule


def _selu(r: GraphReading, op: Op) -> SourceTensor:
    if op.values:
        raise r.build.refuse("Selu with constants of its own", "the libraries that it is written for have those of the paper")
    return operations.activation(r.build, op[0], "selu")


def _gelu(r: GraphReading, op: Op) -> SourceTensor:
    return operations.activation(r.build, op[0], "gelu" if op.values.get("approximate", "none") == "none" else "gelu_tanh")


def _hard_sigmoid(r: GraphReading, op: Op) -> SourceTensor:
    alpha, beta = (np.float32(op.values.get(key, default)) for key, default in (("alpha", 0.2), ("beta", 0.5)))
    if alpha == np.float32(1 / 6) and beta == np.float32(0.5):
        return operations.activation(r.build, op[0], "hard_sigmoid")
    scaled = r.build.elementwise("multiply", [op[0], number(float(alpha))])
    moved = r.build.elementwise("add", [scaled, number(float(beta))])
    return r.build.clip(moved, 0, 1)


def _thresholded(r: GraphReading, op: Op) -> SourceTensor:
    above = r.build.elementwise("greater", [op[0], number(op.values.get("alpha", 1.0))], "bool")
    return r.build.elementwise("where", [above, op[0], number(0.0)], op[0].dtype)


def _softmax(word: str) -> Rule:
    def rule(r: GraphReading, op: Op) -> SourceTensor:
        old = op.opset < 13
        x, axis = op[0], axis_of(op, op[0], 1 if old else -1)
        if not old or axis == x.rank - 1:
            return operations.activation(r.build, x, word, axis=axis)
        flat = r.build.reshape(x, (*x.dims[:axis], product(x.dims[axis:])))  # over all axes from there on, before opset 13
        return r.build.reshape(operations.activation(r.build, flat, word), x.dims)

    return rule


def _clip(r: GraphReading, op: Op) -> SourceTensor:
    ends: list[float | int | None] = []
    x = op[0]
    for number, key in ((1, "min"), (2, "max")):
        end = op.optional(number)
        if end is None:
            stated = op.values.get(key)
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
        return operations.activation(r.build, x, "relu")
    return r.build.clip(x, low, high)


def _cast(r: GraphReading, op: Op) -> SourceTensor:
    x = op[0]
    kind = op.values["to"] if op.kind == "Cast" else np.dtype(op[1].dtype)
    if kind is None or kind.name not in (*FLOATS, "int32", "int64", "bool", "uint8", "int8"):
        raise r.build.refuse(
            f"a Cast to {'text' if kind is None else kind.name}", "numbers of single precision and whole ones are known here"
        )
    if kind.name == x.dtype:
        return x
    if x.numbers is not None and (x.numbers.dtype == object or x.numbers.size <= 16):
        if x.numbers.dtype == object and kind.kind in "iu":
            return SourceTensor(x.dims, kind.name, x.name, numbers=x.numbers)
        if x.numbers.dtype != object:
            return SourceTensor(x.dims, kind.name, x.name, numbers=x.numbers.astype(kind))
    return r.build.cast(x, kind.name)


def _unary(words: str) -> dict[str, Rule]:
    return {word: _of_one(word.lower()) for word in words.split()}


FUNCTIONS: dict[str, Rule] = {
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
    "CastLike": _cast,
}  # fmt: skip
"""By their names."""
