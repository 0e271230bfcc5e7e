"""A described model as a chain: layers one after the other, each step of a sequence by itself, as audio plug-ins run them.

A chain has one input and one output. Its first inputs may be added to what its last layer gives. Which axis is the batch and which the
time is read off the layers; a stream has neither, and takes one step after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import RANK, Description, Length, Lengths, Node, Rules, Value, on
from rnnconvert.scaffolding.walk import INNER, LayerWalk
from rnnconvert.scaffolding.weights import LayerWeights

Label = int | str
"""The meaning of an axis of a tensor: one of the model's input by its number, UNIT_LENGTH for a length of 1, CHANNEL for a layer's
outputs."""
UNIT_LENGTH, CHANNEL = "1", "channel"


@dataclass(frozen=True, eq=False)
class ChainLayer:
    """A layer of a chain.

    kind       "recurrent", "dense", "conv", "batch_norm", "prelu", "activation" or "scale"; the last one by a number
    name       its name in the source, or its output's
    inputs     how many values it reads at each step
    units      how many it gives at each step
    stack      of a recurrent layer, its weights
    parts      of any other, its canonical arrays: as in rnnconvert.language.surroundings; "slope" and "bias" for every unit
    function   the activation behind a dense layer or a convolution, or of an "activation"; "" for none
    alpha      its number
    settings   epsilon; kernel, dilation and groups; factor
    """

    kind: str
    name: str
    inputs: int
    units: int
    stack: Recurrent | None = None
    parts: Mapping[str, Array] = field(default_factory=dict)
    function: str = ""
    alpha: float | None = None
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LayerChain:
    """A model as a chain.

    layers    its layers, in their order
    inputs    how many values its input has at each step
    skip      how many of these, from the first on, are added to the last layer's output; 0 for none
    gains     the factors of its input, before anything reads it, and of its output, after everything
    name      the name of its input
    batch     which axis of the input is the batch; UNIT_LENGTH if there is none
    time      which axis is the time, likewise
    channel   which axis has the values of a step, likewise
    axes      the axes of the output
    last      whether it gives only its last step
    stateful  whether its states last from one call to the next
    notes     notes for a reader of the chain
    """

    layers: tuple[ChainLayer, ...]
    inputs: int
    skip: int
    gains: tuple[float, float]
    name: str
    batch: Label
    time: Label
    channel: Label
    axes: tuple[Label, ...]
    last: bool
    stateful: bool
    notes: tuple[str, ...]

    @property
    def units(self) -> int:
        """How many values a step it gives."""
        return self.layers[-1].units if self.layers else self.inputs

    def read(self, x: Array) -> Array:
        """Return an array of the model's input as (batch, time, values)."""
        axes = [axis for axis in (self.batch, self.time, self.channel) if isinstance(axis, int)]
        rest = [axis for axis in range(x.ndim) if axis not in axes]
        lengths = [x.shape[axis] if isinstance(axis, int) else 1 for axis in (self.batch, self.time, self.channel)]
        return x.transpose([*axes, *rest]).reshape(lengths)

    def as_source(self, y: Array) -> Array:
        """Return (batch, time, values) as the model gives it."""
        y = y[:, -1:] if self.last else y
        places: dict[Label, int] = {self.batch: 0, self.time: 1, CHANNEL: 2}
        order = [places[axis] for axis in self.axes if axis != UNIT_LENGTH]
        lengths = [y.shape[places[axis]] if axis != UNIT_LENGTH else 1 for axis in self.axes]
        return y.transpose([*order, *(axis for axis in range(3) if axis not in order)]).reshape(lengths)


@dataclass(frozen=True)
class _ChainPlace:
    """Where a tensor stands in the chain.

    stage     how many operations there are before it
    axes      what its axes are
    channels  of the input, how many of its values are read, from the first on; None for all
    late      how many steps at the end have to be dropped still, since a convolution was padded there, too
    early     how many steps of zeros stand in front of it, for a convolution
    """

    stage: int
    axes: tuple[Label, ...]
    channels: int | None = None
    late: int = 0
    early: int = 0


