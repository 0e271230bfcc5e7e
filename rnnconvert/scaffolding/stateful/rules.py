"""Rules for cutting between any two steps of a stream: for each kind of node, where the time is in its outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Length, Node, Value, on
from rnnconvert.scaffolding.operators import axis_of

if TYPE_CHECKING:
    from rnnconvert.scaffolding.stateful.steps import StreamSteps

Place = int | None
"""The time among a tensor's axes; None for a tensor that no step of the stream changes, SO_FAR for what its last step decides."""
SO_FAR = -1
OTHERS = "what it gives for a step depends on other steps, or nothing here knows that it does not"
_ENDLESS = "a stream is read as it comes, without its end"
Rule = Callable[["StreamSteps", Node[Any]], Place]
"""Returns where the time is in what a node gives, of which at least one input has it."""


def _time(s: StreamSteps, node: Node[kinds.Kind]) -> int:
    """Return where the time is in a node's first input. Raises RefusedError where another input alone has it."""
    place = s(node.x)
    if place is None:
        raise s.refused(node, f"a layer of kind {node.kind.word!r}", OTHERS)
    return place


def _apart_from(s: StreamSteps, node: Node[kinds.Kind], axes: Sequence[int], word: str) -> int:
    """Return where the time is in a node's first input. Raises RefusedError where it is among axes that the node computes along."""
    place, rank = _time(s, node), len(node.x.shape)
    if place in [axis % rank for axis in axes]:
        raise s.refused(node, word, "each step would depend on all steps, also on those that are still to come")
    return place


def _recurrent(s: StreamSteps, node: Node[kinds.Recurrent]) -> Place:
    place = _time(s, node)
    if len(node.kind.cells) > 1:
        raise s.refused(node, "two directions", _ENDLESS)
    if node.kind.backwards:
        raise s.refused(node, "a layer that reads from the end", _ENDLESS)
    if node.named.get("mask"):
        raise s.refused(node, "a mask", "a stream has no steps that do not count", "Build the layer without a mask.")
    if place != 1:
        s.misplaced = True
        raise s.refused(node, "time and batch exchanged", "it reads as its time another axis than the layers before it")
    if node.named.get("states"):
        raise s.refused(
            node,
            "initial states that the model states itself",
            "each piece begins with those that the piece before it gave, and the first one with zeros",
            "If they are inputs of the model, export it as it is: it can be called piece by piece.",
        )
    s.carried.add(id(node.y))
    return 1 if node.kind.sequences else SO_FAR


def _same(s: StreamSteps, node: Node[kinds.Kind]) -> Place:
    return _time(s, node)


def _spread(s: StreamSteps, node: Node[kinds.Kind]) -> Place:
    """Return the time of what numbers at the same place give: tensors spread over one another from the last axis on.

    A tensor of fewer axes in `arithmetic` gets new ones behind the batch.
    """
    rank, values = len(node.y.shape), node.reads()

    def axis_of_output(value: Value, axis: int) -> int:
        if isinstance(node.kind, kinds.Where | kinds.ZeroMasked):  # a mask has no features
            return axis
        return axis if isinstance(node.kind, kinds.Arithmetic) and not axis else axis + rank - len(value.shape)

    at = {axis_of_output(value, place): value for value in values if (place := s(value)) is not None}
    if len(at) > 1:
        names = " and ".join(value.name for value in at.values())
        raise s.refused(node, f"{names} together", "their times are different axes")
    (time,) = at
    for value in values:
        same = next((axis for axis in range(len(value.shape)) if axis_of_output(value, axis) == time), None)
        if s(value) is None and same is not None and value.shape[same] != 1:
            raise s.refused(node, f"{value.name}, which has numbers of its own for each step", "a stream has any number of steps")
    return time


def _activation(s: StreamSteps, node: Node[kinds.Activation]) -> Place:
    axes = [node.kind.axis] if "softmax" in node.kind.name else []
    return _apart_from(s, node, axes, f"{node.kind.name} over the time")


def _along(word: str) -> Callable[[StreamSteps, Node[kinds.AlongAxis | kinds.AlongAxes]], Place]:
    """Return a rule for a layer that computes along an axis, or along several."""

    def rule(s: StreamSteps, node: Node[kinds.AlongAxis | kinds.AlongAxes]) -> Place:
        return _apart_from(s, node, [node.kind.axis] if isinstance(node.kind, kinds.AlongAxis) else node.kind.axes, word)

    return rule


