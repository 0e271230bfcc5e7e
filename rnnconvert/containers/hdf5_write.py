"""Writing HDF5 files: the library lays everything out, and the numbers go straight to their places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any

import h5py
import numpy as np

from rnnconvert.containers.files import replacing, write_pieces
from rnnconvert.core.arrays import BFLOAT16, Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import UsageError

ATTRIBUTE_BYTES = 64512
"""Keras splits longer lists of names over several attributes (HDF5_OBJECT_HEADER_LIMIT in its sources)."""


def write(
    path: str | os.PathLike[str], arrays: Mapping[str, Array | PiecewiseArray], attributes: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Write arrays as contiguous datasets at their paths.

    attributes  of groups and datasets, by path; "" is the root
    Lists of strings are stored as in Keras: over several attributes where one cannot hold them.
    Raises UsageError if two names exclude each other or an attribute cannot be stored.
    """
    with replacing(path) as file:
        for offset, name in lay_out(path, file, arrays, attributes or {}):
            file.seek(offset)
            write_pieces(file, arrays[name])


def lay_out(
    path: object, file: IO[bytes], arrays: Mapping[str, Array | PiecewiseArray], attributes: Mapping[str, Mapping[str, Any]]
) -> list[tuple[int, str]]:
    """Write everything but the numbers, and say where those go: (offset, name), in the file's order.

    Raises UsageError if the library refuses a name or an attribute.
    """
    places: list[tuple[int, str]] = []
    try:
        # 64-byte alignment makes every mapped array fit for vector instructions
        with h5py.File(file, "w", alignment_threshold=256, alignment_interval=64) as target:
            for name, array in arrays.items():
                offset = _allocate(target, name, array)
                if offset is not None:
                    places.append((offset, name))
            for name, values in attributes.items():
                holder = target[name] if name and name in target else target.require_group(name or "/")
                for key, value in values.items():
                    _set_attribute(holder, key, value)
            # what was promised beyond the last byte written has to exist in the file
            end = max((offset + nbytes(arrays[name]) for offset, name in places), default=0)
        if file.seek(0, os.SEEK_END) < end:
            file.truncate(end)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise UsageError(f"{path}: cannot write this as HDF5: {str(error) or type(error).__name__}") from None
    return sorted(places)


def _allocate(target: h5py.File, name: str, array: Array | PiecewiseArray) -> int | None:
    """Create a dataset without numbers, and return the offset of its bytes, or None if it has none."""
    folder, _, last = name.rpartition("/")
    group = target.require_group(folder) if folder else target
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    settings.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    settings.set_layout(h5py.h5d.CONTIGUOUS)
    settings.set_obj_track_times(False)  # the same arrays give the same bytes at any time
    kind = h5py.h5t.py_create(array.dtype, logical=True)
    scalar = not array.shape
    space = h5py.h5s.create(h5py.h5s.SCALAR) if scalar else h5py.h5s.create_simple(tuple(array.shape))
    identifier = h5py.h5d.create(group.id, last.encode(), kind, space, settings)
    if array.dtype == BFLOAT16:  # Keras 3 stores it as two opaque bytes and this note
        h5py.Dataset(identifier).attrs["dtype"] = "bfloat16"
    offset: int | None = identifier.get_offset()
    return offset


def _set_attribute(holder: h5py.Group | h5py.Dataset, key: str, value: Any) -> None:
    if not (isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value)):
        holder.attrs[key] = value
        return
    names = np.array([each.encode() for each in value])
    if names.itemsize > ATTRIBUTE_BYTES:
        longest = max(value, key=lambda name: len(name.encode()))
        raise ValueError(
            f"the name {longest[:60]!r}... has {names.itemsize:,} bytes, and an attribute holds {ATTRIBUTE_BYTES:,}. "
            "Choose a shorter name, or another format"
        )
    parts = [names]
    while len(parts) < len(names) and any(part.nbytes > ATTRIBUTE_BYTES for part in parts):
        parts = np.array_split(names, len(parts) + 1)
    if len(parts) == 1:
        holder.attrs[key] = names
        return
    for index, part in enumerate(parts):
        holder.attrs[f"{key}{index}"] = part
