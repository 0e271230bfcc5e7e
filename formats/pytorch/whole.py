"""PyTorch models as a transplant sees them: live modules, and the files of their state dictionaries."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import safetensors
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.names import natural
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch.archives import patch, zip_writer
from rnnconvert.formats.pytorch.files import SUFFIXES, read_stored
from rnnconvert.formats.pytorch.flow import is_sequential, noting_order
from rnnconvert.formats.pytorch.live import from_torch, numbers
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.names import LayerNames, plain_names
from rnnconvert.formats.pytorch.write import constructor, left_behind
from rnnconvert.language import outline, registry
from rnnconvert.language.layout import Tensor
from rnnconvert.models.backup import Backup
from rnnconvert.models.model import Group, Model, Unit, all_or_none, by_class, names_of_layer
from rnnconvert.models.units import Owner, loose_units, plain_units, single_layers, units_of_ours, units_of_written

_COUNTERS = {"num_batches_tracked": "how many batches a normalization has seen", "outline": "what a module of rnnconvert's computes"}


NAME = "pytorch"
TAKES = "a torch.nn.Module"


def takes(value: Any) -> bool:
    """Return whether a live object is a torch.nn.Module, or a state dictionary of tensors."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    tensors = isinstance(value, Mapping) and value and all(isinstance(tensor, torch.Tensor) for tensor in value.values())
    return bool(tensors) or isinstance(value, torch.nn.Module)


def of_live(value: Any) -> Model:
    """Return a torch.nn.Module with its parameters and buffers; for a state dictionary or a scripted module, their
    names.

    Raises UsageError for what cannot be filled: on the meta device, quantized, sharded, not built yet, or with
    parametrized weights.
    """
    import torch

    if isinstance(value, Mapping):
        return _of_tensors(value, dict(value), "a state dictionary")
    if isinstance(value, torch.jit.ScriptModule):
        return _of_tensors(value, dict(value.state_dict()), f"scripted {value.original_name}")
    return _of_module(value)


def _of_tensors(value: Any, tensors: Mapping[str, Any], title: str) -> Model:
    """Return tensors by name as a model; only names and shapes show the classes."""
    for name, tensor in tensors.items():
        _check_tensor(f"{title}: {name!r}", tensor)
    stored = Stored({name: numbers(tensor) for name, tensor in tensors.items()})
    model = of_checkpoint(read_stored(stored, Path(title), Options()))
    return model.replace(
        ties=_ties(tensors), fill=lambda new: _fill(value, tensors, new), live=value, hinders=lambda new: _contradictions(tensors, new)
    )


def _of_module(module: Any) -> Model:
    tensors = dict(module.named_parameters(remove_duplicate=False))
    tensors |= {name: buffer for name, buffer in module.named_buffers(remove_duplicate=False) if name not in tensors}
    stored = set(module.state_dict())
    tensors = {name: tensor for name, tensor in tensors.items() if name in stored}
    _check(module, tensors)
    arrays = {name: numbers(tensor) for name, tensor in tensors.items()}
    units: list[Unit] = []
    modules = dict(module.named_modules(remove_duplicate=False))
    aside = {name: what for name in arrays for end, what in _COUNTERS.items() if name.rpartition(".")[2] == end}
    done: dict[int, str] = {}
    within: list[str] = []
    for name, owner in modules.items():
        if any(name.startswith(f"{outer}.") or not outer for outer in within):
            continue
        alias = done.setdefault(id(owner), name)
        module_units = [unit.replace(alias=alias if alias != name else "") for unit in _units(name, owner, arrays)]
        if module_units and module_units[0].stack is not None:
            within.append(name)
        units += module_units
    units = noting_order(units, module)
    claimed = {name for unit in units for name in unit.arrays} | set(aside)
    units += loose_units(arrays, claimed)
    return Model(
        "pytorch",
        f"torch {type(module).__name__}",
        tuple(units),
        arrays,
        is_sequential(module),
        False,
        aside,
        _ties(tensors),
        lambda new: _fill(module, tensors, new),
        module,
        lambda new: _contradictions(tensors, new),
    )


