"""Keras's own recurrent layers, on the variables of one layer, on whichever backend Keras is set to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.arrays import Array
from rnnconvert.executors.packages import absent
from rnnconvert.executors.reference import Outputs

NEEDS = ("keras", "tensorflow")


def available() -> str:
    """Why it cannot run here, or "" if it can."""
    return absent(NEEDS)


def run(
    arrays: Mapping[str, Array],
    x: Array,
    layer: str,
    *,
    backward: Mapping[str, Array] | None = None,
    merge_mode: str | None = "concat",
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
    **options: Any,
) -> Outputs:
    """Run a keras.layers layer in the element type of its weights, alone or under Bidirectional.

    arrays      the layer's variables by name: kernel, recurrent_kernel, bias
    x           (time, batch, in)
    layer       "SimpleRNN", "GRU" or "LSTM"
    backward    the variables of the backward layer of a Bidirectional
    merge_mode  that of the Bidirectional; outputs that it keeps apart (None) stand side by side
    hidden      initial states, forward then backward, each (batch, hidden); zero if None
    cell        initial cell states of an LSTM, likewise
    lengths     how many steps of each sequence count, (batch,); all of them if None
    options     the layer's own: activation, recurrent_activation, reset_after, go_backwards

    Raises KeyError for a variable that is absent, ValueError for one of another shape.
    """
    import keras

    dtype = arrays["recurrent_kernel"].dtype
    made: Any = _layer(layer, arrays, options)
    if backward is not None:
        other = _layer(layer, backward, {**options, "go_backwards": True})
        made = keras.layers.Bidirectional(made, backward_layer=other, merge_mode=merge_mode, dtype=dtype.name)
    sequence = np.asarray(x, dtype).swapaxes(0, 1)
    made.build(sequence.shape)
    # Bidirectional makes new layers from the configuration of those that it is given.
    ways = [made] if backward is None else [made.forward_layer, made.backward_layer]
    for way, own in zip(ways, (arrays, backward or {}), strict=False):
        for variable in way.weights:
            variable.assign(own[variable.name])
    states = [] if hidden is None else _interleaved(hidden, cell if layer == "LSTM" else None)
    steps = np.arange(len(x))
    result = made(
        keras.ops.convert_to_tensor(sequence),
        initial_state=[keras.ops.convert_to_tensor(np.asarray(state, dtype)) for state in states] or None,
        mask=None if lengths is None else keras.ops.convert_to_tensor(steps < np.asarray(lengths)[:, None]),
    )
    numbers = [keras.ops.convert_to_numpy(value) for value in result]
    apart = 2 if backward is not None and merge_mode is None else 1
    y = np.concatenate(numbers[:apart], axis=-1).swapaxes(0, 1)
    step = 2 if layer == "LSTM" else 1
    return Outputs(y, tuple(numbers[apart::step]), tuple(numbers[apart + 1 :: 2]) if step == 2 else ())


def _layer(layer: str, arrays: Mapping[str, Array], options: Mapping[str, Any]) -> Any:
    import keras

    return getattr(keras.layers, layer)(
        arrays["recurrent_kernel"].shape[0],
        use_bias="bias" in arrays,
        dtype=arrays["recurrent_kernel"].dtype.name,
        return_sequences=True,
        return_state=True,
        zero_output_for_mask=True,
        **options,
    )


def _interleaved(hidden: Sequence[Array], cell: Sequence[Array] | None) -> list[Array]:
    """[h, c] of one direction after the other's, as Bidirectional takes them."""
    return [state for pair in zip(hidden, *([cell] if cell else []), strict=True) for state in pair]
