"""NumPy's .npz archives of arrays by name, read as views of the mapped file and written piece by piece."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rnnconvert.containers import npy
from rnnconvert.containers.files import replacing
from rnnconvert.containers.pickles import RECOVERABLE
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.zips import Archive
from rnnconvert.core.arrays import Array, Pieced

_SUFFIX = ".npy"


def is_npz(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a zip archive of nothing but .npy files."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, NotImplementedError, *RECOVERABLE):
        return False
    return bool(names) and all(name.endswith(_SUFFIX) for name in names)


def read(path: str | os.PathLike[str]) -> Stored:
    """Return every array by its name; metadata "unreadable" gives the reason for each one that is left out.

    Raises UnreadableError.
    """
    archive = Archive(path)
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    for entry in archive:
        name = entry.removesuffix(_SUFFIX)
        found, _ = npy.record(archive.read(entry), 0, path, name)
        if isinstance(found, str):
            unreadable[name] = found
        else:
            arrays[name] = found
    return Stored(arrays, {"unreadable": unreadable})


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array | Pieced]) -> None:
    """Write a file that numpy.load reads; equal arrays give equal bytes.

    Raises UsageError if nothing can be written there.
    """
    with replacing(Path(path)) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(name + _SUFFIX), "w", force_zip64=True) as entry:
                npy.write_record(entry, array)
