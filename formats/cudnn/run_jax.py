"""JAX's own LSTM on cuDNN's flat buffer: jax.experimental.rnn, in plain JAX (lstm_ref) or through cuDNN (lstm).

The authors of this file have not run the latter, which needs an NVIDIA GPU. Source: jax/experimental/rnn.py (0.10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
    arguments = {name: request.get(name) for name in ("hidden", "cell", "lengths", "cotangents")}
    return run(request["buffer"], request["x"], description, request["variant"]["device"] == "cuda", **arguments)


def run(
    params: Array,
    x: Array,
    description: Mapping[str, Any],
    cuda: bool = False,
    *,
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
    cotangents: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run an LSTM in float32.

    params       the flat buffer, with two biases
    x            (time, batch, in)
    description  input_size, hidden_size, num_layers and bidirectional, as the buffer's description has them
    cuda         whether cuDNN runs it
    hidden       initial states, and the rest as in a request (rnnconvert.running); the answer likewise

    Raises TypeError for a buffer of another size.
    """
    import jax
    import jax.numpy as jnp
    from jax.experimental import rnn

    sizes = (*(description[name] for name in ("input_size", "hidden_size", "num_layers")), bool(description["bidirectional"]))
    steps, batch, _ = np.shape(x)
    if lengths is not None and np.min(lengths) < 1:
        raise NotImplementedError("a sequence of length zero: jax.experimental.rnn returns the state of another step for it")
    zero = np.zeros((sizes[2] * (1 + sizes[3]), batch, sizes[1]), np.float32)
    states = [zero if not state else np.stack(list(state)).astype(np.float32) for state in (hidden, cell)]
    limit = jnp.asarray(np.full(batch, steps) if lengths is None else np.asarray(lengths), jnp.int32)

    def forward(flat: Any, sequence: Any, h: Any, c: Any) -> tuple[Any, ...]:
        if cuda:
            exact = jax.lax.Precision.HIGHEST  # any other may be TF32
            return tuple(rnn.lstm(sequence, h, c, flat, limit, *sizes[:3], 0.0, sizes[3], exact)[:3])
        weights = rnn.unpack_lstm_weights(flat, *sizes)
        return tuple(rnn.lstm_ref(sequence, h, c, *weights, limit, *sizes[:3], 0.0, sizes[3]))

    sequence = np.asarray(x, np.float32).swapaxes(0, 1)
    leaves = [jnp.asarray(value) for value in (np.asarray(params, np.float32), sequence, *states)]
    if not cotangents:
        return _answer(forward(*leaves))
    scales = [np.asarray(cotangents["y"]).swapaxes(0, 1), np.stack(cotangents["hidden"]), np.stack(cotangents["cell"])]

    def total(*leaves: Any) -> tuple[Any, tuple[Any, ...]]:
        outputs = forward(*leaves)
        weighed = [(value * scale.astype(np.float32)).sum() for value, scale in zip(outputs, scales)]
        return sum(weighed[1:], weighed[0]), outputs

    slopes, outputs = jax.grad(total, argnums=(0, 1, 2, 3), has_aux=True)(*leaves)
    of_x = _answer(slopes[1:])
    gradients = {
        "x": of_x["y"],
        "hidden": of_x["hidden"] if hidden else [],
        "cell": of_x["cell"] if cell else [],
        "weights": {"": {"params": np.asarray(slopes[0])}},
    }
    return {**_answer(outputs), "gradients": gradients}


def _answer(values: Sequence[Any]) -> dict[str, Any]:
    y, h, c = map(np.asarray, values)
    return {"y": np.ascontiguousarray(y.swapaxes(0, 1)), "hidden": list(h), "cell": list(c)}
