"""One node of a TensorFlow graph: its operation, inputs and attributes."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import wire
from rnnconvert.containers.files import shaped
from rnnconvert.containers.tensor_bundle import TYPES, shape_of
from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import REPEATED_NUMBERS
from rnnconvert.core.malformed import Entries

_VALUES = {13: "<u2", 5: "<f4", 6: "<f8", 7: "", 10: "", 11: ""}
"""TensorProto's fields of numbers: bits of half floats, float, double, and varints of int, int64 and truths."""


@dataclass(frozen=True)
class GraphDefNode:
    """A node: its operation, the nodes that it reads ("name" or "name:1"; "^name" waits for one), its attributes.

    stored  the numbers of a constant that are kept apart from the graph; None where the graph has them
    """

    path: Path
    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: dict[str, memoryview] = field(repr=False)
    stored: Array | None = field(default=None, repr=False)

    @property
    def read(self) -> tuple[str, ...]:
        """The values that it reads, without the nodes that it only waits for."""
        return Entries(name for name in self.inputs if not name.startswith("^"))

    def number(self, key: str, default: float) -> float:
        """Return an attribute that is a number, a truth or an element type, or the operation's default where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 4 and isinstance(value, int):
                return float(struct.unpack("<f", struct.pack("<I", value))[0])
            if which in (3, 5, 6):
                return wire.signed(value)
        return default

    def integers(self, key: str) -> list[int]:
        """Return an attribute that is a list of whole numbers, or of types; empty where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 1 and isinstance(value, memoryview):
                fields = [(number, packed) for number, packed in wire.values(value, self.path) if number in (3, 6)]
                return [wire.signed(number) for _, packed in fields for number in _varints(packed, self)]
        return []

    def type(self, key: str) -> int:
        """Return an attribute that is an element type, by its number in types.proto; 0 where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 6 and isinstance(value, int):
                return value
        return 0

    def called(self, key: str) -> str:
        """Return the name of the function that an attribute is, or ""."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 10 and isinstance(value, memoryview):
                name = dict(wire.values(value, self.path)).get(1)
                return wire.text_of(name, self.path) if isinstance(name, memoryview) else ""
        return ""

    def shape(self, key: str) -> list[int] | None:
        """Return an attribute that is a shape or a list that begins with one, -1 for an axis of any length; None where it is left
        out or of any rank."""
        content = self.attributes.get(key, memoryview(b""))
        listed = [value for which, value in wire.values(content, self.path) if which == 1 and isinstance(value, memoryview)]
        for which, value in wire.values(listed[0] if listed else content, self.path):
            if which == 7 and isinstance(value, memoryview):
                fields = list(wire.values(value, self.path))
                if any(number == 3 and part for number, part in fields):
                    return None
                axes = [dict(wire.values(part, self.path)) for number, part in fields if number == 2 and isinstance(part, memoryview)]
                return [wire.signed(axis.get(1, 0)) for axis in axes]
        return None

    def text(self, key: str) -> str:
        """Return an attribute that is text; "" where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which == 2 and isinstance(value, memoryview):
                return wire.text_of(value, self.path)
        return ""

    def texts(self, key: str) -> list[str]:
        """Return an attribute that is a list or a tensor of texts; empty where it is left out."""
        for which, value in wire.values(self.attributes.get(key, memoryview(b"")), self.path):
            if which in (1, 8) and isinstance(value, memoryview):
                place = 2 if which == 1 else 8
                listed = [text for number, text in wire.values(value, self.path) if number == place and isinstance(text, memoryview)]
                return [wire.text_of(text, self.path) for text in listed]
        return []

    @cached_property
    def tensor(self) -> Array | None:
        """The numbers of a constant, as a view where it has them as bytes; None if it has none that are understood."""
        if self.stored is not None:
            return self.stored
        for which, value in wire.values(self.attributes.get("value", memoryview(b"")), self.path):
            if which == 8 and isinstance(value, memoryview):
                return _tensor(value, self)
        return None


def _tensor(content: memoryview, node: GraphDefNode) -> Array | None:
    """Return a TensorProto. Fewer numbers than its shape asks for: the last one stands for the rest."""
    fields = dict(wire.values(content, node.path))
    number, lengths = fields.get(1, 0), fields.get(2, memoryview(b""))
    dtype = TYPES.get(number) if isinstance(number, int) else None
    if dtype is None or not isinstance(lengths, memoryview):
        return None
    shape = shape_of(lengths, node.name, node.path)
    if math.prod(max(length, 1) for length in shape) > REPEATED_NUMBERS:
        raise UnreadableError(node.path, f"{node.name!r} has the shape {shape[:9]}, larger than any constant")
    raw = fields.get(4)
    if isinstance(raw, memoryview) and len(raw):
        if len(raw) != math.prod(shape) * dtype.itemsize:
            raise UnreadableError(node.path, f"{node.name!r} has the shape {shape} of {dtype}, but {len(raw)} bytes")
        return shaped(np.frombuffer(raw, dtype), shape, node.path, node.name)
    if not any(which > 3 and (not isinstance(value, memoryview) or len(value)) for which, value in fields.items()):
        return np.broadcast_to(np.zeros((), dtype), shape)  # nothing at all stands for zeros
    numbers = _numbers(fields, dtype, node)
    if numbers is None or numbers.size not in (1, math.prod(shape)):
        return np.zeros(shape, dtype) if numbers is None and 0 in shape else None
    return np.broadcast_to(numbers.reshape(()) if numbers.size == 1 else numbers.reshape(shape), shape)


def _numbers(fields: dict[int, int | memoryview], dtype: np.dtype[Any], node: GraphDefNode) -> Array | None:
    """Return the numbers that a TensorProto has one by one, packed or not."""
    which = next((number for number in _VALUES if number in fields), 0)
    value = fields.get(which)
    if which in (5, 6):
        raw = bytes(value) if isinstance(value, memoryview) else int(value or 0).to_bytes(4 if which == 5 else 8, "little")
        item = np.dtype(_VALUES[which])
        return np.frombuffer(raw, item).astype(dtype) if len(raw) % item.itemsize == 0 else None
    if (which in (7, 10) and dtype.kind == "i") or (which == 11 and dtype.kind == "b"):
        return np.array([wire.signed(varint) for varint in _varints(value, node)], dtype)
    if which == 13 and dtype.itemsize == 2:
        return np.array([varint & 0xFFFF for varint in _varints(value, node)], np.uint16).view(dtype)
    return None


def _varints(value: int | memoryview | None, node: GraphDefNode) -> list[int]:
    if not isinstance(value, memoryview):
        return [value or 0]
    walk, at, numbers = wire.Slimming(value, {}, lambda *_: b"", node.path), 0, []
    while at < len(value):
        number, at = walk.varint(at, len(value))
        numbers.append(number)
    return numbers
