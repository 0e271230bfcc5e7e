"""Files: mapped for reading; written next to their target, then renamed.

Every container goes through here, so that no reader can be led outside its file and no
writer leaves half a file or touches an existing one before its replacement is complete.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import mmap
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnconvert.core.arrays import PIECE_BYTES, Array, Pieced, nbytes, pieces
from rnnconvert.core.errors import UnreadableError, UsageError, unreadable
from rnnconvert.core.text_file import regular

_MAPPED: contextvars.ContextVar[list[Path] | None] = contextvars.ContextVar("mapped", default=None)


@contextlib.contextmanager
def mapped_files() -> Iterator[list[Path]]:
    """Yield a list that every file is added to which `map_file` opens in the block: a checkpoint may lie in several."""
    found: list[Path] = []
    token = _MAPPED.set(found)
    try:
        yield found
    finally:
        _MAPPED.reset(token)


def map_file(path: str | os.PathLike[str]) -> Array:
    """Return the bytes of a file, as a read-only memory map.

    Raises UnreadableError if the file is absent, empty, a folder, or may not be read.
    """
    try:
        with regular(path).open("rb") as file:
            mapped = _MAPPED.get()
            if mapped is not None:
                mapped.append(Path(path))
            if os.fstat(file.fileno()).st_size == 0:
                raise UnreadableError(path, "the file is empty")
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise unreadable(path, error) from None


def view(data: Array, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], path: object, name: str) -> Array:
    """Return an array inside mapped bytes, as a read-only view.

    Raises UnreadableError if it would reach outside the bytes; nothing is allocated before this is checked.
    """
    count = 1
    for length in shape:
        if length < 0:
            raise UnreadableError(path, f"{name!r} has the negative length {length} in its shape {shape}")
        count *= length
    if (
        not count and math.prod(max(length, 1) for length in shape) >= 1 << 56
    ):  # numpy makes no such array, though empty
        raise UnreadableError(path, f"{name!r} has the shape {shape}")
    size = count * dtype.itemsize
    if offset < 0 or offset + size > data.size:
        raise UnreadableError(
            path,
            f"{name!r} should be {size} bytes at byte {offset}, but the file has only {data.size} bytes",
            "The file is truncated or damaged; fetch it again.",
        )
    raw = data[offset : offset + size]
    try:
        if raw.ctypes.data % dtype.itemsize:  # numpy computes on unaligned views, only slower
            return np.ndarray(shape, dtype, raw.data)
        return raw.view(dtype).reshape(shape)
    except ValueError as error:  # too many axes, or one beside an empty one that is too long
        raise UnreadableError(path, f"{name!r} cannot have the shape {str(shape)[:100]}: {error}") from None


def lowered(path: str | os.PathLike[str]) -> Path:
    """Return a path with its name in lower case, to examine its ending: MODEL.PT ends in .pt."""
    plain = Path(path)
    return plain.with_name(plain.name.lower()) if plain.name else plain


def only_replace(path: Path, force: bool) -> None:
    """Raise UsageError if the file exists and the caller did not allow replacing it, or for a device or a pipe."""
    _no_device(path)
    if path.exists() and not force:
        raise UsageError(f"{path} already exists. Use --force to replace it")


def _no_device(path: Path) -> None:
    """Raise UsageError for what is neither a file nor a folder: a new file in its place would remove it."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UsageError(f"{path} is not a regular file, and would be removed. Choose another path")


_counters: contextvars.ContextVar[Callable[[int], None] | None] = contextvars.ContextVar("counter", default=None)


@contextlib.contextmanager
def counting(seen: Callable[[int], None]) -> Iterator[None]:
    """Call a function with the bytes that arrays took so far, while the block writes files with `write_pieces`."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        seen(done)

    token = _counters.set(add)
    try:
        yield
    finally:
        _counters.reset(token)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a file to write, which takes the place of `path` when the block ends well.

    It is created next to `path`, so that renaming it is one step; if the block raises, or is
    interrupted, it is removed and `path` stays unchanged.

    Raises UsageError if nothing can be written there.
    """
    target = Path(path)
    with _part(target) as (file, place):
        yield file
        place(target)


