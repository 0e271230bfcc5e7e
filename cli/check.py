"""rnnconvert check: everything that a repository claims to be equal, for CI and for pre-commit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from rnnconvert.cli.terminal import put, put_lines, say, styled, watching
from rnnconvert.core.errors import UsageError

_EPILOG = """\b
Examples:
  rnnconvert check
  rnnconvert check --reports build/reports
  rnnconvert check models/encoder.onnx

\b
rnnconvert.toml:
  [[equal]]
  a = "models/encoder.keras"
  b = "models/encoder.onnx"
  on = ["onnxruntime-cpu"]
  atol = { y = 1e-4 }
"""


@click.command(epilog=_EPILOG)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("rnnconvert.toml"),
    show_default=True,
    help="The file that says which models must compute the same.",
)
@click.option(
    "--reports",
    "folder",
    type=click.Path(path_type=Path),
    help="Write every report into this folder: .json, .xml, .md and .html.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only what is not equal.")
def check(files: tuple[Path, ...], config: Path, folder: Path | None, quiet: bool) -> None:
    """Verify every pair of models that rnnconvert.toml names, or only those of FILES."""
    from rnnconvert import reports
    from rnnconvert.verification import config_file

    found = config_file.read(config)
    chosen = [claim for claim in found if not files or claim.names(files)]
    if not files and len({claim.name for claim in found}) < len(found) and folder is not None:
        raise UsageError(f"{config}: two pairs would write reports of the same name. Rename a model")
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: cannot write reports here: {error.strerror}") from None
    code = 0
    for claim in chosen:
        with watching(quiet) as watch:
            report = claim.check(watch)
        if folder is not None:
            for suffix in (".json", ".xml", ".md", ".html"):
                report.write(str(folder / f"{claim.name}{suffix}"))
        reports.summary_to_github(report.document)
        code = max(code, report.exit_code)
        _tell(report, f"{claim.a}" + (f" and {claim.b}" if claim.b else ""), quiet)
    if not chosen:
        say(f"{config} names none of these files", quiet)
    sys.exit(code)


def _tell(report: Any, models: str, quiet: bool) -> None:
    from rnnconvert.reports.text import to_text

    if report.equal:
        say(f"{styled('equal', 'green')}: {models}: {report.document['summary']}", quiet)
    else:
        put(models)
        put_lines(to_text(report.document, styled))
