"""Why outputs differ: other readings of the file, rounding of stored numbers, or a known fault."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.comparison import difference
from rnnconvert.core.arrays import FLOATS
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import finite
from rnnconvert.core.reference import Outputs
from rnnconvert.core.verdict import NOT_EQUAL, OF_INTEGERS
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis import diagnosis, mutations
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.measure import Measure
from rnnconvert.verification.plan import Watch
from rnnconvert.verification.ready import LayerRun
from rnnconvert.verification.results import LayerResults, Results
from rnnconvert.verification.running import REFERENCE, Subject

PathLike = str | os.PathLike[str]


def nothing(*_: object) -> None:
    """Do nothing."""


class Scores:
    """Which wrong conventions cases would catch: most scores are known before the executors are through."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._scores: dict[tuple[str, tuple[str, ...], str], mutations.Score] = {}
        self.seconds = 0.0

    def of(self, stack: Recurrent, cases: Sequence[Case], dtype: Any, announced: bool = True) -> mutations.Score:
        """Return the score of a layer and some of its cases."""
        key = stack.name, tuple(case.name for case in cases), str(np.dtype(dtype or stack.dtype))
        if key not in self._scores:
            start = time.perf_counter()
            text = f"{stack.name or 'the module itself'}: wrong conventions that these inputs would catch"
            progress = functools.partial(self._watch, text) if announced else nothing
            self._scores[key] = mutations.score(stack, cases, dtype, progress)
            self.seconds += time.perf_counter() - start
        return self._scores[key]

    def beforehand(self, results: Results, subjects: Sequence[Subject]) -> None:
        """Score each layer with all cases, as they are judged where the executors run all of them."""
        last = {subject.stack.name: subject.stack for subject in subjects}
        for subject in subjects:
            if subject.model == "A":
                self.of(subject.stack, results.layers[subject.stack.name].cases, last[subject.stack.name].dtype, announced=False)


def explain_differences(
    layer: Mapping[str, Any], results: LayerResults, subjects: Sequence[Subject], watch: Watch, scores: Scores
) -> dict[str, Any]:
    """Return the wrong conventions that these inputs would catch, and those that a difference resembles."""
    stacks = {subject.model: subject.stack for subject in subjects if subject.stack.name == layer["name"]}
    if "A" not in stacks:
        return {}
    stack, counterpart = stacks["A"], stacks.get("B")
    name = layer["name"] or "the module itself"
    cases, dtype = _judged(layer, results)
    explanation: dict[str, Any] = {"mutations": asdict(scores.of(stack, cases, dtype))}
    failed = [number for number, run in enumerate(layer["runs"]) if run["verdict"] == NOT_EQUAL]
    if failed:
        watch(f"{name}: why it is not equal")
        counterpart_facts = None
        if counterpart is not None:
            reference_run = next((run for run in results.runs if run.model == "B" and run.executor == REFERENCE), None)
            counterpart_facts = diagnosis.Comparand(stack, counterpart, reference_run.outputs if reference_run else None)
        explanation["diagnoses"] = [
            _diagnosed(results, results.runs[number], stack, counterpart_facts, _rounded(layer["name"], subjects)) for number in failed
        ]
        if counterpart_facts is not None:
            apart = [each for each in counterpart_facts.differences if not each.equal]
            explanation["differences"] = [asdict(each) for each in apart]
            explanation["places"] = _places(stack, apart)
    return {key: finite(value) for key, value in explanation.items()}


def _places(stack: Recurrent, apart: Sequence[difference.Difference]) -> list[dict[str, Any]]:
    """Return each direction of a layer, with the gates whose weights differ; "" for what is not of one gate."""
    places = []
    for index, number, direction in stack.directions():
        off = {each.gate for each in apart if each.layer in (index, -1) and each.direction in (number, -1)}
        order = [*direction.cell.gates, ""]
        places.append(
            {"layer": index, "direction": number, "gates": list(direction.cell.gates), "off": [gate for gate in order if gate in off]}
        )
    return places


