"""torch.nn modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array, Source, read_once
from rnnconvert.core.cells import RELU, TANH, Cell
from rnnconvert.core.errors import MissingPackageError, RefusedError, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.arrange import accepted
from rnnconvert.files.arrays_by_name import packed, represented
from rnnconvert.files.options import Options
from rnnconvert.language import outline, registry
from rnnconvert.language.fitting import fit
from rnnconvert.language.packing import assemble, unpack


def numbers(tensor: Any) -> Array:
    """Return a torch tensor's numbers, on the CPU; numpy itself has no bfloat16."""
    plain = tensor.detach().cpu().resolve_neg()
    if str(plain.dtype) == "torch.bfloat16":
        import torch

        return np.asarray(plain.view(torch.int16).numpy().view(BFLOAT16))
    return np.asarray(plain.numpy())


def sources(tensors: Mapping[str, Any]) -> dict[str, Source]:
    """Return tensors by name as arrays: on the CPU views of their memory, elsewhere each read once, when its numbers are asked for."""
    once: dict[tuple[object, ...], Source] = {}
    return {name: once.setdefault((*memory_of(tensor), tensor.dtype), _source(tensor)) for name, tensor in tensors.items()}


def _source(tensor: Any) -> Source:
    if tensor.device.type == "cpu":
        return numbers(tensor)
    import torch

    return read_once(tuple(tensor.shape), numbers(torch.empty(0, dtype=tensor.dtype)).dtype, lambda: numbers(tensor))


def is_held(dtype: Any) -> bool:
    """Return whether numpy can hold numbers of a torch type: not numbers of 8 bits and fewer, for instance."""
    import torch

    try:
        numbers(torch.empty(0, dtype=dtype))
    except TypeError:
        return False
    return True


def memory_of(tensor: Any) -> tuple[object, ...]:
    """Return a key that is equal for tensors that are the same numbers in the same memory."""
    # Devices whose memory has no addresses, such as XLA's, give 0 for every tensor: there, each is taken to be memory of its own.
    return (str(tensor.device), tensor.data_ptr() or -id(tensor), tuple(tensor.shape), tensor.stride())


def tensor(array: Array) -> Any:
    """Return a torch tensor of some numbers; bfloat16, which torch does not take from numpy, as float32."""
    import torch

    return torch.from_numpy(np.array(array.astype(np.float32) if array.dtype == BFLOAT16 else array))


def from_torch(module: Any, name: str = "") -> Recurrent:
    """Return the layer in a torch.nn.RNN, GRU, LSTM, one of their cells, or a module of rnnconvert's own
    (rnnconvert.formats.pytorch.module).

    The arrays share the module's memory on the CPU.

    Raises UsageError for another module: hand in its recurrent part, as in from_torch(model.encoder).
    """
    return layer_of(module, name)


def layer_of(module: Any, name: str, arrays: Mapping[str, Source] | None = None) -> Recurrent:
    """Return the layer in a module, see from_torch, with these arrays for its parameters, by its own names; read now if None."""
    from torch import nn

    from rnnconvert.formats.pytorch.module import ForeignRecurrent

    if isinstance(module, ForeignRecurrent):
        return outline.filled(outline.from_text(module.text), outline.TORCH, _read(module) if arrays is None else arrays, name)
    stacks = {nn.LSTM: "lstm", nn.GRU: "gru", nn.RNN: "rnn"}
    cells = {nn.LSTMCell: "lstm_cell", nn.GRUCell: "gru_cell", nn.RNNCell: "rnn_cell"}
    variant = next((word for kind, word in {**stacks, **cells}.items() if isinstance(module, kind)), None)
    if variant is None:
        raise UsageError(
            f"{type(module).__name__} is not a torch.nn.RNN, GRU, LSTM or cell. Hand in the recurrent part of your model, or write "
            "all of it with rnnconvert.export_model"
        )
    layout = registry.layout_named(f"pytorch.{variant}")
    arrays = _read(module) if arrays is None else arrays
    sizes = fit(layout, {key: tuple(array.shape) for key, array in arrays.items()})
    if sizes is None:
        raise UsageError(
            f"the parameters of this {type(module).__name__} are not its class's own: {', '.join(sorted(arrays))}. Where weight norm, "
            "spectral norm or pruning computes its weights, give the model's state_dict() in its place"
        )
    kind: Any = layout.kind
    relu = getattr(module, "nonlinearity", "tanh") == "relu"
    cell = Cell(kind, layout.reset_after, activation=RELU if relu else TANH)
    return assemble(name, cell, unpack(layout, sizes, arrays), sizes.num_directions)


def tensors_of(module: Any) -> dict[str, Any]:
    """Return the tensors that a recurrent module computes with, by its own names; in rnnconvert's own modules as a parametrization or
    pruning makes them.
    """
    from rnnconvert.formats.pytorch.module import ForeignRecurrent

    if not isinstance(module, ForeignRecurrent):
        return dict(module.state_dict())
    return {name: getattr(module, name) for name in outline.shapes(outline.from_text(module.text), outline.TORCH)}


def _read(module: Any) -> dict[str, Source]:
    return {name: numbers(tensor) for name, tensor in tensors_of(module).items()}


def to_torch(layer: Recurrent, dtype: str | None = None, *, own: bool = True, **options: object) -> Any:
    """Return a torch.nn.RNN, GRU or LSTM with the layer's weights, or one of their cells with module="cell".

    A layer that none of them computes becomes a module of rnnconvert's own that is called in the same way: ForeignRNN, ForeignGRU or
    ForeignLSTM of rnnconvert.formats.pytorch.module.

    own  False to refuse such a layer instead

    Raises RefusedError if torch.nn has no such cell and own is False, or if the layer's function is
    unknown; MissingPackageError without torch.
    """
    try:
        import torch
    except ImportError:
        raise MissingPackageError("torch", "make a torch.nn module") from None
    chosen = Options(options)
    try:
        part = represented(layer, "pytorch", chosen)
    except RefusedError:
        if not own or chosen.get("module") == "cell":
            raise
        from rnnconvert.formats.pytorch.module import module_of
        from rnnconvert.rewrites.limits import taken_over

        accepted_names = [chosen.get(name, layer.name) and name for name in accepted(chosen, layer.name)]
        chosen.ledger.check_used("a module of rnnconvert's own")
        return module_of(taken_over(layer, list(filter(None, accepted_names))), dtype)
    chosen.ledger.check_used("a torch.nn module")
    stack = part.stack
    keywords: dict[str, Any] = {"bias": stack.first.biases != "none"}
    if part.layout.holds.layers:
        keywords |= {"num_layers": stack.num_layers, "bidirectional": stack.num_directions == 2}
    if stack.first.projection_size:
        keywords["proj_size"] = stack.first.projection_size
    if stack.cell.kind == "rnn":
        keywords["nonlinearity"] = stack.cell.activation.name
    arrays = packed(part, dtype)
    kind = getattr(torch, dtype or str(stack.dtype.newbyteorder("=")))
    module = getattr(torch.nn, part.layout.class_name.rpartition(".")[2])(stack.input_size, stack.hidden_size, dtype=kind, **keywords)
    with torch.no_grad():
        for key, parameter in module.state_dict().items():
            parameter.copy_(tensor(arrays[key]))
    return module
