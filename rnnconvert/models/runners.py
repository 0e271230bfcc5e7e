"""One module a framework: a whole model run on inputs, with what each recurrent layer gives on the way.

A module here has

    NAME                              the format's name
    open_file(path, config)           the model of a file, which its executor runs, or a UsageError that says why a file is not enough
    run(live, inputs, units, before)  what the model gives, and its recurrent layers; stateful layers begin anew, and go on from one
                                      call `before` to the next
    input_names(live)                 what its inputs are called, in its order; () where nothing says
    shaken(live, seed)                a copy with every weight about one unit in the last place off

The last three are for models in memory: a format whose models are files alone has `open_file`. One whose executor states WHOLE_FILES, as it
runs any file whole, needs no module.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import AbsentExecutorError, ExecutorError, MissingPackageError, UsageError, show_as
from rnnconvert.core.remedies import Flag
from rnnconvert.language import registry
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.readers import model_of
from rnnconvert.running.inputs import in_order
from rnnconvert.running.models import Calls, ModelAnswer, ModelProcess, NamedArrays, RecordedRun, RefusedInputsError
from rnnconvert.running.parent import running
from rnnconvert.running.registry import Executor, built_in, executors


class DoesNotRunError(UsageError):
    """A model does not run on inputs: others may do."""


@dataclass(frozen=True)
class Tap:
    """The output of a recurrent layer.

    sequence  (time, batch, unit), or None if it gives only its last output
    last      (batch, unit), or None
    lengths   how many steps of each sequence count, if the layer knows them: its outputs after them are filling
    """

    sequence: Array | None = None
    last: Array | None = None
    lengths: Array | None = None


@dataclass(frozen=True)
class ModelOutputs:
    """The outputs of a model.

    outputs  its own outputs, in order
    taps     the outputs of its recurrent layers, by their names
    """

    outputs: tuple[Array, ...]
    taps: Mapping[str, Tap]


class NotRunError(UsageError):
    """The model of a file does not run: its executor refuses it, or cannot load it."""


class ModelApart(ABC):
    """A model that runs in a separate process.

    notes   notes on how it runs, for a reader of a comparison
    coarse  how many units in the last place of 1 its functions are off, however small their values are, if that is more than usual
    fixed   for each input its axes, None for one of any size; () if nothing but its source's own lengths is fixed
    """

    notes: tuple[str, ...]
    coarse: float = 0.0
    fixed: Sequence[Sequence[int | None]] = ()

    @property
    @abstractmethod
    def model(self) -> Model:
        """Its layers, and the types of its weights."""

    @abstractmethod
    def ran(
        self, inputs: NamedArrays, units: Sequence[Unit], before: Sequence[NamedArrays] = (), shakes: int = 0
    ) -> tuple[ModelOutputs, list[ModelOutputs]]:
        """Return the outputs of the model after calls on the inputs in `before`, and its outputs with its weights moved, several times.

        Raises UsageError for inputs that the model does not take, and if it does not run on them.
        """


class FileModel(ModelApart):
    """The model of a file, which an executor runs in a separate process, with its limits; the process ends with it.

    path    the file as its user has it
    names   its inputs' names, in their order
    shapes  its inputs' shapes, None for an axis of any size; () for an input that states none
    """

    def __init__(
        self,
        path: Path,
        executors: Sequence[str],
        run: Path | None = None,
        *,
        notes: Sequence[str] = (),
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
        settings: tuple[str, ...] = (),
        until: contextlib.ExitStack | None = None,
    ) -> None:
        """Load it.

        executors  their names: the first one that can run here runs it
        run        the file that runs in its place, None for itself
        inputs     the names of its inputs in their order, if that is not the executor's order; outputs likewise
        settings   how the file is read where its layers are examined
        until      the resources to close with it: a folder with the file that runs

        Raises NotRunError for a file that the executor refuses or cannot load, MissingPackageError without one.
        """
        self.path, self._run, self._inputs, self._outputs, self._settings = path, run or path, inputs, outputs, settings
        ended = until or contextlib.ExitStack()
        weakref.finalize(self, ended.close)
        executor = _able(executors, path)
        self.coarse = executor.coarse
        self._process = ModelProcess(ended.enter_context(running(executor)), str(self._run), exact=True)
        try:
            answer = self._process.run([])
        except RefusedInputsError as error:
            raise NotRunError(f"{path} is not run: {error}") from None
        stated = dict(answer.stated)
        self.names = tuple(_ordered(list(stated), inputs))
        self.notes = (*notes, *answer.notes)
        self.shapes = tuple(tuple(dim if isinstance(dim, int) and dim > 0 else None for dim in stated[name] or ()) for name in self.names)
        self._fixed: dict[str, Array] = {}
        self._every = self.names

    @classmethod
    def of_copy(
        cls, path: Path, executors: Sequence[str], name: str, write: Callable[[Path], str], settings: tuple[str, ...] = ()
    ) -> FileModel:
        """Return the model of a file in whose place another runs, in a folder that ends with it.

        name   what the other one is called
        write  writes it, and returns a note on it; "" for none

        Raises what `write` raises, and what FileModel does.
        """
        with contextlib.ExitStack() as failing:
            until = failing.enter_context(contextlib.ExitStack())
            copy = until.enter_context(new_folder()) / name
            note = write(copy)
            show_as(copy, path)
            model = cls(path, executors, copy, notes=[note] if note else (), settings=settings, until=until)
            failing.pop_all()
        return model

    def fix(self, values: Mapping[str, Array]) -> None:
        """Hand in these values of some inputs in every call, of those too that have a default: its caller does not see these inputs."""
        left = [(name, shape) for name, shape in zip(self.names, self.shapes, strict=True) if name not in values]
        self._fixed |= values
        self._every += tuple(name for name in values if name not in self._every)
        self.names, self.shapes = tuple(name for name, _ in left), tuple(shape for _, shape in left)

    @cached_property
    def model(self) -> Model:
        """The layers of the file."""
        return model_of(self.path, settings=self._settings)

    def ran(
        self, inputs: NamedArrays, units: Sequence[Unit], before: Sequence[NamedArrays] = (), shakes: int = 0
    ) -> tuple[ModelOutputs, list[ModelOutputs]]:
        places = _places(units)
        answer = self._called((*before, inputs), list(places), shakes)
        return self._ran(answer.run, places), [self._ran(shaken, places) for shaken in answer.shaken]

    def apart(
        self, calls: Sequence[NamedArrays], shakes: int = 0, changes: Sequence[tuple[Array, Array]] = ()
    ) -> tuple[list[tuple[Array, ...]], list[list[tuple[Array, ...]]]]:
        """Return the outputs of the model for each of several calls, each begun anew, and the same with its weights moved, several times.

        changes  weights of the model, each with the numbers that take its place

        Raises UsageError for inputs or weights that are not the model's, and if it does not run on them.
        """
        answer = self._called(calls, (), shakes, changes, apart=True)
        every = [[self._outputs_of(call) for call in run.outputs] for run in (answer.run, *answer.shaken)]
        return every[0], every[1:]

    def _called(
        self,
        calls: Sequence[NamedArrays],
        layers: Sequence[str],
        shakes: int,
        changes: Sequence[tuple[Array, Array]] = (),
        apart: bool = False,
    ) -> ModelAnswer:
        in_model_order = []
        for call in calls:
            arrays = in_order(call, self.names, str(self.path))
            names = self.names if len(self.names) == len(arrays) else [""] * len(arrays)
            entries = list(zip(names, arrays, strict=True))
            handed = dict(entries) | self._fixed
            in_model_order.append([(name, handed[name]) for name in self._every if name in handed] if self._fixed else entries)
        try:
            return self._process.run(in_model_order, layers, shakes, changes, apart)
        except RefusedInputsError as error:
            raise DoesNotRunError(f"{self.path} does not run on these inputs: {error}") from None

    def drawn(self, full: bool = False) -> list[Array]:
        """Return inputs that are drawn for it; where it masks steps, the first sequence has a gap, and the last one is shorter.

        full  whether it is to mask none

        Raises UsageError for a model that runs on none.
        """
        try:
            answer = self._process.drawn()
        except ExecutorError as error:
            raise UsageError(f"{self.path} does not run on inputs that are drawn for it: {error.problem}") from None
        inputs = [np.array(array) for _, array in answer.inputs]
        for array, padding in zip(inputs, answer.paddings, strict=True):
            if padding is not None and array.ndim > 1 and array.shape[1] > 3:
                if full:
                    array[-1, -2:] = array[-1, :2]
                else:
                    array[0, 1] = padding
        return inputs

    def _ran(self, run: RecordedRun, places: Mapping[str, str]) -> ModelOutputs:
        """Return the outputs of the model in the last of its calls."""
        taps = {places[name]: _tap(calls) for name, calls in run.layers[-1].items()}
        return ModelOutputs(self._outputs_of(run.outputs[-1]), {k: tap for k, tap in taps.items() if tap})

    def _outputs_of(self, by_name: Mapping[str, Array]) -> tuple[Array, ...]:
        return tuple(by_name[name] for name in _ordered(list(by_name), self._outputs))


def _able(names: Sequence[str], path: Path) -> Executor:
    """Return the first executor that can run here. Raises MissingPackageError with what the first one lacks."""
    every = [executors()[name] for name in names]
    able = next((each for each in every if not each.absent), None)
    if able is None:
        lacking = every[0].missing_packages
        raise MissingPackageError(lacking[0], f"run {path}") if lacking else AbsentExecutorError(names[0], every[0].absent)
    return able


def _ordered(names: Sequence[str], stated: Sequence[str]) -> list[str]:
    """Return names in a stated order, if that order has the same names."""
    return list(stated) if sorted(stated) == sorted(names) else list(names)


def _places(units: Sequence[Unit]) -> dict[str, str]:
    """Return the units whose output their framework's layer gives, by its name: of a stack that is the last one."""
    return {re.sub(r"\[\d+\]$", "", unit.name): unit.name for unit in units}


