"""NumPy's .npz archives of arrays by name, read as views of the mapped file and written piece by piece.

Source: numpy/lib/_format_impl.py (2.4), "Format Version 1.0" and "2.0". Pickled objects are never read.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from rnnconvert.arrays import BFLOAT16, Array, Pieced
from rnnconvert.containers.files import replacing, view, write_pieces
from rnnconvert.containers.pickles import RECOVERABLE
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.zips import Archive
from rnnconvert.errors import UnreadableError

_SUFFIX = ".npy"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_LARGEST_HEADER = 1 << 16
_VOID = np.dtype("V2")


def is_npz(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a zip archive of nothing but .npy files."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, NotImplementedError, *RECOVERABLE):
        return False
    return bool(names) and all(name.endswith(_SUFFIX) for name in names)


def read(path: str | os.PathLike[str]) -> Stored:
    """Every array by its name; metadata "unreadable" says why some are not among them.

    What numpy calls two bytes of nothing is bfloat16, which it has no word for.

    Raises UnreadableError.
    """
    archive = Archive(path)
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    for entry in archive:
        name = entry.removesuffix(_SUFFIX)
        data = archive.read(entry)
        file = io.BytesIO(bytes(data[:_LARGEST_HEADER]))
        try:
            shape, by_column, dtype = _HEADERS[npy.read_magic(file)](file)
        except (*RECOVERABLE, SyntaxError, EOFError) as error:
            raise UnreadableError(path, f"the array {name!r} has no header of numpy's: {str(error)[:200]}") from None
        if dtype == _VOID:
            dtype = BFLOAT16
        if dtype.kind not in "biufc" and dtype != BFLOAT16:
            unreadable[name] = f"elements of type {dtype} are not supported"
            continue
        lengths = tuple(int(length) for length in shape)
        stored = view(data, file.tell(), lengths[::-1] if by_column else lengths, dtype, path, name)
        arrays[name] = stored.T if by_column else stored
    return Stored(arrays, {"unreadable": unreadable})


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array | Pieced]) -> None:
    """A file that numpy.load reads; of equal arrays equal bytes.

    Raises UsageError if nothing can be written there.
    """
    with replacing(Path(path)) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(name + _SUFFIX), "w", force_zip64=True) as entry:
                head = io.BytesIO()
                dtype = _VOID if array.dtype == BFLOAT16 else array.dtype.newbyteorder("<")
                about = {"descr": dtype.str, "fortran_order": False, "shape": tuple(array.shape)}
                npy.write_array_header_1_0(head, about)
                entry.write(head.getvalue())
                write_pieces(entry, array)
