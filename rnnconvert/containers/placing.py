"""Complete files that take their places together: the one place where a file of ours gets its name.

A model of several files is the old one or the new one, whole, even if something is raised between two lines: signals wait until its files
are renamed and the old ones are gone, and before anything is put back the disk is asked which renames have happened.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rnnconvert.containers import temporary
from rnnconvert.containers.reading import forget_replaced
from rnnconvert.core.binding import bound

to_disk: contextvars.ContextVar[bool] = contextvars.ContextVar("to_disk", default=False)
"""Whether to wait for the disk (`files.reaching_the_disk`)."""

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold the signals that end a command until the block has ended; only the main thread receives any."""
    came: list[int] = []

    def deliver(number: int) -> None:
        if number in came:
            signal.raise_signal(number)

    with contextlib.ExitStack() as ended:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
                handler = signal.getsignal(number)
                if handler is not None and handler is not signal.SIG_IGN:  # None: not one of Python's
                    ended.callback(deliver, number)
                    ended.callback(signal.signal, number, handler)
                    signal.signal(number, lambda number, _: came.append(number))
        yield


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Changes:
    """The files that have got their names in a block, as the disk has them."""

    def __init__(self) -> None:
        self._files: dict[str, os.stat_result] = {}

    def note(self, final: Path, status: os.stat_result) -> None:
        """Note a file that is about to get its name, unless that is in a temporary folder: a proof may still refuse it."""
        if temporary.folder_around(final) is None:
            self._files[str(final)] = status

    def paths(self) -> list[str]:
        """Return the files that are there now: a rename may not have happened, or may have been undone."""
        return [path for path, status in self._files.items() if _is_there(Path(path), status)]


_changes: contextvars.ContextVar[Changes | None] = contextvars.ContextVar("changes", default=None)


@contextlib.contextmanager
def changes() -> Iterator[Changes]:
    """Yield the record of the files that the block has written so far."""
    noted = Changes()
    with bound(_changes, noted):
        yield noted


class _Renaming:
    """One rename: of which file, and what it replaces."""

    def __init__(self, source: Path, final: Path) -> None:
        self.source, self.final = source, final
        self.status = source.stat()
        self.existed = os.path.lexists(final)
        self.second: Path | None = None

    def do(self, keep: bool) -> None:
        """Rename it.

        keep  whether what was there may have to be put back
        """
        noted = _changes.get()
        if noted is not None:
            noted.note(self.final, self.status)
        if keep and self.existed:
            self.second = temporary.second_name(self.final)
            temporary.keep(self.final, self.second)
        self.source.replace(self.final)
        forget_replaced(self.final)
        if to_disk.get():
            _sync_folder(self.final.parent)

    def done(self) -> bool:
        """Return whether the disk has the file under its name."""
        return _is_there(self.final, self.status)

    def undo(self) -> None:
        """Put back what was there, as far as it is not."""
        if self.second is not None and os.path.lexists(self.second):
            self.second.replace(self.final)
        elif not self.existed and self.done():
            self.final.unlink()

    def end(self) -> None:
        """Remove the second name of what was there."""
        if self.second is not None:
            temporary.drop(self.second)


def rename_together(moves: Sequence[tuple[Path, Path]], obsolete: Iterable[Path] = ()) -> None:
    """Rename complete files, the one that needs the others last: all of them, or none.

    obsolete  files of the old model that the new one does without; what is renamed now is not removed

    Raises OSError.
    """
    steps = [_Renaming(source, final) for source, final in moves]
    with uninterrupted():
        try:
            for step in steps:
                step.do(keep=step is not steps[-1])
        except BaseException:
            if not steps[-1].done():
                for step in reversed(steps):
                    step.undo()
            raise
        finally:
            for step in steps:
                step.end()
        new_names = {final.name for _, final in moves}
        for path in obsolete:
            if path.name not in new_names:
                with contextlib.suppress(OSError):
                    path.unlink()


def _is_there(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), status)
    except OSError:
        return False
