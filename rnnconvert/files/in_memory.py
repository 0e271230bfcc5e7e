"""Sources in memory in place of a file: bytes, an open file, a mapping of arrays by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rnnconvert.containers import npz_file
from rnnconvert.containers.addresses import local
from rnnconvert.containers.temporary import lasting_folder, room_for
from rnnconvert.core.errors import UsageError, show_as
from rnnconvert.files.checkpoint import Checkpoint

PathLike = str | os.PathLike[str]
Source = PathLike | bytes | bytearray | memoryview | BinaryIO | Mapping[str, Any]
"""The sources of `rnnconvert.load`: a path, the bytes of a file, an open binary file, or arrays by name."""

_PIECE = 1 << 22


def path_of(source: object, called: str = "this") -> Path:
    """Return a path as it is, of a URL a copy on this disk; of what Python holds in memory, a temporary file
    that is removed when the process ends.

    called  what takes the source, for the error

    Raises UsageError for anything else, with what to do instead.
    """
    if isinstance(source, Checkpoint):
        raise UsageError(
            f"{called} takes a file, not a Checkpoint. Give its path, {source.path!r}; to write a Checkpoint, use rnnconvert.save"
        )
    if isinstance(source, (str, os.PathLike)):
        return local(source)
    if isinstance(source, Mapping):
        return _stored("arrays.npz", "(arrays in memory)", _arrays(source))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _stored("file", "(bytes in memory)", source)
    if hasattr(source, "read"):
        return _stored("file", str(getattr(source, "name", "") or "(a file in memory)"), source)
    raise UsageError(
        f"{called} takes a path, bytes, an open binary file or a mapping of arrays by name, not {type(source).__name__}. For a live "
        "model use rnnconvert.from_model"
    )


def _stored(name: str, called: str, content: Any) -> Path:
    path = lasting_folder() / name
    if isinstance(content, dict):
        npz_file.write(path, content)
    else:
        with room_for(called), path.open("wb") as file:
            if not hasattr(content, "read"):
                file.write(content)
            else:
                while piece := _read(content, called):
                    file.write(piece)
    show_as(path, called)
    return path


def _read(content: Any, called: str) -> bytes:
    """Return the next bytes of a file that is open. Raises UsageError for one that is closed, or open as text."""
    try:
        piece = content.read(_PIECE)
    except (OSError, ValueError) as error:
        raise UsageError(f"{called} cannot be read: {error}") from None
    if not isinstance(piece, bytes):
        raise UsageError(f"{called} is open as text. Open it in binary mode: open(path, 'rb')")
    return piece


def _arrays(source: Mapping[Any, Any]) -> dict[str, Any]:
    """Return numpy's arrays by name. Raises UsageError for another name or value."""
    if not source:
        raise UsageError("the mapping of arrays is empty")
    arrays = {}
    for name, value in source.items():
        if not isinstance(name, str):
            raise UsageError(f"a mapping of arrays has names that are strings, not {name!r}")
        detached = value.detach() if hasattr(value, "detach") else value
        try:
            array = np.asarray(detached.cpu() if hasattr(detached, "cpu") else detached)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{name!r} cannot be read as an array: {error}. Give it as one of float32, float16 or float64") from None
        if array.dtype == object or array.dtype.kind in "SUMm":
            inner = " Give the inner mapping of arrays." if isinstance(value, Mapping) else ""
            raise UsageError(f"{name!r} is not an array of numbers, but {type(value).__name__}.{inner}")
        arrays[name] = array
    return arrays
