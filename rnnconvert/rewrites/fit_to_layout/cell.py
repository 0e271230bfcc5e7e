"""Bring what the cell of a stack computes into what a layout's cell computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rnnconvert.core.cells import Activation, Clip
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Direction
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.rewrites import COUPLED_GATE, FOLD_CONSTANTS, MOVE_RESET_GATE, SCALE_HARD_SIGMOID, each
from rnnconvert.rewrites.fit_to_layout.work import Fitting
from rnnconvert.rewrites.fold_constants import in_force


def reset_gate(work: Fitting) -> None:
    """Move the reset gate to where the target has it."""
    wanted = work.layout.reset_after
    others = work.every(lambda d: d.cell.kind == "gru" and d.cell.reset_after != wanted)
    for direction in others:
        work.demand(MOVE_RESET_GATE.applies(direction, wanted))
    if others:
        exact = all(MOVE_RESET_GATE.exact(direction, wanted) for direction in others)
        work.change(others, lambda d: MOVE_RESET_GATE.apply(d, wanted))
        work.done(MOVE_RESET_GATE, "reset gate moved: the candidate's recurrent matrix is diagonal", exact)


def coupled(work: Fitting) -> None:
    """Write out the coupled gates that the target does not know."""
    held = ("", *work.layout.holds.coupled, work.layout.coupled)
    written = work.every(lambda d: d.cell.coupled not in held)
    for direction in written:
        work.demand(COUPLED_GATE.applies(direction))
    if written:
        work.write_identities(written)
        which = " and ".join(sorted({"f = 1 - i" if d.cell.coupled == "f" else "i = 1 - f" for d in written}))
        work.change(work.every(lambda d: d.cell.coupled not in held), COUPLED_GATE.apply)
        work.done(COUPLED_GATE, f"{which} written out as a gate of its own")


def constants(work: Fitting) -> None:
    """Fold what is added at run time into the biases, where the target adds something else."""
    holds = work.layout.holds

    def wanted(direction: Direction) -> dict[str, float]:
        chosen = {gate: value for gate, value in direction.cell.constants.items() if gate in holds.chosen}
        return {**holds.constants, **chosen}

    different = work.every(lambda d: in_force(d.cell.constants) != in_force(wanted(d)))
    if different:
        folded, other = (
            ", ".join(f"{value:+g} on gate {gate}" for gate, value in constants.items() if value)
            for constants in (different[0].cell.constants, wanted(different[0]))
        )
        details = [f"run-time constants folded into the bias: {folded}"] if folded else []
        details += [f"what the target adds at run time taken off the bias: {other}"] if other else []
        work.stack = each(work.stack, lambda d: FOLD_CONSTANTS.apply(d, wanted(d)))
        work.done(FOLD_CONSTANTS, "; ".join(details))


def allows(allowed: Sequence[str | Activation], activation: Activation) -> bool:
    """Return whether a list of functions has this one; a bare name stands for any constants."""
    return any(entry in ("any", activation.name) or entry == activation for entry in allowed)


def activations(work: Fitting) -> None:
    """Bring the functions of the cell to those that the target has."""
    _function(work, "activation", work.layout.holds.activations)
    if work.layout.kind != "rnn":
        _function(work, "gate_activation", work.layout.holds.gate_activations)
    if work.layout.kind == "lstm":
        _output_function(work)


def _function(work: Fitting, role: str, allowed: Sequence[str | Activation]) -> None:
    """Keep one function of the cell, or write it for the target's other hard_sigmoid."""
    while outside := work.every(lambda d: not allows(allowed, getattr(d.cell, role))):
        function: Activation = getattr(outside[0].cell, role)
        other = next((a for a in allowed if isinstance(a, Activation) and a.name == function.name), None)
        same = [direction for direction in outside if getattr(direction.cell, role) == function]
        if other is None or any(SCALE_HARD_SIGMOID.applies(direction, other, role) for direction in same):
            raise _refuse_activation(work, role, function, allowed)
        work.write_identities(same)
        work.stack = each(work.stack, _scaled(role, function, other))
        work.done(SCALE_HARD_SIGMOID, f"{function} written for {other}")


def _scaled(role: str, function: Activation, other: Activation) -> Callable[[Direction], Direction]:
    return lambda d: SCALE_HARD_SIGMOID.apply(d, other, role) if getattr(d.cell, role) == function else d


