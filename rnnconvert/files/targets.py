"""The files that a conversion writes: all of them are known and checked before the first byte."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.containers.files import only_replace
from rnnconvert.core.errors import UsageError
from rnnconvert.files.checkpoint import Checkpoint


def files_of(writer: object, path: Path) -> tuple[Path, ...]:
    """Return the files that a writer writes for a path: the path itself, then its companions."""
    companions = getattr(writer, "companions", None)
    return (path, *(companions(path) if companions is not None else ()))


def check_files(files: tuple[Path, ...], source: Checkpoint, force: bool) -> None:
    """Refuse to write files of which one exists, or belongs to the source.

    files   as `files_of` returns them
    source  what is converted
    force   whether existing files may be replaced. A file of the source is not replaced even so, unless the source is the
            path itself: whoever gives one path twice means that file

    Raises UsageError.
    """
    for file in files:
        if _is_of(file, source) and not (file == files[0] and _same(file, Path(source.path))):
            raise UsageError(
                f"{files[0]}: {_with(files, file)}{file} belongs to the source {source.path}, and would be replaced. Choose another name "
                "for the target, or another folder"
            )
        only_replace(file, force, files[0])


def _with(files: tuple[Path, ...], file: Path) -> str:
    return "" if file == files[0] else f"writing it writes {file.name}, too, but "


def _is_of(file: Path, source: Checkpoint) -> bool:
    """Return whether a file is one that a source was read from, under this name or another."""
    opened = source.sources is not None and source.sources.holds(file)
    return opened or any(_same(file, Path(name)) for name in (source.path, *source.beside))


def _same(file: Path, other: Path) -> bool:
    try:
        return file.samefile(other)
    except (OSError, ValueError):  # one of them does not exist, or is no name of a file
        return False
