"""Files put into stores behind URLs: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rnnconvert.batch.stores import state
from rnnconvert.containers.asking import OBJECTS, Store, is_url, message_of, protocols, state_of
from rnnconvert.core.errors import OutputError, RnnConvertError, UsageError

_PART = 1 << 23
"""How much of a file is one part of a multipart upload; s3fs holds ten of them at a time."""


_PARTS = 10_000
"""How many parts a multipart upload may have."""


_SENDS = 4
"""How often a target is sent of which only a part has arrived."""


_UNFINISHED = re.compile(r"\.[0-9a-f]{8}\.part")
"""What follows a target's name in that of one that is being written, where a store renames."""


def put(local: Path, url: str) -> str:
    """Write a file to a store, whole or not at all where the store permits, and return its `state` there.

    Where objects do not appear with their last part, it is written under another name and renamed.
    """
    store = Store(url)
    try:
        kinds = store.ask(lambda files, path: protocols(files))
        if "zip" in kinds:
            raise UsageError(f"{url}: a zip archive cannot be written by several processes. Choose a folder, and zip it afterwards")
        if OBJECTS & kinds:
            return _sent(store, local)
        parent = store.path.rpartition("/")[0]
        if parent:
            store.ask(lambda files, path: files.makedirs(parent, exist_ok=True))
        addition = f".{os.urandom(4).hex()}.part"
        try:
            _sent(store, local, addition)
            _renamed(store, addition, local.stat().st_size)
        except BaseException:
            with contextlib.suppress(Exception):
                store.files.rm_file(store.path + addition)
            raise
        return state(url, fresh=True)
    except RnnConvertError:
        raise
    except Exception as error:  # each store has errors of its own
        raise OutputError(f"{url}: cannot write there: {message_of(error)}"[:500]) from None


def _sent(store: Store, local: Path, addition: str = "") -> str:
    """Send a file, see that all of it has arrived, and return its `state`.

    addition  to its name there
    """
    total = local.stat().st_size
    parts = {"chunksize": max(_PART, -(-total // _PARTS))} if {"s3", "s3a"} & protocols(store.files) else {}
    for _ in range(_SENDS):
        store.ask(lambda files, path: files.put_file(str(local), path + addition, **parts), total)
        store.forget()
        about = store.ask(lambda files, path: files.info(path + addition))
        if about.get("size") in (None, total):
            return state_of(about)
    raise ConnectionError(f"{about['size']:,} of {total:,} bytes have arrived")


def _renamed(store: Store, addition: str, size: int) -> None:
    """Take an addition from a file's name. One that is there is replaced in one step, where the store can."""
    tries = 0

    def once(files: Any, path: str) -> None:
        nonlocal tries
        tries += 1
        if tries > 1 and not _is_there(files, path + addition):
            return  # it was renamed, and the answer was lost
        try:
            files.mv(path + addition, path)
        except PermissionError:
            raise
        except Exception:  # some stores rename over nothing
            if not _is_there(files, path + addition) or not _is_there(files, path):
                raise
            files.rm_file(path)
            files.mv(path + addition, path)

    store.ask(once, size)
    store.forget()
    if store.ask(lambda files, path: files.info(path)).get("size") not in (None, size):
        raise ConnectionError("it was replaced while it was written")


def _is_there(files: Any, path: str) -> bool:
    """Return whether a file exists; `exists` of fsspec takes a connection that is lost for a no."""
    try:
        files.invalidate_cache(path.rpartition("/")[0])
        files.info(path)
    except FileNotFoundError:
        return False
    return True


def sweep(targets: Iterable[str]) -> None:
    """Remove what a killed process left of targets behind URLs, where a store renames and may be listed."""
    folders: dict[str, set[str]] = {}
    for url in targets:
        if is_url(url) and "::" not in url:
            folders.setdefault(url.rpartition("/")[0], set()).add(url.rpartition("/")[2])
    for folder, names in folders.items():
        with contextlib.suppress(Exception):  # not every key may list or remove
            store = Store(f"{folder}/file")
            if not OBJECTS & protocols(store.files):
                _sweep(store, names)


def _sweep(store: Store, names: set[str]) -> None:
    parent = store.path.rpartition("/")[0]
    store.forget()
    for path in store.ask(lambda files, path: files.ls(parent, detail=False)):
        name = path.rpartition("/")[2]
        matched = _UNFINISHED.search(name)
        if matched and matched.end() == len(name) and name[: matched.start()] in names:
            store.files.rm_file(path)
