"""Layers that exporters write as several nodes, where an operator set has none for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rnnconvert.core.arrays import as_written
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.graph_layers import GraphLayer, Uses, number, operand


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
