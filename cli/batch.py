"""rnnconvert batch: thousands of files, resumed where it stopped."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rnnconvert.cli.terminal import FilePath, complain, emit, format_option, put, say, setting, styled, watching
from rnnconvert.cli.values import in_one
from rnnconvert.cli.wishes import Wish
from rnnconvert.core.errors import OutputError, UsageError
from rnnconvert.core.remedies import Flag

if TYPE_CHECKING:
    from rnnconvert.batch.journal import JournalEntry
    from rnnconvert.batch.run import Done
    from rnnconvert.reports.many import IndexEntry
    from rnnconvert.reports.words import Outcome

_EPILOG = """\b
Examples:
  rnnconvert batch 'models/**/*.pt' --to onnx --out exported/
  rnnconvert batch list.jsonl --to keras --out s3://bucket/converted --jobs 8
  rnnconvert batch 's3://bucket/*.safetensors' --to onnx --out out/ --verify
  rnnconvert batch list.jsonl --to onnx --out /shared/out --on dask://h:8786
  rnnconvert batch '*.h5' --to onnx --out out/ --verify --report all.html

\b
A manifest is a .txt with one source per line, or a .jsonl such as:
  {"source": "a.h5", "target": "a.onnx", "set": ["activation=relu"]}

The same command resumes: it converts what the journal does not list as written, and what has changed since. A file without
a recurrent layer is a failure only if no file has one, and a --set that a file does not ask for only if no file asks for it.

