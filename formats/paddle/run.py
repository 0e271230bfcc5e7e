"""PaddlePaddle's own layers and cells on a .pdparams file, on the CPU.

Source: python/paddle/nn/layer/rnn.py (3.3.1). A layer computes with Paddle's fused operator, or with its cells where it is
projected; a cell runs under paddle.nn.RNN, one step after the other.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences, outputs

Array = np.ndarray

NEEDS = ("paddle",)
DISTRIBUTIONS = {"paddle": "paddlepaddle"}
FORMAT = "paddle"
SUFFIX = ".pdparams"
SUPPORTS = (
    "LSTM, GRU and SimpleRNN and their cells; projection; lengths; gradients, not of two directions with lengths and states "
    "at once; float32 and float64"
)
VARIANTS: dict[str, dict[str, Any]] = {"paddle": {"device": "cpu"}}

_NAME = re.compile(r"(?P<above>(?:.*?\.)??)(?:(?P<layer>\d+)\.)?cell(?P<side>_fw|_bw|)\.(?P<rest>(?:weight|bias)_(?:ih|hh|ho))", re.S)
_BARE = re.compile(r"(?P<above>(?:.*\.)?)(?P<rest>(?:weight|bias)_(?:ih|hh|ho))", re.S)
_CLASSES = {1: "SimpleRNN", 3: "GRU", 4: "LSTM"}
"""Paddle's classes by the number of gates in the rows of their weights."""
_NAMED = {
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    *((builtins, "tuple") for builtins in ("builtins", "__builtin__")),
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
}
"""The names in the pickles of paddle.save; nothing in it calls what a pickle hands to it, or keeps attributes that a pickle could set."""


