"""rnnconvert convert: one file into another, or several into a folder."""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rnnconvert.cli import completion
from rnnconvert.cli.streams import STREAM, incoming, outgoing
from rnnconvert.cli.terminal import (
    FilePath,
    as_document,
    complain,
    emit,
    finish,
    format_option,
    progress,
    put,
    say,
    setting,
    styled,
    watching,
)
from rnnconvert.cli.values import in_one
from rnnconvert.core.errors import RnnConvertError, UsageError
from rnnconvert.core.printable import called

if TYPE_CHECKING:
    from rnnconvert.files.summary import Summary
    from rnnconvert.verification.report import Report

_EPILOG = """\b
Examples:
  rnnconvert convert model.h5 model.onnx
  rnnconvert convert model.pt buffer.bin --to cudnn --layer encoder.lstm
  rnnconvert convert old.h5 new.h5 --set recurrent_activation=hard_sigmoid
  rnnconvert convert a.h5 b.pt --layer lstm_1 --layer lstm_2 --set stack=join
  rnnconvert convert model.safetensors model.keras --dtype float16 --dry-run
  rnnconvert convert model.h5 proved.onnx --verify --report proof.html
  rnnconvert convert model.h5 stream.onnx --stateful
  rnnconvert convert encoder.pt decoder.pt --to onnx --out-dir exported/
  rnnconvert convert - - --to onnx < model.pt > model.onnx
"""

_MOST = 8
"""The most layers that are left out and are named."""


class ConvertOptions(NamedTuple):
    """What the command is given, by its options and arguments."""

    paths: tuple[str, ...]
    out_dir: str | None
    source_format: str | None
    target_format: str | None
    layers: tuple[str, ...]
    settings: tuple[str, ...]
    dtype: str | None
    stateful: bool
    whole: bool
    strict: bool
    assume_defaults: bool
    force: bool
    dry_run: bool
    verified: bool
    on: tuple[str, ...]
    timeout: float | None
    sync: bool
    reports: tuple[str, ...]
    as_json: bool
    quiet: bool
    verbose: bool


