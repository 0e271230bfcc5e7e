"""When a search has to end: the clock is read before every step of every computation, since one of them may outlast the whole search."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

clock = time.monotonic
"""The clock of a search."""


class OutOfTimeError(Exception):
    """The time of a search is up."""


@dataclass(frozen=True)
class Deadline:
    """A moment of `clock`, in seconds."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the moment so many seconds from now."""
        return cls(clock() + seconds)

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return clock() > self.at

    def check(self) -> None:
        """Raise OutOfTimeError once it is over."""
        if self.passed:
            raise OutOfTimeError


NEVER = Deadline(math.inf)
