"""Layers of Keras 3 that read several tensors, in the words of rnnconvert.scaffolding.kinds.

Sources: keras 3.15 keras/src/layers/merging; formats/keras/describe/masks.py says which masks they hand on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.describe.masks import either
from rnnconvert.formats.keras.describe.settings import dot_axes, joined, wider
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Shape, Value


def _merge(operation: str) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        if len(values) < 2:
            raise refuse(facts.name, f"a {facts.old.kind} of {len(values)} inputs", "it takes two or more")
        rank = max(len(value.shape) for value in values)
        shape = _spread([(value.shape[0], *[1] * (rank - len(value.shape)), *value.shape[1:]) for value in values])
        masks = [w.masks.get(value.name) for value in values]
        if operation in ("multiply", "maximum", "minimum") and any(masks):
            if any(mask is not None and len(mask.shape) != rank - 1 for mask in masks):
                raise refuse(w.called(facts.name), "a mask of other axes than its tensor's", "Keras spreads it over the wrong ones")
            values = [_widened(w, value, rank) for value in values]
            return [(_product if operation == "multiply" else _extreme)(w, facts, values, masks)]
        return [w.add(kinds.Arithmetic(operation=operation), facts, values, shape)]

    return describe


def _spread(shapes: Sequence[Shape]) -> Shape:
    """Return the axes of tensors of as many axes, spread over one another."""
    shape = shapes[0]
    for other in shapes[1:]:
        shape = tuple(wider(n, m) for n, m in zip(shape, other, strict=True))
    return shape


def _widened(w: Writer, value: Value, rank: int) -> Value:
    """Return a tensor with as many axes: Keras puts new ones behind the batch."""
    for _ in range(rank - len(value.shape)):
        wide = w.node(kinds.Unsqueeze(axis=1), value.name, [value], (value.shape[0], 1, *value.shape[1:]), value.dtype)
        value = wide
    return value


def where(w: Writer, facts: LayerFacts, mask: Value, x: Value, other: Value | float) -> Value:
    """Add a tensor's numbers at the steps that count, and others at those that do not."""
    others = [(*mask.shape, 1), *([other.shape] if isinstance(other, Value) else [])]
    output = w.value(facts.name, _spread([x.shape, *others]))
    inputs, number = ([x, other], 0.0) if isinstance(other, Value) else ([x], other)
    w.scope.add(kinds.Where(value=number), "", inputs, [output], {"mask": [mask]})
    return output


def _product(w: Writer, facts: LayerFacts, values: Sequence[Value], masks: Sequence[Value | None]) -> Value:
    """Return a product whose factors are 1 at steps that are masked, zero where a step counts in none of them."""
    factors = [value if mask is None else where(w, facts, mask, value, 1.0) for value, mask in zip(values, masks, strict=True)]
    output = w.add(kinds.Arithmetic(operation="multiply"), facts, factors, _spread([value.shape for value in values]))
    counts: Any = either(w, facts, masks)
    return output if counts is None else where(w, facts, counts, output, 0.0)


def _extreme(w: Writer, facts: LayerFacts, values: Sequence[Value], masks: Sequence[Value | None]) -> Value:
    """Return the largest or smallest of tensors, step by step of those that count there: Keras folds them from the first on."""
    output, counts = values[0], masks[0]
    for value, mask in zip(values[1:], masks[1:], strict=True):
        x = value if mask is None else where(w, facts, mask, value, output)
        before = output if counts is None else where(w, facts, counts, output, x)
        joined: Any = either(w, facts, [counts, mask])
        counts = joined
        output = w.add(kinds.Arithmetic(operation=facts.old.kind.lower()), facts, [before, x], _spread([before.shape, x.shape]))
    return output


def _concatenate(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    axis, shape = joined(facts, values)
    return [w.add(kinds.Concatenate(axis=axis), facts, values, shape, dtype=values[0].dtype)]


def _dot(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    axes, rest = dot_axes(facts, values)
    return [w.add(kinds.Dot(axes=axes, normalize=bool(facts.get("normalize", False))), facts, values, (values[0].shape[0], *rest))]


MERGING: Mapping[str, Describe] = {
    "Concatenate": _concatenate, "Dot": _dot,
    **{name: _merge(name.lower()) for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")},
}  # fmt: skip
"""The layers that read several tensors, by their classes."""
