"""A description whose layers over space have their channels at the end, for targets whose layers are so.

Transposes move along: through what works on numbers at the same place, and past one another, until something needs the source's own axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Node, Value, on
from rnnconvert.scaffolding.windows import padding_word

Order = tuple[int, ...]
Pads = Sequence[tuple[int, int]]


class ChannelsLast:
    """A model on its way to channels at the end.

    A value of the source is another one with its axes in an order: axis n of the source's is axis order[n] of that one.
    """

    def __init__(self, scope: DescribedModel, partial: bool = False) -> None:
        self.scope, self.partial = scope, partial
        self.before, scope.nodes = scope.nodes, []
        self._places: dict[int, tuple[Value, Order]] = {}
        self._turned: dict[tuple[int, Order], Value] = {}

    def run(self) -> None:
        """Rewrite the nodes. Raises RefusedError for a window that no layer with channels at the end has, unless it may be left out."""
        for node in self.before:
            if not _has_channels_last(node) and type(node.kind) in _ENDED:
                self._ended(_ENDED[type(node.kind)], node)
            elif isinstance(node.kind, kinds.Transpose):
                value, order = self.place(node.x)
                self._places[id(node.y)] = value, tuple(order[axis] for axis in node.kind.order)
            else:
                self._through(node)
        self.scope.outputs = tuple(self.settled(value) for value in self.scope.outputs)
        if self.partial:
            self.scope.drop_unread()

    def _ended(self, rule: Callable[[ChannelsLast, Node[kinds.Kind]], None], node: Node[kinds.Kind]) -> None:
        """Rewrite a layer over space, or leave it out: what its rule added by then nothing reads."""
        try:
            rule(self, node)
        except RefusedError as error:
            if not self.partial:
                raise
            self._places.pop(id(node.y), None)
            self.scope.add(kinds.LeftOut(error=error), node.layer, tuple(map(self.settled, node.inputs)), node.outputs)

    def place(self, value: Value) -> tuple[Value, Order]:
        """Return the value that stands for a value of the source, and the order of its axes."""
        return self._places.get(id(value), (value, tuple(range(len(value.shape)))))

    def settled(self, value: Value) -> Value:
        """Return a value with the source's axes."""
        return self.turned(value, range(len(value.shape)))

    def turned(self, value: Value, axes: Sequence[int]) -> Value:
        """Return a value with the source's axes in an order."""
        base, places = self.place(value)
        order = tuple(places[axis] for axis in axes)
        if order == tuple(range(len(order))):
            return base
        key = id(base), order
        if key not in self._turned:
            self._turned[key] = result = permuted(base, order)
            self.scope.add(kinds.Transpose(order=order), "", [base], [result])
        return self._turned[key]

    def ended(self, value: Value) -> Value:
        """Return a value with its channels behind space."""
        return self.turned(value, to_end(len(value.shape)))

    def give(self, value: Value, axes: Sequence[int]) -> Value:
        """Return a new value that a value of the source becomes: with its axes in an order."""
        result = permuted(value, axes)
        self._places[id(value)] = result, inverse(axes)
        return result

    def add(self, kind: kinds.Kind, x: Value, shape: Sequence[int | None]) -> Value:
        """Add a node without a layer, and return what it gives."""
        result = Value(x.name, tuple(shape), x.dtype)
        self.scope.add(kind, "", [x], [result])
        return result

    def refused(self, node: Node[kinds.Kind], feature: str, reason: str) -> RefusedError:
        """Return the refusal of a node."""
        return RefusedError(feature, "a layer with its channels at the end", reason, "", node.layer)

    def _through(self, node: Node[kinds.Kind]) -> None:
        """Copy a node: applied to the values that its inputs are moved from, if that gives the same, moved."""
        places = [self.place(value) for value in node.inputs]
        orders = {order for _, order in places}
        rule = _THROUGH.get(type(node.kind))
        order = orders.pop() if len(orders) == 1 and rule is not None and not node.named else ()
        if rule is None or order == tuple(range(len(order))):
            named = {key: tuple(map(self.settled, values)) for key, values in node.named.items()}
            self.scope.nodes.append(replace(node, inputs=tuple(map(self.settled, node.inputs)), named=named))
            return
        kind, after = rule(order, node)
        outputs = tuple(self.give(value, inverse(after)) for value in node.outputs)
        inputs = tuple(value for value, _ in places)
        self.scope.nodes.append(replace(node, inputs=inputs, outputs=outputs, kind=kind))


def to_end(rank: int) -> Order:
    """Return the axes with the channels' at the end."""
    return (0, *range(2, rank), 1)


def inverse(order: Sequence[int]) -> Order:
    """Return the order that undoes another."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def permuted(value: Value, order: Sequence[int]) -> Value:
    """Return a new value whose axes are another's in an order."""
    words = tuple(value.axes[axis] for axis in order) if len(value.axes) == len(order) else ()
    return Value(value.name, tuple(value.shape[axis] for axis in order), value.dtype, words)


