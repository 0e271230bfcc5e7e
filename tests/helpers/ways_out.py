"""The ways out that an error names, as commands: each is typed as it stands, on the file that it was said of.

`WATCH` does so for the errors of every test, of commands and of the functions that do the same.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import shlex
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest
import safetensors.numpy

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core import arguments, remedies
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.remedies import Command, Flag, Remedy, Setting, Together
from rnnconvert.language import registry
from tests.helpers.commands import call

FAULT, REFUSALS = 70, (2, 3, 4)
"""The exit code of a fault of ours, and those of an error that names what to do."""
_WRITTEN_FIRST = ("found.toml", "sample.npz")
"""Files that a reader writes before a text is followed, and that no text holds."""
_NUMBER = "6"
"""What a reader puts where a text says N."""
_DRAFT = re.compile(r"^  \[\[layout\]\]\n(?:  .*\n)+", re.MULTILINE)
"""The draft of a layout, as an error prints it."""
_FORMATS = re.compile(r"(?:Convert to|can be written for) ((?:\w+(?:, | or )?)+)")


_LEFT_OUT = re.compile(r"error: (--[\w-]+(?: [^\s-]\S*)?) decides nothing.* Leave it out")
"""An option that its reader is to leave out, before anything else is added."""


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
        words = list(self.words)
        if (match := _LEFT_OUT.match(self.error)) and (at := f" {' '.join(words)} ".find(f" {match[1]} ")) >= 0:
            first = len(" ".join(words)[:at].split())
            del words[first : first + len(match[1].split())]
        for way in self.remedies:
            # What was typed already is the cause, and no way out.
            if f" {way.flags} " not in f" {' '.join(self.words)} ":
                yield from ((way.flags, typed) for typed in _typed(way, [*words]))


class _Format(Remedy):
    """A format that a text names instead of the one that was asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def flags(self) -> str:
        return f"--to {self.name}"


_spelled: list[Remedy] = []
"""The remedies that texts have spelled, in the order of time."""


def _spell(remedy: Remedy) -> str:
    _spelled.append(remedy)
    return remedy.flags if remedies.called_by_flags() else remedy.keywords


def answered(words: Sequence[object], folder: Path) -> Answer:
    """Run a command in a folder, and note the ways out that it names."""
    mark = len(_spelled)
    with pytest.MonkeyPatch.context() as patch, WATCH.paused():
        patch.setattr(Remedy, "__str__", _spell)
        patch.chdir(folder)
        result = call(*words)
    return _answer(words, result.exit_code, result.output, _spelled[mark:])


def _answer(words: Sequence[object], code: int, text: str, spelled: Sequence[Remedy]) -> Answer:
    draft = _DRAFT.search(text)
    named = {remedy.flags: remedy for remedy in spelled if _is_named(remedy.flags, text)}
    # What stands in a longer way out is no way out of its own.
    apart = [remedy for flags, remedy in named.items() if not any(flags != other and flags in other for other in named)]
    first = next((line for line in text.splitlines() if line.startswith("error: ")), "")
    formats = [_Format(name) for match in _FORMATS.finditer(first) for name in re.split(", | or ", match[1]) if name in registry.cards()]
    return Answer(tuple(map(str, words)), code, first, text, (*apart, *formats), textwrap.dedent(draft[0]) if draft else "")


def _is_named(flags: str, text: str) -> bool:
    """Whether a text names options for its reader to add, and neither to leave out nor as what decides nothing."""
    flags = re.escape(flags)
    return re.search(flags, text) is not None and not re.search(rf"([Ww]ithout|[Ll]eave out) {flags}|{flags}[^.:]* decides nothing", text)


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
            while words[0] == "export" and "--set" in options:  # these are of the other target
                del options[options.index("--set") : options.index("--set") + 2]
            yield [words[0], source, _target(way.name), "--to", way.name, *options]
        case Setting():
            for value in (_NUMBER if choice == "N" else choice for several in way.values for choice in several.split("|")):
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


ALLOWED = {
    "expected KEY=VALUE, as in ": "an example of how a setting is spelled, for an option that the command does not have",
    r"no executor runs \w+ files whole": "the format holds the model; that nothing here runs it is said with the option to leave out",
}
"""Ways out that may lead to an error, as patterns, and why."""


