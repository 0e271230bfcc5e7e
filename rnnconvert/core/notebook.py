"""The display of weights in notebooks: small tables, and matrices as pictures."""

from __future__ import annotations

import html
from collections.abc import Iterable

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import for_user
from rnnconvert.core.printable import abridged, printable

_CELLS = 16
"""The most rows and columns of a picture; of a larger matrix each of its cells is the mean of a block."""
_LEFT = "text-align:left;vertical-align:top"


class Picture(str):
    """Text that is HTML already."""

    __slots__ = ()


def listing(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a small table of names and what they are, under a title; text is escaped, a Picture is not."""
    cells = "".join(
        f'<tr><th scope="row" style="{_LEFT}">{_text(name)}</th><td style="{_LEFT}">{_text(text)}</td></tr>' for name, text in rows
    )
    caption = f'<caption style="text-align:left;font-weight:bold">{_text(title)}</caption>'
    return f"<table>{caption}<tbody>{cells}</tbody></table>"


def _text(text: str) -> str:
    return text if isinstance(text, Picture) else html.escape(printable(abridged(for_user(text)), "\n\t"), quote=False)


def pictured(array: Array) -> Picture:
    """Return a matrix or a vector as its shape, its range and a heat map: blue below zero, red above."""
    values = np.atleast_2d(np.asarray(array, np.float64))
    if not values.size or not np.isfinite(values).all():
        return Picture(f"{tuple(array.shape)}{'' if not values.size else ', not all finite'}")
    blocks = _blocks(_blocks(values, 0), 1)
    scale = float(np.abs(blocks).max()) or 1.0
    cells = "".join(
        f'<rect x="{column}" y="{row}" width="1" height="1" fill="{_colour(value / scale)}"/>'
        for (row, column), value in np.ndenumerate(blocks)
    )
    height, width = blocks.shape
    box = f'viewBox="0 0 {width} {height}" width="{8 * width}" height="{8 * height}" shape-rendering="crispEdges"'
    words = f"{tuple(array.shape)}, {values.min():.3g} to {values.max():.3g}"
    return Picture(f'{words}<br><svg {box} role="img" aria-label="heat map">{cells}</svg>')


def _blocks(values: Array, axis: int) -> Array:
    parts = np.array_split(values, min(_CELLS, values.shape[axis]), axis)
    return np.stack([part.mean(axis) for part in parts], axis)


def _colour(share: float) -> str:
    """Return the colour of a number between -1 and 1."""
    fades = round(255 * (1 - abs(share)))
    return f"#{fades:02x}{fades:02x}ff" if share < 0 else f"#ff{fades:02x}{fades:02x}"
