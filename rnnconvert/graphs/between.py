"""The way from recurrent layer to recurrent layer in a graph, computed from the origin of each element, not looked up by name."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import INPUT, Call, Directly, Input, Reads, Through, Unknown
from rnnconvert.graphs.elements import BITS, Elements, ElementSource, canonical
from rnnconvert.graphs.graph import Graph, GraphNode, GraphValue, LayerCall
from rnnconvert.graphs.operators import SAME, Casts, Chooses, Measures, Moves
from rnnconvert.graphs.trace import Trace

_PRIMES = (5, 3, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
_MULTIPLES = ((2, 3), (1, 3), (2, 1))
"""How much longer axes are in the passes beside one, the first of which that the graph takes tells which numbers are lengths."""
_INTEGERS = 6
"""The most whole numbers of a file that are tried as lengths, where no others fit."""
_TRIED = 200
"""How many lengths are tried where a graph takes none of the first."""
_FITTING = 3
"""At how many of these lengths that fit a layer is examined."""
_NAMED = 4
"""The most operators that a message names."""
_VISITED = 1 << 16
"""The most operators that are visited to name what lies before a layer."""

Place: TypeAlias = "tuple[Reads, bool]"
"""The sequence that a call reads, and whether all operators took the lengths that were tried."""


def calls(graph: Graph, parts: bool = True) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent layer of a graph, in its order, with everything that each receives.

    parts  whether layers that stand alone in it may be parts of a model that the graph does not state
    """
    if not graph.layers:
        return {}
    reads = _settled(graph)
    alone = standing_alone(graph) if parts else []
    reads |= {call: _LEFT for call in alone if isinstance(reads[call], Input)}
    received: dict[str, list[Call]] = {}
    for call in graph.layers:
        lengths = dict.fromkeys(filter(None, (_source(graph, value) for value in call.lengths)))
        begins = dict.fromkeys(filter(None, (origin(graph, value) for value in call.initial)))
        stated = call.received
        states, ragged = stated.states or " and ".join(begins), stated.lengths or " and ".join(lengths)
        received.setdefault(call.layer, []).append(replace(stated, sequence=reads[call], states=states, lengths=ragged))
    return {layer: tuple(several) for layer, several in received.items()}


_LEFT = Unknown("its model leaves to the caller what it reads, and what reads it")


def _source(graph: Graph, value: GraphValue) -> str:
    """Return the name of the value that lengths are, the same for all copies of it; "" where no input of the model decides it."""
    if not origin(graph, value):
        return ""
    for _ in range(_VISITED):
        operator = graph.dialect.get(value.node.kind) if isinstance(value.node, GraphNode) else None
        if not (operator is SAME or isinstance(operator, Casts)):
            break
        assert isinstance(value.node, GraphNode) and value.node.inputs[0] is not None
        value = value.node.inputs[0]
    return repr(value.name)


def origin(graph: Graph, value: GraphValue) -> str:
    """Return where a state comes from, as `Call.states` says it: "" if no input of the model decides it."""
    layers, operators, inputs = dict[str, None](), dict[str, None](), False
    waiting, seen = [value], {value}
    while waiting and len(seen) < _VISITED:
        current = waiting.pop()
        if current.constant is not None:
            continue
        if isinstance(current.node, LayerCall):
            words = next((words for state, words in current.node.states if state is current), "a sequence")
            layers[f"{words} of {current.node.layer!r}"] = None
        elif current.node is None:
            inputs = True
        else:
            operator = graph.dialect.get(current.node.kind)
            if isinstance(operator, Measures):
                continue
            if not isinstance(operator, (Moves, Casts)) and current.node.inputs:
                operators[current.node.label] = None
            # Shapes and places decide which elements a moving operator gives, and not what they are.
            read = [
                value_read
                for place, value_read in enumerate(current.node.inputs)
                if value_read is not None and (not isinstance(operator, Moves) or operator.carries(place, len(current.node.inputs)))
            ]
            waiting += [value_read for value_read in read if value_read not in seen]
            seen |= set(read)
    if waiting:
        return "behind more operators than are followed"
    if not layers and not inputs:
        return ""
    return " and ".join(layers) or (f"computed by {', '.join([*operators][:_NAMED])}" if operators else INPUT)


