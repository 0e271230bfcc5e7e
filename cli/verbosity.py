"""How much is printed: `-q` and `-v`, which every command has, and which mean the same in each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

QUIET = "Print only errors and the verdict."
VERBOSE = "Print more details, and the time taken."
_QUIET, _VERBOSE = "rnnconvert.quiet", "rnnconvert.verbose"


def with_switches(command: click.Command) -> click.Command:
    """Return a command, and each below it, with `-q` and `-v`: its own options, or common ones."""
    for key, words, meaning in ((_QUIET, ["-q", "--quiet"], QUIET), (_VERBOSE, ["-v", "--verbose"], VERBOSE)):
        switches = [param for param in command.params if isinstance(param, click.Option) and set(words) & set(param.opts)]
        if not switches:
            switches = [click.Option(words, is_flag=True, expose_value=False)]
            command.params += switches
        for option in switches:
            option.help, option.callback = meaning, _noting(key)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        with_switches(below)
    return command


def _noting(key: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def note(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        ctx.meta[key] = ctx.meta.get(key, False) or bool(value)
        return value

    return note


def is_quiet() -> bool:
    """Return whether the command that runs was called with `-q`."""
    return _is_set(_QUIET)


def _is_set(key: str) -> bool:
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(key))


@contextmanager
def timed(say: Callable[[str], object]) -> Iterator[None]:
    """Say how long the command took, where it was called with `-v`."""
    start = time.perf_counter()
    try:
        yield
    finally:
        if _is_set(_VERBOSE) and not is_quiet():
            say(f"took {time.perf_counter() - start:.1f} s")
