"""PyTorch models as a transplant sees them: live modules, and the files of their state dictionaries."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from rnnconvert.containers import safetensors
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.errors import UsageError
from rnnconvert.core.names import natural
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch.archives import patch, zip_writer
from rnnconvert.formats.pytorch.files import SUFFIXES, read_stored
from rnnconvert.formats.pytorch.live import is_held, memory_of, sources
from rnnconvert.formats.pytorch.live_tensors import contradictions, fill
from rnnconvert.formats.pytorch.live_units import COUNTERS, recurrent_units, units_of
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.names import LayerNames, plain_names
from rnnconvert.formats.pytorch.write import left_behind
from rnnconvert.language import outline
from rnnconvert.models.model import Flat, Model, Unit, by_class
from rnnconvert.models.units import Owner, loose_units, plain_units, units_of_ours

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
    """Return a torch.nn.Module with its parameters and buffers; for a state dictionary or a scripted module, their names.

    Raises UsageError for what cannot be filled: on the meta device, quantized, sharded, not built yet, or with parametrized weights.
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
    stored = Stored(cast("dict[str, Array]", sources(tensors)))  # what computes with numbers reads them (numpy.asarray)
    model = of_checkpoint(read_stored(stored, Path(title), Options()))
    return model.replace(
        ties=_ties(tensors), fill=lambda new: fill(value, tensors, new), live=value, hinders=lambda new: contradictions(tensors, new)
    )


def _of_module(module: Any) -> Model:
    tensors = dict(module.named_parameters(remove_duplicate=False))
    tensors |= {name: buffer for name, buffer in module.named_buffers(remove_duplicate=False) if name not in tensors}
    stored = set(module.state_dict())
    tensors = {name: tensor for name, tensor in tensors.items() if name in stored}
    _check(module, tensors)
    arrays = sources(tensors)
    units: list[Unit] = []
    modules = dict(module.named_modules(remove_duplicate=False))
    aside = {name: what for name in arrays for end, what in COUNTERS.items() if name.rpartition(".")[2] == end}
    done: dict[int, str] = {}
    within: list[str] = []
    for name, owner in modules.items():
        if any(name.startswith(f"{outer}.") or not outer for outer in within):
            continue
        alias = done.setdefault(id(owner), name)
        module_units = [unit.replace(alias=alias if alias != name else "") for unit in units_of(name, owner, arrays)]
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
        lambda new: fill(module, tensors, new),
        module,
        lambda new: contradictions(tensors, new),
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
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        what = "nested" if tensor.is_nested else str(tensor.layout)
        raise UsageError(
            f"{where} is a {what} tensor, expected one whose numbers all lie in memory. Convert it with tensor.to_dense() first"
        )
    if not is_held(tensor.dtype):
        raise UsageError(f"{where} is of {tensor.dtype}, a type that numpy lacks. Convert it with tensor.to(torch.float32) first")
    if type(tensor).__name__ == "DTensor" or hasattr(tensor, "placements"):
        raise UsageError(f"{where} is sharded over several processes. Fill the model before sharding it")


