"""The ancestors of a node of a TensorFlow 1 graph."""

from __future__ import annotations

from rnnconvert.containers.graph_def import GraphDef
from rnnconvert.containers.graph_def_node import GraphDefNode

SAME = {
    "Identity",
    "StopGradient",
    "CheckNumerics",
    "ReadVariableOp",
    "Enter",
    "Switch",
    "PlaceholderWithDefault",
    "Snapshot",
    "PreventGradient",
    "EnsureShape",
}
"""Operations that pass their first input on."""


_SHAPES = {"Shape", "ShapeN", "Size", "Rank"}


_MOST = 100_000


def producer(graph: GraphDef, source: str) -> GraphDefNode | None:
    return graph.nodes.get(source.partition(":")[0])


def state_before(graph: GraphDef, source: str) -> str:
    """Return where a state comes from before the first step."""
    for _ in range(64):
        node = producer(graph, source)
        if node is None:
            return ""
        if node.op == "Merge":
            first = [operand for operand in node.inputs if (above := producer(graph, operand)) and above.op != "NextIteration"]
            if len(first) != 1 or len(node.inputs) != 2:
                return source
            source = first[0]
        elif node.op in SAME and node.inputs:
            source = node.inputs[0]
        else:
            return source
    return ""


def ancestors(graph: GraphDef, source: str, stops: set[str]) -> list[GraphDefNode] | None:
    """Return the nodes whose numbers an output is made from; None where one of `stops` is among them."""
    queue = [source.partition(":")[0]]
    seen: set[str] = set()
    nodes = []
    for name in queue:
        node = graph.nodes.get(name)
        if node is None or name in seen or len(seen) > _MOST:
            continue
        if name in stops:
            return None
        seen.add(name)
        nodes.append(node)
        if node.op not in _SHAPES:
            queue += [name_read.partition(":")[0] for name_read in node.read]
    return nodes
