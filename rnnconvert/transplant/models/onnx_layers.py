"""The layers without recurrence in ONNX graphs: which nodes are one, which values are its arrays, how it is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from rnnconvert.containers.onnx_scopes import Scope
from rnnconvert.transplant.models.onnx_flow import read_by
from rnnconvert.transplant.models.onnx_names import made_up

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
_ONNX = ("", "ai.onnx")


@dataclass(frozen=True, eq=False)
class Found:
    """One layer in a graph.

    operator  what it is, by the name that the layouts have for its class
    scope     the graph that it is in
    nodes     its nodes: the one that its weights belong to, then the others in the order of the data
    values    the layout's names of its arrays, and the values that these are
    inputs    the nodes' inputs that are its arrays
    data      the value that it reads
    facts     what is set beside the weights, by the operator's attributes
    """

    operator: str
    scope: Scope
    nodes: tuple[onnx.NodeProto, ...]
    values: Mapping[str, str]
    inputs: tuple[tuple[onnx.NodeProto, int], ...]
    data: str
    facts: Mapping[str, Any]


class Uses:
    """Which nodes of a graph read each value."""

    def __init__(self, scope: Scope) -> None:
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in scope.nodes:
            for name in read_by(node):
                self._readers.setdefault(name, []).append(node)
        for output in scope.graph.output:
            self._readers.setdefault(output if isinstance(output, str) else output.name, []).append(onnx.NodeProto())

    def only(self, value: str) -> onnx.NodeProto | None:
        """The one node that reads a value; None if there are more, or it is an output of the graph."""
        readers = self._readers.get(value, [])
        return readers[0] if len(readers) == 1 else None


def layers(scope: Scope) -> Iterator[Found]:
    """The layers of one graph, in the order of its nodes."""
    uses = Uses(scope)
    for node in scope.nodes:
        if node.op_type in _WEIGHTS and node.domain in _ONNX:
            found = _layer(scope, node, uses)
            if found is not None:
                yield found


def _layer(scope: Scope, node: onnx.NodeProto, uses: Uses) -> Found | None:
    attributes = scope.attributes(node)
    inputs = {name: index for name, index in _WEIGHTS[node.op_type].items()
              if index < len(node.input) and node.input[index]}  # fmt: skip
    values = {name: node.input[index] for name, index in inputs.items()}
    if any(not _is_weight(scope, value) for value in values.values()):
        return None
    read = [(node, index) for index in inputs.values()]
    data = node.input[1 if node.op_type == "Gather" else 0]
    operator, nodes = node.op_type, [node]
    if operator == "Gemm":
        if _number(attributes, "alpha", 1.0) != 1 or _number(attributes, "transA", 0):
            return None
        if "C" in values and _number(attributes, "beta", 1.0) != 1:
            return None
        operator += "(transB=1)" if _number(attributes, "transB", 0) else ""
    elif operator == "MatMul":
        added = _operand(scope, uses, node, "Add")
        if added is not None and _columns(scope, node.input[1]) == _columns(
            scope, added[0].input[added[1]], vector=True
        ):
            nodes.append(added[0])
            values["C"] = added[0].input[added[1]]
            read.append(added)
    elif operator == "Gather" and (_number(attributes, "axis", 0) or _rank(scope, values["data"]) != 2):
        return None
    elif operator == "InstanceNormalization" and _is_neutral(scope, node):
        return _group_norm(scope, node, uses)
    return Found(operator, scope, tuple(nodes), values, tuple(read), data, _facts(scope, node, values))


def _group_norm(scope: Scope, node: onnx.NodeProto, uses: Uses) -> Found | None:
    """GroupNorm as it is written before opset 21: groups as channels of an InstanceNormalization, scaled behind it.

    Source: torch/onnx/_internal/torchscript_exporter/symbolic_opset9.py, group_norm.
    """
    before, behind = scope.producer(node.input[0]), uses.only(node.output[0])
    if before is None or before[0].op_type != "Reshape" or behind is None or behind.op_type != "Reshape":
        return None
    scaled = _operand(scope, uses, behind, "Mul")
    shifted = _operand(scope, uses, scaled[0], "Add") if scaled is not None else None
    if scaled is None or shifted is None:
        return None
    values = {"scale": scaled[0].input[scaled[1]], "B": shifted[0].input[shifted[1]]}
    groups = scope.constant(node.input[1])
    facts = {**_facts(scope, node, {}), "num_groups": groups.size if groups is not None else None}
    nodes = (node, behind, scaled[0], shifted[0])
    return Found("GroupNormalization", scope, nodes, values, (scaled, shifted), before[0].input[0], facts)


def _operand(scope: Scope, uses: Uses, node: onnx.NodeProto, operator: str) -> tuple[onnx.NodeProto, int] | None:
    """The node alone that reads another's output, if it is of that operator with a constant; and which input is that."""
    behind = uses.only(node.output[0])
    if behind is None or behind.op_type != operator or behind.domain not in _ONNX or len(behind.input) != 2:
        return None
    index = 0 if behind.input[1] == node.output[0] else 1
    return (behind, index) if _is_weight(scope, behind.input[index]) else None


