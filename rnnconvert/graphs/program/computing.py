"""The common operations that compute, in addition to `fold`'s: the steps of recurrent layers consist of them.

They work on numpy arrays of any type, and raise what numpy does, or ValueError, for a use that makes no sense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import FUNCTIONS
from rnnconvert.graphs import moves
from rnnconvert.graphs.operators import Applied
from rnnconvert.graphs.program.fold import fold
from rnnconvert.graphs.program.fold_call import FoldedCall
from rnnconvert.graphs.program.kinds import COMPARED

Operator = Callable[[FoldedCall], Array]


def _function(name: str, alpha: float | None = None, beta: float | None = None) -> Operator:
    """Return a function of each unit, with the defaults of its constants."""

    def run(call: FoldedCall) -> Array:
        a, b = (None if default is None else call.number(key, default) for key, default in (("alpha", alpha), ("beta", beta)))
        return np.asarray(FUNCTIONS[name](np, call.numbers(0), a, b))

    return run


def _unit(function: Callable[[Array], Any]) -> Operator:
    """Return a function of one value."""
    return lambda call: np.asarray(function(call.input(0)))


def _pair(function: Callable[[Array, Array], Any]) -> Operator:
    """Return a function of two values of one type, or of more from the first on."""

    def run(call: FoldedCall) -> Array:
        result, *others = (call.input(index) for index in range(len(call.inputs)))
        for other in others:
            if other.dtype != result.dtype:
                raise ValueError("its inputs are of several types")
            call.charge(max(result.size, other.size))
            result = np.asarray(function(result, other))
        return result

    return run


def _selu(call: FoldedCall) -> Array:
    if call.attributes:
        raise ValueError("its constants are others than Selu's own")
    return np.asarray(FUNCTIONS["selu"](np, call.numbers(0), None, None))


def _dropout(call: FoldedCall) -> Array:
    mode = call.optional(2)
    if mode is not None and mode.any():
        raise ValueError("it is set to training")
    return call.input(0)


def _clip(call: FoldedCall) -> Array:
    bounds = []
    for index, (key, default) in enumerate((("min", -np.inf), ("max", np.inf)), 1):
        bound = call.optional(index)
        bounds.append(call.number(key, default) if bound is None else bound)
    return np.asarray(np.minimum(np.maximum(call.input(0), bounds[0]), bounds[1]))


def _product(call: FoldedCall, left: Array, right: Array) -> Array:
    if not left.ndim or not right.ndim or left.dtype != right.dtype:
        raise ValueError("a product of no matrices")
    call.charge(left.size * (right.shape[-1] if right.ndim > 1 else 1))
    return np.asarray(np.matmul(left, right))


def _gemm(call: FoldedCall) -> Array:
    left, right = call.input(0), call.input(1)
    left = left.T if call.integer("transA", 0) else left
    right = right.T if call.integer("transB", 0) else right
    if left.ndim != 2 or right.ndim != 2:
        raise ValueError("Gemm of no matrices")
    result = call.number("alpha", 1.0) * _product(call, left, right)
    added = call.optional(2)
    return result if added is None else np.asarray(result + call.number("beta", 1.0) * added)


def _einsum(call: FoldedCall) -> Array:
    """Return sums of products of two values, whose axes have letters."""
    equation = str(call.attributes.get("equation")).replace(" ", "")
    operands, arrow, _ = equation.partition("->")
    letters, values = operands.split(","), [call.input(index) for index in range(len(call.inputs))]
    if not arrow or len(values) != 2 or [len(names) for names in letters] != [value.ndim for value in values]:
        raise ValueError("its equation is not of two values")
    if any(value.dtype != values[0].dtype for value in values):
        raise ValueError("its values are of several types")
    lengths = dict(zip("".join(letters), (size for value in values for size in value.shape), strict=True))
    call.charge(math.prod(lengths.values()))
    return np.asarray(np.einsum(equation, *values))


def _reduced(function: Callable[..., Any]) -> Operator:
    def run(call: FoldedCall) -> Array:
        axes = call.integers("axes", 1)
        if not axes and call.integer("noop_with_empty_axes", 0):
            return call.input(0)
        keep = bool(call.integer("keepdims", 1))
        return np.asarray(function(call.input(0), axis=tuple(axes) if axes else None, keepdims=keep))

    return run


def _range(call: FoldedCall) -> Array:
    start, stop, step = (call.input(index).reshape(()).item() for index in range(3))
    call.charge(max(0, int((stop - start) / step)))
    return np.asarray(np.arange(start, stop, step), call.input(0).dtype)


def reverse_sequence(call: FoldedCall | Applied) -> Array:
    """Return each sequence turned around up to its length."""
    time, batch = (call.attributes.get(name, default) for name, default in (("time_axis", 0), ("batch_axis", 1)))
    return moves.reverse_sequences(call.input(0), call.input(1), time, batch)


def _tile(call: FoldedCall) -> Array:
    """Return a value several times along its axes."""
    data, repeats = call.input(0), [int(count) for count in call.input(1).reshape(-1)]
    if len(repeats) != data.ndim or min(repeats, default=1) < 0:
        raise ValueError("it repeats other axes than there are")
    call.charge(data.size * math.prod(repeats))
    return np.tile(data, repeats)


COMPUTING: Mapping[str, Operator] = {
    "Sigmoid": _function("sigmoid"), "Tanh": _function("tanh"), "Relu": _function("relu"), "Softsign": _function("softsign"),
    "Softplus": _function("softplus"), "Elu": _function("elu", 1.0), "LeakyRelu": _function("leaky_relu", 0.01),
    "Selu": _selu, "ThresholdedRelu": _function("thresholded_relu", 1.0), "HardSigmoid": _function("hard_sigmoid", 0.2, 0.5),
    "Exp": _unit(np.exp), "Abs": _unit(np.abs), "Sqrt": _unit(np.sqrt), "Reciprocal": _unit(np.reciprocal),
    "Log": _unit(np.log), "Not": _unit(np.logical_not), "Sum": _pair(np.add), "Min": _pair(np.minimum),
    "Max": _pair(np.maximum), "Pow": _pair(np.power), **{kind: _pair(function) for kind, function in COMPARED.items()},
    "And": _pair(np.logical_and), "Or": _pair(np.logical_or), "Clip": _clip, "Gemm": _gemm, "Einsum": _einsum,
    "MatMul": lambda call: _product(call, call.input(0), call.input(1)),
    "ReduceMax": _reduced(np.max), "ReduceMin": _reduced(np.min), "ReduceSum": _reduced(np.sum), "ReduceAll": _reduced(np.all),
    "Range": _range, "ReverseSequence": reverse_sequence, "Dropout": _dropout, "Tile": _tile,
    # TensorFlow's, which tf2onnx writes unchanged below operator set 10
    "ReverseV2": lambda call: np.flip(call.input(0), tuple(int(axis) for axis in call.input(1).reshape(-1))),
    "Size": lambda call: np.array(call.input(0).size, np.int64),
}  # fmt: skip


def computed(call: FoldedCall) -> list[Array] | None:
    """Return the outputs of an operation, or None if it is unknown here. Raises what numpy does for a use that makes no sense."""
    operator = COMPUTING.get(call.operator)
    return fold(call) if operator is None else [operator(call)]
