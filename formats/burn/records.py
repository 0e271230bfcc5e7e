"""Burn's own containers: records of named msgpack and of JSON, and Burnpack.

A record is a tree of modules by their fields. A parameter is its id and its tensor: bytes, shape and type; a setting of a module is
null. Burnpack is a header, a description in CBOR, and the bytes of the tensors.

Source: tracel-ai/burn, crates/burn-core/src/record (recorder.rs, primitive.rs, tensor.rs), burn-tensor's TensorData, and
crates/burn-store/src/burnpack/base.rs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from rnnconvert.containers import msgpack_file
from rnnconvert.containers.files import map_file, view
from rnnconvert.containers.json_file import read as read_json
from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import NESTING

BURNPACK = b"NRUB"
_HEADER = struct.Struct("<4sHI")
_VERSION, _ALIGNED = 1, 256
_TYPES: dict[str, Any] = {
    "F64": "<f8", "F32": "<f4", "Flex32": "<f4", "F16": "<f2", "BF16": BFLOAT16, "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "Bool": "?",
}  # fmt: skip


class BurnMetadata(TypedDict, total=False):
    """A record's statements on how it was written."""

    burn: dict[str, Any]


def begins_record(head: bytes) -> bool:
    """Return whether bytes begin as a record of named msgpack: a map of few entries, the first one "metadata"."""
    return head[:1] in (b"\x82", b"\x83") and head[1:10] == b"\xa8metadata"


def is_record(tree: Mapping[str, Any]) -> bool:
    """Return whether a tree is a record: metadata that names types and a format, and an item."""
    metadata = tree.get("metadata")
    return isinstance(metadata, dict) and {"float", "format", "version"} <= metadata.keys() and "item" in tree


def read_msgpack(path: Path) -> Stored:
    """Return the tensors of a record of named msgpack."""
    data, tree = msgpack_file.plain(path)

    def raw(value: Any) -> Array | None:
        is_range = isinstance(value, tuple)
        return data[value[0] : value[0] + value[1]] if is_range else None

    return _record(path, tree, raw)


def read_pretty(path: Path) -> Stored:
    """Return the tensors of a record of JSON."""

    def raw(value: Any) -> Array | None:
        if not isinstance(value, list) or not all(type(byte) is int and 0 <= byte < 256 for byte in value):
            return None
        return np.array(value, np.uint8)

    return _record(path, read_json(path), raw)


def _record(path: Path, tree: Any, raw: Callable[[Any], Array | None]) -> Stored:
    if not isinstance(tree, dict) or not is_record(tree):
        raise UnreadableError(path, "it is not a record: it has no metadata with a version, or no item")
    arrays = dict(_tensors(path, tree["item"], raw, "", 0))
    return Stored(arrays, BurnMetadata(burn=tree["metadata"]))


def _tensors(path: Path, tree: Any, raw: Callable[[Any], Array | None], above: str, depth: int) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a tree by their paths, as a model's parameters are called."""
    if depth > NESTING:
        raise UnreadableError(path, f"its modules are nested more than {NESTING} deep")
    if isinstance(tree, list):
        tree = {str(place): item for place, item in enumerate(tree)}
    if not isinstance(tree, dict):
        return
    charging(0).work(1 + len(tree), path)
    if {"value", "shape"} == tree.keys():
        raise UnreadableError(path, "it is a record of Burn before 0.14", "Load and save it with Burn 0.14 to 0.16 first.")
    if {"bytes", "shape", "dtype"} <= tree.keys():
        yield above, _tensor(path, above, tree, raw)
        return
    parameter = {"id", "param"} == tree.keys()
    for key, value in tree.items():
        if parameter and key == "param":
            name = above
        elif above:
            name = f"{above}.{key}"
        else:
            name = str(key)
        yield from _tensors(path, value, raw, name, depth + 1)


def _tensor(path: Path, name: str, description: Mapping[str, Any], raw: Callable[[Any], Array | None]) -> Array:
    data, dtype = raw(description["bytes"]), description["dtype"]
    lengths = description["shape"]
    shape = [*lengths.values()] if isinstance(lengths, dict) else lengths
    if data is None or not isinstance(shape, list) or not all(type(length) is int for length in shape):
        raise UnreadableError(path, f"{name!r} is not a tensor of bytes and a shape")
    return _array(path, name, data, (dtype, shape))


