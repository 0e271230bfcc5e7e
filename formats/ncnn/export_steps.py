"""Recurrent layers for whose cell ncnn has no layer, and loops: a net has none, so that their steps are written out, one after the other.

The numbers stand in the net once, and every step reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Flag, TargetSetting
from rnnconvert.core.weights import Direction
from rnnconvert.formats.ncnn.export_writer import TITLE, NetTensor, NetWriter
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.graph.by_steps import StepEquations

_BINARY = {"Add": 0, "Sub": 1, "Mul": 2, "Div": 3, "Max": 4, "Min": 5}
_TURNED = {"Add": 0, "Sub": 7, "Mul": 2, "Div": 8}
"""The operators of a number and a blob, in this order."""
_LAYERS: Mapping[str, tuple[str, Mapping[int, int]]] = {
    "Sigmoid": ("Sigmoid", {}), "Tanh": ("TanH", {}), "Relu": ("ReLU", {}), "MatMul": ("MatMul", {}),
    "Abs": ("UnaryOp", {0: 0}), "Neg": ("UnaryOp", {0: 1}), "Exp": ("UnaryOp", {0: 7}), "Log": ("UnaryOp", {0: 8}),
}  # fmt: skip
_TO_THE_END = -233
"""Crop's number for an end that is the axis's own."""
_LAST, _TIME = -1, 0


class OpenStepsError(RefusedError):
    """A layer is to be written out, and how many steps it has is not known."""


class _NetOperations:
    """ncnn's layers as the operations that the equations of a cell are written in; blobs have two axes, and numbers have names, too."""

    title, unknown = TITLE, "no layer of ncnn's is known for it"

    def __init__(self, w: NetWriter) -> None:
        self._w = w
        self._numbers: dict[str, float] = {}

    def number(self, value: float) -> str:
        """Return the name of a number: no blob has it, as it has a space."""
        self._numbers[f"the number {value!r}"] = value
        return f"the number {value!r}"

    def integers(self, *values: int) -> str:
        """Return the name of a whole number."""
        return self.number(*values)

    def constant(self, wanted: str, array: Any) -> str:
        """Return the blob of stored numbers, a row or a matrix."""
        numbers = np.asarray(array)
        return self._w.stored(wanted, numbers.reshape(1, -1) if numbers.ndim == 1 else numbers)

    def add(self, operator: str, inputs: Sequence[str], wanted: str, **attributes: Any) -> str:
        """Add an operation."""
        numbers = [self._numbers.get(name) for name in inputs]
        first = inputs[0]
        if operator == "Slice":
            start, stop = (int(number or 0) for number in numbers[1:3])
            end = _TO_THE_END if stop == np.iinfo(np.int64).max else stop
            return self._w.add("Crop", [first], wanted, {9: [start], 10: [end], 11: [_LAST]})
        if operator in _LAYERS:
            return self._w.add(_LAYERS[operator][0], inputs, wanted, _LAYERS[operator][1])
        if numbers[0] is not None:
            return self._w.by_number(_TURNED[operator], inputs[1], numbers[0], wanted)
        if numbers[1] is not None:
            return self._w.by_number(_BINARY[operator], first, numbers[1], wanted)
        return self._w.binary(_BINARY[operator], inputs, wanted)


def count_of(w: NetWriter, node: Node[kinds.Kind], tensor: NetTensor, lacking: RefusedError | None = None) -> int:
    """Return how many steps a sequence has that is written out, and note that one is.

    lacking  why ncnn's own layers do not compute it

    Raises OpenStepsError where it is not known.
    """
    w.written_out = True
    (count, *_) = tensor.lengths
    if count is not None:
        return count
    feature, reason = ("a loop", "") if lacking is None else (lacking.feature, f"{lacking.reason}. ")
    remedy = f"With {TargetSetting('steps', 'N')} it is for sequences of N steps; with {Flag('stateful')} for a stream, a step at a time."
    if w.steps is not None:
        remedy = "Build the model for sequences of one length."
    reason += "A net has no loops: each step is written out, and how many it has is open"
    raise OpenStepsError(feature, TITLE, reason, remedy, w.scope.inside(node.label))


def _checked(w: NetWriter, blob: str, count: int, wanted: str) -> str:
    """Return a blob (time, values) of so many steps, and have the outputs add a number that is zero where it has them, and else none.

    ncnn checks no lengths: its layers would read beyond a shorter blob, and leave out the end of a longer one.
    """
    ones = w.add("Clip", [w.add("Crop", [blob], f"{wanted}/column", {9: [0], 10: [1], 11: [1]})], f"{wanted}/ones", {0: 1.0, 1: 1.0})
    padded = w.add("Padding", [ones], f"{wanted}/padded", {1: count + 1})
    last, beyond = (w.add("Crop", [padded], f"{wanted}/{word}", {9: [end - 1], 10: [end], 11: [_TIME]})
                    for word, end in (("last step", count), ("beyond", count + 1)))  # fmt: skip
    exact = w.shaped(w.binary(_BINARY["Sub"], [last, beyond], f"{wanted}/exact"), [-1], f"{wanted}/is exact")
    check = w.by_number(_TURNED["Div"], exact, 0.0, f"{wanted}/check")
    w.checks.append(check)
    padded = w.add("Padding", [w.binary(_BINARY["Add"], [blob, check], f"{wanted}/checked")], f"{wanted}/filled", {1: count})
    return w.add("Crop", [padded], wanted, {9: [0], 10: [count], 11: [_TIME]})


