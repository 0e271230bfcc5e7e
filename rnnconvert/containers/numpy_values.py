"""NumPy's arrays and scalars in a pickle, built from its data alone; nothing in the pickle is called."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from rnnconvert.containers.pickle_values import Foreign, Global
from rnnconvert.containers.pickles import RECOVERABLE
from rnnconvert.core.arrays import BFLOAT16, Array

JOBLIB_ARRAY = "joblib.numpy_pickle.NumpyArrayWrapper"
"""The class that stands for an array in a pickle of joblib's; its bytes follow (rnnconvert.containers.pickled_arrays)."""

_ELEMENT = re.compile(r"b1|[iu][1248]|f[248]|c(8|16)")


def numpy_value(value: Foreign) -> Array | None:
    """Return the array of numbers that a pickled ndarray or scalar stands for; None if it is anything else.

    Source: the `__reduce__` of ndarray and generic in numpy/_core/src/multiarray.
    """
    name = str(value.made_by).replace("numpy._core.", "numpy.core.")
    try:
        if name == "numpy.core.multiarray.scalar":
            dtype, raw = value.args
            return _array((), dtype, False, raw)
        if name == "numpy.core.multiarray._reconstruct":
            _, shape, dtype, by_column, raw = value.state
            return _array(shape, dtype, by_column, raw)
        if name == "numpy.core.numeric._frombuffer":
            raw, dtype, shape, order = value.args
            return _array(shape, dtype, order == "F", raw)
        if name == JOBLIB_ARRAY:
            return _array(value.state["shape"], value.state["dtype"], value.state["order"] == "F", value.args[-1])
        # Arrays of another library may be pickled as what NumPy makes them of: function, arguments, state.
        made_by, args, state, *_ = value.args
        if isinstance(made_by, Global) and made_by != value.made_by and str(made_by).startswith("numpy."):
            return numpy_value(Foreign(made_by, args, state))
    except RECOVERABLE:
        pass
    return None


def _array(shape: Any, dtype: Any, by_column: Any, raw: Any) -> Array | None:
    element = _element(dtype)
    data = content(raw)
    lengths = tuple(shape)
    if element is None or data is None or not all(isinstance(length, int) for length in lengths):
        return None
    if min(lengths, default=0) < 0 or math.prod(lengths) * element.itemsize != len(data):
        return None
    array: Array = np.ndarray(lengths, element, data, order="F" if by_column else "C")
    return array if array.dtype.isnative else array.astype(element.newbyteorder("="))


def _element(dtype: Any) -> np.dtype[Any] | None:
    if not isinstance(dtype, Foreign) or str(dtype.made_by) != "numpy.dtype":
        return None
    text, order = dtype.args[0], dtype.state[1]
    if isinstance(text, Global) and str(text) == "ml_dtypes.bfloat16" and order in ("<", "="):
        return BFLOAT16
    if not isinstance(text, str) or not _ELEMENT.fullmatch(text) or order not in ("<", ">", "|", "="):
        return None
    element: np.dtype[Any] = np.dtype(order + text)
    return element


def content(raw: Any) -> bytes | None:
    """Return the bytes that a value of a pickle stands for; None if it is anything else."""
    # Python 2's protocols write bytes as text, and a call that encodes it.
    if isinstance(raw, Foreign) and str(raw.made_by) == "_codecs.encode" and raw.args[1:] == ("latin1",):
        text = raw.args[0]
        return text.encode("latin1") if isinstance(text, str) else None
    if isinstance(raw, str):  # and Python 2 itself has no other bytes
        return raw.encode("latin1")
    return bytes(raw) if isinstance(raw, bytes | bytearray) else None
