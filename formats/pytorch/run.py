"""PyTorch's own recurrent layers, on a state_dict."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences

from .run_module import array, solved
from .run_witness import run_whole

Array = np.ndarray

NEEDS = ("torch",)
FORMAT = "pytorch"
SUFFIX = ".safetensors"
SUPPORTS = "nn.RNN, GRU and LSTM and their cells; projection; packed sequences, none empty; gradients; float16 to float64"
VARIANTS: dict[str, dict[str, Any]] = {
    "torch-cpu": {"device": "cpu"},
    "torch-cuda": {"device": "cuda", "tf32": False, "rounds_like": {"float32": "float32, tanh to 16 digits"}},
    "torch-cuda-tf32": {"device": "cuda", "tf32": True, "rounds_like": {"float32": "float16"}},
}
_CLASSES = {1: "RNN", 3: "GRU", 4: "LSTM"}
"""torch.nn's classes by the number of gates in the rows of their weights."""


_PARAMETER = re.compile(r"(weight|bias)_(ih|hh|hr)(_l\d+(_reverse)?)?")
"""The names of the own parameters of a recurrent module of torch.nn; a cell's have no number."""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the module of a checkpoint whose parameters carry a prefix; see rnnconvert.running."""
    import torch

    variant = request["variant"]
    if variant["device"] == "cuda":
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = variant["tf32"]
    file = request["file"]
    how = json.dumps(request["how"], sort_keys=True)
    module = _ready(file, Path(file).stat().st_mtime_ns, tuple(request["layers"]), how)
    result = solved(module.to(variant["device"]), Sequences.of(request))
    if variant["device"] == "cuda":
        result["notes"] = {"cuDNN": str(torch.backends.cudnn.version()), "TF32": "on" if variant["tf32"] else "off"}
    return result


def witness(request: Mapping[str, Any]) -> None:
    """Run the model of a TorchScript archive or an exported program whole; see rnnconvert.running."""
    run_whole(request, array)


@functools.lru_cache(maxsize=1)
def _ready(file: str, written: int, layers: Sequence[str], how: str) -> Any:
    """Return the module of a file; made once, as all cases of a layer are run one after the other."""
    return _module(_parameters(file, layers), **json.loads(how))


def _parameters(file: str, layers: Sequence[str]) -> dict[str, Any]:
    """Return the tensors of a module, without its prefix; if no layer is named, of the only one in the file."""
    if len(layers) > 1:
        raise NotImplementedError(f"a chain of {len(layers)} modules: torch stacks layers in one")
    states = [prefix for tensors in _dictionaries(_loaded(file, Path(file).stat().st_mtime_ns), 8) for prefix in _under(tensors, layers)]
    if len(states) != 1:
        which = f"of {layers[0]!r}" if layers else "in the file"
        problem = "are spelled another way than weight_hh_l0" if not states else "are there several times"
        raise NotImplementedError(f"the parameters {which} {problem}")
    return states[0]


@functools.lru_cache(maxsize=1)
def _loaded(file: str, written: int) -> Any:
    """Return the content of a file; read once, as all layers of a file are run one after the other."""
    import pickle

    import torch

    if file.endswith(".safetensors"):
        from safetensors.torch import load_file

        return load_file(file)
    try:
        # Mapped, a file is not copied; what was written before PyTorch 1.6 is no zip archive, and cannot be.
        return torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except (pickle.UnpicklingError, RuntimeError) as error:
        # What is more than weights would be executed: a whole module, a TorchScript archive, a configuration.
        words = " ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).split())
        foreign = re.search(r"Unsupported global: GLOBAL (\S+)", words)
        why = f"it would run code, {foreign[1]}" if foreign else words.partition(". ")[0][:200]
        raise NotImplementedError(f"torch.load(weights_only=True) refuses it: {why}") from None


def _dictionaries(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield a checkpoint and the dictionaries in it."""
    if isinstance(value, dict) and depth:
        yield value
        for inner in value.values():
            yield from _dictionaries(inner, depth - 1)


def _under(tensors: Mapping[str, Any], layers: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the parameters of each recurrent module in a state_dict that is asked for."""
    names = [name for name, value in tensors.items() if isinstance(name, str) and hasattr(value, "shape")]
    ends = ("weight_hh_l0", "weight_hh")
    prefixes = {name[: -len(end)] for name in names for end in ends if name.endswith(end)}
    for prefix in sorted(prefixes):
        path = prefix.rstrip(".")
        if (not layers or path in (layers[0], f"module.{layers[0]}")) and (not path or prefix.endswith(".")):
            around = path[: -len("module")] if path.endswith("module") else path
            if any(name.endswith("_raw") and name.startswith(around) for name in names):
                raise NotImplementedError(f"the weights of {path!r} are those of a weight dropout, which torch.nn does not have")
            # A module may hold others, whose parameters begin alike.
            parameters = {name[len(prefix) :]: tensors[name] for name in names if name.startswith(prefix)}
            yield {name: value for name, value in parameters.items() if _PARAMETER.fullmatch(name)}


def _module(arrays: Mapping[str, Any], **how: Any) -> Any:
    """Return the torch.nn module whose state_dict this is; for a cell, the one-layer module that computes the same."""
    import torch

    if "weight_hh" in arrays:
        arrays = {f"{name}_l0": value for name, value in arrays.items()}
    own_arrays = {name: value for name, value in arrays.items() if "_l" in name}
    # Arrays of several types are brought to one, as loading them into a module does.
    dtype = functools.reduce(torch.promote_types, (array.dtype for array in own_arrays.values()))
    own_arrays = {name: array.to(dtype) for name, array in own_arrays.items()}
    rows, out = own_arrays["weight_hh_l0"].shape
    hidden = own_arrays["weight_hr_l0"].shape[1] if "weight_hr_l0" in own_arrays else out
    with torch.device("meta"):  # no memory, and no random numbers that the file's replace
        module = getattr(torch.nn, _CLASSES[rows // hidden])(
            own_arrays["weight_ih_l0"].shape[1],
            hidden,
            num_layers=sum(name.startswith("weight_hh_l") and not name.endswith("_reverse") for name in own_arrays),
            bias="bias_ih_l0" in own_arrays,
            bidirectional="weight_hh_l0_reverse" in own_arrays,
            dtype=dtype,
            **({"proj_size": out} if "weight_hr_l0" in own_arrays else {}),
            **how,
        )
    module.load_state_dict(own_arrays, assign=True)
    return module


def run(arrays: Mapping[str, Array], sequences: Sequences, how: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run a module on the CPU, in the element type of its weights, from its state_dict as numpy arrays.

    how  what the arrays do not show: {"nonlinearity": "relu"}

    Raises RuntimeError if the arrays are not such a module's.
    """
    return solved(_module({name: _tensor(value) for name, value in arrays.items()}, **(how or {})), sequences)


def _tensor(array: Array) -> Any:
    import torch

    if array.dtype.name == "bfloat16":
        return torch.tensor(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.tensor(np.ascontiguousarray(array))
