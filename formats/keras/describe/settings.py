"""The meaning of Keras 3's settings for the shapes and axes of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Shape, Value
from rnnconvert.scaffolding.windows import reached, same, windows_at

Way = TypeVar("Way")


def axes_of(facts: LayerFacts, x: Value) -> list[int]:
    """Return the axes that a layer names, counted from the front, in order. Raises RefusedError for the batch."""
    stated, rank = facts.get("axis"), len(x.shape)
    axes = [int(axis) % rank for axis in (stated if isinstance(stated, (list, tuple)) else [stated])]
    if not axes or 0 in axes or axes != sorted(set(axes)):
        raise refuse(facts.name, f"axis = {stated!r}", "only axes behind the batch, in their order, are known here")
    return axes


def only_axis(facts: LayerFacts, x: Value) -> int:
    """Return the one axis that a layer names. Raises RefusedError for several."""
    axes = axes_of(facts, x)
    if len(axes) != 1:
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only one axis is known here")
    return axes[0]


def groups_of(facts: LayerFacts, x: Value) -> tuple[int, int]:
    """Return the groups and the channels of a GroupNormalization. Raises RefusedError for others than the last axis."""
    width, groups = x.shape[-1], int(facts.get("groups"))
    if axes_of(facts, x) != [len(x.shape) - 1] or width is None:
        raise refuse(facts.name, f"axis = {facts.get('axis')!r}", "only the last axis, of a known size, is known here")
    groups = width if groups == -1 else groups
    if groups < 1 or width % groups:
        raise refuse(facts.name, f"{groups} groups of {width} channels", "the channels must go into the groups")
    return groups, width


def sizes(facts: LayerFacts, key: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """Return a setting that has a number for each axis of space."""
    stated = facts.get(key, default)
    stated = default if stated is None else stated
    return tuple(int(n) for n in stated) if isinstance(stated, (list, tuple)) else (int(stated),) * rank


def over_space(facts: LayerFacts, x: Value, rank: int) -> None:
    """Check what a layer over some axes of space reads. Raises RefusedError for channels in front, and other axes."""
    facts.need("data_format", "channels_last", None)
    if len(x.shape) != rank + 2:
        raise refuse(facts.name, f"an input of {len(x.shape)} axes", f"it takes {rank + 2}")


def padded_window(facts: LayerFacts, kernel: kinds.Sizes, strides: kinds.Sizes, dilation: kinds.Sizes) -> kinds.Windowed:
    """Return windows with the pads that a layer states by a word. Raises RefusedError for what backends and runtimes do differently."""
    padding, reach = facts.get("padding", "valid"), reached(kernel, dilation)
    if padding not in ("valid", "same", "causal"):
        raise refuse(facts.name, f"padding {padding!r}", "only valid, same and causal are known here")
    if padding == "same" and max(strides) > 1 and max(dilation) > 1:
        raise refuse(facts.name, "padding 'same' with strides and dilation", "backends and runtimes differ there")
    words: Mapping[str, kinds.Pairs | None] = {
        "valid": ((0, 0),) * len(kernel),
        "same": None if max(strides) > 1 else tuple(map(same, reach)),
        "causal": tuple((size - 1, 0) for size in reach),
    }
    return kinds.Windowed(kernel, strides, dilation, words[padding], channels_first=False)


def lengths_after(x: Value, window: kinds.Windowed) -> Shape:
    """Return the lengths of space behind windows that slide over it."""
    return tuple(None if length is None else windows_at(window, axis, length) for axis, length in enumerate(x.shape[1:-1]))


def pool_of(facts: LayerFacts, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the window of a pool and its strides, which are the window's sizes where none are stated."""
    kernel = sizes(facts, "pool_size", rank, 2)
    return kernel, kernel if facts.get("strides") is None else sizes(facts, "strides", rank)


def pairs(facts: LayerFacts, key: str, rank: int) -> tuple[tuple[int, int], ...]:
    """Return how much is added or taken at both ends of each axis. Raises RefusedError for other than a pair for each."""
    stated = facts.get(key, 1)
    if isinstance(stated, int):
        return ((stated, stated),) * rank
    each = [stated] if rank == 1 else stated
    ends = [(pair, pair) if isinstance(pair, int) else tuple(map(int, pair)) for pair in each]
    if len(ends) != rank or any(len(pair) != 2 for pair in ends):
        raise refuse(facts.name, f"{key} = {stated!r}", f"one pair for each of {rank} axes is known here")
    return tuple((int(low), int(high)) for low, high in ends)


