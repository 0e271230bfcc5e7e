"""cuDNN's flat buffer in PyTorch on CUDA, which lays its weights out for cuDNN itself: numbers go where it puts them.

Source: torch/nn/modules/rnn.py (flatten_parameters), 2.13; all parameters of a module are views of the buffer that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnconvert.running.sequences import Sequences

from .run_module import array, solved

Array = np.ndarray

NEEDS = ("torch",)
FORMAT = "cudnn"
BUFFER_KEY = "rnnconvert.cudnn"  # where a .safetensors has the description of its flat buffers
SUFFIX = ".bin"
SUPPORTS = "RNN, GRU and LSTM with both biases or none; projection; float16 to float64"
CANNOT = {"how": "the description already states what is computed"}
VARIANTS: dict[str, dict[str, Any]] = {"torch-flat": {"device": "cuda", "rounds_like": {"float32": "float32, tanh to 16 digits"}}}
STORED = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "<i2"}
_CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a flat buffer with its description; see rnnconvert.running."""
    import torch

    if not torch.cuda.is_available():
        raise NotImplementedError(f"this torch {torch.__version__} has no CUDA")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    params = request["buffer"].view(STORED[request["description"]["dtype"]])
    result = run(params, request["description"], Sequences.of(request), request["variant"]["device"])
    result["notes"] = {"cuDNN": str(torch.backends.cudnn.version())}
    return result


def run(params: Array, description: Mapping[str, Any], sequences: Sequences, device: str) -> dict[str, Any]:
    """Run the buffer in its own element type.

    params       the flat buffer; bfloat16 as its bits
    description  the buffer's description: cell, hidden_size, input_size, num_layers ...

    Raises NotImplementedError for what torch.nn lacks, RuntimeError for a buffer of another size.
    """
    import torch

    module = _module(description, device)
    flat = _packed(module)
    numbers = torch.from_numpy(params)
    numbers = numbers.view(torch.bfloat16) if description["dtype"] == "bfloat16" else numbers
    if flat.numel() != numbers.numel():
        raise RuntimeError(f"the buffer has {numbers.numel()} numbers, but PyTorch's has {flat.numel()}")
    flat.copy_(numbers)
    result = solved(module, sequences)
    if "gradients" in result:
        slopes = np.zeros(flat.numel(), array(flat).dtype)
        for parameter in module.parameters():
            start = parameter.storage_offset()
            slopes[start : start + parameter.numel()] = array(parameter.grad).reshape(-1)
        result["gradients"]["weights"] = {"": {"params": slopes}}
    return result


def _module(description: Mapping[str, Any], device: str) -> Any:
    """Return the torch.nn module that a description stands for."""
    import torch

    biases = {"double": True, "none": False}.get(description.get("bias_mode", "double"))
    if biases is None or description.get("input_mode", "linear") != "linear" or description.get("clip"):
        raise NotImplementedError("a single bias, a skipped input or a clip: torch.nn does not have them")
    cell, hidden = description["cell"], description["hidden_size"]
    projection = description.get("projection_size", 0)
    options: dict[str, Any] = {"proj_size": projection} if projection not in (0, hidden) else {}
    if cell.startswith("rnn_"):
        options["nonlinearity"] = cell[4:]
    return getattr(torch.nn, _CLASSES[cell])(
        description["input_size"],
        hidden,
        description.get("num_layers", 1),
        bias=biases,
        bidirectional=bool(description.get("bidirectional")),
        dtype=getattr(torch, description["dtype"]),
        device=device,
        **options,
    )


def _packed(module: Any) -> Any:
    """Return the buffer that PyTorch made of a module's parameters for cuDNN, as one tensor.

    Raises NotImplementedError if it has made none, as of bfloat16, which it computes without cuDNN.
    """
    import torch

    module.flatten_parameters()
    first, *others = (parameter.data for parameter in module.parameters())
    start = first.untyped_storage().data_ptr()
    if any(other.untyped_storage().data_ptr() != start for other in others):
        raise NotImplementedError(f"PyTorch does not lay parameters of {first.dtype} out for cuDNN")
    return torch.empty(0, dtype=first.dtype, device=first.device).set_(first.untyped_storage())