def _output_function(work: Fitting) -> None:
    holds = work.layout.holds
    for direction in work.every(lambda d: True):
        cell = direction.cell
        if holds.output_activation == "same" and cell.output_activation != cell.activation:
            raise work.refuse(
                f"an output through {cell.output_activation}",
                f"in h = o * act(c) it uses the candidate's function, which is {cell.activation}",
                registry.conversion(
                    lambda layout: layout.kind == "lstm" and layout.holds.output_activation != "same", "whose LSTM has three functions"
                ),
            )
        if holds.output_activation != "same" and not allows(holds.activations, cell.output_activation):
            raise _refuse_activation(work, "output_activation", cell.output_activation, holds.activations)


def _held(layout: Layout, role: str) -> Sequence[str | Activation]:
    """Return the functions that a layout has in a role."""
    if role == "gate_activation":
        return layout.holds.gate_activations
    alone = role == "output_activation" and layout.holds.output_activation == "same"
    return () if alone else layout.holds.activations


def _refuse_activation(work: Fitting, role: str, function: Activation, allowed: Sequence[str | Activation]) -> RefusedError:
    what = {"gate_activation": "its gates", "activation": "its candidate", "output_activation": "its output"}[role]
    unknown_note = "" if function.known else " (an unknown function)"
    having = registry.conversion(
        lambda layout: layout.kind == work.layout.kind and allows(_held(layout, role), function), "which has this function"
    )
    remedy = f"{having} Or train with the target's function."
    return work.refuse(
        f"{what} through {function}{unknown_note}", f"the target computes {', '.join(str(a) for a in allowed)} there", remedy
    )


_CLIP_PLACES = {
    "gates": "a = clip(W x + b + R h) in every gate",
    "cell": "c' = clip(f * c + i * g) before the output reads it",
    "state": "c' = f * clip(c) + i * g and h' = o * act(clip(c')), and hands out c' unclipped",
    "projection": "h' = clip(P m)",
}
_OF_THE_CELL = {"cell", "state"}


def clips(work: Fitting) -> None:
    """Keep the clips that the target can have; refuse one that it lacks, and a cell without one that it always has."""
    holds = work.layout.holds
    allowed_kinds = (*holds.open_clips, *(clip.kind for clip in holds.fixed_clips))
    for direction in work.every(lambda d: True):
        for clip in direction.cell.clips:
            _check_clip(work, clip)
        for clip in holds.fixed_clips:
            if clip not in direction.cell.clips:
                raise work.refuse(
                    "a cell that does not clip",
                    f"the target always computes {_CLIP_PLACES[clip.kind]} ({clip})",
                    "If the clip of this class is optional, give only its kind in the layout, without bounds.",
                )
    if work.every(lambda d: any(clip.kind not in allowed_kinds for clip in d.cell.clips)):
        work.stack = each(
            work.stack, lambda d: d.replace(cell=d.cell.replace(clips=tuple(c for c in d.cell.clips if c.kind in allowed_kinds)))
        )


def _check_clip(work: Fitting, clip: Clip) -> None:
    """Raise RefusedError for a clip with finite bounds that the target does not have."""
    holds = work.layout.holds
    if clip in holds.fixed_clips or not np.isfinite([clip.low, clip.high]).any():
        return
    remedy = f"If your activations never reach the bound, confirm with {Setting('clip', 'none')}."
    if clip.kind not in holds.open_clips:
        always = [str(fixed) for fixed in holds.fixed_clips if fixed.kind == clip.kind]
        kinds = (*holds.open_clips, *(fixed.kind for fixed in holds.fixed_clips))
        target = f"clips something else ({', '.join(kinds)})" if kinds else "has no clip"
        other = next((kind for kind in kinds if {kind, clip.kind} == _OF_THE_CELL), "")
        if other:
            target = f"computes {_CLIP_PLACES[other]}: another final cell state, and other outputs where an initial one is out of bounds"
        raise work.refuse(
            f"a clip ({clip})",
            f"it computes {_CLIP_PLACES[clip.kind]}, but the target {f'always has {always[0]}' if always else target}",
            remedy,
        )
    if clip.low != -clip.high and not holds.uneven_clips:
        raise work.refuse(f"a clip to bounds that differ ({clip})", "its clip is one number, for [-number, number]", remedy)
