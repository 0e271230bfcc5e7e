"""Small models of an Embedding, a recurrent layer and a Dense one, trained in PyTorch, Keras and JAX in double precision.

Hyperparameters are binary fractions: Keras keeps a Python float in single precision before it computes in double.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

TOKENS, WIDTH, UNITS, OUT, STEPS = 7, 3, 4, 2, 5
TINY, SQUARED = 2.0**-60, 2.0**-120
"""An epsilon that no step shows, wherever it stands, and what it is under a square root."""

OPTIMIZERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.125}, {"learning_rate": 0.125}),
    "momentum": ("SGD", {"lr": 0.125, "momentum": 0.5}, {"learning_rate": 0.125, "momentum": 0.5}),
    "nesterov": ("SGD", {"lr": 0.125, "momentum": 0.5, "nesterov": True},
                 {"learning_rate": 0.125, "momentum": 0.5, "nesterov": True}),
    "adam": ("Adam", {"lr": 2**-6, "betas": (0.875, 1 - 2**-7), "eps": TINY},
             {"learning_rate": 2**-6, "beta_1": 0.875, "beta_2": 1 - 2**-7, "epsilon": TINY}),
    "amsgrad": ("Adam", {"lr": 2**-6, "betas": (0.875, 0.75), "eps": TINY, "amsgrad": True},
                {"learning_rate": 2**-6, "beta_1": 0.875, "beta_2": 0.75, "epsilon": TINY, "amsgrad": True}),
    "adamw": ("AdamW", {"lr": 2**-6, "betas": (0.875, 1 - 2**-7), "eps": TINY, "weight_decay": 0.25},
              {"learning_rate": 2**-6, "beta_1": 0.875, "beta_2": 1 - 2**-7, "epsilon": TINY, "weight_decay": 0.25}),
    "rmsprop": ("RMSprop", {"lr": 2**-6, "alpha": 0.875, "eps": TINY},
                {"learning_rate": 2**-6, "rho": 0.875, "epsilon": SQUARED}),
    "centered": ("RMSprop", {"lr": 2**-6, "alpha": 0.875, "eps": TINY, "momentum": 0.5, "centered": True},
                 {"learning_rate": 2**-6, "rho": 0.875, "epsilon": SQUARED, "momentum": 0.5, "centered": True}),
    "adagrad": ("Adagrad", {"lr": 2**-6, "eps": TINY}, {"learning_rate": 2**-6, "epsilon": SQUARED}),
}  # fmt: skip
"""For each optimizer its class, and what torch.optim and Keras are told for the same steps."""


def batch(seed: int) -> tuple[Any, Any]:
    """Sentences of tokens, some of them twice, and what the model should give at each."""
    random = np.random.default_rng(seed)
    return random.integers(0, TOKENS, (4, STEPS)), random.standard_normal((4, STEPS, OUT))


def torch_model(cell: str, seed: int = 0) -> Any:
    """A torch module; `cell` is "GRU" or "LSTM"."""
    import torch

    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = torch.nn.Embedding(TOKENS, WIDTH)
            self.rnn = getattr(torch.nn, cell)(WIDTH, UNITS, batch_first=True)
            self.out = torch.nn.Linear(UNITS, OUT)

        def forward(self, x: Any) -> Any:
            return self.out(self.rnn(self.emb(x))[0])

    torch.manual_seed(seed)
    return Tagger().double()


def torch_step(model: Any, optimizer: Any, seed: int) -> None:
    """One step of training."""
    import torch

    x, y = (torch.tensor(values) for values in batch(seed))
    optimizer.zero_grad()
    ((model(x) - y) ** 2).mean().backward()
    optimizer.step()


def keras_model(cell: str, seed: int = 0) -> Any:
    """A Keras model of the same layers, with the same names."""
    import keras

    keras.utils.set_random_seed(seed)
    layers = keras.layers
    kind = getattr(layers, cell)
    return keras.Sequential(
        [
            keras.Input((STEPS,)),
            layers.Embedding(TOKENS, WIDTH, name="emb", dtype="float64"),
            kind(UNITS, return_sequences=True, name="rnn", dtype="float64"),
            layers.Dense(OUT, name="out", dtype="float64"),
        ]
    )


def keras_step(model: Any, optimizer: Any, seed: int, dense: bool = True) -> None:
    """One step of training; `dense` puts the gradient of the Embedding into one array first."""
    import tensorflow as tf

    x, y = batch(seed)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    if dense:
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    optimizer.apply(gradients, model.trainable_variables)


def torch_optimizer(model: Any, name: str, **changes: Any) -> Any:
    """A torch.optim optimizer of OPTIMIZERS."""
    import torch

    kind, ours, _ = OPTIMIZERS[name]
    return getattr(torch.optim, kind)(model.parameters(), **{**ours, **changes})


def keras_optimizer(model: Any, name: str, **changes: Any) -> Any:
    """The same optimizer of Keras, built for the model."""
    import keras

    kind, _, theirs = OPTIMIZERS[name]
    optimizer = getattr(keras.optimizers, kind)(**{**theirs, **changes})
    optimizer.build(model.trainable_variables)
    return optimizer


def tree(arrays: Any, mark: str) -> dict[str, Any]:
    """Arrays by name as a tree of JAX arrays, whose levels the names show."""
    import jax.numpy as jnp

    root: dict[str, Any] = {}
    for name, array in arrays.items():
        *levels, last = name.split(mark)
        place = root
        for level in levels:
            place = place.setdefault(level, {})
        place[last] = jnp.asarray(array)
    return root


def flat(values: Any, mark: str, prefix: str = "") -> dict[str, Any]:
    """The arrays of such a tree by name again."""
    arrays: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            arrays |= flat(value, mark, f"{prefix}{key}{mark}")
        else:
            arrays[prefix + key] = np.asarray(value)
    return arrays


def jax_gru(weights: Any, x: Any) -> Any:
    """The model that torch_model("GRU") is, on its weights as a tree."""
    import jax
    import jax.numpy as jnp

    rnn = weights["rnn"]

    def cell(h: Any, inputs: Any) -> Any:
        ahead = inputs @ rnn["weight_ih_l0"].T + rnn["bias_ih_l0"]
        back = h @ rnn["weight_hh_l0"].T + rnn["bias_hh_l0"]
        r, z = (jax.nn.sigmoid(ahead[:, k * UNITS : (k + 1) * UNITS] + back[:, k * UNITS : (k + 1) * UNITS]) for k in (0, 1))
        n = jnp.tanh(ahead[:, 2 * UNITS :] + r * back[:, 2 * UNITS :])
        h = (1 - z) * n + z * h
        return h, h

    inputs = jnp.swapaxes(weights["emb"]["weight"][x], 0, 1)
    _, outputs = jax.lax.scan(cell, jnp.zeros((x.shape[0], UNITS), inputs.dtype), inputs)
    return jnp.swapaxes(outputs, 0, 1) @ weights["out"]["weight"].T + weights["out"]["bias"]


def jax_lstm(weights: Any, x: Any) -> Any:
    """The model that keras_model("LSTM") is, on its weights as a tree."""
    import jax
    import jax.numpy as jnp

    rnn = weights["rnn"]["lstm_cell"]

    def cell(state: Any, inputs: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(inputs @ rnn["kernel"] + h @ rnn["recurrent_kernel"] + rnn["bias"], 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    inputs = jnp.swapaxes(weights["emb"]["embeddings"][x], 0, 1)
    zero = jnp.zeros((x.shape[0], UNITS), inputs.dtype)
    _, outputs = jax.lax.scan(cell, (zero, zero), inputs)
    return jnp.swapaxes(outputs, 0, 1) @ weights["out"]["kernel"] + weights["out"]["bias"]


@functools.cache
def _gradient(function: Any) -> Any:
    import jax

    return jax.jit(jax.grad(lambda weights, x, y: ((function(weights, x) - y) ** 2).mean()))


def jax_step(function: Any, weights: Any, optimizer: Any, state: Any, seed: int) -> tuple[Any, Any]:
    """One step of training: new weights and a new state."""
    import optax

    x, y = batch(seed)
    gradients = _gradient(function)(weights, x, y)
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state


def optax_optimizer(name: str, rate: float | None = None) -> Any:
    """The optimizer of OPTIMIZERS as optax has it."""
    import optax

    betas = {"b1": 0.875, "b2": 1 - 2**-7, "eps": TINY}
    makes: dict[str, Any] = {
        "momentum": lambda: optax.sgd(rate or 0.125, momentum=0.5),
        "nesterov": lambda: optax.sgd(rate or 0.125, momentum=0.5, nesterov=True),
        "adam": lambda: optax.adam(rate or 2**-6, **betas),
        "adamw": lambda: optax.adamw(rate or 2**-6, **betas, weight_decay=0.25),
        "rmsprop": lambda: optax.rmsprop(rate or 2**-6, decay=0.875, eps=TINY, eps_in_sqrt=False),
        "centered": lambda: optax.rmsprop(rate or 2**-6, decay=0.875, eps=TINY, eps_in_sqrt=False, centered=True, momentum=0.5),
        "adagrad": lambda: optax.adagrad(rate or 2**-6, initial_accumulator_value=0.0, eps=SQUARED),
    }
    return makes[name]()
