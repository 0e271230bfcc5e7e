"""The outputs of executors for functions of numbers beyond float32's exponential."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rnnconvert.core.verdict import Limit
from rnnconvert.files.load import load
from rnnconvert.judging.case_kinds import overflowing
from rnnconvert.judging.comparison import parts
from rnnconvert.verification.collect import collect
from rnnconvert.verification.judgements import finite_sequences, passes
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.results import LayerResults


def overflows(layer: LayerResults) -> Iterator[Limit]:
    """Yield the executors that give infinity or NaN for functions whose value is a finite number."""
    for run in layer.runs:
        for case in (case for case in layer.cases if case.far and case.name in run.outputs):
            arrays = {name: array for name, array, *_ in parts(run.outputs[case.name], case.lengths)}
            basis = layer.basis(run.model)
            if not finite_sequences(arrays, [basis.truth[case.name], basis.floors[run.rounding][case.name]], case).all():
                functions = " and ".join(case.far)
                words = f"{run.executor} gives infinity or NaN for {functions} of numbers beyond 88, where the value is finite"
                yield Limit("overflow", layer.name, words)


def beyond(path: Path, executor: str) -> Iterator[Limit]:
    """Yield the layers of a file for which an executor gives infinity or NaN although their value is finite, or which it did not run.

    Only layers are run whose functions a kernel may compute from an exponential.

    Raises what reading the file raises, AbsentExecutorError for an absent executor.
    """
    names = [name for name, stack in load(path).layers.items() if overflowing(stack)]
    if not names:
        return
    results, _ = collect(str(path), None, Plan(on=(executor,), cases=("saturating",), layers=names), passes)
    for layer in results.layers.values():
        yield from overflows(layer)
        for run in layer.runs:
            if run.executor == executor and not run.outputs:
                yield Limit("overflow", layer.name, f"{executor} was not tried on numbers beyond 88: {run.reason}")
