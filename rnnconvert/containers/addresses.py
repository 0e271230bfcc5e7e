"""A file behind a URL that fsspec knows, as a file on this disk: fetched once, and again when it has changed."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from rnnconvert.containers.asking import Store, is_url, log_nothing, named, state_of
from rnnconvert.containers.temporary import lasting_folder, room_for
from rnnconvert.core.errors import show_as

_CHUNK = 1 << 22


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
    with named(name):
        about = store.ask(lambda files, path: files.info(path))
    state = state_of(about)
    tagged = bool(state.partition(" ")[2])
    key = hashlib.sha256(f"{name} {state}".encode()).hexdigest()[:32]
    folder = _cache() / key if tagged else lasting_folder()
    copy = folder / (name.partition("?")[0].partition("::")[0].rstrip("/").rpartition("/")[2] or "file")
    if not tagged or not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = copy.with_name(f"{copy.name}.{os.getpid()}.part")
        try:
            _fetch(store, part, int(about.get("size") or 0))
            part.replace(copy)
        finally:
            part.unlink(missing_ok=True)
    show_as(copy, name)
    return copy


def _fetch(store: Store, copy: Path, size: int) -> None:
    def whole(files: object, path: str) -> None:
        with files.open(path, "rb", block_size=_CHUNK) as file, room_for(store.url), copy.open("wb") as out:  # type: ignore[attr-defined]
            shutil.copyfileobj(file, out, _CHUNK)
            if size and out.tell() != size:
                raise ConnectionError(f"it sent {out.tell():,} of {size:,} bytes")

    with named(store.url):
        store.ask(whole, size)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnnconvert" / "files"
