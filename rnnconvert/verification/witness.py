"""The model run whole: what its layers read and give while the model itself runs decides whether joined layers are its own.

Executors run layers by name, one after the other, as the conversion joined them: what lies between the layers, a second call,
states that another layer gives, or randomness is never met on that way. Here each model's own file runs, on random inputs of
the model, and every call of its layers is recorded (rnnconvert.running). Then the other model's stack, computed by the
reference on what the first of the layers read, must give what the last of them gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.printable import listed, quoted
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Directly, Reads, Recurrent, Through, Unknown
from rnnconvert.judging.judging import Tolerance
from rnnconvert.verification.bounds import as_in_the_file
from rnnconvert.verification.recording import Recording, is_input
from rnnconvert.verification.results import ModelRun, Results
from rnnconvert.verification.running import Subject, identical
from rnnconvert.verification.weighing import INT8
from rnnconvert.verification.witness_judge import CallJudge, not_run, stand_apart

_INTEGERS = "its weights stand for integers, and the source's own kernel rounds more than the weights"


def judge(
    results: Results, subjects: Sequence[Subject], recordings: Mapping[str, Recording | str], tolerances: Mapping[str, Tolerance]
) -> None:
    """Add to each layer what its models showed when they ran whole.

    recordings  by the model's label; or why there is none; nothing where no executor that ran takes its file
    """
    for layer in results.layers.values():
        layer_subjects = [subject for subject in subjects if subject.stack.name == layer.name]
        judgements: list[ModelRun] = []
        for subject in layer_subjects:
            other = next((peer for peer in layer_subjects if peer.model != subject.model), subject)
            if layer.cast is not None and layer.cast.dtype == INT8:
                other = subject  # beside the other model stand its own numbers: what int8 costs is a limit by itself
            judged, limits = _judged(subject, other.stack, recordings.get(subject.model), tolerances)
            if judged is not None and judged.status == "not equal" and subject.rounds():
                judged = replace(judged, reason=f"{judged.reason}; {_INTEGERS}")
            judgements += [judged] if judged is not None else []
            layer.limits += [Limit(limit.kind, layer.name, limit.words) for limit in limits]
        before = [] if layer.whole is None else [layer.whole]
        why = _differently_connected(layer.name, subjects)
        layer.whole = worst([*before, *judgements, *([ModelRun("not run", why)] if why else [])])


def _differently_connected(name: str, subjects: Sequence[Subject]) -> str:
    """Return why layers that are compared one by one may compute something else together, "" where they do not.

    A format whose layers stand one by one in a file (ONNX) connects them, too: that is a claim about what the other model has there.
    """
    reads = {}
    for subject in subjects:
        if subject.stack.name == name:
            first = subject.checkpoint.layers[subject.pieces[0]]
            reads[subject.model] = first.reads if len(first.calls) < 2 else Unknown(f"it calls {name!r} several times")
    if len(reads) < 2:
        return ""
    below = {model: {member.pieces[-1]: member.stack.name for member in subjects if member.model == model} for model in reads}
    named = {
        model: tuple(below[model].get(layer, "") for layer in source.layers)
        for model, source in reads.items()
        if isinstance(source, Directly | Through)
    }
    for model, other in (("A", "B"), ("B", "A")):
        source = reads[other]
        if not isinstance(reads[model], Directly) or "" in named[model]:
            continue
        if isinstance(source, Directly):
            differs = named[other] != named[model]
        else:
            differs = isinstance(source, Through) or (model == "B" and isinstance(source, Unknown))
        if differs:
            givers = " and ".join(map(quoted, named[model]))
            return f"in {model} {quoted(name)} reads what {givers} gives, and in {other} {_in_words(source)}"
    return ""


def _in_words(reads: Reads) -> str:
    if isinstance(reads, Through):
        return f"that passes through {', '.join(reads.changes)}"
    return f"that is not known: {reads.why}" if isinstance(reads, Unknown) else "it does not"


def worst(proofs: Sequence[ModelRun]) -> ModelRun | None:
    """Return the combined result of several runs of whole models, the worst one first."""
    for status in ("not equal", "not run", "equal"):
        for proof in proofs:
            if proof.status == status:
                notes = dict.fromkeys(note for other in proofs for note in other.notes)
                executors = dict.fromkeys(other.executor for other in proofs if other.executor)
                models = sorted({label for other in proofs for label in other.models})
                return replace(proof, notes=tuple(notes), executor=", ".join(executors), models=tuple(models))
    return None


_Judged = tuple[ModelRun | None, tuple[Limit, ...]]


def _judged(subject: Subject, stack: Recurrent, recording: Recording | str | None, tolerances: Mapping[str, Tolerance]) -> _Judged:
    """Return the evidence on the other model's stack from the whole run of a layer's model, and what it leaves to the caller; None for a
    single layer if nothing ran, and for layers that the caller joins.
    """
    if recording is None and subject.model == "B":
        return None, ()  # that no framework ran the second model's file is a warning of its own
    recording = recording or f"no executor that ran takes {subject.checkpoint.format} files"
    if isinstance(recording, str):
        stated = any(subject.checkpoint.layers[name].calls for name in subject.pieces)
        judged, limits = _unrun(subject, recording, connected=stated)
        return judged, (*limits, *_masks_unseen(subject, stack))
    unconnected = _unconnected(subject, recording)
    if unconnected:
        return _unrun(subject, f"{unconnected!r} reads an input of the model of its own", connected=False)
    if subject.turned:
        subject = subject.alone()
        stack = stack.replace(output_order=subject.stack.output_order)
    try:
        with np.errstate(all="ignore"):
            # What a short element type of the other model hides shows beside the model's own weights.
            # Whatever the model's inputs are, its own run keeps to the bounds of its file.
            outcome = CallJudge(subject, as_in_the_file(subject, subject.stack), recording, tolerances).outcome()
            if outcome.model_run.status == "equal" and not identical(subject.stack, stack):
                outcome = CallJudge(subject, as_in_the_file(subject, stack), recording, tolerances).outcome()
    except RefusedError as error:
        outcome = not_run(str(error))
    if outcome.model_run.status == "not run":
        return _unrun(subject, outcome.model_run.reason, connected=True)
    return replace(outcome.model_run, executor=recording.executor, models=(subject.model,)), outcome.limits


def _unrun(subject: Subject, why: str, connected: bool) -> _Judged:
    """Return the result for layers whose model did not run, or not as one.

    connected  whether a model connects them: if the second file has no model, its caller joins them, likewise two directions of one layer
    """
    if len(subject.pieces) == 1:
        return None, ()
    if not connected and (subject.model == "B" or stand_apart(subject)):
        names = listed(subject.pieces)
        return None, (Limit("caller", "", f"its file keeps {names} apart: what calls them hands on what each gives"),)
    return ModelRun("not run", why), ()


def _masks_unseen(subject: Subject, other: Recurrent) -> Iterator[Limit]:
    """Yield the limits for masks by which a model that did not run whole leaves out steps, and which the other model does not state."""
    masks = dict.fromkeys(call.mask for name in subject.pieces for call in subject.checkpoint.layers[name].calls)
    alike = {call.mask for call in other.calls}
    for mask in masks:
        if mask and mask not in alike:
            words = f"{subject.model} did not run whole, where the mask {mask} leaves out steps: pass the lengths of its sequences"
            yield Limit("mask", "", words)


def _unconnected(subject: Subject, recording: Recording) -> str:
    """Return a later layer that reads an input of the model that the first does not read, or ""."""
    first, *later = ([call["x"] for call in recording.runs[0].get(name, ())] for name in subject.pieces)
    for name, sequences in zip(subject.pieces[1:], later, strict=True):
        for x in sequences:
            reads_input = any(is_input(x, array) for _, array in recording.inputs)
            if reads_input and not any(np.array_equal(x, array) or np.array_equal(x, array[::-1]) for array in first):
                return name
    return ""
