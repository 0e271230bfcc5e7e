"""A protobuf message of Core ML as its fields by number; nothing is copied, and what is not asked for is not parsed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from rnnconvert.containers import wire
from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError

Value = int | memoryview


class Message:
    """A message: its fields by their numbers. A field that it lacks is zero, or empty, as in proto3."""

    def __init__(self, data: memoryview, path: object) -> None:
        """Find the fields. Raises UnreadableError if the bytes are not a message."""
        self.path = path
        self.fields: dict[int, list[Value]] = {}
        charging(len(data)).work(1, path)
        for number, value in wire.values(data, path):
            self.fields.setdefault(number, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self.fields

    def every(self, number: int) -> Iterator[Message]:
        """Yield the messages of a repeated field."""
        for content in self.contents(number):
            yield Message(content, self.path)

    def one(self, number: int) -> Message | None:
        """Return the message in a field."""
        content = self.content(number)
        return None if content is None else Message(content, self.path)

    def within(self, *numbers: int) -> Message | None:
        """Return the message that is reached through fields of fields."""
        found: Message | None = self
        for number in numbers:
            found = None if found is None else found.one(number)
        return found

    def contents(self, number: int) -> list[memoryview]:
        """Return the contents of a field of messages, texts or bytes. Raises UnreadableError for a number there."""
        found = self.fields.get(number, [])
        if not all(isinstance(one, memoryview) for one in found):
            raise UnreadableError(self.path, f"field {number} is a number, where a message or a text was expected")
        return [one for one in found if isinstance(one, memoryview)]

    def content(self, number: int) -> memoryview | None:
        """Return the content of a field that is there once; the last one counts."""
        found = self.contents(number)
        return found[-1] if found else None

    def number(self, number: int) -> int:
        """Return a whole number without a sign."""
        found = self.fields.get(number, [0])[-1]
        if not isinstance(found, int):
            raise UnreadableError(self.path, f"field {number} is not a number")
        return found

    def real(self, number: int) -> float:
        """Return a number of 32 bits."""
        return float(struct.unpack("<f", struct.pack("<I", self.number(number) & 0xFFFFFFFF))[0])

    def text(self, number: int) -> str:
        """Return a text."""
        return decoded(self.content(number) or memoryview(b""), self.path)

    def texts(self, number: int) -> list[str]:
        """Return the texts of a repeated field."""
        return [decoded(one, self.path) for one in self.contents(number)]

    def entries(self, number: int) -> Iterator[tuple[str, Message]]:
        """Yield the keys and values of a map from texts to messages."""
        for entry in self.every(number):
            yield entry.text(1), entry.one(2) or Message(memoryview(b""), self.path)

    def whole(self, number: int) -> list[int]:
        """Return the signed whole numbers of a repeated field, packed or one by one."""
        found: list[int] = []
        for one in self.fields.get(number, []):
            if isinstance(one, int):
                found.append(wire.signed(one))
                continue
            at, walk = 0, wire.Slimming(one, {}, lambda *_: b"", self.path)
            charging(len(one)).work(len(one), self.path)
            while at < len(one):
                value, at = walk.varint(at, len(one))
                found.append(wire.signed(value))
        return found

    def reals(self, number: int) -> Array:
        """Return the float32 numbers of a repeated field: a view where they lie in one piece."""
        found = self.fields.get(number, [])
        pieces = [one for one in found if isinstance(one, memoryview)]
        if any(len(one) % 4 for one in pieces):
            raise UnreadableError(self.path, f"field {number} holds {len(pieces[-1])} bytes, which are not float32 numbers")
        if len(found) == 1 and pieces:
            return np.frombuffer(pieces[0], "<f4")
        charging(0).memory(sum(len(one) for one in pieces) + 4 * len(found), self.path)
        joined = b"".join(one if isinstance(one, memoryview) else struct.pack("<I", one & 0xFFFFFFFF) for one in found)
        return np.frombuffer(joined, "<f4")


def decoded(content: memoryview, path: object) -> str:
    """Return a text. Raises UnreadableError for bytes that are not UTF-8."""
    try:
        return bytes(content).decode()
    except UnicodeDecodeError:
        raise UnreadableError(path, f"{bytes(content[:40])!r} is not valid text") from None
