"""ND4J's arrays as Nd4j.write stores them: a description of the shape and then the numbers, two buffers, big-endian.

Source: nd4j, org/nd4j/linalg/factory/Nd4j.java, write; org/nd4j/linalg/api/buffer/BaseDataBuffer.java, write and read; for
the description org/nd4j/linalg/api/shape/Shape.java. A buffer is the name of an allocation mode, a count (of 8 bytes in the
modes LONG_SHAPE and MIXED_DATA_TYPES of 1.0.0-beta and later, else of 4), the name of a type, and so many elements.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.files import view
from rnnconvert.core.arrays import Array, PiecewiseArray, pieces
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import AXES

_TYPES: dict[str, np.dtype[Any]] = {
    "FLOAT": np.dtype(">f4"),
    "DOUBLE": np.dtype(">f8"),
    "HALF": np.dtype(">f2"),
    "INT": np.dtype(">i4"),
    "LONG": np.dtype(">i8"),
}
_WIDE = ("LONG_SHAPE", "MIXED_DATA_TYPES")
_NARROW = ("HEAP", "JAVACPP", "DIRECT")
_LONGEST_NAME = 64


def read(data: Array, path: object, name: str) -> Array:
    """Return the array in some bytes, as a view.

    Raises UnreadableError if they are not a whole array, or hold elements that are not numbers.
    """
    about, at = _buffer(data, 0, path, name)
    if about.dtype.kind != "i" or not about.size or not 0 <= int(about[0]) <= AXES:
        raise UnreadableError(path, f"{name!r} does not begin with the shape of an array")
    axes = int(about[0])
    if about.size != 2 * axes + 4:
        raise UnreadableError(path, f"{name!r} has a shape of {axes} axes in {about.size} numbers, expected {2 * axes + 4}")
    shape = tuple(int(length) for length in about[1 : 1 + axes])
    numbers, at = _buffer(data, at, path, name)
    large = math.prod(max(length, 1) for length in shape) >= 1 << 56  # an empty one, of lengths that numpy refuses
    if min(shape, default=0) < 0 or large or math.prod(shape) != numbers.size or at != data.size:
        raise UnreadableError(
            path,
            f"{name!r} has the shape {shape}, {numbers.size} numbers and {data.size - at} bytes after them",
            "The file is truncated or damaged; fetch it again.",
        )
    return numbers.reshape(shape, order="F" if about[-1] == ord("f") else "C")


def _buffer(data: Array, at: int, path: object, name: str) -> tuple[Array, int]:
    """Return the elements of the buffer at a byte, and the byte after it."""
    mode, at = _text(data, at, path, name)
    if mode not in (*_WIDE, *_NARROW):
        raise UnreadableError(path, f"{name!r} is stored in the unknown mode {mode!r}")
    width = 8 if mode in _WIDE else 4
    count = int.from_bytes(bytes(data[at : at + width]), "big", signed=True)
    kind, at = _text(data, at + width, path, name)
    if kind not in _TYPES:
        raise UnreadableError(
            path,
            f"{name!r} has elements of the unknown type {kind!r}, expected one of {', '.join(_TYPES)}",
            "Cast the parameters in Deeplearning4j, uncompressed, and save the model again.",
        )
    dtype = _TYPES[kind]
    return view(data, at, (count,), dtype, path, name), at + count * dtype.itemsize


def _text(data: Array, at: int, path: object, name: str) -> tuple[str, int]:
    """Return a short text after its length, and the byte after it."""
    length = int.from_bytes(bytes(data[at : at + 2]), "big")
    end = at + 2 + length
    if length > _LONGEST_NAME or end > data.size or length == 0:
        raise UnreadableError(path, f"{name!r} ends or is damaged at byte {at}", "Fetch the file again.")
    return bytes(data[at + 2 : end]).decode("latin1"), end


_MODE, _FLOAT_FLAG = "MIXED_DATA_TYPES", 1 << 13
"""How a row of float32 is stored, and what its description says of that: a file of 1.0.0-beta4 has them."""


def write(out: IO[bytes], check: Crc32, arrays: Sequence[Array | PiecewiseArray]) -> None:
    """Write arrays of float32, one behind the other, as one row; add its bytes to a checksum."""

    def put(data: bytes) -> None:
        out.write(data)
        check.append(check.part(memoryview(data)), len(data))

    put(_head(arrays))
    for array in arrays:
        for piece in pieces(array):
            put(piece.astype(">f4").tobytes())


def size(arrays: Sequence[Array | PiecewiseArray]) -> int:
    """Return how many bytes `write` writes."""
    return len(_head(arrays)) + 4 * sum(math.prod(array.shape) for array in arrays)


def _head(arrays: Sequence[Array | PiecewiseArray]) -> bytes:
    """Return the bytes before the numbers: the description of the row, and the head of its buffer."""
    count = sum(math.prod(array.shape) for array in arrays)
    about = struct.pack(">8q", 2, 1, count, 1, 1, _FLOAT_FLAG, 1, ord("c"))
    return b"".join((_buffer_head(8, "LONG"), about, _buffer_head(count, "FLOAT")))


def _buffer_head(count: int, kind: str) -> bytes:
    return b"".join((_text_of(_MODE), struct.pack(">q", count), _text_of(kind)))


def _text_of(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
