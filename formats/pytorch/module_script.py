"""The modules of rnnconvert.formats.pytorch.module as TorchScript takes them: with every type fixed, and without packed sequences."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from rnnconvert.core.errors import RefusedError


class Scriptable(nn.Module):
    """The part of a module that torch.jit.script compiles; until then nothing here is used."""

    __jit_unused_properties__ = ("all_weights",)

    def __prepare_scriptable__(self) -> nn.Module:
        """Make the parameters reachable for TorchScript, which reads no attribute by a name made up: as in torch.nn they
        stand in lists as well.

        Raises RefusedError for directions of different widths, whose states are not one tensor.
        """
        module: Any = self
        if any(len(set(widths)) > 1 for widths in module.widths):
            raise RefusedError(
                "directions of different widths",
                "TorchScript",
                f"the states of {self} are not one tensor",
                "Take the layers apart with rnnconvert.split_stack.",
            )
        ends = module.ends
        self._script_weights = _listed([weight for end in ends for weight in module.slots(end)])
        self._script_hidden = _listed([getattr(self, "initial_hidden" + end, None) for end in ends])
        self._script_cell = _listed([getattr(self, "initial_cell" + end, None) for end in ends])
        self._script_readout = torch.jit.Attribute([getattr(self, name) for name in module.readouts], list[Tensor])
        self._script_widths = torch.jit.Attribute([module.widths[0][0], module.widths[-1][0]], list[int])
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_script_")}

    def scripted(self, input: Tensor, h_0: Tensor | None, c_0: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs and the final states; the last are h again where there are no cell states."""
        assert input.dim() == 2 or input.dim() == 3, "expected input to be 2D or 3D"
        assert input.shape[-1] == self.input_size, "input.size(-1) must be equal to input_size"
        unbatched = input.dim() == 2
        if unbatched:
            x = input.unsqueeze(1)
        elif self.batch_first:
            x = input.transpose(0, 1)
        else:
            x = input
        h = self.scripted_states(x, h_0, self._script_hidden, self._script_widths[0])
        c = self.scripted_states(x, c_0, self._script_cell, self._script_widths[1]) if self.has_cell else h
        y, h, c = self.stack(x, h, c, None, self._script_weights, self._script_readout)
        last_h, last_c = torch.stack(h), torch.stack(c)
        if unbatched:
            return y.squeeze(1), last_h.squeeze(1), last_c.squeeze(1)
        return y.transpose(0, 1) if self.batch_first else y, last_h, last_c

    def scripted_states(self, x: Tensor, states: Tensor | None, learned: list[Tensor | None], width: int) -> list[Tensor]:
        """Return the initial states of every direction, (batch, width)."""
        result: list[Tensor] = []
        for number, start in enumerate(learned):
            if states is not None:
                state = states[number] if states.dim() == 3 else states[number].unsqueeze(0)
                assert state.shape == (x.shape[1], width), "the hidden states have another size than expected"
                result.append(state)
            else:
                zero = torch.zeros([x.shape[1], width], dtype=x.dtype, device=x.device)
                result.append(zero if start is None else zero + start)
        return result


def _listed(tensors: list[Tensor | None]) -> Any:
    return torch.jit.Attribute(tensors, list[Optional[Tensor]])  # noqa: UP045 - TorchScript's spelling
