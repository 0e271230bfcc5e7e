"""Names, as files and callers give them."""

from __future__ import annotations

import re
from collections.abc import Iterable


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
