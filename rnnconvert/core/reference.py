"""The judge: every cell and option of the canonical form, in numpy, float64 unless asked otherwise.

The equations are the ones in rnnconvert.core.cells, all gates of a step at once, over a batch. They are written for
any module with numpy's functions: in torch they give the gradients too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Recurrent


def _sigmoid(xp: Any, x: Any) -> Any:
    if xp is not np:
        return xp.sigmoid(x)  # the derivative of the formula below is lost where x is 0
    with np.errstate(over="ignore"):  # an infinite exponential gives 0, which is right
        value = np.asarray(np.exp(-x))  # of a single number numpy makes none that `out` takes
    value += 1
    return np.divide(1, value, out=value)


def _elu(xp: Any, x: Any, alpha: float) -> Any:
    return xp.where(x >= 0, x, alpha * xp.expm1(xp.where(x >= 0, xp.zeros_like(x), x)))


def _gelu(xp: Any, x: Any) -> Any:
    erf = xp.erf if xp is not np else np.vectorize(math.erf, otypes=[x.dtype])
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def _relu(xp: Any, x: Any) -> Any:
    return xp.where(x <= 0, xp.zeros_like(x), x)


Function = Callable[[Any, Any, Any, Any], Any]
"""f(numpy or torch, x, alpha, beta)."""

# ONNX operator RNN, "Activation functions"; Keras keras/src/activations.
FUNCTIONS: Mapping[str, Function] = {
    "sigmoid": lambda xp, x, a, b: _sigmoid(xp, x),
    "tanh": lambda xp, x, a, b: xp.tanh(x),
    "relu": lambda xp, x, a, b: _relu(xp, x),
    "linear": lambda xp, x, a, b: x,
    "affine": lambda xp, x, a, b: a * x + b,
    "leaky_relu": lambda xp, x, a, b: xp.where(x >= 0, x, a * x),
    "thresholded_relu": lambda xp, x, a, b: xp.where(x > a, x, xp.zeros_like(x)),
    "scaled_tanh": lambda xp, x, a, b: a * xp.tanh(b * x),
    "hard_sigmoid": lambda xp, x, a, b: xp.clip(a * x + b, 0, 1),
    "elu": lambda xp, x, a, b: _elu(xp, x, a),
    "selu": lambda xp, x, a, b: 1.0507009873554805 * _elu(xp, x, 1.6732632423543772),
    "softsign": lambda xp, x, a, b: x / (1 + xp.abs(x)),
    "softplus": lambda xp, x, a, b: xp.logaddexp(x, xp.zeros_like(x)),
    "exponential": lambda xp, x, a, b: xp.exp(x),
    "silu": lambda xp, x, a, b: x * _sigmoid(xp, x),
    "gelu": lambda xp, x, a, b: _gelu(xp, x),
}


Reading = Literal["old cell", "clip output"]
"""Another reading of the LSTM: the output's peephole sees the cell state from before the step; ONNX's clip bounds the
cell state on its way to the output function, too."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of a stack.

    y       outputs at every step, (time, batch, out); zero beyond a sequence's length
    hidden  final states in the order of the layers and, within a layer, of its directions; each (batch, out)
    cell    final cell states of an LSTM, each (batch, hidden); empty for other cells
    """

    y: Array
    hidden: tuple[Array, ...]
    cell: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Gradients:
    """Gradients of a weighted sum of all outputs.

    x        (time, batch, in)
    hidden   of the initial states, ordered and shaped as in Outputs; cell likewise
    weights  of each direction's arrays by (part, gate), in the order of Recurrent.directions
    """

    x: Array
    hidden: tuple[Array, ...]
    cell: tuple[Array, ...]
    weights: tuple[Mapping[Key, Array], ...]


def run(
    stack: Recurrent,
    x: Array,
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
    dtype: Any = np.float64,
) -> Outputs:
    """Run a stack over a batch of sequences: `Reference.run`, by the usual equations."""
    return Reference(stack, dtype).run(x, hidden, cell, lengths)


@dataclass(frozen=True)
class Reference:
    """A stack in an arithmetic.

    dtype      its element type
    readings   variants of the equations of rnnconvert.core.cells that other implementations compute
    functions  the activations' functions by name: another library's are less exact
    before     called before each array is made ready and before every step; what it raises ends the run
    """

    stack: Recurrent
    dtype: Any = np.float64
    readings: Collection[Reading] = ()
    functions: Mapping[str, Function] = field(default_factory=lambda: FUNCTIONS)
    before: Callable[[], None] | None = None

    def run(
        self, x: Array, hidden: Sequence[Array] | None = None, cell: Sequence[Array] | None = None, lengths: Array | None = None
    ) -> Outputs:
        """Run the stack over a batch of sequences.

        x        (time, batch, in)
        hidden   initial states, ordered and shaped as in Outputs; the learned ones, or zero, if None
        cell     initial cell states, likewise
        lengths  how many steps of each sequence count, (batch,); all of them if None

        Raises RefusedError for an unknown activation.
        """
        numbers = _TypedDirections([d for *_, d in self.stack.directions()], self.dtype, self.before)
        readout = [_ready(matrix, self.dtype) for matrix in self.stack.readout]
        steps = _StackSteps(np, self.stack, numbers, readout, self.readings, self.functions, self.before)
        with np.errstate(all="ignore"):  # a recurrence without bounds may overflow, as it does in a framework
            return Outputs(*steps.run(np.asarray(x, self.dtype), self._cast(hidden), self._cast(cell), lengths))

    def _cast(self, states: Sequence[Array] | None) -> list[Array] | None:
        return None if states is None else [np.asarray(state, self.dtype) for state in states]

    def gradients(
        self, x: Array, hidden: tuple[Array, ...], cell: tuple[Array, ...], lengths: Array | None, cotangents: Outputs
    ) -> Gradients:
        """Return the gradients, by torch's automatic differentiation of these same equations.

        hidden, cell  initial states, as for `run`; empty for the default, and cell for other cells than the LSTM
        cotangents    weights of each output in the sum that is differentiated

        Raises ImportError without torch, RefusedError as `run` does.
        """
        import torch

        kind = getattr(torch, np.dtype(self.dtype).name)

        def fixed(value: Any) -> Any:
            return torch.tensor(np.asarray(value).astype(np.float64)).to(kind)

        def leaf(value: Any) -> Any:
            return fixed(value).requires_grad_()

        numbers = [{key: leaf(source) for key, source in d.arrays.items()} for *_, d in self.stack.directions()]
        readout = [fixed(matrix) for matrix in self.stack.readout]
        inputs, states, cells = leaf(x), [leaf(state) for state in hidden], [leaf(state) for state in cell]
        threads = torch.get_num_threads()
        if self.stack.parameters * inputs.shape[0] * inputs.shape[1] < _SMALL:
            torch.set_num_threads(1)  # others would cost more than they help
        steps = _StackSteps(torch, self.stack, numbers, readout, self.readings, self.functions)
        y, h, c = steps.run(inputs, states or None, cells or None, lengths)
        weighed = zip((y, *h, *c), (cotangents.y, *cotangents.hidden, *cotangents.cell), strict=True)
        total = sum((value * fixed(weight)).sum() for value, weight in weighed)
        total.backward()
        torch.set_num_threads(threads)

        def of(leaf: Any) -> Array:
            return np.zeros(leaf.shape) if leaf.grad is None else np.asarray(leaf.grad.double().numpy())

        return Gradients(
            of(inputs),
            tuple(map(of, states)),
            tuple(map(of, cells)),
            tuple({key: of(value) for key, value in arrays.items()} for arrays in numbers),
        )


_SMALL = 1 << 28
"""Products of weights, steps and sequences below which one thread is enough."""


class _TypedDirections(Sequence[Mapping[Key, Any]]):
    """Each direction's numbers in an element type, made when that direction is run: never all directions at once."""

    def __init__(self, directions: Sequence[Direction], dtype: Any, before: Callable[[], None] | None) -> None:
        self._directions, self._dtype, self._before = directions, dtype, before

    def __getitem__(self, index: Any) -> Any:
        arrays = {}
        for key, source in self._directions[index].arrays.items():
            if self._before is not None:
                self._before()
            arrays[key] = _ready(source, self._dtype)
        return arrays

    def __len__(self) -> int:
        return len(self._directions)


