"""The common part of the commands that compare two files: their options, and the output of their findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rnnconvert.cli import completion
from rnnconvert.cli.terminal import FilePath, emit, format_option, put, say, setting, styled
from rnnconvert.cli.verbosity import is_quiet

if TYPE_CHECKING:
    from rnnconvert.diagnosis.findings import Comparison, Findings
    from rnnconvert.diagnosis.one_file import SampleFindings

_OPTIONS = (
    format_option("--from-a", "format_a", "Format of A; by default, its content decides."),
    format_option("--from-b", "format_b", "Format of B; by default, its content decides."),
    click.option(
        "--layer", "layers", multiple=True, metavar="NAME", shell_complete=completion.layers, help="Only this layer of A. Repeatable."
    ),
    click.option(
        "--pair", "pairs", multiple=True, metavar="A=B", help="Pair a layer of A with one of B, or with several: A=B1+B2. Repeatable."
    ),
    setting,
    click.option(
        "--set-a",
        "settings_a",
        multiple=True,
        metavar="[LAYER:]KEY=VALUE",
        shell_complete=completion.settings,
        help="Like --set, for A only.",
    ),
    click.option(
        "--set-b",
        "settings_b",
        multiple=True,
        metavar="[LAYER:]KEY=VALUE",
        shell_complete=completion.settings,
        help="Like --set, for B only.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


def two_files(*, second: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the arguments and options of a command that reads two files.

    second  whether it needs the second one
    """
    arguments = (click.argument("a", type=FilePath()), click.argument("b", type=FilePath(), required=second))

    def added(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed((*arguments, *_OPTIONS)):
            command = option(command)
        return command

    return added


def print_findings(findings: Comparison | Findings | SampleFindings, as_json: bool) -> None:
    """Print what was found; on stderr, what the files leave open and warn about."""
    from rnnconvert.diagnosis.one_file import SampleFindings
    from rnnconvert.files.questions import assumptions

    files = (findings.source,) if isinstance(findings, SampleFindings) else (findings.a, findings.b)
    for label, checkpoint in zip("AB", files, strict=False):
        for line in assumptions(checkpoint.questions):
            say(f"{styled('assumed', 'yellow')} of {label}: {line}")
        for warning in checkpoint.warnings:
            say(f"{styled('warning', 'yellow')} of {label}: {warning}")
    if as_json:
        emit(findings.as_dict())
        return
    lines = list(findings.lines())
    for line in lines[-1:] if is_quiet() else lines:
        put(line)
