"""The statements of a PyTorch file about a recurrent layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import FLOATS, Source, widest
from rnnconvert.core.cells import RELU, TANH, Cell
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch.recognise import recognise as recognise
from rnnconvert.language.layout import Sizes


def check_types(prefix: str, arrays: Mapping[str, Source]) -> None:
    dtypes = {str(array.dtype.newbyteorder("=")) for array in arrays.values()}
    if not dtypes <= set(FLOATS):
        raise RefusedError(
            "weights that are not floating-point numbers",
            "the canonical form",
            f"{prefix!r} has {', '.join(sorted(dtypes))}",
            "Dequantize the model first.",
        )


def in_one_type(arrays: dict[str, Source]) -> tuple[dict[str, Source], list[str]]:
    """Return a module's parameters in the element type that holds all of them, and a note where they are of several.

    Module.load_state_dict copies each into the type of the module: what the file has as several is one there.
    """
    dtype = widest(array.dtype for array in arrays.values())
    types = sorted({str(array.dtype.newbyteorder("=")) for array in arrays.values()})
    if len(types) == 1:
        return arrays, []
    note = f"its parameters are {' and '.join(types)}, which a module of PyTorch loads as one: they are read as {dtype}"
    return {name: np.asarray(array).astype(dtype, copy=False) for name, array in arrays.items()}, [note]


_MODES = {"RNN_TANH": "tanh", "RNN_RELU": "relu"}
"""An RNN's function, by the mode that its module states. It decides what torch.nn.RNN computes, regardless of its `nonlinearity`."""


def nonlinearity_of(path: Path, name: str, prefix: str, values: Mapping[str, Any], code: str) -> str:
    """Return an RNN's function as its attributes or its code show it, "" where neither does. Raises RefusedError if they differ."""
    stated = str(_MODES.get(str(values.get(f"{prefix}mode"))) or values.get(f"{prefix}nonlinearity") or code)
    if code and stated != code:
        raise RefusedError(
            f"an RNN that states {stated} but computes {code}",
            "the canonical form",
            f"the attributes and the code of {path} contradict one another",
            "Save the module's state_dict.",
            name,
        )
    return stated


def rnn(name: str, stated: str, has_code: bool, options: Options) -> Cell:
    """Return an RNN's cell, whose function the file states or the caller decides."""
    if stated:
        function = options.stated("nonlinearity", name, stated, "the file")
    else:
        why = "a state_dict does not hold an RNN's nonlinearity"
        if has_code:
            why = "the archive's code does not show which function is called with these weights"
        function = options.ask("nonlinearity", name, assumed="tanh", why=why, common=True)
    return Cell("rnn", activation=RELU if function == "relu" else TANH)


def check_stated(path: Path, name: str, prefix: str, values: Mapping[str, Any], sizes: Sizes) -> None:
    """Raise UnreadableError for an attribute of a module that its parameters contradict."""
    stated = {
        "input_size": sizes.input_size,
        "hidden_size": sizes.hidden_size,
        "num_layers": sizes.num_layers,
        "bidirectional": sizes.num_directions == 2,
        "proj_size": sizes.projection_size,
        "bias": "input_bias" in sizes.parts,
    }
    for key, value in stated.items():
        stated_value = values.get(prefix + key)
        if prefix and isinstance(stated_value, (bool, int)) and stated_value != value:
            raise UnreadableError(path, f"{name!r} states {key}={stated_value}, but its parameters are for {value}")
