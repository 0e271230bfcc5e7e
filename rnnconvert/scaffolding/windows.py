"""Layers over space, their channels behind the batch, as nodes of a description: the outputs of their windows, from any source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rnnconvert.graphs.sizes import Dim
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.description import DescribedModel, Node, Value
from rnnconvert.scaffolding.tensors import SourceTensor

Pads = kinds.Pairs


def reached(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Return from where to where windows reach, holes included."""
    return tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))


def same(window: int, stride: int = 1, length: int = 0) -> tuple[int, int]:
    """Return the pads of an axis with which a window begins at every place, or at every stride: an odd one is at the end.

    length  of the axis, which decides nothing where the stride is 1
    """
    total = max((-(-length // stride) - 1) * stride + window - length, 0)
    return total // 2, total - total // 2


def pads_at(kind: kinds.Windowed, axis: int) -> tuple[int, int] | None:
    """Return the pads of one axis of space; None where they depend on its length, as a window begins at every stride."""
    if kind.pads is not None:
        return kind.pads[axis]
    return same(kind.reach[axis]) if kind.strides[axis] == 1 else None


def windows_at(kind: kinds.Windowed, axis: int, length: int) -> int:
    """Return how many windows one axis of space has, which has a length."""
    pads, step = pads_at(kind, axis), kind.strides[axis]
    return -(-length // step) if pads is None else (length + sum(pads) - kind.reach[axis]) // step + 1


def padding_word(kind: kinds.Windowed) -> str:
    """Name the padding of windows as Keras and Flax do: "valid", "same" or "causal"; return "" for pads without a name."""
    if kind.pads is None:
        return "same"
    if not any(map(any, kind.pads)):
        return "valid"
    if max(kind.strides) == 1 and all(tuple(pair) == same(window) for pair, window in zip(kind.pads, kind.reach, strict=True)):
        return "same"
    return "causal" if isinstance(kind, kinds.Conv) and kind.rank == 1 and tuple(kind.pads[0]) == (kind.reach[0] - 1, 0) else ""


def windows(length: Dim, window: int, stride: int, pads: tuple[int, int], ceil: bool = False) -> Dim:
    """Return how many windows an axis has. Raises ValueError where it has none."""
    free = length + pads[0] + pads[1] + (stride - 1 if ceil else 0) - window
    if isinstance(free, int) and free < 0:
        raise ValueError("a window longer than its axis")
    return free // stride + 1


class ConvSettings(NamedTuple):
    """What a source states of a convolution besides its weight and its pads."""

    layer: str
    strides: kinds.Sizes
    dilation: kinds.Sizes
    groups: int
    bias: bool


def conv(build: Builder, x: SourceTensor, weight: Sequence[int], pads: Pads, stated: ConvSettings) -> SourceTensor:
    """Add a convolution.

    weight  the axes of its weight: filters, channels of a group, the kernel

    Raises ValueError for a weight that does not fit.
    """
    filters, per_group, *kernel = weight
    channels, rank = per_group * stated.groups, len(kernel)
    _check(x, rank, channels)
    reach = reached(kernel, stated.dilation)
    space = tuple(map(windows, x.dims[2:], reach, stated.strides, pads))
    kind = kinds.Conv(tuple(kernel), stated.strides, stated.dilation, pads, True, channels, filters, stated.bias, stated.groups)
    return build.add_layer(kind, [x], (x.dims[0], filters, *space), layer=stated.layer)


def conv_transposed(
    build: Builder, x: SourceTensor, weight: Sequence[int], pads: Pads, more: Sequence[int], stated: ConvSettings
) -> SourceTensor:
    """Add a transposed convolution.

    weight  the axes of its weight: channels, filters of a group, the kernel
    more    how many places are added at the end of each axis, beyond the windows

    Raises ValueError for a weight that does not fit.
    """
    channels, per_group, *kernel = weight
    filters, rank = per_group * stated.groups, len(kernel)
    _check(x, rank, channels)
    space = tuple(
        (length - 1) * step + over + window - low - high
        for length, step, over, window, (low, high) in zip(
            x.dims[2:], stated.strides, more, reached(kernel, stated.dilation), pads, strict=True
        )
    )
    window = tuple(kernel), stated.strides, stated.dilation, pads, True
    kind = kinds.ConvTransposed(*window, channels, filters, stated.bias, stated.groups, tuple(more))
    return build.add_layer(kind, [x], (x.dims[0], filters, *space), layer=stated.layer)


def _check(x: SourceTensor, rank: int, channels: int) -> None:
    if x.rank != rank + 2 or x.dims[1] != channels:
        raise ValueError(f"a weight for {channels} channels and {rank} axes of space on a tensor of {x.dims}")


class Windows(NamedTuple):
    """The windows of a pool: for each axis of space how long they are, how far they move and how far their places lie apart, and what is
    added at both ends.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilation: Sequence[int]
    pads: Pads

    def over(self, dims: Sequence[Dim]) -> Iterator[tuple[Dim, int, int, tuple[int, int]]]:
        """Yield for each axis its length, how far a window reaches, its stride and its pads."""
        return zip(dims, reached(self.kernel, self.dilation), self.strides, self.pads, strict=True)


def pool(build: Builder, x: SourceTensor, operation: str, looks: Windows, ceil: bool, counted: bool) -> SourceTensor:
    """Add a pool.

    operation  "max" or "average"
    ceil       whether a last window may reach behind the input
    counted    whether an average counts what is padded

    Raises RefusedError where frameworks differ in what such a window gives, ValueError for other axes.
    """
    if x.rank != len(looks.kernel) + 2:
        raise ValueError(f"a pool of {x.rank} axes")
    if operation == "average" and max(looks.dilation) > 1:
        raise build.refuse("an average over places apart from one another", "no framework has such a pool")
    padded = any(map(any, looks.pads))
    ceil = ceil and any(_rounds(*axis) for axis in looks.over(x.dims[2:]))
    if ceil and any(_behind(*axis) for axis in looks.over(x.dims[2:])):
        raise build.refuse("ceil_mode where a last window may lie behind the input", "runtimes differ there")
    if ceil and operation == "average" and padded:
        raise build.refuse("an average with pads and ceil_mode", "runtimes differ in what they count")
    space = tuple(windows(*axis, ceil) for axis in looks.over(x.dims[2:]))
    kernel, strides, dilation = (tuple(sizes) for sizes in (looks.kernel, looks.strides, looks.dilation))
    kind = kinds.Pool(kernel, strides, dilation, tuple(looks.pads), True, operation, ceil, counted and padded)
    return build.add(kind, [x], (*x.dims[:2], *space), name="pooled")


def _rounds(length: Dim, window: int, stride: int, pads: tuple[int, int]) -> bool:
    """Return whether ceil_mode may give one window more."""
    return stride > 1 and not (isinstance(length, int) and (length + sum(pads) - window) % stride == 0)


def _behind(length: Dim, window: int, stride: int, pads: tuple[int, int]) -> bool:
    """Return whether the last window of an axis may begin behind the input, where ceil_mode adds one."""
    if isinstance(length, int):
        last = windows(length, window, stride, pads, True) - 1
        return isinstance(last, int) and last * stride >= length + pads[0]
    return pads[1] + stride > window


def over_one_axis(scope: DescribedModel) -> DescribedModel:
    """Return a model whose windows over two axes, one of them of length 1, move over the other alone: what frozen graphs have for them.

    The weight of such a convolution keeps its axes.
    """
    scope = scope.copy()
    for inner in (*scope.inner(), scope):
        inner.nodes = [each for node in inner.nodes for each in _over_one(node)]
    return scope


_OF_EACH_AXIS = ("kernel", "strides", "dilation", "pads")


def _over_one(node: Node[kinds.Kind]) -> list[Node[kinds.Kind]]:
    kind = node.kind
    if not isinstance(kind, kinds.Conv | kinds.Pool) or kind.rank != 2:
        return [node]
    unpadded = [kind.pads is None or tuple(kind.pads[axis]) == (0, 0) for axis in range(2)]
    single = [axis for axis in range(2) if (node.x.shape[kind.space + axis], kind.kernel[axis], kind.strides[axis]) == (1, 1, 1)]
    single = [axis for axis in single if unpadded[axis]]
    if not single:
        return [node]
    place, other = kind.space + single[0], 1 - single[0]

    def without(value: Value) -> Value:
        axes = value.axes[:place] + value.axes[place + 1 :]
        return replace(value, shape=value.shape[:place] + value.shape[place + 1 :], axes=axes)

    x, y = without(node.x), without(node.y)
    narrow: Any = {key: (sizes[other],) for key, sizes in vars(kind).items() if key in _OF_EACH_AXIS and sizes is not None}
    return [
        Node(kinds.Squeeze(place), "", (node.x,), (x,)),
        replace(node, inputs=(x,), outputs=(y,), kind=replace(kind, **narrow)),
        Node(kinds.Unsqueeze(place), "", (y,), (node.y,)),
    ]
