"""One module a framework: a whole live model run on inputs, with what each recurrent layer gives on the way.

A module here has

    NAME                              the format's name
    open_file(path)                   the live model of a file, as Loaded, or a UsageError that says why a file is not enough
    run(live, inputs, units, before)  what the model gives, and its recurrent layers; stateful layers begin anew, and go on from one
                                      call `before` to the next
    shaken(live, seed)                a copy with every weight about one unit in the last place off
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import ExecutorError, UsageError
from rnnconvert.language import registry
from rnnconvert.models.model import Unit
from rnnconvert.running.parent import running
from rnnconvert.running.registry import executor


@dataclass(frozen=True)
class Tap:
    """What a recurrent layer gave.

    sequence  (time, batch, unit), or None where it gives its last output alone
    last      (batch, unit), or None
    lengths   how many steps of each sequence count, where the layer knows them: what it gives after them is filling
    """

    sequence: Array | None = None
    last: Array | None = None
    lengths: Array | None = None


@dataclass(frozen=True)
class Ran:
    """What a model gave.

    outputs  its own outputs, in order
    taps     what its recurrent layers gave, by their names
    """

    outputs: tuple[Array, ...]
    taps: Mapping[str, Tap]


@dataclass(frozen=True)
class Loaded:
    """What a file was loaded as.

    live   the live model; or a Program, where a framework gives a function alone
    notes  what a reader of the comparison should know of it
    """

    live: Any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadedFunction:
    """A model that was loaded as a function: it runs, and its layers are not seen.

    call    gives what the model gives for the inputs of one call after another, all of them arrays: the outputs of the last
    title   what it is, for messages
    shapes  those of its inputs, None for an axis of any size; () where it does not say
    """

    call: Callable[[Sequence[Sequence[Array]]], Sequence[Array]]
    title: str
    shapes: tuple[tuple[int | None, ...], ...] = ()

    def run(self, live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> Ran:
        """Return what the function gives after calls on those before; what it keeps between calls begins as it was loaded."""
        return Ran(tuple(np.array(output) for output in self.call([*before, inputs])), {})

    def shaken(self, live: Any, seed: int) -> Any:
        """Raise UsageError: a function cannot be copied with other weights."""
        raise UsageError(f"{self.title} is a function, whose weights cannot be changed")


def apart(name: str, path: Path) -> Callable[[Sequence[Sequence[Array]]], Sequence[Array]]:
    """Return a function that calls the model of a file in an executor's own process, with its limits; the process ends with it.

    Raises UsageError for a file that it refuses or cannot load. The function raises ExecutorError where the model does not run,
    UsageError for inputs that the model does not take.
    """
    ended = contextlib.ExitStack()
    process = ended.enter_context(running(executor(name)))

    def call(calls: Sequence[Sequence[Array]]) -> Sequence[Array]:
        unnamed = [[("", np.asarray(array)) for array in inputs] for inputs in calls]
        answer = process.ask(file=str(path), layers=[], witness={"layers": [], "seed": 0, "calls": unnamed})
        if "misfit" in answer:
            raise UsageError(f"{path} is not run on these inputs: {answer['misfit']}")
        return [array for _, array in answer["outputs"][-1]] if calls else []

    weakref.finalize(call, ended.close)
    try:
        call([])
    except ExecutorError as error:
        raise UsageError(f"{path} is not run: {error.problem}") from None
    return call


class ModelRunner(Protocol):
    """A framework that runs whole models: see the module.

    It may have `exact(live)`, too: the model as one that computes in the element type of its weights, where it computes in a coarser
    one, and a note of that; otherwise the model itself and "".
    """

    NAME: str

    def open_file(self, path: Path) -> Loaded:
        """Return the live model of a file."""
        ...

    def run(self, live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> Ran:
        """Return what the model and its recurrent layers give for these inputs, without training, after calls on those before."""
        ...

    def shaken(self, live: Any, seed: int) -> Any:
        """Return a copy with every weight about one unit in the last place off."""
        ...


@functools.cache
def runners() -> dict[str, ModelRunner]:
    """Return every framework that runs whole models by its name, found by looking."""
    return registry.named("whole_run")


def moved(values: Array, eps: float, generator: np.random.Generator) -> Array:
    """Return numbers in float64, each about one unit in the last place of its own type off, up or down."""
    step = np.where(generator.random(values.shape) < 0.5, -0.5, 0.5)
    return np.asarray(values.astype(np.float64) * (1 + step * eps))  # numpy makes a number of its own of an array without axes
