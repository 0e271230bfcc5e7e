"""Whether B's weights are A's: to the last bit, as a cast to another element type or a rewrite rounds them, or not.

Outputs in a short element type tell little of small weights: rounding to 11 bits or 8 hides them. So if one of two models is held in such a
type, its weights are compared number by number, and its outputs with the outputs of its own weights: the cost of the type is a separate
number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.comparison.difference import Difference, differences
from rnnconvert.core.reference import Outputs
from rnnconvert.core.verdict import Limit
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging.comparison import parts
from rnnconvert.verification.results import Cast, LayerResults

MATRIX_PARTS = ("input", "recurrent", "projection")
SHORT = ("float16", "bfloat16")
"""Element types in which outputs do not show what becomes of small weights."""


INT8 = "int8"
_LARGEST_CODE = 127


def weigh(layer: LayerResults, a: Recurrent, b: Recurrent, narrow: bool = False) -> None:
    """Record in the results of a layer how B's weights relate to A's.

    Weights of other numbers refute the layer if an element type is short; if both are long the outputs decide, and the difference limits
    what equal outputs prove. Weights that were rounded to another type get a separate truth.

    narrow  whether B's file states that it holds matrices in int8
    """
    # What only one of them has, and what they compute of it, is exercised: rnnconvert.verification.stated.
    weights_apart = [difference for difference in differences(a, b) if difference.kind == "weights" and "absent in" not in difference.words]
    apart = [difference for difference in weights_apart if not difference.equal]
    types = {str(stack.dtype.newbyteorder("=")) for stack in (a, b)}
    short = bool(types & set(SHORT))
    if apart and narrow and _nearest(a, b, apart):
        layer.cast = Cast(INT8)
    elif apart and short:
        held = f", held in {b.dtype}" if len(types) > 1 else f": both are {b.dtype}, and nothing is rounded between them"
        layer.refuted.append(f"B's weights are not A's{held}: {_largest(apart, weights_apart)}")
    elif apart:
        words = f"weights differ by more than rounding, which no output that ran shows: {_largest(apart, weights_apart)}"
        layer.limits.append(Limit("weights", layer.name, words))
    elif (short or len(types) > 1) and any(difference.rounded for difference in weights_apart):
        layer.cast = Cast(str(b.dtype))


def _nearest(a: Recurrent, b: Recurrent, apart: Sequence[Difference]) -> bool:
    """Return whether matrices alone differ, each number by no more than half a step of its row in int8."""
    if not all(difference.part in MATRIX_PARTS for difference in apart):
        return False
    for (*_, direction), (*_, other) in zip(a.directions(), b.directions(), strict=True):
        for key in direction.arrays:
            if key[0] not in MATRIX_PARTS:
                continue
            exact, held = (np.asarray(side.arrays[key], np.float64) for side in (direction, other))
            step = np.abs(held).max(axis=1, keepdims=True, initial=0) / _LARGEST_CODE
            # The scales themselves are float32.
            if not (np.abs(held - exact) <= 0.5 * step * (1 + 1e-4) + 1e-6 * np.abs(exact)).all():
                return False
    return True


def _largest(apart: Sequence[Difference], every: Sequence[Difference]) -> str:
    """Return which weights differ most, and in how many arrays they do."""
    worst = max(apart, key=lambda difference: difference.relative)
    gate = f" of gate {worst.gate}" if worst.gate else ""
    numbers = f" at {worst.where}: {worst.expected:.6g} in A, {worst.found:.6g} in B" if worst.found is not None else ""
    place = f", layer {worst.layer}, {('forward', 'backward')[worst.direction]}" if worst.direction >= 0 else ""
    return f"{worst.part}{gate}{place}{numbers} ({len(apart)} of {len(every)} arrays differ)"


def cost(layer: LayerResults) -> None:
    """Record the cost of a cast: how far the outputs of the rounded weights are from the outputs of A's, in every case."""
    cast = layer.cast
    if cast is None:
        return
    for case in layer.cases:
        truths: tuple[Outputs, Outputs] = layer.truth[case.name], cast.truth[case.name]
        shaken_values = {name: values for name, values, *_ in parts(truths[1], case.lengths)}
        for name, values, mask, _ in parts(truths[0], case.lengths):
            if name in shaken_values and shaken_values[name].shape == values.shape:
                counts = np.isfinite(values) & np.isfinite(shaken_values[name]) & (True if mask is None else mask)
                with np.errstate(all="ignore"):
                    gap = np.where(counts, np.abs(values - shaken_values[name]), 0.0)
                cast.error = max(cast.error, float(gap.max(initial=0.0)))
    words = f"held in {cast.dtype}, its weights cost up to {cast.error:.2g} in the outputs"
    layer.limits.append(Limit("rounding" if cast.dtype == INT8 else "cast", layer.name, words))
