"""The display of work that is going on: a line at the bottom of a terminal, which is gone when the work is done."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rnnconvert.cli import terminal
from rnnconvert.cli.verbosity import is_quiet
from rnnconvert.core.printable import printable


class Watch:
    """The display of work in progress: the phase, how much of it is done, how long it has taken and will take.

    Called with a phase, and if they are known with the parts that are done and all parts of this phase. Work that ends within
    PATIENCE seconds shows nothing, and needs no library that draws.
    """

    PATIENCE = 0.5

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._drawing: Any = None
        self._state: tuple[str, int, int, str] = ("", 0, 0, "")
        self._patience = threading.Timer(self.PATIENCE, self._begin)
        self._patience.daemon = True
        self._patience.start()
        terminal.held_back = self._held_back

    def __call__(self, phase: str, done: int = 0, total: int = 0, remark: str = "", unit: str = "") -> None:
        """Show something else.

        remark  what else is to be said, such as how many parts failed
        unit    "MB" where parts are bytes
        """
        if unit:
            remark = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} {unit}{remark and '  '}{remark}"
        elif total:
            remark = f"{done:,} of {total:,}{remark and '  '}{remark}"
        phase = printable(phase)
        with self._lock:
            begins = phase != self._state[0]
            self._state = phase, done, total, remark
            if self._drawing is not None:
                self._update(begins)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        with self._lock:
            if not self._patience.finished.is_set():  # closed in the meantime
                columns = (
                    TextColumn("{task.description}", markup=False),
                    BarColumn(20),
                    TextColumn("{task.fields[remark]}", markup=False),
                    TimeElapsedColumn(),
                    TimeRemainingColumn(compact=True),
                )
                self._drawing = Progress(*columns, console=Console(file=sys.stderr), transient=True)
                self._update(True)
                self._drawing.start()

    def _update(self, begins: bool) -> None:
        phase, done, total, remark = self._state
        if begins:
            for task in self._drawing.task_ids:
                self._drawing.remove_task(task)
            self._drawing.add_task(phase, total=total or None, completed=done, remark=remark, visible=bool(phase))
        else:
            (task,) = self._drawing.task_ids
            self._drawing.update(task, total=total or None, completed=done, remark=remark)

    @contextlib.contextmanager
    def _held_back(self) -> Iterator[None]:
        """Remove the line while another is printed."""
        with self._lock:
            if self._drawing is not None:
                self._drawing.stop()
            yield
            if self._drawing is not None:
                self._drawing.start()

    def close(self) -> None:
        """Remove the line."""
        terminal.held_back = contextlib.nullcontext
        self._patience.cancel()
        with self._lock:
            if self._drawing is not None:
                self._drawing.stop()


@contextlib.contextmanager
def watching(quiet: bool) -> Iterator[Callable[..., None]]:
    """Show what is being done while the block runs: yields a `Watch`, or what ignores its calls where stderr is not a terminal."""
    if quiet or is_quiet() or not terminal.is_terminal(sys.stderr):
        yield lambda phase, done=0, total=0, remark="", unit="": None
        return
    watch = Watch()
    try:
        yield watch
    finally:
        watch.close()