def _each(w: NetWriter, blob: str, count: int, wanted: str) -> list[str]:
    """Return the steps of a blob as blobs whose first axis is one."""
    return w.net.add("Slice", [blob], wanted, {0: [1] * count, 1: _TIME}, (), count) if count > 1 else [blob]


def written_out(
    w: NetWriter, node: Node[kinds.Recurrent], name: str, direction: Direction, reverse: bool, states: Sequence[str], count: int
) -> list[str]:
    """Add a direction step by step; return its outputs in the order of time, and its last states."""
    cell = StepEquations(_NetOperations(w), name, direction)
    x = _checked(w, w.blob(node, node.x), count, f"{name}/in")
    widths = [direction.output_size, direction.hidden_size][: 2 if direction.cell.kind == "lstm" else 1]
    after = [w.shaped(state, [1, -1], f"{name}/initial") for state in states]
    after = after or [w.stored(f"{name}/zeros{width}", np.zeros((1, width), np.float32)) for width in widths]
    every = list[str]()
    steps = _each(w, cell.from_input(x), count, f"{name}/steps")
    for product in reversed(steps) if reverse else steps:
        after = cell.after_step(product, after)
        every.append(after[0])
    outputs = _joined(w, every[::-1] if reverse else every, name)
    w.recurrent.append(
        f"{name} ({direction.cell.kind.upper()} {direction.input_size} -> {direction.output_size}, written out: {_steps(count)})"
    )
    return [outputs, *(w.shaped(final, [-1], f"{name}/last") for final in after)]


def _joined(w: NetWriter, steps: Sequence[str], wanted: str) -> str:
    """Return steps in their order as one blob."""
    return w.add("Concat", steps, wanted, {0: _TIME}) if len(steps) > 1 else steps[0]


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def loop(w: NetWriter, node: Node[kinds.Loop]) -> None:
    """Add a loop over the steps of sequences."""
    scope, held = node.kind.scope, node.kind.states
    states, sequences, shared = (
        node.inputs[:held],
        node.inputs[held : held + node.kind.sequences],
        node.inputs[held + node.kind.sequences :],
    )
    if not sequences or any(value.dtype != "float32" or w(value).batch == 0 for value in sequences):
        raise w.refused(node, "a loop over the numbers of its steps", "its layers compute in float32 alone")
    count, label = count_of(w, node, w(sequences[0])), w.label(node)
    for inside, outside in zip((*scope.inputs[:held], *scope.inputs[held + len(sequences) :]), (*states, *shared), strict=True):
        w.hand(inside, w(outside))
    steps = []
    for value in sequences:
        lengths = w.stated(node, w(value).lengths[1:])
        rows = w.shaped(w(value).blob, [-1, math.prod(lengths)], f"{label}/rows")
        checked = _checked(w, rows, count, f"{label}/in")
        steps.append([w.shaped(blob, lengths or [1], f"{label}/step") for blob in _each(w, checked, count, f"{label}/steps")])
    listed: list[list[str]] = [[] for _ in scope.outputs[held:]]
    for blobs in zip(*steps, strict=True):
        for inside, outside, blob in zip(scope.inputs[held : held + len(sequences)], sequences, blobs, strict=True):
            batch = w(outside).batch
            w.give(inside, blob, None if batch is None else batch - 1)
        outside_step, w.in_step = w.in_step, True
        w.run(scope, label)
        w.in_step = outside_step
        for row, value in zip(listed, scope.outputs[held:], strict=True):
            row.append(w.shaped(w(value).blob, [1, *w.closed(node, w(value).lengths)], f"{label}/gives"))
        for inside, tensor in zip(scope.inputs[:held], [w(value) for value in scope.outputs[:held]], strict=True):
            w.hand(inside, tensor)
    w.recurrent.append(f"{label} (a loop, written out: {_steps(count)})")
    for outside, inside in zip(node.outputs[:held], scope.outputs[:held], strict=True):
        w.hand(outside, w(inside))
    for outside, row, inside in zip(node.outputs[held:], listed, scope.outputs[held:], strict=True):
        batch = w(inside).batch
        w.give(outside, _joined(w, row, f"{label}/every"), None if batch is None else batch + 1)
