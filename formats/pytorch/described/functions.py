"""Functions of aten on numbers at the same place. Source: aten/src/ATen/native/native_functions.yaml."""

from __future__ import annotations

import operator as numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.pytorch import aten_elements as elements
from rnnconvert.formats.pytorch.aten_operator import AtenOperator, BoundCall, Rule
from rnnconvert.graphs import lengths as formulas
from rnnconvert.graphs.operators import Casts, Computes, Formula, Moves, Operator
from rnnconvert.graphs.sizes import Dim, Size, in_64_bits, raised, rounded, truncated
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")


def number(value: Any, dtype: str = "float32") -> SourceTensor:
    """Return a number as a tensor without axes."""
    return SourceTensor((), dtype, "number", numbers=np.asarray(value, object if isinstance(value, Size) else dtype))


def _operand(r: ProgramReading, value: Any, like: SourceTensor) -> SourceTensor:
    """Return the operand of an operator beside a tensor: a number in the tensor's element type.

    A trace holds Python's numbers as tensors without axes. Beside a tensor with axes these do not decide the element type.
    Source: torch.result_type.
    """
    if isinstance(value, SourceTensor):
        a_number = not value.dims and like.dims
        lower = value.dtype in FLOATS or value.dtype in ("int64", "int32", "bool")
        if value.numbers is None and a_number and value.dtype in INTEGERS and like.dtype in FLOATS:
            return r.build.cast(value, like.dtype)
        if value.numbers is not None and a_number and lower and like.dtype in FLOATS:
            return number(value.numbers.item(), like.dtype)
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, Size)):
        raise ValueError(f"{value!r} beside a tensor")
    if isinstance(value, float) and like.dtype not in FLOATS:
        raise ValueError("a number of another type than the tensor's")
    return number(value, like.dtype)


def pair(operation: str, dtype: str = "", swapped: bool = False) -> Rule:
    """Return the rule of an operator on two tensors, or on a tensor and a number; `alpha` multiplies the one that is added or taken away.

    swapped  whether the second comes first
    """

    def rule(r: ProgramReading, call: BoundCall) -> Any:
        left, right, alpha = call("x"), call("other"), call("alpha", 1)
        rounding = call("rounding_mode") if operation == "divide" else None
        lengths = [to_length(x) if isinstance(x, SourceTensor) and x.dtype == "int64" else x for x in (left, right)]
        are_lengths = all(isinstance(x, (int, Size)) for x in lengths)
        tensors = sum(isinstance(x, SourceTensor) for x in (left, right))
        if are_lengths and rounding is not None and tensors < 2:
            result = _ROUNDING[str(rounding)](*lengths)
            return number(result, "int64") if tensors else result
        if are_lengths and tensors == 1 and alpha == 1 and operation in _OF_LENGTHS:
            return number(_number(operation, *(lengths[::-1] if swapped else lengths)), "int64")  # as a trace holds numbers
        if not tensors:
            if alpha != 1:
                raise ValueError("numbers with a factor")
            return _number(operation, *((right, left) if swapped else (left, right)))
        if operation == "add" and alpha == 1 and (dense := r.sum(left, right)) is not None:
            return dense
        like = left if isinstance(left, SourceTensor) and (left.dims or not isinstance(right, SourceTensor)) else right
        if rounding is not None:
            return _whole_quotient(r, call, _operand(r, left, like), _operand(r, right, like))
        kinds = {type(x) for x in (left, right)}
        if like.dtype not in FLOATS and (operation == "divide" or float in kinds or (like.dtype == "bool" and kinds & {int, Size})):
            wider = "float32" if operation == "divide" or float in kinds else "int64"
            left, right, like = (r.build.cast(x, wider) if isinstance(x, SourceTensor) else x for x in (left, right, like))
        left, right = _operand(r, left, like), _operand(r, right, like)
        if not dtype and {left.dtype, right.dtype} <= {*_PROMOTED}:
            single = any({left.dtype, right.dtype} <= {*kind} for kind in (FLOATS, INTEGERS))
            wider = like.dtype if single and bool(left.dims) != bool(right.dims) else max(left.dtype, right.dtype, key=_PROMOTED.index)
            wider = "float32" if operation == "divide" and wider not in FLOATS else wider
            left, right = r.build.cast(left, wider), r.build.cast(right, wider)
        for first, second in zip(left.dims[::-1], right.dims[::-1], strict=False):
            for dim, length in ((first, second), (second, first)):
                if isinstance(dim, Size) and isinstance(length, int) and length > 1:
                    r.build.need(dim, length)
        if left.dtype != right.dtype:
            for x, other in ((left, right), (right, left)):
                if dtype and other.dtype in INTEGERS:
                    r.ask_type(x, other.dtype)
            raise ValueError(f"{left.dtype} beside {right.dtype}")
        left, right = (right, left) if swapped else (left, right)
        if left.dtype == "bool" and not dtype:
            if alpha != 1 or operation not in _OF_TRUTHS:
                raise ValueError(f"{operation} of truths")
            return r.build.elementwise(_OF_TRUTHS[operation], [left, right], "bool")
        if alpha != 1:
            right = r.build.elementwise("multiply", [right, _operand(r, alpha, like)])
        return r.build.elementwise(operation, [left, right], dtype)

    return rule


