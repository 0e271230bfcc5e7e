"""Run models, compare their outputs, and decide whether they compute the same."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.comparison import difference
from rnnconvert.core.arguments import passes_on, split_keywords
from rnnconvert.core.errors import UsageError, for_user
from rnnconvert.core.printable import command_line, finite, listed
from rnnconvert.core.remedies import Setting
from rnnconvert.core.verdict import NOT_COMPARED, NOT_EQUAL
from rnnconvert.judging.judging import Tolerance
from rnnconvert.verification import judgements, report
from rnnconvert.verification.cache import Cache, key_of
from rnnconvert.verification.collect import collect, prepare, proceed
from rnnconvert.verification.evidence import concluded
from rnnconvert.verification.explaining import Scores, apart, explain_differences, nothing, other_readings
from rnnconvert.verification.live import is_live, saved
from rnnconvert.verification.merging import merged
from rnnconvert.verification.plan import FLAGS, Plan, PlanFields, Watch, decides_nothing
from rnnconvert.verification.repair import repair
from rnnconvert.verification.report import Report
from rnnconvert.verification.results import LayerResults, Results, hash_of, read
from rnnconvert.verification.running import Subject
from rnnconvert.verification.stated import outlines_apart, shows, stated, words

if TYPE_CHECKING:
    from typing_extensions import Unpack

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Execution:
    """How models are compared, and what is kept of it.

    save         keep the results in this file, to be judged again
    save_inputs  keep the inputs alone in this one
    watch        receives what is being done, in words
    command      the command that does the same, for the report
    jobs         how many executors run at the same time; one per processor if None
    cache        a folder of proofs: only what changed since is run again
    """

    save: PathLike | None = None
    save_inputs: PathLike | None = None
    watch: Watch = lambda text, done=0, total=0: None
    command: str = ""
    jobs: int | None = None
    cache: PathLike | None = None


class _VerifyChoices(PlanFields, total=False):
    save: PathLike | None
    save_inputs: PathLike | None
    watch: Watch
    command: str
    jobs: int | None
    cache: PathLike | None


@passes_on(Plan)
def run(
    model: PathLike,
    plan: Plan | None = None,
    *,
    watch: Watch = lambda text, done=0, total=0: None,
    jobs: int | None = None,
    **choices: Unpack[PlanFields],
) -> Results:
    """Run a model's recurrent layers on executors and keep their outputs; judge these with `verify`, here or elsewhere.

    plan     what is to be run; its fields may be keywords, too, and change it: on, cases, seed, batch, time, lengths, gradients ...
    watch    receives what is being done, in words
    jobs     how many executors run at the same time; one per processor if None

    Raises what reading the model raises, UsageError, AbsentExecutorError for an absent executor.

        >>> import rnnconvert as rc
        >>> results = rc.run("examples/encoder.keras", on=["reference"], cases=["states"])
        >>> results.layers["summary"].truth["states"].y.shape  # (time, batch, unit), by the float64 reference
        (12, 4, 5)
    """
    source = _results_or_path(model)
    if isinstance(source, Results):
        raise UsageError("run takes the file of a model, not results that were kept. To judge results, use verify")
    results, _ = collect(source, None, replace(plan or Plan(), **choices), judgements.passes, watch, jobs)
    return results


@passes_on(Plan, Execution)
def verify(
    a: Any,
    b: Any = None,
    plan: Plan | None = None,
    *,
    example: Any = None,
    atol: Mapping[str, float] | float | None = None,
    rtol: Mapping[str, float] | float | None = None,
    explain: bool = True,
    strict: bool = False,
    **choices: Unpack[_VerifyChoices],
) -> Report:
    """Decide whether models compute the same: one on several executors, or two compared; files, live models or saved results.

    a, b        model files; live models (a torch.nn.Module, a Keras model, an onnx.ModelProto), which their frameworks save for the
                executors; or results that `run` kept: A's float64 reference is the truth
    example     inputs of a live module that torch.jit.script does not compile
    plan        what is to be run; its fields may be keywords, too, and change it: on, cases, seed, batch, time, lengths, gradients ...
    atol, rtol  tolerances in place of what rounding explains, for all outputs or by output: {"y": 1e-4}
    explain     whether wrong conventions are searched: those that these inputs would catch, and the one that a
                difference shows
    save        keep the results in this file, to be judged again
    save_inputs keep the inputs alone in this one
    watch       receives what is being done, in words
    jobs        how many executors run at the same time; one per processor if None
    cache       a folder of proofs: only what changed since is run again
    strict      whether the report's exit code is 0 only where everything is equal, and nothing was left out

    Raises what reading the models raises, UsageError for models that cannot be compared, AbsentExecutorError
    for an absent executor that was asked for.

        >>> import rnnconvert as rc
        >>> report = rc.verify("examples/encoder.keras", on=["reference"])  # no framework runs it, so nothing is proved
        >>> report.verdict
        'not compared'
    """
    start = time.perf_counter()
    tolerances = tolerances_of(atol, rtol)
    rest, fields = split_keywords(choices, Execution)
    how, plan = Execution(**rest), replace(plan or Plan(), **fields)
    save, save_inputs, watch, jobs = how.save, how.save_inputs, how.watch, how.jobs
    live = [is_live(source) and not isinstance(source, Results) for source in (a, b)]
    if example is not None and not any(live):
        raise UsageError("example= decides nothing: it is for a live module. Leave it out")
    a, b = (saved(source, example) if in_memory else source for source, in_memory in zip((a, b), live, strict=True))
    apart([source for source in (a, b) if not isinstance(source, Results)], [save, save_inputs])
    command = how.command or ("" if any(live) else command_of(a, b, plan, tolerances, explain))
    first, second = _results_or_path(a), None if b is None else _results_or_path(b)
    proofs, key, scores = None, "", Scores(watch)
    if isinstance(first, str) and not isinstance(second, Results):
        prepared = prepare(first, second, plan, watch)
        prepared.tolerances = tolerances
        if how.cache is not None and plan.given is None and save is None and save_inputs is None:
            proofs, key = Cache(how.cache), key_of(prepared, tolerances, explain)
            stored = proofs.find(key)
            if stored is not None:
                return Report({**stored, "command": command}, strict)
        results, subjects = prepared.results, prepared.subjects
        meanwhile = functools.partial(scores.beforehand, results, subjects) if explain else nothing
        proceed(prepared, judgements.passes, watch, jobs, meanwhile)
        if prepared.unpaired is not None and concluded(results, ())[0].word == NOT_COMPARED:
            raise _undecided(prepared.unpaired, results)
    else:
        results, subjects = _with_kept(first, second, plan, watch, jobs)
    if save is not None:
        results.save(os.fspath(save))
    if save_inputs is not None:
        keep_inputs(results, save_inputs)
    watch("comparing")
    compared = time.perf_counter()
    document = report.document(results, tolerances, command)
    explained, before = time.perf_counter(), scores.seconds
    if explain and subjects:
        document["layers"] = [
            {**layer, **explain_differences(layer, results.layers[layer["name"]], subjects, watch, scores)} for layer in document["layers"]
        ]
    _stated(document, results, subjects)
    document["warnings"] += other_readings(results, subjects)
    for model in document["models"]:
        model["path"] = for_user(model["path"])
    if document["verdict"] == NOT_EQUAL and isinstance(first, str) and isinstance(second, str) and not any(live):
        watch("what repairs B")
        document["repair"] = repair(first, second, plan).as_dict()
    end = time.perf_counter()
    spent = {"compare": explained - compared, "explain": end - explained + before, "total": end - start}
    document["seconds"] = {**_seconds(results), **spent}
    if proofs is not None:
        proofs.keep(key, document)
    return Report(document, strict)


def _undecided(unpaired: UsageError, results: Results) -> UsageError:
    """Return the error of two models whose layers cannot be paired, and which did not run whole either."""
    models = results.models_compared
    why = "no executor here ran both" if models is None else models.reason or listed(models.alone)
    return UsageError(f"{unpaired.headline.removesuffix('.')}. The whole models were not compared either: {why}.", details=unpaired.details)


def command_of(
    a: PathLike | Results, b: PathLike | Results | None, plan: Plan, tolerances: Mapping[str, Tolerance], explain: bool = True
) -> str:
    """Return the command that does the same as a call."""
    words = ["rnnconvert", "verify"]
    for source in (a, b):
        if isinstance(source, Results):
            words += [model.path for model in source.models]
        elif source is not None:
            words.append(os.fspath(source))
    defaults = Plan()
    for name, option in FLAGS.items():
        flag = f"--{option}"
        value: Any = getattr(plan, name)
        if name == "given" or value is None or value == getattr(defaults, name):
            continue
        if name == "lengths":
            words += [flag, ",".join(str(element) for element in value)]
        elif value is True:
            words.append(flag)
        else:
            words += [word for element in ([value] if isinstance(value, (str, int, float)) else value) for word in (flag, str(element))]
    for name, limits in tolerances.items():
        prefix = f"{name}:" if name else ""
        words += [
            word for flag, number in (("--atol", limits.atol), ("--rtol", limits.rtol)) if number for word in (flag, f"{prefix}{number:g}")
        ]
    return command_line([*words, *([] if explain else ["--no-explain"])])


def _with_kept(
    first: Results | str, second: Results | str | None, plan: Plan, watch: Watch, jobs: int | None
) -> tuple[Results, list[Subject]]:
    """Return the results of two models of which at least one was kept."""
    stored = [source for source in (first, second) if isinstance(source, Results)]
    if second is None or len(stored) > 1:
        why = "results are judged without running anything. To run more, give the model, too, as B"
        decides_nothing(plan, FLAGS, why)
    decides_nothing(plan, ("given", "pairs"), "the results have their own inputs and layers")
    side = "a" if first is stored[0] else "b"
    decides_nothing(plan, (f"settings_{side}", f"format_{side}"), "results are read unchanged")
    if isinstance(first, Results):
        if second is None:
            return first, []
        if isinstance(second, Results):
            return merged(first, second), []
        own_plan = replace(plan, given=first, settings_a=plan.settings_b, format_a=plan.format_b, settings_b=(), format_b=None)
        fresh, subjects = collect(second, None, own_plan, judgements.passes, watch, jobs)
        results = merged(first, fresh)
        return results, _of(results, subjects)
    assert isinstance(second, Results)
    fresh, subjects = collect(first, None, replace(plan, given=second), judgements.passes, watch, jobs)
    return merged(fresh, second), subjects


def _results_or_path(source: PathLike | Results) -> Results | str:
    """Return results, where they are at hand or kept in a file; else the path of a model."""
    return source if isinstance(source, Results) else read(os.fspath(source)) or os.fspath(source)


def _of(results: Results, subjects: Sequence[Subject]) -> list[Subject]:
    """Return the layers of a model compared with results, under their names in the results if the weights are the same."""
    result = []
    for layer in results.layers.values():
        counterpart = layer.counterpart[0] if layer.counterpart else layer.name
        weights = results.models[0].weights.get(layer.name)
        result += [
            replace(subject, stack=subject.stack.replace(name=layer.name))
            for subject in subjects
            if subject.stack.name == counterpart and hash_of(subject.stack) == weights
        ]
    return result


def tolerances_of(atol: Mapping[str, float] | float | None, rtol: Mapping[str, float] | float | None) -> dict[str, Tolerance]:
    """Return the tolerances by output; "" for every output that is not named.

    Raises UsageError for one that is negative or not finite.
    """
    by_kind = [{"": bound} if isinstance(bound, (int, float)) else dict(bound or {}) for bound in (atol, rtol)]
    result = {}
    for name in [*by_kind[0], *by_kind[1]]:
        values = [kind.get(name, kind.get("", 0.0)) for kind in by_kind]
        if not all(isinstance(value, (int, float)) for value in values):
            raise UsageError(f"the tolerance for {name or 'all outputs'} is {values}. Give numbers")
        if any(not 0 <= value < math.inf for value in values):
            wrong = next(value for value in values if not 0 <= value < math.inf)
            raise UsageError(f"the tolerance for {name or 'all outputs'} is {wrong}. Give a finite number that is not negative")
        result[name] = Tolerance(*values)
    return result


def _seconds(results: Results) -> dict[str, float]:
    seconds_by_step = {name: results.seconds.get(name, 0.0) for name in ("load", "hash", "reference", "wait", "start", "convert", "run")}
    for layer in results.layers.values():
        for layer_run in layer.runs:
            for name, seconds in layer_run.seconds.items():
                seconds_by_step[name] = seconds_by_step.get(name, 0.0) + seconds
    return seconds_by_step


def _stated(document: dict[str, Any], results: Results, subjects: Sequence[Subject]) -> None:
    """Withdraw the verdict "equal" where two layers state something else, and no input shows whether it matters."""
    if document["verdict"] in (NOT_EQUAL, NOT_COMPARED) or len(results.models) < 2:
        return
    stacks = {(subject.model, subject.stack.name): subject.stack for subject in subjects}
    for layer in document["layers"]:
        name, layer_results = layer["name"] or "the layer", results.layers[layer["name"]]
        a, b = stacks.get(("A", layer["name"])), stacks.get(("B", layer["name"]))
        if a is None or b is None:
            statements, warning = _kept_statements(layer_results)
        else:
            statements = stated(a, b)
            cases = [case for case in layer_results.cases if case.name in _compared(layer)]
            warning = (
                ""
                if not statements or shows(a, b, cases)
                else (
                    f"the models state something different, but no input that ran shows it ({words(statements)}): they are not "
                    f"called equal. If it never matters, remove it from one of them (a clip: {Setting('clip', 'none', side='a')})"
                )
            )
        if warning:
            document["verdict"] = NOT_COMPARED
            layer["differences"] = finite([asdict(each) for each in statements])
            document["warnings"].append(f"{name}: {warning}")


def _kept_statements(results: LayerResults) -> tuple[list[difference.Difference], str]:
    """Return the differences between two models' statements as far as results show them, and the warning; "" if they state the same."""
    way = "they are not called equal. Verify both model files together: rnnconvert verify A B"
    unknown = difference.Difference("feature", -1, -1, "what the models state", error=np.inf, words="unknown")
    if not {"A", "B"} <= set(results.stated):
        return [unknown], f"the results were kept without what the models state, so a clip may be in only one of them: {way}"
    statements = outlines_apart(results.stated["A"], results.stated["B"])
    if statements is None:
        return [unknown], f"the models state something different, but are too large for results to show what: {way}"
    if not statements:
        return [], ""
    return statements, (
        f"the models state something different ({words(statements)}), but results alone do not show whether the inputs that "
        f"were kept show it: {way}"
    )


def _compared(layer: Mapping[str, Any]) -> set[str]:
    return {comparison["case"] for run in layer["runs"] for comparison in run["comparisons"]}


def keep_inputs(results: Results, path: PathLike) -> None:
    """Keep the cases alone, for others to run. Raises UsageError if the file cannot be written."""
    layers = {name: replace(layer, runs=[]) for name, layer in results.layers.items()}
    replace(results, layers=layers).save(Path(path))