def _last_axes(s: StreamSteps, node: Node[kinds.LastAxesNorm]) -> Place:
    return _apart_from(s, node, range(-len(node.kind.sizes), 0), "a norm over the time")


def _per_sequence(s: StreamSteps, node: Node[kinds.Kind]) -> Place:
    return _apart_from(s, node, range(1, len(node.x.shape)), "a norm over the time")


def _slopes(s: StreamSteps, node: Node[kinds.PReLU]) -> Place:
    time = _time(s, node)
    if time in node.kind.axes:
        raise s.refused(node, "slopes of its own for each step", "a stream has any number of steps", "Share them: shared_axes=[1].")
    return time


def _window(s: StreamSteps, node: Node[kinds.Windowed]) -> Place:
    """Return the time behind a convolution or a pool, whose windows have to be one step long."""
    time = _time(s, node)
    kind, axis = node.kind, time - node.kind.space
    if time == 0 or (0 <= axis < kind.rank and kind.kernel[axis] == kind.strides[axis] == 1):
        return time
    if kind.channels_first and axis < 0:
        raise s.refused(node, "channels that are the time", OTHERS)
    what = "a pool" if isinstance(kind, kinds.Pool) else "a convolution"
    raise s.refused(node, f"{what} over the time", "its windows reach over several steps, of which a piece may hold a part")


def _reduced(s: StreamSteps, node: Node[kinds.Arg | kinds.Reduce]) -> Place:
    rank = len(node.x.shape)
    axes = [axis % rank for axis in ([node.kind.axis] if isinstance(node.kind, kinds.Arg) else node.kind.axes)]
    time = _apart_from(s, node, axes, f"the {node.kind.operation} over the time")
    if node.named.get("mask"):
        raise s.refused(node, "a mask", "a stream has no steps that do not count")
    return time if node.kind.keep else time - sum(int(axis < time) for axis in axes)


# Axes


def _permuted(s: StreamSteps, node: Node[kinds.Transpose]) -> Place:
    return list(node.kind.order).index(_time(s, node))


def _shaped(s: StreamSteps, node: Node[kinds.Kind]) -> Place:
    """Return the time in another shape: the axis with as many numbers before it, and behind it, as before."""
    time, shape, lengths = _time(s, node), node.x.shape, node.kind.lengths if isinstance(node.kind, kinds.View | kinds.SplitAxis) else ()
    if any(isinstance(length, Length) and axis_of(length) is None for length in lengths):
        raise s.refused(node, "a shape of lengths that are computed", OTHERS)
    ends = [_count(shape[:time]), _count(shape[time + 1 :])]
    # Two open axes look alike: where the shape says which is as long as there are steps, it is the time, and no other is.
    stated = [axis for axis, length in enumerate(lengths) if s.reads_time(node, length)]
    for axis, length in enumerate(node.y.shape):
        if length == shape[time] and [_count(node.y.shape[:axis]), _count(node.y.shape[axis + 1 :])] == ends and stated in ([], [axis]):
            return axis
    raise s.refused(node, "another shape", "the time does not stay an axis of its own")


def _count(lengths: Sequence[int | None]) -> tuple[int, int]:
    """Return how many open axes there are, and the product of the others."""
    stated = [length for length in lengths if length is not None]
    return len(lengths) - len(stated), math.prod(stated)


def _squeezed(s: StreamSteps, node: Node[kinds.Squeeze]) -> Place:
    axis = node.kind.axis % len(node.x.shape)
    time = _apart_from(s, node, [axis], "an axis that is taken away")
    return time - int(axis < time)


def _unsqueezed(s: StreamSteps, node: Node[kinds.Unsqueeze]) -> Place:
    time, axis = _time(s, node), node.kind.axis % len(node.y.shape)
    return time + int(axis <= time)


def _selected(s: StreamSteps, node: Node[kinds.Select | kinds.SelectBetween]) -> Place:
    time, axis = _time(s, node), node.kind.axis % len(node.x.shape)
    if s.reads_time(node, node.kind.index):
        raise s.refused(node, "a place that is the number of steps", OTHERS)
    if axis != time:
        return time - int(axis < time)
    if isinstance(node.kind, kinds.Select) and node.kind.index in (-1, (node.x.shape[axis] or 0) - 1):
        return SO_FAR
    raise s.refused(node, "a step that is picked out", "of a stream the last step alone can be read")