def _ready(source: Any, dtype: Any) -> Array:
    """Return numbers in an element type, copied only where a matrix product would copy them at each step."""
    values: Array = np.asarray(source).astype(dtype, copy=False)
    fast = values.flags.aligned and (values.ndim < 2 or values.itemsize in values.strides)
    return values if fast else values.copy()


@dataclass(frozen=True)
class _StackSteps:
    """A stack's equations on the arrays of one module.

    xp       numpy or torch
    numbers  each direction's arrays, of this module
    readout  the stack's, likewise
    """

    xp: Any
    stack: Recurrent
    numbers: Sequence[Mapping[Key, Any]]
    readout: Sequence[Any]
    readings: Collection[Reading]
    functions: Mapping[str, Function]
    before: Callable[[], None] | None = None

    def run(
        self, x: Any, hidden: list[Any] | None, cell: list[Any] | None, lengths: Array | None
    ) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
        """Return all outputs, and the final hidden and cell states, as Outputs has them."""
        xp, stack = self.xp, self.stack
        order = None if lengths is None else _Order(xp, len(x), np.asarray(lengths))
        finals: list[tuple[Any, Any]] = []
        below: list[Any] = [x] * stack.num_directions
        for index, layer in enumerate(stack.layers):
            outputs = []
            for number, direction in enumerate(layer.directions):
                source = below[number] if stack.join == "end" or index == 0 else below[0]
                arrays = self.numbers[len(finals)]
                h = hidden[len(finals)] if hidden is not None else initial(xp, direction, arrays, "hidden", x)
                c = cell[len(finals)] if cell is not None else initial(xp, direction, arrays, "cell", x)
                y, h, c = self._run_direction(direction, arrays, source, h, c, order)
                outputs.append(y)
                finals.append((h, c))
            last = index == stack.num_layers - 1
            if last and self.readout:
                outputs = [held(xp, y @ matrix.T, x) for y, matrix in zip(outputs, self.readout, strict=True)]
            meets = last or stack.join == "layer"
            below = [_merge(xp, outputs, layer.merge)] if meets else outputs
        y = below[0]
        if stack.output_order == "processing":
            y = xp.flip(y, (0,))
        is_lstm = stack.cell.kind == "lstm"
        return y, tuple(h for h, _ in finals), tuple(c for _, c in finals) if is_lstm else ()

    def _run_direction(
        self, direction: Direction, arrays: Mapping[Key, Any], x: Any, h: Any, c: Any, order: _Order | None
    ) -> tuple[Any, Any, Any]:
        xp = self.xp

        def turned(sequence: Any) -> Any:
            if not direction.reverse:
                return sequence
            return xp.flip(sequence, (0,)) if order is None else order.turn(sequence)

        step = stepper(xp, direction, arrays, self.readings, self.functions)
        outputs = []
        for t, inputs_of_step in enumerate(products(xp, direction, arrays, turned(x))):
            if self.before is not None:
                self.before()
            new_h, new_c = step(inputs_of_step, h, c)
            if order is None:
                h, c = new_h, new_c
            else:
                h, c = xp.where(order.live[t], new_h, h), xp.where(order.live[t], new_c, c)
            outputs.append(h)
        y = turned(xp.stack(outputs))
        return y if order is None else xp.where(order.live, y, xp.zeros_like(y)), h, c


