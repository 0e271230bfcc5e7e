"""rnnconvert convert: one file into another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli.terminal import assumptions, emit, finish, progress, say, setting, styled, watching
from rnnconvert.core.errors import UsageError

if TYPE_CHECKING:
    from rnnconvert.files.convert import Summary

_EPILOG = """\b
Examples:
  rnnconvert convert model.h5 model.onnx
  rnnconvert convert model.pt buffer.bin --to cudnn --layer encoder.lstm
  rnnconvert convert old.h5 new.weights.h5 --set recurrent_activation=hard_sigmoid
  rnnconvert convert model.h5 model.safetensors --layer lstm_1 --layer lstm_2 --set stack=join
  rnnconvert convert model.safetensors model.keras --dtype float16 --dry-run
  rnnconvert convert model.h5 proved.onnx --verify --report proof.html
"""


@click.command(epilog=_EPILOG)
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option(
    "--from", "source_format", metavar="FORMAT", help="Read SOURCE as this format; by default its content decides."
)
@click.option("--to", "target_format", metavar="FORMAT", help="Write this format; by default TARGET's ending decides.")
@click.option("--layer", "layers", multiple=True, metavar="NAME", help="Convert only this layer. Repeatable, in order.")
@setting
@click.option(
    "--dtype",
    type=click.Choice(["float16", "bfloat16", "float32", "float64"]),
    help="Element type to write; by default the source's own.",
)
@click.option("--strict", is_flag=True, help="Refuse whatever is not bit-exact.")
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and write nothing.")
@click.option(
    "--verify", "verified", is_flag=True, help="Run both, and keep TARGET only if it gives the same as SOURCE."
)
@click.option(
    "--on", multiple=True, metavar="EXECUTOR", help="With --verify: run it on this executor, too. Repeatable."
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FILE",
    help="With --verify: write a .json, .xml (JUnit), .md or .html report. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary for machines, on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.option("-v", "--verbose", is_flag=True, help="Show how the source was recognised, too.")
def convert(
    source: str,
    target: str,
    source_format: str | None,
    target_format: str | None,
    layers: tuple[str, ...],
    settings: tuple[str, ...],
    dtype: str | None,
    strict: bool,
    force: bool,
    dry_run: bool,
    verified: bool,
    on: tuple[str, ...],
    reports: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Convert the recurrent layers of SOURCE into TARGET."""
    from rnnconvert.files.convert import convert as convert_file

    given: dict[str, Any] = {
        "source_format": source_format, "target_format": target_format, "layers": layers, "dtype": dtype,
        "strict": strict, "force": force, "progress": progress(quiet or as_json), "settings": settings,
    }  # fmt: skip
    if verified:
        if dry_run:
            raise UsageError("--dry-run writes nothing that could be verified. Choose either --dry-run or --verify")
        summary = _verified(source, target, given, on, reports, quiet or as_json)
    elif on or reports:
        raise UsageError("--on and --report need --verify")
    else:
        summary = convert_file(source, target, dry_run=dry_run, **given)
    if as_json:
        emit(summary.as_dict())
        return
    _tell(summary, quiet, verbose)


def _verified(
    source: str, target: str, given: dict[str, Any], on: tuple[str, ...], reports: tuple[str, ...], quiet: bool
) -> Summary:
    """Convert, and end with the report's exit code if the file is not kept."""
    from rnnconvert import reports as forms
    from rnnconvert.verification.collect import Plan
    from rnnconvert.verification.convert import convert_verified

    for path in reports:
        forms.check(path)
    with watching(quiet) as watch:
        summary, report = convert_verified(source, target, plan=Plan(on=on), watch=watch, **given)
    finish(report, reports, quiet, f"{target} was not written" if not report.equal else "")
    return summary


def _tell(summary: Summary, quiet: bool, verbose: bool) -> None:
    verb = "wrote" if summary.written else "would write"
    say(f"{verb} {summary.target} ({summary.target_format}) from {summary.source} ({summary.source_format})", quiet)
    for text in summary.evidence if verbose else ():
        say(f"  recognised: {text}", quiet)
    for name, text in summary.layers.items():
        say(f"  {name or '(the module itself)'}: {text}", quiet)
    steps = [f"  {step}" for step in summary.steps]
    say("rewrites:" if steps else "no rewrite was needed: every number is the source's own", quiet)
    for line in steps:
        say(line, quiet)
    for note in summary.notes:
        say(f"note: {note}", quiet)
    if summary.left_out:
        say(f"left out: {summary.left_out} tensors that belong to no recurrent layer", quiet)
    if summary.carried:
        say(f"carried over: {summary.carried} other tensors, unchanged", quiet)
    for line in assumptions(summary.questions):
        say(f"{styled('assumed', 'yellow')}: {line}", quiet)
    for warning in summary.warnings:
        say(f"{styled('warning', 'yellow')}: {warning}", quiet)
