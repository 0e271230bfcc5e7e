"""Operations on tensors of Keras 3 as rnnconvert.scaffolding describes them: those of `keras.ops` that a functional model calls, and
those that make the masks of its calls.

Sources: keras 3.15 keras/src/ops/numpy.py and nn.py; keras/src/layers/layer.py (Layer.__call__), which writes the mask of a call's only
tensor among the arguments of the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnconvert.formats.keras.describe.functions import applied
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.describe.settings import joined
from rnnconvert.formats.keras.describe.writer import Writer
from rnnconvert.formats.keras.model.calls import LayerOutput, flat, slice_of
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Value

Operation = Callable[[Writer, LayerFacts, Sequence[Any]], Value]
"""Returns what an operation gives for its arguments: tensors and numbers, in its order."""
_COMPARING = {
    "NotEqual": "not_equal",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Less": "less",
    "LessEqual": "less_equal",
}
_JOINING = {"LogicalAnd": "and", "LogicalOr": "or"}
_COUNTING = {kind: kind.lower() for kind in ("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Power")}
_COUNTING["TrueDivide"] = "divide"
_BY_NUMBER = {
    **{kind: kind.lower() for kind in ("Sqrt", "Rsqrt", "Log", "Square", "Sin", "Cos", "Tan", "Erf", "Floor", "Ceil", "Round", "Sign")},
    "Abs": "abs", "Absolute": "abs", "Negative": "neg",
}  # fmt: skip
_FUNCTIONS = {
    "Relu": "relu", "Relu6": "relu6", "Sigmoid": "sigmoid", "HardSigmoid": "hard_sigmoid", "Tanh": "tanh", "Silu": "silu", "Selu": "selu",
    "Softplus": "softplus", "Softsign": "softsign", "Exp": "exponential",
}  # fmt: skip


def _mask(w: Writer, kind: kinds.Mask, inputs: Sequence[Value], shape: Sequence[int | None]) -> Value:
    return w.node(kind, "mask", inputs, shape, "bool")


def _unfit(facts: LayerFacts, arguments: Sequence[Any]) -> Exception:
    what = f"{facts.old.kind} of {len(arguments)} arguments"
    return refuse(facts.name, what, "only operations on tensors of one fitting type are known here")


def _compared(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return a comparison of a tensor with a number."""
    if len(arguments) != 2 or not isinstance(arguments[0], Value) or isinstance(arguments[1], (bool, Value)):
        raise _unfit(facts, arguments)
    x, number = arguments
    if x.dtype == "bool" or (x.dtype != "float32" and not isinstance(number, int)):
        raise _unfit(facts, arguments)
    return _mask(w, kinds.Mask(_COMPARING[facts.old.kind], number), [x], x.shape)