class _ChainReading(LayerWalk[_ChainPlace]):
    """A chain being read off a description."""

    title = "a chain of layers"

    def __init__(self, description: Description, weights: LayerWeights) -> None:
        super().__init__(description.scope, _RULES, weights)
        self.unknown = f"a chain has {', '.join(_LAYERS)} and a sum with its input"
        self.layers: list[ChainLayer] = []
        self.skip = self.summed = 0
        self.last = self.stateful = False
        self.batch: Label = UNIT_LENGTH
        self.time: Label | None = None
        self.channel: Label | None = None
        self.notes: list[str] = []
        self.numbers: dict[int, Array] = {}
        self._stages: list[str] = []

    # Where tensors stand

    def __call__(self, value: Value) -> _ChainPlace:
        """Return where a tensor stands that the visited node reads. Raises RefusedError for one that is not in the chain."""
        place = self._held.get(id(value))
        if place is None:
            raise self.refused(self.visited, f"the input {value.name!r}", "it does not come from the model's input through its layers")
        return place

    def end(self, node: Node[kinds.Kind]) -> _ChainPlace:
        """Return the end of the chain, which a node reads. Raises RefusedError for a node that reads what stands before."""
        place, name = self(node.x), node.label
        if place.stage < len(self._stages):
            before = f"what {self._stages[place.stage - 1]!r} gives" if place.stage else "the model's input"
            raise self.refused(node, "a branch", f"{before} is read by {self._stages[place.stage]!r} and by {name!r}")
        if self.skip and not isinstance(node.kind, kinds.Rescale | kinds.Elementwise):
            raise self.refused(node, "a layer behind the sum with the input", "that sum is the last that a chain computes")
        if place.late or (place.early and not isinstance(node.kind, kinds.Conv)):
            raise self.refused(node, "a sequence that is longer than the model's input", "a stream gives one step for each that it reads")
        return place

    def give(self, node: Node[kinds.Kind], place: _ChainPlace) -> None:
        self.hand(node.y, place)

    def move_on(self, node: Node[kinds.Kind], axes: Sequence[Label], late: int = 0) -> None:
        """Make what a node gives the end of the chain, in place of what it reads."""
        self._stages.append(node.label)
        self.give(node, _ChainPlace(len(self._stages), tuple(axes), late=late))

    def add(self, node: Node[kinds.Kind], layer: ChainLayer, axes: Sequence[Label], late: int = 0) -> None:
        self.layers.append(layer)
        self.move_on(node, axes, late)

    def name(self, node: Node[kinds.Kind]) -> str:
        return self.scope.inside(node.label)

    def by_channel(self, node: Node[kinds.Kind], place: _ChainPlace, axis: int) -> tuple[Label, ...]:
        """Return the axes behind a layer that works on the values of a step, which are an axis of what it reads.

        Raises RefusedError for another axis.
        """
        if self.layers:
            if place.axes[axis] != CHANNEL:
                raise self.refused(node, "an axis that is not the values of a step", f"it works along axis {axis} of {node.x.shape}")
        elif self.channel is None:
            self.channel = place.axes[axis]
        elif place.axes[axis] != self.channel:
            raise self.refused(node, "an axis that is not the values of a step", f"it works along axis {axis} of {node.x.shape}")
        if place.channels is not None:
            raise self.refused(node, "a part of the input", "its first layer reads all values of a step")
        return tuple(CHANNEL if number == axis % len(place.axes) else label for number, label in enumerate(place.axes))

    def settle(self, node: Node[kinds.Kind], batch: Label, time: Label) -> None:
        """Note which axes are the batch and the time. Raises RefusedError for others than a layer before reads."""
        if self.time is None:
            self.batch, self.time = batch, time
        elif (self.batch, self.time) != (batch, time):
            raise self.refused(node, "time and batch exchanged", "it reads as time what a layer before reads as the batch")


def _recurrent(r: _ChainReading, node: Node[kinds.Recurrent]) -> None:
    place = r.end(node)
    stack = r.weights.stack(r.path(node))
    if len(stack.layers[0].directions) > 1:
        raise r.refused(node, "two directions", _NO_END)
    if node.kind.backwards:
        raise r.refused(node, "a layer that reads from the end", _NO_END)
    if node.named.get("mask"):
        raise r.refused(node, "a mask", "a stream has no steps that do not count")
    if r.last:
        raise r.refused(node, "a layer behind a last step", "what it reads has no steps any more")
    axes = r.by_channel(node, place, 2)
    r.settle(node, axes[0], axes[1])
    states = dict.fromkeys(("initial_hidden", "initial_cell"), None) | _initial(r, node, stack.first.hidden_size)
    direction = stack.first.with_arrays({(part, ""): numbers for part, numbers in states.items()})
    stack = stack.replace(layers=(replace(stack.layers[0], directions=(direction,)),))
    r.stateful |= bool(node.kind.stateful)
    r.last = not node.kind.sequences
    r.add(
        node,
        ChainLayer("recurrent", r.name(node), stack.input_size, stack.layers[-1].output_size, stack),
        axes if node.kind.sequences else axes[::2],
    )