@click.command(epilog=_EPILOG)
@click.argument("paths", metavar="SOURCE... TARGET", nargs=-1, required=True, type=FilePath(allow_dash=True))
@click.option("--out-dir", metavar="FOLDER", type=FilePath(), help="Write each SOURCE into this folder, under its own name.")
@format_option("--from", "source_format", "Format of SOURCE; by default, its content decides.")
@format_option(
    "--to",
    "target_format",
    "Format of TARGET; by default, its ending decides. FORMAT.ENDING, as in pytorch.safetensors, chooses the kind of file.",
)
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.layers,
    help="Convert only this layer. Repeatable, in order.",
)
@setting
@click.option(
    "--dtype",
    metavar="TYPE",
    type=click.Choice(["float16", "bfloat16", "float32", "float64"]),
    help="float16, bfloat16, float32 or float64; by default, SOURCE's.",
)
@click.option("--stateful", is_flag=True, help="Write ONNX for streaming: states as inputs and outputs.")
@click.option("--whole", is_flag=True, hidden=True)
@click.option("--strict", is_flag=True, help="Refuse what is not bit-exact.")
@click.option("--assume-defaults", is_flag=True, help="Take the framework's default functions where SOURCE states none.")
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--verify", "verified", is_flag=True, help="Run both, and keep TARGET only if they are equal.")
@click.option(
    "--on",
    multiple=True,
    metavar="EXECUTOR",
    shell_complete=completion.executors,
    help="With --verify: also run on this executor. Repeatable.",
)
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="With --verify: time limit of an executor.")
@click.option("--sync", is_flag=True, help="Flush TARGET to the disk before ending.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FILE",
    help="With --verify: write a report (.html, .md, .json, or .xml for JUnit). Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.option("-v", "--verbose", is_flag=True, help="Show how the source was recognised, too.")
@in_one(ConvertOptions)
def convert(asked: ConvertOptions) -> None:
    """Write the recurrent layers of SOURCE as TARGET, a file or a folder.

    With --out-dir, convert several files: those that fail are reported, the others written. `-` is stdin or stdout.
    """
    if asked.whole:
        _export_as_whole(asked)
        return
    wish = Wish.of(asked.target_format)
    pairs = _pairs(asked.paths, asked.out_dir, wish, asked.force)
    _check_proof(asked)
    if asked.verified and len(pairs) > 1:
        raise UsageError("--verify proves one file at a time. Convert each with a command of its own")
    if asked.as_json and pairs[0][1] == STREAM and not asked.dry_run:
        raise UsageError("--json prints on stdout, where the file would go, too. Give TARGET a name")
    if asked.out_dir is None:
        _one_file(asked, wish, *pairs[0])
    else:
        _folder(asked, wish, asked.out_dir, pairs)


def _check_proof(asked: ConvertOptions) -> None:
    """Raise UsageError for options of a proof that there is not."""
    if asked.verified and asked.dry_run:
        raise UsageError("--dry-run writes nothing that could be verified. Choose either --dry-run or --verify")
    if (asked.on or asked.reports or asked.timeout) and not asked.verified:
        raise UsageError("--on, --report and --timeout need --verify")


def _one_file(asked: ConvertOptions, wish: Wish, source: str, target: str) -> None:
    document = _converted(asked, wish, source, target)
    if asked.as_json:
        emit(document)
        click.get_current_context().exit(document.get("verification", {}).get("exit_code", 0))


def _folder(asked: ConvertOptions, wish: Wish, folder: str, pairs: list[tuple[str, str]]) -> None:
    """Convert several files; those that fail are reported."""
    if not asked.dry_run:
        _make(folder)
    documents, codes = [], [0]
    for source, target in pairs:
        try:
            documents.append(_converted(asked, wish, source, target))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{len(documents) - len(codes) + 1} of {len(pairs)} files are written") from None
        except RnnConvertError as error:
            codes.append(error.exit_code)
            documents.append({"source": source, "target": target, "error": as_document(error)})
            complain(error, source, asked.as_json)
    if asked.as_json:
        emit(documents)
    failed = len(codes) - 1
    if failed:
        say(f"{failed} of {len(pairs)} files were not converted", asked.as_json)
        click.get_current_context().exit(max(codes))


def _converted(asked: ConvertOptions, wish: Wish, source: str, target: str) -> Any:
    """Convert a file and print what was done, or return it as JSON has it."""
    from rnnconvert.files.convert import SaveTarget, convert_file
    from rnnconvert.files.options import Options

    settings = (*asked.settings, "states=stream") if asked.stateful else asked.settings
    quiet = asked.quiet or asked.as_json
    name = wish.name("stdout") if target == STREAM else ""
    with _synced(asked.sync), incoming(source) as (read,), outgoing(target, name, asked.dry_run) as written:
        proof: dict[str, Any] = {}
        wanted = SaveTarget(
            written,
            wish.format,
            asked.layers,
            asked.dtype,
            asked.strict,
            asked.force,
            asked.dry_run,
            progress(quiet),
            asked.assume_defaults,
        )
        if asked.verified:
            from rnnconvert.core.errors import not_written
            from rnnconvert.reports import check
            from rnnconvert.verification.plan import Plan
            from rnnconvert.verification.proved import convert_verified

            for path in asked.reports:
                check(path)
            with watching(quiet) as watch:
                plan = Plan(on=asked.on, timeout=asked.timeout)
                summary, report = convert_verified(read, asked.source_format, wanted, settings, plan, watch)
            if asked.as_json:
                proof = _verdict(report, asked.reports)
            else:
                remark = not_written(written, report) if report.exit_code else ""
                finish(report, asked.reports, asked.quiet, remark, err=target == STREAM)
        else:
            summary = convert_file(read, asked.source_format, wanted, Options(settings=settings))
        # What was left out is read from the source, which is gone afterwards if it came from stdin.
        if asked.as_json:
            return {**_document(summary), **proof}
        return tell(summary, source, target, asked.quiet, asked.verbose)


_OF_EXPORT = {"paths", "whole", "verified", "force", "dry_run", "sync", "as_json", "quiet", "assume_defaults", "verbose"}
"""What the old --whole went with."""


def _export_as_whole(asked: ConvertOptions) -> None:
    """Do what `export` does, under its old spelling."""
    others = [value for name, value in asked._asdict().items() if name not in _OF_EXPORT]
    if any(others) or len(asked.paths) != 2 or STREAM in asked.paths:
        raise UsageError("--whole is now a command of its own: rnnconvert export MODEL TARGET.onnx")
    say(f"warning: --whole is now a command of its own: rnnconvert export {shlex.join(asked.paths)}", asked.quiet)
    from rnnconvert.cli.room_commands import offered, run

    source, target = asked.paths
    switches = {"force": asked.force, "dry_run": asked.dry_run, "verify": asked.verified}
    with _synced(asked.sync):
        run(offered()["export"], source, target, asked.as_json, asked.quiet, **switches)


def _synced(sync: bool) -> AbstractContextManager[None]:
    """Return what makes a block wait for the disk, if asked."""
    if not sync:
        return nullcontext()
    from rnnconvert.containers.files import reaching_the_disk

    return reaching_the_disk()


class Wish(NamedTuple):
    """What --to asks for: a format, and an ending where its usual one is not meant."""

    format: str | None
    ending: str

    @classmethod
    def of(cls, word: str | None) -> Wish:
        """Return what FORMAT or FORMAT.ENDING means; a word that is neither stays, for whoever knows the formats."""
        if word is None:
            return cls(None, "")
        from rnnconvert.files.adapter import adapter, names
        from rnnconvert.language import registry

        name, dot, rest = word.partition(".")
        if dot and name in names():
            card = registry.cards().get(name)
            endings = adapter(name).SUFFIXES if card is None else card.written
            if f".{rest}" not in endings:
                raise UsageError(f"{name} has no files with the ending .{rest}. Choose one of: {', '.join(endings)}")
            return cls(name, f".{rest}")
        return cls(word, "")

    def name(self, stem: str) -> str:
        """Return the name of a file. Raises UsageError for a format that is only read."""
        if self.format is None:
            return stem
        if self.ending:
            return stem + self.ending
        from rnnconvert.files.adapter import adapter

        endings = adapter(self.format).SUFFIXES
        if not endings:
            raise UsageError(f"{self.format} files are only read, not written")
        return stem + endings[0]


def _pairs(paths: tuple[str, ...], out_dir: str | None, wish: Wish, force: bool) -> list[tuple[str, str]]:
    """Return each source with its target. Raises UsageError where a target's name is open, or shared."""
    if out_dir is None:
        if len(paths) != 2:
            raise UsageError(
                f"got {len(paths)} paths, expected SOURCE and TARGET. To convert several files, give a folder: --out-dir FOLDER"
                if len(paths) > 2
                else "TARGET is missing: give SOURCE and TARGET, or --out-dir FOLDER"
            )
        source, target = paths
        if target == STREAM and wish.format is None:
            raise UsageError("stdout has no name that shows a format. Choose one with --to")
        is_folder = Path(target).is_dir() or target.endswith("/")
        return [(source, _named(source, target, wish) if is_folder and wish.format is not None else target)]
    if wish.format is None:
        raise UsageError("--out-dir needs --to, which decides the ending of the files")
    sources: dict[str, str] = {}
    folder = Path(out_dir).resolve()
    inside = [source for source in paths if folder in (Path(source).absolute().parent, Path(source).resolve().parent)]
    if force and inside:
        raise UsageError(f"--force could replace {inside[0]}, which is in {out_dir} itself. Choose another folder")
    for source in paths:
        target = _named(source, out_dir, wish)
        if target in sources:
            raise UsageError(f"{sources[target]} and {source} would both be written to {target}. Rename one, or convert it by itself")
        sources[target] = source
    return [(source, target) for target, source in sources.items()]


def _named(source: str, folder: str, wish: Wish) -> str:
    """Return a path in a folder: the source's name, with the ending of what is written."""
    from rnnconvert.language import registry

    name = "stdin" if source == STREAM else Path(source).name or Path(source).resolve().name
    endings = {end for card in registry.cards().values() for end in card.endings if name.lower().endswith(end)}
    end = max(endings, key=len, default="" if Path(source).is_dir() else Path(name).suffix)
    return str(Path(folder) / wish.name(name[: len(name) - len(end)]))


def _make(folder: str) -> None:
    """Create a folder where there is none. Raises UsageError if that cannot be done."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot make this folder: {error.strerror or error}") from None


def _verdict(report: Report, paths: tuple[str, ...]) -> dict[str, Any]:
    """Write the reports, and return the verdict as JSON has it."""
    for path in paths:
        report.write(path)
    verdict = {**report.conclusion.as_dict(), "summary": report.document["summary"], "exit_code": report.exit_code}
    return {"verification": verdict}


def _document(summary: Summary) -> dict[str, Any]:
    """Return what was done, as JSON has it."""
    from dataclasses import asdict

    from rnnconvert.models.others import others

    left = [] if not summary.left or summary.checkpoint is None else others(summary.checkpoint, summary.left)
    return {**summary.as_dict(), "left_out_layers": [asdict(layer) for layer in left]}


def tell(summary: Summary, source: str, target: str, quiet: bool = False, verbose: bool = False) -> None:
    """Print what a conversion did."""
    if quiet:
        return
    from rnnconvert.files.options import assumptions
    from rnnconvert.language import registry

    verb = "wrote" if summary.written else "would write"
    say(f"{verb} {summary.target} ({summary.target_format}) from {summary.source} ({summary.source_format})", hang=2)
    for text in summary.evidence if verbose else ():
        say(f"  recognised: {text}", hang=4)
    for name, text in summary.layers.items():
        say(f"  {called(name)}: {text}", hang=4)
    if summary.steps:
        say(f"{styled('rewrites', 'green' if summary.exact else 'yellow')}:")
    else:
        say(f"{styled('no rewrite was needed', 'green')}: every number is the source's own")
    for step in summary.steps:
        say(f"  {step}", hang=4)
    for note in summary.notes:
        say(f"note: {note}", hang=2)
    _tell_left_out(summary, source)
    if summary.carried:
        say(f"carried over: {summary.carried} other tensors, unchanged")
    for line in assumptions(summary.questions):
        say(f"{styled('assumed', 'yellow')}: {line}", hang=2)
    for warning in summary.warnings:
        say(f"{styled('warning', 'yellow')}: {warning}", hang=2)
    if summary.recipe and target != STREAM:
        language = registry.systems()[summary.target_format].language
        say("# to load it in Python:" if language == "Python" else f"// to run it in {language}:")
        for line in summary.recipe:
            put(line, err=True, wrap=False)


def _tell_left_out(summary: Summary, source: str) -> None:
    """Name what was left out, and the command that moves it where there is one."""
    if not summary.left or summary.checkpoint is None:
        return
    from rnnconvert.models.others import moves_whole_models, others

    others_left = others(summary.checkpoint, summary.left)
    groups = [layer for layer in others_left if not layer.name]
    named = [layer for layer in others_left if layer.name]
    more = [f"{len(named) - _MOST:,} more (rnnconvert inspect -v lists them)"] if len(named) > _MOST else []
    say(f"left out: {', '.join([*map(str, named[:_MOST]), *more, *map(str, groups)])}", hang=2)
    if named and moves_whole_models(summary.checkpoint):
        path = "FILE" if source == STREAM else shlex.quote(source)
        say(f"  into a model of your own: rnnconvert transplant {path} --into MODEL -o FILLED", hang=4)