def other_readings(results: Results, subjects: Sequence[Subject]) -> Iterator[str]:
    """Yield how far the two readings of ONNX's clip are apart, for the layers that have one, and which is the truth."""
    for subject in subjects:
        clipped = any(clip.kind == "gates" for *_, d in subject.stack.directions() for clip in d.cell.clips)
        if subject.model != "A" or not clipped or subject.stack.cell.kind != "lstm":
            continue
        solved = results.layers[subject.stack.name]
        apart = max(_apart(subject.stack, case, solved.truth[case.name]) for case in solved.cases)
        yield (
            f"{solved.name}: a clip of an LSTM's gates has two readings. The truth here is the usual one: each gate is clipped before "
            f"its function. In the other the cell state is clipped, too, on its way to the output: y is then up to {apart:.3g} off"
        )


def _apart(stack: Recurrent, case: Case, truth: Outputs) -> float:
    other = case.solve(stack, readings=["clip output"])
    return float(np.nan_to_num(np.abs(other.y - truth.y)).max(initial=0.0))


def _judged(layer: Mapping[str, Any], results: LayerResults) -> tuple[list[Case], Any]:
    """Return the cases that a framework really proved for the last model, and the element type of the judgement."""
    label = "B" if layer["counterpart"] else "A"
    runs = [run for run in layer["runs"] if run["executor"] != REFERENCE and run["comparisons"]]
    runs = [run for run in runs if run["model"] == label]
    names = {comparison["case"] for run in runs for comparison in run["comparisons"]}
    return [case for case in results.cases if case.name in names], FLOATS[runs[0]["dtype"]] if runs else None


_OF_INTEGERS = (
    "its weights stand for integers, and the kernel that ran them rounds more than the weights: no float weights give the same, and "
    "how much of the difference this explains is not known. Compare with the model as it was before it was quantized"
)
"""The statement on a difference that rounding inside the source's own kernel makes, or hides."""


def _rounded(name: str, subjects: Sequence[Subject]) -> set[str]:
    """Return the models of which a layer's weights stand for integers, whose own kernel rounds more than the weights."""
    return {subject.model for subject in subjects if subject.stack.name == name and subject.rounds()}


def _diagnosed(
    results: LayerResults, run: LayerRun, stack: Recurrent, compared_with: diagnosis.Comparand | None, rounded: Collection[str]
) -> dict[str, Any]:
    if run.own_file and run.model in rounded:  # no convention gives what is rounded to a few steps
        return {"model": run.model, "executor": run.executor, "sentences": [_OF_INTEGERS], "fault": OF_INTEGERS, "cause": "", "kind": ""}
    answers = [(case, run.outputs[case.name]) for case in results.cases if case.name in run.outputs]
    basis = results.basis(run.model)
    dtype, floors = FLOATS[run.dtype], basis.floors.get(run.rounding, {})

    def solved(case: Case) -> Callable[[Any], Outputs]:
        return lambda kind: basis.truth[case.name] if np.dtype(kind) == np.float64 else floors[case.name]

    # What the reference gave is known, and how far rounding leads.
    measures = [Measure(case, dtype, solved(case)) for case, _ in answers] if floors else None
    finding = diagnosis.diagnose(stack, answers, dtype, compared_with if run.model == "B" else None, measures=measures)
    return {
        "model": run.model,
        "executor": run.executor,
        "sentences": list(finding.sentences),
        "fault": finding.fault,
        "cause": finding.cause,
        "kind": finding.kind,
    }


def apart(read: Iterable[PathLike | None], written: Iterable[PathLike | None]) -> None:
    """Raise UsageError if a file that is read would also be written, or a file would be written twice."""
    there = {Path(path).resolve() for path in read if path}
    for path in written:
        if path and Path(path).resolve() in there:
            raise UsageError(f"{os.fspath(path)} is named twice. Give each input and each output a file of its own")
        if path:
            there.add(Path(path).resolve())
