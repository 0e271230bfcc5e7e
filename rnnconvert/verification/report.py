"""The verdict: every output of every run compared with the truth, in one document that all reports are made from."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import finite
from rnnconvert.core.verdict import EQUAL, NOT_COMPARED, NOT_EQUAL, SCOPES, Verdict
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import FACTOR, ULPS, Tolerance, tolerance
from rnnconvert.verification.evidence import concluded, zeros_would_pass
from rnnconvert.verification.judgements import judgements_of, plain, without
from rnnconvert.verification.ready import LayerRun
from rnnconvert.verification.results import LayerResults, Results
from rnnconvert.verification.running import REFERENCE

SCHEMA = "rnnconvert-report-1"


@dataclass(repr=False)
class Report:
    """The report of a comparison, with the verdict; true only if everything is equal.

    document  all of it as JSON can hold it (rnnconvert.reports)
    strict    whether its exit code is 0 only if everything is equal
    """

    document: dict[str, Any]
    strict: bool = False

    @property
    def conclusion(self) -> Verdict:
        """The verdict, with all that was left out."""
        return Verdict.read(self.document)

    @property
    def verdict(self) -> str:
        """ "equal", "equal but for", "recurrent layers equal", "equal layer by layer, not run whole", "not equal" or "not compared"."""
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
        7 equal layer by layer, and not run whole; 8 equal in the recurrent layers, and the rest not compared.
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
        """Return the whole page, in a separate frame, for a notebook."""
        from rnnconvert import reports

        page = html.escape(reports.render(self.document, ".html"))
        return f'<iframe title="rnnconvert report" srcdoc="{page}" width="100%" height="640" style="border:0"></iframe>'

    def __str__(self) -> str:
        from rnnconvert.reports.text import to_text

        return to_text(self.document)


def document(results: Results, tolerances: Mapping[str, Tolerance], command: str = "") -> dict[str, Any]:
    """Return the report of results, as JSON can hold it; the cause of a difference is not searched here."""
    judgements = {layer.name: judgements_of(layer, tolerances) for layer in results.layers.values()}
    models = results.models_compared
    # What an executor refuses as a layer, it may have run as a part of its model.
    inside = models.executors if models is not None and models.ran_whole else ()
    layers = [_layer(layer, judgements[layer.name], inside) for layer in results.layers.values()]
    runs = [run for layer in layers for run in layer["runs"]]
    comparisons = [comparison for run in runs for comparison in run["comparisons"]]
    passed = sum(comparison["passed"] for comparison in comparisons)
    all_judged = {name: [comparison for several in each for comparison in several] for name, each in judgements.items()}
    _check_tolerances(tolerances, {comparison.output for several in all_judged.values() for comparison in several})
    tolerated = [limit for name, several in all_judged.items() for limit in zeros_would_pass(name, several, tolerances)]
    verdict, why = concluded(results, [layer["runs"] for layer in layers], tolerated)
    different = () if results.others is None else results.others.refuted
    executors = sorted({run["executor"] for run in runs if run["comparisons"] and run["executor"] != REFERENCE})
    result = {
        "schema": SCHEMA,
        "rnnconvert": results.rnnconvert,
        "created": results.created,
        "command": command,
        **verdict.as_dict(),
        "reasons": why,
        "summary": (
            f"{passed} of {len(comparisons)} comparisons passed{' on' if executors else ', all in rnnconvert itself, none in a framework'}"
            f"{' ' if executors else ''}{', '.join(executors)}"
            if layers
            else "no layers were compared one by one"
        )
        + (f"; other layers differ: {len(different)}" if different else "")
        + (f"; {SCOPES[verdict.scope]}" if verdict.word == EQUAL and SCOPES[verdict.scope] else ""),
        "missing_packages": results.missing_packages,
        "models": [asdict(model) for model in results.models],
        "whole": None if results.models_compared is None else asdict(results.models_compared),
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


def _layer(layer: LayerResults, judgements: Sequence[list[OutputComparison]], inside: Sequence[str]) -> dict[str, Any]:
    cases = [{"name": case.name, "what": case.what, "skipped": ""} for case in layer.cases]
    cases += [{"name": skipped.name, "what": "", "skipped": skipped.why} for skipped in layer.skipped]
    return {
        "name": layer.name,
        "description": layer.description,
        "counterpart": list(layer.counterpart),
        "cases": cases,
        "runs": [_run(layer, run, judgement, inside) for run, judgement in zip(layer.runs, judgements, strict=True)],
        "mutations": {"caught": [], "missed": [], "inapplicable": []},
        "diagnoses": [],
        "differences": [],
    }


def _run(layer: LayerResults, run: LayerRun, comparisons: Sequence[OutputComparison], inside: Sequence[str]) -> dict[str, Any]:
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
        "required": run.required and not (run.status == "refused" and run.executor in inside),
        "device": run.device,
        "dtype": run.dtype,
        "versions": run.versions,
        "python": run.python,
        "rewrites": [asdict(step) for step in run.rewrites],
        "notes": {key: value for key, value in run.notes.items() if key != "trace"},
        "left_out": {**run.left_out, **without(layer, run, comparisons)},
        "seconds": run.seconds,
        "comparisons": [plain(comparison) for comparison in telling],
    }


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
    """Yield the warnings about outputs of the last model that were asked for but that no framework gave."""
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
