"""The caller's decisions: `--set KEY=VALUE`, or keywords in Python, parsed.

A value may be meant for one layer: `LAYER:KEY=VALUE`. A value that contradicts what the file states is an error, unless
it ends in an exclamation mark: `KEY=VALUE!`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from rnnconvert.core.arguments import nearest, unknown
from rnnconvert.core.errors import UsageError
from rnnconvert.core.names import is_count
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.files.catalogue import OPTIONS

Place = tuple[str, str]
"""The layer that a setting is for, "" for all, and its key."""

_MEANT = {
    "format": ("from", "to"),
    "to": ("to",),
    "from_": ("from",),
    "layer": ("layer",),
    "overwrite": ("force",),
    "float_type": ("dtype",),
}
"""Words that people try first, and the flag that they mean: for "format", of a file that is read and of one that is written."""


class Settings:
    """The values that a caller gave, by layer and key, each one that its key can have.

    values    the values, as text
    insisted  where the caller insists, against what a file states

    Raises UsageError for an unknown key, or a value that its key cannot have.
    """

    def __init__(self, values: Mapping[str, object] | None = None, settings: Iterable[str] = ()) -> None:
        self.values: dict[Place, str] = {}
        self.insisted: set[Place] = set()
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
            self.insisted.add((layer, key))
        parts = _parts(value) if option.each else [value]
        if option.each and (len(parts) > 2 or not all(parts)):
            raise UsageError(f"option {key} is one function, or two as in relu,tanh, forward and backward; not {value!r}")
        if option.choices and not set(parts) <= set(option.choices):
            wrong = next(part for part in parts if part not in option.choices)
            raise UsageError(f"option {key} cannot be {value!r}. {nearest(wrong, option.choices)}")
        if option.number == "whole" and not (is_count(value) and len(value) < 10):
            raise UsageError(f"option {key} is an integer, not {value!r}")
        if option.number == "real" and value != "none" and not is_finite(value):
            raise UsageError(f"option {key} is a number, not {value!r}")
        self.values[layer, key] = value

    def layers(self) -> set[str]:
        """Return the layers that were named."""
        return {layer for layer, _ in self.values if layer}

    def place(self, key: str, layer: str) -> Place | None:
        """Return the place of the layer's own value, otherwise of the value for all layers; None if neither is set."""
        return next((place for place in ((layer, key), ("", key)) if place in self.values), None)

    def value(self, place: Place, layer: str, direction: tuple[int, int]) -> str:
        """Return a value, or that of the direction that asks: its number and how many there are.

        Raises UsageError for two values where one is asked for.
        """
        value, key = self.values[place], place[1]
        parts = _parts(value) if OPTIONS[key].each else [value]
        if len(parts) == 1:
            return value
        number, count = direction
        if count != 2:
            why = "has one direction" if count == 1 else "is read with one function for both directions"
            raise UsageError(
                f"{Setting(key, value)} names two functions, forward and backward, but {layer or 'the file itself'} {why}. "
                f"Name one, as in {Setting(key, parts[0])}"
            )
        return parts[number]


def as_settings(options: Mapping[str, object]) -> list[str]:
    """Return options of Python as settings, "KEY=VALUE"; one that is None is left out, as if it was not given."""
    return [f"{key}={text}" for key, text in _spelled(options).items()]


def _spelled(options: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items() if value is not None}


def _parts(value: str) -> list[str]:
    """Return a value for each direction; commas in parentheses are a function's own."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", value)]


def is_finite(text: str) -> bool:
    """Return whether a text is a finite number, in the digits of ASCII."""
    try:
        return text.isascii() and math.isfinite(float(text))
    except ValueError:
        return False
