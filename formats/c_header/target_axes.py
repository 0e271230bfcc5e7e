"""The operations of C that move the numbers of a step, or turn steps into numbers, for the kinds of nodes that move axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnnconvert.formats.c_header.target import BATCH, BOTH, OPEN, TIME, Axes, ModelBuilder, ProgramTensor
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Rules, Value, on


def _transpose(m: ModelBuilder, node: Node[kinds.Transpose]) -> None:
    x, order = m(node.x), node.kind.order
    axes = tuple(x.axes[axis] for axis in order)
    _turn(m, node.y, x, axes, [axis for axis in order if isinstance(x.axes[axis], int)])


def _turn(m: ModelBuilder, y: Value, x: ProgramTensor, axes: Axes, order: Sequence[int]) -> None:
    """Let a tensor be another one whose axes are in another order: the batch and the time are nowhere in memory."""
    places = sorted(order)
    relative = [places.index(axis) for axis in order]
    moving = [place for place in relative if x.lengths[place] > 1]
    if moving == sorted(moving):
        m.give(y, x.value, axes)
        return
    (value,) = m.add("turned", [x.value], shape=x.lengths, order=relative)
    m.give(y, value, axes)


def _reshape(m: ModelBuilder, node: Node[kinds.Kind]) -> None:
    """Let a tensor have other axes: where the time stays, what is at a step has others; otherwise its steps become numbers."""
    x, shape = m(node.x), node.y.shape
    axes = _other_axes(m, x, shape)
    if axes is None and TIME in x.axes:
        x = _flat(m, x)
        axes = _other_axes(m, x, shape)
    axes = axes or _of_one_sequence(m, x, shape)
    if axes is None:
        raise m.refused(node, f"{x.axes} as {shape}", "the batch or the time does not stay an axis of its own")
    m.give(node.y, x.value, axes)


def _other_axes(m: ModelBuilder, x: ProgramTensor, shape: Sequence[int | None]) -> Axes | None:
    """Return a shape as axes of a tensor whose batch and time stay where they are; None where they do not."""
    opened = [axis for axis in x.axes if isinstance(axis, str)]
    runs = _runs(x.axes)
    axes: list[str | int] = []
    for length in shape:
        place = sum(isinstance(axis, str) for axis in axes)
        enough = math.prod(axis for axis in _since(axes) if isinstance(axis, int)) == runs[place]
        marker = opened[place] if place < len(opened) else ""
        stated: set[int | None] = {-1, *m.batches} if marker == BATCH else set()
        if marker == TIME:
            stated.add(m.program.length(m.program.values[x.value].time))
        if marker and enough and (length is None or length in stated):
            axes.append(marker)
        elif length is None:
            closed = [each for each in shape if each is not None]
            missing = math.prod(runs) // max(1, math.prod(closed))
            axes.append(missing)
        else:
            axes.append(length)
    fits = [axis for axis in axes if isinstance(axis, str)] == opened and _runs(tuple(axes)) == runs
    return tuple(axes) if fits else None


def _of_one_sequence(m: ModelBuilder, x: ProgramTensor, shape: Sequence[int | None]) -> Axes | None:
    """Return a shape as axes of a tensor whose batch, which is always one sequence, may be anywhere; None for other tensors."""
    if m.batches != {1} or BATCH not in x.axes or TIME in x.axes or 1 not in shape or None in shape:
        return None
    place = shape.index(1)
    axes: Axes = tuple(BATCH if axis == place else length or 0 for axis, length in enumerate(shape))
    return axes if math.prod(_runs(axes)) == math.prod(_runs(x.axes)) else None


def _runs(axes: Axes) -> list[int]:
    """Return how many numbers are before, between and behind the batch and the time."""
    runs = [1]
    for axis in axes:
        if isinstance(axis, int):
            runs[-1] *= axis
        else:
            runs.append(1)
    return runs


def _since(axes: Sequence[str | int]) -> list[str | int]:
    """Return the axes behind the last one that is the batch or the time."""
    places = [place for place, axis in enumerate(axes) if isinstance(axis, str)]
    return list(axes[places[-1] + 1 :] if places else axes)


def _flat(m: ModelBuilder, x: ProgramTensor) -> ProgramTensor:
    """Return a sequence of a stated length as numbers that are there once."""
    place = x.axes.index(TIME)
    inner = math.prod(axis for axis in x.axes[place + 1 :] if isinstance(axis, int))
    length = m.program.length(m.program.values[x.value].time)
    (y,) = m.add("flat", [x.value], inner=inner)
    assert length is not None
    return ProgramTensor(y, (*x.axes[:place], length, *x.axes[place + 1 :]))


def _squeeze(m: ModelBuilder, node: Node[kinds.Squeeze]) -> None:
    x = m(node.x)
    stated = node.kind.axis
    dropped = [x.axis(axis) for axis in ([stated] if isinstance(stated, int) else stated)]
    value, gone = x.value, {x.axes[axis] for axis in dropped} - {1}
    if gone == {TIME} and m.program.length(m.program.values[value].time) == 1:
        (value,) = m.add("last", [value])
    elif gone:
        raise ValueError("an axis that it drops is the batch or the time")
    m.give(node.y, value, tuple(axis for place, axis in enumerate(x.axes) if place not in dropped))


def _unsqueeze(m: ModelBuilder, node: Node[kinds.Unsqueeze]) -> None:
    x, place = m(node.x), node.kind.axis % (len(node.x.shape) + 1)
    m.give(node.y, x.value, (*x.axes[:place], 1, *x.axes[place:]))


def _steps_to_batch(m: ModelBuilder, node: Node[kinds.Kind]) -> None:
    x = m(node.x)
    if x.axes[:2] != (BATCH, TIME):
        raise ValueError("it takes steps of a tensor that is not a sequence")
    m.give(node.y, x.value, (BOTH, *x.axes[2:]))


def _batch_to_steps(m: ModelBuilder, node: Node[kinds.Kind]) -> None:
    x = m(node.x)
    if x.axes[0] != BOTH:
        raise ValueError("its batch does not hold the steps of a sequence")
    m.give(node.y, x.value, (BATCH, TIME, *x.axes[1:]))


def _concatenate(m: ModelBuilder, node: Node[kinds.Concatenate]) -> None:
    tensors = [m(value) for value in node.inputs]
    axis = tensors[0].axis(node.kind.axis)
    _join(m, node.y, tensors, axis)


def _join(m: ModelBuilder, y: Value, tensors: Sequence[ProgramTensor], axis: int) -> None:
    first = tensors[0]
    others = [[each for place, each in enumerate(tensor.axes) if place != axis] for tensor in tensors]
    if any(each != others[0] for each in others) or any(not isinstance(tensor.axes[axis], int) for tensor in tensors):
        raise ValueError("what it joins lies otherwise, or is joined along the batch or the time")
    outer = math.prod(each for each in first.axes[:axis] if isinstance(each, int))
    (value,) = m.add("joined", [tensor.value for tensor in tensors], outer=outer)
    length = sum(length for tensor in tensors if isinstance(length := tensor.axes[axis], int))
    m.give(y, value, (*first.axes[:axis], length, *first.axes[axis + 1 :]))


def _stack(m: ModelBuilder, node: Node[kinds.Stack]) -> None:
    place = node.kind.axis % len(node.y.shape)
    tensors = [m(value) for value in node.inputs]
    _join(m, node.y, [ProgramTensor(each.value, (*each.axes[:place], 1, *each.axes[place:])) for each in tensors], place)


def _take(
    m: ModelBuilder, x: ProgramTensor, axis: int, start: int, count: int, step: int = 1, back: bool = False,
    outside: str | None = None, number: float = 0.0,
) -> int:  # fmt: skip
    length, inner = x.place(axis)
    if start == 0 and count == length and not back:
        return x.value
    (y,) = m.add(
        "taken", [x.value], length=length, inner=inner, start=start, step=step, count=count, back=back, outside=outside, number=number
    )
    return y


def _take_steps(
    m: ModelBuilder, x: ProgramTensor, ends: tuple[int, int], step: int = 1, by: int = 1, outside: str | None = None, number: float = 0.0
) -> int:
    if ends == (0, 0) and step == by == 1:
        return x.value
    (y,) = m.add("some steps", [x.value], step=step, by=by, ends=list(ends), outside=outside, number=number)
    return y


def _select(m: ModelBuilder, node: Node[kinds.Select]) -> None:
    x, index = m(node.x), node.kind.index
    axis = x.axis(node.kind.axis)
    axes = (*x.axes[:axis], *x.axes[axis + 1 :])
    if x.axes[axis] != TIME:
        length, _ = x.place(axis)
        m.give(node.y, _take(m, x, axis, index % length, 1), axes)
        return
    stated = m.program.length(m.program.values[x.value].time)
    if index in (-1, 0) or stated == index + 1:
        (y,) = m.add("first" if index == 0 and stated != 1 else "last", [x.value])
    else:
        x = _flat(m, x) if stated is not None else x
        y = _take(m, x, axis, index % x.place(axis)[0], 1)
    m.give(node.y, y, axes)


def _slice(m: ModelBuilder, node: Node[kinds.Slice]) -> None:
    x = m(node.x)
    axis, step = x.axis(node.kind.axis), node.kind.step
    timed = x.axes[axis] == TIME
    length = m.program.length(m.program.values[x.value].time) if timed else x.place(axis)[0]
    if length is None:
        first, last = node.kind.start or 0, node.kind.end or 0
        if first < 0 or last > 0 or node.kind.end == 0 or step < 1:
            raise ValueError("it takes some steps of a sequence of any length")
        m.give(node.y, _take_steps(m, x, (-first, last), step), x.axes)
        return
    start, end, _ = slice(node.kind.start, node.kind.end, step).indices(length)
    places = range(start, end, step)
    if step < 1 or not places:
        raise ValueError("it takes nothing, or the other way round")
    if timed:
        m.give(node.y, _take_steps(m, x, (-start, places[-1] + 1 - length), step), x.axes)
        return
    m.give(node.y, _take(m, x, axis, start, len(places), step), (*x.axes[:axis], len(places), *x.axes[axis + 1 :]))


def _with_ends(m: ModelBuilder, node: Node[kinds.Pad | kinds.PadAxes | kinds.Crop]) -> None:
    """Add places at the ends of axes, or leave some out."""
    x, kind = m(node.x), node.kind
    outside, number = (kind.mode, float(kind.number)) if isinstance(kind, kinds.PadAxes) else ("constant", 0.0)
    for axis, (low, high) in enumerate(kind.pairs, 0 if len(kind.pairs) == len(x.axes) else 1):
        beyond = outside if max(low, high) > 0 and not isinstance(kind, kinds.Crop) else None
        low, high = (-low, -high) if isinstance(kind, kinds.Crop) else (low, high)
        if (low, high) != (0, 0) and x.axes[axis] == TIME:
            x = ProgramTensor(_take_steps(m, x, (low, high), outside=beyond, number=number), x.axes)
        elif (low, high) != (0, 0):
            count = x.place(axis)[0] + low + high
            value = _take(m, x, axis, -low, count, outside=beyond, number=number)
            x = ProgramTensor(value, (*x.axes[:axis], count, *x.axes[axis + 1 :]))
    m.give(node.y, x.value, x.axes)


def _upsample(m: ModelBuilder, node: Node[kinds.Upsample]) -> None:
    x = m(node.x)
    for axis, by in enumerate(node.kind.by, 1):
        if x.axes[axis] == TIME:
            x = ProgramTensor(_take_steps(m, x, (0, 0), by=int(by)), x.axes)
        elif by > 1:
            length, inner = x.place(axis)
            (value,) = m.add("repeated", [x.value], inner=inner, count=int(by))
            x = ProgramTensor(value, (*x.axes[:axis], length * by, *x.axes[axis + 1 :]))
    m.give(node.y, x.value, x.axes)


def _split(m: ModelBuilder, node: Node[kinds.Split]) -> None:
    x, start = m(node.x), 0
    axis = x.axis(node.kind.axis)
    for value, size in zip(node.outputs, node.kind.sizes, strict=True):
        m.give(value, _take(m, x, axis, start, size), (*x.axes[:axis], size, *x.axes[axis + 1 :]))
        start += size


def _flip(m: ModelBuilder, node: Node[kinds.Flip]) -> None:
    x = m(node.x)
    for axis in node.kind.axes:
        if x.axes[x.axis(axis)] == TIME:
            (value,) = m.add("flip", [x.value])
        else:
            length, _ = x.place(axis)
            value = _take(m, x, axis, length - 1, length, back=True)
        x = ProgramTensor(value, x.axes)
    m.give(node.y, x.value, x.axes)


def _repeat(m: ModelBuilder, node: Node[kinds.Repeat]) -> None:
    """Add what is there once as a sequence: Keras's RepeatVector."""
    x = m(node.x)
    if BATCH not in x.axes or TIME in x.axes:
        raise ValueError("what it repeats has steps")
    (y,) = m.add("again", [x.value], length=int(node.kind.count))
    m.give(node.y, y, (BATCH, TIME, *x.axes[1:]))