_PROMOTED = ("bool", "int32", "int64", "float32", "float64")
"""Element types, each before those that a tensor of it becomes with them; of one kind, a tensor without axes takes the other's.

Source: torch.promote_types, and "Type promotion" in torch's documentation of tensor attributes.
"""


_OF_LENGTHS = ("add", "subtract", "multiply")
"""The operations that make a length of two lengths."""
_OF_TRUTHS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}
"""What PyTorch computes of two tensors of truths."""


def _whole_quotient(r: ProgramReading, call: BoundCall, left: SourceTensor, right: SourceTensor) -> SourceTensor:
    """Return a quotient of whole numbers, rounded down or towards zero. Raises ValueError for fractions."""
    if left.dtype not in INTEGERS or right.dtype != left.dtype:
        raise ValueError(f"a division of {left.dtype} by {right.dtype} that rounds")
    if call("rounding_mode") == "floor":
        left = r.build.elementwise("subtract", [left, r.build.elementwise("remainder", [left, right])])
    return r.build.elementwise("divide towards zero", [left, right])


@dataclass(frozen=True)
class LengthQuotient:
    """A quotient of lengths, which is a fraction: what rounds it gives a length again."""

    value: Dim
    by: Dim


_ROUNDING: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floor": lambda value, by: value // by,
    "ceil": lambda value, by: -(-value // by),
    "round": rounded,
    "trunc": truncated,
}
"""Functions that round the quotient of two lengths. Source: Python's math, and built-in functions."""


def _rounded(operation: str, x: Any) -> Dim:
    """Return a quotient of lengths as a length."""
    if not isinstance(x, LengthQuotient):
        raise ValueError(f"{operation} of {x!r}")
    return _ROUNDING[operation](x.value, x.by)


def to_length(x: Any) -> Any:
    """Return a length; a number that a trace holds as a tensor, as one."""
    if isinstance(x, SourceTensor) and not x.dims and x.dtype in ("int64", "int32") and x.numbers is not None:
        length = x.numbers.item()
        return length if isinstance(length, (int, Size)) else x
    return _rounded("trunc", x) if isinstance(x, LengthQuotient) else x


def _rounds(operation: str) -> Rule:
    """Return the rule of what rounds a tensor, or a quotient of lengths."""
    on_tensors = _unary(operation)

    def rule(r: ProgramReading, call: BoundCall) -> Any:
        x = call("x")
        if call("decimals", 0) != 0:
            raise ValueError("a number rounded to decimals")
        return x if isinstance(x, (int, Size)) else on_tensors(r, call) if isinstance(x, SourceTensor) else _rounded(operation, x)

    return rule


