"""rnnconvert scaffold: the model around the weights, written for another framework."""

from __future__ import annotations

from typing import Any

import click

from rnnconvert.cli.muted import libraries_muted
from rnnconvert.cli.terminal import FilePath, emit, put_lines, say
from rnnconvert.cli.values import ProvingCommand, counts, fixed, in_one, proving

_EPILOG = """\b
Examples:
  rnnconvert scaffold model.h5 --to pytorch -o model.py
  rnnconvert scaffold model.keras --to pytorch -o model.py --verify
  rnnconvert scaffold model.onnx --to pytorch -o model.py --verify val.npz
  rnnconvert scaffold model.h5 -o model.py --weights model.pt --verify
  rnnconvert scaffold model.h5 --to keras -o model.py --weights model.keras
  rnnconvert scaffold weights.h5 --config model.json -o model.py
  rnnconvert scaffold model.h5 -o model.py --partial

The file has a class for the model, a submodule for each layer, and load("model.h5"), which fills it. Where the frameworks
differ (masks, padding, the reset gate), the code spells it out. If a layer is unknown, it is named, and nothing is written,
or with --partial everything else.
"""


@click.command(epilog=_EPILOG, cls=ProvingCommand)
@click.argument("source", type=FilePath())
@click.option("--to", default="pytorch", show_default=True, metavar="FRAMEWORK", help="pytorch, keras or flax.")
@click.option("-o", "--output", type=FilePath(), metavar="MODEL.py", help="The file to write; stdout by default.")
@click.option("--config", type=FilePath(), metavar="FILE.json", help="If SOURCE has weights alone: its model, as model.to_json wrote it.")
@click.option("--axes", metavar="N[,N...]", help="If SOURCE does not state it: how many axes each input has, or lengths, as 1x80x?.")
@click.option("--chain", metavar="WORDS", help='If SOURCE has weights alone: its layers in their order, as in "lstm relu fc".')
@click.option("--fix", multiple=True, metavar="NAME=VALUE", help="Fix an input at a value, which decides conditions on it. Repeatable.")
@click.option("--weights", type=FilePath(), metavar="FILE", help="Also write the weights: .pt, .keras, .msgpack ...")
@click.option("--verify", **proving("Run both models, and keep the files only if they agree."))
@click.option("--partial", is_flag=True, help="Write the rest if a layer is unknown: its line raises NotImplementedError.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@in_one
def scaffold(asked: Any) -> None:
    """Write Python code for SOURCE, a whole model, in another framework."""
    from rnnconvert.scaffolding.scaffold import scaffold as write

    with libraries_muted():
        done = write(
            asked.source,
            asked.to,
            asked.output,
            config=asked.config,
            axes=counts(asked.axes, "--axes"),
            chain=asked.chain,
            fix=fixed(asked.fix),
            weights=asked.weights,
            verify=asked.verify,
            partial=asked.partial,
            force=asked.force,
        )
    if asked.as_json:
        emit(done.as_dict())
        return
    if asked.output is None:
        put_lines(done.text)
    for file in filter(None, (asked.output, asked.weights)):
        say(f"wrote {file}", asked.quiet)
    for line in done.lines():
        say(line, asked.quiet)
