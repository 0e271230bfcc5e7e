"""Files: mapped for reading; written next to their target, then renamed.

Every container goes through here, so that no reader can be led outside its file and no
writer leaves half a file or touches an existing one before its replacement is complete.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from rnnconvert.containers import temporary
from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.placing import rename_together, to_disk
from rnnconvert.containers.reading import check_sources
from rnnconvert.containers.reading import map_file as map_file
from rnnconvert.containers.writing import ChargedFile as ChargedFile
from rnnconvert.containers.writing import counting as counting
from rnnconvert.containers.writing import write_pieces as write_pieces
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.binding import bound
from rnnconvert.core.errors import UnreadableError, UsageError, unwritable
from rnnconvert.core.remedies import Flag


def view(data: Array, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], path: object, name: str) -> Array:
    """Return an array inside mapped bytes, as a read-only view.

    Raises UnreadableError if it would reach outside the bytes; nothing is allocated before this is checked.
    """
    count = 1
    for length in shape:
        if length < 0:
            raise UnreadableError(path, f"{name!r} has the negative length {length} in its shape {shape}")
        count *= length
    if not count and math.prod(max(length, 1) for length in shape) >= 1 << 56:  # numpy makes no such array, though empty
        raise UnreadableError(path, f"{name!r} has the shape {shape}")
    size = count * dtype.itemsize
    if offset < 0 or offset + size > data.size:
        raise UnreadableError(
            path,
            f"{name!r} should be {size} bytes at byte {offset}, but the file has only {data.size} bytes",
            "The file is truncated or damaged; fetch it again.",
        )
    raw = data[offset : offset + size]
    if raw.ctypes.data % dtype.itemsize:  # numpy computes on unaligned views, only slower
        return shaped(np.ndarray((count,), dtype, raw.data), shape, path, name)
    return shaped(raw.view(dtype), shape, path, name)


def shaped(array: Array, shape: Sequence[int], path: object, name: str, order: Literal["C", "F"] = "C") -> Array:
    """Return numbers in the shape that a file states.

    Raises UnreadableError for a shape that numpy does not have: too many axes, or one beside an empty one that is too long.
    """
    try:
        return array.reshape(tuple(shape), order=order)
    except (ValueError, OverflowError) as error:
        raise UnreadableError(path, f"{name!r} cannot have the shape {str(shape)[:100]}: {error}") from None


def lowered(path: str | os.PathLike[str]) -> Path:
    """Return a path with its name in lower case, to examine its ending: MODEL.PT ends in .pt."""
    plain = Path(path)
    return plain.with_name(plain.name.lower()) if plain.name else plain


def only_replace(path: Path, force: bool, target: Path | None = None) -> None:
    """Raise UsageError if the file exists and the caller did not allow replacing it.

    target  the file that was asked for, where this one is written with it: it may be a part of another model of that name
    """
    if os.path.lexists(path) and not force:
        if target is not None and path != target:
            whose = f"and {target} would replace it: it may belong to another model. Choose another name, or use"
            raise UsageError(f"{path} already exists, {whose} {Flag('force')} to replace it")
        raise UsageError(f"{path} already exists. Use {Flag('force')} to replace it")


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless they exist. Raises UsageError if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None


def never_replace(path: Path) -> None:
    """Raise UsageError if there is something where a package is to be written, which is a folder."""
    if os.path.lexists(path):
        raise UsageError(f"{path} already exists, and a package is a folder, which is not replaced. Remove it first")


def check_target(path: Path, force: bool) -> None:
    """Raise UsageError unless a file can be written there: not a folder, in a folder that exists, and new or allowed to be replaced."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist. Create it first")
    only_replace(path, force)


def written_file(target: Path) -> tuple[Path, os.stat_result | None]:
    """Return the file that writing to a path replaces, through symbolic links as `cp` does, and what it is; None if it is new.

    Raises UsageError for a link to nothing, and for a folder, a pipe or a device.
    """
    try:
        status = target.lstat()
        if stat.S_ISLNK(status.st_mode):
            target, link = Path(os.path.realpath(target)), target
            if not target.exists():
                raise UsageError(f"{link} is a symbolic link to {target}, which does not exist. Remove the link first")
            status = target.stat()
    except OSError:
        return target, None
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{target} is a folder: Is a directory. Name a file to write")
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{target} is not a regular file, so it is not replaced. Name another file, or - for stdout")
    return target, status


@contextlib.contextmanager
def reaching_the_disk() -> Iterator[None]:
    """Wait for the disk whenever the block writes a file: what it wrote then survives a power cut."""
    with bound(to_disk, True):
        yield


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], obsolete: Iterable[Path] = ()) -> Iterator[IO[bytes]]:
    """Yield a file to write, which takes the place of `path` when the block ends well.

    It is created next to `path`, so that renaming it is one step; if the block raises, or is interrupted, it is removed and `path` stays
    unchanged. A file that is replaced keeps its permissions, and its owner if that is allowed; a symbolic link to it stays one.

    obsolete  files of the old model that the new one does without

    Raises UsageError if nothing can be written there, UnreadableError if what was read changed meanwhile.
    """
    target, status = written_file(Path(path))
    with part_file(target, status) as part:
        yield part.file
        put_together([(part, target)], obsolete)


