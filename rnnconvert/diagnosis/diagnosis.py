"""Why outputs differ: the wrong convention that explains them, and where the difference begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.comparison.difference import differences
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis import first_difference
from rnnconvert.diagnosis.search import Answers, Met, Search
from rnnconvert.judging.measure import Measure, settled


@dataclass(frozen=True)
class Diagnosis:
    """Why outputs differ.

    sentences  for people: what explains it, where it begins, what differs
    fault      name of the fault that explains it, two joined by " and "; "" if none does, or nothing differs
    """

    sentences: tuple[str, ...]
    fault: str = ""


@np.errstate(all="ignore")
def diagnose(stack: Recurrent, answers: Answers, dtype: Any = None, counterpart: Recurrent | None = None) -> Diagnosis:
    """Find out why the outputs found for some cases are not those of a stack.

    dtype        element type that they were computed in, the weights' own if None
    counterpart  the layer of the other file in canonical form, where the outputs come from one
    """
    stack = settled(stack)
    dtype = np.dtype(dtype or stack.dtype)
    measures = [Measure.of(stack, case, dtype) for case, _ in answers]
    offs = [measure.off(found) for measure, (_, found) in zip(measures, answers, strict=True)]
    shapes = list(first_difference.shapes(measures, answers))
    if all(off.ratio <= 1 for by_output in offs for off in by_output.values()) and not shapes:
        error = max((off.error for by_output in offs for off in by_output.values()), default=0.0)
        return Diagnosis((_equal(error),))
    search = Search(stack, measures, answers)
    explained = search.explained()
    sentences = [*_reason(explained, search.two), *shapes, *first_difference.where(stack, measures, offs, answers)]
    if counterpart is not None:
        sentences += _weights(stack, counterpart, answers, dtype)
    return Diagnosis(tuple(sentences), explained[0].name if explained else "")


def _equal(error: float) -> str:
    return f"equal to {error:.2g}" if error else "exactly equal"


def _reason(explained: Sequence[Met], two: str) -> Iterator[str]:
    if not explained:
        yield f"none of the known wrong conventions explains it, and {two}"
        return
    first, *others = explained
    yield f"{_equal(first.off.error)} if {first.sentence}"
    if others:
        shown = "; ".join(other.sentence for other in others[:3])
        yield f"these inputs and weights cannot distinguish that from: {shown}" + ("; ..." if len(others) > 3 else "")


def _weights(stack: Recurrent, counterpart: Recurrent, answers: Answers, dtype: np.dtype[Any]) -> Iterator[str]:
    """Yield what the other file's own weights show about the difference."""
    found_in = differences(stack, counterpart)
    yield from first_difference.gates(found_in)
    try:
        own = [Measure.of(settled(counterpart), case, dtype).worst(found) for case, found in answers]
    except (ValueError, KeyError, IndexError):  # a counterpart of other sizes cannot be given these cases
        return
    error = max((off.error for off in own), default=0.0)
    if all(off.ratio <= 1 for off in own):
        yield f"the other file's own weights give these outputs, to {error:.2g}: the conversion is wrong, not the run"
    elif all(one.equal for one in found_in):
        yield "the weights are the same in both files: the run is wrong, not the conversion"
