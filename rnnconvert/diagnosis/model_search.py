"""The search for the fault with which a model gives what it should: each is tried, and only what explains everything is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.errors import UsageError
from rnnconvert.diagnosis.model_faults import INPUT_FAULTS, OUTPUT_FAULTS, SCALES, ModelFault, linear, weight_faults
from rnnconvert.diagnosis.model_runs import Inputs, ModelRuns, RunnableFile
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Output
from rnnconvert.judging.whole import SHAKES, WholeJudge
from rnnconvert.models.model import Model

_MARGIN = 10
"""How many times what rounding explains a difference must be to be explained by anything else."""

_MOVED_ULPS = 1000
"""How many units in the last place of the largest output 1 % of outputs must move what a function makes of them."""

_CLOSE = 0.02
"""How far off, in parts of the largest value, the first call with a fault may be for all calls to be compared exactly."""

_NUMBERS = 8
"""How many numbers must be explained for each constant that is fitted."""

_WIDEST = 16
"""The most features of an input for each of which a factor is searched."""

_STARTS, _ITERATIONS, _PROGRESS = 2, 15, 0.8
"""From how many starts constants are searched, in how many steps at most, and what part a step may leave at most: near the right ones
it leaves next to nothing."""


@dataclass(frozen=True, eq=False)
class OutputOff:
    """How far one output is off, over all calls."""

    ratio: float
    error: float
    allowed: float
    telling: bool = True


APART = OutputOff(np.inf, np.inf, 0.0)
"""An output of another shape."""


class ModelSearch:
    """A model, inputs, and the outputs that it should give for them."""

    def __init__(
        self, side: RunnableFile, calls: Sequence[Inputs], base: ModelRuns, target: ModelRuns, other: RunnableFile | np.dtype[Any]
    ) -> None:
        """Compare what it gives, `base`, with what it should give.

        other  the model that gave that, or the element type of what was recorded
        """
        self._side, self._calls, self._base, self._target = side, calls, base, target
        self._other: Model | None
        self._other, dtype = (other.model, other.dtype) if isinstance(other, RunnableFile) else (None, other)
        self._dtype = max(dtype, side.dtype, key=epsilon)
        self._places = _places(self._base.outputs[0], target.outputs[0])
        self.offs = self._off(self._base)

    @property
    def equal(self) -> bool:
        """Whether it gives what it should."""
        return all(off.ratio <= 1 for off in self.offs)

    @property
    def paired(self) -> bool:
        """Whether each output has the shape of one that it should give."""
        return all(off is not APART for off in self.offs)

    @property
    def telling(self) -> bool:
        """Whether the numbers are not as small as their rounding."""
        return bool(self._base.shaken or self._target.shaken) and any(off.telling for off in self.offs)

    @property
    def worst(self) -> OutputOff:
        """How far the worst output is off."""
        return max(self.offs, key=lambda off: off.ratio)

    def explanations(self, exact: bool) -> list[ModelFault]:
        """Return the faults with which it gives what it should.

        exact  those without constants of their own, or the others, which are asked for where no other explains it
        """
        faults: dict[str, ModelFault] = {}
        if self.worst.ratio >= _MARGIN and self.telling and self._varies():
            with np.errstate(all="ignore"):
                for fault in self._faults(exact):
                    if fault.sentence not in faults and self._meets(fault):
                        faults[fault.sentence] = fault
        return list(faults.values())

    def behind_target(self) -> list[ModelFault]:
        """Return the faults of outputs with which what it should give is what it gives."""
        if self.worst.ratio < _MARGIN or not self.telling:
            return []
        with np.errstate(all="ignore"):
            targets = [(fault, self._changed(self._target, fault, self._target)) for fault in OUTPUT_FAULTS]
            return [
                fault
                for fault, target in targets
                if target is not None and self._explained(self._off(self._base, target), target) and self._shows(fault, self._target)
            ]

    def _faults(self, exact: bool) -> Iterator[ModelFault]:
        """Yield the candidates for the cause: of faults that need a run, the ones that come near in the first call."""
        if exact:
            yield from OUTPUT_FAULTS
        near = [fault for fault in INPUT_FAULTS if fault.exact == exact]
        inputs = [fault.of_inputs(self._calls[0]) for fault in near]
        runs = self._runs([call for call in inputs if call is not None])
        for fault, call in zip(near, inputs, strict=True):
            changed = None if call is None else next(runs)
            changed = None if changed is None else self._changed(changed, fault, self._base)
            if changed is not None and self._close(changed):
                yield fault
        for fault in weight_faults(self._side.model, self._other) if exact else ():
            first = self._with(fault, self._calls[:1], 0)
            if first is not None and self._close(first):
                yield fault
        if not exact and self.paired:
            yield from self._fitted_outputs()
            yield from self._fitted_inputs()

    def _runs(self, calls: Sequence[Inputs]) -> Iterator[ModelRuns | None]:
        """Yield the model's outputs for each of several calls, None for one that it does not take: all are tried at once."""
        try:
            yield from (ModelRuns([outputs]) for outputs in (self._side.run(calls).outputs if calls else ()))
            return
        except UsageError:
            if len(calls) == 1:
                yield None
                return
        for call in calls:
            yield from self._runs([call])

    def _meets(self, fault: ModelFault) -> bool:
        runs = self._with(fault, self._calls, SHAKES)
        if runs is None or not self._explained(self._off(runs), self._target):
            return False
        return fault.input is not None or fault.weight is not None or self._shows(fault, self._base)

    def _shows(self, fault: ModelFault, runs: ModelRuns) -> bool:
        """Return whether a fault of outputs gives something else for outputs 1 % larger, as it does not where a function is saturated."""
        larger, changed = (self._changed(each, fault, runs) for each in (_larger(runs), runs))
        if larger is None or changed is None:
            return False
        places = [number if runs is self._target else place for number, place in enumerate(self._places)]
        off = [place for place, off in zip(places, self.offs, strict=True) if off.ratio > 1 and place is not None]
        moves = [
            (np.abs(new[place] - old[place]).max(initial=0.0), np.abs(old[place]).max(initial=0.0))
            for new, old in zip(larger.outputs, changed.outputs, strict=True)
            for place in off
        ]
        return bool(max(move for move, _ in moves) > _MOVED_ULPS * epsilon(self._dtype) * max(size for _, size in moves))

    def _with(self, fault: ModelFault, calls: Sequence[Inputs], shakes: int) -> ModelRuns | None:
        """Return the outputs of the model with a fault, None if it does not apply."""
        inputs = [fault.of_inputs(call) for call in calls]
        if all(call is None for call in inputs):
            return None
        runs = self._base
        if fault.input is not None or fault.weight is not None:
            handed = [call if new is None else new for call, new in zip(calls, inputs, strict=True)]
            try:
                runs = self._side.run(handed, shakes, () if fault.weight is None else [fault.weight])
            except UsageError:  # other inputs or weights than it takes
                return None
        return self._changed(runs, fault, self._base)

    def _changed(self, runs: ModelRuns, fault: ModelFault, base: ModelRuns) -> ModelRuns | None:
        """Return outputs with a fault: those that differ, and of a fault of inputs, all."""
        if fault.output is None:
            return runs
        change = fault.output
        off = {place if base is self._target else self._places[place] for place, off in enumerate(self.offs) if off.ratio > 1}

        def changed(outputs: Sequence[Array]) -> tuple[Array, ...] | None:
            new = [change(y) if fault.input is not None or place in off else y for place, y in enumerate(outputs)]
            return tuple(y for y in new if y is not None) if all(y is not None for y in new) else None

        calls, shaken = [changed(call) for call in runs.outputs], [[changed(call) for call in several] for several in runs.shaken]
        if any(call is None for call in (*calls, *(call for several in shaken for call in several))):
            return None
        return ModelRuns(
            [call for call in calls if call is not None], [[call for call in several if call is not None] for several in shaken]
        )

    def _close(self, runs: ModelRuns) -> bool:
        for number, place in enumerate(self._places):
            truth = self._target.outputs[0][number]
            value = None if place is None else _shaped(runs.outputs[0][place], truth.shape)
            if value is None or not np.abs(value - truth).max(initial=0.0) <= _CLOSE * np.abs(truth).max(initial=0.0):
                return False
        return True

    def _off(self, runs: ModelRuns, target: ModelRuns | None = None) -> list[OutputOff]:
        target = self._target if target is None else target
        return [self._of_output(runs, target, number, place) for number, place in enumerate(self._places)]

    def _of_output(self, runs: ModelRuns, target: ModelRuns, number: int, place: int | None) -> OutputOff:
        """Return the error of an output in its worst call."""
        comparisons: list[OutputComparison] = []
        for call, (values, truths) in enumerate(zip(runs.outputs, target.outputs, strict=True)):
            truth = truths[number].astype(np.float64)
            value = None if place is None else _shaped(values[place], truth.shape)
            if value is None:
                return APART
            moved = [_shaped(several[call][place], truth.shape) for several in runs.shaken] if place is not None else []
            output = Output("whole", "output", tuple(f"axis {axis}" for axis in range(truth.ndim)))
            truth_moved = [several[call][number] for several in target.shaken]
            ours = [array for array in moved if array is not None]
            comparisons.append(WholeJudge(self._dtype).compare(output, value, truth, moved=ours, truth_moved=truth_moved))
        worst = max(comparisons, key=lambda comparison: comparison.ratio)
        return OutputOff(worst.ratio, worst.error, worst.allowed, any(comparison.telling for comparison in comparisons))

    def _explained(self, offs: Sequence[OutputOff], target: ModelRuns) -> bool:
        """Return whether outputs are right, those that differed before by far more than is allowed now."""
        clear = all(before.ratio <= 1 or before.error >= _MARGIN * off.allowed for before, off in zip(self.offs, offs, strict=True))
        return clear and all(off.ratio <= 1 and off.telling for off in offs) and self._varies(target)

    def _varies(self, target: ModelRuns | None = None) -> bool:
        """Return whether what should come out depends on what goes in: any constant is explained by much."""
        target = self._target if target is None else target
        for number, off in enumerate(self.offs):
            values = np.concatenate([_rows(array) for array in target.output(number)])
            if off.ratio > 1 and not np.ptp(values, axis=0).max(initial=0.0) > _MARGIN * epsilon(self._dtype) * np.abs(values).max(
                initial=0.0
            ):
                return False
        return True

    # Constants that are fitted: they are named only if they, too, explain everything.

    def _fitted_outputs(self) -> Iterator[ModelFault]:
        off = [number for number, off in enumerate(self.offs) if off.ratio > 1]
        if len(off) != 1:
            return
        place = self._places[off[0]]
        assert place is not None
        shapes = [array.shape for array in self._target.output(off[0])]
        base = [_shaped(array, shape) for array, shape in zip(self._base.output(place), shapes, strict=True)]
        values = np.concatenate([_rows(array) for array in base if array is not None])
        truth = np.concatenate([_rows(array) for array in self._target.output(off[0])])
        if truth.size < 2 * _NUMBERS or not np.isfinite(values).all() or not np.isfinite(truth).all():
            return
        columns = np.stack([values.ravel(), np.ones(values.size)], axis=1)
        for names in (columns[:, :1], columns):
            solution = np.append(np.linalg.lstsq(names, truth.ravel(), rcond=None)[0], 0.0)[:2]
            fault = _linear("output", solution[:1], solution[1:])
            if self._meets(fault):
                yield fault
                return
        if truth.shape[0] >= _NUMBERS:
            yield _linear("output", np.ones(1), (truth - values).mean(axis=0))

    def _fitted_inputs(self) -> Iterator[ModelFault]:
        floats = [array for array in self._calls[0] if array.dtype.kind == "f" and array.ndim > 1]
        if len(floats) != 1:
            return
        numbers = sum(array.size for call in self._target.outputs[:2] for array in call)
        best: tuple[float, Array] = np.inf, np.zeros(2)
        for width in (1, floats[0].shape[-1]):
            if width > _WIDEST or numbers < 2 * width * _NUMBERS or (width == 1 and best[0] < np.inf):
                continue
            starts = [np.repeat([[scale], [0.0]], width, axis=1) for scale in SCALES] + [np.repeat([[1 / 127.5], [-1.0]], width, axis=1)]
            if width > 1 and best[0] < np.inf:
                starts.append(np.repeat(best[1].reshape(2, 1), width, axis=1))
            ranked = sorted(zip(self._residuals(starts), starts, strict=True), key=lambda entry: _size(entry[0]))
            for residual, start in ranked[:_STARTS]:
                best = min(best, self._descended(start, residual), key=lambda entry: entry[0])
                fault = _linear("input", *best[1].reshape(2, -1))
                if self._meets(fault):
                    yield fault
                    return

    def _residuals(self, several: Sequence[Array]) -> list[Array | None]:
        """Return the residuals with inputs multiplied and shifted by each of several constants; None if the model does not run on them."""
        faults = [_linear("input", constants[0], constants[1], plain=False) for constants in several]
        calls = self._calls[:2]
        runs = list(self._runs([fault.of_inputs(call) or call for fault in faults for call in calls]))
        return [self._left(runs[number * len(calls) : (number + 1) * len(calls)]) for number in range(len(faults))]

    def _left(self, runs: Sequence[ModelRuns | None]) -> Array | None:
        parts = []
        for ran, truths in zip(runs, self._target.outputs, strict=False):
            for truth, place in zip(truths, self._places, strict=True):
                value = None if place is None or ran is None else _shaped(ran.outputs[0][place], truth.shape)
                if value is None or not np.isfinite(value).all():
                    return None
                parts.append((value - truth).ravel())
        return np.concatenate(parts)

    def _descended(self, constants: Array, residual: Array | None) -> tuple[float, Array]:
        """Return the constants that leave least, searched by Gauss-Newton steps from some, and how much that is."""
        for _ in range(_ITERATIONS):
            if residual is None:
                break
            steps = np.maximum(1e-2 * np.abs(constants[0]), 1e-9)
            moves = [np.where(np.arange(constants.size).reshape(constants.shape) == place, steps, 0) for place in range(constants.size)]
            moved = self._residuals([constants + move for move in moves])
            columns = [(near - residual) / move.sum() for near, move in zip(moved, moves, strict=True) if near is not None]
            if len(columns) < constants.size:
                break
            step = np.linalg.lstsq(np.stack(columns, axis=1), residual, rcond=None)[0].reshape(constants.shape)
            trials = [constants - part * step for part in (1.0, 0.3, 0.1)]
            left, trial = min(zip(self._residuals(trials), trials, strict=True), key=lambda entry: _size(entry[0]))
            if not _size(left) < _PROGRESS * _size(residual):
                break
            constants, residual = trial, left
        return _size(residual), constants


