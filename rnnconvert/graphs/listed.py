"""What a layer reads, in rooms that list operators which change nothing; to be replaced by `calls`."""

from __future__ import annotations

from rnnconvert.core.weights import Call, Directly, Input, Through


def listed(layers: tuple[str, ...], through: tuple[str, ...] = ()) -> tuple[Call, ...]:
    """Return the one call of a layer that reads these layers, through these operators."""
    if through:
        return (Call(Through(layers, through)),)
    return (Call(Directly(layers) if layers else Input()),)