def _sliced(s: StreamSteps, node: Node[kinds.Slice | kinds.SliceBetween]) -> Place:
    time, axis = _time(s, node), node.kind.axis % len(node.x.shape)
    start, end = node.kind.start, node.kind.end
    if axis != time:
        if any(s.reads_time(node, bound) for bound in (start, end) if isinstance(bound, Length)):
            raise s.refused(node, "a slice whose bounds are the number of steps", OTHERS)
        return time
    to_the_end = end is None or axis_of(end) == (0, axis) or (node.x.shape[axis] is not None and end == node.x.shape[axis])
    if to_the_end and node.kind.step == 1 and start in (None, 0):
        return time
    if to_the_end and node.kind.step == 1 and start == -1:
        return SO_FAR
    raise s.refused(node, "a slice of the time", "of a stream all steps can be read, or the last one")


def _expanded(s: StreamSteps, node: Node[kinds.Expand]) -> Place:
    """Return the time in a tensor that is spread over the lengths of others."""
    values, place_of_x = node.kind.lengths, s(node.x)
    lead = len(values) - len(node.x.shape)
    timed = [axis for axis, value in enumerate(values) if s.reads_time(node, value)]
    plain = [axis for axis in timed if (place := axis_of(values[axis])) is not None and s(node.inputs[place[0]]) == place[1]]
    if timed != plain or len({*timed, *([place_of_x + lead] if place_of_x is not None else [])}) != 1:
        raise s.refused(node, "a tensor that is spread over the time", OTHERS)
    return timed[0] if place_of_x is None else place_of_x + lead


def _filled(s: StreamSteps, node: Node[kinds.Full]) -> Place:
    """Return the time in a tensor that is one number everywhere, in lengths of others."""
    timed = [axis for axis, value in enumerate(node.kind.lengths) if s.reads_time(node, value)]
    if len(timed) > 1 or any(axis_of(node.kind.lengths[axis]) is None for axis in timed):
        raise s.refused(node, "a tensor whose size is the number of steps", OTHERS)
    return timed[0]


def _stacked(s: StreamSteps, node: Node[kinds.Stack]) -> Place:
    (time,) = _together(s, node)
    return time + int(node.kind.axis % len(node.y.shape) <= time)


def _concatenated(s: StreamSteps, node: Node[kinds.Concatenate]) -> Place:
    (time,) = _together(s, node)
    return _apart_from(s, node, [node.kind.axis], "sequences one behind the other") if time == s(node.x) else time


def _together(s: StreamSteps, node: Node[kinds.Kind]) -> set[int]:
    """Return where the time is in tensors that all have it. Raises RefusedError if it is not the same axis in all of them."""
    places = {s(value) for value in node.inputs}
    if len(places) > 1 or None in places:
        raise s.refused(node, "sequences beside tensors without steps", "they are joined, and a piece has any number of steps")
    return {place for place in places if place is not None}


def _split(s: StreamSteps, node: Node[kinds.Split]) -> Place:
    return _apart_from(s, node, [node.kind.axis], "a sequence that is split")


def _tiled(s: StreamSteps, node: Node[kinds.Tile]) -> Place:
    return _apart_from(s, node, [axis for axis, by in enumerate(node.kind.by) if by != 1], "a sequence that is repeated")


def _padded(s: StreamSteps, node: Node[kinds.Crop | kinds.Pad | kinds.PadAxes]) -> Place:
    pairs = [*node.kind.pairs]
    if isinstance(node.kind, kinds.Crop) or len(pairs) != len(node.x.shape):
        pairs = [(0, 0), *pairs, *[(0, 0)] * (len(node.x.shape) - 1 - len(pairs))]
    return _apart_from(s, node, [axis for axis, pair in enumerate(pairs) if tuple(pair) != (0, 0)], "steps that are added or left out")


def _upsampled(s: StreamSteps, node: Node[kinds.Upsample]) -> Place:
    return _apart_from(s, node, [axis for axis, by in enumerate(node.kind.by, 1) if by != 1], "steps that are repeated")


def _steps_in_batch(s: StreamSteps, node: Node[kinds.Kind]) -> Place:
    if _time(s, node) != 1:
        raise s.refused(node, "steps as a batch", "they are not the time of the stream")
    return 0


def _steps_again(s: StreamSteps, node: Node[kinds.Kind]) -> Place:
    if s(node.x) != 0 or s(node.inputs[1]) != 1:
        raise s.refused(node, "a batch as steps", "they are not the time of the stream")
    return 1


# Products and places


def _product(s: StreamSteps, node: Node[kinds.Kind]) -> Place:
    """Return the time in a product with a matrix that no step changes."""
    first, second = node.inputs
    time, rank = s(first), len(first.shape)
    if time is None or s(second) is not None or len(second.shape) != 2 or time == rank - 1:
        raise s.refused(node, "a product over the time", "each step would depend on others")
    return time


