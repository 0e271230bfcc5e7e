"""Keras models as they compute exactly enough to be compared, and as inexactly as rounding makes them.

An executor's own and the caller's live models go through here; it imports numpy alone, and Keras 3 or tf_keras when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

MIXED = ("mixed_float16", "mixed_bfloat16")
"""The policies of layers whose weights are float32 and which compute in a coarser type."""

_BOUNDED = ("tanh", "sigmoid", "hard_sigmoid", "softsign", "hard_tanh")
"""Functions whose values a gate's own rounding cannot make more of than rounding at 1."""
_WAVES = 40.0
"""The error of a gate changes its sign whenever the argument moves on by pi / 40, as in rnnconvert.judging.rounding."""


def exact(live: Any) -> tuple[Any, str]:
    """Return a model of mixed precision as one that computes in float32, as its weights are, and a note; any other as it is, and "".

    Half precision would hide what another model does differently. A subclassed model, which Keras cannot make again, stays.
    """
    policies: set[str] = set()
    try:
        config = in_float32(live.get_config(), policies)
        if not policies:
            return live, ""
        copy = type(live).from_config(config)
        copy.set_weights(live.get_weights())
    except Exception:  # Keras raises what it likes for code of the user's own
        return live, ""
    return copy, f"{live.name!r} computes in half precision ({', '.join(sorted(policies))}): it ran in float32, the type of its weights"


def in_float32(config: Any, policies: set[str], is_type: bool = False) -> Any:
    """Return a configuration with float32 in the place of mixed precision, and add the policies that were met."""
    if isinstance(config, Mapping):
        return {key: in_float32(value, policies, is_type or key == "dtype") for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(in_float32(value, policies, is_type) for value in config)
    if is_type and config in MIXED:
        policies.add(config)
        return "float32"
    return config


def shut_gates(cells: Sequence[Any], ops: Any, seed: int) -> Callable[[], None]:
    """Have the gates that multiply values of any size be about one unit in the last place off; the function returned undoes it.

    A gate that is shut does not feel its weights move, but is as inexact as another; what it multiplies may be large.

    cells  the cells of LSTMs and GRUs
    ops    has the functions sign and cos of their framework
    """
    begun = [(cell, cell.recurrent_activation) for cell in cells if getattr(cell.activation, "__name__", "") not in _BOUNDED]

    def off(function: Callable[[Any], Any], step: float) -> Callable[[Any], Any]:
        return lambda x: function(x) + step * ops.sign(ops.cos(_WAVES * x + seed))

    for cell, function in begun:
        eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(cell.compute_dtype) or float(np.finfo(cell.compute_dtype).eps)
        cell.recurrent_activation = off(function, eps / 2)

    def undo() -> None:
        for cell, function in begun:
            cell.recurrent_activation = function

    return undo
