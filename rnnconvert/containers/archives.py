"""Files that are nothing but arrays by name, told apart by their content: .npz, .safetensors, HDF5, msgpack, pickles, JSON, tables of C.

Names have the file's own separators; a group of HDF5 and a dictionary of msgpack are words before a slash, an object
of JSON one before a dot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnnconvert.containers import json_file, msgpack_file, npz_file, pickled_arrays, safetensors
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import UnreadableError, UsageError

HDF5 = b"\x89HDF\r\n\x1a\n"
"""The first bytes of an HDF5 file."""
C_SOURCES = (".h", ".hpp", ".c", ".cc", ".cpp")


def _write_hdf5(path: Path, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    from rnnconvert.containers import hdf5_write  # its library is imported where such a file is met

    hdf5_write.write(path, arrays)


_WRITERS: dict[str, Callable[[Path, Mapping[str, Array | PiecewiseArray]], None]] = {
    ".npz": npz_file.write,
    ".safetensors": safetensors.write,
    ".h5": _write_hdf5,
    ".hdf5": _write_hdf5,
    ".msgpack": lambda path, arrays: msgpack_file.write(path, nested(arrays)),
}
SUFFIXES = tuple(_WRITERS)
"""The endings of files that can be written, and what each is."""


def kind(path: Path, head: bytes, entries: Sequence[str] | None, headed: bool) -> str:
    """Return the kind of archive that a file is, in words; "" for any other file.

    path     its name, by whose ending a C source is known
    head     its first bytes
    entries  the names in it, if it is a zip archive
    headed   whether it has a whole header of JSON after its length
    """
    if head[:2] == b"PK":
        return "a zip archive of .npy files" if npz_file.holds_arrays(entries) else ""
    if head.startswith(HDF5):
        return "an HDF5 file"
    if head[8:9] == b"{" and headed:
        return "a safetensors file"
    if pickled_arrays.looks_like(head):
        return "a pickle"
    if msgpack_file.looks_like(head):
        return "msgpack"
    if json_file.looks_like(head):
        return "JSON"
    return "a C source" if lowered(path).suffix in C_SOURCES else ""


def reader(path: Path, head: bytes) -> Callable[[Path], Stored]:
    """Return the reader of a file that begins like this.

    It gives every array by its name; metadata "unreadable" gives the reason for each one left out.

    Raises UnreadableError for a file that is not an archive of arrays.
    """
    if head[:2] == b"PK":
        return npz_file.read
    if head.startswith(HDF5):
        from rnnconvert.containers import hdf5

        return hdf5.read
    if head[8:9] == b"{":
        return safetensors.read
    if pickled_arrays.looks_like(head):
        return pickled_arrays.read
    if msgpack_file.looks_like(head):
        return msgpack_file.read
    if json_file.looks_like(head):
        return json_file.stored
    if lowered(path).suffix in C_SOURCES:
        from rnnconvert.containers import c_text

        return c_text.stored
    raise UnreadableError(path, f"it is not an archive of arrays ({', '.join(SUFFIXES)}): it begins with {head[:8]!r}")


def write(path: Path, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Write arrays as the kind of file that the path's ending says.

    Raises UsageError for another ending, or names that exclude each other.
    """
    writer = next((writer for suffix, writer in _WRITERS.items() if lowered(path).name.endswith(suffix)), None)
    if writer is None:
        raise UsageError(f"{path}: unknown kind of archive. Choose a name that ends in one of {', '.join(SUFFIXES)}")
    writer(path, arrays)


def nested(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return values named by their paths as nested dictionaries. Raises UsageError for one whose name is the first part of another's."""
    tree: dict[str, Any] = {}
    for full, array in arrays.items():
        *above, last = full.split("/")
        node = tree
        for word in above:
            node = node.setdefault(word, {})
            if not isinstance(node, dict):
                raise UsageError(f"one tree cannot hold {full!r} and an array whose name is the first part of that path")
        if last in node:
            raise UsageError(f"one tree cannot hold {full!r} and an array whose name begins with that path")
        node[last] = array
    return tree
