"""Zip archives of entries that are not compressed, written piece by piece: each begins where it can be mapped.

Source: the .ZIP File Format Specification 6.3 (APPNOTE.TXT), 4.3 and 4.5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import IO

import numpy as np

from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.writing import write_pieces
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import UsageError

ALIGNMENT = 64
"""Each entry begins at a multiple of this, as in PyTorch's own files, so that it can be mapped."""
ZIP64_FROM = 0xFFFFFFFF
"""From this size or offset on, zip64's 8-byte fields are used."""

LONGEST_NAME = 0xFFFF
"""The bytes that the name of an entry may have."""

_UTF8 = 0x0800
_DATE = 0x21  # the first day of 1980: equal content gives equal bytes
_PADDING = b"FB"  # PyTorch's name for it

Fill = Callable[[IO[bytes], Crc32], None]
"""Writes the bytes of an entry, and adds them to a checksum."""


class StoredZip:
    """An archive that is written to a file, from where the file stands."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._at = 0
        self._entries: list[bytes] = []

    def add(self, name: str, content: bytes | Array | PiecewiseArray) -> None:
        """Write an entry of bytes or of an array."""
        array = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content
        self.add_filled(name, nbytes(array), lambda file, check: write_pieces(file, array, check))

    def add_filled(self, name: str, size: int, fill: Fill) -> None:
        """Write an entry whose bytes a function writes; its checksum is put into its header afterwards.

        Raises UsageError for a name that no zip archive holds, ValueError if the bytes are not as many as was said.
        """
        label = name.encode()
        if len(label) > LONGEST_NAME:
            raise UsageError(
                f"{name[:60]!r}... has {len(label):,} bytes. A zip archive holds names of {LONGEST_NAME:,}. "
                "Choose a shorter name, or another format"
            )
        wide = struct.pack("<2H2Q", 1, 16, size, size) if size >= ZIP64_FROM else b""
        header = self._at
        data = header + 30 + len(label) + len(wide) + 4
        padding = -data % ALIGNMENT
        extra = wide + _PADDING + struct.pack("<H", padding) + b"Z" * padding
        short = 0xFFFFFFFF if wide else size
        common = struct.pack("<5H", 45 if wide else 20, _UTF8, 0, 0, _DATE)
        sizes = struct.pack("<2I", short, short)
        lengths = struct.pack("<2H", len(label), len(extra))
        self._file.write(b"PK\x03\x04" + common + bytes(4) + sizes + lengths + label + extra)
        check = Crc32()
        fill(self._file, check)
        self._at = data + padding + size
        if self._file.tell() != self._at:
            raise ValueError(f"{name}: an entry of {size} bytes wrote {self._file.tell() - data - padding}")
        self._file.seek(header + 14)
        self._file.write(struct.pack("<I", check.value))
        self._file.seek(self._at)
        self._entries.append(self._central(label, common, check.value, size, header))

    def _central(self, label: bytes, common: bytes, checksum: int, size: int, header: int) -> bytes:
        wide = struct.pack("<2Q", size, size) if size >= ZIP64_FROM else b""
        short = 0xFFFFFFFF if wide else size
        if header >= ZIP64_FROM:
            wide += struct.pack("<Q", header)
        extra = struct.pack("<2H", 1, len(wide)) + wide if wide else b""
        return (
            b"PK\x01\x02"
            + struct.pack("<H", 45 if wide else 20)
            + (struct.pack("<H", 45) + common[2:] if wide else common)
            + struct.pack("<3I", checksum, short, short)
            + struct.pack("<5HI", len(label), len(extra), 0, 0, 0, 0)
            + struct.pack("<I", 0xFFFFFFFF if header >= ZIP64_FROM else header)
            + label
            + extra
        )

    def finish(self) -> None:
        """Write the directory of all entries."""
        directory = b"".join(self._entries)
        count, size, start = len(self._entries), len(directory), self._at
        self._file.write(directory)
        if start >= ZIP64_FROM or count >= 0xFFFF:
            end = start + size
            numbers = struct.pack("<2H2I4Q", 45, 45, 0, 0, count, count, size, start)
            self._file.write(b"PK\x06\x06" + struct.pack("<Q", 44) + numbers)
            self._file.write(b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1))
        short = min(count, 0xFFFF)
        place = 0xFFFFFFFF if start >= ZIP64_FROM else start
        self._file.write(b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, short, short, size, place, 0))
