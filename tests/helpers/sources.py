"""Small files of every format, as their own frameworks write them, or made by hand where no framework does any more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import onnx
from onnx import helper, numpy_helper

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, random_stack

FORM = Sizes("lstm", 3, 4, parts=BOTH)


def checkpoint(*stacks: Recurrent) -> Checkpoint:
    """A checkpoint that was never a file."""
    return Checkpoint("(made)", "canonical", {stack.name: stack for stack in stacks})


def stack(kind: str = "lstm", seed: int = 1, dtype: Any = np.float32, name: str = "random", **form: Any) -> Recurrent:
    """A random stack of that form."""
    return random_stack(replace(FORM, kind=kind, **form), seed, dtype).replace(name=name)


def write(path: Path, *stacks: Recurrent, **options: Any) -> Path:
    """A file that we write ourselves: a random LSTM, or the stacks given."""
    rc.save(checkpoint(*(stacks or (stack(),))), path, **options)
    return path


def uniform(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    """Random numbers that do not saturate a gate."""
    return np.asarray(np.random.default_rng(seed).uniform(-0.7, 0.7, shape), dtype)


# Keras 2's legacy HDF5 ----------------------------------------------------------------------------


def sequential(*layers: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A model configuration: class and configuration of each layer."""
    return {
        "class_name": "Sequential",
        "config": {"name": "model", "layers": [{"class_name": name, "config": dict(config)} for name, config in layers]},
    }


def legacy_h5(path: Path, arrays: Mapping[str, Sequence[tuple[str, Array]]], config: object | None, version: str | None = "2.2.4") -> Path:
    """A model as Keras 2's model.save wrote it: for each layer its arrays by their full names, in order."""
    with h5py.File(path, "w") as file:
        if version is not None:
            file.attrs["keras_version"] = version
        file.attrs["backend"] = "tensorflow"
        if config is not None:
            file.attrs["model_config"] = config if isinstance(config, (str, bytes)) else json.dumps(config)
        weights = file.create_group("model_weights")
        if version is not None:
            weights.attrs["keras_version"] = version
        weights.attrs["layer_names"] = [name.encode() for name in arrays]
        for layer, pairs in arrays.items():
            group = weights.create_group(layer)
            group.attrs["weight_names"] = [name.encode() for name, _ in pairs]
            for name, array in pairs:
                group[name] = array
    return path


def keras_lstm_h5(path: Path, version: str = "2.2.4", **config: Any) -> Path:
    """An LSTM of Keras 2, 3 inputs and 4 units, as a whole model."""
    arrays = [("lstm/kernel:0", uniform(1, 3, 16)), ("lstm/recurrent_kernel:0", uniform(2, 4, 16)), ("lstm/bias:0", uniform(3, 16))]
    return legacy_h5(path, {"lstm": arrays}, sequential(("LSTM", {"name": "lstm", "units": 4, **config})), version)


# ONNX ---------------------------------------------------------------------------------------------


def onnx_node(
    path: Path, operator: str, arrays: Mapping[str, Array], opset: int = 14, *, batch_first: bool = False, **attributes: Any
) -> Path:
    """A model of one recurrent node: arrays by the node's own names for its inputs, W, R, B, P and so on."""
    slots = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", *(["P"] if operator == "LSTM" else [])]
    if operator != "LSTM":
        slots.remove("initial_c")
    names = [slot if slot in arrays or slot == "X" else "" for slot in slots]
    while not names[-1]:
        names.pop()
    if batch_first:
        attributes["layout"] = 1
    node = helper.make_node(operator, names, ["Y", "Y_h"], "rnn", hidden_size=arrays["R"].shape[2], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(arrays["W"].dtype)
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info("X", kind, [None, None, arrays["W"].shape[2]])],
        [helper.make_tensor_value_info("Y", kind, [None] * 4)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def onnx_arrays(operator: str, directions: int = 1, peepholes: bool = False, dtype: Any = np.float32) -> dict[str, Array]:
    """Random arrays of a node with 3 inputs and 4 units."""
    gates = GATES[operator]
    arrays = {
        "W": uniform(1, directions, gates * 4, 3, dtype=dtype),
        "R": uniform(2, directions, gates * 4, 4, dtype=dtype),
        "B": uniform(3, directions, 2 * gates * 4, dtype=dtype),
    }
    return {**arrays, "P": uniform(4, directions, 12, dtype=dtype)} if peepholes else arrays
