"""A Keras layer, on any backend, for the recurrent layers that Keras has no class for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from rnnconvert.core.cells import Activation
from rnnconvert.core.equations import Equations
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.language import outline as outlines
from rnnconvert.rewrites import limits

Function = Callable[[Any], Any]


@keras.saving.register_keras_serializable(package="rnnconvert")
class OwnRecurrent(keras.layers.Layer):
    """A recurrent layer, or a stack of them, that Keras has no class for.

    rnnconvert.to_keras makes it with its weights. A saved model that has it can be loaded once rnnconvert.formats.keras.module is imported.

    outline       what it computes: see rnnconvert.language.outline
    return_state  whether it gives the final states, too

    Called with (batch, time, in), a mask (batch, time) and initial states: of every direction, layer by layer, h and of an
    LSTM c, each (batch, width); the learned ones, or zero, if None. Gives the outputs of every step, (batch, time, out),
    a list of two if nothing joins the last layer's directions; then with `return_state` the states as they are
    taken. Outputs are zero at masked steps, as keras.layers.Bidirectional's are.

    Variables are named per layer and direction, as kernel_l0 and recurrent_kernel_l0_reverse, gates side by side as i f g o or r z n;
    in addition there are bias, recurrent_bias, peephole (3 * hidden; i f o), projection, initial_hidden, initial_cell and readout.

    Raises UsageError for a text that is not an outline, RefusedError for an unknown function.
    """

    def __init__(self, outline: str, return_state: bool = False, **keywords: Any) -> None:
        super().__init__(**keywords)
        stack = outlines.from_text(outline)
        limits.check(stack)
        self.outline = outlines.to_text(stack)
        self.return_state = return_state
        self.supports_masking = True
        self._stack = stack
        self._loops = [_Loop(self, direction, outlines.suffix(layer, number)) for layer, number, direction in stack.directions()]
        self._named: dict[str, Any] = {}

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        """Make the variables.

        Raises ValueError for an input of another width.
        """
        if sequences_shape[-1] != self._stack.input_size:
            raise ValueError(f"{self.name} reads {self._stack.input_size} values per step, not {sequences_shape[-1]}")
        for name, shape in outlines.shapes(self._stack, outlines.KERAS).items():
            self._named[name] = self.add_weight(name=name, shape=shape, initializer="zeros")
        self.built = True

    def recurrent(self, name: str = "") -> Recurrent:
        """Return the layer in canonical form."""
        arrays = {key: np.asarray(ops.convert_to_numpy(variable)) for key, variable in self._named.items()}
        return outlines.filled(self._stack, outlines.KERAS, arrays, name or self.name)

    def load(self, arrays: Mapping[str, Any]) -> None:
        """Set every variable by its name."""
        for name, variable in self._named.items():
            variable.assign(arrays[name])

    def weight(self, name: str) -> Any:
        """Return a variable's tensor by its name, None where there is none."""
        return ops.convert_to_tensor(self._named[name]) if name in self._named else None

    def call(self, sequences: Any, initial_state: Any = None, mask: Any = None) -> Any:
        stack = self._stack
        initial = None if initial_state is None else list(initial_state)
        loops, states, below = iter(self._loops), [], [sequences]
        for index, layer in enumerate(stack.layers):
            outputs = []
            for number, _ in enumerate(layer.directions):
                y, *finals = next(loops).run(below[min(number, len(below) - 1)], initial, mask)
                outputs.append(y)
                states += finals
            last = index == stack.num_layers - 1
            if last and stack.readout:
                outputs = [y @ self.weight(name) for y, name in zip(outputs, _READOUTS, strict=False)]
            apart = stack.join == "end" if not last else layer.merge == "none"
            below = outputs if apart else [_joined(outputs, layer.merge)]
        if stack.output_order == "processing":
            below = [ops.flip(y, axis=1) for y in below]
        if self.return_state:
            return (*below, *states)
        return below[0] if len(below) == 1 else below

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return the mask of the outputs; states have none."""
        combined = keras.tree.flatten(mask)[0] if mask is not None else None
        if combined is not None and self._stack.output_order == "processing":
            combined = ops.flip(combined, axis=1)
        last = self._stack.layers[-1]
        outputs = 2 if last.merge == "none" and len(last.directions) == 2 else 1
        states = sum(loop.states for loop in self._loops) if self.return_state else 0
        return combined if outputs + states == 1 else [*[combined] * outputs, *[None] * states]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments from which `from_config` makes the layer again."""
        return {**super().get_config(), "outline": self.outline, "return_state": self.return_state}

    def __repr__(self) -> str:
        return f"<OwnRecurrent name={self.name}, {outlines.words(self._stack)}>"


