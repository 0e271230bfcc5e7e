"""Results as evidence for a verdict: whether anything differs, whether all was compared, and what was left out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnnconvert.core.printable import called
from rnnconvert.core.verdict import EQUAL, NOT_EQUAL, Limit, Scope, Verdict
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Tolerance, tolerance
from rnnconvert.verification.beyond import overflows
from rnnconvert.verification.results import LayerResults, ModelsCompared, Results
from rnnconvert.verification.running import REFERENCE

Runs = Sequence[Mapping[str, Any]]


def concluded(results: Results, layers: Sequence[Runs], tolerated: Iterable[Limit] = ()) -> tuple[Verdict, list[str]]:
    """Return the verdict that results allow, and why the models are not equal beside what the runs show: equal only if a framework ran
    every layer of the last model, or both models whole, all runs that were asked for ran and agree, and nothing was left out.

    layers     the runs of each layer, as the report has them
    tolerated  outputs that the user's own tolerances leave uncompared
    """
    runs = [run for layer in layers for run in layer]
    label = "B" if len(results.models) > 1 else "A"
    models = results.models_compared
    ran_whole = models is not None and models.ran_whole
    by_itself = [any(_proves(run, label) for run in layer) for layer in layers]
    missing = [run for run in runs if run["status"] != "ran" and (run["required"] or run["status"] == "failed")]
    # One that was asked for by name and ran, but of which nothing could be judged, has proved nothing either.
    idle = [run for run in runs if run["status"] == "ran" and run["required"] and not run["verdict"]]
    limits = [*results.limits, *tolerated]
    for layer, layer_runs in zip(results.layers.values(), layers, strict=True):
        compared = {comparison["case"] for run in layer_runs if run["model"] == label for comparison in run["comparisons"]}
        apart = any(run["verdict"] == NOT_EQUAL for run in layer_runs)
        # That no output shows other weights is true only where none does.
        limits += (limit for limit in _limits(layer, compared) if not (apart and limit.kind == "weights"))
    if ran_whole:
        limits = [limit for limit in limits if limit.kind != "whole"]  # what lies between joined layers ran with the rest
        limits += (
            Limit("rest", name, "compared as a part of the whole models, as no framework ran it by itself")
            for name, proved in zip(results.layers, by_itself, strict=True)
            if not proved
        )
    scope, limits = _scope(results, limits)
    why = list(_reasons(results))
    differs = models is not None and models.status == "not equal" and not _is_part(models, results)
    if models is not None and differs and models.explained:
        limits.append(Limit("outputs", "", f"the whole models give something else: {models.reason}"))
    elif models is not None and differs:
        alike = "" if why or not layers or models.integers or any(run["verdict"] == NOT_EQUAL for run in runs) else _around(results)
        why.insert(0, f"the whole models give something else: {models.reason}{alike}")
    equal = not why and not any(run["verdict"] == NOT_EQUAL for run in runs)
    return Verdict.of(
        equal=equal, compared=(ran_whole or (bool(layers) and all(by_itself))) and not missing and not idle, limits=limits, scope=scope
    ), why


def _around(results: Results) -> str:
    """Say where models differ whose layers are equal, as far as they were compared."""
    left = () if results.others is None else results.others.uncompared
    if left:
        return (
            f". All layers that were compared are equal: what differs lies between or around them, or in what was not ({'; '.join(left)})"
        )
    return ". Their recurrent layers are equal, and so are the weights of the others: what differs lies between or around them"


def _is_part(models: ModelsCompared, results: Results) -> bool:
    """Return whether one model is a part of the other: it lacks layers that the other has, which gives outputs of other shapes."""
    shapes = models.status == "not equal" and not models.outputs
    return shapes and results.others is not None and len(results.others.only_in) == 1


def _scope(results: Results, limits: Sequence[Limit]) -> tuple[Scope, list[Limit]]:
    """Return the scope of a comparison of two models, and the limits with those that follow from it."""
    if len(results.models) < 2:
        return "", list(limits)
    models = results.models_compared
    alone = [Limit("rest", "", f"not compared: {text}") for text in (models.alone if models is not None else ())]
    if models is not None and models.status != "not compared" and not _is_part(models, results):
        aside = [
            Limit("others", limit.layer, limit.words.replace("not compared: ", "not compared by itself: ", 1))
            if limit.kind == "rest"
            else limit
            for limit in limits
        ]
        otherwise = [Limit("outputs", "", f"B is called otherwise than A: {note}") for note in models.notes]
        otherwise += [Limit("outputs", "", f"not proved: {text}") for text in models.unproved]
        return ("layers" if alone else "whole"), [*aside, *alone, *otherwise]
    rest = list(limits)
    if models is not None and models.status == "not compared" and not models.bare:
        rest.append(Limit("rest", "", f"not compared: what the whole models give ({models.reason})"))
    if models is not None and _is_part(models, results):
        rest.append(Limit("rest", "", f"with these the whole models give something else: {models.reason}"))
    if models is not None and models.bare and not any(limit.kind == "rest" for limit in rest):
        rest.append(Limit("rest", "", f"not compared: what lies around the recurrent layers ({models.reason})"))
    complete = results.others is not None and not any(limit.kind in ("rest", "chosen") for limit in rest)
    return ("weights" if complete else "layers"), rest


def _proves(run: Mapping[str, Any], label: str) -> bool:
    """Return whether a run proves a layer of a model: a framework gave its outputs, and they are right."""
    proves = run["verdict"] == EQUAL and run["model"] == label and run["executor"] != REFERENCE
    return proves and any(comparison["output"] == "y" for comparison in run["comparisons"])


def _reasons(results: Results) -> Iterator[str]:
    """Yield the reasons why layers are not equal, even if their outputs are: each with the layer's name."""
    if results.others is not None:
        yield from results.others.refuted
        if results.models_compared is None or results.models_compared.status != "equal":
            yield from results.others.settings
    for layer in results.layers.values():
        yield from (f"{called(layer.name)}: {reason}" for reason in layer.refuted)
        if layer.whole is not None and layer.whole.status == "not equal":
            yield f"{called(layer.name)}: run whole, the source gives something else: {layer.whole.reason}"


def _limits(layer: LayerResults, compared: Collection[str]) -> Iterator[Limit]:
    """Yield the limits of one layer, for everything that was left out.

    compared  the cases in which the last model was
    """
    yield from layer.limits
    yield from overflows(layer)
    lacking = [] if layer.power is None else [case for case in layer.power.cases if case not in compared]
    if layer.power is not None and layer.power.words:
        yield Limit("units", layer.name, layer.power.words)
    elif lacking:
        yield Limit("units", layer.name, f"units that only these cases exercise were not compared: {', '.join(lacking)}")
    if layer.whole is not None and layer.whole.status == "not run":
        yield Limit("whole", layer.name, f"what lies between its layers was not run: {layer.whole.reason}")


def zeros_would_pass(name: str, comparisons: Iterable[OutputComparison], tolerances: Mapping[str, Tolerance]) -> Iterator[Limit]:
    """Yield the outputs of a layer that nothing was compared of because the user's tolerances are as large as they are."""
    cases_by_output: dict[str, list[str]] = {}
    for comparison in comparisons:
        if comparison.passed and not comparison.telling and tolerance(comparison.output, tolerances) is not None:
            cases_by_output.setdefault(comparison.output, []).append(comparison.case)
    for output, cases in cases_by_output.items():
        where = ", ".join(dict.fromkeys(cases))
        yield Limit("tolerance", name, f"zeros in place of {output} would pass with the tolerance given ({where})")
