"""What a command is given, in one value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Options = TypeVar("Options", bound=tuple[Any, ...])


def in_one(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Return a decorator of commands: what the command line gives comes in one value of a class with a field an option.

    kind  a NamedTuple; a field `others` of it has the options that have no field of their own
    """
    names = set(kind._fields)  # type: ignore[attr-defined]

    def decorate(function: Callable[[Options], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**options: Any) -> None:
            arguments = {name: value for name, value in options.items() if name in names}
            if "others" in names:
                arguments["others"] = {name: value for name, value in options.items() if name not in names}
            function(kind(**arguments))

        return command

    return decorate
