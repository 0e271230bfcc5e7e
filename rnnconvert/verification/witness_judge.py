"""One layer's call in a model that was run whole, against what the layers as read give."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging import rounding
from rnnconvert.judging.case_kinds import Case, state_widths
from rnnconvert.judging.cases import shaken
from rnnconvert.judging.comparison import OutputComparison, parts
from rnnconvert.judging.judging import Allowance, Output, Tolerance, compare, tolerance
from rnnconvert.running.models import Calls
from rnnconvert.verification.recording import Recording, apart, carried_on, follows, gap, is_input, rows_of
from rnnconvert.verification.results import ModelRun
from rnnconvert.verification.running import Subject


@dataclass(frozen=True)
class _Outcome:
    """The evidence on a layer from a run of a whole model, and what that leaves to the caller."""

    model_run: ModelRun
    limits: tuple[Limit, ...] = ()


def stand_apart(subject: Subject) -> bool:
    """Return whether the layers are directions that stand side by side."""
    return sum(subject.checkpoint.layers[name].num_layers for name in subject.pieces) != subject.stack.num_layers


class CallJudge:
    """One compared layer, and the calls of what it consists of."""

    def __init__(self, subject: Subject, stack: Recurrent, recording: Recording, tolerances: Mapping[str, Tolerance]) -> None:
        self.pieces, self.stack, self.recording, self.tolerances = subject.pieces, stack, recording, tolerances
        self.side_by_side = stand_apart(subject)
        self.ways = [sum(1 for _ in subject.checkpoint.layers[name].directions()) for name in subject.pieces]
        types = [str(subject.stack.dtype), subject.computed_in, str(stack.dtype)]
        types += [recording.rounding.get(kind, kind) for kind in types]
        # The coarsest type in which either side computes decides what rounding explains.
        self.arithmetic = max((rounding.ARITHMETICS[kind] for kind in types), key=lambda arithmetic: arithmetic.unit)
        self.solved: dict[Hashable, tuple[Outputs, Outputs]] = {}
        self.backwards = all(direction.reverse for *_, direction in stack.directions())
        self.runs = [{name: self._in_time(carried_on(run.get(name, ()))) for name in self.pieces} for run in recording.runs]

    def outcome(self) -> _Outcome:
        """Return the result that the calls show."""
        unseen = [name for name in self.pieces if name in self.recording.reasons]
        if unseen:
            return not_run(self.recording.reasons[unseen[0]])
        if self.side_by_side and len(self.pieces) % 2:
            return not_run("its layers stand side by side, and are more than two directions")
        counts = {name: len(self.runs[0][name]) for name in self.pieces}
        idle = [name for name, count in counts.items() if not count]
        if idle:
            return not_run(f"the model does not call {idle[0]!r} when it runs")
        if any(len(run[name]) != counts[name] for run in self.runs for name in self.pieces):
            return not_run("the model calls its layers another number of times when it runs again")
        if len(set(counts.values())) > 1:
            words = ", ".join(f"{name!r} {_times(count)}" for name, count in counts.items())
            return _Outcome(ModelRun("not equal", f"the model calls {words}: one layer in their place computes something else"))
        loop = self._loop()
        if loop:
            return _differs(loop)
        best: _Outcome | None = None
        for number in range(len(self.runs)):
            for call in range(next(iter(counts.values()))):
                outcome = self._call(number, [self.runs[number][name][call] for name in self.pieces], call)
                if outcome.model_run.status != "equal":
                    return outcome
                if best is None or outcome.model_run.error > best.model_run.error:
                    best = outcome
        assert best is not None
        times = next(iter(counts.values()))
        notes = (f"the model calls it {_times(times)}; each call is equal",) if times > 1 else ()
        return replace(best, model_run=replace(best.model_run, notes=notes))

    def _in_time(self, calls: Sequence[Mapping[str, Any]]) -> Calls:
        """Return the calls of a loop that reads from the end in the order of time, and not in that of the loop."""
        if not self.backwards:
            return calls
        return [{**call, "x": call["x"][::-1], "y": call["y"][::-1]} if call.get("steps", 1) > 1 else call for call in calls]

    def _loop(self) -> str:
        """Return the sentence on what a model does around a layer that it calls step by step, or ""."""
        for name, calls in self.runs[0].items():
            steps = [call for call in calls if len(call["x"]) == 1 and call["hidden"] and call["h_n"]]
            if 1 < len(steps) == len(calls):
                pairs = itertools.pairwise(steps)
                # A loop of one's own may hand on other states than the cell left; zeros begin a new sequence.
                if any(any(map(np.any, call["hidden"])) and not follows(before, call) for before, call in pairs):
                    return f"the model changes the states of {name!r} from one step to the next"
            for call in calls:
                if call.get("steps", 1) > 1 and any(is_input(call["x"][::-1], array) for _, array in self.recording.inputs):
                    return f"the model calls {name!r} step by step, from the last step to the first"
        return ""

    def _call(self, number: int, calls: Calls, place: int) -> _Outcome:
        lengths, problem = self._lengths(calls)
        if problem is not None:
            return problem
        x = calls[0]["x"]
        if x.shape[2] != self.stack.input_size:
            return _differs(f"{self.pieces[0]!r} reads {x.shape[2]} values in the model, and {self.stack.input_size} here")
        case = Case("whole", "what the model hands to the layer", x, lengths=lengths)
        problem = self._strange(case, calls)
        if problem is not None:
            return problem
        limits = []
        if lengths is not None:
            words = "the model leaves out steps of its sequences (a mask): it is equal where their lengths are passed to it"
            limits.append(Limit("mask", "", words))
        # First without states: a layer that receives zeros needs none, and the verdict has one limit less.
        plain = self._off(case, calls)
        if plain is None:
            return not_run(f"the model keeps nothing of {self.pieces[-1]!r} that can be compared")
        if plain.passed:
            return _Outcome(_equal(plain), tuple(limits))
        states = self._states(calls)
        if states is not None:
            comparison = self._off(replace(case, hidden=states[0], cell=states[1]), calls)
            from_caller = all(self._from_caller(state) for pair in states for state in pair or () if np.any(state))
            bare = [name for name, call in zip(self.pieces, calls, strict=True) if not any(map(np.any, call["hidden"] or ()))]
            if comparison is not None and comparison.passed:
                # Of joined layers, a caller passes states to all or to none.
                if bare and from_caller:
                    return self._unequal(plain, f"{bare[0]!r} starts from zeros, and {self._with_states(calls)!r} does not")
                if len(self.pieces) > 1 and not from_caller:
                    return self._unequal(plain, f"{self._with_states(calls)!r} starts from states that the model computes")
                return _Outcome(_equal(comparison), (*limits, _of_states(from_caller)))
        return self._unequal(plain, self._why(number, place, calls))

    def _unequal(self, comparison: OutputComparison, why: str) -> _Outcome:
        return _Outcome(ModelRun("not equal", why, comparison.error, comparison.allowed))

    def _lengths(self, calls: Calls) -> tuple[Array | None, _Outcome | None]:
        """Return how many steps of each sequence count, None for all; or what stands against it."""
        masks = [call["mask"] for call in calls]
        masks = [np.ones(call["x"].shape[:2], bool) if mask is None else mask for call, mask in zip(calls, masks, strict=True)]
        if all(mask.all() for mask in masks):
            return None, None
        for name, mask in zip(self.pieces[1:], masks[1:], strict=True):
            if mask.shape != masks[0].shape or (mask != masks[0]).any():
                words = f"{self.pieces[0]!r} and {name!r} leave out other steps in the model (a mask)"
                return None, _Outcome(ModelRun("not equal", words))
        lengths = masks[0].sum(0)
        # Lengths can only leave out the last steps of a sequence.
        if (masks[0] != (np.arange(len(masks[0]))[:, None] < lengths)).any():
            return None, not_run(f"{self.pieces[0]!r} leaves out steps that are not the last ones (a mask)")
        return lengths.astype(np.int64), None

    def _strange(self, case: Case, calls: Calls) -> _Outcome | None:
        """Return the failure that the shapes of a call show, if they rule out equality."""
        if self.side_by_side:
            others = [calls[1]["x"], calls[1]["x"][::-1]]
            if not any(np.array_equal(case.x, other) for other in others):
                return _differs(f"{self.pieces[0]!r} and {self.pieces[1]!r} do not read the same")
        y, width = _output(calls, self.side_by_side, self.stack), self.stack.layers[-1].output_size
        width = sum(matrix.shape[0] for matrix in self.stack.readout) or width
        if y is not None and y.shape != (*case.x.shape[:2], width):
            return _differs(
                f"from what {self.pieces[0]!r} reads, {case.x.shape[:2]}, to what {self.pieces[-1]!r} gives, {y.shape}, the "
                "model changes the steps or the values"
            )
        if y is not None and not np.isfinite(y).any():
            return not_run("the model gives no finite number on random inputs")
        return None

    def _off(self, case: Case, calls: Calls) -> OutputComparison | None:
        """Return the output that is furthest off, in units of what rounding explains; None where nothing can be compared."""
        truth, floor = self._solved(case)
        floors = {name: values for name, values, *_ in parts(floor, case.lengths)}
        values_by_name = {name: values for name, values, *_ in parts(self._outputs(calls, truth), case.lengths)}
        comparisons = []
        for name, values, mask, axes in parts(truth, case.lengths):
            # What stands at padded steps is filling, which models choose differently.
            if name in values_by_name and values_by_name[name].shape == values.shape and name != "y, padded steps":
                allowance = Allowance([floors[name]], self.arithmetic.dtype, tolerance(name, self.tolerances))
                comparisons.append(compare(Output("whole", name, axes, mask), values_by_name[name], values, allowance))
        return max(comparisons, key=lambda comparison: comparison.ratio, default=None)

    def _solved(self, case: Case) -> tuple[Outputs, Outputs]:
        """Return the truth of a case, and how far rounding leads; computed once where the model runs again on the same."""
        arrays = (case.x, *(case.hidden or ()), *(case.cell or ()), *([] if case.lengths is None else [case.lengths]))
        key = tuple((array.shape, str(array.dtype), array.tobytes()) for array in arrays)
        if key not in self.solved:
            truth = case.solve(self.stack)
            dtype, functions = self.arithmetic.dtype, self.arithmetic.estimates[0]
            # Two measures of rounding: a run in the coarse type, and one with each weight one unit off.
            rough = case.solve(self.stack, dtype, functions=functions), case.solve(shaken(self.stack, dtype))
            off = rounding.of_functions(self.stack, [case], self.arithmetic)
            (floor,) = rounding.floors(self.stack, [case], self.arithmetic, [truth], off, *([outputs] for outputs in rough))
            self.solved[key] = truth, floor
        return self.solved[key]

    def _outputs(self, calls: Calls, truth: Outputs) -> Outputs:
        """Return the outputs of the model; empty arrays stand for outputs that it keeps to itself."""
        nothing = np.zeros((0, 0))
        y = _output(calls, self.side_by_side, self.stack)
        states = {}
        for name, expected in (("h_n", truth.hidden), ("c_n", truth.cell)):
            every = [state for call in calls for state in call[name] or ()]
            fits = len(every) == len(expected) and not self.side_by_side
            states[name] = every if fits else [nothing] * len(expected)
        # A layer that gives only its last output shows the final hidden states of its directions, side by side.
        last = calls[-1]["last"]
        if last is not None and not self.side_by_side:
            ways = self.stack.layers[-1].directions
            if len(ways) == 1 or self.stack.layers[-1].merge in ("concat", "none"):
                cuts = np.cumsum([way.output_size for way in ways])[:-1]
                states["h_n"][len(truth.hidden) - len(ways) :] = np.split(last, cuts, axis=-1)
        return Outputs(np.zeros((*truth.y.shape[:2], 0)) if y is None else y, tuple(states["h_n"]), tuple(states["c_n"]))

    def _states(self, calls: Calls) -> tuple[tuple[Array, ...], tuple[Array, ...] | None] | None:
        """Return the states that the layers receive in the model; None where they receive none, or other ones than a stack takes."""
        if self.side_by_side or not any(call["hidden"] for call in calls):
            return None
        batch, states = calls[0]["x"].shape[1], []
        for name, widths in zip(("hidden", "cell"), state_widths(self.stack), strict=True):
            sizes = iter(widths)
            filled: list[Array] = []
            for call, ways in zip(calls, self.ways if widths else (), strict=False):
                zeros = [np.zeros((batch, next(sizes, 0))) for _ in range(ways)]
                filled += call[name] or zeros
            if [state.shape for state in filled] != [(batch, width) for width in widths]:
                return None
            states.append(tuple(filled))
        return states[0], states[1] or None

    def _with_states(self, calls: Calls) -> str:
        """Return the last layer that receives states."""
        return [name for name, call in zip(self.pieces, calls, strict=True) if any(map(np.any, call["hidden"] or ()))][-1]

    def _from_caller(self, state: Array) -> bool:
        """Return whether a state is, row by row, what a caller of the model passes."""
        rows = {row.tobytes() for _, model_input in self.recording.inputs for row in rows_of(model_input, state.shape[1])}
        return all(row.tobytes() in rows for row in rows_of(state, state.shape[1]))

    def _why(self, number: int, place: int, calls: Calls) -> str:
        """Return why the whole model gives something else, as far as the recording shows it."""
        # The recording has every run twice; random layers differ between the two.
        other_calls = [self.runs[1 - number][name][place] for name in self.pieces]
        if np.array_equal(calls[0]["x"], other_calls[0]["x"]) and apart(calls[-1], other_calls[-1]):
            return "the model gives other numbers when it runs again on the same inputs: something in it is random"
        if not self.side_by_side:
            pairs = zip(self.pieces, calls, self.pieces[1:], calls[1:], strict=False)
            for name, call, next_name, next_call in pairs:
                between = gap(call, next_call)
                if between:
                    return f"{next_name!r} does not read what {name!r} gives: {between}"
        if any(any(map(np.any, call["hidden"] or ())) for call in calls):
            return "it starts from states that the model computes, and changes"
        return "the model gives other numbers there"


def _output(calls: Calls, side_by_side: bool, stack: Recurrent) -> Array | None:
    """Return the output of the last layer at each step, or of both directions together; None if the model does not keep it."""
    last = calls[-1]["y"]
    if not side_by_side or last is None:
        return last  # type: ignore[no-any-return]
    forward = calls[-2]["y"]
    if forward is None or stack.layers[-1].merge not in ("concat", "none") or forward.shape[:2] != last.shape[:2]:
        return None
    turned = not np.array_equal(calls[-2]["x"], calls[-1]["x"])
    return np.concatenate([forward, last[::-1] if turned else last], axis=-1)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def not_run(why: str) -> _Outcome:
    return _Outcome(ModelRun("not run", why))


def _differs(why: str) -> _Outcome:
    return _Outcome(ModelRun("not equal", why))


def _equal(comparison: OutputComparison) -> ModelRun:
    return ModelRun("equal", "", comparison.error, comparison.allowed)


def _of_states(from_caller: bool) -> Limit:
    if from_caller:
        return Limit("caller", "", "its initial states are inputs of the model: pass them at each call")
    return Limit("stated", "", "the model gives it initial states of its own: it is equal where they are passed at each call")
