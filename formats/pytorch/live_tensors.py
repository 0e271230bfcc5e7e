"""The tensors of a live PyTorch model: filled in place, and held against one another where they share memory."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.models.backup import Backup
from rnnconvert.models.model import all_or_none


def fill(module: Any, tensors: Mapping[str, Any], new: Mapping[str, Array]) -> Any:
    """Copy the arrays into the module's own tensors: all of them or none, even after an error."""
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
    if plain.device.type != "cpu" or plain.layout is not torch.strided or plain.is_neg() or not plain.is_contiguous() or not plain.numel():
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
            # As in live.memory_of: 0 is no address.
            place = str(tensor.device), tensor.dtype, tensor.untyped_storage().data_ptr() or -id(tensor)
            stored.setdefault(place, []).append(name)
    return [names for names in stored.values() if _overlap([tensors[name] for name in names])]


def _overlap(tensors: Sequence[Any]) -> bool:
    views = {(t.storage_offset(), tuple(t.shape), t.stride()) for t in tensors}
    spans = sorted((start, _end(start, shape, stride)) for start, shape, stride in views)
    return any(later[0] < max(end for _, end in spans[: number + 1]) for number, later in enumerate(spans[1:]))


def _end(start: int, shape: Sequence[int], stride: Sequence[int]) -> int:
    return start + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1


def _same_numbers(ours: Any, theirs: Any) -> bool:
    return bool(((ours == theirs) | (ours.isnan() & theirs.isnan())).all())


def _fixed(tensor: Any) -> str:
    """Return why a tensor cannot be written, or ""."""
    if tensor.is_inference():
        return "was made in torch.inference_mode, where weights cannot be changed afterwards. Make the module outside of it"
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return "is expanded: several of its numbers are one in memory. Make it contiguous with tensor.contiguous()"
    return ""


def contradictions(tensors: Mapping[str, Any], new: Mapping[str, Array]) -> list[str]:
    """Return why new numbers cannot be written, or would be overwritten, since another tensor that is filled shares the same memory."""
    if remade := [name for name in new if name not in tensors]:
        return [
            f"{name!r} is kept in other tensors, from which the module computes it (weight norm, spectral norm, pruning). Remove that "
            "first, as torch.nn.utils.remove_weight_norm, remove_spectral_norm and prune.remove do, and register it again afterwards"
            for name in remade
        ]
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
