"""Context variables that have a value for as long as a block runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def bound(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a variable a value while the block runs, and the one that it had when the block ends, however that is."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
