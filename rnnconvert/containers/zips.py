"""Zip archives, read over a memory map: entries are found by name, and a name is never used as a path."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np

from rnnconvert.containers.files import map_file
from rnnconvert.containers.pickles import RECOVERABLE
from rnnconvert.containers.reading import charging, open_regular
from rnnconvert.containers.window import Window
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import INFLATION, UNPACKED_BYTES
from rnnconvert.core.names import named

_LOCAL = struct.Struct("<4s5H3I2H")


def is_zip(path: str | os.PathLike[str]) -> bool:
    """Return whether a file ends as a zip archive does; False if it cannot be opened."""
    try:
        with open_regular(path) as file:
            return zipfile.is_zipfile(file)
    except (OSError, UnreadableError):
        return False


def entry_names(path: str | os.PathLike[str]) -> tuple[str, ...] | None:
    """Return the names of an archive's entries; None if it cannot be opened, or not as a zip archive."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            return tuple(archive.namelist())
    except (OSError, UnreadableError, zipfile.BadZipFile, NotImplementedError, *RECOVERABLE):
        return None


class Archive:
    """The entries of a zip archive by name; each is read when it is asked for.

    The checksums are not compared: that would read every byte of every tensor, and PyTorch can be told to write none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open an archive. Raises UnreadableError if it is not a zip archive, or if two entries have one name."""
        self.path = path
        self._data = map_file(path)
        self._reading = charging(self._data.size)
        self._inflated: dict[str, Array] = {}
        self._inflated_bytes = 0
        try:
            with zipfile.ZipFile(Window(self._data)) as archive:
                entries = archive.infolist()
        except (OSError, zipfile.BadZipFile, NotImplementedError, *RECOVERABLE) as error:
            raise UnreadableError(
                path, f"it is not a complete zip archive ({error})", "The file is truncated or damaged; fetch it again."
            ) from None
        self._reading.work(8 * len(entries), path)
        self._entries = named(((entry.filename, entry) for entry in entries), path)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def size(self, name: str) -> int:
        """Return the number of bytes that an entry claims to have."""
        return self._entries[name].file_size

    def read(self, name: str) -> Array:
        """Return an entry's bytes: a view of the map if it is not compressed, else inflated, within bounds.

        Raises UnreadableError if it is missing, encrypted, truncated or not what its header says.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise UnreadableError(self.path, f"its zip archive has no entry {name!r}")
        if entry.flag_bits & 0x1:
            raise UnreadableError(self.path, f"the entry {name!r} is encrypted")
        raw = self._raw(entry)
        if entry.compress_type == zipfile.ZIP_STORED:
            if entry.compress_size != entry.file_size:
                raise UnreadableError(self.path, f"the entry {name!r} is not compressed, but has two sizes")
            return raw
        if entry.compress_type != zipfile.ZIP_DEFLATED:
            method = entry.compress_type
            raise UnreadableError(self.path, f"the entry {name!r} has the unknown compression method {method}")
        if name not in self._inflated:
            self._inflated[name] = self._inflate(entry, raw)
        return self._inflated[name]

    def _raw(self, entry: zipfile.ZipInfo) -> Array:
        # The lengths in the local header are the ones that count; the central directory's may differ.
        start = entry.header_offset
        header = self._data[start : start + _LOCAL.size] if start >= 0 else self._data[:0]
        if header.size == _LOCAL.size and bytes(header[:4]) == b"PK\x03\x04":
            name_length, extra_length = _LOCAL.unpack(header.data)[-2:]
            start += _LOCAL.size + name_length + extra_length
            if start + entry.compress_size <= self._data.size:
                return self._data[start : start + entry.compress_size]
        raise UnreadableError(
            self.path, f"the entry {entry.filename!r} does not lie within the file", "The file is truncated or damaged; fetch it again."
        )

    def _inflate(self, entry: zipfile.ZipInfo, raw: Array) -> Array:
        size = entry.file_size
        self._inflated_bytes += size
        if size > raw.size * INFLATION or self._inflated_bytes > UNPACKED_BYTES:
            raise UnreadableError(
                self.path,
                f"the entry {entry.filename!r} of {raw.size} bytes claims to unpack to {size} bytes",
                "If you trust the file, unpack the archive and pack it again without compression.",
            )
        self._reading.memory(size, self.path)
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = inflater.decompress(raw.data, size + 1)
        except zlib.error as error:
            raise UnreadableError(self.path, f"the entry {entry.filename!r} is damaged: {error}") from None
        if len(data) != size or not inflater.eof:
            problem = f"the entry {entry.filename!r} does not have the {size} bytes that it claims"
            raise UnreadableError(self.path, problem)
        return np.frombuffer(data, np.uint8)
