"""NumPy's .npz archives of arrays by name, read as views of the mapped file and written piece by piece."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from rnnconvert.containers import npy
from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.files import replacing, write_pieces
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.stored_zip import StoredZip
from rnnconvert.containers.zips import Archive, entry_names
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.names import distinct

_SUFFIX = ".npy"
_MODELS = {"data.pkl", "config.json", "configuration.json", "constants.pkl"}
"""Entries that show a model of another kind."""


def is_npz(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a zip archive of .npy files."""
    return holds_arrays(entry_names(path))


def holds_arrays(entries: Sequence[str] | None) -> bool:
    """Return whether a zip archive with these entries is one of arrays: most are .npy files, as numpy.savez writes them, and
    the others, such as a readme, do not show a model of another kind.
    """
    names = [name for name in entries or () if not name.endswith("/")]
    arrays = [name for name in names if name.endswith(_SUFFIX)]
    others = {name.rpartition("/")[2] for name in names} & _MODELS
    return 2 * len(arrays) > len(names) and not others


def read(path: str | os.PathLike[str]) -> Stored:
    """Return every array by its name; metadata "unreadable" gives the reason for each one that is left out.

    Raises UnreadableError.
    """
    archive = Archive(path)
    records: dict[str, Array | str] = {}
    for name, entry in distinct(archive, lambda entry: entry.removesuffix(_SUFFIX), path).items():
        if name == entry:
            if not entry.endswith("/"):
                records[name] = "it is not an array (.npy), and was left out"
            continue
        records[name], _ = npy.record(archive.read(entry), 0, path, name)
    return npy.stored(records)


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Write a file that numpy.load reads; equal arrays give equal bytes.

    Raises UsageError if nothing can be written there.
    """
    with replacing(Path(path)) as file:
        archive = StoredZip(file)
        for name, array in arrays.items():
            head = npy.header(array)

            def fill(out: IO[bytes], check: Crc32, head: bytes = head, array: Array | PiecewiseArray = array) -> None:
                out.write(head)
                check.append(check.part(memoryview(head)), len(head))
                write_pieces(out, array, check)

            archive.add_filled(name + _SUFFIX, len(head) + nbytes(array), fill)
        archive.finish()
