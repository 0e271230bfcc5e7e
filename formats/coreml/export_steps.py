"""Recurrent layers as operations of Core ML: its own where they are exact, and loops of basic operations.

Its `gru` is not used: the text of that operation has the reset gate behind the product, and Apple's numerical tests have it before. Its
`lstm` and `rnn` are, for cells of the usual equations. Loops are as coremltools writes PyTorch's GRU: a counter of one axis, steps that
are gathered, and outputs scattered over a value of the same shape.

Source: coremltools 9.0, converters/mil/mil/ops/defs/iOS15/recurrent.py and control_flow.py; converters/mil/frontend/torch/ops.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.coreml import mil
from rnnconvert.formats.coreml.export_program import TITLE, MilBlock, MilValue, Operand
from rnnconvert.formats.coreml.export_writer import MilWriter
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding.directions import WAYS
from rnnconvert.scaffolding.graph.step_values import StepEquations, StepMatrix, StepValue

_OPERATION_FUNCTIONS = ("tanh", "sigmoid", "relu", "linear")
"""The functions whose numbers nobody spells otherwise."""


def recurrent(w: MilWriter, node: Operation) -> None:
    """Add a recurrent layer: each direction runs forwards, one that reads from the end over turned sequences."""
    stack: Recurrent = node.attributes["stack"]
    (layer,) = stack.layers
    read = [*node.inputs, "", "", ""]
    x, lengths = w[read[0]], w[read[4]] if read[4] else None
    by_way = []
    for way, direction in enumerate(layer.directions):
        name = node.name if len(layer.directions) == 1 else f"{node.name}/{WAYS[way]}"
        states = [_row(w.main, w[state], way, f"{name}/initial") for state in read[5:7] if state]
        turned = _turned(w.main, x, lengths, f"{name}/turned") if direction.reverse else x
        every, *ends = _direction(w.main, name, direction.replace(reverse=False), turned, states, lengths)
        by_way.append([_turned(w.main, every, lengths, f"{name}/in_order") if direction.reverse else every, *ends])
    w.recurrent.append(f"{node.name} ({node.kind} {stack.input_size} -> {layer.directions[0].output_size})")
    for number, (name, values) in enumerate(zip(node.outputs, zip(*by_way, strict=True), strict=False)):
        axis = 0 if number else 1
        wide = [w.main.wide(value, [axis], f"{name}/wide") for value in values]
        w.named(name, w.main.joined(wide, axis, f"{name}/ways"))


def _row(block: MilBlock, states: MilValue, way: int, wanted: str) -> MilValue:
    """Return the states of one direction (batch, units)."""
    return block.op("gather", wanted, states.dtype, states.shape[1:], {"x": states, "indices": block.index(way), "axis": block.index(0)})


def _turned(block: MilBlock, x: MilValue, lengths: MilValue | None, wanted: str) -> MilValue:
    """Add sequences (time, batch, values) from the end on, each from its own."""
    if lengths is None:
        return block.each("reverse", x, wanted, axes=block.numbers(0))
    return block.each("reverse_sequence", x, wanted, lengths=lengths, seq_axis=block.index(0), batch_axis=block.index(1))


def _direction(
    block: MilBlock, name: str, direction: Direction, x: MilValue, states: Sequence[MilValue], lengths: MilValue | None
) -> list[MilValue]:
    """Add one direction: its outputs (time, batch, units), and its last states (batch, units)."""
    widths = [direction.output_size, direction.hidden_size][: 2 if direction.cell.kind == "lstm" else 1]
    if states:
        initial = [*states]
    else:
        batch = block.size(x, 1, f"{name}/batch")
        initial = []
        for width in widths:
            shape = block.joined([batch, block.numbers(width)], 0, f"{name}/state_shape")
            initial.append(block.filled(shape, (x.shape[1], width), block.number(0.0), f"{name}/state"))
    fitted = _as_operation(name, direction) if lengths is None else None
    if fitted is not None:
        return _operation(block, name, *fitted, x, initial)
    return _loop(block, name, direction, x, initial, lengths)


def _as_operation(name: str, direction: Direction) -> tuple[Layout, Recurrent] | None:
    """Return a direction in the form of Core ML's own operation; None unless the operation computes exactly the same."""
    cell = direction.cell
    functions = (cell.activation, cell.gate_activation, cell.output_activation)
    peephole = any(part == "peephole" for part, _ in direction.arrays)
    if cell.kind == "gru" or cell.clips or peephole or any(function.name not in _OPERATION_FUNCTIONS for function in functions):
        return None
    try:
        fitted = fit_to_layout(Recurrent(name, (Layer((direction,)),)), registry.layouts_of("coreml"), retyped=True)
    except RefusedError:
        return None
    return fitted.layout, fitted.stack


def _operation(block: MilBlock, name: str, layout: Layout, stack: Recurrent, x: MilValue, states: Sequence[MilValue]) -> list[MilValue]:
    cell, constant = stack.cell, block.program.constant
    packed = pack(layout, stack, np.dtype(np.float32))
    arrays = {local: constant(f"{name}/{local}", array) for local, array in packed.items()}
    roles = {"activation": cell.activation}
    if cell.kind == "lstm":
        roles = {"recurrent_activation": cell.gate_activation, "cell_activation": cell.activation, "activation": cell.output_activation}
    words = {role: function.name for role, function in roles.items()}
    initial = dict(zip(("initial_h", "initial_c"), states, strict=False))
    width = stack.hidden_size
    ends = [("fp32", (x.shape[1], width))] * len(states)
    inputs: dict[str, Operand] = {"x": x, **initial, **arrays, "direction": "forward", "output_sequence": True, **words}
    return block.several(cell.kind, name, [("fp32", (*x.shape[:2], width)), *ends], inputs)


