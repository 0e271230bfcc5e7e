"""rnnconvert export: a whole model, not only its recurrent layers, as one file of another framework."""

from __future__ import annotations

from typing import Any

import click

from rnnconvert.cli.muted import libraries_muted
from rnnconvert.cli.terminal import FilePath, emit, format_option, say
from rnnconvert.cli.values import ProvingCommand, check_written, counts, fixed, in_one, proving

_EPILOG = """\b
Examples:
  rnnconvert export model.keras model.onnx
  rnnconvert export model.h5 model.onnx --verify
  rnnconvert export script.pt model.onnx --verify val.npz
  rnnconvert export weights.h5 model.onnx --config model.json
  rnnconvert export model.keras model.tflite --dtype int8 --verify
  rnnconvert export model.keras model.xml --stateful --verify
  rnnconvert export model.keras model.mlpackage
  rnnconvert export model.keras model.h --dtype int8
  rnnconvert export model.keras model.onnx --dry-run --json
  rnnconvert export model.keras amp.json
  rnnconvert export model.keras model.json --to tfjs
  rnnconvert export weights.pt amp.nam --chain "lstm fc"

In .onnx and .xml each recurrent layer is one operation, in .tflite a loop, each for any batch and length; in Core ML's .mlpackage an LSTM
is an operation and a GRU a loop, for up to 64 sequences of 4096 steps, which Apple's systems alone run; ncnn (.param and .bin) has no
batch; a C header has functions for one step and for a sequence. A layer or setting without an equivalent is refused by name, and nothing
is written. Where --dtype rounds weights, --verify shows that rounding explains the difference. The words of --chain are the layers' names,
activations (relu, tanh ...), and what makes one step of a sequence: last (its last step), final (the last state of each direction, as h_n),
mean or max (over the time); skip adds the input.
"""


@click.command(epilog=_EPILOG, cls=ProvingCommand)
@click.argument("source", metavar="MODEL", type=FilePath())
@click.argument("target", metavar="TARGET", type=FilePath())
@format_option("--to", "target_format", "Format of TARGET; by default, its ending decides.")
@click.option("--config", type=FilePath(), metavar="FILE.json", help="If MODEL has weights alone: its model, as model.to_json wrote it.")
@click.option("--axes", metavar="N[,N...]", help="If MODEL does not state it: how many axes each input has, or lengths, as 1x80x?.")
@click.option("--chain", metavar="WORDS", help='If MODEL has weights alone: its layers in their order, as in "lstm relu fc".')
@click.option("--fix", multiple=True, metavar="NAME=VALUE", help="Fix an input at a value, which decides conditions on it. Repeatable.")
@click.option("--verify", **proving("Run MODEL in its framework, TARGET in its own; keep TARGET only if they agree."))
@click.option(
    "--dtype", type=click.Choice(["float16", "float32", "float64", "int8"]), help="Element type to write, where TARGET has a choice."
)
@click.option("--stateful", is_flag=True, help="Write a stream that comes in pieces: its states are inputs and outputs.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="An option of TARGET's format. Repeatable.")
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@in_one
def export(asked: Any) -> None:
    """Write a whole model, not only its recurrent layers, as one file of another framework."""
    run(asked)


def run(asked: Any) -> None:
    """Do the work, and print what was done. Raises UsageError for a proof of what is not written."""
    from rnnconvert.scaffolding.export import export_model

    check_written(bool(asked.verify), asked.dry_run)
    with libraries_muted():
        done = export_model(
            asked.source,
            asked.target,
            format=asked.target_format,
            config=asked.config,
            axes=counts(asked.axes, "--axes"),
            chain=asked.chain,
            fix=fixed(asked.fix),
            force=asked.force,
            dry_run=asked.dry_run,
            verify=asked.verify,
            dtype=asked.dtype,
            stateful=asked.stateful,
            settings=asked.settings,
        )
    if asked.as_json:
        emit(done.as_dict())
        return
    say(f"{'would write' if asked.dry_run else 'wrote'} {asked.target}", asked.quiet)
    for line in done.lines():
        say(line, asked.quiet)
