"""rnnconvert identify: what weights of unknown origin are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli.convert_lines import print_summary
from rnnconvert.cli.progress import watching
from rnnconvert.cli.streams import incoming
from rnnconvert.cli.terminal import FilePath, emit, finish, format_option, put, say
from rnnconvert.cli.values import in_one
from rnnconvert.cli.verbosity import is_quiet
from rnnconvert.core.remedies import Command, Flag

if TYPE_CHECKING:
    from rnnconvert.identification.identify import Identification

_EPILOG = """\b
Examples:
  rnnconvert identify weights.npz
  rnnconvert identify buffer.npy --set hidden_size=16 --set input_size=4
  rnnconvert identify weights.npz --io sample.npz
  rnnconvert identify weights.npz --io sample.npz --convert model.pt
  rnnconvert identify buffer.npy --io sample.npz --json
  rnnconvert identify weights.npz --io sample.npz -o found.toml
  rnnconvert convert weights.npz model.onnx --layout found.toml

Exit codes: 0 identified, or candidates listed without a sample; 1 ambiguous, near or unknown; 2 to 5 as for every command.
"""


@click.command(epilog=_EPILOG)
@click.argument("weights", type=FilePath(allow_dash=True))
@click.option(
    "--io",
    "sample",
    metavar="SAMPLE.npz",
    type=FilePath(),
    help="An input of the layer and its output: arrays x and y, optionally h_0, c_0, h_n, c_n, lengths (or input, output, hidden ...).",
)
@click.option("-o", "--output", type=FilePath(), metavar="FILE.toml", help="Save the layout found, for --layout.")
@click.option("--convert", "target", type=FilePath(), metavar="TARGET", help="Write the layer found, and prove it on the sample.")
@format_option("--to", "target_format", "With --convert: format of TARGET; by default, its ending decides.")
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(1), metavar="SECONDS", help="Time limit of the search.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Without a sample: a size that is known, such as hidden_size=16, input_size=4, num_layers=2 or bidirectional=true. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_one
def identify(asked: Any) -> None:
    """Find out what unlabelled WEIGHTS are: the part and gate of each array, and the cell.

    With a sample (--io), the conventions of all known layouts are searched for those that reproduce its output. Without one,
    candidates are listed by names, shapes and numbers. WEIGHTS may be a flat buffer (.npy), or bare float32 or float64 numbers (.bin).
    """
    from rnnconvert.containers.files import check_target, replacing
    from rnnconvert.core.errors import UsageError
    from rnnconvert.identification import identify as room

    if asked.output is not None and asked.sample is None:
        raise UsageError("-o writes a layout that a sample has shown to be right. Give one with --io")
    if asked.output is not None and not asked.output.lower().endswith(".toml"):
        raise UsageError(f"-o writes a layout: give it a name that ends in .toml. To write a model: {Flag('convert', asked.output)}")
    if asked.target is not None and asked.sample is None:
        raise UsageError("--convert writes a layer that a sample has shown to be right. Give one with --io")
    if (asked.target_format or asked.force) and asked.target is None:
        raise UsageError("--to and --force belong to --convert TARGET")
    if asked.target is not None:
        check_target(Path(asked.target), asked.force)
    with incoming(asked.weights) as (path,):
        identification = room.identify(path, io=asked.sample, seconds=asked.seconds, sizes=_sizes(asked.settings))
        identified = identification.verdict == "identified"
        if asked.output is not None and identified:
            if not identification.functions[0].layout:
                names = " or ".join(identification.functions[0].names[:3]) or "none that is known"
                raise UsageError(
                    "no layout file describes these arrays: the input is read unweighted. Read them with --from; they have the "
                    f"layout {names}"
                )
            with replacing(Path(asked.output)) as file:
                file.write(identification.functions[0].layout.encode())
            say(f"wrote {asked.output}")
        if not asked.as_json:
            lines = list(identification.lines())
            for line in lines[:1] if is_quiet() else lines:
                put(line)
        proof: dict[str, Any] = {}
        code = 0 if identification.verdict in ("identified", "candidates") else 1
        if asked.target is not None and identified:
            assert asked.sample is not None
            proof, code = _converted(path, identification, asked.sample, (asked.target, asked.target_format, asked.force), asked.as_json)
        elif asked.target is not None:
            say(f"{asked.target} was not written: the weights are not identified")
    if identified and asked.target is None and not asked.as_json and not is_quiet():
        say(f"to write it as a model: {Command('identify', asked.weights, io=asked.sample, convert='model.pt')}")
    if asked.as_json:
        emit({**identification.as_dict(), **proof})
    elif (
        not is_quiet()
        and asked.output is None
        and asked.target is None
        and identified
        and not identification.functions[0].names
        and identification.functions[0].layout
    ):
        say("a layout file that --layout accepts (-o writes it):")
        for line in identification.functions[0].layout.splitlines():
            put(line, wrap=False)
    click.get_current_context().exit(code)


def _sizes(settings: tuple[str, ...]) -> dict[str, str]:
    """Return the sizes that settings state. Raises UsageError for what is not KEY=VALUE."""
    from rnnconvert.core.errors import UsageError

    sizes = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text}: expected KEY=VALUE, as in hidden_size=16")
        sizes[key.strip()] = value.strip()
    return sizes


def _converted(
    weights: str, identification: Identification, io: str, wanted: tuple[str, str | None, bool], as_json: bool
) -> tuple[dict[str, Any], int]:
    """Write the layer that was found; return the verdict as JSON has it, and the exit code."""
    from rnnconvert.core.errors import not_written
    from rnnconvert.files.convert import SaveTarget
    from rnnconvert.verification.identified import convert_identified

    target, target_format, force = wanted
    with watching(as_json) as watch:
        summary, report = convert_identified(weights, identification, io, SaveTarget(target, target_format, force=force), watch)
    if as_json:
        return {"written": summary.written, "verification": report.conclusion.as_dict()}, report.exit_code
    finish(report, (), False, not_written(target, report) if report.exit_code else "")
    print_summary(summary, weights, target)
    say(f"what was found gives the outputs in {io}, and {target} gives the same for their input")
    return {}, report.exit_code
