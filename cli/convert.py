"""rnnconvert convert: one file into another, or several into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli.terminal import assumptions, complain, emit, finish, progress, say, setting, styled, watching
from rnnconvert.core.errors import RnnConvertError, UsageError

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
  rnnconvert convert encoder.pt decoder.pt --to onnx --out-dir exported/
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", metavar="SOURCE... TARGET", nargs=-1, required=True, type=click.Path())
@click.option(
    "--out-dir",
    metavar="FOLDER",
    type=click.Path(),
    help="Write each SOURCE into this folder, under its own name with the ending of --to.",
)
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
    paths: tuple[str, ...],
    out_dir: str | None,
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
    """Convert the recurrent layers of SOURCE into TARGET, a file or a folder; with --out-dir, of several files.

    Of several files, those that cannot be converted are reported, and the others are written.
    """
    pairs = _pairs(paths, out_dir, target_format, force)
    given: dict[str, Any] = {
        "source_format": source_format, "target_format": target_format, "layers": layers, "dtype": dtype,
        "strict": strict, "force": force, "progress": progress(quiet or as_json), "settings": settings,
    }  # fmt: skip
    if verified and dry_run:
        raise UsageError("--dry-run writes nothing that could be verified. Choose either --dry-run or --verify")
    if (on or reports) and not verified:
        raise UsageError("--on and --report need --verify")
    if verified and len(pairs) > 1:
        raise UsageError("--verify proves one file at a time. Convert each with a command of its own")

    def one(source: str, target: str) -> Summary:
        if verified:
            return _verified(source, target, given, on, reports, quiet or as_json)
        from rnnconvert.files.convert import convert as convert_file

        return convert_file(source, target, dry_run=dry_run, **given)

    if out_dir is None:
        summary = one(*pairs[0])
        if as_json:
            emit(summary.as_dict())
        else:
            _tell(summary, quiet, verbose)
        return
    if not dry_run:
        _make(out_dir)
    documents, codes = [], [0]
    for source, target in pairs:
        try:
            summary = one(source, target)
        except RnnConvertError as error:
            codes.append(error.exit_code)
            documents.append({"source": source, "target": target, "error": str(error), "exit_code": error.exit_code})
            complain(source, error, as_json)
            continue
        documents.append(summary.as_dict())
        if not as_json:
            _tell(summary, quiet, verbose)
    if as_json:
        emit(documents)
    failed = len(codes) - 1
    if failed:
        say(f"{failed} of {len(pairs)} files were not converted", as_json)
        click.get_current_context().exit(max(codes))


def _pairs(
    paths: tuple[str, ...], out_dir: str | None, target_format: str | None, force: bool
) -> list[tuple[str, str]]:
    """Return each source with its target. Raises UsageError where a target's name is open, or shared."""
    if out_dir is None:
        if len(paths) != 2:
            raise UsageError(
                f"got {len(paths)} paths, expected SOURCE and TARGET. To convert several files, give a folder: --out-dir FOLDER"
                if len(paths) > 2
                else "TARGET is missing: give SOURCE and TARGET, or --out-dir FOLDER"
            )
        source, target = paths
        is_folder = Path(target).is_dir() or target.endswith("/")
        return [(source, _named(source, target, target_format) if is_folder and target_format is not None else target)]
    if target_format is None:
        raise UsageError("--out-dir needs --to, which decides the ending of the files")
    found: dict[str, str] = {}
    folder = Path(out_dir).resolve()
    inside = [source for source in paths if folder in (Path(source).absolute().parent, Path(source).resolve().parent)]
    if force and inside:
        raise UsageError(f"--force could replace {inside[0]}, which is in {out_dir} itself. Choose another folder")
    for source in paths:
        target = _named(source, out_dir, target_format)
        if target in found:
            raise UsageError(
                f"{found[target]} and {source} would both be written to {target}. Rename one, or convert it by itself"
            )
        found[target] = source
    return [(source, target) for target, source in found.items()]


def _named(source: str, folder: str, format: str) -> str:
    """Return a path in a folder: the source's name, with the usual ending of a format."""
    from rnnconvert.files.adapter import adapter
    from rnnconvert.language import registry

    endings = adapter(format).SUFFIXES
    if not endings:
        raise UsageError(f"{format} files are only read, not written")
    name = Path(source).name or Path(source).resolve().name
    known = {end for card in registry.cards().values() for end in card.endings if name.endswith(end)}
    stem = name.removesuffix(max(known, key=len, default="" if Path(source).is_dir() else Path(name).suffix))
    return str(Path(folder) / f"{stem}{endings[0]}")


def _make(folder: str) -> None:
    """Create a folder where there is none. Raises UsageError if that cannot be done."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot make this folder: {error.strerror or error}") from None


def _verified(
    source: str, target: str, given: dict[str, Any], on: tuple[str, ...], reports: tuple[str, ...], quiet: bool
) -> Summary:
    """Convert, and end with the report's exit code if the file is not kept."""
    from rnnconvert import reports as forms
    from rnnconvert.verification.collect import Plan
    from rnnconvert.verification.proved import convert_verified

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
