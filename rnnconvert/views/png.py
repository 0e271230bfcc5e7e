"""Heat maps as PNG images: one byte a cell, colours that suit a light and a dark page."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from rnnconvert.views.measured import Heatmap

NEGATIVE, POSITIVE, BROKEN = (31, 105, 180), (214, 100, 12), (200, 0, 120)
"""Blue, orange, and for what is not finite magenta: told apart by people who see no red or no green."""

_HALF = 31
"""Shades of each colour: more are not told apart, and each image has its own table of them."""


def _palette() -> tuple[bytes, bytes]:
    """Return the colours of all values, and how opaque each is: zero shows the page."""
    strength = np.abs(np.arange(-_HALF, _HALF + 1)) / _HALF
    colours = np.where(np.arange(-_HALF, _HALF + 1)[:, None] < 0, NEGATIVE, POSITIVE).astype(np.uint8)
    opaque = np.rint(255 * strength**0.7).astype(np.uint8)
    return colours.tobytes() + bytes(BROKEN), opaque.tobytes() + b"\xff"


_COLOURS, _OPAQUE = _palette()


def to_png(heat: Heatmap) -> bytes:
    """Return a heat map as a PNG image with a pixel for each cell."""
    scaled = heat.cells / (heat.largest or 1.0) * _HALF
    pixels = np.where(np.isnan(scaled), _HALF + 1, np.rint(np.nan_to_num(scaled))).astype(np.int16) + _HALF
    rows, columns = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels.astype(np.uint8))
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", _COLOURS), (b"tRNS", _OPAQUE), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def to_url(heat: Heatmap) -> str:
    """Return a heat map as the address of an image that is part of the page."""
    return "data:image/png;base64," + base64.b64encode(to_png(heat)).decode()
