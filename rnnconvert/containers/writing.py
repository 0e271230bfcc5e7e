"""Arrays written into a file: by several threads, each stretch to its own place.

The system's own copying (copy_file_range, sendfile) was measured: it is as fast as writing from a mapped file, and weights that are
not finite would have to be searched for in a pass of their own.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from rnnconvert.containers.checksums import Checksum
from rnnconvert.containers.reading import charge_output
from rnnconvert.core.arrays import Array, PiecewiseArray, Runs, Stretch, nbytes, pieces, runs_of
from rnnconvert.core.binding import bound
from rnnconvert.core.threads import ThreadTeam

APART = 1 << 20
"""Arrays of more bytes than this are written by several threads."""

SLICE = 256 << 10
"""The bytes that are handed to the system at a time. It takes memory for its own copy in blocks of this size, and memory of 1 MiB and
more in one block is rare: in a virtual machine it may have to be fetched from the host, which takes ten times as long as the copy."""

_counters: contextvars.ContextVar[Callable[[int], None] | None] = contextvars.ContextVar("counter", default=None)


@contextlib.contextmanager
def counting(seen: Callable[[int], None]) -> Iterator[None]:
    """Call a function with the bytes that arrays took so far, while the block writes files with `write_pieces`."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        seen(done)

    with bound(_counters, add):
        yield


def write_pieces(file: IO[bytes], array: Array | PiecewiseArray, check: Checksum | None = None) -> None:
    """Write an array in C order and little-endian, straight from its memory if that is contiguous.

    A large one is written by several threads, if its stretches can be made in any order and the file is a file of the system.

    check  a checksum, to which the array's bytes are added
    """
    runs = _runs(array) if nbytes(array) > APART else None
    if runs is not None and _is_plain(file):
        charge_output(nbytes(array))
        _Apart(file, array, runs, check).write()
        return
    counter = _counters.get()
    for piece in pieces(array):
        data = little_endian(piece).data
        for start in range(0, data.nbytes, SLICE):
            file.write(data[start : start + SLICE])
        if check is not None:
            check.append(check.part(data), data.nbytes)
        if counter is not None:
            counter(data.nbytes)


BUFFER = io.DEFAULT_BUFFER_SIZE
"""The bytes that a file gathers before it hands them to the system."""


class ChargedFile(io.BufferedRandom):
    """A file to write, whose bytes are charged to the reading under way; what `write_pieces` writes by threads is charged there."""

    def __init__(self, handle: int) -> None:
        super().__init__(os.fdopen(handle, "w+b", 0), BUFFER)

    def write(self, data: Any, /) -> int:
        """Write bytes. Raises BudgetError."""
        charge_output(memoryview(data).nbytes)
        return super().write(data)


def _runs(array: Array | PiecewiseArray) -> Iterator[Stretch] | None:
    if isinstance(array, np.ndarray):
        return runs_of(array)
    return array.runs() if isinstance(array, Runs) else None


def _is_plain(file: IO[bytes]) -> bool:
    """Return whether stretches can be written to a file by their places: it is a file of the system's, opened by Python."""
    return hasattr(os, "pwrite") and isinstance(file, (io.BufferedRandom, io.BufferedWriter))


def little_endian(piece: Array) -> Array:
    """Return the bytes of a contiguous array, as files have them."""
    if piece.dtype.byteorder == ">" or (piece.dtype.byteorder == "=" and sys.byteorder == "big"):
        piece = piece.byteswap()
    return piece.view(np.uint8)  # bfloat16 arrays export no buffer of their own


def reserve(handle: int, at: int, size: int) -> None:
    """Have the system find the room of bytes that are going to be written, all at once, where it can.

    Linux's ext4 took a quarter less time to write them then. Python's own `posix_fallocate` would write to every block
    where the file system has no such call.

    Raises OSError if there is too little room.
    """
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) < 8:
        return
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    if fallocate(handle, 0, ctypes.c_long(at), ctypes.c_long(size)) and (number := ctypes.get_errno()) in _FULL:
        raise OSError(number, os.strerror(number))


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _Apart:
    """An array that several threads write into one file."""

    def __init__(self, file: IO[bytes], array: Array | PiecewiseArray, runs: Iterator[Stretch], check: Checksum | None) -> None:
        self._file, self._dtype, self._size, self._runs, self._check = file, array.dtype, nbytes(array), runs, check
        file.flush()
        self._handle, self._at = file.fileno(), file.tell()
        self._lock, self._writes = threading.Lock(), threading.Lock()
        self._parts: list[tuple[int, int, Any]] = []
        self._new = 0
        self._team, self._counter = ThreadTeam(), _counters.get()
        self._asks = threading.get_ident()

    def write(self) -> None:
        """Write everything, and leave the file's position behind it."""
        reserve(self._handle, self._at, self._size)
        self._team.run(self._work)
        self._count()
        if self._check is not None:
            for _, size, part in sorted(self._parts, key=lambda entry: entry[0]):
                self._check.append(part, size)
        self._file.seek(self._at)

    def _work(self) -> None:
        """Write stretches as long as there are any that nobody has begun."""
        buffer = np.empty(0, self._dtype)

        def room(size: int) -> Array:
            nonlocal buffer
            if buffer.size < size:
                buffer = np.empty(size, self._dtype)
            return buffer[:size]

        while True:
            with self._lock:
                run = None if self._team.stopped else next(self._runs, None)
                if run is None:
                    return
                at = self._at
                self._at += run.size * self._dtype.itemsize
            data = little_endian(run.make(room))
            part = None if self._check is None else self._check.part(data.data)
            self._put(data, at)
            with self._lock:
                self._parts.append((at, data.nbytes, part))
                self._new += data.nbytes
            self._count()

    def _count(self) -> None:
        """Tell the counter what was written since it was last told, in the thread that asked for it."""
        if self._counter is not None and threading.get_ident() == self._asks:
            with self._lock:
                new, self._new = self._new, 0
            self._counter(new)

    def _put(self, data: Array, at: int) -> None:
        view, done = data.data, 0
        with self._writes:  # the system writes a file for one thread at a time: the others make their stretches meanwhile
            while done < data.size:
                done += os.pwrite(self._handle, view[done : done + SLICE], at + done)
