"""safetensors files and folders of them, read as views of the mapped file and written piece by piece.

Our own code, because the library's writer needs every tensor in memory, whole.
Source: https://github.com/huggingface/safetensors, README, "Format", and `safetensors/src/tensor.rs`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from rnnconvert.containers import json_text
from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import lowered, map_file, replacing, view, write_pieces
from rnnconvert.containers.shards import check
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import BFLOAT16, Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.limits import HEADER_BYTES

DTYPES: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
    "BOOL": np.dtype(np.bool_),
    "C64": np.dtype("<c8"),
}
"""Element types by their name in the header; tensors of other types are unreadable."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read(path: str | os.PathLike[str]) -> Stored:
    """Return the tensors of a file, of a sharded checkpoint's index, or of the folder of either.

    metadata has "__metadata__" (the file's own, text by name), "unreadable" (why a tensor is not
    among the arrays) and, for a sharded checkpoint, "index" (what its index says apart from the names).

    Raises UnreadableError.
    """
    source = Path(path)
    if source.is_dir():
        source = _in_folder(source)
    return _read_sharded(source) if lowered(source).suffix == ".json" else _read_file(source)


def _in_folder(folder: Path) -> Path:
    for pattern in ("*.safetensors.index.json", "*.safetensors"):
        matches = sorted(folder.glob(pattern))
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(file.name for file in matches[:5])
            problem = f"the folder has {len(matches)} files {pattern} ({names})"
            raise UnreadableError(folder, problem, "Give the path of one of them.")
    raise UnreadableError(folder, "it is a folder without a safetensors file")


def _read_file(path: Path) -> Stored:
    data = map_file(path)
    start = 8 + _header_length(data, path)
    header = _json_object(bytes(data[8:start]), path)
    notes = header.pop("__metadata__", None)
    if notes is None:  # MLX writes null
        notes = {}
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise UnreadableError(path, "its __metadata__ is not text by name")
    body = data[start:]
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    extents = []
    for name, entry in header.items():
        code, shape, begin, end = _entry(name, entry, path)
        extents.append((begin, end, name))
        dtype = DTYPES.get(code)
        if end > body.size:
            raise UnreadableError(
                path,
                f"{name!r} should end at byte {start + end}, but the file has {data.size}",
                "The file is truncated or damaged; fetch it again.",
            )
        if dtype is None:
            unreadable[name] = f"elements of type {code} are not supported"
            continue
        if end - begin != math.prod(shape) * dtype.itemsize:
            text = f"{name!r} of {code} {list(shape)[:8]} cannot have {end - begin} bytes"
            raise UnreadableError(path, text)
        arrays[name] = view(body, begin, shape, dtype, path, name)
    _check_extents(sorted(extents), body.size, path)
    return Stored(arrays, {"__metadata__": notes, "unreadable": unreadable})


def _header_length(data: Array, path: object) -> int:
    length = int.from_bytes(bytes(data[:8]), "little")
    if data.size < 8 or length > min(HEADER_BYTES, data.size - 8):
        raise UnreadableError(
            path, f"a header of {length} bytes is announced, but the file has {data.size}", "It is truncated, or not a safetensors file."
        )
    return length


def _json_object(text: bytes, path: object) -> dict[str, Any]:
    try:
        value = json_text.loads(text.decode("utf-8"), path)
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(path, f"its JSON cannot be read: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise UnreadableError(path, f"its JSON is a {type(value).__name__}, not an object")
    if any("\ud800" <= letter <= "\udfff" for name in value for letter in name if not name.isascii()):
        raise UnreadableError(path, "a name in its JSON is not valid text")
    return value


def _entry(name: str, entry: Any, path: object) -> tuple[str, tuple[int, ...], int, int]:
    """Return a tensor's type, shape, and first and last byte, checked for their types."""
    if isinstance(entry, dict):
        code: Any = entry.get("dtype")
        shape: Any = entry.get("shape")
        offsets: Any = entry.get("data_offsets")
        if isinstance(code, str) and _are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2:
            begin, end = offsets
            if begin <= end and len(shape) <= 32:
                return code, tuple(shape), begin, end
    raise UnreadableError(path, f"the header has no type, shape and two offsets for {name[:200]!r}")


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _check_extents(extents: list[tuple[int, int, str]], size: int, path: object) -> None:
    at = 0
    for begin, end, name in extents:
        if begin != at:
            kind = "overlaps the tensor before it" if begin < at else "leaves a hole before it"
            raise UnreadableError(path, f"{name!r} {kind} (at byte {begin} of the data, expected {at})")
        at = end
    if at != size:
        raise UnreadableError(path, f"its tensors end at byte {at} of the data, but there are {size} bytes")


def _read_sharded(index: Path) -> Stored:
    if map_file(index).size > HEADER_BYTES:
        raise UnreadableError(index, f"an index of more than {HEADER_BYTES} bytes")
    content = _json_object(bytes(map_file(index)), index)
    names = content.pop("weight_map", None)
    if not isinstance(names, dict) or not names:
        raise UnreadableError(index, "it has no weight_map, so it is not the index of a sharded checkpoint")
    shards: dict[str, Stored] = {}
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    notes: dict[str, str] = {}
    for name, shard in names.items():
        if not isinstance(shard, str) or not _is_plain_name(shard):
            raise UnreadableError(index, f"it names the shard {shard!r}, which is not a file in the same folder")
        if shard not in shards:
            file = companion(index, shard)
            if not file.is_file():
                raise UnreadableError(index, f"the shard {shard!r} is missing", "Put all the shards into the same folder.")
            shards[shard] = _read_file(file)
            notes.update(shards[shard].metadata_as(FileMetadata)["__metadata__"])
        stored = shards[shard]
        if name in stored.metadata_as(FileMetadata)["unreadable"]:
            unreadable[name] = stored.metadata_as(FileMetadata)["unreadable"][name]
        elif name not in stored.arrays:
            raise UnreadableError(index, f"{name!r} is not in the shard {shard!r}")
        else:
            arrays[name] = stored.arrays[name]
    if not unreadable:
        there = {shard: stored.arrays for shard, stored in shards.items()}
        check(index, content, names, there, sum(array.nbytes for array in arrays.values()))
    return Stored(arrays, {"__metadata__": notes, "unreadable": unreadable, "index": content})


def _is_plain_name(name: str) -> bool:
    plain = PurePosixPath(name).name == name and PureWindowsPath(name).name == name
    return plain and name not in ("", ".", "..") and "\0" not in name


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array | PiecewiseArray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a file that every safetensors reader accepts; equal content gives equal bytes.

    The widest elements go first, so that each tensor is aligned to its element.

    Raises UsageError if an element type or a name cannot be written, or the path cannot.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    end = 0
    for name in order:
        array = arrays[name]
        code = _NAMES.get(array.dtype.newbyteorder("<")) if array.dtype != BFLOAT16 else "BF16"
        if code is None or name == "__metadata__":
            raise UsageError(f"{path}: a safetensors file cannot hold {name!r} of type {array.dtype}")
        begin, end = end, end + nbytes(array)
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [begin, end]}
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{path}: a name or note is not valid text: {error.object[:80]!r}") from None
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_BYTES:
        raise UsageError(f"{path}: the names of {len(order)} tensors do not fit a safetensors header")
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            write_pieces(file, arrays[name])
