"""The layers without recurrence in a program: which nodes are one, which values are its arrays, how it is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rnnconvert.core.arrays import as_written
from rnnconvert.core.malformed import MALFORMED, Fields, passes
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.graph_layers import GraphLayer, Uses, is_weight, number, operand
from rnnconvert.recognition.norms import group_norm, is_neutral, layer_norm

_WEIGHTS = {
    "Conv": {"W": 1, "B": 2},
    "ConvTranspose": {"W": 1, "B": 2},
    "BatchNormalization": {"scale": 1, "B": 2, "input_mean": 3, "input_var": 4},
    "LayerNormalization": {"scale": 1, "B": 2},
    "RMSNormalization": {"scale": 1},
    "InstanceNormalization": {"scale": 1, "B": 2},
    "GroupNormalization": {"scale": 1, "B": 2},
    "PRelu": {"slope": 1},
    "Gemm": {"B": 1, "C": 2},
    "MatMul": {"B": 1},
    "Gather": {"data": 0},
}
"""The inputs of each operator that are weights. Source: onnx/docs/Operators.md."""


def layers(scope: Scope, made_up: Callable[[str], bool]) -> Iterator[GraphLayer]:
    """Yield the layers of one graph, in the order of its nodes.

    made_up  tells whether an exporter made up the name of a value, which then is not a parameter of the exported model
    """
    uses = Uses(scope)
    for node in scope.nodes:
        if not node.outputs:  # it gives nothing that anything could read
            continue
        layer = None
        try:
            if node.kind in _WEIGHTS and not node.domain:
                layer = _layer(scope, node, uses, made_up)
            elif node.kind == "Div":
                layer = layer_norm(scope, node, uses)
        except MALFORMED as error:  # a node without an input or attribute that its operator asks for is no layer
            if passes(error):
                raise
        if layer is not None:
            yield layer


def _layer(scope: Scope, node: Operation, uses: Uses, made_up: Callable[[str], bool]) -> GraphLayer | None:
    attributes = scope.attributes(node)
    inputs = {name: index for name, index in _WEIGHTS[node.kind].items() if index < len(node.inputs) and node.inputs[index]}
    values = Fields({name: node.inputs[index] for name, index in inputs.items()})
    if any(not is_weight(scope, value) for value in values.values()):
        return None
    read = [(node, index) for index in inputs.values()]
    data = node.inputs[1 if node.kind == "Gather" else 0]
    operator, nodes = node.kind, [node]
    if operator == "Gemm":
        if number(attributes, "alpha", 1.0) != 1 or number(attributes, "transA", 0):
            return None
        if "C" in values and number(attributes, "beta", 1.0) != 1:
            return None
        operator += "(transB=1)" if number(attributes, "transB", 0) else ""
    elif operator == "MatMul":
        added = operand(scope, uses, node, "Add")
        if added is not None and _columns(scope, node.inputs[1]) == _columns(scope, added[0].inputs[added[1]], vector=True):
            nodes.append(added[0])
            values["C"] = added[0].inputs[added[1]]
            read.append(added)
    elif operator == "Gather" and (number(attributes, "axis", 0) or _rank(scope, values["data"]) != 2):
        return None
    elif operator == "InstanceNormalization" and is_neutral(scope, node, made_up):
        return group_norm(scope, node, uses)
    elif operator in ("LayerNormalization", "RMSNormalization"):
        axis, axes = int(number(attributes, "axis", -1)), _rank(scope, values["scale"])
        if axis - (uses.rank(data) if axis >= 0 else 0) != -axes:
            return None  # it goes over more axes than its scale has, or nothing shows over how many
    return GraphLayer(operator, scope, tuple(nodes), values, tuple(read), data, _facts(scope, node, values))


def _rank(scope: Scope, value: str) -> int:
    array = scope.constant(value)
    return -1 if array is None else array.ndim


def _columns(scope: Scope, value: str, vector: bool = False) -> int:
    """Return the length of the last axis of a matrix, or of a vector with leading axes of length 1; else -1 or -2."""
    array = scope.constant(value)
    if vector:
        return array.shape[-1] if array is not None and array.size == array.shape[-1] else -2
    return array.shape[1] if array is not None and array.ndim == 2 else -1


_NORMS = ("BatchNormalization", "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization")


def _facts(scope: Scope, node: Operation, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings next to the weights, with the defaults of onnx/docs/Operators.md for those that are not stated."""
    attributes = scope.attributes(node)
    if node.kind in _NORMS:
        facts: dict[str, Any] = {"epsilon": as_written(number(attributes, "epsilon", 1e-5))}
        if node.kind == "BatchNormalization":  # running = running * momentum + batch * (1 - momentum)
            facts["momentum"] = as_written(number(attributes, "momentum", 0.9))
        if node.kind == "GroupNormalization":
            facts["num_groups"] = int(number(attributes, "num_groups", 0))
        return facts
    if node.kind not in ("Conv", "ConvTranspose"):
        return {}
    axes = _rank(scope, values["W"]) - 2
    facts = {
        "strides": _integers(attributes, "strides", [1] * axes),
        "dilations": _integers(attributes, "dilations", [1] * axes),
        "group": int(number(attributes, "group", 1)),
        "pads": _padding(attributes, axes),
    }
    if node.kind == "ConvTranspose":
        facts["output_padding"] = _integers(attributes, "output_padding", [0] * axes)
    return facts


def _integers(attributes: Mapping[str, Any], name: str, default: list[int]) -> tuple[int, ...]:
    return tuple(attributes.get(name) or default)


def _padding(attributes: Mapping[str, Any], axes: int) -> Any:
    """Return how many zeros are on each side; where these differ, both numbers of each axis; a word where it is one."""
    if "output_shape" in attributes:
        return f"what makes the output {tuple(attributes['output_shape'])}"
    word = attributes.get("auto_pad", "NOTSET")
    if word != "NOTSET":
        return {"SAME_UPPER": "same", "VALID": "valid"}.get(word, word.lower())
    pads = _integers(attributes, "pads", [0] * (2 * axes))
    first, last = pads[:axes], pads[axes:]
    return first if first == last else tuple(zip(first, last, strict=True))
