"""What the cells of Flux, Lux and Knet compute, written down from their sources once more, on their own arrays.

Nothing of the project's is used here: a mistake in a layout, or in the reference, does not repeat itself. Sequences are
(time, features, batch), and matrices act from the left, as in Julia; where a source is quoted, it is the line's meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
FUNCTIONS: dict[str, Callable[[Array], Array]] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gate(x: Array, size: int, number: int) -> Array:
    """(1:h) .+ h*(n-1) of the rows, counted from 1."""
    return x[size * (number - 1) : size * number]


def columns(vector: Array, batch: int) -> Array:
    """A state for every sequence: a vector, or a matrix of one column."""
    return np.repeat(vector.reshape(-1, 1), batch, axis=1)


def bias_of(p: Arrays, name: str, rows: int) -> Array:
    return p[name].reshape(-1, 1) if name in p else np.zeros((rows, 1))


# Flux, src/layers/recurrent.jl ----------------------------------------------------------------------


def flux_rnn(p: Arrays, x: Array, function: str = "tanh") -> Array:
    """h = σ.(Wi*x .+ Wh*h .+ b); b is called bias from 0.15 on, and h, or state0, is trained until 0.14."""
    size, batch = p["Wh"].shape[0], x.shape[2]
    b = bias_of(p, "bias" if "bias" in p else "b", size)
    h = columns(p.get("state0", p.get("h", np.zeros(size))), batch)
    ys = []
    for step in x:
        h = FUNCTIONS[function](p["Wi"] @ step + p["Wh"] @ h + b)
        ys.append(h)
    return np.stack(ys)


def flux_lstm(p: Arrays, x: Array) -> Array:
    """input, forget, cell, output are the four blocks; c = forget .* c .+ input .* cell; h = output .* tanh.(c)."""
    size, batch = p["Wh"].shape[1], x.shape[2]
    b = bias_of(p, "bias" if "bias" in p else "b", 4 * size)
    h = columns(p.get("state0/1", p.get("h", np.zeros(size))), batch)
    c = columns(p.get("state0/2", p.get("c", np.zeros(size))), batch)
    ys = []
    for step in x:
        g = p["Wi"] @ step + p["Wh"] @ h + b
        c = sigmoid(gate(g, size, 2)) * c + sigmoid(gate(g, size, 1)) * np.tanh(gate(g, size, 3))
        h = sigmoid(gate(g, size, 4)) * np.tanh(c)
        ys.append(h)
    return np.stack(ys)


def flux_gru(p: Arrays, x: Array) -> Array:
    """h̃ = tanh.(gx3 .+ r .* gh3 .+ b3): the bias is not multiplied by r; h = (1 .- z) .* h̃ .+ z .* h."""
    size, batch = p["Wh"].shape[1], x.shape[2]
    b = bias_of(p, "b", 3 * size)
    h = columns(p.get("state0", p.get("h", np.zeros(size))), batch)
    ys = []
    for step in x:
        gx, gh = p["Wi"] @ step, p["Wh"] @ h
        r = sigmoid(gate(gx, size, 1) + gate(gh, size, 1) + gate(b, size, 1))
        z = sigmoid(gate(gx, size, 2) + gate(gh, size, 2) + gate(b, size, 2))
        new = np.tanh(gate(gx, size, 3) + r * gate(gh, size, 3) + gate(b, size, 3))
        h = (1 - z) * new + z * h
        ys.append(h)
    return np.stack(ys)


def flux_gru_v3(p: Arrays, x: Array) -> Array:
    """h̃ = tanh.(gx3 .+ Wh_h̃ * (r .* h) .+ b3): Wh gives r and z alone, whether it has two blocks or three."""
    size, batch = p["Wh"].shape[1], x.shape[2]
    b = bias_of(p, "b", 3 * size)
    h = columns(p.get("state0", np.zeros(size)), batch)
    ys = []
    for step in x:
        gx, gh = p["Wi"] @ step, p["Wh"] @ h
        r = sigmoid(gate(gx, size, 1) + gate(gh, size, 1) + gate(b, size, 1))
        z = sigmoid(gate(gx, size, 2) + gate(gh, size, 2) + gate(b, size, 2))
        new = np.tanh(gate(gx, size, 3) + p["Wh_h̃"] @ (r * h) + gate(b, size, 3))
        h = (1 - z) * new + z * h
        ys.append(h)
    return np.stack(ys)


# Lux, src/layers/recurrent.jl -----------------------------------------------------------------------


def lux_rnn(p: Arrays, x: Array, function: str = "tanh", old: bool = False) -> Array:
    """Before 1.0 one bias, and init_state=ones32; since then bias_ih and bias_hh, and zeros32."""
    size, batch = p["weight_hh"].shape[0], x.shape[2]
    default = np.ones(size) if old else np.zeros(size)
    h = columns(p.get("hidden_state", p.get("init_state", default)), batch)
    b = bias_of(p, "bias", size) if old else bias_of(p, "bias_ih", size) + bias_of(p, "bias_hh", size)
    ys = []
    for step in x:
        h = FUNCTIONS[function](p["weight_ih"] @ step + p["weight_hh"] @ h + b)
        ys.append(h)
    return np.stack(ys)


def lux_lstm(p: Arrays, x: Array, old: bool = False) -> Array:
    """input, forget, cell, output = multigate(g, Val(4)); before 1.0 the matrices are weight_i and weight_h."""
    wi, wh = (p["weight_i"], p["weight_h"]) if old else (p["weight_ih"], p["weight_hh"])
    size, batch = wh.shape[1], x.shape[2]
    b = bias_of(p, "bias", 4 * size) if old else bias_of(p, "bias_ih", 4 * size) + bias_of(p, "bias_hh", 4 * size)
    h, c = (columns(p.get(name, np.zeros(size)), batch) for name in ("hidden_state", "memory"))
    ys = []
    for step in x:
        i, f, g, o = np.split(wi @ step + wh @ h + b, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        ys.append(h)
    return np.stack(ys)


def lux_gru(p: Arrays, x: Array, old: bool = False) -> Array:
    """n = tanh_fast(gxs3 + r * ghbs3), where ghbs has the hidden bias; before 1.0 bias_i is added to n alone."""
    wi, wh = (p["weight_i"], p["weight_h"]) if old else (p["weight_ih"], p["weight_hh"])
    size, batch = wh.shape[1], x.shape[2]
    bx = np.zeros((3 * size, 1)) if old else bias_of(p, "bias_ih", 3 * size)
    bn = bias_of(p, "bias_i", size) if old else np.zeros((size, 1))
    bh = bias_of(p, "bias_h" if old else "bias_hh", 3 * size)
    h = columns(p.get("hidden_state", np.zeros(size)), batch)
    ys = []
    for step in x:
        x1, x2, x3 = np.split(wi @ step + bx, 3)
        h1, h2, h3 = np.split(wh @ h + bh, 3)
        r, z = sigmoid(x1 + h1), sigmoid(x2 + h2)
        n = np.tanh(x3 + bn + r * h3)
        h = (1 - z) * n + z * h
        ys.append(h)
    return np.stack(ys)


# Knet, src/ops20/rnn.jl -----------------------------------------------------------------------------


class Knet(NamedTuple):
    """What an RNN of Knet is made with: RNN(inputSize, hiddenSize; rnnType, numLayers, bidirectional, skipInput)."""

    units: int
    kind: str
    layers: int = 1
    both: bool = False
    skip: bool = False

    @property
    def ids(self) -> int:
        """How many matrices a layer has in each direction, and how many biases."""
        return {"relu": 2, "tanh": 2, "lstm": 8, "gru": 6}[self.kind]


def knet_params(w: Array, inputs: int, rnn: Knet) -> list[Array | None]:
    """rnnparams: all matrices, (inputs, units) in Julia's order of memory, then all biases, each by layer and id."""
    units, both, ids = rnn.units, rnn.both, rnn.ids
    params: list[Array | None] = []
    at = 0
    lines = rnn.layers * (2 if both else 1)
    for line in range(1, lines + 1):
        first = line == 1 or (line == 2 and both)
        for number in range(1, ids + 1):
            below = (0 if rnn.skip else inputs) if first else units * (2 if both else 1)
            rows = below if number <= ids // 2 else units
            matrix = w[at : at + rows * units].reshape((rows, units), order="F")
            params.append(matrix if rows else None)
            at += rows * units
    for _ in range(lines * ids):
        params.append(w[at : at + units].reshape(-1, 1))
        at += units
    assert at == w.size
    return params


