"""The model of a file of Python that `scaffold` wrote, filled from its source.

A model from a file runs in a separate process, with the limits of an executor: what it computes, and how much, the file decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from rnnconvert.core.errors import MissingPackageError, RnnConvertError
from rnnconvert.core.remedies import called_by_flags
from rnnconvert.models.load import load_into
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.prepare import ALL
from rnnconvert.models.report import Transplant
from rnnconvert.models.runners import ModelApart, ModelOutputs, Tap
from rnnconvert.running.models import NamedArrays
from rnnconvert.running.parent import Process, running
from rnnconvert.running.registry import Executor


class ModelMaker(Protocol):
    """The maker of the models of written files: a room's `scaffold_to`."""

    NAME: str
    TITLE: str
    NEEDS: tuple[str, ...]

    def model(self, path: Path) -> tuple[Any, dict[str, str]]:
        """Return a new model of a written file, and its layers with what fills them."""
        ...

    def save(self, model: Any, file: IO[bytes], name: str) -> None:
        """Write the weights of a model as the framework does for a file of that name."""
        ...


@dataclass(frozen=True)
class WrittenSource:
    """The source that fills a model.

    code      the written file
    source    the path or the live model that was described
    settings  how the source is read
    strict    whether every weight of both must have its place
    """

    code: Path
    source: Any
    settings: tuple[str, ...]
    strict: bool


def filled(maker: ModelMaker, written: WrittenSource) -> Transplant:
    """Make the model of a written file in this process, and fill it."""
    model, layers = maker.model(written.code)
    return load_into(model, written.source, layers or None, strict=written.strict, accept=[ALL], flatten="same", settings=written.settings)


class FilledModel(Protocol):
    """A written model that is filled.

    value  what a comparison takes
    pairs  its recurrent layers and the source's
    """

    value: Any
    pairs: Sequence[tuple[str, str]]

    def save(self, place: Path) -> None:
        """Write its weights to a new file. Raises OSError."""
        ...


@contextlib.contextmanager
def filled_model(maker: ModelMaker, written: WrittenSource) -> Iterator[FilledModel]:
    """Yield the model of a written file: in this process if the source is a live model, else in a separate one.

    Raises MissingPackageError without the framework, the errors of `load_into`, and ExecutorError if its process fails.
    """
    executor = Executor(f"the model written for {maker.TITLE}", str(Path(__file__).with_name("run_written.py")), maker.NAME)
    if executor.missing_packages:
        raise MissingPackageError(executor.missing_packages[0], f"run {executor.name}")
    if not isinstance(written.source, Path):
        yield _WrittenModelHere(maker, filled(maker, written))
        return
    with running(executor) as process:
        yield _WrittenModelApart(process, written)


class _WrittenModelHere:
    def __init__(self, maker: ModelMaker, report: Transplant) -> None:
        self.value, self._maker = report.model, maker
        self.pairs: Sequence[tuple[str, str]] = [(entry.target, entry.source) for entry in report.filled if entry.kind == "recurrent"]

    def save(self, place: Path) -> None:
        with place.open("wb") as file:
            self._maker.save(self.value, file, place.name)


class _WrittenModelApart(ModelApart):
    """A written model in its process: what a comparison takes, too."""

    def __init__(self, process: Process, written: WrittenSource) -> None:
        self.value, self._process, self._source = self, process, written.source
        answer = self._asked("fill", code=str(written.code), settings=written.settings, strict=written.strict)
        self.pairs: Sequence[tuple[str, str]] = [(ours, theirs) for ours, theirs in answer["pairs"]]
        self.notes = tuple(answer["notes"])
        arrays = {name: np.empty(0, name) for name in answer["dtypes"]}  # which types its weights have is asked, and nothing else
        self._model = Model("", process.executor.name, tuple(Unit(ours) for ours, _ in self.pairs), arrays)

    @property
    def model(self) -> Model:
        return self._model

    def _asked(self, job: str, **request: Any) -> dict[str, Any]:
        answer = self._process.ask(job=job, file=str(self._source), by_flags=called_by_flags(), **request)
        if "error" in answer:
            text, details, exit_code, kind = answer["error"]
            error = RnnConvertError(text, details=details)
            error.exit_code, error.kind = exit_code, kind
            raise error
        return answer

    def ran(
        self, inputs: NamedArrays, units: Sequence[Unit], before: Sequence[NamedArrays] = (), shakes: int = 0
    ) -> tuple[ModelOutputs, list[ModelOutputs]]:
        answer = self._asked("run", inputs=list(inputs), before=[list(call) for call in before], shakes=shakes)
        return _ran(answer["ran"]), [_ran(each) for each in answer["shaken"]]

    def save(self, place: Path) -> None:
        answer = self._asked("save", place=str(place))
        if "unwritable" in answer:
            raise OSError(*answer["unwritable"])


def _ran(answer: dict[str, Any]) -> ModelOutputs:
    return ModelOutputs(tuple(answer["outputs"]), {name: Tap(**tap) for name, tap in answer["taps"].items()})