def _as_integer(r: ProgramReading, call: BoundCall) -> Any:
    """Return a number as a whole one, towards zero: that of a tensor, as a tensor without axes."""
    x = to_length(call("x"))
    return r.build.cast(_only(r, x), "int64") if isinstance(x, SourceTensor) and x.dtype != "int32" else x


def _only(r: ProgramReading, x: SourceTensor) -> SourceTensor:
    """Return the only number of a tensor without its axes."""
    if any(dim != 1 for dim in x.dims):
        raise ValueError("the number of a tensor of several")
    return r.build.reshape(x, ())


def _item(r: ProgramReading, call: BoundCall) -> Any:
    x = to_length(call("x"))
    return _only(r, x) if isinstance(x, SourceTensor) else x


def _trunc(r: ProgramReading, call: BoundCall) -> Any:
    x = to_length(call("x"))
    if not isinstance(x, SourceTensor) or x.dtype in INTEGERS:
        return x
    magnitude = operations.function(r.build, operations.function(r.build, x, "abs"), "floor")
    return r.build.elementwise("multiply", [operations.function(r.build, x, "sign"), magnitude])


def _floor_divide(r: ProgramReading, call: BoundCall) -> Any:
    value, by = to_length(call("x")), to_length(call("other"))
    if isinstance(value, (int, Size)) and isinstance(by, (int, Size)):
        return value // by
    if any(isinstance(x, SourceTensor) and x.dtype in INTEGERS for x in (value, by)):
        raise ValueError("a division of whole numbers that rounds")
    return operations.function(r.build, pair("divide")(r, call), "floor")


def _ratio(left: Any, right: Any) -> Any:
    lengths = isinstance(left, Size) or isinstance(right, Size)
    return LengthQuotient(left, right) if lengths and all(isinstance(side, (int, Size)) for side in (left, right)) else left / right


def _power(base: Any, exponent: Any) -> Any:
    return raised(base, exponent) if isinstance(base, int) and isinstance(exponent, int) else base**exponent


_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": numbers.add,
    "subtract": numbers.sub,
    "multiply": numbers.mul,
    "divide": _ratio,
    "power": _power,
    "remainder": numbers.mod,
    "equal": numbers.eq,
    "not_equal": numbers.ne,
    "greater": numbers.gt,
    "less": numbers.lt,
    "greater_equal": numbers.ge,
    "less_equal": numbers.le,
    "not": numbers.not_,
    "neg": numbers.neg,
    "abs": abs,
}
"""The results of operators on Python's numbers and on lengths."""
_ANY_VALUES = ("equal", "not_equal", "not")
"""Those of them that take lists and texts as well: Python's others would repeat these, or fill in what a text asks for."""


def _number(operation: str, *values: Any) -> Any:
    """Return the result of an operator on numbers.

    Raises ValueError for one that is not computed, or not from a length, and for a whole number of more than 64 bits.
    """
    plain = operation in _ANY_VALUES or all(isinstance(value, (int, float, Size, LengthQuotient)) for value in values)
    if not plain or operation not in _NUMBERS:
        raise ValueError(f"{operation} of {' and '.join(type(value).__name__ for value in values)}")
    try:
        result = _NUMBERS[operation](*values)
    except TypeError:
        raise ValueError(f"{operation} of {' and '.join(map(repr, values))}") from None
    return in_64_bits(result) if isinstance(result, int) else result


def _compared(operation: str) -> Rule:
    compare = pair(operation, "bool")

    def rule(r: ProgramReading, call: BoundCall) -> Any:
        left, right = call("x"), call("other")
        if isinstance(left, list) or isinstance(right, list) or isinstance(left, SourceTensor) or isinstance(right, SourceTensor):
            return _number(operation, left, right) if isinstance(left, list) else compare(r, call)
        if isinstance(left, str) or isinstance(right, str):
            raise ValueError(f"a comparison of {left!r} and {right!r}")
        difference = left - right
        if isinstance(difference, Size):
            if not (difference.positive or (-difference).positive):
                raise r.build.refuse("a comparison of lengths", "its truth is decided by a run")
            difference = 1 if difference.positive else -1
        return _number(operation, difference, 0)

    return rule


