"""A caller's ways out, as data: a setting, an option, a command. The command line and Python each spell them in their words.

A text is composed for whoever called, so a remedy that stands in it is spelled as `str` spells it: with flags while the
command line runs, with keywords in Python. Nothing else in the text is touched.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator
from contextvars import ContextVar

from rnnconvert.core.binding import bound
from rnnconvert.core.printable import command_line, either

_calls_by_flags: ContextVar[bool] = ContextVar("calls_by_flags", default=False)
_accepts: ContextVar[Collection[str]] = ContextVar("accepts", default=())


@contextlib.contextmanager
def of_the_command_line() -> Iterator[None]:
    """Spell remedies as flags and commands, for as long as the command line runs."""
    with bound(_calls_by_flags, True):
        yield


def called_by_flags() -> bool:
    """Return whether the command line runs."""
    return _calls_by_flags.get()


@contextlib.contextmanager
def accepting(options: Collection[str]) -> Iterator[None]:
    """Spell the settings of these options as what a transplant accepts: `--accept batch_first`."""
    with bound(_accepts, options):
        yield


class Remedy:
    """Something that a caller can do, in the words of the command line and in Python's."""

    @property
    def flags(self) -> str:
        """How it is written on the command line."""
        raise NotImplementedError

    @property
    def keywords(self) -> str:
        """How it is written in a call."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.flags if _calls_by_flags.get() else self.keywords


class Setting(Remedy):
    """An option that a file may leave open, and its value: `--set between=nothing`, `between="nothing"`.

    values  the value, or several to choose from; "..." for one that the text does not name
    layer   the layer that it is meant for, if it is not meant for all
    side    "a" or "b", where two files are compared and it is meant for one
    """

    def __init__(self, option: str, *values: object, layer: str = "", side: str = "") -> None:
        self.option, self.values, self.layer, self.side = option, tuple(map(str, values)), layer, side

    @property
    def flags(self) -> str:
        """Return `--set [LAYER:]OPTION=VALUE`."""
        if self.option in _accepts.get():
            return f"--accept {self.option}"
        return f"--set{'-' + self.side if self.side else ''} {self._entry(either(self.values))}"

    @property
    def keywords(self) -> str:
        """Return `option=value`; of one layer or of one of two files, an entry of `settings`."""
        if self.option in _accepts.get():
            return f"accept=[{self.option!r}]"
        if self.layer or self.side:
            name = f"settings_{self.side}" if self.side else "settings"
            return f"{name}=[{self._entry(either(self.values))!r}]"
        choices = [choice for value in self.values for choice in value.split("|")]
        return f"{self.option}={either(list(map(_literal, choices)))}"

    def _entry(self, value: str) -> str:
        return f"{self.layer + ':' if self.layer else ''}{self.option}={value}"


class TargetSetting(Setting):
    """An option of what a whole model is written as, and its value: `--set steps=98`, `settings=["steps=98"]`."""

    @property
    def keywords(self) -> str:
        """Return an entry of `settings`."""
        return f'settings=["{self._entry(either(self.values))}"]'


def _literal(value: str) -> str:
    if value in ("", "...") or re.fullmatch(r"-?\d+(\.\d+)?", value):
        return value
    return {"true": "True", "false": "False"}.get(value) or repr(value)


_SWITCHES = {
    "force": "force=True",
    "strict": "strict=True",
    "verify": "verify=True",
    "gradients": "gradients=True",
    "stateful": "stateful=True",
    "partial": "strict=False",
    "trust-order": "trust_order=True",
    "assume-defaults": "assume_defaults=True",
    "dry-run": "dry_run=True",
}
"""Options that Python's functions take otherwise than as a keyword with a value."""

_KEYWORDS = {
    "from": "source_format",
    "to": "target_format",
    "from-a": "format_a",
    "from-b": "format_b",
    "layer": "layers",
    "set": "settings",
    "set-a": "settings_a",
    "set-b": "settings_b",
    "pair": "pairs",
    "case": "cases",
    "load-inputs": "given",
}
"""The keyword of an option that has another name in Python."""

_LISTS = ("layer", "set", "set-a", "set-b", "pair", "case", "accept")


