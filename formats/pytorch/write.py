"""The contents of PyTorch's files as they are written, and the recipe that loads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from rnnconvert.containers import safetensors
from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.cells import RELU
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, put, variables
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.names import NAME, LayerNames, plain_names
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack


def write(path: Path, job: Job) -> WriteResult:
    """Write a state dictionary: a zip checkpoint, or a .safetensors."""
    arrays: dict[str, Array | PiecewiseArray] = {}
    notes: list[str] = []
    single = len(job.parts) == 1 and job.source.format != NAME
    stacks = job.stacks()
    written: list[tuple[str, str, str]] = []
    for layout, stack in stacks:
        asked = job.options.get("prefix", stack.name)
        bare = "" if single and len(stacks) == 1 else stack.name.strip("/").replace("/", ".")
        name = bare if asked is None else asked.rstrip(".")
        prefix = f"{name}." if name else ""
        for local, packed in pack(layout, stack, job.dtype, job.watch).items():
            put(arrays, prefix + local, packed)
        call = constructor(stack, layout, layout.holds.layers and job.batch_first(stack.name), job.dtype)
        written.append((name, stack.name, call))
    dropped = job.carry(arrays, plain_names(job.carried).__getitem__)
    patched = _like_source(job) if lowered(path).suffix != ".safetensors" else None
    if patched is not None:
        if not job.dry_run:
            from rnnconvert.formats.pytorch.archives import patch

            patch.write(path, job.source.file, job.source.arrays, patched)
        into = [f"{name or 'the file itself'} loads into {call}" for name, _, call in written]
        return WriteResult([*into, "everything apart from the weights is kept unchanged"], dropped=dropped)
    result = WriteResult(notes, _recipe(path, written), dropped)
    if _whole_file(job) and _nested(job.source):
        notes.append(f"a state_dict is written: {left_behind(job.source)}")
    if lowered(path).suffix == ".ckpt":
        tensorflow = f"{Flag('to', 'tensorflow1')} and a name that ends in .ckpt.index"
        notes.append(f"this .ckpt is PyTorch's, as Lightning writes it; a checkpoint of TensorFlow 1: {tensorflow}")
    if job.dry_run:
        return result
    if lowered(path).suffix == ".safetensors":
        texts = job.source.metadata_as(TorchMetadata).get("__metadata__", {}) if job.source.format == NAME else {}
        # The second names of tied tensors stay in the metadata: safetensors.torch.load_model wants them there.
        once = {name: array for name, array in arrays.items() if texts.get(name) not in arrays}
        safetensors.write(path, once, {**texts, "format": "pt"})
    else:
        from rnnconvert.formats.pytorch.archives import zip_writer

        zip_writer.write(path, arrays)
    return result


def _recipe(path: Path, written: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return Python that loads a file of tensors: for each name in it, its layer's name and the call that makes the module."""
    if lowered(path).suffix == ".safetensors":
        lines = ["import torch", "from safetensors.torch import load_file", f"state = load_file({str(path)!r})"]
    else:
        lines = ["import torch", f"state = torch.load({str(path)!r}, weights_only=True)"]
    called = variables(layer for _, layer, _ in written)
    for name, layer, call in written:
        prefix = f"{name}."
        chosen = f"{{key.removeprefix({prefix!r}): value for key, value in state.items() if key.startswith({prefix!r})}}"
        lines.append(f"{called[layer]} = {call}")
        lines.append(f"{called[layer]}.load_state_dict({chosen if name else 'state'})")
    return lines


def _whole_file(job: Job) -> bool:
    """Return whether all that the source holds is to be written, and not some of its layers."""
    everything = len(job.carried) == len(job.source.tensors) and len(job.parts) >= len(job.source.layers)
    return job.source.format == NAME and everything


def _nested(source: Checkpoint) -> bool:
    return source.metadata_as(TorchMetadata).get("root", "state_dict") != "state_dict"


def _values(source: Checkpoint) -> list[str]:
    """Return the contents of a file in addition to tensors, by the first of their names."""
    values = source.metadata_as(TorchMetadata).get("values", {})
    return list(dict.fromkeys(name.split(".")[0] for name in values))


def left_behind(source: Checkpoint) -> str:
    """Describe the contents of a file that are not tensors and are left out."""
    root = str(source.metadata_as(TorchMetadata).get("root"))
    if root != "envelope":
        return f"the code or class of {root} is left out"
    names = _values(source)
    return f"{', '.join(names[:8]) or 'its nesting'}{' ...' if len(names) > 8 else ''} left out"


def _like_source(job: Job) -> dict[str, Array | PiecewiseArray] | None:
    """Return the weights by their names in the source, if the target is the source's envelope; None for a plain file.

    If a file of tensors alone cannot hold the result, it is written without its nesting.

    Raises RefusedError where more than the nesting would be lost.
    """
    stated = job.source.metadata_as(TorchMetadata)
    # Numbers that the file holds as integers cannot stand where those are.
    if stated.get("root") != "envelope" or not _whole_file(job) or stated.get("dequantized"):
        return None
    homes = job.source.read_as(LayerNames).homes
    loses = bool(_values(job.source) or stated.get("unreadable"))
    arrays: dict[str, Array | PiecewiseArray] = {}
    for part in job.parts:
        layout, names = homes.get(part.stack.name, (None, {}))
        packed = pack(part.layout, part.stack, job.dtype, job.watch) if layout is part.layout else {}
        why = "" if packed and set(packed) == set(names) else "its arrays get other names"
        for local, array in packed.items() if not why else ():
            old = job.source.arrays[names[local]]
            if old.shape != tuple(array.shape) or old.dtype.newbyteorder("=") != array.dtype.newbyteorder("="):
                why = f"{names[local]!r} would become {array.dtype} {tuple(array.shape)}"
            arrays[names[local]] = array
        if why and not loses:
            return None
        if why:
            _refuse_envelope(job, part.stack.name, why)
    return arrays


def _refuse_envelope(job: Job, layer: str, why: str) -> NoReturn:
    raise RefusedError(
        "layers that change their form",
        f"a checkpoint that holds {', '.join(_values(job.source)[:5]) or 'nested tensors'} as well",
        why,
        f"Write only the layers with {Flag('layer')}, or write a .safetensors, which holds only tensors.",
        layer,
    )


def constructor(stack: Recurrent, layout: Layout, batch_first: bool = False, dtype: np.dtype[Any] | None = None) -> str:
    """Return the call that makes a module for a stack's state dictionary.

    dtype  the element type, where it is not the stack's own
    """
    words = [str(stack.input_size), str(stack.hidden_size)]
    if layout.holds.layers and stack.num_layers > 1:
        words.append(f"num_layers={stack.num_layers}")
    if stack.first.biases == "none":
        words.append("bias=False")
    if batch_first:
        words.append("batch_first=True")
    if stack.num_directions == 2:
        words.append("bidirectional=True")
    if stack.first.projection_size:
        words.append(f"proj_size={stack.first.projection_size}")
    if stack.cell.kind == "rnn" and stack.cell.activation == RELU:
        words.append("nonlinearity='relu'")
    kind = str((dtype or stack.dtype).newbyteorder("="))
    if kind != "float32":
        words.append(f"dtype=torch.{kind}")
    return f"{layout.class_name}({', '.join(words)})"