def _initial(r: _ChainReading, node: Node[kinds.Kind], units: int) -> dict[str, Array | None]:
    """Return the states that a layer begins with. Raises RefusedError for those that are not the same numbers for every stream."""
    numbers = [r.numbers.get(id(value)) for value in node.named.get("states", ())]
    if any(array is None or array.size not in (1, units) for array in numbers):
        raise r.refused(node, "initial states", "a stream begins with zeros, or with numbers that the model holds")
    stated = [np.broadcast_to(array.reshape(-1), (units,)).astype(np.float32) for array in numbers if array is not None]
    return dict(zip(("initial_hidden", "initial_cell"), stated, strict=False))


def _constant(r: _ChainReading, node: Node[kinds.Constant | kinds.Expand | kinds.Full | kinds.Parameter]) -> None:
    """Note the numbers of an initial state: what else would read them is refused."""
    if isinstance(node.kind, kinds.Full):
        r.numbers[id(node.y)] = np.array([node.kind.number], np.float32)
    elif isinstance(node.kind, kinds.Expand):
        if id(node.x) in r.numbers:
            r.numbers[id(node.y)] = r.numbers[id(node.x)]
    else:
        r.numbers[id(node.y)] = np.asarray(node.kind.numbers if isinstance(node.kind, kinds.Constant) else r.weights.numbers(r.path(node)))


def _biased(parts: Mapping[str, Array], units: int) -> dict[str, Array]:
    """Return the arrays of a layer with its bias: zeros where it has none."""
    weight = parts["weight"]
    return {"weight": weight, "bias": parts["bias"] if "bias" in parts else np.zeros(units, weight.dtype)}


def _dense(r: _ChainReading, node: Node[kinds.Kind]) -> None:
    place = r.end(node)
    parts = r.parts(node, "dense")
    units, width = parts["weight"].shape
    r.add(
        node, ChainLayer("dense", r.name(node), width, units, parts=_biased(parts, units)), r.by_channel(node, place, len(place.axes) - 1)
    )


def _conv(r: _ChainReading, node: Node[kinds.Conv]) -> None:
    """Add a convolution over time: it may read no step that is still to come."""
    place = r.end(node)
    kind = node.kind
    if kind.rank != 1 or len(place.axes) != 3:
        raise r.refused(node, f"a convolution over {kind.rank} axes", "a stream has one, the time")
    channels, time = (1, 2) if kind.channels_first else (2, 1)
    axes = r.by_channel(node, place, channels)
    r.settle(node, axes[0], axes[time])
    kernel, dilation, stride = kind.kernel[0], kind.dilation[0], kind.strides[0]
    if stride != 1 or kind.pads is None:
        raise r.refused(node, f"strides of {stride}", "a stream gives one step for each that it reads")
    reach = dilation * (kernel - 1)
    front, behind = kind.pads[0]
    if place.early + front != reach or behind not in (0, reach):
        raise r.refused(
            node,
            "a convolution that is not causal",
            f"a stream has {reach} steps of zeros in front of it and none behind, and here they are {place.early + front} and {behind}",
            "Build it with padding='causal', or pad it in front alone",
        )
    parts = r.parts(node, "conv")
    units, groups = parts["weight"].shape[0], kind.groups
    width = parts["weight"].shape[1] * groups
    settings = {"kernel": kernel, "dilation": dilation, "groups": groups}
    r.add(node, ChainLayer("conv", r.name(node), width, units, parts=_biased(parts, units), settings=settings), axes, behind)


def _batch_norm(r: _ChainReading, node: Node[kinds.BatchNorm]) -> None:
    place = r.end(node)
    axes = r.by_channel(node, place, node.kind.axis)
    parts = r.parts(node, "batch_norm")
    mean = parts["mean"]
    parts = {"scale": np.ones_like(mean), "shift": np.zeros_like(mean), **parts}
    r.add(node, ChainLayer("batch_norm", r.name(node), mean.size, mean.size, parts=parts, settings={"epsilon": node.kind.epsilon}), axes)


