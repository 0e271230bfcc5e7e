"""rnnconvert transplant: the weights of one file into another model's file, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rnnconvert.cli.progress import watching
from rnnconvert.cli.streams import STREAM, incoming, outgoing
from rnnconvert.cli.terminal import FilePath, emit, format_option, say, setting, styled
from rnnconvert.cli.values import in_one
from rnnconvert.core.errors import UsageError

_EPILOG = """\b
Examples:
  rnnconvert transplant model.h5 --into mine.pt -o filled.pt
  rnnconvert transplant a.onnx --into b.keras -o c.keras --mapping map.yaml
  rnnconvert transplant a.h5 --into b.pt -o c.pt --flatten target=none
  rnnconvert transplant a.pt --into b.keras -o c.keras --accept epsilon
  rnnconvert transplant old.h5 --into b.keras -o c.keras --verify inputs.npy
  rnnconvert transplant - --into mine.pt -o - < model.h5 > filled.pt

Unless everything fits, nothing is written, and all problems are listed at once: a size, a layer without a counterpart, layers
that fit in several ways, an epsilon. To decide what fills what, see rnnconvert map.
"""


@click.command(epilog=_EPILOG)
@click.argument("source", type=FilePath(allow_dash=True))
@click.option("--into", "target", type=FilePath(), required=True, help="The model whose weights are replaced.")
@click.option("-o", "--output", type=FilePath(allow_dash=True), required=True, help="The file to write, like the target.")
@click.option("--mapping", type=FilePath(), help="What fills what: a file that rnnconvert map wrote.")
@format_option("--from", "source_format", "Format of SOURCE; by default, its content decides.")
@format_option("--to", "target_format", "Format of the target; by default, its content decides.")
@setting
@click.option("--accept", multiple=True, metavar="OPTION", help="A difference that your code handles. Repeatable.")
@click.option(
    "--flatten",
    multiple=True,
    metavar="SIDE=ORDER",
    help="How a model flattens a convolution's output, if its file does not show it: target=channels_first, "
    "source=channels_last, target=none ... Repeatable.",
)
@click.option("--trust-order", is_flag=True, help="Where layers fit in several ways, pair them in order.")
@click.option("--partial", is_flag=True, help="Fill what fits, and leave the rest unchanged.")
@click.option(
    "--verify",
    "inputs",
    type=FilePath(),
    metavar="INPUTS.npy",
    help="Run both models on these inputs (several: .npz), and keep the output only if they agree.",
)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@in_one
def transplant(asked: Any) -> None:
    """Fill a model of your own with the weights of SOURCE, and write it as a file. `-` is stdin or stdout."""
    from rnnconvert.models.load import transplant_file

    if asked.as_json and asked.output == STREAM and not asked.dry_run:
        raise UsageError("--json prints on stdout, where the file would go, too. Give the output a name")
    if asked.inputs is not None and STREAM in (asked.source, asked.output):
        raise UsageError("--verify runs both files, which stdin and stdout are not. Give them names")
    name = f"stdout{''.join(Path(asked.target).suffixes[-2:])}"
    with incoming(asked.source) as (read,), outgoing(asked.output, name, asked.dry_run) as written:
        with watching(asked.quiet or asked.as_json) as watch:
            report = transplant_file(
                read,
                asked.target,
                written,
                asked.mapping,
                strict=not asked.partial,
                accept=asked.accept,
                flatten=",".join(asked.flatten) or None,
                trust_order=asked.trust_order,
                force=asked.force,
                dry_run=asked.dry_run,
                source_format=asked.source_format,
                target_format=asked.target_format,
                settings=asked.settings,
                watch=watch,
                inputs=asked.inputs,
            )
        if asked.as_json:
            emit({**report.as_dict(), "output": asked.output, "written": not asked.dry_run})
            return
        say(f"{'would write' if asked.dry_run else 'wrote'} {written}", asked.quiet)
        for line in report.lines():
            word, colon, rest = line.partition(": ")
            coloured = styled(word, "yellow") if word in ("difference", "assumed") else word
            say(f"{coloured}{colon}{rest}", asked.quiet)
