"""Refusals of targets that try which axes of a model's inputs are the batch and the time."""

from __future__ import annotations

from rnnconvert.core.errors import RefusedError


class OtherAxesError(RefusedError):
    """A refusal that may not hold where other axes of the inputs are the batch and the time."""


def likelier(first: RefusedError | None, error: RefusedError) -> RefusedError:
    """Return the refusal to raise where every choice of axes is refused: the first that does not depend on the choice, if there is one."""
    return error if first is None or (isinstance(first, OtherAxesError) and not isinstance(error, OtherAxesError)) else first
