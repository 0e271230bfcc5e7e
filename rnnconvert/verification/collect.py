"""Collect the runs: read the models, make the cases, run everything; nothing is judged yet."""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.comparison.pairing import Pair, pair
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.arguments import unknown
from rnnconvert.core.errors import ExecutorError, UnreadableError, UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.version import __version__
from rnnconvert.core.weights import Recurrent
from rnnconvert.files import convert as conversion
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.judging import cases as given_cases
from rnnconvert.judging.cases import USUAL, Case, Skipped
from rnnconvert.rewrites import join_stack
from rnnconvert.running import registry
from rnnconvert.running.parent import Process, running
from rnnconvert.running.registry import Executor
from rnnconvert.verification.results import LayerResults, Model, Results, hash_file, hash_of
from rnnconvert.verification.running import REFERENCE, Run, Subject, by_reference, identical, rounding, run
from rnnconvert.verification.stated import made_for, outlined
from rnnconvert.verification.truths import Truths

Watch = Callable[..., None]
"""Receives what is being done, in words, and where it has parts, how many of them are done and how many there are."""


@dataclass(frozen=True)
class Plan:
    """What is to be run, and on what.

    on         names of executors; "all" for every one that is here; none for the usual: of each model's own format
               the first that runs it, and for a single model one of every other format too
    cases      names of cases (rnnconvert.judging.cases.CASES)
    seed       of the random inputs, states and lengths
    batch      how many sequences
    time       how many steps
    lengths    of the sequences in the case "lengths", instead of random ones
    gradients  whether gradients are run too
    inputs     a .npz with x (time, batch, in), optionally hidden, cell and lengths, in place of random cases
    layers     names of A's layers; all if none
    pairs      "A=B", where names and sizes do not show which layer of B is which of A's
    settings   answers to what files leave open, "KEY=VALUE" or "LAYER:KEY=VALUE"; settings_a, settings_b for one of two models
    format_a   read A as this format, instead of asking the file; format_b likewise
    given      results whose cases are run, in place of random ones
    timeout    how many seconds an executor may take to answer a request; by default ten minutes, and more for large files
    """

    on: Sequence[str] = ()
    cases: Sequence[str] = USUAL
    seed: int = 0
    batch: int = 4
    time: int = 12
    lengths: Sequence[int] | None = None
    gradients: bool = False
    inputs: str | None = None
    layers: Sequence[str] = ()
    pairs: Sequence[str] = ()
    settings: Sequence[str] = ()
    settings_a: Sequence[str] = ()
    settings_b: Sequence[str] = ()
    format_a: str | None = None
    format_b: str | None = None
    given: Results | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        # One name stands for a list of one.
        for name in ("on", "cases", "layers", "pairs", "settings", "settings_a", "settings_b"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, (getattr(self, name),))

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> Plan:
        """Return a plan of these fields. Raises UsageError for a field that a plan does not have."""
        known = [one.name for one in fields(cls)]
        strange = next((name for name in choices if name not in known), None)
        if strange is not None:
            raise unknown("keyword", strange, known)
        return cls(**choices)

    def as_dict(self) -> dict[str, Any]:
        """Return what decides the numbers, for the report."""
        if self.given is not None:
            return dict(self.given.settings)
        return {
            "seed": self.seed, "batch": self.batch, "time": self.time, "cases": list(self.cases),
            "lengths": None if self.lengths is None else list(self.lengths), "gradients": self.gradients,
            "inputs": self.inputs,
        }  # fmt: skip


FLAGS = {
    "cases": "--case", "batch": "--batch", "time": "--time", "lengths": "--lengths", "seed": "--seed",
    "gradients": "--gradients", "inputs": "--inputs", "given": "--load-inputs", "pairs": "--pair", "layers": "--layer",
    "on": "--on", "settings": "--set", "settings_a": "--set-a", "settings_b": "--set-b", "format_a": "--from-a",
    "format_b": "--from-b", "timeout": "--timeout",
}  # fmt: skip
"""The fields of a plan that decide what is run, and how the command line spells them."""


def decides_nothing(plan: Plan, fields: Iterable[str], why: str) -> None:
    """Raise UsageError for a field of a plan that is set but would decide nothing.

    why  what makes it idle, in words
    """
    usual = Plan()
    for name in fields:
        said, default = getattr(plan, name), getattr(usual, name)
        if (
            said is not default
            and (not isinstance(said, Sequence) or list(said) != list(default or ()))
            and said != default
        ):
            raise UsageError(f"{name} ({FLAGS[name]}) decides nothing: {why}. Leave it out.")


