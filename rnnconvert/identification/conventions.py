"""The conventions that programs differ in, one table: what `identify` searches among, and what `diagnose` takes to be wrong."""

from __future__ import annotations

import itertools

from rnnconvert.core.cells import SIGMOID, TANH, Activation
from rnnconvert.language import registry

Functions = tuple[Activation, Activation, Activation]
"""Of the gates, of the candidate, of an LSTM's output."""

_NAMED = ("tanh", "relu", "sigmoid", "linear", "softsign", "softplus", "silu", "gelu", "selu", "elu", "exponential", "leaky_relu")
GATE_FUNCTIONS: dict[str, Activation] = {
    **{name: function for system in registry.systems().values() for name, function in system.functions.items()},
    "sigmoid": SIGMOID,
}
"""Functions of the gates, by the names that reports have for them: those that a system declares, and sigmoid."""
CANDIDATES: dict[str, Activation] = {
    **{name: Activation(name) for name in _NAMED},
    "leaky_relu of slope 0.3": Activation("leaky_relu", 0.3),
    **{name: function for name, function in GATE_FUNCTIONS.items() if function != SIGMOID},
}
"""Functions of the candidate, likewise."""
FORGET_BIAS = 1.0
"""The usual constant for the forget gate at run time, if there is one."""
SIGNED = {"gru": "z"}
"""The gate that may be stored with the other sign."""


def reset_modes(kind: str) -> tuple[bool, ...] | tuple[None]:
    """Return whether the reset gate may come after the product, or before it; of a GRU, both."""
    return (True, False) if kind == "gru" else (None,)


def functions(kind: str, plain: bool) -> list[Functions]:
    """Return the usual functions; or all others."""
    if plain:
        return [(SIGMOID, TANH, TANH)]
    gates = GATE_FUNCTIONS.values() if kind != "rnn" else (SIGMOID,)
    every = [
        (gate, candidate, output)
        for gate, candidate in itertools.product(gates, CANDIDATES.values())
        for output in (dict.fromkeys((candidate, TANH)) if kind == "lstm" else (TANH,))
    ]
    return [choice for choice in every if choice != (SIGMOID, TANH, TANH)]
