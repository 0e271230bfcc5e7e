"""Names, as files and callers give them."""

from __future__ import annotations

from collections.abc import Iterable


def first_twice(names: Iterable[str]) -> str | None:
    """Return the first name that was met before; None if all differ."""
    met: set[str] = set()
    for name in names:
        if name in met:
            return name
        met.add(name)
    return None
