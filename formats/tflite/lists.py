"""Lists of tensors that a loop fills: what a step puts in, and whether the list holds one element a step.

A list is one tensor, with slices before and behind the new element, or stays a list of TensorFlow's, in operators of its own.

Source: tensorflow/compiler/mlir/lite/transforms/lower_static_tensor_list.cc, for the former; tensorflow/core/kernels/list_kernels.cc,
TensorListReserve, TensorListSetItem and TensorListStack: what no step puts in is zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from rnnconvert.formats.tflite.graph import Graph, Operator

FROM_TENSOR, GET, RESERVE, SET, STACK = (
    f"FlexTensorList{word}" for word in ("FromTensor", "GetItem", "Reserve", "SetItem", "Stack")
)
_ADD, _CONCATENATION, _RESHAPE, _CAST, _LESS, _SLICE, _EXPAND_DIMS, _AND, _FILL = 0, 2, 22, 53, 58, 65, 70, 86, 94


def settled(graph: Graph, operator: Operator, body: Graph) -> tuple[Graph, dict[int, int]]:
    """Return the steps of a WHILE with the stored tensors that it hands to each of them unchanged, and these by their inputs' places.

    Converters of TensorFlow 2.2 and earlier hand weights and other constants over in this way.
    """
    tensors, outside = list(body.tensors), {}
    for inner, after, outer in zip(body.inputs, body.outputs, operator.inputs, strict=True):
        if inner == after and outer >= 0 and graph.tensors[outer].stored is not None:
            tensors[inner] = replace(graph.tensors[outer], name=body.tensors[inner].name)
            outside[inner] = outer
    return Graph(body.name, tensors, body.operators, body.inputs, body.outputs), outside


@dataclass(frozen=True, eq=False)
class Loop:
    """A WHILE of a graph, with the graph that decides whether it goes on and that of its steps."""

    graph: Graph
    operator: Operator
    going: Graph
    body: Graph

    @cached_property
    def counters(self) -> set[int]:
        """The inputs of the body that count its steps from 0 on."""
        found = set()
        for number, place in enumerate(self.body.inputs):
            first = _numbers(self.graph, self.operator.input(number))
            if first == [0] and _is_next(self.body, self.body.outputs[number], place):
                found.add(place)
        return found

    def unread(self, number: int) -> bool:
        """Return whether nothing reads a state: no step, no test, and nothing behind the loop."""
        place, outer = self.body.inputs[number], self.operator.outputs[number]
        read = self.body.consumers(place) or self.going.consumers(self.going.inputs[number]) or self.graph.consumers(outer)
        return not read and place not in self.body.outputs and outer not in self.graph.outputs

    def each(self, number: int) -> int | None:
        """Return what each step puts into a list, at the place that the step has; None for another state."""
        put = self._put(number)
        if put is None:
            return _between(self.body, number, self.counters)
        where, value = put
        return value if where in self.counters and self._ends_at(self._count(number)) else None

    def last(self, number: int) -> int | None:
        """Return what each step leaves as the one element of a list; None for a state that its steps read."""
        put = self._put(number)
        if put is not None:
            where, value = put
            return value if _numbers(self.body, where) == [0] and self._only(number) else None
        producer, own = _computing(self.body, self.body.outputs[number]), self.body.inputs[number]
        return (
            producer.input(0)
            if producer is not None and _is_first(self.body, producer) and not self.body.consumers(own)
            else None
        )

    def _put(self, number: int) -> tuple[int, int] | None:
        """Return the place in a list, and what is put there, where a step does nothing else with the list."""
        producer, own = _computing(self.body, self.body.outputs[number]), self.body.inputs[number]
        if producer is None or producer.name != SET or len(producer.inputs) != 3 or producer.input(0) != own:
            return None
        return (producer.input(1), producer.input(2)) if self.body.consumers(own) == [producer] else None

    def _count(self, number: int) -> int:
        """Return the tensor that says how many elements a list has, or -1."""
        producer = self.graph.producer(self.operator.input(number))
        return producer.input(1) if producer is not None and producer.name == RESERVE else -1

    def _only(self, number: int) -> bool:
        return _numbers(self.graph, self._count(number)) == [1]

    def _ends_at(self, count: int) -> bool:
        """Return whether it takes as many steps as a tensor of the graph says."""
        waiting = list(self.going.outputs)
        compared = 0
        while waiting and compared <= len(self.going.operators):
            compared += 1
            producer = self.going.producer(waiting.pop())
            if producer is None or len(producer.inputs) != 2:
                return False
            if producer.code == _AND:
                waiting += producer.inputs
            elif producer.code != _LESS or not self._counts_to(*producer.inputs, count):
                return False
        return count >= 0 and not waiting

    def _counts_to(self, counter: int, limit: int, count: int) -> bool:
        """Return whether a number of the steps is compared with what a tensor of the graph says."""
        places = self.going.inputs
        if counter not in places or self.body.inputs[places.index(counter)] not in self.counters:
            return False
        if limit not in places:
            stated = _numbers(self.going, limit)
            return len(stated) == 1 and stated == _numbers(self.graph, count)
        number = places.index(limit)
        outer = self.operator.input(number)
        same = outer == count or _numbers(self.graph, outer)[:1] == _numbers(self.graph, count)[:1] != []
        return same and self.body.outputs[number] == self.body.inputs[number]


def _between(body: Graph, number: int, counters: Iterable[int]) -> int | None:
    """Return what a step puts between what lay before it in a tensor and what lay behind it; None for another state."""
    joined, own = _computing(body, body.outputs[number]), body.inputs[number]
    if joined is None or not _joins(joined, 3):
        return None
    before, element, behind = (body.producer(place) for place in joined.inputs)
    if before is None or element is None or behind is None:
        return None
    if (before.code, behind.code) != (_SLICE, _SLICE) or not _is_first(body, element):
        return None
    if before.input(0) != own or behind.input(0) != own:
        return None
    count, rest = _place(body, before.input(2))
    after, zeros = _place(body, behind.input(1))
    size = _filled(body, behind.input(2))
    starts = _filled(body, before.input(1))
    if not starts or any(starts) or any(zeros) or set(rest) - {-1} or not size or set(size) - {-1}:
        return None
    return element.input(0) if count in counters and _is_next(body, after, count) else None


def _computing(graph: Graph, place: int) -> Operator | None:
    """Return the operator that computes a tensor, before those that convert it to its own type (converters of TensorFlow 2.3)."""
    producer = graph.producer(place)
    for _ in graph.operators:
        if producer is None or producer.code != _CAST:
            break
        before = producer.input(0)
        if before < 0 or graph.tensors[before].kind != graph.tensors[producer.outputs[0]].kind:
            break
        producer = graph.producer(before)
    return producer


def _is_first(body: Graph, operator: Operator) -> bool:
    """Return whether an operator makes a tensor the one element of a list."""
    if operator.code == _EXPAND_DIMS:
        return _numbers(body, operator.input(1)) == [0]
    given, shape = operator.input(0), _numbers(body, operator.input(1))
    if operator.code != _RESHAPE or given < 0 or shape[:1] != [1]:
        return False
    dims = body.tensors[given].dims
    return len(shape) == len(dims) + 1 and all(
        new == -1 or new == old or old is None for new, old in zip(shape[1:], dims, strict=True)
    )


def _joins(operator: Operator, count: int) -> bool:
    """Return whether a CONCATENATION lays so many tensors one behind the other, with no function of them."""
    stated = operator.options
    if operator.code != _CONCATENATION or len(operator.inputs) != count:
        return False
    return stated is None or (not stated.number(0, "i", 0) and not stated.number(1, "b", 0))


def _numbers(graph: Graph, place: int) -> list[int]:
    """Return the whole numbers that a tensor is, where they are stored."""
    stored = graph.tensors[place].stored if place >= 0 else None
    return [] if stored is None or stored.dtype.kind not in "iu" else [int(one) for one in stored.reshape(-1)]


def _filled(graph: Graph, place: int) -> list[int]:
    """Return the whole numbers that a tensor is made of, once each where operators repeat them (converters of TensorFlow 2.2)."""
    producer = graph.producer(place)
    if producer is None:
        return _numbers(graph, place)
    if producer.code == _FILL:
        return _numbers(graph, producer.input(1))
    if not _joins(producer, 2):
        return []
    parts = [_filled(graph, part) for part in producer.inputs]
    return [*parts[0], *parts[1]] if all(parts) else []


def _place(body: Graph, place: int) -> tuple[int, list[int]]:
    """Return a place in a list: the tensor that its first number is, and the others."""
    joined = body.producer(place)
    if joined is None or not _joins(joined, 2):
        return -1, [0]
    first, rest = body.producer(joined.inputs[0]), _filled(body, joined.inputs[1])
    return (first.input(0), rest) if first is not None and first.code == _RESHAPE and rest else (-1, [0])


def _is_next(body: Graph, place: int, count: int) -> bool:
    """Return whether a tensor is the number of the step plus one."""
    made = body.producer(place) if place >= 0 else None
    if made is None or made.code != _ADD or len(made.inputs) != 2 or count not in made.inputs:
        return False
    other = made.inputs[1 - made.inputs.index(count)]
    stated = made.options
    return (stated is None or not stated.number(0, "b", 0)) and _numbers(body, other) == [1]
