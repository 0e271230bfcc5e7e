"""Collect the runs: read the models, make the cases, run everything; nothing is judged yet."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rnnconvert.comparison.other_layers import compare_others
from rnnconvert.comparison.pairing import LayerPair, pair
from rnnconvert.comparison.stating import unshared
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.remedies import Command, Flag, Setting
from rnnconvert.core.verdict import EXPLAINING, Limit, not_chosen
from rnnconvert.core.version import __version__
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load, load_pair, select
from rnnconvert.judging.cases import DEFAULT_CASES
from rnnconvert.judging.power import power
from rnnconvert.rewrites import join_stack
from rnnconvert.running import registry
from rnnconvert.running.registry import Executor
from rnnconvert.verification import recorded
from rnnconvert.verification.bounds import keep_within
from rnnconvert.verification.lanes import Lanes, PreparedModels, Steady, lanes_of, types
from rnnconvert.verification.plan import Plan, Watch, check
from rnnconvert.verification.results import LayerResults, ModelFile, Results, hash_file, hash_of
from rnnconvert.verification.running import REFERENCE, Subject, by_reference, identical
from rnnconvert.verification.stated import handed_apart, made_for, outlined
from rnnconvert.verification.stored_cases import OF_LAYERS, UserInputs, with_cases
from rnnconvert.verification.truths import Truths
from rnnconvert.verification.weighing import cost, weigh
from rnnconvert.verification.witness import judge


def collect(
    a: str, b: str | None, plan: Plan, steady: Steady, watch: Watch = lambda text, done=0, total=0: None, jobs: int | None = None
) -> tuple[Results, list[Subject]]:
    """Run the layers of a model, or of two, in all cases; the results, and the layers in canonical form.

    watch  receives what is being done, in words
    jobs   how many executors run at the same time; one per processor if None

    Raises the errors of reading the models, UsageError for layers that cannot be paired, AbsentExecutorError
    for an executor that is asked for and absent.
    """
    prepared = prepare(a, b, plan, watch)
    proceed(prepared, steady, watch, jobs)
    return prepared.results, prepared.subjects


def prepare(a: str, b: str | None, plan: Plan, watch: Watch = lambda text, done=0, total=0: None) -> PreparedModels:
    """Read the models and pair their layers; raises as `collect` does."""
    inputs = UserInputs.of(plan)
    check(plan, 1 if b is None else 2, inputs.of_layers is not None)
    if plan.inputs is not None and plan.layers and inputs.of_layers is None:
        raise UsageError(f"{plan.inputs} holds inputs of whole models, and layers of them were chosen. {OF_LAYERS}")
    results = empty(plan)
    start = time.perf_counter()
    chosen = executors_named(plan.on)
    watch(f"reading {a}" + (f" and {b}" if b else ""))
    if b is None:
        first, second = load(a, plan.format_a, (*plan.settings, *plan.settings_a)), None
    else:
        first, second = load_pair((a, b), (plan.format_a, plan.format_b), plan.settings, (plan.settings_a, plan.settings_b))
    every, first = first, select(first, plan.layers)
    models = [first] if second is None else [first, second]
    subjects: list[Subject] = []
    members: list[Subject] = []
    stated: list[Limit] = []
    unpaired = None
    if second is None:
        subjects = list(_alone(first, plan.given))
    else:
        matches: list[LayerPair] = []
        try:
            matches = _pairs(first, second, plan)
        except UsageError as error:
            # What the user says of layers is about layers; otherwise the models themselves may decide.
            if plan.pairs or plan.layers or plan.given is not None or inputs.of_layers is not None:
                raise
            unpaired = error
            members = [
                Subject(label, model, (name,), stack)
                for label, model in (("A", first), ("B", second))
                for name, stack in model.layers.items()
            ]
            stated.append(Limit("rest", "", f"not compared: the recurrent layers ({error.headline.split('. ')[0]})"))
        for matched in matches:
            ours = Subject("A", first, matched.own_names, matched.stack)
            theirs = Subject("B", second, matched.names, matched.counterpart.replace(name=matched.name))
            ours = _as_turned(ours, theirs)
            subjects += [ours, _as_turned(theirs, ours)]
            stated += unshared(first, matched.own_names, second, matched.names)
        if not plan.layers:
            watch("comparing the other layers")
            results.others = compare_others(first, second)
            stated += results.others.limits
    results.warnings = [*_assumed(models), *_unused(plan, inputs)]
    results.limits = [*left_out(every, first), *stated]
    results.seconds["load"] = time.perf_counter() - start
    start = time.perf_counter()
    watch("hashing files and weights")
    results.models = [_model(label, model) for label, model in zip("AB", models, strict=False)]
    results.seconds["hash"] = time.perf_counter() - start
    return PreparedModels(plan, results, subjects, chosen, second is None, inputs, unpaired=unpaired, members=members)


def _pairs(a: Checkpoint, b: Checkpoint, plan: Plan) -> list[LayerPair]:
    """Return the layers of two models side by side. Raises UsageError where nothing tells which is which, or their sizes differ."""
    pairs = pair(a, b, plan.pairs, selected=bool(plan.layers))
    for matched in pairs:
        _side_by_side(matched)
    return pairs


def proceed(
    prepared: PreparedModels,
    steady: Steady,
    watch: Watch = lambda text, done=0, total=0: None,
    jobs: int | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Make the cases, compute the truth and run everything; the outputs are added to the results.

    meanwhile  is called once the cases are made, while the executors run and the truth is computed
    """
    plan, results, subjects = prepared.plan, prepared.results, prepared.subjects
    # Looked for once: each look runs the modules that users added, and asks their Pythons.
    executors = list(registry.executors().values()) if prepared.chosen is None else prepared.chosen
    present = [executor for executor in executors if not executor.absent]
    with Lanes(lanes_of(prepared, executors, present, results), prepared, steady, watch, jobs) as lanes:
        # Frameworks are imported, and run, while the reference computes.
        start = time.perf_counter()
        watch("making inputs")
        for subject in subjects:
            if subject.model == "A":
                layer = results.layers[subject.stack.name] = with_cases(subject, plan, prepared.inputs.of_layers)
                # The user's own inputs, and cases that the user chose, are left as they are.
                drawn = plan.given is None and prepared.inputs.of_layers is None
                results.warnings += keep_within(layer, subject, drawn)
                ours = drawn and set(DEFAULT_CASES) <= set(plan.cases)
                layer.power, more = power(subject.stack, layer.cases, plan.seed if ours else None)
                layer.cases += more
                keep_within(layer, subject, drawn)
            else:
                results.layers[subject.stack.name].counterpart = subject.pieces
                results.layers[subject.stack.name].stated["B"] = outlined(subject.stack)
                model = _model_of(subjects, subject)
                for limit in handed_apart(model, subject.stack):
                    results.layers[subject.stack.name].limits.append(replace(limit, layer=subject.stack.name))
                if not identical(model, subject.stack):
                    narrow = set(subject.pieces) <= subject.checkpoint.int8
                    weigh(results.layers[subject.stack.name], model, subject.stack, narrow)
                if plan.given is None:
                    _exercised(results.layers[subject.stack.name], subjects, subject, plan.seed)
        lanes.begin(results)
        models = [subject.stack for subject in subjects if subject.model == "A"]
        judged = {subject.stack.name: [subject] for subject in subjects if subject.model == "A"}
        casts = [candidate for candidate in subjects if candidate.model == "B" and results.layers[candidate.stack.name].cast is not None]
        for subject in subjects:
            if subject.model == "B" and subject not in casts:
                judged[subject.stack.name].append(subject)
        kinds = types([judgement for some in judged.values() for judgement in some], present, plan.given)
        with Truths(results.layers, models, kinds, watch) as truths:
            meanwhile()
            single = truths.collected()
        _of_casts(results, casts, present, watch)
        lanes.judge()
        for subject in subjects:
            if subject.model == "B":
                layer = results.layers[subject.stack.name]
                model = _model_of(subjects, subject)
                same = identical(model, subject.stack)
                layer.runs.append(by_reference(subject, layer.cases, single[model.name] if same else None))
        results.seconds["reference"] = time.perf_counter() - start
        lanes.report_progress()
        start = time.perf_counter()
        for name, seconds in lanes.collected(results).items():
            results.seconds[name] = results.seconds.get(name, 0.0) + seconds
        results.seconds["wait"] = time.perf_counter() - start
        lanes.check_own_inputs()
        judge(results, subjects, lanes.recordings, prepared.tolerances)
        if not prepared.alone and not plan.layers:
            start = time.perf_counter()
            limits = [*results.limits, *(limit for layer in results.layers.values() for limit in layer.limits)]
            possible = {limit.kind for limit in limits}.intersection(EXPLAINING)
            if {subject.model for subject in subjects if _leaves_out_steps(subject)} == {"A", "B"}:
                possible -= {"mask"}  # both leave out steps: where they give something else, these are not the same ones
            results.models_compared = lanes.models_compared(prepared.tolerances, possible)
            results.seconds["models"] = time.perf_counter() - start
        recorded.judge(results, subjects, prepared.tolerances)


