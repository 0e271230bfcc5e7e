"""The numbers of a net's layers: which arrays a type has in the .bin, and in which order.

Source: ncnn src/layer/*.cpp, load_model of each type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array
from rnnconvert.core.claims import ROUNDED
from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.ncnn.param import Numbers, ParamLayer

INT8 = (
    f"stored as int8, and are read as the float32 numbers that these stand for. ncnn's kernels for int8 also round their inputs, {ROUNDED}"
)
ANOTHER_LAYERS = -233
"""The size of a scale that is another layer's output."""


class StoredArray(NamedTuple):
    """An array in the .bin: its name in ncnn's code, its shape, and whether a tag in front of it says how it is stored."""

    name: str
    shape: tuple[int, ...]
    tagged: bool = True


Number = Callable[..., int]
"""Returns a parameter that is a whole number, by its number and its default."""


def arrays_of(layer: ParamLayer, numbers: Numbers, path: Path) -> tuple[dict[str, Array], str] | None:
    """Return the arrays of a layer without recurrence, and what a user should know of them; None where their sizes are unknown here.

    Raises UnreadableError for parameters that state no sizes, and where the numbers end before.
    """

    def number(key: int, default: int = 0) -> int:
        value = layer.integer(key, path, default)
        if value < 0 and value != ANOTHER_LAYERS:
            raise UnreadableError(path, f"parameter {key} of layer {layer.name!r} is {value}")
        return value

    rule = _ARRAYS.get(layer.type)
    if rule is None:
        return ({}, "") if layer.type in _WEIGHTLESS else None
    what, arrays = f"the numbers of layer {layer.name!r} ({layer.type})", dict[str, Array]()
    try:
        stated = rule(number)
    except (ValueError, ZeroDivisionError):
        raise UnreadableError(path, f"the sizes of layer {layer.name!r} ({layer.type}) do not fit together") from None
    if stated is None:
        return None
    for name, shape, tagged in stated:
        count = math.prod(shape)
        arrays[name] = (numbers.tagged(count, what) if tagged else numbers.raw(count, what)).reshape(shape)
    scales = arrays.pop("weight_data_int8_scales", None)
    arrays = {name: array for name, array in arrays.items() if not name.endswith("_blob_int8_scales")}
    weight = arrays.get("weight_data")
    if weight is not None and weight.dtype.kind != "f":
        if scales is None:
            raise UnreadableError(path, f"weight_data of layer {layer.name!r} are integers without scales")
        charging(weight.nbytes).memory(8 * weight.size, path)
        by_row = np.repeat(scales.astype(np.float64), len(weight) // len(scales)).reshape(-1, *[1] * (weight.ndim - 1))
        arrays["weight_data"] = np.divide(weight, by_row, out=np.zeros(weight.shape), where=by_row != 0).astype(np.float32)
    if any(array.dtype.kind != "f" for array in arrays.values()):
        raise UnreadableError(path, f"the numbers of layer {layer.name!r} are integers without scales")
    rounds = scales is not None and layer.type != "Embed"  # which reads no numbers that it could round
    return arrays, f"its weights are {INT8}" if rounds else ""


def _rows(size: int, rows: int) -> int:
    """Return how many numbers a row has. Raises ValueError where rows are not full."""
    if rows < 1 or size < 1 or size % rows:
        raise ValueError(f"{size} numbers in {rows} rows")
    return size // rows


def _dense(number: Number) -> Sequence[StoredArray]:
    units = number(0)
    return [StoredArray("weight_data", (units, _rows(number(2), units))), *_bias(number, 1, units), *_scales(number, units)]


def _bias(number: Number, key: int, units: int) -> Sequence[StoredArray]:
    return [StoredArray("bias_data", (units,), False)] if number(key) else []


def _scales(number: Number, count: int) -> Sequence[StoredArray]:
    """Return the scales of a layer of integers: of its weights, of what it reads, and of what it gives."""
    term = number(8)
    names = [("weight_data", count), *([("bottom_blob", 1)] if term else []), *([("top_blob", 1)] if term > 100 else [])]
    return [StoredArray(f"{name}_int8_scales", (size,), False) for name, size in names] if term else []


def _windows(number: Number, rank: int, dynamic: int, grouped: bool = False, integers: bool = False) -> Sequence[StoredArray]:
    """Return the weights of a convolution over so many axes: (channels that it gives, channels of a group that it reads, *kernel).

    dynamic   the parameter that lets the weights be another layer's output
    grouped   whether it has groups
    integers  whether it may compute in integers
    """
    if number(dynamic):
        return []
    channels, width = number(0), number(1)
    kernel = [number(11, width), width][-rank:]
    weight = (channels, _rows(number(6), channels * math.prod(kernel)), *kernel)
    term, groups = number(8) if integers else 0, number(7, 1) if grouped else 1
    if channels % groups or (grouped and term not in (0, 1, 2, 101, 102)):
        raise ValueError(f"{channels} channels in {groups} groups")
    count = channels if not grouped else groups if term in (1, 101) else 1
    return [StoredArray("weight_data", weight), *_bias(number, 5, channels), *(_scales(number, count) if integers else [])]


def _table(number: Number) -> Sequence[StoredArray]:
    width, rows = number(0), number(1)
    if number(3) != width * rows:
        raise ValueError("a table of another size")
    scale = [StoredArray("weight_data_int8_scales", (1,), False)] if number(18) else []
    return [StoredArray("weight_data", (rows, width)), *_bias(number, 2, width), *scale]


def _held(number: Number) -> Sequence[StoredArray]:
    width, height, depth, channels = (number(key) for key in (0, 1, 11, 2))
    shape = (
        (channels, depth, height, width) if depth else (channels, height, width) if channels else (height, width) if height else (width,)
    )
    return [StoredArray("data", shape, number(21, 1) != 1)] if width else []


def _matrices(number: Number) -> Sequence[StoredArray] | None:
    """Return the constant operands of a product, each as its rows lie; None for those that are stored in blocks of integers."""
    if number(18):
        return None
    m, n, k, spread = number(7), number(8), number(9), layer_sized(number, 10)
    a, b = ((k, m) if number(2) else (m, k)), ((n, k) if number(3) else (k, n))
    c = {0: (1,), 1: (m,), 2: (m, 1), 3: (m, n), 4: (1, n)}.get(spread)
    pairs = [("A_data", a, number(4)), ("B_data", b, number(5)), ("C_data", c, number(6))]
    return [StoredArray(name, shape) for name, shape, constant in pairs if constant and shape is not None]


def layer_sized(number: Number, key: int) -> int:
    """Return a parameter that may be -1."""
    try:
        return number(key)
    except UnreadableError:
        return -1


def _vectors(size: int, *names: str) -> Sequence[StoredArray]:
    return [StoredArray(name, (size,), False) for name in names]


_CONVOLUTIONS = {
    "Convolution": partial(_windows, rank=2, dynamic=19, integers=True),
    "ConvolutionDepthWise": partial(_windows, rank=2, dynamic=19, grouped=True, integers=True),
    "Convolution1D": partial(_windows, rank=1, dynamic=19),
    "ConvolutionDepthWise1D": partial(_windows, rank=1, dynamic=19, grouped=True),
    "Deconvolution": partial(_windows, rank=2, dynamic=28),
    "DeconvolutionDepthWise": partial(_windows, rank=2, dynamic=28, grouped=True),
    "Deconvolution1D": partial(_windows, rank=1, dynamic=28),
    "DeconvolutionDepthWise1D": partial(_windows, rank=1, dynamic=28, grouped=True),
}
_ARRAYS: Mapping[str, Callable[[Number], Sequence[StoredArray] | None]] = {
    **_CONVOLUTIONS,
    "InnerProduct": _dense,
    "Embed": _table,
    "MemoryData": _held,
    "Gemm": _matrices,
    "LayerNorm": lambda number: _vectors(number(0), "gamma_data", "beta_data") if number(2, 1) else [],
    "RMSNorm": lambda number: _vectors(number(0), "gamma_data") if number(2, 1) else [],
    "GroupNorm": lambda number: _vectors(number(1), "gamma_data", "beta_data") if number(3, 1) else [],
    "InstanceNorm": lambda number: _vectors(number(0), "gamma_data", "beta_data") if number(2, 1) else [],
    "BatchNorm": lambda number: _vectors(number(0), "slope_data", "mean_data", "var_data", "bias_data"),
    "Scale": lambda number: [] if number(0) == ANOTHER_LAYERS else _vectors(number(0), "scale_data", *(["bias_data"] if number(1) else [])),
    "PReLU": lambda number: _vectors(number(0), "slope_data"),
    "Bias": lambda number: _vectors(number(0), "bias_data"),
    "Normalize": lambda number: _vectors(number(3), "scale_data"),
    "Padding": lambda number: _vectors(number(6), "per_channel_pad_data") if number(6) else [],
}
"""The arrays of each type by its parameters, in the order of the .bin."""
_WEIGHTLESS = frozenset((
    "Input", "Split", "Concat", "Slice", "Reshape", "Permute", "Flatten", "Dropout", "Noop", "Crop", "Squeeze", "ExpandDims", "Tile",
    "Packing", "Cast", "ShuffleChannel", "CopyTo", "Fold", "Unfold", "Flip", "Softmax", "ReLU", "Sigmoid", "TanH", "Eltwise", "BinaryOp",
    "UnaryOp", "Pooling", "Pooling1D", "Clip", "Reduction", "Interp", "HardSigmoid", "HardSwish", "Swish", "Mish", "ELU", "SELU", "CELU",
    "GELU", "Log", "Exp", "Power", "Threshold", "AbsVal", "BNLL", "ArgMax", "Softplus", "Erf", "MatMul", "CumulativeSum", "GLU", "LRN",
    "Shrink", "PixelShuffle", "Reorg", "DeepCopy", "Diag", "Einsum",
))  # fmt: skip
"""Types of layers without numbers in the .bin."""
