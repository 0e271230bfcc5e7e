"""A stated chain of a state dictionary's layers, built of torch's own modules: the source's run where weights alone are exported.

torch loads the file, and each layer takes the arrays below its name with load_state_dict, which refuses one too many or too few. None of
rnnconvert's readers and writers has a part in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

_FUNCTIONS: Mapping[str, Callable[[], Any]] = {
    "tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "softmax": lambda: nn.Softmax(-1), "log_softmax": lambda: nn.LogSoftmax(-1),
    "elu": nn.ELU, "gelu": nn.GELU, "silu": nn.SiLU, "selu": nn.SELU, "softplus": nn.Softplus, "softsign": nn.Softsign, "mish": nn.Mish,
    "relu6": nn.ReLU6, "hard_swish": nn.Hardswish,
}  # fmt: skip
_GATES: Mapping[int, type[Any]] = {4: nn.LSTM, 3: nn.GRU, 1: nn.RNN}
_FIRST = ("weight_ih_l0", "weight")
"""The first array of a layer."""
_ALONE = ("lstm", "gru", "rnn")
"""The names of a layer whose arrays have no prefix."""


class PlainPart(nn.Module):  # type: ignore[misc]  # torch states no types here
    """A layer that reads one tensor, and gives one."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return its output."""
        output: torch.Tensor = self.layer(x)
        return output


class RecurrentPart(PlainPart):
    """A recurrent layer without its last states."""

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return its outputs."""
        output: torch.Tensor = self.layer(x)[0]
        return output


class FinalStatesPart(PlainPart):
    """The last states of a recurrent layer's upper directions, one beside the other."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(layer)
        self.ways = 2 if layer.bidirectional else 1

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return them."""
        return self.concatenated(self.layer(x)[1])

    def concatenated(self, states: torch.Tensor) -> torch.Tensor:
        """Return (directions, batch, units) as (batch, units of all)."""
        return torch.cat(torch.unbind(states[-self.ways :]), 1)


class FinalHiddenPart(FinalStatesPart):
    """The last hidden states of an LSTM, which has cell states, too."""

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return them."""
        return self.concatenated(self.layer(x)[1][0])


class BothWaysPart(nn.Module):  # type: ignore[misc]  # torch states no types here
    """Two recurrent parts, of which the second reads from the end: what they give at each step, or their last states, side by side."""

    def __init__(self, forward_part: nn.Module, backward_part: nn.Module) -> None:
        super().__init__()
        self.forward_part, self.backward_part = forward_part, backward_part

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return them."""
        y = self.backward_part(x.flip(1), begin)
        return torch.cat([self.forward_part(x, begin), y.flip(1) if y.dim() == 3 else y], -1)


class SlopesPart(PlainPart):
    """Slopes for the values of a step: torch has them for axis 1."""

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return their output."""
        output: torch.Tensor = self.layer(x.transpose(1, -1)).transpose(1, -1)
        return output


class LastStepPart(nn.Module):  # type: ignore[misc]  # torch states no types here
    """The last step of a sequence."""

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return x[:, -1]


class MeanPart(nn.Module):  # type: ignore[misc]  # torch states no types here
    """The mean of a sequence's steps."""

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return x.mean(dim=1)


class MaximumPart(nn.Module):  # type: ignore[misc]  # torch states no types here
    """The largest of each value in a sequence's steps."""

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return x.amax(dim=1)