# What works on moved tensors as on others: what it is there, and the order of what it gives

Through = Callable[[Order, Node[Any]], tuple[kinds.Kind, Order]]


def _pointwise(order: Order, node: Node[kinds.Kind]) -> tuple[kinds.Kind, Order]:
    return node.kind, order


def _along(order: Order, node: Node[kinds.AlongAxis]) -> tuple[kinds.Kind, Order]:
    return replace(node.kind, axis=order[node.kind.axis]), order


def _flip(order: Order, node: Node[kinds.Flip]) -> tuple[kinds.Kind, Order]:
    return kinds.Flip(tuple(order[axis] for axis in node.kind.axes)), order


def _activation(order: Order, node: Node[kinds.Activation]) -> tuple[kinds.Kind, Order]:
    return replace(node.kind, axis=order[node.kind.axis]) if "softmax" in node.kind.name else node.kind, order


def _reduce(order: Order, node: Node[kinds.Reduce]) -> tuple[kinds.Kind, Order]:
    axes = tuple(sorted(order[axis % len(order)] for axis in node.kind.axes))
    return replace(node.kind, axes=axes), order if node.kind.keep else without(order, axes)


def _select(order: Order, node: Node[kinds.AlongAxis]) -> tuple[kinds.Kind, Order]:
    axis = order[node.kind.axis]
    return replace(node.kind, axis=axis), without(order, (axis,))


def _pad(order: Order, node: Node[kinds.PadAxes]) -> tuple[kinds.Kind, Order]:
    return replace(node.kind, pairs=tuple(node.kind.pairs[axis] for axis in inverse(order))), order


def without(order: Order, axes: Sequence[int]) -> Order:
    """Return an order of the axes that are left once some are gone."""
    rest = [axis for axis in order if axis not in axes]
    return tuple(sorted(rest).index(axis) for axis in rest)


_THROUGH: dict[type[kinds.Kind], Through] = {
    **dict.fromkeys((kinds.Clip, kinds.Cast, kinds.Rescale, kinds.Elementwise, kinds.Arithmetic, kinds.Dropout), _pointwise),
    **dict.fromkeys((kinds.BatchNorm, kinds.Concatenate, kinds.Slice, kinds.Split, kinds.Cumulative), _along),
    **on(kinds.Flip, _flip),
    **on(kinds.Activation, _activation),
    **on(kinds.Reduce, _reduce),
    **dict.fromkeys((kinds.Select, kinds.Squeeze), _select),
    **on(kinds.PadAxes, _pad),
}


# Layers whose channels are in front


def _has_channels_last(node: Node[kinds.Kind]) -> bool:
    """Return whether a layer has its channels at the end, if it has such."""
    kind, last = node.kind, len(node.x.shape) - 1 if node.inputs else 0
    match kind:
        case kinds.Windowed():
            return not kind.channels_first
        case kinds.PReLU():
            return not kind.vector or kind.axes in ((), (last,))
        case kinds.BatchNorm() | kinds.GroupNorm():
            return kind.axis == last
        case _:
            return not isinstance(kind, kinds.InstanceNorm)


def _longer(x: Value, pads: Pads) -> tuple[int | None, ...]:
    space = (None if n is None else n + low + high for n, (low, high) in zip(x.shape[1:-1], pads, strict=True))
    return (x.shape[0], *space, x.shape[-1])


def _padded(m: ChannelsLast, x: Value, pads: Pads, number: float = 0.0) -> Value:
    """Return a tensor with places of a number around space."""
    if not any(map(any, pads)):
        return x
    if number:
        return m.add(kinds.PadAxes(pairs=((0, 0), *pads, (0, 0)), mode="constant", number=number), x, _longer(x, pads))
    return m.add(kinds.Pad(pairs=tuple(pads)), x, _longer(x, pads))


def _unpadded(kind: kinds.Windowed) -> Any:
    """Return a kind without pads, its channels at the end."""
    return replace(kind, pads=((0, 0),) * kind.rank, channels_first=False)


def _conv(m: ChannelsLast, node: Node[kinds.Conv]) -> None:
    kind, strides, x = node.kind, node.kind.strides, m.ended(node.x)
    conv = replace(kind, channels_first=False)
    if kind.pads is not None and (max(strides) > 1 or not padding_word(kind)):
        x, conv = _padded(m, x, kind.pads), _unpadded(kind)
    y = m.give(node.y, to_end(len(node.y.shape)))
    if max(strides) == 1 or max(kind.dilation) == 1:
        m.scope.add(conv, node.layer, [x], [y])
        return
    conv = replace(conv, strides=(1,) * kind.rank)  # not every library moves windows with holes by more than one place
    space = [None if n is None else n - window + 1 for n, window in zip(x.shape[1:-1], kind.reach, strict=True)]
    full = Value(y.name, (y.shape[0], *space, y.shape[-1]), y.dtype)
    m.scope.add(conv, node.layer, [x], [full])
    moved = [(axis, step) for axis, step in enumerate(strides, 1) if step > 1]
    for axis, step in moved:
        shape = tuple(y.shape[n] if n == axis else size for n, size in enumerate(full.shape))
        cut = y if (axis, step) == moved[-1] else Value(y.name, shape, y.dtype)
        m.scope.add(kinds.Slice(axis=axis, start=None, end=None, step=step), "", [full], [cut])
        full = cut


