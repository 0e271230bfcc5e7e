"""The verdict: every output of every run compared with the truth, in one document that all reports are made from."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import finite
from rnnconvert.core.reference import Outputs
from rnnconvert.core.verdict import EQUAL, NOT_COMPARED, NOT_EQUAL, Verdict
from rnnconvert.core.weights import GATE_PARTS
from rnnconvert.judging.cases import Case
from rnnconvert.judging.judging import FACTOR, ULPS, Allowance, Comparison, Output, Tolerance, compare, joined, parts, tolerance, unlike
from rnnconvert.verification.evidence import concluded, reasons, zeros_would_pass
from rnnconvert.verification.gradients import Graded
from rnnconvert.verification.results import LayerResults, Results
from rnnconvert.verification.running import REFERENCE, LayerRun

SCHEMA = "rnnconvert-report-1"


@dataclass(repr=False)
class Report:
    """What was compared, and the verdict; true only where everything is equal.

    document  all of it as JSON can hold it (rnnconvert.reports)
    strict    whether its exit code is 0 only where everything is equal
    """

    document: dict[str, Any]
    strict: bool = False

    @property
    def conclusion(self) -> Verdict:
        """The verdict, with all that was left out."""
        return Verdict.read(self.document)

    @property
    def verdict(self) -> str:
        """ "equal", "equal but for", "equal layer by layer, not run whole", "not equal" or "not compared"."""
        return self.conclusion.word

    @property
    def equal(self) -> bool:
        """Whether everything was compared and all of it passed."""
        return bool(self.conclusion)

    def __bool__(self) -> bool:
        return self.equal

    @property
    def exit_code(self) -> int:
        """0 equal, or without `strict` equal with something left out; 1 not equal, a run failed, or a stated difference was not
        shown; 4 where an executor that was asked for does not do this; 5 where none ran; 6 equal but for what is named;
        7 equal layer by layer, and not run whole.
        """
        if self.verdict != NOT_COMPARED:
            return self.conclusion.exit_code(self.strict)
        if any(layer["differences"] for layer in self.document["layers"]):
            return 1
        runs = [run for layer in self.document["layers"] for run in layer["runs"] if run["executor"] != REFERENCE]
        states = {run["status"] for run in runs}
        if "failed" in states:
            return 1
        if "refused" in states:
            return 4
        return 5

    def write(self, path: str) -> None:
        """Write it in the form that the ending stands for: .json, .xml (JUnit), .md or .html.

        Raises UsageError for another ending, or a path that cannot be written.
        """
        from rnnconvert import reports

        reports.write(self.document, path)

    def __repr__(self) -> str:
        return f"<Report: {self.conclusion}. {self.document['summary']}>"

    def _repr_html_(self) -> str:
        """Return the whole page, in a frame of its own, for a notebook."""
        from rnnconvert import reports

        page = html.escape(reports.render(self.document, ".html"))
        return f'<iframe title="rnnconvert report" srcdoc="{page}" width="100%" height="640" style="border:0"></iframe>'

    def __str__(self) -> str:
        from rnnconvert.reports.text import to_text

        return to_text(self.document)


def judged(layer: LayerResults, run: LayerRun, tolerances: Mapping[str, Tolerance], source: LayerRun | None) -> list[Comparison]:
    """Compare every output of a run with the truth.

    source  the run of the model's own framework, once it has passed: it shows an error of rounding, too
    """
    comparisons: list[Comparison] = []
    dtype, basis = FLOATS[run.rounding], layer.basis(run.model)
    for case in layer.cases:
        if case.name in run.outputs:
            floors = [basis.floors[run.rounding][case.name]]
            # The source shows a rounding error of its own numbers, not of those that a cast made of them.
            shared = source is not None and source is not run and basis is layer
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
) -> Iterator[Comparison]:
    arrays = {name: array for name, array, *_ in parts(outputs, case.lengths)}
    rough = [{name: array for name, array, *_ in parts(floor, case.lengths)} for floor in floors]
    states: dict[str, list[Comparison]] = {}
    if outputs.y.shape != truth.y.shape:
        yield unlike(case.name, "y", outputs.y.shape, truth.y.shape)
        return
    for name, expected, mask, axes in parts(truth, case.lengths):
        # A framework that gives no final states, or other ones (a projection folded): `_without` says so.
        if name not in arrays or arrays[name].shape != expected.shape:
            continue
        near = [outputs_[name] for outputs_ in rough if name in outputs_ and outputs_[name].shape == expected.shape]
        output_name = name.partition("[")[0]
        allowance = Allowance(near, dtype, tolerance(output_name, tolerances))
        comparison = compare(Output(case.name, output_name, axes, mask), arrays[name], expected, allowance)
        if output_name == name:
            yield comparison
        else:
            states.setdefault(output_name, []).append(comparison)
    for output_name, several in states.items():
        yield joined(output_name, several, "state")


def _without(layer: LayerResults, run: LayerRun, comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Return what the cases that ran do not prove, and why: states that were not given, and values that rounding
    swamps."""
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


def _gradients(case: Case, graded: Graded, dtype: np.dtype[Any], tolerances: Mapping[str, Tolerance]) -> Iterator[Comparison]:
    computed, truth, floor = graded.found, graded.truth, graded.floor

    def compared(name: str, values: Sequence[Array], axes: tuple[str, ...]) -> Comparison:
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


