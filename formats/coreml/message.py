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
    """A message of `size` bytes: its fields by their numbers. A field that it lacks is zero, or empty, as in proto3."""

    def __init__(self, data: memoryview, path: object) -> None:
        """Find the fields. Raises UnreadableError if the bytes are not a message."""
        self.path, self.size = path, len(data)
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

    def submessage(self, number: int) -> Message | None:
        """Return the message in a field."""
        content = self.content(number)
        return None if content is None else Message(content, self.path)

    def within(self, *numbers: int) -> Message | None:
        """Return the message that is reached through fields of fields."""
        message: Message | None = self
        for number in numbers:
            message = None if message is None else message.submessage(number)
        return message

    def contents(self, number: int) -> list[memoryview]:
        """Return the contents of a field of messages, texts or bytes. Raises UnreadableError for a number there."""
        values = self.fields.get(number, [])
        if not all(isinstance(content, memoryview) for content in values):
            raise UnreadableError(self.path, f"field {number} is a number, where a message or a text was expected")
        return [content for content in values if isinstance(content, memoryview)]

    def content(self, number: int) -> memoryview | None:
        """Return the content of a field that is there once; the last one counts."""
        values = self.contents(number)
        return values[-1] if values else None

    def number(self, number: int) -> int:
        """Return a whole number without a sign."""
        value = self.fields.get(number, [0])[-1]
        if not isinstance(value, int):
            raise UnreadableError(self.path, f"field {number} is not a number")
        return value

    def real(self, number: int) -> float:
        """Return a number of 32 bits."""
        return float(struct.unpack("<f", struct.pack("<I", self.number(number) & 0xFFFFFFFF))[0])

    def text(self, number: int) -> str:
        """Return a text."""
        return wire.text_of(self.content(number) or memoryview(b""), self.path)

    def texts(self, number: int) -> list[str]:
        """Return the texts of a repeated field."""
        return [wire.text_of(content, self.path) for content in self.contents(number)]

    def entries(self, number: int) -> Iterator[tuple[str, Message]]:
        """Yield the keys and values of a map from texts to messages."""
        for entry in self.every(number):
            yield entry.text(1), entry.submessage(2) or Message(memoryview(b""), self.path)

    def integers(self, number: int) -> list[int]:
        """Return the signed whole numbers of a repeated field, packed or one by one."""
        numbers: list[int] = []
        for content in self.fields.get(number, []):
            if isinstance(content, int):
                numbers.append(wire.signed(content))
                continue
            at, walk = 0, wire.Slimming(content, {}, lambda *_: b"", self.path)
            charging(len(content)).work(len(content), self.path)
            while at < len(content):
                value, at = walk.varint(at, len(content))
                numbers.append(wire.signed(value))
        return numbers

    def reals(self, number: int) -> Array:
        """Return the float32 numbers of a repeated field: a view where they lie in one piece."""
        values = self.fields.get(number, [])
        pieces = [content for content in values if isinstance(content, memoryview)]
        if any(len(piece) % 4 for piece in pieces):
            raise UnreadableError(self.path, f"field {number} holds {len(pieces[-1])} bytes, which are not float32 numbers")
        if len(values) == 1 and pieces:
            return np.frombuffer(pieces[0], "<f4")
        charging(0).memory(sum(len(piece) for piece in pieces) + 4 * len(values), self.path)
        joined = b"".join(content if isinstance(content, memoryview) else struct.pack("<I", content & 0xFFFFFFFF) for content in values)
        return np.frombuffer(joined, "<f4")
