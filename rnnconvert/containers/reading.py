"""One reading: the files that it opens, whether they stay unchanged, and what it may cost.

Every container opens its files with `map_file` or `open_regular`, and charges its work and the memory that it takes to the
reading under way (`charging`). Both are bounded in proportion to the files' bytes, together for all containers and formats
that look at them; a file that asks for more raises BudgetError.

A mapped file is not copied. If another process cuts it, or its disk fails, its missing pages read as zeros where `zeros_for_cut_files`
was called (the command line does that), else the system ends the process; `Reading.check` finds it out, and so does every write.
"""

from __future__ import annotations

import contextlib
import contextvars
import mmap
import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from rnnconvert.core.binding import bound
from rnnconvert.core.errors import BudgetError, UnreadableError, unreadable
from rnnconvert.core.limits import MEMORY, MEMORY_PER_BYTE, OUTPUT, OUTPUT_PER_BYTE, STEPS, STEPS_PER_BYTE
from rnnconvert.core.text_file import open_handle

if TYPE_CHECKING:
    from rnnconvert.core.arrays import Array


class Identity(NamedTuple):
    """The identity of a file, to recognize it later: where it is kept, its length, and when it was last written."""

    device: int
    inode: int
    size: int
    written: int


def _identity(status: os.stat_result) -> Identity:
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Mapped(mmap.mmap):
    """A mapped file that knows where it came from.

    path      the file
    identity  what it was when it was opened
    address   where it is in memory
    missing   whether a page of it could not be read, and zeros took its place
    """

    path: object
    identity: Identity
    address: int
    missing = False

    def has_changed(self) -> bool:
        """Return whether the file was written or cut since. One that was replaced or removed as a whole is still there."""
        try:
            if self.size() != self.identity.size:
                return True
            now = _identity(Path(str(self.path)).stat())
        except (OSError, ValueError):
            return False
        return now.inode == self.identity.inode and now != self.identity


_mapped: weakref.WeakSet[Mapped] = weakref.WeakSet()


_IN_FULL = "If you trust it, save it without compression, and with all of its numbers written out where it states them as formulas."
"""The remedy for a file that holds more than its size suggests."""


class Reading:
    """The files and the work of one reading.

    cache  results for a file, for later requests of the same: by path and by the function that gave them
    """

    def __init__(self) -> None:
        self._files: dict[str, Identity] = {}
        self._maps: list[Mapped] = []
        self._size = 0
        self._steps = 0
        self._memory = 0
        self._output = 0
        self._source: object = None
        self.cache: dict[str, dict[Any, Any]] = {}

    def __reduce__(self) -> tuple[type[Reading], tuple[()]]:
        return Reading, ()  # a copy in another process, or of a checkpoint, has the numbers and no files

    def add(self, path: object, identity: Identity, mapped: Mapped | None = None) -> None:
        """Take a file into account.

        Raises UnreadableError if it was written, cut or replaced since this reading opened it for the first time.
        """
        real = os.path.realpath(str(path))
        if real not in self._files:
            self._source = self._source or path
            self._files[real] = identity
            self._size += identity.size
        elif self._files[real] != identity:
            raise _changed(path)
        if mapped is not None:
            self._maps.append(mapped)

    def allow(self, size: int) -> None:
        """Take bytes into account that come from elsewhere."""
        self._size += size

    def work(self, steps: int, path: object) -> None:
        """Account for work that is about to be done. Raises BudgetError."""
        self._steps += steps
        if self._steps > STEPS + STEPS_PER_BYTE * self._size:
            raise BudgetError(path, "it takes more work to read than a file of its size can need")

    def memory(self, size: int, path: object) -> None:
        """Account for memory that is about to be taken. Raises BudgetError."""
        self._memory += size
        most = MEMORY + MEMORY_PER_BYTE * self._size
        if self._memory > most:
            raise BudgetError(path, f"reading it takes more than {most >> 20} MiB of memory, for a file of {self._size} bytes", _IN_FULL)

    def output(self, size: int) -> None:
        """Account for bytes that are about to be written of what was read; numbers that no file gave may be as many as they are.

        Raises BudgetError.
        """
        self._output += size
        most = OUTPUT + OUTPUT_PER_BYTE * self._size
        if self._files and self._output > most:
            what = f"what it states takes more than {most >> 20} MiB to write, for a file of {self._size} bytes"
            raise BudgetError(self._source, what, _IN_FULL)

    def foresee(self, size: int) -> None:
        """Check that bytes which are going to be written, and charged then, are no more than may be. Raises BudgetError."""
        before = self._output
        try:
            self.output(size)
        finally:
            self._output = before

    def check(self, path_too: bool = False) -> None:
        """Raise UnreadableError if a file was written or cut since it was opened.

        path_too  and if one was replaced: files that belong together must be of one write
        """
        for mapped in self._maps:
            _check_map(mapped)
        for path, identity in self._files.items() if path_too else ():
            with contextlib.suppress(OSError):
                if _identity(Path(path).stat()) != identity:
                    raise _changed(path)

    def holds(self, path: object) -> bool:
        """Return whether a path leads to a file that this reading has opened, under any name of that file."""
        try:
            now = _identity(Path(str(path)).stat())
        except (OSError, ValueError):
            return False
        return any((now.device, now.inode) == (file.device, file.inode) for file in self._files.values())

    def forget(self, path: object) -> None:
        """Leave a file out of account that this process itself replaces."""
        gone = self._files.pop(os.path.realpath(str(path)), None)
        self._size -= gone.size if gone else 0
        self.cache.pop(os.path.realpath(str(path)), None)

    def looked(self, path: object) -> dict[Any, Any]:
        """Return the results that are kept for a file: a dictionary to be filled."""
        return self.cache.setdefault(os.path.realpath(str(path)), {})


