"""Layers of Keras 3 as ONNX nodes: those that change shapes, join tensors, or compute nothing when a model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.formats.keras.defaults import DOT_LENGTH
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import Emit, GraphBuilder, function, one_input
from rnnconvert.formats.keras.export.norms import unit
from rnnconvert.formats.keras.settings import count_of, dot_axes, joined, reshaped, wider


def _nothing(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    for key in ("rate", "noise_shape", "stddev", "l1", "l2", "data_format"):
        facts.get(key)
    return one_input(facts, values)


def _function_layer(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    return function(build, facts.name, facts.get("activation"), one_input(facts, values))


def _shaped(build: GraphBuilder, facts: LayerFacts, x: ModelTensor, shape: Sequence[int], out: Sequence[int | None]) -> ModelTensor:
    return ModelTensor(build.add("Reshape", [x.name, build.integers(0, *shape)], f"{facts.name}/reshaped"), (x.shape[0], *out))


def _flatten(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x = one_input(facts, values)
    facts.need("data_format", "channels_last", None)
    return _shaped(build, facts, x, [-1], [count_of(x)])


def _reshape(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x = one_input(facts, values)
    return _shaped(build, facts, x, *reshaped(facts, x))


def _permute(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, dims = one_input(facts, values), [int(n) for n in facts.get("dims")]
    output = build.add("Transpose", [x.name], f"{facts.name}/transposed", perm=[0, *dims])
    return ModelTensor(output, (x.shape[0], *(x.shape[n] for n in dims)))


def _repeat(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    x, count = one_input(facts, values), int(facts.get("n"))
    wide = build.add("Unsqueeze", [x.name, build.integers(1)], f"{facts.name}/wide")
    output = build.add("Expand", [wide, build.integers(1, count, 1)], f"{facts.name}/repeated")
    return ModelTensor(output, (x.shape[0], count, x.shape[1]))


def _merge(operator: str) -> Emit:
    def emit(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
        if len(values) < 2:
            raise refuse(facts.name, f"a {facts.old.kind} of {len(values)} inputs", "it takes two or more")
        rank = max(len(value.shape) for value in values)
        wide = [_widened(build, facts, value, rank) for value in values]
        if operator in _READING and any(value.name in build.masks for value in wide):
            return _masked_merge(build, facts, wide, operator)
        first, *others = wide
        output, shape = first.name, first.shape
        for other in others:
            output = build.add(operator if operator != "Mean" else "Add", [output, other.name], f"{facts.name}/merged")
            shape = tuple(wider(n, m) for n, m in zip(shape, other.shape, strict=True))
        if operator == "Mean":
            count = build.constant(f"{facts.name}/count", np.array(len(values), np.float32))
            output = build.add("Div", [output, count], f"{facts.name}/mean")
        return ModelTensor(output, shape)

    return emit


_READING = ("Mul", "Max", "Min")


def _masked_merge(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor], operator: str) -> ModelTensor:
    """Return a product, maximum or minimum of tensors with masks, which leaves out the steps that do not count.

    The first to count at a step is taken as it is; where none counts, a product is zero, the others keep what is there.
    """
    name = facts.name
    wide: list[ModelTensor | None] = []
    for value in values:
        mask = build.masks.get(value.name)
        if mask is not None and len(mask.shape) != len(value.shape) - 1:
            raise refuse(
                name, f"a mask of {len(mask.shape)} axes on a tensor of {len(value.shape)}", "Keras spreads it over the wrong ones"
            )
        if mask is not None:
            behind = build.integers(len(mask.shape))
            mask = build.truth("Unsqueeze", [mask.name, behind], f"{name}/mask", (*mask.shape, 1))
        wide.append(mask)
    everywhere = all(mask is not None for mask in wide)
    output, shape, counting = "", values[0].shape, wide[0]
    for number, (value, mask) in enumerate(zip(values, wide, strict=True)):
        shape = tuple(wider(n, m) for n, m in zip(shape, value.shape, strict=True))
        x = value.name
        if operator == "Mul":
            if mask is not None:
                ones = build.constant(f"{name}/one", np.array(1, np.float32))
                x = build.add("Where", [mask.name, x, ones], f"{name}/factor")
            output = build.add("Mul", [output, x], f"{name}/merged") if output else x
        elif not number:
            output = x
            continue
        else:
            x = x if mask is None else build.add("Where", [mask.name, x, output], f"{name}/counting")
            output = output if counting is None else build.add("Where", [counting.name, output, x], f"{name}/before")
            output = build.add(operator, [output, x], f"{name}/merged")
        if number:
            both = mask is not None and counting is not None
            counting = build.truth("Or", [mask.name, counting.name], f"{name}/any", shape) if both and mask and counting else None
    if operator == "Mul" and everywhere and counting is not None:
        output = build.add("Where", [counting.name, output, build.zero()], f"{name}/zeroed")
    return ModelTensor(output, shape)


def _widened(build: GraphBuilder, facts: LayerFacts, value: ModelTensor, rank: int) -> ModelTensor:
    """Return a tensor with as many axes: Keras puts new ones behind the batch."""
    missing = rank - len(value.shape)
    if not missing:
        return value
    output = build.add("Unsqueeze", [value.name, build.integers(*range(1, missing + 1))], f"{facts.name}/widened")
    return ModelTensor(output, (value.shape[0], *[1] * missing, *value.shape[1:]))


def _dot(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    """Add a Dot: products of two tensors with two or three axes, summed over one axis of each."""
    name, operands = facts.name, list[str]()
    axes, rest = dot_axes(facts, values)
    for number, (axis, value) in enumerate(zip(axes, values, strict=True)):
        operand = unit(build, f"{name}/{number}", value.name, [axis], DOT_LENGTH) if facts.get("normalize", False) else value.name
        if len(value.shape) == 2:
            operand = build.add("Unsqueeze", [operand, build.integers(2 if number else 1)], f"{name}/wide")
        elif axis != (1 if number else 2):
            operand = build.transposed(operand, [0, 2, 1], name)
        operands.append(operand)
    operand = build.add("MatMul", operands, f"{name}/product")
    single = [1 + number for number, value in enumerate(values) if len(value.shape) == 2]
    if len(single) == 2:
        single = [1]
    operand = build.add("Squeeze", [operand, build.integers(*single)], f"{name}/narrow") if single else operand
    return ModelTensor(operand, (values[0].shape[0], *rest))


def _concatenate(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> ModelTensor:
    axis, shape = joined(facts, values)
    return ModelTensor(build.add("Concat", [value.name for value in values], f"{facts.name}/joined", axis=axis), shape)


SHAPES: Mapping[str, Emit] = {
    "Flatten": _flatten, "Reshape": _reshape, "Permute": _permute, "RepeatVector": _repeat, "Dot": _dot,
    "Activation": _function_layer, "Add": _merge("Add"), "Subtract": _merge("Sub"), "Multiply": _merge("Mul"), "Average": _merge("Mean"),
    "Maximum": _merge("Max"), "Minimum": _merge("Min"), "Concatenate": _concatenate,
    **{name: _nothing for name in ("Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianNoise", "GaussianDropout",
                                   "AlphaDropout", "ActivityRegularization", "Identity", "SpatialDropout3D")},
}  # fmt: skip
"""The layers that change shapes, join tensors, or compute nothing, by their classes."""