def _settled(graph: Graph) -> dict[LayerCall, Reads]:
    """Return the sequence that each call reads, on which all passes agree whose lengths the graph takes."""
    names = sorted({axis for value in graph.values() for axis in value.dims or () if isinstance(axis, str)})
    # One has fewer lengths, so that axes that are alike in one of them, where there are many, are not in the other.
    passes = [_Pass(graph, names, primes, [other]) for primes, other in itertools.permutations((_PRIMES, _PRIMES[1:]))]
    results, fitting = {}, {}
    for call in graph.layers:
        places = [pass_.place(call) for pass_ in passes]
        fitting[call] = [reads for reads, fits in places if fits]
        results[call] = places[0][0]
    # What takes one of two lengths may take it by chance.
    lacking = [call for call in graph.layers if len(fitting[call]) < len(passes)]
    for lengths in itertools.islice(_tried(names, passes[0].trace.integers), _TRIED if lacking else 0):
        lengths = (*lengths, *_PRIMES[:2])[:2]
        others = [[length * times for length, times in zip(lengths, factors, strict=True)] for factors in _MULTIPLES]
        attempt = _Pass(graph, names, lengths, others)
        for call in [call for call in lacking if len(fitting[call]) < _FITTING]:
            reads, fits = attempt.place(call)
            fitting[call] += [reads] if fits else []
    for call, several in fitting.items():
        changed = [reads for reads in several if not isinstance(reads, Directly)]
        results[call] = next(iter([*changed, *several]), results[call])
        if not changed and len(set(several)) > 1:
            results[call] = Unknown(f"what {call.layer!r} reads depends on the length of its sequences")
    return results


def _tried(names: Sequence[str], integers: set[int]) -> Iterator[tuple[int, ...]]:
    """Yield other lengths of axes, each once: multiples of whole numbers that the file states, as parts of equal length need them,
    then these numbers themselves.
    """
    numbers = sorted(number for number in integers if 1 < number < 1 << 16)[-_INTEGERS:]
    lengths = [dict.fromkeys([prime, *(number * prime for number in numbers), *numbers, 1]) for prime in _PRIMES[:2]]
    count = len(names) or 2
    if count <= 2:
        every = itertools.product(*(lengths[place % 2] for place in range(count)))
        yield from (sizes for sizes in every if sizes not in (_PRIMES[:count], _PRIMES[1 : count + 1]))


class _Pass:
    """One pass over a graph: what its layers read, at lengths of its open axes.

    lengths  of the axes in the order of their names, again from the first where there are more; the first two are taken for
             time and batch where nothing states these
    others   lengths in the passes next to it
    """

    def __init__(self, graph: Graph, names: Sequence[str], lengths: Sequence[int], others: Sequence[Sequence[int]]) -> None:
        self._graph = graph

        def trace(lengths: Sequence[int], others: Sequence[Trace] = ()) -> Trace:
            time, batch = (*lengths, *_PRIMES[:2])[:2]
            return Trace(graph, dict(zip(names, itertools.cycle(lengths), strict=False)), (time, batch), others)

        self.trace = trace(lengths, [trace(other) for other in others])
        self._traced: dict[GraphValue, _Before] = {}

    def _before(self, value: GraphValue) -> _Before:
        if value not in self._traced:
            self._traced[value] = _Before(self._graph, self.trace, value)
        return self._traced[value]

    def place(self, call: LayerCall) -> Place:
        """Return the sequence that a call reads, and whether its lengths and widths fit the layer."""
        value, axes = call.sequence
        read = self.trace.of(value)
        if not isinstance(read, Elements):
            return Input(), True
        moved, fits = "", True
        if read.origins is not None:
            sources = {number: self.trace.sources[number] for number in _sources(read.origins)}
            origins, expected = canonical(read.origins, axes), _side_by_side(sources) if sources else None
            fits = origins is None or call.sizes.width in (0, origins.shape[2])
            if expected is not None:
                if origins is not None and np.array_equal(origins, expected):
                    return Directly(tuple(_layer(source) for source in sources.values())), True
                moved = _moved(origins, expected, axes)
        before = self._before(value)
        return before.reads(moved), fits and not before.unfit


