"""The operations that exporters put between stored weights and those that use them.

Each works on numpy arrays as its operator does, on views where numpy has them. An operator that
is not here, or a use of one that makes no sense, gives None: not a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import MALFORMED, passes
from rnnconvert.graphs.program.fold_call import FoldedCall, Operator


def fold(call: FoldedCall) -> list[Array] | None:
    """Return the outputs of a node, or None if its operator is unknown here or used against its rules."""
    operator = _OPERATORS.get(call.operator)
    if operator is None:
        return None
    try:
        with np.errstate(all="ignore"):
            result = operator(call)
    except MALFORMED as error:
        if passes(error):
            raise
        return None
    return result if isinstance(result, list) else [result]


def _constant(call: FoldedCall) -> Array:
    (name, value), *more = call.attributes.items()
    if more or name not in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        raise ValueError(f"not a constant: {name}")
    if name == "value":
        return np.asarray(value)
    if isinstance(value, np.dtype):
        raise ValueError(f"Constant of {value!r}")
    return np.array(value, np.float32 if name.startswith("value_float") else np.int64)


def _transpose(call: FoldedCall) -> Array:
    return np.transpose(call.input(0), call.integers("perm", 1))


def _concat(call: FoldedCall) -> Array:
    arrays = [call.input(index) for index in range(len(call.inputs))]
    call.charge(256 * len(arrays))
    if len({array.dtype for array in arrays}) != 1:
        raise ValueError("Concat of several types")
    call.charge(sum(array.nbytes for array in arrays))
    return np.concatenate(arrays, axis=call.integer("axis", 1))


def _slice(call: FoldedCall) -> Array:
    data = call.input(0)
    starts, ends = call.integers("starts", 1), call.integers("ends", 2)
    if starts is None or ends is None:
        raise ValueError("Slice without bounds")
    axes = call.integers("axes", 3)
    steps = call.integers("steps", 4) or [1] * len(starts)
    if axes is None:
        axes = list(range(len(starts)))
    if not all(-data.ndim <= axis < data.ndim for axis in axes):
        raise ValueError(f"Slice along {axes} of {data.ndim} axes")
    window = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # slice() clamps as the operation does, in both directions
        window[axis] = slice(start, end, step)
    return data[tuple(window)]


def _unsqueeze(call: FoldedCall) -> Array:
    axes = call.integers("axes", 1)
    if axes is None:
        raise ValueError("Unsqueeze without axes")
    return np.expand_dims(call.input(0), tuple(axes))


def _squeeze(call: FoldedCall) -> Array:
    axes = call.integers("axes", 1)
    return np.squeeze(call.input(0), None if axes is None else tuple(axes))


def _reshape(call: FoldedCall) -> Array:
    data = call.input(0)
    shape = call.integers("shape", 1)
    if shape is None:
        raise ValueError("Reshape without a shape")
    if not call.integer("allowzero", 0):
        if 0 in shape[data.ndim :]:
            raise ValueError("Reshape keeps an axis that there is not")
        shape = [data.shape[axis] if length == 0 else length for axis, length in enumerate(shape)]
    return _reshaped(call, data, shape)


def _flatten(call: FoldedCall) -> Array:
    data = call.input(0)
    axis = call.integer("axis", 1)
    return _reshaped(call, data, [math.prod(data.shape[:axis]), math.prod(data.shape[axis:])])


def _reshaped(call: FoldedCall, data: Array, shape: Sequence[int]) -> Array:
    if not data.flags.c_contiguous:
        call.charge(data.nbytes)
    return data.reshape(tuple(shape))


def _cast(call: FoldedCall) -> Array:
    to = call.attributes.get("to")
    if not isinstance(to, np.dtype):
        raise ValueError("Cast to a type that holds no numbers")
    data = call.input(0)
    if data.dtype == to:
        return data
    call.charge(data.size * to.itemsize)
    return data.astype(to)


def _split(call: FoldedCall) -> list[Array]:
    data = call.input(0)
    axis = call.axis(data, 0)
    lengths = call.integers("split", 1)
    total = data.shape[axis]
    if lengths is None:
        count = call.integer("num_outputs", call.outputs)
        if count != call.outputs:
            raise ValueError("Split into another number of parts than it gives")
        if "num_outputs" not in call.attributes and total % count:
            raise ValueError("Split into parts of unequal length, which it does not state")
        step = -(-total // count)
        lengths = [step] * (count - 1) + [total - step * (count - 1)]
    if sum(lengths) != total or min(lengths) < 0 or len(lengths) < call.outputs:
        raise ValueError("Split into parts of another length")
    call.charge(256 * len(lengths))  # each part is an array of its own, however few its numbers
    return np.split(data, np.cumsum(lengths)[:-1].tolist(), axis)


def _gather(call: FoldedCall) -> Array:
    data, indices = call.input(0), call.input(1)
    axis = call.axis(data, 0)
    if indices.ndim == 0:
        return np.asarray(np.moveaxis(data, axis, 0)[int(indices)])
    call.charge(data.nbytes // max(1, data.shape[axis]) * indices.size)
    return np.take(data, indices.astype(np.int64), axis)


def _expand(call: FoldedCall) -> Array:
    data = call.input(0)
    shape = np.broadcast_shapes(data.shape, tuple(call.integers("shape", 1) or ()))
    call.charge(math.prod(shape) * data.dtype.itemsize)
    return np.broadcast_to(data, shape)


def _constant_of_shape(call: FoldedCall) -> Array:
    value = np.asarray(call.attributes.get("value", np.zeros(1, np.float32)))
    shape = tuple(call.integers("shape", 0) or ())
    if min(shape, default=0) < 0:
        raise ValueError(f"ConstantOfShape of the lengths {shape}")
    call.charge(math.prod(shape) * value.dtype.itemsize)
    return np.broadcast_to(value.reshape(()), shape)


def _shape(call: FoldedCall) -> Array:
    shape = call.input(0).shape
    return np.array(shape[call.integer("start", 0) : call.integer("end", len(shape))], np.int64)


def _binary(function: Callable[[Array, Array], Array]) -> Operator:
    def run(call: FoldedCall) -> Array:
        left, right = call.input(0), call.input(1)
        if left.dtype != right.dtype or left.dtype.kind == "b":
            raise ValueError(f"{call.operator} of two types, or of truths")
        call.charge(math.prod(np.broadcast_shapes(left.shape, right.shape)) * left.dtype.itemsize)
        return np.asarray(function(left, right), left.dtype)

    return run


def _divide(left: Array, right: Array) -> Array:
    if left.dtype.kind not in "iu":
        return np.asarray(left / right)
    if not right.all():
        raise ZeroDivisionError
    quotient = np.floor_divide(np.abs(left), np.abs(right))  # towards zero, as in C
    return np.asarray(np.where((left < 0) != (right < 0), -quotient, quotient))


def _negate(call: FoldedCall) -> Array:
    data = call.input(0)
    call.charge(data.nbytes)
    if data.dtype.kind == "b":
        raise ValueError("Neg of truths")
    return np.asarray(np.negative(data))


def _tanh(call: FoldedCall) -> Array:
    data = call.input(0)
    call.charge(data.nbytes)
    return np.asarray(np.tanh(data), data.dtype)


def _mat_mul(call: FoldedCall) -> Array:
    left, right = call.input(0), call.input(1)
    if left.dtype != right.dtype or not left.ndim or not right.ndim:
        raise ValueError("MatMul of two types, or of no matrices")
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows, columns = (left.shape[-2:-1] or (1,))[0], right.shape[-1] if right.ndim > 1 else 1
    # Its work is accounted for too: a product of long rows costs more than what it gives.
    call.charge(math.prod(batch) * rows * columns * max(left.dtype.itemsize, left.shape[-1] // 64))
    return np.asarray(np.matmul(left, right), left.dtype)


def _where(call: FoldedCall) -> Array:
    condition, left, right = (call.input(index) for index in range(3))
    if left.dtype != right.dtype or condition.dtype != np.bool_:
        raise ValueError("Where of two types, or without a condition")
    shape = np.broadcast_shapes(condition.shape, left.shape, right.shape)
    call.charge(math.prod(shape) * left.dtype.itemsize)
    return np.where(condition, left, right)


def _pad(call: FoldedCall) -> Array:
    """Apply constant padding; a negative width removes elements."""
    data, pads = call.input(0), call.integers("pads", 1)
    mode = call.attributes.get("mode", "constant")
    if pads is None or mode != "constant":
        raise ValueError(f"Pad without widths, or in the mode {mode}")
    value = call.optional(2)
    fill = call.number("value", 0.0) if value is None else value.reshape(()).item()
    axes = call.integers("axes", 3) or list(range(data.ndim))
    if len(pads) != 2 * len(axes) or len({axis % data.ndim for axis in axes}) != len(axes):
        raise ValueError("Pad with other widths than axes")
    before, after = [0] * data.ndim, [0] * data.ndim
    for number, axis in enumerate(axes):
        before[axis % data.ndim], after[axis % data.ndim] = pads[number], pads[number + len(axes)]
    window = tuple(slice(max(0, -low), length - max(0, -high)) for low, high, length in zip(before, after, data.shape, strict=True))
    widths = [(max(0, low), max(0, high)) for low, high in zip(before, after, strict=True)]
    cut = data[window]
    call.charge(math.prod(length + sum(width) for length, width in zip(cut.shape, widths, strict=True)) * data.itemsize)
    return np.pad(cut, widths, constant_values=fill)


def _dequantize(call: FoldedCall) -> Array:
    """Compute (x - zero_point) * scale, with one scale for all or one for each index of an axis.

    Source: onnx/docs/Operators.md, DequantizeLinear.
    """
    data, scale, zero = call.input(0), call.input(1), call.optional(2)
    if data.dtype not in (np.int8, np.uint8, np.int16, np.uint16, np.int32) or scale.dtype != np.float32:
        raise ValueError("DequantizeLinear of this type")
    if call.integer("block_size", 0) or call.integer("output_dtype", 0) not in (0, _FLOAT32):
        raise ValueError("DequantizeLinear by blocks, or to another type")
    if zero is not None and (zero.shape != scale.shape or zero.dtype != data.dtype):
        raise ValueError("DequantizeLinear with a zero point that does not belong to its scale")
    shape = [1] * data.ndim
    if scale.ndim == 1 and scale.size > 1:
        axis = call.axis(data, 1)
        if scale.size != data.shape[axis]:
            raise ValueError("DequantizeLinear with another number of scales than its axis has")
        shape[axis] = scale.size
    elif scale.size != 1:
        raise ValueError("DequantizeLinear with a matrix of scales")
    call.charge(4 * data.size)
    steps = data.astype(np.int32) - (0 if zero is None else zero.astype(np.int32).reshape(shape))
    return np.asarray(steps.astype(np.float32) * scale.reshape(shape), np.float32)


_FLOAT32 = 1
"""The number of float32 among element types."""

_OPERATORS: dict[str, Operator] = {
    "Add": _binary(np.add),
    "Cast": _cast,
    "Concat": _concat,
    "DequantizeLinear": _dequantize,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _binary(_divide),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": lambda call: call.input(0),
    "MatMul": _mat_mul,
    "Mul": _binary(np.multiply),
    "Neg": _negate,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _binary(np.subtract),
    "Tanh": _tanh,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
