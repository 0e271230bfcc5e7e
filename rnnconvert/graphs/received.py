"""What a layer receives besides its sequence, in the words of `Call`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from rnnconvert.core.weights import INPUT
from rnnconvert.graphs.graph import Graph, LayerCall, Node, Value
from rnnconvert.graphs.operators import SAME, Casts, Computes, Measures, Moves

_VISITED = 1 << 16
"""The most values that are visited."""


def states(graph: Graph, keys: Iterable[Hashable]) -> str:
    """Return where initial states come from: "" where constants and shapes decide them, INPUT where inputs of the model do and
    nothing is computed from them, else words.
    """
    words: dict[str, None] = {}
    for key in keys:
        words |= dict.fromkeys(_sources(graph, graph.value(key)))
    if not words or list(words) == [INPUT]:
        return next(iter(words), "")
    return " and ".join(words)


def source(graph: Graph, key: Hashable | None) -> str:
    """Return a name of the value that a mask or lengths are, the same for all copies of it; "" where constants and shapes decide
    it, and for none.
    """
    if key is None or not _sources(graph, graph.value(key)):
        return ""
    value = graph.value(key)
    for _ in range(_VISITED):
        operator = graph.dialect.get(value.node.kind) if isinstance(value.node, Node) else None
        if not (operator is SAME or isinstance(operator, Casts)):
            break
        assert isinstance(value.node, Node) and value.node.inputs[0] is not None
        value = value.node.inputs[0]
    return value.name


def _sources(graph: Graph, value: Value) -> dict[str, None]:
    """Return in words where a value comes from; nothing where no input of the model and no layer decides it."""
    words: dict[str, None] = {}
    computed: dict[str, None] = {}
    waiting, seen = [value], {value}
    while waiting:
        current = waiting.pop()
        node = current.node
        if current.constant is not None:
            continue
        if isinstance(node, LayerCall):
            of = next((text for state, text in node.states if state is current), "the outputs")
            words[f"{of} of {node.layer!r}"] = None
        elif node is None or len(seen) > _VISITED:
            words[INPUT] = None
        else:
            operator = graph.dialect.get(node.kind)
            if isinstance(operator, Measures):
                continue
            inputs = node.inputs
            if isinstance(operator, Casts):
                inputs = inputs[:1]
            elif isinstance(operator, Moves):
                inputs = tuple(inputs[place] for place in operator.data or range(len(inputs)) if place < len(inputs))
            elif isinstance(operator, Computes):
                computed[f"computed by {node.label}"] = None
            else:
                words[f"computed by {node.label}"] = None
            fresh = [read for read in inputs if read is not None and read not in seen]
            seen |= set(fresh)
            waiting += fresh
    if words and computed:
        return {**computed, **{word: None for word in words if word != INPUT}}
    return words
