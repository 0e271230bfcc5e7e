"""One way to read arrays as a layer: what is where, which gate is which, and what the cell computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.cells import Cell
from rnnconvert.core.reference import Outputs, Reference
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Layer, Merge, Recurrent, gates_of
from rnnconvert.identification.deadline import NEVER, Deadline
from rnnconvert.identification.sample import Sample
from rnnconvert.identification.structures import Structure
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.language.layout import UNUSED

Blocks = dict[tuple[int, int], dict[Key, Array]]
"""Each gate of each part, by (layer, direction); the gates are the structure's, without a meaning yet."""

Orders = Mapping[str, Mapping[str, str]]
"""For each part, which of the structure's gates every canonical gate is."""


def blocks_of(structure: Structure, arrays: Mapping[str, Array]) -> Blocks:
    """Return the blocks of arrays, as views; a bias that the structure lacks is zero."""
    blocks: Blocks = {}
    for slot in structure.places:
        if slot.key[1] == UNUSED:
            continue
        view = slot.place.view(arrays[structure.binding[slot.array]])
        if slot.reinterpreted:
            view = np.ascontiguousarray(view).reshape(view.shape[::-1])
        blocks.setdefault((slot.layer, slot.direction), {})[slot.key] = view
    for block_arrays in blocks.values():
        for part in {part for part, _ in block_arrays} & set(BIAS_PARTS):
            shape = next(array.shape for (name, _), array in block_arrays.items() if name == part)
            for gate in gates_of(structure.sizes.kind, part):
                if gate != structure.layout.coupled:
                    block_arrays.setdefault((part, gate), np.zeros(shape))
    return blocks


@dataclass(frozen=True, eq=False)
class LayerReading:
    """One way to read arrays as a layer, and a sample as what it gave.

    structure  which array is which part
    cell       what is computed
    orders     which block is which gate
    negated    whether the update gate is stored with the other sign
    merge      how two directions are joined
    axes       how the sample's axes were meant
    reverse    whether a single direction reads from the end, and `order` of its outputs then
    """

    structure: Structure
    cell: Cell
    orders: Orders
    negated: bool = False
    merge: Merge = "concat"
    axes: str = ""
    reverse: bool = False
    order: str = "time"

    def block_of(self, part: str, gate: str) -> Key:
        """Return which of the structure's blocks a gate of a part is."""
        return part, self.orders.get(part, {}).get(gate, gate)

    def direction(self, blocks: Mapping[Key, Array], reverse: bool) -> Direction:
        """Return one direction, with its gates in their places."""
        arrays: dict[Key, Array] = {}
        for part in {part for part, _ in blocks}:
            for gate in gates_of(self.cell.kind, part):
                block = blocks.get(self.block_of(part, gate))
                if block is not None and (not gate or gate != self.cell.coupled):
                    arrays[part, gate] = -block if self.negated and gate == "z" else block
            twin = (part, {"i": "f", "f": "i"}.get(self.cell.coupled, ""))
            if self.cell.coupled and twin in arrays:
                arrays[part, self.cell.coupled] = -arrays[twin]
        return Direction(self.cell, arrays, reverse)

    def identity(self, blocks: Blocks) -> object:
        """Return a key that is equal for readings of the same numbers in the same equations, however they are written."""
        where_of = {entry[:3]: entry[3:] for entry in self.structure.where}

        def block(key: Key, at: tuple[int, int]) -> object:
            own_key = self.block_of(*key)
            array = blocks[at].get(own_key)
            zero = array is None or (key[0] in BIAS_PARTS and not array.any())
            return None if zero else where_of.get((*at, own_key))

        keys = [(part, gate) for part in sorted(self.structure.sizes.parts) for gate in gates_of(self.cell.kind, part)]
        cell = self.cell
        where = tuple(block(key, at) for at in sorted(blocks) for key in keys)
        functions = (cell.activation, cell.gate_activation, cell.output_activation, tuple(cell.constants.items()))
        return (
            cell.kind,
            cell.reset_after,
            cell.coupled,
            functions,
            self.negated,
            self.merge,
            self.axes,
            self.reverse,
            self.order,
            tuple(keys),
            where,
        )

    def stack(self, blocks: Blocks, forward: bool = False) -> Recurrent:
        """Return the stack.

        forward  leave out that a single direction reads from the end: the sample is turned instead
        """
        sizes = self.structure.sizes
        back = self.reverse and not forward
        layers = tuple(
            Layer(tuple(self.direction(blocks[layer, d], back or d == 1) for d in range(sizes.num_directions)), self.merge)
            for layer in range(sizes.num_layers)
        )
        return Recurrent("", layers, output_order="processing" if back and self.order == "processing" else "time")

    def turned(self, sample: Sample) -> Sample:
        """Return the sample of the layer as one that reads from the start."""
        return sample.turned(self.order) if self.reverse else sample


def solve(stack: Recurrent, sample: Sample, dtype: Any = np.float64, deadline: Deadline = NEVER) -> Outputs:
    """Return the reference's outputs for a sample. Raises OutOfTimeError at the step before which the deadline passes."""
    with np.errstate(all="ignore"):
        return Reference(stack, dtype, before=deadline.check).run(sample.x, sample.h0, sample.c0, sample.lengths)


