"""Both models on inputs drawn for them: what is written, and its source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RnnConvertError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.core.verdict import NOT_COMPARED
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.models.runners import FileModel
from rnnconvert.models.verify import YOURS, ModelCalls, SourceDoesNotRunError, WholeModels, compared
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.inputs import BATCHES_AND_TIMES, SINGLE, drawn
from rnnconvert.scaffolding.sources import without_a_proof

Trial = Callable[[int, tuple[int, int], bool], WholeModels]
"""Runs both models on inputs that are drawn: by a number, for a size, with or without whole numbers below zero."""


def proofs(
    description: Description, target: Any, source: Any, pairs: Sequence[tuple[str, str]], user_inputs: Mapping[str, Array] | None
) -> Iterator[WholeModels]:
    """Yield the comparisons of both models: on random inputs of several sizes, each after an earlier call, and on a user's own.

    target  the written model, as it runs
    source  the described model, likewise
    pairs   recurrent layers of both that belong together, which are compared if their outputs have the same form
    """
    with _unrun(description):
        yield from _proofs(description, target, source, pairs, user_inputs)


@contextlib.contextmanager
def _unrun(description: Description) -> Iterator[None]:
    """Add the advice for a source that does not run to its error."""
    try:
        yield
    except SourceDoesNotRunError as error:
        ranks = ", ".join(str(len(value.shape)) for value in description.open_ranks)
        axes = f"It does not state how many axes its inputs have, and was read with {ranks}: state others with {Flag('axes')}. "
        axes = axes if ranks else ""
        raise SourceDoesNotRunError(f"{str(error).rstrip('.')}. {axes}{without_a_proof()}") from error


def _proofs(
    description: Description, target: Any, source: Any, pairs: Sequence[tuple[str, str]], user_inputs: Mapping[str, Array] | None
) -> Iterator[WholeModels]:
    seen = _comparable_layers(description)
    pairs = [(ours, theirs) for ours, theirs in pairs if theirs in seen]
    shapes = _both(getattr(target, "fixed", ()), source.shapes if isinstance(source, FileModel) else ())

    def run(inputs: Any, *before: Any, label: str = "drawn inputs") -> WholeModels:
        return compared(target, source, pairs, ModelCalls(inputs, before=before, label=label))

    *cases, last = BATCHES_AND_TIMES
    trial = partial(_call, run, description, shapes)
    for number, case in enumerate(cases):
        yield _on_sizes(trial, number, case)
    proof = _on_sizes(trial, len(cases), last)
    single, notes = (None, []) if _pools(description) else _on_one_step(trial)
    yield replace(proof, notes=(*proof.notes, *notes))
    if single is not None:
        yield single
    if user_inputs is not None:
        yield run(_unfixed(user_inputs, description.fixed), label=YOURS)


def _both(shapes: Sequence[Sequence[int | None]], others: Sequence[Sequence[int | None]]) -> Sequence[Sequence[int | None]]:
    """Return shapes whose open axes are as others state them."""
    if [*map(len, shapes)] != [*map(len, others)]:
        return shapes or others
    return [[a if a is not None else b for a, b in zip(*pair, strict=True)] for pair in zip(shapes, others, strict=True)]


def _unfixed(user_inputs: Mapping[str, Array], fixed: Mapping[str, Array]) -> dict[str, Array]:
    """Return a user's inputs without those that are fixed. Raises UsageError for another value of one."""
    for name in fixed.keys() & user_inputs.keys():
        if not np.array_equal(np.ravel(user_inputs[name]), np.ravel(fixed[name])):
            raise UsageError(f"the inputs given have another {name!r} than the one that it is fixed at, {fixed[name].tolist()}")
    return {name: array for name, array in user_inputs.items() if name not in fixed}


def _on_one_step(trial: Trial) -> tuple[WholeModels | None, list[str]]:
    """Return the comparison of two models on one sequence of one step, None if it shows nothing; and a note if the target does not run.

    A model may ask for more than one step, or give nothing of it.
    """
    try:
        single = trial(len(BATCHES_AND_TIMES), SINGLE, True)
    except SourceDoesNotRunError:
        return None, []
    except RnnConvertError as error:
        return None, [f"one sequence of one step was not compared: {error}"]
    return (single if single.verdict != NOT_COMPARED else None), []


_TIMES = (1, 8)
"""By what the usual lengths are multiplied, in turn, where a model runs on none so short: pools leave nothing of images so small."""


