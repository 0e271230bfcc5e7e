"""Every output and gradient of a run against the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import GATE_PARTS
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.comparison import OutputComparison, joined, parts, unlike
from rnnconvert.judging.judging import Allowance, Output, Tolerance, compare, tolerance
from rnnconvert.judging.rounding import ARITHMETICS
from rnnconvert.judging.whole import IMMENSE
from rnnconvert.verification.gradients import GradientCase
from rnnconvert.verification.ready import LayerRun
from rnnconvert.verification.results import LayerResults
from rnnconvert.verification.running import REFERENCE


def judged(layer: LayerResults, run: LayerRun, tolerances: Mapping[str, Tolerance], source: LayerRun | None) -> list[OutputComparison]:
    """Compare every output of a run with the truth.

    source  the run of the model's own framework, once it has passed: it shows an error of rounding, too
    """
    comparisons: list[OutputComparison] = []
    dtype, basis = ARITHMETICS[run.rounding].dtype, layer.basis(run.model)
    for case in layer.cases:
        if case.name in run.outputs:
            floors = [basis.floors[run.rounding][case.name]]
            # The source shows a rounding error of its own numbers in its own element type: not of those that a cast made of them.
            shared = source is not None and source is not run and basis is layer and source.rounding == run.rounding
            if shared and source is not None and case.name in source.outputs:
                floors.append(source.outputs[case.name])
            comparisons += _outputs(case, run.outputs[case.name], basis.truth[case.name], floors, dtype, tolerances)
        if case.name in run.gradients:
            comparisons += _gradients(case, run.gradients[case.name], dtype, tolerances)
    return comparisons


def passes(layer: LayerResults, run: LayerRun) -> bool:
    """Return whether a run agrees with the truth, as far as the reference's own rounding explains."""
    comparisons = judged(layer, run, {}, None)
    return all(comparison.passed for comparison in comparisons) and any(comparison.telling for comparison in comparisons)


def _outputs(
    case: Case, outputs: Outputs, truth: Outputs, floors: Sequence[Outputs], dtype: np.dtype[Any], tolerances: Mapping[str, Tolerance]
) -> Iterator[OutputComparison]:
    arrays = {name: array for name, array, *_ in parts(outputs, case.lengths)}
    rough = [{name: array for name, array, *_ in parts(floor, case.lengths)} for floor in floors]
    states: dict[str, list[OutputComparison]] = {}
    if outputs.y.shape != truth.y.shape:
        yield unlike(case.name, "y", outputs.y.shape, truth.y.shape)
        return
    for name, expected, mask, axes in parts(truth, case.lengths):
        # A framework that gives no final states, or other ones (a projection folded): `_without` says so.
        if name not in arrays or arrays[name].shape != expected.shape:
            continue
        near = [outputs_[name] for outputs_ in rough if name in outputs_ and outputs_[name].shape == expected.shape]
        if case.far:
            finite = finite_sequences(arrays, [truth, floors[0]], case).reshape([-1 if axis == "batch" else 1 for axis in axes])
            mask = np.broadcast_to(finite, expected.shape) if mask is None else mask & finite
        output_name = name.partition("[")[0]
        allowance = Allowance(near, dtype, tolerance(output_name, tolerances))
        comparison = compare(Output(case.name, output_name, axes, mask), arrays[name], expected, allowance)
        if output_name == name:
            yield comparison
        else:
            states.setdefault(output_name, []).append(comparison)
    for output_name, several in states.items():
        yield joined(output_name, several, "state")


def finite_sequences(arrays: Mapping[str, Array], references: Sequence[Outputs], case: Case) -> Array:
    """Return which sequences of a batch have no number that overflowed although it should not: the rest of a sequence follows from it.

    references  the truth, and what the reference gives in coarser types: states that grow beyond these are not a function's doing
    """
    expected = [{name: array for name, array, *_ in parts(outputs, case.lengths)} for outputs in references]
    finite = np.ones(case.x.shape[1], bool)
    for name, _, _, axes in parts(references[0], case.lengths):
        near = [outputs[name] for outputs in expected if name in outputs]
        if name in arrays and all(array.shape == arrays[name].shape for array in near):
            should_be = np.logical_and.reduce([_moderate(array) for array in near])
            overflowed = ~_moderate(arrays[name]) & should_be
            finite &= ~overflowed.any(axis=tuple(at for at, axis in enumerate(axes) if axis != "batch"))
    return finite


