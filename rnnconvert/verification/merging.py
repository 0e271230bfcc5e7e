"""Merge the results of two machines, or of two models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import listed, quoted
from rnnconvert.core.remedies import Flag
from rnnconvert.core.verdict import Limit
from rnnconvert.judging.case_kinds import Case
from rnnconvert.verification.results import LayerResults, Results
from rnnconvert.verification.witness import worst


def merged(first: Results, other: Results) -> Results:
    """Merge the results of two runs of the same cases: of the same file, or of two models to be compared.

    Raises UsageError if the layers, their inputs or their truth differ, or if either has two models.
    """
    for results in (first, other):
        if len(results.models) > 1:
            both = " and ".join(model.path for model in results.models)
            raise UsageError(f"results of two models ({both}) cannot be merged. Keep the results of one model with rnnconvert run")
    same = _same_model(first, other)
    merged_results = Results(
        first.created,
        first.rnnconvert,
        first.settings,
        list(first.models),
        {},
        dict(first.seconds),
        list(dict.fromkeys([*first.warnings, *other.warnings])),
        list(dict.fromkeys([*first.limits, *other.limits])),
    )
    if not same:
        merged_results.models = [first.models[0], *(replace(model, label="B") for model in other.models[:1])]
    matched = set()
    for name, layer in first.layers.items():
        counterpart = _counterpart(name, first, other)
        matched.add(counterpart.name)
        if not _same_cases(layer.cases, counterpart.cases):
            raise UsageError(f"{name!r} had different inputs in the two results. Run one with {Flag('load-inputs')} of the other")
        if same:
            _same_truth(layer, counterpart)
            runs, floors = counterpart.runs, {**counterpart.floors, **layer.floors}
        else:
            # What the second file's truth was is not asked: the first model's is the truth.
            runs, floors = [replace(run, model="B") for run in counterpart.runs], layer.floors
            dtypes = {run.dtype for run in layer.runs}
            for run in runs:
                if dtypes and run.dtype not in dtypes:
                    raise UsageError(
                        f"{quoted(name)} has weights of {run.dtype} in the second results, of {', '.join(sorted(dtypes))} in the first. "
                        "Run both models together: rnnconvert verify A B"
                    )
                if run.rounding not in floors:
                    raise UsageError(
                        f"{quoted(name)} was computed in {run.rounding} in the second results, but how far that leads was not kept in the "
                        "first. Give the first model in place of its results: rnnconvert verify A RESULTS"
                    )
        stated, wholes = (
            dict(layer.stated),
            [layer_results.whole for layer_results in (layer, counterpart) if layer_results.whole is not None],
        )
        if not same:
            stated |= {"B": counterpart.stated["A"]} if "A" in counterpart.stated else {}
        limits = [*layer.limits, *counterpart.limits, *([] if same else _unweighed(name, first, other, counterpart))]
        merged_results.layers[name] = replace(
            layer,
            counterpart=() if same else (counterpart.name,),
            stated=stated,
            floors=floors,
            runs=[*layer.runs, *runs],
            whole=worst(wholes),
            limits=limits,
        )
    extra = [quoted(layer.name) for layer in other.layers.values() if layer.name not in matched]
    if extra:
        raise UsageError(f"{', '.join(extra)} of the second results has no counterpart in the first. Choose layers with {Flag('layer')}")
    return merged_results


def _unweighed(name: str, first: Results, other: Results, counterpart: LayerResults) -> Iterator[Limit]:
    """Yield that weights were not compared, where their hashes differ: results do not hold them, and outputs hide small ones."""
    hashes = first.models[0].weights.get(name), other.models[0].weights.get(counterpart.name)
    if hashes[0] is None or hashes[0] != hashes[1]:
        words = "the weights are not the same bits, results do not hold them, and outputs do not show small ones: verify both files"
        yield Limit("weights", name, words)


def _counterpart(name: str, first: Results, other: Results) -> LayerResults:
    if name in other.layers:
        return other.layers[name]
    if len(first.layers) == len(other.layers) == 1:
        return next(iter(other.layers.values()))
    raise UsageError(f"the second results have no layer {name!r}. They have {listed(other.layers)}")


def _same_model(first: Results, other: Results) -> bool:
    """Return whether both are of one file, read alike.

    Equal weights in two files are not enough: both files need their proof.
    """
    files = [(model.sha256, model.weights) for results in (first, other) for model in results.models]
    return len(files) == 2 and files[0] == files[1]


def _same_truth(left: LayerResults, other: LayerResults) -> None:
    """Raise UsageError if two results disagree about the true outputs of the same layer."""
    for case in left.cases:
        mine, yours = left.truth[case.name], other.truth[case.name]
        pairs = list(itertools.zip_longest((mine.y, *mine.hidden, *mine.cell), (yours.y, *yours.hidden, *yours.cell)))
        for first, second in pairs:
            # Another machine's numpy may round otherwise; what is judged is coarser by far.
            if first is None or second is None or not np.allclose(first, second, rtol=1e-6, atol=1e-9, equal_nan=True):
                raise UsageError(
                    f"the two results of one file disagree about {quoted(left.name)}, case {case.name!r}: one was "
                    f"changed, or made by another version"
                )


def _same_cases(first: Sequence[Case], other: Sequence[Case]) -> bool:
    return [case.name for case in first] == [case.name for case in other] and all(
        np.array_equal(mine.x, yours.x, equal_nan=True)
        and _equal(mine.hidden, yours.hidden)
        and _equal(mine.cell, yours.cell)
        and mine.way == yours.way
        and _equal(_row(mine.lengths), _row(yours.lengths))
        and _equal(_weighing(mine), _weighing(yours))
        for mine, yours in zip(first, other, strict=True)
    )


def _row(lengths: Array | None) -> list[Array] | None:
    return None if lengths is None else [lengths]


def _weighing(case: Case) -> list[Array] | None:
    weights = case.cotangents
    return None if weights is None else [weights.y, *weights.hidden, *weights.cell]


def _equal(first: Any, other: Any) -> bool:
    if first is None or other is None:
        return first is other
    return len(first) == len(other) and all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
