"""What a caller may decide where a file leaves it open: `--set KEY=VALUE`, or keywords in Python.

A value may be meant for one layer: `LAYER:KEY=VALUE`. A value that contradicts what the file states is an error, unless
it ends in an exclamation mark: `KEY=VALUE!`. A value that nothing asks for is an error, too.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnnconvert.core.arguments import nearest, unknown
from rnnconvert.core.errors import AssumptionWarning, UsageError
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Unconvertible
from rnnconvert.files.catalogue import OPTIONS, asked_by
from rnnconvert.files.conservation import Facts
from rnnconvert.language import registry


@dataclass(frozen=True)
class Question:
    """A fact that a file leaves open, and what is taken until the caller decides it.

    option   the option that decides it: `--set OPTION=VALUE`, or the keyword of `load`
    assumed  the value taken
    choices  the values it may have; empty where any text or number will do
    why      what the file lacks, and where it could be found
    layer    the layer in question, or "" for all
    common   whether models of other values are common, too: then nothing is converted before somebody decides
    """

    option: str
    assumed: str
    choices: tuple[str, ...]
    why: str
    layer: str = ""
    common: bool = False


def warn(questions: Iterable[Question], otherwise: str = "", stacklevel: int = 3) -> None:
    """Warn of each fact that arrays in memory leave open, and say what is assumed.

    otherwise   another way to settle all of them, in words
    stacklevel  how far above its own caller the user's code is: what the package hands out checks the arguments first
    """
    for asked in questions:
        choices = f"one of {', '.join(asked.choices)}" if asked.choices else "its value"
        warnings.warn(
            f"{asked.layer or 'the arrays'}: {asked.option}={asked.assumed} is assumed; {asked.why}. Give {asked.option}=... ({choices})"
            + otherwise,
            AssumptionWarning,
            stacklevel=stacklevel + 1,
        )


_MEANT = {
    "format": ("from", "to"),
    "to": ("to",),
    "from_": ("from",),
    "layer": ("layer",),
    "overwrite": ("force",),
    "float_type": ("dtype",),
}
"""What people try first, and the flag that they mean: for "format", of a file that is read and of one that is written."""


def as_settings(options: Mapping[str, object]) -> list[str]:
    """Return options of Python as settings, "KEY=VALUE"; one that is None is left out, as if it was not given."""
    return [f"{key}={text}" for key, text in _spelled(options).items()]


def _spelled(options: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items() if value is not None}


class Options:
    """What a caller decided, and a ledger of what was asked: the values used, the questions left open.

    Raises UsageError for an unknown key, or a value that its key cannot have.
    """

    def __init__(self, values: Mapping[str, object] | None = None, settings: Iterable[str] = ()) -> None:
        self._values: dict[tuple[str, str], str] = {}
        self._insisted: set[tuple[str, str]] = set()
        self._used: set[tuple[str, str]] = set()
        self._asked: dict[str, dict[str, None]] = {}
        self._questions: dict[Question, None] = {}
        self._notes: list[str] = []
        self._facts: dict[str, list[Facts]] = {}
        self._place: tuple[int, int] | None = None
        self._layer = ""
        self._unfit: dict[tuple[str, str], list[str]] = {}
        for key, text in _spelled(values or {}).items():
            self._add("", key, text)
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise UsageError(f"{Flag('set', setting)}: expected KEY=VALUE, as in {Setting('nonlinearity', 'relu')}")
            layer, _, name = key.rpartition(":")
            self._add(layer, name, value)

    def _add(self, layer: str, key: str, value: str) -> None:
        option = OPTIONS.get(key)
        if option is None:
            if key in _MEANT:
                raise UsageError(f"Unknown option {key!r}. Did you mean {' or '.join(str(Flag(name)) for name in _MEANT[key])}?")
            raise unknown("option", key, OPTIONS)
        if option.side != "write" and value.endswith("!"):
            value = value[:-1]
            self._insisted.add((layer, key))
        parts = _parts(value) if option.each else [value]
        if option.each and (len(parts) > 2 or not all(parts)):
            raise UsageError(f"option {key} is one function, or two as in relu,tanh, forward and backward; not {value!r}")
        if option.choices and not set(parts) <= set(option.choices):
            wrong = next(part for part in parts if part not in option.choices)
            raise UsageError(f"option {key} cannot be {value!r}. {nearest(wrong, option.choices)}")
        if option.number == "whole" and not (value.isdecimal() and len(value) < 10):
            raise UsageError(f"option {key} is an integer, not {value!r}")
        if option.number == "real" and value != "none" and not _finite(value):
            raise UsageError(f"option {key} is a number, not {value!r}")
        self._values[layer, key] = value

    @property
    def questions(self) -> tuple[Question, ...]:
        """What was asked and not decided, in the order of asking."""
        return tuple(self._questions)

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the caller overruled a file, in words."""
        return tuple(self._notes)

    def peek(self, key: str, layer: str = "") -> str | None:
        """Return the value for this layer or for all, or None, without taking it for used."""
        setting = self._setting(key, layer)
        return None if setting is None else self._value(setting, layer)

    def get(self, key: str, layer: str = "") -> str | None:
        """Return the value for this layer or for all, or None; a value that is returned is used."""
        setting = self._setting(key, layer)
        self._note_asking(key, layer)
        if setting is None:
            return None
        value = self._value(setting, layer)
        self._used.add(setting)
        return value

    def direction(self, number: int, count: int) -> Options:
        """Return this ledger as one direction of a layer of so many asks it, where each may have functions of its own."""
        view = copy.copy(self)
        view._place = number, count
        return view

    def of_layer(self, name: str) -> Options:
        """Return this ledger as one layer asks it that is not named in each call."""
        view = copy.copy(self)
        view._layer = name
        return view

    def choose(self, key: str, choices: Sequence[str], default: str = "", layer: str = "") -> str:
        """Return the value for this layer or for all, or the usual one. Raises UsageError for any other value."""
        value = self.get(key, layer)
        if value is not None and value not in choices:
            raise UsageError(f"option {key} cannot be {value!r} here. Choose one of: {', '.join(choices)}")
        return default if value is None else value

    def unfit(self, key: str, layer: str, why: str) -> None:
        """Note why a setting cannot decide anything about a layer, for the error if it decides nothing at all."""
        setting = self._setting(key, layer)
        if setting is not None:
            self._unfit.setdefault(setting, []).append(f"{layer or 'the file itself'} {why}")

    def ask(
        self, keys: str | Sequence[str], layer: str = "", *, assumed: str, why: str, choices: Sequence[str] = (), common: bool = False
    ) -> str:
        """Return what the caller decided of a fact that the file leaves open, or what is assumed, with a Question.

        keys     the options that decide it: one, or several of which the question names the first
        assumed  the value taken if nobody decides
        why      what the file lacks, in words
        choices  the values that this layer can have; those of the option if there are none
        common   whether models of other values are common

        Raises UsageError for a value that is not among the choices.
        """
        first, *others = [keys] if isinstance(keys, str) else keys
        for option in (first, *others):
            value = self.get(option, layer)
            if value is None:
                continue
            if choices and value not in choices:
                where = layer or "the file itself"
                raise UsageError(f"{where}: option {option} cannot be {value!r} here. Choose one of: {', '.join(choices)}")
            return value
        question = Question(first, assumed, tuple(choices) or OPTIONS[first].choices, why, layer, common)
        self._questions.setdefault(question)
        return assumed

    def stated(self, key: str, layer: str, value: str, where: str, also: Sequence[str] = ()) -> str:
        """Return a fact that the file states, or what the caller insists on instead.

        where  what states it, in words

        Raises UsageError for another value of the caller's that does not end in an exclamation mark.
        """
        for option in (key, *also):
            setting = self._setting(option, layer)
            if setting is None:
                continue
            wanted = self._value(setting, layer)
            self._used.add(setting)
            if wanted == value or (_finite(wanted) and _finite(value) and float(wanted) == float(value)):
                return value
            name = layer or "the file itself"
            if setting not in self._insisted:
                raise UsageError(
                    f"{Setting(option, wanted)} contradicts {where}, which states {value} for {name}. Leave the option out; or, if "
                    f"the file is wrong, insist with {Setting(option, wanted + '!')}"
                )
            insistence = f"{option}={wanted} was taken as you insist; {where} states {value}"
            self._notes.append(LayerNote(layer, insistence, unnamed="the file itself"))
            return wanted
        return value

    def facts(
        self,
        layer: str,
        where: str,
        stated: Mapping[str, Any],
        *,
        harmless: Collection[str] = (),
        neutral: Mapping[str, Collection[object]] | None = None,
    ) -> Facts:
        """Return what a file states about a layer as Facts, whose rest is examined once the file is read."""
        facts = Facts(layer, where, stated, harmless, neutral)
        self._facts.setdefault(layer, []).append(facts)
        return facts

    def unaccounted(self, layer: str) -> tuple[Unconvertible, ...]:
        """Return what a file states about a layer and nothing took."""
        return tuple(feature for facts in self._facts.get(layer, ()) for feature in facts.unconvertible())

    def _setting(self, key: str, layer: str) -> tuple[str, str] | None:
        return next((place for place in ((layer or self._layer, key), ("", key)) if place in self._values), None)

    def _value(self, setting: tuple[str, str], layer: str) -> str:
        """Return a value, or that of the direction that asks. Raises UsageError for two values where one is asked for."""
        value, key = self._values[setting], setting[1]
        parts = _parts(value) if OPTIONS[key].each else [value]
        if len(parts) == 1:
            return value
        number, count = self._place or (0, 0)
        if count != 2:
            why = "has one direction" if count == 1 else "is read with one function for both directions"
            raise UsageError(
                f"{Setting(key, value)} names two functions, forward and backward, but {layer or 'the file itself'} {why}. "
                f"Name one, as in {Setting(key, parts[0])}"
            )
        return parts[number]

    def _note_asking(self, key: str, layer: str) -> None:
        self._asked.setdefault(key, {}).setdefault(layer)

    def true(self, key: str, layer: str = "") -> bool:
        """Return whether a yes-or-no option was set to true."""
        return self.get(key, layer) == "true"

    def number(self, key: str, default: int, layer: str = "") -> int:
        """Return a whole number that was set, or the default."""
        value = self.get(key, layer)
        return default if value is None else int(value)

    def asked(self) -> list[str]:
        """Return the options that a reader asked for so far, each once."""
        return list(self._asked)

    def layers(self) -> set[str]:
        """Return the layers that were named."""
        return {layer for layer, _ in self._values if layer}

    def used(self) -> list[str]:
        """Return the settings that decided something so far, as the command line spells them."""
        return [
            f"{layer}:{key}={value}".removeprefix(":") + ("!" if (layer, key) in self._insisted else "")
            for (layer, key), value in self._values.items()
            if (layer, key) in self._used
        ]

    def unused(self, *sides: str) -> list[tuple[str, str]]:
        """Return the layers and keys of settings that nothing asked for, among the options of these sides; of all if
        none is named.
        """
        return [setting for setting in self._values if setting not in self._used and (not sides or OPTIONS[setting[1]].side in sides)]

    def check_used(self, what: str, *sides: str, but: Container[tuple[str, str]] = ()) -> None:
        """Raise UsageError for a setting that nothing asked for: it would decide nothing, and hide a mistake.

        what    the file, in words
        sides   the sides of the options to look at; all if none is named
        but     layers and keys that are used elsewhere
        """
        for layer, key in self.unused(*sides):
            if (layer, key) in but:
                continue
            setting = str(Setting(key, self._values[layer, key], layer=layer))
            asked = [name or "the file itself" for name in self._asked.get(key, {})]
            if (layer, key) in self._unfit:
                raise UsageError(f"{setting} decides nothing in {what}: {'; '.join(self._unfit[layer, key])}. Leave it out.")
            if asked:
                hint = f"It would decide something about {', '.join(map(repr, asked))}."
            elif OPTIONS[key].side == "write":
                hint = f"It is for files that are written, but the one written here does not ask for it{_asking(key)}."
            else:
                open_facts = sorted({question.option for question in self._questions})
                hint = f"This file leaves open: {', '.join(open_facts)}." if open_facts else "This file leaves nothing open."
            raise UsageError(f"{setting} decides nothing in {what}: no layer asks for it. {hint} Leave it out.")


def assumptions(questions: Iterable[Question]) -> Iterator[str]:
    """Yield what was assumed where files are silent, one line for all the layers that share it, with the option that
    decides.
    """
    layers: dict[tuple[str, str, str, str], list[str]] = {}
    for question in questions:
        key = (question.option, question.assumed, question.why, "|".join(question.choices) or "...")
        layers.setdefault(key, []).append(question.layer or "every layer")
    for (option, assumed, why, choices), names in layers.items():
        yield f"{option}={assumed} for {', '.join(names)}: {why} ({Setting(option, choices)})"


def _asking(key: str) -> str:
    """Return the formats that ask for an option, for the end of a sentence."""
    formats = [name for name in registry.systems() if key in asked_by(name)]
    return f" ({', '.join(formats)} {'do' if len(formats) > 1 else 'does'})" if formats else ""


def _parts(value: str) -> list[str]:
    """Return a value for each direction; commas in parentheses are a function's own."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", value)]


def _finite(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