_READOUTS = (outlines.READOUT, outlines.READOUT + "_reverse")


def _joined(outputs: list[Any], merge: str) -> Any:
    """Return the outputs of a layer's directions as one."""
    if len(outputs) == 1:
        return outputs[0]
    first, second = outputs
    if merge == "mul":
        return first * second
    if merge in ("concat", "none"):
        return ops.concatenate(outputs, axis=-1)
    return first + second if merge == "sum" else (first + second) / 2


class _Loop:
    """One direction of one layer: its input's products, all steps at once, then Keras's own loop over the steps."""

    def __init__(self, owner: OwnRecurrent, direction: Direction, end: str) -> None:
        self.owner, self.direction, self.end = owner, direction, end
        self.states = 2 if direction.cell.kind == "lstm" else 1
        self.added = outlines.constants(direction.cell, direction.hidden_size)
        self.steps = _StepCell(direction)
        self.loop = keras.layers.RNN(
            self.steps,
            return_sequences=True,
            return_state=True,
            go_backwards=direction.reverse,
            zero_output_for_mask=True,
            dtype=owner.dtype_policy,
        )

    def weight(self, name: str) -> Any:
        return self.owner.weight(name + self.end)

    def run(self, x: Any, states: list[Any] | None, mask: Any) -> tuple[Any, ...]:
        """Return the outputs in the order of time, then the final states; takes its initial states from the list's head."""
        widths = self.steps.state_size
        if states is None:
            learned = ("initial_hidden", "initial_cell")
            initial = [self.initial(x, name, width) for name, width in zip(learned, widths, strict=False)]
        else:
            initial = [states.pop(0) for _ in widths]
        self.steps.use({name: self.weight(name) for name in ("recurrent_kernel", "recurrent_bias", "peephole", "projection")})
        self.steps.compute_dtype = self.owner.compute_dtype
        y, *finals = self.loop(self.inputs(x), initial_state=initial, mask=mask)
        self.steps.use({})
        return (ops.flip(y, axis=1) if self.direction.reverse else y, *finals)

    def initial(self, x: Any, name: str, width: int) -> Any:
        zero = ops.zeros((ops.shape(x)[0], width), dtype=self.owner.compute_dtype)
        learned = self.weight(name)
        return zero if learned is None else zero + learned

    def inputs(self, x: Any) -> Any:
        """Return all that does not depend on the state: W x, biases and run-time constants."""
        kernel = self.weight("kernel")
        inputs = ops.concatenate([x] * len(self.direction.cell.gates), axis=-1) if kernel is None else x @ kernel
        # A candidate whose product is reset has its recurrent bias reset with it, in its equation.
        for name in ("bias",) if self.steps.reset_after else ("bias", "recurrent_bias"):
            bias = self.weight(name)
            inputs = inputs if bias is None else inputs + bias
        return inputs if self.added is None else inputs + ops.convert_to_tensor(self.added, dtype=inputs.dtype)