def _tap(calls: Calls) -> Tap | None:
    """Return the output of a layer in its first call; for a cell, called step by step, in all calls that go on from it."""
    first, *rest = calls
    if first["last"] is not None:
        return Tap(last=first["last"], lengths=_lengths(first["mask"]))
    if first["y"] is None:
        return None
    steps = [first["y"]]
    for call in rest:
        if len(first["y"]) != 1 or call["y"] is None or call["y"].shape != first["y"].shape:
            break
        steps.append(call["y"])
    return Tap(np.concatenate(steps), lengths=_lengths(first["mask"]))


def _lengths(mask: Array | None) -> Array | None:
    """Return how many steps of each sequence count, (time, batch), where those are its first ones."""
    if mask is None or not (mask[:-1] >= mask[1:]).all():
        return None
    return np.asarray(mask.sum(axis=0))


class ModelRunner(Protocol):
    """A framework that runs whole models: see the module.

    It may have `saved(live, folder, example)`, which writes the model to a file of the framework's own that an executor runs, and
    `exact(live)`: the model as one that computes in the element type of its weights, where it computes in a coarser
    one, and a note of that; otherwise the model itself and "".
    """

    NAME: str

    def open_file(self, path: Path, config: Path | None = None) -> FileModel:
        """Return the model of a file, or of weights and the file that states their model."""
        ...

    def run(self, live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> ModelOutputs:
        """Return the outputs of the model and its recurrent layers for these inputs, without training, after the calls in `before`."""
        ...

    def input_names(self, live: Any) -> Sequence[str]:
        """Return the names of the model's inputs, in its order; none if nothing states them."""
        ...

    def shaken(self, live: Any, seed: int) -> Any:
        """Return a copy with every weight about one unit in the last place off."""
        ...


@functools.cache
def runners() -> dict[str, ModelRunner]:
    """Return every framework that runs whole models by its name, found by looking."""
    return registry.named("whole_run")


def opener(format: str) -> Callable[..., FileModel] | None:
    """Return the function that opens a model of a format's file, as `open_file` of a module here; None if nothing runs such files whole."""
    runner = runners().get(format)
    if runner is not None:
        return getattr(runner, "open_file", None)
    return functools.partial(whole_file, format) if _whole_executors(format) else None


def open_file(format: str, path: Path, **options: Path) -> FileModel:
    """Return the model of a format's file. Raises UsageError where nothing runs such files whole, and as FileModel does."""
    opening = opener(format)
    if opening is None:
        raise UsageError(f"no executor runs {format} files whole, so {path} is not compared. Leave out {Flag('verify')}")
    return opening(path, **options)


def whole_file(format: str, path: Path, config: Path | None = None) -> FileModel:
    """Return a file as it is, run by the executors of a format. Raises what FileModel raises."""
    return FileModel(path, _whole_executors(format))


def _whole_executors(format: str) -> list[str]:
    return [executor.name for executor in built_in().values() if executor.format == format and executor.runs_whole_files]


def argument_names(function: Any) -> list[str]:
    """Return the names of the arguments that a function takes by place, [] where it does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # what is compiled may state none
        return []
    return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def moved(values: Array, eps: float, generator: np.random.Generator) -> Array:
    """Return numbers in float64, each about one unit in the last place of its original type off, up or down."""
    step = np.where(generator.random(values.shape) < 0.5, -0.5, 0.5)
    return np.asarray(values.astype(np.float64) * (1 + step * eps))  # numpy makes a number of its own of an array without axes