def _unary(operation: str) -> Rule:
    def rule(r: ProgramReading, call: BoundCall) -> Any:
        x = call("x")
        if not isinstance(x, SourceTensor):
            return _number(operation, x)
        return operations.function(r.build, x, operation)

    return rule


def _of_truths(operation: str) -> Rule:
    """Return the rule of an operator on two tensors of truths."""
    return lambda r, call: r.build.elementwise(operation, [_truths(r, call), _truths(r, call, "other")], "bool")


def _not(r: ProgramReading, call: BoundCall) -> Any:
    x = call("x")
    return operations.function(r.build, _truths(r, call), "not") if isinstance(x, SourceTensor) else _number("not", x)


def _truth(r: ProgramReading, x: Any) -> Any:
    """Return whether the only number of a tensor is other than 0."""
    if not isinstance(x, SourceTensor) or any(dim != 1 for dim in x.dims):
        raise ValueError(f"the truth of {x!r}")
    x = r.build.reshape(x, ())
    return x if x.dtype == "bool" else r.build.elementwise("not_equal", [x, number(0, x.dtype)], "bool")


def _float(r: ProgramReading, x: Any) -> Any:
    if isinstance(x, SourceTensor) and not x.dims:
        return r.build.cast(x, "float32")
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        raise ValueError(f"{x!r} as a fraction")
    return float(x)


def _function(word: str, key: str = "", default: Any = None) -> Rule:
    return lambda r, call: operations.activation(r.build, call.tensor(), word, float(call(key, default)) if key else None)


def _log_sigmoid(r: ProgramReading, call: BoundCall) -> SourceTensor:
    opposite = operations.function(r.build, call.tensor(), "neg")
    return operations.function(r.build, operations.activation(r.build, opposite, "softplus"), "neg")


def _elu(r: ProgramReading, call: BoundCall) -> SourceTensor:
    if call("scale", 1) != 1 or call("input_scale", 1) != 1:
        raise ValueError("an elu with scales")
    return operations.activation(r.build, call.tensor(), "elu", float(call("alpha", 1.0)))


def _gelu(r: ProgramReading, call: BoundCall) -> SourceTensor:
    return operations.activation(r.build, call.tensor(), "gelu" if call("approximate", "none") == "none" else "gelu_tanh")


def _softplus(r: ProgramReading, call: BoundCall) -> SourceTensor:
    if call("beta", 1) != 1 or call("threshold", 20) != 20:
        raise ValueError("a softplus with numbers of its own")
    return operations.activation(r.build, call.tensor(), "softplus")


def _softmax(word: str) -> Rule:
    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        x, axis = call.tensor(), call.axis()
        if call("dtype") not in (None, False) and str(call("dtype")) != x.dtype:
            raise ValueError("a softmax in another element type")
        return operations.activation(r.build, x, word, axis=axis)

    return rule


def _clamp(low: str, high: str) -> Rule:
    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        x = call.tensor()
        ends = [call(low) if low else None, call(high) if high else None]
        if any(isinstance(end, SourceTensor) for end in ends):
            raise ValueError("bounds that are tensors")
        return r.build.clip(x, ends[0], ends[1])

    return rule


def _dropout(r: ProgramReading, call: BoundCall) -> SourceTensor:
    rate = call("p", 0)
    if call("train") is True and rate != 0:
        raise r.build.refuse("dropout that is on", "it is random: save the model in evaluation, model.eval()")
    x, kind = call.tensor(), r.module(call.operation)
    if kind not in ("Dropout", "AlphaDropout"):
        return x
    layer = r.path(call.operation, "dropout")
    return r.build.several(kinds.Dropout(name=kind, rate=float(call("p", 0.5))), layer, [x], [(x.dims, x.dtype, x.name)])[0]


