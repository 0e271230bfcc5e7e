"""FlatBuffers: tables of fields that a file need not have, read where they lie, and written front to back.

Source: flatbuffers' docs, "FlatBuffer Internals". A table begins with the distance back to its vtable; this has its own length, the
table's, and for each field where it stands in the table, or 0. A vector begins with its length. Every place is checked against the
file before it is read.

A table that is written is a dictionary: its fields' numbers, and for each a Number, a text, an array, a list of tables or a table. What
a table refers to stands behind it, as the format wants it. First it is settled where everything lies, so that no array is held in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

from rnnconvert.containers.files import replacing, write_pieces
from rnnconvert.containers.reading import Reading, charging, map_file
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.limits import NAME_BYTES
from rnnconvert.core.remedies import Flag


class FlatBuffer:
    """A file of one root table."""

    def __init__(self, path: Path) -> None:
        """Map a file. Raises UnreadableError if it cannot be opened."""
        self.path = path
        self.data = map_file(path)
        self.reading: Reading = charging(self.data.size)

    def root(self) -> Table:
        """Return the first table. Raises UnreadableError if it lies outside of the file."""
        return Table(self, self.number(0, "I"))

    def number(self, place: int, code: str) -> Any:
        """Return a number of one of struct's types at a place."""
        size = struct.calcsize(code)
        return struct.unpack("<" + code, self.bytes(place, size).tobytes())[0]

    def bytes(self, place: int, count: int) -> Array:
        """Return some bytes of the file, which are not copied. Raises UnreadableError if the file ends before."""
        if place < 0 or count < 0 or place + count > self.data.size:
            self.damaged(f"it refers to {count} bytes at {place}, but ends at {self.data.size}")
        return self.data[place : place + count]

    def damaged(self, what: str) -> NoReturn:
        """Raise UnreadableError."""
        raise UnreadableError(self.path, what)


class Table:
    """A table at a place of a file; its fields are asked for by their numbers."""

    def __init__(self, file: FlatBuffer, place: int) -> None:
        file.reading.work(1, file.path)
        self._file, self._place = file, place
        self._fields = place - file.number(place, "i")
        self._count = (file.number(self._fields, "H") - 4) // 2
        self._size = file.number(self._fields + 2, "H")
        file.bytes(place, self._size)

    def _where(self, field: int, size: int) -> int:
        """Return the place of a field of that size; 0 if the table does not have it."""
        if field >= self._count:
            return 0
        inside = self._file.number(self._fields + 4 + 2 * field, "H")
        if inside and inside + size > self._size:
            self._file.damaged(f"field {field} of the table at {self._place} lies outside of it")
        return self._place + inside if inside else 0

    def __contains__(self, field: int) -> bool:
        return bool(self._where(field, 1))

    def fields(self) -> list[int]:
        """Return the fields that the table has."""
        self._file.reading.work(max(self._count, 0), self._file.path)
        return [field for field in range(self._count) if field in self]

    def number(self, field: int, code: str, default: Any = 0) -> Any:
        """Return a number of one of struct's types."""
        place = self._where(field, struct.calcsize(code))
        return self._file.number(place, code) if place else default

    def _target(self, field: int) -> int:
        place = self._where(field, 4)
        return place + self._file.number(place, "I") if place else 0

    def table(self, field: int) -> Table | None:
        """Return another table, or None."""
        place = self._target(field)
        return Table(self._file, place) if place else None

    def vector(self, field: int, dtype: str) -> Array:
        """Return a vector of numbers where it lies; an empty one if the table has none."""
        place, kind = self._target(field), np.dtype(dtype)
        if not place:
            return np.zeros(0, kind)
        count = self._file.number(place, "I")
        return self._file.bytes(place + 4, count * kind.itemsize).view(kind)

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables."""
        place = self._target(field)
        steps = self.vector(field, "<u4").tolist()
        self._file.reading.work(len(steps), self._file.path)
        return [Table(self._file, place + 4 + 4 * index + step) for index, step in enumerate(steps)]

    def text(self, field: int) -> str:
        """Return a text, of a long one the beginning."""
        characters = self.vector(field, "u1")[:NAME_BYTES]
        self._file.reading.work(len(characters) // 16, self._file.path)
        return characters.tobytes().decode("utf-8", "replace")


LARGEST = (1 << 31) - 1
"""Places are counted in 32 bits, and runtimes take them for signed ones."""
_ALIGNED = 16
"""Arrays begin at multiples of this: the runtimes' kernels want it so."""


