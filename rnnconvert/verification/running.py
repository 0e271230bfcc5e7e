"""Run a model's layers on executors: the user's own file where the framework can, else a file made from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import ExecutorError, RefusedError, RnnConvertError
from rnnconvert.core.notes import INTEGERS, LayerNote
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.files import convert as conversion
from rnnconvert.files.adapter import adapter
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.judging.cases import Case, solved, state_widths
from rnnconvert.language.layout import Sizes
from rnnconvert.language.registry import systems
from rnnconvert.rewrites import Step
from rnnconvert.rewrites.fit_to_layout import Fitted, fit_to_layout
from rnnconvert.running.parent import Process
from rnnconvert.running.registry import Executor
from rnnconvert.verification.gradients import Graded, graded
from rnnconvert.verification.offsets import disagreement

REFERENCE = "reference"
"""The executor that is not a framework: what rnnconvert itself reads, in the model's element type."""


@dataclass(frozen=True)
class Subject:
    """A layer of a model file that is run.

    model       "A" or "B"
    checkpoint  the file
    pieces      the layer's names in the file: several where one reads what the other gives
    stack       the same as one stack, in canonical form, under the name that the report uses
    """

    model: str
    checkpoint: Checkpoint
    pieces: tuple[str, ...]
    stack: Recurrent

    def rounds(self) -> bool:
        """Return whether its weights stand for integers, whose kernel rounds more than the weights."""
        notes = (note for note in self.checkpoint.warnings if isinstance(note, LayerNote))
        return any(note.kind == INTEGERS and note.layer in self.pieces for note in notes)


@dataclass
class LayerRun:
    """One layer of one model on one executor.

    own_file  whether the user's own file was run, or one made from it
    status    "ran"; "refused" (the executor does not do this, or its format cannot hold it), "failed" or "absent"
    reason    why it did not run
    dtype     the element type of the weights
    rounding  the element type that it rounds like: float16 for float32 on tensor cores, whose TF32 has as many digits
    outputs   what each case gave
    left_out  why a case gave nothing, by case
    gradients of the cases that ask for them
    """

    model: str
    executor: str
    required: bool = False
    own_file: bool = False
    status: str = "ran"
    reason: str = ""
    device: str = "cpu"
    dtype: str = "float32"
    rounding: str = "float32"
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    rewrites: tuple[Step, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, Outputs] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, Graded] = field(default_factory=dict)


def run(
    process: Process, subject: Subject, cases: Sequence[Case], folder: Path, required: bool = False, ran: Callable[[], None] = lambda: None
) -> LayerRun:
    """Run all cases of a layer on an executor; the answer reports whatever goes wrong.

    folder  where a file may be made for the executor
    ran     is called after each case
    """
    executor = process.executor
    dtype = str(subject.stack.dtype)
    run_ = LayerRun(subject.model, executor.name, required, dtype=dtype, rounding=rounding(executor, dtype))
    run_.python, run_.device = executor.about["python"], executor.about["device"]
    run_.versions = dict(executor.about["versions"])
    try:
        run_.own_file = executor.format == subject.checkpoint.format
        if run_.own_file:
            part = _form(subject.stack, executor.format)
            file = own_file(executor, subject, folder)
            ready = _Ready(process, file, subject.pieces, part)
            reason = (
                ("" if file else "it holds numbers and no code that runs")
                or _apart(subject)
                or ("" if executor.settings.get("as_written") else _changed(part))
                or ready.refusal(cases[0])
            )
            if reason:
                run_.own_file, run_.notes["own file"] = False, reason
        if run_.own_file:
            ready.answer(cases, run_, ran)
        else:
            for some in _by_file(executor.format, cases):
                start = time.perf_counter()
                file, part, run_.rewrites = _converted(subject, executor.format, executor.suffix, some, folder)
                run_.seconds["convert"] = run_.seconds.get("convert", 0.0) + time.perf_counter() - start
                _Ready(process, file, (), part).answer(some, run_, ran)
        if not run_.outputs:
            raise ExecutorError(executor.name, "; ".join(sorted(set(run_.left_out.values()))), refused=True)
    except RefusedError as error:
        run_.status, run_.reason = "refused", str(error)
    except ExecutorError as error:
        run_.status, run_.reason = "refused" if error.refused else "failed", error.problem
        run_.notes["trace"] = error.trace
    except RnnConvertError as error:
        run_.status, run_.reason = "failed", str(error)
    return run_


