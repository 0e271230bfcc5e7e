"""Names, as files and callers give them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import NAME_LENGTH

T = TypeVar("T")


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


def add(values: dict[str, T], name: str, value: T, path: object) -> None:
    """Add a value of a file under its name. Raises UnreadableError if another has that name: neither replaces the other."""
    if name in values:
        raise UnreadableError(
            path,
            f"two things in it have the name {name!r}: which of them is meant is not known",
            "Rename or remove one of the two in the file",
        )
    values[name] = value


def named(pairs: Iterable[tuple[str, T]], path: object) -> dict[str, T]:
    """Return the values of a file by their names. Raises UnreadableError if two have one name."""
    values: dict[str, T] = {}
    for name, value in pairs:
        add(values, name, value, path)
    return values


def renamed(values: Mapping[str, T], new_name: Callable[[str], str], path: object) -> dict[str, T]:
    """Return the values of a file under other names. Raises UnreadableError if two would have one name: neither replaces the other."""
    return dict(zip(distinct(values, new_name, path), values.values(), strict=True))


def distinct(names: Iterable[str], new_name: Callable[[str], str], path: object) -> dict[str, str]:
    """Return the names of a file by their new names, in order. Raises UnreadableError if two have one new name."""
    old_names: dict[str, str] = {}
    for name in names:
        new = new_name(name)
        if new in old_names:
            raise UnreadableError(
                path,
                f"{old_names[new]!r} and {name!r} in it are both read as {new!r}: which of them is meant is not known",
                "Rename or remove one of the two in the file",
            )
        old_names[new] = name
    return old_names


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts cell_2 before cell_10."""
    parts = re.split(r"(\d{1,18})", name)
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)]
