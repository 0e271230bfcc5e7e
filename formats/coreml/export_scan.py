"""What runs a graph of its own at every step of sequences, as a while_loop: cells that have no operation, LSTMs of convolutions.

Source: coremltools 9.0, converters/mil/mil/ops/defs/iOS15/control_flow.py and scatter_gather.py.
"""

from __future__ import annotations

import numpy as np

from rnnconvert.formats.coreml import mil
from rnnconvert.formats.coreml.export_program import MilBlock, MilValue, Operand, dtype_of
from rnnconvert.formats.coreml.export_writer import MilWriter
from rnnconvert.graphs.program.operations import Body, Declared, Operation


def scan(w: MilWriter, node: Operation) -> None:
    """Add a loop over the steps of sequences: its variables are the number of the step, the states, and what all steps give.

    Raises RefusedError where an axis of what its steps give has a length that nothing tells before they run.
    """
    ((_, inner),) = node.bodies
    states, around = len(node.inputs) - node.attributes["num_scan_inputs"], w.main
    declared = {value.name: value for value in inner.declared}
    sequences = [_number(around, w[name], f"{node.name}/sequence") for name in node.inputs[states:]]
    count = around.size(sequences[0], 0, f"{node.name}/steps")
    elements = [declared[name] for name in inner.outputs[states:]]
    lists = [_zeros(w, node, inner, output, step, count) for output, step in zip(node.outputs[states:], elements, strict=True)]
    variables = [around.numbers(0), *(w[name] for name in node.inputs[:states]), *lists]
    shapes = [(1,), *(w.step_dims(node, declared[name]) for name in inner.inputs[:states]), *(value.shape for value in lists)]
    held = [
        MilValue(w.program.names.unique(f"{node.name}/variable"), value.dtype, shape)
        for value, shape in zip(variables, shapes, strict=True)
    ]
    number, *before = held
    going, block = MilBlock(w.program, node.name), MilBlock(w.program, node.name)
    goes_on = going.both("less", number, count, f"{node.name}/less", "bool")
    with w.graph_in(node, block) as body:
        for name, value in zip(body.inputs[:states], before, strict=False):
            w.named(name, value)
        for name, sequence in zip(body.inputs[states:], sequences, strict=True):
            w.named(name, _step(block, sequence, number, _type(declared[name]), f"{node.name}/step"))
        w.write_nodes()
        after = [w[name] for name in body.outputs]
    filled = [_with_step(block, value, number, step, node.name) for value, step in zip(before[states:], after[states:], strict=True)]
    counted = block.both("add", number, block.numbers(1), f"{node.name}/next")
    types = [(value.name, value.type) for value in held]
    blocks = [
        mil.block(going.operations, [goes_on.name], types),
        mil.block(block.operations, [value.name for value in (counted, *after[:states], *filled)], types),
    ]
    results = around.several("while_loop", node.name, [(value.dtype, value.shape) for value in held], {"loop_vars": variables}, blocks)
    for name, value in zip(node.outputs, results[1:], strict=True):
        w.named(name, value)
    for name, value, step in zip(node.outputs[states:], results[1 + states :], elements, strict=True):
        w.named(name, around.cast(value, _type(step), f"{node.name}/truths"))


def _type(value: Declared) -> str:
    """Return the element type in which a program computes with a value of a step."""
    return dtype_of(np.dtype(value.dtype))


def _number(block: MilBlock, value: MilValue, wanted: str) -> MilValue:
    """Return truths as whole numbers, which alone are gathered and scattered, and other values as they are."""
    return block.cast(value, "int32", wanted) if value.dtype == "bool" else value


def _step(block: MilBlock, sequence: MilValue, number: MilValue, dtype: str, wanted: str) -> MilValue:
    inputs = {"x": sequence, "indices": number, "axis": block.index(0)}
    at = block.op("gather", f"{wanted}/at", sequence.dtype, (1, *sequence.shape[1:]), inputs)
    return block.cast(block.squeezed(at, [0], wanted), dtype, f"{wanted}/truths")


def _with_step(block: MilBlock, every: MilValue, number: MilValue, step: MilValue, name: str) -> MilValue:
    updates = block.wide(_number(block, step, f"{name}/numbers"), [0], f"{name}/wide")
    inputs: dict[str, Operand] = {"data": every, "indices": number, "updates": updates, "axis": block.index(0), "mode": "update"}
    return block.op("scatter", f"{name}/listed", every.dtype, every.shape, inputs)


def _zeros(w: MilWriter, node: Operation, body: Body, output: str, step: Declared, count: MilValue) -> MilValue:
    """Add zeros in the place of what all steps give."""
    lengths: list[MilValue] = [count]
    for length in w.lengths_of_steps(node, body, output, step):
        lengths.append(w.main.numbers(length) if isinstance(length, int) else w.main.size(w[length[0]], length[1], f"{node.name}/length"))
    dims = w.step_dims(node, step)
    zero = w.main.number(0.0) if _type(step) == "fp32" else w.main.index(0)
    return w.main.filled(w.main.joined(lengths, 0, f"{node.name}/lengths"), (None, *dims), zero, f"{node.name}/zeros")
