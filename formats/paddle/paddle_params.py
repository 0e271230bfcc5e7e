"""Paddle's .pdparams: a pickle of a dictionary of numpy's arrays, read as data and written without Paddle.

Source: python/paddle/framework/io.py (3.3.1), _legacy_save and _pickle_save (a tensor in any other structure than a plain
dictionary is pickled as its name and its numbers), _parse_load_result. bfloat16 is stored as the uint16 of its bits.
"""

from __future__ import annotations

import itertools
import os
import pickle
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rnnconvert.containers import pickles
from rnnconvert.containers.files import map_file, replacing, write_pieces
from rnnconvert.containers.numpy_values import numpy_value
from rnnconvert.containers.pickle_values import Foreign
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import BFLOAT16, Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.limits import ENTRIES, PICKLED_NESTING
from rnnconvert.core.names import add, checked_name

NAMES = "StructuredToParameterName@@"
"""The entry with Paddle's own name for each parameter."""
_PARTED = "UnpackBigParamInfor@@"
_BITS = {BFLOAT16: np.dtype("<u2")}


class PaddleMetadata(FileMetadata, total=False):
    """The metadata of a file: the names that its program gives the arrays, and the keys of arrays that stand in a list."""

    names: dict[str, Any]
    listed: Any


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a pickle of the protocols 2 to 4 that makes a dictionary."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04") and b"}" in head[:16]


def read(path: str | os.PathLike[str]) -> Stored:
    """Return every array by its name, in inner dictionaries with a dot between; no code of the file runs.

    metadata has "unreadable" (why something is left out) and "names" (Paddle's own names of the parameters).

    Raises UnreadableError.
    """
    data = map_file(path)
    root, end = pickles.load(data, path, most=data.size)
    if not isinstance(root, dict) or end != data.size:
        raise UnreadableError(path, "it is not a pickle of one dictionary, as paddle.save writes")
    if _PARTED in root:
        raise UnreadableError(
            path,
            "it holds arrays in parts, as Paddle writes those over 1 GiB by the pickle protocols 2 and 3",
            "Save it again with paddle.save(..., protocol=4).",
        )
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    for name, value in _leaves(root, "", 0, itertools.count(), path):
        array = numpy_value(value) if isinstance(value, Foreign) else None
        if array is None:
            unreadable[name] = f"it is not an array but {_called(value)}"
        else:
            add(arrays, name, array.view(BFLOAT16) if array.dtype == np.uint16 else array, path)
    return Stored(arrays, PaddleMetadata(unreadable=unreadable, names=root.get(NAMES, {})))


def _leaves(value: Any, name: str, depth: int, counter: Iterator[int], path: object) -> Iterator[tuple[str, Any]]:
    """Yield the values at the ends of dictionaries and lists, without plain numbers and texts."""
    if next(counter) > ENTRIES:
        raise UnreadableError(path, f"it has more than {ENTRIES} entries")
    checked_name(name, path)
    if depth > PICKLED_NESTING or value is None or isinstance(value, str | bytes | int | float):
        return
    pair = isinstance(value, list | tuple) and len(value) == 2
    if pair and isinstance(value[0], str) and isinstance(value[1], Foreign):
        yield name, value[1]  # what Paddle calls the tensor, and its numbers
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != NAMES:
                yield from _leaves(inner, f"{name}.{key}" if name else str(key), depth + 1, counter, path)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{name}.{place}" if name else str(place), depth + 1, counter, path)
    else:
        yield name, value


def _called(value: Any) -> str:
    return f"an object made by {value.made_by}" if isinstance(value, Foreign) else f"a {type(value).__name__}"


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Write a file that paddle.load reads as a state_dict; equal arrays give equal bytes.

    Raises UsageError if an element type or a name cannot be written, or the path cannot.
    """
    heads = [_head(path, name, array) for name, array in arrays.items()]
    with replacing(path) as file:
        file.write(pickle.PROTO + b"\x04" + pickle.EMPTY_DICT + pickle.MARK)
        for head, array in zip(heads, arrays.values(), strict=True):
            file.write(head)
            write_pieces(file, array)
            file.write(pickle.TUPLE + pickle.BUILD)
        file.write(pickle.SETITEMS + pickle.STOP)


def _head(path: object, name: str, array: Array | PiecewiseArray) -> bytes:
    """Return the instructions that make an array and its name, up to its numbers.

    Source: the __reduce__ of ndarray in numpy/_core/src/multiarray; its older module name is known to every numpy.
    """
    dtype = _BITS.get(array.dtype, array.dtype.newbyteorder("<"))
    if dtype.kind not in "biufc":
        raise UsageError(f"{path}: a Paddle file cannot hold {name!r} of type {array.dtype}")
    try:
        text = name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{path}: the name {name!r} is not valid text") from None
    order = b"|" if dtype.itemsize == 1 else b"<"
    kind = f"{dtype.kind}{dtype.itemsize}".encode()
    shape = b"".join(_number(length) for length in array.shape)
    return b"".join(
        [
            _text(text),
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR(K\x01(",
            shape + b"t",
            b"cnumpy\ndtype\n(" + _text(kind) + b"\x89\x88tR(K\x03" + _text(order) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89" + pickle.BINBYTES8 + struct.pack("<Q", nbytes(array)),
        ]
    )


def _text(text: bytes) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(text)) + text


def _number(value: int) -> bytes:
    return pickle.LONG1 + b"\x08" + struct.pack("<q", value)
