"""The options and arguments of a command, in one value, and options that more than one command has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import click

from rnnconvert.cli.terminal import FilePath
from rnnconvert.core.errors import UsageError
from rnnconvert.core.names import is_count


def in_one(function: Callable[[Any], None]) -> Callable[..., None]:
    """Return a command of many options as click calls it: the function gets them all in one value, each by its name."""

    @functools.wraps(function)
    def command(**options: Any) -> None:
        function(SimpleNamespace(**options))

    return command


class ProvingCommand(click.Command):
    """A command whose --verify may be followed by a file of inputs (proving); what follows it otherwise is an argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        following = [*args[1:], ""]
        return super().parse_args(
            ctx,
            [
                "--verify=" if word == "--verify" and not after.endswith((".npy", ".npz")) else word
                for word, after in zip(args, following, strict=True)
            ],
        )


def proving(text: str) -> dict[str, Any]:
    """Return the settings of the option --verify of a ProvingCommand: true, or the file of inputs on which models are run, too.

    text  what the help says of it
    """

    def chosen(_: click.Context, __: click.Parameter, value: str | None) -> bool | str:
        return value or value is not None

    return {"type": FilePath(), "metavar": "[INPUTS.npz]", "callback": chosen, "help": f"{text} With a file: on these inputs, too."}


def counts(text: str | None, option: str) -> list[int | list[int | None]] | None:
    """Return numbers with commas between, or lengths with an x between. Raises BadParameter for anything else."""
    if text is None:
        return None
    entries = [[length.strip() for length in word.split("x")] for word in text.split(",")]
    several = [len(entry) > 1 for entry in entries]
    entries = [entry[:1] if len(entry) == 2 and not entry[1] else entry for entry in entries]  # 5x: one axis, of length 5
    if not all(is_count(length) or (length == "?" and more) for entry, more in zip(entries, several, strict=True) for length in entry):
        message = f"{text!r} is not one number, or several with commas between, as in 3 or 3,2, and no lengths, as in 1x80x? or 5x"
        raise click.BadParameter(message, param_hint=option)
    lengths = [[None if length == "?" else int(length) for length in entry] for entry in entries]
    return [entry if more else int(entry[0] or 0) for entry, more in zip(lengths, several, strict=True)]


def fixed(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of inputs by their names: numbers, truths, or lists of them with commas between. Raises BadParameter for others."""
    import json  # help needs none

    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        try:
            entries = [json.loads(entry) for entry in text.split(",")]
        except ValueError:
            entries = [None]
        if not equals or not name or not all(isinstance(entry, (int, float)) for entry in entries):
            message = f"{word!r} does not state the value of an input, as in sr=16000, training=false or sizes=3,4"
            raise click.BadParameter(message, param_hint="--fix")
        values[name] = entries[0] if len(entries) == 1 else entries
    return values


def check_written(verify: bool, dry_run: bool) -> None:
    """Raise UsageError for a proof of what is not written."""
    if verify and dry_run:
        raise UsageError("--dry-run writes nothing that could be verified. Choose either --dry-run or --verify")
