"""PyTorch's files with the numbers of some tensors replaced; every other byte stays unchanged.

So everything that accompanies the weights (epoch, arguments, an optimizer's state, code) is kept.

Source: the .ZIP File Format Specification 6.3 (APPNOTE.TXT), 4.3, for the checksums of a zip archive's entries.
"""

from __future__ import annotations

import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from rnnconvert.containers.files import replacing
from rnnconvert.containers.window import Window
from rnnconvert.core.arrays import Array, PiecewiseArray, byte_bounds, pieces
from rnnconvert.core.errors import UsageError

_STEP = 1 << 24


def write(
    path: str | os.PathLike[str], source: str | os.PathLike[str], arrays: Mapping[str, Array], new: Mapping[str, Array | PiecewiseArray]
) -> None:
    """Write the file `source` again, as `path`, with new numbers in some of its tensors.

    arrays  every tensor of the file by name, as views of the mapped file
    new     the new numbers, of the shapes and types that these tensors have

    Raises UsageError if a tensor is not stored directly in the file, or shares its numbers with another one that would change with it.
    """
    start = _start(source, arrays, new)
    data = np.memmap(source, np.uint8, "c")  # what is written stays in memory, and only the pages that change
    changed: list[tuple[int, int]] = []
    for name, array in new.items():
        _fill(_within(data, arrays[name], start), array)
        low, high = byte_bounds(arrays[name])
        changed.append((low - start, high - start))
    _check_shared(source, data, start, arrays, new, changed)
    _mend_checksums(source, data, changed)
    with replacing(path) as file:
        for at in range(0, data.size, _STEP):
            file.write(data[at : at + _STEP].data)


def _start(source: object, arrays: Mapping[str, Array], new: Mapping[str, Array | PiecewiseArray]) -> int:
    """Return where the mapped file begins in memory, which all of the tensors in question are views of."""
    starts = set()
    for name, array in new.items():
        old = arrays[name]
        if old.shape != tuple(array.shape) or old.dtype.newbyteorder("=") != array.dtype.newbyteorder("="):
            raise UsageError(f"{source}: {name!r} is {old.dtype} {old.shape}, but would become {array.dtype} {tuple(array.shape)}")
        if not old.size:
            continue
        root = _root(old)
        if root is None:
            raise UsageError(
                f"{source}: {name!r} is compressed or byte-swapped, so it cannot be replaced in place. Save the file again with torch.save"
            )
        starts.add(root)
    if len(starts) > 1:
        raise UsageError(f"{source}: its tensors lie in several files")
    return next(iter(starts), 0)


def _root(array: Array) -> int | None:
    """Return the address of the mapped file that an array is a view of, or None."""
    owner, base = array, array.base
    while base is not None:
        if isinstance(base, mmap.mmap):
            return byte_bounds(owner)[0]
        if isinstance(base, memoryview):
            base = base.obj
            continue
        if not isinstance(base, np.ndarray):
            return None
        owner, base = base, base.base
    return None


def _within(data: Array, old: Array, start: int) -> Array:
    """Return the same view of the bytes that may be written."""
    if not old.size:
        return np.empty(old.shape, old.dtype)
    offset = old.__array_interface__["data"][0] - start
    return np.ndarray(old.shape, old.dtype, data.data, offset, old.strides)


def _fill(place: Array, array: Array | PiecewiseArray) -> None:
    if place.flags.c_contiguous:
        flat, at = place.reshape(-1), 0
        for piece in pieces(array):
            flat[at : at + piece.size] = piece
            at += piece.size
    elif place.size:
        place[...] = np.concatenate([piece.copy() for piece in pieces(array)]).reshape(array.shape)


def _check_shared(
    source: object,
    data: Array,
    start: int,
    arrays: Mapping[str, Array],
    new: Mapping[str, Array | PiecewiseArray],
    changed: list[tuple[int, int]],
) -> None:
    """Raise UsageError where a tensor would get wrong numbers because it shares its memory with another."""
    for name, old in arrays.items():
        if not old.size or _root(old) != start:
            continue
        low, high = (bound - start for bound in byte_bounds(old))
        if name not in new and not any(low < end and begin < high for begin, end in changed):
            continue
        wanted = np.concatenate([p.copy() for p in pieces(new[name])]).reshape(old.shape) if name in new else old
        if _within(data, old, start).tobytes() != np.asarray(wanted, old.dtype).tobytes():
            raise UsageError(
                f"{source}: {name!r} shares its numbers with another tensor of the file, which should get others. "
                "Untie them in the file first"
            )


def _mend_checksums(source: str | os.PathLike[str], data: Array, changed: list[tuple[int, int]]) -> None:
    """Put new checksums into a zip archive's headers, where the bytes of an entry have changed."""
    if bytes(data[:4]) != b"PK\x03\x04":
        return
    for at, entry in _directory(data):
        header, size = entry.header_offset, entry.file_size
        low = header + 30 + sum(struct.unpack_from("<2H", data.data, header + 26))
        # PyTorch can be told to write no checksums.
        if not any(low <= begin < low + size for begin, _ in changed) or not any(data[at + 16 : at + 20]):
            continue
        crc = 0
        for begin in range(low, low + size, _STEP):
            crc = zlib.crc32(data[begin : min(begin + _STEP, low + size)].data, crc)
        mark = np.frombuffer(struct.pack("<I", crc), np.uint8)
        data[at + 16 : at + 20] = mark
        if any(data[header + 14 : header + 18]):  # else it stands behind the entry
            data[header + 14 : header + 18] = mark
        if bytes(data[low + size : low + size + 4]) == b"PK\x07\x08":
            data[low + size + 4 : low + size + 8] = mark


def _directory(data: Array) -> Iterator[tuple[int, zipfile.ZipInfo]]:
    """Yield where each entry's record in the central directory begins, and the entry."""
    with zipfile.ZipFile(Window(data)) as archive:
        at, entries = archive.start_dir, archive.infolist()
    for entry in entries:
        if bytes(data[at : at + 4]) != b"PK\x01\x02":
            return
        yield at, entry
        at += 46 + sum(struct.unpack_from("<3H", data.data, at + 28))
