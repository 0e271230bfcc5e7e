"""Headers of our own, read again: what rnnconvert writes for what they hold, and whether their code is that to the last byte.

A header is code, and running it executes it. So only text that the writer makes from data is ever compiled, never a file's own;
where the two are equal, that is the file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.containers.reading import read_small
from rnnconvert.core.limits import C_BYTES
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.c_header.layer_code import WrittenLayer
from rnnconvert.formats.c_header.model_code import WrittenModel
from rnnconvert.formats.c_header.write import rendered, write_lines

_GUARD = re.compile(r"#ifndef (RNNCONVERT_[A-Z0-9_]{0,255}_H)")


@dataclass(frozen=True)
class Original:
    """The content of a header that rnnconvert wrote.

    layers  as the writer takes them
    model   the whole model that they belong to; None for layers alone
    line    the first line that differs from what the writer makes of them; 0 if none does
    """

    layers: Sequence[WrittenLayer]
    model: WrittenModel | None = None
    line: int = 0


def compared(path: Path, layers: Sequence[WrittenLayer], model: WrittenModel | None = None) -> Original:
    """Return the content of a header, compared with what is written for it."""
    return Original(layers, model, _first_change(path, Original(layers, model)))


def _rendered(path: Path, original: Original) -> Iterator[str]:
    """Yield the lines that are written for what a header holds."""
    with path.open("rb") as file:
        guard = next(filter(None, (_GUARD.fullmatch(line.decode("utf-8", "replace").rstrip("\r\n")) for line in file)), None)
    return rendered(original.layers, guard[1] if guard else "RNNCONVERT_H", original.model)


def _first_change(path: Path, original: Original) -> int:
    """Return the first line in which a file differs from what is written for what it holds; 0 for none."""
    stored = read_small(path, C_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    lines = itertools.zip_longest(stored.split("\n"), itertools.chain(_rendered(path, original), [""]))
    return next((number for number, (ours, other) in enumerate(lines, 1) if ours != other), 0)


def runnable(checkpoint: Checkpoint, folder: Path) -> Path | None:
    """Write a header of our own again into a folder, for a compiler; return None for tables without code.

    Raises NotImplementedError for a header whose code is not what rnnconvert writes.
    """
    original = checkpoint.read
    if not isinstance(original, Original):
        return None
    return written_again(Path(checkpoint.file), original, folder)


WRITTEN = "model.h"
"""The name of a header whose content was written again."""


def written_again(path: Path, original: Original, folder: Path) -> Path:
    """Write the content of a header into a folder. Raises NotImplementedError for a header whose code is not what rnnconvert writes."""
    line = _first_change(path, original)
    if line:
        raise NotImplementedError(edited(line))
    header = folder / WRITTEN
    write_lines(header, _rendered(path, original))
    return header


def edited(line: int) -> str:
    """Say that a header is not as it was written."""
    return (
        f"line {line} is not what rnnconvert writes for the numbers in this header: its code was changed, or another version wrote "
        "it, and it is neither compiled nor run. Convert it into a new header, and compare the two"
    )
