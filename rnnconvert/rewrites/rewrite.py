"""The form of a rewrite: its mathematics, when it applies, and how it is applied.

A rewrite replaces a cell by another that computes the same function. The condition for this is part of the rewrite, and written nowhere
else: other code asks `applies`, and `apply` asks it, too. A rewrite is bit-exact where it only moves, drops or adds zeros and signs, so
that nothing is rounded; otherwise it is exact in real numbers, and rounds like any arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import numpy as np

from rnnconvert.core.claims import exactness

Subject = TypeVar("Subject")
Result = TypeVar("Result")
P = ParamSpec("P")


@dataclass(frozen=True)
class Obstacle:
    """Why a rewrite does not apply: the words of a refusal, without its target.

    feature  what stands in the way, in a few words
    reason   the equation that differs and the value that stands in the way
    remedy   what the user can do instead
    """

    feature: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.feature}: {self.reason}"


@dataclass(frozen=True)
class Rewrite(Generic[Subject, P, Result]):
    """A rewrite of a direction, of a stack or of several stacks.

    name         what reports call it
    mathematics  why the function stays the same
    bit_exact    whether the stored numbers are the source's own, or zeros, or their negatives
    needs        what must hold for it to apply, in words
    obstacle     why it does not apply; None where it does, or where there is nothing to rewrite
    change       what it makes; an input with nothing to rewrite is returned unchanged
    rounds       whether it rounds in this case, for a rewrite that depends on the numbers
    """

    name: str
    mathematics: str
    bit_exact: bool
    needs: str
    obstacle: Callable[Concatenate[Subject, P], Obstacle | None]
    change: Callable[Concatenate[Subject, P], Result]
    rounds: Callable[Concatenate[Subject, P], bool] | None = None

    def applies(self, subject: Subject, *args: P.args, **kwargs: P.kwargs) -> Obstacle | None:
        """Return None if the rewrite keeps the function, or the reason why it would not."""
        return self.obstacle(subject, *args, **kwargs)

    def apply(self, subject: Subject, *args: P.args, **kwargs: P.kwargs) -> Result:
        """Apply the rewrite. Raises ValueError with the obstacle where the rewrite does not apply."""
        obstacle = self.applies(subject, *args, **kwargs)
        if obstacle is not None:
            raise ValueError(f"{self.name} does not apply: {obstacle}")
        return self.change(subject, *args, **kwargs)

    def exact(self, subject: Subject, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Return whether nothing is rounded in this case."""
        return self.bit_exact if self.rounds is None else not self.rounds(subject, *args, **kwargs)


def always(subject: Any, *args: Any, **kwargs: Any) -> None:
    """Return None, for a rewrite that applies to everything."""


@dataclass(frozen=True)
class Step:
    """A rewrite that was applied.

    rewrite  its name
    layer    the layer it was applied to
    detail   what was done, in words
    exact    whether nothing was rounded
    """

    rewrite: str
    layer: str
    detail: str
    exact: bool

    def __str__(self) -> str:
        where = f"{self.layer}: " if self.layer else ""
        return f"{where}{self.detail} ({exactness([self.exact])})"


def largest(array: Any) -> tuple[float, tuple[int, ...]]:
    """Return the value of largest magnitude and its index, for a refusal."""
    values = np.asarray(array).astype(np.float64)
    index = np.unravel_index(int(np.argmax(np.abs(np.nan_to_num(values, nan=np.inf)))), values.shape)
    return float(values[index]), tuple(int(i) for i in index)
