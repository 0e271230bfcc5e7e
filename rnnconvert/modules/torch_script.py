"""The modules of rnnconvert.modules.torch as TorchScript takes them: with every type fixed, and without packed sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor, nn

from rnnconvert.errors import RefusedError
from rnnconvert.modules.torch_stack import Stack

if TYPE_CHECKING:
    from rnnconvert.modules.torch import ForeignRecurrent


def scriptable(module: ForeignRecurrent) -> nn.Module:
    """A module of the same parameters under the same names that torch.jit.script compiles.

    Raises RefusedError for directions of different widths, whose states are no one tensor.
    """
    if any(len(set(widths)) > 1 for widths in module.widths):
        raise RefusedError(
            "directions of different widths", "TorchScript", f"the states of {module.extra_repr()} are no one tensor",
            "Take the layers apart with rnnconvert.split_stack.",
        )  # fmt: skip
    return (_WithCell if module.has_cell else _WithoutCell)(module)


def _listed(tensors: list[Tensor | None]) -> Any:
    return torch.jit.Attribute(tensors, list[Optional[Tensor]])  # noqa: UP045 - TorchScript's spelling


class _Scriptable(nn.Module):
    """What both kinds of call have in common."""

    def __init__(self, module: ForeignRecurrent) -> None:
        super().__init__()
        self.stack: Stack = module.stack
        for name, parameter in module.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.register_buffer("outline", module.outline)
        # As in torch.nn: TorchScript reads no attribute by a name made up, so the parameters stand in lists as well.
        self.weights = _listed([weight for end in module.ends for weight in module._of(end)])
        self.learned_hidden = _listed([getattr(module, "initial_hidden" + end, None) for end in module.ends])
        self.learned_cell = _listed([getattr(module, "initial_cell" + end, None) for end in module.ends])
        self.readout = torch.jit.Attribute([getattr(module, name) for name in module.readouts], list[Tensor])
        self.input_size = module.input_size
        self.hidden_width = module.widths[0][0]
        self.cell_width = module.widths[-1][0]
        self.batch_first = module.batch_first
        self.train(module.training)

    def arranged(self, input: Tensor) -> Tensor:
        """The input as (time, batch, in)."""
        assert input.dim() == 2 or input.dim() == 3, "expected input to be 2D or 3D"
        assert input.shape[-1] == self.input_size, "input.size(-1) must be equal to input_size"
        if input.dim() == 2:
            return input.unsqueeze(1)
        return input.transpose(0, 1) if self.batch_first else input

    def given(self, x: Tensor, states: Tensor | None, learned: list[Tensor | None], width: int) -> list[Tensor]:
        """The initial states of every direction, (batch, width)."""
        found: list[Tensor] = []
        for number, own in enumerate(learned):
            if states is not None:
                state = states[number] if states.dim() == 3 else states[number].unsqueeze(0)
                assert state.shape == (x.shape[1], width), "the hidden states have another size than expected"
                found.append(state)
            else:
                zero = torch.zeros([x.shape[1], width], dtype=x.dtype, device=x.device)
                found.append(zero if own is None else zero + own)
        return found

    def output(self, y: Tensor, dims: int) -> Tensor:
        """The outputs as the input was given."""
        if dims == 2:
            return y.squeeze(1)
        return y.transpose(0, 1) if self.batch_first else y


class _WithoutCell(_Scriptable):
    """Called as torch.nn.GRU is."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x = self.arranged(input)
        h = self.given(x, hx, self.learned_hidden, self.hidden_width)
        y, h, _ = self.stack(x, h, h, None, self.weights, self.readout)
        last = torch.stack(h)
        return self.output(y, input.dim()), last.squeeze(1) if input.dim() == 2 else last


class _WithCell(_Scriptable):
    """Called as torch.nn.LSTM is."""

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = self.arranged(input)
        h_0: Tensor | None = None
        c_0: Tensor | None = None
        if hx is not None:
            h_0, c_0 = hx
        h = self.given(x, h_0, self.learned_hidden, self.hidden_width)
        c = self.given(x, c_0, self.learned_cell, self.cell_width)
        y, h, c = self.stack(x, h, c, None, self.weights, self.readout)
        last_h, last_c = torch.stack(h), torch.stack(c)
        if input.dim() == 2:
            last_h, last_c = last_h.squeeze(1), last_c.squeeze(1)
        return self.output(y, input.dim()), (last_h, last_c)