def _expand(m: ModelBuilder, node: Node[kinds.Kind]) -> None:
    """Let what is there once for all sequences be there for each of them."""
    x = m(node.x)
    axes: list[str | int] = []
    wide = (*(1,) * (len(node.y.shape) - len(x.axes)), *x.axes)
    for length_read, length in zip(wide, node.y.shape, strict=True):
        if length_read in OPEN or length_read == length:
            axes.append(length_read)
        elif length_read == 1 and length is None and BATCH not in (*axes, *x.axes):
            axes.append(BATCH)
        else:
            raise ValueError("it repeats numbers along an axis")
    m.give(node.y, x.value, tuple(axes))


AXES: Rules = {
    **on(kinds.Transpose, _transpose), **on(kinds.Flatten, _reshape), **on(kinds.Reshape, _reshape), **on(kinds.View, _reshape),
    **on(kinds.ReshapeAll, _reshape), **on(kinds.MergeAxes, _reshape), **on(kinds.SplitAxis, _reshape), **on(kinds.Squeeze, _squeeze),
    **on(kinds.Unsqueeze, _unsqueeze), **on(kinds.StepsToBatch, _steps_to_batch), **on(kinds.BatchToSteps, _batch_to_steps),
    **on(kinds.Concatenate, _concatenate), **on(kinds.Stack, _stack), **on(kinds.Select, _select), **on(kinds.Slice, _slice),
    **on(kinds.Pad, _with_ends), **on(kinds.PadAxes, _with_ends), **on(kinds.Crop, _with_ends), **on(kinds.Upsample, _upsample),
    **on(kinds.Split, _split), **on(kinds.Flip, _flip), **on(kinds.Repeat, _repeat), **on(kinds.Expand, _expand),
}  # fmt: skip
"""The kinds that are known."""
