"""Old numbers of a live model, kept until all new ones are in place."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.threads import Team

_BLOCK = 4 << 20
_SLICE = 256 << 10
"""As in rnnconvert.containers.writing."""


class Kept:
    """What arrays held when it was made.

    It is kept in memory of the system's that has no file, where there is such memory: a process's own is filled with zeros before
    it is used, page by page, which takes longer than the copy. It is given back when this is closed.
    """

    def __init__(self, arrays: Iterable[Array]) -> None:
        """Copy arrays, which are contiguous."""
        self._arrays = [array.reshape(-1).view(np.uint8) for array in arrays]
        size = sum(array.size for array in self._arrays)
        self._handle = -1
        self._own: Array = np.empty(0, np.uint8)
        if size > _BLOCK and hasattr(os, "memfd_create"):
            with contextlib.suppress(OSError):  # where it is not allowed
                self._handle = os.memfd_create("rnnconvert")
        if self._handle < 0:
            self._own = np.empty(size, np.uint8)
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
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._own = -1, np.empty(0, np.uint8)

    def _blocks(self) -> Iterator[tuple[Array, int]]:
        """Yield stretches of the arrays, and where each is kept."""
        at = 0
        for array in self._arrays:
            for start in range(0, array.size, _BLOCK):
                yield array[start : start + _BLOCK], at + start
            at += array.size

    def _each(self, work: Any) -> None:
        blocks, lock, team = self._blocks(), threading.Lock(), Team()

        def some() -> None:
            while not team.stopped:
                with lock:
                    block = next(blocks, None)
                if block is None:
                    return
                work(*block)

        team.run(some)

    def _keep(self, block: Array, at: int) -> None:
        if self._handle < 0:
            self._own[at : at + block.size] = block
            return
        done = 0
        while done < block.size:
            done += os.pwrite(self._handle, block[done : done + _SLICE].data, at + done)

    def _restore(self, block: Array, at: int) -> None:
        if self._handle < 0:
            block[...] = self._own[at : at + block.size]
            return
        done = 0
        while done < block.size:
            done += os.preadv(self._handle, [block[done:].data], at + done)
