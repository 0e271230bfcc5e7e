"""Keras layers and models, on any backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingPackageError, RefusedError, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.arrays_by_name import in_memory
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options


def from_keras(layer: Any) -> Recurrent:
    """Return the layer in a built keras.layers.LSTM, GRU, SimpleRNN, RNN of their cells, or Bidirectional of these, on any backend.

    A layer of ours (rnnconvert.formats.keras.module) too, by itself or as the only one of its kind in a model.

    Raises UsageError for a layer that is not built yet, or of another class.
    """
    import keras

    from rnnconvert.formats.keras.module import OwnRecurrent

    if not isinstance(layer, keras.layers.Layer):
        raise UsageError(f"{layer!r:.60} is not a layer of Keras. Hand in a layer of your model; for a file use rnnconvert.load")
    if isinstance(layer, keras.Model):
        inside = [inner for inner in layer.layers if isinstance(inner, OwnRecurrent)]
        layer = inside[0] if len(inside) == 1 else layer
    if not layer.built or not layer.weights:
        raise UsageError(f"layer {layer.name!r} is not built yet. Call it once, or layer.build((None, None, input_size))")
    if isinstance(layer, OwnRecurrent):
        return layer.recurrent()
    layers = read_layer(layer, {weight.path: numbers(weight) for weight in layer.weights}).layers
    if len(layers) != 1:
        raise UsageError(f"{type(layer).__name__} is not a recurrent layer of Keras's own. Hand in one of your model's layers")
    return next(iter(layers.values())).replace(name=layer.name)


def numbers(tensor: Any) -> Array:
    """Return the numbers of a Keras variable or tensor, on any backend."""
    import keras

    return np.asarray(keras.ops.convert_to_numpy(tensor))


def version() -> str:
    """Return the version of the installed Keras."""
    import keras

    return str(keras.__version__)


def described(layer: Any) -> dict[str, Any]:
    """Return a layer or a model as a model's configuration has it."""
    import keras

    kind = type(layer)
    about = {"module": kind.__module__, "class_name": kind.__name__, "registered_name": keras.saving.get_registered_name(kind)}
    return {**about, "config": layer.get_config()}


def read_layer(layer: Any, arrays: Mapping[str, Array]) -> Checkpoint:
    """Return a live layer as a file of a model with no other layer.

    arrays  its variables' numbers by their paths
    """
    from rnnconvert.containers.stored import Stored
    from rnnconvert.formats.keras.read import read_stored

    config = {"class_name": "Sequential", "config": {"layers": [described(layer)]}}
    return read_stored(Stored(dict(arrays), {"config": config, "metadata": {"keras_version": version()}}))


def to_keras(layer: Recurrent, dtype: str | None = None, *, own: bool = True, **options: object) -> Any:
    """Return a keras.Model that computes the layer: input (batch, time, in), output (batch, time, out).

    Its recurrent layers are Keras's own, to be taken out of it or called in it. Where Keras has no such cell it is
    one layer of ours, rnnconvert.formats.keras.module.OwnRecurrent.

    own  False to refuse such a layer instead

    Raises RefusedError if Keras has no such cell and own is False, or if the layer's function is
    unknown; MissingPackageError without Keras.
    """
    try:
        import keras
    except ImportError:
        raise MissingPackageError("keras", "make a Keras model") from None
    import tempfile

    from rnnconvert.files.arrange import accepted
    from rnnconvert.files.convert import save

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.keras"
        try:
            texts = {key: str(value).lower() if isinstance(value, bool) else value for key, value in options.items()}
            save(in_memory(layer), path, dtype=dtype, settings=[f"{key}={value}" for key, value in texts.items()])
        except RefusedError:
            if not own:
                raise
        else:
            return keras.models.load_model(path, compile=False)
    from rnnconvert.formats.keras.module import model_of
    from rnnconvert.rewrites.limits import taken_over

    chosen = Options(options)
    model = model_of(taken_over(layer, accepted(chosen, layer.name)), dtype, chosen.true("return_state", layer.name))
    return model
