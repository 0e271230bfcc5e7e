"""Files behind URLs that fsspec knows: fetched by ranges where only a part is needed, and put whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from rnnconvert.containers import json_text, safetensors
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import MissingPackageError, RnnConvertError, UnreadableError, UsageError
from rnnconvert.files.load import load

_CHUNK = 1 << 22
_PART = 1 << 23
"""How much of a file is one part of a multipart upload; s3fs holds ten of them at a time."""
_PARTS = 10_000
"""How many parts a multipart upload may have."""
_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "az"}
"""Stores without folders, where an object appears when its last part is there."""
_NEAR = 1 << 16
"""Ranges with no more than so many bytes between them are fetched as one."""
_PAUSES = (0.2, 0.8, 3.2)
"""The seconds before a store that failed is asked again."""
_PATIENCE = 20.0
"""A small request is not made again after so many seconds: stores' own packages have tried it several times by then."""
_FINAL = (
    RnnConvertError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError,
    NotImplementedError, ImportError, MemoryError, TypeError, ValueError, AttributeError, LookupError,
)  # fmt: skip
"""What a store says that it will say again."""
_PASSING = (408, 425, 429)
"""The answers of a server below 500 that may be others a moment later."""

T = TypeVar("T")


def is_url(name: str) -> bool:
    """Return whether a name is a URL, and not a path."""
    return "://" in name or "::" in name


def is_pattern(name: str) -> bool:
    """Return whether a name stands for the files that it fits; in an address of the web a question mark begins a query."""
    return any(letter in place(name) for letter in "*?[")


def place(name: str) -> str:
    """Return a name without the query of an address of the web."""
    return name.partition("?")[0] if name.startswith(("http://", "https://")) else name


def system(url: str) -> tuple[Any, str]:
    """Return the file system behind a URL, and the path there.

    Raises MissingPackageError if fsspec or the package for this kind of store is absent, UsageError for an unknown kind.
    """
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError:
        raise MissingPackageError(
            "fsspec", f"read or write {url}", "Install it with: pip install rnnconvert[stores]"
        ) from None
    try:
        found, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingPackageError(
            f"the package for {url.partition('://')[0]}://", f"read or write {url}", str(error)
        ) from None
    except ValueError as error:
        raise UsageError(f"{url}: {error}") from None
    return found, path


def matching(pattern: str) -> list[str]:
    """Return the files that a pattern fits, paths or URLs, sorted."""
    if not is_url(pattern):
        root = Path(Path(pattern).anchor or ".")
        inside = Path(pattern).relative_to(Path(pattern).anchor)
        return sorted(str(one) for one in root.glob(str(inside)) if one.is_file())
    store, path = system(pattern)
    with _named(pattern):
        return sorted(
            store.unstrip_protocol(one) if "::" not in pattern else _inside(pattern, one) for one in store.glob(path)
        )


def _inside(pattern: str, path: str) -> str:
    """Return the URL of a file in an archive that a chained URL names."""
    protocol, _, rest = pattern.partition("://")
    return f"{protocol}://{path}::{rest.partition('::')[2]}"


@contextlib.contextmanager
def _named(url: str) -> Iterator[None]:
    """Turn whatever a store raises into an error that names the file."""
    try:
        yield
    except RnnConvertError:
        raise
    except Exception as error:  # each store has errors of its own
        raise UnreadableError(url, f"the store says: {type(error).__name__}: {error}"[:500]) from None


def asked(action: Callable[[], T], patience: float = _PATIENCE) -> T:
    """Return what an action on a store gives: where it fails as a connection or a busy server does, it is tried again.

    patience  seconds after which it is not tried again
    """
    start = time.monotonic()
    for pause in _PAUSES:
        try:
            return action()
        except Exception as error:  # each store has errors of its own
            status = getattr(error, "status", 0)
            refused = isinstance(status, int) and 400 <= status < 500 and status not in _PASSING
            if isinstance(error, _FINAL) or refused or time.monotonic() - start > patience:
                raise
        time.sleep(pause)
    return action()


def state(name: str, fresh: bool = False) -> str:
    """Return what changes when a file is written again, without reading it: its size, and its time or the store's tag.

    fresh  ask the store, whatever a listing said before
    """
    if not is_url(name):
        try:
            status = Path(name).stat()
        except OSError as error:
            raise UnreadableError(name, str(error.strerror)) from None
        return f"{status.st_size} {status.st_mtime_ns}"
    store, path = system(name)
    if fresh:
        store.invalidate_cache(path.rpartition("/")[0])
    with _named(name):
        return state_of(asked(lambda: store.info(path)))


def state_of(about: dict[str, Any]) -> str:
    """Return the state of a file, of what a store tells about it, asked for one file or for a folder."""
    keys = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "created", "CRC")
    tag = next((about[key] for key in keys if about.get(key)), "")
    return f"{about.get('size')} {tag.timestamp() if isinstance(tag, datetime) else tag}"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            made.update(block)
    return made.hexdigest()


@contextlib.contextmanager
def fetched(name: str, needs: tuple[str, ...] = (), before: str = "") -> Iterator[Path]:
    """Yield a file as one on this disk: a path itself; of a URL what is needed, in a temporary folder.

    needs   settings that `load` takes, where the file is asked which arrays are recurrent
    before  its `state`, if it was asked for: its size is not asked for again
    """
    if not is_url(name):
        yield Path(name)
        return
    store, path = system(name)
    with new_folder() as folder:
        local = folder / (place(path).rstrip("/").rpartition("/")[2] or "file")
        with _named(name):
            told = before.partition(" ")[0]
            size = int(told) if told.isdigit() else int(asked(lambda: store.info(path)).get("size") or 0)
            if size > shutil.disk_usage(folder).free and not name.endswith(
                ".safetensors"
            ):  # of which little is fetched
                raise UnreadableError(
                    name, f"{size:,} bytes, more than the temporary folder has free", "Set TMPDIR to a larger disk."
                )
            first = min(size, _NEAR) if name.endswith(".safetensors") else 0
            start = _range(store, path, 0, first) if first >= 8 else b""
            if start and len(start) == first:
                _by_ranges(store, path, local, size, start, needs)
            else:  # another kind of file, or a store that sends all of it whatever is asked
                _copied(store, path, local, size)
        yield local


