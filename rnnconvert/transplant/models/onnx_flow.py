"""How data goes through an ONNX graph: which layers follow one another, and how a convolution's output is flattened."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from rnnconvert.containers.onnx_scopes import Scope
from rnnconvert.transplant.models.onnx_nodes import read_by

_PLACELESS = (
    "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Softplus", "Softsign",
    "Gelu", "Mish", "Swish", "ThresholdedRelu", "Clip", "Dropout", "Identity", "Cast", "PRelu",
)  # fmt: skip
_CHANNELS_SECOND = (
    "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
    "InstanceNormalization", "GroupNormalization",
)  # fmt: skip


def flatten_order(scope: Scope, value: str) -> str | None:
    """The order in which a dense layer's input was flattened from a convolution's output; None if it is not seen."""
    node = _through(scope, value, _PLACELESS)
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
    return order if node is not None and node.op_type in ("Conv", "ConvTranspose") else None


def _through(scope: Scope, value: str, operators: Sequence[str]) -> onnx.NodeProto | None:
    """The node that a value comes from, behind nodes of some operators."""
    producer = scope.producer(value)
    while producer is not None and producer[0].op_type in operators and producer[0].input:
        producer = scope.producer(producer[0].input[0])
    return producer[0] if producer is not None else None


def _flattens(scope: Scope, node: onnx.NodeProto) -> bool:
    """Whether a node makes one axis of all but the first."""
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
    """Whether data goes through layers one after the other: each one's output reaches the next one's input.

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
