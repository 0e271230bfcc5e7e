"""Copies of Keras models that show how far rounding leads: weights and gates a unit in the last place off."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core.arrays import epsilon
from rnnconvert.core.errors import UsageError
from rnnconvert.formats.keras.live import numbers
from rnnconvert.formats.keras.run_exact import shut_gates
from rnnconvert.models.runners import moved


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
            plain = moved(plain, epsilon(plain.dtype), generator).astype(plain.dtype)
        target.assign(plain)
    shut_gates(
        [cell for cell in copy._flatten_layers() if isinstance(cell, (keras.layers.LSTMCell, keras.layers.GRUCell))], keras.ops, seed
    )
    return copy
