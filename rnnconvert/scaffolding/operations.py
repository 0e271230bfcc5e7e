"""Operators of graphs as nodes of a description: the outputs of each, under any name that a source has for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rnnconvert.graphs.sizes import Dim, Dims, broadcast, product
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.tensors import SourceTensor


def function(build: Builder, x: SourceTensor, operation: str, dtype: str = "", name: str = "") -> SourceTensor:
    """Add a function of each number."""
    return build.add(kinds.Elementwise(operation=operation, operands=(("input", 0),)), [x], x.dims, dtype, name=name or operation)


def activation(build: Builder, x: SourceTensor, word: str, alpha: float | None = None, axis: int = -1) -> SourceTensor:
    """Add an activation function."""
    place = -1 if axis == x.rank - 1 else axis
    return build.several(kinds.Activation(name=word, alpha=alpha, axis=place), "", [x], [(x.dims, x.dtype, word)])[0]


def left(dims: Sequence[Dim], axes: Sequence[int], keep: bool) -> Dims:
    """Return the axes of what is reduced over some."""
    return tuple(1 if n in axes else dim for n, dim in enumerate(dims) if keep or n not in axes)


def reduced(build: Builder, x: SourceTensor, operation: str, axes: Sequence[int], keep: bool, name: str = "") -> SourceTensor:
    """Add a reduction over axes."""
    dims = left(x.dims, axes, keep)
    return build.add(kinds.Reduce(operation=operation, axes=tuple(sorted(axes)), keep=keep), [x], dims, name=name or operation)


def place(build: Builder, x: SourceTensor, operation: str, axis: int, keep: bool) -> SourceTensor:
    """Add the place of the largest or the smallest number along an axis."""
    return build.add(kinds.Arg(operation=operation, axis=axis, keep=keep), [x], left(x.dims, (axis,), keep), "int64", name="places")


def top(build: Builder, x: SourceTensor, count: Dim, axis: int, largest: bool) -> list[SourceTensor]:
    """Add the largest or the smallest numbers along an axis, and their places."""
    dims = tuple(count if n == axis else dim for n, dim in enumerate(x.dims))
    outputs = [(dims, x.dtype, "values"), (dims, "int64", "indices")]
    read = [build.read(x)]
    return build.several(kinds.Top(count=build.length(count, read), axis=axis, largest=largest), "", read, outputs)


def parts(build: Builder, x: SourceTensor, axis: int, sizes: Sequence[Dim]) -> list[SourceTensor]:
    """Add the parts of a tensor along an axis."""
    dims = [tuple(size if n == axis else dim for n, dim in enumerate(x.dims)) for size in sizes]
    return build.several(kinds.Split(axis, cast("kinds.Sizes", tuple(sizes))), "", [x], [(shape, x.dtype, "part") for shape in dims])


def matmul(build: Builder, x: SourceTensor, y: SourceTensor) -> SourceTensor:
    """Add a product of matrices, or of a matrix and a vector. Raises ValueError for a number, and for others."""
    if min(x.rank, y.rank) < 1:
        raise ValueError("a product of no matrices")
    build.need(x.dims[-1], y.dims[-2] if y.rank > 1 else y.dims[0])
    lead = broadcast([x.dims[:-2], y.dims[:-2]])
    rows = x.dims[-2:-1] if x.rank > 1 else ()
    columns = y.dims[-1:] if y.rank > 1 else ()
    return build.add(kinds.Matmul(), [x, y], (*lead, *rows, *columns), name="product")


def einsum(build: Builder, equation: str, tensors: Sequence[SourceTensor]) -> SourceTensor:
    """Add a sum of products. Raises RefusedError for an equation of other than letters for every axis, with an arrow."""
    plain = equation.replace(" ", "")
    letters, arrow, out = plain.partition("->")
    words = letters.split(",")
    plainly = arrow and all(word.isalpha() for word in words) and (out.isalpha() or not out)
    if not plainly or [len(word) for word in words] != [x.rank for x in tensors]:
        raise build.refuse(f"the equation {plain!r}", "only letters for every axis, with an arrow, are known here")
    lengths = {letter: dim for word, x in zip(words, tensors, strict=True) for letter, dim in zip(word, x.dims, strict=True)}
    return build.add(kinds.Einsum(equation=plain), tensors, tuple(lengths[letter] for letter in out), name="product")


def tiled(build: Builder, x: SourceTensor, by: Sequence[int] | None) -> SourceTensor:
    """Add a tensor repeated along each of its axes. Raises ValueError for other axes."""
    if by is None or len(by) != x.rank or not all(isinstance(n, int) for n in by):
        raise ValueError("repeats of other axes")
    return build.add(kinds.Tile(by=tuple(by)), [x], tuple(dim * n for dim, n in zip(x.dims, by, strict=True)), name=x.name)


def overwritten(build: Builder, x: SourceTensor, values: SourceTensor, ranges: Sequence[tuple[int, int]]) -> SourceTensor:
    """Return a tensor a part of which is replaced.

    values  what replaces it, with all of its axes
    ranges  where the part begins and ends, along each of the first axes, whose lengths are stated
    """
    for axis, (first, last) in enumerate(ranges):
        length = x.dims[axis]
        assert isinstance(length, int)
        if (first, last) != (0, length):
            inside = [(0, last - first) if number == axis else ends for number, ends in enumerate(ranges)]
            middle = overwritten(build, build.slice(x, axis, first, last, 1), values, inside)
            parts = [(build.slice(x, axis, 0, first, 1), first), (middle, 1), (build.slice(x, axis, last, length, 1), length - last)]
            return build.concatenate([part for part, size in parts if size], axis)
    return build.cast(values, x.dtype)


def padded(build: Builder, x: SourceTensor, pairs: Sequence[tuple[int, int]], mode: str, number: float) -> SourceTensor:
    """Add a tensor with more places at both ends of its axes.

    mode  "constant", "reflect" or "edge"
    """
    if not any(map(any, pairs)):
        return x
    dims = tuple(dim + low + high for dim, (low, high) in zip(x.dims, pairs, strict=True))
    return build.add(kinds.PadAxes(pairs=tuple(pairs), mode=mode, number=number), [x], dims, name=x.name)


def filled(dims: Sequence[Dim], shape: Sequence[Dim]) -> Dims:
    """Return a shape with what its -1 stands for. Raises ValueError for several of them, and for a shape without elements."""
    places = [n for n, length in enumerate(shape) if isinstance(length, int) and length == -1]
    if not places:
        return tuple(shape)
    total, rest = product(dims), product(length for n, length in enumerate(shape) if n != places[0])
    if len(places) > 1 or total == 0 or rest == 0:
        raise ValueError(f"shape {shape}")
    return tuple(total // rest if n == places[0] else length for n, length in enumerate(shape))
