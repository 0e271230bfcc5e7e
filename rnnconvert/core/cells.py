"""A recurrent cell: its kind, its gates and everything that changes the function.

Gates have the field's letters: LSTM `i f g o` (g is the candidate), GRU `r z n` (n is the candidate), plain RNN `n`. With W acting on the
input x, R on the state h and b the biases (input bias bw, recurrent bias br), every gate's pre-activation is a = W x + bw + R h + br:

    rnn    h' = act(a_n)
    lstm   i, f, o = gate(a_i), gate(a_f), gate(a_o);  g = act(a_g)
           c' = f * c + i * g;  h' = out(c') * o
    gru    r, z = gate(a_r), gate(a_z)
           reset_after    n = act(W x + bw + r * (R h + br))
           else           n = act(W x + bw + R (r * h) + br)
           h' = (1 - z) * n + z * h
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from rnnconvert.core.arguments import unknown
from rnnconvert.core.errors import UsageError

Kind = Literal["rnn", "gru", "lstm"]

GATES: dict[str, tuple[str, ...]] = {"rnn": ("n",), "gru": ("r", "z", "n"), "lstm": ("i", "f", "g", "o")}
"""The gates of each kind, in canonical order."""

CANDIDATE: dict[str, str] = {"rnn": "n", "gru": "n", "lstm": "g"}
"""The gate that goes through `activation`; the others go through `gate_activation`."""

PEEPHOLE_GATES = ("i", "f", "o")
"""The LSTM gates that a peephole may reach: i and f see the old cell state, o the new one."""

# name: (alpha, beta) where the source leaves them out, None where the function takes none.
# ONNX operator documentation (RNN, "Activation functions"); Keras keras/src/activations.
ACTIVATION_DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "sigmoid": (None, None),
    "tanh": (None, None),
    "relu": (None, None),
    "linear": (None, None),
    "softsign": (None, None),
    "softplus": (None, None),
    "exponential": (None, None),
    "silu": (None, None),
    "gelu": (None, None),
    "selu": (None, None),
    "leaky_relu": (0.01, None),
    "thresholded_relu": (1.0, None),
    "elu": (1.0, None),
    "affine": (1.0, 0.0),
    "scaled_tanh": (1.0, 1.0),
    "hard_sigmoid": (0.2, 0.5),
}


@dataclass(frozen=True)
class Activation:
    """An activation function with its constants.

    name   one of ACTIVATION_DEFAULTS; any other name can be carried, and is refused where it would be run
    alpha  first constant, where the function takes one: the slope of `hard_sigmoid`, clip(alpha * x + beta, 0, 1)
    beta   second constant, likewise
    """

    name: str
    alpha: float | None = None
    beta: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"a function's name is a text such as 'tanh', not {self.name!r}")
        alpha, beta = ACTIVATION_DEFAULTS.get(self.name, (None, None))
        if self.alpha is None:
            object.__setattr__(self, "alpha", alpha)
        if self.beta is None:
            object.__setattr__(self, "beta", beta)
        if self.name == "affine" and (self.alpha, self.beta) == (1.0, 0.0):
            object.__setattr__(self, "name", "linear")
            object.__setattr__(self, "alpha", None)
            object.__setattr__(self, "beta", None)

    @property
    def known(self) -> bool:
        """Whether this is a function that we can compute."""
        return self.name in ACTIVATION_DEFAULTS

    def __str__(self) -> str:
        constants = [f"{value:.9g}" for value in (self.alpha, self.beta) if value is not None]
        return f"{self.name}({', '.join(constants)})" if constants else self.name


SIGMOID = Activation("sigmoid")
TANH = Activation("tanh")
RELU = Activation("relu")
HARD_SIGMOID_KERAS_2 = Activation("hard_sigmoid", 0.2, 0.5)
"""clip(0.2 x + 0.5, 0, 1): Keras 1 and 2, and ONNX's default. Source: keras 2.3.1 backend."""
HARD_SIGMOID_KERAS_3 = Activation("hard_sigmoid", 1 / 6, 0.5)
"""relu6(x + 3) / 6: Keras 3 and PyTorch. Source: keras/src/backend/*/nn.py."""


@dataclass(frozen=True)
class Clip:
    """A bound that is put on a value at every step.

    kind   what is clipped. "gates": every gate's pre-activation (ONNX `clip`). "cell": the new cell
           state, before the output and its peephole (TensorFlow 1 `cell_clip`). "state": the cell state
           wherever it is read, k(c) = clip(c, low, high): c' = f * k(c) + i * g and h' = out(k(c')) * o, where
           peepholes see k(c) and k(c'); c' itself is handed out as it is, and its gradient is zero where k clips
           (cuDNN `cudnnRNNSetClip`, measured on cuDNN 9.19 and an H100; MXNet's `lstm_state_clip_min` and
           `_max`, which are given to it). "projection": the projected output.
    low    lower bound
    high   upper bound
    """

    kind: Literal["gates", "cell", "state", "projection"]
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.kind} clipped to [{self.low:g}, {self.high:g}]"


@dataclass(frozen=True)
class Cell:
    """A cell: a change of any field changes the function.

    kind               rnn, gru or lstm
    reset_after        gru: whether the reset gate multiplies the recurrent product (True) or the state (False)
    activation         of the candidate
    gate_activation    of the other gates
    output_activation  lstm: of the cell state on its way to the output
    coupled            lstm: "f" for f = 1 - i, "i" for i = 1 - f, "" for two independent gates
    constants          added to a gate's pre-activation at run time and not stored ({"f": 1.0}: forget_bias)
    clips              bounds put on values at every step
    """

    kind: Kind
    reset_after: bool | None = None
    activation: Activation = TANH
    gate_activation: Activation = SIGMOID
    output_activation: Activation = TANH
    coupled: Literal["", "f", "i"] = ""
    constants: Mapping[str, float] = field(default_factory=dict)
    clips: tuple[Clip, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in GATES:
            raise unknown("cell", self.kind, GATES)
        if (self.reset_after is None) == (self.kind == "gru"):
            raise UsageError(f"reset_after is {self.reset_after} for a {self.kind!r}. Set it for a gru only, where it is required")

    def __hash__(self) -> int:
        return hash((self.kind, self.reset_after, self.activation, self.coupled))

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates, in canonical order."""
        return GATES[self.kind]

    @property
    def sigmoid_gates(self) -> tuple[str, ...]:
        """The gates that go through `gate_activation`."""
        return tuple(gate for gate in self.gates if gate != CANDIDATE[self.kind])

    def replace(self, **changes: object) -> Cell:
        """Return this cell with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def describe(self) -> list[str]:
        """Return the unusual properties of the cell, in words; nothing for the plain cell that most people mean."""
        plain = Cell(self.kind, self.reset_after)
        parts = []
        if self.kind != "rnn" and self.gate_activation != plain.gate_activation:
            parts.append(f"gates through {self.gate_activation}")
        if self.activation != plain.activation:
            parts.append(f"candidate through {self.activation}")
        if self.kind == "lstm" and self.output_activation != plain.output_activation:
            parts.append(f"output through {self.output_activation}")
        if self.coupled:
            parts.append("coupled gates: " + ("f = 1 - i" if self.coupled == "f" else "i = 1 - f"))
        parts += [f"{value:+g} added to gate {gate} at run time" for gate, value in self.constants.items() if value]
        parts += [str(clip) for clip in self.clips]
        return parts
