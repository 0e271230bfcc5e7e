"""Two files compared without any framework: their weights, and the reference's outputs for both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.comparison.common_form import Note, to_common_form
from rnnconvert.comparison.difference import Difference, differences
from rnnconvert.comparison.pairing import LayerPair, pair
from rnnconvert.comparison.stating import unshared
from rnnconvert.core.arrays import epsilon
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis import by_arrays, first_difference
from rnnconvert.diagnosis.diagnosis import Diagnosis, diagnose
from rnnconvert.diagnosis.mutations import capped
from rnnconvert.diagnosis.near import near
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import select
from rnnconvert.judging.cases import Draw, cases
from rnnconvert.judging.measure import Measure, settled


@dataclass(frozen=True)
class LayerComparison:
    """A layer of two files.

    pair         which layers
    differences  of their weights and cells
    stated       what only one of the files states about the layer
    """

    pair: LayerPair
    differences: tuple[Difference, ...]
    stated: tuple[Limit, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether cells and weights are equal but for rounding."""
        return all(difference.equal for difference in self.differences)

    @property
    def exact(self) -> bool:
        """Whether they are equal to the last bit, without a rewrite, and nothing was left out."""
        return not self.stated and all(
            difference.error == 0 and difference.kind not in ("rewrite", "outside") for difference in self.differences
        )

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of "equal" for this layer."""
        name = self.pair.name
        rounded = [difference for difference in self.differences if difference.rounded]
        limits = [Limit("merge", name, difference.words) for difference in self.differences if difference.kind == "outside"]
        if rounded:
            numbers = sum(difference.kind == "weights" for difference in self.differences)
            worst = max(difference.error for difference in rounded)
            limits.append(Limit("rounding", name, f"rounding in {len(rounded)} of {numbers} arrays, at most {worst:.2g}"))
        return (*limits, *self.stated)


def cause(compared: LayerComparison) -> str:
    """Say which wrong convention turns A's arrays into B's, or where B's arrays come from; "" where they are equal."""
    if compared.equal:
        return ""
    explanation = by_arrays.explained_in_any_form(compared.pair.stack, compared.pair.counterpart)
    if explanation is None:
        return ""
    if explanation.complete:
        others = "; or " + "; or ".join(fault.sentence for fault in explanation.others[:3]) if explanation.others else ""
        return "B is A, but " + " and ".join(fault.sentence for fault in explanation.faults) + others
    numbers = near(compared.pair.stack, compared.pair.counterpart) if explanation.in_place else None
    if numbers is not None:
        return f"in B, {numbers.sentence}"
    parts = [f"in part, {' and '.join(fault.sentence for fault in explanation.faults)}"] if explanation.faults else []
    return "; ".join([*parts, *by_arrays.listed(explanation)]) or by_arrays.nothing()


@dataclass(frozen=True)
class Diagnosed:
    """Why a layer of one file does not compute the same as that of another.

    compared   their weights
    diagnosis  of what they compute
    equal      whether they compute the same, on the cases that were run
    """

    compared: LayerComparison
    diagnosis: Diagnosis
    equal: bool


def compare_files(a: Checkpoint, b: Checkpoint, layers: Sequence[str] = (), chosen: Sequence[str] = ()) -> list[LayerComparison]:
    """Return the differences of every layer, or of the layers of A that are named.

    chosen  pairs as `pairing.pair` takes them

    Raises UsageError if the pairs of layers are not certain, UnreadableError if A has none.
    """
    pairs = pair(select(a, layers), b, chosen, selected=bool(layers))
    # Files of one format say the same things of a layer: what one leaves to its caller, the other does, too.
    outside = a.format != b.format
    return [
        LayerComparison(
            paired,
            tuple(differences(paired.stack, paired.counterpart, outside=outside)),
            tuple(unshared(a, paired.own_names, b, paired.names)),
        )
        for paired in pairs
    ]


def diagnose_files(
    a: Checkpoint, b: Checkpoint, layers: Sequence[str] = (), chosen: Sequence[str] = (), draw: Draw | None = None
) -> list[Diagnosed]:
    """Find out why the layers of B do not compute the same as A's: both run by the reference, on the cases drawn.

    Raises the errors of `compare_files`, and RefusedError for a cell that the reference cannot compute.
    """
    return [_diagnosed(compared, draw or Draw()) for compared in compare_files(a, b, layers, chosen)]


def _diagnosed(compared: LayerComparison, draw: Draw) -> Diagnosed:
    a, b = compared.pair.stack, compared.pair.counterpart
    notes: list[Note] = []
    # Only what must be: a coupled gate that is written out is no longer one whose coupling can have been dropped.
    if _sizes(a) != _sizes(b):
        a, b, notes = to_common_form(a, b)
    weights = list(first_difference.gates(compared.differences))
    if _sizes(a) != _sizes(b):
        problem = f"they cannot be run side by side: A is {a.describe()}; B is {b.describe()}"
        return Diagnosed(compared, Diagnosis((problem, *weights)), False)
    a, b = settled(a), settled(b)
    dtype = max(a.dtype, b.dtype, key=epsilon).newbyteorder("=")
    drawn, _ = cases(a, draw)
    with np.errstate(all="ignore"):
        answers = [(case, case.solve(b)) for case in (capped(a, case) for case in drawn)]
        measures = Measure.of_all(a, [case for case, _ in answers], dtype)
        diagnosis = diagnose(a, answers, dtype, b, ran=False, measures=measures)
        equal = all(measure.explains(outputs) for measure, (_, outputs) in zip(measures, answers, strict=True))
        # What the common form leaves out of one layer, files of one format state of both.
        equal = equal and not (notes and any(each.kind == "feature" and not each.equal for each in compared.differences))
    sentences = (*_compared_as(notes), *diagnosis.sentences, *(() if equal else weights))
    return Diagnosed(compared, replace(diagnosis, sentences=sentences), equal)


def _compared_as(notes: Sequence[Note]) -> Iterator[str]:
    if notes:
        yield "compared in one form: " + "; ".join(note.words for note in notes)


def _sizes(stack: Recurrent) -> list[tuple[object, ...]]:
    final = (stack.output_order, stack.layers[-1].output_size)
    return [
        final,
        *((index, number, d.cell.kind == "lstm", d.input_size, d.hidden_size, d.output_size) for index, number, d in stack.directions()),
    ]
