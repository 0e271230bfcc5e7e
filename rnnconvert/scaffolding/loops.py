"""Loops over the steps of sequences as nodes of a description: what every source's loops have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rnnconvert.graphs.sizes import Dim, Size, reaches
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.description import DescribedModel, Value
from rnnconvert.scaffolding.tensors import SourceTensor


def in_time(
    build: Builder, x: SourceTensor, axis: int, start: Dim, by: int, count: Dim, alike: Callable[[Dim, Dim], bool]
) -> SourceTensor | None:
    """Return the elements of a tensor that so many steps read, with the time in front; None where a run decides which these are.

    axis       the axis that holds them
    start, by  where step n reads: at `start + by * n`
    alike      returns whether two lengths are one
    """
    length, last = x.dims[axis], start + by * (count - 1)
    low, high = (start, last) if by > 0 else (last, start)
    complete = low == 0 and high == count - 1 and alike(length, count)
    if not complete and not (reaches(low, 0) and reaches(length - 1 - high, 0)):
        return None
    x = build.transpose(x, [axis, *(other for other in range(x.rank) if other != axis)])
    x = build.slice(x, 0, low, high + 1, abs(by))
    if x.dims[0] != count:
        return None
    return build.flip(x, 0) if by < 0 else x


def step_numbers(build: Builder, count: Dim) -> SourceTensor:
    """Add the numbers of so many steps, from 0."""
    read: list[Value] = []
    (high,) = build.lengths([count], read)
    return build.add(kinds.Range(start=0, stop=high, step=1), read, (count,), "int64", name="steps")


def name_axes(build: Builder, count: Dim, begins: Sequence[SourceTensor]) -> None:
    """Note that an axis of so many steps is the time, and the first one of each state the batch."""
    build.call(count, "time")
    for x in begins:
        build.call(x.dims[0] if x.dims and isinstance(x.dims[0], Size) else 0, "batch")


def loop_node(
    build: Builder,
    scope: DescribedModel,
    count: Dim,
    reads: Sequence[Sequence[SourceTensor]],
    left: Sequence[SourceTensor],
    listed: Sequence[SourceTensor],
) -> list[SourceTensor]:
    """Add a loop; return its last states, and what its steps give, with the time in front.

    scope   a step, as a model
    count   how many steps there are
    reads   what it begins with, the sequences, with the time in front, and the values that all steps share
    left    the states after a step
    listed  what a step gives besides
    """
    begins, sequences, captured = reads
    gives = [*((x.dims, x.dtype, "loop") for x in left), *(((count, *x.dims), x.dtype, "steps") for x in listed)]
    every = [*begins, *sequences, *captured]
    return build.several(kinds.Loop(scope=scope, states=len(begins), sequences=len(sequences)), "", every, gives)
