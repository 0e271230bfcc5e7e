"""A file and the data file next to it, replaced together."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from rnnconvert.containers import temporary
from rnnconvert.containers.files import part_file, replacing, written_file
from rnnconvert.containers.reading import map_file as map_file
from rnnconvert.containers.writing import counting as counting
from rnnconvert.containers.writing import write_pieces as write_pieces
from rnnconvert.core.errors import UsageError


def _own_name(path: str | os.PathLike[str]) -> Path:
    """Return a path to which several files are written. Raises UsageError for a symbolic link: they would part."""
    target = Path(path)
    if target.is_symlink():
        raise UsageError(f"{target} is a symbolic link, and several files are written. Name the file itself: {os.path.realpath(target)}")
    return target


_DIGEST = 8
"""Hexadecimal digits of the digest in the name of a file of numbers."""


@contextlib.contextmanager
def replacing_with_data(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], str]) -> Iterator[tuple[IO[bytes], str]]:
    """Yield a file to write, and the name of the file with its numbers, which is complete by then.

    Each content of the numbers has a file name of its own, NAME.DIGEST.data: a stop at any moment leaves the old file with its
    own numbers, or the new file with its own. The numbers of the file that was replaced are removed last. What a stop left under
    the name of the same numbers is replaced by them.

    fill  writes the numbers and returns a digest of them, in hexadecimal digits

    Raises UsageError if nothing can be written there.
    """
    target, fresh = _own_name(path), None
    before = old_data(target)
    try:
        with replacing(target) as file:
            with part_file(target, written_file(target)[1]) as (data, place):
                data_file = target.with_name(f"{target.name}.{fill(data)}.data")
                fresh = None if data_file.exists() else data_file
                place(data_file)
            yield file, data_file.name
    except BaseException:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
        raise
    remove_old_data(before, data_file.name)


def old_data(target: Path) -> list[Path]:
    """Return the files of numbers that `replacing_with_data` put beside a file that is there; none for a new file."""
    if not target.exists():
        return []
    pattern = re.compile(rf"{re.escape(target.name)}\.[0-9a-f]{{{_DIGEST}}}\.data")
    return [entry for entry in target.parent.iterdir() if pattern.fullmatch(entry.name)]


def remove_old_data(before: Iterable[Path], current: str = "") -> None:
    """Remove what `old_data` found before a file was replaced, but for the numbers of the new one."""
    for path in before:
        if path.name != current:
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def replacing_both(path: str | os.PathLike[str], data_path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield a file and the companion file that it needs; both take their places together.

    The companion comes first, since the other is of no use without it; if the other then cannot follow, the previous companion is put back.
    """
    path, data_path = _own_name(path), _own_name(data_path)
    before: Path | None = None
    placed = False
    try:
        with replacing(path) as file:
            with replacing(data_path) as data:
                yield file, data
                before = temporary.second_name(data_path)
            placed = True
    except BaseException:
        if placed and before is not None:
            before.replace(data_path)
        elif placed:
            data_path.unlink(missing_ok=True)
        raise
    finally:
        if before is not None:
            temporary.drop(before)
