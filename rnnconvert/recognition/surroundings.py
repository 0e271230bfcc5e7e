"""The layers without recurrence in a program: which nodes are one, which values are its arrays, how it is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rnnconvert.core.arrays import as_written
from rnnconvert.core.malformed import MALFORMED, Fields, passes
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.graph_layers import GraphLayer, Uses, is_weight, number, operand

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


# Layers that exporters write as several nodes, where an operator set has none for them.


def is_neutral(scope: Scope, node: Operation, made_up: Callable[[str], bool]) -> bool:
    """Return whether a normalization has a scale of ones and a shift of zeros that an exporter put there."""
    scale, shift = (scope.constant(value) for value in node.inputs[1:3])
    there = scale is not None and shift is not None and bool((scale == 1).all() and (shift == 0).all())
    return there and made_up(node.inputs[1]) and made_up(node.inputs[2])


def group_norm(scope: Scope, node: Operation, uses: Uses) -> GraphLayer | None:
    """Recognize GroupNorm as it is written before opset 21: groups as channels of an InstanceNormalization, scaled after it.

    Source: torch/onnx/_internal/torchscript_exporter/symbolic_opset9.py, group_norm.
    """
    before, behind = scope.producer(node.inputs[0]), uses.only(node.outputs[0])
    if before is None or before[0].kind != "Reshape" or behind is None or behind.kind != "Reshape":
        return None
    scaled = operand(scope, uses, behind, "Mul")
    shifted = operand(scope, uses, scaled[0], "Add") if scaled is not None else None
    if scaled is None or shifted is None:
        return None
    values = {"scale": scaled[0].inputs[scaled[1]], "B": shifted[0].inputs[shifted[1]]}
    groups, shape = scope.constant(node.inputs[1]), scope.constant(before[0].inputs[1])
    if groups is None or shape is None or shape.tolist() != [0, groups.size, -1]:
        return None
    epsilon = as_written(number(scope.attributes(node), "epsilon", 1e-5))
    facts = {"epsilon": epsilon, "num_groups": groups.size}
    nodes = (node, behind, scaled[0], shifted[0])
    return GraphLayer("GroupNormalization", scope, nodes, values, (scaled, shifted), before[0].inputs[0], facts)


def layer_norm(scope: Scope, node: Operation, uses: Uses) -> GraphLayer | None:
    """Recognize LayerNorm as it is written before opset 17, by its division by the deviation.

    Source: torch/onnx/_internal/torchscript_exporter/symbolic_opset9.py, native_layer_norm.
    """
    centred = _made_by(scope, node.inputs[0], "Sub")
    root = _made_by(scope, node.inputs[1], "Sqrt")
    spread = _made_by(scope, root.inputs[0], "Add") if root is not None else None
    variance = _made_by(scope, spread.inputs[0], "ReduceMean") if spread is not None else None
    squared = _made_by(scope, variance.inputs[0], "Pow") if variance is not None else None
    mean = _made_by(scope, centred.inputs[1], "ReduceMean") if centred is not None else None
    if centred is None or spread is None or variance is None or squared is None or mean is None:
        return None
    epsilon, power = scope.constant(spread.inputs[1]), scope.constant(squared.inputs[1])
    same = squared.inputs[0] == node.inputs[0] and mean.inputs[0] == centred.inputs[0]
    scaled = operand(scope, uses, node, "Mul")
    if not same or epsilon is None or epsilon.size != 1 or power is None or power.size != 1 or scaled is None:
        return None
    scale = scope.constant(scaled[0].inputs[scaled[1]])
    axes = [*range(-scale.ndim, 0)] if scale is not None else []
    if power.item() != 2 or _axes(scope, mean) != axes or _axes(scope, variance) != axes:
        return None
    shifted = operand(scope, uses, scaled[0], "Add")
    values, read, nodes = {"scale": scaled[0].inputs[scaled[1]]}, [scaled], [node, scaled[0]]
    if shifted is not None and _shape(scope, shifted[0].inputs[shifted[1]]) == _shape(scope, values["scale"]):
        values["B"] = shifted[0].inputs[shifted[1]]
        read.append(shifted)
        nodes.append(shifted[0])
    facts = {"epsilon": as_written(float(epsilon.item()))}
    return GraphLayer("LayerNormalization", scope, tuple(nodes), values, tuple(read), centred.inputs[0], facts)


def _made_by(scope: Scope, value: str, operator: str) -> Operation | None:
    """Return the node that makes a value, if it is of that operator."""
    producer = scope.producer(value)
    return producer[0] if producer is not None and producer[0].kind == operator else None


def _shape(scope: Scope, value: str) -> Sequence[int]:
    array = scope.constant(value)
    return array.shape if array is not None else ()


def _axes(scope: Scope, node: Operation) -> list[int]:
    """Return the axes that a ReduceMean goes over: an attribute before opset 18, an input since."""
    attributes = scope.attributes(node)
    if "axes" in attributes:
        return list(attributes["axes"])
    axes = scope.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return [int(axis) for axis in axes.reshape(-1)] if axes is not None else []
