"""Lists of tensors that a loop fills: the value that a step puts in, and whether the list holds one element a step.

A list is one tensor, in which a step updates a part, or whose parts before and behind the new element it joins to that; or it stays a list
of TensorFlow's, with separate operators.

Source: tensorflow/compiler/mlir/lite/transforms/lower_static_tensor_list.cc, for the former two; tensorflow/core/kernels/list_kernels.cc,
TensorListReserve, TensorListSetItem and TensorListStack: an element that no step puts in is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rnnconvert.core.cached import cached_property
from rnnconvert.formats.tflite.graph import Operator, Subgraph
from rnnconvert.formats.tflite.integers import Element, elements, is_next, numbers

FROM_TENSOR, GET, RESERVE, SET, STACK = (f"FlexTensorList{word}" for word in ("FromTensor", "GetItem", "Reserve", "SetItem", "Stack"))
_CONCATENATION, _RESHAPE, _CAST, _LESS, _SLICE, _EXPAND_DIMS, _AND, _UPDATE = 2, 22, 53, 58, 65, 70, 86, 151


@dataclass(frozen=True, eq=False)
class WhileLoop:
    """A WHILE of a graph, with the graph that decides whether it goes on and that of its steps."""

    graph: Subgraph
    operator: Operator
    going: Subgraph
    body: Subgraph

    @cached_property
    def counters(self) -> set[int]:
        """The inputs of the body that count its steps from 0 on."""
        places = set()
        for number, place in enumerate(self.body.inputs):
            first = numbers(self.graph, self.operator.input(number))
            if first == [0] and is_next(self.body, self.body.outputs[number], place):
                places.add(place)
        return places

    def each(self, number: int) -> int | None:
        """Return the value that each step puts into a list, at the place that the step has; None for another state."""
        put = self._put(number)
        if put is None:
            return _element(self.body, number, self.counters) if self._filled(number) else None
        where, value = put
        return value if where in self.counters and self._ends_at(self._count(number)) else None

    def last(self, number: int) -> int | None:
        """Return the value that each step leaves as the one element of a list; None for a state that its steps read."""
        put = self._put(number)
        if put is not None:
            where, value = put
            return value if numbers(self.body, where) == [0] and self._only(number) else None
        producer, input_tensor = _computing(self.body, self.body.outputs[number]), self.body.inputs[number]
        return (
            producer.input(0) if producer is not None and _is_first(self.body, producer) and not self.body.consumers(input_tensor) else None
        )

    def _filled(self, number: int) -> bool:
        """Return whether there are as many steps as a tensor has elements at first, where both are stated."""
        place = self.operator.input(number)
        dims = self.graph.tensors[place].dims if place >= 0 else ()
        limits = [self._limit(operator.input(1)) for operator in self.going.operators if operator.code == _LESS]
        return not dims or dims[0] is None or not all(limits) or [dims[0]] == min(limits, default=[])

    def _limit(self, place: int) -> list[int]:
        """Return the bound with which the number of a step is compared, if it is stated."""
        places = self.going.inputs
        if place not in places:
            return numbers(self.going, place)
        return numbers(self.graph, self.operator.input(places.index(place)))

    def _put(self, number: int) -> tuple[int, int] | None:
        """Return the place in a list, and what is put there, where a step does nothing else with the list."""
        producer, input_tensor = _computing(self.body, self.body.outputs[number]), self.body.inputs[number]
        if producer is None or producer.name != SET or len(producer.inputs) != 3 or producer.input(0) != input_tensor:
            return None
        return (producer.input(1), producer.input(2)) if self.body.consumers(input_tensor) == [producer] else None

    def _count(self, number: int) -> int:
        """Return the tensor that says how many elements a list has, or -1."""
        producer = self.graph.producer(self.operator.input(number))
        return producer.input(1) if producer is not None and producer.name == RESERVE else -1

    def _only(self, number: int) -> bool:
        return numbers(self.graph, self._count(number)) == [1]

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
            stated = numbers(self.going, limit)
            return len(stated) == 1 and stated == numbers(self.graph, count)
        number = places.index(limit)
        outer = self.operator.input(number)
        same = outer == count or numbers(self.graph, outer)[:1] == numbers(self.graph, count)[:1] != []
        return same and self.body.outputs[number] == self.body.inputs[number]


def handed_on(operator: Operator, body: Subgraph) -> set[int]:
    """Return which states of a WHILE are the same at every step: what its first step is given, or a copy of another such state."""
    sources = [_unconverted(body, place) for place in body.outputs]
    places = {place: number for number, place in enumerate(body.inputs)}
    fixed = {number for number, source in enumerate(sources) if source == body.inputs[number]}
    copied = {
        number
        for number, source in enumerate(sources)
        if places.get(source) in fixed and operator.input(places[source]) == operator.input(number)
    }
    return fixed | copied


def with_constants(graph: Subgraph, operator: Operator, body: Subgraph) -> Subgraph:
    """Return the graph of the steps in which each state that is a stored tensor at every step is that tensor."""
    tensors = list(body.tensors)
    for number in handed_on(operator, body):
        place = operator.input(number)
        if place >= 0 and graph.tensors[place].stored is not None and body.inputs[number] >= 0:
            tensors[body.inputs[number]] = graph.tensors[place]
    return Subgraph(body.name, tensors, body.operators, body.inputs, body.outputs)


def _element(body: Subgraph, number: int, counters: Iterable[int]) -> int | None:
    """Return the value that a step puts at its place into a tensor that holds one element a step; None for another state."""
    filled, input_tensor = _computing(body, body.outputs[number]), body.inputs[number]
    if filled is None:
        return None
    element, places = (_updating if filled.code == _UPDATE else _joining)(body, filled, input_tensor)
    if element is None or not places or not _is_first(body, element):
        return None
    at, *others = places
    if at.many or at.offset or at.counter not in counters or any((place.counter, place.offset) != (-1, 0) for place in others):
        return None
    return element.input(0)


_Put: TypeAlias = "tuple[Operator | None, Sequence[Element]]"
"""The operator that makes a value an element of a list, and the element's place along each axis, as far as a step may choose it; no place
for a step that does something else.
"""


def _updating(body: Subgraph, update: Operator, filled: int) -> _Put:
    """Return the element with which an operator updates a part of a list, of its width."""
    wide = update.input(1) >= 0 and body.tensors[update.input(1)].dims[1:] == body.tensors[filled].dims[1:]
    places = elements(body, update.input(2)) if wide and update.input(0) == filled else None
    return body.producer(update.input(1)), places or []


def _joining(body: Subgraph, joined: Operator, filled: int) -> _Put:
    """Return the element that an operator joins to the parts of a list before it and behind it."""
    if not _joins(joined, 3):
        return None, []
    before, element, behind = (body.producer(place) for place in joined.inputs)
    if before is None or behind is None or (before.code, behind.code) != (_SLICE, _SLICE):
        return None, []
    if before.input(0) != filled or behind.input(0) != filled:
        return None, []
    starts, count, after, size = (elements(body, place) for place in (before.input(1), before.input(2), behind.input(1), behind.input(2)))
    if not starts or not size or not count or not after or after[0] != Element(count[0].counter, 1):
        return None, []
    if any((ended.counter, ended.offset) != (-1, -1) for ended in (*size, *count[1:])):
        return None, []
    if any((start.counter, start.offset) != (-1, 0) for start in starts):
        return None, []
    return element, [count[0], *after[1:]]


def _computing(graph: Subgraph, place: int) -> Operator | None:
    """Return the operator that computes a tensor, before those that convert it to its own type (converters of TensorFlow 2.3)."""
    return graph.producer(_unconverted(graph, place))


def _unconverted(graph: Subgraph, place: int) -> int:
    """Return the tensor that operators convert to its own type, or the tensor itself."""
    for _ in graph.operators:
        producer = graph.producer(place)
        before = producer.input(0) if producer is not None and producer.code == _CAST else -1
        if before < 0 or graph.tensors[before].kind != graph.tensors[place].kind:
            break
        place = before
    return place


def _is_first(body: Subgraph, operator: Operator) -> bool:
    """Return whether an operator makes a tensor the one element of a list."""
    if operator.code == _EXPAND_DIMS:
        return numbers(body, operator.input(1)) == [0]
    source, shape = operator.input(0), numbers(body, operator.input(1))
    if operator.code != _RESHAPE or source < 0 or shape[:1] != [1]:
        return False
    dims = body.tensors[source].dims
    return len(shape) == len(dims) + 1 and all(new == -1 or new == old or old is None for new, old in zip(shape[1:], dims, strict=True))


def _joins(operator: Operator, count: int) -> bool:
    """Return whether a CONCATENATION lays so many tensors one behind the other, with no function of them."""
    stated = operator.options
    if operator.code != _CONCATENATION or len(operator.inputs) != count:
        return False
    return stated is None or (not stated.number(0, "i", 0) and not stated.number(1, "b", 0))