def _copied(store: Any, path: str, local: Path, size: int) -> None:
    """Copy all of a file; a copy that was cut off goes on where it stopped, if the store can seek."""
    with local.open("wb") as out:

        def rest() -> None:
            with store.open(path, "rb", block_size=_CHUNK) as file:
                start = out.tell() if file.seekable() else 0
                if start:
                    file.seek(start)
                out.seek(start)
                out.truncate()
                while block := file.read(_CHUNK):
                    _written(out, block, local)
            if size and out.tell() != size:
                raise ConnectionError(f"it sent {out.tell():,} of {size:,} bytes")

        asked(rest, math.inf)


def _written(out: Any, block: bytes, local: Path) -> None:
    try:
        out.write(block)
    except OSError as error:
        raise UsageError(f"{local}: cannot write: {error.strerror}. Set TMPDIR to a larger disk") from None


def _range(store: Any, path: str, start: int, stop: int) -> bytes:
    """Return some bytes of a file: all that are asked for, or all that it has, where a store knows no ranges and they begin it."""

    def once() -> bytes:
        block = bytes(store.cat_file(path, start=start, end=stop))  # by name: s3fs has its own order
        if len(block) < stop - start or (start and len(block) > stop - start):
            raise ConnectionError(f"it sent {len(block):,} bytes in place of {stop - start:,}")
        return block

    return asked(once)


def _by_ranges(store: Any, path: str, local: Path, size: int, start: bytes, needs: tuple[str, ...]) -> None:
    """Fetch the header of a safetensors file, then the bytes of its recurrent arrays; the rest is a hole in the copy.

    start  its first bytes, with most headers and small files among them
    """
    length = int.from_bytes(start[:8], "little")
    if length > min(safetensors.MAX_HEADER, size - 8):
        raise UnreadableError(path, "it is not a whole safetensors file")
    if len(start) < 8 + length:
        start += _range(store, path, len(start), 8 + length)
    probe = local.with_name(f"header {local.name}")
    for copy in (probe, local):
        with copy.open("wb") as out:
            _written(out, start, local)
            out.truncate(size)
    if len(start) == size:
        return
    try:
        header = json_text.loads(start[8 : 8 + length], path)
        wanted = recurrent_arrays(probe, needs)
        ranges = sorted(
            (8 + length + start, 8 + length + stop)
            for name in wanted
            for start, stop in [map(int, header[name]["data_offsets"])]
        )
    except (ValueError, KeyError, TypeError):
        ranges = [(8 + length, size)]  # the reader names what is wrong
    with local.open("r+b") as out:
        for begin, stop in joined(ranges):
            for at in range(max(begin, len(start)), min(stop, size), _CHUNK):
                out.seek(at)
                _written(out, _range(store, path, at, min(at + _CHUNK, stop, size)), local)


def recurrent_arrays(path: Path, settings: tuple[str, ...] = ()) -> list[str]:
    """Return the arrays of a file's recurrent layers, by their names and shapes alone."""
    checkpoint = load(path, settings=settings)
    return [name for name in checkpoint.arrays if name not in checkpoint.tensors]


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, with near ones as one."""
    made: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if made and start - made[-1][1] <= _NEAR:
            made[-1] = made[-1][0], max(stop, made[-1][1])
        else:
            made.append((start, stop))
    return made


def put(local: Path, url: str) -> str:
    """Write a file to a store, whole or not at all where the store permits, and return its `state` there.

    Where objects do not appear with their last part, it is written under another name and renamed.
    """
    store, path = system(url)
    if "zip" in protocols(store):
        raise UsageError(
            f"{url}: a zip archive cannot be written by several processes. Choose a folder, and zip it afterwards"
        )
    try:
        if _WHOLE & protocols(store):
            return _sent(store, local, path)
        parent = path.rpartition("/")[0]
        if parent:
            asked(lambda: store.makedirs(parent, exist_ok=True))
        part = f"{path}.{os.urandom(4).hex()}.part"
        try:
            _sent(store, local, part)
            if store.exists(path):
                store.rm_file(path)
            store.mv(part, path)
        except BaseException:
            with contextlib.suppress(Exception):
                store.rm_file(part)
            raise
        return state(url, fresh=True)
    except RnnConvertError:
        raise
    except Exception as error:
        raise UsageError(f"{url}: cannot write there: {type(error).__name__}: {error}"[:500]) from None


def _sent(store: Any, local: Path, path: str) -> str:
    """Send a file, see that all of it has arrived, and return its `state`."""
    whole = local.stat().st_size
    parts = {"chunksize": max(_PART, -(-whole // _PARTS))} if {"s3", "s3a"} & protocols(store) else {}
    for _ in range(len(_PAUSES) + 1):
        asked(lambda: store.put_file(str(local), path, **parts), math.inf)
        store.invalidate_cache(path.rpartition("/")[0])
        about = asked(lambda: store.info(path))
        if about.get("size") in (None, whole):
            return state_of(about)
    raise ConnectionError(f"{about['size']:,} of {whole:,} bytes have arrived")


def protocols(store: Any) -> set[str]:
    """Return the beginnings of URLs that a store is known by."""
    return {store.protocol} if isinstance(store.protocol, str) else set(store.protocol)