def _layer(source: ElementSource) -> str:
    """Return the name of the layer that gives a sequence."""
    assert isinstance(source.maker, LayerCall)
    return source.maker.layer


def _sources(origins: Array) -> list[int]:
    """Return the numbers of the sources of elements, in the order in which they stand along the last axis."""
    numbers, first = np.unique(np.moveaxis(np.atleast_1d(origins), -1, 0).reshape(-1) >> BITS, return_index=True)
    return [int(number) for number in numbers[np.argsort(first)]]


def _side_by_side(sources: Mapping[int, ElementSource]) -> Array | None:
    """Return the outputs of layers as a layer above them reads them, (time, batch, units); None if they are not sequences of
    layers, equally long.
    """
    shape = next(iter(sources.values())).shape
    parts = []
    for number, source in sources.items():
        if not isinstance(source.maker, LayerCall) or shape is None or source.shape != shape:
            return None
        width = source.maker.sizes.hidden * source.maker.sizes.directions
        # The numbers that Trace gives to the elements of a layer's whole output, in their own order.
        parts.append((number << BITS) + np.arange(math.prod(shape) * width).reshape(*shape, width))
    return np.concatenate(parts, axis=2)


def _moved(origins: Array | None, expected: Array, axes: str) -> str:
    """Return in words how elements stand elsewhere than layers give them."""
    if origins is None:
        return f"its values have other axes than {_words(axes)}"
    for words, change in _CHANGES.items():
        if origins.shape == (changed := change(expected)).shape and np.array_equal(origins, changed):
            return words
    # No two elements that layers give are alike, so that their sets show what is lost and what is repeated.
    missing, twice = np.setdiff1d(expected, origins).size, origins.size - np.unique(origins).size
    if missing or twice:
        return " and ".join(
            [
                *(["some of the values are left out"] if missing else []),
                *(["some of the values stand there more than once"] if twice else []),
            ]
        )
    if origins.shape != expected.shape:
        return "its values stand in another shape"
    same = [axis for axis in range(3) if _keeps(origins, expected, axis)]
    moved_axes = " and ".join(word for axis, word in enumerate(("time", "batch", "unit")) if axis not in same)
    return f"the order of the values is changed along {moved_axes}" if len(same) == 2 else "the order of the values is changed"


def _keeps(origins: Array, expected: Array, axis: int) -> bool:
    """Return whether every element stays at its place along an axis."""
    order = np.argsort(expected.reshape(-1))
    place = order[np.searchsorted(expected.reshape(-1)[order], origins.reshape(-1))]
    return bool(np.array_equal(np.unravel_index(place, expected.shape)[axis].reshape(origins.shape), np.indices(origins.shape)[axis]))


def _halves(array: Array) -> Array:
    half = array.shape[2] // 2
    return np.concatenate([array[:, :, half:], array[:, :, :half]], axis=2)


_CHANGES: Mapping[str, Callable[[Array], Array]] = {
    "time and batch are exchanged": lambda array: array.transpose(1, 0, 2),
    "the steps are reversed": lambda array: array[::-1],
    "the sequences of the batch are reversed": lambda array: array[:, ::-1],
    "the units are reversed": lambda array: array[:, :, ::-1],
    "the directions, or the halves of the units, are exchanged": _halves,
}


def _words(axes: str) -> str:
    names = {"t": "time", "b": "batch", "i": "features", "1": "1"}
    return "(" + ", ".join(names.get(letter, letter) for letter in axes) + ")"