def _cast(r: ProgramReading, call: BoundCall) -> Any:
    x = call.tensor()
    stated = [call.operation.attributes.get("dtype"), call("dtype"), *call.arguments[1:]]
    call.note_read("a b c d e dtype")
    types = [value.dtype if isinstance(value, SourceTensor) else value for value in stated if isinstance(value, SourceTensor | np.dtype)]
    dtype = types[0] if types else None
    if dtype is None:
        return x
    if str(dtype) not in (*FLOATS, "int32", "int64", "bool"):
        raise r.build.refuse(f"a cast to {dtype}", "numbers of single precision and whole ones are known here")
    return x if str(dtype) == x.dtype else r.build.cast(x, str(dtype))


def _truths(r: ProgramReading, call: BoundCall, word: str = "x") -> SourceTensor:
    """Return an argument of truths. Raises NeedError for an input of a file that states no element types."""
    x = call.tensor(word)
    if x.dtype != "bool":
        r.ask_type(x, "bool")
        raise ValueError(f"{x.dtype} as truths")
    return x


def _where(r: ProgramReading, call: BoundCall) -> SourceTensor:
    yes, no = call("x"), call("other")
    like = next((x for x in (yes, no) if isinstance(x, SourceTensor)), None)
    if like is None:
        raise ValueError("a choice between two numbers")
    return r.build.elementwise("where", [_truths(r, call, "condition"), _operand(r, yes, like), _operand(r, no, like)], like.dtype)