def _counted(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return the sum of two tensors, or the like, or of a tensor and a number."""
    tensors = [argument for argument in arguments if isinstance(argument, Value)]
    numbers = [argument for argument in arguments if type(argument) in (int, float)]
    if len(arguments) != 2 or not tensors or len(tensors) + len(numbers) < 2 or any(x.dtype != "float32" for x in tensors):
        raise _unfit(facts, arguments)
    shape = _spread(facts, tensors)
    output, operation = w.value(facts.name, shape), _COUNTING[facts.old.kind]
    if not numbers and operation != "power":
        w.scope.add(kinds.Arithmetic(operation=operation), "", tensors, [output])
    else:
        places = iter(range(len(tensors)))
        operands = [("input", next(places)) if isinstance(argument, Value) else ("number", float(argument)) for argument in arguments]
        w.scope.add(kinds.Elementwise(operation=operation, operands=tuple(operands)), "", tensors, [output])
    return output


def _spread(facts: LayerFacts, tensors: Sequence[Value]) -> Sequence[int | None]:
    """Return the axes of tensors spread over one another."""
    if len({len(tensor.shape) for tensor in tensors}) > 1:
        raise refuse(facts.name, f"{facts.old.kind} of tensors with other numbers of axes", "Keras spreads them as numpy does")
    shape = tensors[0].shape
    for tensor in tensors[1:]:
        shape = tuple(m if n == 1 else n for n, m in zip(shape, tensor.shape, strict=True))
    return shape


def _joined(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return two masks as one."""
    if len(arguments) != 2 or any(not isinstance(argument, Value) or argument.dtype != "bool" for argument in arguments):
        raise _unfit(facts, arguments)
    return _mask(w, kinds.Mask(_JOINING[facts.old.kind]), arguments, _spread(facts, arguments))


def _truths(facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return the only argument, a mask."""
    if len(arguments) != 1 or not isinstance(arguments[0], Value) or arguments[0].dtype != "bool":
        raise _unfit(facts, arguments)
    return arguments[0]


def _negated(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    x = _truths(facts, arguments)
    return _mask(w, kinds.Mask("not"), [x], x.shape)


def _itself(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    for key in ("dtype", "sparse"):
        facts.need(key, None)
    return _truths(facts, arguments)


def _reduced(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return whether one of the truths along an axis holds, or all."""
    x, axis, keep = _truths(facts, arguments), facts.get("axis"), bool(facts.get("keepdims", False))
    axis = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
    if not isinstance(axis, int) or axis % len(x.shape) == 0:
        raise refuse(facts.name, f"axis = {axis!r}", "only one axis behind the batch is known here")
    axis %= len(x.shape)
    shape = (*x.shape[:axis], *([1] if keep else []), *x.shape[axis + 1 :])
    return _mask(w, kinds.Mask(facts.old.kind.lower(), axis=axis, keep=keep), [x], shape)


def _widened(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    x = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], Value) else _truths(facts, arguments)
    if x.dtype == "float32":
        (axis,) = _behind_batch(facts, facts.get("axis"), len(x.shape) + 1)
        return w.node(kinds.Unsqueeze(axis=axis), facts.name, [x], (*x.shape[:axis], 1, *x.shape[axis:]))
    if facts.get("axis") not in (-1, len(x.shape)):
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only a new last axis is known here")
    return _mask(w, kinds.Mask("widened"), [x], (*x.shape, 1))


def _alike(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return truths, all alike, one for each number of a tensor."""
    facts.need("dtype", "bool")
    if len(arguments) != 1 or not isinstance(arguments[0], Value):
        raise _unfit(facts, arguments)
    return _mask(w, kinds.Mask("ones" if facts.old.kind == "OnesLike" else "zeros"), arguments, arguments[0].shape)


def _concatenated(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return tensors of one type, one behind the other."""
    if not arguments or any(not isinstance(argument, Value) or argument.dtype != arguments[0].dtype for argument in arguments):
        raise _unfit(facts, arguments)
    axis, shape = joined(facts, arguments)
    _behind_batch(facts, [axis], len(shape))
    return w.node(
        kinds.Concatenate(axis=axis), "mask" if arguments[0].dtype == "bool" else facts.name, arguments, shape, arguments[0].dtype
    )


def _behind_batch(facts: LayerFacts, axes: Any, rank: int) -> tuple[int, ...]:
    """Return axes counted from the front. Raises RefusedError unless they are behind the batch."""
    listed = [axes] if isinstance(axes, int) else axes
    if not isinstance(listed, Sequence) or any(not isinstance(axis, int) or axis % rank == 0 for axis in listed):
        raise refuse(facts.name, f"axes {axes!r} of {facts.old.kind}", "only those behind the batch are known here")
    return tuple(axis % rank for axis in listed)


def _tensor(facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return the only argument, a tensor of fractions."""
    if len(arguments) != 1 or not isinstance(arguments[0], Value) or arguments[0].dtype != "float32":
        raise _unfit(facts, arguments)
    return arguments[0]


def _function(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    return applied(w, facts, _FUNCTIONS[facts.old.kind], _tensor(facts, arguments))


def _by_number(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    x = _tensor(facts, arguments)
    if facts.old.kind == "Round":
        facts.need("decimals", 0)
    return w.node(kinds.Elementwise(operation=_BY_NUMBER[facts.old.kind], operands=(("input", 0),)), facts.name, [x], x.shape)


def _softmax(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    x = _tensor(facts, arguments)
    (axis,) = _behind_batch(facts, facts.get("axis", -1), len(x.shape))
    output = w.value(facts.name, x.shape)
    name = "softmax" if facts.old.kind == "Softmax" else "log_softmax"
    w.scope.add(kinds.Activation(name=name, alpha=None, axis=axis), "", [x], [output])
    return output


def _folded(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return the sum, the mean or an end of the numbers along axes."""
    x, keep = _tensor(facts, arguments), bool(facts.get("keepdims", False))
    facts.need("initial", None)
    stated = facts.get("axis")
    axes = _behind_batch(facts, stated, len(x.shape))
    if stated is None or not axes:
        raise refuse(facts.name, f"axis = {stated!r} of {facts.old.kind}", "only axes behind the batch are known here")
    shape = [1 if axis in axes else length for axis, length in enumerate(x.shape) if keep or axis not in axes]
    return w.node(kinds.Reduce(operation=facts.old.kind.lower(), axes=axes, keep=keep), facts.name, [x], shape)


def _narrowed(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return a tensor without some of its axes of length 1."""
    x = _tensor(facts, arguments)
    axes = _behind_batch(facts, facts.get("axis"), len(x.shape))
    if not axes or any(x.shape[axis] != 1 for axis in axes):
        raise refuse(facts.name, f"axis = {facts.get('axis')!r} of a Squeeze", "only stated axes of length 1 are known here")
    for axis in sorted(axes, reverse=True):
        x = w.node(kinds.Squeeze(axis), facts.name, [x], (*x.shape[:axis], *x.shape[axis + 1 :]))
    return x


def _reshaped(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return a tensor whose axes behind the batch have other lengths."""
    x, stated = _tensor(facts, arguments), facts.get("newshape")
    first, *rest = stated if isinstance(stated, (list, tuple)) and stated else (0,)
    counted = math.prod(length if type(length) is int else 0 for length in x.shape[1:])
    if first not in (-1, None) or not counted or math.prod(length if type(length) is int else 0 for length in rest) != counted:
        raise refuse(facts.name, f"newshape = {stated!r}", "only [-1, ...] with stated lengths behind the batch is known here")
    return w.node(kinds.Reshape(sizes=tuple(rest)), facts.name, [x], (x.shape[0], *rest))


def _multiplied(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return the products of matrices, as many in one tensor as in the other."""
    if len(arguments) != 2 or any(not isinstance(each, Value) or each.dtype != "float32" or len(each.shape) < 3 for each in arguments):
        raise _unfit(facts, arguments)
    x, y = arguments
    if x.shape[:-2] != y.shape[:-2] or x.shape[-1] != y.shape[-2]:
        raise refuse(facts.name, f"a Matmul of {x.shape} and {y.shape}", "only matrices that fit, as many of each, are known here")
    return w.node(kinds.Matmul(), facts.name, [x, y], (*x.shape[:-1], y.shape[-1]))


def _stacked(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return tensors of one shape side by side on a new axis."""
    if not arguments or any(
        not isinstance(each, Value) or each.dtype != "float32" or each.shape != arguments[0].shape for each in arguments
    ):
        raise _unfit(facts, arguments)
    shape = arguments[0].shape
    (axis,) = _behind_batch(facts, facts.get("axis", 0), len(shape) + 1)
    return w.node(kinds.Stack(axis=axis), facts.name, arguments, (*shape[:axis], len(arguments), *shape[axis:]))


def _clipped(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    x, bounds = _tensor(facts, arguments), [facts.get(key) for key in ("x_min", "x_max")]
    if any(type(bound) not in (int, float) for bound in bounds):
        raise refuse(facts.name, f"bounds {bounds!r}", "only numbers are known here")
    return w.node(kinds.Clip(min=float(bounds[0]), max=float(bounds[1])), facts.name, [x], x.shape)


def _turned(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return a tensor with its axes behind the batch in another order."""
    x, axes = _tensor(facts, arguments), facts.get("axes")
    first, *rest = axes if isinstance(axes, Sequence) and len(axes) == len(x.shape) else (None,)
    if first != 0:
        raise refuse(facts.name, f"axes {axes!r} of {facts.old.kind}", "only an order of those behind the batch is known here")
    order = (0, *_behind_batch(facts, rest, len(x.shape)))
    return w.node(kinds.Transpose(order=order), facts.name, [x], tuple(x.shape[axis] for axis in order))


def _flipped(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    x = _tensor(facts, arguments)
    return w.node(kinds.Flip(axes=_behind_batch(facts, facts.get("axis"), len(x.shape))), facts.name, [x], x.shape)


def _indexed(w: Writer, facts: LayerFacts, arguments: Sequence[Any]) -> Value:
    """Return the part of a tensor that an index of numbers and slices takes."""
    x, *places = arguments or [None]
    if not isinstance(x, Value) or not places or len(places) > len(x.shape) or not _plain(places):
        raise refuse(facts.name, "an index of another form", "only numbers and slices forward, behind the batch, are known here")
    axis = 0
    for place in places:
        if place == slice(None):
            axis += 1
            continue
        size, before, after = x.shape[axis], x.shape[:axis], x.shape[axis + 1 :]
        if isinstance(place, int):
            output = w.node(kinds.Select(axis=axis, index=place), facts.name, [x], (*before, *after), x.dtype)
        else:
            length = None if size is None else len(range(*place.indices(size)))
            output = w.node(
                kinds.Slice(axis=axis, start=place.start, end=place.stop, step=place.step or 1),
                facts.name,
                [x],
                (*before, length, *after),
                x.dtype,
            )
            axis += 1
        x = output
    return x


def _plain(places: Sequence[Any]) -> bool:
    """Return whether an index leaves the batch, and goes forward by numbers."""
    steps = [place.step or 1 for place in places if isinstance(place, slice)]
    kinds = all(type(place) is int or isinstance(place, slice) for place in places)
    return kinds and places[0] == slice(None) and all(step > 0 for step in steps)


def arguments_of(facts: LayerFacts, values: Sequence[Value]) -> list[Any]:
    """Return the arguments of an operation: tensors, numbers and slices. Raises RefusedError for others."""
    left, arguments = iter(values), list[Any]()
    for value in flat(facts.call.places):
        place = slice_of(value.get("config")) if isinstance(value, Mapping) and value.get("class_name") == "__slice__" else None
        if isinstance(value, LayerOutput):
            arguments.append(next(left))
        elif isinstance(value, (int, float)):
            arguments.append(value)
        elif place is not None:
            arguments.append(place)
        else:
            raise refuse(facts.name, f"a call with {str(value)[:60]}", "only tensors, numbers and slices by numbers are known here")
    return arguments


OPERATIONS: Mapping[str, Operation] = {
    **dict.fromkeys(_COMPARING, _compared),
    **dict.fromkeys(_JOINING, _joined),
    **dict.fromkeys(_COUNTING, _counted),
    "LogicalNot": _negated,
    "Any": _reduced,
    "All": _reduced,
    "ExpandDims": _widened,
    "ConvertToTensor": _itself,
    "ZerosLike": _alike,
    "OnesLike": _alike,
    "Concatenate": _concatenated,
    **dict.fromkeys(_FUNCTIONS, _function),
    **dict.fromkeys(_BY_NUMBER, _by_number),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("Sum", "Mean", "Max", "Min"), _folded),
    "Squeeze": _narrowed,
    "Reshape": _reshaped,
    "Matmul": _multiplied,
    "Stack": _stacked,
    "Clip": _clipped,
    "Transpose": _turned,
    "Flip": _flipped,
    "GetItem": _indexed,
}
"""The operations that are known. They are not layers: masks beside tensors change nothing in them."""
