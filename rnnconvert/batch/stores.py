"""Files behind URLs that fsspec knows: fetched by ranges where only a part is needed, and put whole or not at all.

A listing of their folder states those of many: one request for a thousand files.
"""

from __future__ import annotations

import bisect
import contextlib
import glob
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rnnconvert.containers import json_text
from rnnconvert.containers.asking import OBJECTS, Store, is_url, named, protocols, state_of
from rnnconvert.containers.temporary import new_folder, room_for
from rnnconvert.core.errors import OutputError, UnreadableError
from rnnconvert.core.limits import HEADER_BYTES
from rnnconvert.core.text_file import open_bytes
from rnnconvert.files.load import load

_CHUNK = 1 << 22
_NEAR = 1 << 16
"""Ranges with no more than so many bytes between them are fetched as one."""


def is_pattern(name: str) -> bool:
    """Return whether a name stands for the files that it fits; in an address of the web a question mark begins a query."""
    return any(letter in place(name) for letter in "*?[")


def place(name: str) -> str:
    """Return a name without the query of an address of the web."""
    return name.partition("?")[0] if name.startswith(("http://", "https://")) else name


def root_of(pattern: str) -> str:
    """Return the folder, a path or a URL, that all files are in which a pattern fits."""
    return re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]


def matching(pattern: str) -> list[str]:
    """Return the files that a pattern fits, paths or URLs, sorted."""
    if not is_url(pattern):
        root = Path(Path(pattern).anchor or ".")
        inside = Path(pattern).relative_to(Path(pattern).anchor)
        return sorted(str(path) for path in root.glob(str(inside)) if path.is_file())
    store = Store(pattern)
    with named(pattern):
        entries = store.ask(lambda files, path: files.glob(path, detail=True))
        return sorted(_url(store, name) for name, about in entries.items() if about.get("type") != "directory")


