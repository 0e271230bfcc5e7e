"""Names, as files and callers give them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import NAME_LENGTH


def checked_name(name: str, path: object) -> str:
    """Return a name made of the keys, places and attributes on the way to a value.

    Raises UnreadableError if it is too long: each of many values below one long key would have a copy of it.
    """
    if len(name) > NAME_LENGTH:
        raise UnreadableError(path, f"the name {name[:60]!r}... in it has {len(name):,} characters, at most {NAME_LENGTH:,} are read")
    return name


def first_twice(names: Iterable[str]) -> str | None:
    """Return the first name that was met before; None if all differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts cell_2 before cell_10."""
    parts = re.split(r"(\d{1,18})", name)
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)]
