"""A description whose layers over space have their channels at the end, for targets whose layers are so.

Transposes move along: through what works on numbers at the same place, and past one another, until something needs the source's own axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding.description import DescribedModel, Node, Value
from rnnconvert.scaffolding.windows import reached, same

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
            rule = _FIRST.get(node.kind)
            if rule is not None:
                self._ended(rule, node)
            elif node.kind == "transpose":
                value, order = self.place(node.x)
                self._places[id(node.y)] = value, tuple(order[axis] for axis in node["order"])
            else:
                self._through(node)
        self.scope.outputs = tuple(self.settled(value) for value in self.scope.outputs)
        if self.partial:
            self.scope.drop_unread()

    def _ended(self, rule: Callable[[ChannelsLast, Node], None], node: Node) -> None:
        """Rewrite a layer over space, or leave it out: what its rule added by then nothing reads."""
        try:
            rule(self, node)
        except RefusedError as error:
            if not self.partial:
                raise
            self._places.pop(id(node.y), None)
            self.scope.add("left out", node.layer, tuple(map(self.settled, node.inputs)), node.outputs, error=error)

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
            self.scope.add("transpose", "", [base], [result], order=order)
        return self._turned[key]

    def ended(self, value: Value) -> Value:
        """Return a value with its channels behind space."""
        return self.turned(value, to_end(len(value.shape)))

    def give(self, value: Value, axes: Sequence[int]) -> Value:
        """Return a new value that a value of the source becomes: with its axes in an order."""
        result = permuted(value, axes)
        self._places[id(value)] = result, inverse(axes)
        return result

    def add(self, kind: str, x: Value, shape: Sequence[int | None], **settings: Any) -> Value:
        """Add a node without a layer, and return what it gives."""
        result = Value(x.name, tuple(shape), x.dtype)
        self.scope.add(kind, "", [x], [result], **settings)
        return result

    def refused(self, node: Node, feature: str, reason: str) -> RefusedError:
        """Return the refusal of a node."""
        return RefusedError(feature, "a layer with its channels at the end", reason, "", node.layer)

    def _through(self, node: Node) -> None:
        """Copy a node: applied to the values that its inputs are moved from, if that gives the same, moved."""
        places = [self.place(value) for value in node.inputs]
        orders = {order for _, order in places}
        rule = _THROUGH.get(node.kind)
        order = orders.pop() if len(orders) == 1 and rule is not None and not node.named else ()
        if rule is None or order == tuple(range(len(order))):
            named = {key: tuple(map(self.settled, values)) for key, values in node.named.items()}
            self.scope.nodes.append(replace(node, inputs=tuple(map(self.settled, node.inputs)), named=named))
            return
        settings, after = rule(node, order)
        outputs = tuple(self.give(value, inverse(after)) for value in node.outputs)
        inputs = tuple(value for value, _ in places)
        self.scope.nodes.append(replace(node, inputs=inputs, outputs=outputs, settings={**node.settings, **settings}))


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


# What works on moved tensors as on others: the settings that change, and the order of what it gives

Through = Callable[[Node, Order], "tuple[dict[str, Any], Order]"]


def _pointwise(node: Node, order: Order) -> tuple[dict[str, Any], Order]:
    return {}, order


def _along(key: str) -> Through:
    """Return the rule of what works along an axis, or several."""

    def rule(node: Node, order: Order) -> tuple[dict[str, Any], Order]:
        axes = node[key]
        return {key: order[axes] if isinstance(axes, int) else tuple(order[axis] for axis in axes)}, order

    return rule


def _activation(node: Node, order: Order) -> tuple[dict[str, Any], Order]:
    return ({"axis": order[node["axis"]]} if "softmax" in node["name"] else {}), order


def _reduce(node: Node, order: Order) -> tuple[dict[str, Any], Order]:
    axes = tuple(sorted(order[axis % len(order)] for axis in node["axes"]))
    return {"axes": axes}, order if node["keep"] else without(order, axes)


def _select(node: Node, order: Order) -> tuple[dict[str, Any], Order]:
    axis = order[node["axis"]]
    return {"axis": axis}, without(order, (axis,))


def _pad(node: Node, order: Order) -> tuple[dict[str, Any], Order]:
    return {"pairs": tuple(node["pairs"][axis] for axis in inverse(order))}, order


def without(order: Order, axes: Sequence[int]) -> Order:
    """Return an order of the axes that are left once some are gone."""
    rest = [axis for axis in order if axis not in axes]
    return tuple(sorted(rest).index(axis) for axis in rest)


_THROUGH: dict[str, Through] = {
    **dict.fromkeys(("clip", "cast", "rescale", "elementwise", "arithmetic", "dropout"), _pointwise),
    **dict.fromkeys(("batch_norm", "concatenate", "slice", "split", "cumulative"), _along("axis")),
    "flip": _along("axes"),
    "activation": _activation,
    "reduce": _reduce,
    **dict.fromkeys(("select", "squeeze"), _select),
    "pad axes": _pad,
}


# Layers whose channels are in front


def _same(pads: Pads, reach: Sequence[int]) -> bool:
    return all(tuple(pair) == same(n) for pair, n in zip(pads, reach, strict=True))


def _longer(x: Value, pads: Pads) -> tuple[int | None, ...]:
    space = (None if n is None else n + low + high for n, (low, high) in zip(x.shape[1:-1], pads, strict=True))
    return (x.shape[0], *space, x.shape[-1])


def _padded(m: ChannelsLast, x: Value, pads: Pads, number: float = 0.0) -> Value:
    """Return a tensor with places of a number around space."""
    if not any(map(any, pads)):
        return x
    if number:
        return m.add("pad axes", x, _longer(x, pads), pairs=((0, 0), *pads, (0, 0)), mode="constant", number=number)
    return m.add("pad", x, _longer(x, pads), pairs=tuple(pads))


def _conv(m: ChannelsLast, node: Node) -> None:
    pads, reach, x = node["pads"], reached(node["kernel"], node["dilation"]), m.ended(node.x)
    word = "valid"
    if any(map(any, pads)) and max(node["strides"]) == 1:
        causal = node["rank"] == 1 and tuple(pads[0]) == (reach[0] - 1, 0)
        word = "same" if _same(pads, reach) else "causal" if causal else "valid"
    x = x if word != "valid" else _padded(m, x, pads)
    settings = {key: value for key, value in node.settings.items() if key != "pads"}
    y, strides = m.give(node.y, to_end(len(node.y.shape))), node["strides"]
    if max(strides) == 1 or max(node["dilation"]) == 1:
        m.scope.add("conv", node.layer, [x], [y], **settings, padding=word)
        return
    settings["strides"] = (1,) * node["rank"]  # not every library moves windows with holes by more than one place
    space = [None if n is None else n - window + 1 for n, window in zip(x.shape[1:-1], reach, strict=True)]
    full = Value(y.name, (y.shape[0], *space, y.shape[-1]), y.dtype)
    m.scope.add("conv", node.layer, [x], [full], **settings, padding=word)
    moved = [(axis, step) for axis, step in enumerate(strides, 1) if step > 1]
    for axis, step in moved:
        shape = tuple(y.shape[n] if n == axis else size for n, size in enumerate(full.shape))
        cut = y if (axis, step) == moved[-1] else Value(y.name, shape, y.dtype)
        m.scope.add("slice", "", [full], [cut], axis=axis, start=None, end=None, step=step)
        full = cut


def _conv_transposed(m: ChannelsLast, node: Node) -> None:
    rank, strides, dilation = node["rank"], node["strides"], node["dilation"]
    if node["groups"] > 1 or (max(dilation) > 1 and max(strides) > 1):
        raise m.refused(
            node, "a transposed convolution in groups, or with dilation and strides", "no layer with channels at the end has them"
        )
    over = tuple(n - step for n, step in zip(reached(node["kernel"], node["dilation"]), strides, strict=True))
    cuts = [(low, high - more + max(-o, 0)) for (low, high), more, o in zip(node["pads"], node["output_padding"], over, strict=True)]
    if min(cut for _, cut in cuts) < 0:
        raise m.refused(node, "a transposed convolution that gives more than its windows reach", "output_padding adds places there")
    settings = {key: value for key, value in node.settings.items() if key not in ("pads", "output_padding")}
    x, y = m.ended(node.x), m.give(node.y, to_end(rank + 2))
    full = y
    if any(map(any, cuts)):
        space = (None if n is None else n + low + high for n, (low, high) in zip(y.shape[1:-1], cuts, strict=True))
        full = Value(y.name, (y.shape[0], *space, y.shape[-1]), y.dtype)
    m.scope.add("conv transposed", node.layer, [x], [full], **settings, over=over, padding="valid")
    if full is not y:
        m.scope.add("crop", "", [full], [y], pairs=tuple(cuts))


def _pool(m: ChannelsLast, node: Node) -> None:
    if max(node["dilation"]) > 1:
        raise m.refused(node, "a pool over places apart from one another", "no layer has such windows")
    x, most = m.ended(node.x), node["operation"] == "max"
    pads = [(low, high + (step - 1) * node["ceil"]) for (low, high), step in zip(node["pads"], node["strides"], strict=True)]
    y, words = m.give(node.y, to_end(len(node.y.shape))), {key: node[key] for key in ("operation", "rank", "kernel", "strides")}
    padded = any(map(any, pads))
    if padded and max(node["strides"]) == 1 and _same(pads, node["kernel"]) and not node["counted"]:
        m.scope.add("pool", "", [x], [y], **words, padding="same")
    elif most or node["counted"] or not padded:
        m.scope.add("pool", "", [_padded(m, x, pads, float("-inf") if most else 0.0)], [y], **words, padding="valid")
    else:  # what is padded does not count: the average of ones says how much of a window does
        ones = m.add("elementwise", x, x.shape, operation="ones_like", operands=(("input", 0),))
        parts = [m.add("pool", _padded(m, value, pads), y.shape, **words, padding="valid") for value in (x, ones)]
        m.scope.add("arithmetic", "", parts, [y], operation="divide")


def _group_norm(m: ChannelsLast, node: Node) -> None:
    settings = {"groups": node["size"], "scale": True, "shift": True, **node.settings}
    m.scope.add("group_norm", node.layer, [m.ended(node.x)], [m.give(node.y, to_end(len(node.y.shape)))], **settings)


def _prelu(m: ChannelsLast, node: Node) -> None:
    rank, size = len(node.x.shape), node["size"]
    channels = node["axis"] if size > 1 else rank - 1
    axes = (*(axis for axis in range(rank) if axis != channels), channels)
    slopes = (*(1,) * (rank - 2), size)
    m.scope.add("prelu", node.layer, [m.turned(node.x, axes)], [m.give(node.y, axes)], slopes=slopes)


_FIRST: dict[str, Callable[[ChannelsLast, Node], None]] = {
    "conv first": _conv,
    "conv transposed first": _conv_transposed,
    "pool first": _pool,
    "instance_norm": _group_norm,
    "group_norm first": _group_norm,
    "prelu first": _prelu,
}


def channels_last(top: DescribedModel, partial: bool = False) -> None:
    """Give the layers over space of a model, and of the models in it, their channels at the end.

    partial  leave out a window that no layer with channels at the end has

    Raises RefusedError for such a window otherwise.
    """
    for scope in (*top.inner(), top):
        if any(node.kind in _FIRST or (node.kind == "batch_norm" and node["axis"] != len(node.x.shape) - 1) for node in scope.nodes):
            ChannelsLast(scope, partial).run()
