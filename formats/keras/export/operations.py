"""Operations on tensors of Keras 3 as ONNX nodes: a graph lists those that make the masks of its calls beside its layers.

Sources: keras 3.15 keras/src/ops/numpy.py; keras/src/layers/layer.py (Layer.__call__), which writes the mask of a call's only tensor
among the arguments of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper

from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import GraphBuilder
from rnnconvert.formats.keras.export.masks import some
from rnnconvert.formats.keras.settings import joined

_COMPARING = {
    "NotEqual": "Equal",
    "Equal": "Equal",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
}
_JOINING = {"LogicalAnd": "And", "LogicalOr": "Or"}
_COUNTING = {"Multiply": "Mul", "Maximum": "Max", "Minimum": "Min", "Add": "Add", "Subtract": "Sub"}

Operation = Callable[[GraphBuilder, LayerFacts, Sequence[Any]], ModelTensor]
"""Returns what an operation gives for its arguments: tensors and numbers, in its order."""


def _two(build: GraphBuilder, facts: LayerFacts, arguments: Sequence[Any]) -> ModelTensor:
    """Return a comparison, a sum or the like of two tensors, or of a tensor and a number."""
    kind, name = facts.old.kind, facts.name
    tensors = [argument for argument in arguments if isinstance(argument, ModelTensor)]
    dtypes = {_dtype(build, tensor) for tensor in tensors}
    if kind in _JOINING:
        fitting = {"bool"}
    elif kind in _COUNTING:
        fitting = {"float32"}
    else:
        fitting = {"float32", "int32", "int64"}
    if len(arguments) != 2 or len(dtypes) != 1 or not dtypes <= fitting:
        raise _unfit(facts, arguments, dtypes)
    if any(len(tensor.shape) != len(tensors[0].shape) for tensor in tensors):
        raise refuse(name, f"{kind} of tensors with other numbers of axes", "Keras spreads them as numpy does")
    dtype, shape, names = dtypes.pop(), tensors[0].shape, []
    for operand in arguments:
        if isinstance(operand, ModelTensor):
            shape = tuple(m if n == 1 else n for n, m in zip(shape, operand.shape, strict=True))
        elif isinstance(operand, bool) or dtype == "bool" or not isinstance(operand, (int, float) if dtype == "float32" else int):
            raise _unfit(facts, arguments, {dtype})
        names.append(operand.name if isinstance(operand, ModelTensor) else build.constant(f"{name}/number", np.array(operand, dtype)))
    if kind in _COUNTING:
        return ModelTensor(build.add(_COUNTING[kind], names, name), shape)
    output = build.truth(_COMPARING.get(kind) or _JOINING[kind], names, f"{name}/truth", shape)
    return build.truth("Not", [output.name], name, shape) if kind == "NotEqual" else output


def _negated(build: GraphBuilder, facts: LayerFacts, arguments: Sequence[Any]) -> ModelTensor:
    x = _single(build, facts, arguments)
    return build.truth("Not", [x.name], facts.name, x.shape)


def _itself(build: GraphBuilder, facts: LayerFacts, arguments: Sequence[Any]) -> ModelTensor:
    for key in ("dtype", "sparse"):
        facts.need(key, None)
    return _single(build, facts, arguments)


def _reduced(build: GraphBuilder, facts: LayerFacts, arguments: Sequence[Any]) -> ModelTensor:
    """Return whether one of the truths along an axis holds, or all."""
    x, axis, keep = _single(build, facts, arguments), facts.get("axis"), bool(facts.get("keepdims", False))
    axis = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
    if not isinstance(axis, int) or axis % len(x.shape) == 0:
        raise refuse(facts.name, f"axis = {axis!r}", "only one axis behind the batch is known here")
    return some(build, facts.name, x, axis, keep, "ReduceMax" if facts.old.kind == "Any" else "ReduceMin")


def _widened(build: GraphBuilder, facts: LayerFacts, arguments: Sequence[Any]) -> ModelTensor:
    x, axis = _single(build, facts, arguments), facts.get("axis")
    if axis != -1:
        raise refuse(facts.name, f"axis = {axis!r}", "only a new last axis is known here")
    return build.truth("Unsqueeze", [x.name, build.integers(len(x.shape))], facts.name, (*x.shape, 1))


def _alike(build: GraphBuilder, facts: LayerFacts, arguments: Sequence[Any]) -> ModelTensor:
    """Return truths, all alike, one for each number of a tensor."""
    facts.need("dtype", "bool")
    if len(arguments) != 1 or not isinstance(arguments[0], ModelTensor):
        raise _unfit(facts, arguments, set())
    filled = helper.make_tensor("", 9, [1], [facts.old.kind == "OnesLike"])
    size = build.add("Shape", [arguments[0].name], f"{facts.name}/size")
    return build.truth("ConstantOfShape", [size], facts.name, arguments[0].shape, value=filled)


def _joined(build: GraphBuilder, facts: LayerFacts, arguments: Sequence[Any]) -> ModelTensor:
    """Return tensors of truths, one behind the other."""
    if not arguments or any(not isinstance(argument, ModelTensor) or _dtype(build, argument) != "bool" for argument in arguments):
        raise _unfit(facts, arguments, set())
    axis, shape = joined(facts, arguments)
    return build.truth("Concat", [argument.name for argument in arguments], facts.name, shape, axis=axis)


def _dtype(build: GraphBuilder, value: ModelTensor) -> str:
    return build.dtypes.get(value.name, "float32")


def _single(build: GraphBuilder, facts: LayerFacts, arguments: Sequence[Any]) -> ModelTensor:
    """Return the only argument, a tensor of truths."""
    if len(arguments) != 1 or not isinstance(arguments[0], ModelTensor) or _dtype(build, arguments[0]) != "bool":
        raise _unfit(facts, arguments, set())
    return arguments[0]


def _unfit(facts: LayerFacts, arguments: Sequence[Any], dtypes: set[str]) -> Exception:
    what = f"{facts.old.kind} of {len(arguments)} arguments" + (f" ({', '.join(sorted(dtypes))})" if dtypes else "")
    return refuse(facts.name, what, "only operations that make masks, of tensors of one fitting type, are known here")


OPERATIONS: Mapping[str, Operation] = {
    **dict.fromkeys((*_COMPARING, *_JOINING, *_COUNTING), _two),
    "LogicalNot": _negated,
    "Any": _reduced,
    "All": _reduced,
    "ExpandDims": _widened,
    "ConvertToTensor": _itself,
    "ZerosLike": _alike,
    "OnesLike": _alike,
    "Concatenate": _joined,
}
"""The operations that are known. They are not layers: masks beside tensors change nothing in them."""
