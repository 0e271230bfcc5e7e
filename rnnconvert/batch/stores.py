"""Files behind URLs that fsspec knows: fetched by ranges where only a part is needed, and put whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnnconvert.containers import json_text, safetensors
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import MissingPackageError, RnnConvertError, UnreadableError, UsageError
from rnnconvert.files.load import load

_CHUNK = 1 << 22
_NEAR = 1 << 16
"""Ranges with no more than so many bytes between them are fetched as one."""


def is_url(name: str) -> bool:
    """Return whether a name is a URL, and not a path."""
    return "://" in name or "::" in name


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


def state(name: str) -> str:
    """Return what changes when a file is written again, without reading it: its size, and its time or the store's tag."""
    if not is_url(name):
        try:
            status = Path(name).stat()
        except OSError as error:
            raise UnreadableError(name, str(error.strerror)) from None
        return f"{status.st_size} {status.st_mtime_ns}"
    store, path = system(name)
    with _named(name):
        about = store.info(path)
    tag = next(
        (
            str(about[key])
            for key in ("ETag", "etag", "md5Hash", "content_md5", "mtime", "created", "CRC")
            if about.get(key)
        ),
        "",
    )
    return f"{about.get('size')} {tag}"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            made.update(block)
    return made.hexdigest()


@contextlib.contextmanager
def fetched(name: str, needs: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield a file as one on this disk: a path itself; of a URL what is needed, in a temporary folder.

    needs  settings that `load` takes, where the file is asked which arrays are recurrent
    """
    if not is_url(name):
        yield Path(name)
        return
    store, path = system(name)
    with new_folder() as folder:
        local = folder / (path.rstrip("/").rpartition("/")[2] or "file")
        with _named(name):
            size = int(store.info(path).get("size") or 0)
            if size > shutil.disk_usage(folder).free and not name.endswith(
                ".safetensors"
            ):  # of which little is fetched
                raise UnreadableError(
                    name, f"{size:,} bytes, more than the temporary folder has free", "Set TMPDIR to a larger disk."
                )
            ranged = name.endswith(".safetensors") and size >= 8 and len(store.cat_file(path, 0, 8)) == 8
            if ranged:
                _by_ranges(store, path, local, size, needs)
            else:  # another kind of file, or a store that sends all of it whatever is asked
                with store.open(path, "rb", block_size=_CHUNK) as file, local.open("wb") as out:
                    shutil.copyfileobj(file, out, _CHUNK)
        yield local


def _by_ranges(store: Any, path: str, local: Path, size: int, needs: tuple[str, ...]) -> None:
    """Fetch the header of a safetensors file, then the bytes of its recurrent arrays; the rest is a hole in the copy."""
    head = store.cat_file(path, 0, 8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(safetensors.MAX_HEADER, size - 8):
        raise UnreadableError(path, "it is not a whole safetensors file")
    text = store.cat_file(path, 8, 8 + length)
    probe = local.with_name(f"header {local.name}")
    for copy in (probe, local):
        with copy.open("wb") as out:
            out.write(head + text)
            out.truncate(size)
    try:
        header = json_text.loads(text, path)
        wanted = recurrent_arrays(probe, needs)
        ranges = sorted(
            (8 + length + start, 8 + length + stop)
            for name in wanted
            for start, stop in [map(int, header[name]["data_offsets"])]
        )
    except (ValueError, KeyError, TypeError):
        ranges = [(8 + length, size)]  # the reader names what is wrong
    with local.open("r+b") as out:
        for start, stop in joined(ranges):
            for at in range(start, min(stop, size), _CHUNK):
                block = store.cat_file(path, at, min(at + _CHUNK, stop, size))
                if len(block) != min(at + _CHUNK, stop, size) - at:
                    raise UnreadableError(path, f"the store sent {len(block)} bytes in place of those asked for")
                out.seek(at)
                out.write(block)


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


def put(local: Path, url: str) -> None:
    """Write a file to a store, whole or not at all where the store permits: under another name first, where it can rename."""
    store, path = system(url)
    if "zip" in _protocols(store):
        raise UsageError(
            f"{url}: a zip archive cannot be written by several processes. Choose a folder, and zip it afterwards"
        )
    try:
        parent = path.rpartition("/")[0]
        if parent:
            store.makedirs(parent, exist_ok=True)
        if {"s3", "s3a", "gs", "gcs", "abfs", "az"} & _protocols(store):
            store.put_file(str(local), path)  # an object appears when its last part is there
            return
        part = f"{path}.{os.urandom(4).hex()}.part"
        try:
            store.put_file(str(local), part)
            if store.exists(path):
                store.rm_file(path)
            store.mv(part, path)
        except BaseException:
            with contextlib.suppress(Exception):
                store.rm_file(part)
            raise
    except RnnConvertError:
        raise
    except Exception as error:
        raise UsageError(f"{url}: cannot write there: {type(error).__name__}: {error}"[:500]) from None


def _protocols(store: Any) -> set[str]:
    return {store.protocol} if isinstance(store.protocol, str) else set(store.protocol)
