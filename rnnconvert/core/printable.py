"""Text from a file, before it goes to a terminal or into a text file."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Return text with everything unprintable escaped, as `repr` escapes it.

    These are control characters, line ends, marks that change the direction of writing, and characters that are not
    assigned.

    keep  characters that stay
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)
