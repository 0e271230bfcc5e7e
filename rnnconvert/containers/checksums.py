"""Checksums of bytes whose parts may be read in any order: each part by itself, then joined in theirs.

A CRC is the remainder of the bytes as a polynomial over the bits, so that

- what follows multiplies it by a power of x (zlib's crc32.c, `crc32_combine`);
- a multiple of the divisor that has few terms, 1 + x^a + x^b, turns each byte into two or three that lie further back. What is
  left are the last bytes, with all others added to them by exclusive or, which numpy does several times as fast as a CRC. The
  same multiple, squared three times, is one in bytes: its exponents are those of the bits.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from rnnconvert.containers.crc32c import crc32c
from rnnconvert.core.arrays import Array

_ONE = 1 << 31
"""The polynomial 1: a remainder's first bit is that of the highest power."""
_ONES = 0xFFFFFFFF
_KEPT = 512 << 10
"""So many bytes of what is done are kept at a time: less than a processor's cache."""


class Divisor(NamedTuple):
    """The polynomial of a CRC, in reversed bits, and one of its multiples.

    delays  how far back each byte is added to others: the multiple's degree, and what is left of it at its other terms
    """

    polynomial: int
    delays: tuple[int, ...]


ZIP = Divisor(0xEDB88320, (91639 - 41678, 91639))
CASTAGNOLI = Divisor(0x82F63B78, (6777 - 484, 6777 - 100, 6777))


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

    divisor  its polynomial
    plain    computes it of a few bytes, going on from a value
    value    of all that was appended
    """

    divisor: Divisor
    plain: Callable[[memoryview, int], int]

    def __init__(self) -> None:
        self.value = 0

    def part(self, data: memoryview) -> int:
        short = shortened(data, self.divisor)
        if short is None:
            return self.plain(data, 0)
        return self.plain(short.data, _ONES) ^ _of_zeros(len(data), self.divisor.polynomial) ^ _ONES

    def append(self, part: int, size: int) -> None:
        self.value = joined(self.value, part, size, self.divisor.polynomial)


class Crc32(_Crc):
    """The checksum of zip archives."""

    divisor, plain = ZIP, staticmethod(zlib.crc32)


class Crc32c(_Crc):
    """The checksum of TensorFlow's checkpoints."""

    divisor, plain = CASTAGNOLI, staticmethod(crc32c)


def shortened(data: memoryview | Array, divisor: Divisor) -> Array | None:
    """Return fewer bytes that leave the same remainder; None for bytes that are few already."""
    if len(data) > 16 * max(divisor.delays):
        # The multiple, squared twice: fewer and longer steps, for which threads do not wait for one another.
        longer = _shortened(data, tuple(4 * delay for delay in divisor.delays))
        shorter = None if longer is None else _shortened(longer, divisor.delays)
        return longer if shorter is None else shorter
    return _shortened(data, divisor.delays)


def _shortened(data: memoryview | Array, delays: tuple[int, ...]) -> Array | None:
    degree = max(delays)
    chunk = min(delays)
    content = np.frombuffer(data, np.uint8)
    end = content.size - degree
    if end < 2 * degree:
        return None
    # The last bytes of what was done, then what is being done.
    kept = np.zeros(degree + max(chunk, _KEPT), np.uint8)
    at = degree
    for start in range(0, end, chunk):
        if at + chunk > kept.size:
            kept[:degree] = kept[at - degree : at]
            at = degree
        size = min(chunk, end - start)
        now = kept[at : at + size]
        np.bitwise_xor(content[start : start + size], kept[at - chunk : at - chunk + size], out=now)
        for delay in delays:
            if delay != chunk:
                np.bitwise_xor(now, kept[at - delay : at - delay + size], out=now)
        at += size
    last = content[end:].copy()
    for delay in delays:
        np.bitwise_xor(last[:delay], kept[at - delay : at], out=last[:delay])
    return last


def joined(one: int, other: int, size: int, polynomial: int) -> int:
    """Return the checksum of bytes that follow others, from those of both.

    size  of the bytes that follow
    """
    return _times(_power(8 * size, polynomial), one, polynomial) ^ other


def _of_zeros(size: int, polynomial: int) -> int:
    """Return the checksum of so many zeros."""
    return _times(_power(8 * size, polynomial), _ONES, polynomial) ^ _ONES


@functools.lru_cache(64)
def _power(exponent: int, polynomial: int) -> int:
    """Return x to a power, modulo the polynomial."""
    found, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            found = _times(found, square, polynomial)
        square = _times(square, square, polynomial)
        exponent >>= 1
    return found


def _times(one: int, other: int, polynomial: int) -> int:
    """Return the product of two polynomials of 32 bits, modulo another one."""
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = one << 1 & 0xFFFFFFFF
        other = other >> 1 ^ (polynomial if other & 1 else 0)
    return product