def document(results: Results, tolerances: Mapping[str, Tolerance], command: str = "") -> dict[str, Any]:
    """Return the report of results, as JSON can hold it; the cause of a difference is not searched here."""
    judgements = {layer.name: _judgements(layer, tolerances) for layer in results.layers.values()}
    layers = [_layer(layer, judgements[layer.name]) for layer in results.layers.values()]
    runs = [run for layer in layers for run in layer["runs"]]
    comparisons = [comparison for run in runs for comparison in run["comparisons"]]
    passed = sum(comparison["passed"] for comparison in comparisons)
    all_judged = {name: [comparison for several in each for comparison in several] for name, each in judgements.items()}
    _check_tolerances(tolerances, {comparison.output for several in all_judged.values() for comparison in several})
    tolerated = [limit for name, several in all_judged.items() for limit in zeros_would_pass(name, several, tolerances)]
    verdict = concluded(results, [layer["runs"] for layer in layers], tolerated)
    executors = sorted({run["executor"] for run in runs if run["comparisons"] and run["executor"] != REFERENCE})
    result = {
        "schema": SCHEMA,
        "rnnconvert": results.rnnconvert,
        "created": results.created,
        "command": command,
        **verdict.as_dict(),
        "reasons": list(reasons(results)),
        "summary": f"{passed} of {len(comparisons)} comparisons passed on {', '.join(executors) or 'no framework'}",
        "models": [asdict(model) for model in results.models],
        "settings": {
            **results.settings,
            "factor": FACTOR,
            "ulps": ULPS,
            "tolerances": {name or "all": asdict(bounds) for name, bounds in tolerances.items()},
        },
        "layers": layers,
        "seconds": results.seconds,
        "warnings": [*results.warnings, *_warnings(results)],
    }
    return {key: finite(value) for key, value in result.items()}


def _judgements(layer: LayerResults, tolerances: Mapping[str, Tolerance]) -> list[list[Comparison]]:
    """Return the comparisons of each run of a layer."""
    source = next((run for run in layer.runs if run.model == "A" and run.own_file and run.executor != REFERENCE), None)
    if source is not None and not passes(layer, source):
        source = None
    return [judged(layer, run, tolerances, source) for run in layer.runs]


def _layer(layer: LayerResults, judgements: Sequence[list[Comparison]]) -> dict[str, Any]:
    cases = [{"name": case.name, "what": case.what, "skipped": ""} for case in layer.cases]
    cases += [{"name": skipped.name, "what": "", "skipped": skipped.why} for skipped in layer.skipped]
    return {
        "name": layer.name,
        "description": layer.description,
        "counterpart": list(layer.counterpart),
        "cases": cases,
        "runs": [_run(layer, run, judgement) for run, judgement in zip(layer.runs, judgements, strict=True)],
        "mutations": {"caught": [], "missed": [], "inapplicable": []},
        "diagnoses": [],
        "differences": [],
    }


def _run(layer: LayerResults, run: LayerRun, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    telling = [comparison for comparison in comparisons if comparison.telling or not comparison.passed]
    if not telling:
        verdict = ""
    elif all(comparison.passed for comparison in telling):
        verdict = EQUAL
    else:
        verdict = NOT_EQUAL
    return {
        "model": run.model,
        "executor": run.executor,
        "own_file": run.own_file,
        "status": run.status,
        "reason": run.reason,
        "verdict": verdict,
        "required": run.required,
        "device": run.device,
        "dtype": run.dtype,
        "versions": run.versions,
        "python": run.python,
        "rewrites": [asdict(step) for step in run.rewrites],
        "notes": {key: value for key, value in run.notes.items() if key != "trace"},
        "left_out": {**run.left_out, **_without(layer, run, comparisons)},
        "seconds": run.seconds,
        "comparisons": [_plain(comparison) for comparison in telling],
    }


def _plain(comparison: Comparison) -> dict[str, Any]:
    result = asdict(comparison)
    del result["telling"]  # what tells nothing is not listed
    return result


def _check_tolerances(tolerances: Mapping[str, Tolerance], outputs: set[str]) -> None:
    """Raise UsageError for a tolerance of an unknown output: it would silently go unused."""
    for name in tolerances:
        if name and outputs and not any(tolerance(output, {name: Tolerance()}) for output in outputs):
            raise UsageError(f"a tolerance is given for {name!r}, which is not an output. Choose from: {', '.join(sorted(outputs))}")


def _warnings(results: Results) -> Iterator[str]:
    last = "B" if len(results.models) > 1 else "A"
    for layer in results.layers.values():
        yield from _unproved(layer, last)
        own_runs = [run for run in layer.runs if run.model == "A" and run.own_file and run.status == "ran"]
        whole_model_ran = layer.whole is not None and layer.whole.status == "equal" and "A" in layer.whole.models
        if not whole_model_ran and not any(run.executor != REFERENCE for run in own_runs):
            why = next((str(run.notes["own file"]) for run in layer.runs if run.model == "A" and "own file" in run.notes), "")
            yield (
                f"{layer.name or 'the layer'}: no framework ran A's own file, so the truth is what rnnconvert reads from it"
                + (f" ({why})" if why else "")
            )
        for run in layer.runs:
            if "unsteady" in run.notes:
                yield f"{layer.name}: {run.executor} gave other numbers when it ran again; the second run is judged"


def _unproved(layer: LayerResults, last: str) -> Iterator[str]:
    """Yield what was asked for of the last model but no framework gave."""
    name = layer.name or "the layer"
    runs = [run for run in layer.runs if run.model == last and run.executor != REFERENCE and run.outputs]
    if last == "B" and runs and not any(run.own_file for run in runs):
        yield f"{name}: no framework ran B's own file, only what rnnconvert reads from it"
    ran = {case for run in runs for case in run.outputs}
    lacking = [case.name for case in layer.cases if case.name not in ran]
    if runs and lacking:
        yield f"{name}: no framework ran {last} in these cases, so they prove nothing: {', '.join(lacking)}"
    if runs and any(case.cotangents for case in layer.cases) and not any(run.gradients for run in runs):
        yield f"{name}: gradients were asked for, but no framework that ran {last} gave any"
