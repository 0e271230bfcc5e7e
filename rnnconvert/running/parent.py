"""This side of the pipe: an executor in a separate process, so that frameworks neither meet nor take us down."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from rnnconvert.containers.temporary import check_room
from rnnconvert.core.errors import ExecutorError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.running import child
from rnnconvert.running.registry import Executor

DEFAULT_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_WAIT_POLICY": "PASSIVE", "ORT_DISABLE_TELEMETRY": "1"}
"""What every worker finds in its environment, unless its variant or the user says otherwise.

Threads of OpenMP that spin while they wait take ten times the time of a small layer, where another process wants the CPU. A runtime
that reports its use to its makers does not do so, and keeps no list of these reports in the user's folder.
"""


PATIENCE, PATIENCE_PER_BYTE = 600.0, 1e-6
"""Seconds that a request may take where nobody says otherwise, and that each byte of its file and its arrays adds."""
FAREWELL = 30.0
"""How many seconds a process may take to end after its last answer. A framework's threads may keep it alive."""


UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, EOFError, MemoryError, RecursionError, zipfile.BadZipFile, zlib.error)
"""Errors for an answer that cannot be read: a framework wrote into the pipe, or a file made a process write something else."""


TIMEOUT = "RNNCONVERT_TIMEOUT"
"""The environment variable that says how many seconds an executor may take to answer a request."""


class ExecutorProcess:
    """The process of an executor, which begins anew after it has ended by itself: what one file does to it is not the next one's fault."""

    def __init__(self, executor: Executor, noise: Any) -> None:
        self._executor, self._noise = executor, noise
        self._killed, self._lock = False, threading.Lock()
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        environment: Mapping[str, str] = self._executor.settings.get("environment", {})
        return subprocess.Popen(
            [self._executor.python, str(Path(child.__file__)), self._executor.module, *limits(self._executor)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            env={**DEFAULT_ENVIRONMENT, **os.environ, "TMPDIR": tempfile.gettempdir(), **environment},
        )

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def revive(self) -> None:
        """Start it again if it has ended, unless it was killed for good."""
        with self._lock:
            if self.ended and not self._killed:
                self._close()
                self._noise.seek(0)
                self._noise.truncate()
                self.process = self._started()

    def kill(self) -> None:
        """End it at once and for good."""
        with self._lock:
            self._killed = True
            self.process.kill()

    def end(self) -> None:
        """End it for good, and release what it holds."""
        self.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def last_words(self) -> str:
        """Return the end of what it has printed."""
        self._noise.seek(max(0, self._noise.seek(0, os.SEEK_END) - 4000))
        return str(self._noise.read().decode(errors="replace"))


class Process:
    """A running executor. Made by `running`.

    timeout  how many seconds each request may take; None for what its size suggests
    """

    def __init__(self, executor: Executor, worker: ExecutorProcess) -> None:
        self.executor, self.worker = executor, worker
        self.timeout: float | None = None
        self._late = 0.0

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return its answer to a request (rnnconvert.running).

        Raises ExecutorError if it refuses, fails or dies, or does not answer in time; `refused` tells which. OutputError where the
        temporary folder has no room for what it writes.
        """
        self.worker.revive()
        self._late = 0.0
        limit = _patience(request) if self.timeout is None else self.timeout
        watch = threading.Timer(limit, self._expire, (limit,))
        watch.daemon = True
        watch.start()
        try:
            return self._answer(request)
        finally:
            watch.cancel()

    def _expire(self, limit: float) -> None:
        self._late = limit
        self.worker.process.kill()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self.worker.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            child.send(process.stdin, {**request, "variant": dict(self.executor.settings)})
        except (BrokenPipeError, ValueError):  # it has ended, and a pipe may be closed
            process.kill()
        try:
            answer = child.receive(process.stdout)
        except UNREADABLE as error:
            process.kill()  # it may live, and what else it writes would be taken for the answer to the next request
            process.wait()
            if not self._late:
                raise ExecutorError(self.executor.name, f"its answer cannot be read: {error}", self.worker.last_words()) from error
            answer = None
        if answer is None and self._late:
            process.wait()
            # Not every command that runs models has the option; all of them take the variable.
            more = f"{TIMEOUT}=SECONDS" if self.timeout is None else f"{Flag('timeout')} SECONDS"
            raise ExecutorError(self.executor.name, f"it did not answer within {self._late:g} s. Give it more with {more}")
        if answer is None:
            code, words = process.wait(), self.worker.last_words()
            check_room(self.executor.name, words)
            raise ExecutorError(self.executor.name, f"its process ended with {code}", words)
        if "refused" in answer:
            check_room(self.executor.name, answer["refused"])
            raise ExecutorError(self.executor.name, answer["refused"], refused=True, weights_alone=bool(answer.get("weights_alone")))
        if "failed" in answer:
            check_room(self.executor.name, answer["trace"])
            raise ExecutorError(self.executor.name, answer["failed"], answer["trace"])
        return dict(answer)

    def warm_up(self) -> None:
        """Let it import its framework. Raises ExecutorError as `ask` does."""
        self.ask(warm_up=True)

    def kill(self) -> None:
        """End it at once; whoever waits for an answer gets an error."""
        self.worker.kill()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.worker.ended


def limits(executor: Executor) -> list[str]:
    """Return the flags that bound a process on the CPU; drivers of GPUs reserve more memory than there is, and need their helpers."""
    return [] if executor.settings.get("device") == "cuda" else ["--bounded"]


def _patience(request: Mapping[str, Any]) -> float:
    """Return how many seconds a request may take: as the environment says, or by its size. Raises UsageError for other than a number."""
    if stated := os.environ.get(TIMEOUT):
        with contextlib.suppress(ValueError):
            if 0 < float(stated) < math.inf:
                return float(stated)
        raise UsageError(f"{TIMEOUT} is {stated!r}, and has to be how many seconds an executor may take, above 0")
    size: float = sum(array.nbytes for array in request.values() if hasattr(array, "nbytes"))
    with contextlib.suppress(OSError, TypeError):
        size += Path(request.get("file", "")).stat().st_size
    return float(PATIENCE + PATIENCE_PER_BYTE * size)


class Keeper(Protocol):
    """A keeper of processes for later use: rnnconvert.running.kept."""

    def running(self, executor: Executor) -> contextlib.AbstractContextManager[Process]:
        """Return an executor's process, which may go on after the block."""
        ...


keeper: Keeper | None = None
"""The keeper of processes at present; None if each ends with its block."""


def running(executor: Executor) -> contextlib.AbstractContextManager[Process]:
    """Return an executor's process, which ends with the block unless a keeper keeps it."""
    return started(executor) if keeper is None else keeper.running(executor)


@contextlib.contextmanager
def started(executor: Executor) -> Iterator[Process]:
    """Yield a new process of an executor, which ends with the block."""
    with tempfile.TemporaryFile() as noise:
        worker = ExecutorProcess(executor, noise)
        try:
            yield Process(executor, worker)
            with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
                worker.process.communicate(timeout=FAREWELL)  # closes its input, which ends it
        finally:
            worker.end()  # after an error or Ctrl-C nobody waits for an answer that may never come
