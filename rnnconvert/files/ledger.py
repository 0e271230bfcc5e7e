"""The ledger of a file that is read or written: what was asked of the caller's settings, and what became of each."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from rnnconvert.core.errors import UnusedSettingError
from rnnconvert.core.remedies import Command, Flag, Setting
from rnnconvert.core.weights import Unconvertible
from rnnconvert.files.catalogue import OPTIONS, asked_by
from rnnconvert.files.conservation import Facts
from rnnconvert.files.questions import Question
from rnnconvert.files.settings import Place, Settings
from rnnconvert.language import registry


@dataclass
class Ledger:
    """The record of what was asked so far.

    settings   the caller's decisions
    used       where settings decided something
    asked      the layers that asked, by option, in order
    questions  what was asked and not decided, in the order of asking
    notes      the facts of the file that the caller overruled, in words
    facts      the file's statements, by layer
    unfit      why a setting cannot decide anything about a layer
    """

    settings: Settings
    used: set[Place] = field(default_factory=set)
    asked: dict[str, dict[str, None]] = field(default_factory=dict)
    questions: dict[Question, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, list[Facts]] = field(default_factory=dict)
    unfit: dict[Place, list[str]] = field(default_factory=dict)

    def unaccounted(self, layer: str) -> tuple[Unconvertible, ...]:
        """Return a file's statements about a layer that nothing took."""
        return tuple(feature for facts in self.facts.get(layer, ()) for feature in facts.unconvertible())

    def decisive(self) -> list[str]:
        """Return the settings that decided something so far, as the command line spells them."""
        values, insisted = self.settings.values, self.settings.insisted
        return [
            f"{layer}:{key}={value}".removeprefix(":") + ("!" if (layer, key) in insisted else "")
            for (layer, key), value in values.items()
            if (layer, key) in self.used
        ]

    def unused(self, *sides: str) -> list[Place]:
        """Return where settings are that nothing asked for, among the options of these sides; of all if none is named."""
        return [place for place in self.settings.values if place not in self.used and (not sides or OPTIONS[place[1]].side in sides)]

    def check_used(self, what: str, *sides: str, but: Container[tuple[str, str]] = ()) -> None:
        """Raise UnusedSettingError for a setting that nothing asked for: it would decide nothing, and hide a mistake.

        what    the file, in words
        sides   the sides of the options to look at; all if none is named
        but     layers and keys that are used elsewhere
        """
        for layer, key in self.unused(*sides):
            if (layer, key) in but:
                continue
            value = self.settings.values[layer, key]
            setting = str(Setting(key, value, layer=layer)) + (f" ({Flag('stateful')})" if (key, value) == ("states", "stream") else "")
            asked = [name or "the file itself" for name in self.asked.get(key, {})]
            if (layer, key) in self.unfit:
                why = "; ".join(self.unfit[layer, key])
                raise UnusedSettingError((layer, key), f"{setting} decides nothing in {what}: {why}. Leave it out.")
            if asked:
                hint = f"It would decide something about {', '.join(map(repr, asked))}."
            elif OPTIONS[key].side == "write":
                hint = f"It decides how a file is written, and nothing asks for it here{_asking(key)}."
            else:
                open_facts = sorted({question.option for question in self.questions})
                hint = f"This file leaves open: {', '.join(open_facts)}." if open_facts else "This file leaves nothing open."
            if key == "states":
                hint += f" Whole models whose states go in and out: {Command('export', 'MODEL', 'TARGET', stateful=True)}."
            if key == "dtype":
                hint += f" The type of the numbers that are written is {Flag('dtype', value)}."
            raise UnusedSettingError((layer, key), f"{setting} decides nothing in {what}: no layer asks for it. {hint} Leave it out.")


def _asking(key: str) -> str:
    """Return the formats that ask for an option, for the end of a sentence."""
    formats = [name for name in registry.systems() if key in asked_by(name)]
    return f" ({', '.join(formats)} {'do' if len(formats) > 1 else 'does'})" if formats else ""
