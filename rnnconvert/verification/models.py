"""Both models run whole on the same inputs: what they give decides whether they are one model, whatever their layers are.

The inputs are those that the executor of one of them drew. Both models run on them twice, one call after the other, and once on
longer ones. Outputs are paired by their names, otherwise by their order or by their values. Rounding explains as much as outputs
move when every weight is about one unit in the last place off, in the model of the coarser element type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import listed, quoted
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Output, Tolerance
from rnnconvert.judging.whole import SHAKES, WholeJudge
from rnnconvert.running.inputs import exchanged, in_order, orders
from rnnconvert.running.models import ModelAnswer, ModelProcess, NamedArrays, RefusedInputsError
from rnnconvert.running.parent import Process
from rnnconvert.verification.judgements import IMMENSE
from rnnconvert.verification.recording import ModelsInputs, Recording, is_input, record
from rnnconvert.verification.results import ModelsCompared
from rnnconvert.verification.running import Subject, own_file


@dataclass(frozen=True)
class RunningModel:
    """A model whose file an executor has run whole, and can run again.

    dtype  the coarsest element type of its weights
    """

    model: ModelProcess
    recording: Recording
    dtype: np.dtype[Any]

    @classmethod
    def recorded(
        cls, process: Process, subjects: Sequence[Subject], folder: Path, seed: int, inputs: ModelsInputs | None = None, alone: bool = False
    ) -> RunningModel:
        """Run the model of some layers whole (rnnconvert.verification.recording.record). Raises ExecutorError if it does not run."""
        model = ModelProcess(process, own_file(process.executor, subjects[0], folder))
        coarsest = max((subject.stack.dtype for subject in subjects), key=epsilon)
        return cls(model, record(model, subjects, seed, inputs, alone), coarsest)


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
    """

    order: tuple[int, ...] | None
    turned: bool

    def of(self, inputs: NamedArrays) -> list[tuple[str, Array]]:
        """Return inputs as the model takes them."""
        chosen = inputs if self.order is None else [("", inputs[place][1]) for place in self.order]
        return [(name, exchanged(array) if self.turned and array.ndim > 2 else array) for name, array in chosen]

    @property
    def notes(self) -> tuple[str, ...]:
        """How the calls of both models differ, in words."""
        moved = self.order is not None and self.order != tuple(sorted(self.order))
        notes = ["its inputs stand in another order"] if moved else []
        return (*notes, *(["the first two axes of its sequences are exchanged"] if self.turned else []))


def compare_models(
    a: RunningModel, b: RunningModel, tolerances: Mapping[str, Tolerance], inputs: ModelsInputs | None = None
) -> ModelsCompared | None:
    """Run both models on the same inputs and compare their outputs; "not compared" says why they could not be.

    inputs  the user's own, on which they run, too

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
    coarser = max((a, b), key=lambda model: epsilon(model.dtype))
    chosen: ModelsCompared | None = None
    for handing, outcome in _runs(a, b, coarser, inputs):
        if isinstance(outcome, str):
            chosen = chosen or ModelsCompared("not compared", outcome)
            continue
        result = _Judge(*outcome, coarser is b, coarser.dtype, all(bare), handing.turned, tolerances).result()
        result = replace(result, notes=() if all(bare) else (*handing.notes, *result.notes))
        if result.status == "equal":
            return replace(result, executors=executors)
        if chosen is None or chosen.status == "not compared":
            chosen = result
    assert chosen is not None
    return None if all(bare) and chosen.status == "not compared" else replace(chosen, executors=executors)


def _runs(
    a: RunningModel, b: RunningModel, coarser: RunningModel, inputs: ModelsInputs | None
) -> Iterator[tuple[_Handing, tuple[ModelAnswer, ModelAnswer] | str]]:
    """Yield what both gave, A's first, for each way to hand the inputs of one to the other, or why they did not run."""
    for giver, taker, label in ((a, b, "B"), (b, a, "A")):
        ran = False
        more = _inputs_for(inputs, giver)
        for handing in _handings(giver.recording, taker.recording):
            for drawn in giver.recording.calls():
                calls = [*drawn, more] if more else drawn
                try:
                    ours, theirs = _both(giver, taker, calls, [handing.of(call) for call in calls], coarser)
                except RefusedInputsError as misfit:
                    yield handing, f"{label} does not run on the inputs of the other: {misfit}"
                    continue
                ran = True
                yield handing, (ours, theirs) if giver is a else (theirs, ours)
                break
        if ran:
            return