def check(plan: Plan, models: int) -> None:
    """Raise UsageError for anything in a plan that nothing would use.

    models  how many model files are read
    """
    if models < 2:
        decides_nothing(plan, ("pairs", "settings_b", "format_b"), "it is about a second model, B, but there is none")
    random = ("cases", "batch", "time", "lengths")
    if plan.given is not None:
        why = "the inputs of saved results are run unchanged"
        weighed = any(case.cotangents for layer in plan.given.layers.values() for case in layer.cases)
        decides_nothing(plan, (*random, "seed", "inputs", *([] if weighed else ["gradients"])), why)
    if plan.inputs is not None:
        decides_nothing(plan, random, "your own inputs are run instead of random ones")
    if plan.lengths is not None and "lengths" not in plan.cases:
        decides_nothing(plan, ("lengths",), 'it belongs to the case "lengths", which does not run')
    if plan.lengths is not None and plan.batch != len(plan.lengths):
        decides_nothing(plan, ("batch",), f"the lengths set {len(plan.lengths)} sequences")


Steady = Callable[[LayerResults, Run], bool]
"""Returns whether a run agrees with the truth: one that does not is run again; a framework that then gives other numbers
is reported as unsteady."""


@dataclass
class Prepared:
    """What is read and paired, before anything runs.

    subjects  the layers in canonical form
    chosen    the executors that are asked for by name; None for the usual ones
    alone     whether there is one model only
    """

    plan: Plan
    results: Results
    subjects: list[Subject]
    chosen: list[Executor] | None
    alone: bool


def collect(
    a: str, b: str | None, plan: Plan, steady: Steady, watch: Watch = lambda text, done=0, total=0: None, jobs: int | None = None,
) -> tuple[Results, list[Subject]]:  # fmt: skip
    """Run the layers of a model, or of two, in all cases; the results, and the layers in canonical form.

    watch  receives what is being done, in words
    jobs   how many executors run at the same time; as many as there are processors if None

    Raises whatever reading the models raises, UsageError for layers that cannot be paired, AbsentExecutorError
    for an executor that is asked for and absent.
    """
    prepared = prepare(a, b, plan, watch)
    proceed(prepared, steady, watch, jobs)
    return prepared.results, prepared.subjects


def prepare(a: str, b: str | None, plan: Plan, watch: Watch = lambda text, done=0, total=0: None) -> Prepared:
    """Read the models and pair their layers; raises as `collect` does."""
    check(plan, 1 if b is None else 2)
    results = empty(plan)
    start = time.perf_counter()
    chosen = executors_named(plan.on)
    watch(f"reading {a}" + (f" and {b}" if b else ""))
    if b is None:
        first, second = conversion.load(a, plan.format_a, (*plan.settings, *plan.settings_a)), None
    else:
        first, second = conversion.load_pair(
            (a, b), (plan.format_a, plan.format_b), plan.settings, (plan.settings_a, plan.settings_b)
        )
    first = conversion.select(first, plan.layers)
    models = [first] if second is None else [first, second]
    subjects: list[Subject] = []
    if second is None:
        subjects = list(_alone(first, plan.given))
    else:
        for found in pair(first, second, plan.pairs, selected=bool(plan.layers)):
            _side_by_side(found)
            subjects.append(Subject("A", first, found.own, found.stack))
            subjects.append(Subject("B", second, found.names, found.counterpart.replace(name=found.name)))
    results.warnings = list(_assumed(models))
    results.seconds["load"] = time.perf_counter() - start
    start = time.perf_counter()
    watch("hashing files and weights")
    results.models = [_model(label, model) for label, model in zip("AB", models, strict=False)]
    results.seconds["hash"] = time.perf_counter() - start
    return Prepared(plan, results, subjects, chosen, second is None)


