"""The shell's completions for the values of options; the commands' files are read, no framework is imported.

Any error offers nothing: somebody is typing.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from rnnconvert.files.checkpoint import Checkpoint

Offer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]

MAX_BYTES = 4 << 30
"""The largest file that is opened to offer the names of its layers."""


def _offered(offer: Callable[[click.Context, str], Iterable[str | tuple[str, str]]]) -> Offer:
    """Return a function for click that offers the values that begin with the typed text."""

    @functools.wraps(offer)
    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            offered = [(entry, "") if isinstance(entry, str) else entry for entry in offer(ctx, incomplete)]
        except Exception:  # a file that is damaged, a setting that is half typed
            return []
        # A control character in a name would reach the terminal; such a name has to be typed.
        plain = [(value, text) for value, text in offered if value.isprintable()]
        return [CompletionItem(value, help=text or None) for value, text in plain if value.startswith(incomplete)]

    return complete


@_offered
def formats(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Offer the formats."""
    from rnnconvert.files.adapter import names

    return names()


@_offered
def layers(ctx: click.Context, incomplete: str) -> Iterable[tuple[str, str]]:
    """Offer the recurrent layers of the command's first file."""
    return [(name, stack.describe()) for name, stack in _checkpoint(ctx).layers.items()]


@_offered
def settings(ctx: click.Context, incomplete: str) -> Iterable[str | tuple[str, str]]:
    """Offer keys, of one layer where the file has several, and the values of a key."""
    from rnnconvert.files.catalogue import OPTIONS

    key, equals, _ = incomplete.partition("=")
    layer, colon, name = key.rpartition(":")
    if equals:
        return [f"{key}={value}" for value in OPTIONS[name].choices]
    return [(f"{layer}{colon}{option_name}=", option.meaning) for option_name, option in OPTIONS.items()]


@_offered
def cases(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Offer the cases of a verification."""
    from rnnconvert.judging.case_kinds import CASES

    return [*CASES, "all"]


@_offered
def executors(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Offer the executors by name, whether they can run here or not: to find that out takes seconds."""
    from rnnconvert.running import registry

    return [*registry.executors(), "all"]


@_offered
def targets(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """Offer formats, several of them with commas."""
    from rnnconvert.files.adapter import names

    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names()]


WORDS = "rnnconvert.words"
"""Where the group keeps the words of the command line: click drops what stands before an option whose value is typed."""


def _checkpoint(ctx: click.Context) -> Checkpoint:
    """Return the first file that the command names, read as its other options state."""
    from pathlib import Path

    from rnnconvert.files.load import load_with
    from rnnconvert.files.options import Options

    words = ctx.meta[WORDS]
    path = next(word for word in words[1:] if not word.startswith("-") and Path(word).exists())
    if Path(path).is_file() and Path(path).stat().st_size > MAX_BYTES:
        raise OSError("too large to be opened while somebody types")
    pairs = list(itertools.pairwise(words))
    format = next((value for word, value in pairs if word in ("--from", "--from-a")), None)
    return load_with(path, format, Options(settings=[value for word, value in pairs if word in ("--set", "--set-a")]))
