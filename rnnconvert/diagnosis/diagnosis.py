"""Why outputs differ: the wrong convention that explains them, and where the difference begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rnnconvert.comparison.difference import Difference, differences
from rnnconvert.core.cached import cached_property
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis import by_arrays, first_difference
from rnnconvert.diagnosis.by_arrays import ArrayExplanation
from rnnconvert.diagnosis.faults import Fault
from rnnconvert.diagnosis.near import ElementDifferences, near
from rnnconvert.diagnosis.search import Answers, FaultSearch
from rnnconvert.judging.measure import Deviation, Measure, settled


@dataclass(frozen=True)
class Diagnosis:
    """Why outputs differ.

    sentences  for people: what explains it, where it begins, what differs
    fault      name of the fault that explains it, several joined by " and "; "" if none does, or nothing differs
    cause      the same as a sentence
    kind       where the fault is: in the "weights", or in a "run" of right weights; "" if unknown
    """

    sentences: tuple[str, ...]
    fault: str = ""
    cause: str = ""
    kind: Literal["weights", "run", ""] = ""


@dataclass(frozen=True)
class _Reason:
    """Faults that explain outputs together, others that do so as well, and the error that is left."""

    faults: tuple[Fault, ...]
    others: tuple[str, ...]
    error: float

    @property
    def cause(self) -> str:
        return " and ".join(fault.sentence for fault in self.faults)

    def sentences(self) -> Iterator[str]:
        yield f"{_equal(self.error)} if {self.cause}"
        if self.others:
            listed = "; ".join(self.others[:3])
            rest = "; ..." if len(self.others) > 3 else ""
            yield f"these inputs and weights cannot distinguish that from: {listed}{rest}"


class Comparand:
    """The same layer in another file: its arrays are examined once, for all runs of it.

    outputs  the reference's outputs for it, by case, if known
    """

    def __init__(self, stack: Recurrent, other: Recurrent, outputs: Mapping[str, Outputs] | None = None) -> None:
        self._stack, self.other, self.outputs = stack, other, outputs or {}

    @cached_property
    def arrays(self) -> ArrayExplanation | None:
        """The conventions that turn the one's arrays into the other's."""
        return by_arrays.explained_in_any_form(self._stack, self.other)

    @cached_property
    def near(self) -> ElementDifferences | None:
        """How the numbers of the other differ, where they stand in the same places; None where a convention explains arrays."""
        return near(self._stack, self.other) if self.arrays is not None and self.arrays.in_place else None

    @cached_property
    def differences(self) -> list[Difference]:
        """The differences, part by part."""
        return differences(self._stack, self.other)


@np.errstate(all="ignore")
def diagnose(
    stack: Recurrent,
    answers: Answers,
    dtype: Any = None,
    counterpart: Recurrent | Comparand | None = None,
    ran: bool = True,
    measures: Sequence[Measure] | None = None,
) -> Diagnosis:
    """Find out why the outputs found for some cases are not a stack's.

    dtype        element type that they were computed in, the weights' own if None
    counterpart  the layer of the other file in canonical form, if the outputs come from one
    ran          whether a framework gave the outputs, and not the reference from the counterpart's weights
    measures     the allowed error for each case, if known
    """
    stack = settled(stack)
    dtype = np.dtype(dtype or stack.dtype)
    comparand = Comparand(stack, counterpart) if isinstance(counterpart, Recurrent) else counterpart
    cases = [case for case, _ in answers]
    measures = measures or Measure.of_all(stack, cases, dtype)
    offs = [measure.off(outputs) for measure, (_, outputs) in zip(measures, answers, strict=True)]
    shapes = list(first_difference.shapes(measures, answers))
    if all(off.ratio <= 1 for by_output in offs for off in by_output.values()) and not shapes:
        error = max((off.error for by_output in offs for off in by_output.values()), default=0.0)
        return Diagnosis((_equal(error),))
    arrays = None if comparand is None else comparand.arrays
    if comparand is None:
        own_off = None
    elif ran:
        own_off = _own_off(comparand, measures, answers, dtype)
    else:
        own_off = Deviation(0.0, 0.0)
    reason: _Reason | None
    if comparand is not None and arrays is not None and arrays.complete and own_off is not None:
        # What the weights show needs no search among outputs; where the run is wrong, too, that is searched by itself.
        weights = _Reason(arrays.faults, tuple(other.sentence for other in arrays.others), own_off.error)
        reason, nothing = weights, ""
        if own_off.ratio > 1:
            # What `_own` allows may be a little less than what rounding explains of these weights.
            other = Measure.of_all(settled(comparand.other), cases, dtype)
            if not all(measure.explains(outputs) for measure, (_, outputs) in zip(other, answers, strict=True)):
                reason, nothing = _searched(comparand.other, other, answers, weights.faults)
    elif comparand is not None and own_off is not None and own_off.ratio <= 1 and comparand.near is not None:
        sentences = [f"in B, {comparand.near.sentence}", *shapes, *first_difference.where(stack, measures, offs, answers)]
        return Diagnosis(tuple(sentences), comparand.near.name, comparand.near.sentence, "weights")
    elif arrays is not None and own_off is not None and own_off.ratio <= 1:
        # The weights give these outputs: what their arrays do not show, the outputs do not, either.
        reason, nothing = None, by_arrays.nothing()
    else:
        reason, nothing = _searched(stack, measures, answers)
    sentences = [*(reason.sentences() if reason else [nothing]), *shapes]
    sentences += first_difference.where(stack, measures, offs, answers)
    if comparand is not None and ran:
        sentences += [*_moved(arrays), *_weights(comparand.differences, own_off)]
    elif comparand is not None:
        sentences += _moved(arrays)
    if reason is None:
        return Diagnosis(tuple(sentences))
    kind: Literal["weights", "run"] = "weights" if any(fault.change for fault in reason.faults) else "run"
    return Diagnosis(tuple(sentences), " and ".join(fault.name for fault in reason.faults), reason.cause, kind)


def _searched(
    stack: Recurrent, measures: Sequence[Measure], answers: Answers, before: tuple[Fault, ...] = ()
) -> tuple[_Reason | None, str]:
    """Return the faults that explain the outputs, or what was searched without success.

    before  faults that the stack has already: they are named, too
    """
    search = FaultSearch(stack, measures, answers)
    explanations = search.explained()
    if not explanations:
        sentence = " and ".join(fault.sentence for fault in before)
        return None, (f"in the weights, {sentence}; in addition, " if before else "") + search.nothing()
    return _Reason((*before, *explanations[0].faults), tuple(other.sentence for other in explanations[1:]), explanations[0].off.error), ""


def _equal(error: float) -> str:
    return f"equal to {error:.2g}" if error else "exactly equal"


def _own_off(comparand: Comparand, measures: Sequence[Measure], answers: Answers, dtype: np.dtype[Any]) -> Deviation | None:
    """Return how far the outputs are from the outputs of the other file's weights; None if these cannot be run."""
    try:
        if all(case.name in comparand.outputs for case, _ in answers):
            # Computed in the element type already: as near as rounding allows.
            own_measures = [measure.around(comparand.outputs[case.name]) for measure, (case, _) in zip(measures, answers, strict=True)]
        else:
            own_measures = Measure.of_all(settled(comparand.other), [case for case, _ in answers], dtype)
        offs = [measure.worst(outputs) for measure, (_, outputs) in zip(own_measures, answers, strict=True)]
    except (ValueError, KeyError, IndexError):  # a counterpart of other sizes cannot be given these cases
        return None
    return max(offs, key=lambda off: off.ratio, default=None)


def _moved(explanation: ArrayExplanation | None) -> Iterator[str]:
    """Yield the evidence of the arrays if no convention explains all of them."""
    if explanation is None or explanation.complete:
        return
    if explanation.faults:
        yield "the weights of B are those of A in part, if " + " and ".join(fault.sentence for fault in explanation.faults)
    yield from by_arrays.listed(explanation)


def _weights(found_in: Sequence[Difference], own_off: Deviation | None) -> Iterator[str]:
    """Yield the evidence of the other file's own weights about the difference."""
    yield from first_difference.gates(found_in)
    if own_off is not None and own_off.ratio <= 1:
        off = f", off by {own_off.error:.2g}" if own_off.error else ""
        yield f"the other file's own weights give these outputs{off}: the conversion is wrong, not the run"
    elif own_off is not None and all(difference.equal for difference in found_in):
        yield "the weights are the same in both files: the run is wrong, not the conversion"
