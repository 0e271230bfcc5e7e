"""CRC-32C, the checksum of TensorFlow's checkpoints: by google-crc32c if that is installed (the extra `checksums`), else by numpy.

A CRC is the remainder of the bytes as a polynomial over the bits, so that what follows multiplies it by a power of x: numpy divides
stretches of the bytes side by side, and their checksums are joined (zlib's crc32.c, `crc32_combine`).

Sources: RFC 3720, appendix B.4 (the polynomial); tensorflow/core/lib/hash/crc32c.h (the mask).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

POLYNOMIAL = 0x82F63B78
"""The divisor, in reversed bits."""

_PIECE = 1 << 24
"""google-crc32c takes bytes alone, so that a map is copied piece by piece."""
_STRETCHES, _WORDS = 4096, 256
"""The most stretches of the bytes that numpy divides side by side, a power of two, and the most words of each."""
_SHORT = 256
"""Fewer bytes are divided one by one."""
_ONES = 0xFFFFFFFF
_UNITY = 1 << 31
"""The polynomial 1: a remainder's first bit is that of the highest power."""

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
    """Compute the same as `crc32c`, without google-crc32c."""
    content = np.frombuffer(data, np.uint8)
    high, low = _halves()
    while content.size >= _SHORT:
        stretches = min(1 << math.isqrt(content.size // 4).bit_length() - 1, _STRETCHES)
        words = min(content.size // (4 * stretches), _WORDS)
        block, content = np.split(content, [4 * stretches * words])
        states = np.full(stretches, _ONES, np.uint32)
        for column in np.ascontiguousarray(np.frombuffer(block.tobytes(), "<u4").reshape(stretches, words).T):
            states ^= column
            states = low[states & 0xFFFF] ^ high[states >> 16]
        checksums, size = states ^ np.uint32(_ONES), 4 * words
        while len(checksums) > 1:
            checksums, size = joined(checksums[::2], checksums[1::2], size, POLYNOMIAL), 2 * size
        before = joined(before, int(checksums[0]), size, POLYNOMIAL)
    state, table = before ^ _ONES, _bytes()
    for byte in content.tobytes():
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ _ONES


def joined(first: Any, other: Any, size: int, polynomial: int) -> Any:
    """Return the checksum of bytes that follow others, from the checksums of both: numbers, or arrays of as many.

    size        the size of the bytes that follow
    polynomial  the divisor of the CRC, in reversed bits
    """
    return _times(_power(8 * size, polynomial), first, polynomial) ^ other


@functools.lru_cache(64)
def _power(exponent: int, polynomial: int) -> int:
    """Return x to a power, modulo the polynomial."""
    result, square = _UNITY, _UNITY >> 1  # 1, and x
    while exponent:
        if exponent & 1:
            result = _times(result, square, polynomial)
        square = _times(square, square, polynomial)
        exponent >>= 1
    return result


def _times(first: int, other: Any, polynomial: int) -> Any:
    """Return the product of two polynomials of 32 bits, the other one or an array of them, modulo another one."""
    product = other & 0
    while first:
        if first & _UNITY:
            product = product ^ other
        first = first << 1 & _ONES
        other = other >> 1 ^ (other & 1) * polynomial
    return product


def masked(crc: int) -> int:
    """Return a checksum as TensorFlow stores it, changed so that a message may contain checksums."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES


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
def _halves() -> tuple[_Words, _Words]:
    """Return the remainders of the upper and the lower half of a word, for each value, when the word is divided."""
    table = np.array(_bytes(), np.uint32)

    def divided(states: _Words) -> _Words:
        for _ in range(4):
            states = table[states & 0xFF] ^ states >> 8
        return states

    halves: _Words = np.arange(1 << 16, dtype=np.uint32)
    return divided(halves << np.uint32(16)), divided(halves)
