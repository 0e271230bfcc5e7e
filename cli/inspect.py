"""rnnconvert inspect: what a file holds, and where it can go."""

from __future__ import annotations

import re
from pathlib import Path

import click

from rnnconvert.cli import completion
from rnnconvert.cli.streams import incoming
from rnnconvert.cli.terminal import FilePath, as_document, complain, emit, format_option, put, setting, styled, usual_first
from rnnconvert.core.errors import RnnConvertError

_EPILOG = """\b
Examples:
  rnnconvert inspect model.h5
  rnnconvert inspect checkpoint.pt --targets
  rnnconvert inspect checkpoint.pt --targets onnx,keras
  rnnconvert inspect encoder.pt decoder.pt
  rnnconvert inspect model.onnx --json
  rnnconvert inspect - < model.onnx
"""


class _Inspect(click.Command):
    """A command whose --targets may stand alone, or have formats after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give a --targets without formats its own value: what follows it is then a path."""
        words: list[str] = []
        for at, word in enumerate(args):
            if words and words[-1] == "--targets":
                formats = _formats(word)
                words[-1] = f"--targets={word if formats else _ALL}"
                if formats:
                    continue
            words.append(word)
            if word == "--targets" and at == len(args) - 1:
                words[-1] = f"--targets={_ALL}"
        return super().parse_args(ctx, words)


_ALL = "all"


def _formats(word: str) -> list[str]:
    """Return the formats that a word lists, known or not; none if it is a path or an option."""
    is_path = not re.fullmatch(r"[a-z0-9_]*(,[a-z0-9_]*)*", word) or Path(word).exists()
    return [] if is_path and word != _ALL else word.split(",")


@click.command(cls=_Inspect, epilog=_EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=FilePath(allow_dash=True))
@format_option("--from", "format", "Format of PATH; by default, its content decides.")
@setting
@click.option(
    "--targets",
    metavar="[FORMAT,...]",
    shell_complete=completion.targets,
    help="Show which formats can hold each layer: exactly, rewritten, or why not.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="List the other tensors by name, too.")
def inspect(
    paths: tuple[str, ...], format: str | None, settings: tuple[str, ...], targets: str | None, as_json: bool, verbose: bool
) -> None:
    """Show what each PATH holds: its format, its recurrent layers, and what it leaves open. `-` is stdin."""
    from dataclasses import replace

    from rnnconvert.files.options import Options
    from rnnconvert.models.inspection import inspect_with

    wanted = targets == _ALL if targets in (None, _ALL) else str(targets).split(",")
    documents, codes = [], [0]
    with incoming(*paths) as files:
        for path in files:
            options = Options(settings=settings)
            try:
                inspection = inspect_with(path, format, options, wanted)
            except RnnConvertError as error:
                if len(paths) == 1:
                    raise
                codes.append(error.exit_code)
                documents.append({"path": path, "error": as_document(error)})
                complain(error, path, as_json)
                continue
            if as_json:
                documents.append(inspection.as_dict())
                continue
            inspection = replace(inspection, targets=usual_first(inspection.targets, lambda verdict: verdict.target))
            for line, hang in inspection.lines(verbose, styled):
                put(line, hang=hang)
        if as_json:
            emit(documents if len(paths) > 1 else documents[0])
    click.get_current_context().exit(max(codes))