The exit code is that of the worst file, in this order: 70 a crash, 1 not equal, 74 target not writable, 3 unreadable, 2 a wrong
line, 4 refused, 7 not run whole, 5 missing.
"""

_WORDS = {
    0: "converted",
    1: "not equal",
    2: "wrong line",
    3: "unreadable",
    4: "refused",
    5: "package missing",
    7: "not run whole",
    74: "target not written",
    70: "fault, or a worker that died",
}


class BatchOptions(NamedTuple):
    """What the command is given, by its options and arguments."""

    sources: tuple[str, ...]
    target_format: str | None
    folder: str
    jobs: int | None
    on: str
    journal: Path | None
    verified: bool
    strict: bool
    assume_defaults: bool
    settings: tuple[str, ...]
    force: bool
    reports: tuple[Path, ...]
    as_json: bool
    quiet: bool


@click.command(epilog=_EPILOG)
@click.argument("sources", metavar="MANIFEST|PATTERN|FILE...", nargs=-1, required=True, type=FilePath())
@format_option("--to", "target_format", "Format of the targets, or FORMAT.ENDING, as in pytorch.safetensors.")
@click.option("--out", "folder", required=True, type=FilePath(), metavar="FOLDER", help="Folder or URL for the converted files.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Number of processes; by default, one per core.")
@click.option("--on", default="", metavar="URL", help="Run on a cluster: dask://HOST:PORT, ray://... or spark://...")
@click.option("--journal", type=FilePath(path_type=Path), help="File that records progress; by default, in FOLDER.")
@click.option("--verify", "verified", is_flag=True, help="Keep each file only if it is equal to its source.")
@click.option("--strict", is_flag=True, help="Refuse what is not bit-exact.")
@click.option("--assume-defaults", is_flag=True, help="Take the framework's default functions where a file states none.")
@setting
@click.option("--force", is_flag=True, help="Replace files that exist before the first run.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=FilePath(path_type=Path),
    metavar="FILE",
    help="Write the outcome of each file: .json, .html or .xml (JUnit). Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome of each file as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@in_one(BatchOptions)
def batch(asked: BatchOptions) -> None:
    """Convert many files, given by a manifest, patterns, paths or URLs, into a folder.

    One bad file never stops the others. From a .safetensors behind a URL, only the header and the recurrent arrays are fetched.
    """
    import json

    from rnnconvert.batch import manifest
    from rnnconvert.batch.journal import Journal
    from rnnconvert.batch.run import run
    from rnnconvert.batch.workers import Workers
    from rnnconvert.containers.asking import is_url, log_nothing
    from rnnconvert.containers.files import replacing
    from rnnconvert.files.options import Options
    from rnnconvert.reports import many
    from rnnconvert.verification.explaining import apart

    plain = [file for file in asked.reports if file.suffix.lower() not in (".html", ".xml")]
    indexes = [file for file in asked.reports if file not in plain]
    many.check_forms(*indexes)
    journal = asked.journal
    log_nothing()
    wish = Wish.of(asked.target_format)
    if wish.format is None:
        raise UsageError("--to is missing: it decides what is written, as in --to onnx")
    Options(settings=asked.settings)  # a word that no option has is one error, not one of each file
    items = manifest.items(asked.sources, asked.folder, wish.format, wish.name(""), asked.settings)
    apart([name for item in items for name in (item.source, item.target) if not is_url(name)], asked.reports)
    if not is_url(asked.folder) and Path(asked.folder).exists() and not Path(asked.folder).is_dir():
        raise UsageError(f"{asked.folder} is not a folder. Name one with --out")
    if journal is None:
        if is_url(asked.folder):
            raise UsageError("the journal is kept on this disk. Where --out is a URL, choose a file with --journal")
        journal = Path(asked.folder) / "rnnconvert-batch.jsonl"
    workers = Workers(asked.jobs or min(len(items), os.cpu_count() or 1), asked.on)
    if not asked.force and not journal.exists():  # once there is a journal, what is there may be what an interrupted run had written
        manifest.check_targets(items)
    with Journal(journal) as journal_file, watching(asked.quiet or asked.as_json) as watch:
        if not asked.force:
            manifest.check_others(items, {entry.target: entry.files for entry in journal_file.entries.values() if not entry.code})

        progress = 0

        def seen(entry: Any, done: int, total: int) -> None:
            nonlocal progress
            progress = done
            watch("converting", done, total)
            if entry.code:
                complain(entry.message, entry.source, asked.as_json)

        proofs = {"verify": asked.verified, "strict": asked.strict, "assume_defaults": asked.assume_defaults}
        try:
            done = run(items, journal_file, workers, proofs, seen)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_left(progress, len(items))) from None
        except UsageError as error:  # a cluster that is gone, a journal that cannot be written
            if not progress or type(error) not in (UsageError, OutputError):
                raise
            raise type(error)(f"{error}. {_left(progress, len(items))}") from None
    for text in done.idle:
        complain(f"{Flag('set', text)} decides nothing in any file that was converted. Leave it out.", quiet=asked.as_json)
    for file in plain:
        with replacing(file) as part:
            part.write(json.dumps(done.as_dict(), indent=1).encode())
    many.write("Every file", [*map(_entry, done.entries)], *indexes)
    if asked.as_json:
        emit(done.as_dict())
    elif not asked.quiet:
        _tell(done)
    click.get_current_context().exit(done.code)


def _left(progress: int, total: int) -> str:
    return f"{progress:,} of {total:,} files are done. The same command goes on with the others"


def _entry(entry: JournalEntry) -> IndexEntry:
    """Return an entry of the index."""
    from rnnconvert.reports.many import IndexEntry

    name = f"{entry.source} to {entry.target}"
    if entry.without_layers:
        return IndexEntry(name, "skipped", "no recurrent layer", entry.message, entry.seconds)
    outcome: Outcome = "failure" if entry.code == 1 else "error" if entry.code else "passed"
    return IndexEntry(name, outcome, _WORDS[entry.code], entry.message, entry.seconds)


def _tell(done: Done) -> None:
    counts = Counter(entry.code for entry in done.entries if not entry.without_layers)
    for code, count in sorted(counts.items()):
        put(f"{count:>8,}  {styled(_WORDS[code], 'green' if code == 0 else 'red')}")
    without = sum(entry.without_layers for entry in done.entries)
    if without:
        put(f"{without:>8,}  {styled('no recurrent layer', 'yellow')}")
    again = f", {done.resumed:,} of them before" if done.resumed else ""
    say(f"{len(done.entries):,} file{'' if len(done.entries) == 1 else 's'} in {done.seconds:.1f} s{again}")
