"""Wrong weights: what a wrong conversion turns one direction, or a stack, into; None where it does not apply."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from rnnconvert.core.arrays import Source
from rnnconvert.core.cells import SIGMOID, TANH, Activation, Cell, Clip
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Layer, Recurrent
from rnnconvert.identification.conventions import FORGET_BIAS, GATE_FUNCTIONS
from rnnconvert.rewrites import ZERO_BIASES, deferred

Change = Callable[[Direction], Direction | None]
"""A fault in one direction of one layer."""

BLOCKS = ("input", "recurrent", *BIAS_PARTS)
"""The parts that are stored gate by gate in one order; peepholes have an order of their own."""

SIGMOIDS = frozenset(GATE_FUNCTIONS.values())
ROLES: dict[str, tuple[str, ...]] = {
    "rnn": ("activation",),
    "gru": ("activation", "gate_activation"),
    "lstm": ("activation", "gate_activation", "output_activation"),
}
"""The functions that each kind of cell has."""

ClipKind = Literal["gates", "cell", "state", "projection"]


def with_direction(stack: Recurrent, layer: int, number: int, direction: Direction) -> Recurrent:
    """Return the stack with one direction replaced."""
    layers = list(stack.layers)
    directions = list(layers[layer].directions)
    directions[number] = direction
    layers[layer] = Layer(tuple(directions), layers[layer].merge)
    return stack.replace(layers=tuple(layers))


def permuted(kind: str, sources: Mapping[str, str], parts: tuple[str, ...]) -> Change:
    """Give each gate the arrays of another: `sources` by the gate that gets them."""

    def change(d: Direction) -> Direction | None:
        if d.cell.kind != kind or not any(part in parts for part, _ in d.arrays):
            return None
        return d.with_arrays(
            {(part, gate): d.arrays[part, source] for gate, source in sources.items() for part in parts if (part, source) in d.arrays}
        )

    return change


def negated(gate: str) -> Change:
    """Negate all that belongs to a gate."""

    def change(d: Direction) -> Direction | None:
        if gate not in d.cell.gates:
            return None
        return d.with_arrays({key: deferred(s, np.negative) for key, s in d.arrays.items() if key[1] == gate})

    return change


def cell(change: Callable[[Cell], Cell | None]) -> Change:
    """Put another cell around the same weights."""

    def changed(d: Direction) -> Direction | None:
        cell = change(d.cell)
        return None if cell is None or cell == d.cell else d.replace(cell=cell)

    return changed


def reset(after: bool) -> Change:
    """Move the reset gate after the product, or before it."""
    return cell(lambda cell: cell.replace(reset_after=after) if cell.kind == "gru" and cell.reset_after != after else None)


def moved_candidate_bias(source: str, target: str) -> Change:
    """Move the candidate's bias into the other vector: inside the reset product, or outside."""

    def change(d: Direction) -> Direction | None:
        if not d.cell.reset_after or (source, "n") not in d.arrays:
            return None
        d = ZERO_BIASES.apply(d, [target])
        total = np.asarray(d.arrays["input_bias", "n"]) + np.asarray(d.arrays["recurrent_bias", "n"])
        return d.with_arrays({(target, "n"): total, (source, "n"): np.zeros_like(total)})

    return change


def gate_function(wanted: Activation) -> Change:
    """Put the gates through another sigmoid."""

    def change(cell: Cell) -> Cell | None:
        return cell.replace(gate_activation=wanted) if cell.kind != "rnn" and cell.gate_activation in SIGMOIDS else None

    return cell(change)


def candidate(wanted: Activation, kinds: tuple[str, ...]) -> Change:
    """Put the candidate through another function, in cells of these kinds."""
    return cell(lambda cell: cell.replace(activation=wanted) if cell.kind in kinds else None)


def both(wanted: Activation) -> Change:
    """Put the candidate and the output of an LSTM through another function."""
    return cell(lambda cell: cell.replace(activation=wanted, output_activation=wanted) if cell.kind == "lstm" else None)


def usual_functions(d: Direction) -> Direction | None:
    """Use sigmoid and tanh in place of two or more other functions."""
    defaults = {"activation": TANH, "gate_activation": SIGMOID, "output_activation": TANH}
    others = {role for role in ROLES[d.cell.kind] if getattr(d.cell, role) != defaults[role]}
    return d.replace(cell=d.cell.replace(**defaults)) if len(others) > 1 else None


