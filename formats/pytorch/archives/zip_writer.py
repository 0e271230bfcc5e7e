"""PyTorch's zip checkpoints, written piece by piece without PyTorch.

Source: torch/serialization.py (`_save`) and caffe2/serialize/inline_container.cc.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Mapping

from rnnconvert.containers.files import replacing
from rnnconvert.containers.stored_zip import StoredZip
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import UsageError
from rnnconvert.formats.pytorch.archives.values import NEWER, STORAGES

_FOLDER = "archive"

_STORAGE_NAMES = {dtype: kind for kind, dtype in STORAGES.items()}
_NEWER_NAMES = {dtype: name for name, dtype in NEWER.items()}


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Write a file that `torch.load(path, weights_only=True)` opens as a state_dict, mapped or not.

    Raises UsageError if an element type or a name cannot be written, or the path cannot.
    """
    described = _pickle(path, arrays)
    with replacing(path) as file:
        archive = StoredZip(file)
        archive.add(f"{_FOLDER}/data.pkl", described)
        archive.add(f"{_FOLDER}/byteorder", b"little")
        for index, array in enumerate(arrays.values()):
            archive.add(f"{_FOLDER}/data/{index}", array)
        archive.add(f"{_FOLDER}/version", b"3\n")
        archive.finish()


def _pickle(path: object, arrays: Mapping[str, Array | PiecewiseArray]) -> bytes:
    """Return the instructions that make an OrderedDict of tensors, each over a separate storage."""
    parts = [pickle.PROTO + b"\x02", _global("collections", "OrderedDict"), b")R("]
    for index, (name, array) in enumerate(arrays.items()):
        dtype = array.dtype.newbyteorder("=")
        newer = _NEWER_NAMES.get(dtype)
        kind = _STORAGE_NAMES.get(dtype)
        if newer is None and kind is None:
            raise UsageError(f"{path}: a PyTorch file cannot hold {name!r} of type {array.dtype}")
        size = nbytes(array) if newer else nbytes(array) // dtype.itemsize
        module = "torch.storage" if newer else "torch"
        try:
            parts.append(_text(name))
        except UnicodeEncodeError:
            raise UsageError(f"{path}: the name {name!r} is not valid text") from None
        parts += [
            _global("torch._utils", "_rebuild_tensor_v3" if newer else "_rebuild_tensor_v2"),
            b"((" + _text("storage"),
            _global(module, kind or "UntypedStorage"),
            _text(str(index)) + _text("cpu") + _number(size) + b"tQ",
            _number(0) + _numbers(array.shape) + _numbers(_strides(array.shape)),
            pickle.NEWFALSE + _global("collections", "OrderedDict") + b")R",
            _global("torch", newer) if newer else b"",
            b"tR",
        ]
    return b"".join([*parts, b"u."])


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for length in reversed(shape[1:]):
        strides.append(strides[-1] * max(1, length))
    return tuple(reversed(strides))[: len(shape)]


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    data = text.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(data)) + data


def _number(value: int) -> bytes:
    if value < 1 << 31:
        return pickle.BININT + struct.pack("<i", value)
    data = pickle.encode_long(value)
    return pickle.LONG1 + bytes([len(data)]) + data


def _numbers(values: tuple[int, ...]) -> bytes:
    return pickle.MARK + b"".join(_number(value) for value in values) + pickle.TUPLE
