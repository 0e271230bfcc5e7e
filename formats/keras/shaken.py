"""Copies of Keras models that show how far rounding leads: weights and gates a unit in the last place off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core.errors import UsageError
from rnnconvert.formats.keras.live import numbers
from rnnconvert.judging.rounding import WAVES
from rnnconvert.models.runners import moved

_BOUNDED = ("tanh", "sigmoid", "hard_sigmoid", "softsign", "hard_tanh")
"""Functions whose values a gate's own rounding cannot make more of than rounding at 1."""


def shaken(live: Any, seed: int) -> Any:
    """Return a clone with every floating-point variable moved, and the gates that multiply values of any size.

    Raises UsageError for a subclassed model, which Keras cannot clone.
    """
    import keras

    try:
        copy = keras.models.clone_model(live)
    except Exception as error:  # a layer's own code runs, and may raise anything
        raise UsageError(f"Keras cannot clone {live.name!r}, so the effect of rounding is unknown: {error}") from None
    generator = np.random.default_rng(seed)
    for target, source in zip(copy.weights, live.weights, strict=True):
        plain = numbers(source)
        if plain.dtype.kind == "f" or plain.dtype == ml_dtypes.bfloat16:
            plain = moved(plain, float(ml_dtypes.finfo(plain.dtype).eps), generator).astype(plain.dtype)
        target.assign(plain)
    for cell in copy._flatten_layers():
        if isinstance(cell, (keras.layers.LSTMCell, keras.layers.GRUCell)) and cell.activation.__name__ not in _BOUNDED:
            eps = float(ml_dtypes.finfo(cell.compute_dtype).eps)
            cell.recurrent_activation = _off(cell.recurrent_activation, eps / 2, seed)
    return copy


def _off(function: Callable[[Any], Any], step: float, seed: int) -> Callable[[Any], Any]:
    """Return a gate's function that is off by a step, up or down with its argument.

    A gate that is shut does not feel its weights move, but is as inexact as another; what it multiplies may be large.
    """
    from keras import ops

    def gate(x: Any) -> Any:
        return function(x) + step * ops.sign(ops.cos(WAVES * x + seed))

    return gate