def grown(x: Value, ends: Sequence[tuple[int, int]], sign: int) -> Shape:
    """Return a shape with more or fewer places at the ends of its axes of space."""
    lengths = (None if n is None else n + sign * (low + high) for n, (low, high) in zip(x.shape[1:-1], ends, strict=True))
    return (x.shape[0], *lengths, x.shape[-1])


def count_of(x: Value) -> int | None:
    """Return how many numbers of a tensor each sequence has, None where an axis is open."""
    lengths = [n for n in x.shape[1:] if n is not None]
    return math.prod(lengths) if len(lengths) == len(x.shape) - 1 else None


def reshaped(facts: LayerFacts, x: Value) -> tuple[tuple[int, ...], Shape]:
    """Return the sizes behind the batch that a Reshape states, -1 for the one that is left, and those that come out."""
    target, total = tuple(int(n) if n is not None else -1 for n in facts.get("target_shape")), count_of(x)
    rest = math.prod(n for n in target if n != -1)
    return target, tuple((None if total is None else total // rest) if n == -1 else n for n in target)


def dot_axes(facts: LayerFacts, values: Sequence[Value]) -> tuple[tuple[int, ...], Shape]:
    """Return the axis of each tensor that a Dot sums over, and the axes that are left. Raises RefusedError for other tensors."""
    stated = facts.get("axes")
    if len(values) != 2 or any(len(value.shape) not in (2, 3) for value in values):
        raise refuse(facts.name, "a Dot of other than two tensors with two or three axes", "the order of its axes is unknown")
    both = stated if isinstance(stated, (list, tuple)) else [stated, stated]
    axes = tuple(int(n) % len(value.shape) for n, value in zip(both, values, strict=True))
    if 0 in axes:
        raise refuse(facts.name, f"axes = {stated!r}", "only axes behind the batch are known here")
    rest = tuple(size for axis, value in zip(axes, values, strict=True) for n, size in enumerate(value.shape) if n not in (0, axis))
    return axes, rest or (1,)


def joined(facts: LayerFacts, values: Sequence[Value]) -> tuple[int, Shape]:
    """Return the axis of a Concatenate, and the shape that comes of it."""
    axis = int(facts.get("axis")) % len(values[0].shape)
    widths, shape = [value.shape[axis] for value in values], list(values[0].shape)
    shape[axis] = None if None in widths else sum(n for n in widths if n is not None)
    return axis, tuple(shape)


def wider(size: int | None, other: int | None) -> int | None:
    """Return the length that two lengths of one axis have together."""
    if size == 1:
        return other
    return size if other == 1 or size is not None else other


def attended(facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
    """Return query, value and key of a call, the key only where it has one. Raises RefusedError for another order."""
    named = [word for word in ("query", "value", "key") if word in facts.named]
    arguments: list[Any] = [*values, *(tensor for word in named for tensor in facts.tensors(word))]
    if len(arguments) > 3 or (len(values) == 2 and named and "key" not in named):
        raise refuse(facts.name, "a call in an unknown order", "only query, value and key are known here")
    return arguments


def query_value_key(facts: LayerFacts, values: Sequence[Value]) -> tuple[Value, Value, Value]:
    """Return query, value and key; of two sequences, the second is both value and key.

    Raises RefusedError for anything but two or three sequences.
    """
    if not 2 <= len(values) <= 3 or any(len(value.shape) != 3 for value in values):
        raise refuse(facts.name, "attention to other than two or three sequences", "only (batch, time, features) is known here")
    query, value, key = (*values, values[1])[:3]
    return query, value, key


def each_rank(name: str, make: Callable[[int], Way], ranks: Sequence[int] = (1, 2, 3)) -> dict[str, Way]:
    """Return entries for the layers over 1, 2 and 3 axes of space, by their classes, each made by a function of that number."""
    return {name.format(rank): make(rank) for rank in ranks}
