"""Files behind a URL that fsspec knows, asked for again if that fails as a connection or a busy server does."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

from rnnconvert.core.errors import MissingPackageError, RnnConvertError, UnreadableError, UsageError
from rnnconvert.core.version import requirement

OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
"""Stores without folders, where an object appears when its last part is there."""
_SINGLE = OBJECTS | {"http", "https"}
"""Stores of single requests; of others a connection that was lost is made again."""
_PAUSES = (0.2, 0.8, 3.2)
"""The seconds before a store that failed is asked again."""
_PATIENCE = 20.0
"""A small request is not made again after so many seconds: stores' own packages have tried it several times by then."""
_SLOW = 250_000
"""Bytes a second of a transfer that is not yet given up: what failed for longer was not under way, but tried again by a package."""
_FINAL = (
    RnnConvertError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError,
    NotImplementedError, ImportError, MemoryError, TypeError, ValueError, AttributeError, LookupError, zipfile.BadZipFile,
)  # fmt: skip
"""Errors of a store that it will repeat."""
_NO = re.compile("Authentication|Credentials|Permission|HostKey")
"""Parts of the names of errors with which packages report a wrong key: asked often, a server may lock it."""
_FORBIDDEN = re.compile("Forbidden|Access denied", re.IGNORECASE)
"""The beginning of the text of such an error, for packages without an error class for it."""
_MISSING = (404, 410)
"""The answers of a server that has no such file."""
_PASSING = (408, 425, 429)
"""The answers of a server below 500 that may be others a moment later."""

T = TypeVar("T")


def is_url(name: str) -> bool:
    """Return whether a name is a URL, and not a path."""
    return "://" in name or "::" in name


def system(url: str) -> tuple[Any, str]:
    """Return the file system behind a URL, and the path there.

    Raises MissingPackageError if fsspec or the package for this kind of store is absent, UsageError for an unknown kind, and what
    a store raises that is reached at once.
    """
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError:
        raise MissingPackageError("fsspec", f"read or write {url}", f"Install it with: pip install {requirement('stores')}") from None
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingPackageError(f"the package for {url.partition('://')[0]}://", f"read or write {url}", str(error)) from None
    except ValueError as error:
        raise UsageError(f"{url}: {error}") from None
    return filesystem, path


def protocols(files: Any) -> set[str]:
    """Return the beginnings of URLs that a file system is known by."""
    return {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)


@contextlib.contextmanager
def named(url: str) -> Iterator[None]:
    """Turn any error of a store into one that names the file."""
    try:
        yield
    except RnnConvertError:
        raise
    except Exception as error:  # each store has errors of its own
        raise UnreadableError(url, f"the store says: {message_of(_cause(error))}"[:500]) from None


def _cause(error: Exception) -> Exception:
    """Return the cause of an error, if a package calls every failure of its store a missing file."""
    cause = error.__cause__
    missing = isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) in _MISSING
    return cause if isinstance(error, FileNotFoundError) and isinstance(cause, Exception) and not missing else error


def message_of(error: Exception) -> str:
    """Return the words of an error, on one line and with its kind."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")


class Store:
    """The file system behind a URL and the path there, reached when it is first asked.

    url  of a file or folder
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._filesystem: tuple[Any, str] | None = None

    @property
    def files(self) -> Any:
        """The file system. Raises what a store raises that cannot be reached."""
        return self._reached()[0]

    @property
    def path(self) -> str:
        """The path there. Raises what a store raises that cannot be reached."""
        return self._reached()[1]

    def _reached(self) -> tuple[Any, str]:
        if self._filesystem is None:
            self._filesystem = system(self.url)
        return self._filesystem

    def ask(self, action: Callable[[Any, str], T], size: int = 0) -> T:
        """Return the result of an action on the file system and the path; it is tried again if it fails as a busy server does.

        size  how many bytes it moves: the more, the longer it may take until it fails, and is tried again
        """
        patience = _PATIENCE + size / _SLOW
        start = time.monotonic()
        for pause in _PAUSES:
            try:
                return action(*self._reached())
            except Exception as error:  # each store has errors of its own
                if _is_final(error) or time.monotonic() - start > patience:
                    raise
            time.sleep(pause)
            self._renew()
        return action(*self._reached())

    def _renew(self) -> None:
        """Forget a connection, which may be lost, where a store has one."""
        fsspec: Any = importlib.import_module("fsspec")
        for link in self.url.split("::"):
            kind = link.partition("://")[0]
            if kind not in _SINGLE:
                with contextlib.suppress(ImportError, ValueError):
                    fsspec.get_filesystem_class(kind).clear_instance_cache()
                    self._filesystem = None

    def forget(self) -> None:
        """Forget what the folder is known to hold."""
        files, path = self._reached()
        files.invalidate_cache(path.rpartition("/")[0])

    def part(self, start: int, stop: int) -> bytes:
        """Return some bytes of a file: all that are asked for, or all that it has, where a store knows no ranges and they begin it."""

        def once(files: Any, path: str) -> bytes:
            if _knows_ranges(files):
                block = bytes(files.cat_file(path, start=start, end=stop))  # by name: s3fs has its own order
            else:
                with files.open(path, "rb") as file:
                    file.seek(start)
                    block = bytes(file.read(stop - start))
            if len(block) < stop - start or (start and len(block) > stop - start):
                raise ConnectionError(f"it sent {len(block):,} bytes in place of {stop - start:,}")
            return block

        return self.ask(once, stop - start)


def state_of(about: dict[str, Any]) -> str:
    """Return the state of a file, of what a store tells about it, asked for one file or for a folder."""
    keys = ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "sha", "mtime", "modify", "created", "CRC")
    tag = next((about[key] for key in keys if about.get(key)), "")
    return f"{about.get('size')} {tag.timestamp() if isinstance(tag, datetime) else tag}"


def log_nothing() -> None:
    """Print nothing of what stores' packages log in this process: some log each error with its traceback, and all raise it, too."""
    import logging

    logging.getLogger().addHandler(logging.NullHandler())


def _is_final(error: Exception) -> bool:
    """Return whether a store would say the same again."""
    error = _cause(error)
    status = next((getattr(error, name) for name in ("status", "status_code", "code") if hasattr(error, name)), 0)
    return (
        (isinstance(status, int) and 400 <= status < 500 and status not in _PASSING)
        or isinstance(error, _FINAL)
        or any(_NO.search(kind.__name__) for kind in type(error).__mro__)
        or bool(_FORBIDDEN.match(str(error)))
    )


def _knows_ranges(files: Any) -> bool:
    """Return whether a file system's `cat_file` takes a range: some take the words, and fetch the whole file."""
    method = getattr(files, "_cat_file", files.cat_file)
    return {"start", "end"} <= inspect.signature(method).parameters.keys()
