"""Files that are nothing but arrays by name: .npz, .safetensors, HDF5 and msgpack, told apart by their content.

Names have the file's own separators; a group of HDF5 and a dictionary of msgpack are words before a slash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rnnconvert.containers import hdf5, hdf5_write, msgpack_file, npz_file, safetensors
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.errors import UnreadableError, UsageError

_HDF5 = b"\x89HDF\r\n\x1a\n"
_WRITERS: dict[str, Callable[[Path, Mapping[str, Array | Pieced]], None]] = {
    ".npz": npz_file.write,
    ".safetensors": safetensors.write,
    ".h5": hdf5_write.write,
    ".hdf5": hdf5_write.write,
    ".msgpack": lambda path, arrays: msgpack_file.write(path, nested(arrays)),
}
SUFFIXES = tuple(_WRITERS)
"""The endings of files that can be written, and what each is."""


def kind(path: Path, head: bytes) -> str:
    """Return what sort of archive a file is, in words; "" if it is none."""
    if path.is_dir():
        return ""
    if head[:2] == b"PK":
        return "a zip archive of .npy files" if npz_file.is_npz(path) else ""
    if head.startswith(_HDF5):
        return "an HDF5 file"
    if head[8:9] == b"{" and safetensors.is_safetensors(path):
        return "a safetensors file"
    return "msgpack" if msgpack_file.looks_like(head) else ""


def read(path: Path) -> Stored:
    """Return every array by its name; metadata "unreadable" gives the reason for each one that is left out.

    Raises UnreadableError for a damaged file, or one that is no such archive.
    """
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise UnreadableError(path, error.strerror or str(error)) from None
    if head[:2] == b"PK":
        return npz_file.read(path)
    if head.startswith(_HDF5):
        return hdf5.read(path)
    if head[8:9] == b"{":
        return safetensors.read(path)
    if msgpack_file.looks_like(head):
        return msgpack_file.read(path)
    raise UnreadableError(path, f"it is not an archive of arrays ({', '.join(SUFFIXES)}): it begins with {head[:8]!r}")


def write(path: Path, arrays: Mapping[str, Array | Pieced]) -> None:
    """Write arrays as the kind of file that the path's ending says.

    Raises UsageError for another ending, or names that exclude each other.
    """
    writer = next((writer for suffix, writer in _WRITERS.items() if path.name.endswith(suffix)), None)
    if writer is None:
        raise UsageError(f"{path}: unknown kind of archive. Choose a name that ends in one of {', '.join(SUFFIXES)}")
    writer(path, arrays)


def nested(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays named by their paths as nested dictionaries."""
    tree: dict[str, Any] = {}
    for full, array in arrays.items():
        *above, last = full.split("/")
        node = tree
        for word in above:
            node = node.setdefault(word, {})
            if not isinstance(node, dict):
                raise UsageError(
                    f"one tree cannot hold {full!r} and an array whose name is the first part of that path"
                )
        node[last] = array
    return tree
