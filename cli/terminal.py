"""What the commands share at the terminal: progress, colour, options given as KEY=VALUE."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rnnconvert.files.options import Question

_set = click.option(
    "--set", "settings", multiple=True, metavar="[LAYER:]KEY=VALUE",
    help="Decide what the file leaves open, or what you take over. Repeatable; `rnnconvert formats --options` lists the keys.",
)  # fmt: skip


def _add(ctx: click.Context, option: click.Parameter, paths: tuple[str, ...]) -> None:
    if paths:
        from rnnconvert.language.layout_file import add_layouts

        for path in paths:
            add_layouts(path)


own_layouts = click.option(
    "--layout", multiple=True, metavar="FILE.toml", expose_value=False, callback=_add, is_eager=True,
    help="Add the layouts that this file describes (docs/layouts.md). Repeatable.",
)  # fmt: skip


def setting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that reads files: --set and --layout."""
    return _set(own_layouts(command))


def styled(text: str, colour: str) -> str:
    """Return text in a colour, where stderr is a terminal and NO_COLOR is not set."""
    plain = "NO_COLOR" in os.environ or not sys.stderr.isatty()
    return text if plain else click.style(text, fg=colour, bold=True)


def say(text: str, quiet: bool = False) -> None:
    """Print a line for people, on stderr."""
    if not quiet:
        click.echo(text, err=True)


def complain(path: str, error: Exception, quiet: bool) -> None:
    """Print the error of one of several files, on stderr."""
    text = str(error)
    say(f"{styled('error', 'red')}: {text if text.startswith(path) else f'{path}: {text}'}", quiet)


def progress(quiet: bool) -> Callable[[int, int], None] | None:
    """Return a function that draws how much is written, after the first second, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        return None
    start = last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - start < 1 or (now - last < 0.1 and done < total):
            return
        last = now
        speed = done / (now - start) / 1e6
        share = 100 * done // max(total, 1)
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r\x1b[K{share:3d} %  {done / 1e6:,.0f} of {total / 1e6:,.0f} MB  {speed:,.0f} MB/s{end}")
        sys.stderr.flush()

    return show


def emit(document: Any) -> None:
    """Print a document for machines, on stdout."""
    import json

    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def assumptions(questions: Iterable[Question]) -> Iterator[str]:
    """Yield what was assumed where files are silent, one line for all the layers that share it, with the option that
    decides.
    """
    layers: dict[tuple[str, str, str, str], list[str]] = {}
    for question in questions:
        key = (question.option, question.assumed, question.why, "|".join(question.choices) or "...")
        layers.setdefault(key, []).append(question.layer or "every layer")
    for (option, assumed, why, choices), names in layers.items():
        yield f"{option}={assumed} for {', '.join(names)}: {why} (--set {option}={choices})"


@contextlib.contextmanager
def watching(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show what is being done, on one line that is removed again, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: click.echo(f"\r\x1b[K{text[:110]} ...", err=True, nl=False)
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


def finish(report: Any, paths: Iterable[str], quiet: bool, remark: str = "") -> None:
    """Print and write a report of equivalence, and end the program with its exit code unless it is 0."""
    from rnnconvert import reports
    from rnnconvert.reports.text import to_text

    for path in paths:
        report.write(path)
    reports.summary_to_github(report.document)
    click.echo(report.verdict if quiet else to_text(report.document, styled))
    if remark:
        say(remark)
    if not report.equal:
        sys.exit(report.exit_code)


def whole_numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int] | None:
    """Parse integers separated by commas, such as lengths."""
    try:
        return None if value is None else [int(word) for word in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value}: expected integers separated by commas, as in 9,4,1") from None
