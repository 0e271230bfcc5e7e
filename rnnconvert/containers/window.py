"""Mapped bytes as a file object, for libraries that want to read one."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array


class Window(io.RawIOBase):
    """Mapped bytes as a file to read."""

    def __init__(self, data: Array) -> None:
        super().__init__()
        self._data = data
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._data.size}[whence]
        if start + offset < 0:
            raise OSError(f"cannot seek to {start + offset}")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        part = self._data[self._position : self._position + len(buffer)]
        np.frombuffer(buffer, np.uint8)[: part.size] = part
        self._position += part.size
        return int(part.size)


class GuardedWindow(Window):
    """A window for h5py, which guards against what the HDF5 library and h5py do with damaged files.

    h5py takes a short read for a full one, and uses what its buffer held before. The library never
    returns from a global heap (where strings of attributes lie) with an object of no length, and
    allocates a local heap (where names lie) of any size that the file claims.
    """

    def readinto(self, buffer: Any) -> int:
        if self._position + len(buffer) > self._data.size:
            raise OSError(f"{len(buffer)} bytes wanted at byte {self._position} of {self._data.size}")
        count = super().readinto(buffer)
        kind = bytes(buffer[:4]) if count >= 16 else b""
        if kind == b"GCOL":
            self._check_heap(bytes(buffer))
        elif kind == b"HEAP" and int.from_bytes(buffer[8:16], "little") > self._data.size:
            raise OSError("a heap of names that is larger than the file")
        return count

    def _check_heap(self, heap: bytes) -> None:
        """Raise OSError if an object of a global heap does not reach beyond its own header."""
        at = header = 16
        end = min(len(heap), int.from_bytes(heap[8:16], "little"))
        while at + header <= end:
            size = int.from_bytes(heap[at + 8 : at + 16], "little")
            used = int.from_bytes(heap[at : at + 2], "little") != 0
            step = header + -(-size // 8) * 8 if used else size
            if step < header:
                raise OSError(f"an object of {size} bytes in the global heap")
            at += step