@contextlib.contextmanager
def _part(target: Path) -> Iterator[tuple[IO[bytes], Callable[[Path], None]]]:
    """Yield a new file next to `target`, and what closes it and puts it into its place; it is removed if that was not called."""
    _no_device(target)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise UsageError(f"{target}: cannot write here: {error.strerror}. Choose another path or free it") from None

    def place(final: Path) -> None:
        file.close()
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(final)

    try:
        with os.fdopen(handle, "w+b") as file:
            yield file, place
    except OSError as error:
        raise UsageError(f"{target}: cannot write: {error.strerror or error}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


_DIGEST = 16
"""Hexadecimal digits of the digest in the name of a file of numbers."""


@contextlib.contextmanager
def replacing_with_data(
    path: str | os.PathLike[str], fill: Callable[[IO[bytes]], str], force: bool
) -> Iterator[tuple[IO[bytes], str]]:
    """Yield a file to write, and the name of the file with its numbers, which is complete by then.

    Each content of the numbers has a file name of its own, NAME.DIGEST.data: a stop at any moment leaves the old file with its
    own numbers, or the new file with its own. The numbers of the file that was replaced are removed last.

    fill   writes the numbers and returns a digest of them, in hexadecimal digits
    force  replace an existing file of that name

    Raises UsageError if nothing can be written there.
    """
    target, fresh = Path(path), None
    before = old_data(target)
    try:
        with replacing(target) as file:
            with _part(target) as (data, place):
                beside = target.with_name(f"{target.name}.{fill(data)[:_DIGEST]}.data")
                only_replace(beside, force)
                fresh = None if beside.exists() else beside
                place(beside)
            yield file, beside.name
    except BaseException:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
        raise
    remove_old_data(before, beside.name)


def old_data(target: Path) -> list[Path]:
    """Return the files of numbers that `replacing_with_data` put beside a file that is there; none for a new file."""
    if not target.exists():
        return []
    pattern = re.compile(rf"{re.escape(target.name)}\.[0-9a-f]{{{_DIGEST}}}\.data")
    return [one for one in target.parent.iterdir() if pattern.fullmatch(one.name)]


def remove_old_data(before: Iterable[Path], kept: str = "") -> None:
    """Remove what `old_data` found before a file was replaced, but for the numbers of the new one."""
    for one in before:
        if one.name != kept:
            with contextlib.suppress(OSError):
                one.unlink()


@contextlib.contextmanager
def replacing_both(path: str | os.PathLike[str], beside: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield a file and the companion file that it needs; both take their places together.

    The companion comes first, since the other is of no use without it; if the other then cannot follow,
    the previous companion is put back.
    """
    before = beside.with_name(f".{beside.name}.{os.getpid()}.before")
    placed = False
    try:
        with replacing(path) as file:
            with replacing(beside) as data:
                yield file, data
                with contextlib.suppress(OSError):  # there may be none, or no links on this disk
                    os.link(beside, before)
            placed = True
    except BaseException:
        if placed and before.exists():
            before.replace(beside)
        elif placed:
            beside.unlink(missing_ok=True)
        raise
    finally:
        with contextlib.suppress(OSError):  # where `path` itself could not be, it is not there either
            before.unlink(missing_ok=True)


def write_pieces(file: IO[bytes], array: Array | Pieced, seen: Callable[[memoryview], None] | None = None) -> None:
    """Write an array in C order and little-endian, straight from its memory where that is contiguous.

    Of a large array, one piece is written while the next one is assembled.

    seen  receives each piece's bytes after they were written, for a checksum
    """

    counter = _counters.get()

    def put(piece: Array) -> None:
        if _is_big_endian(piece.dtype):
            piece = piece.byteswap()
        data = piece.view(np.uint8).data  # bfloat16 arrays export no buffer of their own
        file.write(data)
        if seen is not None:
            seen(data)
        if counter is not None:
            counter(data.nbytes)

    if nbytes(array) <= 2 * PIECE_BYTES:
        for piece in pieces(array):
            put(piece)
        return
    from concurrent.futures import Future, ThreadPoolExecutor  # costs milliseconds, which small files need not pay

    with ThreadPoolExecutor(1) as writer:
        last: Future[None] | None = None
        for piece in pieces(array):
            if last is not None:
                last.result()
            last = writer.submit(put, piece)
        if last is not None:
            last.result()


def _is_big_endian(dtype: np.dtype[Any]) -> bool:
    return dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