def own_file(executor: Executor, subject: Subject, folder: Path) -> str:
    """Return the model's file; where its ending is in capitals, which frameworks do not know, a link with an ending that they
    know; where it is code, what its adapter writes for it, and "" if it holds none.

    Raises ExecutorError for code that its adapter did not write.
    """
    runnable = getattr(adapter(subject.checkpoint.format), "runnable", None)
    if runnable is not None:
        own_folder = folder / f"{subject.model}-own"
        own_folder.mkdir(exist_ok=True)
        try:
            return str(runnable(subject.checkpoint, own_folder) or "")
        except NotImplementedError as refusal:
            raise ExecutorError(executor.name, str(refusal), refused=True) from None
    path = Path(subject.checkpoint.file).absolute()
    end = "".join(path.suffixes[-2:])
    if end == end.lower() or not path.is_file():
        return subject.checkpoint.file
    link = folder / f"{subject.model}-own" / f"{path.name[: len(path.name) - len(end)]}{end.lower()}"
    if not link.exists():
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(path)
    return str(link)


def rounding(executor: Executor, dtype: str) -> str:
    """Return the element type whose rounding explains the outputs of an executor for weights of this type."""
    return "float16" if dtype == "float32" and executor.settings.get("tf32") else dtype


def by_reference(subject: Subject, cases: Sequence[Case], solved_outputs: Sequence[Outputs] | None = None) -> LayerRun:
    """Compute what rnnconvert itself reads from a file, in the element type of its weights.

    solved_outputs  what it gives for each case, where that is known: an identical layer gave it
    """
    dtype = str(subject.stack.dtype)
    run_ = LayerRun(subject.model, REFERENCE, own_file=True, dtype=dtype, rounding=dtype)
    run_.versions = {"numpy": np.__version__}
    start = time.perf_counter()
    fitting = list(cases) if solved_outputs is not None else [case for case in cases if _states_fit(case, subject.stack)]
    outputs = solved(subject.stack, fitting, subject.stack.dtype) if solved_outputs is None else solved_outputs
    run_.outputs = {case.name: output for case, output in zip(fitting, outputs, strict=True)}
    for case in cases:
        if case.name not in run_.outputs:
            run_.left_out[case.name] = "the states have other sizes in this layer"
    run_.seconds["run"] = time.perf_counter() - start
    return run_


def identical(first: Recurrent, other: Recurrent) -> bool:
    """Return whether two stacks compute the same with the same numbers, bit for bit."""
    if (first.join, first.output_order, len(first.readout)) != (other.join, other.output_order, len(other.readout)):
        return False
    if [layer.merge for layer in first.layers] != [layer.merge for layer in other.layers]:
        return False
    both = list(zip(first.directions(), other.directions(), strict=False))
    shared = all(place[:2] == its_place[:2] for place, its_place in both) and len(both) == sum(1 for _ in other.directions())
    if not shared or len(both) != sum(1 for _ in first.directions()):
        return False
    for (*_, direction), (*_, its) in both:
        if (direction.cell, direction.reverse, direction.arrays.keys()) != (its.cell, its.reverse, its.arrays.keys()):
            return False
    pairs = [(ours.arrays[key], its.arrays[key]) for (*_, ours), (*_, its) in both for key in ours.arrays]
    return all(map(_same_bits, *zip(*pairs, *zip(first.readout, other.readout, strict=True), strict=True)))


def _same_bits(left: Source, other: Source) -> bool:
    first, second = np.asarray(left), np.asarray(other)
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    bits = np.dtype(f"u{first.dtype.itemsize}")
    return bool(np.array_equal(first.view(bits), second.view(bits)))


def _form(stack: Recurrent, format: str) -> Fitted:
    return fit_to_layout(stack, adapter(format).layouts(Options()), ())


def _by_file(format: str, cases: Sequence[Case]) -> list[list[Case]]:
    """Cases by the file that they need: a model may have inputs for its initial states, or none, as its writer decided."""
    if not _fixed_states(format):
        return [list(cases)]
    both = [[case for case in cases if _gives_states(case) is wanted] for wanted in (False, True)]
    return [some for some in both if some]


def _fixed_states(format: str) -> bool:
    """Return whether a file of this format says what a call hands in: states and lengths are options of its writer."""
    system = systems().get(format)
    return system is not None and {"states", "sequence_lens"} <= {option.name for option in system.options}


def _gives_states(case: Case) -> bool:
    """Return whether a case passes states in: its own, or those at the end of the previous piece."""
    return case.hidden is not None or case.way != "whole"


def _input_settings(stack: Recurrent, cases: Sequence[Case]) -> list[str]:
    """Return the options of a model that can run these cases, for files that state the inputs of a call."""
    settings = ["sequence_lens=true"] if any(case.lengths is not None for case in cases) else []
    if any(map(_gives_states, cases)):
        settings.append("states=input")
        if any(
            part.startswith("initial") and np.asarray(source).any()
            for _, _, d in stack.directions()
            for (part, _), source in d.arrays.items()
        ):
            settings.append("initial_state=call")
    return settings


