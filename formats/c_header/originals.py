"""Headers of our own, read again: what rnnconvert writes for what they hold, and whether their code is that to the last byte.

A header is code, and running it executes it. So only text that the writer makes from data is ever compiled, never a file's own;
where the two are equal, that is the file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.containers.reading import read_small
from rnnconvert.core.limits import C_BYTES
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.c_header.layer_code import WrittenLayer
from rnnconvert.formats.c_header.write import rendered

_GUARD = re.compile(r"^#ifndef (RNNCONVERT_[A-Z0-9_]{0,255}_H)\r?$", re.M)


@dataclass(frozen=True)
class Original:
    """What a header of our own holds.

    layers  as the writer takes them
    line    the first line that is not what the writer makes of them; 0 where none is
    """

    layers: Sequence[WrittenLayer]
    line: int = 0


def compared(path: Path, layers: Sequence[WrittenLayer]) -> Original:
    """Return what a header holds, compared with what is written for it."""
    return Original(layers, _compared(path, layers)[1])


def _compared(path: Path, layers: Sequence[WrittenLayer]) -> tuple[str, int]:
    """Return what is written for these layers, and the first line in which a file differs from it; 0 for none."""
    stored_text = read_small(path, C_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    guard = _GUARD.search(stored_text)
    text = rendered(layers, guard[1] if guard else "RNNCONVERT_H")
    if stored_text == text:
        return text, 0
    lines = itertools.zip_longest(stored_text.split("\n"), text.split("\n"))
    return text, next(number for number, (ours, other) in enumerate(lines, 1) if ours != other)


def runnable(checkpoint: Checkpoint, folder: Path) -> Path | None:
    """Write a header of our own again into a folder, for a compiler; return None for tables without code.

    Raises NotImplementedError for a header whose code is not what rnnconvert writes.
    """
    original = checkpoint.read
    if not isinstance(original, Original):
        return None
    path = Path(checkpoint.file)
    text, line = _compared(path, original.layers)
    if line:
        raise NotImplementedError(edited(line))
    header = folder / "model.h"
    header.write_text(text, encoding="utf-8", newline="\n")
    return header


def edited(line: int) -> str:
    """Say that a header is not as it was written."""
    return (
        f"line {line} is not what rnnconvert writes for the numbers in this header: its code was changed, or another version wrote "
        "it, and it is neither compiled nor run. Convert it into a new header, and compare the two"
    )