def _contracted(s: StreamSteps, node: Node[kinds.Einsum]) -> Place:
    operands, _, result = node.kind.equation.replace(" ", "").partition("->")
    words = operands.split(",")
    if "." in node.kind.equation:
        raise s.refused(node, "a product with axes that have no letter", OTHERS)
    timed = {word[place] for word, value in zip(words, node.inputs, strict=True) if (place := s(value)) is not None}
    (letter,) = timed if len(timed) == 1 else ("",)
    untimed = [word for word, value in zip(words, node.inputs, strict=True) if s(value) is None]
    if not letter or letter not in result or any(letter in word for word in untimed) or any(word.count(letter) > 1 for word in words):
        raise s.refused(node, "a product over the time", "each step would depend on others")
    return int(result.index(letter))


def _looked_up(s: StreamSteps, node: Node[kinds.Gather]) -> Place:
    table, index = node.inputs
    axis = node.kind.axis % len(table.shape)
    if s(table) is None:
        place = s(index)
        assert place is not None
        return int(axis + place)
    time = s(table)
    assert time is not None
    if s(index) is not None or time == axis:
        raise s.refused(node, "elements picked out by the time", OTHERS)
    return time + (len(index.shape) - 1) * int(time > axis)


def _masked(s: StreamSteps, node: Node[kinds.Mask]) -> Place:
    """Return the time in a mask, which has the features of what it is made of no more."""
    if node.kind.operation == "lengths":
        raise s.refused(node, "lengths of sequences", "a stream has any number of steps")
    if node.kind.operation in ("and", "or"):
        return _spread(s, node)
    time = _time(s, node)
    if time >= len(node.y.shape):
        raise s.refused(node, "a mask over the time", OTHERS)
    return time


RULES: Mapping[type[kinds.Kind], Rule] = {
    **on(kinds.Recurrent, _recurrent),
    **dict.fromkeys((kinds.Dropout, kinds.Rescale, kinds.Cast, kinds.Clip, kinds.Embedding, kinds.OneHot), _same),
    **dict.fromkeys((kinds.Elementwise, kinds.Arithmetic, kinds.Where, kinds.ZeroMasked), _spread), **on(kinds.Mask, _masked),
    **on(kinds.Activation, _activation), **on(kinds.Dense, lambda s, node: _apart_from(s, node, [-1], "a dense layer over the time")),
    **on(kinds.BatchNorm, _along("a norm over the time")), **on(kinds.UnitNorm, _along("a norm over the time")),
    **on(kinds.LayerNorm, _last_axes), **on(kinds.RMSNorm, _last_axes),
    **dict.fromkeys((kinds.GroupNorm, kinds.InstanceNorm), _per_sequence), **on(kinds.PReLU, _slopes),
    **dict.fromkeys((kinds.Conv, kinds.Pool), _window),
    **on(kinds.Reduce, _reduced), **on(kinds.Arg, _reduced), **on(kinds.Cumulative, _along("a sum over the time")),
    **on(kinds.Top, _along("the largest over the time")), **on(kinds.Flip, _along("a sequence that is turned around")),
    **on(kinds.Transpose, _permuted),
    **dict.fromkeys((kinds.Flatten, kinds.Reshape, kinds.ReshapeAll, kinds.View, kinds.MergeAxes, kinds.SplitAxis), _shaped),
    **on(kinds.Squeeze, _squeezed), **on(kinds.Unsqueeze, _unsqueezed), **on(kinds.Select, _selected),
    **on(kinds.SelectBetween, _selected), **on(kinds.Slice, _sliced), **on(kinds.SliceBetween, _sliced), **on(kinds.Expand, _expanded),
    **on(kinds.Full, _filled), **on(kinds.Stack, _stacked), **on(kinds.Concatenate, _concatenated), **on(kinds.Split, _split),
    **on(kinds.Tile, _tiled), **on(kinds.Pad, _padded), **on(kinds.PadAxes, _padded), **on(kinds.Crop, _padded),
    **on(kinds.Upsample, _upsampled), **on(kinds.StepsToBatch, _steps_in_batch), **on(kinds.BatchToSteps, _steps_again),
    **on(kinds.Matmul, _product), **on(kinds.Einsum, _contracted), **on(kinds.Gather, _looked_up),
}  # fmt: skip
"""The kinds that may be cut between any two steps."""
