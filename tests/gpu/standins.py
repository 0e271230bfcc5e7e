"""What a machine without a GPU runs in its place. Whatever comes of it is marked as such: it proves the script, not a GPU."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnnconvert.formats.pytorch import run_flat
from rnnconvert.running import registry

MARK = "stand-in, CPU"

EXECUTORS = {
    "torch-cuda": "torch-cpu", "torch-cuda-tf32": "torch-cpu", "jax-cuda": "jax-cpu", "flax-cuda": "flax-cpu",
    "nnx-cuda": "nnx-cpu", "haiku-cuda": "haiku-cpu", "equinox-cuda": "equinox-cpu", "keras-torch-cuda": "keras-torch",
    "keras-jax-cuda": "keras-jax", "keras-tensorflow-cuda": "keras-tensorflow",
    "keras-tensorflow-cuda-generic": "keras-tensorflow", "onnxruntime-cuda": "onnxruntime-cpu",
}  # fmt: skip
"""The executors of CPUs that run in the place of those for CUDA, by the other's name."""


def register(folder: Path) -> None:
    """Let rnnconvert find the stand-ins under the names of the real executors, in this process and those it starts."""
    real = registry.built_in()
    entries = [{"name": name, "module": real[base].module, "variant": base, "python": sys.executable} for name, base in EXECUTORS.items()]
    flat = str(Path(__file__).with_name("standin_flat.py"))
    entries += [
        {"name": name, "module": flat, "variant": name, "python": sys.executable}
        for name in ("cudnn", "cudnn-persistent", "cudnn-persistent-dynamic", "torch-flat")
    ]
    listing = folder / "executors.json"
    listing.write_text(json.dumps(entries), encoding="utf-8")
    os.environ[registry.VARIABLE] = str(listing)


@contextlib.contextmanager
def by_hand() -> Iterator[None]:
    """Have the executor torch-flat lay its parameters out as torch does on a GPU."""
    original = run_flat._packed
    run_flat._packed = laid_out
    try:
        yield
    finally:
        run_flat._packed = original


def laid_out(module: Any) -> Any:
    """Return one buffer whose views the parameters become: all matrices, then all biases."""
    import torch

    matrices = [parameter for name, parameter in module.named_parameters() if "weight" in name]
    biases = [parameter for name, parameter in module.named_parameters() if "bias" in name]
    flat = torch.zeros(sum(parameter.numel() for parameter in module.parameters()), dtype=matrices[0].dtype)
    start = 0
    for parameter in [*matrices, *biases]:
        parameter.data = flat[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    return flat