def _leaves_out_steps(subject: Subject) -> bool:
    """Return whether a layer's model states which of its steps count, by a mask or by lengths."""
    return any(call.mask or call.lengths for name in subject.pieces for call in subject.checkpoint.layers[name].calls)


def _model_of(subjects: Sequence[Subject], subject: Subject) -> Recurrent:
    """Return A's layer of which this is the counterpart."""
    return next(candidate.stack for candidate in subjects if candidate.model == "A" and candidate.stack.name == subject.stack.name)


def _of_casts(results: Results, casts: Sequence[Subject], present: Sequence[Executor], watch: Watch) -> None:
    """Compute what B's own weights give, where rounding changed them, and what that costs."""
    cast_results = {subject.stack.name: replace(results.layers[subject.stack.name], truth={}, floors={}) for subject in casts}
    with Truths(cast_results, [subject.stack for subject in casts], types(casts, present), watch) as truths:
        truths.collected()
    for name, layer in cast_results.items():
        cast = results.layers[name].cast
        assert cast is not None
        cast.truth, cast.floors = layer.truth, layer.floors
        cost(results.layers[name])


def _exercised(layer: LayerResults, subjects: Sequence[Subject], subject: Subject, seed: int) -> None:
    """Add a case for what two layers state differently, if the other cases would not show it."""
    case = made_for(_model_of(subjects, subject), subject.stack, layer.cases, seed)
    if case is not None:
        layer.cases.append(case)


