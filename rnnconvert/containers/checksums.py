"""Checksums of bytes whose parts may be read in any order: each part by itself, then joined in theirs.

A CRC is the remainder of the bytes as a polynomial over the bits, so that what follows multiplies it by a power of x (zlib's
crc32.c, `crc32_combine`).
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Protocol

from rnnconvert.containers import crc32c

_UNITY = 1 << 31
"""The polynomial 1: a remainder's first bit is that of the highest power."""


class Checksum(Protocol):
    """A checksum of which parts are computed by several threads."""

    def part(self, data: memoryview) -> int:
        """Return the checksum of a stretch of the bytes."""
        ...

    def append(self, part: int, size: int) -> None:
        """Add the next stretch: its checksum, and its length."""
        ...


class _Crc:
    """A CRC of 32 bits.

    polynomial  its divisor, in reversed bits
    part        computes it of a stretch of the bytes
    value       of all that was appended
    """

    polynomial: int
    part: Callable[[memoryview], int]

    def __init__(self) -> None:
        self.value = 0

    def append(self, part: int, size: int) -> None:
        self.value = joined(self.value, part, size, self.polynomial)


class Crc32(_Crc):
    """The checksum of zip archives."""

    polynomial, part = 0xEDB88320, staticmethod(zlib.crc32)


class Crc32c(_Crc):
    """The checksum of TensorFlow's checkpoints."""

    polynomial, part = crc32c.POLYNOMIAL, staticmethod(crc32c.crc32c)


def joined(first: int, other: int, size: int, polynomial: int) -> int:
    """Return the checksum of bytes that follow others, from those of both.

    size  of the bytes that follow
    """
    return _times(_power(8 * size, polynomial), first, polynomial) ^ other


@functools.lru_cache(64)
def _power(exponent: int, polynomial: int) -> int:
    """Return x to a power, modulo the polynomial."""
    result, square = _UNITY, _UNITY >> 1
    while exponent:
        if exponent & 1:
            result = _times(result, square, polynomial)
        square = _times(square, square, polynomial)
        exponent >>= 1
    return result


def _times(first: int, other: int, polynomial: int) -> int:
    """Return the product of two polynomials of 32 bits, modulo another one."""
    product = 0
    while first:
        if first & _UNITY:
            product ^= other
        first = first << 1 & 0xFFFFFFFF
        other = other >> 1 ^ (polynomial if other & 1 else 0)
    return product
