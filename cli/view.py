"""rnnconvert view: what the layers of a checkpoint look like, as a page or a picture."""

from __future__ import annotations

from pathlib import Path

import click

from rnnconvert.cli import completion
from rnnconvert.cli.streams import incoming
from rnnconvert.cli.terminal import format_option, say, setting

_EPILOG = """\b
Examples:
  rnnconvert view model.h5
  rnnconvert view model.h5 -o page.html
  rnnconvert view before.pt after.pt -o changes.html
  rnnconvert view model.pt --layer encoder.lstm -o gates.svg

Pictures (.svg, .png, .pdf) need matplotlib: pip install matplotlib
"""


@click.command(epilog=_EPILOG)
@click.argument("path", metavar="FILE", type=click.Path(allow_dash=True))
@click.argument("other", metavar="[OTHER]", required=False, type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), metavar="PAGE",
    help="File to write: .html (by default, FILE's name, here), .svg, .png or .pdf.",
)  # fmt: skip
@format_option("--from", "format", "Format of FILE; by default, its content decides.")
@format_option("--from-other", "other_format", "Format of OTHER; by default, its content decides.")
@setting
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.layers,
    help="Only this layer. Repeatable.",
)
@click.option(
    "--pair", "pairs", multiple=True, metavar="A=B", help="Pair a layer of FILE with one of OTHER. Repeatable."
)
@click.option("--force", is_flag=True, help="Replace an existing page.")
@click.option("--json", "as_json", is_flag=True, help="Print the path of the page as JSON.")
def view(
    path: str,
    other: str | None,
    output: str | None,
    format: str | None,
    other_format: str | None,
    settings: tuple[str, ...],
    layers: tuple[str, ...],
    pairs: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Show the weights of FILE as a page: each gate as heat map, histogram and figures.

    With OTHER, show both side by side, with their differences. The page loads nothing from outside.
    """
    from rnnconvert import views
    from rnnconvert.cli.terminal import emit

    target = Path(output or f"{'view' if path == '-' else Path(path).name}.html")
    views.check(target, force)
    with incoming(path) as (file,):
        views.view(
            file, other, layers=layers, pairs=pairs, source_format=format, other_format=other_format, settings=settings
        ).write(target, force=force)
    if as_json:
        emit({"page": str(target)})
    else:
        say(f"wrote {target}")
