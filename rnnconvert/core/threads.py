"""Work that several threads share, the one that asks for it among them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context

import numpy as np

MOST = 4
"""The most threads at work: more than these, one disk or one memory does not keep up with."""


class ThreadTeam:
    """Threads that do the same work, each taking what nobody has begun.

    stopped  whether the work is to be left: something went wrong in one of them, or the caller was interrupted
    """

    def __init__(self) -> None:
        self.stopped = False
        self._problem: BaseException | None = None
        self._errors = np.geterr()

    def run(self, work: Callable[[], None]) -> None:
        """Call a function in every thread, and return when all of them have ended, even after an error or an interrupt.

        Raises what it raised in any of them.
        """
        others = [threading.Thread(target=copy_context().run, args=(self._help, work), daemon=True) for _ in range(processors() - 1)]
        try:
            for thread in others:
                thread.start()
            work()
        finally:
            self.stopped = True
            for thread in others:
                _wait(thread)
        if self._problem is not None:
            raise self._problem

    def _help(self, work: Callable[[], None]) -> None:
        try:
            with np.errstate(**self._errors):
                work()
        except BaseException as problem:
            self._problem, self.stopped = problem, True


def processors() -> int:
    """Return how many threads are of use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST, count)


def _wait(thread: threading.Thread) -> None:
    """Wait until a thread has ended, even through interrupts: what it works on would be closed or changed under its hands."""
    interrupt: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as problem:
            interrupt = problem
    if interrupt is not None:
        raise interrupt
