"""Two layers brought into one form, so that what two formats write differently can be compared number by number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rnnconvert import rewrites
from rnnconvert.rewrites import Rewrite, each
from rnnconvert.weights import Direction, Layer, Recurrent

Wanted = Callable[[Recurrent, Recurrent], bool]
"""Whether a stack is to be rewritten to be like another."""

Rewritten = Callable[[Recurrent, Recurrent], Recurrent]


def alike(a: Recurrent, b: Recurrent) -> tuple[Recurrent, Recurrent, list[str]]:
    """Both in one form, where an exact rewrite leads there, and what was done, in words."""
    notes = []
    for rewrite, wanted, rewritten in _FORMS:
        if wanted(a, b):
            a = rewritten(a, b)
            notes.append(f"A: {rewrite.name}{_apart(rewrite, b)}")
        if wanted(b, a):
            b = rewritten(b, a)
            notes.append(f"B: {rewrite.name}{_apart(rewrite, a)}")
    if _merged_outside(a, b):
        a = _side_by_side(a, b, "A", notes)
    elif _merged_outside(b, a):
        b = _side_by_side(b, a, "B", notes)
    if {a.output_order, b.output_order} == {"time", "processing"}:
        notes.append(
            "turning outputs round, of a layer that reads from the end, may be outside of it and is not compared"
        )
        a, b = a.but(output_order="time"), b.but(output_order="time")
    return a, b, notes


def _apart(rewrite: Rewrite, model: Recurrent) -> str:
    outside = rewrite is rewrites.FOLD_PROJECTION and not model.readout
    return ", whose matrix on the output is outside the other's layer and is not compared" if outside else ""


def _merged_outside(own: Recurrent, model: Recurrent) -> bool:
    """Whether one adds its directions up, and the other leaves that to what follows, as an ONNX node does."""
    ours, theirs = own.layers[-1], model.layers[-1]
    both = len(ours.directions) == len(theirs.directions) == 2
    return both and ours.merge in ("sum", "mul", "ave") and theirs.merge in ("concat", "none")


def _side_by_side(own: Recurrent, model: Recurrent, side: str, notes: list[str]) -> Recurrent:
    last = own.layers[-1]
    notes.append(f"{side}: joining directions by {last.merge} is outside the other's layer and is not compared")
    return own.but(layers=(*own.layers[:-1], Layer(last.directions, model.layers[-1].merge)))


def _independent(own: Recurrent, model: Recurrent) -> bool:
    deep = own.num_layers > 1 and own.num_directions > 1
    return deep and own.join == "end" and model.join == "layer" and own.num_directions == model.num_directions


def _added(own: Recurrent, model: Recurrent) -> bool:
    ours, theirs = ([layer.merge for layer in stack.layers[:-1]] for stack in (own, model))
    return own.num_directions == 2 and ours != theirs and bool({"sum", "ave"} & set(ours))


def _coupled(own: Recurrent, model: Recurrent) -> bool:
    gate = own.cell.gate_activation
    return bool(own.cell.coupled) and not model.cell.coupled and gate.name in ("sigmoid", "hard_sigmoid")


def _other_era(own: Recurrent, model: Recurrent) -> bool:
    functions = own.cell.gate_activation, model.cell.gate_activation
    clipped = any(clip.kind == "gates" for *_, d in own.directions() for clip in d.cell.clips)
    one = {d.cell.gate_activation for *_, d in own.directions()} == {functions[0]} and own.cell.kind != "rnn"
    return one and not clipped and {f.name for f in functions} == {"hard_sigmoid"} and functions[0] != functions[1]


def _movable(own: Recurrent, model: Recurrent) -> bool:
    """Whether the reset gate may stand at either side of the product."""
    if own.cell.kind != "gru" or model.cell.kind != "gru" or own.cell.reset_after == model.cell.reset_after:
        return False
    return all(_diagonal(d) for *_, d in own.directions())


def _diagonal(d: Direction) -> bool:
    if d.cell.kind != "gru":
        return False
    matrix, bias = np.asarray(d.arrays["recurrent", "n"]), d.get("recurrent_bias", "n")
    inside = bool(d.cell.reset_after) and bias is not None and bool(bias.any())
    return not inside and np.array_equal(matrix, np.diag(np.diag(matrix)))


def _projected(own: Recurrent, model: Recurrent) -> bool:
    every = all(
        d.projection_size and not any(c.kind == "projection" for c in d.cell.clips) for *_, d in own.directions()
    )
    merges = {layer.merge for layer in own.layers[:-1]} <= {"concat", "none"} or own.num_directions == 1
    return every and merges and not any(d.projection_size for *_, d in model.directions())


def _folded(own: Recurrent, model: Recurrent) -> Recurrent:
    """Without projections; the matrix on the output goes, too, where the other side has it outside the layer."""
    folded = rewrites.fold_projection(own)
    return folded if model.readout else folded.but(readout=())


def _era_of(own: Recurrent, model: Recurrent) -> Recurrent:
    wanted = model.cell.gate_activation
    return each(own, lambda d: rewrites.scale_hard_sigmoid(d, wanted, "gate_activation"))


_FORMS: tuple[tuple[Rewrite, Wanted, Rewritten], ...] = (
    (rewrites.JOIN_WITH_ZEROS, _independent, lambda own, model: rewrites.join_with_zeros(own)),
    (rewrites.FOLD_MERGE, _added, lambda own, model: rewrites.fold_merges(own)),
    (rewrites.WRITE_IDENTITY, lambda own, model: own.first.skip_input and not model.first.skip_input,
     lambda own, model: each(own, lambda d: rewrites.write_identity(d) if d.skip_input else d)),
    (rewrites.COUPLED_GATE, _coupled,
     lambda own, model: each(own, lambda d: rewrites.write_out_coupled_gate(d) if d.cell.coupled else d)),
    (rewrites.SCALE_HARD_SIGMOID, _other_era, _era_of),
    (rewrites.MOVE_RESET_GATE, _movable, lambda own, model: each(own, rewrites.move_reset_gate)),
    (rewrites.FOLD_PROJECTION, _projected, _folded),
)  # fmt: skip
"""The rewrites in the order of rnnconvert.represent, each with the pairs that need it."""