class Number(NamedTuple):
    """A number in a table: struct's code of its type, and its value."""

    code: str
    value: Any


Fields = Mapping[int, Any]


def write(path: Path, identifier: bytes, root: Fields, dry_run: bool = False) -> None:
    """Write a file. Raises RefusedError if it would be larger than the format can be, for a dry run too."""
    laid = _Laid()
    place = laid.table(root)
    laid.settle()
    if laid.size > LARGEST:
        raise RefusedError(
            f"{laid.size} bytes of weights",
            "this format",
            "its places are counted in 31 bits, so that a file ends at 2 GiB",
            f"Take one of several layers with {Flag('layer')}, or another format.",
        )
    if not dry_run:
        with replacing(path) as file:
            laid.write(file, struct.pack("<I", place) + identifier)


class _Laid:
    """Everything of a file with its place.

    parts  what is written, in order: its place, and bytes or an array
    holes  where a place is still to be filled in: in which part, where in it, and by which object's place
    """

    def __init__(self) -> None:
        self.size = 8  # the root's place and the identifier
        self.parts: list[tuple[int, Any]] = []
        self.holes: list[tuple[int, int, int]] = []
        self.waiting: list[tuple[Any, int, int]] = []

    def _add(self, content: Any, count: int, align: int, before: int = 0) -> int:
        """Append something that begins at a multiple of `align` after `before` bytes of it; return its place."""
        self.size += -(self.size + before) % align
        place = self.size
        self.parts.append((place, content))
        self.size += count
        return place

    def table(self, fields: Fields) -> int:
        """Append a table with its vtable; return its place. What it refers to waits."""
        count = max(fields, default=-1) + 1
        places, inside = [0] * count, 4
        for field, value in fields.items():
            size = struct.calcsize(value.code) if isinstance(value, Number) else 4
            inside += -inside % size
            places[field] = inside
            inside += size
        inside += -inside % 4
        head = struct.pack(f"<{count + 2}H", 4 + 2 * count, inside, *places)
        head += bytes(-len(head) % 8)
        body = bytearray(inside)
        struct.pack_into("<i", body, 0, len(head))
        for field, value in fields.items():
            if isinstance(value, Number):
                struct.pack_into("<" + value.code, body, places[field], value.value)
        start = self._add(bytearray(head) + body, len(head) + inside, 8)
        part = len(self.parts) - 1
        for field, value in fields.items():
            if not isinstance(value, Number):
                self.waiting.append((value, part, len(head) + places[field]))
        return start + len(head)

    def settle(self) -> None:
        """Append everything that waits, and fill in where it lies."""
        while self.waiting:
            value, part, inside = self.waiting.pop(0)
            self.holes.append((part, inside, self._value(value)))
        for part, inside, target in self.holes:
            place, content = self.parts[part]
            struct.pack_into("<I", content, inside, target - place - inside)

    def _value(self, value: Any) -> int:
        if isinstance(value, Mapping):
            return self.table(value)
        if isinstance(value, str):
            encoded = value.encode()
            return self._add(bytearray(struct.pack("<I", len(encoded)) + encoded + b"\0"), len(encoded) + 5, 4)
        if isinstance(value, list):
            content = bytearray(struct.pack("<I", len(value)) + bytes(4 * len(value)))
            place = self._add(content, len(content), 4)
            part = len(self.parts) - 1
            self.waiting += [(element, part, 4 + 4 * index) for index, element in enumerate(value)]
            return place
        array: np.ndarray[Any, Any] | PiecewiseArray = value
        place = self._add(bytearray(struct.pack("<I", int(np.prod(array.shape)) * _unit(array))), 4, _ALIGNED, 4)
        self._add(array, nbytes(array), 1)
        return place

    def write(self, file: IO[bytes], head: bytes) -> None:
        """Write everything in its place, after the file's first bytes."""
        file.write(head)
        done = len(head)
        for place, content in self.parts:
            file.write(bytes(place - done))
            if isinstance(content, bytearray):
                file.write(content)
                done = place + len(content)
            else:
                write_pieces(file, content)
                done = place + nbytes(content)


def _unit(array: Any) -> int:
    """Return how many elements of its vector one element of an array is: weights lie in vectors of bytes."""
    return int(array.dtype.itemsize) if array.dtype.kind == "f" else 1
