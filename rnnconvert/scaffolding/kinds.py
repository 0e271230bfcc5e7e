"""What a node of a description computes: a class for each kind, with its settings, which mean the same for every source and target.

A tensor keeps the axes that it has in the source, so a layer says where its channels are: behind the batch or at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Merge

if TYPE_CHECKING:
    from rnnconvert.scaffolding.description import DescribedModel, Length, Lengths

Sizes = tuple[int, ...]
"""A number for each axis, or for each axis of space."""
Pairs = tuple[tuple[int, int], ...]
"""How many places at both ends, for each of these axes."""


@dataclass(frozen=True)
class Kind:
    """What a node computes.

    word  its name in messages
    """

    word: ClassVar[str] = ""

    def __init_subclass__(cls, word: str = "") -> None:
        cls.word = word

    @property
    def title(self) -> str:
        """Its function or operation, by name, where it has several; otherwise its kind."""
        return str(getattr(self, "operation", "") or getattr(self, "name", "") or self.word)


@dataclass(frozen=True)
class AlongAxis(Kind):
    """What works along one axis."""

    axis: int


@dataclass(frozen=True)
class AlongAxes(Kind):
    """What works along several axes."""

    axes: Sizes


@dataclass(frozen=True)
class NamedOperation(Kind):
    """What has an operation by name."""

    operation: str


@dataclass(frozen=True)
class Scoped(Kind):
    """What runs another model."""

    scope: DescribedModel


@dataclass(frozen=True)
class LeftOut(Kind, word="left out"):
    """A layer that nothing here writes, and why; only if a model may be written in part."""

    error: RefusedError


# Layers


@dataclass(frozen=True)
class Dense(Kind, word="dense"):
    """A product with a matrix over the last axis."""

    units: int
    bias: bool


@dataclass(frozen=True)
class Embedding(Kind, word="embedding"):
    """Rows of a table."""

    input_size: int
    output_size: int


@dataclass(frozen=True)
class Recurrent(Kind, word="recurrent"):
    """A recurrent layer on (batch, time, features); a mask and initial states are among `named`.

    cells      the cell of each direction
    units      how many states a direction has; for each, where they differ
    biases     whether there are biases, likewise
    sequences  whether it gives every step, and not the last one alone
    zero       whether its output is zero at steps that do not count, and not that of the step before
    backwards  whether its only direction reads from the end
    merge      how the outputs of two directions are joined: concat, sum, mul or ave; None for two outputs
    stateful   whether its states last from one call to the next
    rare       what few frameworks have, in words
    """

    cells: tuple[Cell, ...]
    units: int | Sizes
    biases: bool | tuple[bool, ...]
    sequences: bool
    zero: bool
    backwards: bool
    merge: Merge | None
    stateful: bool
    rare: tuple[str, ...] = ()

    @property
    def unlike(self) -> bool:
        """Whether its two directions differ in more than their way."""
        return len(set(self.cells)) > 1 or isinstance(self.units, tuple) or isinstance(self.biases, tuple)

    def direction(self, way: int) -> Recurrent:
        """Return one of its two directions as a layer."""
        units = self.units[way] if isinstance(self.units, tuple) else self.units
        biases = self.biases[way] if isinstance(self.biases, tuple) else self.biases
        return replace(self, cells=(self.cells[way],), units=units, biases=biases, merge="concat", backwards=bool(way))


@dataclass(frozen=True)
class Attention(Kind, word="attention"):
    """Attention without heads; with a layer, it has a scale. The masks asked (of the query) and seen (of the value) are among `named`.

    mode    "dot" or "additive"
    sizes   of the scale
    concat  whether the layer is the factor of the sums, and not a scale of them
    scale   the layer that scales them, too; "" for none
    """

    mode: str
    causal: bool
    sizes: tuple[int | None, ...]
    concat: bool
    scale: str


@dataclass(frozen=True)
class MultiHead(Kind, word="multi_head"):
    """Attention with several heads; the masks of query, value and key, and of pairs of steps, are among `named`.

    size, value_size  of the keys, and of the values, of a head
    widths            of the query, the key and the value
    zeros             whether a step that sees none gives zeros, and not the mean of all
    """

    heads: int
    size: int
    value_size: int
    output: int
    widths: Sizes
    bias: bool
    causal: bool
    dropout: float
    zeros: bool


@dataclass(frozen=True)
class Dropout(Kind, word="dropout"):
    """What acts in training alone, by the name that Keras has for it."""

    name: str
    rate: float


# Over space


@dataclass(frozen=True)
class Windowed(Kind):
    """What moves windows over axes of space.

    pads            how many places are added at both ends of each axis; None for as many as let a window begin at every stride, the odd
                    one at the end
    channels_first  whether the channels are behind the batch, and not at the end
    """

    kernel: Sizes
    strides: Sizes
    dilation: Sizes
    pads: Pairs | None
    channels_first: bool

    @property
    def rank(self) -> int:
        """How many axes of space there are."""
        return len(self.kernel)

    @property
    def space(self) -> int:
        """The first axis of space."""
        return 2 if self.channels_first else 1

    @property
    def reach(self) -> Sizes:
        """From where to where a window reaches along each axis, holes included."""
        return tuple(by * (size - 1) + 1 for size, by in zip(self.kernel, self.dilation, strict=True))

    @property
    def over(self) -> Sizes:
        """How far a window reaches beyond its stride along each axis."""
        return tuple(reach - step for reach, step in zip(self.reach, self.strides, strict=True))


@dataclass(frozen=True)
class Convolution(Windowed):
    """A convolution."""

    channels: int
    filters: int
    bias: bool


@dataclass(frozen=True)
class Conv(Convolution, word="conv"):
    """A convolution."""

    groups: int


@dataclass(frozen=True)
class ConvTransposed(Convolution, word="conv transposed"):
    """A transposed convolution, whose pads are what its output lacks at both ends of each axis.

    output_padding  how many places there are beyond the windows, at the end of each axis
    """

    pads: Pairs
    groups: int
    output_padding: Sizes


@dataclass(frozen=True)
class ConvLSTM(Convolution, word="conv_lstm"):
    """An LSTM whose products are convolutions; its initial states are among `named`.

    size  of its states, without the filters
    """

    cell: Cell
    size: Sizes
    sequences: bool
    backwards: bool
    stateful: bool


@dataclass(frozen=True)
class Pool(Windowed, word="pool"):
    """The largest number of each window ("max"), or their mean ("average").

    ceil     whether a last window may reach behind the input
    counted  whether an average counts what is padded
    """

    operation: str
    ceil: bool = False
    counted: bool = False


@dataclass(frozen=True)
class Pad(Kind, word="pad"):
    """Zeros around space."""

    pairs: Pairs


@dataclass(frozen=True)
class PadAxes(Kind, word="pad axes"):
    """More places at both ends of all axes; mode is "constant", which is a number, "reflect" or "edge"."""

    pairs: Pairs
    mode: str
    number: float


@dataclass(frozen=True)
class Crop(Kind, word="crop"):
    """Space without some places."""

    pairs: Pairs


@dataclass(frozen=True)
class Upsample(Kind, word="upsample"):
    """Every place of space several times."""

    by: Sizes


# Norms and functions


@dataclass(frozen=True)
class Norm(Kind):
    """A norm, with its epsilon, and whether it is scaled and shifted."""

    epsilon: float
    scale: bool
    shift: bool


@dataclass(frozen=True)
class BatchNorm(AlongAxis, Norm, word="batch_norm"):
    """A norm by stored moments of an axis of some size."""

    size: int
    momentum: float


@dataclass(frozen=True)
class LastAxesNorm(Norm):
    """A norm over the last axes, of some sizes."""

    sizes: Sizes


class LayerNorm(LastAxesNorm, word="layer_norm"):
    """A norm that is centred."""


class RMSNorm(LastAxesNorm, word="rms_norm"):
    """A norm that is not centred."""


@dataclass(frozen=True)
class GroupNorm(AlongAxis, Norm, word="group_norm"):
    """A norm over groups of channels, which are behind the batch or at the end.

    groups  how many there are
    size    how many channels there are
    """

    groups: int
    size: int


@dataclass(frozen=True)
class InstanceNorm(Kind, word="instance_norm"):
    """A norm of each channel, which are behind the batch, scaled and shifted."""

    size: int
    epsilon: float


@dataclass(frozen=True)
class UnitNorm(AlongAxes, word="unit_norm"):
    """Vectors of the length one."""

    epsilon: float


@dataclass(frozen=True)
class Activation(Kind, word="activation"):
    """A function by its name.

    alpha               its number, if it has one
    axis                of a softmax
    highest, threshold  of a bounded_relu, Keras's ReLU: its upper bound, None for none, and where it begins
    """

    name: str
    alpha: float | None = None
    axis: int = -1
    highest: float | None = None
    threshold: float = 0.0


@dataclass(frozen=True)
class PReLU(Kind, word="prelu"):
    """Slopes below zero: how many there are along each axis behind the batch.

    vector  whether the source keeps them as a vector, one for each channel, and not as an array of these axes
    """

    slopes: Sizes
    vector: bool

    @classmethod
    def along(cls, axis: int, size: int, rank: int) -> PReLU:
        """Return the kind that has a vector of so many slopes along one axis of a tensor of so many axes."""
        return cls(tuple(size if place == axis else 1 for place in range(1, rank)), True)

    @property
    def axes(self) -> Sizes:
        """The axes along which there are several."""
        return tuple(axis for axis, size in enumerate(self.slopes, 1) if size != 1)

    @property
    def by_channel(self) -> bool:
        """Whether there is one for each channel, or one for all."""
        return self.vector or self.axes in ((), (len(self.slopes),))


@dataclass(frozen=True)
class Rescale(Kind, word="rescale"):
    """A product with a number, and the sum with another."""

    scale: float
    shift: float


# Numbers at the same place


class Arithmetic(NamedOperation, word="arithmetic"):
    """An operation on two or more tensors: one with fewer axes gets new ones behind the batch."""


@dataclass(frozen=True)
class Elementwise(NamedOperation, word="elementwise"):
    """An operation on tensors that spread over one another as numpy's do.

    operands  ("input", the number of the input) or ("number", the number), in their order
    """

    operands: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Clip(Kind, word="clip"):
    """Numbers within bounds, None for an end without."""

    min: float | None
    max: float | None


@dataclass(frozen=True)
class Cast(Kind, word="cast"):
    """Another element type."""

    dtype: str


@dataclass(frozen=True)
class Mask(NamedOperation, word="mask"):
    """Truths, as Keras's masks are; of "lengths" that are packed: packed.

    value  what a comparison compares with; None for another operation
    axis   of "any" and "all", and whether they keep it
    """

    value: float | None = None
    axis: int = -1
    keep: bool = False
    packed: bool = False


@dataclass(frozen=True)
class Where(Kind, word="where"):
    """The numbers of the first input at the steps that count, and those of the second at others, or a number."""

    value: float


class ZeroMasked(Kind, word="zero masked"):
    """Zeros at the steps that do not count: Keras's Masking."""

    value: ClassVar[float] = 0.0


