"""Executors' processes that go on from one proof to the next: most of what a small one takes is the import of a framework."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.errors import ExecutorError
from rnnconvert.running import parent
from rnnconvert.running.parent import Process
from rnnconvert.running.registry import Executor, built_in

MOST = 6
"""How many processes are kept that nobody uses: each holds a framework in memory."""

MOST_USES = 200
"""After how many uses a process is ended: what a framework keeps of each model adds up."""


@dataclass(eq=False)
class _Worker:
    """A process, what ends it, and who uses it."""

    process: Process
    stack: contextlib.ExitStack
    turn: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    uses: int = 0


class _SharedProcess(Process):
    """A process that may have been started in another folder, and for another variant of its module; one asks at a time."""

    def __init__(self, executor: Executor, worker: _Worker) -> None:
        super().__init__(executor, worker.process.worker)
        self._turn = worker.turn

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return its answer to a request."""
        if "file" in request:
            request["file"] = os.path.abspath(request["file"])  # noqa: PTH100 - a link stays one
        with self._turn:
            return super().ask(**request)

    def kill(self) -> None:
        """End it at once."""
        super().kill()
        self.worker.process.wait()


class KeptProcesses:
    """Processes by what they run: the Python, the module, its limits and its environment.

    most       how many are kept that nobody uses
    most_uses  after how many uses one is ended
    unread     how the names of variables begin that decide nothing in an executor
    """

    def __init__(self, most: int = MOST, most_uses: int = MOST_USES, unread: Sequence[str] = ()) -> None:
        self._most, self._most_uses, self._unread = most, most_uses, tuple(unread)
        self._workers: OrderedDict[Any, _Worker] = OrderedDict()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self, executor: Executor) -> Iterator[Process]:
        """Yield an executor's process, kept for the next who asks for it; one that a user wrote ends with the block."""
        if executor.module not in {each.module for each in built_in().values()}:
            with parent.started(executor) as process:
                yield process
            return
        with self._lock:  # executors of one proof run beside one another
            worker, key = self._claimed(executor)
        sound = False
        try:
            yield _SharedProcess(executor, worker)
            sound = True
        except (ExecutorError, AssertionError):
            sound = True  # it answered: with a refusal, or with wrong numbers
            raise
        finally:
            with self._lock:
                worker.users -= 1
                if (not sound or worker.process.ended) and self._workers.get(key) is worker:
                    self._end(key)

    def _claimed(self, executor: Executor) -> tuple[_Worker, Any]:
        """Return a process for one more user, which may be that of another variant, and its key."""
        folder, name = os.path.split(executor.python)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(self._unread)}
        environment.update(executor.settings.get("environment", {}))
        key = (os.path.realpath(folder), name, executor.module, *parent.limits(executor), frozenset(environment.items()))
        worker = self._workers.get(key)
        if worker is not None and not worker.users and (worker.process.ended or worker.uses >= self._most_uses):
            self._end(key)
        if key not in self._workers:
            idle = [idle_key for idle_key, worker in self._workers.items() if not worker.users]
            for idle_key in idle[: max(0, len(self._workers) + 1 - self._most)]:
                self._end(idle_key)
            stack = contextlib.ExitStack()
            self._workers[key] = _Worker(stack.enter_context(parent.started(executor)), stack)
        self._workers.move_to_end(key)
        worker = self._workers[key]
        worker.users += 1
        worker.uses += 1
        return worker, key

    def _end(self, key: Any) -> None:
        self._workers.pop(key).stack.close()

    def end(self) -> None:
        """End all of them."""
        for key in list(self._workers):
            self._end(key)


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """Keep executors' processes within the block, for all threads of this process, unless they are kept already."""
    if parent.keeper is not None:
        yield
        return
    parent.keeper = keeper = KeptProcesses()
    try:
        yield
    finally:
        parent.keeper = None
        keeper.end()
