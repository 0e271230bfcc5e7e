"""A file under examination: the kinds that it may be, decided once from its bytes, and its content, read once."""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

from rnnconvert.containers import archives, json_file, msgpack_file, npy, npz_file, pickled_arrays, sorted_table
from rnnconvert.containers.files import lowered
from rnnconvert.containers.pickles import RECOVERABLE
from rnnconvert.containers.reading import charging, open_regular
from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import UnreadableError, unreadable
from rnnconvert.core.limits import HEADER_BYTES
from rnnconvert.language.registry import Card

T = TypeVar("T")

HEAD = 1 << 16
"""How many bytes of a file's beginning are examined."""

KIND, SHAPED, STATED = 1, 2, 3
"""How sure a format is: it writes this kind of file; arrays are named or shaped as its own; the file says whose it is."""


class FormatClaim(NamedTuple):
    """A format's claim on a file that may be its own: how sure it is, the evidence in words, and how many arrays it accounts for if their
    names are the evidence.
    """

    score: int
    evidence: str
    covered: int = 0


class Opened:
    """A file, a folder, or the name that the files of a checkpoint share.

    path     where it is
    head     its first bytes; empty for a folder
    size     its bytes
    entries  the names in a zip archive; None for any other file, and for an archive that cannot be listed
    """

    def __init__(self, path: Path) -> None:
        """Open a file once. Raises UnreadableError if it does not exist, is not a regular file, or cannot be read."""
        self.path = path
        self.head = self._tail = b""
        self.size = 0
        self.entries: tuple[str, ...] | None = None
        self._headed = False
        # Within one reading a file is examined by several formats, and opened again by the one that reads it.
        self._looked: dict[Callable[..., Any], Any] = charging(0).looked(path)
        try:
            # A TensorFlow checkpoint goes by the name that its files share.
            if path.is_dir() or (not path.exists() and Path(f"{path}.index").is_file()):
                if path.is_dir() and not os.access(path, os.X_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # of the folder, not of a name that is looked for in it
                return
            with open_regular(path) as file:
                self._look(file)
        except UnreadableError:
            raise
        except OSError as error:
            raise unreadable(path, error) from None
        except ValueError as error:  # a name that no file can have
            raise UnreadableError(path, str(error)) from None

    def _look(self, file: IO[bytes]) -> None:
        self.head = file.read(HEAD)
        self.size = file.seek(0, os.SEEK_END)
        file.seek(-min(self.size, len(sorted_table.MAGIC)), os.SEEK_END)
        self._tail = file.read()
        length = int.from_bytes(self.head[:8], "little")
        if self.head[8:9] == b"{" and length <= min(HEADER_BYTES, self.size - 8):
            file.seek(8 + max(0, length - HEAD))
            self._headed = file.read(min(length, HEAD)).rstrip(b" ")[-1:] == b"}"
        if self.head[:2] == b"PK":
            try:
                with zipfile.ZipFile(file) as archive:
                    self.entries = tuple(archive.namelist())
            except (OSError, zipfile.BadZipFile, NotImplementedError, *RECOVERABLE):
                pass

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds that it may be of: bytes may begin as several do, a length that is the file's own as any of them."""
        fitting = frozenset(kind for kind, fits in _KINDS.items() if fits(self))
        return fitting & {"bson"} or fitting

    @cached_property
    def archive(self) -> str:
        """The sort of archive of arrays, in words; "" for any other file."""
        return archives.kind(self.path, self.head, self.entries, self._headed)

    def ends_table(self) -> bool:
        """Return whether it ends as a table of keys and values does."""
        return self._tail == sorted_table.MAGIC

    def cached(self, look: Callable[[Path], T]) -> T:
        """Return the result of a reader on this path, remembered by reader. Raises what the reader raises."""
        return self._remembered(look, self.path)

    def examined(self, look: Callable[[Opened], T]) -> T:
        """Return the result of an examiner on this file, remembered by examiner. Raises what the examiner raises."""
        return self._remembered(look, self)

    def _remembered(self, look: Callable[[Any], T], subject: Any) -> T:
        if look not in self._looked:
            try:
                self._looked[look] = look(subject), None
            except Exception as error:  # kept, and raised again below
                self._looked[look] = None, error
        result, raised = self._looked[look]
        if raised is not None:
            raise raised
        return cast("T", result)

    @property
    def json(self) -> dict[str, Any] | None:
        """The object that a file of JSON holds; None for any other file, and for a damaged one."""
        if "json" not in self.kinds:
            return None
        try:
            return self.cached(json_file.read)
        except UnreadableError:
            return None

    @property
    def damage(self) -> UnreadableError | None:
        """The error that a reader met, where the file is clearly an archive of arrays, a pickle, or JSON; None for any other file."""
        if self.head[:1] == b"\x80" and "pickle" in self.kinds:
            _, error = self._looked.get(pickled_arrays.read, (None, None))
            return error if isinstance(error, UnreadableError) else None
        raised = [error for _, error in self._looked.values() if isinstance(error, UnreadableError)]
        clear = "json" in self.kinds or ({"npz", "safetensors"} & self.kinds and self.archive)
        return raised[0] if raised and clear else None

    def may_be(self, card: Card) -> bool:
        """Return whether the room of this format has to be asked."""
        zipped = {name.rpartition("/")[2] for name in self.entries or ()}
        return (
            any(kind in self.kinds or kind.removeprefix("zip:") in zipped for kind in card.kinds)
            or self.path.name.lower().endswith(card.named or ("\0",))
            or any(self.head[at:].startswith(magic) for at, magic in card.begins)
        )


def _is_bundle(file: Opened) -> bool:
    path = file.path
    likely = path.is_dir() or lowered(path).name.endswith((".index", ".meta")) or Path(f"{path}.index").is_file()
    if not likely and ".data-" not in path.name:
        return False
    from rnnconvert.containers import tensor_bundle

    return tensor_bundle.index_of(file.path) is not None


_KINDS: dict[str, Callable[[Opened], bool]] = {
    "folder": lambda file: file.path.is_dir(),
    "bundle": _is_bundle,
    "table": Opened.ends_table,
    "npz": lambda file: npz_file.holds_arrays(file.entries),
    "hdf5": lambda file: any(file.head[at:].startswith(archives.HDF5) for at in (0, 512)),
    "safetensors": lambda file: file.head[8:9] == b"{",
    "npy": lambda file: file.head.startswith(npy.MAGIC),
    "msgpack": lambda file: msgpack_file.looks_like(file.head),
    "bson": lambda file: file.size > 4 and int.from_bytes(file.head[:4], "little") == file.size,
    "jld2": lambda file: file.head.startswith(b"HDF5-based"),
    "pickle": lambda file: pickled_arrays.looks_like(file.head),
    "tar": lambda file: file.head[257:262] == b"ustar",
    "protobuf": lambda file: file.head[:1] == b"\x08",
    "json": lambda file: json_file.looks_like(file.head),
    "described": lambda file: file.head[:2] != b"PK" and Path(f"{file.path}.json").is_file(),
}
"""Each kind of file by the name that cards have for it, and whether a file may be of it."""
