"""Checksums of bytes whose parts may be read in any order: each part by itself, then joined in theirs.

CRC-32 is computed by ISA-L if that is installed (the extra `checksums`), else by zlib, which took four times as long.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Protocol

from rnnconvert.containers import crc32c


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
        self.value = crc32c.joined(self.value, part, size, self.polynomial)


class Crc32(_Crc):
    """The checksum of zip archives."""

    polynomial = 0xEDB88320

    @staticmethod
    def part(data: memoryview) -> int:
        """Return the checksum of a stretch of the bytes."""
        return _crc32()(data)


class Crc32c(_Crc):
    """The checksum of TensorFlow's checkpoints."""

    polynomial, part = crc32c.POLYNOMIAL, staticmethod(crc32c.crc32c)


@functools.cache
def _crc32() -> Callable[[memoryview], int]:
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        return zlib.crc32
    function: Callable[[memoryview], int] = crc32  # without the package its types are unknown
    return function
