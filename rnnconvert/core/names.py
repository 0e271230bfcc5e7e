"""Names, as files and callers give them; things by their names, where one that does not exist is an error that lists those that do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from rnnconvert.core.errors import NoSuchNameError, UnreadableError
from rnnconvert.core.limits import NAME_LENGTH
from rnnconvert.core.printable import called

T = TypeVar("T")


class Named(dict[str, T]):
    """A dictionary by name whose errors name what exists.

    A module that is itself a layer has the name "", as PyTorch has it; people read and may write `(the module itself)`.

    what  what a name stands for, as in "layer"
    """

    def __init__(self, what: str, *entries: Any) -> None:
        super().__init__(*entries)
        self.what = what

    def __missing__(self, name: object) -> T:
        from rnnconvert.core.arguments import nearest  # for errors alone

        if name == called("") and "" in self:
            return self[""]
        if not self:
            raise NoSuchNameError(f"there is no {self.what} {name!r}, and no other {self.what}")
        raise NoSuchNameError(f"there is no {self.what} {name!r}. {nearest(name, map(called, self))}")

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (name == called("") and super().__contains__(""))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of this name, or the default."""
        return self[name] if name in self else default  # noqa: SIM401  # this is `get`

    def __repr__(self) -> str:
        return repr({called(name): value for name, value in self.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return Named, (self.what, dict(self))


def is_count(text: str) -> bool:
    """Return whether a text is a whole number as files and commands write one: in the digits of ASCII, few enough for an array's length."""
    return text.isascii() and text.isdecimal() and len(text) < 19


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
