"""Live PyTorch modules as units of a transplant."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rnnconvert.core.arrays import Source
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.pytorch.live import layer_of, sources, tensors_of
from rnnconvert.formats.pytorch.write import constructor
from rnnconvert.language import outline, registry
from rnnconvert.language.layout import Tensor
from rnnconvert.models.model import Group, Unit, by_class, names_of_layer
from rnnconvert.models.units import Owner, plain_units, single_layers, units_of_ours, units_of_written

COUNTERS = {"num_batches_tracked": "how many batches a normalization has seen", "outline": "what a module of rnnconvert's computes"}


def units_of(name: str, module: Any, arrays: Mapping[str, Source]) -> Iterator[Unit]:
    from torch import nn

    prefix = f"{name}." if name else ""
    ours = sys.modules.get("rnnconvert.formats.pytorch.module")
    if ours is not None and isinstance(module, ours.ForeignRecurrent):
        names, stack = _layer(name, prefix, module, arrays)
        facts = {"batch_first": module.batch_first}
        yield from units_of_ours(name, stack, outline.TORCH, names, facts, type(module).__name__)
        return
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        names, stack = _layer(name, prefix, module, arrays)
        cell = isinstance(module, nn.RNNCellBase)
        variant = next(kind.__name__ for kind in type(module).__mro__ if kind.__module__ == "torch.nn.modules.rnn")
        layout = next(x for x in registry.layouts_of("pytorch") if x.class_name == f"torch.nn.{variant}")
        facts = {} if cell else {"batch_first": module.batch_first, "dropout": float(module.dropout)}
        yield from recurrent_units(stack, layout, names, facts | _own_code(module))
        return
    written = getattr(module, "rnnconvert_cell", None)
    if isinstance(written, Mapping) and written.get("kind") != "conv_lstm":
        yield from _of_scaffold(name, module, arrays, written)
        return
    class_name = next(
        (
            kind.__name__
            for kind in type(module).__mro__
            if by_class("pytorch", kind.__name__) and kind.__module__.startswith("torch.nn.modules.")
        ),
        "WrittenConvLSTM" if written is not None else "",
    )
    own_names = {
        local: prefix + local
        for local, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        if prefix + local in arrays and local not in COUNTERS
    }
    if class_name and own_names:
        title = repr(module).partition("\n")[0]
        owner = Owner(name, class_name, own_names, lambda key: getattr(module, key, None), title)
        plain = plain_units("pytorch", owner, arrays)
        yield from (unit.replace(facts={**unit.facts, **_own_code(module)}, stated=True) for unit in plain)


def _layer(name: str, prefix: str, module: Any, arrays: Mapping[str, Source]) -> tuple[dict[str, str], Recurrent]:
    """Return the names of a recurrent module's parameters, its own and the model's, and its layer."""
    tensors = tensors_of(module)
    # What a hook renames in the model's state, or makes of it, is the layer's all the same.
    own_arrays = sources(tensors) | {local: arrays[prefix + local] for local in tensors if prefix + local in arrays}
    return {local: prefix + local for local in module.state_dict()}, layer_of(module, name, own_arrays)


_WRITTEN = (
    Tensor("input_weight", "input", "(gate hidden) in"),
    Tensor("recurrent_weight", "recurrent", "(gate hidden) in"),
    Tensor("bias", "input_bias"),
    Tensor("recurrent_bias", "recurrent_bias"),
)
"""The parameters of a class that `rnnconvert scaffold` wrote: no name of torch.nn's, so that no file of them is taken for its cells."""


def _of_scaffold(name: str, module: Any, arrays: Mapping[str, Source], cell: Mapping[str, Any]) -> Iterator[Unit]:
    """Yield the layer of a class that `rnnconvert scaffold` wrote: see formats/pytorch/scaffold/loops.py."""
    prefix = f"{name}." if name else ""
    names = {local: f"{prefix}{local}" for local, _ in module.named_parameters(recurse=False)}
    sizes = {"input_size": module.input_weight.shape[1], "hidden_size": module.hidden_size}
    yield from units_of_written(name, {**cell, **sizes}, _WRITTEN, names, arrays, type(module).__name__)


def _own_code(module: Any) -> dict[str, str]:
    """Return the code of a module that is not torch's: its class, if that is derived from torch's, and its hooks."""
    kinds = type(module).__mro__
    theirs: Any = next(kind for kind in kinds if kind.__module__.startswith("torch.nn.modules."))
    # Those of torch.nn.utils compute the module's weights: weight norm, spectral norm, pruning.
    hooks = [
        getattr(hook, "__qualname__", type(hook).__qualname__)
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        if not type(hook).__module__.startswith("torch.nn.utils.")
    ]
    return {
        **({"forward": type(module).__qualname__} if type(module).forward is not theirs.forward else {}),
        **({"hooks": ", ".join(hooks)} if hooks else {}),
    }


def recurrent_units(stack: Recurrent, layout: Any, names: Mapping[str, str], facts: Mapping[str, Any]) -> Iterator[Unit]:
    module = constructor(stack, layout)
    for number, layer in enumerate(single_layers(stack)):
        names_of_number = names_of_layer(layout, names, number)
        group = Group(layout, tuple(range(layer.num_directions)), names_of_number)
        yield Unit(layer.name, stack=layer, groups=(group,), facts=facts, title=module)
