"""Operators on tensors as keras.ops. A functional model has no lengths: open ones are left to shapes with one -1, or refused.

Source: keras 3.15 keras/src/ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnnconvert.scaffolding.description import Length, Node
from rnnconvert.scaffolding.operators import Library, axis_of, rules


def _lengths(m: Any, node: Node, values: Sequence[Length | int]) -> list[str]:
    if not all(isinstance(value, int) for value in values):
        raise m.refused(node, f"{node.kind!r} with a length that a run decides", "a functional model of Keras does not compute lengths")
    return [str(value) for value in values]


def _reshape(m: Any, node: Node, values: Sequence[Length | int]) -> str:
    """Write a new shape: beside the batch, which layers.Reshape leaves alone, one length may be open."""
    sizes = [value if isinstance(value, int) else -1 for value in values]
    opened = [n for n, size in enumerate(sizes) if size == -1]
    if len(opened) < 2:
        return f"ops.reshape({m(node.x)}, {tuple(sizes)})"
    if len(opened) > 2 or axis_of(values[0]) != (0, 0):
        raise m.refused(node, "a new shape of several open lengths", "a functional model of Keras does not compute lengths")
    return f"layers.Reshape({tuple(sizes[1:])})({m(node.x)})"


def _expand(m: Any, node: Node) -> str:
    """Write a tensor repeated along its axes of length 1; the others may be of any length."""
    values, x = node["lengths"], node.x
    shape = (*(1,) * (len(values) - len(x.shape)), *x.shape)
    by = []
    for axis, (value, size) in enumerate(zip(values, shape, strict=True)):
        same = axis_of(value) == (0, axis - len(values) + len(x.shape)) or value == size
        by.append(1 if same or size != 1 else value)
    _lengths(m, node, by)
    text = m(x) if len(shape) == len(x.shape) else f"ops.expand_dims({m(x)}, {tuple(range(len(shape) - len(x.shape)))})"
    return f"ops.tile({text}, {tuple(by)})"


_LACKS = frozenset({"remainder towards zero", "divide towards zero", "pad edge"})
OPERATORS = rules(Library("ops", _reshape, _expand, _lengths, lacks=_LACKS))
"""The operators that are known."""