# Axes


class Concatenate(AlongAxis, word="concatenate"):
    """Tensors one behind the other."""


class Stack(AlongAxis, word="stack"):
    """Tensors side by side on a new axis."""


@dataclass(frozen=True)
class Split(AlongAxis, word="split"):
    """Parts of some sizes: several outputs."""

    sizes: Sizes


@dataclass(frozen=True)
class Select(AlongAxis, word="select"):
    """One place of an axis, which goes."""

    index: int


@dataclass(frozen=True)
class SelectBetween(AlongAxis, word="select between"):
    """One place of an axis, which goes: its index depends on lengths that a run decides."""

    index: Length | int


@dataclass(frozen=True)
class Slice(AlongAxis, word="slice"):
    """Some places of an axis, as Python's slices take them."""

    start: int | None
    end: int | None
    step: int


@dataclass(frozen=True)
class SliceBetween(AlongAxis, word="slice between"):
    """Some places of an axis, with a bound that a run decides."""

    start: Length | int | None
    end: Length | int | None
    step: int


class CutToLongest(Kind, word="cut to the longest"):
    """Sequences without the steps behind the longest of their lengths, the second input."""


class Flip(AlongAxes, word="flip"):
    """A tensor turned around along axes."""


@dataclass(frozen=True)
class Transpose(Kind, word="transpose"):
    """The axes in another order."""

    order: Sizes


