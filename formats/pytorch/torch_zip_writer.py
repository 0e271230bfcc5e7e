"""PyTorch's zip checkpoints, written piece by piece without PyTorch.

Source: torch/serialization.py (`_save`), caffe2/serialize/inline_container.cc, and the .ZIP
File Format Specification 6.3 (APPNOTE.TXT), 4.3 and 4.5.3.
"""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from collections.abc import Mapping
from typing import IO

import numpy as np

from rnnconvert.containers.files import replacing, write_pieces
from rnnconvert.core.arrays import Array, Pieced, nbytes
from rnnconvert.core.errors import UsageError
from rnnconvert.formats.pytorch.torch_values import NEWER, STORAGES

ALIGNMENT = 64
"""Each tensor begins at a multiple of this, as in PyTorch's own files, so that it can be mapped."""
ZIP64_FROM = 0xFFFFFFFF
"""From this size or offset on, zip64's 8-byte fields are used."""

_FOLDER = "archive"
_UTF8 = 0x0800
_DATE = 0x21  # the first day of 1980: equal content gives equal bytes

_STORAGE_NAMES = {dtype: kind for kind, dtype in STORAGES.items()}
_NEWER_NAMES = {dtype: name for name, dtype in NEWER.items()}


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array | Pieced]) -> None:
    """Write a file that `torch.load(path, weights_only=True)` opens as a state_dict, mapped or not.

    Raises UsageError if an element type or a name cannot be written, or the path cannot.
    """
    described = _pickle(path, arrays)
    with replacing(path) as file:
        archive = _Writer(file)
        archive.add("data.pkl", np.frombuffer(described, np.uint8))
        archive.add("byteorder", np.frombuffer(b"little", np.uint8))
        for index, array in enumerate(arrays.values()):
            archive.add(f"data/{index}", array)
        archive.add("version", np.frombuffer(b"3\n", np.uint8))
        archive.finish()


def _pickle(path: object, arrays: Mapping[str, Array | Pieced]) -> bytes:
    """Return the instructions that make an OrderedDict of tensors, each over a storage of its own."""
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


class _Writer:
    """A zip archive of aligned entries, none of them compressed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._at = 0
        self._entries: list[bytes] = []

    def add(self, name: str, array: Array | Pieced) -> None:
        """Write an entry; its checksum is put into its header afterwards."""
        label = f"{_FOLDER}/{name}".encode()
        size = nbytes(array)
        wide = struct.pack("<2H2Q", 1, 16, size, size) if size >= ZIP64_FROM else b""
        header = self._at
        data = header + 30 + len(label) + len(wide) + 4
        padding = -data % ALIGNMENT
        extra = wide + b"FB" + struct.pack("<H", padding) + b"Z" * padding
        short = 0xFFFFFFFF if wide else size
        common = struct.pack("<5H", 45 if wide else 20, _UTF8, 0, 0, _DATE)
        sizes = struct.pack("<2I", short, short)
        lengths = struct.pack("<2H", len(label), len(extra))
        self._file.write(b"PK\x03\x04" + common + bytes(4) + sizes + lengths + label + extra)
        checksum = 0

        def seen(piece: memoryview) -> None:
            nonlocal checksum
            checksum = zlib.crc32(piece, checksum)

        write_pieces(self._file, array, seen)
        self._at = data + padding + size
        if self._file.tell() != self._at:
            raise ValueError(f"{name}: an array of {size} bytes wrote {self._file.tell() - data - padding}")
        self._file.seek(header + 14)
        self._file.write(struct.pack("<I", checksum))
        self._file.seek(self._at)
        self._entries.append(self._central(label, common, checksum, size, header))

    def _central(self, label: bytes, common: bytes, checksum: int, size: int, header: int) -> bytes:
        wide = struct.pack("<2Q", size, size) if size >= ZIP64_FROM else b""
        short = 0xFFFFFFFF if wide else size
        if header >= ZIP64_FROM:
            wide += struct.pack("<Q", header)
        extra = struct.pack("<2H", 1, len(wide)) + wide if wide else b""
        return (
            b"PK\x01\x02"
            + struct.pack("<H", 45 if wide else 20)
            + (struct.pack("<H", 45) + common[2:] if wide else common)
            + struct.pack("<3I", checksum, short, short)
            + struct.pack("<5HI", len(label), len(extra), 0, 0, 0, 0)
            + struct.pack("<I", 0xFFFFFFFF if header >= ZIP64_FROM else header)
            + label
            + extra
        )

    def finish(self) -> None:
        """Write the directory of all entries."""
        directory = b"".join(self._entries)
        count, size, start = len(self._entries), len(directory), self._at
        self._file.write(directory)
        if start >= ZIP64_FROM or count >= 0xFFFF:
            end = start + size
            numbers = struct.pack("<2H2I4Q", 45, 45, 0, 0, count, count, size, start)
            self._file.write(b"PK\x06\x06" + struct.pack("<Q", 44) + numbers)
            self._file.write(b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1))
        short = min(count, 0xFFFF)
        place = 0xFFFFFFFF if start >= ZIP64_FROM else start
        self._file.write(b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, short, short, size, place, 0))
