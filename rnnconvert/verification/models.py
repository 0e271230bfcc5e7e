"""Both models run whole on the same inputs: their outputs decide whether they are one model, no matter what their layers are.

The executor of one of them drew the inputs. Both models run on them twice, one call after the other, then on others: longer, ten times
as large, below zero, with padding at the end of a sequence, and one sequence of one step. Outputs are paired by their names, otherwise by
their order or by their values. Rounding explains as much as outputs move when every weight is about one unit in the last place off, in the
model of the coarser element type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import listed, quoted
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Output, Tolerance
from rnnconvert.judging.whole import IMMENSE, SHAKES, WholeJudge, left_open
from rnnconvert.running.inputs import exchanged, in_order, orders
from rnnconvert.running.models import ModelAnswer, ModelProcess, NamedArrays, RefusedInputsError
from rnnconvert.running.parent import Process
from rnnconvert.verification.recording import ModelsInputs, Recording, TriedInputs, is_input, record
from rnnconvert.verification.results import ModelsCompared
from rnnconvert.verification.running import Subject, own_file


@dataclass(frozen=True)
class RunningModel:
    """A model whose file an executor has run whole, and can run again.

    dtype   the coarsest element type of its weights
    rounds  whether weights of it stand for integers, whose kernel rounds more than the weights
    """

    model: ModelProcess
    recording: Recording
    dtype: np.dtype[Any]
    rounds: bool = False

    @classmethod
    def recorded(
        cls, process: Process, subjects: Sequence[Subject], folder: Path, seed: int, inputs: ModelsInputs | None = None, alone: bool = False
    ) -> RunningModel:
        """Run the model of some layers whole (rnnconvert.verification.recording.record). Raises ExecutorError if it does not run."""
        model = ModelProcess(process, own_file(process.executor, subjects[0], folder))
        coarsest = max((subject.stack.dtype for subject in subjects), key=epsilon)
        return cls(model, record(model, subjects, seed, inputs, alone), coarsest, any(subject.rounds() for subject in subjects))

    def exact(self) -> RunningModel:
        """Return it so that it computes in the type of its weights, where it can."""
        return replace(self, model=replace(self.model, exact=True))


def _inputs_for(inputs: ModelsInputs | None, model: RunningModel) -> NamedArrays:
    """Return the user's own inputs as a model takes them, by its own names; nothing where it does not take them, and need not.

    Raises UsageError where it has to.
    """
    if inputs is None:
        return ()
    names = [name for name, _ in model.recording.inputs]
    try:
        arrays = in_order(inputs.arrays, names, model.model.file)
        if len(arrays) != len(names):
            raise RefusedInputsError(f"it takes {len(names)} inputs ({listed(names)}), got {len(arrays)}")
        call = list(zip(names, arrays, strict=True))
        model.model.run([call])
    except (RefusedInputsError, UsageError) as error:
        if not inputs.required:
            return ()
        raise UsageError(f"{inputs.label}: {model.model.file} does not run on these inputs: {error}") from None
    return call


@dataclass(frozen=True)
class _Handing:
    """How a model takes the inputs of the other.

    order   their places, in its own order; None where their names say it
    turned  whether it has the first two axes of sequences exchanged
    moved   whether they stand in another order in it
    """

    order: tuple[int, ...] | None
    turned: bool
    moved: bool

    def of(self, inputs: NamedArrays) -> list[tuple[str, Array]]:
        """Return inputs as the model takes them."""
        chosen = inputs if self.order is None else [("", inputs[place][1]) for place in self.order]
        return [(name, exchanged(array) if self.turned and array.ndim > 2 else array) for name, array in chosen]

    @property
    def notes(self) -> tuple[str, ...]:
        """How the calls of both models differ, in words."""
        notes = ["its inputs stand in another order"] if self.moved else []
        return (*notes, *(["the first two axes of its sequences are exchanged"] if self.turned else []))


def compare_models(
    a: RunningModel,
    b: RunningModel,
    tolerances: Mapping[str, Tolerance],
    inputs: ModelsInputs | None = None,
    possible: Collection[str] = (),
) -> ModelsCompared | None:
    """Run both models on the same inputs and compare their outputs; "not compared" says why they could not be.

    inputs    the user's own, on which they run, too
    possible  the kinds of limits (rnnconvert.core.verdict.EXPLAINING) that may explain a difference

    Returns None for recurrent layers alone, of which nothing more could be compared than layer by layer.

    Raises UsageError for inputs of the user's own that a model does not take.
    """
    executors = (a.recording.executor, b.recording.executor)
    for label, model in (("A", a), ("B", b)):
        if model.recording.random:
            return ModelsCompared("not compared", f"{label} gives other numbers when it runs again: something in it is random")
    bare = [_bare(model.recording) for model in (a, b)]
    if bare[0] != bare[1]:
        inner, outer = ("A", "B") if bare[0] else ("B", "A")
        return ModelsCompared("not compared", f"{inner} holds recurrent layers alone, and {outer} computes more around them", bare=True)
    misfits: list[ModelsCompared] = []
    results: list[ModelsCompared] = []
    for handover, trials, outcome in _runs(a, b, inputs):
        if isinstance(outcome, str):
            misfits.append(ModelsCompared("not compared", outcome))
            continue
        result = handover.judged(outcome, trials, all(bare), tolerances)
        if result.status == "equal":
            return replace(result, executors=executors)
        if result.status == "not equal" and possible:
            result = replace(result, explained=handover.explained(possible, all(bare), tolerances))
        results.append(result)
    # The most likely way to hand the inputs over stands first.
    undecided = [result for result in results if result.reason == _IMMENSE]
    chosen = next((result for result in results if result.explained), (undecided or results or misfits)[0])
    if chosen.status == "not equal" and (rounding := [label for label, model in (("A", a), ("B", b)) if model.rounds]):
        why = f"{' and '.join(rounding)} computed with integers: how much of the difference their rounding explains is not known"
        chosen = replace(chosen, reason=f"{chosen.reason}. {why}", integers=True)
    return None if all(bare) and chosen.status == "not compared" else replace(chosen, executors=executors)


@dataclass(frozen=True)
class _Handover:
    """Two models, and how one of them takes the inputs of the other.

    from_a  whether the inputs are A's
    """

    giver: RunningModel
    taker: RunningModel
    handing: _Handing
    from_a: bool

    @property
    def _coarser(self) -> RunningModel:
        a, b = (self.giver, self.taker) if self.from_a else (self.taker, self.giver)
        return max((a, b), key=lambda model: epsilon(model.dtype))

    def run(self, trials: Sequence[TriedInputs], apart: bool = False) -> tuple[ModelAnswer, ModelAnswer]:
        """Return the outputs of both, A's first; one of them with other weights, too: the coarser, unless its weights cannot be moved.

        apart  whether each call begins anew

        Raises RefusedInputsError.
        """
        calls = [trial.inputs for trial in trials]
        by_taker = [self.handing.of(call) for call in calls]
        theirs = self.taker.model.run(by_taker, shakes=SHAKES if self.taker is self._coarser else 0, apart=apart)
        ours = self.giver.model.run(calls, shakes=0 if theirs.shaken else SHAKES, apart=apart)
        if not ours.shaken and not theirs.shaken:
            theirs = self.taker.model.run(by_taker, shakes=SHAKES, apart=apart)
        return (ours, theirs) if self.from_a else (theirs, ours)

    def takes(self, trials: Sequence[TriedInputs]) -> bool:
        """Return whether both run on these."""
        try:
            self.giver.model.run([trial.inputs for trial in trials])
            self.taker.model.run([self.handing.of(trial.inputs) for trial in trials])
        except RefusedInputsError:
            return False
        return True

    def judged(
        self, outcome: tuple[ModelAnswer, ModelAnswer], trials: Sequence[TriedInputs], bare: bool, tolerances: Mapping[str, Tolerance]
    ) -> ModelsCompared:
        """Compare what both gave."""
        by_b = (self._coarser is self.taker) == self.from_a
        turned, ordered = self.handing.turned, self.giver.recording.ordered and self.taker.recording.ordered
        result = _Judge(*outcome, [trial.what for trial in trials], by_b, self._coarser.dtype, bare, turned, ordered, tolerances).result()
        return replace(result, notes=() if bare else (*self.handing.notes, *result.notes))

    def explained(self, possible: Collection[str], bare: bool, tolerances: Mapping[str, Tolerance]) -> tuple[str, ...]:
        """Return the kinds of limits that explain a difference: without them the models give the same."""
        recording = self.giver.recording
        trials = recording.full_trials() if "mask" in possible else recording.trials(())
        exact = replace(self, giver=self.giver.exact(), taker=self.taker.exact()) if "precision" in possible else self
        trials = [*trials[:2], *(trial for trial in trials[2:] if exact.takes([trial]))]
        try:
            outcome = exact.run(trials, apart="states" in possible)
        except RefusedInputsError:
            return ()
        return tuple(sorted(possible)) if exact.judged(outcome, trials, bare, tolerances).status == "equal" else ()


def _runs(
    a: RunningModel, b: RunningModel, inputs: ModelsInputs | None
) -> Iterator[tuple[_Handover, list[TriedInputs], tuple[ModelAnswer, ModelAnswer] | str]]:
    """Yield the outputs of both for each way to hand the inputs of one to the other, or why they did not run."""
    paddings = (padding for model in (a, b) for padding in model.recording.paddings if padding is not None)
    fillings = list(dict.fromkeys((0.0, *paddings)))
    for giver, taker, label in ((a, b, "B"), (b, a, "A")):
        ran = False
        own_inputs_tried = [TriedInputs(own_inputs, "own")] if (own_inputs := _inputs_for(inputs, giver)) else []
        trials = giver.recording.trials(fillings)
        needed, more = [*trials[:2], *own_inputs_tried], trials[2:]
        for handing in _handings(giver.recording, taker.recording):
            handover = _Handover(giver, taker, handing, giver is a)
            every = [*needed, *more]
            try:
                try:
                    outcome = handover.run(every)
                except RefusedInputsError:
                    # Which of the others both take is asked of each: a model of a fixed length may take all but one.
                    every = [*needed, *(trial for trial in more if handover.takes(trials[:1]) and handover.takes([trial]))]
                    outcome = handover.run(every)
            except RefusedInputsError as misfit:
                yield handover, every, f"{label} does not run on the inputs of the other: {misfit}"
                continue
            ran = True
            yield handover, every, outcome
        if ran:
            return


def _handings(giver: Recording, taker: Recording) -> Iterator[_Handing]:
    """Yield the ways in which a model may take the inputs of another, the most likely first."""
    places = range(len(giver.inputs))
    names = {name for name, _ in giver.inputs}
    named = len(places) < 2 or ("" not in names and names == {name for name, _ in taker.stated})
    ordered = giver.ordered and taker.ordered
    elsewhere = named and ordered and len(places) > 1 and [name for name, _ in giver.inputs] != [name for name, _ in taker.stated]
    for order in [None] if named else orders(len(places)):
        moved = elsewhere if order is None else order != tuple(places)
        for turned in (False, True) if any(array.ndim > 2 for _, array in giver.inputs) else (False,):
            yield _Handing(order, turned, moved)


@dataclass(frozen=True)
class _Judge:
    """Compares what two models gave in each of their calls.

    trials      what each call tries
    by_b        whether B's weights, the coarser ones, say what rounding explains
    bare        whether both models are recurrent layers alone
    turned      whether B has the first two axes of sequences exchanged
    ordered     whether the outputs of both have an order
    """

    a: ModelAnswer
    b: ModelAnswer
    trials: Sequence[str]
    by_b: bool
    dtype: np.dtype[Any]
    bare: bool
    turned: bool
    ordered: bool
    tolerances: Mapping[str, Tolerance]

    def result(self) -> ModelsCompared:
        """Return the result of the comparison, with the outputs paired so that they agree, if they do."""
        if not self.a.shaken and not self.b.shaken:
            return ModelsCompared("not compared", "the weights of neither can be moved, so the effect of rounding is unknown")
        ours, theirs = self.a.run.outputs[0], self.b.run.outputs[0]
        results = [self._of(pairs) for pairs in self._pairings(ours, theirs)]
        moved = ("its outputs stand in another order",)
        results[1:] = [replace(result, notes=moved) for result in results[1:]]
        if self.ordered and set(ours) == set(theirs) and list(ours) != list(theirs):
            results[:1] = [replace(result, notes=moved) for result in results[:1]]
        if results:
            return next((result for result in results if result.status == "equal"), results[0])
        if len(ours) == len(theirs) == 1:
            (array,), (other,) = ours.values(), theirs.values()
            return ModelsCompared("not compared" if self.bare else "not equal", f"A gives {array.shape}, and B {other.shape}")
        return ModelsCompared("not compared", f"A gives {_shapes(ours)}, and B {_shapes(theirs)}: no shape is in both")

    def _pairings(self, ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> Iterator[list[tuple[str, str]]]:
        """Yield pairs of outputs of like shapes: by name, otherwise by order, and by value."""
        by_name = set(ours) == set(theirs)
        if by_name or len(ours) == len(theirs):
            pairs = [(name, name if by_name else other) for name, other in zip(ours, theirs, strict=True)]
            if all(self._as_ours(theirs[other], ours[name]) is not None for name, other in pairs):
                yield pairs
                if by_name:
                    return
        left, pairs = dict(theirs), []
        for name, array in ours.items():
            forms = {other: self._as_ours(value, array) for other, value in left.items()}
            near = {other: _distance(array, form) for other, form in forms.items() if form is not None}
            if near:
                pairs.append((name, min(near, key=lambda other: near[other])))
                del left[pairs[-1][1]]
        if pairs:
            yield pairs

    def _of(self, pairs: Sequence[tuple[str, str]]) -> ModelsCompared:
        by_call = [(trial, self._compared(call, name, other)) for call, trial in enumerate(self.trials) for name, other in pairs]
        # Where values are about to overflow, the order in which a kernel adds decides what comes of them.
        explode = [comparison for trial, comparison in by_call if trial != "large" and _explodes(comparison)]
        by_call = [(trial, comparison) for trial, comparison in by_call if not _explodes(comparison)]
        comparisons = [comparison for _, comparison in by_call] or explode
        wrong = [comparison for _, comparison in by_call if not comparison.passed]
        worst = max(wrong or comparisons, key=lambda comparison: comparison.ratio)
        alone = [f"output {quoted(name)}, only in A" for name in self.a.run.outputs[0] if name not in dict(pairs)]
        paired = {other for _, other in pairs}
        alone += [f"output {quoted(name)}, only in B" for name in self.b.run.outputs[0] if name not in paired and not self.bare]
        # One step of one sequence is too little to speak for all.
        judged = [comparison for trial, comparison in by_call if trial != "single"]
        by_output = [left_open(each for each in judged if each.output == name) for name in dict.fromkeys(each.output for each in judged)]
        unproved = tuple(filter(None, by_output))
        result = ModelsCompared("equal", "", worst.error, worst.allowed, tuple(dict(pairs)), tuple(alone), unproved=unproved)
        left = [
            {name: array for name, array in outputs.items() if name not in names}
            for outputs, names in ((self.a.run.outputs[0], dict(pairs)), (self.b.run.outputs[0], paired))
        ]
        if all(left) and not self.bare:
            return replace(result, status="not equal", reason=f"A gives {_named_shapes(left[0])}, and B {_named_shapes(left[1])}", alone=())
        if wrong:
            result = replace(result, unproved=())
            words = f"{worst.output} is off by {worst.error:.2g}, where rounding explains {worst.allowed:.1g}"
            if not np.isfinite(worst.error):
                words = f"{worst.output} is {worst.worst.expected:.3g} in A where it is {worst.worst.found:.3g} in B"
            if not all(comparison.passed for trial, comparison in by_call if not trial):
                return replace(result, status="not equal", reason=words)
            tried = dict.fromkeys(_TRIED[trial] for trial, comparison in by_call if not comparison.passed)
            words = f"{words}, on {' and '.join(tried)} alone"
            return replace(result, status="not equal", reason=words)
        if explode or not any(comparison.telling for comparison in comparisons):
            return replace(result, status="not compared", reason=_IMMENSE)
        return result

    def _as_ours(self, theirs: Array, ours: Array) -> Array | None:
        """Return an output of B in the shape of one of A, None for one that has another."""
        forms = [theirs]
        if self.turned and theirs.ndim > 2:
            forms.insert(0, exchanged(theirs))
        if self.bare:
            forms += [form.reshape([length for length in form.shape if length != 1]) for form in forms]
        squeezed = [length for length in ours.shape if length != 1]
        for form in forms:
            if form.shape == ours.shape:
                return form
            if self.bare and list(form.shape) == squeezed:
                return form.reshape(ours.shape)
        return None

    def _compared(self, call: int, name: str, other: str) -> OutputComparison:
        truth = self.a.run.outputs[call][name]
        value = self._as_ours(self.b.run.outputs[call][other], truth)
        label = "the output" if len(self.a.run.outputs[0]) == 1 else f"output {quoted(name)}"
        if value is None:
            value = np.full_like(truth, np.nan, np.float64)
        by_b = (self.by_b and bool(self.b.shaken)) or not self.a.shaken
        shaken = (
            [self._as_ours(run.outputs[call][other], truth) for run in self.b.shaken]
            if by_b
            else [run.outputs[call][name] for run in self.a.shaken]
        )
        moved = [array for array in shaken if array is not None]
        output = Output("whole", label, tuple(f"axis {axis}" for axis in range(truth.ndim)))
        judge, theirs, ours = WholeJudge(self.dtype, self.tolerances), moved if by_b else (), () if by_b else moved
        return judge.compare(output, value, truth, moved=theirs, truth_moved=ours, overflows=self.trials[call] == "large")


_IMMENSE = "what they give is immense or no number, so that rounding decides it"
"""Why models were not compared although both ran: handed over in another way they give something else for certain."""

_TRIED = {
    "longer": "inputs of other lengths",
    "large": "large inputs",
    "negative": "negative inputs",
    "padded": "sequences that end with padding",
    "single": "a single sequence or step",
    "own": "your own inputs",
}


def _explodes(comparison: OutputComparison) -> bool:
    """Return whether the values are immense, or none of them is a number: then nothing can be told from what both give."""
    values = [abs(value) for value in (comparison.worst.found, comparison.worst.expected) if np.isfinite(value)]
    if not values:
        return comparison.passed and not comparison.telling
    return comparison.swamped or not max(comparison.allowed, *values) < IMMENSE


def _distance(array: Array, other: Array) -> float:
    with np.errstate(all="ignore"):
        wide = np.complex128 if "c" in (array.dtype.kind, other.dtype.kind) else np.float64
        return float(np.nan_to_num(np.abs(array.astype(wide) - other.astype(wide))).max(initial=0.0))


def _shapes(outputs: Mapping[str, Array]) -> str:
    return listed(str(array.shape) for array in outputs.values())


def _named_shapes(outputs: Mapping[str, Array]) -> str:
    return listed(f"{name} {array.shape}" for name, array in outputs.items())


def _bare(recording: Recording) -> bool:
    """Return whether a model is nothing but recurrent layers: they read its inputs or one another, and their outputs are its own.

    Sequences may be turned around, and states of several layers put together.
    """
    calls = [call for several in recording.runs[0].values() for call in several]
    sequences = [call["y"] for call in calls if call["y"] is not None]
    inputs = [array for _, array in recording.inputs if array.ndim == 3]
    of_layers = [np.squeeze(value) for y in sequences for value in (y, y[::-1])] + [
        np.squeeze(call["last"]) for call in calls if call["last"] is not None
    ]
    for part in ("h_n", "c_n"):
        states = [list(call[part]) for call in calls if call[part]]
        several = [*states, [state for of_layer in states for state in of_layer]]
        alike = [group for group in several if group and len({state.shape for state in group}) == 1]
        of_layers += [np.squeeze(np.stack(group)) for group in alike] + [np.squeeze(state) for of_layer in states for state in of_layer]

    def chained(x: Array) -> bool:
        forms = (x, x[::-1])
        return any(is_input(form, array) for form in forms for array in inputs) or _among(forms, sequences)

    def among_own(output: Array) -> bool:
        flat = np.squeeze(output)
        return _among((flat, flat.swapaxes(0, 1)) if flat.ndim > 1 else (flat,), of_layers)

    return bool(calls) and all(chained(call["x"]) for call in calls) and all(map(among_own, recording.outputs.values()))


def _same(array: Array, other: Array) -> bool:
    return bool(((array == other) | ((array != array) & (other != other))).all())


def _among(forms: Sequence[Array], arrays: Sequence[Array]) -> bool:
    return any(form.shape == array.shape and _same(form, array) for form in forms for array in arrays)