def variants(case: tuple[int, int]) -> list[tuple[tuple[int, int], bool]]:
    """Return in which sizes, and whether with whole numbers below zero, inputs of usual lengths are tried in turn until the source runs.

    First as they are; then without such numbers, which may be places; or longer, as these may be too short; or with one sequence, as a
    converter may have written its states for no more, whatever its inputs say.
    """
    batch, time = case
    sizes = [(size, time * times) for size in dict.fromkeys((batch, 1)) for times in _TIMES]
    return [(size, signed) for size in sizes for signed in (True, False)]


def alone(batch: int) -> str:
    """Return the note for a source that runs on one sequence at a time."""
    return f"the source does not run on {batch} sequences at a time, so one was compared"


def _on_sizes(trial: Trial, number: int, case: tuple[int, int]) -> WholeModels:
    """Return the comparison of two models on inputs of the usual lengths, or on the first others on which the source runs."""
    first, *others = variants(case)
    try:
        return trial(number, *first)
    except SourceDoesNotRunError as error:
        for (size, steps), signed in others:
            with contextlib.suppress(SourceDoesNotRunError):
                proof = trial(number, (size, steps), signed)
                return replace(proof, notes=(*proof.notes, *([alone(case[0])] if size != case[0] else [])))
        raise error from None


def _call(
    run: Callable[..., WholeModels],
    description: Description,
    shapes: Sequence[Sequence[int | None]],
    number: int,
    case: tuple[int, int],
    signed: bool,
) -> WholeModels:
    """Return the comparison of two models on inputs of a size, after a call on others: states would show in it."""
    inputs, earlier = (next(drawn(description, seed + number, shapes, [case], signed)) for seed in (0, 100))
    return _telling(run, inputs, *([] if description.continues else [earlier]))


def _pools(description: Description) -> bool:
    """Return whether a model has pools, which leave nothing of one step: frameworks differ in the mean and the maximum of nothing."""
    return any(isinstance(node.kind, kinds.Pool) for node in description.scope.every_node())


def _comparable_layers(description: Description) -> set[str]:
    """Return the recurrent layers whose outputs both frameworks show alike: others are turned, masked or joined around the layer."""
    calls: dict[str, list[bool]] = {}
    for scope in (*description.scope.inner(), description.scope):
        for node in scope.nodes:
            if isinstance(node.kind, kinds.Recurrent):
                plain = not node.kind.backwards and not node.kind.stateful and node.kind.merge == "concat" and not node.named.get("mask")
                calls.setdefault(description.names.get(scope.inside(node.layer), ("",))[0], []).append(plain)
    return {name for name, plain in calls.items() if plain == [True]}


_SMALLER = (0.1, 0.01)
"""By what inputs are multiplied, in turn, where the values that the usual ones lead to explode."""


def _telling(run: Callable[..., WholeModels], *calls: list[Array]) -> WholeModels:
    """Return the comparison of two models on inputs, or on the largest smaller ones on which rounding is not as large as the values."""
    at_full_size = run(*calls)
    if at_full_size.telling:
        return at_full_size
    for factor in _SMALLER:
        smaller = [[(x * factor).astype(x.dtype) if x.dtype.kind == "f" else x for x in arrays] for arrays in calls]
        proof = run(*smaller)
        if proof.telling:
            note = f"inputs are {factor:g} times the usual ones, on which rounding is as large as the values"
            return replace(proof, notes=(*proof.notes, note))
    return at_full_size


def proof_in_lines(proof: Sequence[WholeModels]) -> list[str]:
    """Return one verdict for all runs, and of each output the run that came nearest to what is allowed."""
    if not proof:
        return []
    worst: dict[str, OutputComparison] = {}
    for comparison in (comparison for entry in proof for comparison in entry.comparisons):
        nearest = worst.setdefault(comparison.output, comparison)
        worst[comparison.output] = max(nearest, comparison, key=lambda each: each.ratio)
    headline, *_ = str(min(proof, key=lambda entry: entry.equal)).splitlines()
    unseen = dict.fromkeys(text for entry in proof for text in entry.unseen)
    notes = dict.fromkeys(note for entry in proof for note in entry.notes)
    _, *lines = str(WholeModels(tuple(worst.values()), tuple(unseen), tuple(notes))).splitlines()
    on_yours = " and on yours" if any(comparison.case == YOURS for entry in proof for comparison in entry.comparisons) else ""
    runs = f"{len(proof)} runs of both models, on random inputs of several sizes{on_yours}"
    return [f"{headline}: {runs}; of each output the worst run:", *lines]
