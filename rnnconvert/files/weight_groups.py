"""Groups of weights: names, shapes and types in a model.json, numbers in files next to it.

Source: tfjs-core/src/io/io_utils.ts, decodeWeights and concatenateArrayBuffers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import view
from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingFileError, UnreadableError
from rnnconvert.core.limits import SHARD_FILES
from rnnconvert.core.names import add
from rnnconvert.files.raw import map_bare

_TYPES = {"float32": "<f4", "float16": "<f2", "int32": "<i4", "bool": "u1", "uint8": "u1", "uint16": "<u2"}


def read(path: Path, manifest: Any) -> tuple[dict[str, Array], dict[str, str], list[Path]]:
    """Return the arrays by their names, how those that are quantized are stored, and the files of the groups.

    Raises UnreadableError for groups that do not fit their files, and for a file outside of the model's folder.
    """
    arrays: dict[str, Array] = {}
    narrow: dict[str, str] = {}
    files: list[Path] = []
    for group in _list(path, manifest, "weightsManifest"):
        names = [companion(path, file_name) for file_name in _list(path, group.get("paths"), "paths", str)]
        if len(files) + len(names) > SHARD_FILES:
            raise UnreadableError(path, f"it names more than {SHARD_FILES} files of weights")
        parts = []
        for file in names:
            if not file.is_file():
                raise MissingFileError(file)
            parts.append(map_bare(file, empty=True))
        files += names
        size = sum(part.size for part in parts)
        if len(parts) > 1:
            charging(size).memory(size, path)
        if len(parts) == 1:
            data = parts[0]
        elif parts:
            data = np.concatenate(parts)
        else:
            data = np.zeros(0, np.uint8)
        at = 0
        for entry in _list(path, group.get("weights"), "weights"):
            name, array, how, at = _entry(path, entry, data, at)
            add(arrays, name, array, path)
            if how:
                narrow[name] = how
        if at != data.size:
            raise UnreadableError(path, f"a group of weights has {data.size} bytes, and its weights take {at}")
    return arrays, narrow, files


def _list(path: Path, value: Any, what: str, kind: type = dict) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise UnreadableError(path, f"its {what} is not a list of what it should be")
    return value


def _is_number(value: Any) -> bool:
    """Return whether a value of JSON is a number that a float holds."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 1000)


def _entry(path: Path, entry: dict[str, Any], data: Array, at: int) -> tuple[str, Array, str, int]:
    """Return a weight's name, its numbers, how these are stored if that is narrower, and where the next one begins."""
    name, kind = entry.get("name"), entry.get("dtype")
    shape: Any = entry.get("shape")
    has_shape = isinstance(shape, list) and all(type(length) is int for length in shape)
    if not isinstance(name, str) or not has_shape or not isinstance(kind, str) or kind not in _TYPES:
        raise UnreadableError(path, f"the weight {name!r} of shape {shape} and type {kind!r} is not one that can be read")
    quantization = entry.get("quantization")
    stored: Any = kind
    if quantization is not None:
        stored = quantization.get("dtype") if isinstance(quantization, dict) else None
        numbers = isinstance(quantization, dict) and all(_is_number(quantization.get(key, 0)) for key in ("scale", "min"))
        if stored not in ("uint8", "uint16", "float16") or not numbers or kind != "float32":
            raise UnreadableError(path, f"the weight {name!r} is quantized in a way that is unknown: {quantization!r}")
    dtype = np.dtype(_TYPES[stored])
    array = view(data, at, tuple(shape), dtype, path, name)
    size = array.nbytes
    if quantization is not None:
        charging(size).memory(8 * array.size, path)
        scale, least = (1, 0) if stored == "float16" else (quantization.get("scale", 1), quantization.get("min", 0))
        with np.errstate(all="ignore"):
            array = (array * np.float64(scale) + least).astype(np.float32)
    return name, array, stored if quantization is not None else "", at + size
