"""PyTorch files from before 1.6, which are a row of pickles with the storages after them.

They are read by the same machine as the zip files, so neither PyTorch nor trust is needed.
Source: torch/serialization.py (`_legacy_save`, `_legacy_load`).
"""

from __future__ import annotations

import os
import sys
import tarfile
from dataclasses import replace
from typing import Any

import numpy as np

from rnnconvert.containers import pickles
from rnnconvert.containers.files import map_file
from rnnconvert.containers.numpy_values import content
from rnnconvert.containers.reading import open_regular
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.pytorch.archives.values import STORAGES, TORCH_BUILDERS, Storage, storage_of
from rnnconvert.formats.pytorch.archives.walk import Records, flatten

MAGIC = 0x1950A86A20F9469CFC6C
"""The number that is pickled first in such a file."""
_MAGIC_PICKLE = 64
"""More bytes than the pickle of that number takes in any protocol."""
_LITTLE = sys.byteorder == "little"
_WIDTHS = {"QInt8Storage": 1, "QUInt8Storage": 1, "QInt32Storage": 4}


def is_torch_legacy(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins with PyTorch's magic number, or is its older tar archive."""
    try:
        data = map_file(path)
    except UnreadableError:
        return False
    return _begins_with_magic(data) or _is_tar(path)


def _begins_with_magic(data: Array) -> bool:
    try:
        return bool(pickles.load(data[:_MAGIC_PICKLE], "")[0] == MAGIC)
    except (UnreadableError, *pickles.RECOVERABLE):
        return False


def read(path: str | os.PathLike[str]) -> Stored:
    """Return the tensors of an old checkpoint as views of the mapped file; names and metadata as for a zip file.

    Raises UnreadableError; always for the tar archives of PyTorch 0.1, which even PyTorch opens only by running their pickles.
    """
    data = map_file(path)
    if _is_tar(path):
        raise UnreadableError(
            path,
            "it is a tar archive of PyTorch 0.1, which can only be opened by running its pickles",
            "If you trust it, open it with torch.load(path, weights_only=False) and torch.save it again.",
        )
    root, places, little = _row(data, path)
    return flatten(root, _records(places, path), path, little != _LITTLE)


def read_pickle(path: str | os.PathLike[str]) -> Stored:
    """Return the tensors of a plain pickle, in which each storage is a whole file of this kind.

    Source: torch/storage.py, `TypedStorage.__reduce__`. Raises UnreadableError.
    """
    data = map_file(path)
    places: dict[str, Array] = {}
    orders: set[bool] = set()

    def storage(stored: Any) -> Storage:
        inner, members, little = _row(np.frombuffer(content(stored) or b"", np.uint8), path)
        if not isinstance(inner, Storage):
            raise ValueError("bytes that are not a storage")
        key = str(len(places))
        places[key] = members[inner.key]
        orders.add(little)
        return replace(inner, key=key)

    builders = {**TORCH_BUILDERS, "torch.storage._load_from_bytes": storage}
    root = pickles.load_row(data, path, pickles.Meanings(builders))
    return flatten(root, _records(places, path), path, orders == {not _LITTLE})


def _row(data: Array, path: object) -> tuple[Any, dict[str, Array], bool]:
    """Return the value that a row of pickles describes, the bytes of its storages, and whether they are little-endian."""
    magic, at = pickles.load(data, path)
    if magic != MAGIC:
        raise UnreadableError(path, "it does not begin with PyTorch's magic number")
    _, at = pickles.load(data, path, start=at)
    system, at = pickles.load(data, path, start=at)
    storages: dict[str, Storage] = {}

    def persistent(reference: Any) -> Any:
        storage = storage_of(reference)
        if isinstance(storage, Storage):
            storages[storage.key] = storage
        return storage

    root, at = pickles.load(data, path, pickles.Meanings(TORCH_BUILDERS, persistent), at)
    keys, at = pickles.load(data, path, start=at)
    little = not isinstance(system, dict) or bool(system.get("little_endian", True))
    return root, _places(data, at, keys, storages, little, path), little


def _records(places: dict[str, Array], path: object) -> Records:
    def records(storage: Storage, size: int) -> Array:
        place = places.get(storage.key)
        if place is None or place.size < size:
            raise UnreadableError(path, f"it lacks the {size} bytes of the storage {storage.key!r}")
        return place

    return records


def _is_tar(path: str | os.PathLike[str]) -> bool:
    if bytes(map_file(path)[257:262]) != b"ustar":
        return False
    try:
        with open_regular(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            return {"pickle", "storages"} <= set(archive.getnames())
    except (OSError, tarfile.TarError, *pickles.RECOVERABLE):
        return False


def _places(data: Array, at: int, keys: Any, storages: dict[str, Storage], little: bool, path: object) -> dict[str, Array]:
    """Return the bytes of each storage: they follow one another, each after its number of elements."""
    places: dict[str, Array] = {}
    if not isinstance(keys, list):
        raise UnreadableError(path, "it does not list its storages")
    for key in keys:
        storage = storages.get(key) if isinstance(key, str) else None
        if storage is None or key in places:
            raise UnreadableError(path, "it lists a storage that no tensor uses, or one storage twice")
        dtype = STORAGES.get(storage.kind)
        width = dtype.itemsize if dtype else _WIDTHS.get(storage.kind)
        if width is None:
            raise UnreadableError(path, f"it has a storage of the unknown type {storage.kind!r}")
        size = int.from_bytes(bytes(data[at : at + 8]), "little" if little else "big") * width
        at += 8
        if at + size > data.size:
            raise UnreadableError(
                path,
                f"the storage {key!r} should have {size} bytes, but only {max(0, data.size - at)} are left",
                "The file is truncated or damaged; fetch it again.",
            )
        places[key] = data[at : at + size]
        at += size
    return places
