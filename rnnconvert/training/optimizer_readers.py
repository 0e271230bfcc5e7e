"""One module a framework: its optimizers, read into the one form and filled from it.

A module here has

    NAME                        the format's name
    TAKES                       what live objects it takes, in words
    takes(value)                whether a live object is this framework's optimizer or its state
    of_live(value, model, told) the object as an OptimizerState
    of_file(checkpoint, model, told)  what a file keeps of an optimizer, or None
    fill(value, model, state, frozen)  the object with another state; arrays in `frozen` are held where they are
    spelled(word, value)        a hyperparameter as the framework writes it
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any, Protocol

from rnnconvert.core.errors import UsageError
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language import registry
from rnnconvert.models.model import Model
from rnnconvert.training.state import CallerFacts, OptimizerState


class Optimizers(Protocol):
    """A framework's optimizers: see the module."""

    NAME: str
    TAKES: str

    def takes(self, value: Any) -> bool:
        """Return whether a live object is an optimizer of this framework, or its state."""
        ...

    def of_live(self, value: Any, model: Model, facts: CallerFacts) -> OptimizerState:
        """Return a live object's state. Raises UsageError if it is unknown, or does not fit the model. Raises
        UsageError for one that is unknown, or does not fit the model.
        """
        ...

    def of_file(self, checkpoint: Checkpoint, model: Model, facts: CallerFacts) -> OptimizerState | None:
        """Return the state of an optimizer in a file, or None. Raises UsageError for one that is unknown or does not fit."""
        ...

    def fill(self, value: Any, model: Model, state: OptimizerState, frozen: Collection[str]) -> Any:
        """Give a live object another state, all of it or none, and return it.

        frozen  arrays that are held where they are, by a learning rate of zero
        """
        ...

    def spelled(self, word: str, value: Any) -> str:
        """Return a hyperparameter as a user of the framework writes it."""
        ...


@functools.cache
def optimizers() -> dict[str, Optimizers]:
    """Return every framework's optimizers by its name, found by looking."""
    return registry.named("optimizer")


def of_object(value: Any) -> Optimizers:
    """Return the framework whose optimizer an object is. Raises UsageError for an unknown one."""
    for reader in optimizers().values():
        if reader.takes(value):
            return reader
    raise UsageError(
        f"a {type(value).__module__}.{type(value).__qualname__} is not a known optimizer. Hand in "
        + ", ".join((*(candidate.TAKES for candidate in optimizers().values()), "or a path"))
    )


def plain(value: Any) -> Any:
    """Return a number in a tensor or an array as a Python number; anything else unchanged."""
    item = getattr(value, "item", None)
    return item() if callable(item) else value
