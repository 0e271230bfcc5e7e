"""A recurrent module of torch.nn, run on the sequences of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnconvert.running.sequences import STATES, Sequences, outputs

Array = np.ndarray


def solved(module: Any, sequences: Sequences) -> dict[str, Any]:
    """Run a module where it lies, in its own element type; return an answer without its notes."""
    import torch

    module.zero_grad()
    differentiated = bool(sequences.cotangents)
    weight = module.weight_hh_l0

    def tensor(value: Any) -> Any:
        converted = torch.as_tensor(np.asarray(value, np.float64)).to(weight.device, weight.dtype)
        return converted.requires_grad_() if differentiated else converted

    widths = {"hidden": module.proj_size or module.hidden_size}
    if isinstance(module, torch.nn.LSTM):
        widths["cell"] = module.hidden_size
    x, states = tensor(sequences.x), {}
    if sequences.stacked(widths):  # torch takes both states of an LSTM, or none
        rows = module.num_layers * (1 + module.bidirectional)
        states = {part: tensor(state) for part, state in sequences.initial(widths, rows).items()}
    with torch.set_grad_enabled(differentiated):
        values = _called(module, x, list(states.values()), sequences)
        answer = outputs(*map(array, values))
        if differentiated:
            sum((value * tensor(scale)).sum() for value, scale in zip(values, sequences.scales(widths))).backward()
            weights = {name: array(parameter.grad) for name, parameter in module.named_parameters()}
            slopes = {part: array(state.grad) for part, state in states.items()}
            answer["gradients"] = sequences.gradients(array(x.grad), slopes, weights)
    return answer


def _called(module: Any, x: Any, states: Sequence[Any], sequences: Sequences) -> list[Any]:
    """Compute y, final hidden states, and of an LSTM final cell states."""
    import torch

    rnn = torch.nn.utils.rnn
    sequences.refuse_empty("pack_padded_sequence refuses it")
    if sequences.lengths is not None:
        limits = torch.as_tensor(np.asarray(sequences.lengths, np.int64))
        x = rnn.pack_padded_sequence(x, limits, enforce_sorted=False)
    y, final = module(x, tuple(states) if len(states) == len(STATES) else next(iter(states), None))
    if sequences.lengths is not None:
        y, _ = rnn.pad_packed_sequence(y, total_length=len(sequences.x))
    return [y, *(final if isinstance(final, tuple) else [final])]


def array(tensor: Any) -> Array:
    """Return a tensor's numbers; half precision as float32."""
    import torch

    plain = tensor.detach().cpu()
    numbers: Array = (plain.float() if plain.dtype in (torch.bfloat16, torch.float16) else plain).numpy()
    return numbers
