"""ncnn's layers as a graph: what each does to the elements on their way from one recurrent layer to the next.

A blob has the axes (channels, depth, height, width), of which some in front may be absent; a sequence is one of height and width. Types
are known by their names alone: a layer that a user registers under a name of ncnn's is not told from ncnn's own.

Source: ncnn, src/layer/*.cpp, load_param and forward of each type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.weights import Call, Recurrent
from rnnconvert.formats.ncnn.param import ParamLayer
from rnnconvert.graphs import moves
from rnnconvert.graphs.between import calls as followed
from rnnconvert.graphs.graph import CallSizes, Graph
from rnnconvert.graphs.operators import SAME, Applied, Casts, ChangesError, Dialect, Moves, UnfitError

_ABSENT = -233
_ARRAYS = -23300
_TYPES: Mapping[int, np.dtype[Any]] = {1: np.dtype("f4"), 2: np.dtype("f2"), 4: BFLOAT16}
"""Cast's element types."""
_ORDERS = {2: ("wh", "hw"), 3: ("whc", "hwc", "wch", "cwh", "hcw", "chw")}
"""Permute's numbers, by the number of axes: which axis becomes the width, which the height, which the channels."""
_AXES = {1: "w", 2: "hw", 3: "chw", 4: "cdhw"}


def calls(described: Sequence[ParamLayer], read: Mapping[str, tuple[ParamLayer, Recurrent]]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent layer, by its name.

    described  the rows of the file
    read       the layers that are read of them, by name
    """
    graph = Graph(_DIALECT)
    names = {id(row): name for name, (row, _) in read.items()}
    for row in described:
        name = names.get(id(row))
        if name is not None:
            stack = read[name][1]
            graph.call(
                name,
                (row.bottoms[0] if row.bottoms else "", "ti"),
                dict.fromkeys(row.tops[:1], "tu"),
                dict.fromkeys(row.tops[1:], "the last states"),
                sizes=CallSizes(stack.layers[0].output_size, width=stack.input_size),
                initial=row.bottoms[1:],
            )
        elif row.type != "Input":
            graph.add(row.type, row.bottoms, row.tops, {str(key): text for key, text in row.parameters.items()}, row.type)
    return followed(graph)


# What layers do -------------------------------------------------------------------------------------------------


def _list(applied: Applied, key: int) -> list[int]:
    """Return a parameter that is an array: "2,0,1" is one of two numbers."""
    text = applied.attributes.get(str(_ARRAYS - key), "")
    if not re.fullmatch(r"\d{1,4}(,[+-]?\d{1,10})*", text):
        return []
    count, *numbers = (int(number) for number in text.split(","))
    if count != len(numbers):
        raise UnfitError(f"{count} numbers that are {len(numbers)}")
    return numbers


def _number(applied: Applied, key: int, default: int = 0) -> int:
    text = applied.attributes.get(str(key), str(default))
    if not re.fullmatch(r"[+-]?\d{1,10}", text):
        raise ChangesError(f"{applied.kind} with the parameter {key}={text}")
    return int(text)


def _refuse(applied: Applied, *keys: int) -> None:
    """Raise ChangesError where a layer has a parameter that is not followed."""
    for key in keys:
        if str(key) in applied.attributes:
            raise ChangesError(f"{applied.kind} with the parameter {key}={applied.attributes[str(key)]}")


def _copies(applied: Applied) -> list[Array]:
    return [applied.input(place if len(applied.inputs) > 1 else 0) for place in range(applied.outputs)]


def _dropout(applied: Applied) -> Array:
    scale = applied.attributes.get("0", "1")
    if not re.fullmatch(r"\+?1(\.0*)?(e[+-]?0+)?", scale):
        raise ChangesError(f"Dropout that multiplies by {scale}")
    return applied.input(0)


def _reshape(applied: Applied) -> Array:
    _refuse(applied, 3, 6, 12, 13)  # a permutation in old files, a shape as an expression, and axes of batches
    stated = {axis: _number(applied, key, _ABSENT) for axis, key in (("w", 0), ("h", 1), ("d", 11), ("c", 2))}
    rank = next((rank for rank, axis in ((0, "w"), (1, "h"), (2, "c"), (3, "d")) if stated[axis] == _ABSENT), 4)
    array = applied.input(0)
    lengths = dict(zip(_AXES[array.ndim], array.shape, strict=True))
    shape = [stated[axis] or lengths.get(axis, 1) for axis in _AXES[rank]] if rank else list(array.shape)
    return moves.reshape(array, shape)


def _permute(applied: Applied) -> Array:
    array, number = applied.input(0), _number(applied, 0)
    if not number or array.ndim < 2:
        return array
    orders = _ORDERS.get(array.ndim, ())
    if not number < len(orders):
        raise ChangesError(f"Permute of the order {number}")
    return array.transpose([_AXES[array.ndim].index(axis) for axis in reversed(orders[number])])


def _axes(applied: Applied, rank: int) -> list[int]:
    """Return the axes that Squeeze and ExpandDims name: in an array, or each by a separate number."""
    if axes := _list(applied, 3):
        return [moves.axis_of(axis, rank) for axis in axes]
    flags = (("w", 0), ("h", 1), ("d", 11), ("c", 2))
    return [_AXES[rank].index(axis) for axis, key in flags if _number(applied, key) and axis in _AXES[rank]]


def _squeeze(applied: Applied) -> Array:
    array = applied.input(0)
    axes = [axis for axis in _axes(applied, array.ndim) if array.shape[axis] == 1]
    if len(axes) == array.ndim:
        raise UnfitError("nothing would be left")
    return moves.squeeze(array, axes) if axes else array


def _expand(applied: Applied) -> Array:
    array = applied.input(0)
    if array.ndim > 3:
        raise UnfitError("five axes")
    axes = _axes(applied, array.ndim + 1)
    if len(axes) > 1:
        raise ChangesError("ExpandDims of several axes")
    return moves.unsqueeze(array, axes)


def _slice(applied: Applied) -> list[Array]:
    """Return the parts; one of -233 is as long as an equal share of what is left."""
    _refuse(applied, _ARRAYS - 2)
    array, sizes = applied.input(0), _list(applied, 0)
    axis = moves.axis_of(_number(applied, 1), array.ndim)
    if len(sizes) != applied.outputs:
        raise UnfitError(f"{len(sizes)} parts for {applied.outputs} blobs")
    left = array.shape[axis]
    lengths = []
    for place, size in enumerate(sizes):
        lengths.append(left // (len(sizes) - place) if size == _ABSENT else size)
        left -= lengths[-1]
    return moves.split(array, axis, lengths)


def _cast(applied: Applied) -> np.dtype[Any]:
    number = _number(applied, 1)
    if number not in _TYPES:
        raise ChangesError(f"Cast to type {number}")
    return _TYPES[number]


_DIALECT: Dialect = {
    "Split": Moves(_copies),
    "Noop": Moves(_copies, None),
    "Packing": SAME,  # packing.cpp: the same numbers in another order of the memory
    "Dropout": Moves(_dropout),
    "Reshape": Moves(_reshape),
    "Permute": Moves(_permute),
    "Squeeze": Moves(_squeeze),
    "ExpandDims": Moves(_expand),
    "Flatten": Moves(lambda applied: applied.input(0).reshape(-1)),
    "Slice": Moves(_slice),
    "Concat": Moves(
        lambda applied: moves.concatenate([applied.input(place) for place in range(len(applied.inputs))], _number(applied, 0)), None
    ),
    "Flip": Moves(lambda applied: moves.reverse(applied.input(0), _list(applied, 0))),
    "Cast": Casts(_cast),
}
