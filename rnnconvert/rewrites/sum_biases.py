"""Two biases of a gate summed into one."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rnnconvert.core.arrays import Source
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key
from rnnconvert.language import registry
from rnnconvert.rewrites.arrays import zeros
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite, largest
from rnnconvert.rewrites.zero_biases import ZERO_BIASES


def _keeping() -> str:
    """Propose the formats whose GRU has a separate bias inside the reset product."""
    return registry.conversion(
        lambda layout: layout.kind == "gru" and layout.reset_after is True and "both" in layout.holds.biases, "which keeps two biases"
    )


def inside_the_product(direction: Direction, part: str = "recurrent_bias") -> Obstacle | None:
    """Return why a bias of the candidate cannot move: the reset gate multiplies only one of the two."""
    bias = direction.get(part, "n") if direction.cell.reset_after else None
    if bias is None or not bias.any():
        return None
    value = largest(bias)[0]
    if part == "recurrent_bias":
        return Obstacle(
            "a recurrent candidate bias inside the reset product",
            f"r * (R h + b_r) has b_r = {value:.6g}, but the target has no place for it inside the product",
            _keeping(),
        )
    return Obstacle(
        "an input bias of the candidate outside the reset product",
        f"n = act(W x + b + r * (R h + b_r)) has b = {value:.6g}, but the target has no place for it outside the product",
        _keeping(),
    )


def _obstacle(direction: Direction, gates: Collection[str] = (), into: str = "input_bias") -> Obstacle | None:
    (other,) = {*BIAS_PARTS} - {into}
    return inside_the_product(direction, other) if not gates or "n" in gates else None


def _change(direction: Direction, gates: Collection[str] = (), into: str = "input_bias") -> Direction:
    """Sum both biases of all gates, or of those named, in `into`.

    gates  where some are named, the other gates keep both biases, and the other bias of those named is zero
    """
    if direction.biases == "none":
        return direction
    (other,) = {*BIAS_PARTS} - {into}
    if gates:
        direction = ZERO_BIASES.apply(direction, BIAS_PARTS)
    arrays: dict[Key, Source | None] = {}
    for gate in gates or direction.cell.gates:
        biases = [a for a in (direction.get("input_bias", gate), direction.get("recurrent_bias", gate)) if a is not None]
        if len(biases) == 2 and biases[0].any() and biases[1].any():
            total: Source = (biases[0].astype(np.float64) + biases[1].astype(np.float64)).astype(direction.dtype)
        else:
            total = next((a for a in biases if a.any()), biases[0])
        arrays[into, gate] = total
        arrays[other, gate] = zeros(direction) if gates else None
    return direction.with_arrays(arrays)


def _rounds(direction: Direction, gates: Collection[str] = (), into: str = "input_bias") -> bool:
    """Return whether both biases of a gate have numbers, so that their sum is rounded."""
    summed = gates or direction.cell.gates
    both = [(direction.get("input_bias", g), direction.get("recurrent_bias", g)) for g in summed]
    return any(a is not None and b is not None and bool(a.any()) and bool(b.any()) for a, b in both)


SUM_BIASES = Rewrite(
    "sum biases",
    "W x + b_w + R h + b_r = W x + (b_w + b_r) + R h. Not for the candidate of a GRU with the reset gate after the "
    "product, n = act(W x + b_w + r * (R h + b_r)), unless its b_r is zero.",
    False,
    "a zero recurrent bias in the candidate of a GRU with reset_after",
    _obstacle,
    _change,
    _rounds,
)
"""Of a direction; gates: only of these; into: the bias that takes the sum."""
