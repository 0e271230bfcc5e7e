"""The help of a command: what it does, examples, its options by what they are for, notes; in this order for every command."""

from __future__ import annotations

import functools
import inspect

import click

GROUPS = {
    "Input": (
        "--from --from-a --from-b --from-other --layer --pair --set --set-a --set-b --assume-defaults --config --layout --axes --chain "
        "--mapping --io --into"
    ),
    "Output": (
        "--to --out --out-dir --output --convert --weights --dtype --stateful --force --dry-run --sync --journal --save --save-inputs "
        "--save-outputs --report --reports --sarif"
    ),
    "Proof": (
        "--verify --strict --on --case --seed --batch --time --lengths --inputs --load-inputs --gradients --atol --rtol --no-explain "
        "--cache --jobs --timeout --seconds"
    ),
    "Screen": "--json --quiet --verbose --help",
}
"""The options that several commands have, by what they are for. Those of one command alone come first."""


def in_order(command: click.Command) -> click.Command:
    """Return a command, and each below it, with its help in the order of this module."""
    # On the command itself: those of packages that add commands are of any class.
    command.format_help = functools.partial(_format_help, command)  # type: ignore[method-assign]
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        in_order(below)
    return command


def examples_and_notes(command: click.Command) -> tuple[str, str]:
    """Return the two parts of what stands behind a command's options: its examples, and what else is to know."""
    first, _, rest = inspect.cleandoc(command.epilog or "").partition("\n\n")
    return (first, rest) if "Example" in first else ("", "\n\n".join(filter(None, [first, rest])))


def grouped(command: click.Command, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return the rows of a command's options by the titles of their groups."""
    titles = {flag: title for title, flags in GROUPS.items() for flag in flags.split()}
    rows: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *GROUPS)}
    for param in command.get_params(ctx):
        row = param.get_help_record(ctx) if isinstance(param, click.Option) else None  # the usage has the arguments
        if row is not None:
            rows[next((titles[flag] for flag in param.opts if flag in titles), "Options")].append(row)
    return {title: listed for title, listed in rows.items() if listed}


def _format_help(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    examples, notes = examples_and_notes(command)
    command.format_usage(ctx, formatter)
    command.format_help_text(ctx, formatter)
    _paragraph(formatter, examples)
    for title, rows in grouped(command, ctx).items():
        with formatter.section(title):
            formatter.write_dl(rows)
    if isinstance(command, click.Group):
        command.format_commands(ctx, formatter)
    _paragraph(formatter, notes)


def _paragraph(formatter: click.HelpFormatter, text: str) -> None:
    if text:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)
