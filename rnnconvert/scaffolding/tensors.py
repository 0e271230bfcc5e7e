"""Tensors of a source on their way into a description: with the lengths of their axes, and numbers where a file states them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.sizes import Dims, Size
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.moved import MovedAxes


@dataclass(eq=False)
class SourceTensor:
    """A tensor of the source.

    dims     the lengths of its axes
    dtype    its element type
    name     its name in the source, or of what it was made by
    value    its value in the description, once it is there
    numbers  its content, if known without a run: numbers, or whole numbers and lengths, as objects
    origin   the tensor that it is moved from, and how
    parts    the tensors that it consists of, side by side on a new first axis
    filled   the number or length that stands everywhere in it, None for other tensors
    stored   the name of the file's array that it is, "" for other tensors
    unsized  for the output of a layer that is left out, without known axes: the symbol by which readings ask for the number of axes; "" for
             other tensors
    """

    dims: Dims
    dtype: str = "float32"
    name: str = ""
    value: Value | None = None
    numbers: Array | None = None
    origin: tuple[SourceTensor, MovedAxes] | None = None
    parts: tuple[SourceTensor, ...] = ()
    filled: float | Size | None = None
    stored: str = ""
    unsized: str = ""

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.dims)


def only_number(tensor: SourceTensor) -> Any:
    """Return the only number of a constant; None for other tensors."""
    if tensor.numbers is None or tensor.numbers.size != 1:
        return None
    number = tensor.numbers.reshape(-1)[0]
    if isinstance(number, Size):
        return None
    return written(number)


def written(number: Any) -> int | float | bool:
    """Return a number as Python has it: of single precision the shortest that is the same there."""
    if isinstance(number, (bool, np.bool_)):
        return bool(number)
    if isinstance(number, np.floating) and number.dtype.itemsize <= 4:
        return float(str(number)) if np.isfinite(number) else float(number)
    return int(number) if isinstance(number, (int, np.integer)) else float(number)


def stacks(tensor: SourceTensor) -> bool:
    """Return whether a tensor consists of parts, or of one that is a layer's own state."""
    if tensor.parts:
        return True
    if tensor.dims[:1] != (1,) or tensor.origin is None:
        return False
    base, moved = tensor.origin
    return not moved.groups[0] and base.dims == tensor.dims[1:]


def renewed(value: Any, make: Callable[[SourceTensor], Value]) -> Any:
    """Return the stand-in for a value in another model: numbers are the same there, other tensors are made anew."""
    if isinstance(value, (list, tuple)):
        return [renewed(item, make) for item in value]
    if not isinstance(value, SourceTensor):
        return value
    if value.numbers is not None or value.filled is not None or value.stored:
        return replace(value, value=None)
    if value.parts and value.value is None:
        return replace(value, parts=tuple(renewed(part, make) for part in value.parts))
    return SourceTensor(value.dims, value.dtype, value.name, make(value))
