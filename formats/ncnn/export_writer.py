"""A described model on its way into ncnn's layers: which axis of its tensors is the batch, and which blob each is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.ncnn.export_net import OPEN, NetLayers, NetPort, Settings
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Description, Node, Rules, Value
from rnnconvert.scaffolding.graph.checks import fixed
from rnnconvert.scaffolding.tried_axes import OtherAxesError
from rnnconvert.scaffolding.walk import LayerWalk
from rnnconvert.scaffolding.weights import LayerWeights
from rnnconvert.scaffolding.windows import windows_at

TITLE = "ncnn"
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class NetTensor:
    """A tensor of the description as a blob.

    blob   its name
    shape  its axes in the description, the batch among them; None for those that are open
    batch  which of these is the batch, which the blob lacks; None where it has none
    """

    blob: str
    shape: tuple[int | None, ...]
    batch: int | None

    @property
    def lengths(self) -> list[int | None]:
        """The lengths of the blob's axes."""
        return [length for axis, length in enumerate(self.shape) if axis != self.batch]

    def place(self, axis: int) -> int:
        """Return where an axis of the tensor is among the axes of the blob; -1 for the batch."""
        axis %= len(self.shape)
        return -1 if axis == self.batch else axis - (self.batch is not None and axis > self.batch)


