"""joblib's pickles, which have the bytes of arrays between their instructions.

Source: joblib/numpy_pickle.py of 1.5, NumpyArrayWrapper.write_array.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from rnnconvert.containers import pickles
from rnnconvert.containers.numpy_values import JOBLIB_ARRAY
from rnnconvert.containers.pickle_values import Foreign
from rnnconvert.core.errors import UnreadableError

_ITEM = re.compile(r"[biufcmMSVU](\d{1,9})")


def meanings(path: object) -> pickles.Meanings:
    """Return, for `pickles.load`, the reader of an array's bytes: they become the last argument of its object.

    An array of objects is a separate pickle: its value becomes that argument.
    """

    def follow(wrapper: Foreign, data: memoryview, at: int) -> int:
        if not isinstance(wrapper.state, dict):
            raise UnreadableError(path, "its pickle has an array of joblib's without a description")
        size = _item_size(wrapper.state.get("dtype"))
        if size is None:
            value, end = pickles.load(np.frombuffer(data[at:], np.uint8), path, meanings(path), most=len(data))
            wrapper.args = (*wrapper.args, value)
            return at + end
        if wrapper.state.get("numpy_array_alignment_bytes") is not None:
            at += 1 + data[at]
        length = math.prod(wrapper.state["shape"]) * size
        if not 0 <= length <= len(data) - at:
            raise UnreadableError(path, "its pickle is truncated: an array of joblib's reaches beyond its end")
        wrapper.args = (*wrapper.args, bytes(data[at : at + length]))
        return at + length

    return pickles.Meanings(followers={JOBLIB_ARRAY: follow})


def _item_size(dtype: Any) -> int | None:
    """Return the bytes of an element, as its pickled type states them; None for objects."""
    text = dtype.args[0]
    if text == "O8":
        return None
    match = _ITEM.fullmatch(text)
    if match is None:
        raise ValueError(f"elements of the type {text!r:.40}")
    return int(match[1]) * (4 if text[0] == "U" else 1)
