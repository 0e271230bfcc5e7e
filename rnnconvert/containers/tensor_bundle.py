"""TensorFlow's checkpoints of version 2: an index of variables, and the data files that hold their numbers.

model.ckpt.index is a table (rnnconvert.containers.sorted_table) from a variable's name to its type, shape and place in
model.ckpt.data-00000-of-00001. A partitioned variable has an entry that says so, and one for each of its slices.

Sources: tensorflow/core/protobuf/tensor_bundle.proto; tensorflow/core/util/tensor_bundle/tensor_bundle.cc, naming.h;
tensorflow/core/framework/types.proto; util/saved_tensor_slice_util.cc, EncodeTensorNameSlice; lib/strings/ordered_code.cc.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import sorted_table, wire
from rnnconvert.containers.checksums import Crc32c
from rnnconvert.containers.companions import companion
from rnnconvert.containers.crc32c import crc32c, masked
from rnnconvert.containers.data_files import replacing_both
from rnnconvert.containers.files import lowered, map_file, view, write_pieces
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import BFLOAT16, Array, PiecewiseArray
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.limits import AXES

SUFFIX = ".index"
TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("f4"), 2: np.dtype("f8"), 3: np.dtype("i4"), 4: np.dtype("u1"), 5: np.dtype("i2"), 6: np.dtype("i1"),
    8: np.dtype("c8"), 9: np.dtype("i8"), 10: np.dtype("?"), 14: BFLOAT16, 17: np.dtype("u2"), 18: np.dtype("c16"),
    19: np.dtype("f2"), 22: np.dtype("u4"), 23: np.dtype("u8"),
}  # fmt: skip
"""Element types by TensorFlow's number for them."""
_STRING = 7


_PART = re.compile(r"(.*)\.(?:data-\d{5}-of-\d{5}|meta)", re.S)


def index_beside(path: Path) -> Path | None:
    """Return where the index of a checkpoint should be, for one of its other files; None for any other name."""
    match = _PART.fullmatch(path.name)
    return path.parent / f"{match[1]}{SUFFIX}" if match else None


def index_of(path: Path) -> Path | None:
    """Return the index of a checkpoint: a file of that ending, the only one in a folder (or of a SavedModel that has lost its graph),
    or that of a name without the ending, or of another of its files."""
    if path.is_dir():
        without = not (path / "saved_model.pb").exists()
        inside = sorted(path.glob(f"*{SUFFIX}")) or (sorted(path.glob(f"variables/variables{SUFFIX}")) if without else [])
        return inside[0] if len(inside) == 1 else None
    index = path if lowered(path).name.endswith(SUFFIX) else path.parent / f"{path.name}{SUFFIX}"
    implied = index_beside(path)
    return next((candidate for candidate in (index, implied) if candidate is not None and candidate.is_file()), None)


def names(index: Path) -> list[str]:
    """Return the names of a checkpoint's variables, from its index alone. Raises UnreadableError."""
    table = sorted_table.read(map_file(index).data, index)
    return [key.decode("utf-8", "replace") for key in table if key and not key.startswith(b"\0")]


@dataclass
class _BundleEntry:
    """The index entry of one variable, or of one slice of it."""

    dtype: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0
    slices: list[tuple[tuple[int, int], ...]] = field(default_factory=list)


def read(index: Path) -> Stored:
    """Return every variable by its name, as views of the mapped files; metadata "unreadable" gives the reason for each one left out.

    Texts of one element are in the metadata "texts".

    Raises UnreadableError for damaged files, naming the variable.
    """
    table = sorted_table.read(map_file(index).data, index)
    if b"" not in table:
        raise UnreadableError(index, "its index has no header, which names the data files")
    header = dict(wire.values(table[b""], index))
    if header.get(2):
        raise UnreadableError(index, "it was written by a big-endian machine")
    shards = _Shards(index, wire.signed(header.get(1, 0), 32))
    entries = {key: _entry(value, key, index) for key, value in table.items() if key}
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    texts: dict[str, bytes] = {}
    for key, entry in entries.items():
        if key.startswith(b"\0"):
            continue  # a slice
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise UnreadableError(index, f"the name {key!r} is not valid text") from None
        if entry.dtype == _STRING and not entry.shape:
            texts[name] = _text(shards.content(entry, name), index, name)
        elif entry.dtype not in TYPES:
            unreadable[name] = f"elements of TensorFlow's type {entry.dtype} are not supported"
        elif entry.slices:
            arrays[name] = _joined(entry, key, entries, shards, name)
        else:
            arrays[name] = shards.array(entry, name)
    return Stored(arrays, FileMetadata(unreadable=unreadable, texts=texts))


class _Shards:
    """The files that the numbers of a checkpoint lie in, mapped when they are asked for."""

    def __init__(self, index: Path, count: int) -> None:
        if not 0 < count < 100_000:
            raise UnreadableError(index, f"its index claims {count} data files")
        self.index, self.count = index, count
        self._files: dict[int, tuple[Path, Array]] = {}

    def _file(self, number: int) -> tuple[Path, Array]:
        if not 0 <= number < self.count:
            raise UnreadableError(self.index, f"it refers to data file {number} of {self.count}")
        if number not in self._files:
            stem = self.index.name[: -len(SUFFIX)]
            path = companion(self.index, f"{stem}.data-{number:05d}-of-{self.count:05d}")
            self._files[number] = path, map_file(path, empty=True)  # of variables without elements alone
        return self._files[number]

    def content(self, entry: _BundleEntry, name: str) -> Array:
        """Return the bytes of an entry. Raises UnreadableError if they are not those that were written."""
        path, data = self._file(entry.shard)
        content = view(data, entry.offset, (entry.size,), np.dtype("u1"), path, name)
        if entry.dtype != _STRING and masked(crc32c(content)) != entry.crc:
            raise UnreadableError(path, f"the checksum of {name!r} is wrong", "Fetch the file again.")
        return content

    def array(self, entry: _BundleEntry, name: str) -> Array:
        """Return the numbers of an entry."""
        dtype = TYPES[entry.dtype]
        if math.prod(entry.shape) * dtype.itemsize != entry.size:
            raise UnreadableError(self.index, f"{name!r} has the shape {entry.shape} of {dtype}, but {entry.size} bytes")
        self.content(entry, name)
        path, data = self._file(entry.shard)
        return view(data, entry.offset, entry.shape, dtype, path, name)