def _linear(what: str, factor: Array, offset: Array, plain: bool = True) -> ModelFault:
    """Return the fault of numbers that are multiplied and shifted.

    plain  whether by plain constants, where they are near those
    """
    if plain:
        round_factor = next((scale for scale in SCALES if np.allclose(factor, scale, rtol=1e-4, atol=0)), None)
        factor = factor if round_factor is None else np.full_like(factor, round_factor)
        offset = np.where(np.abs(offset) < 1e-5 * np.maximum(np.abs(factor), 1e-3), 0.0, offset)

    def change(array: Array) -> Array | None:
        if array.dtype.kind != "f" or ((factor.size > 1 or offset.size > 1) and array.shape[-1] != max(factor.size, offset.size)):
            return None
        return np.asarray(array.astype(np.float64) * factor + offset).astype(array.dtype if what == "input" else np.float64)

    name = "multiplied" if (offset == 0).all() else "shifted" if (factor == 1).all() else "multiplied and shifted"
    return linear(
        what, name, factor, offset, ModelFault("", "", "", change if what == "input" else None, change if what == "output" else None)
    )


def _larger(runs: ModelRuns) -> ModelRuns:
    return ModelRuns([tuple(1.01 * y.astype(np.float64) for y in call) for call in runs.outputs])


def _size(residual: Array | None) -> float:
    return np.inf if residual is None else float(np.sqrt(np.mean(residual**2)))


def _rows(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1] if array.ndim else 1).astype(np.float64)


def _shaped(array: Array, shape: Sequence[int]) -> Array | None:
    """Return an array in a shape that differs in axes of length 1 alone; None for another."""
    if [length for length in array.shape if length != 1] != [length for length in shape if length != 1]:
        return None
    return array.reshape(shape).astype(np.float64)


def _places(outputs: Sequence[Array], target: Sequence[Array]) -> list[int | None]:
    """Return which output each of the target's is: by order where there are equally many, otherwise the nearest of its shape."""
    if len(outputs) == len(target):
        return list(range(len(target)))
    places: list[int | None] = []
    for truth in target:
        forms = {place: _shaped(array, truth.shape) for place, array in enumerate(outputs) if place not in places}
        near = {place: float(np.abs(form - truth).max(initial=0.0)) for place, form in forms.items() if form is not None}
        places.append(min(near, key=lambda place: near[place], default=None))
    return places