class PartFile:
    """A file under a temporary name, next to where it belongs.

    status  what it replaces
    """

    def __init__(self, file: IO[bytes], path: Path, status: os.stat_result | None) -> None:
        self.file, self.path, self._status = file, path, status

    def complete(self) -> None:
        """Close it: nothing but its name is wanting."""
        if self.file.closed:
            return
        if self._status is not None:
            _become(self.file.fileno(), self._status)
        self.file.flush()
        if to_disk.get():
            os.fsync(self.file.fileno())
        self.file.close()


def put_together(parts: Sequence[tuple[PartFile, Path]], obsolete: Iterable[Path] = ()) -> None:
    """Put complete files into their places, the one that needs the others last: all of them, or none.

    obsolete  files of the old model that the new one does without

    Raises UnreadableError if what was read changed meanwhile.
    """
    for part, _ in parts:
        check_sources()
        part.complete()
    rename_together([(part.path, final) for part, final in parts], obsolete)


@contextlib.contextmanager
def part_file(target: Path, status: os.stat_result | None = None) -> Iterator[PartFile]:
    """Yield a new file next to `target`, which is removed unless `put_together` puts it into its place.

    status  what it replaces
    """
    try:
        handle, part = temporary.new_file(target, 0o666 if status is None else 0o600)
        lock = os.dup(handle)  # the file stays locked until it has its name
    except OSError as error:
        raise unwritable(target, error) from None

    try:
        with ChargedFile(handle) as file:
            yield PartFile(file, part, status)
    except OSError as error:
        check_sources()  # what was read may be the cause: a part of it that is gone cannot be written
        raise unwritable(target, error, temporary.remedy(target, error)) from None
    finally:
        with contextlib.suppress(OSError):  # what a failing disk keeps, the next run removes
            part.unlink()
        os.close(lock)


def move(source: Path, path: Path) -> None:
    """Put a file that is complete, in a folder next to it, into the place of a path, as `replacing` does.

    Raises UsageError, and UnreadableError if what was read changed meanwhile.
    """
    move_together([(source, path)])


def move_together(moves: Sequence[tuple[Path, Path]], obsolete: Iterable[Path] = ()) -> None:
    """Put complete files into their places, each as `move` does, the one that needs the others last: all of them, or none.

    obsolete  files of the old model that the new one does without

    Raises as `move` does.
    """
    if not moves:
        return
    places = [(source, *written_file(path)) for source, path in moves]
    target = places[-1][1]
    try:
        for source, _, status in places:
            _complete(source, status)
        check_sources()
        rename_together([(source, target) for source, target, _ in places], obsolete)
    except OSError as error:
        target = Path(error.filename2) if isinstance(error.filename2, (str, os.PathLike)) else target
        raise unwritable(target, error, temporary.remedy(target, error)) from None


def _complete(source: Path, status: os.stat_result | None) -> None:
    """Make a closed file ready to replace another one."""
    handle = os.open(source, os.O_RDONLY)
    try:
        if status is not None:
            _become(handle, status)
        if to_disk.get():
            os.fsync(handle)
    finally:
        os.close(handle)


def _become(handle: int, status: os.stat_result) -> None:
    """Give a file the permissions of the one that it replaces, and its owner if that is allowed."""
    now = os.fstat(handle)
    if hasattr(os, "fchown") and (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(handle, status.st_uid, status.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, stat.S_IMODE(status.st_mode) & 0o777)


class ChecksumWriter:
    """Writes a file and takes its checksum along the way, by which the other file of a model knows it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._check = Crc32()

    def write(self, data: bytes) -> None:
        """Write a few bytes."""
        self._file.write(data)
        self._check.append(self._check.part(memoryview(data)), len(data))

    def pieces(self, array: Array | PiecewiseArray) -> None:
        """Write an array as `write_pieces` does."""
        write_pieces(self._file, array, self._check)

    @property
    def value(self) -> int:
        """The CRC-32 of what was written."""
        return self._check.value


def check_one_write(path: Path, data_path: Path, data: Array, stated: int, bits: int = 32) -> None:
    """Raise UnreadableError unless the bytes of a companion have the checksum that its model states.

    A process that is stopped between the renaming of two files leaves one of them with the other of an earlier write.

    data    the companion's bytes
    stated  the lowest bits of their CRC-32
    """
    if Crc32().part(data.data) & (1 << bits) - 1 != stated:
        raise UnreadableError(
            path,
            f"{data_path.name} does not belong to it: its bytes have another checksum than {path.name} states",
            "Writing the two files may have been interrupted, or one of them is of another model. Write them again.",
        )
