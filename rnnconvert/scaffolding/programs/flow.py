"""How data flows through an ONNX graph: which layers follow one another, and how a convolution's output is flattened."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.graphs.program.kinds import EACH, SAME
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.models.model import Flat
from rnnconvert.recognition.graph_layers import read_by

_POOLS_AND_NORMS = "MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool BatchNormalization InstanceNormalization GroupNormalization"
_PASSED = (*SAME, "Cast", *EACH, *_POOLS_AND_NORMS.split())
"""Operators that leave the channels second."""


def flattened(scope: Scope, value: str) -> Flat | None:
    """Return how a value was flattened from a convolution's output; None if that is not seen."""
    node = _through(scope, value)
    if node is None or not _flattens(scope, node):
        return None
    node = _through(scope, node.inputs[0])
    order = "channels_first"
    if node is not None and node.kind == "Transpose":
        perm = scope.attributes(node).get("perm", [])
        if perm != [0, *range(2, len(perm)), 1]:
            return None
        order = "channels_last"
        # Between this and the convolution a pool or a normalisation has channels second, too.
        node = _through(scope, node.inputs[0])
    if node is None or node.kind not in ("Conv", "ConvTranspose"):
        return None
    weight = scope.constant(node.inputs[1])
    if weight is None:
        return None
    groups = scope.attributes(node).get("group", 1)
    return Flat(order, weight.shape[0] if node.kind == "Conv" else weight.shape[1] * groups)


def _through(scope: Scope, value: str) -> Operation | None:
    """Return the node that a value comes from, past nodes that leave the channels where they are."""
    producer = scope.producer(value)
    while producer is not None and producer[0].kind in _PASSED and producer[0].inputs:
        producer = scope.producer(producer[0].inputs[0])
    return producer[0] if producer is not None else None


def _flattens(scope: Scope, node: Operation) -> bool:
    """Return whether a node joins all axes but the first."""
    if node.kind == "Flatten":
        return bool(scope.attributes(node).get("axis", 1) == 1)
    if node.kind != "Reshape":
        return False
    shape = scope.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if shape is not None:
        return shape.size == 2
    producer = scope.producer(node.inputs[1]) if len(node.inputs) > 1 else None
    return producer is not None and producer[0].kind == "Concat" and len(producer[0].inputs) == 2


def in_line(scope: Scope, steps: Sequence[tuple[Sequence[Operation], str]]) -> bool:
    """Return whether data goes through layers one after the other: each one's output reaches the next one's input.

    steps  for each layer its nodes, the last of which gives its output, and the value that it reads
    """
    last = {nodes[-1]: number for number, (nodes, _) in enumerate(steps)}
    above: dict[str, int] = {}
    for node in scope.nodes:
        mask = 0
        for name in read_by(node):
            mask |= above.get(name, 0)
        if node in last:
            mask |= 1 << last[node]
        above |= dict.fromkeys(node.outputs, mask)
    return all(above.get(data, 0) >> number & 1 for number, (_, data) in enumerate(steps[1:]))
