"""The conventions that programs differ in, one table: what `identify` searches among, and what `diagnose` takes to be wrong."""

from __future__ import annotations

import itertools

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, SIGMOID, TANH, Activation

Functions = tuple[Activation, Activation, Activation]
"""Of the gates, of the candidate, of an LSTM's output."""

_NAMED = (
    "tanh", "relu", "sigmoid", "linear", "softsign", "softplus", "silu", "gelu", "selu", "elu", "exponential", "leaky_relu",
)  # fmt: skip
CANDIDATES = (*map(Activation, _NAMED), Activation("leaky_relu", 0.3), HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3)
"""Functions of the candidate."""
GATE_FUNCTIONS = (SIGMOID, HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3)
"""Functions of the gates."""


def functions(kind: str, plain: bool) -> list[Functions]:
    """Return the usual functions; or all others."""
    if plain:
        return [(SIGMOID, TANH, TANH)]
    gates = GATE_FUNCTIONS if kind != "rnn" else GATE_FUNCTIONS[:1]
    every = [
        (gate, candidate, output)
        for gate, candidate in itertools.product(gates, CANDIDATES)
        for output in (dict.fromkeys((candidate, TANH)) if kind == "lstm" else (TANH,))
    ]
    return [one for one in every if one != (SIGMOID, TANH, TANH)]
