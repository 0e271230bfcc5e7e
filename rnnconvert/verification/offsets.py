"""Compare where cuDNN itself puts each matrix and bias in its flat buffer with where we put them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.places import offsets

# linLayerID, as the API reference gives it under cudnnGetRNNWeightParams: the GRU's "i" is our z.
IDENTITIES = {
    "rnn": [("input", "n"), ("recurrent", "n")],
    "gru": [*((part, gate) for part in ("input", "recurrent") for gate in "rzn")],
    "lstm": [*((part, gate) for part in ("input", "recurrent") for gate in "ifgo"), ("projection", "")],
}

Place = tuple[int, int, str, str, float, tuple[int, ...]]
"""Layer, direction, part, gate, first element, shape."""


class _OffsetLine(NamedTuple):
    """A line of the library's table.

    identity  linLayerID
    what      "matrix" or "bias"
    start     its first byte
    """

    pseudo_layer: int
    identity: int
    what: str
    start: int
    dims: Sequence[int]

    def place(self, sizes: Sizes, itemsize: int) -> Place:
        part, gate = IDENTITIES[sizes.kind][self.identity]
        layer, direction = divmod(self.pseudo_layer, sizes.num_directions)
        shape = tuple(self.dims[1:])
        if self.what == "bias":
            part, shape = f"{part}_bias", shape[:1]
        return layer, direction, part, gate, self.start / itemsize, shape


def disagreement(layout: Layout, sizes: Sizes, itemsize: int, nbytes: int, rows: Iterable[Sequence[Any]]) -> str:
    """Describe how the library's own table differs from ours; "" if it does not.

    itemsize  bytes of an element
    nbytes    size of the buffer, as the library has it
    rows      the fields of _Row, as it reports them
    """
    library = registry.title(layout.framework)
    theirs = {_OffsetLine(*row[:5]).place(sizes, itemsize) for row in rows}
    ours: set[Place] = {(r.layer, r.direction, r.part, r.gate, r.offset, r.shape) for r in offsets(layout, sizes)}
    for place in sorted(ours ^ theirs, key=str):
        who = library if place in theirs else "rnnconvert"
        layer, direction, part, gate, start, shape = place
        name = f"{part} of gate {gate}" if gate else part
        return f"only {who} has {name} of layer {layer}, direction {direction} at element {start:g} with the shape {shape}"
    elements = sum(math.prod(shape) for *_, shape in ours)
    return "" if elements * itemsize == nbytes else f"{library} has {nbytes} bytes, and rnnconvert {elements * itemsize}"