def _both(
    giver: RunningModel, taker: RunningModel, calls: Sequence[NamedArrays], by_taker: Sequence[NamedArrays], coarser: RunningModel
) -> tuple[ModelAnswer, ModelAnswer]:
    """Run both models, one of them with other weights, too: the coarser, unless its weights are constants that cannot be moved."""
    theirs = taker.model.run(by_taker, shakes=SHAKES if taker is coarser else 0)
    ours = giver.model.run(calls, shakes=0 if theirs.shaken else SHAKES)
    return ours, theirs if ours.shaken or theirs.shaken else taker.model.run(by_taker, shakes=SHAKES)


def _handings(giver: Recording, taker: Recording) -> Iterator[_Handing]:
    """Yield the ways in which a model may take the inputs of another, the most likely first."""
    places = range(len(giver.inputs))
    names = {name for name, _ in giver.inputs}
    named = len(places) < 2 or ("" not in names and names == {name for name, _ in taker.stated})
    for order in [None] if named else orders(len(places)):
        for turned in (False, True) if any(array.ndim > 2 for _, array in giver.inputs) else (False,):
            yield _Handing(order, turned)


@dataclass(frozen=True)
class _Judge:
    """Compares what two models gave in each of their calls.

    by_b        whether B's weights, the coarser ones, say what rounding explains
    bare        whether both models are recurrent layers alone
    turned      whether B has the first two axes of sequences exchanged
    """

    a: ModelAnswer
    b: ModelAnswer
    by_b: bool
    dtype: np.dtype[Any]
    bare: bool
    turned: bool
    tolerances: Mapping[str, Tolerance]

    def result(self) -> ModelsCompared:
        """Return what the outputs show, paired so that they agree, if they do."""
        if not self.a.shaken and not self.b.shaken:
            return ModelsCompared("not compared", "the weights of neither can be moved, so the effect of rounding is unknown")
        ours, theirs = self.a.run.outputs[0], self.b.run.outputs[0]
        results = [self._of(pairs) for pairs in self._pairings(ours, theirs)]
        results[1:] = [replace(result, notes=("its outputs stand in another order",)) for result in results[1:]]
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
        comparisons = [self._compared(call, name, other) for call in range(len(self.a.run.outputs)) for name, other in pairs]
        # Where values are about to overflow, the order in which a kernel adds decides what comes of them.
        explode = [comparison for comparison in comparisons if comparison.swamped or not max(_values(comparison)) < IMMENSE]
        wrong = [comparison for comparison in comparisons if not comparison.passed and comparison not in explode]
        worst = max(wrong or comparisons, key=lambda comparison: comparison.ratio)
        alone = [f"output {quoted(name)}, only in A" for name in self.a.run.outputs[0] if name not in dict(pairs)]
        paired = {other for _, other in pairs}
        alone += [f"output {quoted(name)}, only in B" for name in self.b.run.outputs[0] if name not in paired and not self.bare]
        result = ModelsCompared("equal", "", worst.error, worst.allowed, tuple(dict(pairs)), tuple(alone))
        if wrong:
            words = f"{worst.output} is off by {worst.error:.2g}, where rounding explains {worst.allowed:.1g}"
            return replace(result, status="not equal", reason=words)
        if explode or not any(comparison.telling for comparison in comparisons):
            return replace(result, status="not compared", reason="their values explode, and rounding is as large as they are")
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
        return WholeJudge(self.dtype, self.tolerances).compare(output, value, truth, **{"moved" if by_b else "truth_moved": moved})


def _values(comparison: OutputComparison) -> tuple[float, float, float]:
    worst = comparison.worst
    return comparison.allowed, *((0.0, 0.0) if worst is None else (abs(worst.found), abs(worst.expected)))


def _distance(array: Array, other: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.nan_to_num(np.abs(array.astype(np.float64) - other.astype(np.float64))).max(initial=0.0))


def _shapes(outputs: Mapping[str, Array]) -> str:
    return listed(str(array.shape) for array in outputs.values())


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
