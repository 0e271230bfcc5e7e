"""Outputs of their own model in AIDA-X's files: `input_batch` and `output_batch`.

Sources: AidaDSP/Automated-GuitarAmpModelling dist_model_recnet.py and model_utils.py, save_model_json (the first 2048 samples of the
test set, and what PyTorch gave for them from states of zeros); aidadsp-lv2 rt-neural-generic.cpp, testModel, which runs them with
the gains left out; applyModel, which adds the input of a model with in_skip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import json_file
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.reference import FUNCTIONS
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Recorded

KEYS = ("input_batch", "output_batch")

_DENSE = ("dense", "time-distributed-dense")
_FUNCTIONS = ("linear", "tanh", "relu", "sigmoid")


def recorded(
    path: Path, document: Mapping[str, Any], names: Sequence[str], arrays: Mapping[str, Array], layers: Mapping[str, Recurrent]
) -> tuple[tuple[Recorded, ...], str]:
    """Return the sample recorded in a file, and the reason if it cannot be used ("" if it can, or if there is none).

    names   the names of all layers of the row
    arrays  the arrays of the layers without recurrence, by full names
    layers  the recurrent layers
    """
    if not any(key in document for key in KEYS):
        return (), ""
    if missing := [key for key in KEYS if key not in document]:
        return (), f"the file has no {missing[0]}"
    try:
        x, y = (json_file.array(document[key], path, key).astype(np.float64) for key in KEYS)
    except UnreadableError as error:
        return (), error.problem
    width = document["in_shape"][-1]
    if x.ndim != 1 or x.shape != y.shape or not x.size or width != 1:
        return (), f"it has the shapes {x.shape} and {y.shape}, and the model reads {width} values a step"
    if names[:1] != [*layers][:1]:
        return (), "the model does not begin with its recurrent layer"
    dense, width = [], layers[names[0]].layers[-1].output_size
    for name, layer in list(zip(names, document["layers"], strict=True))[1:]:
        weights = _dense(name, layer, arrays, width)
        if weights is None:
            return (), f"{name!r} is not a dense layer with a function that is computed here"
        dense.append(weights)
        width = weights[1].size
    skip = document.get("in_skip") or 0
    if skip not in (0, 1) or width != 1:
        return (), f"the model gives {width} values a step, and adds {skip} of its input to them"

    def restore(sequence: Array, read: Array) -> Array:
        dtype = sequence.dtype
        for weight, bias, function in dense:
            sequence = FUNCTIONS[function](np, sequence @ weight.astype(dtype) + bias.astype(dtype), None, None)
        return sequence + read.astype(dtype) if skip else sequence

    return (Recorded(x[:, None, None], y[:, None, None], names[0], restore),), ""


_Dense = tuple[Array, Array, str]


def _dense(name: str, layer: Mapping[str, Any], arrays: Mapping[str, Array], width: int) -> _Dense | None:
    """Return the weight (in, out), the bias and the function's name of a dense layer that reads so many values; None for any other."""
    weight, bias = (arrays.get(f"{name}/weights/{place}") for place in range(2))
    function = layer.get("activation") or "linear"
    if layer["type"] not in _DENSE or function not in _FUNCTIONS or weight is None or bias is None:
        return None
    fits = weight.ndim == 2 and weight.shape[0] == width and bias.shape == weight.shape[1:]
    return (weight, bias, function) if fits else None
