"""Run a model's layers on executors: the user's own file where the framework can, else a file made from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rnnconvert.core.arrays import FLOATS, Source, epsilon
from rnnconvert.core.errors import ExecutorError, OutputError, RefusedError, RnnConvertError, UnreadableError
from rnnconvert.core.notes import INTEGERS, LayerNote
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.files import convert as conversion
from rnnconvert.files.adapter import adapter
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import solved
from rnnconvert.judging.rounding import ARITHMETICS
from rnnconvert.language.registry import systems
from rnnconvert.rewrites import Step
from rnnconvert.rewrites.fit_to_layout import Fitted, fit_to_layout
from rnnconvert.running.parent import Process
from rnnconvert.running.registry import Executor, built_in
from rnnconvert.verification.ready import LayerRun, ReadyRun, states_fit

REFERENCE = "reference"
"""The executor that is not a framework: what rnnconvert itself reads, in the model's element type."""

_TURNED_BACK = "the gradients of a layer whose outputs the model turns are those of the turned ones"


@dataclass(frozen=True)
class Subject:
    """A layer of a model file that is run.

    model       "A" or "B"
    checkpoint  the file
    pieces      the layer's names in the file: several where one reads what the other gives
    stack       the same as one stack, in canonical form, under the name that the report uses
    turned      whether its outputs are compared as the model turns them, which a run of the layer alone does not
    """

    model: str
    checkpoint: Checkpoint
    pieces: tuple[str, ...]
    stack: Recurrent
    turned: bool = False

    def alone(self) -> Subject:
        """Return the layer without what the model does to its outputs."""
        if not self.turned:
            return self
        before = "processing" if self.stack.output_order == "time" else "time"
        return replace(self, stack=self.stack.replace(output_order=before), turned=False)

    def rounds(self) -> bool:
        """Return whether its weights stand for integers, whose kernel rounds more than the weights."""
        return INTEGERS in self._kinds()

    @property
    def computed_in(self) -> str:
        """The coarsest element type that its framework computes in when it runs the file: that of its weights, or what the file states."""
        kinds = {str(self.stack.dtype), *self._kinds()} & FLOATS.keys()
        return max(kinds, key=lambda kind: epsilon(FLOATS[kind]))

    def _kinds(self) -> set[str]:
        """Return of which kinds the file's notes of this layer are."""
        return {note.kind for note in self.checkpoint.warnings if isinstance(note, LayerNote) and note.layer in self.pieces}


