"""The verdict: every output of every run beside the truth, as one document that any report is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from rnnconvert.arrays import FLOATS, Array
from rnnconvert.equivalence.cases import Case
from rnnconvert.equivalence.judging import FACTOR, ULPS, Comparison, Tolerance, compare, joined, parts
from rnnconvert.equivalence.results import LayerResults, Results
from rnnconvert.equivalence.running import REFERENCE, Graded, Run
from rnnconvert.executors.reference import Outputs
from rnnconvert.weights import GATE_PARTS

SCHEMA = "rnnconvert-report-1"
EQUAL, NOT_EQUAL, NOT_COMPARED = "equal", "not equal", "not compared"


@dataclass
class Report:
    """What was compared, and the verdict: "equal", "not equal" or "not compared".

    document  all of it as JSON can hold it (rnnconvert.reports)
    """

    document: dict[str, Any] = field(repr=False)

    @property
    def verdict(self) -> str:
        """equal, not equal, or not compared."""
        return str(self.document["verdict"])

    @property
    def equal(self) -> bool:
        """Whether something was compared and all of it passed."""
        return self.verdict == EQUAL

    @property
    def exit_code(self) -> int:
        """0 equal, 1 not equal or a run failed; 4 where an executor that was asked for does not do this, 5 where none ran."""
        if self.verdict != NOT_COMPARED:
            return 0 if self.equal else 1
        runs = [run for layer in self.document["layers"] for run in layer["runs"] if run["executor"] != REFERENCE]
        states = {run["status"] for run in runs}
        return 1 if "failed" in states else 4 if "refused" in states else 5

    def write(self, path: str) -> None:
        """Write it in the form that the ending says: .json, .xml (JUnit), .md or .html.

        Raises UsageError for another ending, or a path that cannot be written.
        """
        from rnnconvert import reports

        reports.write(self.document, path)

    def __str__(self) -> str:
        from rnnconvert.reports.text import to_text

        return to_text(self.document)


def judged(layer: LayerResults, run: Run, tolerances: Mapping[str, Tolerance], source: Run | None) -> list[Comparison]:
    """Every output of a run beside the truth.

    source  the model's own framework's run, once it has passed: it is as far off as rounding leads, too
    """
    found: list[Comparison] = []
    dtype = FLOATS[run.dtype]
    for case in layer.cases:
        if case.name in run.outputs:
            floors = [layer.floors[run.dtype][case.name]]
            if source is not None and source is not run and case.name in source.outputs:
                floors.append(source.outputs[case.name])
            found += _outputs(case, run.outputs[case.name], layer.truth[case.name], floors, dtype, tolerances)
        if case.name in run.gradients:
            found += _gradients(case, run.gradients[case.name], dtype, tolerances)
    return found


def passes(layer: LayerResults, run: Run) -> bool:
    """Whether a run agrees with the truth, as far as the reference's own rounding explains."""
    return all(comparison.passed for comparison in judged(layer, run, {}, None))


def _outputs(
    case: Case, found: Outputs, truth: Outputs, floors: Sequence[Outputs], dtype: np.dtype[Any],
    tolerances: Mapping[str, Tolerance],
) -> Iterator[Comparison]:  # fmt: skip
    own = {name: array for name, array, *_ in parts(found, case.lengths)}
    rough = [{name: array for name, array, *_ in parts(floor, case.lengths)} for floor in floors]
    states: dict[str, list[Comparison]] = {}
    for name, expected, mask, axes in parts(truth, case.lengths):
        # A framework that gives no final states, or other ones (a projection folded), leaves them out.
        if name not in own or own[name].shape != expected.shape:
            continue
        near = [one[name] for one in rough if name in one and one[name].shape == expected.shape]
        whole = name.partition("[")[0]
        made = compare(case.name, whole, own[name], expected, near, dtype, mask, axes, tolerance(whole, tolerances))
        if whole == name:
            yield made
        else:
            states.setdefault(whole, []).append(made)
    for whole, several in states.items():
        yield joined(whole, several, "state")


def tolerance(output: str, tolerances: Mapping[str, Tolerance]) -> Tolerance | None:
    """The user's own for an output: by its name, by the first word of it ("gradient"), or for all."""
    for name in (output, output.partition(" ")[0].rstrip(",")):
        if name in tolerances:
            return tolerances[name]
    return tolerances.get("")


def _gradients(
    case: Case, graded: Graded, dtype: np.dtype[Any], tolerances: Mapping[str, Tolerance]
) -> Iterator[Comparison]:
    found, truth, floor = graded.found, graded.truth, graded.floor

    def one(name: str, values: Sequence[Array], axes: tuple[str, ...]) -> Comparison:
        user = tolerance(name, tolerances)
        return compare(case.name, name, values[0], values[1], [values[2]], dtype, None, axes, user)

    yield one("gradient of x", [found.x, truth.x, floor.x], ("step", "batch", "input"))
    for word in ("hidden", "cell"):
        name = f"gradient of {word[0]}_0"
        states = zip(*(getattr(each, word) for each in (found, truth, floor)), strict=True)
        made = [one(name, values, ("batch", "unit")) for values in states]
        if made:
            yield joined(name, made, "state")
    for part in (*GATE_PARTS, "projection"):
        name = f"gradient of {part.replace('_', ' ')}" + (
            " weights" if part in ("input", "recurrent", "peephole") else ""
        )
        made = []
        for arrays in zip(found.weights, truth.weights, floor.weights, strict=True):
            keys = [key for key in arrays[1] if key[0] == part and key in arrays[0]]
            if keys:
                stacked = [np.stack([np.asarray(each[key]) for key in keys]) for each in arrays]
                errors = np.abs(stacked[0] - stacked[1]).reshape(len(keys), -1).max(axis=1)
                gates = {key[1]: float(error) for key, error in zip(keys, errors, strict=True) if key[1]}
                made.append(
                    replace(one(name, stacked, ("gate", "unit", "input")[: stacked[0].ndim]), gates=gates or None)
                )
        if made:
            yield joined(name, made, "direction")