def _check_map(mapped: Mapped) -> None:
    """Raise UnreadableError if a file was written or cut since, or if its disk could not read all of it."""
    if mapped.has_changed():
        raise _changed(mapped.path)
    if mapped.missing:
        raise UnreadableError(mapped.path, "the disk could not read all of it (Input/output error)", "Copy it from elsewhere.")


def _changed(path: object) -> UnreadableError:
    return UnreadableError(path, "it changed while it was read", "Wait until whatever writes it has ended, then start again.")


_listed: contextvars.ContextVar[list[Path] | None] = contextvars.ContextVar("mapped", default=None)


@contextlib.contextmanager
def mapped_files() -> Iterator[list[Path]]:
    """Yield a list that every file is added to which `map_file` opens in the block: a checkpoint may lie in several."""
    paths: list[Path] = []
    with bound(_listed, paths):
        yield paths


_current: contextvars.ContextVar[Reading | None] = contextvars.ContextVar("reading", default=None)


@contextlib.contextmanager
def reading() -> Iterator[Reading]:
    """Make all that the block opens one reading, or a part of the one under way."""
    under_way = _current.get()
    if under_way is not None:
        yield under_way
        return
    budget = Reading()
    try:
        with bound(_current, budget):
            yield budget
    finally:
        budget.cache.clear()


@contextlib.contextmanager
def resumed(before: Reading | None) -> Iterator[None]:
    """Go on with a reading while what it read is written: every write makes sure that its files are unchanged."""
    with bound(_current, before or _current.get()):
        yield


def charging(size: int) -> Reading:
    """Return the reading to charge: the one under way, or else a new one that allows for so many bytes."""
    under_way = _current.get()
    if under_way is None:
        under_way = Reading()
        under_way.allow(size)
    return under_way


_free: contextvars.ContextVar[bool] = contextvars.ContextVar("free", default=False)


@contextlib.contextmanager
def writing_freely() -> Iterator[None]:
    """Charge nothing that the block writes: results and reports are as long as what was run, and not as a file says."""
    with bound(_free, True):
        yield


def charge_output(size: int) -> None:
    """Charge bytes that are about to be written to the reading under way, if there is one. Raises BudgetError."""
    under_way = _current.get()
    if under_way is not None and not _free.get():
        under_way.output(size)


def foresee_output(size: int) -> None:
    """Refuse at once what takes so many bytes at least, and would be refused when most of them are written. Raises BudgetError."""
    under_way = _current.get()
    if under_way is not None and not _free.get():
        under_way.foresee(size)


def check_sources() -> None:
    """Raise UnreadableError if a file of the reading under way was written or cut since."""
    under_way = _current.get()
    if under_way is not None:
        under_way.check()


def forget_replaced(path: object) -> None:
    """Note that this process itself put another file in the place of one."""
    under_way = _current.get()
    if under_way is not None:
        under_way.forget(path)


def _check_download(path: str | os.PathLike[str], handle: int) -> None:
    """Raise UnreadableError for what a download left in a file's place."""
    head = os.read(handle, 1 << 10)
    os.lseek(handle, 0, os.SEEK_SET)
    if head[:1] in _TEXT and head:
        from rnnconvert.containers import downloads  # its patterns take time to compile

        problem = downloads.instead(head)
        if problem is not None:
            raise UnreadableError(path, *problem)


