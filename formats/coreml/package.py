"""A .mlpackage, and the file of weights in it.

A package is a folder with a list of its items, of which one is the model and one the folder of its weights. The file of weights
begins with 64 bytes; each array has a header of 64 bytes, which values of the model refer to, and lies at a multiple of 64.

Source: coremltools, modelpackage/src/ModelPackage.cpp; mlmodel/src/MILBlob/Blob/StorageFormat.hpp.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnconvert.containers import temporary
from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import ChargedFile, map_file, never_replace, view, write_pieces
from rnnconvert.containers.json_file import read as read_json
from rnnconvert.containers.reading import check_sources
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import UnreadableError, unwritable

MANIFEST = "Manifest.json"
PLACE = "@model_path/weights/weight.bin"
"""The name of the file of weights in the models that are written."""
_DATA, _MODEL, _WEIGHTS = "Data", "com.apple.CoreML/model.mlmodel", "com.apple.CoreML/weights"
_HEADER = struct.Struct("<IIQQQQQQQ")
_ENTRY = struct.Struct("<IIQQQQQQQ")
_SENTINEL, _VERSION = 0xDEADBEEF, 2
_TYPES: dict[int, str] = {1: "<f2", 2: "<f4", 3: "u1", 4: "i1", 6: "<i2", 7: "<u2", 14: "<i4", 15: "<u4"}
"""The element types of StorageFormat.hpp that numpy has, by their numbers."""
_NUMBERS = {np.dtype(dtype).newbyteorder("="): number for number, dtype in _TYPES.items()}


def model_in(path: Path) -> Path:
    """Return the file of the model in a package; a path that is a file is itself the model.

    Raises UnreadableError for a folder that is not a package.
    """
    if not path.is_dir():
        return path
    manifest = companion(path, MANIFEST)
    document = read_json(manifest)
    items, root = document.get("itemInfoEntries"), document.get("rootModelIdentifier")
    item = items.get(root) if isinstance(items, dict) and isinstance(root, str) else None
    place = item.get("path") if isinstance(item, dict) else None
    if not isinstance(place, str):
        raise UnreadableError(manifest, "it does not say where the model of the package is")
    return companion(path / _DATA, place)


class WeightFiles:
    """The files of weights beside a model, each mapped when an array of it is asked for."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.files: dict[str, tuple[Path, Array]] = {}

    @property
    def size(self) -> int:
        """How many bytes there are in those that were mapped."""
        return sum(data.size for _, data in self.files.values())

    def array(self, name: str, offset: int, shape: tuple[int, ...], what: str) -> Array:
        """Return the array whose header stands at an offset. Raises UnreadableError if it is not one of this shape."""
        if name not in self.files:
            place = name.removeprefix("@model_path/")
            path = companion(self.model, place)
            self.files[name] = path, map_file(path)
        path, data = self.files[name]
        if offset < 0 or offset + _ENTRY.size > data.size:
            raise UnreadableError(path, f"{what} should have a header at byte {offset}, but the file has {data.size} bytes")
        sentinel, kind, size, at, *_ = _ENTRY.unpack(data[offset : offset + _ENTRY.size].tobytes())
        if sentinel != _SENTINEL:
            raise UnreadableError(path, f"{what} has no header at byte {offset}")
        if kind not in _TYPES:
            raise UnreadableError(path, f"{what} has elements of type {kind}, which is not supported")
        dtype = np.dtype(_TYPES[kind])
        count = 1
        for length in shape:
            count *= length
        if size != count * dtype.itemsize:
            raise UnreadableError(path, f"{what} of shape {shape} has {size} bytes, not {count * dtype.itemsize} of {dtype}")
        return view(data, at, shape, dtype, path, what)


class NewWeights:
    """A file of weights under construction: arrays are added with their places, and written in one go."""

    def __init__(self) -> None:
        self.arrays: list[Array | PiecewiseArray] = []
        self.at = _HEADER.size

    def add(self, array: Array | PiecewiseArray) -> int:
        """Add an array; return where its header will stand."""
        offset = self.at
        self.arrays.append(array)
        self.at += _ENTRY.size + nbytes(array)
        self.at += -self.at % 64
        return offset

    def write(self, file: IO[bytes]) -> None:
        """Write all of them."""
        file.write(_HEADER.pack(len(self.arrays), _VERSION, 0, 0, 0, 0, 0, 0, 0))
        at = _HEADER.size
        for array in self.arrays:
            kind = _NUMBERS[np.dtype(array.dtype).newbyteorder("=")]
            file.write(_ENTRY.pack(_SENTINEL, kind, nbytes(array), at + _ENTRY.size, 0, 0, 0, 0, 0))
            write_pieces(file, array)
            at += _ENTRY.size + nbytes(array)
            file.write(bytes(-at % 64))
            at += -at % 64


@contextlib.contextmanager
def new_package(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield the files of the model and of its weights in a new package, which takes its place when the block ends well.

    Raises UsageError if there is something under that name, or nothing can be written there.
    """
    never_replace(path)
    try:
        with temporary.new_folder(path) as folder:
            package = folder / "package"
            model = package / _DATA / _MODEL
            (package / _DATA / _WEIGHTS).mkdir(parents=True)
            (package / MANIFEST).write_text(json.dumps(_manifest(), indent=4) + "\n", encoding="utf-8")
            with _new(model) as file, _new(package / _DATA / _WEIGHTS / "weight.bin") as data:
                yield file, data
            check_sources()
            package.rename(path)
    except OSError as error:
        raise unwritable(path, error) from None


def _new(path: Path) -> IO[bytes]:
    return ChargedFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666))


def _manifest() -> dict[str, Any]:
    """Return the list of a package's items: their names are the same in each, so that equal models are equal files."""
    items = (("CoreML Model Specification", "model.mlmodel", _MODEL), ("CoreML Model Weights", "weights", _WEIGHTS))
    names = [str(uuid.uuid5(uuid.NAMESPACE_URL, place)) for _, _, place in items]
    entries = {
        name: {"author": "com.apple.CoreML", "description": described, "name": called, "path": place}
        for name, (described, called, place) in zip(names, items, strict=True)
    }
    return {"fileFormatVersion": "1.0.0", "itemInfoEntries": entries, "rootModelIdentifier": names[0]}
