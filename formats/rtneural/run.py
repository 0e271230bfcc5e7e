"""RTNeural's equations on its JSON in numpy, step by step, with what AIDA-X does around them.

They are written from the library's sources, and share nothing with what writes files: RTNeural/lstm/lstm.h, gru/gru.h, dense/dense.h,
conv1d/conv1d.h, batchnorm/batchnorm.h, activation/activation.h and model_loader.h; AIDA-X src/aidadsp-plugin.cpp, applyModel. The
library itself is C++ that no registry has as a package: docs/formats/rtneural.md says how both were compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences, outputs, stepped

Array = np.ndarray

NEEDS = ("numpy",)
FORMAT = "rtneural"
SUFFIX = ".json"
SUPPORTS = "LSTM, GRU with two biases, one direction; whole models: dense, conv1d, prelu, batchnorm and activations; no gradients"
CANNOT = {"cotangents": "these are the equations alone, and no gradients", "how": "the file already states what it computes"}
VARIANTS: dict[str, dict[str, Any]] = {"rtneural-numpy": {"device": "cpu"}}
WHOLE_FILES = True


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)


FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "elu": _elu,
}


def _floats(values: Any) -> Array:
    return np.array(values, np.float64).astype(np.float32)


class _RowLayer:
    """A layer of a row: its numbers, and how it goes over a sequence (batch, time, values)."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.kind, self.entry = entry["type"], entry
        self.width = int(entry["shape"][-1])
        self.weights = [_floats(values) for values in entry.get("weights", [])]
        self.original = self.weights

    def run(self, x: Array) -> Array:
        """Return the output of the layer; RTNeural leaves out a type that it does not know."""
        rule = getattr(self, "_" + self.kind.replace("-", "_"), None)
        return x if rule is None else rule(x)

    def _function(self, x: Array) -> Array:
        function = self.entry.get("activation", "")
        if function and function not in FUNCTIONS:
            raise NotImplementedError(f"the activation {function!r}: RTNeural does not know it, and adds an empty layer")
        return FUNCTIONS[function](x) if function else x

    def _dense(self, x: Array) -> Array:
        bias = self.weights[1] if len(self.weights) > 1 else 0
        return self._function(x @ self.weights[0] + bias)

    _time_distributed_dense = _dense

    def _activation(self, x: Array) -> Array:
        return self._function(x)

    def _prelu(self, x: Array) -> Array:
        slopes = self.weights[0].reshape(-1) if self.weights[0].ndim < 2 else self.weights[0][0]
        return np.where(x >= 0, x, x * slopes)

    def _batchnorm(self, x: Array) -> Array:
        gamma, beta = self.weights[:2] if len(self.weights) == 4 else (np.float32(1), np.float32(0))
        mean, variance = self.weights[-2:]
        return np.asarray(gamma / np.sqrt(variance + np.float32(self.entry["epsilon"])) * (x - mean) + beta)

    def _conv1d(self, x: Array) -> Array:
        """Add up the taps, the last one on the newest step; steps before the first are zeros."""
        taps, bias = self.weights[0], self.weights[1]
        dilation, groups = int(self.entry["dilation"][-1]), int(self.entry.get("groups", 1))
        kernel, per_group, width = taps.shape
        padded = np.concatenate([np.zeros((x.shape[0], dilation * (kernel - 1), x.shape[2]), x.dtype), x], axis=1)
        y = np.zeros((*x.shape[:2], width), x.dtype) + bias
        share = width // groups
        for tap in range(kernel):
            read = padded[:, tap * dilation : tap * dilation + x.shape[1]]
            for group in range(groups):
                columns = slice(group * share, (group + 1) * share)
                y[:, :, columns] += read[:, :, group * per_group : (group + 1) * per_group] @ taps[tap][:, columns]
        return self._function(y)

    def _lstm(self, x: Array) -> Array:
        return self.steps(x)[0]

    _gru = _lstm

    def steps(self, x: Array, hidden: Any = None, cell: Any = None, lengths: Any = None) -> tuple[Array, Array, Any]:
        """Return the outputs of a recurrent layer for every step, and its last states."""
        h = np.zeros((len(x), self.width), x.dtype) if hidden is None else np.asarray(hidden, x.dtype)
        c = np.zeros_like(h) if cell is None else np.asarray(cell, x.dtype)
        step = self._lstm_step if self.kind == "lstm" else self._gru_step
        y, h, c = stepped(step, x.transpose(1, 0, 2), h, c, lengths)
        return y.transpose(1, 0, 2), h, c if self.kind == "lstm" else None

    def _lstm_step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        kernel, recurrent, bias = self.weights
        i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4, axis=-1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(c), c

    def _gru_step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        kernel, recurrent, bias = self.weights
        xz, xr, xc = np.split(x @ kernel + bias[0], 3, axis=-1)
        hz, hr, hc = np.split(h @ recurrent + bias[1], 3, axis=-1)
        z, r = _sigmoid(xz + hz), _sigmoid(xr + hr)
        return (1 - z) * np.tanh(xc + r * hc) + z * h, c


def _row(file: str) -> tuple[dict[str, Any], dict[str, _RowLayer]]:
    """Return a file's JSON, and its layers by their types, numbered from the second on."""
    document = json.loads(Path(file).read_text(encoding="utf-8"))
    layers: dict[str, _RowLayer] = {}
    for entry in document["layers"]:
        name, number = entry["type"], 2
        while name in layers:
            name, number = f"{entry['type']}_{number}", number + 1
        layers[name] = _RowLayer(entry)
    return document, layers


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run recurrent layers of a row; see rnnconvert.running."""
    _, layers = _row(request["file"])
    names = request["layers"] or [name for name, layer in layers.items() if layer.kind in ("lstm", "gru")]
    lacking = [name for name in names if name not in layers or layers[name].kind not in ("lstm", "gru")]
    if lacking:
        raise NotImplementedError(f"no recurrent layer {lacking[0]!r} among {', '.join(layers)}")
    return Sequences.of(request).through([layers[name] for name in names], _answered)


def _answered(layer: _RowLayer, sequences: Sequences) -> dict[str, Any]:
    x = np.asarray(sequences.x, np.float32).transpose(1, 0, 2)
    states = [None if not several else several[0] for several in (sequences.hidden, sequences.cell)]
    y, h, c = layer.steps(x, states[0], states[1], sequences.lengths)
    return outputs(y.transpose(1, 0, 2), [h], [] if c is None else [c])


def witness(request: Mapping[str, Any]) -> None:
    """Run a file whole; each call begins after a reset."""
    seen = request["witness"]
    document, layers = _row(request["file"])
    decibels = [document.get(key) or 0 for key in ("in_gain", "out_gain")]
    gains = [np.float32(10 ** (gain * 0.05) if gain > -90 else 0) for gain in decibels]
    skip = int(document.get("in_skip") or 0)
    width = int(document["in_shape"][-1])
    if skip > 1:
        raise NotImplementedError(f"in_skip is {skip}, and AIDA-X refuses more than 1")

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        x = arrays[0] * gains[0]
        y = x
        for name, layer in layers.items():
            output = layer.run(y)
            if name in seen.layers:
                seen.record(name, y.transpose(1, 0, 2), output.transpose(1, 0, 2))
            y = output
        return {"output": (y + x[:, :, :1] if skip else y) * gains[1]}

    def shake(move: Any) -> None:
        for layer in layers.values():
            layer.weights = [move(array) for array in layer.original]

    with np.errstate(over="ignore"):
        seen.run(seen.calls([seen.input("input", ["batch", "time", width])]), call, shake=shake)
