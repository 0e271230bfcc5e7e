"""Variables of a model: weights that a graph which runs once puts there.

A converter that is not shown a model's variables writes operators that read them, and nothing that gives them numbers: TFLite
cannot run such a file.

Source: tensorflow/lite/schema/schema.fbs, VarHandleOptions and CallOnceOptions; tensorflow/lite/kernels/read_variable.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rnnconvert.formats.tflite.graph import Operator, Subgraph, SubgraphTensor, TfliteFile

_CALL_ONCE, _HANDLE, _READ, _ASSIGN = 129, 142, 143, 144
_INNER = {31: 1, 118: 2, 119: 2}
"""Operators that run other graphs, CALL, IF and WHILE: how many of their first options are numbers of graphs."""


def initial(model: TfliteFile) -> dict[str, SubgraphTensor]:
    """Return the stored tensors that variables of the main graph hold, by the variables' names; not those that it changes."""
    if not model.graphs:
        return {}
    result: dict[str, SubgraphTensor] = {}
    for graph in _named(model, model.graphs[0], {_CALL_ONCE: 1}):
        for name, place in _assigned(graph):
            if place >= 0 and graph.tensors[place].stored is not None:
                result[name] = graph.tensors[place]
    for graph in _reached(model):
        for name, _ in _assigned(graph):
            if not name:
                return {}  # one that is handed over: it may be any
            result.pop(name, None)
    return result


def changes(model: TfliteFile) -> bool:
    """Return whether the main graph gives a variable a value while it runs."""
    return any(True for graph in _reached(model) for _ in _assigned(graph))


def resolved(
    graph: Subgraph, handed: Mapping[int, str], values: Mapping[str, SubgraphTensor]
) -> tuple[Subgraph, dict[int, str], list[str]]:
    """Return a graph in which what a variable holds is a stored tensor, its handles, and variables that hold nothing.

    handed  the variables that the graph is handed over, by its tensors
    values  the tensors that variables hold
    """
    handles = {**handed, **_handles(graph)}
    tensors, operators, lost = list(graph.tensors), list[Operator](), list[str]()
    for operator in graph.operators:
        name = handles.get(operator.input(0)) if operator.code == _READ else None
        if name is not None and name in values and operator.outputs:
            tensors[operator.outputs[0]] = values[name]
            continue
        operators.append(operator)
        if operator.code == _READ:
            lost.append(name or "a variable without a name")
    return Subgraph(graph.name, tensors, operators, graph.inputs, graph.outputs), handles, lost


def _handles(graph: Subgraph) -> dict[int, str]:
    """Return the names of variables by the tensors that stand for them."""
    return {
        operator.outputs[0]: operator.options.text(1)
        for operator in graph.operators
        if operator.code == _HANDLE and operator.outputs and operator.options is not None
    }


def _assigned(graph: Subgraph) -> Iterator[tuple[str, int]]:
    """Yield the variables that a graph assigns, "" for one that it is handed over, with what is assigned."""
    handles = _handles(graph)
    for operator in graph.operators:
        if operator.code == _ASSIGN:
            yield handles.get(operator.input(0), ""), operator.input(1)


def _named(model: TfliteFile, graph: Subgraph, operators: Mapping[int, int]) -> Iterator[Subgraph]:
    """Yield the graphs that operators of some codes name in so many of their first options."""
    for operator in graph.operators:
        for field in range(operators.get(operator.code, 0) if operator.options is not None else 0):
            place = int(operator.options.number(field, "i")) if operator.options is not None else 0
            if 0 < place < len(model.graphs):
                yield model.graphs[place]


def _reached(model: TfliteFile) -> list[Subgraph]:
    """Return the main graph and those that run inside it."""
    reached, waiting = list[Subgraph](), [model.graphs[0]]
    while waiting:
        graph = waiting.pop()
        if all(graph is not other for other in reached):
            reached.append(graph)
            waiting += _named(model, graph, _INNER)
    return reached