_TEXT = b"v<{\xef \n\r\tEeRrFfPpNnIiAa4"
"""How text begins that may stand in the place of a file."""


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file to read its bytes; a pipe or a device is not waited for.

    Raises UnreadableError if it is absent, a folder, a pipe or a device, may not be read, or is what a download left in its place.
    """
    try:
        handle = open_handle(path)
        try:
            _check_download(path, handle)
            under_way = _current.get()
            if under_way is not None:
                under_way.add(path, _identity(os.fstat(handle)))
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise
    except OSError as error:
        raise unreadable(path, error) from None


def read_small(path: str | os.PathLike[str], most: int = 64 << 20) -> bytes:
    """Return the bytes of a file that is small if it is what it should be. Raises UnreadableError as `open_regular` does."""
    with open_regular(path) as file:
        try:
            content = file.read(most + 1)
        except OSError as error:
            raise unreadable(path, error) from None
    if len(content) > most:
        raise UnreadableError(path, f"it is larger than {most >> 20} MiB")
    return content


def map_file(path: str | os.PathLike[str], empty: bool = False) -> Array:
    """Return the bytes of a file, as a read-only memory map.

    empty  whether there may be none: in a part of a model that holds numbers alone, where it has none

    Raises UnreadableError if the file is absent, empty otherwise, a folder, no regular file, or may not be read.
    """
    import numpy as np  # the command line imports this module for every command

    with open_regular(path) as file:
        listed = _listed.get()
        if listed is not None:
            listed.append(Path(path))
        identity = _identity(os.fstat(file.fileno()))
        if identity.size == 0 and empty:
            return np.zeros(0, np.uint8)
        if identity.size == 0:
            raise UnreadableError(path, "the file is empty", "Save or fetch it again.")
        try:
            mapped = Mapped(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UnreadableError(path, f"it cannot be mapped: {error}") from None
    mapped.path, mapped.identity, mapped.address = path, identity, 0
    _mapped.add(mapped)
    under_way = _current.get()
    if under_way is not None:
        under_way.add(path, identity, mapped)
    array = np.frombuffer(mapped, np.uint8)
    mapped.address = array.ctypes.data
    return array


# Files that are cut while they are mapped --------------------------------------------------------------------


_PROT_READ, _MAP_PRIVATE_FIXED_ANONYMOUS = 1, 0x02 | 0x10 | 0x20


_SIGINFO = 4
_ADDRESS = 16
"""Where siginfo_t has the address of a fault."""
_handlers: list[Any] = []


def zeros_for_cut_files() -> bool:
    """Let mapped pages that a file no longer has, or that its disk cannot read, be zeros, instead of ending the process.

    Return whether that is done; `Reading.check` finds it out.

    Only on Linux with glibc on 64 bits, and only where nobody else handles SIGBUS.
    """
    if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32 or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGBUS) != signal.SIG_DFL:
        return False
    import ctypes

    class Action(ctypes.Structure):
        """Glibc's struct sigaction."""

        _fields_ = (("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p))

    try:
        system = ctypes.CDLL(None, use_errno=True)
        system.gnu_get_libc_version  # noqa: B018  (other libraries have another struct)
        system.mmap.restype, system.mmap.argtypes = (
            ctypes.c_void_p,
            [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long],
        )
        before = Action()
        system.sigaction(signal.SIGBUS, None, ctypes.byref(before))
    except (OSError, AttributeError):
        return False
    if before.handler:
        return False

    def fault(number: int, about: int, context: int) -> None:
        at = ctypes.c_void_p.from_address(about + _ADDRESS).value or 0
        page = at & ~(mmap.PAGESIZE - 1)
        for mapped in list(_mapped):
            start = mapped.address
            end = start + mapped.identity.size
            if start <= at < end:
                mapped.missing = True
                length = -(-(end - page) // mmap.PAGESIZE) * mmap.PAGESIZE
                if system.mmap(page, length, _PROT_READ, _MAP_PRIVATE_FIXED_ANONYMOUS, -1, 0) == page:
                    return
        os.write(2, b"error: a file became shorter while it was read\n")
        os._exit(3)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(fault)
    _handlers.append(handler)  # as long as the process lives
    action = Action(ctypes.cast(handler, ctypes.c_void_p), (ctypes.c_ulong * 16)(), _SIGINFO, None)
    return not system.sigaction(signal.SIGBUS, ctypes.byref(action), None)