def _is_weight(scope: Scope, value: str) -> bool:
    array = scope.constant(value)
    return array is not None and array.dtype.kind not in "iub" and array.ndim > 0


def _rank(scope: Scope, value: str) -> int:
    array = scope.constant(value)
    return -1 if array is None else array.ndim


def _columns(scope: Scope, value: str, vector: bool = False) -> int:
    """How long the last axis is of a matrix, or of a vector that may have axes of length 1 before it; else -1 or -2."""
    array = scope.constant(value)
    if vector:
        return array.shape[-1] if array is not None and array.size == array.shape[-1] else -2
    return array.shape[1] if array is not None and array.ndim == 2 else -1


def _is_neutral(scope: Scope, node: onnx.NodeProto) -> bool:
    """Whether a normalisation has a scale of ones and a shift of zeros that an exporter put there."""
    scale, shift = (scope.constant(value) for value in node.input[1:3])
    there = scale is not None and shift is not None and bool((scale == 1).all() and (shift == 0).all())
    return there and made_up(node.input[1]) and made_up(node.input[2])


def _number(attributes: Mapping[str, onnx.AttributeProto], name: str, default: float) -> float:
    if name not in attributes:
        return default
    value = attributes[name]
    return float(value.f if value.type == onnx.AttributeProto.FLOAT else value.i)


_NORMS = ("BatchNormalization", "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization")


def _facts(scope: Scope, node: onnx.NodeProto, values: Mapping[str, str]) -> dict[str, Any]:
    """What is set beside the weights, with the defaults of onnx/docs/Operators.md where nothing is said."""
    attributes = scope.attributes(node)
    if node.op_type in _NORMS:
        found: dict[str, Any] = {"epsilon": _single(_number(attributes, "epsilon", 1e-5))}
        if node.op_type == "BatchNormalization":  # running = running * momentum + batch * (1 - momentum)
            found["momentum"] = _single(_number(attributes, "momentum", 0.9))
        if node.op_type == "GroupNormalization":
            found["num_groups"] = int(_number(attributes, "num_groups", 0))
        return found
    if node.op_type not in ("Conv", "ConvTranspose"):
        return {}
    axes = _rank(scope, values["W"]) - 2
    found = {
        "strides": _integers(attributes, "strides", [1] * axes),
        "dilations": _integers(attributes, "dilations", [1] * axes),
        "group": int(_number(attributes, "group", 1)),
        "pads": _padding(attributes, axes),
    }
    if node.op_type == "ConvTranspose":
        found["output_padding"] = _integers(attributes, "output_padding", [0] * axes)
    return found


def _single(value: float) -> float:
    """A number that the file holds in single precision, as the decimal number that was meant."""
    return float(str(np.float32(value)))


def _integers(attributes: Mapping[str, onnx.AttributeProto], name: str, default: list[int]) -> tuple[int, ...]:
    return tuple(attributes[name].ints) if name in attributes and attributes[name].ints else tuple(default)


def _padding(attributes: Mapping[str, onnx.AttributeProto], axes: int) -> Any:
    """How many zeros stand on each side; where these differ, both numbers of each axis; a word where it is one."""
    if "output_shape" in attributes:
        return f"what makes the output {tuple(attributes['output_shape'].ints)}"
    word = attributes["auto_pad"].s.decode("utf-8", "replace") if "auto_pad" in attributes else "NOTSET"
    if word != "NOTSET":
        return {"SAME_UPPER": "same", "VALID": "valid"}.get(word, word.lower())
    pads = _integers(attributes, "pads", [0] * (2 * axes))
    first, last = pads[:axes], pads[axes:]
    return first if first == last else tuple(zip(first, last, strict=True))
