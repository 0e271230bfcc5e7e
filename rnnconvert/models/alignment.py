"""Outputs of two whole models, brought to the same steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.models.model import Unit
from rnnconvert.models.runners import Tap


def align(taps: Sequence[Tap], unit: Unit) -> list[Array] | None:
    """Return the outputs of several models, all as sequences or all as last outputs; None if that is impossible.

    If one of them knows the lengths of its sequences, the steps after them are left out: frameworks fill them differently.
    """
    lengths = next((tap.lengths for tap in taps if tap.lengths is not None), None)
    if all(tap.sequence is not None for tap in taps):
        return [_counted(tap.sequence, lengths) for tap in taps if tap.sequence is not None]
    last = [_last(tap, unit, lengths) for tap in taps]
    return None if any(tap is None for tap in last) else [tap for tap in last if tap is not None]


def _counted(sequence: Array, lengths: Array | None) -> Array:
    """Return a sequence (time, batch, unit) up to the longest of these lengths, zero after each."""
    if lengths is None or sequence.shape[1] != len(lengths):
        return sequence
    steps = np.arange(len(sequence))[: lengths.max()]
    return np.where((steps[:, None] < lengths)[..., None], sequence[: len(steps)], np.zeros((), sequence.dtype))


def _last(tap: Tap, unit: Unit, lengths: Array | None) -> Array | None:
    """Return the last output; that of a backward direction is at the first step."""
    if tap.last is not None or tap.sequence is None:
        return tap.last
    stack = unit.stack
    assert stack is not None
    if stack.num_directions == 1:
        backward = stack.first.reverse and stack.output_order == "time"
        return np.asarray(tap.sequence[0]) if backward else _end(tap.sequence, lengths)
    if stack.layers[-1].merge != "concat":
        return None
    width = stack.layers[-1].directions[0].output_size
    return np.concatenate([_end(tap.sequence, lengths)[:, :width], tap.sequence[0, :, width:]], axis=-1)


def _end(sequence: Array, lengths: Array | None) -> Array:
    """Return the last step of each sequence."""
    if lengths is None or sequence.shape[1] != len(lengths):
        return np.asarray(sequence[-1])
    return np.asarray(sequence[np.maximum(lengths, 1) - 1, np.arange(len(lengths))])
