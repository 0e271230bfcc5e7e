"""ncnn on the CPU, on a model that rnnconvert wrote, or on recurrent layers of any model.

Source: ncnn's Python API, 1.0.2026.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import STATES, Sequences, outputs

Array = np.ndarray

NEEDS = ("ncnn",)
FORMAT = "ncnn"
SUFFIX = ".param"
SUPPORTS = "RNN, GRU with reset after the product, LSTM with projection; two directions; no lengths or gradients"
CANNOT = {
    "cotangents": "ncnn computes no gradients",
    "lengths": "sequences of different lengths: ncnn computes one sequence at a time",
    "how": "the model already states what it computes",
}
VARIANTS: dict[str, dict[str, Any]] = {"ncnn-cpu": {"device": "cpu"}}
WHOLE_FILES = True
COARSE = 4.0
"""Its tanh is off by up to 2.4 units in the last place of 1 near 0, too, where it gives zeros (measured, on an x86)."""

_TYPES = {"LSTM": 2, "GRU": 1, "RNN": 1}
"""The layers, and how many states each has."""


_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""How many rows of its matrices each layer has for each unit."""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a whole model, or layers of it one after the other, sequence by sequence; see rnnconvert.running."""
    layers = _layers(request["file"])
    sequences = Sequences.of(request)
    if sequences.stacked() and not all(len(layer["in"]) > 1 for layer in layers.values()):
        raise NotImplementedError("the layers of the model have no inputs for initial states")
    net = _net(request["file"])
    if not request["layers"] and any(layer["in"][0] != below["out"][0] for below, layer in itertools.pairwise(layers.values())):
        raise NotImplementedError("the recurrent layers of the model do not read one another. Name them")
    free = _inputs(request["file"])

    def run(name: str, left: Sequences) -> dict[str, Any]:
        if name not in layers:
            raise NotImplementedError(f"the model has no layer {name!r}, only {', '.join(layers)}")
        return _alone(net, layers[name], left, free)

    return sequences.through(request["layers"] or layers, run)


def _alone(net: Any, layer: Mapping[str, Any], sequences: Sequences, free: Container[str]) -> dict[str, Any]:
    """Run one layer, sequence by sequence; states that nobody gives and that are inputs of the model begin with zeros."""
    x, stacked = np.asarray(sequences.x, np.float32), sequences.stacked()
    states = sequences.first(layer["ways"]).initial(dict(zip(STATES, layer["units"], strict=False)), layer["ways"])
    blobs = zip(states, layer["in"][1:], strict=False)
    fed = {blob: states[part] for part, blob in blobs if part in stacked or blob in free}
    values = []
    for number in range(x.shape[1]):
        feeds = {layer["in"][0]: x[:, number], **{blob: rows[:, number] for blob, rows in fed.items()}}
        values.append(_run(net, feeds, layer["out"]))
    y, *finals = (np.stack([value[blob].reshape(-1, value[blob].shape[-1]) for value in values], 1) for blob in layer["out"])
    return outputs(y, *finals)


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, and take out what its recurrent layers read and give; see rnnconvert.running."""
    seen, net = request["witness"], _net(request["file"])
    every = _layers(request["file"])
    layers = {name: entry for name, entry in every.items() if name in seen.layers}
    for name in seen.layers:
        if name not in layers:
            seen.explain(name, f"the model has no layer {name!r}")
    inputs = _inputs(request["file"])
    rows = _rows_of_tables(request["file"])
    stated = [
        seen.input(blob, _stated(blob, dims, every, seen.handed is None), "int32" if blob in rows else "float32", rows.get(blob))
        for blob, dims in inputs.items()
    ]
    calls = seen.calls(stated)
    wanted = list(dict.fromkeys(blob for layer in layers.values() for blob in (*layer["in"], *layer["out"])))
    last = _unread(request["file"])

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        values = _run(net, dict(zip(inputs, arrays, strict=True)), list(dict.fromkeys([*wanted, *last])))
        for label, layer in layers.items():
            read, gives = ([values[blob] for blob in layer[side]] for side in ("in", "out"))
            states, finals = ([_rows(value) for value in some[1:]] for some in (read, gives))
            seen.record(
                label,
                read[0][:, None],
                gives[0][:, None],
                states=[*states, *[None] * (2 - len(states))],
                finals=[*finals, *[None] * (2 - len(finals))],
            )
        return {blob: values[blob] for blob in last}

    none_to_move = not Path(request["file"]).with_suffix(".bin").stat().st_size
    seen.run(calls, call, shake=(lambda move: None) if none_to_move else None)