def proceed(
    prepared: Prepared, steady: Steady, watch: Watch = lambda text, done=0, total=0: None, jobs: int | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Make the cases, compute the truth and run everything; the outputs are added to the results.

    meanwhile  is called once the cases are made, while the executors run and the truth is computed
    """
    plan, results, subjects = prepared.plan, prepared.results, prepared.subjects
    # Looked for once: each look runs the modules that users added, and asks their Pythons.
    known = list(registry.executors().values()) if prepared.chosen is None else prepared.chosen
    present = [executor for executor in known if not executor.absent]
    with _Lanes(_lanes(prepared, known, present, results), steady, watch, jobs, plan.timeout) as lanes:
        # Frameworks are imported, and run, while the reference computes.
        start = time.perf_counter()
        watch("making inputs")
        for subject in subjects:
            if subject.model == "A":
                results.layers[subject.stack.name] = with_cases(subject, plan)
            else:
                results.layers[subject.stack.name].counterpart = subject.pieces
                results.layers[subject.stack.name].stated["B"] = outlined(subject.stack)
                if plan.given is None:
                    _exercised(results.layers[subject.stack.name], subjects, subject, plan.seed)
        lanes.begin(results)
        models = [subject.stack for subject in subjects if subject.model == "A"]
        with Truths(results.layers, models, _types(subjects, present), watch) as truths:
            meanwhile()
            single = truths.collected()
        lanes.judge()
        for subject in subjects:
            if subject.model == "B":
                layer = results.layers[subject.stack.name]
                model = next(stack for stack in models if stack.name == subject.stack.name)
                same = identical(model, subject.stack)
                layer.runs.append(by_reference(subject, layer.cases, single[model.name] if same else None))
        results.seconds["reference"] = time.perf_counter() - start
        lanes.tell()
        start = time.perf_counter()
        for name, seconds in lanes.collected(results).items():
            results.seconds[name] = results.seconds.get(name, 0.0) + seconds
        results.seconds["wait"] = time.perf_counter() - start


def _exercised(layer: LayerResults, subjects: Sequence[Subject], own: Subject, seed: int) -> None:
    """Add a case for what two layers state differently, if the other cases would not show it."""
    model = next(one.stack for one in subjects if one.model == "A" and one.stack.name == own.stack.name)
    case = made_for(model, own.stack, layer.cases, seed)
    if case is not None:
        layer.cases.append(case)


def _side_by_side(found: Pair) -> None:
    """Raise UsageError for layers whose inputs or outputs cannot be compared."""
    sizes = [(one.input_size, one.layers[-1].output_size) for one in (found.stack, found.counterpart)]
    if sizes[0] != sizes[1]:
        (reads, gives), (other_reads, other_gives) = sizes
        what = (
            f"read {reads} values and {other_reads}"
            if reads != other_reads
            else f"give {gives} values and {other_gives}"
        )
        raise UsageError(
            f"{quoted(found.name)} cannot be equal in both files: they {what} at each step.  A is {found.stack.describe()}; "
            f"B is {found.counterpart.describe()} ({', '.join(found.names)}; {found.evidence})"
        )


def _alone(model: Checkpoint, given: Results | None) -> Iterator[Subject]:
    """Yield the layers of one model; joined, where results of one layer are compared with a model that has it in
    pieces.
    """
    pieces = tuple(model.layers)
    if given is not None and len(given.layers) == 1 and len(pieces) > 1 and not set(pieces) & set(given.layers):
        (name,) = given.layers
        try:
            yield Subject("A", model, pieces, join_stack(list(model.layers.values()), name))
        except ValueError as error:
            raise UsageError(
                f"{model.path} has the layers {', '.join(pieces)}, but the results have one, {name!r}: they cannot be joined "
                f"({error}). Choose one with --layer."
            ) from None
        return
    for name, stack in model.layers.items():
        yield Subject("A", model, (name,), stack)


def _assumed(models: Iterable[Checkpoint]) -> Iterator[str]:
    for model in models:
        for question in model.questions:
            yield (
                f"{model.path} does not state {question.option}: {question.assumed} was assumed for "
                f"{question.layer or 'every layer'} (--set {question.option}=...)"
            )


def empty(plan: Plan) -> Results:
    """Return results without any runs yet."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Results(now, __version__, plan.as_dict())


def _model(label: str, checkpoint: Checkpoint) -> Model:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        whole = pool.submit(hash_file, checkpoint.path, checkpoint.beside)
        weights = dict(zip(checkpoint.layers, pool.map(hash_of, checkpoint.layers.values()), strict=True))
    size, digest = whole.result()
    return Model(label, checkpoint.path, checkpoint.format, size, digest, weights)


def with_cases(subject: Subject, plan: Plan) -> LayerResults:
    """Return a layer with its cases."""
    stack = subject.stack
    skipped: list[Skipped] = []
    if plan.given is not None:
        made = _kept(plan, stack)
    elif plan.inputs is None:
        made, skipped = given_cases.cases(
            stack, plan.cases, plan.seed, plan.batch, plan.time, plan.lengths, plan.gradients
        )
    else:
        made = [_given(plan, subject)]
    found = LayerResults(stack.name, stack.describe(), cases=made, skipped=skipped)
    found.stated[subject.model] = outlined(stack)
    return found


def _kept(plan: Plan, stack: Recurrent) -> list[Case]:
    """Return the cases of other results."""
    assert plan.given is not None
    kept = plan.given.layers.get(stack.name)
    if kept is None and len(plan.given.layers) == 1:
        (kept,) = plan.given.layers.values()
    if kept is None:
        raise UsageError(
            f"no inputs were kept for {quoted(stack.name)}. Choose one of: {', '.join(map(quoted, plan.given.layers))}"
        )
    for case in kept.cases:
        if case.x.shape[2] != stack.input_size:
            raise UsageError(
                f"the inputs kept for {quoted(kept.name)} are {case.x.shape[2]} wide, but {quoted(stack.name)} reads "
                f"{stack.input_size} values"
            )
    return kept.cases


def _given(plan: Plan, subject: Subject) -> Case:
    """Return the user's own inputs."""
    assert plan.inputs is not None
    try:
        with np.load(plan.inputs, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in ("x", "hidden", "cell", "lengths") if name in archive}
    except (OSError, ValueError, EOFError) as error:
        raise UnreadableError(plan.inputs, f"it is not a .npz file of plain arrays: {error}") from None
    if "x" not in arrays:
        raise UnreadableError(
            plan.inputs, "it has no array x", "Add x, (time, batch, in); hidden, cell and lengths are optional."
        )
    if "cell" in arrays and "hidden" not in arrays:
        raise UsageError(f"{plan.inputs} has cell but no hidden. Give both initial states")
    states = [arrays[name] for name in ("hidden", "cell") if name in arrays]
    made = given_cases.given(arrays["x"], states, arrays.get("lengths"), stack=subject.stack)
    if plan.gradients and made.hidden is not None:
        return given_cases.weighed(made, subject.stack, plan.seed)
    return made


def executors_named(names: Iterable[str]) -> list[Executor] | None:
    """Return the executors of these names, in order; None if none is named.

    Raises UsageError or AbsentExecutorError for one that does not exist.
    """
    wanted = list(names)
    if not wanted:
        return None
    if "all" in wanted:
        return [executor for executor in registry.executors().values() if not executor.absent]
    return [registry.executor(name) for name in wanted if name != REFERENCE]


@dataclass
class _Lane:
    """Executors that are tried one after the other, each with the layers that those before it refused.

    made     what each layer gave, in order
    seconds  what starting them took
    """

    executors: list[Executor]
    subjects: list[Subject]
    required: bool
    made: list[tuple[Subject, Run]] = field(default_factory=list)
    seconds: float = 0.0


def _lanes(prepared: Prepared, known: Sequence[Executor], present: Sequence[Executor], results: Results) -> list[_Lane]:
    """Return what runs beside one another: every executor that is named, or of each format those that may run it."""
    subjects = prepared.subjects
    if prepared.chosen is not None:
        return [_Lane([executor], subjects, "all" not in prepared.plan.on) for executor in prepared.chosen]
    own = {subject.checkpoint.format for subject in subjects}
    others = {executor.format for executor in known} - own if prepared.alone else set()
    lanes = []
    for format in [*sorted(own), *sorted(others)]:
        candidates = [executor for executor in present if executor.format == format]
        if not candidates and format in own:
            lacking = [f"{one.name}: {one.absent}" for one in known if one.format == format]
            results.warnings.append(f"no executor here runs {format} files ({'; '.join(lacking) or 'none exists'})")
        waiting = [subject for subject in subjects if format == subject.checkpoint.format or format not in own]
        if candidates and waiting:
            lanes.append(_Lane(candidates, waiting, False))
    return lanes


class _Lanes:
    """Lanes that run beside one another, each in a thread that waits for its executor's process."""

    def __init__(
        self, lanes: list[_Lane], steady: Steady, watch: Watch, jobs: int | None, timeout: float | None = None
    ) -> None:
        self._timeout = timeout
        self._lanes, self._steady, self._watch = lanes, steady, watch
        self._ready, self._known = threading.Event(), threading.Event()
        self._stopped, self._ran, self._telling = False, 0, False
        self._lock = threading.Lock()
        self._results: Results | None = None
        self._processes: list[Process] = []
        self._pool = ThreadPoolExecutor(max(1, jobs or os.cpu_count() or 1))
        self._waiting: list[Future[None]] = []

    def __enter__(self) -> _Lanes:
        # A context of their own: numpy's error states are those of the thread that asks.
        self._waiting = [self._pool.submit(contextvars.copy_context().run, self._run, lane) for lane in self._lanes]
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            # After an error or Ctrl-C nobody waits for an answer that may never come.
            self._stopped = True
            self._ready.set()
            self._known.set()
            for process in list(self._processes):
                process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def tell(self) -> None:
        """Tell how many cases have run, of all that are to run, from now on."""
        self._telling = True
        if self._results is None:
            return
        total = sum(len(self._results.layers[one.stack.name].cases) for lane in self._lanes for one in lane.subjects)
        names = ", ".join(lane.executors[0].name for lane in self._lanes)
        self._watch(f"running on {names or 'no executor'}", min(self._ran, total), total)

    def _tick(self) -> None:
        with self._lock:
            self._ran += 1
        if self._telling:
            self.tell()

    def begin(self, results: Results) -> None:
        """Let the lanes run: the cases are made."""
        self._results = results
        self._ready.set()

    def judge(self) -> None:
        """Let the lanes judge what they gave: the truth, and what is allowed, are known."""
        self._known.set()

    def collected(self, results: Results) -> dict[str, float]:
        """Wait for all lanes, add what they gave to the results, and return what they took."""
        for waiting in self._waiting:
            waiting.result()
        for lane in self._lanes:
            for subject, made in lane.made:
                layer = results.layers[subject.stack.name]
                layer.runs = [one for one in layer.runs if not _superseded(one, made)] + [made]
        return {"start": sum(lane.seconds for lane in self._lanes)}

    def _run(self, lane: _Lane) -> None:
        waiting = lane.subjects
        strange: list[Subject] = []
        for executor in lane.executors:
            if self._stopped:
                return
            # A file that today's framework runs only when it is made anew is left to the version that wrote it.
            again = strange if executor.settings.get("as_written") else []
            if not waiting and not again:
                continue
            waiting, more = self._on(executor, [*waiting, *(one for one in again if one not in waiting)], lane)
            strange += more

    def _on(self, executor: Executor, subjects: Sequence[Subject], lane: _Lane) -> tuple[list[Subject], list[Subject]]:
        """Run subjects on one executor; return those that it does not run, for another to try, and those of which it did
        not run the user's own file.
        """
        refused, strange = [], []
        begin = time.perf_counter()
        with (
            new_folder() as folder,
            running(executor) as process,
            contextlib.ExitStack() as ours,
        ):
            ours.callback(self._processes.remove, process)
            self._processes.append(process)
            process.timeout = self._timeout
            with contextlib.suppress(
                ExecutorError
            ):  # a framework that cannot be imported fails at every layer, and says so
                process.warm_up()
            lane.seconds += time.perf_counter() - begin
            self._ready.wait()
            for subject in subjects:
                if self._stopped or self._results is None:
                    break
                layer = self._results.layers[subject.stack.name]
                made = run(process, subject, layer.cases, Path(folder), lane.required, self._tick)
                self._tick()
                self._known.wait()
                if self._stopped:
                    break
                if made.status == "ran" and not self._steady(layer, made):
                    again = run(process, subject, layer.cases, Path(folder), lane.required)
                    if not _alike(made, again):
                        again.notes["unsteady"] = "it gave other numbers when it ran again; the second run is judged"
                    made = again
                lane.made.append((subject, made))
                if made.status == "refused":
                    refused.append(subject)
                elif made.status == "ran" and "own file" in made.notes:
                    strange.append(subject)
        return refused, strange


def _types(subjects: Sequence[Subject], used: Iterable[Executor]) -> dict[str, set[str]]:
    """Return the element types in which each layer is run."""
    types: dict[str, set[str]] = {}
    for subject in subjects:
        dtype = str(subject.stack.dtype)
        own = types.setdefault(subject.stack.name, {dtype})
        own.update({dtype, *(rounding(executor, dtype) for executor in used)})
    return types


def _superseded(old: Run, new: Run) -> bool:
    """Return whether to drop an executor that was tried and refused, because another was found."""
    return old.model == new.model and old.status == "refused" and not old.required and new.status == "ran"


def _alike(one: Run, other: Run) -> bool:
    return one.outputs.keys() == other.outputs.keys() and all(
        np.array_equal(one.outputs[name].y, other.outputs[name].y, equal_nan=True) for name in one.outputs
    )