class Squeeze(AlongAxis, word="squeeze"):
    """A tensor without an axis of length 1."""


class Unsqueeze(AlongAxis, word="unsqueeze"):
    """A tensor with a new axis of length 1."""


class Flatten(Kind, word="flatten"):
    """The axes behind the batch as one."""


@dataclass(frozen=True)
class Reshape(Kind, word="reshape"):
    """Other axes behind the batch; one of their sizes may be -1."""

    sizes: Sizes


@dataclass(frozen=True)
class ReshapeAll(Kind, word="reshape all"):
    """Other axes; one of their sizes may be -1."""

    sizes: Sizes


@dataclass(frozen=True)
class View(Kind, word="view"):
    """Other axes, of lengths that a run decides."""

    lengths: Lengths


@dataclass(frozen=True)
class MergeAxes(Kind, word="merge axes"):
    """Axes as one, from start to stop, the last of them."""

    start: int
    stop: int


@dataclass(frozen=True)
class SplitAxis(AlongAxis, word="split axis"):
    """An axis as several."""

    lengths: Lengths


@dataclass(frozen=True)
class Expand(Kind, word="expand"):
    """A tensor spread over lengths."""

    lengths: Lengths


@dataclass(frozen=True)
class Repeat(Kind, word="repeat"):
    """What is there once as so many steps: Keras's RepeatVector."""

    count: int


