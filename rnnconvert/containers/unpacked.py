"""Single files inside gzip, xz, bzip2, lzma and zlib: unpacked into a temporary folder, within bounds, for as long as the process
runs. joblib's `compress` writes all of them, without an ending that says so.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rnnconvert.containers.files import map_file
from rnnconvert.containers.reading import open_regular
from rnnconvert.containers.temporary import lasting_folder, room_for
from rnnconvert.core.errors import RnnConvertError, UnreadableError, show_as
from rnnconvert.core.limits import INFLATION, UNPACKED_BYTES

_STEP = 1 << 20
_FIRST = 64


class _Zlib:
    """A file of zlib's, unpacked as it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._unpacker = file, zlib.decompressobj()

    def __enter__(self) -> _Zlib:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end. Raises EOFError if the file is cut off."""
        while not self._unpacker.eof:
            packed = self._unpacker.unconsumed_tail or self._file.read(_STEP)
            if not packed:
                raise EOFError("it is cut off")
            if piece := self._unpacker.decompress(packed, size):
                return piece
        return b""


_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
    b"]\0\0": lzma.open,
    b"\x78": _Zlib,
}


def is_packed(head: bytes) -> bool:
    """Return whether a file begins as gzip's, xz's, bzip2's, lzma's or zlib's do; the last has a mark of one letter, and is tried."""
    if not head.startswith(b"\x78"):
        return head.startswith(tuple(_OPENERS))
    try:
        return bool(zlib.decompressobj().decompress(head, _FIRST))
    except zlib.error:
        return False


def unpacked(path: Path) -> Path:
    """Unpack the file into a folder that is removed when the process ends, and return its path.

    Raises UnreadableError if it is damaged, or becomes larger than is plausible.
    """
    size = map_file(path).size
    folder = lasting_folder()
    name = path.name[: -len(path.suffix)] if path.suffix.lower() in (".gz", ".xz", ".bz2", ".lzma", ".z") else path.name
    inside = folder / (name or "file")
    limit = min(UNPACKED_BYTES, size * INFLATION)
    total = 0
    try:
        with room_for(path), open_regular(path) as file, inside.open("wb") as target:
            head = file.read(8)
            file.seek(0)
            with next(opener for magic, opener in _OPENERS.items() if head.startswith(magic))(file) as source:
                while piece := source.read(_STEP):
                    total += len(piece)
                    if total > limit:
                        raise UnreadableError(
                            path, f"its {size} bytes unpack to more than {limit}", "If you trust the file, unpack it yourself."
                        )
                    target.write(piece)
    except RnnConvertError:
        raise
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UnreadableError(path, f"it cannot be unpacked: {error}", "Fetch the file again.") from None
    show_as(inside, path)
    return inside