class _StepCell(Equations):
    """A direction's equations as a cell of keras.layers.RNN, of inputs that are multiplied already."""

    def __init__(self, direction: Direction) -> None:
        cell = direction.cell
        self.configure(cell, direction.hidden_size)
        self.candidate_function = _function(cell.activation)
        self.gate_function = _function(cell.gate_activation)
        self.output_function = _function(cell.output_activation)
        clips = {clip.kind: _clamp(clip.low, clip.high) for clip in cell.clips}
        self.clip_gates = clips.get("gates", _same)
        self.clip_cell = clips.get("cell", _same)
        self.clip_state = clips.get("state", _same)
        self.clip_projection = clips.get("projection", _same)
        self.output_size = direction.output_size
        self.state_size = [direction.output_size, direction.hidden_size][: 2 if cell.kind == "lstm" else 1]
        self.compute_dtype = "float32"
        self._weights: dict[str, Any] = {}

    def use(self, weights: dict[str, Any]) -> None:
        """Use these weights in the calls that follow."""
        self._weights = weights

    def call(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        w = self._weights
        h, c = states[0], states[-1]
        h, c = self.step(inputs, h, c, w["recurrent_kernel"], w["recurrent_bias"], w["peephole"], w["projection"])
        return h, [h, c][: len(states)]

    __call__ = call


def _same(x: Any) -> Any:
    return x


def _clamp(low: float, high: float) -> Function:
    return lambda x: ops.clip(x, low, high)


def _function(activation: Activation) -> Function:
    function, a, b = FUNCTIONS[activation.name], activation.alpha, activation.beta
    return lambda x: function(x, a, b)


# Every name of rnnconvert.core.cells.ACTIVATION_DEFAULTS; the equations are those of rnnconvert.core.reference.
FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sigmoid": lambda x, a, b: ops.sigmoid(x),
    "tanh": lambda x, a, b: ops.tanh(x),
    "relu": lambda x, a, b: ops.relu(x),
    "linear": lambda x, a, b: x,
    "softsign": lambda x, a, b: ops.softsign(x),
    "softplus": lambda x, a, b: ops.logaddexp(x, ops.zeros_like(x)),
    "exponential": lambda x, a, b: ops.exp(x),
    "silu": lambda x, a, b: ops.silu(x),
    "gelu": lambda x, a, b: ops.gelu(x, approximate=False),
    "selu": lambda x, a, b: ops.selu(x),
    "leaky_relu": lambda x, a, b: ops.where(x >= 0, x, a * x),
    "thresholded_relu": lambda x, a, b: ops.where(x > a, x, ops.zeros_like(x)),
    "elu": lambda x, a, b: ops.elu(x, alpha=a),
    "affine": lambda x, a, b: a * x + b,
    "scaled_tanh": lambda x, a, b: a * ops.tanh(b * x),
    "hard_sigmoid": lambda x, a, b: ops.clip(a * x + b, 0.0, 1.0),
}
"""The function of each name: f(x, alpha, beta)."""


def layer_of(stack: Recurrent, dtype: str | None = None, return_state: bool = False) -> OwnRecurrent:
    """Return the layer of a stack, with its weights.

    Raises RefusedError for an unknown function: see rnnconvert.rewrites.limits.check.
    """
    limits.check(stack, dtype)
    kind = dtype or str(stack.dtype.newbyteorder("="))
    name = "".join(letter if letter.isalnum() else "_" for letter in stack.name).strip("_") or "recurrent"
    result = OwnRecurrent(outlines.to_text(stack), return_state, name=name, dtype=kind)
    result.build((None, None, stack.input_size))
    result.load(outlines.numbers(stack, outlines.KERAS))
    return result


def model_of(stack: Recurrent, dtype: str | None = None, return_state: bool = False) -> keras.Model:
    """Return a model of that layer alone, input (batch, time, in)."""
    layer = layer_of(stack, dtype, return_state)
    sequences = keras.Input((None, stack.input_size), dtype=layer.compute_dtype)
    return keras.Model(sequences, layer(sequences))
