"""The ways out that an error names, as commands: each is typed as it stands, on the file that it was said of."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rnnconvert.core import remedies
from rnnconvert.core.remedies import Command, Flag, Remedy, Setting, Together
from rnnconvert.language import registry
from tests.helpers.commands import call

FAULT, REFUSALS = 70, (2, 3, 4)
"""The exit code of a fault of ours, and those of an error that names what to do."""
_WRITTEN_FIRST = ("found.toml", "sample.npz")
"""Files that a reader writes before a text is followed, and that no text holds."""
_DRAFT = re.compile(r"^  \[\[layout\]\]\n(?:  .*\n)+", re.MULTILINE)
"""The draft of a layout, as an error prints it."""
_FORMATS = re.compile(r"(?:Convert to|can be written for) ((?:\w+(?:, | or )?)+)")


@dataclass(frozen=True)
class Answer:
    """What a command answered.

    words     its words
    code      its exit code
    error     its error, without what follows the first line
    text      all that it prints
    remedies  the ways out that it names and that can be typed as they stand
    layout    the draft of a layout that it prints, which the reader is to save as layout.toml, or ""
    """

    words: tuple[str, ...]
    code: int
    error: str
    text: str
    remedies: tuple[Remedy, ...]
    layout: str

    def typed(self) -> Iterator[tuple[str, list[str]]]:
        """Yield every way out, as it is spelled and as the words of a command."""
        for way in self.remedies:
            yield from ((way.flags, words) for words in _typed(way, list(self.words)))


class _Format(Remedy):
    """A format that a text names instead of the one that was asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def flags(self) -> str:
        return f"--to {self.name}"


def answered(words: Sequence[object], folder: Path) -> Answer:
    """Run a command in a folder, and note the ways out that it names."""
    spelled: list[Remedy] = []

    def spell(remedy: Remedy) -> str:
        spelled.append(remedy)
        return remedy.flags if remedies.called_by_flags() else remedy.keywords

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Remedy, "__str__", spell)
        patch.chdir(folder)
        result = call(*words)
    text = result.output
    draft = _DRAFT.search(text)
    named = {remedy.flags: remedy for remedy in spelled if _is_named(remedy.flags, text)}
    # What stands in a longer way out is no way out of its own.
    apart = [remedy for flags, remedy in named.items() if not any(flags != other and flags in other for other in named)]
    first = next((line for line in text.splitlines() if line.startswith("error: ")), "")
    formats = [_Format(name) for match in _FORMATS.finditer(first) for name in re.split(", | or ", match[1]) if name in registry.cards()]
    return Answer(tuple(map(str, words)), result.exit_code, first, text, (*apart, *formats), textwrap.dedent(draft[0]) if draft else "")


def _is_named(flags: str, text: str) -> bool:
    """Whether a text names options for its reader to add, and not to leave out."""
    return flags in text and not re.search(rf"([Ww]ithout|[Ll]eave out) {re.escape(flags)}", text)


def _typed(way: Remedy, words: list[str]) -> Iterator[list[str]]:
    if any(mark in way.flags for mark in (*_WRITTEN_FIRST, "...", "?")) or re.search(r"(?<!\w)[A-Z]{4,}(?!\w)", way.flags):
        return
    match way:
        case Command():
            yield shlex.split(way.flags)[1:]
        case _Format():
            source, _, *options = words[1:]
            if "--to" in options:
                del options[options.index("--to") : options.index("--to") + 2]
            yield [words[0], source, _target(way.name), "--to", way.name, *options]
        case Setting():
            for value in (choice for several in way.values for choice in several.split("|")):
                yield [*words, *_words_of(Setting(way.option, value, layer=way.layer, side=way.side))]
        case Flag() if way.value is None and way.name not in remedies._SWITCHES:
            return
        case _:
            yield [*words, *_words_of(way)]


def _words_of(way: Remedy) -> list[str]:
    """The words of options; a setting's value is one of them, whatever stands in it."""
    if isinstance(way, Together):
        return [word for part in way.remedies for word in _words_of(part)]
    return way.flags.split(" ", 1) if isinstance(way, Setting) else shlex.split(way.flags)


def _target(format: str) -> str:
    card: Any = registry.cards()[format]
    return f"other{next(iter(card.written), '')}"
