"""Executors' processes that go on from one test to the next: most of what a test of them takes is the import of a framework.

tests/conftest.py puts `running` in the place of the program's own, but for tests that are marked `own_processes`; with --long
every test starts its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.errors import ExecutorError
from rnnconvert.running import parent
from rnnconvert.running.parent import Process
from rnnconvert.running.registry import Executor, built_in
from tests import drawn

MOST = 14
"""How many processes are kept when no test uses them: each holds a framework in memory."""


UNREAD = (
    "COLUMNS", "ENABLE_RUNTIME_UPTIME", "FORCE_COLOR", "GITHUB_", "HDF5_PLUGIN_PATH", "NO_COLOR", "PYTEST_", "RNNCONVERT_",
    "TORCHINDUCTOR_", "TPU_",
)  # fmt: skip
"""How the names of variables begin that decide nothing in an executor: what frameworks write when they are imported is among them."""


class Shared(Process):
    """A process that may have been started in another folder, and for another variant of its module; one asks at a time."""

    def __init__(self, executor: Executor, worker: _Worker) -> None:
        super().__init__(executor, worker.process._child, worker.process._noise)
        self._turn = worker.turn

    def ask(self, **request: Any) -> dict[str, Any]:
        if "file" in request:
            request["file"] = os.path.abspath(request["file"])  # noqa: PTH100 - a link stays one
        with self._turn:
            return super().ask(**request)

    def kill(self) -> None:
        super().kill()
        self._child.wait()


@dataclass(eq=False)
class _Worker:
    """A process, what ends it, and how many use it now."""

    process: Process
    stack: contextlib.ExitStack
    turn: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0

    @property
    def ended(self) -> bool:
        return self.process._child.poll() is not None


_WORKERS: OrderedDict[Any, _Worker] = OrderedDict()
_LOCK = threading.Lock()


@contextlib.contextmanager
def running(executor: Executor) -> Iterator[Process]:
    """An executor's process, kept for the next test that asks for it."""
    if drawn.LONG or executor.module not in {built.module for built in built_in().values()}:
        with parent.running(executor) as process:
            yield process
        return
    with _LOCK:  # executors of one verification run beside one another
        worker, key = _claimed(executor)
    sound = False
    try:
        yield Shared(executor, worker)
        sound = True
    except (ExecutorError, AssertionError):
        sound = True  # it answered: with a refusal, or with wrong numbers
        raise
    finally:
        with _LOCK:
            worker.users -= 1
            if (not sound or worker.ended) and _WORKERS.get(key) is worker:
                _end(key)


def _claimed(executor: Executor) -> tuple[_Worker, Any]:
    """A process for one more user, which may be that of another variant, and its key."""
    folder, name = os.path.split(executor.python)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(UNREAD)}
    environment.update(executor.settings.get("environment", {}))
    key = (os.path.realpath(folder), name, executor.module, *parent._limits(executor), frozenset(environment.items()))
    if key in _WORKERS and _WORKERS[key].ended and not _WORKERS[key].users:
        _end(key)
    if key not in _WORKERS:
        idle = [idle_key for idle_key, worker in _WORKERS.items() if not worker.users]
        for idle_key in idle[: max(0, len(_WORKERS) + 1 - MOST)]:
            _end(idle_key)
        stack = contextlib.ExitStack()
        _WORKERS[key] = _Worker(stack.enter_context(parent.running(executor)), stack)
    _WORKERS.move_to_end(key)
    worker = _WORKERS[key]
    worker.users += 1
    return worker, key


def _end(key: Any) -> None:
    _WORKERS.pop(key).stack.close()


def end() -> None:
    """End all of them."""
    for key in list(_WORKERS):
        _end(key)
