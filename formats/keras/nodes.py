"""The nodes of a Keras model that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.language import registry
from rnnconvert.language.packing import Packed, pack

FLIP = "Flip"


@dataclass(frozen=True)
class DraftTensor:
    """One output of a layer.

    layer  its name
    index  which of its outputs
    shape  with None for batch and time
    dtype  element type
    """

    layer: str
    index: int
    shape: tuple[int | None, ...]
    dtype: str

    def serialised(self) -> dict[str, Any]:
        """Return the tensor as a configuration refers to it."""
        history = [self.layer, 0, self.index]
        config = {"shape": list(self.shape), "dtype": self.dtype, "keras_history": history}
        return {"class_name": "__keras_tensor__", "config": config}


@dataclass(frozen=True)
class Variables:
    """The variables of a layer, or of the cell inside it.

    path    where they are below the layer in a `.weights.h5`: "cell", "forward_layer/cell", ""
    scope   what stands between the layer's name and theirs in a legacy file: "lstm_cell", ""
    label   name of the layer or cell that owns them
    arrays  by name, in the order of their numbers
    """

    path: str
    scope: str
    label: str
    arrays: Mapping[str, Array | Pieced]


@dataclass(frozen=True)
class DraftNode:
    """A layer of the model.

    inputs     what it reads
    joins      whether it takes its inputs as one list
    variables  its weights
    """

    name: str
    class_name: str
    config: Mapping[str, Any]
    inputs: tuple[DraftTensor, ...] = ()
    joins: bool = False
    variables: tuple[Variables, ...] = ()

    @property
    def is_layer(self) -> bool:
        """Whether it is a layer; an operation is in no list of layers and has no path."""
        return self.class_name != FLIP

    def serialised(self, legacy: bool) -> dict[str, Any]:
        """Return the layer's entry in a model's configuration; legacy HDF5 knows no modules."""
        tensors = [tensor.serialised() for tensor in self.inputs]
        calls: list[Any] = [{"args": [tensors] if self.joins else tensors, "kwargs": {}}] if tensors else []
        entry = {"class_name": self.class_name, "config": dict(self.config), "name": self.name, "inbound_nodes": calls}
        if legacy:
            return entry
        module = "keras.layers" if self.is_layer else "keras.src.ops.numpy"
        return {"module": module, "registered_name": None, **entry}

    def constructor(self) -> str:
        """Return the Python expression that makes such a layer."""
        return _constructor(self.class_name, self.config)


_PLAIN = {"activation": "tanh", "recurrent_activation": "sigmoid", "go_backwards": False, "use_bias": True, "return_state": False}


def _constructor(class_name: str, config: Mapping[str, Any]) -> str:
    """Return the expression that makes a layer, with what differs from Keras's defaults."""
    words: list[str] = []
    if class_name == "Bidirectional":
        words = [_constructor(config["layer"]["class_name"], config["layer"]["config"])]
        if config["merge_mode"] != "concat":
            words.append(f"merge_mode={config['merge_mode']!r}")
        backward = _constructor(config["backward_layer"]["class_name"], config["backward_layer"]["config"])
        if backward.replace(", go_backwards=True", "") != words[0]:
            words.append(f"backward_layer={backward}")
    else:
        words = [str(config["units"])]
        words += [f"{key}={config[key]!r}" for key, default in _PLAIN.items() if key in config and config[key] != default]
        words += [f"{key}={config[key]!r}" for key in ("reset_after", "return_sequences") if key in config]
    if class_name == "Dense":
        words = [str(config["units"]), "use_bias=False"]
    if config["dtype"] != "float32":
        words.append(f"dtype={config['dtype']!r}")
    return f"keras.layers.{class_name}({', '.join(words)})"


VARIABLES = ("kernel", "recurrent_kernel", "bias")
"""A cell's variables in the order in which Keras numbers them."""


def pack_direction(direction: Direction, job: Job) -> dict[str, Packed]:
    """Return a direction's arrays, by the names and in the order of Keras's variables."""
    single = Recurrent("", (Layer((direction.replace(reverse=False),)),))
    layout = registry.layout("keras", direction.cell.kind, direction.cell.reset_after)
    packed = pack(layout, single, (job.dtype or direction.dtype).newbyteorder("="), job.watch)
    return {name: packed[name] for name in VARIABLES if name in packed}


def side_by_side(matrices: Sequence[Array], merge: str | None) -> Array:
    """Return one kernel for outputs that are side by side: (hidden of all directions, out)."""
    if len(matrices) == 1:
        return matrices[0].T
    if merge == "concat":
        rows, columns = (sum(matrix.shape[axis] for matrix in matrices) for axis in (1, 0))
        kernel = np.zeros((rows, columns), matrices[0].dtype)
        row = column = 0
        for matrix in matrices:
            kernel[row : row + matrix.shape[1], column : column + matrix.shape[0]] = matrix.T
            row, column = row + matrix.shape[1], column + matrix.shape[0]
        return kernel
    stacked: Array = np.concatenate([matrix.T for matrix in matrices])
    return stacked * stacked.dtype.type(0.5) if merge == "ave" else stacked
