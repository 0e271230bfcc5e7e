"""PyTorch's own recurrent layers, on a state_dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.arrays import BFLOAT16, Array
from rnnconvert.executors.packages import absent
from rnnconvert.executors.reference import Outputs

NEEDS = ("torch",)
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def available() -> str:
    """Why it cannot run here, or "" if it can."""
    return absent(NEEDS)


def run(
    arrays: Mapping[str, Array],
    x: Array,
    module: str,
    *,
    hidden: Sequence[Array] | None = None,
    cell: Sequence[Array] | None = None,
    lengths: Array | None = None,
    **options: Any,
) -> Outputs:
    """Run a torch.nn module in the element type of its weights; bfloat16 outputs come back as float32.

    arrays   the module's state_dict: weight_ih_l0 and so on
    x        (time, batch, in)
    module   "RNN", "GRU" or "LSTM"
    hidden   initial states, layer by layer and in a layer its directions, each (batch, out); zero if None
    cell     initial cell states of an LSTM, likewise
    lengths  how many steps of each sequence count, (batch,); all of them if None
    options  the module's own that its arrays do not show: num_layers, bidirectional, nonlinearity

    Raises RuntimeError if the arrays are not those of such a module.
    """
    import torch

    rows, out = arrays["weight_hh_l0"].shape
    layer = getattr(torch.nn, module)(
        arrays["weight_ih_l0"].shape[1],
        rows // _GATES[module],
        bias="bias_ih_l0" in arrays,
        dtype=_tensor(arrays["weight_hh_l0"]).dtype,
        **({"proj_size": out} if "weight_hr_l0" in arrays else {}),
        **options,
    )
    layer.load_state_dict({name: _tensor(array) for name, array in arrays.items()})
    dtype = arrays["weight_hh_l0"].dtype
    sequence: Any = _tensor(np.asarray(x, dtype))
    if lengths is not None:
        pack = torch.nn.utils.rnn.pack_padded_sequence
        sequence = pack(sequence, torch.as_tensor(np.asarray(lengths, np.int64)), enforce_sorted=False)
    state = _states(hidden, cell, dtype, module)
    with torch.no_grad():
        y, final = layer(sequence, state)
    if lengths is not None:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=len(x))
    h, *c = final if module == "LSTM" else (final,)
    return Outputs(_array(y), tuple(map(_array, h)), tuple(map(_array, c[0])) if c else ())


def _states(hidden: Sequence[Array] | None, cell: Sequence[Array] | None, dtype: Any, module: str) -> Any:
    if hidden is None:
        return None
    h = _tensor(np.stack(list(hidden)).astype(dtype))
    return (h, _tensor(np.stack(list(cell or ())).astype(dtype))) if module == "LSTM" else h


def _tensor(array: Array) -> Any:
    import torch

    if array.dtype == BFLOAT16:
        return torch.tensor(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.tensor(np.ascontiguousarray(array))


def _array(tensor: Any) -> Array:
    import torch

    array: Array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array
