"""rnnconvert fuse: recurrent layers of an ONNX model that are loops or written-out steps, as one node each."""

from __future__ import annotations

import click

from rnnconvert.cli.terminal import FilePath, emit, say, watching

_EPILOG = """\b
Examples:
  rnnconvert fuse model.onnx -o fast.onnx
  rnnconvert fuse model.onnx -o fast.onnx --dry-run
  rnnconvert fuse model.onnx -o fast.onnx --force --json

Exporters write a recurrent layer as a Loop, a Scan or step by step. Each is recognized by what it computes, and replaced only if
onnxruntime gives the same numbers, for the layer and for the whole model. What is not proved stays unchanged, and the reason is
printed. If nothing can be replaced, nothing is written (exit code 4).
"""


@click.command(epilog=_EPILOG)
@click.argument("model", type=FilePath())
@click.option("-o", "--output", "target", required=True, type=FilePath(), metavar="FAST.onnx", help="The model to write.")
@click.option("--force", is_flag=True, help="Replace FAST.onnx if it exists.")
@click.option("--dry-run", is_flag=True, help="Recognize and prove; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
def fuse(model: str, target: str, force: bool, dry_run: bool, as_json: bool, quiet: bool) -> None:
    """Rewrite the ONNX model MODEL with one RNN, GRU or LSTM node for each recurrent layer."""
    from rnnconvert.formats.onnx.fuse.files import fuse as fuse_file

    with watching(quiet or as_json) as watch:
        done = fuse_file(model, target, force=force, dry_run=dry_run, watch=watch)
    if as_json:
        emit(done.as_dict())
        return
    say(f"{'would write' if dry_run else 'wrote'} {target}", quiet)
    for line in done.lines():
        say(line, quiet)
