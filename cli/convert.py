"""rnnconvert convert: one file into another, or several into a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli import completion
from rnnconvert.cli.convert_lines import print_summary
from rnnconvert.cli.progress import watching
from rnnconvert.cli.streams import STREAM, incoming, outgoing
from rnnconvert.cli.terminal import FilePath, as_document, complain, emit, finish, format_option, say, setting
from rnnconvert.cli.values import in_one
from rnnconvert.cli.wishes import Wish, paired
from rnnconvert.core.errors import RefusedError, RnnConvertError, UsageError

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
    type=FilePath(),
    metavar="FILE",
    help="With --verify: write a report (.html, .md, .json, or .xml for JUnit). Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.option("-v", "--verbose", is_flag=True, help="Show how the source was recognised, too.")
@in_one
def convert(asked: Any) -> None:
    """Write the recurrent layers of SOURCE as TARGET, a file or a folder.

    With --out-dir, convert several files: those that fail are reported, the others written. `-` is stdin or stdout.
    """
    wish = Wish.of(asked.target_format)
    pairs = paired(asked.paths, asked.out_dir, wish, asked.force)
    _check_proof(asked)
    if asked.verified and len(pairs) > 1:
        raise UsageError("--verify proves one file at a time. Convert each with a command of its own")
    if asked.as_json and pairs[0][1] == STREAM and not asked.dry_run:
        raise UsageError("--json prints on stdout, where the file would go, too. Give TARGET a name")
    if asked.out_dir is None:
        _one_file(asked, wish, *pairs[0])
    else:
        _folder(asked, wish, asked.out_dir, pairs)


def _check_proof(asked: Any) -> None:
    """Raise UsageError for options of a proof that there is not."""
    if asked.verified and asked.dry_run:
        raise UsageError("--dry-run writes nothing that could be verified. Choose either --dry-run or --verify")
    if (asked.on or asked.reports or asked.timeout) and not asked.verified:
        raise UsageError("--on, --report and --timeout need --verify")


def _one_file(asked: Any, wish: Wish, source: str, target: str) -> None:
    document = _converted(asked, wish, source, target)
    if asked.as_json:
        emit(document)
        click.get_current_context().exit(document.get("verification", {}).get("exit_code", 0))


def _folder(asked: Any, wish: Wish, folder: str, pairs: list[tuple[str, str]]) -> None:
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


def _converted(asked: Any, wish: Wish, source: str, target: str) -> Any:
    """Convert a file and print what was done, or return it as JSON has it."""
    from rnnconvert.files.convert import SaveTarget, convert_file
    from rnnconvert.files.options import Options

    settings = (*asked.settings, "states=stream") if asked.stateful else asked.settings
    quiet = asked.quiet or asked.as_json
    name = wish.name("stdout") if target == STREAM else ""
    with (
        _offering_code(source, wish, target),
        _synced(asked.sync),
        incoming(source) as (read,),
        outgoing(target, name, asked.dry_run) as written,
        watching(quiet) as watch,
    ):
        proof: dict[str, Any] = {}
        wanted = SaveTarget(
            written,
            wish.format,
            asked.layers,
            asked.assume_defaults,
            dtype=asked.dtype,
            strict=asked.strict,
            force=asked.force,
            dry_run=asked.dry_run,
            progress=None if quiet else lambda done, total: watch(f"writing {target}", done, total, unit="MB"),
        )
        if asked.verified:
            from rnnconvert.core.errors import not_written
            from rnnconvert.reports import check
            from rnnconvert.verification.plan import Plan
            from rnnconvert.verification.proved import convert_verified

            for path in asked.reports:
                check(path)
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
        return print_summary(summary, source, target, asked.quiet, asked.verbose)


@contextmanager
def _offering_code(source: str, wish: Wish, target: str) -> Iterator[None]:
    """Add to a refusal what `export` and `scaffold` make of the whole model."""
    try:
        yield
    except RefusedError as error:
        from rnnconvert.cli.whole_model import exported, offers
        from rnnconvert.files import detect

        target_format = wish.format or detect.target(Path(target)).NAME
        if STREAM not in (source, target) and (offer := exported(source, target, target_format, force=False)):
            what, command = offer
            error.also(f"To write {what}, with this layer: {command}")
        error.also(*offers(error, source, target_format))
        raise


def _synced(sync: bool) -> AbstractContextManager[None]:
    """Return a context manager that makes a block wait for the disk, if asked."""
    if not sync:
        return nullcontext()
    from rnnconvert.containers.files import reaching_the_disk

    return reaching_the_disk()


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
    """Return the report, as JSON has it."""
    from dataclasses import asdict

    from rnnconvert.models.others import others

    left = [] if not summary.left or summary.checkpoint is None else others(summary.checkpoint, summary.left)
    return {**summary.as_dict(), "left_out_layers": [asdict(layer) for layer in left]}
