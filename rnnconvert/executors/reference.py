"""The judge: every cell and option of the canonical form, in numpy, float64 unless asked otherwise.

The equations are those of rnnconvert.cells, vectorised over the batch. Nothing here is fast;
everything is meant to be read beside the framework's own documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.arrays import Array
from rnnconvert.cells import Activation
from rnnconvert.errors import RefusedError
from rnnconvert.weights import Direction, Recurrent


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _elu(x: Array, alpha: float) -> Array:
    value: Array = np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))
    return value


def _gelu(x: Array) -> Array:
    erf: Array = np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2))
    value: Array = x * 0.5 * (1 + erf)
    return value


# name: f(x, alpha, beta). ONNX operator RNN, "Activation functions"; Keras keras/src/activations/activations.py.
FUNCTIONS: Mapping[str, Callable[[Array, Any, Any], Array]] = {
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "linear": lambda x, a, b: x,
    "affine": lambda x, a, b: a * x + b,
    "leaky_relu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "thresholded_relu": lambda x, a, b: np.where(x > a, x, 0),
    "scaled_tanh": lambda x, a, b: a * np.tanh(b * x),
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: _elu(x, a),
    "selu": lambda x, a, b: x.dtype.type(1.0507009873554805) * _elu(x, 1.6732632423543772),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(x, 0),
    "exponential": lambda x, a, b: np.exp(x),
    "silu": lambda x, a, b: x * _sigmoid(x),
    "gelu": lambda x, a, b: _gelu(x),
}


@dataclass(frozen=True)
class Outputs:
    """What a stack gives.

    y       outputs at every step, (time, batch, out); zero past a sequence's length
    hidden  final states in the order of the layers, and in a layer of its directions, each (batch, out)
    cell    final cell states of an LSTM, each (batch, hidden); empty for other cells
    """

    y: Array
    hidden: tuple[Array, ...]
    cell: tuple[Array, ...] = ()


def run(
    stack: Recurrent,
    x: Array,
    hidden: tuple[Array, ...] | None = None,
    cell: tuple[Array, ...] | None = None,
    lengths: Array | None = None,
    dtype: Any = np.float64,
) -> Outputs:
    """Run a stack over a batch of sequences.

    x        (time, batch, in)
    hidden   initial states, ordered and shaped as in Outputs; the learned ones, or zero, if None
    cell     initial cell states, likewise
    lengths  how many steps of each sequence count, (batch,); all of them if None

    Raises RefusedError for an activation that is not known.
    """
    x = np.asarray(x, dtype)
    steps, batch, _ = x.shape
    limit = np.full(batch, steps) if lengths is None else np.asarray(lengths)
    finals: list[tuple[Array, Array]] = []
    below: list[Array] = [x] * stack.num_directions
    state = 0
    for index, layer in enumerate(stack.layers):
        outputs = []
        for number, direction in enumerate(layer.directions):
            source = below[number] if stack.join == "end" or index == 0 else below[0]
            h = hidden[state] if hidden is not None else _initial(direction, "initial_hidden", batch)
            c = cell[state] if cell is not None else _initial(direction, "initial_cell", batch)
            y, h, c = _run_direction(direction, source, np.asarray(h, dtype), np.asarray(c, dtype), limit)
            outputs.append(y)
            finals.append((h, c))
            state += 1
        last = index == stack.num_layers - 1
        if last and stack.readout:
            outputs = [y @ np.asarray(m, dtype).T for y, m in zip(outputs, stack.readout, strict=True)]
        meets = last or stack.join == "layer"
        below = [_merge(outputs, layer.merge)] if meets else outputs
    y = below[0]
    if stack.output_order == "processing":
        y = y[::-1]
    is_lstm = stack.cell.kind == "lstm"
    return Outputs(y, tuple(h for h, _ in finals), tuple(c for _, c in finals) if is_lstm else ())


def _initial(direction: Direction, part: str, batch: int) -> Array:
    learned = direction.get(part)
    width = direction.output_size if part == "initial_hidden" else direction.hidden_size
    return np.zeros((batch, width)) if learned is None else np.tile(learned.astype(np.float64), (batch, 1))


def _merge(outputs: list[Array], merge: str) -> Array:
    if len(outputs) == 1:
        return outputs[0]
    first, second = outputs
    if merge in ("concat", "none"):
        return np.concatenate([first, second], axis=-1)
    joined = first * second if merge == "mul" else first + second
    return joined / 2 if merge == "ave" else joined


def _run_direction(direction: Direction, x: Array, h: Array, c: Array, limit: Array) -> tuple[Array, Array, Array]:
    steps, batch, _ = x.shape
    step = stepper(direction, x.dtype)
    y = np.zeros((steps, batch, direction.output_size), x.dtype)
    rows = np.arange(batch)
    for t in range(steps):
        # A reversed sequence starts at its own last step, not at the padding.
        at = limit - 1 - t if direction.reverse else np.full(batch, t)
        live = t < limit
        new_h, new_c = step(x[np.where(live, at, 0), rows], h, c)
        h = np.where(live[:, None], new_h, h)
        c = np.where(live[:, None], new_c, c)
        y[at[live], rows[live]] = h[live]
    return y, h, c


Step = Callable[[Array, Array, Array], tuple[Array, Array]]


def stepper(direction: Direction, dtype: Any = np.float64) -> Step:
    """One time step of a direction: (x, h, c) to the new (h, c), each (batch, width)."""
    cell = direction.cell
    part = {key: np.asarray(source).astype(dtype) for key, source in direction.arrays.items()}
    clips = {clip.kind: clip for clip in cell.clips}

    def bound(kind: str, value: Array) -> Array:
        return np.clip(value, clips[kind].low, clips[kind].high) if kind in clips else value

    def of_input(gate: str, x: Array) -> Array:
        weight = part.get(("input", gate))
        value: Array = x if weight is None else x @ weight.T
        return value + part.get(("input_bias", gate), 0) + cell.constants.get(gate, 0.0)

    def of_state(gate: str, h: Array) -> Array:
        value: Array = h @ part["recurrent", gate].T + part.get(("recurrent_bias", gate), 0)
        return value

    act = _function(cell.activation)
    gate_act = _function(cell.gate_activation)

    def rnn(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        return act(bound("gates", of_input("n", x) + of_state("n", h))), c

    def gru(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        r = gate_act(bound("gates", of_input("r", x) + of_state("r", h)))
        z = gate_act(bound("gates", of_input("z", x) + of_state("z", h)))
        inner = r * of_state("n", h) if cell.reset_after else of_state("n", r * h)
        n = act(bound("gates", of_input("n", x) + inner))
        return (1 - z) * n + z * h, c

    def lstm(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        def pre(gate: str, state: Array) -> Array:
            peephole = part.get(("peephole", gate))
            return bound("gates", of_input(gate, x) + of_state(gate, h) + (0 if peephole is None else peephole * state))

        i = gate_act(pre("i", c)) if cell.coupled != "i" else 1 - gate_act(pre("f", c))
        f = gate_act(pre("f", c)) if cell.coupled != "f" else 1 - i
        new = f * c + i * act(pre("g", np.zeros_like(c)))
        new = bound("state", bound("cell", new))
        out = gate_act(pre("o", new)) * _function(cell.output_activation)(new)
        if ("projection", "") in part:
            out = bound("projection", out @ part["projection", ""].T)
        return out, new

    return {"rnn": rnn, "gru": gru, "lstm": lstm}[cell.kind]


def _function(activation: Activation) -> Callable[[Array], Array]:
    if not activation.known:
        raise RefusedError(
            f"the activation {activation.name!r}", "the reference",
            f"only {', '.join(FUNCTIONS)} are known here",
        )  # fmt: skip
    return lambda x: FUNCTIONS[activation.name](x, activation.alpha, activation.beta)
