"""The differences between the statements of two layers, and an input that shows each.

Two models may state different things and give the same for every usual input: a clip at 6 that nothing reaches. A case is made to exercise
each stated difference; if none can be made, the models are not called equal. Saved results keep what their layers state, without their
numbers: if these differ, nothing shows whether it matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rnnconvert.comparison.difference import Difference, differences
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.diagnosis.mutations import capped
from rnnconvert.judging.case_kinds import Case, held, state_widths
from rnnconvert.judging.cases import Draw, cases
from rnnconvert.judging.measure import Measure, settled
from rnnconvert.language import outline
from rnnconvert.rewrites import each

NAME = "stated difference"
"""The case that is made for what two models state differently."""

_FACTORS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10000.0)
"""How many times larger than usual the inputs tried are."""

_SHOWN_RATIO = 10.0
"""How many times what rounding explains a difference must be to be shown for certain, on any executor."""


def stated(a: Recurrent, b: Recurrent) -> list[Difference]:
    """Return the differences between two layers, brought into one form first: features that only one has, other sizes, other computations.

    The comparison of outputs covers the numbers that both have, and compares directions side by side that one keeps apart.
    """
    a, b = (_side_by_side(stack) for stack in (a, b))
    apart = [difference for difference in differences(a, b) if not difference.equal]
    return [difference for difference in apart if difference.kind in ("feature", "shape") or "absent in" in difference.words]


def _side_by_side(stack: Recurrent) -> Recurrent:
    """Return a stack whose directions are side by side where they are kept apart."""
    layers = tuple(replace(layer, merge="concat") if layer.merge == "none" else layer for layer in stack.layers)
    return stack.replace(layers=layers)


def handed_apart(a: Recurrent, b: Recurrent) -> Iterator[Limit]:
    """Yield that only one of two layers gives the outputs of its directions apart."""
    merges = {"A": a.layers[-1].merge, "B": b.layers[-1].merge}
    if set(merges.values()) == {"none", "concat"}:
        label, other = sorted(merges, key=lambda model: merges[model] != "none")
        words = f"{label} gives the outputs of its directions apart, and {other} side by side"
        yield Limit("merge", "", f"{words}: both were compared")


_LARGEST = 1 << 26
"""How many numbers a layer may have to be compared by its outline."""


def outlined(stack: Recurrent) -> str:
    """Return the statements of a layer, as text: its outline, without the parts that are all zero."""
    return outline.to_text(each(stack, _without_zeros))


def _without_zeros(direction: Direction) -> Direction:
    parts = {part for part, _ in direction.arrays} - {"input", "recurrent", "projection"}
    zero = {
        part
        for part in parts
        if not any(np.asarray(source).any() for (own_part, _), source in direction.arrays.items() if own_part == part)
    }
    return direction.with_arrays({key: None for key in direction.arrays if key[0] in zero})


def outlines_apart(a: str, b: str) -> list[Difference] | None:
    """Return the differences between two outlines, brought into one form first; None if they cannot be compared.

    Raises UsageError for text that is not an outline.
    """
    if a == b:
        return []
    both = [outline.from_text(text) for text in (a, b)]
    if max(stack.parameters for stack in both) > _LARGEST:
        return None
    ones = [each(stack, lambda d: d.with_arrays({key: np.ones_like(source) for key, source in d.arrays.items()})) for stack in both]
    return stated(ones[0], ones[1])


def words(statements: Sequence[Difference]) -> str:
    """Return the differences in one line."""
    return "; ".join(
        dict.fromkeys(
            difference.words if difference.kind == "feature" else f"{difference.part} {difference.words}" for difference in statements
        )
    )


def shows(a: Recurrent, b: Recurrent, cases_given: Sequence[Case]) -> bool:
    """Return whether some case tells two layers apart."""
    return any(_ratio(a, b, case) > 1 for case in cases_given)


def made_for(a: Recurrent, b: Recurrent, cases_given: Sequence[Case], seed: int) -> Case | None:
    """Return a case that shows what two layers state differently; None if the cases given do, or none is found."""
    statements = stated(a, b)
    if not statements or shows(a, b, cases_given):
        return None
    best: tuple[float, Case] | None = None
    for factor, case in _tried(a, b, seed):
        ratio = _ratio(a, b, case)
        if ratio > 1 and (best is None or ratio > best[0]):
            size = "" if factor == 1 else f", input and states {factor:g} times as large as usual"
            best = (ratio, replace(case, name=NAME, what=f"made to show what A and B state differently{size}: {words(statements)}"))
        if ratio >= _SHOWN_RATIO:
            break
    return None if best is None else best[1]


def _tried(a: Recurrent, b: Recurrent, seed: int) -> Iterator[tuple[float, Case]]:
    names = ["states", "default states", "lengths"] if state_widths(a) == state_widths(b) else ["default states"]
    drawn = [capped(a, case) for case in cases(a, Draw(names, seed))[0]]
    for factor in _FACTORS:
        for case in drawn:
            hidden, cell = (states and tuple(held(s * np.float32(factor)) for s in states) for states in (case.hidden, case.cell))
            yield factor, replace(case, x=held(case.x * np.float32(factor)), hidden=hidden, cell=cell)


def _ratio(a: Recurrent, b: Recurrent, case: Case) -> float:
    """Return how far B is off, in units of what is allowed; 0 if that is unknown."""
    if case.hidden is not None and state_widths(a) != state_widths(b):
        return 0.0
    a, b = settled(a), settled(b)
    try:
        with np.errstate(all="ignore"):
            case = capped(a, case)
            measure, result = Measure.of(a, case, a.dtype), case.solve(b)
            return measure.worst(result).ratio if measure.fits(result) else 0.0
    except RefusedError:
        return 0.0
