"""The text of a torch.nn.Module: its class, and what stands around it."""

from __future__ import annotations

import re

from rnnconvert.formats.pytorch.scaffold.layers import RULES
from rnnconvert.scaffolding.text import Style
from rnnconvert.scaffolding.writer import File, Module

MODULE_NAMES = frozenset({
    "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu", "cuda", "double", "dump_patches",
    "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state", "get_parameter", "get_submodule", "half", "ipu",
    "load_state_dict", "modules", "mtia", "named_buffers", "named_children", "named_modules", "named_parameters", "parameters",
    "register_backward_hook", "register_buffer", "register_forward_hook", "register_forward_pre_hook",
    "register_full_backward_hook", "register_full_backward_pre_hook", "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook", "register_module", "register_parameter", "register_state_dict_post_hook",
    "register_state_dict_pre_hook", "requires_grad_", "reset_states", "set_extra_state", "set_submodule", "share_memory",
    "state_dict", "to", "to_empty", "train", "training", "type", "xpu", "zero_grad",
})  # fmt: skip
"""What a module has already, as `dir(nn.Module())` lists it, and `reset_states` of ours: a layer of such a name would not be called."""


# Definitions that a written file has for layers that torch.nn lacks: text, as it stands there.

TEXTS = {
    "MultiHeadAttention": '''class MultiHeadAttention(nn.Module):
    """Attention with several heads, whose keys and values may have other sizes than its inputs.

    Where mask (batch, query, key) is false, a step of the query does not see that of the key. A step that sees none sees the mean
    of all, or zeros.
    """

    def __init__(self, query, key, value, heads, size, value_size, output, bias=True):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(query, heads * size, bias)
        self.key = nn.Linear(key, heads * size, bias)
        self.value = nn.Linear(value, heads * value_size, bias)
        self.output = nn.Linear(heads * value_size, output, bias)

    def forward(self, query, key, value, mask=None, causal=False, zeros=False):
        """Return the output (batch, time, features), and the weights (batch, heads, query, key)."""
        queries, keys, values = (
            x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (self.query(query), self.key(key), self.value(value))
        )
        scores = queries @ keys.transpose(2, 3) / queries.shape[-1] ** 0.5
        seen = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.unsqueeze(1)
        if causal:
            seen = seen & torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
        weights = torch.softmax(scores.masked_fill(~seen, -1e9), dim=-1)
        if zeros:
            weights = weights.masked_fill(~seen, 0.0)
        return self.output((weights @ values).transpose(1, 2).flatten(2)), weights
''',
    "pad_same": '''def pad_same(x, kernel, strides, value=0.0):
    """Pad (batch, channels, *space) so that every stride begins a window; of an odd number of places the last is at the end."""
    pads = []
    for size, window, step in zip(x.shape[:1:-1], kernel[::-1], strides[::-1]):
        total = max((-(-size // step) - 1) * step + window - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads, value=value)
''',
    "masked": '''def masked(layer, x, mask, state=None, zero=False):
    """Run a recurrent layer over the steps that count, those where mask (batch, time) is true.

    A step that does not count changes no state, wherever it stands; its output is the one before it, or zero.
    """
    order = torch.argsort((~mask).int(), dim=1, stable=True)  # the steps that count, in front
    counts = mask.sum(1)
    front = torch.take_along_dim(x, order.unsqueeze(-1), 1)
    packed = pack_padded_sequence(front, counts.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    outputs, finals = layer(packed, state)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
    place = mask.cumsum(1) - 1  # the last step that counts, up to each
    outputs = torch.take_along_dim(outputs, place.clamp(min=0).unsqueeze(-1), 1)
    outputs = outputs.masked_fill(~(mask if zero else place >= 0).unsqueeze(-1), 0.0)
    empty = (counts == 0).unsqueeze(-1)
    several = isinstance(finals, tuple)
    ends = finals if several else (finals,)
    starts = [torch.zeros_like(end) for end in ends] if state is None else state if several else (state,)
    ends = tuple(torch.where(empty, start, end) for start, end in zip(starts, ends))
    return outputs, ends if several else ends[0]
''',
}
"""By their names: the functions of PyTorch's own layers under masks and padding."""


class TorchModule(Module):
    """One class: a model of the source."""

    TITLE, BASE, CALLED = "PyTorch", "nn.Module", "forward"
    MAKING = ("def __init__(self):", "    super().__init__()")
    ATTRIBUTES = MODULE_NAMES
    VARIABLES = frozenset({"torch", "nn", "F", *TEXTS})


def _imports(file: File, body: str) -> list[str]:
    lines = ["import torch"]
    lines += ["import torch.nn.functional as F"] if re.search(r"\bF\.\w", body) else []
    lines += ["from torch import nn"]
    packs = "from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence"
    return [*lines, packs] if "pack_padded" in body else lines


def _zeros(sizes: str, dtype: str) -> str:
    return f"torch.zeros({sizes.rstrip(chr(44))}{'' if dtype == 'float32' else f', dtype=torch.{dtype}'})"


_RESTORES = {"": "model.load_state_dict(torch.load(path, weights_only=True))"}
STYLE = Style(
    TorchModule,
    RULES,
    TEXTS,
    frozenset({"torch", "nn", "F"}),
    lambda word: word,
    _imports,
    "{model}().eval()",
    _RESTORES,
    "with torch.no_grad():\n        outputs = model({zeros})",
    _zeros,
    "with weights that torch.save kept, it needs torch alone.",
    ended=False,
)
