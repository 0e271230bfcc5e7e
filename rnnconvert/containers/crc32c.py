"""CRC-32C, the checksum of TensorFlow's checkpoints: by google-crc32c where that is installed (the extra `checksums`), else by numpy.

Without it thousands of stretches are divided at once, since Python has no CRC-32C of its own.

The remainder of a message is linear over the bits: stretches are divided side by side, and joined by the matrix that a
stretch of zeros multiplies a remainder by.

Sources: RFC 3720, appendix B.4 (the polynomial); tensorflow/core/lib/hash/crc32c.h (the mask).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

POLYNOMIAL = 0x82F63B78
"""The divisor, in reversed bits."""

_PIECE = 1 << 24
"""google-crc32c takes bytes alone, so that a map is copied piece by piece."""
_LANES = 4096
_WORDS = 256
_BLOCK = _LANES * _WORDS * 4
_ONES = 0xFFFFFFFF

_Words = np.ndarray[Any, np.dtype[np.uint32]]


def crc32c(data: Any, before: int = 0) -> int:
    """Return the checksum of bytes, or of bytes that follow others whose checksum is `before`."""
    library = _library()
    if library is None:
        return by_numpy(data, before)
    view = memoryview(data).cast("B") if len(data) else b""
    for start in range(0, len(view), _PIECE):
        before = library.extend(before, bytes(view[start : start + _PIECE]))
    return before


@functools.cache
def _library() -> Any:
    try:
        import google_crc32c  # an extra, and of use to checkpoints of TensorFlow alone
    except ImportError:
        return None
    return google_crc32c


def by_numpy(data: Any, before: int = 0) -> int:
    """Return what `crc32c` does, without google-crc32c."""
    content = np.frombuffer(data, np.uint8)
    state = before ^ _ONES
    aligned = content.size // _BLOCK * _BLOCK
    for start in range(0, aligned, _BLOCK):
        state = _block(content[start : start + _BLOCK], state)
    table = _bytes()
    rest = content[aligned:]
    # What is left is cut into lanes of one power of two after the other, and bytes.
    lanes = _LANES
    while lanes > 1:
        lanes //= 2
        size = lanes * _WORDS * 4
        if rest.size >= size:
            state, rest = _block(rest[:size], state), rest[size:]
    for byte in rest.tobytes():
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ _ONES


def masked(crc: int) -> int:
    """Return a checksum as TensorFlow stores it, changed so that a message may contain checksums."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES


def _block(content: np.ndarray[Any, np.dtype[np.uint8]], state: int) -> int:
    words = np.frombuffer(content.tobytes(), "<u4").reshape(-1, _WORDS)
    high, low = _pairs()
    states = np.zeros(len(words), np.uint32)
    states[0] = state
    for column in np.ascontiguousarray(words.T):
        states ^= column
        states = low[states & 0xFFFF] ^ high[states >> 16]
    level = 0
    while len(states) > 1:
        states = _times(_zeros(level), states[::2]) ^ states[1::2]
        level += 1
    return int(states[0])


@functools.cache
def _bytes() -> list[int]:
    """Return the remainder of each byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


@functools.cache
def _pairs() -> tuple[_Words, _Words]:
    """Return what the upper and the lower half of a word leave as remainders when the word is divided."""
    table = np.array(_bytes(), np.uint32)

    def divided(states: _Words) -> _Words:
        for _ in range(4):
            states = table[states & 0xFF] ^ states >> 8
        return states

    halves: _Words = np.arange(1 << 16, dtype=np.uint32)
    return divided(halves << np.uint32(16)), divided(halves)


@functools.cache
def _zeros(level: int) -> _Words:
    """Return the matrix of 2 ** level stretches of zeros, a column for each bit of a remainder."""
    if level:
        half = _zeros(level - 1)
        return _times(half, half)
    columns = np.uint32(1) << np.arange(32, dtype=np.uint32)
    high, low = _pairs()
    for _ in range(_WORDS):
        columns = low[columns & 0xFFFF] ^ high[columns >> 16]
    return columns


def _times(matrix: _Words, states: _Words) -> _Words:
    product = np.zeros(len(states), np.uint32)
    for bit, column in enumerate(matrix):
        product ^= (states >> bit & 1) * column
    return product
