"""Whole numbers that a graph computes: constants, and the number of a loop's step plus a constant.

Converters of TensorFlow 2.2 compute where a slice begins from the rank of what it is cut from.

Source: tensorflow/lite/kernels/fill.cc, rank.cc, shape.cc, pack.cc; tensorflow/compiler/mlir/lite/transforms/lower_static_tensor_list.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rnnconvert.formats.tflite.graph import Operator, Subgraph

_MOST, _DEEPEST = 64, 32
_KINDS = (2, 4)
"""Numbers of element types: int32 and int64."""


class Element(NamedTuple):
    """A whole number, or a run of equal ones.

    counter  the input of the graph that it counts on from, -1 for a constant
    offset   what is added to the counter; the constant
    many     whether it stands for any number of equal ones
    """

    counter: int
    offset: int
    many: bool = False


def elements(graph: Subgraph, place: int, deep: int = 0) -> list[Element] | None:
    """Return the elements of a tensor of whole numbers, in their order; None for what is not known."""
    if place < 0 or deep > _DEEPEST or graph.tensors[place].kind not in _KINDS:
        return None
    stored = graph.tensors[place].stored
    if stored is not None:
        if stored.dtype.kind not in "iu" or stored.size > _MOST:
            return None
        return [Element(-1, int(number)) for number in stored.reshape(-1)]
    producer = graph.producer(place)
    if producer is None:
        return [Element(place, 0)] if place in graph.inputs and graph.tensors[place].dims in ((), (1,)) else None
    rule = _RULES.get(producer.label)
    result = rule(graph, producer, deep + 1) if rule is not None else None
    return result if result is not None and len(result) <= _MOST else None


def numbers(graph: Subgraph, place: int) -> list[int]:
    """Return the whole numbers that a tensor is at every step; none where they are not known."""
    values = elements(graph, place) or []
    return [] if any(element.counter >= 0 or element.many for element in values) else [element.offset for element in values]


def is_next(graph: Subgraph, place: int, counter: int) -> bool:
    """Return whether a tensor is an input of the graph plus one."""
    return elements(graph, place) == [Element(counter, 1)]


def _same(graph: Subgraph, operator: Operator, deep: int) -> list[Element] | None:
    return elements(graph, operator.input(0), deep)


def _sum(graph: Subgraph, operator: Operator, deep: int) -> list[Element] | None:
    left, right = (elements(graph, operator.input(at), deep) for at in (0, 1))
    stated = operator.options
    if left is None or right is None or (stated is not None and stated.number(0, "b", 0)):
        return None
    if len(left) != len(right) and 1 not in (len(left), len(right)):
        return None
    size = max(len(left), len(right)) if left and right else 0
    pairs = list(zip(left * (size // max(len(left), 1)), right * (size // max(len(right), 1)), strict=True))
    if any((a.counter >= 0 and b.counter >= 0) or a.many or b.many for a, b in pairs):
        return None
    return [Element(max(a.counter, b.counter), a.offset + b.offset) for a, b in pairs]


def _joined(graph: Subgraph, operator: Operator, deep: int) -> list[Element] | None:
    """Return the elements of a CONCATENATION or a PACK of vectors or numbers, which have one axis to be joined along."""
    stated = operator.options
    if operator.label == "CONCATENATION" and stated is not None and stated.number(1, "b", 0):
        return None
    result = list[Element]()
    for place in operator.inputs:
        part = elements(graph, place, deep)
        if part is None or len(graph.tensors[place].dims) > 1 or (operator.label == "PACK" and len(part) != 1):
            return None
        result += part
    return result


def _filled(graph: Subgraph, operator: Operator, deep: int) -> list[Element] | None:
    count, value = (elements(graph, operator.input(at), deep) for at in (0, 1))
    if value is None or len(value) != 1 or (count is not None and len(count) != 1):
        return None
    if count is None or count[0].counter >= 0 or count[0].many:
        return [value[0]._replace(many=True)]
    return value * count[0].offset if 0 <= count[0].offset <= _MOST else None


def _rank(graph: Subgraph, operator: Operator, deep: int) -> list[Element] | None:
    dims = graph.tensors[operator.input(0)].dims if operator.input(0) >= 0 else ()
    return [Element(-1, len(dims))] if dims else None  # a file does not tell a number from what is of any rank


def _shape(graph: Subgraph, operator: Operator, deep: int) -> list[Element] | None:
    dims = graph.tensors[operator.input(0)].dims if operator.input(0) >= 0 else ()
    return [Element(-1, dim) for dim in dims if dim is not None] if dims and None not in dims else None


_RULES: Mapping[str, Callable[[Subgraph, Operator, int], list[Element] | None]] = {
    "ADD": _sum,
    "CAST": _same,
    "CONCATENATION": _joined,
    "EXPAND_DIMS": _same,
    "FILL": _filled,
    "PACK": _joined,
    "RANK": _rank,
    "RESHAPE": _same,
    "SHAPE": _shape,
}