@dataclass(frozen=True)
class Tile(Kind, word="tile"):
    """A tensor several times, along each of its axes."""

    by: Sizes


class StepsToBatch(Kind, word="steps to batch"):
    """(batch, time, ...) as (batch * time, ...)."""


class BatchToSteps(Kind, word="batch to steps"):
    """(batch * time, ...) as (batch, time, ...), with the batch and the time of the second input."""


# Reductions, places and products


@dataclass(frozen=True)
class Reduce(NamedOperation, word="reduce"):
    """A reduction over axes, which it keeps or not; the mask of a mean over time is among `named`."""

    axes: Sizes
    keep: bool


@dataclass(frozen=True)
class Arg(NamedOperation, word="arg"):
    """The place of the largest or the smallest number of an axis: "argmax" or "argmin"."""

    axis: int
    keep: bool


@dataclass(frozen=True)
class Top(AlongAxis, word="top"):
    """So many of the largest numbers of an axis, or of the smallest, and their places: two outputs."""

    count: Length | int
    largest: bool


class Cumulative(AlongAxis, word="cumulative"):
    """Sums of all numbers up to each place of an axis."""


@dataclass(frozen=True)
class Triangle(Kind, word="triangle"):
    """A matrix with zeros below a diagonal (upper), or above it."""

    upper: bool
    diagonal: int


@dataclass(frozen=True)
class OneHot(Kind, word="one hot"):
    """Whole numbers as rows of so many zeros, with a one."""

    count: int


class Gather(AlongAxis, word="gather"):
    """The places of an axis that the second input states."""


class GatherElements(AlongAxis, word="gather elements"):
    """The places of an axis that the second input states for each place of the other axes."""


class Matmul(Kind, word="matmul"):
    """A product of matrices."""


@dataclass(frozen=True)
class Einsum(Kind, word="einsum"):
    """A sum of products, by an equation with a letter for every axis."""

    equation: str


@dataclass(frozen=True)
class Dot(Kind, word="dot"):
    """Keras's Dot: products of two tensors, summed over an axis of each, of vectors of the length one if it normalizes."""

    axes: Sizes
    normalize: bool


# Numbers and lengths


@dataclass(frozen=True, eq=False)
class Constant(Kind, word="constant"):
    """Numbers that are written out: of two, those are equal whose arrays are, to the bit."""

    numbers: Array

    def _bits(self) -> tuple[str, Sizes, bytes]:
        return self.numbers.dtype.str, self.numbers.shape, self.numbers.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._bits() == other._bits()

    def __hash__(self) -> int:
        return hash(self._bits())


@dataclass(frozen=True)
class Parameter(Kind, word="parameter"):
    """An array of the file that belongs to no layer, of some sizes."""

    sizes: Sizes


@dataclass(frozen=True)
class LayerWeight(Kind, word="layer's weight"):
    """An array of a layer that the model reads otherwise, too.

    of     the kind of layer: "dense" or "embedding"
    array  which of its arrays
    sizes  of its matrix
    """

    of: str
    array: str
    sizes: Sizes
    bias: bool


@dataclass(frozen=True)
class Full(Kind, word="full"):
    """One number everywhere."""

    lengths: Lengths
    number: float


@dataclass(frozen=True)
class LengthsTensor(Kind, word="sizes"):
    """Lengths as a tensor."""

    lengths: Lengths


@dataclass(frozen=True)
class Range(Kind, word="range"):
    """Whole numbers from start on, up to stop."""

    start: Length | int
    stop: Length | int
    step: int


# Models


class Model(Scoped, word="model"):
    """A model in the model."""


@dataclass(frozen=True)
class Loop(Scoped, word="loop"):
    """A model of one step. It gives the last states, and what its steps give besides, (time, ...).

    states     how many of its inputs are states that it hands on
    sequences  how many of those behind them are sequences (time, ...); others are the same in each step
    """

    states: int
    sequences: int
