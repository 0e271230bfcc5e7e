"""Inputs whose values a caller fixes: conditions on them are decided, and the written model has no such inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import listed
from rnnconvert.core.remedies import Flag

FixedInputs = Mapping[str, Any]
"""Numbers, truths or lists of them, by the names of the inputs that have these values."""


def check_fixed(fixed: FixedInputs, names: Sequence[str]) -> None:
    """Raise UsageError for others than the inputs that may be fixed."""
    unknown = [name for name in fixed if name not in names]
    if unknown:
        raise UsageError(f"{Flag('fix')} is for {listed(names) if names else 'no input of this model'}, and not for {listed(unknown)}")


def as_array(name: str, value: Any, dtype: Any = None, dims: Sequence[Any] | None = None) -> Array:
    """Return a fixed value as the input has it.

    dtype  the input's element type, None where it states none
    dims   its axes, None where it states none; a single number fills axes of stated lengths

    Raises UsageError for a value that the input cannot have.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{Flag('fix')}: {name} is fixed at a number, true or false, or a list of these, got {value!r}")
    wanted = array.dtype if dtype is None else np.dtype(dtype)
    typed = array.astype(wanted)
    if not np.array_equal(typed, array) and wanted.kind != "f":
        raise UsageError(f"{Flag('fix')}: the input {name} holds {wanted}, which has no {value!r}")
    if dims is None or len(dims) == typed.ndim:
        return typed
    if typed.ndim or not all(isinstance(dim, int) for dim in dims):
        text = "x".join(str(dim) if isinstance(dim, int) else "?" for dim in dims)
        raise UsageError(f"{Flag('fix')}: the input {name} has the axes {text}, and a value of {typed.ndim} does not fill them")
    return np.full([int(dim) for dim in dims], typed)
