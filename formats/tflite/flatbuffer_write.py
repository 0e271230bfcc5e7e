"""FlatBuffers, written front to back: first where everything lies, then the bytes, so that no array is held in memory.

A table is a dictionary: its fields' numbers, and for each a Number, a text, an array, a list of tables or a table. What a table
refers to stands behind it, as the format wants it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from rnnconvert.containers.files import replacing, write_pieces
from rnnconvert.core.arrays import PiecewiseArray, nbytes
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Flag

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
