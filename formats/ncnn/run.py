"""ncnn on the CPU, on a model that rnnconvert wrote, or on recurrent layers of any model.

Source: ncnn's Python API, 1.0.2026.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences

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

_TYPES = {"LSTM": 2, "GRU": 1, "RNN": 1}
"""The layers, and how many states each has."""


_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""How many rows of its matrices each layer has for each unit."""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a whole model, or layers of it one after the other, sequence by sequence; see rnnconvert.running."""
    layers = _layers(request["file"])
    sequences = Sequences.of(request)
    if sequences.given() and not all(len(layer["in"]) > 1 for layer in layers.values()):
        raise NotImplementedError("the layers of the model have no inputs for initial states")
    net = _net(request["file"])
    if not request["layers"]:
        chain = list(layers.values())
        if any(entry["in"][0] != below["out"][0] for below, entry in itertools.pairwise(chain)):
            raise NotImplementedError("the recurrent layers of the model do not read one another. Name them")
        return _answered(net, chain, sequences)

    def run(name: str, left: Sequences) -> dict[str, Any]:
        if name not in layers:
            raise NotImplementedError(f"the model has no layer {name!r}, only {', '.join(layers)}")
        return _answered(net, [layers[name]], left)

    return sequences.through(request["layers"], run)


def _answered(net: Any, chain: list[dict[str, Any]], sequences: Sequences) -> dict[str, Any]:
    """Run layers that read one another, sequence by sequence."""
    x = np.asarray(sequences.x, np.float32)
    blobs = [chain[-1]["out"][0], *(blob for layer in chain for blob in layer["out"][1:])]
    values = [_run(net, chain[0]["in"][0], x[:, number], blobs) for number in range(x.shape[1])]
    finals: dict[str, list[Array]] = {"hidden": [], "cell": []}
    for layer in chain:
        for key, blob in zip(finals, layer["out"][1:], strict=False):
            rows = np.stack([value[blob].reshape(-1, value[blob].shape[-1]) for value in values])  # (directions, units) of each sequence
            finals[key] += list(rows.swapaxes(0, 1))
    return {"y": np.stack([value[blobs[0]] for value in values], 1), **finals}


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, and take out what its recurrent layers read and give; see rnnconvert.running."""
    import ncnn

    seen, net = request["witness"], _net(request["file"])
    every = _layers(request["file"])
    layers = {name: entry for name, entry in every.items() if name in seen.layers}
    for name in seen.layers:
        if name not in layers:
            seen.explain(name, f"the model has no layer {name!r}")
    feeds = {blob: _fed(seen, blob, dims, every) for blob, dims in _inputs(request["file"]).items()}
    wanted = list(dict.fromkeys(blob for layer in layers.values() for blob in (*layer["in"], *layer["out"])))

    def run() -> None:
        run = net.create_extractor()
        run.set_light_mode(False)
        for blob, feed in feeds.items():
            run.input(blob, ncnn.Mat(feed).clone())
        values = {blob: _extracted(run, blob) for blob in wanted}
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

    seen.twice(run)


def _fed(seen: Any, blob: str, dims: list[int], layers: Mapping[str, Any]) -> Array:
    """Return an input; ncnn's files often leave out its sizes, and the width is then that of a layer that reads it.

    Raises NotImplementedError where no recurrent layer does: ncnn itself checks nothing.
    """
    widths = [layer["width"] for layer in layers.values() if layer["in"][0] == blob]
    if not dims and not widths:
        raise NotImplementedError(f"its input {blob} states no sizes")
    return np.asarray(seen.draw(dims or [0, widths[0]]))  # 0: an open axis


def _rows(state: Array) -> list[Array]:
    """Return the states of each direction, (1, units)."""
    return list(state.reshape(-1, 1, state.shape[-1]))


def _inputs(file: str) -> dict[str, list[int]]:
    """Return the blobs that a model is fed with, and their sizes, the last axis first in the file; none where it states none."""
    shapes = {}
    for line in Path(file).read_text(encoding="utf-8").splitlines()[2:]:
        words = line.split()
        if words and words[0] == "Input":
            sizes = {key: int(value) for key, _, value in (word.partition("=") for word in words[5:])}
            shapes[words[4]] = [sizes[key] for key in ("2", "1", "0") if sizes.get(key, 0) > 0]
    return shapes


def _layers(file: str) -> dict[str, dict[str, Any]]:
    """Return the blobs that each recurrent layer of a file reads and gives, and its input's width, by the layer's name."""
    result = {}
    for line in Path(file).read_text(encoding="utf-8").splitlines()[2:]:
        words = line.split()
        if words and words[0] in _TYPES:
            ins, outs = int(words[2]), int(words[3])
            values = dict(word.split("=", 1) for word in words[4 + ins + outs :])
            rows = int(values.get("3", values["0"])) * _GATES[words[0]] * (2 if values.get("2") == "2" else 1)
            result[words[1]] = {"in": words[4 : 4 + ins], "out": words[4 + ins : 4 + ins + outs], "width": int(values["1"]) // rows}
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


def _run(net: Any, blob: str, x: Array, wanted: list[str]) -> dict[str, Array]:
    import ncnn

    run = net.create_extractor()
    run.set_light_mode(False)
    plain = np.ascontiguousarray(x)  # a Mat holds no reference to its array
    run.input(blob, ncnn.Mat(plain).clone())
    return {name: _extracted(run, name) for name in wanted}


def _extracted(run: Any, name: str) -> Array:
    status, value = run.extract(name)
    if status:
        raise RuntimeError(f"ncnn cannot compute {name}: status {status}")
    return np.array(value)
