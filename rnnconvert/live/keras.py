"""Keras layers and models, on any backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.errors import MissingPackageError, UsageError
from rnnconvert.live.arrays import in_memory
from rnnconvert.weights import Recurrent


def from_keras(layer: Any) -> Recurrent:
    """A built keras.layers.LSTM, GRU, SimpleRNN, RNN of their cells, or Bidirectional of these, on any backend.

    Raises UsageError for a layer that is not built yet, or that is none of these.
    """
    import keras

    from rnnconvert.adapters.keras import read_stored
    from rnnconvert.containers.stored import Stored

    if not layer.built or not layer.weights:
        raise UsageError(
            f"layer {layer.name!r} is not built yet: call it once, or layer.build((None, None, input_size))"
        )
    arrays = {weight.path: np.asarray(keras.ops.convert_to_numpy(weight)) for weight in layer.weights}
    config = {
        "class_name": "Sequential",
        "config": {"layers": [{"config": layer.get_config(), **_class_of(layer)}]},
    }
    stored = Stored(arrays, {"config": config, "metadata": {"keras_version": keras.__version__}})
    found = read_stored(stored).layers
    if len(found) != 1:
        raise UsageError(
            f"{type(layer).__name__} is no recurrent layer of Keras's own; hand in one of your model's layers"
        )
    return next(iter(found.values())).but(name=layer.name)


def _class_of(layer: Any) -> dict[str, str]:
    """A layer's class as a configuration has it."""
    name = type(layer).__name__
    return {"module": type(layer).__module__, "class_name": name, "registered_name": name}


def to_keras(layer: Recurrent, dtype: str | None = None, **options: object) -> Any:
    """A keras.Model that computes the layer: input (batch, time, in), output (batch, time, out).

    Its recurrent layers are Keras's own, to be taken out of it or called as they are.

    Raises RefusedError if Keras has no such cell, MissingPackageError without Keras.
    """
    try:
        import keras
    except ImportError:
        raise MissingPackageError("keras", "make a Keras model") from None
    import tempfile

    from rnnconvert.conversion import save

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.keras"
        save(in_memory(layer), path, dtype=dtype, settings=[f"{key}={value}" for key, value in options.items()])
        return keras.models.load_model(path, compile=False)
