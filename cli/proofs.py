"""The common part of the commands that prove something: their options, and annotations for GitHub Actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rnnconvert.cli.terminal import FilePath, put

_OPTIONS = (
    click.option("--jobs", type=click.IntRange(1), metavar="N", help="Executors at a time; by default, one per core."),
    click.option("--no-explain", is_flag=True, help="Do not search for the cause of a difference."),
    click.option("--strict", is_flag=True, help="Also fail if something was left out (exit code 6) or not run whole (7)."),
    click.option(
        "--cache", type=FilePath(), metavar="FOLDER", envvar="RNNCONVERT_CACHE", help="Keep proofs here; run only what has changed."
    ),
)


def proving(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that runs models."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def annotate(what: dict[str, Any] | str, title: str = "", path: str = "") -> None:
    """Print a report, or an error, as annotations where this runs in GitHub Actions; on stderr, so that stdout stays JSON."""
    from rnnconvert.reports import github

    if not github.wanted():
        return
    lines = [github.annotation(what, title, path)] if isinstance(what, str) else github.of_report(what)
    for line in lines:
        put(line, err=True, wrap=False, command=True)
