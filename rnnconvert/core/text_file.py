"""How every file of a user is opened, and files of text that people write: read whole, and never more of them than fits."""

from __future__ import annotations

import errno
import os
import stat
from typing import IO

from rnnconvert.core.errors import UnreadableError, unreadable

_TEXT = 1 << 24
"""How many bytes a file of text may have: a mapping, a list of claims."""


def open_handle(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a file, and return its descriptor; a pipe or a device is not waited for.

    flags  as of os.open

    Raises UnreadableError for a folder, a pipe, a socket, a device and a name that no file can have; OSError where the system refuses.
    """
    try:
        handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0), 0o666)
    except ValueError as error:  # a null character
        raise UnreadableError(path, str(error)) from None
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket, or a pipe that nobody reads
            raise
        raise UnreadableError(path, _NO_FILE) from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    raise UnreadableError(path, "Is a directory" if stat.S_ISDIR(mode) else _NO_FILE)


def open_bytes(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file to read its bytes. Raises as `open_handle` does."""
    return os.fdopen(open_handle(path), "rb")


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits. Raises as `open_handle` does."""
    import hashlib  # of no use to most commands

    digest = hashlib.sha256()
    with open_bytes(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


_NO_FILE = "it is not a regular file"


def read_text(path: str | os.PathLike[str], most: int = _TEXT) -> str:
    """Return the text of a file.

    Raises UnreadableError if it is absent, a folder or a device, larger than `most` bytes, or not UTF-8.
    """
    try:
        with open_bytes(path) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise UnreadableError(path, f"it is larger than {most} bytes, the limit for such a file")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(path, f"it is not text in UTF-8: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None
