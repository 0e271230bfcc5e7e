"""Arrays whose names are nobody's, as parts of a layer by their shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rnnconvert.language.layout import Shape

STACKED = {"lstm": "i f g o", "gru": "r z n", "rnn": "n"}


RECURRENT = re.compile(r"(?:^|[_./ ])U|hh|h2h|rec|hid|state|(?:^|[_./])(?:W?h|R)(?:[_./]|$)|(?<=[Ww])h", re.IGNORECASE)
"""Words in the name of a matrix that multiplies the state."""
_INPUT_FIRST = re.compile(r"i2h", re.IGNORECASE)
"""What the name of a matrix has in a tutorial that many follow, and whose cell joins the input and the state in this order."""


class DraftPart(NamedTuple):
    """An array of a layer: its name in a layout, its parts, its axes."""

    name: str
    parts: str
    axes: str


class DraftLayer(NamedTuple):
    """A layer that arrays may be: of which kind, how its gates are spelt ("" for stacked ones), and of which arrays."""

    kind: str
    letters: Sequence[str]
    parts: Sequence[DraftPart]
    names: Sequence[str]
    checks: Sequence[str]
    matrices: Mapping[str, Shape] = {}
    """The shapes of its matrices that the file has as vectors, by the names in the file."""


def scope_of(name: str) -> str:
    return name[: max(name.rfind(mark) for mark in "/.") + 1]


def length_of(shape: Shape) -> int:
    """Return the length of a vector, which may have an axis of length 1; 0 for a matrix."""
    return max(shape) if len(shape) == 1 or 1 in shape else 0


def is_pair(shape: Shape) -> bool:
    """Return whether a shape is that of two biases of a layer, row by row, as Keras keeps them for a GRU."""
    return len(shape) == 2 and shape[0] == 2 and shape[1] > 2


def parts_of(
    matrices: Mapping[str, Shape], vectors: Mapping[str, Shape], kind: str, *, stacked: bool, flipped: bool | None = None
) -> tuple[list[DraftPart], list[str]] | None:
    """Return the arrays of a layer with their parts, and what to check; None where shapes leave no size that fits.

    flipped  whether matrices act from the right; None to see it from them
    """
    checks: list[str] = []
    hidden = "(gate hidden)" if stacked and kind != "rnn" else "hidden"
    if len(matrices) == 2:
        (input_matrix, first), (recurrent, second) = matrices.items()
        if not stacked and (second[0] != second[1] or (first[0] == first[1] and RECURRENT.search(input_matrix))):
            (input_matrix, first), (recurrent, second) = (recurrent, second), (input_matrix, first)
        if flipped is None:
            flipped = first[0] != second[0]
        if first == second:
            checks.append("which matrix multiplies the input, and which the state: both have one shape")
        if first == second and not stacked:
            checks.append(f"whether a matrix acts from the left, {hidden} in, or from the right, in {hidden}")
        axes = f"in {hidden}" if flipped else f"{hidden} in"
        parts = [DraftPart(input_matrix, "input", axes), DraftPart(recurrent, "recurrent", axes)]
    elif len(matrices) == 1 and vectors:
        ((both, shape),) = matrices.items()
        length = length_of(next(iter(vectors.values())))
        size = length // (len(STACKED[kind].split()) if stacked else 1)
        flipped = shape[0] != length
        if length not in shape or shape[0 if flipped else 1] <= size:
            return None
        axes = f"(part in) {hidden}" if flipped else f"{hidden} (part in)"
        orders = ["recurrent input", "input recurrent"]
        if _INPUT_FIRST.search(both):
            orders.reverse()
        parts = [DraftPart(both, orders[0], axes)]
        checks.append(f"whether the state or the input comes first in one matrix: {', or '.join(orders)}")
    else:
        return None
    words = ("input_bias", "recurrent_bias")
    both_biases = [name for name, shape in vectors.items() if is_pair(shape)]
    if both_biases:
        parts.append(DraftPart(both_biases[0], " ".join(words), f"part {hidden}"))
        return (parts, checks) if len(vectors) == 1 else None
    for (name, shape), word in zip(vectors.items(), words, strict=False):
        if len(shape) == 1:
            axes = hidden
        elif shape[1] == 1:
            axes = f"{hidden} 1"
        else:
            axes = f"1 {hidden}"
        parts.append(DraftPart(name, word, axes))
    return (parts, checks) if len(vectors) <= len(words) else None
