"""JAX's own LSTM, jax.experimental.rnn.lstm_ref, on cuDNN's flat buffer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.arrays import Array
from rnnconvert.executors.packages import absent
from rnnconvert.executors.reference import Outputs

NEEDS = ("jax",)


def available() -> str:
    """Why it cannot run here, or "" if it can."""
    return absent(NEEDS)


def run(
    params: Array,
    x: Array,
    *,
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    bidirectional: bool = False,
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
) -> Outputs:
    """Run an LSTM in float32.

    params   the flat buffer, with two biases
    x        (time, batch, in)
    hidden   initial states, layer by layer and in a layer its directions, each (batch, hidden); zero if None
    cell     initial cell states, likewise
    lengths  how many steps of each sequence count, (batch,); all of them if None

    Raises TypeError for a buffer of another size.
    """
    import jax.numpy as jnp
    from jax.experimental import rnn

    sizes = (input_size, hidden_size, num_layers, bidirectional)
    steps, batch, _ = np.shape(x)
    zero = np.zeros((num_layers * (1 + bidirectional), batch, hidden_size), np.float32)
    states = [zero if state is None else np.stack(list(state)).astype(np.float32) for state in (hidden, cell)]
    limit = np.full(batch, steps) if lengths is None else np.asarray(lengths)
    y, h, c = rnn.lstm_ref(
        jnp.asarray(np.asarray(x, np.float32).swapaxes(0, 1)),
        *map(jnp.asarray, states),
        *rnn.unpack_lstm_weights(jnp.asarray(params, jnp.float32), *sizes),
        jnp.asarray(limit, jnp.int32),
        input_size,
        hidden_size,
        num_layers,
        0.0,
        bidirectional,
    )
    return Outputs(np.asarray(y).swapaxes(0, 1), tuple(np.asarray(h)), tuple(np.asarray(c)))