Pairs = list[tuple[str, Array, Array]]
"""By name, what was found, and what a reading gives; in the order (time, batch, out) where there are steps."""


def pairs(sample: Sample, outputs: Outputs, merge: Merge) -> Pairs | None:
    """Return all that is known beside all that was computed; None if the shapes differ."""
    compared: Pairs = []
    if sample.y is not None:
        compared.append(("y", *_live(sample.y, outputs.y, sample.lengths)))
    if sample.last is not None:
        ways = [_final(outputs, merge), outputs.y[-1]]
        fitting = [way for way in ways if way is not None and way.shape == sample.last.shape]
        if not fitting:
            return None
        with np.errstate(all="ignore"):
            best = min(fitting, key=lambda array: float(np.nan_to_num(np.abs(array - sample.last).max(), nan=np.inf)))
        compared.append(("last", sample.last, best))
    for name, expected, computed in (("h_n", sample.hn, outputs.hidden), ("c_n", sample.cn, outputs.cell)):
        if expected is not None:
            if len(expected) != len(computed):
                return None
            compared += [(f"{name}[{number}]", value, other) for number, (value, other) in enumerate(zip(expected, computed, strict=True))]
    return compared if all(value.shape == other.shape for _, value, other in compared) else None


def _live(array: Array, target: Array, lengths: Array | None) -> tuple[Array, Array]:
    """Return both, without the steps after the ends of sequences, on which programs differ."""
    if lengths is None or array.shape != target.shape:
        return array, target
    live = (np.arange(len(array))[:, None] < lengths)[:, :, None]
    return np.where(live, array, 0), np.where(live, target, 0)


def _final(outputs: Outputs, merge: Merge) -> Array | None:
    """Return the last states of the last layer, joined: what a layer gives that returns no sequences."""
    states = outputs.hidden[-2:] if len(outputs.hidden) % 2 == 0 else outputs.hidden[-1:]
    if outputs.y.shape[-1] == outputs.hidden[-1].shape[-1] and merge in ("concat", "none"):
        return outputs.hidden[-1]
    if len(states) < 2 or merge in ("concat", "none"):
        return np.concatenate(states, -1)
    first, other = states
    joined = first * other if merge == "mul" else first + other
    return joined / 2 if merge == "ave" else joined


def off(compared: Pairs | None) -> float:
    """Return the largest error in parts of the largest value; infinite where nothing can be compared."""
    if not compared:
        return np.inf
    worst = 0.0
    for _, array, other in compared:
        scale = float(np.abs(array).max(initial=0.0))
        with np.errstate(all="ignore"):
            error = float(np.abs(other - array).max(initial=0.0))
        worst = max(worst, error / (scale or 1.0) if np.isfinite(error) else np.inf)
    return worst


def ratio(stack: Recurrent, sample: Sample, merge: Merge, dtype: np.dtype[Any]) -> float:
    """Return the largest error in units of what rounding in an element type explains."""
    exact, rough = (pairs(sample, solve(stack, sample, kind), merge) for kind in (np.float64, dtype))
    return in_rounding(exact, rough, dtype)


def in_rounding(exact: Pairs | None, rough: Pairs | None, dtype: np.dtype[Any]) -> float:
    """Return the largest error of exact outputs in units of what rounding explains, as outputs computed in the element type show it.

    Infinite where shapes differ.
    """
    if exact is None or rough is None:
        return np.inf
    worst = 0.0
    for (name, array, value), (*_, floor) in zip(exact, rough, strict=True):
        axes = ("time", "batch", "unit") if array.ndim == 3 else ("batch", "unit")
        worst = max(worst, compare(Output("", name, axes), array, value, Allowance([floor], dtype)).ratio)
    return worst


def unseen(stack: Recurrent, sample: Sample, dtype: np.dtype[Any], deadline: Deadline = NEVER) -> list[str]:
    """Return the parts whose numbers a sample does not show: with their rows exchanged the outputs are the same.

    Raises OutOfTimeError at the step before which the deadline passes.
    """
    sample, merge = sample.few(4), stack.layers[-1].merge
    standard = pairs(sample, solve(stack, sample, deadline=deadline), merge)
    hidden_parts = []
    for index, number, d in stack.directions():
        for (part, gate), source in d.arrays.items():
            array = np.asarray(source)
            turned = array[::-1, ::-1] if array.ndim == 2 else array[::-1]
            if array.size < 2 or (gate and gate == d.cell.coupled) or np.array_equal(array, turned):
                continue
            layers = list(stack.layers)
            directions = list(layers[index].directions)
            directions[number] = d.with_arrays({(part, gate): turned})
            layers[index] = Layer(tuple(directions), layers[index].merge)
            other = pairs(sample, solve(stack.replace(layers=tuple(layers)), sample, deadline=deadline), merge)
            if standard is not None and other is not None:
                compared = [(name, a, b) for (name, _, a), (_, _, b) in zip(standard, other, strict=True)]
                if off(compared) <= 4 * epsilon(dtype):
                    hidden_parts.append(f"{part} of gate {gate}" if gate else part)
    return list(dict.fromkeys(hidden_parts))