class Flag(Remedy):
    """An option of a command, with or without its value: `--force`, `force=True`; `--dtype float32`, `dtype="float32"`.

    name   as on the command line, without dashes
    value  what to give, where the text names it
    """

    def __init__(self, name: str, value: object = None) -> None:
        self.name, self.value = name, None if value is None else str(value)

    @property
    def flags(self) -> str:
        """Return `--name` or `--name value`."""
        return f"--{self.name}" if self.value is None else f"--{self.name} {command_line([self.value])}"

    @property
    def keywords(self) -> str:
        """Return the keyword, with its value or with how it begins."""
        if self.name == "layout":
            return "rnnconvert.add_layouts" + ("" if self.value is None else f"({self.value!r})")
        if self.name in _SWITCHES:
            return _SWITCHES[self.name]
        keyword, several = _KEYWORDS.get(self.name, self.name.replace("-", "_")), self.name in _LISTS
        if self.value is None:
            return f"{keyword}=[...]" if several else f"{keyword}="
        return f"{keyword}=[{self.value!r}]" if several else f"{keyword}={self.value!r}"


class Together(Remedy):
    """Several remedies of which none helps alone: `--set stack=split --layer encoder[0]`, `stack="split", layers=["encoder[0]"]`."""

    def __init__(self, *remedies: Remedy) -> None:
        self.remedies = remedies

    @property
    def flags(self) -> str:
        """Return the options, one after the other."""
        return " ".join(remedy.flags for remedy in self.remedies)

    @property
    def keywords(self) -> str:
        """Return the keywords of one call."""
        return ", ".join(remedy.keywords for remedy in self.remedies)


class InPart(Remedy):
    """Leave to a later hand what cannot be written: `--partial`, `partial=True`."""

    flags, keywords = "--partial", "partial=True"


class FlattenAs(Remedy):
    """How the side of a transplant is flattened: `--flatten target=channels_first`, `flatten={"target": "channels_first"}`."""

    def __init__(self, **sides: str) -> None:
        self.sides = sides

    @property
    def flags(self) -> str:
        """Return an option for each side."""
        return " ".join(f"--flatten {side}={order}" for side, order in self.sides.items())

    @property
    def keywords(self) -> str:
        """Return the one keyword for all sides."""
        return f"flatten={self.sides}"


class FixAt(Remedy):
    """The value at which an input is fixed: `--fix sr=16000`, `fix={"sr": 16000}`; None for one that the text does not name."""

    def __init__(self, name: str, value: object = None) -> None:
        self.name, self.value = name, "..." if value is None else value

    @property
    def flags(self) -> str:
        """Return `--fix NAME=VALUE`."""
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        return f"--fix {command_line([f'{self.name}={value}'])}"

    @property
    def keywords(self) -> str:
        """Return the entry of a dictionary."""
        return f"fix={{{self.name!r}: {self.value}}}"


def as_word(path: str) -> str:
    """Return a path as no command takes it for an option, or for stdin."""
    return f"./{path}" if path.startswith("-") else path


class Command(Remedy):
    """A command and the function that does the same: `rnnconvert diagnose a.pt --io s.npz`, `rnnconvert.diagnose("a.pt", io="s.npz")`.

    words    what it is given, in order
    options  the options that it is given, by their names: a value, several, or True for one without
    """

    def __init__(self, name: str, *words: object, **options: object) -> None:
        self.name, self.words, self.options = name, tuple(map(str, words)), options

    @property
    def flags(self) -> str:
        """Return the line as it is typed."""
        flags = {name: f"--{name}" if len(name) > 1 else f"-{name}" for name in self.options}
        options = [flags[name] for name, value in self.options.items() if value is True]
        for name, value in self.options.items():
            values = value if isinstance(value, (list, tuple)) else [] if value is True else [value]
            options += [word for each in values for word in (flags[name], str(each))]
        return command_line(["rnnconvert", self.name, *map(as_word, self.words), *options])

    @property
    def keywords(self) -> str:
        """Return the call."""
        options = [Flag(name).keywords if value is True else Flag(name, value).keywords for name, value in self.options.items()]
        return f"rnnconvert.{_FUNCTIONS.get(self.name, self.name)}({', '.join([*map(repr, self.words), *options])})"


_FUNCTIONS = {"export": "export_model"}
"""Commands whose functions have other names in Python."""
