"""The equations of GuitarML's models on their JSON in numpy, step by step.

They are written from the sources, and share nothing with what writes files: Alec-Wright/CoreAudioML networks.py, SimpleRNN.forward;
RTNeural/torch_helpers.h for what the plug-ins make of the state dictionary, with RTNeural/lstm/lstm.h and gru/gru.h. Torch, which
wrote the format, runs the same numbers in this project's tests.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences, WeightsAloneError, outputs, stepped

Array = np.ndarray

NEEDS = ("numpy",)
FORMAT = "guitarml"
SUFFIX = ".json"
SUPPORTS = "LSTM, GRU and RNN of SimpleRNN and of bare state dictionaries, one direction; whole models of SimpleRNN; no gradients"
CANNOT = {"cotangents": "these are the equations alone, and no gradients"}
VARIANTS: dict[str, dict[str, Any]] = {"guitarml-numpy": {"device": "cpu"}}
WHOLE_FILES = True

_GATES = {1: "rnn", 3: "gru", 4: "lstm"}


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


class _TorchStack:
    """The layers of one torch module, by its prefix."""

    def __init__(self, state: Mapping[str, Any], prefix: str) -> None:
        start = f"{prefix}." if prefix else ""
        self.layers: list[tuple[Array, Array, Array, Array]] = []
        while f"{start}weight_ih_l{len(self.layers)}" in state:
            names = [f"{start}{part}_l{len(self.layers)}" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            w, u = (_floats(state[name]) for name in names[:2])
            b, v = (_floats(state[name]) if name in state else np.zeros(len(w), np.float32) for name in names[2:])
            self.layers.append((w, u, b, v))
        self.original = self.layers
        self.units = self.layers[0][1].shape[1]
        self.inputs = self.layers[0][0].shape[1]
        self.kind = _GATES[len(self.layers[0][0]) // self.units]

    def run(self, x: Array, sequences: Sequences) -> tuple[Array, list[Array], list[Array]]:
        """Return the output of the last layer for (time, batch, values), and the last states of every layer."""
        finals: list[list[Array]] = [[], []]
        for number, layer in enumerate(self.layers):
            zeros = np.zeros((x.shape[1], self.units), x.dtype)
            h = zeros if not sequences.hidden else np.asarray(sequences.hidden[number], x.dtype)
            c = zeros if not sequences.cell else np.asarray(sequences.cell[number], x.dtype)
            x, h, c = stepped(functools.partial(_STEPS[self.kind], layer), x, h, c, sequences.lengths)
            finals[0].append(h)
            finals[1].append(c)
        return x, finals[0], finals[1] if self.kind == "lstm" else []


def _floats(values: Any) -> Array:
    return np.array(values, np.float64).astype(np.float32)


def _lstm(layer: Sequence[Array], x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    w, u, b, v = layer
    i, f, g, o = np.split(x @ w.T + b + h @ u.T + v, 4, axis=1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru(layer: Sequence[Array], x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    w, u, b, v = layer
    xr, xz, xn = np.split(x @ w.T + b, 3, axis=1)
    hr, hz, hn = np.split(h @ u.T + v, 3, axis=1)
    z = _sigmoid(xz + hz)
    return (1 - z) * np.tanh(xn + _sigmoid(xr + hr) * hn) + z * h, c


def _rnn(layer: Sequence[Array], x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    w, u, b, v = layer
    return np.tanh(x @ w.T + b + h @ u.T + v), c


_STEPS = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def _document(file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the statements of `model_data`, and the state dictionary with the names of modules in modules joined."""
    document = json.loads(Path(file).read_text(encoding="utf-8"))
    return document.get("model_data", {}), dict(_flat(document.get("state_dict", document), ""))


def _flat(tree: Mapping[str, Any], above: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value.keys() == {"shape", "values"}:  # nanoflare's tensors
            pairs.append((above + key, np.array(value["values"], np.float64).reshape(value["shape"])))
        else:
            pairs += _flat(value, f"{above}{key}.") if isinstance(value, dict) else [(above + key, value)]
    return pairs


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the recurrent layers of a file; see rnnconvert.running."""
    if request.get("how", {}).get("nonlinearity", "tanh") != "tanh":
        raise NotImplementedError("an RNN of another function than tanh: the file does not say it, and SimpleRNN has none")
    _, state = _document(request["file"])
    ending = "weight_ih_l0"
    prefixes = [name[: -len(ending)].rstrip(".") for name in state if name.endswith(ending)]
    stacks = [_TorchStack(state, prefix) for prefix in request["layers"] or prefixes]
    return Sequences.of(request).through(stacks, _answered)


def _answered(stack: _TorchStack, sequences: Sequences) -> dict[str, Any]:
    return outputs(*stack.run(np.asarray(sequences.x, np.float32), sequences))


def witness(request: Mapping[str, Any]) -> None:
    """Run a SimpleRNN whole; each call begins with states of zeros."""
    seen = request["witness"]
    about, state = _document(request["file"])
    if not about or "lin.weight" not in state or "rec.weight_ih_l0" not in state:
        raise WeightsAloneError("the file lacks the model_data, rec and lin of a SimpleRNN: it holds weights alone")
    stack, skip = _TorchStack(state, "rec"), int(about.get("skip", 0))
    weight = _floats(state["lin.weight"])
    bias = _floats(state["lin.bias"]) if "lin.bias" in state else np.zeros(len(weight), np.float32)
    head = [weight, bias]

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        x = arrays[0].transpose(1, 0, 2)
        y, hidden, cell = stack.run(x, Sequences(x))
        if "rec" in seen.layers:
            seen.record("rec", x, y, finals=[hidden, cell])
        y = y @ head[0].T + head[1]
        return {"output": (y + x[:, :, :skip] if skip else y).transpose(1, 0, 2)}

    def shake(move: Any) -> None:
        stack.layers = [tuple(map(move, layer)) for layer in stack.original]
        head[:] = [move(weight), move(bias)]

    seen.run(seen.calls([seen.input("input", ["batch", "time", stack.inputs])]), call, shake=shake)
