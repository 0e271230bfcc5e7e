"""Text for people and for files of text: names and texts from files, and numbers that JSON cannot hold."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

ON_WINDOWS = os.name == "nt"


def printable(text: str, keep: str = "") -> str:
    """Return text with everything unprintable escaped, as `repr` escapes it.

    These are control characters, line ends, marks that change the direction of writing, and characters that are not assigned.

    keep  characters that stay
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)


def abridged(text: str) -> str:
    """Return text in which a word of over 1,000 characters is cut: no person reads it, and a file may bring one of megabytes."""
    return text if len(text) <= _LONGEST else _LONG.sub(_cut, text)


_LONGEST = 1000
_LONG = re.compile(rf"\S{{{_LONGEST},}}")


def _cut(word: re.Match[str]) -> str:
    return f"{word[0][:300]}... ({len(word[0]):,} characters) ...{word[0][-100:]}"


def command_line(words: Iterable[str]) -> str:
    """Return a command as its reader's shell takes it: on Windows in double quotes, which both of its shells know."""
    return subprocess.list2cmdline(words) if ON_WINDOWS else shlex.join(words)


def json_of(document: Any, **options: Any) -> str:
    """Return a document as JSON that is safe to look at: what is not printable is escaped, letters of all languages stay.

    options  as of `json.dumps`
    """
    import json  # most output does not need it

    text = json.dumps(document, ensure_ascii=False, **options)
    if all(char.isprintable() or char == "\n" for char in text):
        return text
    # Outside of strings JSON has line ends alone.
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def called(name: str) -> str:
    """Return a layer's name for people."""
    return name or "(the module itself)"


def quoted(name: str) -> str:
    """Return a layer's name for a sentence."""
    return repr(name) if name else called(name)


def in_toml(text: str) -> str:
    """Return text as a string of TOML.

    JSON's strings are not all TOML's: they may hold a DEL, and have surrogates for what lies beyond 16 bits.
    """
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def finite(value: Any) -> Any:
    """Return a value with words in place of the numbers that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "nan"
        if value > 0:
            return "inf"
        return "-inf"
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    # A number of numpy's, told without numpy, which a command that only prints need not import.
    return finite(value.item()) if hasattr(value, "dtype") and not getattr(value, "shape", ()) else value


def listed(names: Iterable[str]) -> str:
    """Return names as people read them, with commas between."""
    return ", ".join(map(quoted, names))


def either(words: Iterable[str]) -> str:
    """Return words as alternatives: "a", "a or b", "a, b or c"."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
