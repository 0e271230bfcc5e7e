"""Bring the arrays of a stack to those that a layout has a place for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import BIAS_PARTS, Direction, Layer
from rnnconvert.language import registry
from rnnconvert.rewrites import (
    DROP_IDENTITY,
    DROP_ZEROS,
    FOLD_MERGE,
    FOLD_PROJECTION,
    SUM_BIASES,
    WIDEN,
    ZERO_BIASES,
    Step,
    each,
    zero_state,
)
from rnnconvert.rewrites.fit_to_layout.work import Fitting
from rnnconvert.rewrites.fold_merge import summed_below
from rnnconvert.rewrites.left_to_caller import without_state


def element_type(work: Fitting) -> None:
    """Write arrays of several element types in the one that holds them all, before anything is computed from them."""
    several = work.every(lambda d: len(d.dtypes) > 1)
    if several:
        types = sorted({name for direction in several for name in direction.dtypes})
        work.change(several, WIDEN.apply)
        work.done(WIDEN, f"its arrays are {' and '.join(types)}: written as {work.stack.dtype}")


def skip_input(work: Fitting) -> None:
    """Keep an input that is read unweighted where the target's first layer can do the same, in all its directions."""
    if "input" not in work.layout.part_names:
        return
    stays = work.layout.holds.skip_input and all(d.skip_input for d in work.stack.layers[0].directions)
    first = work.stack.layers[:1] if stays else ()
    work.write_identities([d for layer in work.stack.layers[len(first) :] for d in layer.directions])


def unweighted(work: Fitting) -> None:
    """Leave out identity matrices for a target that adds its input unweighted."""
    if "input" in work.layout.part_names:
        return
    weighted = work.every(lambda d: not d.skip_input)
    for direction in weighted:
        work.demand(DROP_IDENTITY.applies(direction))
    if weighted:
        work.stack = each(work.stack, DROP_IDENTITY.apply)
        work.done(DROP_IDENTITY, "identity matrices of the input left out")


def peepholes(work: Fitting) -> None:
    """Drop peepholes of zeros where the target has none."""
    if "peephole" in work.layout.part_names:
        return
    with_peepholes = work.every(lambda d: d.has_peepholes)
    for direction in with_peepholes:
        work.demand(DROP_ZEROS.applies(direction, "peephole"))
    if with_peepholes:
        work.stack = each(work.stack, lambda d: DROP_ZEROS.apply(d, "peephole"))
        work.done(DROP_ZEROS, "peepholes dropped: all are zero")


def projection(work: Fitting) -> None:
    """Fold a projection that the target does not have."""
    projected = work.every(lambda d: d.projection_size)
    if not projected or ("projection" in work.layout.part_names and _fits_projection(work, projected)):
        return
    if not work.layout.holds.readout:
        raise work.refuse(
            "a projection as wide as the cell" if "projection" in work.layout.part_names else "a projection",
            f"h' = P m with P of shape {(projected[0].projection_size, projected[0].hidden_size)}; folding it into the "
            "recurrent matrix leaves a matrix on the output, which the target has no place for",
            registry.conversion(lambda layout: layout.holds.readout, "where the matrix follows the layer"),
        )
    _leave_out_state(work, "initial_hidden")
    merged = FOLD_MERGE.apply(work.stack)
    work.demand(FOLD_PROJECTION.applies(merged))
    if summed_below(work.stack):
        work.stack = merged
        work.done(FOLD_MERGE, "sums of directions folded into the layer above")
    size = projected[0].projection_size
    work.stack = FOLD_PROJECTION.apply(work.stack)
    work.done(
        FOLD_PROJECTION,
        f"projection to {size} folded into the recurrent matrices; a matrix follows the last layer, and its hidden "
        "states are those before the projection",
    )


def _fits_projection(work: Fitting, projected: list[Direction]) -> bool:
    return work.layout.holds.full_projection or all(d.projection_size < d.hidden_size for d in projected)


def initial_states(work: Fitting) -> None:
    """Keep learned states where the target stores them, unless the caller passes them."""
    for part in ("initial_hidden", "initial_cell"):
        if "initial_state" in work.accepted or not (work.layout.holds.initial_states and part in work.layout.part_names):
            _leave_out_state(work, part)
        elif not work.layout.holds.mixed_directions:
            _state_in_each(work, part)


