"""A direction of a recurrent layer that ONNX has no operator for, as a Scan: the equations of its cell in basic operators.

Source: onnx/docs/Operators.md, Scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.formats.onnx.proto.nodes import ProtoNodes
from rnnconvert.scaffolding.graph.step_values import StepEquations, StepMatrix, StepValue


class _StepName(StepValue):
    """A value in the graph of a step, by its name."""

    def __init__(self, nodes: ProtoNodes, name: str, new: Callable[[str], str]) -> None:
        self.nodes, self.name, self.new = nodes, name, new

    def _of(self, operator: str, *inputs: str, **attributes: Any) -> _StepName:
        return _StepName(self.nodes, self.nodes.add(operator, [self.name, *inputs], self.new(operator), **attributes), self.new)

    def apply(self, operator: str, *others: _StepName | float) -> _StepName:
        return self._of(operator, *(other.name if isinstance(other, _StepName) else self.number(other).name for other in others))

    def number(self, value: float) -> _StepName:
        return _StepName(self.nodes, self.nodes.shared(f"number_{float(value)!r}", np.array(value, np.float32)), self.new)

    def __matmul__(self, matrix: StepMatrix[str]) -> _StepName:
        return self._of("Gemm", matrix.held, transB=1)

    def __getitem__(self, part: Any) -> _StepName:
        """Return a part of the last axis."""
        last = part[-1] if isinstance(part, tuple) else part
        return self._of("Slice", *(self.nodes.integers(bound) for bound in (last.start or 0, last.stop or np.iinfo(np.int64).max, -1)))


def steps(nodes: ProtoNodes, inner: ProtoNodes, name: str, direction: Direction, x: str, states: Sequence[str]) -> list[str]:
    """Add a Scan over the steps of x (time, batch, in): its outputs (time, batch, units), and its last states (batch, units).

    inner   the graph of a step, empty
    states  the initial ones (batch, units); of a direction without any zeros

    Raises RefusedError for a function without an operator.
    """
    cell, lstm = StepEquations(name, "ONNX", direction), direction.cell.kind == "lstm"
    widths = [direction.output_size, direction.hidden_size][: 1 + lstm]
    numbers = iter(range(1 << 20))

    def new(word: str) -> str:
        return f"{name}/step/{word.lower()}_{next(numbers)}"

    def row(stored: str, numbers: Array | Pieced) -> _StepName:
        return _StepName(inner, inner.constant(stored, numbers), new)

    read = [_StepName(inner, f"{name}/step/{word}", new) for word in ("h", "c")[: 1 + lstm]]
    x_t = _StepName(inner, f"{name}/step/x", new)
    after = cell.after_step(cell.from_input(x_t, inner.constant, row), read, inner.constant, row)
    words = [*("new_h", "new_c")[: 1 + lstm], "output"]
    gives = [inner.add("Identity", [v.name], f"{name}/step/{word}") for v, word in zip([*after, after[0]], words, strict=True)]
    ends = [helper.make_tensor_value_info(value, TensorProto.FLOAT, None) for value in gives]
    begins = [helper.make_tensor_value_info(value.name, TensorProto.FLOAT, None) for value in (*read, x_t)]
    if not states:
        batch = nodes.add("Slice", [nodes.add("Shape", [x], f"{name}/shape"), nodes.integers(1), nodes.integers(2)], f"{name}/batch")
        sizes = [nodes.add("Concat", [batch, nodes.integers(width)], f"{name}/size_{n}", axis=0) for n, width in enumerate(widths)]
        states = [nodes.add("Expand", [nodes.zero(), size], f"{name}/zeros_{n}") for n, size in enumerate(sizes)]
    back = [int(direction.reverse)]
    finals = [f"{name}/last_{n}" for n in range(len(widths))]
    body = helper.make_graph(inner.nodes, f"{name}/step", begins, ends)
    ways = {"scan_input_directions": back, "scan_output_directions": back}
    nodes.node("Scan", [*states, x], [*finals, f"{name}/every"], name, body=body, num_scan_inputs=1, **ways)
    return [f"{name}/every", *finals]


def by_steps(nodes: ProtoNodes, step_of: Callable[[], ProtoNodes], node: Any) -> str:
    """Add a recurrent operation of a graph as a Scan for each of its directions; return it in words.

    step_of  returns the empty graph of a step

    Raises RefusedError for lengths of sequences.
    """
    stack: Recurrent = node.attributes["stack"]
    read = [*node.inputs, *[""] * (7 - len(node.inputs))]
    if read[4]:
        why = "ONNX has no operator for its cell, and its steps are written without them"
        raise RefusedError("lengths of its sequences, or a mask", "ONNX", why, "", node.name)
    by_way, begun = list[list[str]](), [state for state in read[5:7] if state]
    for way, direction in enumerate(stack.layers[0].directions):
        name = f"{node.name}/{way}"
        index = nodes.shared(f"scalar_{way}", np.array(way, np.int64)) if begun else ""
        initial = [nodes.add("Gather", [state, index], f"{name}/initial_{number}", axis=0) for number, state in enumerate(begun)]
        by_way.append(steps(nodes, step_of(), name, direction, read[0], initial))
    for place, (value, parts) in enumerate(zip(node.outputs, zip(*by_way, strict=True), strict=False)):
        axis = 0 if place else 1
        wide = [nodes.add("Unsqueeze", [part, nodes.integers(axis)], f"{part}/wide") for part in parts]
        nodes.node("Concat", wide, [value], f"{value}/ways", axis=axis)
    return f"{node.name} (Scan, {stack.input_size} -> {stack.layers[0].directions[0].output_size})"
