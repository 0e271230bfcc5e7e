"""Recurrent layers as Core ML's own operations, where these are exact.

Its `gru` is not used: the text of that operation has the reset gate behind the product, and Apple's numerical tests have it before. Its
`lstm` and `rnn` are, for cells of the usual equations; the steps of all others are loops (rnnconvert/scaffolding/graph/by_steps.py).

Source: coremltools 9.0, converters/mil/mil/ops/defs/iOS15/recurrent.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.coreml.export_program import MilBlock, MilValue, Operand
from rnnconvert.formats.coreml.export_writer import MilWriter
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding.directions import WAYS

_OPERATION_FUNCTIONS = ("tanh", "sigmoid", "relu", "linear")
"""The functions whose numbers nobody spells otherwise."""


def holds(stack: Recurrent, counted: bool, cells: bool) -> bool:
    """Return whether operations compute a layer: they know no lengths. See rnnconvert.scaffolding.graph.writer.Holds."""
    (layer,) = stack.layers
    return not counted and all(_as_operation(direction) is not None for direction in layer.directions)


def recurrent(w: MilWriter, node: Operation) -> None:
    """Add a recurrent layer: each direction runs forwards, one that reads from the end over turned sequences."""
    (layer,) = node.attributes["stack"].layers
    read = [*node.inputs, "", "", ""]
    x = w[read[0]]
    by_way = []
    for way, direction in enumerate(layer.directions):
        name = node.name if len(layer.directions) == 1 else f"{node.name}/{WAYS[way]}"
        states = [_row(w.main, w[state], way, f"{name}/initial") for state in read[5:7] if state]
        turned = _turned(w.main, x, f"{name}/turned") if direction.reverse else x
        every, *ends = _direction(w.main, name, direction, turned, states)
        by_way.append([_turned(w.main, every, f"{name}/in_order") if direction.reverse else every, *ends])
    for number, (name, values) in enumerate(zip(node.outputs, zip(*by_way, strict=True), strict=False)):
        axis = 0 if number else 1
        wide = [w.main.wide(value, [axis], f"{name}/wide") for value in values]
        w.named(name, w.main.joined(wide, axis, f"{name}/ways"))


def _row(block: MilBlock, states: MilValue, way: int, wanted: str) -> MilValue:
    """Return the states of one direction (batch, units)."""
    return block.op("gather", wanted, states.dtype, states.shape[1:], {"x": states, "indices": block.index(way), "axis": block.index(0)})


def _turned(block: MilBlock, x: MilValue, wanted: str) -> MilValue:
    """Add sequences (time, batch, values) from the end on."""
    return block.each("reverse", x, wanted, axes=block.numbers(0))


def _direction(block: MilBlock, name: str, direction: Direction, x: MilValue, states: Sequence[MilValue]) -> list[MilValue]:
    """Add one direction: its outputs (time, batch, units), and its last states (batch, units)."""
    widths = [direction.output_size, direction.hidden_size][: 2 if direction.cell.kind == "lstm" else 1]
    initial = [*states]
    if not initial:
        batch = block.size(x, 1, f"{name}/batch")
        for width in widths:
            shape = block.joined([batch, block.numbers(width)], 0, f"{name}/state_shape")
            initial.append(block.filled(shape, (x.shape[1], width), block.number(0.0), f"{name}/state"))
    fitted = _as_operation(direction)
    assert fitted is not None  # see `holds`
    return _operation(block, name, *fitted, x, initial)


def _as_operation(direction: Direction) -> tuple[Layout, Recurrent] | None:
    """Return a direction in the form of Core ML's own operation; None unless the operation computes exactly the same."""
    cell = direction.cell
    functions = (cell.activation, cell.gate_activation, cell.output_activation)
    peephole = any(part == "peephole" for part, _ in direction.arrays)
    if cell.kind == "gru" or cell.clips or peephole or any(function.name not in _OPERATION_FUNCTIONS for function in functions):
        return None
    try:
        stack = Recurrent("", (Layer((direction.replace(reverse=False),)),))
        fitted = fit_to_layout(stack, registry.layouts_of("coreml"), retyped=True)
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
