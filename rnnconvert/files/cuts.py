"""Arrays of a file by the names and in the shapes that a layout has for them, where the file has others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.language.layout import Cut


def cut(path: Path, stored: Stored, cuts: Sequence[Cut]) -> Stored:
    """Return a file's arrays with each described array in the place of the file's own; arrays that no cut takes stay.

    Raises UnreadableError if the file lacks an array, or has one that is too short.
    """
    arrays: dict[str, Array] = {}
    used: dict[str, int] = {}
    for piece in cuts:
        source = stored.arrays.get(piece.source)
        if source is None:
            raise UnreadableError(path, f"the layout takes {piece.name!r} from {piece.source!r}, and there is no such array")
        arrays[piece.name] = source if not piece.shape else _view(path, source, piece)
        used[piece.source] = used.get(piece.source, 0) + arrays[piece.name].size
    rest = {name: array for name, array in stored.arrays.items() if used.get(name, 0) < max(1, array.size)}
    return Stored({**rest, **arrays}, stored.metadata)


def _view(path: Path, source: Array, piece: Cut) -> Array:
    behind = piece.start + sum((length - 1) * step for length, step in zip(piece.shape, piece.steps, strict=True))
    if behind >= source.size:
        raise UnreadableError(
            path, f"the layout takes {piece.name!r} from {piece.source!r}, which ends before it: it has {source.size} numbers"
        )
    row = np.ascontiguousarray(source).reshape(-1)[piece.start :]
    strides = tuple(step * row.itemsize for step in piece.steps)
    return np.lib.stride_tricks.as_strided(row, piece.shape, strides, writeable=False)
