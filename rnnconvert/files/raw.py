"""Files of bare numbers, which nothing in them describes: any bytes would be read, so files of another kind are refused."""

from __future__ import annotations

import os

from rnnconvert.containers import wire
from rnnconvert.containers.files import map_file
from rnnconvert.containers.npy import MAGIC
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import HEADER_BYTES

PACKED: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x1f\x8b\x08", "a gzip archive; unpack it first"),
    (0, b"BZh", "a bzip2 archive; unpack it first"),
    (0, b"\xfd7zXZ\0", "an xz archive; unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive; unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
    (0, b"GGUF", "a GGUF model"),
)
"""The beginnings of archives of one file, and of models that nothing here reads: at which byte, which bytes, and what such a file is."""

BEGINNINGS: tuple[tuple[int, bytes, str], ...] = (
    *PACKED,
    (0, MAGIC, "an array of numpy's (.npy)"),
    (0, b"PK\x03\x04", "a zip archive, as an .npz is"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"HDF5-based", "an HDF5 file"),
    *((0, bytes((0x80, protocol, opcode)), "a pickle") for protocol in (2, 3, 4, 5) for opcode in b"}](cX\x8a\x95"),
    (4, b"TFL3", "a FlatBuffer of a model"),
)
"""The beginnings of files of any other kind, likewise."""

_LEAST_TEXT = 32
_HEAD = 512


def begins_otherwise(head: bytes) -> str:
    """Return the kind of file that begins with these bytes, in words; "" if they may be bare numbers."""
    for at, beginning, what in BEGINNINGS:
        if head[at:].startswith(beginning):
            return what
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") <= HEADER_BYTES:
        return "a safetensors file"
    if len(head) >= _LEAST_TEXT and head.isascii() and all(letter.isprintable() or letter.isspace() for letter in head.decode()):
        return f"text ({head[:20].decode()!r})"
    return ""


def _is_message(data: Array) -> bool:
    try:
        return sum(1 for _ in wire.fields(data.data, "")) > 1
    except UnreadableError:
        return False


def check_bare(data: Array, path: object) -> None:
    """Raise UnreadableError for bytes that are a file of another kind."""
    what = begins_otherwise(bytes(data[:_HEAD]))
    if data.size and data[0] == 0x08 and _is_message(data):
        what = "a protobuf message, as models are"
    if what:
        raise UnreadableError(path, f"bare numbers are expected in it, but it is {what}", "Give the file of the numbers alone.")


def map_bare(path: str | os.PathLike[str], empty: bool = False) -> Array:
    """Return the bytes of a file of bare numbers.

    empty  as in map_file

    Raises UnreadableError for a file of another kind, and for one that cannot be read.
    """
    data = map_file(path, empty)
    check_bare(data, path)
    return data
