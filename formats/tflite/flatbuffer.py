"""FlatBuffers: tables of fields that a file need not have, read where they lie.

Source: flatbuffers' docs, "FlatBuffer Internals". A table begins with the distance back to its vtable; this has its own length, the
table's, and for each field where it stands in the table, or 0. A vector begins with its length. Every place is checked against the
file before it is read.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from rnnconvert.containers.reading import Reading, charging, map_file
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import NAME_BYTES


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
