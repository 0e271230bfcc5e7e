"""A user's own inputs of a whole model: a file of arrays, by the model's own names or in its order."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.addresses import local
from rnnconvert.containers.reading import open_regular
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError, UsageError, unreadable
from rnnconvert.core.printable import listed, quoted
from rnnconvert.running.models import NamedArrays


def read_inputs(path: str | os.PathLike[str]) -> NamedArrays:
    """Return the arrays of a file: the only one of a .npy, without a name, or the arrays of an .npz in the order in which they were saved.

    Raises UnreadableError for another file, UsageError for an array that no model takes.
    """
    place = Path(local(path))
    with contextlib.ExitStack() as ended:  # numpy leaves a file open that it cannot read
        file: Any = _read(path, "", lambda: ended.enter_context(open_regular(place)))
        if not _read(path, "", functools.partial(file.read, len(_NPY))).startswith((_NPY, *_ZIP)):
            raise UnreadableError(path, "it is not a .npy or .npz file of plain arrays: it begins otherwise. Write it with np.savez")
        file.seek(0)
        loaded: Any = _read(path, "", functools.partial(np.load, file, allow_pickle=False))
        if isinstance(loaded, np.ndarray):
            return [("", _plain(path, "", loaded))]
        with loaded:
            return [(name, _plain(path, name, _read(path, name, functools.partial(loaded.__getitem__, name)))) for name in loaded.files]


def _read(path: str | os.PathLike[str], name: str, read: Callable[[], Any]) -> Any:
    """Return the result of a step of reading. Raises UnreadableError, with the array's name."""
    try:
        return read()
    except UnreadableError:  # a ValueError, too
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            raise UnreadableError(path, f"{_called(name)} holds objects of Python, which are not read. Inputs are plain numbers") from None
        raise UnreadableError(path, f"{_called(name)} is damaged: {error}") from None


_NPY, _ZIP = b"\x93NUMPY", (b"PK\x03\x04", b"PK\x05\x06")
"""How files of arrays begin."""


def _plain(path: str | os.PathLike[str], name: str, array: Any) -> Array:
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path}: {_called(name)} is not an array of numpy")
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{path}: {_called(name)} holds {array.dtype}, and inputs are real numbers or true and false")
    if not array.size:
        raise UsageError(f"{path}: {_called(name)} holds no number: its shape is {array.shape}")
    return array


def _called(name: str) -> str:
    return f"its array {quoted(name)}" if name else "its array"


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
    """Return an array whose first two axes, batch and time, are exchanged."""
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
    extra = [name for name in by_name if name not in names]
    if names and len(ordered) == len(names) and extra:
        raise UsageError(f"{model} has no input {listed(extra)}: it takes {listed(names)}. Leave {'it' if len(extra) == 1 else 'them'} out")
    if ordered:
        raise UsageError(
            f"the inputs are called {listed(by_name)}, and {model} takes {listed(names)}. Call them as it does, or all otherwise: "
            "then their order counts"
        )
    if names and len(inputs) > len(names):
        raise UsageError(
            f"there are {len(inputs)} inputs{f', {listed(by_name)},' if all(by_name) else ''} and {model} takes {listed(names)}. Leave the "
            "others out: the outputs of a sample are for rnnconvert diagnose --io"
        )
    return [array for _, array in inputs]
