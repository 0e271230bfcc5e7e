"""The gates of some layers as one picture, for a README or a paper: SVG, PNG or PDF, drawn by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.core.printable import called, printable
from rnnconvert.core.remedies import Flag
from rnnconvert.core.version import requirement
from rnnconvert.core.weights import Recurrent
from rnnconvert.views.measured import ArrayView, DirectionView, Histogram, measured
from rnnconvert.views.page import place, radius_text
from rnnconvert.views.png import BROKEN, NEGATIVE, POSITIVE
from rnnconvert.views.spectral import EigenvalueBudget

SIDE = 96
"""The most rows and columns of a heat map in a picture."""

_ROWS = 12
"""The most directions of layers in one picture."""


def draw(stacks: Sequence[Recurrent], form: str, title: str) -> bytes:
    """Return a picture of stacks: a row for each direction of a layer, and for each gate W, R and a histogram.

    form  "svg", "png" or "pdf"

    Raises UsageError where there is nothing to draw or more than one picture shows, MissingPackageError without matplotlib.
    """
    try:
        import matplotlib as mpl
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
    except ImportError:
        remedy = f"Install it with: pip install {requirement('pictures')}"
        raise MissingPackageError("matplotlib", "draw a picture", remedy) from None

    count = sum(1 for stack in stacks for _ in stack.directions())
    if not count:
        raise UsageError(f"{title}: there are no recurrent layers to draw")
    if count > _ROWS:
        raise UsageError(
            f"{title}: a picture shows up to {_ROWS} directions of layers, and there are {count}. Choose layers with {Flag('layer')}, or "
            "write a page: -o view.html"
        )
    work = EigenvalueBudget()
    rows = [(stack, way) for stack in stacks for way in measured(stack, SIDE, work)]
    wide = max(len(way.direction.cell.gates) for _, way in rows)
    signs = [_rgb(NEGATIVE), (1, 1, 1), _rgb(POSITIVE)]
    colours = LinearSegmentedColormap.from_list("signs", signs).with_extremes(bad=_rgb(BROKEN))
    # The same checkpoint gives the same bytes: neither a date nor a random number goes into the file.
    with mpl.rc_context({"svg.hashsalt": "rnnconvert", "font.size": 7, "font.family": "DejaVu Sans", "svg.fonttype": "none"}):
        figure = Figure(figsize=(1.0 + 2.3 * wide, 0.5 + 1.75 * len(rows)), dpi=160, layout="constrained")
        figure.suptitle(_plain(title), fontsize=9)
        for part, (stack, way) in zip(figure.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
            where = place(stack, way)
            part.suptitle(_plain(called(stack.name) + (f", {where}" if where else "")), fontsize=8, x=0.01, ha="left")
            _row(part, way, wide, colours)
        buffer = io.BytesIO()
        dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[form]
        figure.savefig(buffer, format=form, metadata=dated)
    return buffer.getvalue()


def _row(figure: Any, way: DirectionView, wide: int, colours: Any) -> None:
    """Draw the gates of one direction beside one another."""
    parts = {part.key: part for part in way.parts}
    axes = figure.subplots(2, 2 * wide, squeeze=False, height_ratios=[3, 1])
    for column in range(2 * wide):
        gates = way.direction.cell.gates
        gate = gates[column // 2] if column // 2 < len(gates) else ""
        part = parts.get(("input" if column % 2 == 0 else "recurrent", gate))
        if part is None or part.heat is None:
            axes[0, column].set_axis_off()
            axes[1, column].set_axis_off()
            continue
        _heat(axes[0, column], part, colours)
        _histogram(axes[1, column], part.histogram)


def _heat(axes: Any, part: ArrayView, colours: Any) -> None:
    assert part.heat is not None
    largest = part.heat.largest or 1.0
    cells = np.ma.masked_invalid(part.heat.cells)
    axes.imshow(cells, cmap=colours, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest", rasterized=True)
    axes.set_xticks([])
    axes.set_yticks([])
    kind = "W" if part.key[0] == "input" else "R"
    radius = f", \N{GREEK SMALL LETTER RHO} {radius_text(part.radius)}" if part.radius else ""
    axes.set_title(f"{kind}$_{{{part.key[1]}}}$  {part.shape[0]}\N{MULTIPLICATION SIGN}{part.shape[1]}{radius}", fontsize=6.5, pad=2)


def _histogram(axes: Any, bins: Histogram) -> None:
    edges = np.linspace(-bins.largest, bins.largest, len(bins.counts) + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    tones = [_rgb(NEGATIVE) if at < 0 else _rgb(POSITIVE) for at in middles]
    axes.bar(middles, bins.counts, width=np.diff(edges), color=tones)
    axes.set_yticks([])
    axes.set_xticks([-bins.largest, 0, bins.largest], [f"{-bins.largest:.2g}", "0", f"{bins.largest:.2g}"])
    axes.tick_params(length=1.5, pad=1, labelsize=5)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)


def _rgb(colour: tuple[int, int, int]) -> tuple[float, float, float]:
    red, green, blue = (channel / 255 for channel in colour)
    return red, green, blue


def _plain(text: str) -> str:
    """Return text from a file for matplotlib, which takes $ for the beginning of a formula."""
    return printable(text).replace("$", r"\$")
