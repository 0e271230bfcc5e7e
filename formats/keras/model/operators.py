"""The effects of layers of layered models: on the elements that they read, and on their masks.

Sources: keras/src/layers (3.15), each class's call and compute_mask, with the same in tf_keras and Keras 1 and 2.
"""

from __future__ import annotations

import math

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.model.entries import DROPOUTS, Entry
from rnnconvert.graphs.operators import SAME, Applied, Casts, ChangesError, Dialect, Moves, UnfitError

CAST = "cast"
"""The operator that changes the element type of what a layer reads."""
APART = "apart"
"""The operator that gives the outputs of two directions apart, of those that stand side by side."""
TRAINING = "training"
"""The attribute that says whether an operator runs as in training."""

_DROPOUTS = ("dropout", "recurrent_dropout", "dropout_W", "dropout_U")
_INSIDE = ("layer", "backward_layer", "cell", "cells")


def gives_zeros(layer: Entry) -> bool:
    """Return whether a layer gives only zeros for any input: an operation of Keras, or one of TensorFlow's functions."""
    function = layer.config.get("function") if layer.class_name == "TFOpLambda" else layer.class_name
    return function in ("Zeros", "ZerosLike", "zeros", "zeros_like")


def drops(config: object, depth: int = 0) -> bool:
    """Return whether a layer, or one inside it, has any dropout."""
    if isinstance(config, list):
        return any(drops(inside, depth + 1) for inside in config)
    if not isinstance(config, dict) or depth > 20:
        return False
    return any(config.get(key) for key in _DROPOUTS) or any(
        drops(inside.get("config") if isinstance(inside, dict) else inside, depth + 1)
        for key in _INSIDE
        if (inside := config.get(key)) is not None
    )


# Elements: the first axis is the batch; configurations count the others from 1 ----------------------


def _in_training(applied: Applied) -> Array:
    rates = [applied.attributes[key] for key in ("rate", "p", "stddev", "sigma") if key in applied.attributes]  # today, and in Keras 1
    if applied.attributes.get(TRAINING) and rates[:1] != [0]:
        raise ChangesError(f"{applied.kind} that is on")
    return applied.input(0)


def _activation(applied: Applied) -> Array:
    name = applied.attributes.get("activation")
    if name not in ("linear", None):
        raise ChangesError(f"Activation {name}" if isinstance(name, str) else "Activation")
    return applied.input(0)


def _integers(applied: Applied, key: str) -> list[int]:
    value = applied.attributes.get(key)
    listed = [value] if type(value) is int else value
    if not isinstance(listed, (list, tuple)) or not all(type(number) is int for number in listed):
        raise ChangesError(f"{applied.kind} of {key} {str(value)[:60]}")
    return list(listed)


def _permute(applied: Applied) -> Array:
    return applied.input(0).transpose(0, *_integers(applied, "dims"))


def _reshape(applied: Applied) -> Array:
    array = applied.input(0)
    if "newshape" in applied.attributes:  # the operation, whose shape has the batch; None for what is open
        open_ = [-1 if length is None else length for length in applied.attributes["newshape"]]
        return array.reshape(open_)
    return array.reshape(array.shape[0], *_integers(applied, "target_shape"))


def _channels_last(applied: Applied) -> Array:
    array = applied.input(0)
    if applied.attributes.get("data_format") == "channels_first" and array.ndim > 2:
        raise ChangesError(f"{applied.kind} of channels_first")
    return array


def _flatten(applied: Applied) -> Array:
    array = _channels_last(applied)
    return array.reshape(array.shape[0], math.prod(array.shape[1:]))


def _repeat(applied: Applied) -> Array:
    return np.repeat(applied.input(0)[:, None], _bounded(_integers(applied, "n"))[0], axis=1)


def _bounded(numbers: list[int]) -> list[int]:
    if not numbers or any(not 0 <= number < 1 << 16 for number in numbers):
        raise UnfitError(f"lengths {numbers[:4]}")
    return numbers


def _concatenate(applied: Applied) -> Array:
    arrays = [array for array in applied.inputs if array is not None]
    return np.concatenate(arrays, axis=_integers(applied, "axis")[0] if "axis" in applied.attributes else -1)


def _ends(applied: Applied, key: str) -> tuple[int, int]:
    numbers = _bounded(_integers(applied, key))
    return numbers[0], numbers[-1]


def _crop(applied: Applied) -> Array:
    first, last = _ends(applied, "cropping")
    array = _channels_last(applied)
    return array[:, first : array.shape[1] - last]


def _pad(applied: Applied) -> Array:
    array = _channels_last(applied)
    return np.pad(array, [(0, 0), _ends(applied, "padding"), (0, 0)])


def _upsample(applied: Applied) -> Array:
    return np.repeat(applied.input(0), _bounded(_integers(applied, "size"))[0], axis=1)


def _flip(applied: Applied) -> Array:
    axis = applied.attributes.get("axis")
    return np.flip(applied.input(0), None if axis is None else tuple(_integers(applied, "axis")))


def _transpose(applied: Applied) -> Array:
    axes = applied.attributes.get("axes")
    return applied.input(0).transpose(None if axes is None else _integers(applied, "axes"))


def _squeeze(applied: Applied) -> Array:
    axis = applied.attributes.get("axis")
    return np.squeeze(applied.input(0), None if axis is None else tuple(_integers(applied, "axis")))


def _expand(applied: Applied) -> Array:
    return np.expand_dims(applied.input(0), tuple(_integers(applied, "axis")))


def _swap(applied: Applied) -> Array:
    return applied.input(0).swapaxes(_integers(applied, "axis1")[0], _integers(applied, "axis2")[0])


DIALECT: Dialect = {
    APART: Moves(lambda applied: np.split(applied.input(0), 2, axis=-1)),
    CAST: Casts(lambda applied: np.dtype(applied.attributes["dtype"])),
    # Identity.call returns its input; ActivityRegularization adds to the loss alone (keras/src/layers/core/identity.py,
    # regularization/activity_regularization.py).
    "Identity": SAME,
    "ActivityRegularization": SAME,
    # "if training and self.rate > 0", else the input (keras/src/layers/regularization).
    **dict.fromkeys(DROPOUTS, Moves(_in_training)),
    "Activation": Moves(_activation),
    "Permute": Moves(_permute),
    "Reshape": Moves(_reshape),
    "Flatten": Moves(_flatten),
    "RepeatVector": Moves(_repeat),
    "Concatenate": Moves(_concatenate, data=None),
    "Cropping1D": Moves(_crop),
    "ZeroPadding1D": Moves(_pad),
    "UpSampling1D": Moves(_upsample),
    # Operations on tensors (keras/src/ops/numpy.py).
    "Flip": Moves(_flip),
    "Transpose": Moves(_transpose),
    "Squeeze": Moves(_squeeze),
    "ExpandDims": Moves(_expand),
    "Swapaxes": Moves(_swap),
}
"""The effects of layers and operations, by their class; a user's class has no entry, under any name."""
