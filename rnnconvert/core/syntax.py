"""Text of Python as trees, which nothing runs."""

from __future__ import annotations

import ast
import contextlib
from typing import Any

_TRIES = 8


def tree_of(text: str, mode: str = "exec") -> Any:
    """Parse text, as `ast.parse` does; once more where CPython 3.11 takes what another thread parses for this one's (gh-106905)."""
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return ast.parse(text, mode=mode)
    return ast.parse(text, mode=mode)
