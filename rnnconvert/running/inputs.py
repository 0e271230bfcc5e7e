"""A user's own inputs of a whole model: a file of arrays, by the model's own names or in its order."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.addresses import local
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError, UsageError, unreadable
from rnnconvert.core.printable import listed
from rnnconvert.running.models import NamedArrays


def read_inputs(path: str | os.PathLike[str]) -> NamedArrays:
    """Return the arrays of a file: the only one of a .npy, without a name, or those of an .npz in the order in which they were saved.

    Raises UnreadableError for another file.
    """
    try:
        loaded: Any = np.load(local(path), allow_pickle=False)
        return [("", loaded)] if isinstance(loaded, np.ndarray) else [(name, loaded[name]) for name in loaded.files]
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, EOFError) as error:
        raise UnreadableError(path, f"it is not a .npy or .npz file of plain arrays: {error}") from None


def named(inputs: Any) -> NamedArrays:
    """Return inputs with their names: an array, several, several by name, or the file that holds them."""
    if isinstance(inputs, (str, Path)):
        return read_inputs(inputs)
    if isinstance(inputs, Mapping):
        return [(str(name), np.asarray(array)) for name, array in inputs.items()]
    return [("", np.asarray(array)) for array in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]


_ORDERS = 6
"""How many orders of inputs without common names are tried."""


def orders(count: int) -> list[tuple[int, ...]]:
    """Return the orders in which inputs without common names are tried, the most likely first."""
    return list(itertools.islice(itertools.permutations(range(count)), _ORDERS))


def exchanged(array: Array) -> Array:
    """Return an array whose first two axes are exchanged: those of batch and time."""
    return np.ascontiguousarray(array.swapaxes(0, 1))


def in_order(inputs: NamedArrays, names: Sequence[str], model: str) -> list[Array]:
    """Return inputs as a model takes them: by its own names, where they have those, otherwise in the order in which they stand.

    model  whose inputs these are, in words

    Raises UsageError where only some of the names are the model's: their order may be another one, too.
    """
    by_name = dict(inputs)
    ordered = [name for name in names if name in by_name]
    # The last ones may have defaults.
    if len(ordered) == len(inputs) and ordered == list(names[: len(ordered)]):
        return [by_name[name] for name in ordered]
    if ordered:
        raise UsageError(
            f"the inputs are called {listed(by_name)}, and {model} takes {listed(names)}. Call them as it does, or all otherwise: "
            "then their order counts"
        )
    return [array for _, array in inputs]
