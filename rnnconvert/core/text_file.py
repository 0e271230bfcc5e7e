"""Files of text that people write: read whole, and never more of them than fits."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rnnconvert.core.errors import UnreadableError, unreadable

_TEXT = 1 << 24
"""How many bytes a file of text may have: a mapping, a list of claims."""


def regular(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that can be opened. Raises UnreadableError for a device or a pipe: to open one may wait for ever.

    Raises OSError where there is nothing.
    """
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UnreadableError(path, "it is not a regular file")
    return Path(path)


def read_text(path: str | os.PathLike[str], most: int = _TEXT) -> str:
    """Return the text of a file.

    Raises UnreadableError if it is absent, a folder or a device, larger than `most` bytes, or not UTF-8.
    """
    try:
        with regular(path).open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise UnreadableError(path, f"it is larger than {most} bytes, the limit for such a file")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(path, f"it is not text in UTF-8: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None
