"""A graph whose While operations are written out as the loops of TensorFlow 1, as TensorFlow itself does before it runs them.

What a cell computes, what its states begin with and what its layer reads is then seen alike in graphs of both kinds.

Sources: tensorflow/core/common_runtime/lower_while_op.cc; core/ops/rnn_ops.cc, the outputs of the block operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rnnconvert.containers import wire
from rnnconvert.containers.graph_def import GraphDef, GraphDefFunction
from rnnconvert.containers.graph_def_node import GraphDefNode

_LOOPS = ("While", "StatelessWhile")
_OUTPUTS: Mapping[str, Sequence[str]] = {
    "LSTMBlockCell": ("i", "cs", "f", "o", "ci", "co", "h"),
    "GRUBlockCell": ("r", "u", "c", "h"),
    "TensorArrayV3": ("handle", "flow"),
}
"""The outputs of operations that have several, by their names in functions."""


def inlined(graph: GraphDef) -> GraphDef:
    """Return a graph without While operations, but for those whose functions it lacks and those inside functions."""
    loops = {node.name: parts for node in graph.nodes.values() if node.op in _LOOPS and (parts := _functions(graph, node)) is not None}
    if not loops:
        return graph
    finals: dict[str, str] = {}
    nodes: list[GraphDefNode] = []
    for name, node in graph.nodes.items():
        nodes += _loop(node, *loops[name], finals) if name in loops else [node]

    def outside(source: str) -> str:
        for _ in loops:  # a value that a loop leaves as it is may be another one's
            if source not in finals:
                break
            source = finals[source]
        return source

    return GraphDef({node.name: replace(node, inputs=tuple(map(outside, node.inputs))) for node in nodes}, graph.functions)


def _functions(graph: GraphDef, node: GraphDefNode) -> tuple[GraphDefFunction, GraphDefFunction] | None:
    body, ends = (graph.functions.get(node.called(key)) for key in ("body", "cond"))
    if body is None or ends is None or not len(body.inputs) == len(body.outputs) == len(ends.inputs) == len(node.read) or not ends.outputs:
        return None
    return body, ends


def _loop(node: GraphDefNode, body: GraphDefFunction, ends: GraphDefFunction, finals: dict[str, str]) -> list[GraphDefNode]:
    """Return the nodes of a loop, and add to `finals` what stands for each of its outputs."""
    kinds = node.integers("T")
    frame = {"frame_name": _attribute(2, node.name.encode())}
    nodes: list[GraphDefNode] = []

    def add(op: str, local: str, inputs: Sequence[str], attributes: Mapping[str, memoryview]) -> str:
        nodes.append(GraphDefNode(node.path, f"{node.name}/{local}", op, tuple(inputs), dict(attributes)))
        return f"{node.name}/{local}"

    before, inside, after = {}, {}, {}
    for number, source in enumerate(node.read):
        kind = {"T": _attribute(6, kinds[number])} if number < len(kinds) else {}
        argument, result = body.inputs[number], body.outputs[number]
        if result == argument:
            constant = add("Enter", f"enter_{number}", [source], {**kind, **frame, "is_constant": _attribute(5, 1)})
            before[ends.inputs[number]] = inside[argument] = constant
            left = source
        else:
            enter = add("Enter", f"enter_{number}", [source], {**kind, **frame})
            merge = add("Merge", f"merge_{number}", [enter, f"{node.name}/next_{number}"], kind)
            switch = add("Switch", f"switch_{number}", [merge, f"{node.name}/goes_on"], kind)
            before[ends.inputs[number]], inside[argument], after[f"next_{number}"] = merge, f"{switch}:1", (result, kind)
            left = add("Exit", f"exit_{number}", [switch], kind)
        finals |= {f"{node.name}:{number}": left} | ({} if number else {node.name: left})
    in_body, in_ends = f"{node.name}/body/", f"{node.name}/cond/"
    step, goes_on = _sources(body, in_body, inside), _sources(ends, in_ends, before)
    nodes += _copied(body, in_body, step) + _copied(ends, in_ends, goes_on)
    add("LoopCond", "goes_on", [goes_on(ends.outputs[0])], {})
    for local, (result, kind) in after.items():
        add("NextIteration", local, [step(result)], kind)
    return nodes


def _copied(function: GraphDefFunction, prefix: str, value: Callable[[str], str]) -> list[GraphDefNode]:
    return [replace(node, name=f"{prefix}{node.name}", inputs=tuple(map(value, node.inputs))) for node in function.nodes.values()]


def _sources(function: GraphDefFunction, prefix: str, arguments: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that names the values of a function outside of it: values of its operations by their numbers."""

    def value(source: str) -> str:
        if source.startswith("^"):
            return f"^{prefix}{source[1:]}"
        if source in arguments:
            return arguments[source]
        name, *rest = source.split(":")
        if len(rest) < 2:
            return f"{prefix}{source}"
        names = _OUTPUTS.get(function.nodes[name].op, ()) if name in function.nodes else ()
        return f"{prefix}{name}:{names.index(rest[0]) if rest[0] in names else rest[1]}"

    return value


def _attribute(number: int, value: int | bytes) -> memoryview:
    """Return an AttrValue: text, a truth or an element type by the number of its field."""
    content = wire.field(number, value) if isinstance(value, bytes) else wire.varint(number << 3) + wire.varint(value)
    return memoryview(content)
