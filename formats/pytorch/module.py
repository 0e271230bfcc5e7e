"""A torch module for the recurrent layers that torch.nn has no class for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.pytorch.module_script import Scriptable
from rnnconvert.formats.pytorch.module_stack import SLOTS, Stack, live_steps
from rnnconvert.language import outline
from rnnconvert.rewrites import limits

States = Any
"""h, or (h, c) where any cell is an LSTM; each a tensor, or where the directions' widths differ a tuple of tensors."""


class ForeignRecurrent(Scriptable):
    """A recurrent layer that torch.nn has no class for: the common part of ForeignRNN, ForeignGRU and ForeignLSTM.

    They are called as torch.nn.RNN, GRU and LSTM are. rnnconvert.to_torch makes them with their weights, `module_of_text` with zeros.

    input         (time, batch, in), (batch, time, in) with `batch_first`, (time, in) for one sequence, or a PackedSequence
    hx            initial states, h_0 or for LSTMs (h_0, c_0), each (layers * directions, batch, width); the learned ones,
                  or zero, if None. Directions of different widths take and give a tuple of (batch, width) tensors instead.
    gives         the outputs, and the final states as hx has them

    A stack with an LSTM in it has c for every direction; for other cells, it is given back as it came. Two directions that nothing joins
    stand side by side. Outputs in processing order are so for each sequence of a PackedSequence by itself. There is no dropout.

    Parameters are named and shaped as torch.nn's (weight_ih_l0, weight_hh_l0_reverse, weight_hr_l0; the gates stand as
    i f g o, r z n), and in addition: weight_peephole_l0 (3 * hidden; i f o), initial_hidden_l0 (out), initial_cell_l0 (hidden),
    readout (P, hidden). The buffer `outline`, bytes of text, says which cell a state dictionary is of: torch.nn's classes
    refuse it, and load_state_dict refuses another cell's.

    Raises UsageError for a text that is not an outline, RuntimeError or ValueError for inputs of a wrong shape, as torch.nn.
    """

    def __init__(
        self, text: str, batch_first: bool = False, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        stack = outline.from_text(text)
        limits.check(stack)
        self.text = outline.to_text(stack)
        first = stack.first
        self.input_size = stack.input_size
        self.hidden_size = stack.hidden_size
        self.proj_size = first.projection_size
        self.num_layers = stack.num_layers
        self.bidirectional = stack.num_directions == 2
        self.bias = first.biases != "none"
        self.batch_first = batch_first
        self.dropout = 0.0
        self.has_cell = any(direction.cell.kind == "lstm" for _, _, direction in stack.directions())
        self.ends = [outline.suffix(layer, number) for layer, number, _ in stack.directions()]
        self.widths = [
            [direction.output_size for _, _, direction in stack.directions()],
            [direction.hidden_size for _, _, direction in stack.directions()],
        ][: 2 if self.has_cell else 1]
        self.readouts = [outline.READOUT + "_reverse" * number for number in range(len(stack.readout))]
        self.stack = Stack(stack)
        for name, shape in outline.shapes(stack, outline.TORCH).items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape, device=device, dtype=dtype)))
        text_bytes = np.frombuffer(self.text.encode(), np.uint8).copy()
        self.outline: Tensor
        self.register_buffer("outline", torch.tensor(text_bytes, device=device))
        self.stack.to(device)

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """Each direction's weights, in torch.nn's order."""
        return [[weight for weight in self.slots(end) if weight is not None] for end in self.ends]

    def flatten_parameters(self) -> None:
        """Do nothing: this module has no buffer of cuDNN's."""

    def layer(self, name: str = "") -> Recurrent:
        """Return the layer in canonical form; its arrays share the parameters' memory on the CPU."""
        from rnnconvert.formats.pytorch.live import from_torch

        return from_torch(self, name)

    def run(self, input: Tensor | PackedSequence, hx: States) -> Any:
        """Return the outputs of a call."""
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        unbatched = input.dim() == 2
        if unbatched:
            x = input.unsqueeze(1)
        elif self.batch_first:
            x = input.transpose(0, 1)
        else:
            x = input
        initial = self._initial_states(x, hx, unbatched)
        if torch.onnx.is_in_onnx_export():
            from rnnconvert.formats.pytorch.module_onnx import exported

            y, finals = exported(self, x, initial if hx is not None else None)
        else:
            y, finals = self._run(x, initial, None)
        if unbatched:
            return y.squeeze(1), self._states([[state.squeeze(0) for state in states] for states in finals])
        return y.transpose(0, 1) if self.batch_first else y, self._states(finals)

    def _packed(self, input: PackedSequence, hx: States) -> tuple[PackedSequence, States]:
        if torch.onnx.is_in_onnx_export():
            raise RefusedError(
                "a PackedSequence",
                "the export to ONNX",
                "it is not a tensor",
                "Export with padded sequences; rnnconvert.to_onnx(layer, sequence_lens=True) writes their lengths as an input.",
            )
        data, batch_sizes, order, back = input
        # Without its order the sequences stay as they lie, the longest first.
        x, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes))
        lengths = lengths.to(data.device)
        initial = [[_picked(state, order) for state in states] for states in self._initial_states(x, hx, False)]
        y, finals = self._run(x, initial, lengths)
        packed = PackedSequence(y[live_steps(len(y), lengths)], batch_sizes, order, back)
        return packed, self._states([[_picked(state, back) for state in states] for states in finals])

    def _run(self, x: Tensor, states: list[list[Tensor]], lengths: Tensor | None) -> tuple[Tensor, list[list[Tensor]]]:
        weights = [weight for end in self.ends for weight in self.slots(end)]
        readout = [getattr(self, name) for name in self.readouts]
        h, c = states[0], states[-1]
        y, *finals = self.stack(x, h, c, lengths, weights, readout)
        return y, finals[: len(states)]

    def slots(self, end: str) -> list[Tensor | None]:
        """Return one direction's weights in their slots."""
        return [getattr(self, slot + end, None) for slot in SLOTS]

    def _initial_states(self, x: Tensor, hx: States, unbatched: bool) -> list[list[Tensor]]:
        """Return the initial states: for h, and for c where there is one, a (batch, width) tensor for each direction."""
        if x.shape[2] != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[2]}")
        if hx is None:
            words = ("initial_hidden", "initial_cell")
            return [
                [self._initial(x, word + end, width) for end, width in zip(self.ends, widths, strict=True)]
                for word, widths in zip(words, self.widths, strict=False)
            ]
        result = []
        for states, widths in zip(hx if self.has_cell else [hx], self.widths, strict=True):
            rows = [state.unsqueeze(0) if unbatched else state for state in states]
            wanted = [(x.shape[1], width) for width in widths]
            if [tuple(row.shape) for row in rows] != wanted:
                raise RuntimeError(f"Expected hidden states of sizes {wanted}, got {[list(row.shape) for row in rows]}")
            result.append(rows)
        return result

    def _initial(self, x: Tensor, name: str, width: int) -> Tensor:
        zero = x.new_zeros((x.shape[1], width))
        learned = getattr(self, name, None)
        return zero if learned is None else zero + learned

    def _states(self, finals: list[list[Tensor]]) -> States:
        result = [
            torch.stack(states) if len(set(widths)) == 1 else tuple(states) for states, widths in zip(finals, self.widths, strict=True)
        ]
        return (result[0], result[1]) if self.has_cell else result[0]

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: list[str]
    ) -> None:
        stored = state_dict.get(prefix + "outline")
        if stored is not None and not torch.equal(stored.cpu(), self.outline.cpu()):
            errors.append(f"{prefix}outline: these are the weights of another layer, {outline.words_of(stored.cpu().numpy())}")
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)

    def extra_repr(self) -> str:
        return outline.words(outline.from_text(self.text)) + ", batch_first=True" * self.batch_first

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