def held(xp: Any, value: Any, like: Any) -> Any:
    """Return a value in the element type of the computation: most numpy operations turn bfloat16 into float32."""
    return value if xp is not np or value.dtype == like.dtype else value.astype(like.dtype)


def initial(xp: Any, direction: Direction, arrays: Mapping[Key, Any], which: str, x: Any) -> Any:
    """Return a direction's learned initial state, "hidden" or "cell", or zeros, for each sequence of x (time, batch, in)."""
    learned = arrays.get((f"initial_{which}", ""))
    width = direction.output_size if which == "hidden" else direction.hidden_size
    zero = xp.zeros((x.shape[1], width), dtype=x.dtype)
    return zero if learned is None else zero + learned


def _merge(xp: Any, outputs: list[Any], merge: str) -> Any:
    if len(outputs) == 1:
        return outputs[0]
    first, second = outputs
    if merge in ("concat", "none"):
        return xp.concatenate([first, second], -1)
    joined = first * second if merge == "mul" else first + second
    return joined / 2 if merge == "ave" else joined


class _Order:
    """Where each step of sequences of many lengths is: a reversed one starts at its own last step, not at the padding."""

    def __init__(self, xp: Any, steps: int, lengths: Array) -> None:
        live = np.arange(steps)[:, None] < lengths
        turned = np.where(live, lengths - 1 - np.arange(steps)[:, None], 0)
        self.live, self._turned = (xp.asarray(value) for value in (live[:, :, None], turned))
        self._rows = xp.asarray(np.arange(len(lengths)))

    def turn(self, sequence: Any) -> Any:
        """Return each sequence from its last step to its first."""
        return sequence[self._turned, self._rows]


_AT_ONCE = 1 << 23
"""The most numbers of the inputs' products in memory at a time: a long sequence's would fill it."""


