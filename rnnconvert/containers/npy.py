"""NumPy's .npy records: one array after its header, in an archive by name or in a row without names.

Source: numpy/lib/_format_impl.py (2.4), "Format Version 1.0" and "2.0". Pickled objects are never read. A row of records
is what equinox.tree_serialise_leaves writes (equinox/_serialisation.py, default_serialise_filter_spec).
"""

from __future__ import annotations

import io
import math
import os
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from rnnconvert.containers.files import map_file, replacing, view, write_pieces
from rnnconvert.containers.pickles import RECOVERABLE
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import BFLOAT16, Array, PiecewiseArray
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import NPY_HEADER_BYTES

MAGIC = b"\x93NUMPY"
"""The first bytes of a record."""

PICKLED = "its elements are pickled Python objects, which are never unpickled here"
"""Why an array of objects is not read."""

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_VOID = np.dtype("V2")


def record(data: Array, start: int, path: object, name: str) -> tuple[Array | str, int]:
    """Return the array of the record that begins at a byte, or the reason why it is unreadable, and the byte after it.

    What numpy calls two bytes of void is bfloat16, a type that it has no name for.

    Raises UnreadableError if there is no whole record.
    """
    file = io.BytesIO(bytes(data[start : start + NPY_HEADER_BYTES]))
    try:
        shape, by_column, dtype = _HEADERS[npy.read_magic(file)](file)
    except (*RECOVERABLE, SyntaxError, EOFError, tokenize.TokenError) as error:
        raise UnreadableError(path, f"the array {name!r} has no valid header of numpy's: {str(error)[:200]}") from None
    if dtype == _VOID:
        dtype = BFLOAT16
    lengths = tuple(int(length) for length in shape)
    if any(length < 0 for length in lengths):  # what is behind it would lie before it
        raise UnreadableError(path, f"the array {name!r} has the shape {str(lengths)[:100]}")
    first = start + file.tell()
    if dtype.kind not in "biufc" and dtype != BFLOAT16:
        # Pickled objects have no length that could be known, so nothing behind them can be found.
        behind = data.size if dtype.hasobject else first + math.prod(lengths) * dtype.itemsize
        return PICKLED if dtype.hasobject else f"elements of type {dtype} are not supported", behind
    stored = view(data, first, lengths[::-1] if by_column else lengths, dtype, path, name)
    behind = first + stored.nbytes
    if dtype.byteorder == ">":
        stored = stored.astype(dtype.newbyteorder("="))
    return stored.T if by_column else stored, behind


def header(array: Array | PiecewiseArray) -> bytes:
    """Return the header before an array's numbers; equal arrays give equal bytes."""
    head = io.BytesIO()
    dtype = _VOID if array.dtype == BFLOAT16 else array.dtype.newbyteorder("<")
    npy.write_array_header_1_0(head, {"descr": dtype.str, "fortran_order": False, "shape": tuple(array.shape)})
    return head.getvalue()


def read_row(path: str | os.PathLike[str]) -> Stored:
    """Return the arrays of a row of records, named by their places; metadata "unreadable" gives the reason for each one left out.

    Raises UnreadableError.
    """
    records: dict[str, Array | str] = {}
    data, at = map_file(path), 0
    while at < data.size:
        name = str(len(records))
        records[name], at = record(data, at, path, name)
    return stored(records)


def stored(records: Mapping[str, Array | str]) -> Stored:
    """Return records by their names, apart from those that could not be read: these are the reasons."""
    arrays = {name: value for name, value in records.items() if not isinstance(value, str)}
    return Stored(arrays, FileMetadata(unreadable={name: value for name, value in records.items() if isinstance(value, str)}))


def write_row(path: str | os.PathLike[str], arrays: Iterable[Array | PiecewiseArray]) -> None:
    """Write a row of records. Raises UsageError if nothing can be written there."""
    with replacing(Path(path)) as file:
        for array in arrays:
            file.write(header(array))
            write_pieces(file, array)
