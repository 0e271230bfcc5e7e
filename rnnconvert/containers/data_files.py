"""A file and the data file next to it, replaced together."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from rnnconvert.containers.files import part_file, put_together, written_file
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

    Each content of the numbers has a different file name, NAME.DIGEST.data: a stop at any moment leaves the old file with the old numbers,
    or the new file with the new ones. The numbers of the file that was replaced are removed last. A partial file that a stop left under the
    same name is replaced.

    fill  writes the numbers and returns a digest of them, in hexadecimal digits

    Raises UsageError if nothing can be written there.
    """
    target = _own_name(path)
    before = old_data(target)
    status = written_file(target)[1]
    with part_file(target, status) as model, part_file(target, status) as data:
        data_file = target.with_name(f"{target.name}.{fill(data.file)}.data")
        data.complete()
        yield model.file, data_file.name
        put_together([(data, data_file), (model, target)], before)


def old_data(target: Path) -> list[Path]:
    """Return the files of numbers that `replacing_with_data` put beside a file that is there; none for a new file."""
    if not target.exists():
        return []
    pattern = re.compile(rf"{re.escape(target.name)}\.[0-9a-f]{{{_DIGEST}}}\.data")
    return [entry for entry in target.parent.iterdir() if pattern.fullmatch(entry.name)]


@contextlib.contextmanager
def replacing_both(path: str | os.PathLike[str], data_path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield a file and the companion file that it needs; both take their places together.

    The companion comes first, since the other is of no use without it; if the other then cannot follow, the previous companion is put back.
    """
    path, data_path = _own_name(path), _own_name(data_path)
    with part_file(path, written_file(path)[1]) as model, part_file(data_path, written_file(data_path)[1]) as data:
        yield model.file, data.file
        put_together([(data, data_path), (model, path)])
