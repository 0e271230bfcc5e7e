"""rnnconvert scaffold: the model around the weights, written for another framework."""

from __future__ import annotations

import click

from rnnconvert.cli.terminal import emit, put_lines, say

_EPILOG = """\b
Examples:
  rnnconvert scaffold model.h5 --to pytorch -o model.py
  rnnconvert scaffold model.keras --to pytorch -o model.py --verify
  rnnconvert scaffold model.h5 -o model.py --weights model.pt --verify
  rnnconvert scaffold weights.h5 --config model.json -o model.py

The file has a class for the model, a submodule for each layer, and load("model.h5"), which fills it. Where Keras differs from
PyTorch (masks, padding, the reset gate), the code spells it out. If a layer is unknown, it is named, and nothing is written.
"""


@click.command(epilog=_EPILOG)
@click.argument("source", type=click.Path())
@click.option("--to", default="pytorch", show_default=True, metavar="FRAMEWORK", help="The framework to write for.")
@click.option("-o", "--output", type=click.Path(), metavar="MODEL.py", help="The file to write; stdout by default.")
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE.json",
    help="If SOURCE has weights alone: its model, as model.to_json wrote it.",
)
@click.option("--weights", type=click.Path(), metavar="MODEL.pt", help="Also write the weights.")
@click.option("--verify", is_flag=True, help="Run both models, and keep the files only if they agree.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
def scaffold(
    source: str, to: str, output: str | None, config: str | None, weights: str | None, verify: bool, force: bool, as_json: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Write Python code for SOURCE, a whole Keras model, in another framework."""
    from rnnconvert.scaffolding.scaffold import scaffold as write

    done = write(source, to, output, config=config, weights=weights, verify=verify, force=force)
    if as_json:
        emit(done.as_dict())
        return
    if output is None:
        put_lines(done.text)
    for file in filter(None, (output, weights)):
        say(f"wrote {file}", quiet)
    for line in done.lines():
        say(line, quiet)