def _ties(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Return names of tensors that share their memory with an earlier one."""
    first: dict[tuple[object, ...], str] = {}
    ties = {}
    for name, tensor in tensors.items():
        other = first.setdefault(memory_of(tensor), name)
        if other != name and tensor.numel():
            ties[name] = other
    return ties


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a state dictionary that was read from a file; only names and shapes show the classes."""
    read = checkpoint.read_as(LayerNames)
    classes = checkpoint.metadata_as(TorchMetadata).get("classes", {})
    values = checkpoint.metadata_as(TorchMetadata).get("values", {})
    arrays: Mapping[str, Source] = checkpoint.arrays
    units: list[Unit] = []
    aside = dict(_optimizer(checkpoint.tensors))
    for name, stack in checkpoint.layers.items():
        layout, names = read.homes[name]
        if layout is None:
            units += units_of_ours(name, stack, outline.TORCH, names, {}, "a module of rnnconvert's")
            aside[names["outline"]] = COUNTERS["outline"]
        else:
            units += recurrent_units(stack, layout, names, read.facts.get(name, {}))
    owners: dict[str, dict[str, str]] = {}
    for full in checkpoint.tensors:
        owner, _, local = full.rpartition(".")
        if local in COUNTERS and checkpoint.tensors[full].dtype.kind in "iu":
            aside[full] = COUNTERS[local]
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


def _shared(arrays: Mapping[str, Source]) -> dict[str, str]:
    """Return names of arrays of a file that are the same numbers as an earlier one's, in the same place."""
    first: dict[tuple[object, ...], str] = {}
    shared = {}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            continue
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


# How data flows through torch.nn.Sequential, the only container that shows the order of its modules' calls.

_ELEMENTWISE = ("activation", "dropout")
_OVER_SPACE = ("pooling", "padding", "upsampling")
_NORMS = ("batchnorm", "normalization", "instancenorm")
_PRELU = "PReLU"


def is_sequential(module: Any) -> bool:
    """Return whether a module's children are called one after the other, in their order."""
    from torch import nn

    children = [child for child in module.children() if any(True for _ in child.parameters())]
    if not children:
        return True
    in_line = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    if not in_line and (len(children) > 1 or isinstance(module, nn.Sequential)):
        return False
    return all(is_sequential(child) for child in children)


def noting_order(units: Sequence[Unit], module: Any) -> list[Unit]:
    """Return the layers; those in a torch.nn.Sequential note how their input was flattened."""
    reads: dict[str, Flat] = {}
    gives: dict[str, Flat] = {}
    for line in _lines(module, ""):
        _follow(line, reads, gives)
    return [unit.replace(reads=reads.get(unit.name), gives=gives.get(unit.name)) for unit in units]


def _lines(module: Any, name: str) -> Iterator[list[tuple[str, Any]]]:
    """Yield the modules of each Sequential, including modules of the Sequentials in it, in the order of the calls."""
    from torch import nn

    if type(module) is nn.Sequential:
        yield list(_expanded(module, name))
    for child_name, child in module.named_children():
        if type(module) is not nn.Sequential or type(child) is not nn.Sequential:
            yield from _lines(child, f"{name}.{child_name}".lstrip("."))


def _expanded(module: Any, name: str) -> Iterator[tuple[str, Any]]:
    from torch import nn

    for child_name, child in module.named_children():
        path = f"{name}.{child_name}".lstrip(".")
        if type(child) is nn.Sequential:
            yield from _expanded(child, path)
        else:
            yield path, child


def _follow(line: Sequence[tuple[str, Any]], reads: dict[str, Flat], gives: dict[str, Flat]) -> None:
    """Note the layers that read a flattened convolution, and those whose output is cut into channels for one."""
    from torch import nn

    channels = 0  # of a convolution's output
    flat: Flat | None = None
    rows: list[str] = []  # a dense layer, and the norms behind it
    for name, module in line:
        group = type(module).__module__.removeprefix("torch.nn.modules.")
        passing = (*_ELEMENTWISE, *_OVER_SPACE) if channels and flat is None else _ELEMENTWISE
        standard = type(module).__module__.startswith("torch.nn.modules.")
        if standard and (group in _NORMS or type(module).__name__ == _PRELU):
            reads |= {name: flat} if flat is not None else {}
            rows += [name] if rows else []
        elif standard and (group in passing or isinstance(module, nn.Identity)):
            continue
        elif standard and group == "conv":
            channels, flat, rows = module.out_channels, None, []
        elif standard and isinstance(module, nn.Linear):
            reads |= {name: flat} if flat is not None else {}
            channels, flat, rows = 0, Flat(), [name]
        elif type(module) is nn.Flatten and channels and flat is None and _behind_the_batch(module):
            flat = Flat("channels_first", channels)
        elif type(module) is nn.Unflatten and rows and module.dim in (1, -1):
            sizes = list(module.unflattened_size)
            gives |= dict.fromkeys(rows, Flat("channels_first", int(sizes[0]))) if _are_numbers(sizes) else {}
            channels, flat, rows = int(sizes[0]) if _are_numbers(sizes) else 0, None, []
        else:
            channels, flat, rows = 0, None, []


def _behind_the_batch(module: Any) -> bool:
    return (module.start_dim, module.end_dim) == (1, -1)


def _are_numbers(sizes: Sequence[object]) -> bool:
    return len(sizes) > 1 and all(isinstance(size, int) and size > 0 for size in sizes)
