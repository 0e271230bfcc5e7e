"""The reset gate moved to the other side of the product."""

from __future__ import annotations

import numpy as np

from rnnconvert.core.weights import Direction
from rnnconvert.language import registry
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite, largest
from rnnconvert.rewrites.sum_biases import SUM_BIASES, inside_the_product


def _moves(direction: Direction, after: bool | None) -> bool:
    return direction.cell.kind == "gru" and direction.cell.reset_after != after


def _obstacle(direction: Direction, after: bool | None) -> Obstacle | None:
    if not _moves(direction, after):
        return None
    off = np.array(direction.arrays["recurrent", "n"])
    np.fill_diagonal(off, 0)
    value, index = largest(off)
    if value:
        equations = ("n = act(W x + b + R (r * h))", "n = act(W x + b + r * (R h + b_r))")
        is_after = bool(direction.cell.reset_after)
        return Obstacle(
            "a GRU with the reset gate " + ("after" if is_after else "before") + " the product",
            f"it computes {equations[is_after]} but the target {equations[not is_after]}; "
            f"these agree only where R is diagonal, but R of gate n has {value:.6g} at {index}",
            registry.conversion(lambda form: form.kind == "gru" and form.reset_after == is_after, "which has this cell")
            + " Or train the target's own cell.",
        )
    inside = inside_the_product(direction)
    if inside is None:
        return None
    return Obstacle(
        inside.feature,
        inside.reason,
        registry.conversion(
            lambda form: form.kind == "gru" and form.reset_after is True and ("recurrent_bias", "n") in form.keys,
            "whose GRU has the reset gate after the product",
        ),
    )


def _change(direction: Direction, after: bool | None) -> Direction:
    """Return the other GRU, for a diagonal candidate matrix: its bias outside the reset product."""
    if not _moves(direction, after):
        return direction
    # Before the product both biases are outside of it; behind, the recurrent one would be inside.
    outside = SUM_BIASES.apply(direction) if after and direction.biases in ("recurrent", "both") else direction
    return outside.replace(cell=direction.cell.replace(reset_after=after))


def _rounds(direction: Direction, after: bool | None) -> bool:
    return _moves(direction, after) and bool(after) and not SUM_BIASES.exact(direction)


MOVE_RESET_GATE = Rewrite(
    "move the reset gate",
    "R (r * h) = r * (R h) where R is diagonal (always with one unit).",
    True,
    "a diagonal candidate matrix, and a zero recurrent bias in it",
    _obstacle,
    _change,
    _rounds,
)
"""Of a direction; after: where to put the reset gate, True for after the product."""