def _picked(state: Tensor, rows: Tensor | None) -> Tensor:
    return state if rows is None else state.index_select(0, rows)


class ForeignGRU(ForeignRecurrent):
    """Gated recurrent units that are not torch.nn.GRU's, called as that is; see ForeignRecurrent."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the outputs and h_n."""
        if torch.jit.is_scripting():
            y, h, _ = self.scripted(input, hx, None)
            return y, h
        else:
            result: tuple[Tensor, Tensor] = self.run(input, hx)
            return result


class ForeignRNN(ForeignGRU):
    """Plain recurrent units that are not torch.nn.RNN's, called as that is; see ForeignRecurrent."""


class ForeignLSTM(ForeignRecurrent):
    """LSTM cells that are not torch.nn.LSTM's, or a stack with any, called as that is; see ForeignRecurrent."""

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the outputs and (h_n, c_n)."""
        if torch.jit.is_scripting():
            h_0: Tensor | None = None
            c_0: Tensor | None = None
            if hx is not None:
                h_0, c_0 = hx
            y, h, c = self.scripted(input, h_0, c_0)
            return y, (h, c)
        else:
            result: tuple[Tensor, tuple[Tensor, Tensor]] = self.run(input, hx)
            return result


_CLASSES = {"rnn": ForeignRNN, "gru": ForeignGRU, "lstm": ForeignLSTM}


def module_of_text(text: str, batch_first: bool = False, device: Any = None, dtype: Any = None) -> ForeignRecurrent:
    """Return the module that an outline describes, with zeros for weights.

    Raises UsageError for a text that is not an outline, RefusedError for an unknown function.
    """
    kinds = [direction.cell.kind for _, _, direction in outline.from_text(text).directions()]
    return _CLASSES["lstm" if "lstm" in kinds else kinds[0]](text, batch_first, device, dtype)


def module_of(stack: Recurrent, dtype: str | None = None) -> ForeignRecurrent:
    """Return the module of a stack, with its weights.

    Raises RefusedError for an unknown function: see rnnconvert.rewrites.limits.check.
    """
    from rnnconvert.formats.pytorch.live import tensor

    limits.check(stack, dtype)
    kind = getattr(torch, dtype or str(stack.dtype.newbyteorder("=")))
    module = module_of_text(outline.to_text(stack), dtype=kind)
    with torch.no_grad():
        for name, array in outline.numbers(stack, outline.TORCH).items():
            getattr(module, name).copy_(tensor(array))
    return module