def _converted(subject: Subject, format: str, suffix: str, cases: Sequence[Case], folder: Path) -> tuple[str, Fitted, tuple[Step, ...]]:
    """Write a file of the executor's format with this layer alone; return it, the layer's form in it, and the rewrites."""
    stack = subject.stack
    alone = subject.checkpoint.replace(layers={stack.name: stack}, tensors={})
    target = folder / f"{subject.model}-{format}{suffix}"
    settings = _input_settings(stack, cases) if _fixed_states(format) else []
    try:
        summary = conversion.save(alone, target, format, force=True, settings=settings)
    except RefusedError:
        without = [setting for setting in settings if setting != "sequence_lens=true"]
        if without == settings:
            raise
        summary = conversion.save(alone, target, format, force=True, settings=without)
    return str(target), _form(stack, format), summary.steps


def _bound(kind: Literal["cell", "projection"]) -> Callable[[Cell], float | None]:
    return lambda cell: {clip.kind: clip.high for clip in cell.clips}.get(kind)


_FACTS: dict[str, Callable[[Cell], Any]] = {
    "activation": lambda cell: cell.activation.name,
    "forget_bias": lambda cell: cell.constants.get("f", 0.0),
    "cell_clip": _bound("cell"),
    "proj_clip": _bound("projection"),
}
"""The facts of a cell that an executor receives because its framework's files do not state them:
rnnconvert.language.layout.System.unstated."""


def how_of(part: Fitted) -> dict[str, Any]:
    """Return what a file of this format does not state, in the framework's own words."""
    cell, layout = part.stack.cell, part.layout
    system = systems().get(layout.framework)
    if system is not None and system.unstated:
        cells = [direction.cell for _, _, direction in part.stack.directions()]
        return {fact: [_FACTS[fact](kind_cell) for kind_cell in cells] for fact in system.unstated}
    speaking = system is not None and system.speaking
    chosen = cell.kind == "rnn" and not speaking and len(layout.holds.activations) > 1
    how = {"nonlinearity": cell.activation.name} if chosen else {}
    if part.stack.num_directions == 2 and not speaking and len(layout.holds.merges) > 1:
        how["merge_mode"] = part.stack.layers[-1].merge
    if any("{pseudo_layer}" in tensor.name for tensor in layout.tensors):
        # Names count layers and directions together: shapes do not always tell two layers from two directions.
        how["bidirectional"] = str(part.stack.num_directions == 2).lower()
    return how


def runs_as_written(executor: Executor, subject: Subject) -> bool:
    """Return whether an executor computes what a file says, as the version of its framework did that wrote it."""
    if executor.settings.get("as_written"):
        return True
    try:
        return not _changed(_form(subject.stack, executor.format))
    except RefusedError:
        return False


def _changed(part: Fitted) -> str:
    """Return why today's framework computes something else than the one that wrote a file, or ""."""
    steps = [step for step in part.steps if not step.exact]
    return f"its framework computes another function today: {steps[0]}" if steps else ""


def _apart(subject: Subject) -> str:
    """Return why the pieces of a layer cannot be run one after the other, or "": each must read what the one before
    gives."""
    depth = sum(subject.checkpoint.layers[name].num_layers for name in subject.pieces)
    return "" if depth == subject.stack.num_layers else "its directions are separate layers in the file, side by side"