def _entry(value: memoryview, key: bytes, path: Path) -> _BundleEntry:
    entry = _BundleEntry()
    for number, content in wire.values(value, path):
        if isinstance(content, memoryview):
            if number == 2:
                entry.shape = shape_of(content, key, path)
            elif number == 7:
                entry.slices.append(_extents(content, path))
        elif number in (1, 3, 4, 5, 6):
            setattr(entry, {1: "dtype", 3: "shard", 4: "offset", 5: "size", 6: "crc"}[number], content)
    return entry


def shape_of(content: memoryview, key: object, path: Path) -> tuple[int, ...]:
    """Return the shape in a TensorShapeProto."""
    axes = [dict(wire.values(axis, path)) for number, axis in wire.values(content, path) if isinstance(axis, memoryview)]
    lengths = tuple(wire.signed(axis.get(1, 0)) for axis in axes)
    if len(lengths) > AXES or any(length < 0 for length in lengths):
        raise UnreadableError(path, f"{key!r} has the shape {lengths[:9]}")
    return lengths


def _extents(content: memoryview, path: Path) -> tuple[tuple[int, int], ...]:
    """Return the start and length of each axis of a TensorSliceProto; the length -1 stands for the whole axis."""
    extents = []
    for _, axis in wire.values(content, path):
        fields = dict(wire.values(axis, path)) if isinstance(axis, memoryview) else {}
        extents.append((wire.signed(fields.get(1, 0)), wire.signed(fields[2]) if 2 in fields else -1))
    return tuple(extents)


def _joined(entry: _BundleEntry, key: bytes, entries: Mapping[bytes, _BundleEntry], shards: _Shards, name: str) -> Array:
    """Return a partitioned variable. The keys of its slices begin with its name, and are in the order of their places."""
    start = b"\0" + key + b"\0\1"
    slices = [entries[label] for label in sorted(label for label in entries if label.startswith(start))]
    places = sorted(entry.slices)
    problem = f"the slices of {name!r} do not fit together"
    if len(slices) != len(places) or any(len(place) != len(entry.shape) for place in places):
        raise UnreadableError(shards.index, problem)
    sizes = sum(math.prod(piece.shape) for piece in slices)
    if sizes != math.prod(entry.shape) or any(piece.dtype != entry.dtype for piece in slices):
        raise UnreadableError(shards.index, problem)
    parts = [shards.array(piece, name) for piece in slices]  # proves that so many numbers are there
    result = np.zeros(entry.shape, TYPES[entry.dtype])
    filled = np.zeros(entry.shape, bool)
    for place, part in zip(places, parts, strict=True):
        window = tuple(slice(at, None if length < 0 else at + length) for at, length in place)
        if any(at < 0 for at, _ in place) or result[window].shape != part.shape:
            raise UnreadableError(shards.index, problem)
        result[window] = part
        filled[window] = True
    if not filled.all():
        raise UnreadableError(shards.index, problem)
    return result


def _text(content: Array, path: Path, name: str) -> bytes:
    """Return a text from its length, a checksum of that, and its bytes."""
    data = content.tobytes()
    for begin in range(1, min(10, len(data)) + 1):
        if data[begin - 1] < 0x80:
            length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[:begin]))
            if begin + 4 + length == len(data):
                return data[begin + 4 :]
    raise UnreadableError(path, f"the text {name!r} is damaged")


def data_beside(index: Path) -> Path:
    """Return the one data file of a checkpoint that `write` writes."""
    return Path(str(index)[: -len(SUFFIX)] + ".data-00000-of-00001")


def write(index: Path, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Write a checkpoint that TensorFlow 1 and 2 load: the index, and one data file.

    Raises UsageError if nothing can be written there, or if TensorFlow lacks an element type.
    """
    data_path = data_beside(index)
    numbers = {dtype: number for number, dtype in TYPES.items()}
    keyed = {}
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("=")
        if not name or name.startswith("\0") or dtype not in numbers:
            raise UsageError(f"{index}: a TensorFlow checkpoint cannot hold {name!r} of type {array.dtype}")
        keyed[name.encode()] = array
    # BundleHeaderProto: one file, little-endian, the first version
    entries = [(b"", wire.varint(1 << 3) + wire.varint(1) + wire.field(3, wire.varint(1 << 3) + wire.varint(1)))]
    with replacing_both(index, data_path) as (file, data):
        for key, array in sorted(keyed.items()):
            begin, check = data.tell(), Crc32c()
            write_pieces(data, array, check)
            shape = b"".join(wire.field(2, wire.varint(1 << 3) + wire.varint(length)) for length in array.shape)
            fields = {1: numbers[array.dtype.newbyteorder("=")], 4: begin, 5: data.tell() - begin}
            content = b"".join(wire.varint(number << 3) + wire.varint(value) for number, value in fields.items() if value)
            fixed = wire.varint(6 << 3 | wire.FIXED32) + struct.pack("<I", masked(check.value))
            entries.append((key, content + wire.field(2, shape) + fixed))
        file.write(sorted_table.build(entries))
