"""The whole models of files, as a diagnosis runs them: on several inputs, with other weights, and with what rounding moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.models.model import Model
from rnnconvert.models.readers import model_of
from rnnconvert.models.runners import FileModel, NotRunError, opener
from rnnconvert.running.inputs import exchanged, named, orders

Inputs = Sequence[Array]


@dataclass(frozen=True, eq=False)
class ModelRuns:
    """The outputs of a model.

    outputs  the outputs of each call
    shaken   for each run with other weights, the outputs of each call
    """

    outputs: list[tuple[Array, ...]]
    shaken: list[list[tuple[Array, ...]]] = field(default_factory=list)

    def output(self, place: int) -> list[Array]:
        """Return one output of each call."""
        return [call[place] for call in self.outputs]


class RunnableFile:
    """A file whose model runs whole.

    dtype  the coarsest element type of its weights
    """

    def __init__(self, checkpoint: Checkpoint, file: FileModel) -> None:
        self._file = file
        self.model: Model = model_of(checkpoint)
        dtypes = [np.asarray(array).dtype for array in self.model.arrays.values() if np.asarray(array).dtype.kind not in "iubOSU"]
        self.dtype: np.dtype[Any] = max(dtypes, key=epsilon, default=np.dtype(np.float32))

    @staticmethod
    def may_run(checkpoint: Checkpoint) -> bool:
        """Return whether files of its format may hold a model that runs."""
        return Path(checkpoint.file).exists() and opener(checkpoint.format) is not None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> RunnableFile | str | None:
        """Return the model of a file; why it does not run; or None for weights alone, and where what runs it is not installed."""
        opening = opener(checkpoint.format)
        if not cls.may_run(checkpoint) or opening is None:
            return None
        try:
            return cls(checkpoint, opening(Path(checkpoint.file)))
        except NotRunError as error:
            return str(error)
        except (UsageError, MissingPackageError):
            return None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its inputs."""
        return self._file.names

    @property
    def recurrent_alone(self) -> bool:
        """Whether it has no weights other than recurrent layers'."""
        return all(unit.stack is not None for unit in self.model.units)

    def calls(self) -> list[list[Array]]:
        """Return inputs of three calls: as drawn; of other lengths, where they may be; and with zeros at the end of a sequence.

        Raises UsageError for a model that does not run on inputs that are drawn for it.
        """
        drawn = self._file.drawn()
        shapes = self._file.shapes if len(self._file.shapes) == len(drawn) else ((),) * len(drawn)
        return [drawn, [_longer(array, shape) for array, shape in zip(drawn, shapes, strict=True)], [_filled(array) for array in drawn]]

    def full_call(self) -> list[Array]:
        """Return inputs of which it masks no step. Raises UsageError as `calls` does."""
        return self._file.drawn(full=True)

    def run(self, calls: Sequence[Inputs], shakes: int = 0, changes: Sequence[tuple[Array, Array]] = ()) -> ModelRuns:
        """Return its outputs for each call, begun anew. Raises UsageError for inputs that it does not take."""
        return ModelRuns(*self._file.apart([named(list(call)) for call in calls], shakes, changes))


def _longer(array: Array, shape: Sequence[int | None]) -> Array:
    """Return an input with other lengths of its first two axes, where these are open, and other numbers."""
    for axis, length in enumerate(array.shape[:2]):
        if not shape or shape[axis] is None:
            array = array.take(np.arange(length + 4) * 3 % length, axis)
    return array * np.asarray(1.5, array.dtype) if array.dtype.kind == "f" else array


def _filled(array: Array) -> Array:
    if array.ndim < 2 or array.shape[1] < 4 or array.dtype.kind == "b":
        return array
    array = array.copy()
    array[0, -2:] = 0
    return array


@dataclass(frozen=True)
class Calling:
    """How a model takes the inputs of another.

    order   their places, in its own order
    turned  whether it has the first two axes of sequences exchanged
    """

    order: tuple[int, ...]
    turned: bool

    def of(self, inputs: Inputs) -> list[Array]:
        """Return inputs as the model takes them."""
        chosen = [inputs[place] for place in self.order]
        return [exchanged(array) if self.turned and array.ndim > 1 else array for array in chosen]

    def back(self, runs: ModelRuns) -> ModelRuns:
        """Return the model's outputs with their axes as the other model has them."""
        if not self.turned:
            return runs
        return ModelRuns([_turned(call) for call in runs.outputs], [[_turned(call) for call in calls] for calls in runs.shaken])


def _turned(outputs: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(exchanged(array) if array.ndim > 2 else array for array in outputs)


def callings(names: Sequence[str], others: Sequence[str]) -> Iterator[Calling]:
    """Yield the ways in which a model may take the inputs of another, whose names differ, the most likely first."""
    alike = sorted(names) == sorted(others)
    possible = [tuple(names.index(name) for name in others)] if alike else orders(len(names))
    for order in possible if len(names) == len(others) else ():
        yield from (Calling(order, turned) for turned in (False, True))
