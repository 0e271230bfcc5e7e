"""Old numbers of a live model, kept until all new ones are in place."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.threads import ThreadTeam, processors

_BLOCK = 4 << 20
_SLICE = 256 << 10
"""As in rnnconvert.containers.writing."""


class Backup:
    """A copy of arrays, as they were when it was made.

    It is kept in system memory without a file, where the system has such memory: a process's own memory is filled with zeros before it is
    used, page by page, which takes longer than the copy. It is given back when this is closed.
    """

    def __init__(self, arrays: Iterable[Array]) -> None:
        """Copy arrays, which are contiguous."""
        flat = [array.reshape(-1).view(np.uint8) for array in arrays]
        self._blocks = [array[start : start + _BLOCK] for array in flat for start in range(0, array.size, _BLOCK)]
        self._handles: list[int] = []
        if len(self._blocks) > 1 and hasattr(os, "memfd_create"):
            with contextlib.suppress(OSError):  # where it is not allowed
                # The system writes to one of them for one thread at a time.
                for _ in range(processors()):
                    self._handles.append(os.memfd_create("rnnconvert"))
        self._copies = [] if self._handles else [np.empty_like(block) for block in self._blocks]
        try:
            self._each(self._keep)
        except BaseException:
            self.close()
            raise

    def put_back(self) -> None:
        """Give the arrays their old numbers."""
        self._each(self._restore)

    def close(self) -> None:
        """Give the memory back."""
        for handle in self._handles:
            os.close(handle)
        self._handles, self._copies = [], []

    def _each(self, work: Callable[[int], None]) -> None:
        numbers, lock, team = iter(range(len(self._blocks))), threading.Lock(), ThreadTeam()

        def some() -> None:
            while not team.stopped:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                work(number)

        team.run(some)

    def _place(self, number: int) -> tuple[int, int]:
        """Return the file of a block, and where it begins there: neighbours have different files."""
        return self._handles[number % len(self._handles)], number // len(self._handles) * _BLOCK

    def _keep(self, number: int) -> None:
        block = self._blocks[number]
        if not self._handles:
            self._copies[number][...] = block
            return
        (handle, at), done = self._place(number), 0
        while done < block.size:
            done += os.pwrite(handle, block[done : done + _SLICE].data, at + done)

    def _restore(self, number: int) -> None:
        block = self._blocks[number]
        if not self._handles:
            block[...] = self._copies[number]
            return
        (handle, at), done = self._place(number), 0
        while done < block.size:
            done += os.preadv(handle, [block[done:].data], at + done)
