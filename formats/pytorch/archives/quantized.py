"""Quantized tensors, and the packed weights of layers that torch.ao's dynamic quantization made: read as what they stand for.

Source: torch/_utils.py, _rebuild_qtensor; torch/ao/nn/quantized/dynamic/modules/{rnn,linear}.py; torch/ao/nn/quantized/modules/linear.py,
LinearPackedParams; torch/ao/nn/quantizable/modules/rnn.py, _LSTMLayer and LSTMCell; ATen/native/quantized/cpu/qlinear_dynamic.cpp and
ATen/native/RNN.cpp, QuantizedCellParamsDynamic, __getstate__: the kind, the biases, no numbers, whether the range is reduced, and the two
packed matrices, each with a bias that is one of those; those in float16, QuantizedCellParamsFP16, have them there alone. A recurrent layer
has one of these for each direction of each layer; a dense layer and each product of a cell have one packed matrix.
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
_CELLS = re.compile(r"(?P<module>.*?)_all_weight_values\.(?P<number>\d{1,3})(?:\.param)?")
"""Where a recurrent layer keeps the packed weights of one direction of one layer."""
_MATRIX = re.compile(r"(?P<module>.*?)_packed_(?:params(?:\._packed_params)?|(?P<word>weight_[ih]h))")
"""Where a dense layer and a cell keep a packed matrix; torch.nn has it as `weight`, or by its word."""
_QUANTIZABLE = re.compile(r"(?P<module>.*?)layers\.(?P<layer>\d{1,3})\.layer_(?P<way>fw|bw)\.cell\.(?P<part>.+)")
_PARTS = {"igates.weight": "weight_ih", "hgates.weight": "weight_hh", "igates.bias": "bias_ih", "hgates.bias": "bias_hh"}
"""Where an LSTM that static quantization prepares keeps the arrays of one direction of one layer, in the order of torch.nn.LSTM's gates."""
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


def tensors(value: Any, name: str) -> tuple[ArchivedTensor, ...] | None:
    """Return what is packed in a place: W, R and two biases, or a matrix with its bias if it has one. None for anything else."""
    if _CELLS.fullmatch(name):
        return _cell(value)
    return _matrix(value) if _MATRIX.fullmatch(name) else None


def _state(value: Any, ending: str) -> tuple[Any, ...]:
    """Return the state of a packed object of a class; () for anything else."""
    if not isinstance(value, Foreign):
        return ()
    state = value.state
    if str(value.made_by).endswith("ScriptObject") and isinstance(state, tuple) and len(state) == 2:
        return state[0] if str(state[1]).endswith(ending) and isinstance(state[0], tuple) else ()
    return state if str(value.made_by).endswith(ending) and isinstance(state, tuple) else ()


def _cell(value: Any) -> tuple[ArchivedTensor, ...] | None:
    state = _state(value, "CellParamsBase")
    if len(state) != 5 or not all(isinstance(part, list | tuple) for part in state[1:]):
        return None
    matrices = [_matrix(part) or () for part in state[4]]
    if len(matrices) != 2 or not all(matrices):
        return None
    biases = state[1] if state[0] == "quantized_dynamic" else [bias for matrix in matrices for bias in matrix[1:]]
    weights = (*(matrix[0] for matrix in matrices), *biases)
    shaped = all(isinstance(bias, ArchivedTensor) and len(bias.shape) == 1 for bias in biases)
    return weights if len(biases) == 2 and shaped and state[0] in ("quantized_dynamic", "quantized_fp16") else None


def _matrix(value: Any) -> tuple[ArchivedTensor, ...] | None:
    """Return a packed matrix and its bias, if it has one. A state dictionary has them unpacked, as a pair."""
    state = value if isinstance(value, tuple) else _state(value, "LinearPackedParamsBase")
    weights = tuple(part for part in state[:2] if part is not None)
    complete = all(isinstance(part, ArchivedTensor) and len(part.shape) == 2 - place for place, part in enumerate(weights))
    return weights if complete and state and state[0] is not None else None


def named(
    packed: Mapping[str, tuple[ArchivedTensor, ...]], values: Mapping[str, Any]
) -> tuple[dict[str, dict[str, ArchivedTensor]], dict[str, str]]:
    """Return the tensors of each packed place by the names that torch.nn has for them, and why others are not read."""
    groups: dict[str, dict[int, str]] = {}
    places: dict[str, dict[str, ArchivedTensor]] = {}
    problems: dict[str, str] = {}
    for name, weights in packed.items():
        if matrix := _MATRIX.fullmatch(name):
            word = matrix["word"] or "weight"
            words = (f"{matrix['module']}{word}", f"{matrix['module']}{word.replace('weight', 'bias')}")
            places[name] = dict(zip(words, weights, strict=False))
        elif cell := _CELLS.fullmatch(name):
            groups.setdefault(cell["module"], {})[int(cell["number"])] = name
    for module, cells in groups.items():
        ways = _directions({number: packed[name] for number, name in cells.items()}, values.get(f"{module}bidirectional"))
        if not ways:
            problems[f"{module}_all_weight_values"] = (
                "its packed weights may be of two layers, or of the two directions of one; save the module itself, which states it"
            )
            continue
        for number, name in sorted(cells.items()):
            ending = f"l{number // ways}" + "_reverse" * (number % ways)
            names = tuple(f"{module}{word}_{ending}" for word in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            places[name] = dict(zip(names, packed[name], strict=True))
    return places, problems


def quantizable(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], set[str]]:
    """Return arrays with those of an LSTM that static quantization prepared under the names that torch.nn has; and which are rounded.

    What observes the numbers inside its cells is left out: it decides how these are rounded.
    """
    places = {name: place for name in arrays if (place := _QUANTIZABLE.fullmatch(name))}
    modules = {place["module"] for place in places.values()}
    modules = {each for each in modules if all(f"{each}layers.0.layer_fw.cell.{gates}.weight" in arrays for gates in ("igates", "hgates"))}
    rounding = {place["module"] for name, place in places.items() if place["part"].rpartition(".")[2] == "zero_point"}
    named_arrays, rounded = dict[str, Array](), set[str]()
    for name, array in arrays.items():
        place = places.get(name)
        if place is None or place["module"] not in modules:
            named_arrays[name] = array
        elif place["part"] in _PARTS:
            word = f"{place['module']}{_PARTS[place['part']]}_l{place['layer']}" + "_reverse" * (place["way"] == "bw")
            named_arrays[word] = array
            rounded |= {word} if place["module"] in rounding else set()
    return named_arrays, rounded


def of_outputs(place: str, arrays: Mapping[str, Array]) -> list[str]:
    """Return the names of the scale and zero point of a packed dense layer's outputs where they say that these are floats: 1 and 0."""
    matrix = _MATRIX.fullmatch(place)
    module = matrix["module"] if matrix else ""
    words = {f"{module}scale": 1, f"{module}zero_point": 0}
    return [*words] if all(word in arrays and arrays[word].shape == () and arrays[word] == value for word, value in words.items()) else []


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
