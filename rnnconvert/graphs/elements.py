"""Values as their elements: in place of numbers, which element of which source stands at each place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.graph import GraphNode, GraphValue, LayerCall

BITS = 40
"""Bits of an element's number within its source; the source's number stands above them."""


@dataclass(frozen=True, eq=False)
class Elements:
    """A value that only a run of the model would give.

    origins   for each element, the number of its source, shifted by BITS, and its place there; None if the shape is not known
    exact     the narrowest element type that holds every element as it left its source; None for other types than floats
    dtype     the type that it has now
    """

    origins: Array | None
    exact: np.dtype[Any] | None = None
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True, eq=False)
class ElementSource:
    """Where elements come from: a sequence that a layer gives, or anything else.

    maker   the call of the layer, the operator, or the value that nothing gives
    words   what it is, where a layer gives it and it is not the whole sequence
    shape   of a whole sequence: its lengths of time and batch
    """

    maker: LayerCall | GraphNode | GraphValue
    words: str = ""
    shape: tuple[int, int] | None = None


def sequence(number: int, shape: tuple[int, int], call: LayerCall, axes: str) -> Array:
    """Return a layer's whole output with each element's origin, in the order of axes that the framework gives it."""
    time, batch = shape
    size = time * batch * call.sizes.directions * call.sizes.hidden
    # Each element is named by its source and its place there, so that no two are alike.
    plain: Array = (number << BITS) + np.arange(size).reshape(time, batch, call.sizes.directions, call.sizes.hidden)
    order = "tbdh"
    if "u" in axes:
        plain, order = plain.reshape(time, batch, call.sizes.directions * call.sizes.hidden), "tbu"
    # A capital T is a time that runs backwards.
    if "T" in axes:
        plain, axes = plain[::-1], axes.replace("T", "t")
    absent = [letter for letter in order if letter not in axes]
    if any(plain.shape[order.index(letter)] != 1 for letter in absent):
        raise ValueError(f"a sequence {axes} has no axis for {absent}")
    plain = plain.reshape([length for length, letter in zip(plain.shape, order, strict=True) if letter in axes])
    order = "".join(letter for letter in order if letter in axes)
    plain = plain.transpose([order.index(letter) for letter in axes if letter != "1"])
    return plain.reshape(_with_ones(plain.shape, axes))


def _with_ones(shape: Sequence[int], axes: str) -> list[int]:
    lengths = iter(shape)
    return [1 if letter == "1" else next(lengths) for letter in axes]


def canonical(origins: Array, axes: str) -> Array | None:
    """Return a layer's sequence as (time, batch, features); None if it does not have as many axes as the layer's framework wants."""
    if origins.ndim != len(axes):
        return None
    ones = [place for place, letter in enumerate(axes) if letter == "1"]
    if any(origins.shape[place] != 1 for place in ones):
        return None
    origins = origins.reshape([length for place, length in enumerate(origins.shape) if place not in ones])
    order = axes.replace("1", "")
    for letter in "tb":
        # Without an axis of time or batch it is one step, or one sequence.
        if letter not in order.lower():
            origins, order = origins[None], letter + order
    if "T" in order:
        origins, order = np.flip(origins, order.index("T")), order.replace("T", "t")
    return origins.transpose([order.index(letter) for letter in "tbi"])


def holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Return whether a float type holds every number of another."""
    wider, other = ml_dtypes.finfo(wide), ml_dtypes.finfo(narrow)
    return bool(
        wider.nmant >= other.nmant and wider.maxexp >= other.maxexp and float(wider.smallest_subnormal) <= float(other.smallest_subnormal)
    )


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether an element type is one of floats."""
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16
