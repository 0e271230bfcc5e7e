"""BSON.jl's files of Julia's values, written."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnconvert.containers.archives import nested
from rnnconvert.containers.files import replacing
from rnnconvert.core.arrays import Array, PiecewiseArray, pieces
from rnnconvert.core.errors import UsageError
from rnnconvert.core.names import is_count
from rnnconvert.core.remedies import Flag
from rnnconvert.formats.julia.julia_bson import LARGEST, import_bson
from rnnconvert.formats.julia.julia_tree import ELEMENTS, below

_LONGEST = 4096
"""The longest tuple that is written."""


def write(path: str | os.PathLike[str], leaves: Mapping[str, Any]) -> None:
    """Write a file that BSON.load reads: nested named tuples, and tuples where the names are numbers.

    leaves  arrays by their paths; numbers, booleans and None; (), the empty tuple, and {}, the empty named tuple

    Raises UsageError for values that such a file cannot hold, or if nothing can be written there.
    """
    bson = import_bson()
    tree = nested(leaves)
    document = {name: _lower(bson, value, name)[1] for name, value in tree.items()}
    data = bson.encode(document)
    if len(data) > LARGEST:
        raise UsageError(f"{path}: a BSON document has at most {LARGEST} bytes, but this has {len(data)}. Write an .npz")
    with replacing(path) as file:
        file.write(data)


def _lower(bson: Any, value: Any, where: str) -> tuple[dict[str, Any], Any]:
    """Return the type of a value and the value, as BSON.jl lowers them."""
    if isinstance(value, dict):
        value = _counted(value)
        lowered = [_lower(bson, item, below(where, name)) for name, item in value.items()]
        types, data = [kind for kind, _ in lowered], [item for _, item in lowered]
        together = _type("Tuple", types)
        if value and list(value) == [str(number) for number in range(1, len(value) + 1)]:
            return together, {"tag": "tuple", "data": data}
        names = {"tag": "tuple", "data": [{"tag": "symbol", "name": name} for name in value]}
        kind = _type("NamedTuple", [names, together])
        return kind, {"tag": "struct", "type": kind, "data": data}
    if isinstance(value, tuple) and not value:
        return _type("Tuple", []), {"tag": "tuple", "data": []}
    if value is None or isinstance(value, bool):
        return _type("Nothing" if value is None else "Bool", []), value
    if isinstance(value, int):
        return _type("Int64", []), bson.Int64(value)
    return _lower_array(bson, value, where)


def _counted(value: dict[str, Any]) -> dict[str, Any]:
    """Put the places of a tuple into order, with the empty tuple where none is given; values by name stay unchanged."""
    if not all(is_count(name) and 0 < int(name) <= _LONGEST for name in value):
        return value
    return {str(number): value.get(str(number), ()) for number in range(1, max(map(int, value), default=0) + 1)}


def _lower_array(bson: Any, value: Array | PiecewiseArray, where: str) -> tuple[dict[str, Any], Any]:
    kind = next((name for name, dtype in ELEMENTS.items() if dtype == value.dtype.newbyteorder("<")), None)
    if kind is None or kind == "BFloat16":  # which package it is of differs from version to version
        raise UsageError(f"{where!r} is of the type {value.dtype}, which these files cannot hold. Use {Flag('dtype', 'float32')}")
    element = _type(kind, [])
    size = [bson.Int64(length) for length in value.shape]
    data = _contiguous(value).astype(ELEMENTS[kind], copy=False).tobytes(order="F")
    lowered = {"tag": "array", "type": element, "size": size, "data": data}
    return _type("Array", [element, bson.Int64(len(value.shape))]), lowered


def _contiguous(value: Array | PiecewiseArray) -> Array:
    """Return all of an array, assembled piece by piece."""
    flat = np.empty(math.prod(value.shape), value.dtype)
    at = 0
    for piece in pieces(value):
        flat[at : at + piece.size] = piece
        at += piece.size
    return flat.reshape(value.shape)


def _type(name: str, parameters: list[Any]) -> dict[str, Any]:
    return {"tag": "datatype", "name": ["Core", name], "params": parameters}
