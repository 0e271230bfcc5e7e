"""Variables of a checkpoint that were dumped for the browser: manifest.json, and a file of float32 numbers for each variable.

deeplearn.js, the TensorFlow.js of 2017, loads these, and ml5.js its charRNN.

Sources: PAIR-code/deeplearnjs, scripts/dump_checkpoint_vars.py; ml5js/training-charRNN, json_checkpoint_vars.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rnnconvert.containers import json_file
from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import view
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingFileError, UnreadableError
from rnnconvert.core.limits import SHARD_FILES
from rnnconvert.core.names import add
from rnnconvert.files.opened import Opened
from rnnconvert.files.raw import map_bare


def manifest(file: Opened) -> Path | None:
    """Return the file that lists the variables, which may be named by its folder; None for any other file."""
    if file.path.is_dir():
        inside = file.path / "manifest.json"
        return manifest(Opened(inside)) if inside.is_file() else None
    entries = [*(file.json or {}).values()]
    listed = all(isinstance(entry, dict) and entry.keys() == {"filename", "shape"} for entry in entries)
    return file.path if entries and listed else None


def names(path: Path) -> list[str]:
    """Return the names of the variables that a manifest lists."""
    return list(Opened(path).cached(json_file.read))


def read(path: Path) -> tuple[Stored, tuple[Path, ...]]:
    """Return the variables that a manifest lists, and their files.

    Raises UnreadableError for a file that does not fit its shape, and MissingFileError for one that is missing.
    """
    document = Opened(path).cached(json_file.read)
    if len(document) > SHARD_FILES:
        raise UnreadableError(path, f"it names more than {SHARD_FILES} files of variables")
    arrays: dict[str, Array] = {}
    files: list[Path] = []
    for name, entry in document.items():
        shape = entry["shape"]
        if not isinstance(shape, list) or not all(type(length) is int for length in shape) or not isinstance(entry["filename"], str):
            raise UnreadableError(path, f"the variable {name!r} has no name of a file, or no shape: {str(entry)[:60]}")
        file = companion(path, entry["filename"])
        if not file.is_file():
            raise MissingFileError(file)
        data = map_bare(file, empty=True)
        array = view(data, 0, tuple(shape), np.dtype("<f4"), file, name)
        if array.nbytes != data.size:
            raise UnreadableError(file, f"it has {data.size} bytes, and the shape {shape} of {name!r} takes {array.nbytes}")
        add(arrays, name, array, path)
        files.append(file)
    return Stored(arrays), tuple(files)