def _masked_fill(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x = call.tensor()
    return r.build.elementwise("where", [_truths(r, call, "mask"), _operand(r, call("value"), x), x], x.dtype)


def _unequal(left: Array, other: Array) -> bool:
    return not elements.equal(left, other)


def _remainders(dividend: Array, other: Array) -> Array:
    return np.mod(dividend, other) if np.all(other) else elements.divided(dividend, other)


def _elementwise(parameters: str, rule: Rule, shape: Any = None) -> AtenOperator:
    """Return an operator that computes numbers, of the shape to which what it reads is spread unless another is stated."""
    return AtenOperator(parameters, rule, Computes() if shape is None else Computes(shape=shape))


def _on_numbers(parameters: str, rule: Rule, function: Callable[..., Any], formula: Formula | None) -> AtenOperator:
    """Return an operator that computes with lengths as well."""
    return AtenOperator(parameters, rule, elements.on_numbers(function, formula))


def _number_given_back(rule: Rule) -> AtenOperator:
    """Return an operator that gives the number that it reads."""
    return AtenOperator("x", rule, NUMBER_GIVEN)


def _same_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return shapes[0]


NUMBER_GIVEN: Operator = Computes(lambda applied: applied.input(0), formula=formulas.same)
_TRUTHS = ("and", "or", "xor")
FUNCTIONS: dict[str, AtenOperator] = {
    "add": _on_numbers("x other alpha", pair("add"), np.add, formulas.SUM),
    "sub": _on_numbers("x other alpha", pair("subtract"), np.subtract, formulas.DIFFERENCE),
    "mul": _on_numbers("x other", pair("multiply"), np.multiply, formulas.PRODUCT),
    **dict.fromkeys(("floor_divide", "floordiv"), _on_numbers("x other", _floor_divide, elements.divided, formulas.QUOTIENT)),
    "remainder": _on_numbers("x other", pair("remainder"), _remainders, formulas.REMAINDER),
    **{word: _on_numbers("x", _unary(word), function, formula) for word, function, formula in (
        ("neg", np.negative, formulas.NEGATIVE), ("abs", np.abs, formulas.ABSOLUTE))},
    **{word: _on_numbers("x other", _compared(kind), function, formula) for word, kind, function, formula in (
        ("eq", "equal", elements.equal, formulas.lists_equal), ("ne", "not_equal", _unequal, formulas.lists_differ),
        ("lt", "less", np.less, formulas.LESS), ("gt", "greater", np.greater, formulas.GREATER),
        ("le", "less_equal", np.less_equal, formulas.AT_MOST), ("ge", "greater_equal", np.greater_equal, formulas.AT_LEAST))},
    "not": _on_numbers("x", _not, np.logical_not, formulas.SAME_TRUTH),
    "and": _on_numbers("x other", _of_truths("and"), np.logical_and, formulas.SAME_TRUTH),
    "or": _on_numbers("x other", _of_truths("or"), np.logical_or, formulas.SAME_TRUTH),
    **{word: _elementwise("x other", _of_truths(kind)) for kind in _TRUTHS for word in (f"logical_{kind}", f"bitwise_{kind}")},
    "xor": _elementwise("x other", _of_truths("xor")),
    **dict.fromkeys(("logical_not", "bitwise_not"), _elementwise("x", _not)),
    "rsub": _elementwise("x other alpha", pair("subtract", swapped=True)),
    "div": _elementwise("x other rounding_mode", pair("divide")),
    **{word: _elementwise("x other", pair(kind)) for word, kind in (
        ("true_divide", "divide"), ("maximum", "maximum"), ("minimum", "minimum"), ("fmod", "remainder towards zero"), ("pow", "power"))},
    **{word: _elementwise("x", _unary(word)) for word in (
        "exp", "log", "sqrt", "reciprocal", "erf", "sin", "cos", "tan", "sign", "square", "rsqrt")},
    **{word: _elementwise("x decimals", _rounds(word)) for word in ("floor", "ceil", "round")},
    "trunc": _elementwise("x", _trunc),
    **dict.fromkeys(("Int", "int", "IntImplicit"), _number_given_back(_as_integer)),
    **dict.fromkeys(("item", "_local_scalar_dense"), _number_given_back(_item)),
    "sym_int": AtenOperator("x", lambda r, call: to_length(call("x"))),
    "quotient": AtenOperator("x by rounding", lambda r, call: _ROUNDING[str(call("rounding"))](call("x"), call("by"))),
    "sym_float": AtenOperator("x", lambda r, call: call("x")),
    **dict.fromkeys(("bool", "Bool"), AtenOperator("x", lambda r, call: _truth(r, call("x")))),
    **dict.fromkeys(("float", "Float"), AtenOperator("x", lambda r, call: _float(r, call("x")))),
    **{word: _elementwise("x", _function(word)) for word in ("relu", "sigmoid", "tanh", "softsign", "selu", "silu", "mish", "relu6")},
    "hardsigmoid": _elementwise("x", _function("hard_sigmoid")),
    "hardswish": _elementwise("x", _function("hard_swish")),
    "gelu": _elementwise("x approximate", _gelu),
    "log_sigmoid": _elementwise("x", _log_sigmoid),
    "leaky_relu": _elementwise("x negative_slope", _function("leaky_relu", "negative_slope", 0.01)),
    "elu": _elementwise("x alpha scale input_scale", _elu),
    "softplus": _elementwise("x beta threshold", _softplus),
    **dict.fromkeys(("softmax", "_softmax"), _elementwise("x dim dtype", _softmax("softmax"), _same_shape)),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _elementwise("x dim dtype", _softmax("log_softmax"), _same_shape)),
    **dict.fromkeys(("clamp", "clip"), _elementwise("x min max", _clamp("min", "max"))),
    "hardtanh": _elementwise("x min_val max_val", _clamp("min_val", "max_val")),
    "clamp_min": _elementwise("x min", _clamp("min", "")),
    "clamp_max": _elementwise("x max", _clamp("", "max")),
    "where": _elementwise("condition x other", _where),
    "masked_fill": _elementwise("x mask value", _masked_fill, _same_shape),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
        AtenOperator("x p train", _dropout, Moves(elements.dropout), shares=True)),
    **dict.fromkeys(("to", "_to_copy", "type", "type_as"), AtenOperator("x a b c d e dtype", _cast, Casts(elements.to), shares=True)),
}  # fmt: skip
"""The functions of numbers at the same place."""
