"""cuDNN's flat buffer in PyTorch on CUDA, which lays its weights out for cuDNN itself: numbers go where it puts them.

No GPU has run this file yet. Source: torch/nn/modules/rnn.py (flatten_parameters), 2.13; all parameters of a module
are views of the buffer that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray

NEEDS = ("torch",)
FORMAT = "cudnn"
BUFFER_KEY = "rnnconvert.cudnn"  # where a .safetensors has the description of its flat buffers
SUFFIX = ".bin"
SUPPORTS = "RNN, GRU and LSTM with both biases or none; projection; float16 to float64"
CANNOT = {"how": "the description already states what is computed"}
VARIANTS: dict[str, dict[str, Any]] = {"torch-flat": {"device": "cuda"}}
_STORED = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "<i2"}
_CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a flat buffer with its description; see rnnconvert.running."""
    import torch

    if not torch.cuda.is_available():
        raise NotImplementedError(f"this torch {torch.__version__} has no CUDA")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    description = request["description"]
    params = request["buffer"].view(_STORED[description["dtype"]])
    arguments = {name: request.get(name) for name in ("hidden", "cell", "lengths", "cotangents")}
    result = run(params, request["x"], description, request["variant"]["device"], **arguments)
    result["notes"] = {"cuDNN": str(torch.backends.cudnn.version())}
    return result


def run(
    params: Array,
    x: Array,
    description: Mapping[str, Any],
    device: str,
    *,
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
    cotangents: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the buffer in its own element type.

    params       the flat buffer; bfloat16 as its bits
    x            (time, batch, in)
    description  the buffer's description: cell, hidden_size, input_size, num_layers ...
    hidden       initial states, and the rest as in a request (rnnconvert.running); the answer likewise

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

    def tensor(values: Any) -> Any:
        converted = torch.as_tensor(np.asarray(values, np.float64)).to(device, flat.dtype)
        return converted.requires_grad_() if cotangents else converted

    is_lstm = description["cell"] == "lstm"
    source = tensor(x)
    states = [tensor(np.stack(list(state))) for state in ((hidden, cell) if is_lstm else (hidden,)) if state]
    if is_lstm and len(states) == 1:
        raise NotImplementedError("one of an LSTM's two initial states without the other")
    rnn = torch.nn.utils.rnn
    sequence: Any = source
    if lengths is not None:
        if np.min(lengths) < 1:
            raise NotImplementedError("a sequence of length zero: pack_padded_sequence refuses it")
        limits = torch.as_tensor(np.asarray(lengths, np.int64))
        sequence = rnn.pack_padded_sequence(source, limits, enforce_sorted=False)
    with torch.set_grad_enabled(bool(cotangents)):
        begins = tuple(states or ()) if is_lstm else next(iter(states or ()), None)
        y, final = module(sequence, begins if states else None)
        if lengths is not None:
            y, _ = rnn.pad_packed_sequence(y, total_length=len(x))
        finals = list(final) if is_lstm else [final]
        result: dict[str, Any] = {"y": _array(y), "hidden": [], "cell": []}
        result.update({name: list(_array(value)) for name, value in zip(("hidden", "cell"), finals)})
        if cotangents:
            total = (y * tensor(cotangents["y"])).sum()
            for name, value in zip(("hidden", "cell"), finals):
                total = total + (value * tensor(np.stack(list(cotangents[name])))).sum()
            total.backward()
            slopes = np.zeros(flat.numel(), _array(flat).dtype)
            for parameter in module.parameters():
                start = parameter.storage_offset()
                slopes[start : start + parameter.numel()] = _array(parameter.grad).reshape(-1)
            result["gradients"] = {"x": _array(source.grad), "hidden": [], "cell": [], "weights": {"": {"params": slopes}}}
            result["gradients"].update({n: list(_array(state.grad)) for n, state in zip(("hidden", "cell"), states)})
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

    Raises RuntimeError if it has made none.
    """
    import torch

    module.flatten_parameters()
    first, *others = (parameter.data for parameter in module.parameters())
    start = first.untyped_storage().data_ptr()
    if any(other.untyped_storage().data_ptr() != start for other in others):
        raise RuntimeError("PyTorch did not lay the parameters out for cuDNN")
    return torch.empty(0, dtype=first.dtype, device=first.device).set_(first.untyped_storage())


def _array(tensor: Any) -> Array:
    import torch

    plain = tensor.detach().cpu()
    array: Array = (plain.float() if plain.dtype in (torch.bfloat16, torch.float16) else plain).numpy()
    return array
