"""The computation of a stack in torch, without its weights: they are passed in, so that a module may name them as it likes.

TorchScript compiles all of it, too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rnnconvert.core.cells import Activation
from rnnconvert.core.equations import Equations
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.language.outline import constants

SLOTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_peephole", "weight_hr")
"""One direction's weights in the order in which they are handed in."""


class Stack(nn.Module):
    """A stack of layers.

    Called with x (time, batch, in); for every direction its states h (batch, out) and c (batch, hidden); the lengths of the sequences on
    x's device, or None; the weights of every direction in the order of SLOTS, None for the missing ones; and the read-out matrices. Gives
    the outputs (time, batch, out), zeros past a sequence's length, and the final states.
    """

    def __init__(self, outline: Recurrent) -> None:
        super().__init__()
        ways = [ModuleDirection(direction, number) for number, (_, _, direction) in enumerate(outline.directions())]
        last = outline.num_layers - 1
        self.layers = nn.ModuleList(
            _JoinedDirections([ways.pop(0) for _ in layer.directions], layer.merge, index == last or outline.join == "layer")
            for index, layer in enumerate(outline.layers)
        )
        self.processing = outline.output_order == "processing"

    def forward(
        self, x: Tensor, h: list[Tensor], c: list[Tensor], lengths: Tensor | None, weights: list[Tensor | None], readout: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        below = [x]
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            outputs: list[Tensor] = []
            for number, way in enumerate(layer.ways):
                y, new_h, new_c = way(below[min(number, len(below) - 1)], h, c, lengths, weights)
                if index == len(self.layers) - 1 and len(readout) > 0:
                    y = y @ readout[number].t()
                outputs.append(y)
                hidden.append(new_h)
                cell.append(new_c)
            below = [joined(outputs, layer.merge)] if layer.meets else outputs
        y = below[0]
        return turned(y, lengths) if self.processing else y, hidden, cell


class _JoinedDirections(nn.Module):
    """The directions of one layer, how their outputs are joined, and whether they are joined here already."""

    def __init__(self, ways: list[ModuleDirection], merge: str, meets: bool) -> None:
        super().__init__()
        self.ways = nn.ModuleList(ways)
        self.merge = merge
        self.meets = meets


class ModuleDirection(Equations, nn.Module):
    """One direction of one layer: a cell, and which way it reads."""

    def __init__(self, direction: Direction, number: int) -> None:
        super().__init__()
        cell = direction.cell
        self.configure(cell, direction.hidden_size)
        self.candidate_function = FUNCTIONS[cell.activation.name](cell.activation)
        self.gate_function = FUNCTIONS[cell.gate_activation.name](cell.gate_activation)
        self.output_function = FUNCTIONS[cell.output_activation.name](cell.output_activation)
        clips = {clip.kind: Clamp(clip.low, clip.high) for clip in cell.clips}
        self.clip_gates = clips.get("gates", nn.Identity())
        self.clip_cell = clips.get("cell", nn.Identity())
        self.clip_state = clips.get("state", nn.Identity())
        self.clip_projection = clips.get("projection", nn.Identity())
        self.number = number
        self.gates = len(cell.gates)
        self.reverse = direction.reverse
        added = constants(cell, direction.hidden_size)
        self.added: Tensor | None
        self.register_buffer("added", None if added is None else torch.tensor(added), persistent=False)

    def forward(
        self, x: Tensor, h: list[Tensor], c: list[Tensor], lengths: Tensor | None, weights: list[Tensor | None]
    ) -> tuple[Tensor, Tensor, Tensor]:
        weight_ih, weight_hh, bias_ih, bias_hh, peephole, weight_hr = weights[6 * self.number : 6 * self.number + 6]
        assert weight_hh is not None
        recurrent = weight_hh.t()
        projection = weight_hr.t() if weight_hr is not None else None
        steps = self.inputs(turned(x, lengths) if self.reverse else x, weight_ih, bias_ih, bias_hh)
        state, memory = h[self.number], c[self.number]
        outputs: list[Tensor] = []
        for t, step_inputs in enumerate(steps.unbind(0)):
            new_state, new_memory = self.step(step_inputs, state, memory, recurrent, bias_hh, peephole, projection)
            if lengths is not None:
                live = (lengths > t).unsqueeze(1)
                new_state, new_memory = torch.where(live, new_state, state), torch.where(live, new_memory, memory)
            state, memory = new_state, new_memory
            outputs.append(state)
        y = torch.stack(outputs)
        if self.reverse:
            y = turned(y, lengths)
        if lengths is not None:
            y = y * live_steps(y.shape[0], lengths).unsqueeze(2).to(y.dtype)
        return y, state, memory

    def inputs(self, x: Tensor, weight_ih: Tensor | None, bias_ih: Tensor | None, bias_hh: Tensor | None) -> Tensor:
        """Return all that does not depend on the state, of every step at once: W x, biases and run-time constants."""
        summed = torch.cat([x] * self.gates, -1) if weight_ih is None else x @ weight_ih.t()
        if bias_ih is not None:
            summed = summed + bias_ih
        # A candidate whose product is reset has its recurrent bias reset with it, in its equation.
        if bias_hh is not None and not self.reset_after:
            summed = summed + bias_hh
        if self.added is not None:
            summed = summed + self.added.to(summed.dtype)
        return summed


def joined(outputs: list[Tensor], merge: str) -> Tensor:
    """Return the outputs of a layer's directions as one; those that are kept apart are side by side."""
    if len(outputs) == 1:
        return outputs[0]
    if merge == "sum":
        return outputs[0] + outputs[1]
    if merge == "mul":
        return outputs[0] * outputs[1]
    if merge == "ave":
        return (outputs[0] + outputs[1]) / 2
    return torch.cat(outputs, -1)


def live_steps(steps: int, lengths: Tensor) -> Tensor:
    """Return which steps belong to a sequence and do not lie after it, (time, batch)."""
    return torch.arange(steps, device=lengths.device).unsqueeze(1) < lengths


def turned(sequence: Tensor, lengths: Tensor | None) -> Tensor:
    """Return each sequence from its own last step to its first; the values after it are arbitrary."""
    if lengths is None:
        return sequence.flip(0)
    times = torch.arange(sequence.shape[0], device=sequence.device).unsqueeze(1)
    index = (lengths - 1 - times).clamp(min=0).unsqueeze(2).expand(-1, -1, sequence.shape[2])
    return sequence.gather(0, index)


# The functions of a cell


class Clamp(nn.Module):
    """clip(x, low, high)."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(self.low, self.high)


class _FunctionModule(nn.Module):
    """A function that torch.nn has no module for."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.alpha = 0.0 if activation.alpha is None else float(activation.alpha)
        self.beta = 0.0 if activation.beta is None else float(activation.beta)


class Affine(_FunctionModule):
    """alpha * x + beta."""

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha * x + self.beta


class ScaledTanh(_FunctionModule):
    """alpha * tanh(beta * x)."""

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha * torch.tanh(self.beta * x)


class HardSigmoid(_FunctionModule):
    """clip(alpha * x + beta, 0, 1)."""

    def forward(self, x: Tensor) -> Tensor:
        return (self.alpha * x + self.beta).clamp(0.0, 1.0)


class Exponential(_FunctionModule):
    """exp(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x)


class Softplus(_FunctionModule):
    """log(1 + exp(x)); torch.nn's own takes x for it past a threshold."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.logaddexp(x, torch.zeros_like(x))


def _number(value: float | None) -> float:
    return 0.0 if value is None else float(value)


# Every name of rnnconvert.core.cells.ACTIVATION_DEFAULTS; the equations are those of rnnconvert.core.reference.
FUNCTIONS = {
    "sigmoid": lambda f: nn.Sigmoid(),
    "tanh": lambda f: nn.Tanh(),
    "relu": lambda f: nn.ReLU(),
    "linear": lambda f: nn.Identity(),
    "softsign": lambda f: nn.Softsign(),
    "softplus": Softplus,
    "exponential": Exponential,
    "silu": lambda f: nn.SiLU(),
    "gelu": lambda f: nn.GELU(),
    "selu": lambda f: nn.SELU(),
    "leaky_relu": lambda f: nn.LeakyReLU(_number(f.alpha)),
    "thresholded_relu": lambda f: nn.Threshold(_number(f.alpha), 0.0),
    "elu": lambda f: nn.ELU(_number(f.alpha)),
    "affine": Affine,
    "scaled_tanh": ScaledTanh,
    "hard_sigmoid": HardSigmoid,
}
"""The module of each function."""
