"""Orbax checkpoints: folders with a tree of arrays, read through tensorstore where it is installed.

The JSON file `_METADATA` lists what is in a folder; the arrays are zarr's, side by side in folders or in one OCDBT store.
Sources: orbax/checkpoint/_src/metadata/tree.py (InternalTreeMetadata) and _src/serialization/tensorstore_utils.py (0.12).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import json_text
from rnnconvert.containers.reading import read_small
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingPackageError, UnreadableError
from rnnconvert.core.limits import DESCRIPTION_BYTES
from rnnconvert.core.malformed import malformed
from rnnconvert.core.names import is_count

_METADATA = "_METADATA"
_DESCRIPTIONS = (".zarray", "zarr.json", "manifest.ocdbt")
_EXPANSION = 1100
"""How many bytes one stored byte may stand for; zstd is asked for less than deflate can."""
_SMALL = 1 << 20
"""The size that an array may claim without any stored byte."""


def recognise(path: Path) -> str:
    """Describe a folder with the description of a tree, or one step of a CheckpointManager; "" for any other."""
    return "an Orbax checkpoint" if _tree(path) is not None else ""


def _tree(path: Path) -> Path | None:
    """Return the folder of the tree: this one, its item `default`, or that of the only step in it."""
    if not path.is_dir():
        return None
    steps = [entry for entry in path.iterdir() if entry.is_dir() and is_count(entry.name)]
    for folder in (path, path / "default", *([steps[0], steps[0] / "default"] if len(steps) == 1 else [])):
        if (folder / _METADATA).is_file():
            return folder
    return None


def read(path: Path) -> Stored:
    """Return every array by its path in the tree; metadata "unreadable" gives the reason for each one that is left out.

    nnx keeps each parameter as `value` of a variable: that word is left out.

    Raises UnreadableError for a damaged folder, MissingPackageError without tensorstore.
    """
    folder = _tree(path)
    if folder is None:
        raise UnreadableError(path, "it is not an Orbax checkpoint: it has no folder with a file _METADATA")
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    seen: set[str] = set()
    described = list(_described(folder / _METADATA))
    variables = bool(described) and all(keys[-1] == "value" and len(keys) > 1 for keys, _ in described)
    stored = _stored_bytes(folder)
    zarr3 = _parsed(folder / _METADATA).get("use_zarr3") is True
    for keys, value in described:
        name = "/".join(keys[:-1] if variables else keys)
        if name in seen:
            raise UnreadableError(path, f"two of its values have the path {name!r}")
        seen.add(name)
        if value.get("value_type") not in ("jax.Array", "np.ndarray", "scalar"):
            if value.get("value_type") != "None":
                unreadable[name] = f"a value of the type {value.get('value_type')!r}, not an array"
            continue
        arrays[name] = _array(folder, ".".join(keys), "zarr3" if zarr3 else "zarr", name, stored)
    return Stored(arrays, FileMetadata(unreadable=unreadable))


def _stored_bytes(folder: Path) -> int:
    """Return how many bytes the files of a folder have, in which the library then opens what it likes, waits for pipes and follows links.

    Raises UnreadableError for what is neither a file nor a folder, for a link that leads out unless the folder is of such links, as the
    caches of hubs are, and for a description that is too large.
    """
    size, base, is_linked = 0, folder.resolve(), (folder / _METADATA).is_symlink()
    for entry in folder.rglob("*"):
        name = str(entry.relative_to(folder))
        if entry.is_symlink() and not is_linked and not Path(os.path.realpath(entry)).is_relative_to(base):
            raise UnreadableError(folder, f"{name!r} is a link out of the folder")
        if entry.is_dir():
            continue
        if not entry.is_file():
            raise UnreadableError(folder, f"{name!r} is not a regular file")
        length = entry.stat().st_size
        if entry.name in _DESCRIPTIONS and length > DESCRIPTION_BYTES:
            raise UnreadableError(folder, f"{name!r} has {length} bytes, but a description has at most {DESCRIPTION_BYTES}")
        size += length
    return size


def _parsed(path: Path) -> dict[str, Any]:
    try:
        document = json_text.loads(read_small(path, DESCRIPTION_BYTES), path)
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(path, f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UnreadableError(path, "it is not a JSON object")
    return document


def _described(path: Path) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield the keys that lead to each value of a tree, and what is said about it."""
    tree = _parsed(path).get("tree_metadata")
    for name, entry in (tree if isinstance(tree, dict) else {}).items():
        unlike = f"its entry for {name} is not how Orbax describes a value"
        with malformed(lambda what, unlike=unlike: UnreadableError(path, f"{unlike} ({what})")):  # type: ignore[misc]
            keys = [str(key["key"]) for key in entry["key_metadata"]]
            first, facts = keys[0], dict(entry["value_metadata"])
        yield [first, *keys[1:]], facts
    if not isinstance(tree, dict):
        raise UnreadableError(path, 'it has no object "tree_metadata"')


def _array(folder: Path, key: str, driver: str, name: str, stored: int) -> Array:
    try:
        import tensorstore
    except ImportError:
        raise MissingPackageError("tensorstore", "read Orbax checkpoints") from None
    base = folder.resolve()
    together = (folder / "manifest.ocdbt").is_file()
    # A path, and no address: in an address "%20" of a key would be a space, and another array be read.
    place: dict[str, Any] = {"driver": "file", "path": f"{base}/" if together else f"{base}/{key}/"}
    if together:
        place = {"driver": "ocdbt", "base": place, "path": f"{key}/"}
    elif "\0" in key or not (base / key).resolve().is_relative_to(base):
        raise UnreadableError(folder, f"{name!r} would lie outside the folder")
    try:
        array = tensorstore.open({"driver": driver, "kvstore": place}, read=True, open=True).result()
        size = math.prod(array.shape) * array.dtype.numpy_dtype.itemsize
        if size > max(_SMALL, _EXPANSION * stored):
            raise UnreadableError(folder, f"{name!r} claims {size} bytes, but the whole folder has {stored}")
        return np.asarray(array.read().result())
    except (ValueError, OSError, RuntimeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnreadableError(folder, f"{name!r} cannot be read: {first[:200]}") from None