def run(
    process: Process, subject: Subject, cases: Sequence[Case], folder: Path, required: bool = False, ran: Callable[[], None] = lambda: None
) -> LayerRun:
    """Run all cases of a layer on an executor; the answer reports anything that goes wrong with the layer.

    folder  where a file may be made for the executor
    ran     is called after each case

    Raises OutputError where the temporary folder has no room.
    """
    executor = process.executor
    dtype = str(subject.stack.dtype)
    layer_run = LayerRun(subject.model, executor.name, required, dtype=dtype, rounding=rounding(executor, dtype))
    layer_run.python, layer_run.device = executor.about["python"], executor.about["device"]
    layer_run.versions = dict(executor.about["versions"])
    try:
        layer_run.own_file = executor.format == subject.checkpoint.format
        if layer_run.own_file:
            part = _form(subject.stack, executor.format)
            file = own_file(executor, subject, folder)
            ready = ReadyRun(process, file, subject.pieces, part)
            reason = (
                ("" if file else "it holds numbers and no code that runs")
                or _apart(subject)
                or ("" if executor.settings.get("as_written") else _changed(part))
                or (_TURNED_BACK if subject.turned and any(case.cotangents for case in cases) else "")
                or ready.refusal(cases[0])
            )
            if reason:
                layer_run.own_file, layer_run.notes["own file"] = False, reason
            else:
                layer_run.rounding = rounding(executor, subject.computed_in)
        if layer_run.own_file:
            ready.answer(cases, layer_run, ran)
            if subject.turned:
                layer_run.outputs = {name: replace(outputs, y=outputs.y[::-1]) for name, outputs in layer_run.outputs.items()}
        else:
            for some in _by_file(executor.format, cases):
                start = time.perf_counter()
                file, part, layer_run.rewrites = _converted(subject, executor.format, executor.suffix, some, folder)
                layer_run.seconds["convert"] = layer_run.seconds.get("convert", 0.0) + time.perf_counter() - start
                ReadyRun(process, file, (), part).answer(some, layer_run, ran)
        if not layer_run.outputs:
            raise ExecutorError(executor.name, "; ".join(sorted(set(layer_run.left_out.values()))), refused=True)
    except RefusedError as error:
        # What else to convert to, or how, is no advice for a layer that is only to be run.
        layer_run.status, layer_run.reason = "refused", str(error).removesuffix(f" {error.remedy}")
    except ExecutorError as error:
        layer_run.status, layer_run.reason = "refused" if error.refused else "failed", error.problem
        layer_run.notes["trace"] = error.trace
    except OutputError:
        raise
    except RnnConvertError as error:
        layer_run.status, layer_run.reason = "failed", str(error)
    return layer_run


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
    """Return the arithmetic whose rounding explains the outputs of an executor for weights of this type, as ARITHMETICS names it.

    Raises UnreadableError for an executor that names another.
    """
    stated = executor.settings.get("rounds_like", {})
    listed = isinstance(stated, Mapping) and all(isinstance(name, str) and name in ARITHMETICS for name in stated.values())
    if not listed or not stated.keys() <= FLOATS.keys():
        names = ", ".join(map(repr, ARITHMETICS))
        raise UnreadableError(
            executor.module,
            f"what its variant {executor.variant!r} rounds like is {stated!r}, expected a dictionary whose keys are of "
            f"{', '.join(map(repr, FLOATS))}, and its values of {names}",
        )
    return str(stated.get(dtype, dtype))


def by_reference(subject: Subject, cases: Sequence[Case], solved_outputs: Sequence[Outputs] | None = None) -> LayerRun:
    """Compute rnnconvert's own outputs for a layer that it read from a file, in the element type of its weights.

    solved_outputs  the outputs for each case, if known: an identical layer gave them
    """
    dtype = str(subject.stack.dtype)
    layer_run = LayerRun(subject.model, REFERENCE, own_file=True, dtype=dtype, rounding=dtype)
    layer_run.versions = {"numpy": np.__version__}
    start = time.perf_counter()
    fitting = list(cases) if solved_outputs is not None else [case for case in cases if states_fit(case, subject.stack)]
    outputs = solved(subject.stack, fitting, subject.stack.dtype) if solved_outputs is None else solved_outputs
    layer_run.outputs = {case.name: output for case, output in zip(fitting, outputs, strict=True)}
    for case in cases:
        if case.name not in layer_run.outputs:
            layer_run.left_out[case.name] = "the states have other sizes in this layer"
    layer_run.seconds["run"] = time.perf_counter() - start
    return layer_run


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


def runs_as_written(executor: Executor, subject: Subject) -> bool:
    """Return whether an executor computes what a file says, as the version of its framework did that wrote it."""
    if executor.settings.get("as_written"):
        return True
    try:
        return not _changed(_form(subject.stack, executor.format))
    except RefusedError:
        # The file holds the layer in another form than a conversion would write. Where versions of a framework differ, which of them
        # computes what the file says is then unknown.
        return not any(other.settings.get("as_written") for other in built_in().values() if other.format == executor.format)


def _changed(part: Fitted) -> str:
    """Return why today's framework computes something else than the one that wrote a file, or ""."""
    steps = [step for step in part.steps if not step.exact]
    return f"its framework computes another function today: {steps[0]}" if steps else ""


def _apart(subject: Subject) -> str:
    """Return why the pieces of a layer cannot be run one after the other, or "": each must read what the one before gives."""
    depth = sum(subject.checkpoint.layers[name].num_layers for name in subject.pieces)
    return "" if depth == subject.stack.num_layers else "its directions are separate layers in the file, side by side"