def _prelu(r: _ChainReading, node: Node[kinds.PReLU]) -> None:
    """Add slopes, one for every value of a step."""
    place, several, slopes = r.end(node), node.kind.axes, r.weights.numbers(r.path(node))
    channels = place.axes.index(CHANNEL) if CHANNEL in place.axes else (*several, len(place.axes) - 1)[0]
    if several not in ((), (channels,)):
        shape = node.kind.slopes
        raise r.refused(node, f"slopes of the shape {shape}", "they differ from step to step", "Share them: shared_axes=[1]")
    axes = r.by_channel(node, place, channels)
    units = node.x.shape[channels] or slopes.size
    slope = np.broadcast_to(slopes.reshape(-1), (units,))
    r.add(node, ChainLayer("prelu", r.name(node), units, units, parts={"slope": slope}), axes)


def _activation(r: _ChainReading, node: Node[kinds.Activation]) -> None:
    """Add a function; a layer before it that only computes a sum takes it over."""
    place = r.end(node)
    function, alpha = node.kind.name, node.kind.alpha
    before = r.layers[-1] if r.layers else None
    if "softmax" in function:
        r.by_channel(node, place, node.kind.axis)
    if before is not None and before.kind in ("dense", "conv") and not before.function:
        r.layers[-1] = replace(before, function=function, alpha=alpha)
        r.move_on(node, place.axes)
        return
    units = before.units if before is not None else _width(r, node, place)
    r.add(node, ChainLayer("activation", r.name(node), units, units, function=function, alpha=alpha), _named(r, place))


def _width(r: _ChainReading, node: Node[kinds.Kind], place: _ChainPlace) -> int:
    """Return how many values a step of the model's input has, before a layer without weights: they are the last axis."""
    r.by_channel(node, place, len(place.axes) - 1)
    return node.x.shape[-1] or 1


def _named(r: _ChainReading, place: _ChainPlace) -> tuple[Label, ...]:
    """Return the axes behind a layer that changes each number by itself."""
    if r.layers or r.channel is None:
        return place.axes
    return (*place.axes[:-1], CHANNEL)


def _scale(r: _ChainReading, node: Node[kinds.Elementwise | kinds.Rescale]) -> None:
    """Add a factor: that of a Rescaling, or of a product with a number."""
    if isinstance(node.kind, kinds.Rescale):
        factor, shift = node.kind.scale, node.kind.shift
    else:
        numbers = [value for kind, value in node.kind.operands if kind == "number"]
        single = len(numbers) == 1 and len(node.inputs) == 1 and len(node.kind.operands) == 2
        if (
            not single
            or (node.kind.operation not in ("multiply", "divide"))
            or (node.kind.operation == "divide" and node.kind.operands[0][0] == "number")
        ):
            raise r.refused(node, f"the operation {node.kind.operation!r}", f"a chain has {', '.join(_LAYERS)} and a sum with its input")
        factor, shift = (numbers[0] if node.kind.operation == "multiply" else 1 / numbers[0]), 0
    if np.ndim(factor) or np.ndim(shift) or shift:
        raise r.refused(node, "a shift" if np.ndim(factor) == 0 else "several factors", "a chain has one factor at an end")
    place = r.end(node)
    units = r.layers[-1].units if r.layers else _width(r, node, place)
    axes = _named(r, place)
    r.add(node, ChainLayer("scale", r.name(node), units, units, settings={"factor": float(factor)}), axes)


def _sum(r: _ChainReading, node: Node[kinds.Arithmetic]) -> None:
    """Add the sum of the model's input and of what its last layer gives."""
    if node.kind.operation != "add" or len(node.inputs) != 2:
        raise r.refused(
            node, f"the operation {node.kind.operation!r}", "of two tensors a chain has the sum of its input and its output alone"
        )
    places = [r(value) for value in node.inputs]
    ends = [place for place in places if place.stage == len(r._stages)]
    begin = next((number for number, layer in enumerate(r.layers) if layer.kind != "scale"), len(r.layers))
    starts = [(value, place) for value, place in zip(node.inputs, places, strict=True) if place.stage == begin]
    if len(ends) != 1 or len(starts) != 1 or ends[0] is starts[0][1] or r.skip:
        stages = [place.stage for place in places if place.stage not in (begin, len(r._stages))]
        what = repr(r._stages[stages[0] - 1]) if stages and stages[0] else "the model's input, unscaled," if stages else "one layer"
        raise r.refused(node, "a branch", f"a chain may add its input to what its last layer gives, and here what {what} gives is added")
    (_, start), place = starts[0], ends[0]
    if place.late or start.early or place.early:
        raise r.refused(node, "a sequence that is longer than the model's input", "a stream gives one step for each that it reads")
    channel = CHANNEL if begin else r.channel
    alike = len(start.axes) == len(place.axes) and all(
        a == b or (a in (channel, UNIT_LENGTH) and b == CHANNEL) for a, b in zip(start.axes, place.axes, strict=True)
    )
    units = r.layers[-1].units
    width = start.channels or r.layers[0].inputs
    if not alike or width != units:
        raise r.refused(node, "the sum of the input and the output", f"they have {width} and {units} values a step, or unlike axes")
    r.skip, r.summed = width, len(r.layers)
    r.move_on(node, place.axes)