# What the ways out lead to -------------------------------------------------------------------------


def followed(refused: Answer, folder: Path) -> list[str]:
    """Type every way out of a refusal, each in a folder of its own. Return what is wrong with those that are false."""
    faults = []
    ways = list(refused.typed())
    for number, (way, words) in enumerate(ways):
        place = folder / str(number)
        place.mkdir()
        (place / "layout.toml").write_text(refused.layout)
        after = answered(words, place)
        why = _fault(way, refused, after) or _left_out_silently(words, place, refused.text + after.text)
        if why:
            faults.append(f"{way} {why}: {after.error}\nof `{' '.join(refused.words)}`: {refused.error}")
    WATCH.typed += len(ways)
    return [fault for fault in faults if not any(re.search(allowed, fault) for allowed in ALLOWED)]


def _fault(way: str, refused: Answer, after: Answer) -> str:
    if after.code == FAULT:
        return "is answered by a fault"
    # Where several facts are open, each answer leaves one question less under the same headline.
    if after.text == refused.text or (after.error and after.error == refused.error and len(after.remedies) >= len(refused.remedies)):
        return "is answered by the same error"
    # A further question is no misuse: it names a way on.
    if after.code == 2 and refused.code != 2 and not after.remedies:
        return "is answered by a misuse"
    if way.startswith("--to ") and after.code in REFUSALS:
        return "is refused, too"
    return ""


def _left_out_silently(words: Sequence[str], folder: Path, text: str) -> str:
    """Whether a file of arrays by name was written without some of its matrices, although no text says so."""
    source, target = Path(words[1]), folder / words[2] if len(words) > 2 else folder
    if words[0] != "convert" or source.suffix not in (".npz", ".safetensors") or not target.is_file() or "left out" in text:
        return ""
    with contextlib.suppress(RnnConvertError):
        arrays = np.load(source) if source.suffix == ".npz" else safetensors.numpy.load_file(source)
        written = sum(stack.parameters for stack in rc.load(target).layers.values())
        if sum(array.size for array in map(arrays.__getitem__, arrays) if array.ndim > 1) > written:
            return "leaves arrays out, and does not say so"
    return ""


# In every test ------------------------------------------------------------------------------------

_CALLS = {
    "convert": ("convert", "source", "target"),
    "export_model": ("export", "source", "target"),
    "scaffold": ("scaffold", "source"),
    "upgrade": ("upgrade", "old", "new"),
    "fuse": ("fuse", "model", "target"),
    "inspect": ("inspect", "source"),
    "load": ("inspect", "source"),
}
"""The functions that do what commands do: the command, and which of their arguments are its words."""
_FLAGS = {keyword: flag for flag, keyword in remedies._KEYWORDS.items()} | {"format": "to"}
_WRITERS = ("convert", "export", "upgrade", "fuse")
"""The commands whose last word names what they write."""
_WRITTEN = ("output", "weights", "out_dir", "reports", "save_inputs", "save_outputs", "sarif")
"""The options of commands that name what they write."""


@dataclass
class Watch:
    """Types the ways out of what a test's commands and calls refuse, on the file at hand; alike ones of one kind of file once.

    on      whether refusals are followed
    typed   how many ways out were typed
    faults  what is wrong with those that led nowhere, in the test that runs
    """

    on: bool = False
    typed: int = 0
    faults: list[str] = field(default_factory=list)
    _seen: set[tuple[str, ...]] = field(default_factory=set)
    _paused: int = 0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Follow nothing: what is typed here is followed already."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def follow(self, words: Sequence[str], text: str) -> None:
        """Type a command that was refused once more, then each way out that it names."""
        if not self.on or self._paused or threading.current_thread() is not threading.main_thread():
            return
        kind = (words[0], _template(text), *{Path(word).suffix for word in words if Path(word).exists()})
        if kind in self._seen:
            return
        self._seen.add(kind)
        with self.paused(), tempfile.TemporaryDirectory(prefix="ways-out-") as folder, remedies.of_the_command_line():
            place = Path(folder)
            refused = answered(_elsewhere(words), place)
            if refused.code in REFUSALS:
                self.faults += followed(refused, place)


