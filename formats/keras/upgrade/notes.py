"""The notes of an upgrade on what it changes and leaves behind, and its refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.upgrade import tables as tables

TARGET = "Keras 3"


_LONGEST = 120


@dataclass
class Notes:
    """The report of an upgrade, for people.

    changes  the changes by layer, in words
    left     parts that concern only training and were left out
    notes    notes on how the file was read
    """

    changes: dict[str, list[str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def change(self, layer: str, text: str) -> None:
        """Note a change of a layer once."""
        texts = self.changes.setdefault(layer, [])
        if text not in texts:
            texts.append(text)

    def leave(self, text: str) -> None:
        """Note once what is left out."""
        if text not in self.left:
            self.left.append(text)


def refuse(layer: str, feature: str, reason: str, remedy: str = "") -> RefusedError:
    """Return the error for what Keras 3 cannot hold."""
    return RefusedError(feature, TARGET, reason, remedy, layer)


@dataclass(frozen=True)
class Translated:
    """A configuration of Keras 3.

    config    its keys
    softened  whether the old hard_sigmoid is on its outputs
    """

    config: dict[str, Any]
    softened: bool


def quoted(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def spelled(name: str, reserved: Iterable[str] = ()) -> str:
    """Return a layer's name as Keras 3 permits it: without slashes, and not taken."""
    plain = name.replace("/", "_") or "layer"
    candidate, number = plain, 0
    while candidate in reserved:
        number += 1
        candidate = f"{plain}_{number}"
    return candidate
