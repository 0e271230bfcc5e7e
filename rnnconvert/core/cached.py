"""Values of an object that are computed once, when they are first asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class cached_property(functools.cached_property[_Value]):  # noqa: TID251  (it takes the place of that of functools)
    """A property that is computed once; two threads that ask for it at the same time may both compute it.

    Before Python 3.12 that of functools has a lock for all objects of the class. In a copy of the process (fork) it stays
    locked for ever if another thread held it.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        super().__init__(compute)
        self.lock = nullcontext()
