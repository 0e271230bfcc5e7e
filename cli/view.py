"""rnnconvert view: what the layers of a checkpoint look like, as a page or a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rnnconvert.cli import completion
from rnnconvert.cli.streams import incoming
from rnnconvert.cli.terminal import FilePath, format_option, say, setting
from rnnconvert.cli.values import in_one

_EPILOG = """\b
Examples:
  rnnconvert view model.h5
  rnnconvert view model.h5 -o page.html
  rnnconvert view before.pt after.pt -o changes.html
  rnnconvert view model.pt --layer encoder.lstm -o gates.svg

Pictures (.svg, .png, .pdf) need matplotlib: pip install matplotlib
"""


@click.command(epilog=_EPILOG)
@click.argument("path", metavar="FILE", type=FilePath(allow_dash=True))
@click.argument("other", metavar="[OTHER]", required=False, type=FilePath())
@click.option(
    "-o", "--output", type=FilePath(), metavar="PAGE", help="File to write: .html (by default, FILE's name, here), .svg, .png or .pdf."
)
@format_option("--from", "format", "Format of FILE; by default, its content decides.")
@format_option("--from-other", "other_format", "Format of OTHER; by default, its content decides.")
@setting
@click.option("--layer", "layers", multiple=True, metavar="NAME", shell_complete=completion.layers, help="Only this layer. Repeatable.")
@click.option("--pair", "pairs", multiple=True, metavar="A=B", help="Pair a layer of FILE with one of OTHER. Repeatable.")
@click.option("--force", is_flag=True, help="Replace an existing page.")
@click.option("--json", "as_json", is_flag=True, help="Print the path of the page as JSON.")
@in_one
def view(asked: Any) -> None:
    """Show the weights of FILE as a page: each gate as heat map, histogram and figures.

    With OTHER, show both side by side, with their differences. The page loads nothing from outside.
    """
    from rnnconvert import views
    from rnnconvert.cli.terminal import emit

    target = Path(asked.output or f"{'view' if asked.path == '-' else Path(asked.path).name}.html")
    views.check(target, asked.force)
    with incoming(asked.path) as (file,):
        views.view(
            file,
            asked.other,
            layers=asked.layers,
            pairs=asked.pairs,
            source_format=asked.format,
            other_format=asked.other_format,
            settings=asked.settings,
        ).write(target, force=asked.force)
    if asked.as_json:
        emit({"page": str(target)})
    else:
        say(f"wrote {target}")
