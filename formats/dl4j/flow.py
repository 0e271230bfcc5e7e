"""A network of Deeplearning4j's as a graph: what vertices do to the elements on their way from one recurrent layer to the next.

A sequence is (batch, features, time).

Source: deeplearning4j-nn, org/deeplearning4j/nn/graph/vertex/impl and nn/conf/graph for the vertices, nn/conf/preprocessor for the
preprocessors, nn/layers/DropoutLayer.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Call
from rnnconvert.graphs import moves
from rnnconvert.graphs.between import calls as followed
from rnnconvert.graphs.graph import CallSizes, Graph
from rnnconvert.graphs.operators import SAME, Applied, Dialect, Moves


@dataclass(frozen=True)
class Vertex:
    """A layer of a network, or what stands between layers.

    name    of what it gives
    kind    its class in small letters
    label   what messages call it
    stated  its configuration
    inputs  the names of what it reads
    before  the class of the preprocessor before it, "" for none
    units   of a recurrent layer, how many features it gives at each step; 0 for anything else
    last    of a recurrent layer, whether it gives the last step alone
    masked  of a recurrent layer, whether it leaves out steps by their values
    """

    name: str
    kind: str
    label: str
    stated: Mapping[str, Any]
    inputs: Sequence[str]
    before: str = ""
    units: int = 0
    last: bool = False
    masked: bool = False


def calls(vertices: Sequence[Vertex]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent layer, by its name."""
    graph = Graph(_DIALECT)
    for vertex in vertices:
        inputs: list[Any] = [*vertex.inputs]
        if vertex.before:
            inputs = [(vertex.name, "before", place) for place in range(len(inputs))]
            for read, key in zip(vertex.inputs, inputs, strict=True):
                graph.add(vertex.before, [read], [key])
        if not vertex.units:
            masked = bool(vertex.stated.get("maskArrayInputName"))  # then what it does depends on the mask
            kind = (vertex.kind, "by a mask") if masked else vertex.kind
            graph.add(kind, inputs, [vertex.name], vertex.stated, vertex.label)
            continue
        name = vertex.name
        call = graph.call(
            name,
            (inputs[0] if inputs else "", "bit"),
            {} if vertex.last else {name: "but"},
            {name: "the last output"} if vertex.last else {},
            sizes=CallSizes(vertex.units),
        )
        if vertex.masked:
            call.received = replace(call.received, mask=f"by the values of what {name!r} reads")
    return followed(graph)


def _subset(applied: Applied) -> Array:
    first, last = int(applied.attributes["from"]), int(applied.attributes["to"])
    return moves.cut(applied.input(0), [first], [last + 1], [], [1])


_DIALECT: Dialect = {
    "dropoutlayer": SAME,  # DropoutLayer.java: activate() changes its input in training alone
    "dropout": SAME,
    "mergevertex": Moves(lambda applied: moves.concatenate(applied.arrays, 1), None),
    "subsetvertex": Moves(_subset),
    "reversetimeseriesvertex": Moves(lambda applied: moves.reverse(applied.input(0), [2])),
    # From (batch, features, time) to (batch * time, features) and back: a recurrent layer reads the former only.
    **dict.fromkeys(("rnntofeedforward", "feedforwardtornn", "rnntofeedforwardpreprocessor", "feedforwardtornnpreprocessor"), SAME),
}
