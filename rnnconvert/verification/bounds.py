"""Bounds that the caller states to be never reached: clips of a file that are dropped, and the inputs that keep within them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rnnconvert.core.cells import Clip
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.reference import Outputs
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.judging.case_kinds import Case, Skipped
from rnnconvert.rewrites import each
from rnnconvert.verification.results import LayerResults
from rnnconvert.verification.running import Subject

_HALVED = 12
"""How often the inputs and states of a case are halved, at the most."""


def as_in_the_file(subject: Subject, stack: Recurrent) -> Recurrent:
    """Return a stack with the clips that a model's file has and that the caller drops; itself where there are none."""
    clipped = subject.checkpoint.clipped
    if not any(name in clipped for name in subject.pieces):
        return stack
    pieces = [clipped.get(name, subject.checkpoint.layers[name]) for name in subject.pieces]
    clips = iter([direction.cell.clips for piece in pieces for *_, direction in piece.directions()])

    def put(direction: Direction) -> Direction:
        bounds: tuple[Clip, ...] = next(clips)
        return direction.replace(cell=direction.cell.replace(clips=bounds))

    return each(stack, put)


def keep_within(layer: LayerResults, subject: Subject, ours: bool) -> list[str]:
    """Make the cases of a layer smaller until they reach no bound that the caller drops; return what to say of those that still do.

    ours  whether the cases are drawn; others are unchanged

    Raises UsageError where every case reaches one, however small it is.
    """
    bounded = as_in_the_file(subject, subject.stack)
    if bounded is subject.stack:
        return []
    beyond = [case for case in layer.cases if not _alike(case.solve(subject.stack), case.solve(bounded))]
    if not ours:
        return [f"{layer.name}: the inputs of {case.name!r} reach the bound that is said to be never reached" for case in beyond]
    smaller: dict[str, Case | None] = {case.name: next(_within(case, subject.stack, bounded), None) for case in beyond}
    layer.cases = [reduced for case in layer.cases if (reduced := smaller.get(case.name, case)) is not None]
    if not layer.cases:
        bounds = dict.fromkeys(str(clip) for *_, direction in bounded.directions() for clip in direction.cell.clips)
        raise UsageError(
            f"{Setting('clip', 'none')} says that the values of {quoted(layer.name)} never reach their bounds ({', '.join(bounds)}), "
            "but they do, however small the inputs are. Leave it out"
        )
    why = "it reaches the bound that is said to be never reached, however small its inputs are"
    layer.skipped = [*layer.skipped, *(Skipped(name, why) for name, case in smaller.items() if case is None)]
    return []


def _within(case: Case, stack: Recurrent, bounded: Recurrent) -> Iterator[Case]:
    for halved in range(1, _HALVED + 1):
        factor = np.float32(0.5**halved)
        hidden, cell = (states and tuple(state * factor for state in states) for states in (case.hidden, case.cell))
        words = f"{case.what}; inputs and states {float(factor):g} times as large as usual, to keep within the bound that is dropped"
        less = replace(case, x=case.x * factor, hidden=hidden, cell=cell, what=words, far=())
        if _alike(less.solve(stack), less.solve(bounded)):
            yield less


def _alike(first: Outputs, other: Outputs) -> bool:
    every: list[Sequence[object]] = [(outputs.y, *outputs.hidden, *outputs.cell) for outputs in (first, other)]
    return all(np.array_equal(array, its, equal_nan=True) for array, its in zip(*every, strict=True))
