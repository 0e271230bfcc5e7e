"""What goes to people and into files of text: names and texts from files, and numbers that JSON cannot hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def printable(text: str, keep: str = "") -> str:
    """Return text with everything unprintable escaped, as `repr` escapes it.

    These are control characters, line ends, marks that change the direction of writing, and characters that are not
    assigned.

    keep  characters that stay
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)


def called(name: str) -> str:
    """Return a layer's name for people."""
    return name or "(the module itself)"


def quoted(name: str) -> str:
    """Return a layer's name for a sentence."""
    return repr(name) if name else "the layer without a name"


def in_toml(text: str) -> str:
    """Return text as a string of TOML.

    JSON's strings are not all TOML's: they may hold a DEL, and have surrogates for what lies beyond 16 bits.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def finite(value: Any) -> Any:
    """Return a value with words in place of the numbers that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    # A number of numpy's, told without numpy, which a command that only prints need not import.
    return finite(value.item()) if hasattr(value, "dtype") and not getattr(value, "shape", ()) else value