def _check(module: Any, tensors: Mapping[str, Any]) -> None:
    what = type(module).__name__
    for name, owner in module.named_modules():
        where = what + (f", its module {name!r}" if name else "")
        if ".quantized" in type(owner).__module__ or ".quantizable" in type(owner).__module__:
            raise UsageError(f"{where} is quantized. Fill the float model first, then quantize it")
        if "parametrizations" in dict(owner.named_children()):
            raise UsageError(
                f"{where} has parametrized weights. Call torch.nn.utils.parametrize.remove_parametrizations first, "
                "and register them again afterwards"
            )
    for name, tensor in tensors.items():
        _check_tensor(f"{what}: {name!r}", tensor)


def _check_tensor(where: str, tensor: Any) -> None:
    from torch import nn

    if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        raise UsageError(f"{where} has no size yet. Call the module once on an input, then load")
    if tensor.device.type == "meta":
        raise UsageError(f"{where} is on the meta device and has no memory. Call module.to_empty(device='cpu') first")
    if tensor.is_quantized:
        raise UsageError(f"{where} is quantized. Fill the float model first, then quantize it")
    if type(tensor).__name__ == "DTensor" or hasattr(tensor, "placements"):
        raise UsageError(f"{where} is sharded over several processes. Fill the model before sharding it")


