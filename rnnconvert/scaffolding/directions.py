"""Two directions of unlike cells as two layers, for frameworks whose layers of two directions have one cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Node, Value

WAYS = ("forward", "backward")
_MERGES = {"sum": "add", "mul": "multiply", "ave": "average"}


def apart(top: DescribedModel) -> None:
    """Replace each layer whose directions have unlike cells, sizes or biases by one layer for each direction, also in inner models.

    Node.of of both is the layer that they are in the source.
    """
    for scope in (*top.inner(), top):
        scope.nodes = [
            part
            for node in scope.nodes
            for part in (_parts(node, node.kind) if isinstance(node.kind, kinds.Recurrent) and node.kind.unlike else [node])
        ]


def _parts(node: Node[kinds.Kind], kind: kinds.Recurrent) -> Iterator[Node[kinds.Kind]]:
    """Yield a layer for each direction, and what joins their outputs."""
    merge, count = kind.merge, 2 if kind.merge is None else 1
    outs, finals, states = list(node.outputs[:count]), list(node.outputs[count:]), list(node.named.get("states", ()))
    ends = []
    for way, word in enumerate(WAYS):
        single, units = kind.direction(way), kind.units[way] if isinstance(kind.units, tuple) else kind.units
        per = 2 if single.cells[0].kind == "lstm" else 1
        out = Value(word, (*node.y.shape[:-1], units)) if merge is not None else outs[way]
        turned = Value(word, out.shape) if way and kind.sequences else out
        named = {key: values for key, values in (*node.named.items(), ("states", tuple(states[:per]))) if values}
        yield Node(single, f"{node.layer}/{word}", node.inputs, (turned, *finals[:per]), named, of=node.layer)
        if turned is not out:
            yield Node(kinds.Flip((1,)), "", (turned,), (out,))
        del states[:per], finals[:per]
        ends.append(out)
    if merge is not None:
        yield merged(merge, ends, outs)


def merged(merge: str, ends: Sequence[Value], outs: Sequence[Value]) -> Node[kinds.Kind]:
    """Return the node that joins the outputs of both directions."""
    if merge == "concat":
        return Node(kinds.Concatenate(len(outs[0].shape) - 1), "", tuple(ends), tuple(outs))
    return Node(kinds.Arithmetic(_MERGES[merge]), "", tuple(ends), tuple(outs))