# Moves


def _same(r: _ChainReading, node: Node[kinds.Kind]) -> None:
    r.give(node, r(node.x))


def _transpose(r: _ChainReading, node: Node[kinds.Transpose]) -> None:
    place = r(node.x)
    r.give(node, replace(place, axes=tuple(place.axes[axis] for axis in node.kind.order)))


def _squeeze(r: _ChainReading, node: Node[kinds.Squeeze]) -> None:
    place, axis = r(node.x), node.kind.axis
    if place.axes[axis] == r.time:
        raise r.refused(node, "an axis that is taken away", "it is the time")
    r.give(node, replace(place, axes=tuple(label for number, label in enumerate(place.axes) if number != axis)))


def _unsqueeze(r: _ChainReading, node: Node[kinds.Unsqueeze]) -> None:
    place, axis = r(node.x), node.kind.axis
    if CHANNEL not in place.axes and place.stage:
        r.give(node, replace(place, axes=(*place.axes[:axis], CHANNEL if r.layers[-1].units == 1 else UNIT_LENGTH, *place.axes[axis:])))
        return
    r.give(node, replace(place, axes=(*place.axes[:axis], UNIT_LENGTH, *place.axes[axis:])))


def _view(r: _ChainReading, node: Node[kinds.ReshapeAll | kinds.View]) -> None:
    """Take another shape that moves axes of length 1 alone."""
    place = r(node.x)
    lengths: Lengths = node.kind.lengths if isinstance(node.kind, kinds.View) else node.kind.sizes
    shape = node.x.shape
    left = [(label, size) for label, size in zip(place.axes, shape, strict=True) if size != 1]
    axes: list[Label] = []
    for length in lengths:
        if length == 1:
            axes.append(CHANNEL if place.stage and CHANNEL not in [label for label, _ in left] and CHANNEL not in axes else UNIT_LENGTH)
            continue
        label, size = left.pop(0) if left else ("", 0)
        stated = size is not None and length == size
        if isinstance(length, Length) and len(length.terms) == 1 and length.terms[0][0] == 1 and len(length.terms[0][1]) == 1:
            factor = length.terms[0][1][0]
            stated = isinstance(factor, tuple) and node.inputs[factor[0]] is node.x and place.axes[factor[1]] == label
        elif length == -1:
            stated = True
        if not stated:
            raise r.refused(node, "another shape", "it moves more than axes of length 1")
        axes.append(label)
    if left:
        raise r.refused(node, "another shape", "it moves more than axes of length 1")
    r.give(node, replace(place, axes=tuple(axes)))


def _select(r: _ChainReading, node: Node[kinds.Select]) -> None:
    """Take the last step, or the first value of the input."""
    place = r(node.x)
    if not place.stage and node.kind.axis == len(place.axes) - 1 and node.kind.index == 0:
        r.give(node, replace(place, axes=place.axes[:-1], channels=1))
        return
    place = r.end(node)
    if place.axes[node.kind.axis] != r.time or node.kind.index != -1:
        raise r.refused(node, f"the step {node.kind.index} of axis {node.kind.axis}", "of a sequence the last step alone can be read")
    r.last = True
    r.move_on(node, [label for label in place.axes if label != r.time])


def _slice(r: _ChainReading, node: Node[kinds.Slice]) -> None:
    """Take the first values of the input, or leave out the steps that a convolution was padded with at the end."""
    place, axis = r(node.x), node.kind.axis
    start, end, step = node.kind.start, node.kind.end, node.kind.step
    if start in (None, 0) and step == 1 and isinstance(end, int):
        if place.late and place.axes[axis] == r.time and end == -place.late:
            r.give(node, replace(place, late=0))
            return
        if not place.stage and end > 0 and axis == len(place.axes) - 1:
            r.give(node, replace(place, channels=end))
            return
    raise r.refused(node, f"a slice of axis {axis} from {start} to {end}", "a stream is read step by step, and all values of a step")


