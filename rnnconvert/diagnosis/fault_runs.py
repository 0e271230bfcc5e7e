"""Wrong ways to run right weights: each gives what a framework or a caller that does so would give, or None.

None means that the case cannot show it: no lengths to ignore, no states to exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.judging.case_kinds import Case, state_widths
from rnnconvert.rewrites import JOIN_WITH_ZEROS

Run = Callable[[Recurrent, Case, Any], Outputs | None]
"""Computes the outputs of a stack for a case, in an arithmetic."""


def _padded(case: Case) -> bool:
    return case.lengths is not None and bool((case.lengths < len(case.x)).any())


def _live(case: Case) -> Array:
    return (np.arange(len(case.x))[:, None] < np.asarray(case.lengths))[:, :, None]


def lengths_ignored(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Run every sequence to the end of the batch."""
    return replace(case, lengths=None).solve(stack, dtype) if _padded(case) else None


def padded_steps_computed(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Let outputs go on past a sequence's end; the final states are right."""
    if not _padded(case) or any(d.reverse for *_, d in stack.directions()):
        return None
    right, on = case.solve(stack, dtype), replace(case, lengths=None).solve(stack, dtype)
    return replace(right, y=on.y)


def padded_steps_repeat(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Repeat a sequence's last output past its end, as Keras does after a mask."""
    if not _padded(case) or stack.output_order != "time":
        return None
    right = case.solve(stack, dtype)
    last = np.maximum(np.asarray(case.lengths) - 1, 0)
    repeated = right.y[last, np.arange(right.y.shape[1])]
    return replace(right, y=np.where(_live(case), right.y, repeated))


def final_states_at_the_end(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Mask the outputs, but let the final states go on through the padding."""
    if not _padded(case):
        return None
    on = replace(case, lengths=None).solve(stack, dtype)
    return replace(case.solve(stack, dtype), hidden=on.hidden, cell=on.cell)


def initial_states_ignored(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Start the sequence from zero, or from the learned state, even if states are given."""
    return None if case.hidden is None else replace(case, hidden=None, cell=None).solve(stack, dtype)


def initial_states_of_ones(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Begin a sequence without a given state with ones, as Lux's RNNCell did before 1.0."""
    if case.hidden is not None or any(part.startswith("initial") for *_, d in stack.directions() for part, _ in d.arrays):
        return None
    widths = state_widths(stack)
    hidden, cell = (tuple(np.ones((case.x.shape[1], width)) for width in sizes) for sizes in widths)
    return replace(case, hidden=hidden, cell=cell).solve(stack, dtype)


def cell_state_ignored(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Ignore the initial cell state, but not the hidden one."""
    if not case.cell:
        return None
    return replace(case, cell=tuple(np.zeros_like(state) for state in case.cell)).solve(stack, dtype)


def states_exchanged(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Give h_0 as c_0 and c_0 as h_0."""
    if not case.hidden or not case.cell or any(d.projection_size for *_, d in stack.directions()):
        return None
    return replace(case, hidden=case.cell, cell=case.hidden).solve(stack, dtype)


def _direction_major(stack: Recurrent, states: Sequence[Array]) -> tuple[Array, ...] | None:
    """Return states layer by layer from states direction by direction; None where both are the same or this is impossible."""
    if not states or stack.num_layers < 2 or stack.num_directions < 2 or len({state.shape for state in states}) > 1:
        return None
    return tuple(states[d * stack.num_layers + la] for la in range(stack.num_layers) for d in range(2))


def initial_states_by_direction(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Take initial states to be direction by direction."""
    hidden = _direction_major(stack, case.hidden or ())
    if not case.hidden or hidden is None:
        return None
    cell = _direction_major(stack, case.cell) if case.cell else case.cell
    return replace(case, hidden=hidden, cell=cell).solve(stack, dtype)


def final_states_by_direction(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Give final states direction by direction."""
    if stack.num_layers < 2 or stack.num_directions < 2:
        return None
    right = case.solve(stack, dtype)
    hidden = _direction_major(stack, right.hidden)
    cell = _direction_major(stack, right.cell) if right.cell else right.cell
    return None if hidden is None or cell is None else replace(right, hidden=hidden, cell=cell)


def final_states_are_initial(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Give the initial states back unchanged, as onnx2tf 2.6.9 does."""
    if case.hidden is None:
        return None
    initial = [tuple(np.asarray(s, dtype) for s in states or ()) for states in (case.hidden, case.cell)]
    return replace(case.solve(stack, dtype), hidden=initial[0], cell=initial[1])


def backward_final_state_at_the_end(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Take the backward direction's final state from the output at the last time step, where it has only begun."""
    layer = stack.layers[-1]
    if len(layer.directions) < 2 or layer.merge not in ("concat", "none") or stack.readout:
        return None
    right = case.solve(stack, dtype)
    last = len(case.x) - 1 if case.lengths is None else np.maximum(np.asarray(case.lengths) - 1, 0)
    final_states = right.y[last, np.arange(right.y.shape[1])][:, layer.directions[0].output_size :]
    return replace(right, hidden=(*right.hidden[:-1], final_states))


def state_not_carried(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Start each part afresh when a sequence is fed in parts."""
    if case.way == "whole" or len(case.x) < 2:
        return None
    cuts = list(range(len(case.x))) if case.way == "steps" else [0, len(case.x) // 2]
    outputs = []
    for start, stop in zip(cuts, [*cuts[1:], len(case.x)], strict=True):
        lengths = None if case.lengths is None else np.clip(case.lengths - start, 0, stop - start)
        part = replace(case, x=case.x[start:stop], lengths=lengths)
        outputs.append((replace(part, hidden=None, cell=None) if start else part).solve(stack, dtype))
    return replace(outputs[-1], y=np.concatenate([part.y for part in outputs]))


def batch_and_time_exchanged(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Read (batch, time, in) as (time, batch, in), like ONNX's layout=1 taken for 0, and turn the output back."""
    time, batch = case.x.shape[:2]
    if time != batch and (case.hidden is not None or case.lengths is not None):
        return None
    outputs = replace(case, x=case.x.swapaxes(0, 1)).solve(stack, dtype)
    y = outputs.y.swapaxes(0, 1)
    return replace(outputs, y=y) if time == batch else Outputs(y, ())


def outputs_reversed(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Give outputs in processing order where time order is right, or the reverse."""
    other = "time" if stack.output_order == "processing" else "processing"
    if other == "processing" and not (stack.num_directions == 1 and stack.first.reverse):
        return None
    return case.solve(stack.replace(output_order=other), dtype)


def output_halves_exchanged(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Give the output backward, then forward."""
    layer = stack.layers[-1]
    if len(layer.directions) < 2 or layer.merge not in ("concat", "none"):
        return None
    right = case.solve(stack, dtype)
    cut = stack.readout[0].shape[0] if stack.readout else layer.directions[0].output_size
    return replace(right, y=np.concatenate([right.y[..., cut:], right.y[..., :cut]], axis=-1))


def _layer_by_layer(
    stack: Recurrent, case: Case, dtype: Any, lengths: Callable[[bool], Array | None], turn: bool, exchange: bool
) -> Outputs:
    """Run a stack one direction of one layer at a time.

    lengths   the lengths that a direction sees, by whether it reads from the end
    turn      whether outputs of directions that read from the end stay in the order in which they were computed
    exchange  whether halves are joined in the other order
    """
    if stack.join == "end" and stack.num_layers > 1:
        stack = JOIN_WITH_ZEROS.apply(stack)
    below, number = np.asarray(case.x), 0
    hidden: list[Array] = []
    cell: list[Array] = []
    for index, layer in enumerate(stack.layers):
        outputs = []
        for side, direction in enumerate(layer.directions):
            single = stack.replace(layers=(Layer((direction,)),), join="layer", output_order="time", readout=(), unconvertible=())
            h, c = (None if not states else (states[number],) for states in (case.hidden, case.cell))
            layer_outputs = reference.run(single, below, h, c, lengths(direction.reverse), dtype)
            y = layer_outputs.y
            if case.lengths is not None:
                y = np.where(_live(case), y, np.zeros_like(y))
            if turn and direction.reverse:
                y = _turned(y, case.lengths)
            if index == stack.num_layers - 1 and stack.readout:
                y = y @ np.asarray(stack.readout[side]).astype(dtype).T
            outputs.append(y)
            hidden += layer_outputs.hidden
            cell += layer_outputs.cell
            number += 1
        below = merged(outputs[::-1] if exchange else outputs, layer.merge)
    y = below[::-1] if stack.output_order == "processing" else below
    return Outputs(y, tuple(hidden), tuple(cell))


def _turned(y: Array, lengths: Array | None) -> Array:
    """Return every sequence's valid steps from the last to the first."""
    if lengths is None:
        return y[::-1]
    turned = y.copy()
    for row, length in enumerate(lengths):
        turned[:length, row] = y[:length, row][::-1]
    return turned


def merged(outputs: Sequence[Array], merge: str) -> Array:
    """Return the outputs of a layer's directions joined."""
    if len(outputs) == 1:
        return outputs[0]
    if merge in ("concat", "none"):
        return np.concatenate(outputs, axis=-1)
    joined = outputs[0] * outputs[1] if merge == "mul" else outputs[0] + outputs[1]
    return joined / 2 if merge == "ave" else joined


def backward_in_processing_order(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Join backward outputs to the forward ones without reversing them, in every layer."""
    if stack.num_directions < 2:
        return None
    return _layer_by_layer(stack, case, dtype, lambda reverse: case.lengths, True, False)


def padding_read_backwards(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Begin in the padding in every direction that reads from the end."""
    if not _padded(case) or not any(d.reverse for *_, d in stack.directions()):
        return None
    return _layer_by_layer(stack, case, dtype, lambda reverse: None if reverse else case.lengths, False, False)


def halves_exchanged(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Join backward, then forward, in every layer."""
    layers = [layer for layer in stack.layers if len(layer.directions) == 2]
    equal = all(len({d.output_size for d in layer.directions}) == 1 for layer in layers)
    if stack.num_layers < 2 or not layers or not equal or any(la.merge not in ("concat", "none") for la in layers):
        return None
    return _layer_by_layer(stack, case, dtype, lambda reverse: case.lengths, False, True)


def old_cell(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Let the output's peephole see the cell state from before the step."""
    if not any(("peephole", "o") in d.arrays for *_, d in stack.directions()):
        return None
    return case.solve(stack, dtype, ["old cell"])


def clip_output(stack: Recurrent, case: Case, dtype: Any) -> Outputs | None:
    """Apply ONNX's clip also to the cell state on its way to the output function."""
    if not any(d.cell.kind == "lstm" and any(c.kind == "gates" for c in d.cell.clips) for *_, d in stack.directions()):
        return None
    return case.solve(stack, dtype, ["clip output"])