@dataclass(frozen=True)
class _Ready:
    """A layer in a file that an executor runs.

    pieces  the layer's names in the file; none if the file has nothing else
    part    its form there
    """

    process: Process
    file: str
    pieces: Sequence[str]
    part: Fitted

    def refusal(self, case: Case) -> str:
        """Return why the framework does not run the file, tried with the first step of a case; "" if it does."""
        try:
            self._ask(case.x[:1])
        except ExecutorError as error:
            if not error.refused:
                raise
            return error.problem
        return ""

    def answer(self, cases: Sequence[Case], run_: LayerRun, ran: Callable[[], None]) -> None:
        """Store the outputs of every case that the executor supports."""
        start = time.perf_counter()
        for number, case in enumerate(cases):
            if number:
                ran()
            if not _states_fit(case, self.part.stack):
                names = ", ".join(step.rewrite for step in run_.rewrites)
                run_.left_out[case.name] = f"the states have other sizes in the file that ran ({names})"
                continue
            try:
                answer = self._in_one_piece(case) if case.way == "whole" else self._carried(case)
            except ExecutorError as error:
                if not error.refused:
                    raise
                run_.left_out[case.name] = error.problem
                continue
            run_.notes.update(answer.get("notes", {}))
            _same_offsets(self.process, run_, self.part)
            try:
                run_.outputs[case.name] = _outputs(answer, self.part.stack, case)
                if "gradients" in answer:
                    run_.gradients[case.name] = graded(answer["gradients"], self.part, case, run_.rounding)
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, RnnConvertError):
                    raise
                raise ExecutorError(self.process.executor.name, f"{case.name}: {error}") from None
        run_.seconds["run"] = run_.seconds.get("run", 0.0) + time.perf_counter() - start

    def _ask(self, x: Array, **changes: Any) -> dict[str, Any]:
        inputs = {"hidden": None, "cell": None, "lengths": None, "cotangents": None, **changes}
        for name in ("hidden", "cell"):
            inputs[name] = list(inputs[name]) if inputs[name] else None
        return self.process.ask(file=self.file, layers=list(self.pieces), how=how_of(self.part), x=x, **inputs)

    def _in_one_piece(self, case: Case) -> dict[str, Any]:
        weights = case.cotangents
        cotangents = weights and {"y": weights.y, "hidden": list(weights.hidden), "cell": list(weights.cell)}
        inputs = {"hidden": case.hidden, "cell": case.cell, "lengths": case.lengths}
        try:
            return self._ask(case.x, **inputs, cotangents=cotangents)
        except ExecutorError as error:
            if not (error.refused and cotangents):
                raise
            # It may run forwards and know no gradients.
            answer = self._ask(case.x, **inputs)
            return {**answer, "notes": {**answer.get("notes", {}), "gradients": error.problem}}

    def _carried(self, case: Case) -> dict[str, Any]:
        """Run a sequence piece by piece, each starting from the state at the end of the previous one."""
        cuts = [len(case.x) // 2] if case.way == "halves" else list(range(1, len(case.x)))
        state: Mapping[str, Any] = {"hidden": case.hidden, "cell": case.cell}
        pieces = []
        for x in np.split(case.x, cuts):
            answer = self._ask(x, **state)
            state = {"hidden": answer["hidden"], "cell": answer["cell"]}
            pieces.append(answer["y"])
        return {**answer, "y": np.concatenate(pieces)}


def _same_offsets(process: Process, run_: LayerRun, part: Fitted) -> None:
    """Raise ExecutorError if a library reports other offsets for its buffer than ours."""
    if "offsets" in run_.notes:
        sizes, itemsize = Sizes.of(part.stack), part.stack.dtype.itemsize
        problem = disagreement(part.layout, sizes, itemsize, run_.notes["bytes"], run_.notes.pop("offsets"))
        if problem:
            raise ExecutorError(process.executor.name, f"the library's buffer has another layout: {problem}")
        run_.notes["layout"] = "the library reports the same offsets as rnnconvert"


def _states_fit(case: Case, stack: Recurrent) -> bool:
    if case.hidden is None:
        return True
    hidden, cell = state_widths(stack)
    # A cell state that this cell does not have is not handed to it, nor is one that was not given.
    fits = not case.cell or not cell or [state.shape[1] for state in case.cell] == cell
    return fits and [state.shape[1] for state in case.hidden] == hidden


def _outputs(answer: Mapping[str, Any], stack: Recurrent, case: Case) -> Outputs:
    """Return an executor's answer as outputs. Raises ValueError, saying what is wrong, if it is not one. Raises
    ValueError, saying what is wrong, if it is not one.
    """
    lacking = [name for name in ("y", "hidden", "cell") if name not in answer]
    if lacking:
        raise ValueError(f"its answer has no {lacking[0]!r}")
    steps, batch = case.x.shape[:2]
    y = np.asarray(answer["y"])
    if y.ndim != 3 or y.shape[:2] != (steps, batch) or not np.issubdtype(y.dtype, np.floating):
        raise ValueError(f"its y is {y.dtype} of the shape {y.shape}, expected numbers ({steps}, {batch}, ...)")
    states_by_name = {}
    for name, widths in zip(("hidden", "cell"), state_widths(stack), strict=True):
        states = tuple(np.asarray(state) for state in answer[name] or ())
        if states and [state.shape for state in states] != [(batch, width) for width in widths]:
            shapes = ", ".join(str(state.shape) for state in states)
            raise ValueError(f"its {name} states have the shapes {shapes}, expected (batch, width) of {batch} and {widths}")
        states_by_name[name] = states
    return Outputs(y, states_by_name["hidden"], states_by_name["cell"])