def _array(path: Path, name: str, data: Array, description: tuple[Any, list[int]]) -> Array:
    kind, shape = description
    if not isinstance(kind, str) or kind not in _TYPES:
        kind_name = next(iter(kind), "none") if isinstance(kind, dict) else kind
        raise UnreadableError(path, f"{name!r} is of type {kind_name}, which is not read", "Save the model without quantization.")
    array = view(data, 0, tuple(shape), np.dtype(_TYPES[kind]), path, name)
    if array.nbytes != data.size:
        raise UnreadableError(path, f"{name!r} of shape {tuple(shape)} has {data.size} bytes, not {array.nbytes}")
    return array


# Burnpack --------------------------------------------------------------------------------------------------------


def read_burnpack(path: Path) -> Stored:
    """Return the tensors of a Burnpack file."""
    data = map_file(path)
    if data.size < _HEADER.size:
        raise UnreadableError(path, f"it has {data.size} bytes, fewer than a Burnpack's header")
    magic, version, size = _HEADER.unpack(data[: _HEADER.size].tobytes())
    if magic != BURNPACK or version != _VERSION:
        raise UnreadableError(path, f"it begins with {magic!r} and version {version}, not as a Burnpack file of version {_VERSION}")
    start = _HEADER.size + size
    if start > data.size:
        raise UnreadableError(path, f"its description should be {size} bytes, but the file has {data.size}")
    reader = _Cbor(data[_HEADER.size : start], path)
    header = reader.value()
    described = header.get("tensors") if isinstance(header, dict) else None
    if not isinstance(described, dict):
        raise UnreadableError(path, "its description has no tensors")
    places: dict[str, tuple[int, int]] = {}
    for name, entry in described.items():
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(at) is int for at in offsets) or offsets[1] < offsets[0]:
            raise UnreadableError(path, f"the tensor {name!r} has no place in the file")
        places[str(name)] = offsets[0], offsets[1]
    end = max((stop for _, stop in places.values()), default=0)
    # The first files have no padding before the tensors; both are version 1, and their lengths tell them apart.
    aligned = start + -start % _ALIGNED
    begin = next((candidate for candidate in (aligned, start) if candidate + end == data.size), None)
    if begin is None and places:
        raise UnreadableError(path, f"its tensors end at byte {aligned + end}, but the file has {data.size} bytes")
    arrays = {}
    for name, (first, stop) in places.items():
        entry = described[name]
        shape = entry.get("shape")
        if not isinstance(shape, list) or not all(type(length) is int for length in shape):
            raise UnreadableError(path, f"the tensor {name!r} has no shape")
        arrays[name] = _array(path, name, data[(begin or 0) + first : (begin or 0) + stop], (entry.get("dtype"), shape))
    metadata = header.get("metadata")
    return Stored(arrays, BurnMetadata(burn=metadata if isinstance(metadata, dict) else {}))


class _Cbor:
    """CBOR as ciborium writes it: whole numbers, texts, lists and maps. Source: RFC 8949."""

    def __init__(self, data: Array, path: object) -> None:
        self.data, self.path, self.at = data.tobytes(), path, 0
        self.reading = charging(data.size)

    def _fail(self, problem: str) -> UnreadableError:
        return UnreadableError(self.path, f"its description is damaged: {problem} at byte {self.at}")

    def _take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise self._fail(f"{size} bytes are announced, but {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def value(self, depth: int = 0) -> Any:
        """Return the value that begins here."""
        if depth > NESTING:
            raise self._fail(f"values are nested more than {NESTING} deep")
        self.reading.work(1, self.path)
        first = self._take(1)[0]
        kind, small = first >> 5, first & 31
        if kind == 7:
            if small in (20, 21, 22):
                return (False, True, None)[small - 20]
            raise self._fail(f"a simple value {small}")
        if small > 27:
            raise self._fail("a value of no length")
        number = small if small < 24 else int.from_bytes(self._take(1 << (small - 24)), "big")
        if kind == 0:
            return number
        if kind in (2, 3):
            content = self._take(number)
            try:
                return content.decode() if kind == 3 else content
            except UnicodeDecodeError:
                raise self._fail("text that is not UTF-8") from None
        if kind not in (4, 5) or number > len(self.data) - self.at:
            raise self._fail(f"a value of kind {kind} with {number} parts")
        if kind == 4:
            return [self.value(depth + 1) for _ in range(number)]
        result = {}
        for _ in range(number):
            key = self.value(depth + 1)
            if not isinstance(key, str) or key in result:
                raise self._fail("a key that is not a text, or twice there")
            result[key] = self.value(depth + 1)
        return result
