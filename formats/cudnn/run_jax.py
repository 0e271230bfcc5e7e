"""JAX's own LSTM on cuDNN's flat buffer: jax.experimental.rnn, in plain JAX (lstm_ref) or through cuDNN (lstm).

The latter needs an NVIDIA GPU; it has run on an H100. Source: jax/experimental/rnn.py (0.10, 0.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnconvert.running.sequences import STATES, Sequences, outputs

Array = np.ndarray

NEEDS = ("jax",)
FORMAT = "cudnn"
BUFFER_KEY = "rnnconvert.cudnn"  # where a .safetensors has the description of its flat buffers
SUFFIX = ".bin"
SUPPORTS = "an LSTM with both biases and no projection; lengths, none zero; gradients; float32"
CANNOT = {"how": "the description already states what is computed"}
VARIANTS: dict[str, dict[str, Any]] = {
    "jax-cpu": {"device": "cpu", "environment": {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}},
    "jax-cuda": {"device": "cuda", "environment": {"JAX_PLATFORMS": "cuda"}},
}


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although jax and its device are there, or "" if it can; JAX's plugin shows when it runs."""
    return ""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a flat buffer with its description; see rnnconvert.running."""
    description = request["description"]
    for key, plain in (("bias_mode", "double"), ("input_mode", "linear"), ("dtype", "float32"), ("cell", "lstm")):
        if description.get(key, plain) != plain:
            raise NotImplementedError(f"{key} {description[key]}: JAX's buffer is a float32 LSTM's with both biases")
    if description.get("projection_size", 0) not in (0, description["hidden_size"]) or description.get("clip"):
        raise NotImplementedError("a projection or a clip: JAX's LSTM has none")
    return run(request["buffer"], description, Sequences.of(request), request["variant"]["device"] == "cuda")


def run(params: Array, description: Mapping[str, Any], sequences: Sequences, cuda: bool = False) -> dict[str, Any]:
    """Run an LSTM in float32.

    params       the flat buffer, with two biases
    description  input_size, hidden_size, num_layers and bidirectional, as the buffer's description has them
    cuda         whether cuDNN runs it

    Raises TypeError for a buffer of another size.
    """
    import jax
    import jax.numpy as jnp
    from jax.experimental import rnn

    sizes = (*(description[name] for name in ("input_size", "hidden_size", "num_layers")), bool(description["bidirectional"]))
    steps, batch, _ = np.shape(sequences.x)
    sequences.refuse_empty("jax.experimental.rnn does not return its initial state as the final one")
    states = sequences.initial(dict.fromkeys(STATES, sizes[1]), sizes[2] * (1 + sizes[3]))
    limit = jnp.asarray(np.full(batch, steps) if sequences.lengths is None else np.asarray(sequences.lengths), jnp.int32)

    def forward(flat: Any, sequence: Any, h: Any, c: Any) -> tuple[Any, ...]:
        if cuda:
            exact = jax.lax.Precision.HIGHEST  # any other may be TF32
            return tuple(rnn.lstm(sequence, h, c, flat, limit, *sizes[:3], 0.0, sizes[3], exact)[:3])
        weights = rnn.unpack_lstm_weights(flat, *sizes)
        return tuple(rnn.lstm_ref(sequence, h, c, *weights, limit, *sizes[:3], 0.0, sizes[3]))

    def batch_first(y: Any, *others: Any) -> list[Any]:
        return [jnp.asarray(np.asarray(value), jnp.float32) for value in (np.asarray(y).swapaxes(0, 1), *others)]

    def time_first(y: Any, *others: Any) -> list[Array]:
        return [np.ascontiguousarray(np.asarray(y).swapaxes(0, 1)), *map(np.asarray, others)]

    leaves = [jnp.asarray(params, jnp.float32), *batch_first(sequences.x, *states.values())]
    if not sequences.cotangents:
        return outputs(*time_first(*forward(*leaves)))
    scales = batch_first(*sequences.scales(STATES))

    def total(*leaves: Any) -> tuple[Any, tuple[Any, ...]]:
        values = forward(*leaves)
        weighed = [(value * scale).sum() for value, scale in zip(values, scales)]
        return sum(weighed[1:], weighed[0]), values

    (of_params, *slopes), values = jax.grad(total, argnums=(0, 1, 2, 3), has_aux=True)(*leaves)
    of_x, *of_states = time_first(*slopes)
    gradients = sequences.gradients(of_x, dict(zip(STATES, of_states)), {"params": np.asarray(of_params)})
    return {**outputs(*time_first(*values)), "gradients": gradients}
