"""The protobuf wire format, as far as it takes to leave large numbers in the file and to write them there.

A model of many gigabytes is mostly the raw data of its tensors. `slim` copies everything else,
so that the ordinary parser reads a small message, and leaves a mark where the numbers lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rnnconvert.containers.reading import charging
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import MESSAGE_NESTING

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


_CHARGED = 1024
"""After how many fields their work is charged."""
LARGE = 4096
"""Fields of more bytes than this are left in the file."""

NUMBERS = ""
"""Stands in a schema for a field that is numbers as they lie in memory."""

Schema: TypeAlias = Mapping[str, Mapping[int, str]]
"""By message and field number: the child's message, or NUMBERS; other fields are absent."""


def text_of(content: memoryview, path: object) -> str:
    """Return a text. Raises UnreadableError for bytes that are not UTF-8."""
    try:
        return bytes(content).decode()
    except UnicodeDecodeError:
        raise UnreadableError(path, f"{bytes(content[:40])!r} is not valid text") from None


def varint(value: int) -> bytes:
    """Return an unsigned number, seven bits to a byte, least significant first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def prefix(number: int, length: int) -> bytes:
    """Return the bytes before a length-delimited field."""
    return varint(number << 3 | LENGTH_DELIMITED) + varint(length)


def field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return prefix(number, len(content)) + content


def fields(data: memoryview, path: object) -> Iterator[tuple[int, memoryview]]:
    """Yield the length-delimited fields of a message: number and content.

    Raises UnreadableError if the bytes are not a message.
    """
    for number, begin, stop in Slimming(data, {}, lambda *_: b"", path).delimited():
        yield number, data[begin:stop]


def values(data: memoryview, path: object) -> Iterator[tuple[int, int | memoryview]]:
    """Yield every field of a message: its number, and an unsigned number or the content of a length-delimited field.

    Raises UnreadableError if the bytes are not a message.
    """
    walk = Slimming(data, {}, lambda *_: b"", path)
    for number, kind, _, begin, stop in walk.every(0, len(data)):
        if kind == LENGTH_DELIMITED:
            yield number, data[begin:stop]
        elif kind == VARINT:
            yield number, walk.varint(begin, stop)[0]
        else:
            yield number, int.from_bytes(data[begin:stop], "little")


def signed(value: int | memoryview, bits: int = 64) -> int:
    """Return an unsigned number read as one in two's complement: protobuf's int32 and int64."""
    number = value if isinstance(value, int) else 0
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> bits - 1 else number


@dataclass(frozen=True)
class Slimming:
    """A walk over one message.

    data    the bytes
    schema  which fields hold large numbers
    mark    what to put in place of numbers, from their field number, offset and length
    path    the file, for errors
    """

    data: memoryview
    schema: Schema
    mark: Callable[[int, int, int], bytes]
    path: object

    def slim(self, root: str) -> bytes:
        """Return a copy of the message without its large numbers.

        Raises UnreadableError if a field reaches outside its message or the nesting is too deep.
        """
        return b"".join(self._parts(root, 0, len(self.data), 0))

    def _parts(self, message: str, start: int, end: int, depth: int) -> list[bytes | memoryview]:
        if depth > MESSAGE_NESTING:
            raise UnreadableError(self.path, f"messages are nested more than {MESSAGE_NESTING} deep")
        children = self.schema[message]
        parts: list[bytes | memoryview] = []
        copied = start
        for number, tag, begin, stop in self._large_fields(start, end):
            child = children.get(number)
            if child is None:
                continue
            parts.append(self.data[copied:tag])
            if child == NUMBERS:
                parts.append(self.mark(number, begin, stop - begin))
            else:
                inner = self._parts(child, begin, stop, depth + 1)
                parts.append(prefix(number, sum(map(len, inner))))
                parts += inner
            copied = stop
        parts.append(self.data[copied:end])
        return parts

    def delimited(self) -> Iterator[tuple[int, int, int]]:
        """Yield the length-delimited fields of the outermost message: the number, and where the content and what follows begin."""
        for number, _, begin, stop in self._fields(0, len(self.data)):
            yield number, begin, stop

    def _large_fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield large length-delimited fields: the number, and where the tag, the content and what follows begin."""
        return (field_ for field_ in self._fields(start, end) if field_[3] - field_[2] > LARGE)

    def _fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        for number, kind, tag_at, begin, stop in self.every(start, end):
            if kind == LENGTH_DELIMITED:
                yield number, tag_at, begin, stop

    def every(self, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield every field: its number and wire type, and where its tag, its content and what follows begin."""
        at, count = start, 0
        reading = charging(len(self.data))
        while at < end:
            count += 1
            if count % _CHARGED == 0:
                reading.work(_CHARGED, self.path)
            tag_at = at
            tag, at = self.varint(at, end)
            begin, kind = at, tag & 7
            if tag < 1 << 3:
                raise UnreadableError(self.path, f"not a protobuf message: field 0 at byte {tag_at}")
            if kind == LENGTH_DELIMITED:
                length, begin = self.varint(at, end)
                if length > end - begin:
                    raise UnreadableError(
                        self.path,
                        f"field {tag >> 3} at byte {tag_at} should be {length} bytes, not {end - begin}",
                        "The file is truncated or damaged; fetch it again.",
                    )
                at = begin + length
            elif kind == VARINT:
                _, at = self.varint(at, end)
            elif kind in (FIXED64, FIXED32):
                at += 8 if kind == FIXED64 else 4
            else:
                raise UnreadableError(self.path, f"not a protobuf message: wire type {kind} at byte {tag_at}")
            if at > end:
                raise UnreadableError(self.path, f"the field at byte {tag_at} reaches beyond its message")
            yield tag >> 3, kind, tag_at, begin, at

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return the unsigned number at a byte, and where what follows it begins."""
        value = 0
        for index in range(min(10, end - at)):
            byte = self.data[at + index]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, at + index + 1
        raise UnreadableError(self.path, f"not a protobuf number at byte {at}")
