"""A file behind a URL that fsspec knows, as a file on this disk: fetched once, and again when it has changed."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from rnnconvert.containers.asking import Store, is_url, log_nothing, named, state_of
from rnnconvert.containers.temporary import lasting_folder, new_file, room_for
from rnnconvert.core.errors import UnreadableError, show_as

_CHUNK = 1 << 22
_TIMES = 3
"""How often a file is fetched that changes meanwhile."""
_LONGEST = 60
"""The characters of a URL's last part that a copy is named by: in UTF-8 they fit into any file's name."""


def local(source: str | os.PathLike[str]) -> Path:
    """Return a path as it is; of a URL, a copy in the cache, which errors name as the URL.

    A copy is used again while the store has the same size and tag or time of it, which it is asked for each time. Of a store
    without tags and times nothing is kept. The cache is `rnnconvert/files` in XDG_CACHE_HOME, or in ~/.cache.

    Raises MissingPackageError without fsspec or its package for such a store, and UnreadableError, which says what the store says.
    """
    name = os.fsdecode(source)
    if not is_url(name) or os.path.exists(name):  # noqa: PTH110  # no error for a name that is too long
        return Path(name)
    log_nothing()
    store = Store(name)
    state, size = _state(store)
    for _ in range(_TIMES):
        copy = _place(name, state)
        if not _is_whole(copy, size):
            _fetch(store, copy, size)
            before, (state, size) = state, _state(store)
            if state != before:  # fetched in several requests: it may be of two files
                copy.unlink(missing_ok=True)
                continue
        show_as(copy, name)
        return copy
    raise UnreadableError(name, "it changed while it was fetched", "Start again when whatever writes it has ended.")


def _state(store: Store) -> tuple[str, int]:
    """Return the state of a file, as the store knows it now, and its size; 0 if unknown."""

    def once(files: Any, path: str) -> dict[str, Any]:
        store.forget()
        return dict(files.info(path))

    with named(store.url):
        about = store.ask(once)
    return state_of(about), int(about.get("size") or 0)


def _place(name: str, state: str) -> Path:
    """Return the place of the copy of a file in this state: for the user alone, as the store may ask for a key.

    Where the cache cannot be written to, and of a store without tags and times, it is a place for this process.
    """
    folder = None
    if state.partition(" ")[2]:
        import hashlib

        key = hashlib.sha256(f"{name} {state}".encode()).hexdigest()[:32]
        with contextlib.suppress(OSError, RuntimeError):  # the second: a user without a home
            (place := _cache() / key).mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = place if os.access(place, os.W_OK) else None
    last = name.partition("?")[0].partition("::")[0].rstrip("/").rpartition("/")[2]
    return (folder or lasting_folder()) / (last[-_LONGEST:] or "file")


def _is_whole(copy: Path, size: int) -> bool:
    """Return whether a copy is there with all of its bytes: a machine that lost its power may have left less of them."""
    try:
        return copy.stat().st_size == size or not size
    except OSError:
        return False


def _fetch(store: Store, copy: Path, size: int) -> None:
    """Fetch a file under a temporary name, and give it its own when it is whole: others may fetch it at the same time."""
    handle, part = new_file(copy, 0o600)
    try:
        _fill(store, part, size)
        part.replace(copy)
    finally:
        os.close(handle)
        part.unlink(missing_ok=True)


def _fill(store: Store, copy: Path, size: int) -> None:
    def every_byte(files: object, path: str) -> None:
        with files.open(path, "rb", block_size=_CHUNK) as file, room_for(store.url), copy.open("wb") as out:  # type: ignore[attr-defined]
            shutil.copyfileobj(file, out, _CHUNK)
            if size and out.tell() != size:
                raise ConnectionError(f"it sent {out.tell():,} of {size:,} bytes")

    with named(store.url):
        store.ask(every_byte, size)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnnconvert" / "files"