def _ties(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Return names of tensors that share their memory with an earlier one."""
    first: dict[tuple[object, ...], str] = {}
    ties = {}
    for name, tensor in tensors.items():
        place = (str(tensor.device), tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        other = first.setdefault(place, name)
        if other != name and tensor.numel():
            ties[name] = other
    return ties


def _units(name: str, module: Any, arrays: Mapping[str, Array]) -> Iterator[Unit]:
    from torch import nn

    prefix = f"{name}." if name else ""
    ours = sys.modules.get("rnnconvert.formats.pytorch.module")
    if ours is not None and isinstance(module, ours.OwnRecurrent):
        names = {local: prefix + local for local in module.state_dict()}
        facts = {"batch_first": module.batch_first}
        yield from units_of_ours(name, module.layer(name), outline.TORCH, names, facts, type(module).__name__)
        return
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        stack = from_torch(module, name)
        cell = isinstance(module, nn.RNNCellBase)
        variant = next(kind.__name__ for kind in type(module).__mro__ if kind.__module__ == "torch.nn.modules.rnn")
        layout = next(x for x in registry.layouts_of("pytorch") if x.class_name == f"torch.nn.{variant}")
        names = {local: prefix + local for local in module.state_dict()}
        facts = {} if cell else {"batch_first": module.batch_first, "dropout": float(module.dropout)}
        yield from _recurrent(stack, layout, names, facts | _own_code(module))
        return
    written = getattr(module, "rnnconvert_cell", None)
    if isinstance(written, Mapping):
        yield from _of_scaffold(name, module, arrays, written)
        return
    class_name = next(
        (
            kind.__name__
            for kind in type(module).__mro__
            if by_class("pytorch", kind.__name__) and kind.__module__.startswith("torch.nn.modules.")
        ),
        "",
    )
    own_names = {
        local: prefix + local
        for local, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        if prefix + local in arrays and local not in _COUNTERS
    }
    if class_name and own_names:
        title = repr(module).partition("\n")[0]
        owner = Owner(name, class_name, own_names, lambda key: getattr(module, key, None), title)
        plain = plain_units("pytorch", owner, arrays)
        yield from (unit.replace(facts={**unit.facts, **_own_code(module)}, stated=True) for unit in plain)


_WRITTEN = (
    Tensor("input_weight", "input", "(gate hidden) in"),
    Tensor("recurrent_weight", "recurrent", "(gate hidden) in"),
    Tensor("bias", "input_bias"),
    Tensor("recurrent_bias", "recurrent_bias"),
)
"""The parameters of a class that `rnnconvert scaffold` wrote: no name of torch.nn's, so that no file of them is taken for its cells."""


def _of_scaffold(name: str, module: Any, arrays: Mapping[str, Array], cell: Mapping[str, Any]) -> Iterator[Unit]:
    """Yield the layer of a class that `rnnconvert scaffold` wrote: see formats/pytorch/scaffold/loops.py."""
    prefix = f"{name}." if name else ""
    names = {local: f"{prefix}{local}" for local, _ in module.named_parameters(recurse=False)}
    sizes = {"input_size": module.input_weight.shape[1], "hidden_size": module.hidden_size}
    yield from units_of_written(name, {**cell, **sizes}, _WRITTEN, names, arrays, type(module).__name__)


def _own_code(module: Any) -> dict[str, str]:
    """Return what a module computes by code that is not torch's: the class of one that is derived from torch's, and its hooks."""
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


def _recurrent(stack: Recurrent, layout: Any, names: Mapping[str, str], facts: Mapping[str, Any]) -> Iterator[Unit]:
    module = constructor(stack, layout)
    for number, layer in enumerate(single_layers(stack)):
        names_of_number = names_of_layer(layout, names, number)
        group = Group(layout, tuple(range(layer.num_directions)), names_of_number)
        yield Unit(layer.name, stack=layer, groups=(group,), facts=facts, title=module)


def _fill(module: Any, tensors: Mapping[str, Any], new: Mapping[str, Array]) -> Any:
    """Copy the arrays into the module's own tensors: all of them or none, whatever happens."""
    import torch

    ready = {name: _as_tensor(array) for name, array in new.items()}
    memory = {name: remembered for name in ready if (remembered := _memory(tensors[name])) is not None}
    before = {name: tensors[name].detach().clone() for name in ready if name not in memory}
    with contextlib.closing(Backup(memory.values())) as backup:

        def undo() -> None:
            backup.put_back()
            copy(before)

        def copy(values: Mapping[str, Any]) -> None:
            for name, tensor in values.items():
                tensors[name].copy_(tensor)

        with torch.no_grad(), all_or_none(undo):
            copy(ready)
    return module


def _memory(tensor: Any) -> Array | None:
    """Return the memory of a tensor that lies in one piece on the CPU, as bytes; None for another one."""
    import torch

    plain = tensor.detach()
    if plain.device.type != "cpu" or plain.layout is not torch.strided or not plain.is_contiguous() or not plain.numel():
        return None

    memory: Array = plain.reshape(-1).view(torch.uint8).numpy()
    return memory


def _as_tensor(array: Array) -> Any:
    """Return an array as a torch tensor, on the CPU, that is only read."""
    import torch

    plain = array if array.flags.c_contiguous else np.array(array, order="C")
    numbers_ = plain.view(np.int16) if plain.dtype == BFLOAT16 else plain
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of memory that may not be written, such as a mapped file's
        tensor = torch.from_numpy(numbers_)
    return tensor.view(torch.bfloat16) if plain.dtype == BFLOAT16 else tensor


def _overlaps(tensors: Mapping[str, Any]) -> list[list[str]]:
    """Return names of tensors that are different views of the same numbers, such as a matrix and its transpose."""
    stored: dict[tuple[object, ...], list[str]] = {}
    for name, tensor in tensors.items():
        if tensor.numel():
            place = str(tensor.device), tensor.dtype, tensor.untyped_storage().data_ptr()
            stored.setdefault(place, []).append(name)
    return [names for names in stored.values() if _overlap([tensors[name] for name in names])]


def _overlap(tensors: Sequence[Any]) -> bool:
    views = {(t.storage_offset(), tuple(t.shape), t.stride()) for t in tensors}
    spans = sorted((start, _end(start, shape, stride)) for start, shape, stride in views)
    return any(two[0] < max(end for _, end in spans[: number + 1]) for number, two in enumerate(spans[1:]))


def _end(start: int, shape: Sequence[int], stride: Sequence[int]) -> int:
    return start + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1


def _same_numbers(first: Any, two: Any) -> bool:
    return bool(((first == two) | (first.isnan() & two.isnan())).all())


def _fixed(tensor: Any) -> str:
    """Return why a tensor cannot be written, or ""."""
    if tensor.is_inference():
        return "was made in torch.inference_mode, where weights cannot be changed afterwards. Make the module outside of it"
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return "is expanded: several of its numbers are one in memory. Make it contiguous with tensor.contiguous()"
    return ""


def _contradictions(tensors: Mapping[str, Any], new: Mapping[str, Array]) -> list[str]:
    """Return new numbers that would be overwritten, since another tensor that is filled shares the same memory."""
    problems = [f"{name!r} {why}" for name in new if (why := _fixed(tensors[name]))]
    for names in _overlaps({name: tensor for name, tensor in tensors.items() if not _fixed(tensor)}):
        filled = [name for name in names if name in new]
        memory = (
            tensors[names[0]]
            .detach()
            .new_empty(max(_end(tensors[n].storage_offset(), tensors[n].shape, tensors[n].stride()) for n in names), device="cpu")
        )
        places = [memory.as_strided((t := tensors[name]).shape, t.stride(), t.storage_offset()) for name in filled]
        for place, name in zip(places, filled, strict=True):
            place.copy_(_as_tensor(new[name]))
        problems += [
            f"{name!r} lies in the same memory as {', '.join(repr(n) for n in filled if n != name)} of the target, as another "
            "view of it, but the source has numbers for them that contradict one another; untie them in the target"
            for place, name in zip(places, filled, strict=True)
            if not _same_numbers(place, _as_tensor(new[name]))
        ]
    return problems


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a state dictionary that was read from a file; only names and shapes show the classes."""
    read = checkpoint.read_as(LayerNames)
    classes = checkpoint.metadata_as(TorchMetadata).get("classes", {})
    values = checkpoint.metadata_as(TorchMetadata).get("values", {})
    arrays = checkpoint.arrays
    units: list[Unit] = []
    aside = dict(_optimizer(checkpoint.tensors))
    for name, stack in checkpoint.layers.items():
        layout, names = read.homes[name]
        if layout is None:
            units += units_of_ours(name, stack, outline.TORCH, names, {}, "a module of rnnconvert's")
            aside[names["outline"]] = _COUNTERS["outline"]
        else:
            units += _recurrent(stack, layout, names, read.facts.get(name, {}))
    owners: dict[str, dict[str, str]] = {}
    for full in checkpoint.tensors:
        owner, _, local = full.rpartition(".")
        if local in _COUNTERS and checkpoint.tensors[full].dtype.kind in "iu":
            aside[full] = _COUNTERS[local]
        elif full not in aside:
            owners.setdefault(owner, {})[local] = full
    for owner, names in owners.items():
        class_name = str(classes.get(owner, "")).rpartition(".")[2]
        known_class = class_name if by_class("pytorch", class_name) else ""
        plain = plain_units("pytorch", Owner(owner, known_class, names, _values_of(values, owner), known_class), arrays)
        units += (unit.replace(stated=bool(known_class)) for unit in plain)
    place = {name: number for number, name in enumerate(arrays)}
    units.sort(key=lambda unit: min(place[name] for name in unit.arrays))
    alphabet = lowered(checkpoint.file).suffix == ".safetensors"
    if alphabet:
        units.sort(key=lambda unit: natural(unit.name))
    claimed = {name for unit in units for name in unit.arrays} | set(aside)
    units += loose_units(arrays, claimed)
    return Model(
        "pytorch",
        checkpoint.path,
        tuple(units),
        arrays,
        False,
        alphabet,
        aside,
        _shared(arrays),
        questions=checkpoint.questions,
        classes={
            full: (owner, stated)
            for owner, names in owners.items()
            if (stated := _plain_class(classes.get(owner)))
            for full in names.values()
        },
    )


def _plain_class(stated: object) -> str:
    """Return the class that a file states for a module, without TorchScript's prefixes."""
    return re.sub(r"__torch__\.|___torch_mangle_\d+\.", "", str(stated or ""))


def _shared(arrays: Mapping[str, Array]) -> dict[str, str]:
    """Return names of arrays of a file that are the same numbers as an earlier one's, in the same place."""
    first: dict[tuple[object, ...], str] = {}
    shared = {}
    for name, array in arrays.items():
        other = first.setdefault((array.__array_interface__["data"][0], array.shape, array.strides), name)
        if other != name and array.size:
            shared[name] = other
    return shared


def _values_of(values: Mapping[str, Any], owner: str) -> Callable[[str], Any]:
    """Return a lookup of what a file states about a module's attributes."""
    return lambda key: values.get(f"{owner}.{key}")


def _optimizer(arrays: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """Yield arrays of an optimizer's and a trainer's state, which training scripts keep next to the weights."""
    lightning = any(name.startswith("state_dict.") for name in arrays)
    for name in arrays:
        first = name.split(".")[0]
        if first.startswith(("optimizer", "lr_scheduler")) or first in ("optim", "scheduler"):
            yield name, "the optimizer's state"
        elif lightning and first in ("callbacks", "loops"):
            yield name, "the state of Lightning's training"


def write(path: Path, checkpoint: Checkpoint, arrays: Mapping[str, Array]) -> list[str]:
    """Write a file like the one that was read, with some arrays replaced and everything else kept.

    Raises UsageError for another kind of file, or weights that the file makes of others.
    """
    if lowered(path).suffix not in SUFFIXES or lowered(path).suffix == ".json":
        raise UsageError(f"{path}: unknown ending for a PyTorch state dictionary. Choose one of {', '.join(SUFFIXES[:-1])}")
    remade = checkpoint.read_as(LayerNames).remade
    if remade:
        raise UsageError(
            f"{checkpoint.path} holds {remade[0]!r} in other arrays (weight norm, pruning). Save the plain weights, or "
            "load into the live module"
        )
    optimizer = {name for name, _ in _optimizer(checkpoint.arrays)}
    arrays = _with_ties(arrays, _shared(checkpoint.arrays))
    root = checkpoint.metadata_as(TorchMetadata).get("root", "state_dict")
    if root == "an exported program":
        raise UsageError(f"{checkpoint.path} is an exported program. Fill the module, and export it again")
    if lowered(path).suffix != ".safetensors" and "root" in checkpoint.metadata:
        patch.write(path, checkpoint.file, checkpoint.arrays, arrays)
        return [OLD_STATE] if optimizer else []
    remaining = {name: array for name, array in checkpoint.arrays.items() if name not in optimizer}
    plain = plain_names(remaining)
    arrays_to_write = {plain[name]: arrays.get(name, array) for name, array in remaining.items()}
    if lowered(path).suffix == ".safetensors":
        texts = checkpoint.metadata_as(TorchMetadata).get("__metadata__", {})
        # The second names of tied tensors stay in the metadata: safetensors.torch.load_model wants them there.
        once = {name: array for name, array in arrays_to_write.items() if texts.get(name) not in arrays_to_write}
        safetensors.write(path, once, {**texts, "format": "pt"})
    else:
        zip_writer.write(path, arrays_to_write)
    left_out = [f"a {path.suffix} file holds only tensors: {left_behind(checkpoint)}"] if root != "state_dict" else []
    return left_out + (["the optimizer's state of the target file is left out: it belongs to the old weights"] if optimizer else [])


def _with_ties(arrays: Mapping[str, Array], ties: Mapping[str, str]) -> dict[str, Array]:
    """Return new arrays, and the other names of the same memory, which follow."""
    filled = {ties.get(name, name): array for name, array in arrays.items()}
    return {**arrays, **{name: filled[first] for name, first in ties.items() if first in filled}, **filled}


OLD_STATE = "the optimizer's state of the target file is kept, but belongs to the old weights: make a new optimizer before you train on"