def products(xp: Any, direction: Direction, arrays: Mapping[Key, Any], x: Any) -> Iterator[Any]:
    """Yield, for each step, all that does not depend on the state, (batch, gates * hidden): W x, biases and constants."""
    cell = direction.cell
    bias: Any = 0.0
    # The recurrent bias of a candidate whose product is reset is reset with it.
    inside = cell.kind == "gru" and cell.reset_after
    for part in BIAS_PARTS:
        if (part, cell.gates[0]) in arrays:
            values = [arrays[part, gate] for gate in cell.gates]
            if part == "recurrent_bias" and inside:
                values[-1] = xp.zeros_like(values[-1])
            bias = bias + xp.concatenate(values)
    if cell.constants:
        constants = np.repeat([cell.constants.get(gate, 0.0) for gate in cell.gates], direction.hidden_size)
        bias = bias + xp.asarray(constants, dtype=x.dtype)
    bias = held(xp, bias, x) if cell.constants or any((part, cell.gates[0]) in arrays for part in BIAS_PARTS) else None
    skip = direction.skip_input
    weights = [] if skip else [arrays["input", gate].T for gate in cell.gates]
    steps = max(1, _AT_ONCE // max(1, x.shape[1] * len(cell.gates) * direction.hidden_size))
    for start in range(0, len(x), steps):
        block = x[start : start + steps]
        block_sums = xp.concatenate([block] * len(cell.gates), -1) if skip else _gates(xp, block, weights)
        yield from block_sums if bias is None else block_sums + bias


def _gates(xp: Any, value: Any, matrices: Sequence[Any]) -> Any:
    """Return the products of a value with each gate's matrix, side by side; no copy is made of large matrices."""
    return xp.concatenate([held(xp, value @ matrix, value) for matrix in matrices], -1)


Step = Callable[[Any, Any, Any], tuple[Any, Any]]


def stepper(
    xp: Any, direction: Direction, arrays: Mapping[Key, Any], readings: Collection[Reading], functions: Mapping[str, Function] = FUNCTIONS
) -> Step:
    """Return the function of one time step: (what `products` yields, h, c) to the new (h, c), each (batch, width)."""
    cell, size = direction.cell, direction.hidden_size
    clips = {clip.kind: clip for clip in cell.clips}
    recurrent = [arrays["recurrent", gate].T for gate in cell.gates]
    act, gate_act, out_act = (
        _function(xp, function, functions) for function in (cell.activation, cell.gate_activation, cell.output_activation)
    )

    def bound(kind: str, value: Any) -> Any:
        return held(xp, xp.clip(value, clips[kind].low, clips[kind].high), value) if kind in clips else value

    def times(state: Any, matrix: Any) -> Any:
        return held(xp, state @ matrix, state)

    def rnn(summed: Any, h: Any, c: Any) -> tuple[Any, Any]:
        return act(bound("gates", summed + times(h, recurrent[0]))), c

    def gru(summed: Any, h: Any, c: Any) -> tuple[Any, Any]:
        if cell.reset_after:
            product = _gates(xp, h, recurrent)
            gates = gate_act(bound("gates", summed[:, : 2 * size] + product[:, : 2 * size]))
            inner = product[:, 2 * size :]
            if ("recurrent_bias", "n") in arrays:
                inner = inner + arrays["recurrent_bias", "n"]
            inner = gates[:, :size] * inner
        else:
            gates = gate_act(bound("gates", summed[:, : 2 * size] + _gates(xp, h, recurrent[:2])))
            inner = times(gates[:, :size] * h, recurrent[2])
        z = gates[:, size:]
        n = act(bound("gates", summed[:, 2 * size :] + inner))
        return (1 - z) * n + z * h, c

    def lstm(summed: Any, h: Any, c: Any) -> tuple[Any, Any]:
        product = summed + _gates(xp, h, recurrent)
        c = bound("state", c)

        def pre(number: int, gate: str, state: Any) -> Any:
            value = product[:, number * size : (number + 1) * size]
            return bound("gates", value + arrays["peephole", gate] * state if ("peephole", gate) in arrays else value)

        if cell.coupled == "i":
            f = gate_act(pre(1, "f", c))
            i = 1 - f
        else:
            i = gate_act(pre(0, "i", c))
            f = 1 - i if cell.coupled == "f" else gate_act(pre(1, "f", c))
        new = bound("cell", f * c + i * act(pre(2, "g", c)))
        read = bound("state", new)
        seen = c if "old cell" in readings else read
        out = gate_act(pre(3, "o", seen)) * out_act(bound("gates", read) if "clip output" in readings else read)
        if ("projection", "") in arrays:
            out = bound("projection", times(out, arrays["projection", ""].T))
        return out, new

    return {"rnn": rnn, "gru": gru, "lstm": lstm}[cell.kind]


def _function(xp: Any, activation: Activation, functions: Mapping[str, Function]) -> Callable[[Any], Any]:
    if not activation.known:
        raise RefusedError(f"the activation {activation.name!r}", "the reference", f"the known ones are {', '.join(FUNCTIONS)}")
    function = functions[activation.name]
    return lambda x: held(xp, function(xp, x, activation.alpha, activation.beta), x)
