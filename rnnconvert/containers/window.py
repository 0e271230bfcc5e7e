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


_HEAP = b"GCOL\x01\0\0\0"
"""The first bytes of a global heap: its signature, its version and three bytes of nothing."""


class GuardedWindow(Window):
    """A window for h5py, which guards against what the HDF5 library and h5py do with damaged files.

    h5py takes a short read for a full one, and uses what its buffer held before. The library never returns from a global heap (where
    strings of attributes lie) with an object of no length, and allocates a local heap (where names lie) of any size that the file claims.

    The library reads a heap in pieces, and may read its beginning together with what lies before it. So all that is
    read is searched for heaps, and each is checked where it lies in the file, as a whole.
    """

    def __init__(self, data: Array) -> None:
        super().__init__(data)
        self._bytes = data.data
        self._heaps: set[int] = set()

    def readinto(self, buffer: Any) -> int:
        start = self._position
        if start + len(buffer) > self._data.size:
            raise OSError(f"{len(buffer)} bytes wanted at byte {start} of {self._data.size}")
        count = super().readinto(buffer)
        first = max(0, start - len(_HEAP))
        seen = bytes(self._bytes[first : start + count + len(_HEAP)])
        at = seen.find(_HEAP)
        while at >= 0:
            self._check_heap(first + at)
            at = seen.find(_HEAP, at + 1)
        local = seen[start - first :][:4] == b"HEAP" and count >= 16
        if local and int.from_bytes(buffer[8:16], "little") > self._data.size:
            raise OSError("a heap of names that is larger than the file")
        return count

    def _check_heap(self, start: int) -> None:
        """Raise OSError if an object of the global heap at a byte does not end between its own header and the heap's end."""
        if start in self._heaps:
            return
        size = int.from_bytes(self._bytes[start + 8 : start + 16], "little")
        heap = bytes(self._bytes[start : start + min(size, self._data.size)])
        at = header = 16
        while at + header <= len(heap):
            length = int.from_bytes(heap[at + 8 : at + 16], "little")
            used = int.from_bytes(heap[at : at + 2], "little") != 0
            step = header + -(-length // 8) * 8 if used else length
            if step < header or step > len(heap) - at:  # the library's own sum has 64 bits, and may begin again at 0
                raise OSError(f"an object of {length} bytes in the global heap")
            at += step
        self._heaps.add(start)