def _url(store: Store, path: str) -> str:
    """Return the URL of a file that a store's pattern fits: the user, the host and the account are in the pattern, and not in a path."""
    first, chained, rest = store.url.partition("::")
    if "://" not in first:
        first, chained, rest = store.url, "", ""
    pairs = zip(reversed(first), reversed(store.path), strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    before = store.path[: len(store.path) - shared]
    if not path.startswith(before):
        return str(store.files.unstrip_protocol(path))
    return first[: len(first) - shared] + path[len(before) :] + chained + rest


def state(name: str, fresh: bool = False) -> str:
    """Return a text that changes when a file is written again, without reading it: its size, and its time or the store's tag.

    fresh  ask the store, even if a listing stated it before
    """
    if not is_url(name):
        try:
            statuses = [file.stat() for file in _files(Path(name))]
        except OSError as error:
            raise UnreadableError(name, str(error.strerror)) from None
        size, written = sum(status.st_size for status in statuses), max((status.st_mtime_ns for status in statuses), default=0)
        return f"{size} {written}"
    store = Store(name)

    def once(files: Any, path: str) -> str:
        if fresh:
            store.forget()
        return state_of(files.info(path))

    with named(name):
        return store.ask(once)


def _files(path: Path) -> list[Path]:
    """Return the files that a path stands for: itself; all in a folder; all that belong to a checkpoint of this name."""
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    if (index := Path(f"{path}.index")).is_file():
        return [index, *sorted(path.parent.glob(f"{glob.escape(path.name)}.data-*"))]
    return [path]


def digest(*paths: Path) -> str:
    """Return the SHA-256 of a file, or of the names and the contents of several, or of all in a folder."""
    files = [(file, file.name if file == path else str(file.relative_to(path.parent))) for path in paths for file in _files(path)]
    hasher = hashlib.sha256()
    for file, name in files:
        if len(files) > 1:
            hasher.update(os.fsencode(f"{name}\0{file.stat().st_size}\0"))
        with open_bytes(file) as content:
            while block := content.read(_CHUNK):
                hasher.update(block)
    return hasher.hexdigest()


@contextlib.contextmanager
def fetched(name: str, needs: tuple[str, ...] = (), before: str = "") -> Iterator[Path]:
    """Yield a file as one on this disk: a path itself; of a URL what is needed, in a temporary folder.

    needs   settings that `load` takes, where the file is asked which arrays are recurrent
    before  its `state`, if it was asked for: its size is not asked for again
    """
    if not is_url(name):
        yield Path(name)
        return
    store = Store(name)
    with new_folder() as folder:
        local = folder / last(name)
        with named(name):
            first_word = before.partition(" ")[0]
            size = int(first_word) if first_word.isdigit() else int(store.ask(lambda files, path: files.info(path)).get("size") or 0)
            free = shutil.disk_usage(folder).free
            if size > free and not name.endswith(".safetensors"):  # of which little is fetched
                raise OutputError(
                    f"{name}: it does not fit into the temporary folder {folder.parent}: {size:,} bytes, and {free:,} are free. "
                    "Set TMPDIR to a larger disk"
                )
            first = min(size, _NEAR) if name.endswith(".safetensors") else 0
            start = store.part(0, first) if first >= 8 else b""
            if start and len(start) == first:
                _by_ranges(store, local, size, start, needs)
            elif size and OBJECTS & protocols(store.files):
                with local.open("wb") as out:
                    _filled(store, out, [(0, size)])
            else:  # a store that may know no ranges
                _copied(store, local, size)
        yield local


def named_as_asked(text: str, name: str) -> str:
    """Return a text with a file's own name in place of that of what `fetched` made of it."""
    if not is_url(name):
        return text
    folder = rf"(?<![^\s'\"(])[^\s'\"(]*{os.sep}\.\.rnnconvert-\d+-[0-9a-f]{{8}}\.folder{os.sep}"
    return re.sub(folder + re.escape(last(name)), lambda _: name, text)


def last(name: str) -> str:
    """Return the last part of a URL's path: the name of its file."""
    return place(name).rstrip("/").rpartition("/")[2] or "file"


def _copied(store: Store, local: Path, size: int) -> None:
    """Copy all of a file; a copy that was cut off goes on where it stopped, if the store can seek."""
    with local.open("wb") as out:

        def rest(files: Any, path: str) -> None:
            with files.open(path, "rb", block_size=_CHUNK) as file:
                start = out.tell() if file.seekable() else 0
                if start:
                    file.seek(start)
                out.seek(start)
                out.truncate()
                while block := file.read(_CHUNK):
                    _written(out, block, store.url)
            if size and out.tell() != size:
                raise ConnectionError(f"it sent {out.tell():,} of {size:,} bytes")

        store.ask(rest, size)


def _written(out: Any, block: bytes, url: str) -> None:
    with room_for(url):
        out.write(block)


def _by_ranges(store: Store, local: Path, size: int, start: bytes, needs: tuple[str, ...]) -> None:
    """Fetch the header of a safetensors file, then the bytes of its recurrent arrays; the rest is a hole in the copy.

    start  its first bytes, with most headers and small files among them
    """
    length = int.from_bytes(start[:8], "little")
    if length > min(HEADER_BYTES, size - 8):
        raise UnreadableError(store.url, "it is not a whole safetensors file")
    if len(start) < 8 + length:
        start += store.part(len(start), 8 + length)
    probe = local.with_name(f"header {local.name}")
    for copy in (probe, local):
        with copy.open("wb") as out:
            _written(out, start, store.url)
            out.truncate(size)
    if len(start) == size:
        return
    try:
        header = json_text.loads(start[8 : 8 + length], store.url)
        wanted = recurrent_arrays(probe, needs)
        ranges = sorted(
            (8 + length + start, 8 + length + stop) for name in wanted for start, stop in [map(int, header[name]["data_offsets"])]
        )
    except (ValueError, KeyError, TypeError):
        ranges = [(8 + length, size)]  # the reader names what is wrong
    with local.open("r+b") as out:
        _filled(store, out, [(max(begin, len(start)), min(stop, size)) for begin, stop in joined(ranges)])


def _filled(store: Store, out: Any, ranges: Iterable[tuple[int, int]]) -> None:
    """Write ranges of a file to their places in a copy."""
    for begin, stop in ranges:
        for at in range(begin, stop, _CHUNK):
            out.seek(at)
            _written(out, store.part(at, min(at + _CHUNK, stop)), store.url)


def recurrent_arrays(path: Path, settings: tuple[str, ...] = ()) -> list[str]:
    """Return the arrays of a file's recurrent layers, by their names and shapes alone."""
    checkpoint = load(path, settings=settings)
    return [name for name in checkpoint.arrays if name not in checkpoint.tensors]


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, with near ones as one."""
    result: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if result and start - result[-1][1] <= _NEAR:
            result[-1] = result[-1][0], max(stop, result[-1][1])
        else:
            result.append((start, stop))
    return result


_WORTH = 8
"""How many files of a folder are asked about before it is listed."""
_WORTH_WHOLE = 100
"""The same if a folder can only be listed as a whole, no matter what else is in it."""


def states(urls: Iterable[str]) -> dict[str, str]:
    """Return the `state` of files behind URLs, as far as listings tell them: `stores.state` is to ask for the others."""
    folders: dict[str, dict[str, str]] = {}
    for url in urls:
        if "::" not in url and not url.startswith(("http://", "https://")):  # archives are here, and the web lists nothing
            folders.setdefault(url.rpartition("/")[0], {})[url.rpartition("/")[2]] = url
    states_by_name: dict[str, str] = {}
    for folder, names in folders.items():
        if len(names) < _WORTH:
            continue
        # Not every key may list, and what a listing leaves out is asked for by itself.
        with contextlib.suppress(Exception):
            for name, about in _listed(folder, sorted(names)):
                if name in names:
                    states_by_name[names[name]] = state_of(about)
    return states_by_name


def _listed(folder: str, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names in a folder with what the store tells about each."""
    store = Store(f"{folder}/")
    path = store.path.rstrip("/")
    if "s3" in protocols(store.files):
        yield from _paged(store, path, names)
    elif len(names) >= _WORTH_WHOLE:
        store.files.invalidate_cache(path)
        for about in store.ask(lambda files, _: files.ls(path, detail=True)):
            yield about["name"].rpartition("/")[2], about
        store.files.invalidate_cache(path)


def _paged(store: Store, folder: str, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield objects by pages of a thousand, each of which begins at a name: so there are never more pages than names."""
    bucket, prefix, _ = store.files.split_path(folder)
    prefix = f"{prefix}/" if prefix else ""
    at = 0
    while at < len(names):
        before = prefix + names[at][:-1]  # what begins like a name comes before it
        ask = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/", "StartAfter": before}
        page = store.ask(lambda files, _, ask=ask: files.call_s3("list_objects_v2", **ask))  # type: ignore[misc]
        objects = page.get("Contents", [])
        for entry in objects:
            yield entry["Key"][len(prefix) :], {"size": entry["Size"], "ETag": entry["ETag"]}
        if not page.get("IsTruncated") or not objects:
            return
        at = max(at + 1, bisect.bisect_right(names, objects[-1]["Key"][len(prefix) :]))