class PlusInputPart(nn.Module):  # type: ignore[misc]  # torch states no types here
    """The sum with the first values of the chain's input."""

    def forward(self, x: torch.Tensor, begin: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return x + begin[..., : x.shape[-1]]


def _function(make: Callable[[], Any]) -> nn.Module:
    """Return an activation as a part."""
    return PlainPart(make())


_WORKING: Mapping[str, Callable[[], nn.Module]] = {
    **{name: partial(_function, make) for name, make in _FUNCTIONS.items()},
    "last": LastStepPart,
    "mean": MeanPart,
    "max": MaximumPart,
    "skip": PlusInputPart,
}
"""Parts between layers: each reads the part before it, and the input of the chain."""


class TorchChain(nn.Module):  # type: ignore[misc]  # torch states no types here
    """Parts one after the other, which read what stands before them and what the first one reads."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the last one."""
        begin = x
        for part in self.parts:
            x = part(x, begin)
        return x


def program(file: str, words: Sequence[str]) -> Any:
    """Return a chain as a scripted module.

    words  names of layers and functions in their order: see docs/whole.md, Weights alone

    Raises NotImplementedError for a file that is not a state dictionary, and for layers that torch has no module for.
    """
    state = _state(file)
    ends = [(name, end) for name in state for end in _FIRST if name == end or name.endswith(f".{end}")]
    prefixes = [name.removesuffix(end) for name, end in ends]
    parts: list[nn.Module] = []
    for number, text in enumerate(words):
        texts = text.split("+")
        fitting = [_fitting(prefixes, each.partition(":")[0]) for each in texts]
        if all(len(each) == 1 for each in fitting):
            readers = [other.partition("+")[0].partition(":")[0] for other in words[number + 1 :]]
            behind = None if number else next((_width(state, other, prefixes) for other in readers if other not in _FUNCTIONS), None)
            arrays = [{local: state[prefix + local] for local in _below(state, prefix)} for (prefix,) in fitting]
            layers = [_part(*pair, behind) for pair in zip(texts, arrays, strict=True)]
            parts.append(layers[0] if len(layers) == 1 else BothWaysPart(*layers))
        elif not any(fitting) and text in _WORKING:
            parts.append(_WORKING[text]())
        elif not any(fitting) and text == "final" and parts and isinstance(parts[-1], (RecurrentPart, BothWaysPart)):
            parts.append(_final(parts.pop()))
        else:
            raise NotImplementedError(f"{len(fitting[0])} layers of torch.nn have the name {text!r}")
    chain = TorchChain(parts).eval()
    wide = any(tensor.dtype == torch.float64 for tensor in chain.state_dict().values())
    return torch.jit.script(chain.double() if wide else chain.float())


def _fitting(prefixes: Sequence[str], name: str) -> list[str]:
    """Return the prefixes of the layers that a name stands for."""
    exact = [prefix for prefix in prefixes if prefix in (f"{name}.", "" if name in _ALONE else f"{name}.")]
    return exact or [prefix for prefix in prefixes if prefix.endswith(f".{name}.")]


def _final(part: nn.Module) -> nn.Module:
    """Return what gives the last states of a recurrent part, or of two."""
    if isinstance(part, BothWaysPart):
        return BothWaysPart(_final(part.forward_part), _final(part.backward_part))
    return (FinalHiddenPart if isinstance(part.layer, nn.LSTM) else FinalStatesPart)(part.layer)


def _state(file: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a file by their names: from a checkpoint, the tensors of its only dictionary of them, or of its state_dict."""
    if file.lower().endswith(".safetensors"):
        from safetensors.torch import load_file

        return dict(load_file(file))
    loaded = torch.load(file, map_location="cpu", weights_only=True)
    top = loaded if isinstance(loaded, Mapping) else {}
    several = [each for each in top.values() if isinstance(each, Mapping) and any(isinstance(x, torch.Tensor) for x in each.values())]
    inside = top.get("state_dict", several[0] if len(several) == 1 else top)
    state = {str(name): tensor for name, tensor in inside.items() if isinstance(tensor, torch.Tensor)}
    if not state:
        raise NotImplementedError("torch does not load it as a state dictionary, nor as a checkpoint with one")
    return state


def _below(state: Mapping[str, Any], prefix: str) -> list[str]:
    """Return the names of a layer's arrays without its prefix."""
    inside = [name[len(prefix) :] for name in state if name.startswith(prefix)]
    return [name for name in inside if "." not in name and (prefix or re.fullmatch(r"(weight|bias)_\w+_l\d+(_reverse)?", name))]


def _width(state: Mapping[str, torch.Tensor], name: str, prefixes: Sequence[str]) -> int | None:
    """Return how many values a layer reads."""
    fitting = [prefix for prefix in prefixes if prefix == f"{name}." or prefix.endswith(f".{name}.")]
    first = [state[fitting[0] + end] for end in _FIRST if fitting and fitting[0] + end in state]
    return int(first[0].shape[-1]) if first and first[0].ndim == 2 else None


def _part(text: str, arrays: Mapping[str, torch.Tensor], behind: int | None) -> nn.Module:
    """Return a layer with its weights.

    text    its name, and behind a colon what the weights do not state
    behind  of the first layer how many values the next one reads: a matrix without a bias may be an embedding
    """
    layer = _layer(text, arrays, text.partition(":")[2], behind)
    try:
        layer.load_state_dict(dict(arrays), strict=True)
    except RuntimeError as error:
        raise NotImplementedError(
            f"{type(layer).__name__} does not take the arrays of {text!r}: {str(error).splitlines()[-1].strip()}"
        ) from None
    if isinstance(layer, nn.RNNBase):
        return RecurrentPart(layer)
    return SlopesPart(layer) if isinstance(layer, nn.PReLU) else PlainPart(layer)


def _layer(text: str, arrays: Mapping[str, torch.Tensor], stated: str, behind: int | None) -> nn.Module:
    if "weight_ih_l0" in arrays:
        return _recurrent(text, arrays, stated)
    weight = arrays["weight"]
    if weight.ndim == 1 and "bias" not in arrays:
        return nn.PReLU(len(weight))
    if weight.ndim != 2:
        raise NotImplementedError(f"weights do not show what {text!r} computes")
    rows, columns = map(int, weight.shape)
    if stated == "embedding" or (stated != "dense" and "bias" not in arrays and behind == columns):
        return nn.Embedding(rows, columns)
    return nn.Linear(columns, rows, bias="bias" in arrays)


def _recurrent(text: str, arrays: Mapping[str, torch.Tensor], stated: str) -> nn.Module:
    """Return a recurrent layer of the sizes that its arrays have."""
    hidden, inputs = arrays["weight_hh_l0"].shape[0], arrays["weight_ih_l0"].shape[1]
    projection = arrays.get("weight_hr_l0")
    units = int((arrays["weight_hh_l0"] if projection is None else projection).shape[1])
    kind = _GATES.get(hidden // units)
    if kind is None or hidden % units:
        raise NotImplementedError(f"torch.nn has no layer with the {hidden} rows of {text!r} for {units} units")
    numbers = [int(match[1]) for name in arrays if (match := re.fullmatch(r"weight_ih_l(\d+)", name))]
    settings: dict[str, Any] = {"nonlinearity": stated or "tanh"} if kind is nn.RNN else {}
    settings |= {} if projection is None else {"proj_size": int(projection.shape[0])}
    both, bias = "weight_ih_l0_reverse" in arrays, "bias_ih_l0" in arrays
    layer: nn.Module = kind(int(inputs), units, len(numbers), bias=bias, batch_first=True, bidirectional=both, **settings)
    return layer