class NetWriter(LayerWalk[NetTensor]):
    """An ncnn model under construction: what stands for a tensor is a blob.

    net        its layers
    recurrent  its recurrent layers, in words
    steps      how many steps its sequences have, None where any number
    written_out  whether a layer's steps are written out, so that it has that number alone
    checks     blobs of one number that outputs add: zero where the sequences have as many steps as are written out, and else none
    in_step    whether the step of a loop is being written, of which there are several
    """

    title, unknown = TITLE, "no layer of ncnn's is known for it"

    def __init__(
        self, description: Description, weights: LayerWeights, rules: Rules, batches: Sequence[int], steps: int | None = None
    ) -> None:
        """Build it.

        batches  for each input which of its axes is the batch
        """
        super().__init__(description.scope, rules, weights)
        self.net, self.steps = NetLayers(), steps
        self.written_out = self.in_step = False
        self.checks = list[str]()
        self._by_name: dict[str, tuple[Array, str]] = {}
        self._by_label: dict[str, int] = {}
        self.recurrent: list[str] = []
        top, indices = description.scope, _indices(description.scope)
        self.inputs = []
        lengths = {(number, axis): length for number, axis, length in filter(None, map(fixed, description.checks))}
        for number, (value, batch) in enumerate(zip(top.inputs, batches, strict=True)):
            integral = id(value) in indices
            if value.dtype != "float32" and not integral:
                raise RefusedError(f"the input {value.name!r} of type {value.dtype}", TITLE, "its layers compute in float32 alone")
            shape = tuple(lengths.get((number, axis), size) for axis, size in enumerate(value.shape))
            if steps is not None and number < len(top.inputs) - description.states:
                shape = self._timed(value, shape, batch, description.roles)
            tensor = NetTensor(self.net.name(value.name), shape, batch)
            sizes = {key: OPEN if length is None else length for key, length in zip((0, 1, 2), reversed(tensor.lengths), strict=False)}
            if not 1 <= len(tensor.lengths) <= 3:
                raise RefusedError(f"the input {value.name!r}", TITLE, "a blob has one axis to three, besides the batch")
            self.net.input(tensor.blob, sizes)
            self._held[id(value)] = tensor
            words = [description.words.get(axis, axis) for axis in value.axes] or [""] * len(value.shape)
            axes = tuple((text or "time") if size is None else size for size, text in zip(shape, words, strict=True))
            self.inputs.append(NetPort(tensor.blob, axes, batch, "int32" if integral else "float32"))
        self.run(top)
        self.outputs = []
        for value, wanted in zip(top.outputs, description.output_names, strict=True):
            tensor = self(value)
            if tensor.batch is None or not value.sized:
                raise RefusedError(f"the output {value.name!r}", TITLE, "it is not one of each sequence", "", value.name)
            checked = tensor.blob
            for check in self.checks:
                checked = self.binary(0, [checked, check], f"{wanted}/checked")
            (blob,) = self.net.add("Noop", [checked], wanted)
            axes = tuple("time" if size is None else size for size in tensor.shape)
            self.outputs.append(NetPort(blob, axes, tensor.batch, value.dtype))

    def _timed(self, value: Value, shape: tuple[int | None, ...], batch: int, roles: Mapping[str, str]) -> tuple[int | None, ...]:
        """Return the axes of an input with its number of steps: on the axis that is the time, or the first open one beside the batch."""
        labels = value.axes or ("",) * len(shape)
        likely = [axis for axis, length in enumerate(shape) if length is None and axis != batch]
        time = next((axis for axis in likely if roles.get(labels[axis]) == "time"), *likely[:1] or (None,))
        if time is None:
            return shape
        self._by_label.update({labels[time]: self.steps} if labels[time] and self.steps is not None else {})
        return tuple(self.steps if axis == time else length for axis, length in enumerate(shape))

    # Tensors

    def blob(self, node: Node[kinds.Kind], value: Value) -> str:
        """Return the blob of a tensor of real numbers. Raises RefusedError for another."""
        if value.dtype != "float32":
            raise self.refused(node, f"a tensor of type {value.dtype}", "its layers compute in float32 alone")
        return self(value).blob

    def give(self, value: Value, blob: str, batch: int | None) -> None:
        """Let a tensor of the description be a blob."""
        labels = value.axes or ("",) * len(value.shape)
        shape = tuple(self._by_label.get(label) if size is None else size for size, label in zip(value.shape, labels, strict=True))
        tensor = NetTensor(blob, shape, batch)
        if len(tensor.lengths) not in (1, 2, 3):
            raise RefusedError(
                f"a tensor of {len(value.shape)} axes", TITLE, "a blob has one axis to three, besides the batch", "", value.name
            )
        self._held[id(value)] = tensor

    def hand(self, value: Value, held: NetTensor) -> None:
        """Let a tensor of the description be what another one is, with the lengths that are known of that."""
        self.give(value, held.blob, held.batch)
        self._fill(value, held.shape)

    def _fill(self, value: Value, lengths: Sequence[int | None]) -> None:
        """Note lengths of a tensor where they are open."""
        tensor = self(value)
        if len(tensor.shape) == len(lengths):
            shape = tuple(other if size is None else size for size, other in zip(tensor.shape, lengths, strict=True))
            self._held[id(value)] = replace(tensor, shape=shape)

    def put(
        self,
        node: Node[kinds.Kind],
        kind: str,
        settings: Settings | None = None,
        numbers: Sequence[tuple[bool, Array | PiecewiseArray]] = (),
    ) -> None:
        """Add the layer that gives what a node gives of its first input, number by number."""
        self.give(node.y, self.add(kind, [self.blob(node, node.x)], self.label(node), settings, numbers), self(node.x).batch)

    def add(
        self,
        kind: str,
        bottoms: Sequence[str],
        wanted: str,
        settings: Settings | None = None,
        numbers: Sequence[tuple[bool, Array | PiecewiseArray]] = (),
    ) -> str:
        """Add a layer of one blob; return that. Raises RefusedError for a number that its file cannot state."""
        beyond = [value for value in (settings or {}).values() if isinstance(value, float) and not abs(value) <= LARGEST]
        if beyond:
            reason = "its .param states numbers of float32, and neither inf nor nan"
            raise RefusedError(f"the number {beyond[0]}", TITLE, reason, "", wanted)
        return self.net.add(kind, bottoms, wanted, settings, numbers)[0]

    def stored(self, wanted: str, array: Array) -> str:
        """Add numbers of one axis to three as a blob, or return that of the same ones, which a step before stored."""
        numbers = np.asarray(real(array)).reshape(array.shape or (1,))
        before, blob = self._by_name.get(wanted, (None, ""))
        if before is None or not np.array_equal(before, numbers):
            sizes = dict(zip((0, 1, 2), reversed(numbers.shape), strict=False))
            blob = self.add("MemoryData", [], wanted, sizes, [(False, numbers)])
            self._by_name[wanted] = numbers, blob
        return blob

    def shaped(self, blob: str, lengths: Sequence[int], wanted: str) -> str:
        """Add a change of a blob's axes; one length may be -1."""
        return self.add("Reshape", [blob], wanted, dict(zip((0, 1, 2), reversed(lengths), strict=False)))

    def binary(self, operator: int, blobs: Sequence[str], wanted: str) -> str:
        """Add an operator of two blobs of as many axes."""
        return self.add("BinaryOp", blobs, wanted, {0: operator})

    def by_number(self, operator: int, blob: str, number: float, wanted: str) -> str:
        """Add an operator of a blob and a number."""
        return self.add("BinaryOp", [blob], wanted, {0: operator, 1: 1, 2: float(number)})

    # Nodes

    def batch_first(self, node: Node[kinds.Kind], rank: int | None = None) -> None:
        """Raise RefusedError where a layer's first input does not begin with the batch, or has another number of axes."""
        tensor = self(node.x)
        if tensor.batch != 0 or (rank is not None and len(tensor.shape) != rank):
            reason = "the batch, of which a blob has none, is among them"
            raise OtherAxesError(f"a layer of kind {node.kind.word!r} over these axes", TITLE, reason, "", self.scope.inside(node.label))

    def visit(self, node: Node[kinds.Kind]) -> None:
        super().visit(node)
        if self.steps is not None:
            self._lengthen(node)

    def _lengthen(self, node: Node[kinds.Kind]) -> None:
        """Note the lengths of what a node gives where those of what it reads decide them."""
        tensors = [self(value) for value in node.inputs if id(value) in self._held]
        for value in node.outputs if tensors else ():
            if id(value) in self._held:
                self._fill(value, self._decided(node.kind, tensors, self(value)))

    def _decided(self, kind: kinds.Kind, tensors: Sequence[NetTensor], y: NetTensor) -> Sequence[int | None]:
        """Return the lengths of an output that are known of what its node reads."""
        x, rank = tensors[0].shape, len(tensors[0].shape)
        if isinstance(kind, _AS_MANY) and y.lengths.count(None) == 1 and None not in tensors[0].lengths:
            rest = math.prod(length for length in y.lengths if length is not None)
            count = math.prod(length for length in tensors[0].lengths if length is not None)
            return [count // rest if length is None and axis != y.batch else length for axis, length in enumerate(y.shape)]
        if isinstance(kind, kinds.Transpose):
            return [x[axis] for axis in kind.order]
        if isinstance(kind, kinds.Embedding):
            return [*x, None]
        if isinstance(kind, kinds.Conv | kinds.Pool):
            return [x[0], *[None] * (kind.space - 1), *_windows(kind, x), *[None] * (2 - kind.space)]
        if isinstance(kind, kinds.Reduce | kinds.Select):
            axes = {axis % rank for axis in (kind.axes if isinstance(kind, kinds.Reduce) else (kind.axis,))}
            return x if isinstance(kind, kinds.Reduce) and kind.keep else [length for axis, length in enumerate(x) if axis not in axes]
        if isinstance(kind, kinds.Slice) and (length := x[kind.axis]) is not None:
            count = len(range(length)[kind.start : kind.end : kind.step])
            return [count if axis == kind.axis % rank else length for axis, length in enumerate(x)]
        if isinstance(kind, (kinds.Concatenate, kinds.Split, kinds.Slice, *_AS_LONG)):
            shapes = [each.shape for each in tensors if len(each.shape) == rank]
            along = kind.axis % rank if isinstance(kind, kinds.Concatenate | kinds.Split | kinds.Slice) else None
            return [None if axis == along else _spread([shape[axis] for shape in shapes]) for axis in range(rank)]
        return ()

    def closed(self, node: Node[kinds.Kind], lengths: Sequence[int | None]) -> list[int]:
        """Return lengths of which one at most is left to a run. Raises RefusedError for several."""
        if lengths.count(None) > 1:
            raise self.refused(node, "a change of axes with several open lengths", "its Reshape has one")
        return [-1 if length is None else length for length in lengths]

    def stated(self, node: Node[kinds.Kind], lengths: Sequence[int | None]) -> list[int]:
        """Return lengths that are all stated. Raises RefusedError for others."""
        if None in lengths:
            raise self.refused(node, "steps of open lengths", "a net has no loops, and each step is written out")
        return [length for length in lengths if length is not None]


def _spread(lengths: Sequence[int | None]) -> int | None:
    """Return the length of an axis of tensors that spread over one another: one of 1 does over the others. None where it is open."""
    stated = {length for length in lengths if length is not None and length != 1}
    if not stated:
        return None if None in lengths else 1
    return stated.pop() if len(stated) == 1 else None


def _windows(kind: kinds.Windowed, x: Sequence[int | None]) -> Iterator[int | None]:
    """Yield how many windows there are along each axis of space."""
    for axis, length in enumerate(x[kind.space : kind.space + kind.rank]):
        yield None if length is None else windows_at(kind, axis, length)


_AS_MANY = (kinds.Reshape, kinds.Flatten, kinds.View, kinds.MergeAxes, kinds.SplitAxis, kinds.Squeeze, kinds.Unsqueeze)
"""The kinds of nodes whose outputs have as many numbers as what they read."""
_AS_LONG = (
    kinds.Activation, kinds.Arithmetic, kinds.BatchNorm, kinds.Clip, kinds.Dense, kinds.Dropout, kinds.Elementwise,
    kinds.Flip, kinds.LayerNorm, kinds.PReLU, kinds.Recurrent, kinds.Rescale,
)  # fmt: skip
"""The kinds of nodes whose outputs have the lengths of what they read, where these are open."""


def real(array: Array | PiecewiseArray) -> Array | PiecewiseArray:
    """Return stored numbers in float32; those that are stay where they lie."""
    return array if array.dtype == np.float32 else np.asarray(array).astype(np.float32)


def _indices(scope: DescribedModel) -> set[int]:
    """Return the inputs of a model that embeddings read. Raises RefusedError for one that something else reads, too."""
    read, others = set[int](), set[int]()
    for node in scope.nodes:
        if isinstance(node.kind, kinds.Model):
            inner = _indices(node.kind.scope)
            places = zip(node.kind.scope.inputs, node.inputs, strict=True)
            read.update(id(value) for start, value in places if id(start) in inner)
        elif isinstance(node.kind, kinds.Embedding):
            read.add(id(node.x))
        elif not isinstance(node.kind, kinds.Mask):  # which is refused by itself
            others.update(id(value) for value in node.reads())
    both = read & others
    if both:
        names = [value.name for value in scope.inputs if id(value) in both]
        raise RefusedError(
            f"{' and '.join(names) or 'a tensor'} as indices and as numbers", TITLE, "its layer Embed reads integers, and others none"
        )
    return read