def _state_in_each(work: Fitting, part: str) -> None:
    """Write zeros where one direction of a layer has a learned state and the other one starts from zero."""
    layers = list(work.stack.layers)
    for index, layer in enumerate(layers):
        if any((part, "") in direction.arrays for direction in layer.directions):
            layers[index] = Layer(tuple(zero_state(d, part) for d in layer.directions), layer.merge)
    work.stack = work.stack.replace(layers=tuple(layers))


def _leave_out_state(work: Fitting, part: str) -> None:
    having = work.every(lambda d: (part, "") in d.arrays)
    learned = next((obstacle for d in having if (obstacle := DROP_ZEROS.applies(d, part))), None)
    if "initial_state" not in work.accepted:
        work.demand(learned)
    if learned:
        work.stack = without_state(work.stack, part)
        work.steps.append(Step("initial_state", work.stack.name, f"{part} left to the caller", True))
    elif having:
        work.stack = each(work.stack, lambda d: DROP_ZEROS.apply(d, part))
        work.done(DROP_ZEROS, f"{part} dropped: it is zero")


def biases(work: Fitting) -> None:
    """Bring the biases to those that the target has a place for."""
    _bias_mode(work)
    for part in BIAS_PARTS:
        gates = [gate for gate in work.stack.cell.gates if gate != work.layout.coupled]
        lacking = [gate for gate in gates if (part, gate) not in work.layout.keys]
        if lacking and part in work.layout.part_names:
            _into_the_other(work, part, lacking)


def _into_the_other(work: Fitting, part: str, lacking: Sequence[str]) -> None:
    """Sum the biases of gates that the target has no place for in one part into the other."""
    moved = work.every(lambda d: any(np.any(d.get(part, gate)) for gate in lacking))
    if moved:
        (into,) = {*BIAS_PARTS} - {part}
        for direction in moved:
            work.demand(SUM_BIASES.applies(direction, lacking, into))
        exact = all(SUM_BIASES.exact(direction, lacking, into) for direction in moved)
        work.change(moved, lambda d: SUM_BIASES.apply(d, lacking, into))
        work.done(SUM_BIASES, "the two biases of each gate but the candidate summed into one", exact)


def _bias_mode(work: Fitting) -> None:
    modes = work.layout.holds.biases
    modes_there = {direction.biases for direction in work.every(lambda d: True)}
    if len(modes_there) == 1 and modes_there <= set(modes):
        return
    if modes == ("none",):
        _no_biases(work)
        return
    wanted = next((mode for mode in ("both", "input") if mode in modes), modes[0] if modes else "")
    if wanted not in ("both", "input"):
        raise work.refuse(
            "these biases",
            f"you asked for {wanted or 'no bias mode'} only, but the layer has {', '.join(sorted(modes_there))}",
            f"Ask for two: {Setting('bias_mode', 'double')}.",
        )
    if wanted == "input":
        _one_bias(work)
    if modes_there == {"none"} and "none" in modes:
        return
    parts = ["input_bias", "recurrent_bias"] if wanted == "both" else ["input_bias"]
    if work.every(lambda d: d.biases != wanted):
        work.stack = each(work.stack, lambda d: ZERO_BIASES.apply(d, parts))
        work.done(ZERO_BIASES, "the bias vectors that the target needs are written as zeros")


def _no_biases(work: Fitting) -> None:
    """Leave out biases of zero, where the target has none."""
    for part in BIAS_PARTS:
        for direction in work.every(lambda d: True):
            work.demand(DROP_ZEROS.applies(direction, part))
        work.stack = each(work.stack, lambda d: DROP_ZEROS.apply(d, part))  # noqa: B023
    work.done(DROP_ZEROS, "biases dropped: all are zero")


def _one_bias(work: Fitting) -> None:
    summed = work.every(lambda d: d.biases in ("both", "recurrent"))
    for direction in summed:
        work.demand(SUM_BIASES.applies(direction))
    if summed:
        exact = all(SUM_BIASES.exact(direction) for direction in summed)
        work.change(summed, SUM_BIASES.apply)
        work.done(SUM_BIASES, "the two biases of each gate summed into one", exact)
