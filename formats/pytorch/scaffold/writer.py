"""The text of a torch.nn.Module: its class, and what stands around it."""

from __future__ import annotations

import re

from rnnconvert.formats.pytorch.scaffold import helpers
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


class TorchModule(Module):
    """One class: a model of the source."""

    TITLE = "PyTorch"
    ATTRIBUTES = MODULE_NAMES
    VARIABLES = frozenset({"torch", "nn", "F", *helpers.TEXTS})

    def text(self, name: str, first: bool) -> str:
        """Return the class."""
        lines = [f"class {name}(nn.Module):", f'    """{self.title(first)}"""', ""]
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += [f"        self.{part} = {constructor}" for part, constructor in self.parts.values()]
        lines += [f"        self.{state} = {start}  # kept from one call to the next" for state, start in self.states.items()]
        lines += [
            "",
            f"    def forward(self, {', '.join(self.arguments)}):",
            *(f"        {line}" for line in (*self.checking(first), *self.lines)),
        ]
        lines += [f"        return {', '.join(self(value) for value in self.scope.outputs)}", *self.forgetting()]
        return "\n".join(lines) + "\n"


def _imports(file: File, body: str) -> list[str]:
    lines = ["import torch"]
    lines += ["import torch.nn.functional as F"] if re.search(r"\bF\.\w", body) else []
    lines += ["from torch import nn"]
    packs = "from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence"
    return [*lines, packs] if "pack_padded" in body else lines


def _zeros(sizes: str, dtype: str) -> str:
    return f"torch.zeros({sizes.rstrip(chr(44))}{'' if dtype == 'float32' else f', dtype=torch.{dtype}'})"


_LOAD = '''def load(path{more}):
    """Return the model with the weights of the file that it was written from{others}."""
    model = {model}().eval()
{written}    from rnnconvert import load_into

    load_into(model, path{layers}, accept=["all"], flatten="same"{options})
    return model
'''
_RESTORES = {"": "model.load_state_dict(torch.load(path, weights_only=True))"}
_MAIN = '''def main():
    """Run the model on zeros, with the weights of a file if one is named."""
    model = load({words}) if len(sys.argv) > 1 else {model}().eval()
    with torch.no_grad():
        outputs = model({zeros})
    for output in outputs if isinstance(outputs, tuple) else [outputs]:
        print(tuple(output.shape))


if __name__ == "__main__":
    main()
'''

STYLE = Style(
    TorchModule,
    RULES,
    helpers.TEXTS,
    frozenset({"torch", "nn", "F"}),
    lambda word: word,
    _imports,
    _LOAD,
    _RESTORES,
    _MAIN,
    _zeros,
    "with weights that torch.save kept, it needs torch alone.",
    ended=False,
)