def _moderate(array: Array) -> Array:
    return np.abs(array.astype(np.float64)) < IMMENSE


def without(layer: LayerResults, run: LayerRun, comparisons: Sequence[OutputComparison]) -> dict[str, str]:
    """Return the gaps in the proof of the cases that ran, and why: states that were not given, and values that rounding swamps."""
    absent: dict[str, list[str]] = {}
    judged = {(comparison.case, comparison.output) for comparison in comparisons}
    for case in layer.cases:
        truth = layer.truth[case.name]
        for name, states in (("h_n", truth.hidden), ("c_n", truth.cell)):
            if case.name in run.outputs and states and (case.name, name) not in judged and (case.name, "y") in judged:
                finals = run.outputs[case.name].hidden if name == "h_n" else run.outputs[case.name].cell
                why = "they have other sizes in the model that ran" if finals else "it gives no such final states"
                absent.setdefault(why, []).append(f"{case.name}: {name}")
    for name, graded in run.gradients.items():
        pairs = list(zip(graded.found.weights, graded.truth.weights, strict=True))
        for part in (*GATE_PARTS, "projection"):
            if any(key not in mine for mine, true in pairs for key in true if key[0] == part):
                absent.setdefault("it gives no such gradient", []).append(f"{name}: gradient of {part.replace('_', ' ')}")
    for outcome in comparisons:
        if outcome.passed and not outcome.telling:
            why = "the rounding error may be as large as the values, or they are not finite: passing proves nothing"
            absent.setdefault(why, []).append(f"{outcome.case}: {outcome.output}")
    return {"; ".join(names): why for why, names in absent.items()}


def _gradients(case: Case, graded: GradientCase, dtype: np.dtype[Any], tolerances: Mapping[str, Tolerance]) -> Iterator[OutputComparison]:
    computed, truth, floor = graded.found, graded.truth, graded.floor

    def compared(name: str, values: Sequence[Array], axes: tuple[str, ...]) -> OutputComparison:
        allowance = Allowance([values[2]], dtype, tolerance(name, tolerances))
        return compare(Output(case.name, name, axes), values[0], values[1], allowance)

    yield compared("gradient of x", [computed.x, truth.x, floor.x], ("step", "batch", "input"))
    for word in ("hidden", "cell"):
        name = f"gradient of {word[0]}_0"
        states = zip(*(getattr(each, word) for each in (computed, truth, floor)), strict=True)
        comparisons = [compared(name, values, ("batch", "unit")) for values in states]
        if comparisons:
            yield joined(name, comparisons, "state")
    for part in (*GATE_PARTS, "projection"):
        name = f"gradient of {part.replace('_', ' ')}" + (" weights" if part in ("input", "recurrent", "peephole") else "")
        comparisons = []
        for arrays in zip(computed.weights, truth.weights, floor.weights, strict=True):
            keys = [key for key in arrays[1] if key[0] == part and key in arrays[0]]
            if keys:
                stacked = [np.stack([np.asarray(each[key]) for key in keys]) for each in arrays]
                errors = np.abs(stacked[0] - stacked[1]).reshape(len(keys), -1).max(axis=1)
                gates = {key[1]: float(error) for key, error in zip(keys, errors, strict=True) if key[1]}
                comparisons.append(replace(compared(name, stacked, ("gate", "unit", "input")[: stacked[0].ndim]), gates=gates or None))
        if comparisons:
            yield joined(name, comparisons, "direction")


def judgements_of(layer: LayerResults, tolerances: Mapping[str, Tolerance]) -> list[list[OutputComparison]]:
    """Return the comparisons of each run of a layer."""
    source = next((run for run in layer.runs if run.model == "A" and run.own_file and run.executor != REFERENCE), None)
    if source is not None and not passes(layer, source):
        source = None
    return [judged(layer, run, tolerances, source) for run in layer.runs]


def plain(comparison: OutputComparison) -> dict[str, Any]:
    result = asdict(comparison)
    # What tells nothing is not listed, no model here has rounded weights, and every axis is known.
    del result["telling"], result["rounded"], result["open_shares"]
    return result