WATCH = Watch()


def forget() -> None:
    """Begin with another test."""
    _spelled.clear()
    WATCH.faults.clear()


def _template(text: str) -> str:
    """An error without what differs from file to file: names, paths, numbers."""
    first = next((line for line in text.splitlines() if line.startswith("error: ")), text)
    return re.sub(r"'[^']*'|\S*/\S*|[\w.-]+\.\w+(?=:)|\d+", "_", first)


def _elsewhere(words: Sequence[str]) -> list[str]:
    """The words of a command for another folder: what it reads by its whole path, what it writes by its name alone."""
    command = main.get_command(click.Context(main), words[0])
    if command is None:
        return [*words]
    parameters = command.make_context(words[0], list(words[1:]), resilient_parsing=True).params
    arguments_ = [argument.name or "" for argument in command.params if isinstance(argument, click.Argument)]
    places = [str(path) for name in arguments_ for path in _several(parameters[name])]
    written = {str(path) for name in _WRITTEN for path in _several(parameters.get(name))}
    written |= {*(places[1:][-1:] if words[0] in _WRITERS else [])}
    return [Path(word).name if word in written else str(Path(word).absolute()) if Path(word).exists() else word for word in words]


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [] if value is None else [value]


def _as_words(name: str, arguments: Mapping[str, Any]) -> list[str] | None:
    """A call of a function as a command; None where it was handed what no command can be."""
    command, *places = _CALLS[name]
    words = [command]
    for place in places:
        if not isinstance(arguments.get(place), (str, Path)):
            return None
        words.append(remedies.as_word(str(arguments[place])))
    for keyword, value in arguments.items():
        if keyword in places or value is None or value is False or value == ():
            continue
        flag = f"--{_FLAGS.get(keyword, keyword.replace('_', '-'))}"
        if keyword in ("fix", "settings") or not _is_option(command, flag):
            entries = value if keyword == "settings" else [f"{k}={v}" for k, v in (value if keyword == "fix" else {keyword: value}).items()]
            words += [word for entry in entries for word in ("--fix" if keyword == "fix" else "--set", str(entry))]
        elif value is True:
            words.append(flag)
        elif isinstance(value, (str, Path, int)):
            words += [flag, str(value)]
        elif isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
            words += [word for each in value for word in (flag, each)]
        elif keyword != "verify":
            return None
    return words


@functools.cache
def _options(command: str) -> frozenset[str]:
    resolved = main.get_command(click.Context(main), command)
    return frozenset(option for parameter in resolved.params for option in parameter.opts) if resolved else frozenset()


def _is_option(command: str, flag: str) -> bool:
    return flag in _options(command)


def install() -> None:
    """Watch what the tests' commands and calls refuse."""
    Remedy.__str__ = _spell  # type: ignore[method-assign]
    invoke, checked = click.testing.CliRunner.invoke, arguments.checked

    @functools.wraps(invoke)
    def watched_invoke(runner: Any, cli: Any, args: Any = None, *more: Any, **extra: Any) -> Any:
        result = invoke(runner, cli, args, *more, **extra)
        if result.exit_code in REFUSALS and cli is main and args and not isinstance(args, str) and not (more or extra.get("input")):
            WATCH.follow([*map(str, args)], result.output)
        return result

    def watched_function(function: Callable[..., Any]) -> Callable[..., Any]:
        called = checked(function)
        if function.__name__ not in _CALLS:
            return called
        signature = inspect.signature(function)

        @functools.wraps(called)
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                return called(*args, **kwargs)
            except RnnConvertError as error:
                if error.exit_code in REFUSALS:
                    keywords = signature.bind(*args, **kwargs).arguments
                    for name, parameter in signature.parameters.items():
                        if parameter.kind is parameter.VAR_KEYWORD:
                            keywords |= keywords.pop(name, {})
                    words = _as_words(function.__name__, keywords)
                    if words:
                        WATCH.follow(words, f"error: {error}")
                raise

        return watched

    click.testing.CliRunner.invoke = watched_invoke  # type: ignore[method-assign, assignment]
    arguments.checked = watched_function  # type: ignore[assignment]
