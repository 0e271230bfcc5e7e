"""onnxruntime's DynamicQuantizeLSTM, as quantize_dynamic makes it of an LSTM: weights in integers, for the kernel transposed.

Source: onnxruntime/docs/ContribOperators.md, com.microsoft.DynamicQuantizeLSTM: scales and zero points for a direction, or for each
of its columns. Its kernel rounds what goes into the products, too, which a file does not show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.claims import ROUNDED
from rnnconvert.core.errors import UnreadableError

DOMAIN, OPERATOR = "com.microsoft", "DynamicQuantizeLSTM"
INPUTS = 12
SCALES = {"W": (8, 9), "R": (10, 11)}
"""Which inputs are the scales and the zero points of a matrix."""
LOSS = (
    "its matrices are stored as integers, and are read as the float32 numbers that these stand for. onnxruntime's kernel also rounds its "
    f"input and its state, {ROUNDED}"
)


def is_one(node: Any) -> bool:
    """Return whether a node is this operator."""
    return bool(node.kind == OPERATOR and node.domain == DOMAIN)


def numbers(path: object, what: str, codes: Array, scale: Array, zero: Array | None) -> Array:
    """Return the numbers that the integers of a matrix stand for, as LSTM has it: (directions, gates * hidden, in).

    Raises UnreadableError for integers without matching scales.
    """
    if codes.dtype not in (np.int8, np.uint8) or codes.ndim != 3 or not is_float(scale):
        raise UnreadableError(path, f"{what} of shape {codes.shape} is of type {codes.dtype}, with a scale of type {scale.dtype}")
    if zero is not None and zero.dtype != codes.dtype:
        raise UnreadableError(path, f"{what} is of type {codes.dtype}, but its zero points are of type {zero.dtype}")
    ways, _, columns = codes.shape
    spread = []
    for factor in (scale, np.zeros(ways, codes.dtype) if zero is None else zero):
        if factor.shape not in ((ways,), (ways, columns)) and not (factor.ndim == 0 and ways == 1):
            raise UnreadableError(path, f"{what} of shape {codes.shape} has scales or zero points of shape {factor.shape}")
        spread.append(factor.reshape(ways, 1, -1).astype(np.float64))
    charging(codes.nbytes).memory(24 * codes.size, path)
    with np.errstate(all="ignore"):
        return np.swapaxes(((codes - spread[1]) * spread[0]).astype(np.float32), 1, 2)
