"""Quantized tensors, and the packed weights of layers that torch.ao's dynamic quantization made: read as what they stand for.

Source: torch/_utils.py, _rebuild_qtensor; torch/ao/nn/quantized/dynamic/modules/rnn.py; ATen/native/quantized/cpu/qlinear_dynamic.cpp
and ATen/native/RNN.cpp, QuantizedCellParamsDynamic, __getstate__: the kind, the biases, no numbers, whether the range is reduced, and
the two packed matrices, each with a bias that is one of those. A layer has one of these for each direction of each layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnconvert.containers.pickle_values import Foreign
from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array
from rnnconvert.formats.pytorch.archives.values import ArchivedTensor

STORAGES: dict[str, np.dtype[Any]] = {
    "QInt8Storage": np.dtype(np.int8),
    "QUInt8Storage": np.dtype(np.uint8),
    "QInt32Storage": np.dtype(np.int32),
}
"""Element types of quantized tensors by their storage classes."""
PLACE = re.compile(r"(?P<module>.*?)_all_weight_values\.(?P<number>\d{1,3})(?:\.param)?")
"""Where a layer keeps its packed weights."""
_PER_TENSOR, _PER_CHANNEL = ("torch.per_tensor_affine", "torch.per_tensor_symmetric"), ("torch.per_channel_affine",)


def meant(stored: Array, quantizer: tuple[Any, ...], scales: Any, zeros: Any) -> Array:
    """Return the float32 numbers that integers stand for. Raises ValueError for a scheme that is unknown, or damaged."""
    scheme = str(quantizer[0])
    charging(stored.nbytes).memory(8 * stored.size, "a quantized tensor")
    if scheme in _PER_TENSOR and len(quantizer) >= 3:
        if type(scales) not in (float, int) or type(zeros) is not int:
            raise ValueError("its scale or its zero point is not a number")
        with np.errstate(all="ignore"):
            numbers: Array = ((stored.astype(np.float64) - zeros) * scales).astype(np.float32)
        return numbers
    if scheme in _PER_CHANNEL and len(quantizer) >= 4:
        axis = quantizer[3]
        fits = type(axis) is int and 0 <= axis < stored.ndim and isinstance(scales, np.ndarray) and isinstance(zeros, np.ndarray)
        if not fits or scales.shape != (stored.shape[axis],) or zeros.shape != scales.shape:
            raise ValueError("its scales do not fit its shape")
        spread = [-1 if index == axis else 1 for index in range(stored.ndim)]
        with np.errstate(all="ignore"):
            numbers = ((stored - zeros.astype(np.float64).reshape(spread)) * scales.astype(np.float64).reshape(spread)).astype(np.float32)
        return numbers
    raise ValueError(f"its scheme {scheme} is unknown")


def _state(value: Any, ending: str) -> tuple[Any, ...]:
    """Return the state of a packed object of a class; () for anything else."""
    if not isinstance(value, Foreign):
        return ()
    state = value.state
    if str(value.made_by).endswith("ScriptObject") and isinstance(state, tuple) and len(state) == 2:
        return state[0] if str(state[1]).endswith(ending) and isinstance(state[0], tuple) else ()
    return state if str(value.made_by).endswith(ending) and isinstance(state, tuple) else ()


def cell(value: Foreign) -> tuple[ArchivedTensor, ...] | None:
    """Return the tensors of one direction of one layer, as torch.nn has them: W, R and two biases. None for anything else."""
    state = _state(value, "CellParamsBase")
    if len(state) != 5 or state[0] != "quantized_dynamic" or not all(isinstance(part, list | tuple) for part in state[1:]):
        return None
    _, biases, _, _, packed = state
    matrices = [_state(part, "LinearPackedParamsBase")[:1] for part in packed]
    tensors = (*(matrix[0] for matrix in matrices if matrix), *biases)
    complete = len(tensors) == 4 and all(
        isinstance(number, ArchivedTensor) and len(number.shape) == 2 - place // 2 for place, number in enumerate(tensors)
    )
    return tensors if complete else None


def named(packed: Mapping[str, tuple[ArchivedTensor, ...]], values: Mapping[str, Any]) -> tuple[dict[str, ArchivedTensor], dict[str, str]]:
    """Return the tensors of packed layers by the names that torch.nn has for them, and why others are not read."""
    groups: dict[str, dict[int, tuple[ArchivedTensor, ...]]] = {}
    for name, tensors in packed.items():
        place = PLACE.fullmatch(name)
        assert place is not None
        groups.setdefault(place["module"], {})[int(place["number"])] = tensors
    named_tensors: dict[str, ArchivedTensor] = {}
    problems: dict[str, str] = {}
    for module, cells in groups.items():
        ways = _directions(cells, values.get(f"{module}bidirectional"))
        if not ways:
            problems[f"{module}_all_weight_values"] = (
                "its packed weights may be of two layers, or of the two directions of one; save the module itself, which states it"
            )
            continue
        for number, tensors in sorted(cells.items()):
            ending = f"l{number // ways}" + "_reverse" * (number % ways)
            for local, tensor in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), tensors, strict=True):
                named_tensors[f"{module}{local}_{ending}"] = tensor
    return named_tensors, problems


def _directions(cells: Mapping[int, tuple[ArchivedTensor, ...]], stated: object) -> int:
    """Return how many directions packed cells are of, by the widths that they read; 0 where these do not show it."""
    if isinstance(stated, bool):
        return 1 + stated
    widths = [cells[number][0].shape[1] for number in sorted(cells)]
    units = cells[min(cells)][1].shape[1]
    if len(widths) % 2:
        return 1
    flat = all(width == units for width in widths[1:])
    both_ways = widths[1] == widths[0] and all(width == 2 * units for width in widths[2:])
    return 0 if flat == both_ways else 1 + both_ways
