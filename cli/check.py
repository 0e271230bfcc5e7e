"""rnnconvert check: everything that a repository claims to be equal, for CI and for pre-commit."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rnnconvert.cli.progress import watching
from rnnconvert.cli.proofs import annotate, proving
from rnnconvert.cli.terminal import FilePath, as_document, complain, emit, put, put_lines, say, styled
from rnnconvert.cli.values import in_one
from rnnconvert.core.errors import RnnConvertError

_EPILOG = """\b
Examples:
  rnnconvert check --init
  rnnconvert check
  rnnconvert check --reports build/reports
  rnnconvert check --report all.html --report junit.xml
  rnnconvert check --cache .rnnconvert-cache
  rnnconvert check models/encoder.onnx

\b
rnnconvert.toml:
  [[equal]]
  a = "models/encoder.keras"
  b = "models/encoder.onnx"
  on = ["onnxruntime-cpu"]
  atol = { y = 1e-4 }

  [[equal]]
  a = "exported/*.pt"
  b = "exported/*.onnx"

Every pair is checked. The exit code is that of the worst, in this order: 1 not equal, 3 unreadable, 2 not comparable, 4 refused,
5 a package or an executor is missing; with --strict 7 not run whole, 6 equal but for what was left out, 8 recurrent layers equal; 0 equal.
"""

WORST_FIRST = (1, 74, 3, 2, 4, 5, 7, 6, 8, 0)
"""Exit codes, the most serious first."""


@click.command(epilog=_EPILOG)
@click.argument("files", nargs=-1, type=FilePath(path_type=Path))
@click.option(
    "--config", type=FilePath(path_type=Path), default=Path("rnnconvert.toml"), show_default=True, help="The file that lists the pairs."
)
@click.option("--init", "is_first", is_flag=True, help="Write that file, with the models of this folder that look like pairs.")
@click.option(
    "--reports", "folder", type=FilePath(path_type=Path), help="Folder for a .json, .xml, .md and .html of each pair, and an index.html."
)
@click.option(
    "--report",
    "indexes",
    multiple=True,
    metavar="FILE",
    type=FilePath(path_type=Path),
    help="One .html, .md or .xml (JUnit) of all. Repeatable.",
)
@click.option("--sarif", metavar="FILE", type=FilePath(path_type=Path), help="Write what is not equal as SARIF, for code scanning.")
@proving
@click.option("--json", "as_json", is_flag=True, help="Print all reports as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only what is not equal.")
@in_one
def check(asked: Any) -> None:
    """Verify every pair of models that rnnconvert.toml names, or only those of FILES."""
    from rnnconvert import reports
    from rnnconvert.containers.files import make_folder, replacing
    from rnnconvert.reports import many
    from rnnconvert.reports.sarif import merged
    from rnnconvert.running.kept import keeping
    from rnnconvert.verification import config_file, explaining

    if asked.is_first:
        _write_first(asked.config)
        return
    chosen = [
        (name, entry) for name, entry in config_file.named(config_file.read(asked.config)) if not asked.files or entry.names(asked.files)
    ]
    if asked.folder is not None:
        make_folder(asked.folder)
    many.check_forms(*asked.indexes)
    explaining.apart([path for _, claim in chosen for path in (claim.a, claim.b)], [*asked.indexes, asked.sarif])
    if asked.sarif is not None:
        reports.check(asked.sarif)
    code, documents, failed, entries = 0, [], [], []
    with keeping():
        for number, (name, claim) in enumerate(chosen, 1):
            try:
                with watching(asked.quiet or asked.as_json) as watch:
                    numbered = functools.partial(_numbered, watch, f"{number} of {len(chosen)}: ")
                    report = claim.check(numbered, explain=not asked.no_explain, jobs=asked.jobs, cache=asked.cache, strict=asked.strict)
            except RnnConvertError as error:
                code = _worse(code, error.exit_code)
                failed.append({"a": str(claim.a), "b": claim.b and str(claim.b), "error": as_document(error)})
                entry = many.IndexEntry(claim.models, "error", error.kind, str(error))
                if asked.folder is not None:  # what an earlier run said of this pair holds no longer
                    many.write(claim.models, [entry], *(asked.folder / f"{name}{suffix}" for suffix in (".xml", ".md", ".html")))
                    with replacing(asked.folder / f"{name}.json") as file:
                        file.write(reports.encoded(json.dumps(failed[-1], indent=2) + "\n"))
                    entry = replace(entry, report=asked.folder / f"{name}.html")
                entries.append(entry)
                annotate(f"{claim.models}: {error}", "not verified", str(claim.b or claim.a))
                if not asked.as_json:
                    complain(error, claim.models)
                continue
            if asked.folder is not None:
                for suffix in (".json", ".xml", ".md", ".html"):
                    report.write(str(asked.folder / f"{name}{suffix}"))
            entries.append(many.entry_of(claim.models, report.document, asked.folder and asked.folder / f"{name}.html"))
            reports.summary_to_github(report.document)
            annotate(report.document)
            code = _worse(code, report.exit_code)
            documents.append(report.document)
            if not asked.as_json:
                _tell(report, claim.models, asked.quiet)
    index = "pairs.html" if any(name == "index" for name, _ in chosen) else "index.html"
    inside = [asked.folder / index] if asked.folder is not None else []
    many.write("Every pair", entries, *inside, *asked.indexes)
    if asked.sarif is not None:
        with replacing(asked.sarif) as file:
            file.write(reports.encoded(merged(documents)))
    if asked.as_json:
        emit({"exit_code": code, "reports": documents, "errors": failed})
    if not chosen:
        say(f"{asked.config} names none of these files", asked.quiet)
    sys.exit(code)


def _write_first(config: Path) -> None:
    """Write a first rnnconvert.toml: a pair for models of one name and two endings. Raises UsageError if it exists."""
    from rnnconvert.batch.folders import ModelTree
    from rnnconvert.containers.files import replacing
    from rnnconvert.core.errors import UsageError
    from rnnconvert.core.printable import in_toml

    if config.exists():
        raise UsageError(f"{config} already exists. Add pairs to it, or name another file with --config")
    root = config.parent
    models: dict[Path, list[Path]] = {}
    for path in ModelTree(root, root / "node_modules").models:
        models.setdefault(path.with_suffix(""), []).append(path.relative_to(root))
    pairs = [(first, other) for first, *others in models.values() for other in others]
    text = "# Models that must compute the same: `rnnconvert check` runs each pair, and exits with 1 if one does not.\n"
    for first, other in pairs or [(Path("models/model.pt"), Path("models/model.onnx"))]:
        text += f"\n[[equal]]\na = {in_toml(first.as_posix())}\nb = {in_toml(other.as_posix())}\n"
    with replacing(config) as file:
        file.write(text.encode())
    what = f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'} of models" if pairs else "an example: no two models here have one name"
    say(f"wrote {config} with {what}")


def _numbered(watch: Callable[..., None], which: str, text: str, done: int = 0, total: int = 0) -> None:
    """Report the current work, and on which pair."""
    watch(which + text, done, total)


def _worse(code: int, other: int) -> int:
    return min(code, other, key=WORST_FIRST.index)


def _tell(report: Any, models: str, quiet: bool) -> None:
    from rnnconvert.reports.text import to_text

    verdict, summary = report.conclusion, report.document["summary"]
    if report.exit_code and not quiet:
        put_lines(to_text(report.document, styled))
        return
    put(f"{styled(report.verdict, 'green' if verdict else 'yellow')}: {models}: {summary}", err=True)
    for word, limits in (("but for", verdict.exceptions), ("note", verdict.remarks)):
        for limit in limits:
            say(f"  {word}: {limit}", quiet)