def versions(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return its version: the distribution has another name than the package."""
    from importlib import metadata

    try:
        return {"paddlepaddle": metadata.version("paddlepaddle")}
    except metadata.PackageNotFoundError:
        return {}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the layer or cell of a file under a name; see rnnconvert.running."""
    import paddle

    paddle.set_device("cpu")
    _check_pickle(request["file"])
    loaded = paddle.load(request["file"], return_numpy=True)
    arrays = _parameters(_flat(loaded, ""), request["layers"])
    dtype = str(next(iter(arrays.values())).dtype)
    if dtype not in ("float32", "float64"):
        raise NotImplementedError(f"{dtype}: Paddle's layers run in float32 and float64 on the CPU")
    return _run(arrays, dtype, Sequences.of(request), request["how"].get("nonlinearity"))


class _PlainUnpickler(pickle.Unpickler):
    """Python's own machine, which paddle.load has too, with the names of numpy's arrays in dictionaries and no others."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class or function that a pickle names. Raises NotImplementedError for names that paddle.save does not write."""
        if (module, name) not in _NAMED:
            raise NotImplementedError(f"its pickle names {module}.{name}, which is not executed: it may hold arrays and dictionaries alone")
        return super().find_class(module, name)


def _check_pickle(file: str) -> None:
    """Raise NotImplementedError for a pickle that would execute anything: paddle.load executes what a pickle names."""
    with Path(file).open("rb") as stream:
        _PlainUnpickler(stream, encoding="latin1").load()


def _flat(tree: Any, name: str) -> dict[str, Array]:
    """Return arrays in dictionaries by their names with dots between."""
    if isinstance(tree, dict):
        flat: dict[str, Array] = {}
        for key, value in tree.items():
            flat.update(_flat(value, f"{name}.{key}" if name else str(key)))
        return flat
    return {name: tree} if isinstance(tree, np.ndarray) else {}


def _parameters(loaded: Mapping[str, Array], layers: Sequence[str]) -> dict[str, Array]:
    """Return the arrays of one layer under its own names; if no layer is named, of the only one in the file."""
    if len(layers) > 1:
        raise NotImplementedError(f"a chain of {len(layers)} layers: Paddle stacks layers in one")
    by_layer: dict[str, dict[str, Array]] = {}
    for full, array in loaded.items():
        match = _NAME.fullmatch(full)
        names = [match["above"].rstrip(".")] if match else []
        bare = _BARE.fullmatch(full)
        if bare:
            names.append(bare["above"].rstrip("."))
        for name in names:
            by_layer.setdefault(name, {})[full[len(name) + 1 :] if name else full] = array
    if not layers:
        layers = [min(by_layer, key=len)] if by_layer else [""]
    if layers[0] not in by_layer:
        raise NotImplementedError(f"the file has no layer {layers[0]!r}, only {', '.join(by_layer)}")
    return by_layer[layers[0]]


def _shape(arrays: Mapping[str, Array]) -> tuple[str, int, int, dict[str, Array]]:
    """Return Paddle's class, layers and directions (0 layers for a cell), and the arrays of the first cell."""
    matches = [match for match in map(_NAME.fullmatch, arrays) if match and match["layer"] is not None]
    layers = 1 + max([int(match["layer"]) for match in matches], default=-1)
    sides = len({match["side"] for match in matches}) if matches else 1
    start = f"{matches[0]['layer']}.cell{matches[0]['side']}." if matches else ""
    first = {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}
    rows, out = first["weight_hh"].shape
    projected = first.get("weight_ho")
    hidden = out if projected is None else projected.shape[0]
    return _CLASSES[rows // hidden], layers, sides, first


def _module(arrays: Mapping[str, Array], dtype: str, nonlinearity: Any) -> tuple[Any, str, int]:
    """Return Paddle's layer with these parameters, its class and the number of its states."""
    import paddle

    name, layers, sides, first = _shape(arrays)
    words: dict[str, Any] = {}
    if name == "SimpleRNN" and nonlinearity:
        words["activation"] = nonlinearity
    hidden = first["weight_ho"].shape[0] if "weight_ho" in first else first["weight_hh"].shape[1]
    if "weight_ho" in first:
        words["proj_size"] = first["weight_ho"].shape[1]
    paddle.set_default_dtype(dtype)
    width = first["weight_ih"].shape[1]
    if layers:
        words.update(num_layers=layers, direction="bidirect" if sides == 2 else "forward", time_major=True)
        module = getattr(paddle.nn, name)(width, hidden, **words)
        target = module
    else:
        target = getattr(paddle.nn, name + "Cell")(width, hidden, **words)
        module = paddle.nn.RNN(target, time_major=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it lists most of its parameters twice
        target.set_state_dict(dict(arrays))
    for parameter_name, parameter in _named_parameters(target).items():
        if parameter_name in arrays:
            continue
        if not parameter_name.rpartition(".")[2].startswith("bias_"):
            raise NotImplementedError(f"{name} does not have the parameter {parameter_name}")
        # Paddle's kernel dies of a layer that is made with bias_ih_attr=False; biases of zero are the same.
        parameter.set_value(np.zeros(parameter.shape, dtype))
    return module, name, max(layers, 1) * sides


def _named_parameters(module: Any) -> dict[str, Any]:
    """Return the parameters of a layer under the names of its cells, or of a cell under their own."""
    cells = [("", module)] if hasattr(module, "weight_ih") else []
    cells += [(path + ".", cell) for path, cell in module.named_sublayers() if hasattr(cell, "weight_ih")]
    return {start + name: parameter for start, cell in cells for name, parameter in cell._parameters.items() if parameter is not None}


def _run(arrays: Mapping[str, Array], dtype: str, sequences: Sequences, nonlinearity: Any) -> dict[str, Any]:
    import paddle

    module, name, count = _module(arrays, dtype, nonlinearity)
    cotangents, lengths = sequences.cotangents, sequences.lengths
    if cotangents and lengths is not None and sequences.hidden and _shape(arrays)[2] == 2:
        # Its fused operator gives other gradients of a backward direction's recurrent weights than the loss has.
        raise NotImplementedError("gradients of two directions with lengths and initial states: Paddle 3.3.1's are wrong on the CPU")

    def tensor(values: Any) -> Any:
        converted = paddle.to_tensor(np.ascontiguousarray(values, dtype))
        converted.stop_gradient = not cotangents
        return converted

    x = tensor(sequences.x)
    _, _, _, first = _shape(arrays)
    widths = {"hidden": first["weight_hh"].shape[1]}
    if name == "LSTM":
        widths["cell"] = first["weight_ho"].shape[0] if "weight_ho" in first else first["weight_hh"].shape[1]
    states = [tensor(state) for state in sequences.initial(widths, count).values()]
    alone = not hasattr(module, "num_layers")
    fed = [state[0] for state in states] if alone else states
    lengths_tensor = None if lengths is None else paddle.to_tensor(np.asarray(lengths, "int32"))
    y, final = module(x, tuple(fed) if len(fed) > 1 else fed[0], lengths_tensor)
    finals = list(final) if isinstance(final, (tuple, list)) else [final]
    values = [y, *([state.unsqueeze(0) for state in finals] if alone else finals)]
    result = outputs(*(np.asarray(value.numpy()) for value in values))
    if lengths is not None:  # what a cell gives past the end of a sequence is nothing
        steps = np.arange(len(result["y"]))[:, None]
        result["y"] = np.where((steps < np.asarray(lengths))[..., None], result["y"], 0)
    if cotangents:
        sum((value * tensor(scale)).sum() for value, scale in zip(values, sequences.scales(widths))).backward()
        owner = module.cell if alone else module
        weights = {local: _gradient(parameter) for local, parameter in _named_parameters(owner).items() if local in arrays}
        slopes = {part: _gradient(state) for part, state in zip(widths, states)}
        result["gradients"] = sequences.gradients(_gradient(x), slopes, weights)
    return result


def _gradient(tensor: Any) -> Array:
    return np.zeros(tensor.shape, "float32") if tensor.grad is None else np.asarray(tensor.grad.numpy())
