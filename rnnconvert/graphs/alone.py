"""Layers that stand alone between inputs and outputs of a graph, as in a file of several layers side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from rnnconvert.graphs.graph import Graph, GraphNode, GraphValue, LayerCall
from rnnconvert.graphs.operators import Casts, Measures, Moves


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