# Loops

_OPERATIONS: Mapping[str, str] = {"Max": "maximum", "Min": "minimum", "Div": "real_div"}
"""The operations that are not called as the common ones are."""


class _LoopValue(StepValue):
    """A value in the body of a loop."""

    def __init__(self, block: MilBlock, value: MilValue) -> None:
        self.block, self.value = block, value

    def apply(self, operator: str, *others: _LoopValue | float) -> _LoopValue:
        wanted = f"{self.block.label}/{operator.lower()}"
        if operator == "Neg":
            return self.apply("Mul", -1.0)
        if operator == "Log":
            return _LoopValue(self.block, self.block.each("log", self.value, wanted, epsilon=self.block.number(0.0)))
        kind = _OPERATIONS.get(operator, operator.lower())
        if not others:
            return _LoopValue(self.block, self.block.each(kind, self.value, wanted))
        (other,) = (other.value if isinstance(other, _LoopValue) else self.block.number(other) for other in others)
        return _LoopValue(self.block, self.block.both(kind, self.value, other, wanted))

    def number(self, value: float) -> _LoopValue:
        return _LoopValue(self.block, self.block.number(value))

    def __matmul__(self, matrix: StepMatrix[MilValue]) -> _LoopValue:
        return _LoopValue(self.block, product(self.block, self.value, matrix.held, f"{self.block.label}/product"))

    def __getitem__(self, part: Any) -> _LoopValue:
        """Return a part of the last axis: states have two axes, peepholes one."""
        last = part[-1] if isinstance(part, tuple) else part
        axis = self.value.rank - 1
        return _LoopValue(self.block, self.block.part(self.value, axis, last.start or 0, last.stop, f"{self.block.label}/part"))


def product(block: MilBlock, x: MilValue, matrix: MilValue, wanted: str, bias: MilValue | None = None) -> MilValue:
    """Add the product with a stored matrix (out, in)."""
    inputs = {"x": x, "weight": matrix} | ({} if bias is None else {"bias": bias})
    return block.op("linear", wanted, x.dtype, (*x.shape[:-1], matrix.shape[0]), inputs)


def _loop(
    block: MilBlock, name: str, direction: Direction, x: MilValue, states: Sequence[MilValue], lengths: MilValue | None
) -> list[MilValue]:
    cell = StepEquations(name, TITLE, direction)
    width = direction.output_size
    count = block.size(x, 0, f"{name}/steps")
    read = _read(block, cell, x)
    shape = block.joined([count, block.size(x, 1, f"{name}/sequences"), block.numbers(width)], 0, f"{name}/every_shape")
    every = block.filled(shape, (*x.shape[:2], width), block.number(0.0), f"{name}/zeros")
    variables = [block.numbers(0), every, *states]
    words = ("step", "every", *("h", "c")[: len(states)])
    inner = [
        MilValue(block.program.names.unique(f"{name}/{word}"), value.dtype, value.shape)
        for word, value in zip(words, variables, strict=True)
    ]
    going = MilBlock(block.program, name)
    goes_on = going.both("less", inner[0], count, f"{name}/less", "bool")
    body = MilBlock(block.program, name)

    def row(stored: str, numbers: Array | PiecewiseArray) -> _LoopValue:
        return _LoopValue(body, body.program.constant(stored, numbers))

    step = body.op("gather", f"{name}/at", "fp32", (1, *read.shape[1:]), {"x": read, "indices": inner[0], "axis": body.index(0)})
    before = [_LoopValue(body, value) for value in inner[2:]]
    from_input = _LoopValue(body, body.squeezed(step, [0], f"{name}/read"))
    new = [state.value for state in cell.after_step(from_input, before, body.program.constant, row)]
    ends = new
    if lengths is not None:
        counts = body.wide(body.both("greater", lengths, inner[0], f"{name}/counts", "bool"), [1], f"{name}/wide")
        ends = [
            body.op("select", f"{name}/kept", "fp32", state.shape, {"cond": counts, "a": state, "b": old.value})
            for state, old in zip(new, before, strict=True)
        ]
    updates = {"data": inner[1], "indices": inner[0], "updates": body.wide(new[0], [0], f"{name}/output")}
    listed = body.op("scatter", f"{name}/listed", "fp32", every.shape, {**updates, "axis": body.index(0), "mode": "update"})
    after = body.both("add", inner[0], body.numbers(1), f"{name}/next")
    types = [(value.name, value.type) for value in inner]
    blocks = [
        mil.block(going.operations, [goes_on.name], types),
        mil.block(body.operations, [value.name for value in (after, listed, *ends)], types),
    ]
    outputs = [(value.dtype, value.shape) for value in inner]
    return block.several("while_loop", name, outputs, {"loop_vars": variables}, blocks)[1:]


def _read(block: MilBlock, cell: StepEquations, x: MilValue) -> MilValue:
    """Add what all steps read: products with the inputs, and what is added to these."""
    rows = [np.asarray(row, np.float32) for row in cell.input_rows.values()]
    bias = block.program.constant(f"{cell.name}/bias", functools.reduce(np.add, rows)) if rows else None
    weight = block.program.constant(f"{cell.name}/weight_ih", cell.weights["weight_ih"])
    return product(block, x, weight, f"{cell.name}/inputs", bias)
