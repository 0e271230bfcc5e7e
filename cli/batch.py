"""rnnconvert batch: thousands of files, resumed where it stopped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli.progress import watching
from rnnconvert.cli.terminal import FilePath, complain, emit, format_option, put, say, setting, styled
from rnnconvert.cli.values import in_one
from rnnconvert.cli.wishes import Wish
from rnnconvert.core.errors import OutputError, UsageError
from rnnconvert.core.remedies import Flag

if TYPE_CHECKING:
    from rnnconvert.batch.run import BatchResult

_EPILOG = """\b
Examples:
  rnnconvert batch models/ --to onnx --out exported/
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


@click.command(epilog=_EPILOG)
@click.argument("sources", metavar="FOLDER|PATTERN|FILE|MANIFEST...", nargs=-1, required=True, type=FilePath())
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
    help="Write the outcome of each file: .json, .html, .md or .xml (JUnit). Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome of each file as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@in_one
def batch(asked: Any) -> None:
    """Convert many files, given by folders, patterns, paths, URLs or a manifest, into a folder.

    What a folder or a pattern finds further down is written as far down: models/a/b.pt of models/ becomes a/b.onnx. One bad file never
    stops the others. From a .safetensors behind a URL, only the header and the recurrent arrays are fetched.
    """
    import json

    from rnnconvert.batch import manifest, outcomes
    from rnnconvert.batch.journal import Journal
    from rnnconvert.batch.run import run
    from rnnconvert.batch.workers import Workers
    from rnnconvert.containers.asking import is_url, log_nothing
    from rnnconvert.containers.files import replacing
    from rnnconvert.files.options import Options
    from rnnconvert.reports import many
    from rnnconvert.verification.explaining import apart

    plain = [file for file in asked.reports if file.suffix.lower() == ".json"]
    indexes = [file for file in asked.reports if file not in plain]
    many.check_forms(*indexes)
    journal = asked.journal
    log_nothing()
    wish = Wish.of(asked.target_format)
    if wish.format is None:
        raise UsageError("--to is missing: it decides what is written, as in --to onnx")
    Options(settings=asked.settings)  # a word that no option has is one error, not one of each file
    items, left_out = manifest.items(asked.sources, asked.folder, wish.format, wish.name(""), asked.settings)
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
        failed = 0
        messages: set[str] = set()

        def seen(entry: Any, done: int, total: int) -> None:
            nonlocal progress, failed
            progress = done
            failed += bool(entry.code)
            watch("converting", done, total, f"{failed:,} failed" if failed else "")
            if entry.code and (text := outcomes.unnamed(entry)) not in messages:  # the others of which it is true are counted in the end
                messages.add(text)
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
    document = done.as_dict()
    for file in plain:
        with replacing(file) as part:
            part.write(json.dumps(document, indent=1).encode())
    many.write(outcomes.TITLE, [*map(outcomes.index_entry, document["files"])], *indexes)
    if asked.as_json:
        emit(document)
    else:
        _tell_the_same(done)
    if not asked.as_json and not asked.quiet:
        _tell(done, left_out)
    click.get_current_context().exit(done.code)


def _left(progress: int, total: int) -> str:
    return f"{progress:,} of {total:,} files are done. The same command goes on with the others"


_NAMED = 3
"""How many files are named of which the same is said."""
_ENDINGS = 5
"""How many endings of files are named that show no model."""


def _tell_the_same(done: BatchResult) -> None:
    """Print of how many more files each error is true."""
    from rnnconvert.batch import outcomes

    for first, *others in outcomes.grouped(done.entries):
        if others:
            complain(f"the same as for {first}: {_some(others)}")


def _some(names: Sequence[str]) -> str:
    """Return the first of many names, and how many follow."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _tell(done: BatchResult, left_out: Counter[str]) -> None:
    """Print how many files came to what, and for those that were not converted what to type next."""
    from rnnconvert.batch import outcomes

    counts = Counter(entry.code for entry in done.entries if not entry.without_layers)
    first = {entry.code: entry for entry in reversed(done.entries) if entry.code}
    for code, count in sorted(counts.items()):
        word = outcomes.WORDS[code]
        command = outcomes.next_command(code, first[code].source, first[code].target) if code else None
        put(f"{count:>8,}  {styled(word, 'red' if code else 'green')}{f'   next: {command}' if command else ''}")
    in_part = sum(not entry.code and entry.left > 0 for entry in done.entries)
    if in_part:
        put(f"{in_part:>8,}  of these hold other layers, too, which were left out. A whole model: rnnconvert export MODEL FILE")
    without = [entry.source for entry in done.entries if entry.without_layers]
    if without:
        put(f"{len(without):>8,}  {styled(outcomes.WITHOUT_LAYERS, 'yellow')}: {_some(without)}")
    again = f", {done.resumed:,} of them before" if done.resumed else ""
    say(f"{len(done.entries):,} file{'' if len(done.entries) == 1 else 's'} in {done.seconds:.1f} s{again}")
    if left_out:
        files = left_out.total()
        endings = ", ".join(ending for ending, _ in left_out.most_common(_ENDINGS)) + (", ..." if len(left_out) > _ENDINGS else "")
        say(f"{files:,} other file{' was' if files == 1 else 's were'} passed over: a model has no such ending ({endings})")
