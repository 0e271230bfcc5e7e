"""Every system compared with every other: which of its cells go where exactly, by which rewrite, or not at all.

A cell of a system is what its usual layers hold: with the biases that it prefers, the constants that it adds, one layer
that reads forward. The same code that converts files decides what such a layer becomes in another system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.arrays import Source
from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import BIAS_PARTS, Key, Recurrent, gates_of
from rnnconvert.files.adapter import adapters
from rnnconvert.files.options import Options
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble
from rnnconvert.language.registry import frameworks
from rnnconvert.rewrites import Step
from rnnconvert.rewrites.fit_to_layout import Fitted, allows, fit_to_layout


@dataclass(frozen=True)
class Asked:
    """A cell that people look for.

    name   what a table calls it
    cell   what it computes, but for what a system adds to it
    extra  the part that it has beside matrices and biases, or ""
    """

    name: str
    cell: Cell
    extra: str = ""


CELLS = (
    Asked("RNN (tanh)", Cell("rnn")),
    Asked("RNN (relu)", Cell("rnn", activation=RELU)),
    Asked("LSTM", Cell("lstm")),
    Asked("LSTM with peepholes", Cell("lstm"), "peephole"),
    Asked("LSTM with a projection", Cell("lstm"), "projection"),
    Asked("GRU (reset after)", Cell("gru", True)),
    Asked("GRU (reset before)", Cell("gru", False)),
)

INPUTS, UNITS, PROJECTED = 3, 5, 2
"""The sizes of the layers here: no two alike, so that no array fits by chance."""


@dataclass(frozen=True)
class SystemPair:
    """The result of converting a system's cell to another system.

    verdict  "exact" (bit for bit), "rewritten" (exact in real numbers, and rounded) or "refused"
    steps    the rewrites that were applied
    feature  why it is refused: what cannot be represented
    """

    source: str
    target: str
    asked: Asked
    verdict: str
    steps: tuple[Step, ...] = ()
    feature: str = ""


def layout_of(system: str, asked: Asked) -> Layout | None:
    """Return the layout in which a system holds a cell, or None if it does not."""
    for layout in frameworks()[system]:
        cell, parts = asked.cell, {"peephole", "projection"} & layout.part_names
        if (layout.kind, layout.reset_after) != (cell.kind, cell.reset_after) or (asked.extra and asked.extra not in parts):
            continue
        if allows(layout.holds.activations, cell.activation) and not layout.cell.coupled:
            return layout
    return None


def stack_of(layout: Layout, asked: Asked, dtype: str = "float32") -> Recurrent:
    """Return a layer as a system holds it: every system has the same numbers where it has a place for them."""
    default = layout.holds.biases[0]
    biases = {"both": set(BIAS_PARTS), "none": set()}.get(default, {f"{default}_bias"})
    parts = frozenset({"input", "recurrent", *biases, *([asked.extra] if asked.extra else [])})
    sizes = Sizes(layout.kind, INPUTS, UNITS, 1, 1, PROJECTED if asked.extra == "projection" else 0, parts)
    arrays: dict[Key, Source] = {}
    for part in sorted(parts):
        shape = sizes.shape(0, part)
        assert shape is not None
        # Numbers of a part do not depend on which others there are.
        random = np.random.default_rng([len(part), *map(ord, part)])
        for gate in gates_of(sizes.kind, part):
            numbers = (random.uniform(-1, 1, shape) * 0.7).astype(dtype)
            placeless = part in BIAS_PARTS and (part, gate) not in layout.keys
            arrays[part, gate] = np.zeros_like(numbers) if placeless else numbers
    cell = layout.cell.replace(activation=asked.cell.activation)
    return assemble(layout.framework, cell, {(0, 0): arrays}, 1)


def held(source: str, target: str, asked: Asked) -> Fitted:
    """Return a system's cell in the form that another holds.

    Raises RefusedError where there is none; ValueError if the source has no such cell.
    """
    layout = layout_of(source, asked)
    if layout is None:
        raise ValueError(f"{source} has no {asked.name}")
    return fit_to_layout(stack_of(layout, asked), adapters()[target].layouts(Options()))


def pairs() -> Iterator[SystemPair]:
    """Yield every cell of every system, in every system that is written."""
    names = list(adapters())
    written = [name for name, adapter in adapters().items() if adapter.layouts(Options())]
    for asked in CELLS:
        for source in names:
            if layout_of(source, asked) is None:
                continue
            for target in written:
                try:
                    steps = held(source, target, asked).steps
                except RefusedError as error:
                    yield SystemPair(source, target, asked, "refused", feature=error.feature)
                    continue
                exact = all(step.exact for step in steps)
                yield SystemPair(source, target, asked, "exact" if exact else "rewritten", steps)
