"""The journal of a batch, a line of JSON for each file: written by one process, cut off at worst in its last line, and resumed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from rnnconvert.batch.manifest import Item
from rnnconvert.core.errors import OutputError, UnreadableError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.core.text_file import open_bytes, open_handle

VERSION = 1
_LONGEST = 1 << 24


@dataclass(frozen=True)
class JournalEntry:
    """The outcome of one file.

    key      of the source's name and all that was asked
    code     as exit codes are; 0 if the target was written
    state    a text that changes when the source is written again, and its hash if all of it was read
    written  the same of the target, with all files that belong to it
    files    the paths or URLs of all files that were written
    beside   the other files of the source on this disk, each with its state
    without_layers  whether the source has no recurrent layer, so that there is nothing to write
    unasked         settings for all files that this one does not ask for
    left            how many tensors of the source are not in the target: those of other layers
    """

    key: str
    source: str
    target: str
    code: int
    message: str = ""
    state: str = ""
    written: str = ""
    source_hash: str = ""
    target_hash: str = ""
    seconds: float = 0.0
    files: list[str] = field(default_factory=list)
    beside: dict[str, str] = field(default_factory=dict)
    without_layers: bool = False
    unasked: list[str] = field(default_factory=list)
    left: int = 0


def key_of(item: Item, options: Any) -> str:
    """Return the key of an item in a journal."""
    return hashlib.sha256(json.dumps([item.source, item.asked, options]).encode()).hexdigest()


class Journal:
    """A journal on this disk, open for adding."""

    def __init__(self, path: Path) -> None:
        """Read the entries, and remove a last line that was cut off.

        Raises UnreadableError for a file that is not a journal, OutputError if it cannot be written.
        """
        self.path = path
        self.entries: dict[str, JournalEntry] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer: what a full disk did not take would be written again when the file is closed.
            self._file = os.fdopen(open_handle(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b", buffering=0)
        except OSError as error:
            raise OutputError(f"{path}: the journal cannot be written: {error.strerror}") from None
        _alone(self._file, path)
        try:
            self._end = self._read()
            self._file.truncate(self._end)
            if not self._end:
                self._put({"rnnconvert_journal": VERSION})
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> int:
        """Take every whole line, and return where the last one ends."""
        position = 0
        with open_bytes(self.path) as file:
            while (line := file.readline(_LONGEST)).endswith(b"\n"):
                self._take(line, position)
                position += len(line)
        return position

    def _take(self, line: bytes, at: int) -> None:
        try:
            document = json.loads(line)
            if at == 0:
                if document != {"rnnconvert_journal": VERSION}:
                    raise ValueError
                return
            entry = JournalEntry(**document)
            self.entries[entry.key] = entry
        except (ValueError, TypeError):
            raise UnreadableError(
                self.path, f"it is not a journal of this version (at byte {at})", f"Choose another with {Flag('journal')}, or remove it."
            ) from None

    def add(self, *entries: JournalEntry) -> None:
        """Write the outcomes of files; they are on the disk when this returns."""
        self._put(*map(asdict, entries))
        self.entries.update((entry.key, entry) for entry in entries)

    def _put(self, *documents: dict[str, Any]) -> None:
        lines = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
        try:
            written = 0
            while written < len(lines):
                written += self._file.write(lines[written:])
            os.fsync(self._file.fileno())
            self._end += written
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            raise OutputError(f"{self.path}: the journal cannot be written: {error.strerror}. Free the disk, and run it again") from None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


def _alone(file: Any, path: Path) -> None:
    """Lock the journal. Raises UsageError if another run has it."""
    try:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return
    except OSError:
        file.close()
        raise UsageError(f"{path}: another run writes this journal. Wait for it, or choose another with {Flag('journal')}") from None
