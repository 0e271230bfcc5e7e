"""Norms of Keras 3 in the words of rnnconvert.scaffolding.kinds.

Sources: keras 3.15 keras/src/layers/normalization.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, one_input, refuse
from rnnconvert.formats.keras.describe.masks import mask_on
from rnnconvert.formats.keras.describe.settings import axes_of, groups_of, only_axis
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.formats.keras.model.settings import UNIT_LENGTH
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Value


def _sizes_of(facts: LayerFacts, x: Value, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of axes over which a layer has weights. Raises RefusedError for an open one."""
    lengths = tuple(size for axis in axes if (size := x.shape[axis]) is not None)
    if len(lengths) < len(axes):
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only axes of known sizes are known here")
    return lengths


def _affine(facts: LayerFacts) -> tuple[float, bool, bool]:
    """Return the epsilon of a norm, and whether it is scaled and shifted."""
    return float(facts.get("epsilon")), bool(facts.get("scale", True)), bool(facts.get("center", True))


def _batch_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    axis = only_axis(facts, x)
    facts.need("renorm", False)
    mask_on(w, facts, x)  # it is read in training alone
    for key in ("synchronized", "renorm_clipping", "renorm_momentum", "virtual_batch_size", "adjustment"):
        facts.get(key)
    norm = kinds.BatchNorm(*_affine(facts), axis, _sizes_of(facts, x, [axis])[0], float(facts.get("momentum")))
    return [w.add(norm, facts, [x], x.shape)]


def _norm(kind: type[kinds.LastAxesNorm]) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        x = one_input(facts, values)
        axes, rank = axes_of(facts, x), len(x.shape)
        facts.need("rms_scaling", False)
        sizes = _sizes_of(facts, x, axes)
        if axes == list(range(axes[0], rank)):
            return [w.add(kind(*_affine(facts), sizes), facts, [x], x.shape)]
        if kind is kinds.RMSNorm:
            raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "Keras spreads its scale over the last axes, whichever it names")
        order = [*(axis for axis in range(rank) if axis not in axes), *axes]
        turned = _transposed(w, x, order)
        output = w.add(kind(*_affine(facts), sizes), facts, [turned], turned.shape)
        return [_transposed(w, output, [order.index(axis) for axis in range(rank)])]

    return describe


def _transposed(w: Writer, x: Value, order: Sequence[int]) -> Value:
    return w.node(kinds.Transpose(order=tuple(order)), x.name, [x], tuple(x.shape[axis] for axis in order))


def _group_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    groups, width = groups_of(facts, x)
    return [w.add(kinds.GroupNorm(*_affine(facts), len(x.shape) - 1, groups, width), facts, [x], x.shape)]


def _unit_norm(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    return [w.add(kinds.UnitNorm(axes=tuple(axes_of(facts, x)), epsilon=UNIT_LENGTH), facts, [x], x.shape)]


def _rescaling(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    x = one_input(facts, values)
    scale, shift = facts.get("scale"), facts.get("offset")
    if all(isinstance(n, (int, float)) and math.isfinite(n) for n in (scale, shift)):
        return [w.add(kinds.Rescale(scale=float(scale), shift=float(shift)), facts, [x], x.shape)]
    for operation, numbers in (("multiply", scale), ("add", shift)):
        x = _paired(w, facts, operation, x, _stated(w, facts, numbers, x))
    return [x]


def _stated(w: Writer, facts: LayerFacts, numbers: Any, x: Value) -> Value:
    """Return numbers of the configuration that spread over a tensor."""
    array = np.asarray(numbers)
    fits = array.dtype.kind in "if" and array.ndim <= len(x.shape) and array.size <= _MOST_STATED and bool(np.isfinite(array).all())
    if not fits or any(n not in (1, size) for n, size in zip(array.shape[::-1], x.shape[::-1], strict=False)):
        raise refuse(facts.name, f"the numbers {str(numbers)[:40]}", "only such as spread over its input are known here")
    return w.node(kinds.Constant(numbers=array.astype(np.float32)), facts.name, [], array.shape)


_MOST_STATED = 4096
"""The most numbers that are written into code."""


def _paired(w: Writer, facts: LayerFacts, operation: str, x: Value, other: Value) -> Value:
    """Add a sum or the like of two tensors, the second of which spreads over the first as numpy's do."""
    output = w.value(facts.name, x.shape)
    operands = (("input", 0), ("input", 1))
    w.scope.add(kinds.Elementwise(operation=operation, operands=operands), "", [x, other], [output])
    return output


def _normalization(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    """Describe a Normalization, with its moments from its weights or its configuration."""
    x, moments = one_input(facts, values), [facts.get("mean"), facts.get("variance")]
    axes = axes_of(facts, x) if facts.get("axis") not in (None, [], ()) else []
    sizes = _sizes_of(facts, x, axes)
    spread = [sizes[axes.index(axis)] if axis in axes else 1 for axis in range(min(axes, default=len(x.shape)), len(x.shape))]
    if moments == [None, None]:
        mean, variance = (_learned(w, facts, word, number, sizes, spread) for number, word in enumerate(("mean", "variance")))
    else:
        arrays = [np.asarray(moment, np.float64) for moment in moments]
        if any(array.ndim and array.size != math.prod(sizes) for array in arrays):
            raise refuse(facts.name, f"moments of {arrays[0].size} numbers", f"its axes have {math.prod(sizes)}")
        mean, variance = (_stated(w, facts, array.reshape(spread) if array.ndim else array, x) for array in arrays)
    root = w.node(kinds.Elementwise(operation="sqrt", operands=(("input", 0),)), f"{facts.name}_spread", [variance], variance.shape)
    safe = w.node(
        kinds.Elementwise(operation="maximum", operands=(("input", 0), ("number", 1e-7))), f"{facts.name}_spread", [root], variance.shape
    )
    if facts.get("invert", False):
        return [_paired(w, facts, "add", _paired(w, facts, "multiply", x, safe), mean)]
    return [_paired(w, facts, "divide", _paired(w, facts, "subtract", x, mean), safe)]


def _learned(w: Writer, facts: LayerFacts, word: str, number: int, sizes: Sequence[int], spread: Sequence[int]) -> Value:
    """Return an array of a layer, spread over its input."""
    value = w.value(f"{facts.name}_{word}", tuple(sizes))
    w.scope.add(kinds.Parameter(sizes=tuple(sizes)), w.noted(facts, f"{facts.name}/{word}", f"{facts.name}/{number}"), [], [value])
    if len(spread) == len(sizes):
        return value
    return w.node(kinds.ReshapeAll(sizes=tuple(spread)), f"{facts.name}_{word}", [value], tuple(spread))


NORMS: Mapping[str, Describe] = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _norm(kinds.LayerNorm),
    "RMSNormalization": _norm(kinds.RMSNorm),
    "GroupNormalization": _group_norm,
    "UnitNormalization": _unit_norm,
    "Rescaling": _rescaling,
    "Normalization": _normalization,
}
"""The norms, by their classes."""
