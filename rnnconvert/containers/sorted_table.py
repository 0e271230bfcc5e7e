"""Tables of keys and values in the order of the keys, as TensorFlow has them from LevelDB: the index of a checkpoint.

Blocks of entries, each entry's key without the part it shares with the previous one; then a block that finds the
blocks, and a footer that finds that one.

Sources: tensorflow/core/lib/io/{format.cc,block_builder.cc,table_builder.cc}; LevelDB, doc/table_format.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnnconvert.containers.crc32c import crc32c, masked
from rnnconvert.containers.reading import charging, open_regular
from rnnconvert.containers.wire import varint
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import INDEX_BYTES

MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER, _TRAILER = 48, 5


def ends(path: Path) -> bool:
    """Return whether a file ends as a table does."""
    try:
        with open_regular(path) as file:
            file.seek(-len(MAGIC), os.SEEK_END)
            return file.read() == MAGIC
    except (OSError, UnreadableError):
        return False


def read(data: memoryview, path: object) -> dict[bytes, memoryview]:
    """Return every value by its key, in the order of the keys, as views of the bytes.

    Raises UnreadableError if the bytes are not such a table, are damaged, or are compressed.
    """
    if len(data) < _FOOTER or bytes(data[-8:]) != MAGIC:
        raise UnreadableError(path, "it does not end as the index of a TensorFlow checkpoint does")
    if len(data) > INDEX_BYTES:
        raise UnreadableError(path, f"its index of {len(data)} bytes is larger than that of any checkpoint")
    numbers = _numbers(data[-_FOOTER:-8], 4, path)
    _block(data, numbers[0], numbers[1], path)  # where LevelDB keeps what TensorFlow has none of
    table: dict[bytes, memoryview] = {}
    spent = charging(len(data))
    for _, handle in _entries(_block(data, numbers[2], numbers[3], path), path):
        offset, size = _numbers(handle, 2, path)
        spent.work(size // 32, path)  # several handles may lead to one block
        for key, value in _entries(_block(data, offset, size, path), path):
            if key in table:
                raise UnreadableError(path, f"the key {key!r} appears twice")
            table[key] = value
    return table


def _block(data: memoryview, offset: int, size: int, path: object) -> memoryview:
    if offset + size + _TRAILER > len(data) - _FOOTER or size < 8:
        raise UnreadableError(path, f"a block of {size} bytes at byte {offset} is not inside the file")
    trailer = data[offset + size : offset + size + _TRAILER]
    if crc32c(data[offset : offset + size + 1]) != _unmasked(int.from_bytes(trailer[1:], "little")):
        raise UnreadableError(path, f"the checksum of the block at byte {offset} is wrong", "Fetch the file again.")
    if trailer[0]:
        raise UnreadableError(path, f"a block is compressed (type {trailer[0]}), which TensorFlow's checkpoints are not")
    restarts = int.from_bytes(data[offset + size - 4 : offset + size], "little")
    if restarts > size // 4 - 1:
        raise UnreadableError(path, f"a block of {size} bytes with {restarts} places to start from")
    return data[offset : offset + size - 4 - 4 * restarts]


def _entries(block: memoryview, path: object) -> Iterator[tuple[bytes, memoryview]]:
    key, at, spent = b"", 0, charging(len(block))
    while at < len(block):
        (shared, unshared, length), at = _varints(block, at, 3, path)
        if shared > len(key) or unshared + length > len(block) - at:
            raise UnreadableError(path, "an entry reaches beyond its block")
        key = key[:shared] + bytes(block[at : at + unshared])
        spent.memory(len(key), path)  # a key of one byte may be all of the one before it, and this byte
        yield key, block[at + unshared : at + unshared + length]
        at += unshared + length


def _numbers(data: memoryview, count: int, path: object) -> list[int]:
    return _varints(data, 0, count, path)[0]


def _varints(data: memoryview, at: int, count: int, path: object) -> tuple[list[int], int]:
    numbers = []
    for _ in range(count):
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise UnreadableError(path, "a number in its index is truncated")
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                break
        numbers.append(value)
    return numbers, at


def _unmasked(stored: int) -> int:
    turned = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return (turned >> 17 | turned << 15) & 0xFFFFFFFF


def build(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a table of these entries, which are in the order of their keys."""
    out = bytearray()

    def add(content: bytes) -> bytes:
        handle = varint(len(out)) + varint(len(content))
        out.extend(content + b"\0" + struct.pack("<I", masked(crc32c(content + b"\0"))))
        return handle

    def block(inside: Sequence[tuple[bytes, bytes]]) -> bytes:
        # Every key whole, and every entry a place to start from: larger, and as good.
        starts, content = [], b""
        for key, value in inside:
            starts.append(len(content))
            content += b"".join([varint(0), varint(len(key)), varint(len(value)), key, value])
        starts = starts or [0]
        return content + struct.pack(f"<{len(starts) + 1}I", *starts, len(starts))

    groups = [entries[at : at + 64] for at in range(0, len(entries), 64)]
    index = [(group[-1][0], add(block(group))) for group in groups]
    footer = add(block([])) + add(block(index))
    return bytes(out) + footer.ljust(_FOOTER - 8, b"\0") + MAGIC