def _conv_transposed(m: ChannelsLast, node: Node[kinds.ConvTransposed]) -> None:
    kind = node.kind
    if kind.groups > 1 or (max(kind.dilation) > 1 and max(kind.strides) > 1):
        raise m.refused(
            node, "a transposed convolution in groups, or with dilation and strides", "no layer with channels at the end has them"
        )
    more = tuple(max(-over, 0) for over in kind.over)
    cuts = [(low, high - stated + n) for (low, high), stated, n in zip(kind.pads, kind.output_padding, more, strict=True)]
    if min(cut for _, cut in cuts) < 0:
        raise m.refused(node, "a transposed convolution that gives more than its windows reach", "output_padding adds places there")
    x, y = m.ended(node.x), m.give(node.y, to_end(kind.rank + 2))
    full = y
    if any(map(any, cuts)):
        space = (None if n is None else n + low + high for n, (low, high) in zip(y.shape[1:-1], cuts, strict=True))
        full = Value(y.name, (y.shape[0], *space, y.shape[-1]), y.dtype)
    m.scope.add(replace(_unpadded(kind), output_padding=more), node.layer, [x], [full])
    if full is not y:
        m.scope.add(kinds.Crop(pairs=tuple(cuts)), "", [full], [y])


def _pool(m: ChannelsLast, node: Node[kinds.Pool]) -> None:
    kind = node.kind
    if max(kind.dilation) > 1:
        raise m.refused(node, "a pool over places apart from one another", "no layer has such windows")
    x, y = m.ended(node.x), m.give(node.y, to_end(len(node.y.shape)))
    if padding_word(kind) == "same" and not kind.counted:
        m.scope.add(replace(kind, channels_first=False), "", [x], [y])
        return
    pads = [(low, high + (step - 1) * kind.ceil) for (low, high), step in zip(kind.pads or (), kind.strides, strict=True)]
    most, pool = kind.operation == "max", replace(_unpadded(kind), ceil=False, counted=False)
    if most or kind.counted or not any(map(any, pads)):
        m.scope.add(pool, "", [_padded(m, x, pads, float("-inf") if most else 0.0)], [y])
    else:  # what is padded does not count: the average of ones says how much of a window does
        ones = m.add(kinds.Elementwise("ones_like", (("input", 0),)), x, x.shape)
        parts = [m.add(pool, _padded(m, value, pads), y.shape) for value in (x, ones)]
        m.scope.add(kinds.Arithmetic("divide"), "", parts, [y])


def _group_norm(m: ChannelsLast, node: Node[kinds.GroupNorm]) -> None:
    axis = len(node.x.shape) - 1
    m.scope.add(replace(node.kind, axis=axis), node.layer, [m.ended(node.x)], [m.give(node.y, to_end(axis + 1))])


def _instance_norm(m: ChannelsLast, node: Node[kinds.InstanceNorm]) -> None:
    kind, axis = node.kind, len(node.x.shape) - 1
    norm = kinds.GroupNorm(kind.epsilon, True, True, axis, kind.size, kind.size)
    m.scope.add(norm, node.layer, [m.ended(node.x)], [m.give(node.y, to_end(axis + 1))])


def _prelu(m: ChannelsLast, node: Node[kinds.PReLU]) -> None:
    rank, (channels,) = len(node.x.shape), node.kind.axes
    axes = (*(axis for axis in range(rank) if axis != channels), channels)
    kind = kinds.PReLU.along(rank - 1, node.kind.slopes[channels - 1], rank)
    m.scope.add(kind, node.layer, [m.turned(node.x, axes)], [m.give(node.y, axes)])


_ENDED: dict[type[kinds.Kind], Callable[[ChannelsLast, Node[Any]], None]] = {
    **on(kinds.Conv, _conv),
    **on(kinds.ConvTransposed, _conv_transposed),
    **on(kinds.Pool, _pool),
    **on(kinds.InstanceNorm, _instance_norm),
    **on(kinds.GroupNorm, _group_norm),
    **on(kinds.PReLU, _prelu),
}


def channels_last(top: DescribedModel, partial: bool = False) -> None:
    """Give the layers over space of a model, and of the models in it, their channels at the end.

    partial  leave out a window that no layer with channels at the end has

    Raises RefusedError for such a window otherwise.
    """
    for scope in (*top.inner(), top):
        if not all(map(_has_channels_last, scope.nodes)):
            ChannelsLast(scope, partial).run()
