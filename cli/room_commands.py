"""The commands that rooms offer (rnnconvert.core.room_command), as commands of click."""

from __future__ import annotations

import functools
import importlib
from contextlib import nullcontext
from typing import Any

import click

from rnnconvert.cli.progress import watching
from rnnconvert.cli.terminal import FilePath, emit, say
from rnnconvert.cli.values import check_written
from rnnconvert.core.room_command import RoomCommand
from rnnconvert.language.rooms import rooms


@functools.cache
def offered() -> dict[str, RoomCommand]:
    """Return the rooms' commands, by name. Of a room, only its module `commands` is imported: the help begins at once."""
    modules = map(importlib.import_module, rooms("commands"))
    return {command.name: command for module in modules for command in module.COMMANDS}


def command(offer: RoomCommand) -> click.Command:
    """Return the command of an offer."""
    source = click.Argument(["source"], metavar=offer.source, type=FilePath())
    if offer.flag:
        flags = ["-" + offer.flag.lstrip("-")[0], offer.flag, "target"]
        target: click.Parameter = click.Option(flags, required=True, type=FilePath(), metavar=offer.target, help="The model to write.")
    else:
        target = click.Argument(["target"], metavar=offer.target, type=FilePath())
    params = [source, target, *(_option(offer, name) for name in offer.options)]
    for name, text in (("force", f"Replace {offer.target} if it exists."), ("dry_run", "Show what would be done; write nothing.")):
        params.append(click.Option([_flag(name)], is_flag=True, help=text))
    params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print the report as JSON."))
    params.append(click.Option(["-q", "--quiet"], is_flag=True, help="Print only errors."))
    calls = "\n".join(f"  {line}" for line in offer.examples)
    return click.Command(
        offer.name,
        params=params,
        callback=functools.partial(run, offer),
        help=offer.summary,
        epilog=f"\b\nExamples:\n{calls}\n\n{offer.notes}",
    )


def run(offer: RoomCommand, source: str, target: str, as_json: bool, quiet: bool, **settings: Any) -> None:
    """Do the work of an offer, and print what was done. Raises UsageError for a proof of what is not written."""
    check_written(bool(settings.get("verify")), settings["dry_run"])
    module, _, name = offer.function.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    with watching(quiet or as_json) if offer.watched else nullcontext() as watch:
        if offer.watched:
            settings["watch"] = watch
        done = function(source, target, **settings)
    if as_json:
        emit(done.as_dict())
        return
    say(f"{'would write' if settings['dry_run'] else 'wrote'} {target}", quiet)
    for line in done.lines():
        say(line, quiet)


def _option(offer: RoomCommand, name: str) -> click.Option:
    if name in offer.files:
        return click.Option([_flag(name)], type=FilePath(), metavar=offer.files[name], help=offer.options[name])
    return click.Option([_flag(name)], is_flag=True, help=offer.options[name])


def _flag(name: str) -> str:
    """Return the flag of a keyword: dry_run is --dry-run."""
    return f"--{name.replace('_', '-')}"
