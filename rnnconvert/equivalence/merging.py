"""Results of two machines, or of two models, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rnnconvert.equivalence.cases import Case
from rnnconvert.equivalence.results import LayerResults, Model, Results
from rnnconvert.errors import UsageError


def merged(one: Results, other: Results) -> Results:
    """Results of two runs of the same cases as one: of the same weights, or of two models to be compared.

    Raises UsageError if the layers or their inputs are not the same.
    """
    same = _same_weights(one, other)
    found = Results(
        one.created, one.rnnconvert, one.settings, list(one.models), {}, dict(one.seconds),
        list(dict.fromkeys([*one.warnings, *other.warnings])),
    )  # fmt: skip
    if not same:
        found.models = [one.models[0], *(_labelled(model, "B") for model in other.models[:1])]
    for name, layer in one.layers.items():
        beside = _beside(name, one, other)
        if not _same_cases(layer.cases, beside.cases):
            raise UsageError(
                f"{name!r} was given other inputs in the two results: run one with --load-inputs of the other"
            )
        if same:
            runs, floors = beside.runs, {**beside.floors, **layer.floors}
        else:
            # What the second file's truth was is not asked: the first model's is the truth.
            runs, floors = [replace(run_, model="B") for run_ in beside.runs], layer.floors
            for run_ in runs:
                if run_.dtype not in floors:
                    raise UsageError(
                        f"{name!r} was run in {run_.dtype} in the second results, and how far rounding leads in it was not "
                        f"kept in the first: run both models together, rnnconvert verify A B"
                    )
        found.layers[name] = replace(
            layer, counterpart=() if same else (beside.name,), floors=floors, runs=[*layer.runs, *runs]
        )
    return found


def _beside(name: str, one: Results, other: Results) -> LayerResults:
    if name in other.layers:
        return other.layers[name]
    if len(one.layers) == len(other.layers) == 1:
        return next(iter(other.layers.values()))
    raise UsageError(f"the results have no layer {name!r} in common: there are {', '.join(other.layers)}")


def _labelled(model: Model, label: str) -> Model:
    return replace(model, label=label)


def _same_weights(one: Results, other: Results) -> bool:
    return bool(one.models and other.models) and sorted(one.models[0].weights.values()) == sorted(
        other.models[0].weights.values()
    )


def _same_cases(one: Sequence[Case], other: Sequence[Case]) -> bool:
    return [case.name for case in one] == [case.name for case in other] and all(
        np.array_equal(mine.x, yours.x, equal_nan=True)
        and _equal(mine.hidden, yours.hidden)
        and _equal(mine.cell, yours.cell)
        for mine, yours in zip(one, other, strict=True)
    )


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
