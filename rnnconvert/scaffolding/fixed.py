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
        others = f"Those that can be: {listed(names)}" if names else "None can be: no input is a number that nothing else stands for"
        raise UsageError(f"{Flag('fix')}: {listed(unknown)} cannot be fixed. {others}")


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
    with np.errstate(all="ignore"):
        typed = array.astype(wanted)
    exact = np.array_equal(np.isfinite(typed), np.isfinite(array)) if wanted.kind == "f" else np.array_equal(typed, array)
    if not exact:
        raise UsageError(f"{Flag('fix')}: the input {name} holds {wanted}, which has no {value!r}")
    if dims is None or (
        len(dims) == typed.ndim and all(dim == length or not isinstance(dim, int) for dim, length in zip(dims, typed.shape, strict=False))
    ):
        return typed
    if typed.ndim or not all(isinstance(dim, int) for dim in dims):
        text, lengths = (_spelled(each) for each in (dims, typed.shape))
        raise UsageError(f"{Flag('fix')}: the input {name} has {text}, and a value of {lengths} does not fill it")
    return np.full([int(dim) for dim in dims], typed)


def as_number(name: str, value: Any, dtype: str) -> bool | int | float:
    """Return the fixed value of an input that is a plain number, as code of its type computes with it.

    dtype  the element type that stands for its type

    Raises UsageError for a value that such a number cannot have.
    """
    kinds = {"f": np.float64, "i": np.int64, "b": np.bool_}
    number: bool | int | float = as_array(name, value, kinds[np.dtype(dtype).kind], ()).item()
    return number


def _spelled(dims: Sequence[Any]) -> str:
    return f"the axes {'x'.join(str(dim) if isinstance(dim, int) else '?' for dim in dims)}" if dims else "no axes"