def knet(w: Array, x: Array, rnn: Knet) -> Array:
    """rnntest: every matrix acts transposed; forward and backward lines of a layer alternate."""
    units, kind, layers, both, _ = rnn
    ids, p = rnn.ids, knet_params(w, x.shape[1], rnn)
    lines = layers * (2 if both else 1)
    batch = x.shape[2]
    below = list(x)
    for layer in range(layers):
        ways = []
        for way in range(2 if both else 1):
            line = layer * (2 if both else 1) + way
            ws, bs = p[line * ids : (line + 1) * ids], p[(lines + line) * ids : (lines + line + 1) * ids]
            h = c = np.zeros((units, batch))
            ys = []
            for step in reversed(below) if way else below:
                h, c = _knet_step(kind, ws, bs, step, h, c)
                ys.append(h)
            ways.append(ys[::-1] if way else ys)
        below = [np.concatenate(pair) for pair in zip(*ways, strict=True)]
    return np.stack(below)


def _knet_step(kind: str, ws: list[Array | None], bs: list[Array | None], x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    half = len(ws) // 2
    wx = [x if w is None else w.T @ x for w in ws[:half]]
    wh = [w.T @ h for w in ws[half:] if w is not None]
    bx, bh = bs[:half], bs[half:]
    if kind in FUNCTIONS:
        new = FUNCTIONS[kind](wx[0] + wh[0] + bx[0] + bh[0])
        return new, c
    if kind == "lstm":
        i, f, o = (sigmoid(wx[n] + wh[n] + bx[n] + bh[n]) for n in (0, 1, 3))
        c = f * c + i * np.tanh(wx[2] + wh[2] + bx[2] + bh[2])
        return o * np.tanh(c), c
    r, i = (sigmoid(wx[n] + wh[n] + bx[n] + bh[n]) for n in (0, 1))
    n = np.tanh(wx[2] + r * (wh[2] + bh[2]) + bx[2])
    return (1 - i) * n + i * h, c


def cuda(w: Array, x: Array, units: int, kind: str) -> Array:
    """What cuDNN computes with RNNDesc.params as setweights! fills it: wx, wh and one bias, the second ones zero."""
    gates = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}[kind]
    inputs, rows = x.shape[1], gates * units
    wx = w[: inputs * rows].reshape((inputs, rows), order="F")
    wh = w[wx.size : wx.size + units * rows].reshape((units, rows), order="F")
    p = {"Wi": wx.T, "Wh": wh.T, "b": w[wx.size + wh.size : wx.size + wh.size + rows]}
    return {"lstm": flux_lstm, "gru": flux_gru}[kind](p, x) if gates > 1 else flux_rnn(p, x, kind)
