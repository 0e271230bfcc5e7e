"""Single files inside .gz and .xz: unpacked into a temporary folder, within bounds, for as long as the process runs."""

from __future__ import annotations

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

MAX_RATIO = 1100
"""The most times that a file may grow: Deflate reaches 1032."""
MAX_BYTES = 4 << 30
"""The most bytes that a file may become."""

_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}
_STEP = 1 << 20


def is_packed(head: bytes) -> bool:
    """Return whether a file begins as gzip's or xz's do."""
    return head.startswith(tuple(_OPENERS))


def unpacked(path: Path) -> Path:
    """Unpack the file into a folder that is removed when the process ends, and return its path.

    Raises UnreadableError if it is damaged, or becomes larger than is plausible.
    """
    size = map_file(path).size
    folder = lasting_folder()
    name = path.name[: -len(path.suffix)] if path.suffix.lower() in (".gz", ".xz") else path.name
    inside = folder / (name or "file")
    limit = min(MAX_BYTES, size * MAX_RATIO)
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
                            path,
                            f"its {size} bytes unpack to more than {limit}",
                            "If you trust the file, unpack it yourself.",
                        )
                    target.write(piece)
    except RnnConvertError:
        raise
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UnreadableError(path, f"it cannot be unpacked: {error}", "Fetch the file again.") from None
    show_as(inside, path)
    return inside
