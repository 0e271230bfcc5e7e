"""Executors side by side: each in a separate lane, beside the search for the cause."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import ExecutorError, UsageError
from rnnconvert.judging.judging import Tolerance
from rnnconvert.running.parent import Process, running
from rnnconvert.running.registry import Executor
from rnnconvert.verification.models import RunningModel, compare_models
from rnnconvert.verification.plan import Plan, Watch
from rnnconvert.verification.ready import LayerRun
from rnnconvert.verification.recording import Recording, wanted
from rnnconvert.verification.results import LayerResults, ModelsCompared, Results
from rnnconvert.verification.running import Subject, rounding, run, runs_as_written
from rnnconvert.verification.stored_cases import UserInputs

Steady = Callable[[LayerResults, LayerRun], bool]
"""Returns whether a run agrees with the truth: one that does not is run again; a framework that then gives other numbers
is reported as unsteady."""


@dataclass
class PreparedModels:
    """The models and layers, read and paired, before anything runs.

    subjects  the layers in canonical form that are compared with one another, or run alone
    chosen    the executors that are asked for by name; None for the usual ones
    alone     whether there is only one model
    inputs    the user's own
    tolerances  the user's own, by output
    unpaired  why the layers of two models are not compared one by one, as nothing tells which is which; None if they are
    members   the layers of the models that run whole: `subjects`, or the layers that were not paired
    """

    plan: Plan
    results: Results
    subjects: list[Subject]
    chosen: list[Executor] | None
    alone: bool
    inputs: UserInputs = field(default_factory=UserInputs)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    unpaired: UsageError | None = None
    members: list[Subject] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.members = self.members or self.subjects


@dataclass
class _Lane:
    """Executors that are tried one after the other, each with the layers that those before it refused.

    runs     what each layer gave, in order
    seconds  what starting them took
    """

    executors: list[Executor]
    subjects: list[Subject]
    required: bool
    runs: list[tuple[Subject, LayerRun]] = field(default_factory=list)
    seconds: float = 0.0


def lanes_of(prepared: PreparedModels, executors: Sequence[Executor], present: Sequence[Executor], results: Results) -> list[_Lane]:
    """Return the lanes that run side by side: every executor that is named, or for each format the executors that may run it."""
    subjects = prepared.subjects
    if prepared.chosen is not None:
        return [_Lane([executor], subjects, "all" not in prepared.plan.on) for executor in prepared.chosen]
    formats = {subject.checkpoint.format for subject in prepared.members}
    others = {executor.format for executor in executors} - formats if prepared.alone else set()
    lanes = []
    for format in [*sorted(formats), *sorted(others)]:
        candidates = [executor for executor in present if executor.format == format]
        if not candidates and format in formats:
            results.warnings.append(f"no executor here runs {format} files ({_absent(executors, format, results)})")
        waiting = [subject for subject in subjects if format == subject.checkpoint.format or format not in formats]
        if candidates and (waiting or format in formats):
            lanes.append(_Lane(candidates, waiting, False))
    return lanes


def _absent(executors: Sequence[Executor], format: str, results: Results) -> str:
    """Return why no executor runs a format, and note the packages that the first of them lacks."""
    first = next((executor for executor in executors if executor.format == format), None)
    if first is None:
        return "none exists"
    results.missing_packages += [name for name in first.missing_packages if name not in results.missing_packages]
    return f"{first.name}: {first.absent}"


class Lanes:
    """Lanes that run beside one another, each in a thread that waits for its executor's process."""

    def __init__(self, lanes: list[_Lane], prepared: PreparedModels, steady: Steady, watch: Watch, jobs: int | None) -> None:
        self._timeout = prepared.plan.timeout
        self._lanes, self._steady, self._watch = lanes, steady, watch
        self._ready, self._counted = threading.Event(), threading.Event()
        self._stopped, self._ran, self._telling = False, 0, False
        self._lock = threading.Lock()
        self._results: Results | None = None
        self._processes: list[Process] = []
        self._pool = ThreadPoolExecutor(max(1, jobs or os.cpu_count() or 1))
        self._waiting: list[Future[None]] = []
        self._members, self._alone = prepared.members, prepared.alone
        self._unpaired = prepared.unpaired is not None
        self._seed = prepared.plan.seed
        self._recordings: dict[str, Recording] = {}
        self._unrecorded: dict[str, list[str]] = {}
        self._recorded_now: set[str] = set()
        self._weights_alone: set[str] = set()
        self._models: dict[str, RunningModel] = {}
        self._user_inputs = prepared.inputs.of_models
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Lanes:
        # A context of their own: numpy's error states are those of the thread that asks.
        self._waiting = [self._pool.submit(contextvars.copy_context().run, self._run, lane) for lane in self._lanes]
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            # After an error or Ctrl-C nobody waits for an answer that may never come.
            self._stopped = True
            self._ready.set()
            self._counted.set()
            for process in list(self._processes):
                process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._open.close()

    def report_progress(self) -> None:
        """Tell how many cases have run, of all that are to run, from now on."""
        self._telling = True
        if self._results is None:
            return
        total = sum(len(self._results.layers[subject.stack.name].cases) for lane in self._lanes for subject in lane.subjects)
        names = ", ".join(lane.executors[0].name for lane in self._lanes)
        self._watch(f"running on {names or 'no executor'}", min(self._ran, total), total)

    def _tick(self) -> None:
        with self._lock:
            self._ran += 1
        if self._telling:
            self.report_progress()

    def begin(self, results: Results) -> None:
        """Let the lanes run: the cases are made."""
        self._results = results
        self._ready.set()

    def judge(self) -> None:
        """Let the lanes judge what they gave: the truth, and what is allowed, are known."""
        self._counted.set()

    def collected(self, results: Results) -> dict[str, float]:
        """Wait for all lanes, add what they gave to the results, and return what they took."""
        for waiting in self._waiting:
            waiting.result()
        for lane in self._lanes:
            for subject, new_run in lane.runs:
                layer = results.layers[subject.stack.name]
                layer.runs = [earlier for earlier in layer.runs if not _superseded(earlier, new_run)] + [new_run]
        return {"start": sum(lane.seconds for lane in self._lanes)}

    @property
    def recordings(self) -> dict[str, Recording | str]:
        """The recording of each model that ran whole, by its label, or why it did not run; empty if no executor takes its file."""
        return {**{label: "; ".join(whys) for label, whys in self._unrecorded.items()}, **self._recordings}

    def models_compared(self, tolerances: Mapping[str, Tolerance], possible: Collection[str] = ()) -> ModelsCompared | None:
        """Return the comparison of both models on the same inputs, run whole; None if one of them did not run.

        possible  the kinds of limits that may explain a difference
        """
        labels = {*self._models, *self._unrecorded}
        if len(labels) < 2 or self._stopped or self._weights_alone:
            return None
        if len(self._models) < 2:
            return ModelsCompared("not compared", "; ".join(f"{label}: {', '.join(whys)}" for label, whys in self._unrecorded.items()))
        self._watch("running both models on the same inputs")
        return compare_models(self._models["A"], self._models["B"], tolerances, self._user_inputs, possible)

    def check_own_inputs(self) -> None:
        """Raise UsageError where the user's own inputs of whole models are of no use: a model did not run whole."""
        if self._user_inputs is None or not self._user_inputs.required:
            return
        idle = [label for label in ("A" if self._alone else "AB") if label not in self._models]
        if idle:
            whys = ", ".join(self._unrecorded.get(idle[0], ["no executor here runs its file"]))
            names = ", ".join(filter(None, dict(self._user_inputs.arrays)))
            of_models = f"{self._user_inputs.label} holds inputs of whole models" + (f" ({names})" if names else "")
            raise UsageError(f"{of_models}, and {idle[0]} did not run whole: {whys}. {self._user_inputs.not_of_layers}")

    def _record(self, process: Process, folder: Path) -> bool:
        """Run whole the models whose own files an executor takes, once each; return whether one ran."""
        executor = process.executor
        ran = False
        for label in dict.fromkeys(subject.model for subject in self._members):
            recorded = [subject for subject in self._members if subject.model == label and subject.checkpoint.format == executor.format]
            recorded = [subject for subject in recorded if self._wanted(subject) and runs_as_written(executor, subject)]
            with self._lock:
                if not recorded or label in self._recordings or label in self._recorded_now or self._stopped:
                    continue
                self._recorded_now.add(label)
            self._watch(f"{executor.name}: running {label} whole")
            try:
                self._models[label] = RunningModel.recorded(process, recorded, folder, self._seed, self._user_inputs, self._alone)
                self._recordings[label] = self._models[label].recording
                ran = True
            except ExecutorError as error:
                if error.weights_alone:
                    self._weights_alone.add(label)
                self._unrecorded.setdefault(label, []).append(f"{executor.name}: {error.problem}")
            finally:
                self._recorded_now.discard(label)
        return ran

    def _unrecorded_by(self, executor: Executor) -> bool:
        """Return whether a model of an executor's format still has to run whole."""
        formats = {subject.checkpoint.format for subject in self._members if subject.model not in self._recordings}
        return executor.format in formats

    def _wanted(self, subject: Subject) -> bool:
        return self._unpaired or wanted(subject, self._alone) or (self._user_inputs is not None and self._user_inputs.required)

    def _run(self, lane: _Lane) -> None:
        waiting = lane.subjects
        strange: list[Subject] = []
        for executor in lane.executors:
            if self._stopped:
                return
            # A file that today's framework runs only when it is made anew is left to the version that wrote it.
            again = strange if executor.settings.get("as_written") else []
            # Models whose layers are not compared have nothing that waits: they run whole on the first executor that takes their file.
            if not waiting and not again and not (self._unpaired and self._unrecorded_by(executor)):
                continue
            waiting, more = self._on(
                executor, [*waiting, *(waiting_executor for waiting_executor in again if waiting_executor not in waiting)], lane
            )
            strange += more

    def _on(self, executor: Executor, subjects: Sequence[Subject], lane: _Lane) -> tuple[list[Subject], list[Subject]]:
        """Run subjects on one executor; return the subjects that it does not run, for another to try, and the subjects of which it did not
        run the user's own file.
        """
        refused, strange = [], []
        begin = time.perf_counter()
        with contextlib.ExitStack() as ours:
            folder, process = ours.enter_context(new_folder()), ours.enter_context(running(executor))
            self._processes.append(process)
            ours.callback(self._processes.remove, process)
            process.timeout = self._timeout
            with contextlib.suppress(ExecutorError):  # a framework that cannot be imported fails at every layer, and says so
                process.warm_up()
            lane.seconds += time.perf_counter() - begin
            self._ready.wait()
            for subject in subjects:
                if self._stopped or self._results is None:
                    break
                layer = self._results.layers[subject.stack.name]
                outcome = run(process, subject, layer.cases, Path(folder), lane.required, self._tick)
                self._tick()
                self._counted.wait()
                if self._stopped:
                    break
                if outcome.status == "ran" and not self._steady(layer, outcome):
                    again = run(process, subject, layer.cases, Path(folder), lane.required)
                    if not _alike(outcome, again):
                        again.notes["unsteady"] = "it gave other numbers when it ran again; the second run is judged"
                    outcome = again
                lane.runs.append((subject, outcome))
                if outcome.status == "refused":
                    refused.append(subject)
                elif outcome.status == "ran" and "own file" in outcome.notes:
                    strange.append(subject)
            if self._record(process, Path(folder)):
                with self._lock:
                    self._open.push(ours.pop_all())  # it runs the model again, beside the other one
        return refused, strange


def types(subjects: Sequence[Subject], used: Iterable[Executor], loaded: Results | None = None) -> dict[str, set[str]]:
    """Return the arithmetics in which each layer is run, as rnnconvert.judging.rounding.ARITHMETICS names them.

    loaded  results whose cases are run: they can be merged with runs in theirs
    """
    others = {layer_run.rounding for layer in loaded.layers.values() for layer_run in layer.runs} if loaded is not None else set()
    types: dict[str, set[str]] = {}
    for subject in subjects:
        dtype = str(subject.stack.dtype)
        dtypes = types.setdefault(subject.stack.name, {dtype, *others})
        dtypes.update({dtype, *(rounding(executor, kind) for executor in used for kind in (dtype, subject.computed_in))})
    return types


def _superseded(old: LayerRun, new: LayerRun) -> bool:
    """Return whether to drop an executor that was tried and refused, because another was found."""
    return old.model == new.model and old.status == "refused" and not old.required and new.status == "ran"


def _alike(first: LayerRun, other: LayerRun) -> bool:
    return first.outputs.keys() == other.outputs.keys() and all(
        np.array_equal(first.outputs[name].y, other.outputs[name].y, equal_nan=True) for name in first.outputs
    )
