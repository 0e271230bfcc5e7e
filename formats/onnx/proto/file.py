"""ONNX files: the model as a small message, the numbers as views of the mapped file.

`read` gives the model, `OnnxFile.tensor` the numbers of any of its tensors, `program.program` its graphs, and `write.write` writes one.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf import json_format, text_format

from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import map_file, shaped, view
from rnnconvert.containers.wire import NUMBERS, Schema, Slimming
from rnnconvert.containers.wire import field as wire_field
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.core.malformed import malformed
from rnnconvert.files.raw import check_bare

TEXT_SUFFIXES = (".onnxtxt", ".textproto", ".txtpb", ".pbtxt", ".prototxt")
JSON_SUFFIXES = (".json", ".onnxjson")

DTYPES: dict[int, np.dtype[Any]] = {
    onnx.TensorProto.FLOAT: np.dtype(np.float32),
    onnx.TensorProto.UINT8: np.dtype(np.uint8),
    onnx.TensorProto.INT8: np.dtype(np.int8),
    onnx.TensorProto.UINT16: np.dtype(np.uint16),
    onnx.TensorProto.INT16: np.dtype(np.int16),
    onnx.TensorProto.INT32: np.dtype(np.int32),
    onnx.TensorProto.INT64: np.dtype(np.int64),
    onnx.TensorProto.BOOL: np.dtype(np.bool_),
    onnx.TensorProto.FLOAT16: np.dtype(np.float16),
    onnx.TensorProto.DOUBLE: np.dtype(np.float64),
    onnx.TensorProto.UINT32: np.dtype(np.uint32),
    onnx.TensorProto.UINT64: np.dtype(np.uint64),
    onnx.TensorProto.BFLOAT16: BFLOAT16,
}
"""The element types that are read and written, by their number in TensorProto."""

# Numbers of fields: onnx.proto. float_data and double_data are packed as they lie in memory.
_RAW, _FLOATS, _DOUBLES, _EXTERNAL_DATA = 9, 4, 10, 13
_SCHEMA: Schema = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {_RAW: NUMBERS, _FLOATS: NUMBERS, _DOUBLES: NUMBERS},
}
_MARK = "rnnconvert:field:offset:length"
_AXES = 32
_PAGE = 1 << 16
"""The gap that writers may leave behind the last tensor, to begin the next one on a new page (onnx.proto, external_data)."""


@dataclass(frozen=True)
class OnnxFile:
    """An open ONNX file.

    path   where it is; external data is expected in the same folder
    model  everything but the large numbers; ask `tensor` for those
    data   the file's bytes, mapped
    """

    path: Path
    model: onnx.ModelProto
    data: Array
    _external: dict[str, Array] = field(default_factory=dict, repr=False)
    _sums: dict[str, str] = field(default_factory=dict, repr=False)

    def tensor(self, proto: onnx.TensorProto) -> Array:
        """Return the numbers of a tensor of this model, read-only: a view of a mapped file unless they are few.

        Raises UnreadableError if they are missing, not as many as the shape says, or of an unsupported type.
        """
        name = proto.name or "a tensor without a name"
        dtype = DTYPES.get(proto.data_type)
        if dtype is None:
            raise UnreadableError(self.path, f"{name!r} is of type {proto.data_type}, which is not supported")
        shape = tuple(proto.dims)
        if len(shape) > _AXES or min(shape, default=0) < 0 or proto.HasField("segment"):
            raise UnreadableError(self.path, f"{name!r} has an impossible shape: {shape[:_AXES]}")
        with malformed(lambda what: UnreadableError(self.path, f"{name!r} cannot have the shape {shape}: {what}")):
            if proto.data_location == onnx.TensorProto.EXTERNAL:
                return self._external_tensor(proto, shape, dtype, name)
            marks = [entry.value for entry in proto.external_data if entry.key == _MARK]
            if marks:
                return self._mapped(proto, marks, shape, dtype, name)
            return self._held(proto, shape, dtype, name)

    def restore(self, proto: onnx.TensorProto) -> None:
        """Put the numbers that were left in the mapped file back into a tensor, or into a copy of one."""
        for entry in [entry for entry in proto.external_data if entry.key == _MARK]:
            number, offset, length = map(int, entry.value.split(":"))
            data = self.data[offset : offset + length].tobytes()
            proto.external_data.remove(entry)
            if number == _RAW:
                proto.raw_data = data
            elif number == _FLOATS:
                proto.float_data.extend(np.frombuffer(data, "<f4"))
            else:
                proto.double_data.extend(np.frombuffer(data, "<f8"))

    def _mapped(self, proto: onnx.TensorProto, marks: list[str], shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
        number, offset, length = map(int, marks[-1].split(":"))
        standard = {_FLOATS: np.dtype(np.float32), _DOUBLES: np.dtype(np.float64)}.get(number, dtype)
        if standard != dtype or len(marks) > 1 or proto.raw_data or proto.float_data or proto.double_data:
            raise UnreadableError(self.path, f"the numbers of {name!r} are of two types or in two places")
        self._check_size(shape, dtype, length, name)
        return view(self.data, offset, shape, dtype, self.path, name)

    def _held(self, proto: onnx.TensorProto, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
        """Return numbers that are in the message itself, as raw bytes or in one of the typed lists."""
        if proto.HasField("raw_data"):
            self._check_size(shape, dtype, len(proto.raw_data), name)
            return shaped(np.frombuffer(proto.raw_data, dtype), shape, self.path, name)
        values, carrier = _typed(proto)
        self._check_size(shape, dtype, len(values) * dtype.itemsize, name)
        array: Array = np.array(values, carrier)
        if dtype in (BFLOAT16, np.float16):  # their bits, in the lower half of an int32
            array = array.astype(np.uint16).view(dtype)
        array = shaped(array.astype(dtype, copy=False), shape, self.path, name)
        array.flags.writeable = False
        return array

    def _external_tensor(self, proto: onnx.TensorProto, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
        entries = {entry.key: entry.value for entry in proto.external_data}
        location = entries.get("location", "")
        offset = _number(entries.get("offset", "0"))
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        length = _number(entries.get("length", str(size)))
        self._check_size(shape, dtype, length, name)
        if size == 0:
            return shaped(np.empty(0, dtype), shape, self.path, name)
        if location not in self._external:
            place = companion(self.path, location)
            if not os.path.isfile(place):  # noqa: PTH113  # a name that is too long names no file; Path.is_file raises
                raise UnreadableError(
                    self.path,
                    f"its numbers are in the file {location!r}, which is not next to it",
                    "Put it there: exporters write both, and a model is of no use without it.",
                )
            self._external[location] = map_file(place)
        if "checksum" in entries:
            self._check_sum(location, entries["checksum"], name)
        elif offset == 0 and dtype.kind == "f":  # numbers may lie in a file of another kind, behind what it begins with
            check_bare(self._external[location], self.path.parent / location)
        return view(self._external[location], offset, shape, dtype, self.path.parent / location, name)

    def _check_sum(self, location: str, stated: str, name: str) -> None:
        """Raise UnreadableError unless a file of external data has the SHA-1 that a tensor states (onnx.proto, external_data)."""
        if location not in self._sums:
            self._sums[location] = hashlib.sha1(self._external[location].data, usedforsecurity=False).hexdigest()
        if stated.strip().lower() != self._sums[location]:
            raise UnreadableError(
                self.path.parent / location,
                f"its SHA-1 is {self._sums[location]}, but {name!r} of {self.path.name} states {stated.strip()[:80]!r}",
                "It is damaged, or another model's; fetch both again, together.",
            )

    def spare(self) -> dict[str, tuple[int, int]]:
        """Return the files of external data that are longer than what this model reads: their bytes, and those that it states."""
        ends: dict[str, int] = {}
        for proto in self.model.graph.initializer:
            entries = {entry.key: entry.value for entry in proto.external_data}
            location = entries.get("location", "")
            if proto.data_location == onnx.TensorProto.EXTERNAL and location in self._external:
                offset, length = (entries.get(key, "0") for key in ("offset", "length"))
                end = _number(offset) + _number(length) if "length" in entries else self._external[location].size
                ends[location] = max(end, ends.get(location, 0))
        sizes = {location: (self._external[location].size, end) for location, end in ends.items()}
        return {location: pair for location, pair in sizes.items() if pair[0] > pair[1] + _PAGE}

    def _check_size(self, shape: tuple[int, ...], dtype: np.dtype[Any], actual: int, name: str) -> None:
        expected = dtype.itemsize
        for length in shape:
            expected *= length
        if expected != actual:
            raise UnreadableError(self.path, f"{name!r} of shape {shape} needs {expected} bytes of {dtype}, but {actual} are there")


_GRAPH_DEF = re.compile(rb"(?:\s|#[^\n]*\n)*node\s*:?\s*\{")
"""How a graph of TensorFlow begins as text."""
_HEAD = 4096


def read(path: str | os.PathLike[str]) -> OnnxFile:
    """Open an ONNX file: protobuf, its text form or JSON, by the file's suffix.

    Raises UnreadableError if it holds no model or is damaged.
    """
    data = map_file(path)
    suffix = Path(path).suffix.lower()
    try:
        if suffix in TEXT_SUFFIXES:
            model = text_format.Parse(data.tobytes(), onnx.ModelProto())
        elif suffix in JSON_SUFFIXES:
            model = json_format.Parse(data.tobytes(), onnx.ModelProto())
        else:
            model = onnx.ModelProto.FromString(Slimming(data.data, _SCHEMA, _mark, path).slim("Model"))
        _check_strings(path, model)
    except RnnConvertError:
        raise
    except Exception as error:  # three parsers, each with its own errors, RecursionError among them
        problem = str(error).rstrip(".") or type(error).__name__
        if suffix in TEXT_SUFFIXES and _GRAPH_DEF.match(data[:_HEAD].tobytes()):
            raise UnreadableError(
                path,
                "it is a graph of TensorFlow as text, and no ONNX file",
                "Write it as bytes, which are read, with TensorFlow: google.protobuf.text_format.Parse makes a tf.compat.v1.GraphDef of "
                "the text, and its SerializeToString() gives the bytes of a .pb file",
            ) from None
        raise UnreadableError(path, f"not a valid ONNX file: {problem}") from None
    if not model.HasField("graph"):
        raise UnreadableError(path, "not an ONNX model: it has no graph")
    return OnnxFile(Path(path), model, data)


def _mark(number: int, offset: int, length: int) -> bytes:
    """Return an entry of external_data, which is ignored unless data_location says EXTERNAL."""
    value = f"{number}:{offset}:{length}".encode()
    return wire_field(_EXTERNAL_DATA, wire_field(1, _MARK.encode()) + wire_field(2, value))


def _check_strings(path: object, message: Any) -> None:
    """Raise UnreadableError for strings that are not UTF-8.

    Some versions of the parser give them as bytes, and some fail when they are read.
    """
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_MESSAGE:
            for child in (value,) if hasattr(value, "ListFields") else value:
                _check_strings(path, child)
        elif descriptor.type == descriptor.TYPE_STRING:
            for text in (value,) if isinstance(value, (str, bytes)) else value:
                if not isinstance(text, str):
                    raise UnreadableError(path, f"the {descriptor.name} {text[:40]!r} is not UTF-8 text")


def _typed(proto: onnx.TensorProto) -> tuple[Any, type[np.generic]]:
    """Return the list that holds a tensor's numbers by their type, and the type of its elements."""
    kind = proto.data_type
    if kind == onnx.TensorProto.FLOAT:
        return proto.float_data, np.float32
    if kind == onnx.TensorProto.DOUBLE:
        return proto.double_data, np.float64
    if kind == onnx.TensorProto.INT64:
        return proto.int64_data, np.int64
    if kind in (onnx.TensorProto.UINT32, onnx.TensorProto.UINT64):
        return proto.uint64_data, np.uint64
    return proto.int32_data, np.int32


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text[:20]!r} is not an offset or length")
    return int(text)
