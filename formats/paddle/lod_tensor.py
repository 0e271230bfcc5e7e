"""Paddle's tensors, each after a header: one to a file (fluid.io.save_params), or one after the other (`.pdiparams`).

Source: paddle/fluid/framework/{lod_tensor,tensor_util}.cc (1.8), SerializeToStream and TensorToStream; framework.proto,
VarType.Type and VarType.TensorDesc. Everything is little-endian.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import map_file, view
from rnnconvert.containers.reading import open_regular
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import UnreadableError, unreadable
from rnnconvert.core.limits import FOLDER_FILES
from rnnconvert.formats.paddle.paddle_params import PaddleMetadata

_START = struct.pack("<IQI", 0, 0, 0)
"""The beginning of a parameter's file: two versions, and no levels of lengths between them."""
_LARGEST_DESCRIPTION = 1024
_TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype(np.bool_),
    1: np.dtype("<i2"),
    2: np.dtype("<i4"),
    3: np.dtype("<i8"),
    4: np.dtype("<f2"),
    5: np.dtype("<f4"),
    6: np.dtype("<f8"),
    20: np.dtype("u1"),
    21: np.dtype("i1"),
    22: BFLOAT16,
}


def looks_like(path: Path) -> bool:
    """Return whether a file begins as a parameter's does."""
    try:
        with open_regular(path) as file:
            return file.read(len(_START)) == _START
    except (OSError, UnreadableError):
        return False


def read_folder(path: str | os.PathLike[str]) -> Stored:
    """Return the arrays of a folder by the names of their files; metadata "unreadable" names the other files.

    Raises UnreadableError if the folder cannot be listed, or a parameter's file is damaged.
    """
    try:
        files = sorted(file for file in Path(path).iterdir() if file.is_file())
    except OSError as error:
        raise unreadable(path, error) from None
    if len(files) > FOLDER_FILES:
        raise UnreadableError(path, f"it has {len(files)} files, more than the limit of {FOLDER_FILES}")
    for file in files:
        companion(files[0], file.name)
    arrays = {file.name: read(file) for file in files if looks_like(file)}
    others = {file.name: "it is not the file of a parameter" for file in files if file.name not in arrays}
    return Stored(arrays, PaddleMetadata(unreadable=others))


def read(path: Path) -> Array:
    """Return the array of a file, as a view of its map. Raises UnreadableError."""
    data = map_file(path)
    tensor, end = _tensor(data, 0, path, path.name)
    if end != data.size:
        raise UnreadableError(path, f"a tensor of the shape {tensor.shape} ends before the file does")
    return tensor


def read_all(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return the arrays of a file of several, as views of its map: Paddle stores them in the order of their names.

    shapes  what the program states of each

    Raises UnreadableError if the file has others.
    """
    data, at = map_file(path), 0
    arrays: dict[str, Array] = {}
    for name in sorted(shapes):
        if at == data.size:
            raise UnreadableError(path, f"it has {len(arrays)} tensors, but its program has {len(shapes)} parameters")
        tensor, at = _tensor(data, at, path, name)
        if tensor.shape != shapes[name]:
            raise UnreadableError(
                path,
                f"its tensor number {len(arrays)} has the shape {tensor.shape}, but the parameter {name!r} of its program has "
                f"{shapes[name]}",
                "Give the program and the parameters of one model.",
            )
        arrays[name] = tensor
    if at != data.size:
        raise UnreadableError(path, f"it goes on after the {len(arrays)} parameters of its program")
    return arrays


def _tensor(data: Array, at: int, path: Path, name: str) -> tuple[Array, int]:
    """Return the array whose header begins at a place, and where it ends. Raises UnreadableError."""
    if bytes(data[at : at + len(_START)]) != _START:
        raise UnreadableError(path, f"{name!r} does not begin as a tensor of Paddle's does")
    at += len(_START)
    if data.size < at + 4:
        raise UnreadableError(path, "it ends in its header", "The file is truncated or damaged; fetch it again.")
    (length,) = struct.unpack("<i", bytes(data[at : at + 4]))
    at += 4
    if not 0 < length <= min(_LARGEST_DESCRIPTION, data.size - at):
        raise UnreadableError(path, f"its header claims {length} bytes for the description of the tensor")
    dtype, shape = _described(bytes(data[at : at + length]), path)
    at += length
    return view(data, at, shape, dtype, path, name), at + math.prod(shape) * dtype.itemsize


def described(text: bytes, path: Path) -> tuple[int, list[int]]:
    """Return the number of the element type and the shape in a description of a tensor; a length that is open is -1.

    Raises UnreadableError.
    """
    kind, lengths = _fields(text, path)
    return kind, [length - (1 << 64) if length >> 63 else length for length in lengths]


def _described(text: bytes, path: Path) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the element type and shape in a TensorDesc. Raises UnreadableError."""
    kind, lengths = _fields(text, path)
    if kind not in _TYPES:
        raise UnreadableError(path, f"its elements are of the unknown type {kind}")
    if len(lengths) > 32 or math.prod(max(length, 1) for length in lengths) > 1 << 56:
        raise UnreadableError(path, f"its header has the shape {tuple(lengths[:32])}")
    return _TYPES[kind], tuple(lengths)


def _fields(text: bytes, path: Path) -> tuple[int, list[int]]:
    """Return the number of the element type and the lengths; these may be one field each, or one field for all."""
    kind, lengths = -1, list[int]()
    at = 0
    while at < len(text):
        tag, at = _varint(text, at, path)
        if tag == 1 << 3:
            kind, at = _varint(text, at, path)
        elif tag == 2 << 3:
            length, at = _varint(text, at, path)
            lengths.append(length)
        elif tag == 2 << 3 | 2:
            size, at = _varint(text, at, path)
            end = at + size
            while at < end:
                length, at = _varint(text, at, path)
                lengths.append(length)
        else:
            raise UnreadableError(path, f"its header has the unknown field {tag >> 3}")
    return kind, lengths


def _varint(text: bytes, at: int, path: Path) -> tuple[int, int]:
    """Return a number stored seven bits to a byte, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(text):
            break
        value |= (text[at] & 0x7F) << shift
        at += 1
        if text[at - 1] < 0x80:
            return value, at
    raise UnreadableError(path, "a number in its header is truncated")