def document(
    results: Results, tolerances: Mapping[str, Tolerance], command: str = "", findings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The report of results, as JSON can hold it.

    findings  by layer, what else is known of it: "mutations", "diagnoses", "differences"
    """
    layers = [_layer(layer, tolerances, (findings or {}).get(name, {})) for name, layer in results.layers.items()]
    runs = [run for layer in layers for run in layer["runs"]]
    comparisons = [comparison for run in runs for comparison in run["comparisons"]]
    passed = sum(comparison["passed"] for comparison in comparisons)
    verdict = _verdict(runs, len(results.models))
    executors = sorted({run["executor"] for run in runs if run["comparisons"] and run["executor"] != REFERENCE})
    found = {
        "schema": SCHEMA,
        "rnnconvert": results.rnnconvert,
        "created": results.created,
        "command": command,
        "verdict": verdict,
        "summary": f"{passed} of {len(comparisons)} comparisons passed on {', '.join(executors) or 'no framework'}",
        "models": [asdict(model) for model in results.models],
        "settings": {
            **results.settings, "factor": FACTOR, "ulps": ULPS,
            "tolerances": {name or "all": asdict(one) for name, one in tolerances.items()},
        },
        "layers": layers,
        "seconds": results.seconds,
        "warnings": [*results.warnings, *_warnings(results)],
    }  # fmt: skip
    return {key: finite(value) for key, value in found.items()}


def _layer(layer: LayerResults, tolerances: Mapping[str, Tolerance], findings: Mapping[str, Any]) -> dict[str, Any]:
    source = next((run for run in layer.runs if run.model == "A" and run.own_file and run.executor != REFERENCE), None)
    if source is not None and not passes(layer, source):
        source = None
    cases = [{"name": case.name, "what": case.what, "skipped": ""} for case in layer.cases]
    cases += [{"name": skipped.name, "what": "", "skipped": skipped.why} for skipped in layer.skipped]
    return {
        "name": layer.name,
        "description": layer.description,
        "counterpart": list(layer.counterpart),
        "cases": cases,
        "runs": [_run(layer, run, judged(layer, run, tolerances, source)) for run in layer.runs],
        "mutations": findings.get("mutations", {"caught": [], "missed": []}),
        "diagnoses": findings.get("diagnoses", []),
        "differences": findings.get("differences", []),
    }


def _run(layer: LayerResults, run: Run, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    verdict = "" if not comparisons else EQUAL if all(one.passed for one in comparisons) else NOT_EQUAL
    return {
        "model": run.model, "executor": run.executor, "own_file": run.own_file, "status": run.status,
        "reason": run.reason, "verdict": verdict, "required": run.required, "device": run.device, "dtype": run.dtype,
        "versions": run.versions, "python": run.python, "rewrites": [asdict(step) for step in run.rewrites],
        "notes": {key: value for key, value in run.notes.items() if key != "trace"},
        "left_out": run.left_out, "seconds": run.seconds,
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }  # fmt: skip


def _verdict(runs: Sequence[Mapping[str, Any]], models: int) -> str:
    """Equal only if a framework ran the last model, all that ran agrees, and all that was asked for ran."""
    if any(run["verdict"] == NOT_EQUAL for run in runs):
        return NOT_EQUAL
    label = "B" if models > 1 else "A"
    proved = [run for run in runs if run["verdict"] == EQUAL and run["model"] == label and run["executor"] != REFERENCE]
    missing = [run for run in runs if run["status"] != "ran" and (run["required"] or run["status"] == "failed")]
    return EQUAL if proved and not missing else NOT_COMPARED


def _warnings(results: Results) -> Iterator[str]:
    for layer in results.layers.values():
        own = [run for run in layer.runs if run.model == "A" and run.own_file and run.status == "ran"]
        if not any(run.executor != REFERENCE for run in own):
            why = next(
                (str(run.notes["own file"]) for run in layer.runs if run.model == "A" and "own file" in run.notes), ""
            )
            yield (
                f"{layer.name or 'the layer'}: no framework ran A's own file, so the truth is what rnnconvert reads in it"
                + (f" ({why})" if why else "")
            )
        for run in layer.runs:
            if "unsteady" in run.notes:
                yield f"{layer.name}: {run.executor} gave other numbers when it was run again; the second are judged"


def finite(value: Any) -> Any:
    """With words in place of numbers that JSON has none for."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