def forget(sign: int) -> Change:
    """Add the forget_bias once too often or too seldom; the usual one where the cell has none."""

    def change(cell: Cell) -> Cell | None:
        if cell.kind != "lstm" or cell.coupled == "f":  # gate f is then made of i
            return None
        bias = cell.constants.get("f", 0.0)
        return cell.replace(constants={**cell.constants, "f": bias + sign * (abs(bias) or FORGET_BIAS)})

    return cell(change)


def no_clip(kind: str) -> Change:
    """Drop a clip of the cell."""
    return cell(lambda cell: cell.replace(clips=tuple(clip for clip in cell.clips if clip.kind != kind)))


def clip_added(kind: ClipKind, kinds: tuple[str, ...]) -> Change:
    """Add a clip to 3 where the cell has none of that kind."""

    def change(cell: Cell) -> Cell | None:
        if cell.kind not in kinds or any(clip.kind == kind for clip in cell.clips):
            return None
        return cell.replace(clips=(*cell.clips, Clip(kind, -3.0, 3.0)))

    return cell(change)


def usual_constants(d: Direction) -> Direction | None:
    """Give each activation its default constants; the known sigmoids are faults of their own."""
    functions = {role: getattr(d.cell, role) for role in ROLES[d.cell.kind]}
    changes = {role: Activation(function.name) for role, function in functions.items() if function not in SIGMOIDS}
    return d.replace(cell=d.cell.replace(**changes)) if any(functions[role] != change for role, change in changes.items()) else None


def backward(d: Direction) -> Direction | None:
    """Let a direction that reads from the start read from the end."""
    return None if d.reverse else d.replace(reverse=True)


def clip_moved(kind: str, to: ClipKind) -> Change:
    """Put the bounds of one clip on something else."""

    def change(cell: Cell) -> Cell | None:
        clips = tuple(Clip(to, c.low, c.high) if c.kind == kind else c for c in cell.clips)
        return cell.replace(clips=clips) if cell.kind == "lstm" else None

    return cell(change)


def without(parts: tuple[str, ...], gate: str = "") -> Change:
    """Drop some parts of a direction, or zero one gate's parts, which cannot be absent alone."""

    def change(d: Direction) -> Direction | None:
        gone: dict[Key, Source | None] = {key: None for key in d.arrays if key[0] in parts and (not gate or key[1] == gate)}
        if not gone:
            return None
        if gate:
            return d.with_arrays({key: np.zeros(d.arrays[key].shape, d.dtype) for key in gone})
        return d.with_arrays(gone)

    return change


def biases_swapped(d: Direction) -> Direction | None:
    """Exchange the two biases, in the cell where they are not simply added."""
    if d.biases != "both" or not d.cell.reset_after:
        return None
    other = {"input_bias": "recurrent_bias", "recurrent_bias": "input_bias"}
    return d.with_arrays({(other[part], gate): s for (part, gate), s in d.arrays.items() if part in other})


def biases_twice(d: Direction) -> Direction | None:
    """Add each bias twice."""
    twice = {key: deferred(s, lambda b: b + b) for key, s in d.arrays.items() if key[0] in BIAS_PARTS}
    return d.with_arrays(twice) if twice else None


def one_of_two(part: str) -> Change:
    """Drop one of two biases."""
    drop = without((part,))
    return lambda d: drop(d) if d.biases == "both" else None


def transposed(part: str, gate: str = "") -> Change:
    """Transpose square matrices, of all gates or of one among several."""

    def change(d: Direction) -> Direction | None:
        if gate and len(d.cell.gates) == 1:
            return None
        arrays: dict[Key, Source | None] = {
            key: np.asarray(s).T for key, s in d.arrays.items() if key[0] == part and s.shape[0] == s.shape[1] > 1 and gate in ("", key[1])
        }
        return d.with_arrays(arrays) if arrays else None

    return change


def input_halves(d: Direction) -> Direction | None:
    """Let the input matrix read the second half of its input first: backward outputs before forward ones."""
    if d.skip_input or d.input_size % 2:
        return None
    turned = functools.partial(np.roll, shift=d.input_size // 2, axis=1)
    return d.with_arrays({key: deferred(source, turned) for key, source in d.arrays.items() if key[0] == "input"})


def no_projection(d: Direction) -> Direction | None:
    """Replace a square projection by the identity."""
    square = d.projection_size == d.hidden_size > 0
    return d.with_arrays({("projection", ""): np.eye(d.hidden_size, dtype=d.dtype)}) if square else None