def _as_turned(subject: Subject, other: Subject) -> Subject:
    """Return a layer with its outputs in the order that the other's have, where its own model turns them so."""
    ours, theirs = subject.stack.output_order, other.stack.output_order
    if ours == theirs or subject.pieces[-1] not in subject.checkpoint.turned:
        return subject
    return replace(subject, stack=subject.stack.replace(output_order=theirs), turned=True)


def _side_by_side(pair: LayerPair) -> None:
    """Raise UsageError for layers whose inputs or outputs cannot be compared."""
    sizes = [(stack.input_size, stack.layers[-1].output_size) for stack in (pair.stack, pair.counterpart)]
    if sizes[0] != sizes[1]:
        (reads, gives), (other_reads, other_gives) = sizes
        what = f"read {reads} values and {other_reads}" if reads != other_reads else f"give {gives} values and {other_gives}"
        raise UsageError(
            f"{quoted(pair.name)} cannot be equal in both files: they {what} at each step. A is {pair.stack.describe()}; "
            f"B is {pair.counterpart.describe()} ({', '.join(pair.names)}; {pair.evidence})"
        )


def _alone(model: Checkpoint, results: Results | None) -> Iterator[Subject]:
    """Yield the layers of one model; joined, where results of one layer are compared with a model that has it in pieces."""
    pieces = tuple(model.layers)
    if results is not None and len(results.layers) == 1 and len(pieces) > 1 and not set(pieces) & set(results.layers):
        (name,) = results.layers
        try:
            yield Subject("A", model, pieces, join_stack(list(model.layers.values()), name))
        except ValueError as error:
            raise UsageError(
                f"{model.path} has the layers {', '.join(pieces)}, but the results have one, {name!r}: they cannot be joined "
                f"({error}). Choose one with {Flag('layer')}."
            ) from None
        return
    for name, stack in model.layers.items():
        yield Subject("A", model, (name,), stack)


def _assumed(models: Iterable[Checkpoint]) -> Iterator[str]:
    for model in models:
        for question in model.questions:
            yield (
                f"{model.path} does not state {question.option}: {question.assumed} was assumed for "
                f"{question.layer or 'every layer'} ({Setting(question.option, '...')})"
            )


def empty(plan: Plan) -> Results:
    """Return results without any runs yet."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Results(now, __version__, plan.as_dict())


def _model(label: str, checkpoint: Checkpoint) -> ModelFile:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        hashing = pool.submit(hash_file, checkpoint.path, checkpoint.beside)
        weights = dict(zip(checkpoint.layers, pool.map(hash_of, checkpoint.layers.values()), strict=True))
    size, digest = hashing.result()
    return ModelFile(label, checkpoint.path, checkpoint.format, size, digest, weights)


def _unused(plan: Plan, inputs: UserInputs) -> Iterator[str]:
    """Yield the parts of the user's own inputs that a comparison of models does not use."""
    names = [name for name in inputs.of_layers or () if name in ("y", "h_n", "c_n")]
    if names:
        yield (
            f"{plan.inputs}: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} not compared: what a file computes is "
            f"compared with recorded outputs by {Command('diagnose', 'FILE', io=plan.inputs)}"
        )


def left_out(every: Checkpoint, chosen: Checkpoint) -> Iterator[Limit]:
    """Yield the layers of a model that were not chosen."""
    names = [name for name in every.layers if name not in chosen.layers]
    if names:
        yield not_chosen(names, every.path)


def executors_named(names: Iterable[str]) -> list[Executor] | None:
    """Return the executors of these names, in order; None if none is named.

    Raises UsageError or AbsentExecutorError for one that does not exist.
    """
    wanted = list(names)
    if not wanted:
        return None
    if "all" in wanted:
        return [executor for executor in registry.executors().values() if not executor.absent]
    return [registry.executor(name) for name in wanted if name != REFERENCE]