def _pad(r: _ChainReading, node: Node[kinds.Pad | kinds.PadAxes]) -> None:
    """Put steps of zeros in front of what a convolution reads."""
    place = r(node.x)
    pairs = [(0, 0), *node.kind.pairs, (0, 0)] if isinstance(node.kind, kinds.Pad) else list(node.kind.pairs)
    padded = [axis for axis, pair in enumerate(pairs) if tuple(pair) != (0, 0)]
    plain = isinstance(node.kind, kinds.Pad) or (node.kind.mode == "constant" and not node.kind.number)
    if len(padded) != 1 or not plain or pairs[padded[0]][1]:
        raise r.refused(node, "padding", "a stream has steps of zeros in front of it alone")
    r.give(node, replace(place, early=place.early + pairs[padded[0]][0]))


_NO_END = "a stream is read as it comes, without its end"
_LAYERS = ("recurrent layers", "dense layers", "causal convolutions", "batch norms", "PReLUs", "activations")
_RULES: Rules = {
    **INNER,
    **on(kinds.Recurrent, _recurrent),
    **on(kinds.Dense, _dense),
    **on(kinds.Conv, _conv),
    **on(kinds.BatchNorm, _batch_norm),
    **on(kinds.PReLU, _prelu),
    **on(kinds.Activation, _activation),
    **on(kinds.Rescale, _scale),
    **on(kinds.Elementwise, _scale),
    **on(kinds.Arithmetic, _sum),
    **on(kinds.Dropout, _same),
    **on(kinds.Transpose, _transpose),
    **on(kinds.Squeeze, _squeeze),
    **on(kinds.Unsqueeze, _unsqueeze),
    **on(kinds.View, _view),
    **on(kinds.ReshapeAll, _view),
    **on(kinds.Select, _select),
    **on(kinds.Slice, _slice),
    **on(kinds.Pad, _pad),
    **on(kinds.PadAxes, _pad),
    **on(kinds.Constant, _constant),
    **on(kinds.Parameter, _constant),
    **on(kinds.Full, _constant),
    **on(kinds.Expand, _constant),
}
"""The kinds that a chain has."""


def chain_of(description: Description, weights: LayerWeights) -> LayerChain:
    """Return a described model as a chain.

    Raises RefusedError for a model that branches, and for a layer that does not run step by step; it names the layer.
    """
    scope = description.scope
    for values, word in ((scope.inputs, "inputs"), (scope.outputs, "outputs")):
        if len(values) != 1:
            names = ", ".join(value.name for value in values)
            raise RefusedError(f"{len(values)} {word} ({names})", "a chain of layers", "a chain has one input and one output")
    r, x = _ChainReading(description, weights), scope.inputs[0]
    axes = tuple(axis if size != 1 else UNIT_LENGTH for axis, size in enumerate(x.shape))
    r.hand(x, _ChainPlace(0, axes))
    r.run(scope)
    place = r._held.get(id(scope.outputs[0]))
    if place is None:
        raise RefusedError("the output", "a chain of layers", "no layer gives it")
    if place.stage < len(r._stages) or place.late or place.early or not r.layers:
        raise RefusedError("the output", "a chain of layers", "it is not what the last layer gives")
    if r.time is None:  # layers of single steps alone
        others = [label for label in axes if label not in (r.channel, UNIT_LENGTH)]
        r.time = others[-1] if others else UNIT_LENGTH
        r.batch = others[0] if len(others) > 1 else UNIT_LENGTH
    checks = [check for check in description.checks if any(axis != RANK for _, axis in check.axes)]
    notes = ["these sizes are the source's: as a stream the model takes any"] if checks else []
    assert r.channel is not None
    layers, gains = _without_gains(r)
    if not layers:
        raise RefusedError("the model", "a chain of layers", "it has no layer besides factors")
    return LayerChain(
        layers, r.layers[0].inputs, r.skip, gains, x.name, r.batch, r.time, r.channel, place.axes, r.last, r.stateful, tuple(notes)
    )


def _without_gains(r: _ChainReading) -> tuple[tuple[ChainLayer, ...], tuple[float, float]]:
    """Return the layers without the factors at both ends, and their products; a factor before the sum with the input is a layer."""
    layers, gains = list(r.layers), [1.0, 1.0]
    behind = r.summed if r.skip else 0
    while len(layers) > behind and layers[-1].kind == "scale":
        gains[1] *= layers.pop().settings["factor"]
    while layers and layers[0].kind == "scale":
        gains[0] *= layers.pop(0).settings["factor"]
    return tuple(layers), (gains[0], gains[1])
