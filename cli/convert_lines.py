"""The report of a conversion, in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnnconvert.cli.streams import STREAM
from rnnconvert.cli.terminal import put, say, styled
from rnnconvert.core.notes import COMPUTED, INTEGERS, LayerNote
from rnnconvert.core.printable import called
from rnnconvert.core.remedies import Command

if TYPE_CHECKING:
    from rnnconvert.files.summary import Summary


_MOST = 8
"""The most layers that are left out and are named."""


def print_summary(summary: Summary, source: str, target: str, quiet: bool = False, verbose: bool = False) -> None:
    """Print what a conversion did."""
    if quiet:
        return
    from rnnconvert.files.questions import assumptions
    from rnnconvert.language import registry

    verb = "wrote" if summary.written else "would write"
    say(f"{verb} {summary.target} ({summary.target_format}) from {summary.source} ({summary.source_format})", hang=2)
    for text in summary.evidence if verbose else ():
        say(f"  recognised: {text}", hang=4)
    for name, text in summary.layers.items():
        say(f"  {called(name)}: {text}", hang=4)
    if summary.steps:
        say(f"{styled('rewrites', 'green' if summary.exact else 'yellow')}:")
    else:
        computed = any(isinstance(note, LayerNote) and note.kind in (COMPUTED, INTEGERS) for note in summary.warnings)
        numbers = "the numbers are those that the source computes with" if computed else "every number is the source's own"
        say(f"{styled('no rewrite was needed', 'green')}: {numbers}")
    for step in summary.steps:
        say(f"  {step}", hang=4)
    for note in summary.notes:
        say(f"note: {note}", hang=2)
    _tell_left_out(summary, source, target)
    if summary.carried:
        say(f"carried over: {summary.carried} other tensors, unchanged")
    for line in assumptions(summary.questions):
        say(f"{styled('assumed', 'yellow')}: {line}", hang=2)
    for warning in summary.warnings:
        say(f"{styled('warning', 'yellow')}: {warning}", hang=2)
    if summary.recipe and target != STREAM:
        language = registry.systems()[summary.target_format].language
        say("# to load it in Python:" if language == "Python" else f"// to run it in {language}:")
        for line in summary.recipe:
            put(line, err=True, wrap=False)


def _tell_left_out(summary: Summary, source: str, target: str) -> None:
    """Name what was left out, and the command that moves it where there is one."""
    if not summary.left or summary.checkpoint is None:
        return
    from rnnconvert.models.others import moves_whole_models, others

    others_left = others(summary.checkpoint, summary.left)
    groups = [layer for layer in others_left if not layer.name]
    named = [layer for layer in others_left if layer.name]
    more = [f"{len(named) - _MOST:,} more (rnnconvert inspect -v lists them)"] if len(named) > _MOST else []
    say(f"left out: {', '.join([*map(str, named[:_MOST]), *more, *map(str, groups)])}", hang=2)
    if named and moves_whole_models(summary.checkpoint.format, summary.target_format):
        path = "FILE" if source == STREAM else source
        say(f"  into a model of your own: {Command('transplant', path, into='MODEL', o='FILLED').flags}", hang=4)
    if named and STREAM not in (source, target):
        from rnnconvert.cli.whole_model import exported

        if offer := exported(source, target, summary.target_format):
            what, command = offer
            say(f"  {what}: {command.flags}", hang=4)
