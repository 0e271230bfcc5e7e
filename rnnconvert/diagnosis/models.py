"""Why whole models give something else although their recurrent layers agree: the fault with which a model gives what it should.

A fault is named only if it explains every output of every call, to what rounding explains; several that do are all named.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rnnconvert.core import sample_names
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.diagnosis.model_faults import EXCHANGED
from rnnconvert.diagnosis.model_runs import Calling, Inputs, ModelRuns, RunnableFile, callings
from rnnconvert.diagnosis.model_search import APART, ModelSearch
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.judging.whole import SHAKES
from rnnconvert.running.inputs import exchanged, in_order

UNEXPLAINED = "no fault that was tried explains it"
"""The sentence about whole models that differ for no reason that was tried."""

Status = Literal["equal", "not equal", "not compared"]


@dataclass(frozen=True)
class ModelDiagnosis:
    """The result of running whole models.

    status     "equal"; "not equal"; or "not compared"
    reason     why it is not equal, or was not compared
    fault      the names of the fault that explains the difference, of several joined by " and "; "" without one, or with several
    sentences  for people: what explains it, and what to do
    called     how the call of B differs from the call of A, in words
    masked     whether the models differ only where they mask steps
    """

    status: Status
    reason: str = ""
    fault: str = ""
    sentences: tuple[str, ...] = ()
    called: str = ""
    masked: bool = False


def diagnose_models(a: Checkpoint, b: Checkpoint) -> ModelDiagnosis | None:
    """Run the models of two files whole on the same inputs, and find out why they do not give the same.

    Returns None for weights alone, where what runs them is not installed, and for recurrent layers alone whose outputs have other shapes.
    """
    with ThreadPoolExecutor(2) as starting:  # a framework takes seconds to start
        opened, other = starting.map(RunnableFile.of, (a, b)) if all(map(RunnableFile.may_run, (a, b))) else (None, None)
    if opened is None or other is None:
        return None
    for side in (opened, other):
        if isinstance(side, str):
            return ModelDiagnosis("not compared", side)
    assert isinstance(opened, RunnableFile) and isinstance(other, RunnableFile)
    why = ""
    for giver, taker in ((opened, other), (other, opened)):
        try:
            calls = giver.calls()
            _settled(giver, calls[0])
        except UsageError as error:
            why = why or str(error)
            continue
        tried: list[tuple[Calling, ModelSearch, ModelSearch]] = []
        for calling in callings(giver.names, taker.names):
            try:
                tried.append((calling, *_searches(giver, taker, calls, calling)))
            except UsageError as error:
                why = why or str(error)
        if tried:
            result = _of_two(tried, giver is opened, giver.recurrent_alone and taker.recurrent_alone)
            unexplained = result is not None and result.status == "not equal" and not result.sentences
            return replace(result, masked=_equal_unmasked(giver, taker, tried[0][0])) if result is not None and unexplained else result
    return ModelDiagnosis("not compared", f"the models were not run on the same inputs ({why or 'they take other numbers of inputs'})")


def _settled(side: RunnableFile, inputs: Inputs) -> None:
    """Raise UsageError for a model that gives other numbers when it runs again."""
    first, again = side.run([inputs, inputs]).outputs
    if not all(np.array_equal(array, other, equal_nan=True) for array, other in zip(first, again, strict=True)):
        raise UsageError("something in a model is random: it gives other numbers when it runs again")


def _searches(giver: RunnableFile, taker: RunnableFile, calls: Sequence[Inputs], calling: Calling) -> tuple[ModelSearch, ModelSearch]:
    """Return both models as what gives what the other does, on the calls that both take. Raises UsageError if they take none."""
    while True:
        handed = [calling.of(call) for call in calls]
        try:
            ours, theirs = giver.run(calls, SHAKES), taker.run(handed, SHAKES)
            break
        except UsageError:
            if len(calls) == 1:
                raise
            calls = calls[:-1]
    return (ModelSearch(giver, calls, ours, calling.back(theirs), taker), ModelSearch(taker, handed, theirs, calling.back(ours), giver))


def _equal_unmasked(giver: RunnableFile, taker: RunnableFile, calling: Calling) -> bool:
    """Return whether two models give the same on inputs of which neither masks a step."""
    try:
        search, _ = _searches(giver, taker, [giver.full_call()], calling)
    except UsageError:
        return False
    return search.equal and search.telling


def _of_two(tried: Sequence[tuple[Calling, ModelSearch, ModelSearch]], from_a: bool, alone: bool) -> ModelDiagnosis | None:
    for calling, search, _ in tried:
        if search.equal and search.telling:
            moved = ["its inputs stand in another order"] if calling.order != tuple(sorted(calling.order)) else []
            words = [*moved, *([EXCHANGED.sentence] if calling.turned else [])]
            return ModelDiagnosis("equal", called="; ".join(words))
    causes: list[tuple[str, str, str]] = []
    for exact, side in itertools.product((True, False), (0, 1)):
        if causes:
            break
        label, other = ("A", "B") if from_a == (side == 0) else ("B", "A")
        for calling, *searches in tried:
            turned = f"{EXCHANGED.sentence} and " if calling.turned else ""
            causes += [
                (fault.name, f"{label} gives what {other} does if {turned}{fault.sentence}", fault.remedy)
                for fault in searches[side].explanations(exact)
            ]
    if causes:
        return _not_equal(tried[0][1], causes)
    if not any(search.telling for _, search, _ in tried):
        return ModelDiagnosis("not compared", "their values are as small as their rounding, or their weights cannot be moved")
    counts = {len(search.offs) for search in tried[0][1:]}
    fitting = next((search for _, search, _ in tried if search.paired), None)
    if fitting is None or len(counts) > 1:
        return None if alone else ModelDiagnosis("not compared", "the models give outputs of other shapes")
    return _not_equal(fitting, [])


def _not_equal(search: ModelSearch, causes: Sequence[tuple[str, str, str]]) -> ModelDiagnosis:
    off = search.worst
    reason = (
        "the outputs have other shapes"
        if off is APART
        else f"the output is off by {off.error:.2g}, where rounding explains {off.allowed:.1g}"
    )
    remedies = dict.fromkeys(remedy for _, _, remedy in causes if remedy)
    lines = [sentence for _, sentence, _ in causes]
    if len(lines) > 1:
        lines.insert(0, "these inputs and weights cannot distinguish these:")
    lines += [f"to mend it, {remedy}" for remedy in remedies] if len(causes) == 1 else []
    return ModelDiagnosis("not equal", reason, causes[0][0] if len(causes) == 1 else "", tuple(lines))


def diagnose_model_by_sample(checkpoint: Checkpoint, arrays: Mapping[str, Array]) -> ModelDiagnosis | None:
    """Run the model of a file whole on recorded inputs, and find out why it does not give the recorded output.

    arrays  by their names: y, and one for each input, by the model's own names or in their order

    Returns None for a sample that is not of the whole model, for weights alone, and where what runs them is not installed.

    Raises UsageError for inputs of which only some have a name of the model's.
    """
    outputs = [name for name in arrays if sample_names.meaning(name) == "y"]
    named_inputs = [(name, array) for name, array in arrays.items() if name not in outputs]
    of_layer = len(named_inputs) == 1 and sample_names.meaning(named_inputs[0][0]) not in ("x", "")
    side = RunnableFile.of(checkpoint) if len(outputs) == 1 and named_inputs and not of_layer else None
    if not isinstance(side, RunnableFile) or len(side.names) != len(named_inputs):
        return None
    y = arrays[outputs[0]]
    recorded = [named_inputs[0][1]] if len(named_inputs) == 1 else in_order(named_inputs, side.names, checkpoint.path)
    tried: list[tuple[bool, ModelSearch]] = []
    for turned in (False, True) if any(x.ndim > 1 for x in recorded) else (False,):
        inputs, output = recorded, y
        if turned:
            inputs, output = [exchanged(x) if x.ndim > 1 else x for x in recorded], exchanged(y) if y.ndim > 2 else y
        try:
            dtype = y.dtype if y.dtype.kind == "f" else np.dtype(np.float32)
            search = ModelSearch(side, [inputs], side.run([inputs], SHAKES), ModelRuns([(output,)]), dtype)
        except UsageError:  # a sample of other sizes
            continue
        if search.equal and search.telling and not turned:
            return ModelDiagnosis("equal")
        if search.equal and search.telling:
            sentence = f"it does if the first axis of x is the second of the model: {EXCHANGED.sentence}"
            return ModelDiagnosis("not equal", "", EXCHANGED.name, (sentence, f"to mend it, {EXCHANGED.remedy}"))
        tried.append((turned, search))
    causes: list[tuple[str, str, str]] = []
    for way in ("model", "sample", "constants"):
        for turned, search in () if causes else tried:
            faults = search.behind_target() if way == "sample" else search.explanations(way == "model")
            around = [EXCHANGED] if turned else []
            for fault in faults:
                sentence = fault.sentence.replace("its output", "the output of the sample") if way == "sample" else fault.sentence
                words = " and ".join([*(each.sentence for each in around), sentence])
                causes.append((" and ".join(each.name for each in (*around, fault)), f"it does if {words}", fault.remedy))
    fitting = next((search for _, search in tried if search.paired), None)
    if not causes and fitting is None:
        return None
    return _not_equal(fitting or tried[0][1], causes)
