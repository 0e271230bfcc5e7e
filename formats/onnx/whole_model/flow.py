"""How data flows through an ONNX graph: which layers follow one another, and how a convolution's output is flattened."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from rnnconvert.formats.onnx.whole_model.nodes import read_by
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.models.model import Flat

_PLACELESS = (
    "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Softplus", "Softsign",
    "Gelu", "Mish", "Swish", "ThresholdedRelu", "Clip", "Dropout", "Identity", "Cast", "PRelu",
)  # fmt: skip
_CHANNELS_SECOND = (
    "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
    "InstanceNormalization", "GroupNormalization",
)  # fmt: skip


def flattened(scope: Scope, value: str) -> Flat | None:
    """Return how a value was flattened from a convolution's output; None if that is not seen."""
    node = _through(scope, value, (*_PLACELESS, *_CHANNELS_SECOND))
    if node is None or not _flattens(scope, node):
        return None
    node = _through(scope, node.input[0], (*_PLACELESS, *_CHANNELS_SECOND))
    order = "channels_first"
    if node is not None and node.op_type == "Transpose":
        perm = list(scope.attributes(node)["perm"].ints) if "perm" in scope.attributes(node) else []
        if perm != [0, *range(2, len(perm)), 1]:
            return None
        order = "channels_last"
        # Between this and the convolution a pool or a normalisation has channels second, too.
        node = _through(scope, node.input[0], (*_PLACELESS, *_CHANNELS_SECOND))
    if node is None or node.op_type not in ("Conv", "ConvTranspose"):
        return None
    weight = scope.constant(node.input[1])
    if weight is None:
        return None
    groups = scope.attributes(node)["group"].i if "group" in scope.attributes(node) else 1
    return Flat(order, weight.shape[0] if node.op_type == "Conv" else weight.shape[1] * groups)


def _through(scope: Scope, value: str, operators: Sequence[str]) -> onnx.NodeProto | None:
    """Return the node that a value comes from, past nodes of some operators."""
    producer = scope.producer(value)
    while producer is not None and producer[0].op_type in operators and producer[0].input:
        producer = scope.producer(producer[0].input[0])
    return producer[0] if producer is not None else None


def _flattens(scope: Scope, node: onnx.NodeProto) -> bool:
    """Return whether a node joins all axes but the first."""
    if node.op_type == "Flatten":
        axis = scope.attributes(node).get("axis")
        return axis is None or axis.i == 1
    if node.op_type != "Reshape":
        return False
    shape = scope.constant(node.input[1]) if len(node.input) > 1 else None
    if shape is not None:
        return shape.size == 2
    made = scope.producer(node.input[1]) if len(node.input) > 1 else None
    return made is not None and made[0].op_type == "Concat" and len(made[0].input) == 2


def in_line(scope: Scope, steps: Sequence[tuple[Sequence[onnx.NodeProto], str]]) -> bool:
    """Return whether data goes through layers one after the other: each one's output reaches the next one's input.

    steps  for each layer its nodes, the last of which gives its output, and the value that it reads
    """
    last = {id(nodes[-1]): number for number, (nodes, _) in enumerate(steps)}
    above: dict[str, int] = {}
    for node in scope.nodes:
        mask = 0
        for name in read_by(node):
            mask |= above.get(name, 0)
        if id(node) in last:
            mask |= 1 << last[id(node)]
        above |= dict.fromkeys(node.output, mask)
    return all(above.get(data, 0) >> number & 1 for number, (_, data) in enumerate(steps[1:]))
