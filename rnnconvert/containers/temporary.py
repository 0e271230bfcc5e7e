"""Temporary files and folders: named in one place, and removed by the next run if this one could not.

A file is locked as long as the process that writes it lives. A process that makes another one in the same folder removes rnnconvert's
unlocked ones: their process was killed. A batch does so at its end, for the files of its workers. The lock is the system's, so it ends with
the process however that ends, and holds between containers and machines that share the folder.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from rnnconvert.core.errors import OutputError

_FULL_DISKS = (errno.ENOSPC, errno.EDQUOT)
_FULL = (*_FULL_DISKS, errno.EFBIG)
_HINT = 60
"""The most characters of a target's name in the name of its temporary file."""
_NAME = re.compile(r"\..{0,60}\.rnnconvert-\d+-[0-9a-f]{8}\.(?:part|folder)", re.DOTALL)
_LOCK = ".lock"
_swept: set[str] = set()


def _name(target: str, kind: str) -> str:
    """Return a name that says whose it is: of which file, and of which process."""
    short = os.fsencode(target)[:_HINT].decode("utf-8", "ignore")
    return f".{short}.rnnconvert-{os.getpid()}-{os.urandom(4).hex()}.{kind}"


def _lock(handle: int, wait: bool = False) -> bool:
    """Lock an open file, if nobody else has; where the disk has no locks, nothing is ever removed for us.

    wait  whether to wait for whoever has locked it
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (OSError, AttributeError):
        return False
    return True


def _new_locked(folder: Path, target: str, kind: str, mode: int) -> tuple[int, Path]:
    """Make a locked file in a folder, of a name that no other has. Raises OSError."""
    while True:
        path = folder / _name(target, kind)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
        _lock(handle, wait=True)
        # Between the two steps another process may have taken it for a dead one, and be removing it.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle, path
        os.close(handle)


def new_file(target: Path, mode: int) -> tuple[int, Path]:
    """Make a locked file next to a target, and remove what killed processes left there.

    mode  its permissions, before the umask

    Raises OSError.
    """
    _sweep_once(target.parent)
    return _new_locked(target.parent, target.name, "part", mode)


@contextlib.contextmanager
def new_folder(next_to: Path | None = None) -> Iterator[Path]:
    """Yield a folder that is removed when the block ends: next to a target, or where the system has such folders.

    Raises OSError; OutputError where the system's has no room for what the block writes there.
    """
    folder = None
    try:
        folder = _folder(next_to)
        yield folder
    except OSError as error:
        elsewhere = folder is not None and error.filename and folder not in Path(os.fsdecode(error.filename)).parents
        if next_to is not None or error.errno not in _FULL or elsewhere:
            raise
        raise _no_room("intermediate results do not fit into", error.strerror) from None
    finally:
        if folder is not None:
            _remove(folder)


def lasting_folder() -> Path:
    """Return a folder that is removed when the process ends. Raises OSError."""
    folder = _folder(None)
    atexit.register(_remove, folder)
    return folder


@contextlib.contextmanager
def room_for(name: object) -> Iterator[None]:
    """Name the temporary folder where it has no room for what a block writes there, and what to do.

    name  the user's file that is kept there

    Raises OutputError.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise _no_room(f"{name}: it does not fit into", error.strerror) from None


def check_room(program: str, message: str) -> None:
    """Name the temporary folder where another program says that a disk is full: there it keeps what it makes.

    program  its name
    message  its error, or what it printed

    Raises OutputError.
    """
    reason = next((text for text in map(os.strerror, _FULL_DISKS) if text in message), "")
    if reason:
        raise _no_room(f"what {program} writes does not fit into", reason)


def _no_room(what: str, reason: str | None) -> OutputError:
    import tempfile

    return OutputError(f"{what} the temporary folder {tempfile.gettempdir()}: {reason}. Set TMPDIR to a larger disk")


def folder_around(path: Path) -> Path | None:
    """Return the temporary folder of rnnconvert's that a file lies in; None for a file elsewhere."""
    return next((folder for folder in path.parents if folder in _held), None)


def remedy(target: Path, error: OSError) -> str:
    """Return the remedy for a file that could not be written; "" unless it lies in a full temporary folder of rnnconvert's."""
    folder = folder_around(target)
    if error.errno in _FULL and folder is not None:
        return f" in the temporary folder {folder.parent}. Set TMPDIR to a larger disk"
    return ""


_held: dict[Path, int] = {}
"""The files that this process has locked, by name."""


def second_name(path: Path) -> Path:
    """Return a name under which `keep` can keep a file."""
    return path.with_name(_name(path.name, "part"))


def keep(path: Path, second: Path) -> None:
    """Give a file that is about to be replaced a second name, which `drop` removes; the name alone where the disk has no links.

    It gets none if it cannot be opened or named.
    """
    try:
        _held[second] = handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    _lock(handle)
    try:
        os.link(path, second)
    except OSError:
        with contextlib.suppress(OSError):
            path.rename(second)


def drop(path: Path) -> None:
    """Remove what `keep` made."""
    with contextlib.suppress(OSError):
        path.unlink()
    handle = _held.pop(path, None)
    if handle is not None:
        os.close(handle)


def _folder(next_to: Path | None) -> Path:
    if next_to is None:
        import tempfile  # takes milliseconds, which other writes need not pay

        parent = Path(tempfile.gettempdir())
    else:
        parent = next_to.parent
    _sweep_once(parent)
    handle, lock = _new_locked(parent, "" if next_to is None else next_to.name, f"folder{_LOCK}", 0o600)
    path = lock.with_name(lock.name.removesuffix(_LOCK))
    try:
        path.mkdir(mode=0o700)
    except BaseException:
        lock.unlink()
        os.close(handle)
        raise
    _held[path] = handle
    return path


def _remove(folder: Path) -> None:
    if f".rnnconvert-{os.getpid()}-" not in folder.name:  # in a copy of the process, which ends before the one that made it
        return
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.with_name(folder.name + _LOCK).unlink()
    handle = _held.pop(folder, None)
    if handle is not None:
        os.close(handle)


def _sweep_once(folder: Path) -> None:
    """Remove what killed processes left in a folder, unless this process has looked into it before."""
    if str(folder) not in _swept:
        _swept.add(str(folder))
        sweep(folder)


def sweep(folder: Path) -> None:
    """Remove what killed processes left in a folder."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(".") and ".rnnconvert-" in entry.name]
        for name in names:
            if _NAME.fullmatch(name.removesuffix(_LOCK)) and (name.endswith((".part", _LOCK))):
                _remove_dead(folder / name)


def _remove_dead(path: Path) -> None:
    """Remove a file, and the folder that it is the lock of, if no living process has locked it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            if _lock(handle):
                import shutil

                if path.name.endswith(_LOCK):
                    shutil.rmtree(path.with_name(path.name.removesuffix(_LOCK)), ignore_errors=True)
                path.unlink()
        finally:
            os.close(handle)
