"""Models of Keras 2.2 and 2.3 that were pickled: the state of the object is what `model.save` writes, as nested dictionaries.

Sources: keras 2.2.4 keras/engine/saving.py, pickle_model; keras/utils/io_utils.py, H5Dict.__setitem__, which pickles each array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import pickled_arrays, pickles
from rnnconvert.containers.numpy_values import content, numpy_value
from rnnconvert.containers.pickle_values import Foreign
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.names import named
from rnnconvert.files.opened import Opened
from rnnconvert.formats.keras.metadata import KerasMetadata

_WEIGHTS, _CONFIG = "model_weights", "model_config"
_MARK = "_{}_pickled"
"""The key that states of another one that its array is a separate pickle."""


def recognise(file: Opened) -> str:
    """Return the evidence that a file is such a pickle; "" for any other, and for a damaged one."""
    try:
        return f"a pickle of {_state(file.path)[0]}" if "pickle" in file.kinds else ""
    except (UnreadableError, LookupError):
        return ""


def read(path: Path) -> Stored:
    """Return the content of such a pickle, as an HDF5 file of the model would have it. Raises UnreadableError."""
    _, state = _state(path)
    layers: Mapping[str, Mapping[str, Any]] = {name: group for name, group in state[_WEIGHTS].items() if isinstance(group, dict)}
    attributes = {"": _texts(state), _WEIGHTS: _texts(state[_WEIGHTS])}
    attributes |= {f"{_WEIGHTS}/{name}": _texts(group) for name, group in layers.items()}
    arrays = ((f"{_WEIGHTS}/{layer}/{name}", array) for layer, group in layers.items() for name, array in _arrays(path, group))
    return Stored(named(arrays, path), KerasMetadata(attributes=attributes))


def _state(path: Path) -> tuple[str, Mapping[str, Any]]:
    """Return the class of the pickled model, and its state. Raises LookupError for any other pickle."""
    model = pickled_arrays.value(path)
    if not isinstance(model, Foreign) or not isinstance(model.state, dict):
        raise LookupError
    if not isinstance(model.state[_WEIGHTS], dict) or content(model.state[_CONFIG]) is None:
        raise LookupError
    return str(model.made_by), model.state


def _texts(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts and lists of texts that a dictionary holds, as attributes of HDF5 are read."""
    plain = {key: _text(value) for key, value in group.items() if isinstance(key, str) and not group.get(_MARK.format(key))}
    return {key: value for key, value in plain.items() if value is not None}


def _text(value: Any) -> Any:
    if isinstance(value, list):
        each = [_text(entry) for entry in value]
        return None if None in each else each
    raw = value.encode() if isinstance(value, str) else content(value)
    return None if raw is None else raw.decode("utf-8", "replace")


def _arrays(path: Path, group: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    for name, value in group.items():
        raw = content(value)
        if raw is not None and group.get(_MARK.format(name)):
            inner = pickles.load_row(np.frombuffer(raw, np.uint8), path)
            array = numpy_value(inner) if isinstance(inner, Foreign) else None
            if array is None:
                raise UnreadableError(path, f"{name!r} is not an array")
            yield name, array
