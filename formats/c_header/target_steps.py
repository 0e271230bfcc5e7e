"""The operations of C over the steps of sequences: reductions, windows, loops and recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.weights import Direction
from rnnconvert.formats.c_header.program import Across
from rnnconvert.formats.c_header.target import BATCH, BOTH, TIME, Axes, ModelBuilder, ProgramTensor
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Rules, on
from rnnconvert.scaffolding.directions import WAYS
from rnnconvert.scaffolding.operators import axis_of
from rnnconvert.scaffolding.windows import pads_at, same


def _reduce(m: ModelBuilder, node: Node[kinds.Reduce]) -> None:
    x, operation, mask = m(node.x), node.kind.operation, node.named.get("mask", ())
    axes = sorted({x.axis(axis) for axis in node.kind.axes}, reverse=True)
    if operation not in ("mean", "sum", "max", "min", "any", "all"):
        raise m.refused(node, f"a reduction by {operation!r}", "no code in C is known for it")
    if operation in ("mean", "sum"):
        m.in_float32(node)
    value, left = x.value, list(x.axes)
    for axis in axes:
        if left[axis] == TIME:
            masks = [m(mask[0]).value] if mask else []
            (value,) = m.add("over time", [value, *masks], operation=operation, masked=bool(masks))
        else:
            length, inner = ProgramTensor(value, tuple(left)).place(axis)
            (value,) = m.add("folded", [value], length=length, inner=inner, operation=operation)
        left[axis] = 1
    m.give(node.y, value, tuple(axis for place, axis in enumerate(left) if node.kind.keep or place not in axes))


# Windows


def _steps(m: ModelBuilder, x: ProgramTensor, place: int) -> ProgramTensor:
    """Turn an axis of a stated length into the time of a tensor. Raises ValueError for a tensor that has a time already."""
    if TIME in x.axes or BOTH in x.axes:
        raise ValueError("it moves along another axis than the time")
    length, inner = x.place(place)
    (y,) = m.add("as steps", [x.value], length=length, inner=inner)
    return ProgramTensor(y, (*x.axes[:place], TIME, *x.axes[place + 1 :]))


_STILL: Mapping[str, Any] = {"kernel": 1, "stride": 1, "dilation": 1, "pads": [0, 0]}
"""Windows of one step."""


def _moved(m: ModelBuilder, node: Node[kinds.Conv | kinds.Pool], x: ProgramTensor) -> tuple[Mapping[str, Any], dict[int, Across]]:
    """Return how the windows of a layer move over the steps, and over other axes by their places among those of the windows.

    Raises RefusedError for a last window that reaches beyond the end of a sequence of any length, ValueError for no window.
    """
    kind, across, over_time = node.kind, dict[int, Across](), _STILL
    for axis, (size, stride, apart, reach) in enumerate(zip(kind.kernel, kind.strides, kind.dilation, kind.reach, strict=True)):
        place, pads = kind.space + axis, pads_at(kind, axis)
        timed = x.axes[place] == TIME
        length = m.program.length(m.program.values[x.value].time) if timed else x.place(place)[0]
        if pads is None and length is not None:
            pads = same(reach, stride, length)
        if isinstance(kind, kinds.Pool) and kind.ceil and pads is not None:
            if length is None:
                raise m.refused(node, "a pool beyond the end", "a sequence of any length may end anywhere in its last window")
            pads = pads[0], pads[1] + -(length + sum(pads) - reach) % stride
        if timed:
            ends = None if pads is None else list(map(int, pads))
            over_time = {"kernel": int(size), "stride": int(stride), "dilation": int(apart), "pads": ends}
        elif pads is not None and length is not None:
            across[axis] = Across(length, int(size), int(stride), int(apart), *map(int, pads))
    return over_time, across


def _conv(m: ModelBuilder, node: Node[kinds.Conv]) -> None:
    x, parts, kind, first = m(node.x), m.parts(node, "conv"), node.kind, node.kind.channels_first
    over_time, across = _moved(m, node, x)
    if x.place(1 if first else -1)[0] != kind.channels:
        raise ValueError(f"it reads {x.place(1 if first else -1)[0]} channels, and its weights are for {kind.channels}")
    time = next((axis for axis in range(kind.rank) if axis not in across), None)
    weight = parts["weight"] if time is None else np.moveaxis(parts["weight"], 2 + time, 2)
    arrays = {"W": np.moveaxis(weight, 1, -1).reshape(len(weight), -1), **({"b": parts["bias"]} if "bias" in parts else {})}
    (y,) = m.add(
        "conv", [x.value], m.stored(m.label(node), arrays), **over_time, channels=int(kind.channels), filters=len(weight),
        groups=int(kind.groups), bias="bias" in parts, across=[list(each) for each in across.values()], first=first,
    )  # fmt: skip
    space: Axes = tuple(across[axis].windows if axis in across else TIME for axis in range(kind.rank))
    m.give(node.y, y, (x.axes[0], len(weight), *space) if first else (x.axes[0], *space, len(weight)))


def _pool(m: ModelBuilder, node: Node[kinds.Pool]) -> None:
    """Add a pool over one axis after the other, as the largest number and the mean of a window allow."""
    x, kind = m(node.x), node.kind
    over_time, across = _moved(m, node, x)
    counted = kind.operation == "average" and kind.counted
    value, axes = x.value, list(x.axes)
    for axis, windows in across.items():
        place = kind.space + axis
        _, inner = ProgramTensor(value, tuple(axes)).place(place)
        (value,) = m.add("pooled", [value], operation=kind.operation, counted=counted, inner=inner, across=list(windows))
        axes[place] = windows.windows
    if over_time != _STILL:
        (value,) = m.add("pool", [value], operation=kind.operation, counted=counted, **over_time)
    m.give(node.y, value, tuple(axes))


# Loops


def _loop(m: ModelBuilder, node: Node[kinds.Loop]) -> None:
    """Add a loop over the steps of sequences: its operations read and give these steps, and its states are kept between them."""
    scope, states, count = node.kind.scope, node.kind.states, node.kind.states + node.kind.sequences
    tensors = [m(value) for value in node.inputs]
    steps = [_steps(m, x, 0) if x.axes and isinstance(x.axes[0], int) else x for x in tensors[states:count]]
    if any(x.axes[:1] != (TIME,) or TIME in x.axes[1:] or BOTH in x.axes for x in steps):
        raise ValueError("its steps are not those of the time")
    m.program.joined([m.program.values[x.value].time for x in steps])
    tensors[:states] = [_of_each_sequence(m, x, steps[0].axes[1:]) for x in tensors[:states]]
    before = [m.add("state", [steps[0].value, x.value])[0] for x in tensors[:states]]
    for inside, x, value in zip(scope.inputs, tensors, before, strict=False):
        m.give(inside, value, x.axes)
    for inside, x in zip(scope.inputs[states:], steps, strict=False):
        m.give(inside, x.value, x.axes[1:])
    for inside, x in zip(scope.inputs[count:], tensors[count:], strict=True):
        if TIME not in x.axes and BOTH not in x.axes:
            m.give(inside, x.value, x.axes)
    m.run(scope, m.label(node))
    after = [m(value) for value in scope.outputs]
    if any(y.axes != x.axes for x, y in zip(tensors[:states], after, strict=False)):
        raise ValueError("a state has other axes after a step than before it")
    for outside, value, y in zip(node.outputs, before, after, strict=False):
        m.give(outside, m.add("left", [y.value, value])[0], y.axes)
    for outside, y in zip(node.outputs[states:], after[states:], strict=True):
        if m.program.values[y.value].time is None:
            raise ValueError("its steps give what is the same in all of them")
        m.give(outside, y.value, (TIME, *y.axes))


def _of_each_sequence(m: ModelBuilder, x: ProgramTensor, axes: Axes) -> ProgramTensor:
    """Return a state for each sequence, as what a step reads: of a model of one sequence, what is there once."""
    place = axes.index(BATCH) if BATCH in axes and m.batches == {1} else len(x.axes)
    if BATCH in x.axes or x.axes[place : place + 1] != (1,):
        return x
    return ProgramTensor(x.value, (*x.axes[:place], BATCH, *x.axes[place + 1 :]))


def _range(m: ModelBuilder, node: Node[kinds.Range]) -> None:
    """Add the numbers of the steps of a sequence."""
    x = m(node.x) if node.inputs else None
    if x is None or TIME not in x.axes or (node.kind.start, node.kind.step, axis_of(node.kind.stop)) != (0, 1, (0, x.axes.index(TIME))):
        raise ValueError("its numbers are not those of all steps of a sequence")
    m.give(node.y, m.add("number", [x.value])[0], (TIME,))


# Recurrent layers


def _recurrent(m: ModelBuilder, node: Node[kinds.Recurrent]) -> None:
    directions = m.weights.directions(m.path(node))
    x, ways, mask = m(node.x), len(directions), node.named.get("mask", ())
    states = [m(value) for value in node.named.get("states", ())]
    timed = any(m.program.values[each.value].time is not None for each in (x, *states))
    if timed and len(x.axes) == 3 and x.axes[:2] == (BATCH, 1) and not mask:
        _cell(m, node, [x, *states], directions)
        return
    if x.axes[:2] != (BATCH, TIME):
        x = _steps(m, x, 1)
    if len(x.axes) != 3:
        raise ValueError("it reads more than a vector at each step")
    m.stateful.add(bool(node.kind.stateful))
    outputs, finals = [], list[int]()
    for way, direction in enumerate(directions):
        backwards = bool(way) if ways == 2 else bool(node.kind.backwards)
        cell = direction.cell.kind == "lstm"
        initial = [states.pop(0).value for _ in range(min(1 + cell, len(states)))]
        label = m.label(node) if ways == 1 else f"{m.label(node)}/{WAYS[way]}"
        name = m.layer(label, direction)
        masks = [m(mask[0]).value] if mask else []
        y, *ends = m.add(
            "recurrent", [x.value, *masks, *initial], name, backwards=backwards, turned=ways == 1, sequences=bool(node.kind.sequences),
            zero=bool(node.kind.zero), masked=bool(masks), begun=bool(initial), ends=m.reads(node.outputs[1:]), cell=cell,
        )  # fmt: skip
        outputs.append(y)
        finals += ends
    axes: Axes = (BATCH, TIME) if node.kind.sequences else (BATCH,)
    sizes = [m.program.values[value].size for value in outputs]
    merge = node.kind.merge
    if ways == 2 and merge == "concat":
        (joined,) = m.add("joined", outputs, outer=1)
        outputs, sizes = [joined], [sum(sizes)]
    elif ways == 2 and merge is not None:
        both = [ProgramTensor(value, (size,)) for value, size in zip(outputs, sizes, strict=True)]
        merged = m.combined("multiply" if merge == "mul" else "add", both)
        outputs = [m.combined("multiply", [ProgramTensor(merged, (sizes[0],)), 0.5]) if merge == "ave" else merged]
    for value, number in zip(node.outputs, outputs, strict=False):
        m.give(value, number, (*axes, m.program.values[number].size))
    for value, number in zip(node.outputs[len(outputs) :], finals, strict=False):
        m.give(value, number, (BATCH, m.program.values[number].size))


def _cell(m: ModelBuilder, node: Node[kinds.Recurrent], reads: Sequence[ProgramTensor], directions: Sequence[Direction]) -> None:
    """Add a recurrent layer that reads one step at each step of a loop: it goes on from the states that it is given."""
    if len(directions) > 1 or node.kind.stateful:
        raise ValueError("at each step of a loop it has two directions, or states of its own")
    (direction,) = directions
    name = m.layer(m.label(node), direction)
    y, *ends = m.add("cell", [each.value for each in reads], name, cell=direction.cell.kind == "lstm")
    size = m.program.values[y].size
    m.give(node.outputs[0], y, (BATCH, 1, size) if node.kind.sequences else (BATCH, size))
    for value, number in zip(node.outputs[1:], ends, strict=False):
        m.give(value, number, (BATCH, m.program.values[number].size))


STEPS: Rules = {
    **on(kinds.Reduce, _reduce), **on(kinds.Conv, _conv), **on(kinds.Pool, _pool),
    **on(kinds.Loop, _loop), **on(kinds.Range, _range), **on(kinds.Recurrent, _recurrent),
}  # fmt: skip
"""The kinds that are known."""