def _stated(blob: str, dims: list[int], layers: Mapping[str, Any], drawn: bool) -> list[int] | None:
    """Return the sizes of an input; ncnn's files often leave them out, and the width is then that of a layer that reads it.

    Where no recurrent layer does they are None; raises NotImplementedError where the input is to be drawn: ncnn itself checks nothing.
    """
    widths = [layer["width"] for layer in layers.values() if layer["in"][0] == blob]
    if not dims and not widths and not drawn:
        return None
    if not dims and not widths:
        raise NotImplementedError(f"its input {blob} states no sizes")
    return dims or [0, widths[0]]  # 0: an open axis


def _unread(file: str) -> list[str]:
    """Return the blobs that a model gives: those that no layer reads."""
    read, blobs = set(), []  # type: set[str], list[str]
    for line in Path(file).read_text(encoding="utf-8").splitlines()[2:]:
        words = line.split()
        if len(words) > 3:
            ins, outs = int(words[2]), int(words[3])
            read.update(words[4 : 4 + ins])
            blobs += words[4 + ins : 4 + ins + outs]
    return [blob for blob in blobs if blob not in read]


def _rows(state: Array) -> list[Array]:
    """Return the states of each direction, (1, units)."""
    return list(state.reshape(-1, 1, state.shape[-1]))


def _inputs(file: str) -> dict[str, list[int]]:
    """Return the blobs that a model is fed with, and their sizes, the last axis first in the file; none where it states none.

    A size below zero, as rnnconvert writes it, is that of an open axis: 0.
    """
    shapes = {}
    for line in Path(file).read_text(encoding="utf-8").splitlines()[2:]:
        words = line.split()
        if words and words[0] == "Input":
            sizes = {key: int(value) for key, _, value in (word.partition("=") for word in words[5:])}
            shapes[words[4]] = [max(sizes[key], 0) for key in ("2", "1", "0") if sizes.get(key, 0)]
    return shapes


def _rows_of_tables(file: str) -> dict[str, int]:
    """Return the blobs of integers, which tables are read by, with how many rows these have."""
    origins, rows = {}, {}  # type: dict[str, str], dict[str, int]
    for line in Path(file).read_text(encoding="utf-8").splitlines()[2:]:
        words = line.split()
        if words and words[0] == "Split":
            origins.update(dict.fromkeys(words[5:], words[4]))
        elif words and words[0] == "Embed":
            blob = origins.get(words[4], words[4])
            values = dict(word.split("=", 1) for word in words[6:])
            rows[blob] = min(int(values["1"]), rows.get(blob, int(values["1"])))
    return rows


def _layers(file: str) -> dict[str, dict[str, Any]]:
    """Return the blobs that each recurrent layer of a file reads and gives, its directions and its widths, by the layer's name."""
    result = {}
    for line in Path(file).read_text(encoding="utf-8").splitlines()[2:]:
        words = line.split()
        if words and words[0] in _TYPES:
            ins, outs = int(words[2]), int(words[3])
            values = dict(word.split("=", 1) for word in words[4 + ins + outs :])
            units, ways = [int(values["0"]), int(values.get("3", values["0"]))], 2 if values.get("2") == "2" else 1
            width = int(values["1"]) // (units[1] * _GATES[words[0]] * ways)
            blobs = {"in": words[4 : 4 + ins], "out": words[4 + ins : 4 + ins + outs]}
            result[words[1]] = {**blobs, "width": width, "ways": ways, "units": units[: _TYPES[words[0]]]}
    return result


def _net(file: str) -> Any:
    import ncnn

    net = ncnn.Net()
    options = ["fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"]
    for option in options:  # float32 throughout
        if hasattr(net.opt, f"use_{option}"):
            setattr(net.opt, f"use_{option}", False)
    net.opt.num_threads = 1
    if net.load_param(file) or net.load_model(str(Path(file).with_suffix(".bin"))):
        raise RuntimeError("ncnn cannot load the model")
    return net


def _run(net: Any, feeds: Mapping[str, Array], blobs: Sequence[str]) -> dict[str, Array]:
    """Return the values of these blobs, from values of others."""
    import ncnn

    run = net.create_extractor()
    run.set_light_mode(False)
    for name, array in feeds.items():
        # A Mat holds no reference to its array. Embed reads integers of 32 bits.
        plain = np.ascontiguousarray(array, np.int32 if array.dtype.kind in "iu" else np.float32)
        run.input(name, ncnn.Mat(plain).clone())
    return {name: _extracted(run, name) for name in blobs}


def _extracted(run: Any, name: str) -> Array:
    status, value = run.extract(name)
    if status:
        raise RuntimeError(f"ncnn cannot compute {name}: status {status}")
    return np.array(value)
