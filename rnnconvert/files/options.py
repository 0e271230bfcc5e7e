"""Questions of a reader or writer about what a file leaves open. A setting that nothing asks for is an error."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.errors import UsageError
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.remedies import Setting
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.conservation import Facts
from rnnconvert.files.ledger import Ledger
from rnnconvert.files.questions import Question
from rnnconvert.files.settings import Place, Settings, is_finite

BACKWARDS = re.compile(r"(?<![a-z])(?:backwards?|bwd?|reversed?)(?![a-z])", re.I)
"""Names of a layer, or of a scope around it, that reads from the end."""


class Options:
    """The source of a reader's or writer's answers: the caller's settings, in the scope of one layer or direction. The ledger notes what
    was asked.

    Raises UsageError for an unknown key, or a value that its key cannot have.
    """

    def __init__(self, values: Mapping[str, object] | None = None, settings: Iterable[str] = ()) -> None:
        self.settings = Settings(values, settings)
        self.ledger = Ledger(self.settings)
        self._layer = ""
        self._direction = 0, 0

    def _place(self, key: str, layer: str) -> Place | None:
        return self.settings.place(key, layer or self._layer)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions that nobody decided, in the order of asking."""
        return tuple(self.ledger.questions)

    def peek(self, key: str, layer: str = "") -> str | None:
        """Return the value for this layer or for all, or None, without taking it for used."""
        setting = self._place(key, layer)
        return None if setting is None else self.settings.value(setting, layer, self._direction)

    def get(self, key: str, layer: str = "") -> str | None:
        """Return the value for this layer or for all, or None; a value that is returned is used."""
        setting = self._place(key, layer)
        self.ledger.asked.setdefault(key, {}).setdefault(layer)
        if setting is None:
            return None
        value = self.settings.value(setting, layer, self._direction)
        self.ledger.used.add(setting)
        return value

    def direction(self, number: int, count: int) -> Options:
        """Return these options as seen by one direction of a layer of so many; each direction may have its own functions."""
        view = copy.copy(self)
        view._direction = number, count
        return view

    def of_layer(self, name: str) -> Options:
        """Return these options as one layer asks them that is not named in each call."""
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
        setting = self._place(key, layer)
        if setting is not None:
            self.ledger.unfit.setdefault(setting, []).append(f"{layer or 'the file itself'} {why}")

    def ask(
        self, keys: str | Sequence[str], layer: str = "", *, assumed: str, why: str, choices: Sequence[str] = (), common: bool = False
    ) -> str:
        """Return the caller's decision on a fact that the file leaves open, or the assumption, with a Question.

        keys     the options that decide it: one, or several of which the question names the first
        assumed  the value taken if nobody decides
        why      what the file lacks, in words
        choices  the values that this layer can have; by default the option's
        common   whether models of other values are common: a layer whose name says that it reads from the end may well do so

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
        if first == "go_backwards" and BACKWARDS.search(layer):
            common, why = True, f"{why}, and its name says that it does"
        question = Question(first, assumed, tuple(choices) or OPTIONS[first].choices, why, layer, common)
        self.ledger.questions.setdefault(question)
        return assumed

    def stated(self, key: str, layer: str, value: str, where: str, also: Sequence[str] = ()) -> str:
        """Return a fact that the file states, or what the caller insists on instead.

        where  what states it, in words

        Raises UsageError for another value of the caller's that does not end in an exclamation mark.
        """
        for option in (key, *also):
            setting = self._place(option, layer)
            if setting is None:
                continue
            wanted = self.settings.value(setting, layer, self._direction)
            self.ledger.used.add(setting)
            if wanted == value or _same_number(wanted, value):
                return value
            name = layer or "the file itself"
            if setting not in self.settings.insisted:
                raise UsageError(
                    f"{Setting(option, wanted)} contradicts {where}, which states {value} for {name}. Leave the option out; or, if "
                    f"the file is wrong, insist with {Setting(option, wanted + '!')}"
                )
            insistence = f"{option}={wanted} was taken as you insist; {where} states {value}"
            self.ledger.notes.append(LayerNote(layer, insistence, unnamed="the file itself"))
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
        """Return a file's statements about a layer as Facts, whose rest is examined once the file is read."""
        facts = Facts(layer, where, stated, harmless, neutral)
        self.ledger.facts.setdefault(layer, []).append(facts)
        return facts

    def true(self, key: str, layer: str = "") -> bool:
        """Return whether a yes-or-no option was set to true."""
        return self.get(key, layer) == "true"

    def number(self, key: str, default: int, layer: str = "") -> int:
        """Return a whole number that was set, or the default."""
        value = self.get(key, layer)
        return default if value is None else int(value)


def _same_number(wanted: str, stated: str) -> bool:
    """Return whether two texts are one number, or round to one in single precision, in which a graph states 0.7 as 0.699999988."""
    if not (is_finite(wanted) and is_finite(stated)):
        return False
    ours, theirs = float(wanted), float(stated)
    return ours == theirs or (not ours.is_integer() and bool(np.float32(ours) == np.float32(theirs)))
