"""Recurrent nodes of ONNX graphs, and the layers that other operators compute, in the words of a description.

A node gives its outputs with an axis of directions, (time, direction, batch, unit); what turns them afterwards is written only
where something is left of it. Source: onnx/docs/Operators.md, LSTM, GRU and RNN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.core.weights import Direction
from rnnconvert.formats.onnx.describe.counting import Op
from rnnconvert.formats.onnx.describe.model import GraphReading
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.sizes import Dim
from rnnconvert.models.model import Unit
from rnnconvert.recognition.computed import Computed
from rnnconvert.recognition.recognised import ReadSequence
from rnnconvert.scaffolding.moved import Atom, Moved
from rnnconvert.scaffolding.recurrent import recurrent as called
from rnnconvert.scaffolding.tensors import SourceTensor


def recurrent(r: GraphReading, op: Op, unit: Unit) -> list[SourceTensor | None]:
    """Return what a node LSTM, GRU or RNN gives."""
    stack, batch_first = unit.stack, bool(op.values.get("layout", 0))
    assert stack is not None
    for direction in stack.layers[0].directions:
        _check(r, direction)
    x = op[0] if batch_first else r.build.transpose(op[0], (1, 0, 2))
    ways, lstm = stack.num_directions, stack.cell.kind == "lstm"
    states = _states(r, op, ways, lstm, batch_first, x.dims[0])
    mask = _mask(r, op.optional(4), x)
    wanted = [op.has(number) and _is_read(r, op, number) for number in range(3)]
    sequence, finals = called(r.build, unit, x, states, mask, wanted[0])
    outputs: list[SourceTensor | None] = [None, None, None]
    if wanted[0]:
        sequence = _turned(r, sequence) if stack.first.reverse and ways == 1 else sequence
        outputs[0] = _with_directions(sequence, ways, (0, 1, 2, 3) if batch_first else (1, 2, 0, 3))
    for number in range(1 + lstm):
        value = r.build.stacked(finals[number :: 1 + lstm])
        outputs[1 + number] = r.build.transpose(value, (1, 0, 2)) if batch_first else value
    return outputs


def _is_read(r: GraphReading, op: Op, number: int) -> bool:
    return r.uses(op.scope).any(op.node.outputs[number])


def _check(r: GraphReading, direction: Direction) -> None:
    """Raise RefusedError for what no line here computes."""
    elsewhere = [clip for clip in direction.cell.clips if clip.kind != "gates"]
    odd = [*direction.cell.describe()] if direction.cell.coupled or elsewhere else []
    odd += ["peepholes"] if direction.has_peepholes else []
    if odd:
        raise r.build.refuse(f"a cell with {', '.join(odd)}", "the layers of other frameworks have none")


def _states(r: GraphReading, op: Op, ways: int, lstm: bool, batch_first: bool, batch: Dim) -> list[SourceTensor]:
    """Return the initial states, for each direction its hidden state and its cell state; none where they are zeros."""
    stated = [op.optional(number) for number in (5, 6)[: 1 + lstm]]
    if all(x is None or r.build.is_zero(x) for x in stated):
        return []
    if any(x is None for x in stated):
        raise r.build.refuse("one initial state of two", "the other begins with zeros, and layers take both or none")
    axis = 1 if batch_first else 0
    return [_for_batch(r, r.build.select(x, axis, way), batch) for way in range(ways) for x in stated if x is not None]


def _for_batch(r: GraphReading, state: SourceTensor, batch: Dim) -> SourceTensor:
    """Return a state of (batch, unit), where it is learned the same for every sequence."""
    if state.dims[0] == batch:
        return state
    if state.dims[0] != 1 and isinstance(state.dims[0], int) and isinstance(batch, int):
        raise r.build.refuse(f"initial states of {state.dims[0]} sequences for a batch of {batch}", "the node has no such use")
    return r.build.expand(state, (batch, state.dims[1]))


def _mask(r: GraphReading, lengths: SourceTensor | None, x: SourceTensor) -> SourceTensor | None:
    """Return which steps count, where the node reads the lengths of its sequences."""
    if lengths is None:
        return None
    if lengths.numbers is not None and isinstance(x.dims[1], int) and (np.asarray(lengths.numbers) == x.dims[1]).all():
        return None
    return r.build.add("mask", [lengths, x], x.dims[:2], "bool", operation="lengths", name="mask")


def _turned(r: GraphReading, x: SourceTensor) -> SourceTensor:
    """Return a sequence turned around."""
    return r.build.flip(x, 1)


def _with_directions(sequence: SourceTensor, ways: int, order: Sequence[int]) -> SourceTensor:
    """Return (batch, time, directions and units) with an axis for the directions, and batch, time, direction, unit in an order."""
    batch, time, both = sequence.dims
    assert isinstance(both, int)
    parts = Atom(batch), Atom(time), Atom(ways), Atom(both // ways)
    groups = [(atom,) if atom.dim != 1 else () for atom in parts]
    groups = [() if n == 2 and ways == 1 else group for n, group in enumerate(groups)]
    base = groups[0], groups[1], (*groups[2], *groups[3])
    moved = Moved(base, tuple(groups[n] for n in order))
    return SourceTensor(tuple(parts[n].dim for n in order), sequence.dtype, sequence.name, origin=(sequence, moved))


def computed(r: GraphReading, scope: Scope, unit: Unit, layer: Computed) -> None:
    """Read a layer that other operators compute, and note each of its outputs that is used."""
    match, stack = layer.recognised, layer.stack
    r.build.place = f"{stack.name} ({match.what})"
    _check(r, match.direction)
    values = layer.reads if layer.turned else [read.value for read in match.reads]
    if match.mask is not None:
        raise r.build.refuse("a loop that skips steps of its sequences", "it is not a plain layer")
    x = r.build.concatenate([_sequence(r, scope, read, value) for read, value in zip(match.reads, values, strict=True)], 2)
    states = [r.tensor(scope, match.states[letter]) for letter in ("h", "c") if letter in match.states]
    if all(map(r.build.is_zero, states)):
        states = []
    states = [r.build.squeeze(state, [0]) if state.rank == 3 else state for state in states]
    wanted = any(use.kind in ("sequence", "step") for use in match.uses)
    sequence, finals = called(r.build, unit, x, states, sequences=wanted)
    if wanted and stack.first.reverse and not layer.turned and not match.processing:
        sequence = _turned(r, sequence)
    for use in match.uses:
        if use.kind == "sequence":
            output = sequence
            if use.rank != 2:
                output = r.build.unsqueeze(sequence, [0])  # (1, batch, time, unit): time is put in its place below
            order = [n for n in range(output.rank) if n != output.rank - 2]
            order.insert(use.axis, output.rank - 2)
            output = r.build.transpose(output, order)
        else:
            final = finals[1 if use.kind == "cell" else 0]
            output = r.build.select(sequence, 1, use.step) if use.kind == "step" else final
            output = r.build.unsqueeze(output, [0]) if use.rank == 3 else output
        r.give(scope, use.value, output)


def _sequence(r: GraphReading, scope: Scope, read: ReadSequence, value: str) -> SourceTensor:
    """Return what a layer reads as (batch, time, features): a value, or its written-out steps."""
    if read.steps:
        steps = [r.tensor(scope, step) for step in read.steps]
        if any(step.rank != 2 for step in steps):
            raise r.build.refuse("written-out steps over other than (batch, features)", "it is not a plain layer")
        return r.build.concatenate([r.build.unsqueeze(step, [1]) for step in steps], 1)
    x = r.tensor(scope, value)
    rest = [axis for axis in range(x.rank) if axis != read.axis]
    if x.rank != 3:
        raise r.build.refuse(f"a loop over a tensor of {x.rank} axes", "a sequence has three")
    x = r.build.transpose(x, (rest[0], read.axis, rest[1]))
    return x if read.window is None else r.build.slice(x, 1, read.window[0], read.window[1], 1)
