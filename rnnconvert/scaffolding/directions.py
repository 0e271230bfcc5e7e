"""Two directions of unlike cells as two layers, for frameworks whose layers of two directions have one cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rnnconvert.scaffolding.description import DescribedModel, Node, Value

WAYS = ("forward", "backward")
_MERGES = {"sum": "add", "mul": "multiply", "ave": "average"}


def apart(top: DescribedModel) -> None:
    """Replace each layer whose directions have unlike cells, sizes or biases by one layer for each direction, also in inner models.

    Their node's setting "of" is the layer that both are in the source.
    """
    for scope in (*top.inner(), top):
        scope.nodes = [part for node in scope.nodes for part in (_parts(node) if node.kind == "recurrent" and unlike(node) else [node])]


def unlike(node: Node) -> bool:
    """Return whether the two directions of a recurrent node differ in more than their way."""
    return len(set(node["cells"])) > 1 or isinstance(node["units"], tuple) or isinstance(node["biases"], tuple)


def _of(values: Any, way: int) -> Any:
    """Return the value of a setting for one direction."""
    return values[way] if isinstance(values, tuple) else values


def _parts(node: Node) -> Iterator[Node]:
    """Yield a layer for each direction, and what joins their outputs."""
    merge, count = node["merge"], 2 if node["merge"] is None else 1
    outs, finals, states = list(node.outputs[:count]), list(node.outputs[count:]), list(node.named.get("states", ()))
    ends = []
    for way, (word, cell) in enumerate(zip(WAYS, node["cells"], strict=True)):
        per, units = 2 if cell.kind == "lstm" else 1, _of(node["units"], way)
        out = Value(word, (*node.y.shape[:-1], units)) if merge is not None else outs[way]
        settings = {
            **node.settings, "cells": (cell,), "units": units, "biases": _of(node["biases"], way), "merge": "concat",
            "backwards": bool(way), "of": node.layer,
        }  # fmt: skip
        turned = Value(word, out.shape) if way and node["sequences"] else out
        named = {key: values for key, values in (*node.named.items(), ("states", tuple(states[:per]))) if values}
        yield Node("recurrent", f"{node.layer}/{word}", node.inputs, (turned, *finals[:per]), settings, named)
        if turned is not out:
            yield Node("flip", "", (turned,), (out,), {"axes": (1,)})
        del states[:per], finals[:per]
        ends.append(out)
    if merge is not None:
        yield merged(merge, ends, outs)


def merged(merge: str, ends: Sequence[Value], outs: Sequence[Value]) -> Node:
    """Return the node that joins the outputs of both directions."""
    if merge == "concat":
        return Node("concatenate", "", tuple(ends), tuple(outs), {"axis": len(outs[0].shape) - 1})
    return Node("arithmetic", "", tuple(ends), tuple(outs), {"operation": _MERGES[merge]})