class _Before:
    """The way to a layer: back to the nearest recurrent layers on each path, or to the model's inputs."""

    def __init__(self, graph: Graph, trace: Trace, value: GraphValue) -> None:
        self._trace = trace
        self.layers: dict[str, None] = {}
        self.operators: dict[GraphNode, None] = {}
        self.states: dict[str, None] = {}
        waiting, seen = [value], {value}
        while waiting and len(seen) < _VISITED:
            current = waiting.pop()
            if isinstance(current.node, LayerCall):
                self.layers[current.node.layer] = None
                self.states |= {f"{words} of {current.node.layer!r}": None for state, words in current.node.states if state is current}
            elif current.node is not None and current.constant is None:
                if current.node not in trace.chosen:
                    self.operators[current.node] = None
                if not isinstance(graph.dialect.get(current.node.kind), Measures):
                    reads = current.node.inputs
                    if isinstance(graph.dialect.get(current.node.kind), Chooses):
                        # What decides is named by the operator, wherever that comes from.
                        chosen = trace.chosen.get(current.node)
                        reads = reads[1:] if chosen is None else (reads[chosen],)
                    fresh = [read for read in reads if read is not None and read not in seen]
                    seen |= set(fresh)
                    waiting += fresh
        self._followed = not waiting
        self.unfit = [node for node in self.operators if node in trace.unfit]

    def reads(self, moved: str = "") -> Reads:
        """Return the sequence of a layer that does not read others directly.

        moved  where the elements stand, if nothing else happens to them
        """
        if not self._followed:
            return Unknown("more operators lie before it than are followed")
        if not self.layers:
            return Input()
        operators = [node for node in reversed(self.operators) if not self._is_plain(node)]
        computing = [node for node in operators if node not in self._trace.moving]
        if not moved and not computing and not self.states:
            moved = "values of another origin stand among those of the layer"
        named = (self._trace.changes.get(node, node.label) for node in (operators if moved else computing))
        labels = [*self.states, *dict.fromkeys(filter(None, named))]
        if len(labels) > _NAMED:
            labels = [*labels[:_NAMED], f"{len(labels) - _NAMED} more operators"]
        changes = [f"{' and '.join(labels)}: {moved}" if labels else moved] if moved else labels
        return Through(tuple(self.layers), tuple(changes))

    def _is_plain(self, node: GraphNode) -> bool:
        """Return whether an operator gives numbers that are known: shapes, places and other constants."""
        return all(value is None or isinstance(self._trace.of(value), np.ndarray) for value in node.outputs)


# Layers that stand alone between inputs and outputs of a graph, as in a file of several layers side by side.


def _carried(node: GraphNode, operator: Moves | Casts) -> list[GraphValue | None]:
    """Return the inputs of an operator whose elements it gives."""
    return [value for place, value in enumerate(node.inputs) if isinstance(operator, Casts) or operator.carries(place, len(node.inputs))]


def standing_alone(graph: Graph) -> list[LayerCall]:
    """Return the calls of layers between which and the model's inputs and outputs operators only move elements, and which read
    no input together: what such a layer reads, and what reads it, is its caller's.
    """
    readers: dict[GraphValue, list[GraphNode | LayerCall]] = {}
    for node in dict.fromkeys(value.node for value in graph.values()):
        for value in node.inputs if isinstance(node, GraphNode) else ():
            if value is not None and node is not None:
                readers.setdefault(value, []).append(node)
    for call in graph.layers:
        readers.setdefault(call.sequence[0], []).append(call)

    def makers(value: GraphValue) -> list[GraphNode | LayerCall]:
        return [value.node] if value.node is not None and value.constant is None else []

    def only_moved(
        values: Iterable[GraphValue], follow: Callable[[GraphValue], list[GraphNode | LayerCall]], ahead: bool
    ) -> set[GraphValue]:
        """Return where the ways from values end; nothing where one meets what does more than move elements."""
        waiting = list(values)
        seen = set(waiting)
        ends: set[GraphValue] = set()
        while waiting:
            value = waiting.pop()
            nodes = follow(value)
            ends |= set() if nodes or value.constant is not None else {value}
            for node in nodes:
                operator = graph.dialect.get(node.kind) if isinstance(node, GraphNode) else None
                if isinstance(operator, Measures):
                    continue
                if not isinstance(node, GraphNode) or not isinstance(operator, (Moves, Casts)):
                    return set()
                fresh = [value for value in (node.outputs if ahead else _carried(node, operator)) if value is not None]
                waiting += [value for value in fresh if value not in seen]
                seen |= set(fresh)
        return ends

    inputs = {call: only_moved([call.sequence[0]], makers, ahead=False) for call in graph.layers}
    reads = Counter(value for ends in inputs.values() for value in ends)

    def alone(call: LayerCall) -> bool:
        gives = [value for value, _ in (*call.outputs, *call.states)]
        if not inputs[call] or any(reads[value] > 1 for value in inputs[call]):
            return False
        return bool(only_moved(gives, lambda value: readers.get(value, []), ahead=True))

    return [call for call in graph.layers if alone(call)]
