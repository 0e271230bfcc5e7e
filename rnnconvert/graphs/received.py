"""The values that a layer receives in addition to its sequence, in the words of `Call`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from rnnconvert.graphs.between import origin
from rnnconvert.graphs.graph import Graph, GraphNode
from rnnconvert.graphs.operators import SAME, Casts

_FOLLOWED = 1 << 12
"""The most operators that copy a value on its way."""


def states(graph: Graph, keys: Iterable[Hashable]) -> str:
    """Return where initial states come from: see `Call.states`."""
    words = dict.fromkeys(origin(graph, graph.value(key)) for key in keys)
    return " and ".join(filter(None, words))


def source(graph: Graph, key: Hashable | None) -> str:
    """Return a name of the value that a mask or lengths are, the same for all copies of it; "" where no input of the model decides
    it, and for none.
    """
    if key is None or not origin(graph, graph.value(key)):
        return ""
    value = graph.value(key)
    for _ in range(_FOLLOWED):
        operator = graph.dialect.get(value.node.kind) if isinstance(value.node, GraphNode) else None
        if not (operator is SAME or isinstance(operator, Casts)):
            break
        assert isinstance(value.node, GraphNode) and value.node.inputs[0] is not None
        value = value.node.inputs[0]
    return value.name
