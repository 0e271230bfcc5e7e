"""Names of a file as identifiers of Python: the one place through which text of a file enters code."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable

_LONGEST = 48
RESERVED = frozenset({"self", "super", "print", "type", "id", "input", "len", "range", "x", "forward", "call", "load", "main", "training"})
"""Names that a written file needs for itself."""


def identifier(name: str, default: str = "layer") -> str:
    """Return a name as an identifier in lower case with underscores: letters, digits and _ of ASCII alone.

    default  what stands for a name without any of them
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", plain)
    word = re.sub(r"[^0-9a-z]+", "_", split.lower()).strip("_")[:_LONGEST].rstrip("_")
    if not word:
        return default
    return f"{default}_{word}" if word[0].isdigit() else f"{word}_" if keyword.iskeyword(word) or word in RESERVED else word


def class_name(name: str, default: str = "Model") -> str:
    """Return a name as that of a class: CharModel for char_model."""
    word = "".join(part[:1].upper() + part[1:] for part in identifier(name, default).split("_"))
    return word if word.isidentifier() and not keyword.iskeyword(word) else default


class Names:
    """The names that are taken in one scope of a written file."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.names = {*reserved, *keyword.kwlist}

    def new(self, wanted: str) -> str:
        """Return a free name: the wanted one, or with a number behind it."""
        name, number = wanted, 2
        while name in self.names:
            name, number = f"{wanted}_{number}", number + 1
        self.names.add(name)
        return name

    def free(self, name: str) -> None:
        """Let a name be taken again."""
        self.names.discard(name)


def comment(text: str) -> str:
    """Return text of a file as it may stand in a comment or a docstring: one line of printable ASCII, without quotes or backslashes."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '\\"' else "?" for c in text)
    return re.sub(r"\s+", " ", plain)[:200]
